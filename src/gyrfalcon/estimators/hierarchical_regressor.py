"""Kernel ridge regression with every row as a center, by a tree of cells."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.checks import array
from .._utils.registry import register
from .._utils.threads import effective_n_jobs
from ..callbacks import CallbackLike
from ..fitting.arguments import described
from ..fitting.hierarchical import RULES, HierarchicalUncertainty
from ..fitting.parameters import check_parameters
from ..fitting.posterior import check_noise
from ..fitting.tree_rows import checked_blocks
from ..hierarchy import LocalPosterior
from ..kernels import Kernel, KernelFunction
from ..storage.checkpoints import Checkpoint
from ._posterior import UncertainRegressor
from ._trees import OnTrees

Array = NDArray[Any]


@register
@described
class HierarchicalRegressor(UncertainRegressor, OnTrees):
    """Kernel ridge regression with every row as a center, in time proportional to the number of rows.

    A binary tree of hyperplanes splits the rows into leaves. Within a leaf the kernel is exact; between leaves it is
    approximated by pivots, which are random rows of the smallest part of the tree that contains both (the
    hierarchically compositional kernel [1]_). The system (K + penalty n I) coef = y with this kernel is solved
    directly: there are no iterations. Predictions are the mean of a few trees, because a single one shows the borders
    of its cells. Rough kernels (Laplacian, Matérn), which need centers everywhere, gain most.

    Parameters
    ----------
    {kernel, trees.n_centers, penalty, trees.penalties}
    choose_by : {"validation", "loo", "evidence"} or None, default=None
        Criterion by which one of the `penalties` is chosen: the error on the validation rows (given to `fit`, or held
        out of X), the leave-one-out error, or the evidence, which is the probability of y under the model. None is
        "validation" if `fit` is given validation rows, else "loo".
    {leaf_size, rank, n_trees, n_neighbors, split}
    {fit_intercept, dense.scale}
    uncertainty : bool, default=False
        Whether `predict(X, return_std=True)` and `predict_interval` are available. They need about n rank / 2 numbers
        for each tree. It requires a positive penalty.
    {validation_fraction, checkpoint}
    {trees.dtype, trees.memory_budget, n_jobs, trees.random_state, callbacks, verbose}

    Attributes
    ----------
    {rows.centers_}
    {trees_, global_centers_ global_coef_, neighborhoods_, leaf_size_ rank_, kernel_, penalty_, trees.n_iter_}
    history_ : list of dict
        For each tree: `iteration`, `n_leaves`, `seconds`, `penalties`, and for each penalty the `log_evidences`, and,
        where they are computed, the `loo_errors` and `validation_errors` of the mean of the trees so far.
    {offset_, output_dtype_, noise_variance_}
    posteriors_, noise_, prior_deviation_, conformity_ : objects
        With `uncertainty=True`, what standard deviations and intervals are computed from.
    {mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    ExactRegressor : The exact kernel, up to some 50,000 rows.
    FalkonRegressor : Fewer centers, which suffice for smooth kernels.

    Notes
    -----
    The time is about n (leaf_size^2 + 10 rank^2) multiplications for each tree and penalty, and the memory n rank
    numbers. Predicting a row takes leaf_size + rank values of the kernel for each tree, whatever n is. The variance of
    a prediction is the mean of the trees' variances plus the variance of their predictions.

    References
    ----------
    .. [1] Chen, Avron, Sindhwani, "Hierarchically Compositional Kernels for Scalable Nonparametric Learning", JMLR
       2017.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import HierarchicalRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(2000, 2))
    >>> y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1])
    >>> model = HierarchicalRegressor("laplacian", penalty=1e-6, leaf_size=200, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    _kept = ("posteriors_", "noise_", "prior_deviation_", "conformity_", "noise_variance_")

    posteriors_: list[LocalPosterior]
    noise_: Array
    prior_deviation_: Array

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
        n_neighbors: int = 0,
        split: str = "axis",
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        uncertainty: bool = False,
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
        self.n_neighbors = n_neighbors
        self.split = split
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.uncertainty = uncertainty
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
        {dense.X, fit.y, fit.sample_weight, fit.X_val y_val}

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **RULES)
        if self.uncertainty:
            check_noise(self.penalty, self.penalties)
        settings = self._settings(uncertainty=self.uncertainty, n_neighbors=self.n_neighbors)
        settings.check()
        with self._session(checkpoint=self.checkpoint) as session:
            hold_out = self.validation_fraction if self.choose_by == "validation" else None
            data = self._data(session, X, y, sample_weight, X_val, y_val, hold_out=hold_out)
            problem, found = self._solve(data, session, settings)
            self._set_solution(problem.data, session)
            self._set_trees(problem, found)
            self._forget_uncertainty()
            if found.uncertainty is not None:
                self._set_uncertainty(found.uncertainty)
        return self

    def _set_uncertainty(self, found: HierarchicalUncertainty) -> None:
        self.posteriors_, self.noise_, self.conformity_ = found.posteriors, found.noise, found.conformity
        self.prior_deviation_ = found.prior_deviation
        noise = np.square(found.noise_deviation)
        self.noise_variance_ = float(noise[0]) if self._has_one_column else noise

    def _deviations(self, X: Any) -> Array:
        """Return the root of the mean variance over trees plus the variance of their predictions."""
        rows = self._scaled_rows(X, self.centers_.dtype)
        n_threads, tau = effective_n_jobs(self.n_jobs), self.prior_deviation_
        out = np.empty((rows.shape[0], len(tau)))
        for at, block in checked_blocks(rows):
            diagonal = np.asarray(self.kernel_.diag(block), dtype=np.float64)
            values, variances = [], np.zeros(len(block))
            for expansion, posterior in zip(self.trees_, self.posteriors_, strict=True):
                hierarchy = expansion.hierarchy(self.kernel_, self.centers_)
                variances += posterior.variances(hierarchy, self.noise_, block, diagonal, n_threads)
                values.append(expansion.predict(self.kernel_, self.centers_, block, n_threads))
            out[at] = np.hypot(np.sqrt(variances / len(values))[:, None] * tau, np.std(values, axis=0))
        return out

    def _widths(self, X: Any) -> Array:
        return np.hypot(self._deviations(X), np.sqrt(self.noise_variance_))

    def _check_uncertainty(self, k: int) -> None:
        array((len(self.centers_),))("noise_", self.noise_)
        array((k,))("prior_deviation_", self.prior_deviation_)
        if self.noise_.min() <= 0:
            raise ValueError("noise_ is not positive")
        shapes = [(*tree.pivots.shape, tree.pivots.shape[1]) for tree in self.trees_]
        if not all(isinstance(one, LocalPosterior) for one in self.posteriors_) or shapes != [
            one.covariances.shape for one in self.posteriors_
        ]:
            raise ValueError("posteriors_ do not fit trees_")
