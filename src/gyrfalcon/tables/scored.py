"""Models without a kernel: scores of rows that are predictions of y, or log-odds of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted

from ..estimators._sklearn import ClassifierMixin, RegressorMixin
from .stored import check_floats

Array = NDArray[Any]

_BLOCK = 65_536  # rows of a source that are read at once


class ScoreModel(BaseEstimator):  # type: ignore[misc]
    """A model whose scores are computed row by row.

    offset_ : the score of each output where nothing else contributes
    """

    offset_: Array
    n_features_in_: int

    def _scores_of(self, rows: Array) -> Array:
        """Return the scores of rows in memory, of shape (n, n_outputs)."""
        raise NotImplementedError

    def raw_scores(self, X: Any) -> Array:
        """Return the scores, of shape (n, n_outputs).

        Parameters
        ----------
        X : array or source of shape (n, n_features)
        """
        check_is_fitted(self)
        if isinstance(X, np.ndarray | list):
            rows = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", ensure_min_samples=0)
            if rows.shape[1] != self.n_features_in_:
                raise ValueError(f"X has {rows.shape[1]} columns, and the model was fitted to {self.n_features_in_}")
            return self._scores_of(rows)
        n = X.shape[0]
        blocks = [np.arange(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]
        parts = [self.raw_scores(np.asarray(X.take(block))) for block in blocks]
        return np.concatenate([np.empty((0, len(self.offset_))), *parts])

    def __sklearn_is_fitted__(self) -> bool:
        return "offset_" in vars(self)

    def _check_loaded(self) -> None:
        if type(self.n_features_in_) is not int or self.n_features_in_ < 0:
            raise ValueError(f"n_features_in_={self.n_features_in_!r} must be a non-negative integer")
        check_floats("offset_", self.offset_, (np.size(self.offset_),))


class ScoreRegressor(RegressorMixin, ScoreModel):
    """A model whose scores are predictions of y."""

    def predict(self, X: Any) -> Array:
        """Predict y, of shape (n,) or (n, n_outputs)."""
        scores = self.raw_scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores


class ScoreClassifier(ClassifierMixin, ScoreModel):
    """A model whose scores are the log-odds of the second of two classes, or log P of each class up to a constant.

    classes_ : the classes
    """

    classes_: Array

    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class, of shape (n, n_classes)."""
        return probabilities_of(self.raw_scores(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Predict the logarithms of the probabilities, of shape (n, n_classes)."""
        scores = self.raw_scores(X)
        if scores.shape[1] > 1:
            return np.asarray(log_softmax(scores, axis=1))
        return np.asarray(np.hstack([log_expit(-scores), log_expit(scores)]))

    def predict(self, X: Any) -> Array:
        """Predict the most probable class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _check_loaded(self) -> None:
        super()._check_loaded()
        n_classes = np.size(self.classes_)
        if not isinstance(self.classes_, np.ndarray) or self.classes_.ndim != 1 or n_classes < 2:
            raise ValueError("classes_ is not an array of at least two classes")
        if len(self.offset_) != (1 if n_classes == 2 else n_classes):
            raise ValueError(f"there are {len(self.offset_)} outputs and not those of {n_classes} classes")


def probabilities_of(scores: Array) -> Array:
    """Return probabilities of classes from the log-odds of the second of two, or from log P up to a constant."""
    if scores.shape[1] > 1:
        return np.asarray(softmax(scores, axis=1))
    return np.asarray(np.hstack([expit(-scores), expit(scores)]))
