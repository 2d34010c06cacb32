"""Block splitting ADMM on random features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.checks import integer, optional, positive
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..fitting.arguments import described
from ..fitting.convergence import tolerance, warn_if_unsettled
from ..fitting.descent import block_bounds
from ..fitting.plan import check_memory
from ..fitting.random_features import FeatureProblem
from ..fitting.session import Session
from ..kernels import Kernel, KernelFunction
from ..kernels.features import FeatureMap
from ..operators import feature_operator
from ..solvers.admm import block_admm
from ._features import FeatureBaseline

_LARGEST_PART = 10_000  # rows of a part by default


@register
@described
class AdmmRegressor(FeatureBaseline):
    """Ridge regression on random features by the alternating direction method of multipliers.

    Rows and features are split into blocks, each of which is solved for by itself; the blocks then agree on their
    average [1]_. It converges to the solution of `RandomFeaturesRegressor`, and never needs more than one block of
    features, which is why it was proposed for clusters. Here blocks are solved one after the other.

    Parameters
    ----------
    {features.kernel, features.n_components, features.penalty}
    n_partitions : int or None, default=None
        Number of parts of the rows, at most n. None makes parts of at most 10,000 rows.
    {fit_intercept, dense.scale}
    rho : float, default=1.0
        Weight of the distance between copies of the coefficients beside the objective, greater than 0. It determines
        the number of iterations, and not the solution.
    max_iter : int, default=20
        Maximum number of iterations, each of which takes two passes over the rows. Many more are needed for several
        digits.
    tol : float or None, default=None
        Stop when the copies of coefficients and of values differ by less than `tol` of their norm; a
        `ConvergenceWarning` says if they did not. None is 1e-6 in float32 and 1e-10 in float64, and does not warn.
    {block_size}
    {drawn.dtype}
    memory_budget : "auto", int or str, default="auto"
        Memory for the factors, M `block_size` numbers for each part of the rows, which must fit, in bytes or as "4GB".
    {n_jobs, drawn.random_state, callbacks, verbose}

    Attributes
    ----------
    {drawn.feature_coef_, penalty_, features.feature_map_, kernel_, n_iter_}
    history_ : list of dict
        For each iteration: `iteration`, `residual`, `passes`, `seconds`, `converged`, and `validation_error` where
        there is a validation set.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.RandomFeaturesRegressor : The same problem, solved directly or by block coordinate descent.

    References
    ----------
    .. [1] Avron, Sindhwani, "High-performance Kernel Machines with Implicit Distributed Optimization and
       Randomization", Technometrics 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.baselines import AdmmRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = AdmmRegressor(n_components=100, max_iter=100, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _rules = {
        "n_partitions": optional(integer(1)),
        "rho": positive("a finite number greater than 0"),
        "block_size": optional(integer(1)),
    }

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_components: int = 1000,
        penalty: float | str = "auto",
        n_partitions: int | None = None,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        rho: float = 1.0,
        max_iter: int = 20,
        tol: float | None = None,
        block_size: int | None = None,
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
        self.n_partitions = n_partitions
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.rho = rho
        self.max_iter = max_iter
        self.tol = tol
        self.block_size = block_size
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def _solve(self, problem: FeatureProblem, session: Session) -> tuple[FeatureMap, NDArray[Any]]:
        data, n, features = problem.data, problem.data.rows.shape[0], problem.features
        P = -(-n // _LARGEST_PART) if self.n_partitions is None else int(self.n_partitions)
        if n < P:
            raise ValueError(f"n_partitions={P} must be at most the number of rows with positive weight, {n}")
        bounds = block_bounds(len(features), self.block_size)
        check_memory(
            self.memory_budget,
            {"factors": 8 * P * sum((stop - start) ** 2 for start, stop in bounds)},
            f"the factors of {P} parts and {len(bounds)} blocks of features take",
            "a smaller block_size or n_partitions takes less",
        )
        blocks = [
            [feature_operator(features.columns(*at), data.rows.subset(part), n_jobs=self.n_jobs) for at in bounds]
            for part in np.array_split(np.arange(n), P)
        ]
        reached = tolerance(self.tol, data.rows.dtype)
        iterates = block_admm(
            blocks,
            problem.targets,
            problem.penalty,
            rho=float(self.rho),
            max_iter=self.max_iter,
            tol=reached,
            weight=data.weight,
            n_jobs=self.n_jobs,
        )
        solution = problem.run(iterates, session, self.max_iter)
        if not solution.stopped:
            remedy = f"raise max_iter={self.max_iter} or tol, or choose another rho={self.rho}"
            warn_if_unsettled(solution.last, tol=self.tol, reached=reached, steps="iterations", remedy=remedy)
        return features, solution.coef
