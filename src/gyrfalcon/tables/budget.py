"""A time budget that can be cancelled, and estimates of how long fits take, from products measured on a few rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.memory import limit_of, parse_memory
from .._utils.threads import single_threaded_blas
from ..fitting.calibration import MOST_VALUES
from ..fitting.row_sample import expected_passes
from ..kernels import Kernel
from ..operators import KernelOperator
from ..sources import as_rows

Array = NDArray[Any]

# All times were measured on two cores of an AMD Zen 4 processor; they decide which fits are tried, not their results.
_TRIAL_ROWS, _TRIAL_COLUMNS = 4_096, 64  # rows and columns of the product that is timed: enough for all threads
_ITERATIONS = 10  # typical number of iterations of an exact fit
_KEPT_SHARE = 0.9  # share of the memory budget that a stored kernel matrix may take
_KEPT_PASS = 0.5  # time of a pass over a stored kernel matrix, relative to computing it
_TOUCH = 7e-10  # seconds per byte to allocate the kernel matrix
_START_CAP, _START_ROW, _START_ROW_MORE = 1.0, 1e-4, 3e-5  # start-up seconds: a cap, and two per-row terms
_CENTERS = (20_000, 14_000, 10_000, 7_000, 5_000, 3_500, 2_500, 1_500, 1_000, 500)  # numbers of centers to choose from
_FEWER_CENTERS = (250, 100, 50, 20)  # numbers of centers to fall back to if memory is short
_SEARCH_SQUARE, _SEARCH_ROW = 5, 10_000  # bytes of a search per squared row and per row: 300 MB for 8,000 rows
_LEAST_SEARCHED, MOST_SEARCHED = 100, 8_000  # fewest and most rows that a search learns from
_CUBE = 1e-11  # seconds of a factorisation of an M x M matrix, per M^3
_SQUARES = 24  # bytes of a FALKON fit per M^2
_MOST_CENTERS, _FACTOR_BYTES = 30_000, 12  # most centers of a large table, and bytes per M^2 of factors in float32
_FACTOR_SIZE, _FACTOR_COST = 1_024, 0.7  # side of a product that is timed, and the time of both factors relative to it
# Multiplications of a hierarchical model per row and tree, per row of a leaf and its square: 50,000 rows in leaves of
# 512, 1,024 and 2,048 rows took 48, 110 and 246 microseconds of one core for each row
_EACH_LEAF_ROW, _EACH_LEAF_SQUARE = 5_600.0, 0.8
_TREES, _LEAST_LEAF, _MOST_LEAF = (
    (4, 2, 1),
    256,
    4_096,
)  # numbers of trees, fewest and most rows of a leaf
_TRIAL_CENTERS = 8_192  # centers of the product that is timed for an exact fit of a large table
_EACH_NUMBER = 1e-8  # seconds of an iteration per row and column, besides kernel products
# The smallest search and fit: floating-point operations per second, number of passes, seconds of the search, seconds
# per encoded value, and start-up seconds per center
_OPERATIONS, _LEAST_PASSES, _LEAST_SEARCH, _EACH_VALUE, _LEAST_START = 5e10, 3, 0.1, 3e-7, 2.5e-4
_LEAST_VECTORS, _EACH_PROBABILITY = 1.2e-7, 1e-6  # seconds per row and column, and per row and class in calibration
ENCODED_ROWS = 100_000  # most rows that an encoder learns from
EXACT_ROWS = 60_000  # tables with more rows are large: the same rows are held out of all fits
QUICK_ROWS = 10_000  # most rows for which an exact fit is as fast as FALKON
LEAST_FOLDS, LEAST_CENTERS = 2, _CENTERS[-1]  # folds and centers of a fit for which there is hardly time


@dataclass
class Budget:
    """Seconds that a fit, or a part of it, may take.

    began : start, as a time of `time.perf_counter`; now by default
    whole : the budget that this one is a part of; cancelling it cancels this one
    """

    seconds: float
    began: float = field(default_factory=time.perf_counter)
    whole: Budget | None = None
    _cancelled: bool = field(default=False, init=False)

    @property
    def used(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds until the budget is used up, negative after that; 0 once it is cancelled."""
        return 0.0 if self.cancelled else self.seconds - self.used

    @property
    def cancelled(self) -> bool:
        """Whether this budget, or one that it is a part of, was cancelled."""
        return self._cancelled or (self.whole is not None and self.whole.cancelled)

    def cancel(self) -> None:
        """Leave nothing of this budget and of its parts."""
        self._cancelled = True

    def until(self, seconds: float) -> Budget:
        """Return the part of this budget that ends the given number of seconds after its beginning."""
        return Budget(seconds, self.began, self)


