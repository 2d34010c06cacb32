"""The common part of the conformal estimators: a model, and the held-out rows that calibrate it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import one_of, optional
from .._utils.docstrings import Entry, describing
from ..fitting.arguments import SHARED
from ..fitting.attributes import check_attributes
from ..fitting.conformal import Conformity, Part, hold_out
from ..fitting.parameters import check_parameters
from ..fitting.targets import require_both, require_y
from ..sources import to_host
from ._estimator import Estimator

Array = NDArray[Any]

CONFORMAL: Mapping[str, Entry] = {
    "conformal.random_state": Entry("int, RandomState or None", "Seed of the held-out rows, and of the default model."),
    "conformal.conformity_": Entry("object", "The scores of the held-out rows."),
    "conformal.X": Entry("whatever the model takes, of shape (n, n_features)"),
    "conformal.sample_weight": Entry(
        "array of shape (n,), optional",
        "Not negative. Rows with weight 0 are ignored. The weights of held-out rows count in the calibration.",
    ),
    "conformal.X_val y_val": Entry(
        "optional", "Rows on which to calibrate, instead of a part of X. They are not used for training."
    ),
}

described = describing(SHARED, CONFORMAL)


@described
class ConformalEstimator(Estimator):
    """A model, and scores of rows that it has not seen."""

    _methods: ClassVar[tuple[str, ...]]
    _every_class: ClassVar[bool] = False  # whether y are classes, each of which needs a training row

    estimator: Any
    method: str
    validation_fraction: float
    random_state: Any

    estimator_: Any
    method_: str
    conformity_: Conformity

    def _check(self, y: Any) -> None:
        """Raise ValueError for wrong parameters, or without y."""
        check_parameters(self.get_params(deep=False), method=one_of(*self._methods))
        optional(_model)("estimator", self.estimator)
        require_y(y, type(self).__name__)

    @abstractmethod
    def _default(self, seed: int) -> Any:
        """Return the model where none is given."""

    def _learn(self, X: Any, y: Array, sample_weight: ArrayLike | None, X_val: Any, y_val: Array | None) -> None:
        """Fit the model, and score the rows that calibrate it."""
        require_both(X_val, y_val)
        random_state = check_random_state(self.random_state)
        seed = int(random_state.randint(2**31 - 1))
        model = self._default(seed) if self.estimator is None else clone(self.estimator)
        X, X_val = to_host(X), to_host(X_val)
        share, every = self.validation_fraction, self._every_class
        learnt, judges = hold_out(X, y, sample_weight, X_val, y_val, share, random_state, every_class=every)
        more = {} if learnt.weight is None else {"sample_weight": learnt.weight}
        model = model.fit(learnt.X, learnt.y, **more)
        found = self._judged(model, judges)
        self.estimator_ = model
        self.method_ = self.method  # scores of one method say nothing about another, which may be set later
        for name, value in found.items():
            setattr(self, name, value)
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
            if name in vars(model):
                setattr(self, name, vars(model)[name])

    @abstractmethod
    def _judged(self, model: Any, part: Part) -> dict[str, Any]:
        """Return `conformity_`, from rows that the model has not seen, and other attributes of the fit by name."""

    def __sklearn_is_fitted__(self) -> bool:
        return "conformity_" in vars(self)

    def _check_loaded(self) -> None:
        """Raise ValueError if attributes that come from a model file do not fit together."""
        check_attributes(vars(self))
        one_of(*self._methods)("method_", self.method_)
        if not isinstance(self.conformity_, Conformity):
            raise ValueError("conformity_ is something else")
        _model("estimator_", self.estimator_)
        check_is_fitted(self.estimator_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = (self._default(0) if self.estimator is None else self.estimator).__sklearn_tags__()
        tags.input_tags = inner.input_tags
        return tags


def _model(name: str, value: Any) -> None:
    """Require an instance of a model, of any library."""
    if isinstance(value, type):
        raise ValueError(f"{name}={value.__name__} is a class: give a model, such as {value.__name__}()")
    if not all(hasattr(value, method) for method in ("fit", "predict", "get_params")):  # some depend on parameters
        raise ValueError(
            f"{name}={value!r} must be None or a model with fit, predict and get_params, as those of scikit-learn"
        )


def columns_of(values: Any) -> Array:
    """Return numbers as float64 columns."""
    values = np.asarray(values, dtype=np.float64)
    return values.reshape(len(values), -1)
