"""Kernel least squares with every row as a center: what the papers compare with.

(K + lambda n I) alpha = y (KRLS), by a factorisation or by conjugate gradient; its limit without a penalty (KOLS); and
gradient descent that stops early.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.checks import integer, one_of, optional
from .._utils.memory import parse_memory
from .._utils.registry import register
from ..callbacks import CallbackLike, NoImprovement
from ..fitting import askotch, pcg
from ..fitting.arguments import described
from ..fitting.convergence import tolerance, warn_if_unsettled
from ..fitting.exact_preconditioner import PRECONDITIONERS
from ..fitting.folds import check_cv
from ..fitting.kernel import validation_watch
from ..fitting.parameters import STEP_OR_NONE, check_parameters
from ..fitting.penalties import choose_penalty, validation_errors
from ..fitting.posterior import BUFFERS, Uncertainty, check_noise, uncertainty_of_path
from ..fitting.precision import warn_if_chosen_penalty_rounds, warn_if_rounded
from ..fitting.ridge import EveryRow, check_gram_memory, every_row, least_penalty, ridge
from ..fitting.session import Session, finite
from ..fitting.steps import stable_step
from ..kernels import Kernel, KernelFunction
from ..operators import Operator
from ..solvers import Iterate, exact_path, kernel_descent
from ..solvers.lanczos import lanczos
from ._posterior import PosteriorRegressor

Array = NDArray[Any]

_FALKON = 'method="pcg" or FalkonRegressor, which do without them,'
_MAX_ITER = 500  # default of gradient descent
_STOPPING = ("early_stopping", "nu")  # methods that are regularised by the number of their steps
_PENALISED = ("ridge", "pcg", "askotch", "gd")
_NU = 1.0  # the usual parameter of the nu-method


@dataclass(frozen=True)
class _Found:
    """What one of the methods has found: k(rows, rows), coefficients, and what else the method gives."""

    operator: Operator
    coef: Array
    penalty: float | None = None
    uncertainty: Uncertainty | None = None
    cv_predictions: Array | None = None


@register
@described
class ExactRegressor(PosteriorRegressor):
    """Exact kernel least squares, with every row as a center: for some 10,000 rows, or 50,000 by `method="pcg"`.

    This is the reference for the other estimators. `method="ridge"` minimises mean((y - f(x))^2) + penalty |f|^2 over
    all functions of the kernel's space: (K + penalty n I) coef = y. "pcg" does the same without the n x n matrix.
    "least_squares" is the same without a penalty, and "early_stopping" is gradient descent with the number of steps
    chosen by the validation error [1]_. "gd" is gradient descent with a penalty, and "nu" accelerates "early_stopping".

    Parameters
    ----------
    {kernel}
    n_centers : int or None, default=None
        Number of rows, or of random features, from which `method="pcg"` computes its preconditioner [2]_ [3]_. With
        more of them, fewer iterations are needed, but the preconditioner takes more time and memory. None is 5 sqrt(n),
        or sqrt(10 n) for `preconditioner="hierarchical"`, and at least 1,000. With "askotch", this is the number of
        rows in a block; None is then sqrt(n (d + 16)) for d features.
    {penalty}
    {penalties}
        With "pcg" they share the passes over the rows.
    choose_by : {"validation", "cv", "gcv", "loo", "evidence"} or None, default=None
        Criterion by which one of the `penalties` is chosen: the error on the validation rows (given to `fit`, or held
        out of X), cross-validation (only with "pcg"), or, without "pcg", generalised cross-validation, the
        leave-one-out error, or the evidence, which is the probability of y under the model. None is "validation" if
        `fit` is given validation rows, else "cv" with "pcg" and "loo" without. With a single penalty, "cv" provides
        `cv_predictions_`.
    cv : int, splitter or array of shape (n,), default=5
        Folds of `choose_by="cv"`: their number, for random folds; a splitter of scikit-learn that holds out each row
        once, such as `KFold`; or the number of each row's fold.
    method : {"ridge", "pcg", "askotch", "gd", "least_squares", "early_stopping", "nu"}, default="ridge"
        The problem to solve, and how. "ridge" is kernel ridge regression, by a factorisation of the n x n matrix. With
        more than some 10,000 rows, use "pcg", which is the same by preconditioned conjugate gradient, or "askotch", by
        accelerated block coordinate descent, which only needs memory for a few vectors and a block of rows [5]_.
        "least_squares" has no penalty: it is the function of the smallest norm among those with the smallest squared
        error. "early_stopping" is gradient descent on the squared error, regularised by the number of its steps instead
        of a penalty. "gd" is gradient descent with the penalty (equation 6 of the FALKON paper), and "nu" is the
        nu-method, an accelerated "early_stopping" that needs about the square root of the number of steps [4]_; both
        are meant for comparisons.
    {fit_intercept, dense.scale}
    uncertainty : bool, default=False
        Whether `predict(X, return_std=True)`, `predict_interval` and `sample_y` are available. They need n^2 numbers in
        float64, in memory and in model files. It requires `method="ridge"`, which then takes the time of a list of
        penalties.
    {exact.preconditioner}
        Only "pcg" uses it.
    max_iter : int or None, default=None
        Maximum number of iterations, or, with "askotch", of sweeps over all blocks. None is 100 for `method="pcg"` and
        "askotch", and 500 for the other iterative methods.
    tol : float or None, default=None
        Tolerance at which iterations stop. "pcg" and "askotch" stop when the root mean square of the residual
        y - f(x) - penalty n coef / weight, which bounds the error of the fitted values, falls below `tol` times the
        standard deviation of y. A `ConvergenceWarning` is given if that was not reached. None is 1e-4 in float32 and
        1e-6 in float64, and warns only if predictions would still change by 5% of the standard deviation of y. "gd"
        stops when the norm of that residual falls below `tol` times the norm of y minus its offset; None is 1e-6 in
        float32 and 1e-10 in float64, without a warning.
    {step}
        With "gd" the penalty is added to max k(x, x), and to the largest eigenvalue. "auto" is 0.95 / the largest
        eigenvalue with "nu", which is stable up to 1 over it, the others up to 2.
    {stopping.early_stopping, validation_fraction, stopping.n_iter_no_change, min_decrease}
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of predictions and of iterations. "auto" follows X, but uses float64 where float32 would lose a single
        penalty or part of f, as happens with a smooth kernel and a small penalty. Systems are solved in float64.
    memory_budget : "auto", int or str, default="auto"
        If the n x n kernel matrix fits, iterative methods keep it, and iterations run at memory speed. It is
        given in bytes, as a string such as "4GB", or as "auto" for half of the available memory. The other methods
        always keep the matrix.
    {device, n_jobs, exact.random_state, callbacks, verbose}

    Attributes
    ----------
    {rows.centers_, rows.dual_coef_, kernel_}
    penalty_ : float
        The penalty that was used or chosen; not with `method="early_stopping"` or "nu".
    cv_predictions_ : array of shape (n,) or (n, n_outputs)
        With `choose_by="cv"`, predictions for the rows given to `fit`, by models with the chosen penalty that have not
        seen their fold; NaN for rows of weight 0. Nothing else uses them: delete them before `save` if they are too
        large.
    {penalties.n_iter_}
    history_ : list of dict
        For each penalty: `penalty`, `df` (degrees of freedom) and `log_evidence` (neither for a single penalty without
        `uncertainty`), and `validation_error`, `gcv_error` or `loo_error`, in the units of y; for each iteration of
        a method that iterates, the record that `FalkonRegressor` has. "pcg" adds `n_columns`, the number of systems
        that have not converged (one for each penalty, fold and output), `cv_errors` of the penalties, and at the end
        `validation_errors`.
    {offset_, output_dtype_, noise_variance_, posterior_ spread_ conformity_, mean_ scale_, n_features_in_,
    feature_names_in_}

    See Also
    --------
    FalkonRegressor : As accurate with enough centers, for millions of rows.
    NystromRegressor : The same with few centers, solved directly.

    Notes
    -----
    One penalty takes n^3 / 3 multiplications and n^2 numbers of memory, by Cholesky's factorisation; a list of any
    length takes about 9 n^3 and 3 n^2, by an eigendecomposition. Conjugate gradient and gradient descent take n^2 for
    each iteration, and keep the n x n matrix only if it fits. "pcg" takes 10 to 50 iterations where penalty n is 0.01
    or more; penalties, folds and outputs are columns of the same products, so that 18 of them take about twice as long
    as one.

    References
    ----------
    .. [1] Yao, Rosasco, Caponnetto, "On Early Stopping in Gradient Descent Learning", Constructive Approximation 2007.
    .. [2] Cutajar, Osborne, Cunningham, Filippone, "Preconditioning Kernel Matrices", ICML 2016.
    .. [3] Avron, Clarkson, Woodruff, "Faster Kernel Ridge Regression Using Sketching and Preconditioning", SIAM Journal
       on Matrix Analysis and Applications 2017.
    .. [4] Bauer, Pereverzev, Rosasco, "On Regularization Algorithms in Learning Theory", Journal of Complexity 2007.
    .. [5] Rathore, Frangella, Yang, Derezinski, Udell, "Have ASkotch: A Neat Solution for Large-scale Kernel Ridge
       Regression", 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import ExactRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(300, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = ExactRegressor(penalties=[1e-8, 1e-4, 1.0]).fit(X, y)
    >>> model.penalty_
    1e-08
    >>> bool(model.score(X, y) > 0.999)
    True
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
        method: str = "ridge",
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        uncertainty: bool = False,
        preconditioner: str = "auto",
        max_iter: int | None = None,
        tol: float | None = None,
        step: float | str | None = None,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 1,
        min_decrease: float = 0.0001,
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
        self.method = method
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.uncertainty = uncertainty
        self.preconditioner = preconditioner
        self.max_iter = max_iter
        self.tol = tol
        self.step = step
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.min_decrease = min_decrease
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
        {dense.X, fit.y, fit.sample_weight, fit.X_val y_val}

        Returns
        -------
        self
        """
        check_parameters(
            self.get_params(deep=False),
            method=one_of("ridge", "pcg", "askotch", "gd", "least_squares", "early_stopping", "nu"),
            choose_by=one_of(None, "validation", "cv", "gcv", "loo", "evidence"),
            cv=check_cv,
            preconditioner=one_of(*PRECONDITIONERS),
            max_iter=optional(integer(1)),
            step=STEP_OR_NONE,
        )
        self._check_method(has_validation=X_val is not None)
        stops = self.method in _STOPPING
        validates = self.early_stopping if stops else self.method != "least_squares" and self._chooses_by_validation
        patience = None
        if self.early_stopping and stops:
            patience = NoImprovement(self.n_iter_no_change, self.min_decrease)
        with self._session(patience=patience) as session:
            hold_out = self.validation_fraction if validates else None
            data = self._data(session, X, y, sample_weight, X_val, y_val, hold_out=hold_out)
            given = self.kernel, self._penalties, data, self._compute, session.random_state
            problem = every_row(*given, iterates=self.method in ("pcg", "askotch", "gd"))
            found = self._solve(problem, session)
            for name in ("cv_predictions_", "penalty_"):  # of an earlier fit by another method
                vars(self).pop(name, None)
            self._set_uncertainty(found.uncertainty, problem.data)
            self._set_solution(problem.data, session)
            self._set_expansion(found.operator, found.coef, problem.data)
            if found.penalty is not None:
                self.penalty_ = found.penalty
            if found.cv_predictions is not None:
                self.cv_predictions_ = problem.data.of_all(found.cv_predictions)
        return self

    def _check_method(self, *, has_validation: bool) -> None:
        """Raise ValueError for parameters that the method does not have."""
        if self.method == "askotch" and self.device is not None:
            raise ValueError(
                f'method="askotch" runs on the processor, not on device={self.device!r}: use method="pcg" there, or '
                "device=None"
            )
        if self.uncertainty and self.method != "ridge":
            raise ValueError(
                f'uncertainty=True is for method="ridge", not for method={self.method!r}: FalkonRegressor has it for '
                "any number of rows"
            )
        if self.uncertainty:
            check_noise(self.penalty, self.penalties)
        if self.method not in _PENALISED and (self.penalties is not None or self.penalty != "auto"):
            given = f"penalty={self.penalty!r}" if self.penalties is None else f"penalties={self.penalties!r}"
            raise ValueError(
                f'{given} is for methods with a penalty, and method="{self.method}" has none: leave penalty="auto" and '
                'penalties=None, or use method="ridge"'
            )
        if self.step is not None and self.method not in ("gd", *_STOPPING):
            raise ValueError(
                f'step={self.step!r} is for method="gd", "early_stopping" and "nu", not for method="{self.method}": '
                "leave step=None"
            )
        if self.method in ("gd", "askotch") and self.penalties is not None:
            raise ValueError(f'method="{self.method}" has one penalty: penalties are for method="ridge" and "pcg"')
        if self.method == "pcg":
            self._pcg_settings.criterion(chooses=self.penalties is not None, has_validation=has_validation)
        elif self.choose_by == "cv":
            raise ValueError(f'choose_by="cv" is for method="pcg", not for method={self.method!r}: choose by "loo"')

    @property
    def _penalties(self) -> Any:
        """The penalty, or the list of penalties, of a method that has one."""
        if self.method not in _PENALISED:
            return None
        return self.penalty if self.penalties is None else self.penalties

    @property
    def _pcg_settings(self) -> pcg.PcgSettings:
        return pcg.PcgSettings(
            n_centers=self.n_centers,
            preconditioner=self.preconditioner,
            choose_by=self.choose_by,
            cv=self.cv,
            max_iter=self.max_iter,
            tol=self.tol,
        )

    @property
    def _chooses_by_validation(self) -> bool:
        return self.penalties is not None and self.choose_by == "validation"

    def _solve(self, problem: EveryRow, session: Session) -> _Found:
        descends = self.method in ("gd", *_STOPPING)
        budget = parse_memory(self.memory_budget) if descends else 0
        operator = problem.operator(problem.points, self._compute, budget)
        if self.method == "pcg":
            found = pcg.solve(self._pcg_settings, problem, self._compute, session)
            foreseen = problem.penalty is not None and problem.data.dtype_given
            warn_if_rounded(operator, found.coef, None, foreseen=foreseen)
            return _Found(operator, found.coef, found.penalty, cv_predictions=found.cv_predictions)
        if self.method == "askotch":
            settings = askotch.AskotchSettings(self.n_centers, self.max_iter, self.tol)
            coef = askotch.solve(settings, problem, self._compute, session)
            warn_if_rounded(operator, coef, None, foreseen=problem.data.dtype_given)
            return _Found(operator, coef, problem.penalty)
        if descends:
            return _Found(operator, self._descend(problem, operator, session), problem.penalty)
        if problem.penalty is not None and not self.uncertainty:
            return _Found(operator, self._solve_one(problem, operator, problem.penalty, session), problem.penalty)
        return self._solve_path(problem, operator, session)

    def _descend(self, problem: EveryRow, operator: Operator, session: Session) -> Array:
        data, n, weight = problem.data, operator.shape[0], problem.data.weight
        root = np.ones(n) if weight is None else np.sqrt(weight)
        penalty = 0.0 if problem.penalty is None else problem.penalty
        accelerated = self.method == "nu"
        step = stable_step(
            self.step,
            operator.kernel,
            data.rows,
            lambda: lanczos(lambda v: root * operator.matmat(root * v) / n, n, 10)[1],
            penalty=penalty,
            longest=1.0 if accelerated else 2.0,
        )
        max_iter = _MAX_ITER if self.max_iter is None else self.max_iter
        tol = tolerance(self.tol, data.rows.dtype) if self.method == "gd" else 0.0
        iterates = kernel_descent(
            operator,
            problem.targets,
            penalty,
            step=step,
            max_iter=max_iter,
            tol=tol,
            weight=weight,
            nu=_NU if accelerated else None,
        )
        solution = session.run(
            iterates,
            data,
            kind=Iterate,
            max_iter=max_iter,
            watch=validation_watch(data, operator, self._compute, parse_memory(self.memory_budget)),
            scale=problem.scale,
            max_passes=max(1, max_iter - 1),
            n_centers=n,
        )
        if self.method == "gd" and not solution.stopped:
            remedy = f'raise max_iter={max_iter}, the penalty or tol, or use method="pcg"'
            warn_if_unsettled(solution.last, tol=self.tol, reached=tol, steps="iterations", remedy=remedy)
        return solution.coef

    def _solve_one(self, problem: EveryRow, operator: Operator, penalty: float, session: Session) -> Array:
        data = problem.data
        session.start(data, max_passes=1, n_centers=operator.shape[1])
        alpha = ridge(operator, problem.targets, penalty, data.weight, _FALKON, self._compute) * problem.scale
        record = {"iteration": 1, "passes": 1, "penalty": penalty}
        if data.validation is not None:
            record["validation_error"] = validation_errors(data, operator, alpha[:, :, None], self._compute)[0]
        session.record(record)
        return finite(alpha, data.rows.dtype)

    def _solve_path(self, problem: EveryRow, operator: Operator, session: Session) -> _Found:
        n, data, y, scale = operator.shape[0], problem.data, problem.targets, problem.scale
        check_gram_memory(n, BUFFERS if self.uncertainty else 3, _FALKON)
        has_penalty, least = problem.penalties is not None, least_penalty(operator)
        session.start(data, n_centers=n)
        # without a penalty, eigenvalues that could not be told from rounding are left out
        floor = 0.0 if has_penalty else n * least
        path = exact_path(operator.centers_gram(np.float64), y, data.weight, floor=floor)
        coef, penalty = choose_penalty(
            path,
            data,
            operator,
            session,
            penalties=problem.penalties if has_penalty else 0.0,
            choose_by=self.choose_by,
            least=least if has_penalty else 0.0,
            scale=scale,
            compute=self._compute,
        )
        if has_penalty and problem.penalty is None:
            warn_if_chosen_penalty_rounds(operator, data, penalty)
        uncertainty = None
        if self.uncertainty:
            used = max(penalty, least)
            uncertainty = uncertainty_of_path(path, data, operator, coef, y, scale, used, None, self._compute)
        return _Found(operator, coef, penalty, uncertainty)
