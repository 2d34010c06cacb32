"""Classification on random features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.registry import register
from ..callbacks import CallbackLike, NoImprovement
from ..fitting import random_features
from ..fitting.arguments import described
from ..fitting.parameters import check_parameters
from ..kernels import Kernel, KernelFunction
from ._base import KernelClassifier
from .random_features_regressor import OnRandomFeatures

Array = NDArray[Any]


@register
@described
class RandomFeaturesClassifier(OnRandomFeatures, KernelClassifier):
    """Classification by least squares on random features of a kernel.

    It regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and predicts the class
    with the largest value. See `RandomFeaturesRegressor` for the method.

    Parameters
    ----------
    {features.kernel, features.n_components, features.penalty, orthogonal, class_weight, fit_intercept, dense.scale,
    features.solver, features.max_iter, features.step, power_t, average, features.batch_size, block_size,
    features.early_stopping, validation_fraction, n_iter_no_change, features.dtype, features.memory_budget, device,
    n_jobs, features.random_state, callbacks, verbose}

    Attributes
    ----------
    {classes_, labels.feature_coef_, penalty_, features.feature_map_, kernel_, features.n_iter_}
    history_ : list of dict
        As for `RandomFeaturesRegressor`; the validation error is the share of wrong classes.
    {classes.offset_, classes.output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    RandomFeaturesRegressor : The same for regression.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon import RandomFeaturesClassifier
    >>> X, y = make_moons(1000, noise=0.1, random_state=0)
    >>> model = RandomFeaturesClassifier(n_components=200, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_components: int = 1000,
        penalty: float | str = "auto",
        orthogonal: bool = False,
        class_weight: Mapping[Any, float] | str | None = None,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        solver: str = "direct",
        max_iter: int = 20,
        step: float | str = "auto",
        power_t: float = 0.0,
        average: bool = False,
        batch_size: int | None = None,
        block_size: int | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        device: Any = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.penalty = penalty
        self.orthogonal = orthogonal
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.solver = solver
        self.max_iter = max_iter
        self.step = step
        self.power_t = power_t
        self.average = average
        self.batch_size = batch_size
        self.block_size = block_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
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
        {dense.X, labels.y, fit.sample_weight}
        {validation.X_val y_val}
            The error is the share of wrong classes.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **random_features.RULES)
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        with self._session(patience=patience) as session:
            hold_out = self.validation_fraction if self.early_stopping and self.solver != "direct" else None
            options: dict[str, Any] = {"hold_out": hold_out, "random_access": self.solver == "sgd"}
            in_file = self.device is None and self.solver == "direct" and self.class_weight is None
            data, classes = self._data(session, X, y, sample_weight, X_val, y_val, **options, in_file=in_file)
            self._learn(data, session)
            self.classes_ = classes
        return self

    def _check_loaded(self) -> None:
        super()._check_loaded()
        self._check_classes(self.feature_coef_)
