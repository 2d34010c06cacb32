"""Gradient boosting of trees on binned rows: native, and in NumPy."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from .._utils.threads import ordered_map

Array = NDArray[Any]

_EDGE_ROWS = 20_000  # rows from which the edges of bins are chosen
_LEAST_CURVATURE = 1e-3  # least sum of second derivatives of a leaf, as in scikit-learn


class Binned(NamedTuple):
    """Rows whose values are replaced by the numbers of intervals.

    bins : of shape (d, n): a value is in bin b if it is at most edge b, and larger than the one before
    edges : those of each feature, in ascending order
    """

    bins: NDArray[np.uint8]
    edges: list[Array]

    @property
    def n_bins(self) -> NDArray[np.int32]:
        """Number of bins of each feature."""
        return np.array([len(one) + 1 for one in self.edges], dtype=np.int32)


@dataclass(frozen=True)
class Growth:
    """How trees grow and when they end.

    rate : factor of the values of leaves
    l2 : added to the second derivatives of a leaf
    share : share of the features, drawn anew for each tree
    min_leaf : fewest rows of a leaf
    iterations : most iterations, each with a tree for each output
    patience : iterations without a smaller loss of held-out rows that end a fit
    symmetric : whether all leaves of a level are split at the same bin of the same feature, as long as all levels have
        at most `max_leaves`; otherwise the leaf whose split has the largest gain is split next
    """

    rate: float
    l2: float
    share: float
    max_leaves: int
    min_leaf: int
    iterations: int
    patience: int
    symmetric: bool = False


class Grown(NamedTuple):
    """The nodes of all trees, one after another: a row goes to the left if its bin is at most that of the node.

    root : first node of each tree
    curve : loss of held-out rows without trees, and after each iteration
    """

    feature: Array
    bin: Array
    left: Array
    right: Array
    value: Array
    root: Array
    curve: Array


@dataclass(frozen=True, eq=False)
class BoostTask:
    """Rows to learn from and rows that judge.

    y : numbers, or numbers of classes
    n_classes : number of classes; 0 for numbers
    offset : scores before the first tree: one, or one for each of more than two classes
    """

    binned: Binned
    train: Array
    held: Array
    y: Array
    weight: Array | None
    n_classes: int
    offset: Array
    growth: Growth
    seed: int


def bin_rows(X: Array, most: int, n_threads: int, seed: int) -> Binned:
    """Replace values by at most `most` bins for each feature, which hold about as many rows each."""
    n, d = X.shape
    some = X if n <= _EDGE_ROWS else X[np.sort(np.random.RandomState(seed).choice(n, _EDGE_ROWS, replace=False))]
    bins = np.empty((d, n), dtype=np.uint8)

    def one(feature: int) -> Array:
        edges = _edges(some[:, feature], most)
        bins[feature] = np.searchsorted(edges, X[:, feature])
        return edges

    return Binned(bins, list(ordered_map(one, range(d), n_threads)))


def _edges(values: Array, most: int) -> Array:
    """Return what separates bins: the middle between neighbours, in the precision of the values.

    A middle that is rounded to its upper neighbour would not separate them: the lower one does.
    """
    distinct, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if len(distinct) > most:
        # about as many rows in each bin; a value of many rows counts as those of one bin, and leaves the others theirs
        sizes = np.minimum(counts, counts.sum() / most)
        numbers = ((np.cumsum(sizes) - sizes / 2) * (most / sizes.sum())).astype(np.intp)
        last = np.flatnonzero(np.diff(numbers))
        lower, upper = distinct[last], distinct[last + 1]
    else:
        lower, upper = distinct[:-1], distinct[1:]
    middle = lower + (upper - lower) / 2
    return np.unique(np.where(middle < upper, middle, lower))


def boost(task: BoostTask, seconds: float) -> Grown:
    """Add trees until the loss of held-out rows falls no more, or time is up; there is one iteration in any case."""
    _check_distinct(task)
    if os.environ.get("GYRFALCON_BACKEND") == "reference":
        return reference_boost(task, seconds)
    try:
        from .. import _core
    except ImportError:
        return reference_boost(task, seconds)
    growth = task.growth
    return Grown(
        *_core.boost(
            task.binned.bins,
            task.binned.n_bins,
            np.ascontiguousarray(task.train, dtype=np.int64),
            np.ascontiguousarray(task.held, dtype=np.int64),
            np.ascontiguousarray(task.y, dtype=np.float64),
            np.ascontiguousarray([] if task.weight is None else task.weight, dtype=np.float64),
            np.ascontiguousarray(task.offset, dtype=np.float64),
            task.n_classes,
            growth.rate,
            growth.l2,
            growth.share,
            growth.max_leaves,
            growth.min_leaf,
            growth.symmetric,
            growth.iterations,
            growth.patience,
            float(seconds),
            task.seed,
        )
    )


def _check_distinct(task: BoostTask) -> None:
    """Raise ValueError for a row that would count twice: the values of a tree would be added to its scores twice."""
    rows, counts = np.unique(np.concatenate([task.train, task.held]), return_counts=True)
    if (counts > 1).any():
        raise ValueError(
            f"row {rows[counts > 1][0]} is listed twice among the rows to learn from and the held-out rows: list each "
            "row once"
        )


# ---- the same in NumPy: what is right --------------------------------------------------------------------------------


def reference_boost(task: BoostTask, seconds: float) -> Grown:
    """Compute `boost` in NumPy; the features of each tree are drawn by another generator."""
    deadline = time.perf_counter() + seconds
    growth, random_state = task.growth, np.random.RandomState(task.seed % 2**32)
    d, n = task.binned.bins.shape
    scores = np.tile(task.offset, (n, 1)).astype(np.float64)
    nodes = _Nodes()
    curve = [_loss(task, scores)]
    used = min(d, max(1, int(np.floor(growth.share * d + 0.5))))
    while len(curve) <= growth.iterations and len(curve) - 1 - int(np.argmin(curve)) < growth.patience:
        if len(curve) > 1 and time.perf_counter() >= deadline:
            break
        gradients, curvatures = _derivatives(task, scores)
        for output in range(scores.shape[1]):
            features = np.sort(random_state.permutation(d)[:used])
            leaf = _grow(task, gradients[:, output], curvatures[:, output], features, nodes)
            scores[:, output] += np.array(nodes.value)[leaf]
        curve.append(_loss(task, scores))
    feature, border, left, right, root = (
        np.array(one, dtype=np.int32) for one in (nodes.feature, nodes.bin, nodes.left, nodes.right, nodes.root)
    )
    return Grown(feature, border, left, right, np.array(nodes.value), root, np.array(curve))


class _Nodes:
    def __init__(self) -> None:
        self.feature: list[int] = []
        self.bin: list[int] = []
        self.left: list[int] = []
        self.right: list[int] = []
        self.value: list[float] = []
        self.root: list[int] = []

    def add(self) -> int:
        for one, value in ((self.feature, 0), (self.bin, 0), (self.left, -1), (self.right, -1)):
            one.append(value)
        self.value.append(0.0)
        return len(self.value) - 1


def _derivatives(task: BoostTask, scores: Array) -> tuple[Array, Array]:
    weight = np.ones((len(scores), 1)) if task.weight is None else task.weight[:, None]
    if task.n_classes == 0:
        return weight * (scores - task.y[:, None]), weight * np.ones_like(scores)
    if task.n_classes == 2:
        P, hit = expit(scores), task.y[:, None]
    else:
        P, hit = softmax(scores, axis=1), np.eye(task.n_classes)[task.y.astype(np.intp)]
    return weight * (P - hit), weight * P * (1 - P)


def _loss(task: BoostTask, scores: Array) -> float:
    z, y = scores[task.held], task.y[task.held]
    if task.n_classes == 0:
        losses = 0.5 * (z[:, 0] - y) ** 2
    elif task.n_classes == 2:
        losses = np.logaddexp(0.0, np.where(y > 0.5, -z[:, 0], z[:, 0]))
    else:
        losses = logsumexp(z, axis=1) - z[np.arange(len(z)), y.astype(np.intp)]
    return float(np.average(losses, weights=None if task.weight is None else task.weight[task.held]))


def _grow(task: BoostTask, g: Array, h: Array, features: Array, nodes: _Nodes) -> Array:
    """Grow a tree, the most valuable split first, or level by level; return the leaf of every row."""
    train = np.zeros(len(g), dtype=bool)
    train[task.train] = True
    leaf = np.full(len(g), nodes.add())
    nodes.root.append(int(leaf[0]))
    grow = _grow_levels if task.growth.symmetric else _grow_leaves
    for node in grow(task, g, h, features, nodes, train, leaf):
        rows = train & (leaf == node)
        nodes.value[node] = float(-task.growth.rate * g[rows].sum() / (h[rows].sum() + task.growth.l2))
    return leaf


def _grow_leaves(
    task: BoostTask, g: Array, h: Array, features: Array, nodes: _Nodes, train: Array, leaf: Array
) -> list[int]:
    """Split the leaf with the largest gain until there are enough; return the leaves, and their numbers in `leaf`."""
    bins, growth = task.binned.bins, task.growth
    splits = {int(leaf[0]): _best_split(bins, [np.flatnonzero(train)], g, h, features, growth)}
    while len(splits) < growth.max_leaves:
        node = max(splits, key=lambda one: splits[one][0])
        gain, feature, border = splits[node]
        if gain <= 0:
            break
        del splits[node]
        for child in _divide(bins, leaf, node, feature, border, nodes):
            splits[child] = _best_split(bins, [np.flatnonzero(train & (leaf == child))], g, h, features, growth)
    return list(splits)


def _grow_levels(
    task: BoostTask, g: Array, h: Array, features: Array, nodes: _Nodes, train: Array, leaf: Array
) -> list[int]:
    """Split all leaves at the same place, level by level; return the leaves, and their numbers in `leaf`."""
    bins, growth = task.binned.bins, task.growth
    leaves, most = [int(leaf[0])], 2
    while most <= growth.max_leaves:
        rows = {node: np.flatnonzero(train & (leaf == node)) for node in leaves}
        gain, feature, border = _best_split(bins, list(rows.values()), g, h, features, growth)
        if gain <= 0:
            break
        for place, node in enumerate([*leaves]):
            if _gains(bins[feature, rows[node]], g[rows[node]], h[rows[node]], growth, border + 1)[1][border]:
                leaves[place], other = _divide(bins, leaf, node, feature, border, nodes)
                leaves.append(other)
        most *= 2
    return leaves


def _divide(bins: Array, leaf: Array, node: int, feature: int, border: int, nodes: _Nodes) -> tuple[int, int]:
    """Split a leaf into two, whose numbers are returned and written to `leaf`."""
    one, two = nodes.add(), nodes.add()
    nodes.feature[node], nodes.bin[node], nodes.left[node], nodes.right[node] = feature, border, one, two
    inside = leaf == node
    leaf[inside] = np.where(bins[feature, inside] <= border, one, two)
    return one, two


def _best_split(
    bins: Array, leaves: list[Array], g: Array, h: Array, features: Array, growth: Growth
) -> tuple[float, int, int]:
    """Return the gain, the feature and the bin of the best common split of leaves; a gain of 0 if there is none."""
    size = sum(g[rows].sum() ** 2 / (h[rows].sum() + growth.l2) + h[rows].sum() for rows in leaves)
    best, found = 1e-12 * size, (0.0, 0, 0)
    for feature in features:
        n_bins = int(bins[feature].max()) + 1
        gains = sum(_gains(bins[feature, rows], g[rows], h[rows], growth, n_bins)[0] for rows in leaves)
        if np.max(gains) > best:
            best = float(np.max(gains))
            found = (best, int(feature), int(np.argmax(gains)))
    return found


def _gains(bins: Array, g: Array, h: Array, growth: Growth, n_bins: int) -> tuple[Array, Array]:
    """Return the gain of splitting a leaf at each bin, 0 if a side had too few rows, and whether both have enough."""
    G, H = g.sum(), h.sum()
    n, left_g, left_h = (np.cumsum(np.bincount(bins, each, minlength=n_bins)) for each in (None, g, h))
    fewest = np.minimum(n, len(bins) - n) >= growth.min_leaf
    allowed = fewest & (np.minimum(left_h, H - left_h) >= _LEAST_CURVATURE)
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = left_g**2 / (left_h + growth.l2) + (G - left_g) ** 2 / (H - left_h + growth.l2)
    return np.where(allowed, gains - G**2 / (H + growth.l2), 0.0), allowed
