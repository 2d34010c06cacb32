"""The average of ridge regressions on random features."""

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

RULES: Mapping[str, Rule] = {"n_estimators": integer(1)}


def solve_average(
    problem: FeatureProblem, session: Session, n_components: int, n_estimators: int
) -> tuple[FeatureMap, NDArray[Any]]:
    """Return the coefficients of members, each with features of its own, divided by their number."""
    drawn, coef = problem.features, np.empty((0, problem.targets.shape[1]))
    session.start(problem.data, max_iter=n_estimators, n_components=len(drawn))
    features, watch = drawn, problem.validation_error
    for done in range(1, n_estimators + 1):
        if done > 1:
            drawn = problem.draw(n_components, session.random_state)
            features = features + drawn
        coef = np.vstack([coef, ridge_on_features(problem, drawn)])
        record: dict[str, Any] = {"iteration": done, "passes": done}
        if watch is not None:
            record["validation_error"] = watch(features, coef / done * problem.scale)
        if session.record(record):
            break
    return features, finite(coef / done * problem.scale, problem.data.rows.dtype)


@register
@described
class EnsembleRegressor(FeatureBaseline):
    """The average of ridge regressions, each on random features of its own.

    L models with M features each take time L n M^2 and memory M^2, where one model with all L M features would take L
    times as much of both, and more of the latter [1]_. The average has less variance than its members, and stays behind
    the one large model.

    Parameters
    ----------
    {features.kernel, ensemble.n_components, ensemble.n_estimators, features.penalty, fit_intercept, dense.scale,
    drawn.dtype, ensemble.memory_budget, n_jobs, drawn.random_state, callbacks, verbose}

    Attributes
    ----------
    feature_coef_ : array of shape (L M,) or (L M, n_outputs)
        Coefficients of the features of all members, divided by the number of members.
    {penalty_, features.feature_map_, kernel_, ensemble.n_iter_}
    history_ : list of dict
        For each member: `iteration`, `passes`, `seconds`, and the `validation_error` of the average so far, where there
        is a validation set.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.RandomFeaturesRegressor : One model.
    gyrfalcon.DivideAndConquerRegressor : The average of models of parts of the rows.

    References
    ----------
    .. [1] Huang, Avron, Sainath, Sindhwani, Ramabhadran, "Kernel Methods Match Deep Neural Networks on TIMIT",
       ICASSP 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.baselines import EnsembleRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = EnsembleRegressor(n_components=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    _rules: ClassVar[Mapping[str, Rule]] = RULES

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_components: int = 1000,
        n_estimators: int = 10,
        penalty: float | str = "auto",
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
        self.n_estimators = n_estimators
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def _solve(self, problem: FeatureProblem, session: Session) -> tuple[FeatureMap, NDArray[Any]]:
        return solve_average(problem, session, int(self.n_components), int(self.n_estimators))
