"""Models of gradient-boosted trees that are plain arrays: fitted by scikit-learn, saved and applied without it."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted

from .._utils.registry import register
from ..estimators._sklearn import ClassifierMixin, RegressorMixin
from .stored import check_floats
from .tree_arrays import TreeArrays, joined

Array = NDArray[Any]

_BLOCK = 65_536  # rows of a source that are read at once


def arrays_of(fitted: Any, n_iterations: int, output: int = 0) -> TreeArrays:
    """Return the first trees of a fitted model of scikit-learn's histogram gradient boosting as arrays."""
    parts = []
    for trees in fitted._predictors[:n_iterations]:
        for number, tree in enumerate(trees):
            nodes = tree.nodes
            leaf = nodes["is_leaf"].astype(bool)
            parts.append(
                TreeArrays(
                    feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
                    threshold=np.where(leaf, 0.0, np.minimum(nodes["num_threshold"], np.finfo(np.float64).max)),
                    left=np.where(leaf, -1, nodes["left"].astype(np.int64)).astype(np.int32),
                    right=np.where(leaf, -1, nodes["right"].astype(np.int64)).astype(np.int32),
                    missing_left=nodes["missing_go_to_left"].astype(bool),
                    value=np.where(leaf, nodes["value"], 0.0).astype(np.float64),
                    root=np.zeros(1, np.int32),
                    output=np.full(1, output + number, np.int32),
                )
            )
    return joined(parts)


def probabilities_of(scores: Array) -> Array:
    """Return probabilities of classes from the log-odds of the second of two, or from log P up to a constant."""
    if scores.shape[1] > 1:
        return np.asarray(softmax(scores, axis=1))
    return np.asarray(np.hstack([expit(-scores), expit(scores)]))


class Boosted(BaseEstimator):  # type: ignore[misc]
    """Sums of the leaves of trees, and an offset for each output.

    trees_ : the trees
    offset_ : the prediction without any tree
    n_iter_ : number of trees of each output
    """

    trees_: TreeArrays
    offset_: Array
    n_features_in_: int
    n_iter_: int

    def _hold(self, trees: TreeArrays, offset: Array, n_features: int) -> Self:
        """Set what was learnt."""
        self.trees_, self.offset_, self.n_features_in_ = trees, np.asarray(offset, dtype=np.float64), n_features
        self.n_iter_ = len(trees.root) // len(self.offset_)
        return self

    def raw_scores(self, X: Any) -> Array:
        """Return the sums of the leaves' values and the offset, of shape (n, n_outputs).

        Parameters
        ----------
        X : array or source of shape (n, n_features)
        """
        check_is_fitted(self)
        if isinstance(X, np.ndarray | list):
            rows = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", ensure_min_samples=0)
            if rows.shape[1] != self.n_features_in_:
                raise ValueError(f"X has {rows.shape[1]} columns, and the trees were grown with {self.n_features_in_}")
            return self.offset_ + self.trees_.sums(rows, len(self.offset_))
        n = X.shape[0]
        blocks = [np.arange(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]
        parts = [self.raw_scores(np.asarray(X.take(block))) for block in blocks]
        return np.concatenate([np.empty((0, len(self.offset_))), *parts])

    @property
    def importances_(self) -> Array:
        """The share of each feature in what the splits explain."""
        total = self.trees_.splits(self.n_features_in_)
        return np.asarray(total / (total.sum() or 1.0))

    def __sklearn_is_fitted__(self) -> bool:
        return "trees_" in vars(self)

    def _check_loaded(self) -> None:
        if not isinstance(self.trees_, TreeArrays):
            raise ValueError("trees_ is not an object of the class TreeArrays")
        for name in ("n_features_in_", "n_iter_"):
            if type(vars(self)[name]) is not int or vars(self)[name] < 0:
                raise ValueError(f"{name}={vars(self)[name]!r} must be a non-negative integer")
        check_floats("offset_", self.offset_, (np.size(self.offset_),))
        self.trees_.check(self.n_features_in_, len(self.offset_))


@register
class BoostedRegressor(RegressorMixin, Boosted):
    """Gradient-boosted trees for regression, as plain arrays.

    `AutoRegressor` fits them on folds, and averages the trees of all folds. `fit` grows those of
    `sklearn.ensemble.HistGradientBoostingRegressor` with its defaults.

    Attributes
    ----------
    trees_ : TreeArrays
        The trees.
    offset_ : array of shape (n_outputs,)
        The prediction without any tree.
    n_iter_ : int
        Number of trees of each output.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.tables.boosted import BoostedRegressor
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> BoostedRegressor().fit(X, X[:, 0] > 0.5).predict([[0.2], [0.8]]).round(2).tolist()
    [0.0, 1.0]
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Grow trees."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        fitted = HistGradientBoostingRegressor().fit(X, y)
        return self._hold(arrays_of(fitted, fitted.n_iter_), fitted._baseline_prediction.ravel(), fitted.n_features_in_)

    def predict(self, X: Any) -> Array:
        """Predict y, of shape (n,) or (n, n_outputs)."""
        scores = self.raw_scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores


@register
class BoostedClassifier(ClassifierMixin, Boosted):
    """Gradient-boosted trees for classes, as plain arrays; see `BoostedRegressor`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes.
    trees_ : TreeArrays
        The trees, which predict the log-odds of the second of two classes, or log P of each class up to a constant.
    offset_ : array of shape (n_outputs,)
        The prediction without any tree.
    n_iter_ : int
        Number of trees of each output.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gyrfalcon.tables.boosted import BoostedClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(BoostedClassifier().fit(X, y).score(X, y) > 0.95)
    True
    """

    classes_: Array

    def fit(self, X: Any, y: Any) -> Self:
        """Grow trees."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        fitted = HistGradientBoostingClassifier().fit(X, y)
        self.classes_ = fitted.classes_
        return self._hold(arrays_of(fitted, fitted.n_iter_), fitted._baseline_prediction.ravel(), fitted.n_features_in_)

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
            raise ValueError(f"the trees have {len(self.offset_)} outputs and not those of {n_classes} classes")
