"""Intervals around the predictions of any regressor, by rows that are held out."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _check_y, check_is_fitted

from .._utils.checks import boolean
from .._utils.registry import register
from ..fitting.conformal import COVERAGE, Conformity, Part
from ..fitting.rows import at_once, computed, for_score, labelled
from ..sources import as_source
from ._conformal import ConformalEstimator, columns_of, described
from ._lazy import in_kind
from ._posterior import UncertainRegressor
from ._sklearn import MultiOutputMixin, RegressorMixin
from .falkon_regressor import FalkonRegressor

Array = NDArray[Any]

# parameters of the default model for each method
_DEFAULTS: dict[str, dict[str, Any]] = {
    "constant": {},
    "deviation": {"uncertainty": True},
    "quantiles": {"loss": "quantile", "quantiles": [0.05, 0.5, 0.95]},
}


@register
@described
class ConformalRegressor(MultiOutputMixin, RegressorMixin, ConformalEstimator):
    """Intervals that contain y with a given probability, around any regressor: split conformal prediction.

    Some rows are held out of the fit, and determine how wide intervals have to be [1]_. If new rows come from the same
    distribution, intervals contain y with at least the given probability, for any model and any distribution.

    Parameters
    ----------
    estimator : regressor or None, default=None
        The model, of Gyrfalcon or of scikit-learn. None is the `FalkonRegressor` that suits `method`.
    method : {"constant", "deviation", "quantiles"}, default="constant"
        How the width of intervals depends on the row. With "constant" it is the same for all rows. With "deviation" it
        is proportional to the standard deviation of y, for models with `predict(X, return_std=True)`: intervals are
        wide where there are few training rows. With "quantiles" the first and the last of the quantiles that the model
        predicts are moved (conformalised quantile regression [2]_): intervals are wide where y is noisy.
    validation_fraction : float, default=0.2
        Fraction of the rows to hold out if `fit` is given no validation rows.
    {conformal.random_state}

    Attributes
    ----------
    estimator_ : regressor
        The fitted model.
    method_ : str
        The method of the fit, by which intervals are made; a method set later by `set_params` needs a new fit.
    {conformal.conformity_}
    one_column_ : bool
        Whether y has no second axis.
    {n_features_in_, feature_names_in_}

    See Also
    --------
    FalkonRegressor : With `uncertainty=True` it has intervals from leave-one-out errors, and no row is held out.
    ConformalClassifier : Sets of classes.

    References
    ----------
    .. [1] Lei, G'Sell, Rinaldo, Tibshirani, Wasserman, "Distribution-Free Predictive Inference for Regression", JASA
       2018.
    .. [2] Romano, Patterson, Candès, "Conformalized Quantile Regression", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import ConformalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(3000, 1))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * (1 + np.abs(X[:, 0])) * rng.standard_normal(3000)
    >>> model = ConformalRegressor(method="quantiles", random_state=0).fit(X[:2000], y[:2000])
    >>> low, high = model.predict_interval(X[2000:], coverage=0.9).T
    >>> bool(0.87 < np.mean((low <= y[2000:]) & (y[2000:] <= high)) < 0.94)
    True
    """

    _methods = tuple(_DEFAULTS)

    one_column_: bool

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: str = "constant",
        validation_fraction: float = 0.2,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Fit the model to some rows, and calibrate intervals on the others.

        Parameters
        ----------
        {conformal.X}
        y : array of shape (n,) or (n, n_outputs)
            Targets; one column with `method="quantiles"`. By default those of X, if X was opened with a target.
        {conformal.sample_weight, conformal.X_val y_val}

        Returns
        -------
        self
        """
        X, y, sample_weight = labelled(X, y, sample_weight)
        X_val, y_val, _ = labelled(X_val, y_val)
        self._check(y)
        if self.method == "deviation" and self.estimator is not None:
            _require_deviations(self.estimator)
        checks = {"multi_output": self.method != "quantiles", "y_numeric": True, "estimator": self}
        y = _check_y(computed(y, as_source(X)), **checks)
        if y_val is not None:
            y_val = _check_y(computed(y_val, as_source(X_val)), **checks)
        self._learn(X, y, sample_weight, X_val, y_val)
        return self

    def _default(self, seed: int) -> FalkonRegressor:
        return FalkonRegressor(random_state=seed, **_DEFAULTS.get(self.method, {}))

    def _judged(self, model: Any, part: Part) -> dict[str, Any]:
        low, high, unit = _band(model, self.method, part.X)
        y = columns_of(part.y)
        if y.shape[1] != low.shape[1]:
            raise ValueError(f"y has {y.shape[1]} columns, but predictions have {low.shape[1]}: they must agree")
        beyond = np.maximum(low - y, y - high)
        # a deviation of 0 that was right is no surprise, and one that was not is the greatest
        scores = np.divide(beyond, unit, out=np.where(beyond > 0, np.inf, 0.0), where=unit > 0)
        return {"conformity_": Conformity.of(scores, part.weight), "one_column_": part.y.ndim == 1}

    @in_kind
    def predict(self, X: Any) -> Array:
        """Predict y, as the model does; of several quantiles, the one in the middle.

        Parameters
        ----------
        {conformal.X}

        Returns
        -------
        array of shape (n,) or (n, n_outputs)
        """
        check_is_fitted(self)
        predictions: Array = self.estimator_.predict(X)
        return predictions[:, predictions.shape[1] // 2] if self.method_ == "quantiles" else predictions

    @in_kind
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Predict intervals that contain y with the given probability.

        Parameters
        ----------
        {interval.X, coverage}

        Returns
        -------
        array of shape (n, 2) or (n, 2, n_outputs): lower and upper ends
        """
        COVERAGE("coverage", coverage)
        check_is_fitted(self)
        times = self.conformity_.quantile(coverage)
        low, high, unit = _band(self.estimator_, self.method_, at_once(X))
        if low.shape[1:] != times.shape:
            raise ValueError(f"estimator_ predicts {low.shape[1]} outputs, and conformity_ knows {len(times)}")
        low, high = low - times * unit, high + times * unit
        # quantiles that are too far apart are moved towards each other, and not past each other
        middle = (low + high) / 2
        ends = np.stack([np.minimum(low, middle), np.maximum(high, middle)], axis=1)
        return ends[:, :, 0] if self.one_column_ else ends

    def _check_loaded(self) -> None:
        super()._check_loaded()
        boolean("one_column_", self.one_column_)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination R^2 of the predictions; 1 is perfect, 0 is as good as the mean of y.

        Parameters
        ----------
        {score.X, score.y, score.sample_weight}

        Returns
        -------
        float
        """
        return float(super().score(*for_score(X, y, sample_weight)))


def _band(model: Any, method: str, X: Any) -> tuple[Array, Array, Array]:
    """Return lower and upper ends and units: intervals go from low - t unit to high + t unit, for some t."""
    if method == "deviation":
        found = model.predict(X, return_std=True)
        if not isinstance(found, tuple) or len(found) != 2:
            raise _no_deviations(model)
        mean, std = (columns_of(values) for values in found)
        last = _last_step(model)
        # Gyrfalcon's models give the deviation of f: what others call their deviation is taken as it is
        noise = last.noise_variance_ if isinstance(last, UncertainRegressor) else 0.0
        return mean, mean, np.sqrt(std**2 + noise)
    values = columns_of(model.predict(X))
    unit = np.ones((len(values), 1))
    if method == "constant":
        return values, values, np.broadcast_to(unit, values.shape)
    if values.shape[1] < 2:
        raise ValueError(
            'method="quantiles" needs a model that predicts at least two quantiles, such as '
            'FalkonRegressor(loss="quantile", quantiles=[0.05, 0.5, 0.95])'
        )
    return values[:, :1], values[:, -1:], unit


def _last_step(model: Any) -> Any:
    """Return the model that predicts: the last step of a pipeline, or what was frozen."""
    while isinstance(model, Pipeline | FrozenEstimator):
        model = model.steps[-1][1] if isinstance(model, Pipeline) else model.estimator
    return model


def _require_deviations(estimator: Any) -> None:
    """Raise ValueError for a model, of any library, that predicts no deviations."""
    model = _last_step(estimator)
    if isinstance(model, UncertainRegressor) and model.uncertainty is False:
        raise ValueError(
            f'method="deviation" needs standard deviations: use {type(model).__name__}(uncertainty=True, ...)'
        )
    parameters = signature(model.predict).parameters
    handed_on = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    # a transformed target hands return_std on, and then takes the pair that comes back for predictions
    if isinstance(model, TransformedTargetRegressor) or not ("return_std" in parameters or handed_on):
        raise _no_deviations(model)


def _no_deviations(model: Any) -> ValueError:
    return ValueError(
        'method="deviation" needs a model whose predict takes return_std and returns a pair of mean and deviation, and '
        f'{type(model).__name__} is none: use FalkonRegressor(uncertainty=True), or method="constant"'
    )
