"""Regression trees as plain arrays: what a model file holds of them, and their predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.registry import register
from ..backends.trees import tree_sums
from .stored import check_floats

Array = NDArray[Any]

_MOST_LEVELS = 1_000  # most levels of a tree: gradient boosting grows about ten


@register
@dataclass(frozen=True, eq=False)
class TreeArrays:
    """The nodes of many trees, one after another; the children of a node come after it.

    A row goes to the left child of a node if its value of the node's feature is at most the threshold, or if it is NaN
    and `missing_left` is true. The prediction of an output is the sum of the values of the leaves of its trees.

    feature : index of the feature of each node
    threshold : its threshold
    left, right : indices of the children; -1 for leaves
    missing_left : whether rows without a value go to the left
    value : values of leaves
    root : index of the first node of each tree
    output : index of the output that each tree contributes to

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.tables.tree_arrays import TreeArrays
    >>> stump = TreeArrays(
    ...     feature=np.array([0, 0, 0], dtype=np.int32),
    ...     threshold=np.array([0.5, 0.0, 0.0]),
    ...     left=np.array([1, -1, -1], dtype=np.int32),
    ...     right=np.array([2, -1, -1], dtype=np.int32),
    ...     missing_left=np.array([True, False, False]),
    ...     value=np.array([0.0, 10.0, 20.0]),
    ...     root=np.array([0], dtype=np.int32),
    ...     output=np.array([0], dtype=np.int32),
    ... )
    >>> stump.sums(np.array([[0.5], [0.6], [np.nan]]), 1).ravel().tolist()
    [10.0, 20.0, 10.0]
    """

    feature: Array
    threshold: Array
    left: Array
    right: Array
    missing_left: Array
    value: Array
    root: Array
    output: Array

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return what a model file holds."""
        return dict(vars(self))

    def sums(self, X: Array, n_outputs: int) -> Array:
        """Return the sums of the leaves' values, of shape (n, n_outputs), in float64."""
        return tree_sums(self, X, n_outputs)

    def check(self, n_features: int, n_outputs: int) -> None:
        """Raise ValueError if the arrays, which come from a file, are not those of trees."""
        n, T = np.size(self.feature), np.size(self.root)
        for name, size in {"feature": n, "left": n, "right": n, "root": T, "output": T}.items():
            array = vars(self)[name]
            if not (isinstance(array, np.ndarray) and array.dtype == np.int32 and array.shape == (size,)):
                raise ValueError(f"{name} of trees must be an array of {size} integers of 32 bits")
        for name in ("threshold", "value"):
            check_floats(f"{name} of trees", vars(self)[name], (n,))
        missing = self.missing_left
        if not (isinstance(missing, np.ndarray) and missing.dtype == np.bool_ and missing.shape == (n,)):
            raise ValueError(f"missing_left of trees must be an array of {n} truth values")
        self._check_indices(n, n_features, n_outputs)

    def _check_indices(self, n: int, n_features: int, n_outputs: int) -> None:
        limits = {"feature": n_features, "root": n, "output": n_outputs}
        for name, most in limits.items():
            array = vars(self)[name]
            if len(array) and (array.min() < 0 or array.max() >= most):
                raise ValueError(f"{name} of trees must be between 0 and {most - 1}")
        inner = np.flatnonzero(self.left >= 0)
        if not np.array_equal(inner, np.flatnonzero(self.right >= 0)):
            raise ValueError("a node of trees has one child: nodes have two or none")
        for child in (self.left[inner], self.right[inner]):
            if (child <= inner).any() or (child >= n).any():
                raise ValueError("the children of a node of trees must come after it, and be nodes")
        if len(self._levels(_MOST_LEVELS + 1)) > _MOST_LEVELS:
            raise ValueError(f"a tree has more than {_MOST_LEVELS} levels")

    def _levels(self, most: int) -> list[Array]:
        """Return the inner nodes of each level, from the roots down, of at most a number of levels."""
        levels: list[Array] = []
        level = np.unique(self.root)
        while len(levels) < most:
            level = level[self.left[level] >= 0]
            if not len(level):
                break
            levels.append(level)
            level = np.unique(np.concatenate([self.left[level], self.right[level]]))
        return levels

    def splits(self, n_features: int) -> Array:
        """Return how much each feature contributes: the variance of leaf values that its splits explain.

        Every leaf counts the same; the value of an inner node is the mean of those below it.
        """
        mean, count = self.value.copy(), np.ones(len(self.value))
        total = np.zeros(n_features)
        for nodes in self._levels(_MOST_LEVELS)[::-1]:
            a, b = self.left[nodes], self.right[nodes]
            count[nodes] = count[a] + count[b]
            mean[nodes] = (count[a] * mean[a] + count[b] * mean[b]) / count[nodes]
            explained = count[a] * count[b] / count[nodes] * (mean[a] - mean[b]) ** 2
            total += np.bincount(self.feature[nodes], weights=explained, minlength=n_features)
        return total


def joined(parts: list[TreeArrays], factor: float = 1.0) -> TreeArrays:
    """Return the trees of all parts, with values multiplied by a factor."""
    shifts = np.cumsum([0, *(len(part.feature) for part in parts)])[:-1].astype(np.int32)
    moved = [
        {
            **vars(part),
            "left": np.where(part.left < 0, part.left, part.left + shift),
            "right": np.where(part.right < 0, part.right, part.right + shift),
            "root": part.root + shift,
            "value": factor * part.value,
        }
        for part, shift in zip(parts, shifts, strict=True)
    ]
    return TreeArrays(**{name: np.concatenate([one[name] for one in moved]) for name in moved[0]})
