"""Sketched preconditioned SVRG on random features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.checks import integer, optional
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..fitting.arguments import described
from ..fitting.convergence import tolerance, warn_if_unsettled
from ..fitting.random_features import FeatureProblem, batch_rows
from ..fitting.session import Session
from ..kernels import Kernel, KernelFunction
from ..kernels.features import FeatureMap
from ..operators import feature_operator
from ..solvers.svrg import sketched_hessian, svrg
from ._features import FeatureBaseline


@register
@described
class SvrgRegressor(FeatureBaseline):
    """Ridge regression on random features by sketched preconditioned SVRG.

    Stochastic variance-reduced gradients on mini-batches, preconditioned by the first eigenvectors of the features'
    covariance, which are estimated by a random sketch [1]_. It converges to the solution of `RandomFeaturesRegressor`,
    in n M time for each epoch, and takes memory for M `sketch_size` numbers instead of M^2.

    Parameters
    ----------
    {features.kernel, features.n_components, features.penalty}
    sketch_size : int, default=200
        Number of eigenvectors of the preconditioner, at most M. The number of epochs grows with the first eigenvalue
        beyond them, over the penalty.
    {fit_intercept, dense.scale}
    max_iter : int, default=20
        Maximum number of epochs, each of which takes two passes over the rows.
    tol : float or None, default=None
        Stop when the norm of the gradient falls below `tol` times its norm at 0; a `ConvergenceWarning` says if it did
        not. None is 1e-6 in float32 and 1e-10 in float64, and does not warn.
    batch_size : int or None, default=None
        Number of rows in a mini-batch; None is sqrt(n), at least 256.
    {drawn.dtype, drawn.memory_budget, n_jobs}
    random_state : int, RandomState or None, default=None
        Seed of the features, of the sketch and of the order of mini-batches.
    {callbacks, verbose}

    Attributes
    ----------
    {drawn.feature_coef_, penalty_, features.feature_map_, kernel_, eigenpro.n_iter_}
    history_ : list of dict
        For each epoch: `iteration`, `residual` (at its start), `passes`, `seconds`, `converged`, and `validation_error`
        where there is a validation set.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.RandomFeaturesRegressor : The same problem, solved directly or by plain mini-batches.

    References
    ----------
    .. [1] Gonen, Orabona, Shalev-Shwartz, "Solving Ridge Regression using Sketched Preconditioned SVRG", ICML 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.baselines import SvrgRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = SvrgRegressor(n_components=100, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    _rules = {"sketch_size": integer(1), "batch_size": optional(integer(1))}

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_components: int = 1000,
        penalty: float | str = "auto",
        sketch_size: int = 200,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        max_iter: int = 20,
        tol: float | None = None,
        batch_size: int | None = None,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.penalty = penalty
        self.sketch_size = sketch_size
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def _solve(self, problem: FeatureProblem, session: Session) -> tuple[FeatureMap, NDArray[Any]]:
        data, random_state = problem.data, session.random_state
        operator = feature_operator(problem.features, data.rows, n_jobs=self.n_jobs)
        reached = tolerance(self.tol, data.rows.dtype)
        hessian = sketched_hessian(operator, problem.penalty, int(self.sketch_size), random_state, data.weight)
        iterates = svrg(
            operator,
            problem.targets,
            problem.penalty,
            hessian,
            batch_size=batch_rows(self.batch_size, data.rows.shape[0]),
            max_iter=self.max_iter,
            tol=reached,
            random_state=random_state,
            weight=data.weight,
        )
        solution = problem.run(iterates, session, self.max_iter)
        if not solution.stopped:
            remedy = f"raise max_iter={self.max_iter}, sketch_size={self.sketch_size}, the penalty or tol"
            warn_if_unsettled(solution.last, tol=self.tol, reached=reached, steps="epochs", remedy=remedy)
        return problem.features, solution.coef
