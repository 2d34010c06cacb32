"""A binary tree of cells: hyperplanes that split the rows in about halves, down to leaves of a given size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import array
from .._utils.ranges import power_of_two
from .._utils.registry import register

Array = NDArray[Any]

_DIRECTION_ROWS = 2_000  # most rows of a cell from which its direction is computed
_ROUTED_NUMBERS = 1 << 20  # numbers of a block of rows that is routed at once
_TRIES = 4  # directions of a kind that are tried where many projections are equal, before rows are split by position
_SPLIT_AT = (0.4, 0.6)  # shares of the rows on the first side: at the median, trees would have borders in common
_LEAST_SHARE = 0.25  # least share of the rows on one side, where a split must be moved because projections are equal


@register
@dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree of cells. Inner nodes are numbered from the root, parents before their children.

    Attributes
    ----------
    directions : ndarray of shape (n_nodes, d)
        A row x of an inner node goes to the first child if its product with the direction is at most the threshold.
    thresholds : ndarray of shape (n_nodes,)
    children : ndarray of shape (n_nodes, 2), int64
        Numbers of inner nodes; leaf l is -1 - l.
    starts : ndarray of shape (n_leaves + 1,), int64
        Rows `starts[l]` to `starts[l + 1]`, in the order of the tree, are those of leaf l.
    """

    directions: Array
    thresholds: Array
    children: Array
    starts: Array

    def __post_init__(self) -> None:
        m = len(self.children)
        array((m, None))("directions", self.directions)
        array((m,))("thresholds", self.thresholds)
        array((m, 2), np.int64)("children", self.children)
        array((m + 2,), np.int64)("starts", self.starts)
        numbers = np.arange(m)[:, None]
        inner = self.children >= 0
        # each node and leaf is the child of one node, which comes before it: a walk from the root ends
        wanted = np.r_[-np.arange(1, m + 2), np.arange(1, m)]
        if m and (
            not np.array_equal(np.sort(self.children, axis=None), np.sort(wanted))
            or (inner & (self.children <= numbers)).any()
        ):
            raise ValueError("children do not make a tree")
        if self.starts[0] != 0 or (np.diff(self.starts) < 0).any():
            raise ValueError("starts do not increase from 0")

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return what a model file holds."""
        return dict(vars(self))

    @property
    def n_leaves(self) -> int:
        return len(self.starts) - 1

    def leaf(self, number: int) -> slice:
        """Return the rows of a leaf, in the order of the tree."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    @property
    def parents(self) -> Array:
        """The inner node above each leaf, of shape (n_leaves,); -1 for the only leaf of a tree."""
        out = np.full(self.n_leaves, -1, dtype=np.int64)
        for node, child in enumerate(self.children):
            for c in child[child < 0]:
                out[-1 - c] = node
        return out

    @property
    def node_parents(self) -> Array:
        """The inner node above each inner node, of shape (n_nodes,); -1 for the root."""
        out = np.full(len(self.children), -1, dtype=np.int64)
        for node, child in enumerate(self.children):
            out[child[child >= 0]] = node
        return out

    def route(self, X: Any) -> Array:
        """Return the number of the leaf of each row of an array."""
        step = max(1, _ROUTED_NUMBERS // max(1, X.shape[1]))
        parts = [self._route(X[i : i + step]) for i in range(0, X.shape[0], step)]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def _route(self, X: Array) -> Array:
        at = np.full(X.shape[0], 0 if len(self.children) else -1, dtype=np.int64)
        while len(active := np.flatnonzero(at >= 0)):
            node = at[active]
            projection = np.einsum("ij,ij->i", X[active], self.directions[node])
            at[active] = self.children[node, (projection > self.thresholds[node]).astype(np.int64)]
        return -1 - at


def _random(points: Array, rng: np.random.Generator) -> Array:
    return np.asarray(rng.standard_normal(points.shape[1]))


def _principal(points: Array, rng: np.random.Generator) -> Array:
    """Return a random mixture of the rows' principal directions, in proportion to the variance along them."""
    centered = points - points.mean(axis=0)
    direction: Array = centered.T @ rng.standard_normal(len(points))
    return direction


def _axis(points: Array, rng: np.random.Generator) -> Array:
    """Return the direction of one feature, drawn in proportion to its variance."""
    direction = np.zeros(points.shape[1])
    variances = points.var(axis=0)
    total = float(variances.sum())
    if 0 < total < np.inf:
        direction[rng.choice(len(variances), p=variances / total)] = 1.0
    return direction


SPLITS: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "axis": _axis,
    "principal": _principal,
    "random": _random,
}