def exact_seconds(kernel: Kernel, X: Array, compute: Compute) -> Callable[[int], float]:
    """Return a function that estimates the seconds of an exact fit with penalties x (folds + 1) x outputs columns."""
    product, column = _product_seconds(kernel, X, X, compute)
    n = len(X)
    size = 4 * n * n  # bytes of the kernel matrix
    keeps = size < _KEPT_SHARE * parse_memory(compute.memory_budget)
    passes = 1 + _KEPT_PASS * (_ITERATIONS - 1) if keeps else float(_ITERATIONS)
    start = min(_START_CAP, _START_ROW * n) + _START_ROW_MORE * n + (_TOUCH * size if keeps else 0.0)
    return lambda columns: start + passes * (product + column * columns) + _ITERATIONS * _EACH_NUMBER * n * columns


def affordable_centers(
    kernel: Kernel, X: Any, outputs: int, cost: tuple[int, int], share: float, compute: Compute
) -> int | None:
    """Return the largest number of centers that time and memory allow; None if there is no time for the smallest.

    `cost` is the numbers of passes over the rows and of factorisations of a fit, and `share` the seconds it may take.
    """
    n = X.shape[0]
    some = _first(X, 1000)
    product, column = _product_seconds(kernel, X, some, compute)
    each = (product + column * outputs) / len(some)
    limit = limit_of(compute.memory_budget)
    passes, factorisations = cost
    for M in _CENTERS:
        vectors = _EACH_NUMBER * n * outputs * passes
        if passes * each * M + vectors + factorisations * _CUBE * M**3 < share and 0.5 * limit > _SQUARES * M * M:
            return min(n, M)
    return min(n, LEAST_CENTERS) if passes * each * LEAST_CENTERS < share else None


def falkon_seconds(
    kernel: Kernel, X: Any, outputs: int, newton: tuple[int, int] | None, compute: Compute
) -> Callable[[int], float]:
    """Return a function that estimates the seconds of a fit of a large table with M centers, in float32.

    `newton` is the numbers of passes over the rows and of factorisations of a fit that minimises another loss than the
    squared one; None for that.
    """
    rows, some = as_rows(X), _first(X, 1000)
    product, column = _product_seconds(kernel, X, some, compute)
    each, cube = (product + column * outputs) / len(some), _FACTOR_COST * _multiplication_seconds(compute)
    room = _KEPT_SHARE * parse_memory(compute.memory_budget)

    def seconds(M: int) -> float:
        passes, factorisations = (expected_passes(rows, M), 1) if newton is None else newton
        if 4 * rows.shape[0] * M < room:
            passes = 1 + _KEPT_PASS * (passes - 1)
        return passes * (each * M + _EACH_NUMBER * rows.shape[0] * outputs) + factorisations * cube * M**3

    return seconds


def large_exact_seconds(kernel: Kernel, X: Array, compute: Compute) -> Callable[[int], float]:
    """Return `exact_seconds` of a large table, from a product with some of its rows as centers."""
    n = len(X)
    some = X[:_TRIAL_CENTERS]
    product, column = (one * n / len(some) for one in _product_seconds(kernel, X, some, compute))
    start = _START_CAP + _START_ROW_MORE * n
    return lambda columns: start + _ITERATIONS * (product + (column + _EACH_NUMBER * n) * columns)


def most_centers(seconds: Callable[[int], float], share: float, n: int, compute: Compute) -> int | None:
    """Return the largest number of centers that time and memory allow; None if there is no time for the smallest."""
    room = int(np.sqrt(0.5 * limit_of(compute.memory_budget) / _FACTOR_BYTES))
    low, high = LEAST_CENTERS, max(LEAST_CENTERS, min(n, room, _MOST_CENTERS)) + 1
    if seconds(low) > share:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seconds(middle) <= share else (low, middle)
    return min(n, low)


