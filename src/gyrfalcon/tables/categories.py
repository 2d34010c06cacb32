"""Columns of categories: one column for each level, or for many levels the mean of the target in each.

Either way, a fitted column is a table with a row of outputs for each level, one for missing values and one for levels
that training did not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from .._utils.checks import array
from .._utils.registry import register
from .columns import Column
from .numbers import smoothly_clipped

Array = NDArray[Any]

_FOLDS = 5  # random folds in which training rows are encoded by the targets of other rows
_FEW = 50  # a level with at least one row in 50 is never rare


@register
class CategoryColumn(BaseEstimator):  # type: ignore[misc]
    """Outputs of each level of a column.

    max_onehot : largest number of levels with a column each
    min_frequency : number of rows that a level needs for a column of its own
    values_ : outputs of each level, then those of missing values and those of unknown levels
    names_ : names of the outputs, without the name of the column
    """

    levels_: list[str]
    values_: Array
    names_: list[str]

    def __init__(self, max_onehot: int = 30, min_frequency: int = 5) -> None:
        self.max_onehot = max_onehot
        self.min_frequency = min_frequency

    def fit(
        self, column: Column, targets: Array | None = None, target_names: Sequence[str] = (), fold: Array | None = None
    ) -> Array | None:
        """Learn the outputs of the levels of a text column; targets encode columns with more than `max_onehot` levels.

        `fold` is the fold of each row; rows of non-negative folds do not contribute to the outputs of rows of negative
        folds. Returns the outputs of the training rows that depend on the targets, computed from the targets of other
        folds, of shape (n, n_held_out); None without `fold`, and if the targets are not used.
        """
        counts = np.bincount(column.values + 1, minlength=len(column.levels) + 1)
        missing, counts = int(counts[0]), counts[1:]
        order = sorted(np.flatnonzero(counts), key=lambda at: column.levels[at])
        levels, counts = [column.levels[at] for at in order], counts[order]
        if len(levels) + (missing > 0) > self.max_onehot and targets is not None:
            return self._by_target(column, levels, counts, missing, targets, target_names, fold)
        if len(levels) + (missing > 0) > self.max_onehot:
            self._frequent(levels, counts, missing)
        else:
            self._one_hot(levels, counts, missing)
        return None

    def transform(self, column: Column) -> Array:
        """Return the outputs of each row."""
        return self.values_[self._places(column)]

    def unknown(self, column: Column) -> Array:
        """Return a mask of the rows whose level has no outputs of its own."""
        return np.asarray(self._places(column) == len(self.levels_) + 1)

    def _places(self, column: Column) -> Array:
        """Return the index of each row's outputs in `values_`."""
        index = {level: at for at, level in enumerate(self.levels_)}
        n = len(self.levels_)
        lookup = np.array([*(index.get(level, n + 1) for level in column.levels), n])
        return np.asarray(lookup[column.values])

    def _check_loaded(self) -> None:
        array((len(self.levels_) + 2, len(self.names_)))("values_", self.values_)
        if not all(isinstance(text, str) for text in (*self.levels_, *self.names_)):
            raise ValueError("levels_ and names_ must be strings")

    def _one_hot(self, levels: list[str], counts: Array, missing: int) -> None:
        """Give a column to each level, and one to all rare levels; two levels share a column."""
        few = min(self.min_frequency, -(-int(counts.sum() + missing) // _FEW))
        rare = counts < few
        rare &= rare.sum() > 1
        groups = np.where(rare, (~rare).sum(), np.cumsum(~rare) - 1)
        names = [f"={level}" for level, alone in zip(levels, ~rare, strict=True) if alone]
        names += [" (rare)"] * bool(rare.any()) + [" missing"] * bool(missing)
        if len(names) < 2:
            self.levels_, self.values_, self.names_ = [], np.empty((2, 0)), []
            return
        values = np.zeros((len(levels) + 2, len(names)))
        values[np.arange(len(levels)), groups] = 1 / np.sqrt(2)
        if missing:
            values[len(levels), -1] = 1 / np.sqrt(2)
        if len(names) == 2:  # still at distance 1, with unknown levels in the middle
            values, names = values[:, 1:] * np.sqrt(2), names[1:]
            values[:-2] -= 0.5
            values[-2] -= 0.5 * bool(missing)
        self.levels_, self.values_, self.names_ = levels, values, names

    def _frequent(self, levels: list[str], counts: Array, missing: int) -> None:
        """Give a column to each of the most frequent levels, and one to the frequency of all levels."""
        first = np.argsort(-counts, kind="stable")[: self.max_onehot]
        first = np.sort(first[counts[first] > 1])
        one_hot = np.zeros((len(levels) + 2, len(first)))
        one_hot[first, np.arange(len(first))] = 1 / np.sqrt(2)
        names = [f"={levels[at]}" for at in first]
        kept = counts > 1
        self._set_levels(levels, kept, one_hot, names, _log_frequencies(counts, missing), _rows(counts, missing))

    def _by_target(
        self,
        column: Column,
        levels: list[str],
        counts: Array,
        missing: int,
        targets: Array,
        target_names: Sequence[str],
        fold: Array | None,
    ) -> Array | None:
        """Give a column to the mean of each target in a level, shrunk to that of all rows, and one to the frequency.

        A level of a single row has the mean of all rows, as in training, where its own row does not count.
        """
        place = {level: at for at, level in enumerate(levels)}
        lookup = np.array([*(place.get(level, -1) for level in column.levels), len(levels)])
        codes = lookup[column.values].reshape(-1, 1)
        weight = _rows(counts, missing)
        kept = np.append(counts > 1, missing > 1)
        means, own, names = [], [], []
        for target, name in zip(targets.T, target_names, strict=True):
            encoder = TargetEncoder(target_type="continuous").fit(codes, target)
            mean = np.full(len(weight), float(encoder.target_mean_))
            seen = encoder.categories_[0]
            mean[seen] = np.where(kept[seen], encoder.encodings_[0], encoder.target_mean_)
            center, spread = _moments(mean, weight)
            if spread > 0:
                means.append(smoothly_clipped((mean - center) / spread))
                if fold is not None:
                    own.append(smoothly_clipped((_held_out(codes, target, fold) - center) / spread))
                names.append(f" (target{name})")
        values = np.stack(means, axis=1) if means else np.empty((len(weight), 0))
        frequency = _log_frequencies(counts, missing)
        self._set_levels(levels, kept[:-1], values, names, frequency, weight)
        return np.stack(own, axis=1) if own else None

    def _set_levels(
        self, levels: list[str], kept: Array, values: Array, names: list[str], frequency: Array, weight: Array
    ) -> None:
        """Set the outputs of the levels that are kept, and add the frequency; other levels count as unknown."""
        center, spread = _moments(frequency, weight)
        if spread > 0:
            values = np.column_stack([values, smoothly_clipped((frequency - center) / spread)])
            names = [*names, " (frequency)"]
        self.levels_ = [level for level, keep in zip(levels, kept, strict=True) if keep]
        self.values_ = values[np.append(kept, [True, True])]
        self.names_ = names


def random_folds(n: int, seed: int) -> Array:
    """Return the index of a random fold for each of n rows."""
    fold = np.zeros(n, dtype=np.intp)
    if n > 1:
        folds = KFold(min(_FOLDS, n), shuffle=True, random_state=seed)
        for number, (_, own) in enumerate(folds.split(fold)):
            fold[own] = number
    return fold


def _held_out(codes: Array, target: Array, fold: Array) -> Array:
    """Encode each row by the targets of other folds."""
    encoded = np.full(len(codes), float(target.mean()))
    for number in np.unique(fold):
        own = fold == number
        others = ~own if number >= 0 else ~own & (fold < 0)
        if others.any():
            encoder = TargetEncoder(target_type="continuous").fit(codes[others], target[others])
            encoded[own] = encoder.transform(codes[own])[:, 0]
    return encoded


def _rows(counts: Array, missing: int) -> Array:
    """Return the number of rows of each level, of missing values and of unknown levels."""
    return np.append(counts, [missing, 0]).astype(np.float64)


def _log_frequencies(counts: Array, missing: int) -> Array:
    return np.log(np.maximum(_rows(counts, missing), 1.0))


def _moments(values: Array, weight: Array) -> tuple[float, float]:
    """Return the mean and the standard deviation, which is 0 if it is only a rounding error."""
    center = float(np.average(values, weights=weight))
    spread = float(np.sqrt(np.average((values - center) ** 2, weights=weight)))
    return center, spread if spread > 1e-12 * max(1.0, abs(center)) else 0.0
