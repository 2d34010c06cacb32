"""The cyclic parts of dates: time of day, day of the week and day of the year, each as a point on a circle."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .._utils.checks import array
from .._utils.registry import register

Array = NDArray[Any]

PARTS = ("time of day", "day of week", "day of year")
_DAY = 86_400.0
_FIRST_DAY = 3  # 1970 began on a Thursday, the third day after Monday


@register
class DateParts(BaseEstimator):  # type: ignore[misc]
    """Sine and cosine of the parts of dates that were not the same in all training rows; zeros for missing dates.

    Attributes
    ----------
    parts_ : array of bool of shape (n_columns, 3)
        Which parts of each column are kept.
    """

    parts_: Array

    def fit(self, seconds: Array) -> DateParts:
        """Find the parts that vary.

        Parameters
        ----------
        seconds : array of shape (n, n_columns)
            Since 1970; NaN is missing.
        """
        turns = _turns(seconds)
        known = np.isfinite(turns)
        low = np.where(known, turns, np.inf).min(axis=1)
        high = np.where(known, turns, -np.inf).max(axis=1)
        self.parts_ = (high > low).T.copy()
        return self

    def transform(self, seconds: Array) -> Array:
        """Return two columns for each part that is kept, column by column."""
        kept = _turns(seconds).transpose(2, 0, 1)[self.parts_].T
        angle = 2 * np.pi * kept
        pairs = np.stack([np.sin(angle), np.cos(angle)], axis=2)
        return np.nan_to_num(pairs.reshape(len(seconds), -1), copy=False)

    def _check_loaded(self) -> None:
        array((None, len(PARTS)), np.bool_)("parts_", self.parts_)

    def names(self, column: int) -> list[str]:
        """Name the outputs of a column."""
        kept = [part for part, keep in zip(PARTS, self.parts_[column], strict=True) if keep]
        return [f"({part}, {wave})" for part in kept for wave in ("sin", "cos")]


def _turns(seconds: Array) -> Array:
    """Return the parts as shares of a turn, in an array of shape (3, n, n_columns)."""
    missing = np.isnan(seconds)
    moments = np.where(missing, 0.0, seconds)
    days = np.floor(moments / _DAY)
    date = days.astype(np.int64).astype("datetime64[D]")
    day_of_year = (date - date.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64)
    parts = np.stack([moments / _DAY - days, (days + _FIRST_DAY) % 7 / 7, day_of_year / 366])
    return np.where(missing, np.nan, parts)
