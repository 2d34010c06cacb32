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
from ..fitting.arguments import described
from ..fitting.data import FitData
from ..fitting.descent import iterate_on_centers
from ..fitting.kernel import validation_watch
from ..fitting.parameters import STEP_OR_NONE, check_parameters
from ..fitting.plan import Needs
from ..fitting.precision import warn_if_rounded
from ..fitting.session import Session
from ..fitting.steps import safe_step, stable_step
from ..fitting.subspace import CenterSettings, choose_subspace, passes_of
from ..kernels import Kernel, KernelFunction
from ..preconditioners import Whitening
from ..solvers import Iterate, largest_eigenvalue
from ._base import KernelRegressor


@register
@described
class NytroRegressor(KernelRegressor):
    """NYTRO: Nyström centers, and early stopping instead of a penalty.

    It runs gradient descent on mean((y - f(x))^2) over functions f(x) = sum_j coef_j k(x, center_j), in coordinates in
    which these are orthonormal: beta <- beta - (gamma/n) R'K'(K R beta - y), coef = R beta, R R' = K_MM^+ [1]_. The
    result of t iterations with step gamma is about as smooth as with a penalty of 1/(gamma t). The path over iterations
    therefore replaces a path over penalties, and the validation error determines where to stop. If most of y is noise,
    a few iterations are enough.

    Parameters
    ----------
    {kernel, n_centers, centers, fit_intercept, scale}
    solver : {"gd", "cg", "sgd"}, default="gd"
        The iterative method. "gd" is gradient descent, as in the paper; "cg" is conjugate gradient, which needs fewer
        iterations; "sgd" is mini-batch gradient descent.
    {max_iter, step, batch_size, stopping.early_stopping, validation_fraction, stopping.n_iter_no_change, min_decrease}
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of the kernel. "auto" is the precision of X, but float64 if float32 would lose one term of the kernel
        in rounding. The factors are in float64 for up to 1,500 centers, and in the precision of the kernel for more.
    {memory_budget, device, n_jobs, batches.random_state, callbacks, verbose}

    Attributes
    ----------
    {centers_, dual_coef_, kernel_, n_iter_}
    history_ : list of dict
        For each iteration: `iteration`, `residual`, `passes`, `seconds`, `converged`, and `validation_error` where
        there are validation rows.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    NystromRegressor : A penalty instead.
    FalkonRegressor : A penalty, and few iterations for any penalty.

    Notes
    -----
    Rows held out for validation are not used otherwise. t iterations take time n M t + M^3, and memory for M^2 numbers
    and for K if it is kept.

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
        device: Any = None,
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
        {fit.X, fit.y, fit.sample_weight, fit.X_val y_val}

        Returns
        -------
        self
        """
        check_parameters(
            self.get_params(deep=False), solver=one_of("gd", "cg", "sgd"), step=STEP_OR_NONE, batch_size=integer(1)
        )
        if self.solver == "cg" and self.step is not None:
            raise ValueError(
                f'step={self.step!r} is for solver="gd" and solver="sgd": conjugate gradient finds its own: '
                "leave step=None"
            )
        patience = NoImprovement(self.n_iter_no_change, self.min_decrease) if self.early_stopping else None
        with self._session(patience=patience) as session:
            hold_out = self.validation_fraction if self.early_stopping else None
            options: dict[str, Any] = {"hold_out": hold_out, "random_access": self.solver == "sgd"}
            in_file = self.device is None and self.solver != "sgd"
            data = self._data(session, X, y, sample_weight, X_val, y_val, **options, in_file=in_file)
            with single_threaded_blas():  # threads of its own would decide the last bits
                self._iterate(data, session)
        return self

    def _iterate(self, data: FitData, session: Session) -> None:
        settings = CenterSettings(self.kernel, self.n_centers, self.centers)
        needs = Needs(passes=passes_of(self.max_iter))
        space = choose_subspace(settings, needs, data, self._compute, session.random_state)
        data, operator, (n, M) = space.data, space.operator, space.operator.shape
        whitening = Whitening(
            operator.centers_gram(space.factors), n, tile_dtype=operator.dtype, devices=space.compute.devices
        )
        step: Any = self.step
        if self.solver == "gd":
            step = stable_step(
                step, operator.kernel, data.rows, lambda: largest_eigenvalue(operator, whitening, 0.0, data.weight)
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
            watch=validation_watch(data, operator, space.compute, space.budget),
            scale=space.scale,
            max_passes=self.max_iter + (self.solver == "cg"),
            n_centers=M,
        )
        self._set_solution(data, session)
        self._set_expansion(operator, solution.coef, data)
        warn_if_rounded(operator, solution.coef, None)
