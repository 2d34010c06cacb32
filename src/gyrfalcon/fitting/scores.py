"""Scores of the rows of files that are too many for an array of their targets or predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.statistics import means
from ..sources import ArrayRows, Rows
from ..sources.columns import Column, Vector
from ..sources.files import Dataset
from ..sources.rereading import checked_rows

Array = NDArray[Any]

_ROWS = 1 << 16  # rows that are predicted at a time


@dataclass(frozen=True)
class LongScored:
    """Rows of files, and their targets in a file; labels if there are classes, in order. Rows may have weights."""

    rows: Rows
    targets: Column
    weight: Vector | None = None
    classes: Array | None = None

    def _blocks(self, predict: Callable[[Rows], Any]) -> Iterator[tuple[Array, Array, Array]]:
        """Iterate over targets and predictions, both of shape (b, k), and weights of shape (b, 1)."""
        start = 0
        for block in checked_rows(self.rows).blocks(_ROWS):
            at = slice(start, start + block.shape[0])
            found = np.asarray(predict(ArrayRows(block, feature_names=self.rows.feature_names)))
            weight = np.ones(len(found)) if self.weight is None else self.weight[at]
            yield self.targets[at], found.reshape(block.shape[0], -1), weight[:, None]
            start = at.stop

    def determination(self, predict: Callable[[Rows], Any]) -> float:
        """Return the coefficient of determination R^2, averaged over the columns, as scikit-learn does."""
        targets: Any = self.targets
        weight: Any = self.weight
        mean = means(targets, weight)
        left, total = np.zeros(self.targets.shape[1]), np.zeros(self.targets.shape[1])
        for y, found, weight in self._blocks(predict):
            y = y.astype(np.float64)
            if found.shape != y.shape:
                raise ValueError(
                    f"predictions have {found.shape[1]} columns and y has {y.shape[1]}: outputs must agree"
                )
            left += (weight * np.square(y - found)).sum(axis=0)
            total += (weight * np.square(y - mean)).sum(axis=0)
        constant = np.where(left == 0, 1.0, 0.0)
        return float(np.where(total > 0, 1 - left / np.where(total > 0, total, 1.0), constant).mean())

    def accuracy(self, predict: Callable[[Rows], Any]) -> float:
        """Return the share of rows whose label is predicted."""
        assert self.classes is not None
        known, right, total = self.classes.astype(np.float64), 0.0, 0.0
        for y, found, weight in self._blocks(predict):
            labels = self.classes[np.searchsorted(known, y[:, 0])]
            right += float(weight[labels == found[:, 0]].sum())
            total += float(weight.sum())
        return right / total


def long_scored(X: Any, y: Any, sample_weight: Any) -> LongScored | None:
    """Return the arguments of `score` if they are files with very many rows and a target of numbers, else None."""
    if not isinstance(X, Dataset) or y is not None or sample_weight is not None:
        return None
    column = X.long_target()
    return None if column is None else LongScored(X.X, column, X.long_weight())


def long_labelled(X: Any, y: Any, sample_weight: Any) -> LongScored | None:
    """Return the arguments of `score` if they are files with very many rows and labels that are integers, else None."""
    if not isinstance(X, Dataset) or y is not None or sample_weight is not None:
        return None
    labels = X.long_labels()
    return None if labels is None else LongScored(X.X, labels.column, X.long_weight(), labels.classes)
