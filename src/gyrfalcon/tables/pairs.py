"""Pairs of categories: the mean of the target in each combination of two levels, where combinations matter.

A kernel has to learn from examples what two levels mean together, and many combinations have few examples among the
rows of a fit. Their mean targets, computed from all rows of the table, tell it directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .._utils.checks import array
from .._utils.registry import register
from .columns import Column
from .numbers import smoothly_clipped

Array = NDArray[Any]

_SMOOTHING = 10.0  # rows with the mean of all targets that are added to those of each combination
_OUTPUTS = 2  # most outputs of a pair: the principal directions of the means of several targets
_MOST_COLUMNS = 42  # most columns whose pairs are compared; of more, those that say most about the target
_MOST_TARGETS = 4  # most target columns by which pairs are compared; more are combined at random
_LEAST_ROWS, _MOST_ROWS, _ROWS = 3_000, 10_000, 6e6  # fewest and most rows for that, and most rows x pairs
# Least share of the variance that a pair explains beyond both of its columns. With few rows the best of many pairs look
# better than they are by chance: then a pair has to explain 20 / n, and there is at most one for each 500 rows
_LEAST_GAIN, _LEAST_GAIN_ROWS, _ROWS_PER_PAIR = 2e-3, 20, 500


@register
class PairColumn(BaseEstimator):  # type: ignore[misc]
    """Outputs of each combination of the levels of two columns.

    first_levels_, second_levels_ : levels of the columns; missing values and unknown levels follow them
    values_ : outputs of each combination, of shape (n_first + 2, n_second + 2, n_outputs)
    """

    first_levels_: list[str]
    second_levels_: list[str]
    values_: Array

    def fit(self, first: Column, second: Column, targets: Array, fold: Array | None) -> Array | None:
        """Learn the outputs from two columns of text; return those of the rows from targets of other folds.

        Targets have mean 0. `fold` is as for `CategoryColumn.fit`; without it, None is returned.
        """
        self.first_levels_, self.second_levels_ = sorted(first.levels), sorted(second.levels)
        shape = len(self.first_levels_) + 2, len(self.second_levels_) + 2
        codes = self._codes(first, second)
        sums, counts = _sums(codes, shape[0] * shape[1], targets)
        means = sums / (counts + _SMOOTHING)[:, None]
        directions, spread = _principal(means, counts)
        self.values_ = smoothly_clipped(means @ directions / spread).reshape(*shape, -1)
        if fold is None:
            return None
        return smoothly_clipped(held_out_means(codes, len(means), targets, fold) @ directions / spread)

    def transform(self, first: Column, second: Column) -> Array:
        """Return the outputs of each row."""
        return np.asarray(self.values_.reshape(-1, self.values_.shape[2])[self._codes(first, second)])

    def _codes(self, first: Column, second: Column) -> Array:
        """Return the position of each row's combination."""
        one, two = _places(first, self.first_levels_), _places(second, self.second_levels_)
        return np.asarray(one * (len(self.second_levels_) + 2) + two)

    def _check_loaded(self) -> None:
        array((len(self.first_levels_) + 2, len(self.second_levels_) + 2, None))("values_", self.values_)
        if not all(isinstance(text, str) for text in (*self.first_levels_, *self.second_levels_)):
            raise ValueError("first_levels_ and second_levels_ must be strings")


def choose_pairs(columns: Sequence[Column], targets: Array, most: int, fold: Array, seed: int) -> list[tuple[int, int]]:
    """Return the pairs of text columns that say most about the targets beyond both columns, at most `most` of them.

    What columns and pairs say is the share of the variance of targets that mean targets of other folds explain.
    """
    n, random_state = len(targets), np.random.RandomState(seed)
    if targets.shape[1] > _MOST_TARGETS:
        targets = targets @ random_state.standard_normal((targets.shape[1], _MOST_TARGETS))
    n_pairs = len(columns) * (len(columns) - 1) // 2
    rows = random_state.permutation(n)[: int(np.clip(_ROWS / max(1, n_pairs), _LEAST_ROWS, _MOST_ROWS))]
    codes, sizes = [column.values[rows] + 1 for column in columns], [len(column.levels) + 1 for column in columns]
    targets, fold = targets[rows] - targets[rows].mean(axis=0), fold[rows]
    total = float(np.square(targets).sum())
    if total == 0:
        return []

    def explained(codes: Array, size: int) -> float:
        residuals = targets - held_out_means(codes, size, targets, fold)
        return 1 - float(np.square(residuals).sum()) / total

    alone = np.array([explained(code, size) for code, size in zip(codes, sizes, strict=True)])
    compared = np.sort(np.argsort(-alone, kind="stable")[:_MOST_COLUMNS])
    gains = {
        (i, j): explained(codes[i] * sizes[j] + codes[j], sizes[i] * sizes[j]) - max(alone[i], 0) - max(alone[j], 0)
        for i, j in combinations(compared.tolist(), 2)
    }
    least = max(_LEAST_GAIN, _LEAST_GAIN_ROWS / len(rows))
    best = sorted((pair for pair in gains if gains[pair] > least), key=lambda pair: -gains[pair])
    return sorted(best[: min(most, -(-n // _ROWS_PER_PAIR))])


def held_out_means(codes: Array, size: int, targets: Array, fold: Array) -> Array:
    """Return for each row the mean of the targets of other folds with the same code, shrunk to 0.

    Rows of non-negative folds do not contribute to those of rows of negative folds.
    """
    folds, at = np.unique(fold, return_inverse=True)
    sums, counts = _sums(at * size + codes, len(folds) * size, targets)
    sums, counts = sums.reshape(len(folds), size, -1), counts.reshape(len(folds), size)
    learnt = folds < 0
    others = np.where(learnt[:, None], counts[learnt].sum(axis=0), counts.sum(axis=0)) - counts
    totals = np.where(learnt[:, None, None], sums[learnt].sum(axis=0), sums.sum(axis=0)) - sums
    means = totals / (others + _SMOOTHING)[:, :, None]
    return np.asarray(means[at, codes])


def _sums(codes: Array, size: int, targets: Array) -> tuple[Array, Array]:
    """Return the sums of targets, and the numbers of rows, of each code."""
    sums = [np.bincount(codes, weights=column, minlength=size) for column in targets.T]
    return np.stack(sums, axis=1), np.bincount(codes, minlength=size)


def _principal(means: Array, counts: Array) -> tuple[Array, Array]:
    """Return the directions along which the means of all rows vary most, and their standard deviations."""
    weight = counts / counts.sum()
    centered = means - weight @ means
    values, vectors = np.linalg.eigh((weight[:, None] * centered).T @ centered)
    kept = np.flatnonzero(values > 1e-12 * max(float(values[-1]), np.finfo(np.float64).tiny))[::-1][:_OUTPUTS]
    directions = vectors[:, kept]
    # the largest entry is positive, so that signs do not depend on the machine's LAPACK
    signs = np.sign(directions[np.argmax(np.abs(directions), axis=0), np.arange(len(kept))])
    return directions * signs, np.sqrt(values[kept])


def _places(column: Column, levels: list[str]) -> Array:
    """Return the index of each row's level; missing values and unknown levels follow the levels."""
    index, n = {level: at for at, level in enumerate(levels)}, len(levels)
    return np.array([*(index.get(level, n + 1) for level in column.levels), n])[column.values]