def affordable_trees(n: int, share: float, compute: Compute) -> tuple[int, int] | None:
    """Return the number of trees and the rows of a leaf of a hierarchical model of n rows that takes this time.

    Several trees are preferred to large leaves; None if there is no time for one tree with the smallest leaves.
    """
    each = _multiplication_seconds(compute)
    for trees in _TREES:
        room = share / (each * n * trees)
        leaf = (np.sqrt(_EACH_LEAF_ROW**2 + 4 * _EACH_LEAF_SQUARE * room) - _EACH_LEAF_ROW) / (2 * _EACH_LEAF_SQUARE)
        if leaf >= 2 * _LEAST_LEAF or (trees == 1 and leaf >= _LEAST_LEAF):
            return trees, int(min(leaf, _MOST_LEAF))
    return None


def _multiplication_seconds(compute: Compute) -> float:
    """Return the seconds of a multiplication in a product of small matrices, on all threads."""
    A = np.ones((_FACTOR_SIZE, _FACTOR_SIZE), dtype=np.float32)
    seconds = []
    with single_threaded_blas():
        for _ in range(3):
            began = time.perf_counter()
            A @ A
            seconds.append(time.perf_counter() - began)
    return sorted(seconds)[1] / _FACTOR_SIZE**3 / compute.n_threads


def fewer_centers(M: int) -> list[int]:
    """Return M and smaller numbers of centers, to be tried in this order until one fits in memory."""
    return [M, *(fewer for fewer in (*_CENTERS, *_FEWER_CENTERS) if fewer < M)]


def searched_rows(memory_budget: int | float | str, most: int = MOST_SEARCHED) -> int:
    """Return the most rows that a search learns from; free memory is ignored, so that a search can be repeated."""
    if memory_budget == "auto" or parse_memory(memory_budget) == 0:
        return most
    square, row = _SEARCH_SQUARE, _SEARCH_ROW
    room = (np.sqrt(row**2 + 4.0 * square * parse_memory(memory_budget)) - row) / (2 * square)
    return int(np.clip(room, _LEAST_SEARCHED, most))


def least_seconds(n: int, outputs: int, d: int = 1) -> float:
    """Estimate the seconds of the smallest search and fit of n rows with d encoded columns; `outputs` may be classes.

    Operations are counted and nothing is timed, so the estimate is the same on every machine.
    """
    encoded = _EACH_VALUE * min(n, ENCODED_ROWS) * d
    centers = n if n <= QUICK_ROWS else LEAST_CENTERS
    start = min(_START_CAP, _LEAST_START * centers)
    columns = (LEAST_FOLDS + 1) * outputs
    passes = 2.0 * n * centers * (d + _LEAST_PASSES * columns) / _OPERATIONS
    vectors = _LEAST_VECTORS * n * columns
    calibration = _EACH_PROBABILITY * min(n * outputs, max(MOST_VALUES, outputs**2)) if outputs > 1 else 0.0
    return _LEAST_SEARCH + encoded + start + passes + vectors + calibration


def _product_seconds(kernel: Kernel, X: Any, centers: Array, compute: Compute) -> tuple[float, float]:
    """Time products of k(X, centers) with few columns; return the seconds without columns, and those of each column.

    A product with as many columns as a fit of thousands of classes has would take as long as the fit.
    """
    rows = _first(X, _TRIAL_ROWS)
    operator = KernelOperator(kernel, rows, centers, n_jobs=compute.n_jobs, memory_budget=0)
    seconds = []
    for columns in (1, 1, _TRIAL_COLUMNS):  # the first product also prepares the centers
        V = np.zeros((len(centers), columns), dtype=np.float32)
        began = time.perf_counter()
        operator.matmat(V)
        seconds.append((time.perf_counter() - began) * float(X.shape[0] / len(rows)))
    _, one, many = seconds
    each = max(many - one, 0.0) / (_TRIAL_COLUMNS - 1)
    return max(one - each, 0.0), each


def _first(X: Any, most: int) -> Array:
    return X[:most] if isinstance(X, np.ndarray) else np.asarray(X.take(np.arange(min(most, X.shape[0]))))
