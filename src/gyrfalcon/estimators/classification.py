"""Classification: what y means to every classifier, and the FALKON one with the squared loss."""

from __future__ import annotations

from numbers import Number
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from ..persistence import register
from ._base import Estimator
from ._falkon import FalkonBase
from ._parameters import documented, parameters

Array = NDArray[Any]


@parameters
class HasClassWeight:
    """How much each class counts."""

    class_weight: Any = None


class Classification(HasClassWeight, ClassifierMixin, Estimator):  # type: ignore[misc]
    """What y means to a classifier: labels, as columns of +1 and -1."""

    classes_: Array

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X : array or table of shape (n, n_features)
            float32 is computed in float32, all else in float64, unless `dtype` says otherwise.
        y : array of shape (n,)
            Labels of any kind.
        sample_weight : array of shape (n,), optional
            Not negative. Only ratios matter: the penalty goes with weights of mean 1.
        X_val, y_val : optional
            Rows on which the share of wrong classes is recorded, and which decide what is decided by validation, such
            as when `early_stopping` stops.

        Returns
        -------
        self
        """
        with self._all_or_nothing():
            self._check_parameters()
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
            y = _labels(y, "y")
            check_classification_targets(y)
            classes, codes = np.unique(y, return_inverse=True)
            weight = self._check_weight(sample_weight, X)
            present = np.unique(codes if weight is None else codes[weight > 0])
            if len(present) < 2:
                raise ValueError(
                    f"y has one class, {classes[present[0]]!r}, among the rows that count: at least two are needed"
                )
            weight = self._with_class_weight(weight, classes, codes)
            held = self._check_validation(X_val, y_val)
            held_targets = None
            if held is not None:
                y_val = _labels(column_or_1d(y_val, warn=True), "y_val")
                check_consistent_length(held, y_val)
                unseen = sorted(set(y_val.tolist()) - set(classes.tolist()), key=str)
                if unseen:
                    raise ValueError(f"y_val has classes that y has not: {unseen}")
                held_targets = _signs(np.searchsorted(classes, y_val), len(classes))
            random_state = check_random_state(self.random_state)
            targets = _signs(codes, len(classes)).astype(self._tile_dtype(X))
            problem = self._problem(X, targets, weight, held, held_targets, _share_wrong, codes, random_state)
            problem.flat = len(classes) == 2
            problem.attributes = {"classes_": classes}
            warm = getattr(self, "warm_start", False) and hasattr(self, "coef_")
            self._solve(problem, random_state, warm and np.array_equal(self.classes_, classes))
        return self

    def _with_class_weight(self, weight: Array | None, classes: Array, codes: Array) -> Array | None:
        if self.class_weight is None:
            return weight
        rows = np.ones(len(codes)) if weight is None else weight
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            # a row of weight 2 is two rows, here too
            totals = np.bincount(codes, weights=rows)
            each = totals.sum() / np.where(totals > 0, totals, np.inf) / len(classes)
        else:
            each = compute_class_weight(self.class_weight, classes=classes, y=classes[codes])
        if not (np.isfinite(each).all() and (each >= 0).all() and (rows * each[codes]).any()):
            raise ValueError(
                f"class_weight={self.class_weight!r} must be finite, not negative, and not zero for every row"
            )
        weight = rows * each[codes]
        return weight

    def _check_loaded(self) -> None:
        super()._check_loaded()
        columns = 1 if self.coef_.ndim == 1 else self.coef_.shape[1]
        if self.classes_.ndim != 1 or columns != (1 if len(self.classes_) == 2 else len(self.classes_)):
            raise ValueError(f"coef_ of shape {self.coef_.shape} does not fit classes_ of shape {self.classes_.shape}")

    def decision_function(self, X: Any) -> Array:
        """The regression's values: positive for ``classes_[1]`` if there are two classes, else largest for the class.

        Parameters
        ----------
        X : array or table of shape (n, n_features)

        Returns
        -------
        array of shape (n,) for two classes, else (n, n_classes)
        """
        return self._predict(X)

    def predict(self, X: Any) -> Array:
        """Predict classes.

        Parameters
        ----------
        X : array or table of shape (n, n_features)

        Returns
        -------
        array of shape (n,)
        """
        values = self.decision_function(X)
        predictions: Array = self.classes_[_codes(values)]
        return predictions


@register
@documented()
@parameters
class FalkonClassifier(Classification, FalkonBase):
    """Kernel classification on millions of rows, by FALKON with the squared loss.

    Regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and predicts the class
    with the largest value. See `FalkonRegressor` for the method.

    {parameters}

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    centers_ : array of shape (M, n_features_in_)
        The centers.
    coef_ : array of shape (M,) for two classes, else (M, n_classes)
        Coefficients of the centers.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    n_iter_ : int
        Iterations done.
    history_ : list of dict
        One record for each iteration, as for `FalkonRegressor`; the validation error is the share of wrong classes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    FalkonRegressor : The same for regression.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon import FalkonClassifier
    >>> X, y = make_moons(1000, noise=0.1, random_state=0)
    >>> model = FalkonClassifier(n_centers=100, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """


def _labels(y: Array, name: str) -> Array:
    """Labels that can be sorted: those that are Python objects must be all strings or all numbers."""
    if y.dtype != object or all(isinstance(label, str) for label in y):
        return y
    if all(isinstance(label, Number | np.bool_) for label in y):
        return np.asarray(y.tolist())
    kinds = sorted({type(label).__name__ for label in y})
    raise ValueError(f"{name} has labels of types {', '.join(kinds)}: they must be all strings or all numbers")


def _signs(codes: Array, n_classes: int) -> Array:
    """Targets +1 and -1: one column for two classes, else one for each."""
    if n_classes == 2:
        return 2.0 * codes[:, None] - 1.0
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)


def _codes(values: Array) -> Array:
    values = values.reshape(len(values), -1)
    return (values[:, 0] > 0).astype(np.intp) if values.shape[1] == 1 else values.argmax(axis=1)


def _share_wrong(targets: Array, weight: Array | None, values: Array) -> float:
    return float(np.average(_codes(values) != _codes(targets), weights=weight))
