"""Kernel least-squares classification with every row as a center, and probabilities from cross-validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.checks import integer, one_of, optional
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..fitting import pcg
from ..fitting.arguments import described
from ..fitting.calibration import Calibration, fit_calibration
from ..fitting.data import FitData
from ..fitting.exact_preconditioner import PRECONDITIONERS
from ..fitting.folds import check_cv
from ..fitting.parameters import check_parameters
from ..fitting.precision import warn_if_rounded
from ..fitting.ridge import every_row
from ..fitting.targets import class_codes
from ..kernels import Kernel, KernelFunction
from ..operators import make_operator
from ._calibrated import CalibratedClassifier

Array = NDArray[Any]


@register
@described
class ExactClassifier(CalibratedClassifier):
    """Exact kernel least-squares classification, with every row as a center: for some 50,000 rows.

    Regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) by kernel ridge
    regression, as `ExactRegressor` with `method="pcg"` [1]_. Cross-validation is part of the same products: it chooses
    the penalty, and its values calibrate probabilities. The most probable class is predicted.

    Parameters
    ----------
    {kernel}
    n_centers : int or None, default=None
        Number of rows, or of random features, from which the preconditioner is computed. With more of them, fewer
        iterations are needed, but the preconditioner takes more time and memory. None is 5 sqrt(n), or sqrt(10 n) for
        `preconditioner="hierarchical"`, and at least 1,000.
    {penalty}
    penalties : array of shape (P,), or None, default=None
        Penalties to choose from, by `choose_by`. They share the passes over the rows.
    choose_by : {"validation", "cv"} or None, default=None
        How one of the `penalties` is chosen and probabilities are calibrated: on the validation rows (given to `fit`,
        or held out of X), by the fraction of wrong classes, or by cross-validation, with the squared error. None is
        "validation" if `fit` is given validation rows, else "cv".
    cv : int, splitter or array of shape (n,), default=5
        Folds of `choose_by="cv"`: their number, for random folds with the same proportions of classes; a splitter of
        scikit-learn that holds out each row once, such as `StratifiedKFold`; or the number of each row's fold.
    {class_weight, fit_intercept, dense.scale, exact.preconditioner}
    max_iter : int or None, default=None
        Maximum number of iterations of conjugate gradient. None is 100.
    tol : float or None, default=None
        Tolerance at which iterations stop: when the root mean square of the residual, which bounds the error of the
        fitted values, falls below `tol` times the standard deviation of the targets +1 and -1. A `ConvergenceWarning`
        is given if that was not reached. None is 1e-4 in float32 and 1e-6 in float64, and warns only if values would
        still change by 5% of that standard deviation.
    {validation_fraction}
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of the kernel. "auto" is the precision of X, but float64 if float32 would lose a single penalty or
        part of f, as happens with a smooth kernel and a small penalty. Vectors and factors are in float64.
    memory_budget : "auto", int or str, default="auto"
        Memory for the n x n kernel matrix, in bytes or as a string such as "4GB". If the matrix fits, it is kept, so
        that iterations do not compute it again. "auto" is half of the available memory.
    {device, n_jobs, exact.random_state, callbacks, verbose}

    Attributes
    ----------
    {classes_, rows.centers_, classes.dual_coef_, kernel_, penalty_, calibration_}
    cv_predictions_ : array of shape (n,) for two classes, else (n, n_classes)
        With `choose_by="cv"`, the values of `uncalibrated` for the rows given to `fit`, by models with the chosen
        penalty that have not seen their fold; NaN for rows of weight 0. ``calibration_.probabilities(cv_predictions_)``
        are their probabilities. Nothing else uses them: delete them before `save` if they are too large.
    {n_iter_}
    history_ : list of dict
        One record for each iteration, as for `ExactRegressor` with `method="pcg"`; `cv_errors` are root mean squares
        for targets +1 and -1, and `validation_error` and `validation_errors` shares of wrong classes before
        calibration.
    {classes.offset_, classes.output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    FalkonClassifier : For millions of rows, and with the logistic loss.
    ExactRegressor : The same for regression.

    Notes
    -----
    Probabilities are softmax(a p + c log q + d (log q - q) + b), with p = (1 + f) / 2 of each class's value f of least
    squares and q = p clipped to [eps, 1]. a, c and d, which are not negative, and b of each class have the least
    log-loss on rows that were not learnt from. The order of two classes' values stays as it is.

    References
    ----------
    .. [1] Cutajar, Osborne, Cunningham, Filippone, "Preconditioning Kernel Matrices", ICML 2016.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon import ExactClassifier
    >>> X, y = make_moons(500, noise=0.2, random_state=0)
    >>> model = ExactClassifier(penalties=[1e-5, 1e-4, 1e-3], random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    >>> model.predict_proba([[0.0, 1.0], [0.5, 0.25]]).round(1)
    array([[1. , 0. ],
           [0.4, 0.6]])
    """

    penalty_: float
    cv_predictions_: Array

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | None = None,
        penalty: float | str = "auto",
        penalties: ArrayLike | None = None,
        choose_by: str | None = None,
        cv: Any = 5,
        class_weight: Mapping[Any, float] | str | None = None,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        preconditioner: str = "auto",
        max_iter: int | None = None,
        tol: float | None = None,
        validation_fraction: float = 0.1,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        device: Any = None,
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
        self.cv = cv
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.preconditioner = preconditioner
        self.max_iter = max_iter
        self.tol = tol
        self.validation_fraction = validation_fraction
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.device = device
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
            Rows on which the validation error (the share of wrong classes) is recorded. Unless `choose_by="cv"`, they
            also choose the penalty and calibrate probabilities.

        Returns
        -------
        self
        """
        check_parameters(
            self.get_params(deep=False),
            choose_by=one_of(None, "validation", "cv"),
            cv=check_cv,
            preconditioner=one_of(*PRECONDITIONERS),
            max_iter=optional(integer(1)),
        )
        with self._session() as session:
            hold_out = self.validation_fraction if self.choose_by == "validation" else None
            data, classes = self._data(session, X, y, sample_weight, X_val, y_val, hold_out=hold_out)
            labels, compute = class_codes(data.targets), self._compute
            penalties = self.penalty if self.penalties is None else self.penalties
            problem = every_row(self.kernel, penalties, data, compute, session.random_state, iterates=True)
            data = problem.data
            settings = pcg.PcgSettings(
                n_centers=self.n_centers,
                preconditioner=self.preconditioner,
                choose_by=self.choose_by,
                cv=self.cv,
                max_iter=self.max_iter,
                tol=self.tol,
            )
            found = pcg.solve(settings, problem, compute, session, labels)
            vars(self).pop("cv_predictions_", None)  # of an earlier fit
            if found.cv_predictions is None:
                self.calibration_ = self._calibrated_by_validation(data, found, len(classes))
            else:
                self.calibration_ = fit_calibration(found.cv_predictions, labels, len(classes), data.weight)
                self.cv_predictions_ = data.of_all(found.cv_predictions)
            self._set_solution(data, session)
            self._set_expansion(found.operator, found.coef, data)
            foreseen = problem.penalty is not None and data.dtype_given
            warn_if_rounded(found.operator, found.coef, None, foreseen=foreseen)
            self.classes_, self.penalty_ = classes, found.penalty
        return self

    def _calibrated_by_validation(self, data: FitData, found: pcg.PcgSolution, n_classes: int) -> Calibration:
        held, operator = data.validation, found.operator
        assert held is not None
        on_held = make_operator(
            operator.kernel, held.rows, operator.centers, n_jobs=self.n_jobs, memory_budget=0, device=self.device
        )
        values = on_held.matmat(found.coef)
        values = values if data.offset is None else values + data.offset
        return fit_calibration(values, class_codes(held.targets), n_classes, held.weight)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        self._check_calibration()
