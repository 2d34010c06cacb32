"""A binary tree of cells: hyperplanes that split the rows in about halves, down to leaves of a given size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

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
ROOT = 1  # the path of the root
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

    def ranges(self) -> tuple[Array, Array]:
        """Return the first and the last leaf below each inner node."""
        ends = np.empty((2, len(self.children)), dtype=np.int64)
        for node in range(len(self.children) - 1, -1, -1):
            for side, end in enumerate(ends):
                child = self.children[node, side]
                end[node] = -1 - child if child < 0 else end[child]
        return ends[0], ends[1]

    def subtree(self, child: int, ends: tuple[Array, Array]) -> tuple[Tree, slice, slice]:
        """Return the tree below an inner node, or of the leaf -1 - child; also its inner nodes and its leaves.

        Nodes and leaves of a subtree have consecutive numbers; `ends` are those that `ranges` returns.
        """
        first, last = (-1 - child, -1 - child) if child < 0 else (int(end[child]) for end in ends)
        nodes = slice(max(child, 0), max(child, 0) + last - first)
        children = self.children[nodes]
        below = np.where(children < 0, children + first, children - nodes.start)
        starts = self.starts[first : last + 2]
        tree = Tree(self.directions[nodes], self.thresholds[nodes], below, starts - starts[0])
        return tree, nodes, slice(first, last + 1)

    def route(self, X: Any) -> Array:
        """Return the number of the leaf of each row of an array."""
        parts = [self._route(X[at]) for at in pieces(*X.shape)]
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
    how = Cutter(split, seed, leaf_size, scaled_factors(X.shape[1], scaling))
    order = np.arange(X.shape[0])
    cuts: dict[int, Cut] = {}
    subdivide(X, order, ROOT, how, cuts)
    return assemble(cuts, *X.shape), order


def scaled_factors(d: int, scaling: Array | None) -> Array:
    """Return the factors of the features, at most 1."""
    return np.ones(d) if scaling is None else scaling / scaling.max()


class Cut(NamedTuple):
    """How a cell is split: `first` is the number of its rows that go to the first child."""

    direction: Array
    threshold: float
    first: int


class Cutter(NamedTuple):
    """How all cells of a tree are split.

    A cell is known by its path: that of the root is 1, and those of the children of p are 2 p and 2 p + 1. Its random
    numbers depend on the seed and the path, so that cells may be split in any order, anywhere.
    """

    split: str
    seed: int
    leaf_size: int
    factors: Array

    def candidates(self, path: int, n: int, take: Callable[[Array], Array]) -> Candidates:
        """Return the ways to split a cell of n rows; `take` returns those at some positions in the cell."""
        return Candidates(self, path, n, take)


class Candidates:
    """The ways to split one cell, which are tried one after another until one separates its rows."""

    def __init__(self, how: Cutter, path: int, n: int, take: Callable[[Array], Array]) -> None:
        rng = np.random.default_rng([how.seed, path])
        some = np.arange(n) if n <= _DIRECTION_ROWS else rng.choice(n, _DIRECTION_ROWS, replace=False)
        points = how.factors * take(some)
        self._points = points / power_of_two(points)  # whose squares may leave the range
        self._n, self._wanted = n, int(n * rng.uniform(*_SPLIT_AT))
        self._how, self._rng = how, rng
        self.directions = self._directions()

    def _directions(self) -> Iterator[Array]:
        for attempt in range(2 * _TRIES):
            # features of few values may have no value in the middle, where a mixture of several has
            draw = SPLITS[self._how.split] if attempt < _TRIES else _random
            direction = self._how.factors * draw(self._points, self._rng)
            size = float(np.linalg.norm(direction))
            if size == 0 or not np.isfinite(size):  # all points are equal
                continue
            yield direction / size

    def cut(self, direction: Array, projections: Array) -> tuple[Cut, Array] | None:
        """Return a cut and which rows are below it, from the rows' products with a direction; None if there is none."""
        ranked = np.sort(projections)
        middle = _middle(ranked, self._wanted)
        if middle is None:
            return None
        threshold = float(ranked[middle - 1] + ranked[middle]) / 2
        threshold = threshold if threshold < ranked[middle] else float(ranked[middle - 1])
        first = projections <= threshold
        return Cut(direction, threshold, int(first.sum())), first

    def halves(self) -> tuple[Cut, Array]:
        """Return a cut of equal rows: any half of them."""
        n = self._n
        return Cut(np.zeros(len(self._how.factors)), 0.0, n // 2), np.arange(n) < n // 2


def subdivide(X: Array, order: Array, path: int, how: Cutter, cuts: dict[int, Cut]) -> None:
    """Split the cell of a path, whose rows are X[order], until no cell is larger than a leaf; add to `cuts`."""
    waiting = [(path, 0, len(order))]
    while waiting:
        path, start, stop = waiting.pop()
        if stop - start <= how.leaf_size:
            continue
        rows = order[start:stop]
        candidates = how.candidates(path, len(rows), lambda at, rows=rows: X[rows[at]])  # type: ignore[misc]
        tried = (candidates.cut(one, _projections(X, rows, one)) for one in candidates.directions)
        cut, first = next((found for found in tried if found is not None), None) or candidates.halves()
        order[start:stop] = np.r_[rows[first], rows[~first]]
        cuts[path] = cut
        waiting += [(2 * path, start, start + cut.first), (2 * path + 1, start + cut.first, stop)]


def _projections(X: Array, rows: Array, direction: Array) -> Array:
    out = np.empty(len(rows))
    for at in pieces(len(rows), X.shape[1]):
        np.einsum("ij,j->i", X[rows[at]], direction, out=out[at])
    return out


def pieces(n: int, d: int) -> Iterator[slice]:
    """Yield the rows of blocks of a moderate size, in order."""
    step = max(1, _ROUTED_NUMBERS // max(1, d))
    return (slice(i, min(i + step, n)) for i in range(0, n, step))


def assemble(cuts: dict[int, Cut], n: int, d: int) -> Tree:
    """Make a tree of n rows with d features from the cuts of its inner nodes, by path."""
    found: list[Cut] = []
    children: list[list[int]] = []
    starts = [0]
    # cells, the next one last: their paths and rows, and where their number goes
    waiting: list[tuple[int, int, int, tuple[int, int] | None]] = [(ROOT, 0, n, None)]
    while waiting:
        path, start, stop, place = waiting.pop()
        cut = cuts.get(path)
        if place is not None:
            children[place[0]][place[1]] = -len(starts) if cut is None else len(children)
        if cut is None:
            starts.append(stop)
            continue
        node, middle = len(children), start + cut.first
        found.append(cut)
        children.append([0, 0])
        waiting += [(2 * path + 1, middle, stop, (node, 1)), (2 * path, start, middle, (node, 0))]
    return Tree(
        np.array([cut.direction for cut in found], dtype=np.float64).reshape(-1, d),
        np.array([cut.threshold for cut in found], dtype=np.float64),
        np.array(children, dtype=np.int64).reshape(-1, 2),
        np.array(starts, dtype=np.int64),
    )


def _middle(ranked: Array, wanted: int) -> int | None:
    """Return the position nearest to the wanted one where sorted projections differ; None if a side would be small."""
    n = len(ranked)
    places = np.flatnonzero(ranked[1:] > ranked[:-1]) + 1
    places = places[(places >= _LEAST_SHARE * n) & (places <= (1 - _LEAST_SHARE) * n)]
    return int(places[np.argmin(np.abs(places - wanted))]) if len(places) else None
