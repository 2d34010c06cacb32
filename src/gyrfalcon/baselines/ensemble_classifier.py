"""The average of classifications on random features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.checks import Rule
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..fitting.arguments import described
from ..fitting.random_features import FeatureProblem
from ..fitting.session import Session
from ..kernels import Kernel, KernelFunction
from ..kernels.features import FeatureMap
from ._features import FeatureClassifier
from .ensemble_regressor import RULES, solve_average


@register
@described
class EnsembleClassifier(FeatureClassifier):
    """Classification by the average of ridge regressions, each on random features of its own.

    Regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and predicts the class
    with the largest value of the average [1]_. See `EnsembleRegressor` for the method.

    Parameters
    ----------
    {features.kernel, ensemble.n_components, ensemble.n_estimators, features.penalty, class_weight, fit_intercept,
    dense.scale, drawn.dtype, ensemble.memory_budget, n_jobs, drawn.random_state, callbacks, verbose}

    Attributes
    ----------
    {classes_}
    feature_coef_ : array of shape (L M,) for two classes, else (L M, n_classes)
        Coefficients of the features of all members, divided by the number of members.
    {penalty_, features.feature_map_, kernel_, ensemble.n_iter_}
    history_ : list of dict
        As for `EnsembleRegressor`; the validation error is the share of wrong classes.
    {classes.offset_, classes.output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    EnsembleRegressor : The same for regression.
    gyrfalcon.RandomFeaturesClassifier : One model.

    References
    ----------
    .. [1] Huang, Avron, Sainath, Sindhwani, Ramabhadran, "Kernel Methods Match Deep Neural Networks on TIMIT",
       ICASSP 2014.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon.baselines import EnsembleClassifier
    >>> X, y = make_moons(1000, noise=0.1, random_state=0)
    >>> model = EnsembleClassifier(n_components=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
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
        class_weight: Mapping[Any, float] | str | None = None,
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
        self.class_weight = class_weight
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
