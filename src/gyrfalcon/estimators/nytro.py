"""NYTRO: Nyström centers, and early stopping instead of a penalty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._utils.checks import integer, one_of
from .._utils.registry import register
from .._utils.threads import single_threaded_blas
from ..callbacks import CallbackLike, NoImprovement
from ..centers import Centers
from ..fitting.data import FitData, regression_data
from ..fitting.descent import iterate_on_centers
from ..fitting.kernel import validation_watch
from ..fitting.parameters import STEP_OR_NONE, check_parameters
from ..fitting.precision import warn_if_rounded
from ..fitting.session import Session, fit_session
from ..fitting.steps import safe_step, stable_step
from ..fitting.subspace import choose_subspace, passes_of
from ..kernels import Kernel, KernelFunction
from ..preconditioners import Whitening
from ..solvers import Iterate, largest_eigenvalue
from ._base import KernelRegressor


@register
class NytroRegressor(KernelRegressor):
    """NYTRO: Nyström centers, and early stopping instead of a penalty.

    Gradient descent for mean((y - f(x))^2) over functions f(x) = sum_j coef_j k(x, center_j), in coordinates in which
    these are orthonormal: beta <- beta - (gamma/n) R'K'(K R beta - y), coef = R beta, R R' = K_MM^+ [1]_. t iterations
    of step gamma are about as smooth as a penalty of 1/(gamma t), so the path over iterations is the path over
    penalties, and validation rows say where to stop. When most of y is noise, that is after a few iterations.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="gaussian"
        A kernel of `gyrfalcon.kernels`, its name, or a function k(A, B) that returns the matrix of kernel values.
    n_centers : int or None, default=None
        Number of Nyström centers M, at most n. More centers are more accurate; a pass over the rows takes time
        proportional to M, and the factors take memory proportional to M^2. None is 2,000, or 2 sqrt(n) beyond a
        million rows, at most 10,000.
    centers : str, selector, or array of shape (M, n_features), default="uniform"
        How the centers are chosen: drawn from the rows by "uniform", "leverage", "bless", "rpcholesky", "kmeans++" or
        "dpp", by a selector of `gyrfalcon.centers`, or given.
    fit_intercept : bool, default=True
        Whether to measure f from the best constant, `offset_` (the mean of y for the squared loss), and not from 0. The
        constant is not penalised, and is what f is far from the rows.
    scale : bool or "auto", default="auto"
        Whether to bring every feature to mean 0 and standard deviation 1 as rows are read, in `fit` and in `predict`.
        It costs one pass over the rows and no memory. Sparse rows are divided by the deviation only, so that zeros stay
        zeros. "auto" does it where the library chooses the length scale of dense rows. A length scale that is given is
        in the units of X, and rows are then taken as they are, as are those that come from `LearnedMetric` or
        `TableEncoder`, and sparse ones: words and hashes that are rare would drown the others.
    solver : {"gd", "cg", "sgd"}, default="gd"
        Gradient descent, which is the paper's; conjugate gradient, whose path is shorter; or mini-batch gradient
        descent.
    max_iter : int, default=500
        Maximum number of iterations; epochs, with `solver="sgd"`.
    step : float, "auto" or None, default=None
        Length gamma of the steps of gradient descent. None is the papers' 1 / max k(x, x), which is stable for every
        data set; "auto" is 1 / the largest eigenvalue, estimated in ten passes, which is longer.
    batch_size : int, default=256
        Rows of a step of `solver="sgd"`.
    early_stopping : bool, default=True
        Whether the validation error chooses the stopping time; otherwise there are `max_iter` iterations. Validation
        rows are those given to `fit`, or a random part of X.
    validation_fraction : float, default=0.2
        Share of the rows that is held out where a validation set is needed and `fit` is given none.
    n_iter_no_change : int, default=1
        Stop only after so many iterations in a row in which the validation error falls by less than `min_decrease`; the
        papers' rule has 1. The best solution is kept.
    min_decrease : float, default=0.0001
        Stop at the first iteration at which the validation error falls by less than this, relative to what it was.
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of the kernel; "auto" follows X, except that float64 is used where float32 would lose one term of the
        kernel beside another. The factors are in float64 up to 1,500 centers, and beyond that in the precision of the
        kernel.
    memory_budget : "auto", int or str, default="auto"
        Memory that the fit may use beside X and y, in bytes or as "4GB": for factors, blocks at work, and buffers of
        files. If the n x M kernel matrix fits as well it is kept, and iterations run at memory speed. "auto" is what is
        available, half of it for the kernel matrix, and keeps one of more than 256 MB only where that pays, which takes
        many features or a costly kernel; 0 is the same, but the matrix is never kept.
    n_jobs : int or None, default=None
        Number of threads; None uses every core.
    random_state : int, RandomState or None, default=None
        Seed of the centers, of the validation split and of the order of mini-batches.
    callbacks : callable, Callback, list of them, or None, default=None
        Called with the record of each iteration; one that returns True stops the fit. See `gyrfalcon.callbacks`.
    verbose : int, default=0
        1 shows a progress bar, 2 also logs a line for each iteration.

    Attributes
    ----------
    centers_ : array of shape (M, n_features_in_)
        The centers.
    dual_coef_ : array of shape (M,) or (M, n_outputs)
        Coefficients of the centers.
    kernel_ : Kernel
        The kernel, with parameters that depend on the data resolved.
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: `iteration`, `residual`, `passes`, `seconds`, `converged`, and `validation_error` where
        there are validation rows.
    offset_ : float, or array of shape (n_outputs,)
        Constants that f is measured from; 0 without `fit_intercept`.
    output_dtype_ : {"float32", "float64"}
        Precision of predictions: float64 where float32 would round away what varies in y beside `offset_`.
    mean_, scale_ : array of shape (n_features_in_,), or None
        Means and standard deviations by which features were scaled; None if rows were taken as they are.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Names of the features, if X has names that are all strings.

    See Also
    --------
    NystromRegressor : A penalty instead.
    FalkonRegressor : A penalty, and as few iterations for any of them.

    Notes
    -----
    Rows held out for validation are not used otherwise. t iterations take time n M t + M^3 and M^2
    numbers of memory, and those of K if it is kept.

    References
    ----------
    .. [1] Angles, Camoriano, Rudi, Rosasco, "NYTRO: When Subsampling Meets Early Stopping", AISTATS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import NytroRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(2 * X[:, 0]) + rng.standard_normal(2000)
    >>> model = NytroRegressor(n_centers=100, random_state=0).fit(X, y)
    >>> bool(np.abs(model.predict(X) - np.sin(2 * X[:, 0])).mean() < 0.2)
    True
    """

    takes_sparse = True

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | None = None,
        centers: str | ArrayLike | Centers = "uniform",
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        solver: str = "gd",
        max_iter: int = 500,
        step: float | str | None = None,
        batch_size: int = 256,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 1,
        min_decrease: float = 0.0001,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_centers = n_centers
        self.centers = centers
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.solver = solver
        self.max_iter = max_iter
        self.step = step
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.min_decrease = min_decrease
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)
            float32 is computed in float32, everything else in float64, unless `dtype` says otherwise. A source, such as
            ``gyrfalcon.open(path, target=name)``, is read block by block, once for each pass.
        y : array of shape (n,) or (n, n_outputs)
            Targets. By default those of X, if it was opened with a target.
        sample_weight : array of shape (n,), optional
            Not negative. Rows with weight 0 are ignored. Only ratios matter: the penalty goes with weights of mean 1.
        X_val, y_val : optional
            Rows on which the validation error (root mean squared) is recorded, and which
            decide what is decided by validation, such as when `early_stopping` stops.

        Returns
        -------
        self
        """
        check_parameters(self, solver=one_of("gd", "cg", "sgd"), step=STEP_OR_NONE, batch_size=integer(1))
        patience = NoImprovement(self.n_iter_no_change, self.min_decrease) if self.early_stopping else None
        with fit_session(self, patience=patience) as session:
            data = regression_data(
                self,
                X,
                y,
                sample_weight,
                X_val,
                y_val,
                random_state=session.random_state,
                scratch=session.scratch,
                hold_out=self.validation_fraction if self.early_stopping else None,
                random_access=self.solver == "sgd",
            )
            with single_threaded_blas():  # threads of its own would decide the last bits
                self._iterate(data, session)
        return self

    def _iterate(self, data: FitData, session: Session) -> None:
        space = choose_subspace(self, data, session, passes=passes_of(self.max_iter))
        data, operator, (n, M) = space.data, space.operator, space.operator.shape
        whitening = Whitening(operator.centers_gram(space.factors), n, tile_dtype=operator.dtype)
        step: Any = self.step
        if self.solver == "gd":
            step = stable_step(
                step,
                operator.kernel,
                data.rows,
                lambda: largest_eigenvalue(operator, whitening, 0.0, data.weight),
            )
        elif step is None:
            # the largest eigenvalue of a mini-batch is bounded by its rows' w k(x, x)
            step = safe_step(operator.kernel, data.rows, data.weight)
        solution = session.run(
            iterate_on_centers(
                self.solver,
                space,
                whitening,
                session.random_state,
                penalty=0.0,
                step=step,
                batch_size=self.batch_size,
                max_iter=self.max_iter,
                tol=0.0,
            ),
            data,
            kind=Iterate,
            max_iter=self.max_iter,
            watch=validation_watch(data, operator, n_jobs=self.n_jobs, budget=space.budget),
            scale=space.scale,
            max_passes=self.max_iter + (self.solver == "cg"),
            n_centers=M,
        )
        self._set_solution(data, session)
        self._set_expansion(operator, solution.coef, data)
        warn_if_rounded(operator, solution.coef, None)
