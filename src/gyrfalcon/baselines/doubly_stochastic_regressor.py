"""Doubly stochastic functional gradients."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.checks import integer, optional, positive
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..fitting.arguments import described
from ..fitting.random_features import FeatureProblem, batch_rows
from ..fitting.session import Session
from ..fitting.steps import safe_step
from ..kernels import Kernel, KernelFunction
from ..kernels.features import FeatureMap
from ..operators import feature_operator
from ..solvers.doubly_stochastic import doubly_stochastic
from ._features import FeatureBaseline

_STEPS = 100  # of a fit by default
_RECORDS = 20  # of a fit, at most


@register
@described
class DoublyStochasticRegressor(FeatureBaseline):
    """Kernel ridge regression by doubly stochastic functional gradients.

    Each step draws a mini-batch of rows and a block of new random features of the kernel, whose coefficients are found
    from the batch alone and never change again, except by a factor [1]_. The squared distance from kernel ridge
    regression falls like 1 over the number of steps, which is `n_components` / `block_size`.

    Parameters
    ----------
    {features.kernel}
    n_components : int, default=1000
        Number of features M, over all steps.
    {features.penalty, fit_intercept, dense.scale}
    step : float or None, default=None
        Length gamma of the first step, for the mean squared error halved; that of step t is
        gamma / (1 + gamma penalty t). None is 1 / max k(x, x).
    batch_size : int or None, default=None
        Number of rows in a step; None is sqrt(n), at least 256. After all rows, they are visited again, in another
        order.
    block_size : int or None, default=None
        Number of features in a step. None makes 100 steps.
    {drawn.dtype, drawn.memory_budget, n_jobs}
    random_state : int, RandomState or None, default=None
        Seed of the features and of the order of the rows.
    {callbacks, verbose}

    Attributes
    ----------
    {drawn.feature_coef_, penalty_, features.feature_map_, kernel_}
    n_iter_ : int
        Number of steps.
    history_ : list of dict
        At most 20 records, each with `iteration` (the number of steps), `residual` (that of the rows as they were
        visited), `passes`, `seconds`, and `validation_error` where there is a validation set.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.RandomFeaturesRegressor : All features at once, by mini-batches or directly.

    References
    ----------
    .. [1] Dai, Xie, He, Liang, Raj, Balcan, Song, "Scalable Kernel Methods via Doubly Stochastic Gradients",
       NeurIPS 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.baselines import DoublyStochasticRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = DoublyStochasticRegressor(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    _rules = {
        "step": optional(positive("None or a finite number greater than 0")),
        "batch_size": optional(integer(1)),
        "block_size": optional(integer(1)),
    }

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_components: int = 1000,
        penalty: float | str = "auto",
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        step: float | None = None,
        batch_size: int | None = None,
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
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.step = step
        self.batch_size = batch_size
        self.block_size = block_size
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def _solve(self, problem: FeatureProblem, session: Session) -> tuple[FeatureMap, NDArray[Any]]:
        data, features, M = problem.data, problem.features, len(problem.features)
        size = -(-M // _STEPS) if self.block_size is None else int(self.block_size)
        ends = [*range(0, M, size), M]
        n_records = min(_RECORDS, len(ends) - 1)
        iterates = doubly_stochastic(
            feature_operator(features, data.rows, n_jobs=self.n_jobs),
            [feature_operator(features.columns(*at), data.rows, n_jobs=1) for at in pairwise(ends)],
            problem.targets,
            problem.penalty,
            step=safe_step(problem.kernel, data.rows, data.weight) if self.step is None else float(self.step),
            batch_size=batch_rows(self.batch_size, data.rows.shape[0]),
            n_records=n_records,
            random_state=session.random_state,
            weight=data.weight,
        )
        return features, problem.run(iterates, session, n_records).coef