def grow_tree(X: Array, leaf_size: int, split: str, seed: int, scaling: Array | None = None) -> tuple[Tree, Array]:
    """Split rows near their medians until no cell has more than `leaf_size` of them.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    leaf_size : int
    split : str
        One of `SPLITS`: how directions are drawn.
    seed : int
        Of the random numbers.
    scaling : ndarray of shape (d,), optional
        Factors of the features: directions are drawn for the rows times these.

    Returns
    -------
    Tree
    order : ndarray of shape (n,)
        Numbers of the rows in the order of the tree.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.hierarchy import grow_tree
    >>> X = np.arange(8.0)[:, None]
    >>> tree, order = grow_tree(X, 2, "random", seed=0)
    >>> int(np.diff(tree.starts).max())
    2
    >>> leaves = np.repeat(np.arange(tree.n_leaves), np.diff(tree.starts))
    >>> bool((tree.route(X[order]) == leaves).all())
    True
    """
    order = np.arange(X.shape[0])
    factors = np.ones(X.shape[1]) if scaling is None else scaling / scaling.max()
    directions: list[Array] = []
    thresholds: list[float] = []
    children: list[list[int]] = []
    starts = [0]
    # cells to be split, the next one last: their rows, and where their number goes
    waiting: list[tuple[int, int, tuple[int, int] | None]] = [(0, X.shape[0], None)]
    while waiting:
        start, stop, place = waiting.pop()
        is_leaf = stop - start <= leaf_size
        if place is not None:
            node, side = place
            children[node][side] = -len(starts) if is_leaf else len(children)
        if is_leaf:
            starts.append(stop)
            continue
        rows = order[start:stop]
        direction, threshold, first = _cut(
            X, rows, factors, SPLITS[split], np.random.default_rng([seed, len(children)])
        )
        order[start:stop] = np.r_[rows[first], rows[~first]]
        middle = start + int(first.sum())
        node = len(children)
        directions.append(direction)
        thresholds.append(threshold)
        children.append([0, 0])
        waiting += [(middle, stop, (node, 1)), (start, middle, (node, 0))]
    tree = Tree(
        np.array(directions, dtype=np.float64).reshape(-1, X.shape[1]),
        np.array(thresholds, dtype=np.float64),
        np.array(children, dtype=np.int64).reshape(-1, 2),
        np.array(starts, dtype=np.int64),
    )
    return tree, order


def _cut(
    X: Array, rows: Array, factors: Array, draw: Callable[[Array, np.random.Generator], Array], rng: np.random.Generator
) -> tuple[Array, float, Array]:
    """Return a direction, a threshold, and which of the rows are below it."""
    n = len(rows)
    some = rows if n <= _DIRECTION_ROWS else rows[rng.choice(n, _DIRECTION_ROWS, replace=False)]
    points = factors * X[some]
    points = points / power_of_two(points)  # whose squares may leave the range
    wanted = int(n * rng.uniform(*_SPLIT_AT))
    for attempt in range(2 * _TRIES):
        # features of few values may have no value in the middle, where a mixture of several has
        direction = factors * (draw if attempt < _TRIES else _random)(points, rng)
        size = float(np.linalg.norm(direction))
        if size == 0 or not np.isfinite(size):  # all points are equal
            continue
        direction = direction / size
        projections = np.einsum("ij,j->i", X[rows], direction)
        ranked = np.sort(projections)
        middle = _middle(ranked, wanted)
        if middle is not None:
            threshold = float(ranked[middle - 1] + ranked[middle]) / 2
            threshold = threshold if threshold < ranked[middle] else float(ranked[middle - 1])
            return direction, threshold, projections <= threshold
    # equal rows: any half of them
    direction = np.zeros(X.shape[1])
    return direction, 0.0, np.arange(n) < n // 2


def _middle(ranked: Array, wanted: int) -> int | None:
    """Return the position nearest to the wanted one where sorted projections differ; None if a side would be small."""
    n = len(ranked)
    places = np.flatnonzero(ranked[1:] > ranked[:-1]) + 1
    places = places[(places >= _LEAST_SHARE * n) & (places <= (1 - _LEAST_SHARE) * n)]
    return int(places[np.argmin(np.abs(places - wanted))]) if len(places) else None
