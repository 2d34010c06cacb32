"""The rounds of a learned metric: a fit under the metric so far, its error, and the mean squares of its derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .._utils.threads import single_threaded_blas
from ..fitting.data import FitData
from ..fitting.targets import class_codes, indicators, mean_loss, root_mean_square, signs
from ..losses import Squared
from ..operators import mean_square_gradient
from ..sources import Rows
from ._base import KernelClassifier, KernelRegressor

Array = NDArray[Any]


class Sample(NamedTuple):
    """Rows in memory, with the columns of their targets and their weights."""

    X: Array
    targets: Array
    weight: Array | None


def drawn(rows: Rows, targets: Array, weight: Array | None, most: int, random_state: np.random.RandomState) -> Sample:
    """Draw at most `most` rows."""
    at = np.arange(rows.shape[0])
    if len(at) > most:
        at = np.sort(random_state.choice(at, most, replace=False))
    return Sample(rows.take(at), targets[at], None if weight is None else weight[at])


class Rounds:
    """The data and settings that all rounds of a fit share.

    `base` is fitted to the rows `train`, and its error is measured on the rows `held`. Gradients take rows of both in
    `order`. Outputs are divided by `unit`, so that all of them count alike.
    """

    def __init__(
        self,
        base: Any,
        data: FitData,
        train: Sample,
        held: Sample,
        random_state: np.random.RandomState,
        n_gradients: int,
        n_jobs: int | None,
    ) -> None:
        self.base, self.data, self.train, self.held = base, data, train, held
        self.order = random_state.permutation(len(train.X) + len(held.X))
        self.n_gradients, self.n_jobs = n_gradients, n_jobs
        self.unit = np.ones(1)
        if isinstance(base, KernelRegressor):
            columns = train.targets.astype(np.float64)
            centered = columns - np.average(columns, axis=0, weights=train.weight)
            deviation = np.sqrt(np.average(np.square(centered), axis=0, weights=train.weight))
            self.unit = np.where(deviation > 0, deviation, 1.0)

    def run(self, metric: Array) -> tuple[float, Array]:
        """Fit rows under a metric; return the validation error, and mean squares of derivatives without the metric."""
        with single_threaded_blas():  # whose threads would decide the last bits
            train, held = (part._replace(X=under(metric, part.X)) for part in (self.train, self.held))
        model = clone(self.base).fit(train.X, self._y(train), sample_weight=train.weight)
        coef = model.dual_coef_.reshape(len(model.centers_), -1) / self.unit
        points, weight = self._off_centers(model.centers_, train, held)
        G = mean_square_gradient(
            model.kernel_, points, model.centers_, coef, weight=weight, full=metric.ndim == 2, n_jobs=self.n_jobs
        )
        # by the chain rule
        return self._error(model, held), (metric @ G @ metric if metric.ndim == 2 else np.square(metric) * G)

    def _y(self, sample: Sample) -> Array:
        """Return the targets of the estimator: columns of numbers, or the numbers of classes."""
        if isinstance(self.base, KernelClassifier):
            return class_codes(sample.targets)
        return sample.targets[:, 0] if self.data.flat else sample.targets

    def _off_centers(self, centers: Array, train: Sample, held: Sample) -> tuple[Array, Array | None]:
        """Return some of the rows that are not centers, and their weights."""
        X = np.concatenate([train.X, held.X])[self.order].astype(centers.dtype, copy=False)
        taken = {center.tobytes() for center in centers}
        off = np.flatnonzero([row.tobytes() not in taken for row in X])
        off = (off if len(off) else np.arange(len(X)))[: self.n_gradients]
        if train.weight is None:
            return X[off], None
        # rows given for validation have no weights: they count as the mean of the others
        of_held = np.full(len(held.X), train.weight.mean()) if held.weight is None else held.weight
        return X[off], np.concatenate([train.weight, of_held])[self.order][off]

    def _error(self, model: Any, held: Sample) -> float:
        n = len(held.X)
        if isinstance(model, KernelRegressor):
            predictions = model.predict(held.X).reshape(n, -1)
            if predictions.shape != held.targets.shape:
                raise ValueError(
                    f"{self.base!r} predicts {predictions.shape[1]} columns where y has {held.targets.shape[1]}: "
                    "several quantiles cannot judge a metric"
                )
            return root_mean_square(held.targets / self.unit, held.weight, predictions / self.unit)
        codes = class_codes(held.targets)
        known = np.isin(codes, model.classes_)  # a rare class may have no row among those that are fitted
        if not known.any():
            return np.inf
        columns = indicators if model.loss_.coupled else signs
        targets = columns(np.searchsorted(model.classes_, codes[known]), len(model.classes_))
        f = model.decision_function(held.X[known]).reshape(targets.shape)
        weight = None if held.weight is None else held.weight[known]
        if type(model.loss_) is Squared:
            return root_mean_square(targets, weight, f)
        return mean_loss(model.loss_, targets, weight, f)


def under(metric: Array, X: Array) -> Array:
    """Bring rows to a metric, in their precision."""
    metric = metric.astype(X.dtype)
    return X * metric if metric.ndim == 1 else X @ metric


def root_metric(squares: Array, floor: float) -> Array:
    """Return the metric that mean squares of derivatives ask for: its largest scale is 1, its smallest `floor`."""
    if squares.ndim == 1:
        return np.maximum(np.sqrt(squares / squares.max()), floor)
    values, vectors = np.linalg.eigh(squares / np.abs(squares).max())
    root = np.sqrt(np.maximum(values / values[-1], floor**2))
    metric: Array = (vectors * root) @ vectors.T
    return metric
