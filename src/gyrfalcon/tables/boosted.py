"""Models of gradient-boosted trees that are plain arrays, saved and applied without pickle."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.registry import register
from .scored import ScoreClassifier, ScoreModel, ScoreRegressor
from .tree_arrays import TreeArrays, joined

Array = NDArray[Any]


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


class Boosted(ScoreModel):
    """Sums of the leaves of trees, and an offset for each output.

    trees_ : the trees
    offset_ : the prediction without any tree
    n_iter_ : number of trees of each output
    """

    trees_: TreeArrays
    n_iter_: int

    def _hold(self, trees: TreeArrays, offset: Array, n_features: int) -> Self:
        """Set what was learnt."""
        self.trees_, self.offset_, self.n_features_in_ = trees, np.asarray(offset, dtype=np.float64), n_features
        self.n_iter_ = len(trees.root) // len(self.offset_)
        return self

    def _scores_of(self, rows: Array) -> Array:
        return self.offset_ + self.trees_.sums(rows, len(self.offset_))

    @property
    def importances_(self) -> Array:
        """The share of each feature in what the splits explain."""
        total = self.trees_.splits(self.n_features_in_)
        return np.asarray(total / (total.sum() or 1.0))

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if not isinstance(self.trees_, TreeArrays):
            raise ValueError("trees_ is not an object of the class TreeArrays")
        if type(self.n_iter_) is not int or self.n_iter_ < 0:
            raise ValueError(f"n_iter_={self.n_iter_!r} must be a non-negative integer")
        self.trees_.check(self.n_features_in_, len(self.offset_))


@register
class BoostedRegressor(ScoreRegressor, Boosted):
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


@register
class BoostedClassifier(ScoreClassifier, Boosted):
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

    def fit(self, X: Any, y: Any) -> Self:
        """Grow trees."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        fitted = HistGradientBoostingClassifier().fit(X, y)
        self.classes_ = fitted.classes_
        return self._hold(arrays_of(fitted, fitted.n_iter_), fitted._baseline_prediction.ravel(), fitted.n_features_in_)
