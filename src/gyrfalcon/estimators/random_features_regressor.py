"""Regression on random features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.registry import register
from ..callbacks import CallbackLike, NoImprovement
from ..fitting import random_features
from ..fitting.arguments import described
from ..fitting.auto_penalty import as_penalty
from ..fitting.data import FitData
from ..fitting.parameters import check_parameters
from ..fitting.session import Session
from ..kernels import Kernel, KernelFunction
from ..kernels.features import FeatureMap
from ..operators import feature_operator
from ..operators.shapley import Expansion
from ._base import KernelEstimator, KernelRegressor

Array = NDArray[Any]


class OnRandomFeatures(KernelEstimator):
    """A linear function of random features of the rows, once it is fitted."""

    n_components: int
    penalty: float | str
    orthogonal: bool
    solver: str
    max_iter: int
    step: float | str | None
    power_t: float
    average: bool
    batch_size: int | None
    block_size: int | None

    penalty_: float
    feature_map_: FeatureMap
    feature_coef_: Array

    def _learn(self, data: FitData, session: Session) -> None:
        """Draw the features, find their coefficients, and set the attributes."""
        compute, random_state = self._compute, session.random_state
        penalty = as_penalty(self.penalty, self.kernel, data, random_state, compute)
        problem = random_features.feature_problem(
            self.kernel, int(self.n_components), penalty, data, compute, random_state, orthogonal=self.orthogonal
        )
        features, coef = self._solve(problem, session)
        self._set_solution(data, session)
        self.kernel_, self.feature_map_, self.penalty_ = problem.kernel, features, penalty
        self.feature_coef_ = data.shaped(coef)

    def _solve(self, problem: random_features.FeatureProblem, session: Session) -> tuple[FeatureMap, Array]:
        """Return features and their coefficients, of shape (M, k)."""
        settings = random_features.FeatureSettings(
            solver=self.solver,
            max_iter=self.max_iter,
            step=self.step,
            power_t=self.power_t,
            average=self.average,
            batch_size=self.batch_size,
            block_size=self.block_size,
        )
        return problem.features, random_features.solve(settings, problem, session).coef

    def _expansion(self) -> Expansion | None:
        return None

    def _functions(self, X: Any) -> Array:
        check_is_fitted(self)
        rows = self._scaled_rows(X, self.feature_map_.weights.dtype)
        operator = feature_operator(self.feature_map_, rows, n_jobs=self.n_jobs, device=self.device)
        return self._from_offset(operator.image(self.feature_coef_))

    def _check_loaded(self) -> None:
        self._check_scaling()
        random_features.check_loaded_features(self.kernel_, self.feature_map_, self.feature_coef_, self.n_features_in_)
        self._check_offset(self.feature_coef_)


@register
@described
class RandomFeaturesRegressor(OnRandomFeatures, KernelRegressor):
    """Ridge regression on random features of a kernel.

    It minimises mean((y - F coef)^2) + penalty |coef|^2, where F are M random features of the rows, by normal equations
    that are added up over blocks of rows, or by mini-batch gradient descent [1]_. F is never stored. As M grows, the
    solution approaches that of kernel ridge regression; Nyström centers (`FalkonRegressor`) are chosen among the data,
    and usually fewer of them are needed [2]_.

    Parameters
    ----------
    {features.kernel, features.n_components, features.penalty, orthogonal, fit_intercept, dense.scale, features.solver,
    features.max_iter, features.step, power_t, average, features.batch_size, block_size,
    features.early_stopping, validation_fraction, n_iter_no_change, features.dtype, features.memory_budget, device,
    n_jobs, features.random_state, callbacks, verbose}

    Attributes
    ----------
    {drawn.feature_coef_, penalty_, features.feature_map_, kernel_, features.n_iter_}
    history_ : list of dict
        For each epoch: `iteration`, `residual`, `passes`, `seconds`, `converged`, `validation_error` where there is a
        validation set, and what callbacks added; with "bcd" also `error`, an estimate of how far the fitted values are
        from the solution's, as a share of their standard deviation.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    RandomFeatures : The features alone, for a pipeline.
    RandomFeaturesClassifier : The same for classification.

    References
    ----------
    .. [1] Carratino, Rudi, Rosasco, "Learning with SGD and Random Features", NeurIPS 2018.
    .. [2] Yang, Li, Mahdavi, Jin, Zhou, "Nyström Method vs Random Fourier Features", NeurIPS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import RandomFeaturesRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = RandomFeaturesRegressor(n_components=200, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_components: int = 1000,
        penalty: float | str = "auto",
        orthogonal: bool = False,
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
        {dense.X, fit.y, fit.sample_weight, fit.X_val y_val}

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **random_features.RULES)
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        with self._session(patience=patience) as session:
            hold_out = self.validation_fraction if self.early_stopping and self.solver != "direct" else None
            options: dict[str, Any] = {"hold_out": hold_out, "random_access": self.solver == "sgd"}
            in_file = self.device is None and self.solver == "direct"
            data = self._data(session, X, y, sample_weight, X_val, y_val, **options, in_file=in_file)
            self._learn(data, session)
        return self
