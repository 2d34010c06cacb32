"""Weighted statistics of the columns of y, from which losses take their constants and units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .ranges import power_of_two

Array = NDArray[Any]

# The 75% quantile of the normal distribution: its median absolute deviation divided by this is its standard deviation.
_QUARTILE = 0.6744897501960817
_PART = 1 << 16  # number of rows converted to float64 at a time
_MANY = 1 << 21  # number of rows from which quantiles are found by counting, which takes no memory, and not by sorting
_ROUNDING = 1e-9  # of sums of weights


def sums(y: Array, weight: Array | None, of: Callable[[Array], Array] = lambda part: part) -> Array:
    """Add up the rows of y, or of the function `of` of them, times their weights; in float64, without a copy of y."""
    total = np.zeros(y.shape[1])
    for start in range(0, len(y), _PART):
        part = slice(start, start + _PART)
        values = of(np.array(y[part], dtype=np.float64, order="C"))  # another order would change the last bits
        if weight is not None:  # not by BLAS, whose threads would change the last bits
            values = values * weight[part].astype(np.float64)[:, None]
        total += values.sum(axis=0)
    return total


def total(weight: Array, of: Callable[[Array], Array] = lambda part: part) -> float:
    """Add up the weights of rows, or the function `of` of them, in float64 and part by part."""
    found = 0.0
    for start in range(0, len(weight), _PART):
        found += float(of(weight[start : start + _PART].astype(np.float64)).sum())
    return found


def average(y: Array, weight: Array | None, of: Callable[[Array], Array] = lambda part: part) -> Array:
    """Average the rows of y, or of the function `of` of them, as `sums` does."""
    return sums(y, weight, of) / (len(y) if weight is None else total(weight))


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
    if weight is not None and not weight.min() > 0:
        y, weight = y[weight > 0], weight[weight > 0]
    unit = power_of_two(y, axis=0)
    mean: Array = average(y, weight, lambda part: part / unit) * unit
    return np.clip(mean, y.min(axis=0), y.max(axis=0))


def shares(y: Array, weight: Array | None) -> Array:
    """Compute the weighted mean of columns of 0 and 1, at least half a row from both."""
    least = 0.5 / len(y)
    return np.clip(means(y, weight), least, 1 - least)


def quantiles(y: Array, level: ArrayLike, weight: Array | None, center: Array | None = None) -> Array:
    """Compute a weighted quantile of each column of y, for one level or one for each column.

    With `center`, of shape (k,), the quantiles are those of the distances from it, ``abs(y - center)`` in float64.
    """
    out = np.empty(y.shape[1])
    for j, tau in enumerate(np.broadcast_to(np.asarray(level, dtype=np.float64), out.shape)):
        if len(y) >= _MANY:
            parts = partial(_column_parts, y, j, center)
            if weight is None:
                rank = math.ceil(tau * len(y) * (1 - _ROUNDING)) - 1  # rounding must not lead to the next entry
                (out[j],) = order_statistics(parts, [min(max(rank, 0), len(y) - 1)])
            else:
                out[j] = _weighted_order_statistic(parts, weight, tau * total(weight) * (1 - _ROUNDING))
            continue
        column = np.concatenate(list(_column_parts(y, j, center)))
        order = np.argsort(column, kind="stable")
        share = np.cumsum(np.ones(len(y)) if weight is None else weight[order])
        at = np.searchsorted(share, tau * share[-1] * (1 - _ROUNDING))
        out[j] = column[order[min(at, len(order) - 1)]]
    return out


def _column_parts(y: Array, j: int, center: Array | None) -> Iterator[Array]:
    """Iterate over parts of column j of y, or of its distances from a center."""
    for start in range(0, len(y), _PART):
        part = y[start : start + _PART][:, j]
        yield part if center is None else np.abs(part.astype(np.float64) - center[j])


def order_statistics(parts: Callable[[], Iterator[Array]], ranks: Sequence[int]) -> list[float]:
    """Return the numbers at some places of the sorted order, counted from 0, without holding or sorting the numbers.

    Each number is found by four readings, which count those that begin with the same 16, 32, 48 and 64 bits of float64,
    in an order of bits that is that of the numbers.

    parts : function that begins a reading of all numbers, which are finite, in parts
    ranks : their places

    >>> order_statistics(lambda: iter([np.array([3.0, -1.0]), np.array([2.0])]), [0, 2])
    [-1.0, 3.0]
    """
    return [_order_statistic(parts, rank) for rank in ranks]


def _order_statistic(parts: Callable[[], Iterator[Array]], rank: int) -> float:
    prefix = 0
    for shift in (48, 32, 16, 0):
        counts = np.zeros(1 << 16, dtype=np.int64)
        for part in parts():
            keys = _sortable(part)
            if shift < 48:
                keys = keys[keys >> np.uint64(shift + 16) == np.uint64(prefix)]
            counts += np.bincount(((keys >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.intp), minlength=1 << 16)
        places = np.cumsum(counts)
        found = int(np.searchsorted(places, rank, side="right"))
        rank -= int(places[found - 1]) if found else 0
        prefix = (prefix << 16) | found
    return float(_numbers(np.array([prefix], dtype=np.uint64))[0])


def _weighted_order_statistic(parts: Callable[[], Iterator[Array]], weight: Array, share: float) -> float:
    """Return the first number in sorted order up to which the sum of the weights is at least `share`.

    Parts have `_PART` numbers. As in `_order_statistic`, sums for equal first bits take the place of sorting.
    """
    prefix, before = 0, 0.0
    for shift in (48, 32, 16, 0):
        counts = np.zeros(1 << 16)
        for number, part in enumerate(parts()):
            keys, of_part = _sortable(part), weight[number * _PART : (number + 1) * _PART].astype(np.float64)
            if shift < 48:
                kept = keys >> np.uint64(shift + 16) == np.uint64(prefix)
                keys, of_part = keys[kept], of_part[kept]
            bits = ((keys >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.intp)
            counts += np.bincount(bits, of_part, minlength=1 << 16)
        places = before + np.cumsum(counts)
        present = np.flatnonzero(counts)  # rounding must not lead to bits that no number begins with
        found = int(np.clip(np.searchsorted(places, share), present[0], present[-1]))
        before = float(places[found - 1]) if found else before
        prefix = (prefix << 16) | found
    return float(_numbers(np.array([prefix], dtype=np.uint64))[0])


_SIGN = np.uint64(1 << 63)


def _sortable(x: Array) -> Array:
    """Return integers of 64 bits in the order of the numbers."""
    bits = (np.ascontiguousarray(x, dtype=np.float64) + 0.0).view(np.uint64)  # + 0.0, so that -0 is 0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _numbers(keys: Array) -> Array:
    """Undo `_sortable`."""
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).astype(np.uint64).view(np.float64)


def quantile_of(parts: Callable[[], Iterator[Array]], n: int, level: float) -> float:
    """Compute a quantile of n numbers, which are read in parts, as `numpy.quantile` does.

    >>> quantile_of(lambda: iter([np.array([3.0, 1.0]), np.array([2.0, 5.0])]), 4, 0.25)
    1.75
    """
    place = level * (n - 1)
    low = min(max(math.floor(place), 0), n - 1)
    below, above = order_statistics(parts, [low, min(low + 1, n - 1)])
    return float(below + (above - below) * (place - low))


def robust_deviation(y: Array, weight: Array | None) -> Any:
    """Compute a robust standard deviation of each column: an array of shape (k,), or a number if all are equal.

    It is the ordinary one if most entries of a column are equal, and a thousandth of their size if all are.
    """
    center = quantiles(y, 0.5, weight)
    deviation = quantiles(y, 0.5, weight, center) / _QUARTILE
    if not (deviation > 0).all():
        with np.errstate(over="ignore"):  # callers refuse y of that size
            plain = np.sqrt(average(y, weight, lambda part: np.square(part - center)))
        size = np.maximum(np.abs(y.min(axis=0)), np.abs(y.max(axis=0))).astype(np.float64)
        for otherwise in (plain, 1e-3 * size):
            deviation = np.where(deviation > 0, deviation, otherwise)
        deviation = np.where(deviation > 0, deviation, 1e-3)
    return float(deviation[0]) if (deviation == deviation[0]).all() else deviation
