"""Distances of rows from the training rows, and how much wider prediction intervals are far from them.

Errors of held-out rows say nothing about rows that are unlike all training rows. There a kernel model predicts the mean
of y, and its estimated error is as small as anywhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import not_negative
from .._utils.registry import register
from .encoder import TableEncoder
from .stored import check_floats

Array = NDArray[Any]

_MOST_ROWS, _NUMBERS = 1_000, 1_000_000  # most training rows, and most of their encoded numbers, that are kept
_USUAL = 0.99  # share of the training rows whose distances count as usual
_STEEP = 0.95  # quantile of the changes of predictions with distance
_FACTOR = 2.0  # how much faster than among the training rows y may change beyond them
_PAIRINGS = 10  # number of random pairs for each row that is kept


def reach_rows(n: int, d: int) -> Array:
    """Draw the rows to keep of n rows with d encoded columns, with a fixed seed."""
    most = int(np.clip(_NUMBERS // max(d, 1), 1, _MOST_ROWS))
    return np.sort(np.random.RandomState(0).permutation(n)[:most])


@register
class Reach(BaseEstimator):  # type: ignore[misc]
    """Distances from training rows, with columns weighted by how much predictions change along them.

    The distance of a row is the larger of two: its distance from the nearest of some training rows, as far as it
    exceeds the usual distance between these; and the sum over columns of how far its values are outside those of
    training.

    weights_ : the weight of one unit of each column of the table
    usual_ : how far values of each column usually are outside those of training, for example levels that occur once
    points_ : some training rows, encoded
    predictions_ : predictions of y at them
    radius_ : the usual distance of these rows from the nearest other one
    slopes_ : change of predictions per unit of distance, for each output
    """

    encoder_: TableEncoder
    weights_: Array
    usual_: Array
    points_: Array
    predictions_: Array
    radius_: float
    slopes_: Array

    def fit(self, table: Any, encoder: TableEncoder, slopes: Array, predictions: Array) -> Reach:
        """Learn from training rows, with `predictions` for them.

        The encoder is fitted with ``numbers="robust"``, so that numbers outside those of training differ from these.
        """
        points = np.asarray(encoder.transform(table))
        variance = np.bincount(
            encoder.feature_origin_, weights=points.var(axis=0, dtype=np.float64), minlength=len(slopes)
        )
        self.encoder_, self.points_ = encoder, points
        self.predictions_ = np.asarray(predictions, dtype=np.float64)
        self.weights_ = np.asarray(slopes / np.sqrt(np.where(variance > 0, variance, 1.0)), dtype=np.float64)
        self.usual_ = np.quantile(encoder.beyond(table), _USUAL, axis=0, method="higher")
        self.radius_ = self._usual_distance()
        self.slopes_ = self._changes()
        return self

    def widening(self, table: Any, predictions: Array) -> Array:
        """Return by how much intervals are wider on either side than among the training rows: 0 for rows like these.

        It is twice the change of predictions of training rows over that distance, plus the difference between the
        prediction and that of the nearest training row: far from all of them, models predict the mean of y.
        """
        check_is_fitted(self)
        outside = np.maximum(self.encoder_.beyond(table) - self.usual_, 0.0) @ self.weights_
        neighbors = NearestNeighbors(n_neighbors=1, p=1).fit(self._scaled(self.points_))
        distance, nearest = neighbors.kneighbors(self._scaled(self.encoder_.transform(table)))
        distance = np.maximum(np.maximum(distance[:, 0] - self.radius_, 0.0), outside)[:, None]
        share = np.minimum(distance / max(self.radius_, np.finfo(np.float64).tiny), 1.0)
        differs = np.abs(predictions - self.predictions_[nearest[:, 0]])
        return np.asarray(_FACTOR * self.slopes_ * distance + share * differs)

    def features(self, table: Any, predictions: Array) -> Array:
        """Return what the sizes of errors may depend on: the columns in units of their importance, and predictions."""
        deviation = self.predictions_.std(axis=0)
        level = (predictions - self.predictions_.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
        return np.hstack([self._scaled(self.encoder_.transform(table)), level])

    def _scaled(self, rows: Array) -> Array:
        return np.asarray(np.asarray(rows) * self.weights_[self.encoder_.feature_origin_], dtype=np.float64)

    def _usual_distance(self) -> float:
        if len(self.points_) < 2:
            return 0.0
        distances, _ = NearestNeighbors(n_neighbors=1, p=1).fit(self._scaled(self.points_)).kneighbors()
        return float(np.quantile(distances, _USUAL, method="higher"))

    def _changes(self) -> Array:
        """Return a high quantile of the change of predictions between two points per unit of distance."""
        rng, points, m = np.random.RandomState(0), self._scaled(self.points_), len(self.points_)
        distances, changes = [], []
        for _ in range(_PAIRINGS):
            other = rng.permutation(m)
            distances.append(np.abs(points - points[other]).sum(axis=1))
            changes.append(np.abs(self.predictions_ - self.predictions_[other]))
        distance, change = np.concatenate(distances), np.concatenate(changes)
        apart = distance > 0
        if not apart.any():
            return np.zeros(change.shape[1])
        return np.asarray(np.quantile(change[apart] / distance[apart, None], _STEEP, axis=0))

    def _check_loaded(self) -> None:
        if not isinstance(self.encoder_, TableEncoder):
            raise ValueError("encoder_ of a Reach is no TableEncoder")
        check_is_fitted(self.encoder_)
        d, width = self.encoder_.n_features_in_, len(self.encoder_.feature_origin_)
        m, k = max(1, len(self.points_)), len(self.slopes_)
        check_floats("points_", self.points_, (m, width))
        check_floats("predictions_", self.predictions_, (m, k))
        for name, shape in {"weights_": (d,), "usual_": (d,), "slopes_": (k,)}.items():
            check_floats(name, vars(self)[name], shape)
            if (vars(self)[name] < 0).any():
                raise ValueError(f"{name} of a Reach holds negative numbers")
        not_negative()("radius_", self.radius_)
