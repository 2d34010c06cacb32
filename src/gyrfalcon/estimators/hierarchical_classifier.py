"""Kernel least-squares classification with every row as a center, by a tree of cells."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.registry import register
from ..callbacks import CallbackLike
from ..fitting.arguments import described
from ..fitting.calibration import fit_calibration
from ..fitting.hierarchical import RULES, HierarchicalSolution
from ..fitting.parameters import check_parameters
from ..fitting.ridge import EveryRow
from ..fitting.targets import class_codes
from ..kernels import Kernel, KernelFunction
from ..storage.checkpoints import Checkpoint
from ._calibrated import CalibratedClassifier
from ._trees import OnTrees

Array = NDArray[Any]


@register
@described
class HierarchicalClassifier(OnTrees, CalibratedClassifier):
    """Kernel least-squares classification with every row as a center, in time proportional to the number of rows.

    It regresses on targets +1 and -1 (one column for two classes, one for each class otherwise), as
    `HierarchicalRegressor` does: within leaves of a binary tree the kernel is exact, between them it is approximated by
    pivots, and the system is solved directly [1]_. The leave-one-out values of the training rows, which the solve
    gives, calibrate probabilities. The most probable class is predicted.

    Parameters
    ----------
    {kernel, trees.n_centers, penalty, trees.penalties}
    choose_by : {"validation", "loo", "evidence"} or None, default=None
        Criterion by which one of the `penalties` is chosen: the fraction of wrong classes on the validation rows (given
        to `fit`, or held out of X), the squared leave-one-out error, or the evidence of the targets +1 and -1.
        Validation rows also calibrate probabilities. None is "validation" if `fit` is given validation rows, else
        "loo".
    {leaf_size, rank, n_trees, split}
    {class_weight, fit_intercept, dense.scale, validation_fraction, checkpoint}
    {trees.dtype, trees.memory_budget, n_jobs, trees.random_state, callbacks, verbose}

    Attributes
    ----------
    {classes_, rows.centers_}
    {trees_, global_centers_ global_coef_, leaf_size_ rank_, kernel_, penalty_, calibration_, trees.n_iter_}
    history_ : list of dict
        For each tree: `iteration`, `n_leaves`, `seconds`, `penalties`, and for each penalty the `log_evidences`, and,
        where they are computed, the `loo_errors` for targets +1 and -1 and the `validation_errors`, the shares of wrong
        classes before calibration, of the mean of the trees so far.
    {classes.offset_, classes.output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    ExactClassifier : The exact kernel, up to some 50,000 rows.
    FalkonClassifier : Fewer centers, and the logistic loss.

    References
    ----------
    .. [1] Chen, Avron, Sindhwani, "Hierarchically Compositional Kernels for Scalable Nonparametric Learning", JMLR
       2017.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon import HierarchicalClassifier
    >>> X, y = make_moons(2000, noise=0.2, random_state=0)
    >>> model = HierarchicalClassifier(penalties=[1e-5, 1e-4, 1e-3], leaf_size=200, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | None = None,
        penalty: float | str = "auto",
        penalties: ArrayLike | None = None,
        choose_by: str | None = None,
        leaf_size: int | None = None,
        rank: int | None = None,
        n_trees: int = 4,
        split: str = "axis",
        class_weight: Mapping[Any, float] | str | None = None,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        validation_fraction: float = 0.1,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_centers = n_centers
        self.penalty = penalty
        self.penalties = penalties
        self.choose_by = choose_by
        self.leaf_size = leaf_size
        self.rank = rank
        self.n_trees = n_trees
        self.split = split
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.validation_fraction = validation_fraction
        self.checkpoint = checkpoint
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        {dense.X, labels.y, fit.sample_weight}
        X_val, y_val : optional
            Rows on which the validation error (the share of wrong classes) is recorded. Unless `choose_by` is given,
            they also choose the penalty and calibrate probabilities.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **RULES)
        self._settings().check()
        with self._session(checkpoint=self.checkpoint) as session:
            hold_out = self.validation_fraction if self.choose_by == "validation" else None
            data, classes = self._data(session, X, y, sample_weight, X_val, y_val, hold_out=hold_out)
            by_validation = data.validation is not None and self.choose_by in (None, "validation")
            problem, found = self._solve(data, session, self._settings(with_left_out=not by_validation))
            calibration = self._calibrated(problem, found, len(classes), by_validation)
            self._set_solution(problem.data, session)
            self._set_trees(problem, found)
            self.calibration_, self.classes_ = calibration, classes
        return self

    def _calibrated(self, problem: EveryRow, found: HierarchicalSolution, n_classes: int, by_validation: bool) -> Any:
        """Fit probabilities to values of rows that were not learnt from."""
        data = problem.data
        if by_validation:
            held = data.validation
            assert held is not None
            assert found.validation is not None
            values, targets, weight = found.validation, held.targets, held.weight
        else:
            assert found.left_out is not None
            values, weight = found.left_out, data.weight
            targets = data.targets if data.offset is None else data.targets + data.offset
        values = values if data.offset is None else values + data.offset
        return fit_calibration(values, class_codes(targets), n_classes, weight)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        coef = self.trees_[0].coef
        self._check_classes(coef[:, 0] if self._has_one_column else coef)
        self._check_calibration()
