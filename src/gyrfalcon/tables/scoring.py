"""A metric that the user names: it decides what each model counts in the blend, and which class is predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from ..estimators._sklearn import ClassifierMixin, RegressorMixin

Array = NDArray[Any]

_MOST_ROWS = 10_000  # most held-out rows that a metric is computed of
_STEPS = 25  # models that a blend adds, one of them several times
_OFFSETS = np.linspace(-3.0, 3.0, 61)  # what may be added to the logarithm of a probability before classes are compared
_SWEEPS = 2  # times that the offsets of all classes are chosen
_MOST_CLASSES = 30  # with more classes, offsets are left at 0


class _HeldNumbers(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predictions of held-out rows in the form of a fitted regressor; X has the numbers of rows."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Array) -> Array:
        return np.asarray(self.values[check_array(X)[:, 0]])


class _HeldClasses(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Probabilities of held-out rows in the form of a fitted classifier; X has the numbers of rows."""

    def __init__(self, logs: Array, classes: Array, offsets: Array) -> None:
        self.logs, self.classes, self.offsets = logs, classes, offsets

    @property
    def classes_(self) -> Array:
        return self.classes

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, X: Array) -> Array:
        logs = self.logs[check_array(X)[:, 0]]
        return np.asarray(logs[:, 1] - logs[:, 0] if len(self.classes) == 2 else logs)

    def predict_proba(self, X: Array) -> Array:
        return np.exp(log_softmax(self.logs[check_array(X)[:, 0]], axis=1))

    def predict(self, X: Array) -> Array:
        return np.asarray(self.classes[(self.logs[check_array(X)[:, 0]] + self.offsets).argmax(axis=1)])


@dataclass(frozen=True, eq=False)
class Metric:
    """A scorer of scikit-learn, applied to predictions for held-out rows; larger is better."""

    scorer: Callable[..., Any]

    def _score(self, held: Any, y: Array, weight: Array | None) -> float:
        rows = np.arange(len(y))[:, None]
        extra = {} if weight is None else {"sample_weight": weight}
        score = float(self.scorer(held, rows, y, **extra))
        if not np.isfinite(score):
            raise ValueError(f"scoring gives {score} for predictions of {len(y)} held-out rows: use another metric")
        return score

    def number_weights(self, predictions: list[Array], y: Array, weight: Array | None) -> Array:
        """Return weights of predictions of y, each of the shape of y, for which their average has a large score."""
        some = _some(len(y))
        members, y, weight = [one[some] for one in predictions], y[some], None if weight is None else weight[some]
        return _greedy(members, lambda values: self._score(_HeldNumbers(values), y, weight))

    def class_weights(self, logs: list[Array], classes: Array, labels: Array, weight: Array | None) -> Array:
        """Return weights of logarithms of probabilities, as `number_weights`; `labels` are indices of classes."""
        some, zeros = _some(len(labels)), np.zeros(len(classes))
        members, y, weight = (
            [one[some] for one in logs],
            classes[labels[some]],
            None if weight is None else weight[some],
        )
        return _greedy(members, lambda values: self._score(_HeldClasses(values, classes, zeros), y, weight))

    def class_offsets(self, logs: Array, classes: Array, labels: Array, weight: Array | None) -> Array:
        """Return what to add to the logarithms of probabilities, so that the largest sum predicts the best class.

        These are zeros if the metric does not depend on predicted classes.
        """
        some, k = _some(len(labels)), len(classes)
        logs, y, weight = logs[some], classes[labels[some]], None if weight is None else weight[some]
        offsets = np.zeros(k)
        if k > _MOST_CLASSES:
            return offsets
        best = self._score(_HeldClasses(logs, classes, offsets), y, weight)
        moved = np.eye(k)[-1] * _OFFSETS[-1]
        if k > 1 and self._score(_HeldClasses(logs, classes, moved), y, weight) == best:
            return offsets
        for _ in range(1 if k == 2 else _SWEEPS):
            for j in range(1, k):
                tries = [np.where(np.arange(k) == j, offset, offsets) for offset in _OFFSETS]
                scores = np.array([self._score(_HeldClasses(logs, classes, one), y, weight) for one in tries])
                if scores.max() > best:
                    # the middle of all that are as good, so that a few rows decide less
                    best = float(scores.max())
                    equal = _OFFSETS[scores == best]
                    offsets[j] = equal[len(equal) // 2]
        return offsets


def _greedy(members: list[Array], score: Callable[[Array], float]) -> Array:
    """Return weights with sum 1: each step adds the member that gives the largest score; the best step counts."""
    counts, total = np.zeros(len(members)), np.zeros_like(members[0], dtype=np.float64)
    best, weights = -np.inf, np.zeros(len(members))
    for step in range(_STEPS):
        scores = [score((total + one) / (step + 1)) for one in members]
        chosen = int(np.argmax(scores))
        total, counts[chosen] = total + members[chosen], counts[chosen] + 1
        if scores[chosen] > best:
            best, weights = scores[chosen], counts / (step + 1)
    return weights


def _some(n: int) -> slice:
    """Return a slice of all rows, or of evenly spaced ones if there are many."""
    return slice(None, None, -(-n // _MOST_ROWS) or 1)


def metric_of(scoring: Any, estimator: Any) -> Metric | None:
    """Return the metric that the parameter `scoring` of an estimator names; None for the default."""
    from sklearn.metrics import check_scoring

    if scoring is None:
        return None
    if not isinstance(scoring, str) and not callable(scoring):
        raise TypeError(
            f"scoring={scoring!r} must be None, the name of a scorer of scikit-learn or a callable: one of "
            "sklearn.metrics.get_scorer_names()"
        )
    return Metric(check_scoring(estimator, scoring=scoring))
