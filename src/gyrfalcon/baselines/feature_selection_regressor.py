"""Ridge regression on selected random features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.checks import Rule, integer
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..fitting.arguments import described
from ..fitting.random_features import FeatureProblem, ridge_on_features
from ..fitting.session import Session, finite
from ..kernels import Kernel, KernelFunction
from ..kernels.features import FeatureMap
from ._features import FeatureBaseline

_ROWS_PER_FEATURE = 4  # least number of rows that a round learns from, for each feature


RULES: Mapping[str, Rule] = {"n_rounds": integer(1)}


def solve_selection(problem: FeatureProblem, session: Session, n_rounds: int) -> tuple[FeatureMap, NDArray[Any]]:
    """Return the features that all rounds kept, and their coefficients, learnt from all rows."""
    data, n, random_state = problem.data, problem.data.rows.shape[0], session.random_state
    features, T, kept = problem.features, n_rounds, 0
    M, size = len(features), min(n, max(_ROWS_PER_FEATURE * len(features), -(-n // T)))
    session.start(data, max_iter=T, n_components=M)
    watch = problem.validation_error
    for t in range(1, T + 1):
        at = None if t == T else np.sort(random_state.choice(n, size, replace=False))
        coef = ridge_on_features(problem, features, at=at)
        passes = (t * size if t < T else (T - 1) * size + n) / n
        record: dict[str, Any] = {"iteration": t, "kept": kept, "passes": passes}
        if watch is not None:
            record["validation_error"] = watch(features, coef * problem.scale)
        if session.record(record) or t == T:
            break
        kept = M * t // T
        largest = np.argsort(-np.linalg.norm(coef, axis=1), kind="stable")[:kept]
        new = problem.draw(M, random_state).columns(0, M - kept)
        features = features.take(np.sort(largest)) + new if kept else new
    return features, finite(coef * problem.scale, data.rows.dtype)


@register
@described
class FeatureSelectionRegressor(FeatureBaseline):
    """Ridge regression on random features that are selected among many: "Sparse Kernels".

    Each round learns from a random part of the rows, keeps the features with the largest coefficients, and replaces the
    others by newly drawn ones, fewer of them from round to round [1]_. The last round learns from all rows. The model
    has M features, selected from about M (`n_rounds` + 1) / 2.

    Parameters
    ----------
    {features.kernel, selection.n_components, features.penalty, selection.n_rounds, fit_intercept, dense.scale,
    drawn.dtype, selection.memory_budget, n_jobs, selection.random_state, callbacks, verbose}

    Attributes
    ----------
    {drawn.feature_coef_, penalty_, features.feature_map_, kernel_, selection.n_iter_}
    history_ : list of dict
        For each round: `iteration`, `kept` (the number of its features that earlier rounds had kept), `passes`,
        `seconds`, and `validation_error` where there is a validation set.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.RandomFeaturesRegressor : Without selection.

    References
    ----------
    .. [1] May, Garakani, Lu, Guo, Liu, Bellet, Fan, Collins, Hsu, Kingsbury, Picheny, Sha, "Kernel Approximation
       Methods for Speech Recognition", JMLR 2019 (arXiv 2017).

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.baselines import FeatureSelectionRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = FeatureSelectionRegressor(n_components=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    _rules: ClassVar[Mapping[str, Rule]] = RULES

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_components: int = 1000,
        penalty: float | str = "auto",
        n_rounds: int = 5,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
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
        self.n_rounds = n_rounds
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def _solve(self, problem: FeatureProblem, session: Session) -> tuple[FeatureMap, NDArray[Any]]:
        return solve_selection(problem, session, int(self.n_rounds))
