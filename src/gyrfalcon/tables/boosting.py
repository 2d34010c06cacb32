"""Fits of gradient-boosted trees: on each fold in turn, early-stopped where all folds together predict best."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.threads import ordered_map
from ..backends.boosting import BoostTask, Grown, Growth, bin_rows, boost
from .boosted import BoostedClassifier, BoostedRegressor
from .tree_arrays import TreeArrays, joined

Array = NDArray[Any]

_MOST_BINS, _FEWEST_BINS = 255, 16  # most bins of a column, and those of tables with many columns
_HISTOGRAM_BYTES = 2**28  # most bytes of the histograms of all leaves of a tree
_BIN_BYTES = 24  # bytes of a bin of a histogram
# Seconds per value to find its bin, and in a tree of 31 leaves, on one core of an AMD Zen 4 processor
_BIN_SECONDS, _TREE_SECONDS = 5e-8, 3e-9
_FEW_COLUMNS = 20  # fewest columns of a tree: without some of a few columns, trees miss how these act together
_TIMES = 2  # number of times that a single fold is fitted, with other columns for each tree
_TIMED_TREES = 8  # trees whose time is measured
_FEWEST_ITERATIONS = 30  # fewest iterations of a fold that are worth their time
_ENOUGH_TIMES = 3  # multiple of the fewest iterations for which the rows of a single fold are thinned
_MOST_ITERATIONS = 2_000
_LEAST_RATE, _MOST_RATE = 0.03, 0.3  # range of learning rates
_REACH = 40.0  # iterations in which a rate of 1 would have learnt: the rate is this by the iterations there is time for
_PATIENCE, _LEAST_PATIENCE = 3.0, 20  # iterations without a smaller loss that end a fit, times the rate, and at least


@dataclass(frozen=True)
class TreeSettings:
    """How trees grow.

    name : what tells these settings from others
    min_samples_leaf : fewest rows of a leaf
    l2_regularization : added to the second derivatives of a leaf
    max_features : share of the columns that a tree may use, drawn anew for each; of few columns, all are used
    symmetric : whether all leaves of a level are split at the same value of the same column
    other_folds : whether rows are divided into other folds than those of the other models
    """

    name: str
    max_leaf_nodes: int = 31
    min_samples_leaf: int = 20
    l2_regularization: float = 1.0
    max_features: float = 1.0
    symmetric: bool = False
    other_folds: bool = False

    @property
    def label(self) -> str:
        """The name in records."""
        return f"trees, {self.name}"

    def on_other_folds(self) -> TreeSettings:
        """Return the same settings with other folds, whose trees are averaged with those of the first folds."""
        return replace(self, name=f"{self.name}, other folds", other_folds=True)


# The first is fitted first; the others while there is time
SETTINGS = (
    TreeSettings("256 leaves, symmetric", 256, 1, 3.0, 0.7, symmetric=True),
    TreeSettings("31 leaves", max_features=0.7),
    TreeSettings("127 leaves", 127, 10, 5.0, 0.4),
    TreeSettings("32 leaves, symmetric", 32, 1, 3.0, 0.7, symmetric=True),
    TreeSettings("12 leaves", 12, 10, 1.0, 0.5),
    TreeSettings("6 leaves", 6, 5, 0.0, 1.0),
)


@dataclass(frozen=True, eq=False)
class Fold:
    """Positions of the rows that a fit learns from and of those that it is judged by."""

    train: Array
    held: Array


class Boosts(NamedTuple):
    """What fits of folds learnt.

    trees, offset : the average of all folds
    scores : predictions of the held-out rows of each fold by the trees of this fold
    """

    trees: TreeArrays
    offset: Array
    scores: list[Array]


@dataclass(frozen=True, eq=False)
class Boosting:
    """Fits of trees to encoded rows.

    y : class numbers, or targets as columns with mean 0 and deviation 1
    n_classes : number of classes; 0 for numbers
    """

    X: Array
    y: Array
    weight: Array | None
    n_classes: int
    settings: TreeSettings
    compute: Compute
    seed: int

    def fit(self, folds: Sequence[Fold], seconds: float) -> Boosts | None:
        """Fit all folds; None if there is no time for that: few rows that judge would mislead the blend.

        All folds keep the number of iterations with the least loss of all held-out rows together: that of each fold by
        itself would make its rows look easier than others.
        """
        deadline = time.perf_counter() + seconds
        thinned = self.in_time(folds, seconds)
        if thinned is not folds:
            return self._fit_part(thinned[0], seconds)
        if self.least_seconds(folds) > seconds:
            return None
        tasks = self._tasks(folds)
        each = self._seconds(tasks[0])
        affordable = (deadline - time.perf_counter()) / self._rounds(folds) / each
        if affordable < _FEWEST_ITERATIONS:
            return None
        rate = float(np.clip(_REACH / affordable, _LEAST_RATE, _MOST_RATE))
        return self._grow(tasks, folds, rate, _MOST_ITERATIONS, deadline)

    def _fit_part(self, fold: Fold, seconds: float) -> Boosts | None:
        """Fit a single fold without the rows that it leaves out."""
        rows = np.union1d(fold.train, fold.held)
        weight = None if self.weight is None else self.weight[rows]
        part = replace(self, X=self.X[rows], y=self.y[rows], weight=weight)
        return part.fit([Fold(np.searchsorted(rows, fold.train), np.searchsorted(rows, fold.held))], seconds)

    def least_seconds(self, folds: Sequence[Fold]) -> float:
        """Estimate the seconds of the fewest iterations; operations are counted and nothing is timed."""
        trees = (self.n_classes if self.n_classes > 2 else 1) * (
            _TIMED_TREES + _FEWEST_ITERATIONS * self._rounds(folds)
        )
        rows = max(len(fold.train) for fold in folds)
        return self.X.shape[1] * (_BIN_SECONDS / self.compute.n_threads * len(self.X) + _TREE_SECONDS * rows * trees)

    def in_time(self, folds: Sequence[Fold], seconds: float) -> Sequence[Fold]:
        """Return a single fold with as many training rows as there is time for, at least one of each class.

        Only large tables have a single fold. Trees of a part of their rows are better than none.
        """
        step = math.ceil(_ENOUGH_TIMES * self.least_seconds(folds) / max(seconds, 1e-6))
        if len(folds) > 1 or step <= 1:
            return folds
        train = folds[0].train
        some = train[::step]
        if self.n_classes:
            some = np.union1d(some, train[np.unique(self.y[train], return_index=True)[1]])
        return [Fold(some, folds[0].held)] if len(some) < len(train) else folds

    def _rounds(self, folds: Sequence[Fold]) -> int:
        """Number of fits of each thread."""
        times = _TIMES if len(folds) == 1 else 1
        return -(-len(folds) * times * len(self._columns) // self.compute.n_threads)

    def fit_few(self, folds: Sequence[Fold], rate: float, iterations: int, seconds: float = np.inf) -> Boosts:
        """Fit all folds with a given rate and number of iterations, whose models are the same on every machine.

        If `seconds` are too few, there are fewer iterations.
        """
        return self._grow(self._tasks(folds), folds, rate, iterations, time.perf_counter() + seconds)

    def _grow(
        self, tasks: list[BoostTask], folds: Sequence[Fold], rate: float, iterations: int, deadline: float
    ) -> Boosts:
        threads, rounds = self.compute.n_threads, self._rounds(folds)
        growth = self._growth(rate, iterations, max(_LEAST_PATIENCE, round(_PATIENCE / rate)))

        def one(number: int) -> Grown:
            left = (deadline - time.perf_counter()) / (rounds - number // threads)
            return boost(replace(tasks[number], growth=growth), left)

        return self._average(tasks, list(ordered_map(one, range(len(tasks)), threads)), folds)

    @property
    def _n_bins(self) -> int:
        """Most bins of a column: fewer if there are many columns, since leaves have a histogram of each."""
        values = self.X.shape[1] * self.settings.max_leaf_nodes * _BIN_BYTES * self.compute.n_threads
        return int(np.clip(_HISTOGRAM_BYTES // max(values, 1), _FEWEST_BINS, _MOST_BINS))

    @property
    def _columns(self) -> list[Array]:
        """What one model each learns: the classes, or a column of y."""
        return [self.y.astype(np.float64)] if self.n_classes else list(self.y.T)

    def _tasks(self, folds: Sequence[Fold]) -> list[BoostTask]:
        """Return what is fitted: for each fold, time and column of y, in this order; a single fold is fitted twice."""
        times = _TIMES if len(folds) == 1 else 1
        binned = bin_rows(self.X, self._n_bins, self.compute.n_threads, self.seed)
        growth = self._growth(_MOST_RATE, _MOST_ITERATIONS, _LEAST_PATIENCE)
        seeds = np.random.RandomState(self.seed % 2**32).randint(2**31 - 1, size=len(folds) * times).tolist()
        return [
            BoostTask(
                binned, fold.train, fold.held, y, self.weight, self.n_classes, self._offset(y, fold.train), growth, seed
            )
            for fold, seed in zip([fold for fold in folds for _ in range(times)], seeds, strict=True)
            for y in self._columns
        ]

    def _growth(self, rate: float, iterations: int, patience: int) -> Growth:
        one = self.settings
        return Growth(
            rate,
            one.l2_regularization,
            max(one.max_features, min(1.0, _FEW_COLUMNS / self.X.shape[1])),
            one.max_leaf_nodes,
            one.min_samples_leaf,
            iterations,
            patience,
            one.symmetric,
        )

    def _offset(self, y: Array, rows: Array) -> Array:
        """Return the scores that predict the mean of rows, or the shares of their classes."""
        weight = None if self.weight is None else self.weight[rows]
        if not self.n_classes:
            return np.array([np.average(y[rows], weights=weight)])
        counts = np.bincount(y[rows].astype(np.intp), weight, minlength=self.n_classes)
        logs = np.log(np.maximum(counts, np.finfo(np.float64).tiny) / counts.sum())
        return np.asarray(logs[1:] - logs[:1] if self.n_classes == 2 else logs)

    def _seconds(self, task: BoostTask) -> float:
        """Time an iteration: a tree, or one for each of several classes."""
        iterations = max(1, _TIMED_TREES // max(1, self.n_classes))
        began = time.perf_counter()
        boost(replace(task, growth=self._growth(_MOST_RATE, iterations, iterations)), np.inf)
        return (time.perf_counter() - began) / iterations

    def _average(self, tasks: list[BoostTask], grown: list[Grown], folds: Sequence[Fold]) -> Boosts:
        """Average the models of all folds."""
        outputs = len(self._columns)
        sizes = np.array([len(task.held) for task in tasks], dtype=np.float64)
        best = [_best_iterations([one.curve for one in grown[k::outputs]], sizes[k::outputs]) for k in range(outputs)]
        parts, offsets = [], []
        for start in range(0, len(tasks), outputs):
            some = list(zip(tasks[start : start + outputs], grown[start : start + outputs], best, strict=True))
            parts.append(joined([_trees_of(task, one, most, k) for k, (task, one, most) in enumerate(some)]))
            offsets.append(np.concatenate([task.offset for task, _, _ in some]))
        times = len(parts) // len(folds)
        scores = [
            np.mean(
                [offsets[i] + parts[i].sums(self.X[fold.held], len(offsets[i])) for i in range(first, first + times)], 0
            )
            for fold, first in zip(folds, range(0, len(parts), times), strict=True)
        ]
        return Boosts(joined(parts, 1.0 / len(parts)), np.mean(offsets, axis=0), scores)


def _trees_of(task: BoostTask, grown: Grown, iterations: int, output: int) -> TreeArrays:
    """Return the trees of the first iterations; the last columns of several classes follow `output`."""
    each = len(task.offset)
    n_trees = min(iterations * each, len(grown.root))
    end = int(grown.root[n_trees]) if n_trees < len(grown.root) else len(grown.feature)
    feature, left = grown.feature[:end], grown.left[:end]
    first = np.cumsum([0, *(len(edges) for edges in task.binned.edges)])[:-1]
    edges = np.concatenate([*task.binned.edges, np.zeros(1)]).astype(np.float64)
    inner = left >= 0
    place = np.where(inner, first[feature] + grown.bin[:end], len(edges) - 1)
    return TreeArrays(
        feature=feature,
        threshold=edges[place],
        left=left,
        right=grown.right[:end],
        missing_left=np.zeros(end, dtype=bool),
        value=np.where(inner, 0.0, grown.value[:end]),
        root=grown.root[:n_trees],
        output=(output + np.arange(n_trees) % each).astype(np.int32),
    )


def _best_iterations(curves: list[Array], sizes: Array) -> int:
    """Return the number of iterations with the least loss of the held-out rows of all fits."""
    longest = max(len(one) for one in curves)
    same = [np.pad(one, (0, longest - len(one)), "edge") for one in curves]
    return max(1, int(np.argmin(np.average(same, axis=0, weights=sizes))))


def boosted_regressor(trees: TreeArrays, offset: Array, mean: Array, deviation: Array, n_features: int) -> Any:
    """Return a model of y from trees that learnt (y - mean) / deviation."""
    factor = deviation[trees.output]
    nodes = np.diff([*trees.root, len(trees.value)])
    whole = TreeArrays(**{**vars(trees), "value": trees.value * np.repeat(factor, nodes)})
    return BoostedRegressor()._hold(whole, offset * deviation + mean, n_features)


def boosted_classifier(trees: TreeArrays, offset: Array, classes: Array, n_features: int) -> Any:
    """Return a model of classes."""
    model = BoostedClassifier()
    model.classes_ = classes
    return model._hold(trees, offset, n_features)
