"""Weighted statistics of the columns of y, from which losses take their constants and units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .ranges import power_of_two

Array = NDArray[Any]

# The 75% quantile of the normal distribution: its median absolute deviation divided by this is its standard deviation.
_QUARTILE = 0.6744897501960817
_PART = 1 << 16  # number of rows converted to float64 at a time


def sums(y: Array, weight: Array | None, of: Callable[[Array], Array] = lambda part: part) -> Array:
    """Add up the rows of y, or of the function `of` of them, times their weights; in float64, without a copy of y."""
    total = np.zeros(y.shape[1])
    for start in range(0, len(y), _PART):
        part = slice(start, start + _PART)
        values = of(np.array(y[part], dtype=np.float64, order="C"))  # another order would change the last bits
        if weight is not None:  # not by BLAS, whose threads would change the last bits
            values = values * weight[part, None].astype(np.float64)
        total += values.sum(axis=0)
    return total


def average(y: Array, weight: Array | None, of: Callable[[Array], Array] = lambda part: part) -> Array:
    """Average the rows of y, or of the function `of` of them, as `sums` does."""
    count = len(y) if weight is None else float(weight.sum(dtype=np.float64))
    return sums(y, weight, of) / count


def deviations(y: Array, weight: Array | None) -> Array:
    """Compute the standard deviation of each column, or a hundredth of its mean if it is constant; never 0.

    >>> deviations(np.array([[1.0, 3.0], [5.0, 3.0]]), None)
    array([2.  , 0.03])
    """
    mean = average(y, weight)
    found, size = np.sqrt(average(y, weight, lambda part: np.square(part - mean))), np.abs(mean)
    return np.maximum(np.where(found > 1e-6 * size, found, 1e-2 * size), np.finfo(np.float64).tiny)


def means(y: Array, weight: Array | None) -> Array:
    """Compute the weighted mean of each column in float64: exact for a constant, and no sum overflows."""
    if weight is not None:
        y, weight = y[weight > 0], weight[weight > 0]
    unit = power_of_two(y, axis=0)
    mean: Array = average(y, weight, lambda part: part / unit) * unit
    return np.clip(mean, y.min(axis=0), y.max(axis=0))


def shares(y: Array, weight: Array | None) -> Array:
    """Compute the weighted mean of columns of 0 and 1, at least half a row from both."""
    least = 0.5 / len(y)
    return np.clip(means(y, weight), least, 1 - least)


def quantiles(y: Array, level: ArrayLike, weight: Array | None) -> Array:
    """Compute a weighted quantile of each column of y, for one level or one for each column."""
    out = np.empty(y.shape[1])
    for j, tau in enumerate(np.broadcast_to(np.asarray(level, dtype=np.float64), out.shape)):
        order = np.argsort(y[:, j], kind="stable")
        share = np.cumsum(np.ones(len(y)) if weight is None else weight[order])
        at = np.searchsorted(share, tau * share[-1] * (1 - 1e-9))  # rounding must not lead to the next entry
        out[j] = y[order[min(at, len(order) - 1)], j]
    return out


def robust_deviation(y: Array, weight: Array | None) -> Any:
    """Compute a robust standard deviation of each column: an array of shape (k,), or a number if all are equal.

    It is the ordinary one if most entries of a column are equal, and a thousandth of their size if all are.
    """
    y = y.astype(np.float64)
    distance = np.abs(y - quantiles(y, 0.5, weight))
    deviation = quantiles(distance, 0.5, weight) / _QUARTILE
    with np.errstate(over="ignore"):  # callers refuse y of that size
        plain = np.sqrt(np.average(np.square(distance), axis=0, weights=weight))
    for otherwise in (plain, 1e-3 * np.abs(y).max(axis=0)):
        deviation = np.where(deviation > 0, deviation, otherwise)
    deviation = np.where(deviation > 0, deviation, 1e-3)
    return float(deviation[0]) if (deviation == deviation[0]).all() else deviation
