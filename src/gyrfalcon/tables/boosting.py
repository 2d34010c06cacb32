"""Fits of gradient-boosted trees: on each fold in turn, early-stopped where all folds together predict best."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from .._utils.compute import Compute
from .boosted import BoostedClassifier, BoostedRegressor, arrays_of
from .tree_arrays import TreeArrays, joined

Array = NDArray[Any]

_FEW_NUMBERS = 200_000  # rows times columns of a table whose trees are grown by one thread
_TIMED_TREES = 10  # trees whose time is measured
_LEAST_PART = 0.05  # least part of the time of these that their iterations take, whatever the clock says
_CALLS = 4  # typical number of starts of a fold, which adds trees until time is up
_FEWEST_ITERATIONS = 30  # fewest iterations of a fold that are worth their time
_FIRST_ITERATIONS = 40  # iterations before the first look at the clock
_MORE_ITERATIONS = 3  # factor by which the iterations of a fit grow between looks at the clock
_MOST_ITERATIONS = 2_000
_PATIENCE = 30  # iterations without a smaller loss of held-out rows that end a fit
# Learning rates, and the fewest iterations in which one can learn
_RATES = ((0.04, 500), (0.07, 250), (0.15, 80), (0.3, 0))


@dataclass(frozen=True)
class TreeSettings:
    """How trees grow: those of scikit-learn's HistGradientBoosting.

    name : what tells these settings from others
    """

    name: str
    max_leaf_nodes: int = 31
    min_samples_leaf: int = 20
    l2_regularization: float = 1.0
    max_features: float = 1.0

    @property
    def label(self) -> str:
        """The name in records."""
        return f"trees, {self.name}"


# The first is fitted first; the others while there is time
SETTINGS = (
    TreeSettings("31 leaves", max_features=0.7),
    TreeSettings("12 leaves", 12, 10, 1.0, 0.5),
    TreeSettings("127 leaves", 127, 10, 5.0, 0.4),
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
        fitted: list[list[Any]] = []
        with threadpool_limits(limits=self._threads, user_api="openmp"):
            start, each = self._seconds(folds[0])
            affordable = (deadline - time.perf_counter() - _CALLS * len(folds) * start) / each
            if affordable < _FEWEST_ITERATIONS * len(folds):
                return None
            rate = next(one for one, least in _RATES if affordable >= least * len(folds))
            for number, fold in enumerate(folds):
                left = (deadline - time.perf_counter()) / (len(folds) - number)
                fitted.append(self._fit_fold(fold, max(left, each * _FEWEST_ITERATIONS), rate, each))
        return self._average(fitted, folds)

    def _seconds(self, fold: Fold) -> tuple[float, float]:
        """Time the start of a fit, which bins the rows, and an iteration: trees of all columns or classes."""
        iterations = max(1, _TIMED_TREES // max(1, self.n_classes))
        seconds = []
        for number in (1, 1 + iterations):
            model = self._unfitted(_RATES[-1][0])  # the first one imports modules
            began = time.perf_counter()
            self._grow(model, fold, self._columns[0], number)
            seconds.append(len(self._columns) * (time.perf_counter() - began))
        first, more = seconds
        each = max(more - first, _LEAST_PART * more) / iterations
        return max(first - each, 0.0), each

    @property
    def _threads(self) -> int:
        """Number of threads: for few numbers, threads spend their time waiting for each other."""
        return self.compute.n_threads if self.X.size > _FEW_NUMBERS else 1

    @property
    def _columns(self) -> list[Array]:
        """What one model each learns: the classes, or a column of y."""
        return [self.y] if self.n_classes else list(self.y.T)

    def _fit_fold(self, fold: Fold, seconds: float, rate: float, each: float) -> list[Any]:
        """Fit a model for each column of y, or one for all classes; `each` iteration of all takes these seconds."""
        columns = self._columns
        models = []
        for y in columns:
            model = self._unfitted(rate)
            self._fit_one(model, fold, y, time.perf_counter() + seconds / len(columns), each / len(columns))
            models.append(model)
        return models

    def _fit_one(self, model: Any, fold: Fold, y: Array, deadline: float, each: float) -> None:
        """Add trees until the loss of held-out rows falls no more, or time is up."""
        iterations = 0
        while iterations < _MOST_ITERATIONS:
            affordable = int((deadline - time.perf_counter()) / each)
            more = min(max(_FIRST_ITERATIONS, _MORE_ITERATIONS * iterations), affordable)
            if iterations and more < _PATIENCE:
                return
            before, iterations = iterations, min(_MOST_ITERATIONS, iterations + max(more, 1))
            began = time.perf_counter()
            self._grow(model, fold, y, iterations)
            each = (time.perf_counter() - began) / (model.n_iter_ - before)
            if model.n_iter_ < iterations:
                return

    def _grow(self, model: Any, fold: Fold, y: Array, iterations: int) -> None:
        """Add trees until there are those of a number of iterations, or the loss falls no more."""
        weight, held_weight = (None if self.weight is None else self.weight[rows] for rows in (fold.train, fold.held))
        model.set_params(max_iter=iterations).fit(
            self.X[fold.train],
            y[fold.train],
            weight,
            X_val=self.X[fold.held],
            y_val=y[fold.held],
            sample_weight_val=held_weight,
        )

    def _average(self, fitted: list[list[Any]], folds: Sequence[Fold]) -> Boosts:
        """Average the models of all folds."""
        sizes = np.array([len(fold.held) for fold in folds], dtype=np.float64)
        outputs = range(len(self._columns))
        best = [_best_iterations([models[k] for models in fitted], sizes) for k in outputs]
        parts = [joined([arrays_of(models[k], best[k], output=k) for k in outputs]) for models in fitted]
        offsets = [np.concatenate([one._baseline_prediction.ravel() for one in models]) for models in fitted]
        scores = [
            offset + part.sums(self.X[fold.held], len(offset))
            for part, offset, fold in zip(parts, offsets, folds, strict=True)
        ]
        return Boosts(joined(parts, 1.0 / len(parts)), np.mean(offsets, axis=0), scores)

    def _unfitted(self, rate: float) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        make = HistGradientBoostingClassifier if self.n_classes else HistGradientBoostingRegressor
        settings = {name: value for name, value in vars(self.settings).items() if name != "name"}
        return make(
            learning_rate=rate,
            early_stopping=True,
            n_iter_no_change=_PATIENCE,
            tol=0.0,
            scoring="loss",
            warm_start=True,
            random_state=self.seed,
            **settings,
        )


def _best_iterations(fitted: list[Any], sizes: Array) -> int:
    """Return the number of iterations with the least loss of the held-out rows of all folds."""
    longest = max(len(one.validation_score_) for one in fitted)
    curves = [np.pad(one.validation_score_, (0, longest - len(one.validation_score_)), "edge") for one in fitted]
    return max(1, int(np.argmax(np.average(curves, axis=0, weights=sizes))))


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
