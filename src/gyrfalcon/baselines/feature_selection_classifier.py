"""Classification on selected random features."""

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
from .feature_selection_regressor import RULES, solve_selection


@register
@described
class FeatureSelectionClassifier(FeatureClassifier):
    """Classification on random features that are selected among many: "Sparse Kernels".

    Regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and predicts the class
    with the largest value. A feature counts by the norm of its coefficients for all classes [1]_. See
    `FeatureSelectionRegressor` for the method.

    Parameters
    ----------
    {features.kernel, selection.n_components, features.penalty, class_weight, selection.n_rounds, fit_intercept,
    dense.scale, drawn.dtype, selection.memory_budget, n_jobs, selection.random_state, callbacks, verbose}

    Attributes
    ----------
    {classes_, labels.feature_coef_, penalty_, features.feature_map_, kernel_, selection.n_iter_}
    history_ : list of dict
        As for `FeatureSelectionRegressor`; the validation error is the share of wrong classes.
    {classes.offset_, classes.output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    FeatureSelectionRegressor : The same for regression.
    gyrfalcon.RandomFeaturesClassifier : Without selection.

    References
    ----------
    .. [1] May, Garakani, Lu, Guo, Liu, Bellet, Fan, Collins, Hsu, Kingsbury, Picheny, Sha, "Kernel Approximation
       Methods for Speech Recognition", JMLR 2019 (arXiv 2017).

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon.baselines import FeatureSelectionClassifier
    >>> X, y = make_moons(1000, noise=0.1, random_state=0)
    >>> model = FeatureSelectionClassifier(n_components=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    _rules: ClassVar[Mapping[str, Rule]] = RULES

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_components: int = 1000,
        penalty: float | str = "auto",
        class_weight: Mapping[Any, float] | str | None = None,
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
        self.class_weight = class_weight
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
