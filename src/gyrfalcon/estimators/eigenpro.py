"""EigenPro: a coefficient for every row, learnt from mini-batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from .._utils.checks import integer, optional
from .._utils.memory import parse_memory
from .._utils.ranges import power_of_two
from .._utils.registry import register
from ..callbacks import CallbackLike, NoImprovement
from ..fitting.arguments import described
from ..fitting.convergence import tolerance, warn_if_unsettled
from ..fitting.data import FitData
from ..fitting.kernel import fitted_kernel, validation_watch
from ..fitting.parameters import STEP, check_parameters
from ..fitting.plan import check_memory
from ..fitting.precision import warn_if_rounded
from ..fitting.session import Session
from ..kernels import Kernel, KernelFunction
from ..operators import KernelOperator
from ..solvers import Iterate
from ..solvers.eigenpro import eigenpro, top_eigensystem
from ._base import KernelEstimator, KernelRegressor

_MANY_ROWS = 100_000  # rows beyond which the default of n_subsamples is larger
_WORTH_THREADS = 3_000  # least number of rows for which several threads are used

RULES = {
    "n_subsamples": optional(integer(1)),
    "n_components": optional(integer(0)),
    "batch_size": optional(integer(1)),
    "step": STEP,
}


class ByEigenPro(KernelEstimator):
    """A function with a coefficient for every row, learnt by EigenPro."""

    n_subsamples: int | None
    n_components: int | None
    max_iter: int
    tol: float | None
    step: float | str
    batch_size: int | None

    n_components_: int
    batch_size_: int
    step_: float

    def _iterate(self, data: FitData, session: Session) -> None:
        """Estimate the eigenvectors, learn the coefficients, and set the attributes."""
        if data.weight is not None:
            raise ValueError(f"{type(self).__name__} does not accept weights, which X has: open it without weight=...")
        rows, n = data.rows, data.rows.shape[0]
        s = self.n_subsamples or (1_000 if n <= _MANY_ROWS else 2_000)
        needs = {"eigenvectors": 3 * 8 * min(s, n) ** 2}
        check_memory(self.memory_budget, needs, f"the eigenvectors of n_subsamples={s} rows take", "take fewer")
        n_jobs = 1 if n < _WORTH_THREADS else self.n_jobs
        points = rows.take(np.arange(n))
        kernel = fitted_kernel(self.kernel, data, points, None, rows.dtype)
        operator = KernelOperator(kernel, rows, points, n_jobs=n_jobs, memory_budget=0)
        system = top_eigensystem(
            operator,
            n_subsamples=s,
            n_components=self.n_components,
            batch_size=self.batch_size,
            random_state=session.random_state,
            n_jobs=n_jobs,
        )
        batch_size = min(n, system.batch_size if self.batch_size is None else int(self.batch_size))
        step = system.step(batch_size) if isinstance(self.step, str) else float(self.step)
        scale = power_of_two(data.targets, axis=0)
        tol = tolerance(self.tol, rows.dtype)
        solution = session.run(
            eigenpro(
                operator,
                data.targets / scale,
                system,
                max_iter=self.max_iter,
                tol=tol,
                step=step or "auto",
                batch_size=batch_size,
                random_state=session.random_state,
            ),
            data,
            kind=Iterate,
            max_iter=self.max_iter,
            watch=validation_watch(data, operator, self._compute, parse_memory(self.memory_budget)),
            scale=scale,
            n_centers=n,
        )
        self._set_solution(data, session)
        self._set_expansion(operator, solution.coef, data)
        warn_if_rounded(operator, solution.coef, None)
        self.n_components_, self.batch_size_, self.step_ = system.n_components, batch_size, step
        if not solution.stopped:
            remedy = f"raise max_iter={self.max_iter} or tol"
            warn_if_unsettled(solution.last, tol=self.tol, reached=tol, steps="epochs", remedy=remedy)


@register
@described
class EigenProRegressor(ByEigenPro, KernelRegressor):
    """Kernel regression with a coefficient for every row, by EigenPro.

    Fits f(x) = sum_i coef_i k(x, x_i) over all n rows by stochastic gradient descent on the mean squared error, with
    the largest eigenvalues of the kernel matrix reduced so that large batches and long steps are possible [1]_ [2]_.
    There is no penalty: the fit approaches the function that interpolates y, and early stopping is what makes it
    smooth, so give validation rows or set `early_stopping`. It takes memory for the rows, n^2 time for each epoch, and
    n time for each prediction.

    Parameters
    ----------
    {kernel, fit_intercept, dense.scale, eigenpro.n_subsamples, eigenpro.n_components, eigenpro.max_iter, eigenpro.tol,
    eigenpro.step, eigenpro.batch_size, eigenpro.early_stopping, validation_fraction, n_iter_no_change, eigenpro.dtype,
    eigenpro.memory_budget, n_jobs, eigenpro.random_state, callbacks, verbose}

    Attributes
    ----------
    {eigenpro.centers_, rows.dual_coef_, kernel_, eigenpro.n_components_ batch_size_ step_, eigenpro.n_iter_}
    history_ : list of dict
        For each epoch: `iteration`, `residual`, `passes`, `seconds`, `converged`, `validation_error` where there is a
        validation set, and what callbacks added.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    FalkonRegressor : M centers instead of n, so that time and memory for each row do not grow with n.

    Notes
    -----
    Sample weights are not accepted. Weights do not change the interpolant, only the path towards it, and visiting a row
    of weight 2 once in a mini-batch is not the same as visiting it twice.

    References
    ----------
    .. [1] Ma, Belkin, "Diving into the shallows: a computational perspective on large-scale shallow learning",
       NeurIPS 2017.
    .. [2] Ma, Belkin, "Kernel machines that adapt to GPUs for effective large batch training", MLSys 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import EigenProRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = EigenProRegressor("laplacian", max_iter=10, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        n_subsamples: int | None = None,
        n_components: int | None = None,
        max_iter: int = 20,
        tol: float | None = None,
        step: float | str = "auto",
        batch_size: int | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.n_subsamples = n_subsamples
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.step = step
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Learn from rows.

        Parameters
        ----------
        {eigenpro.X, fit.y}
        X_val, y_val : optional
            Rows on which the validation error (root mean squared) is recorded, and by which `early_stopping` stops.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **RULES)
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        with self._session(patience=patience) as session:
            hold_out = self.validation_fraction if self.early_stopping else None
            data = self._data(session, X, y, None, X_val, y_val, hold_out=hold_out, random_access=True)
            self._iterate(data, session)
        return self
