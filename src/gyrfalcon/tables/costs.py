"""How long a fit of all rows will take, from products that are measured on a few of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import limit_of, parse_memory
from ..fitting.calibration import MOST_VALUES
from ..kernels import Kernel
from ..operators import KernelOperator
from .parts import Settings

Array = NDArray[Any]

_TRIAL_ROWS, _TRIAL_COLUMNS = 4_096, 64  # rows enough for all threads
_ITERATIONS = 10  # of an exact fit, as a rule
_KEPT_SHARE = 0.9  # of the memory budget, for a kernel matrix that is kept
_KEPT_PASS, _TOUCH = 0.5, 7e-10  # time of a pass over it, relative to making it, and seconds for each new byte
_BEFORE = (1.0, 1e-4, 3e-5)  # seconds before the first pass: at most, for each row, and for each row beside that
_CENTERS = (20_000, 14_000, 10_000, 7_000, 5_000, 3_500, 2_500, 1_500, 1_000, 500)
_FEWER_CENTERS = (250, 100, 50, 20)  # where memory allows no more
# Bytes that a search takes for the square of the rows it learns from, and for each of them (measured: 300 MB for 8,000
# rows, 13 MB for 800); and the fewest and the most rows
_SEARCH_BYTES, _LEAST_SEARCHED, MOST_SEARCHED = (5, 10_000), 100, 8_000
_CUBE = 1e-11  # seconds of a factorisation, for each M^3
_SQUARES = 24  # bytes for each M^2
_EACH_NUMBER = 1e-8  # seconds that an iteration takes for each row of each column, beside products
# What the smallest fit takes: operations a second (two cores), passes, seconds of a search, for each encoded value and
# for each center before the first pass
_OPERATIONS, _LEAST_PASSES, _LEAST_SEARCH, _EACH_VALUE, _LEAST_BEFORE = 5e10, 3, 0.1, 3e-7, 2.5e-4
# Seconds for each row of each column, and for each row of each class in calibration
_LEAST_VECTORS, _EACH_PROBABILITY = 1.2e-7, 1e-6
ENCODED_ROWS = 100_000  # from which an encoder learns
QUICK_ROWS = 10_000  # up to which an exact fit takes no longer than FALKON
LEAST_FOLDS, LEAST_CENTERS = 2, _CENTERS[-1]  # of a fit that there is hardly time for


def exact_seconds(kernel: Kernel, X: Array, settings: Settings) -> Callable[[int], float]:
    """Return how long an exact fit takes, as a function of its columns: penalties x (folds + 1) x outputs.

    Parameters
    ----------
    kernel : Kernel
    X : array of shape (n, d)
    settings : Settings
    """
    product = _product_seconds(kernel, X, X, settings.n_jobs)
    n = len(X)
    size = 4 * n * n  # bytes of the kernel matrix
    keeps = size < _KEPT_SHARE * parse_memory(settings.memory_budget)
    passes = 1 + _KEPT_PASS * (_ITERATIONS - 1) if keeps else float(_ITERATIONS)
    before = min(_BEFORE[0], _BEFORE[1] * n) + _BEFORE[2] * n + (_TOUCH * size if keeps else 0.0)
    return lambda columns: before + passes * product(columns) + _ITERATIONS * _EACH_NUMBER * n * columns


def affordable_centers(
    kernel: Kernel, X: Any, outputs: int, cost: tuple[int, int], share: float, settings: Settings
) -> int | None:
    """Return how many centers time and memory allow; None if there is no time for the least number.

    Parameters
    ----------
    kernel : Kernel
    X : array of shape (n, d), or rows
    outputs : int
    cost : tuple of int
        Passes and factorisations that a fit takes.
    share : float
        Seconds.
    settings : Settings
    """
    n = X.shape[0]
    some = _first(X, 1000)
    each = _product_seconds(kernel, X, some, settings.n_jobs)(outputs) / len(some)
    limit = limit_of(settings.memory_budget)
    passes, factorisations = cost
    for M in _CENTERS:
        vectors = _EACH_NUMBER * n * outputs * passes
        if passes * each * M + vectors + factorisations * _CUBE * M**3 < share and 0.5 * limit > _SQUARES * M * M:
            return min(n, M)
    return min(n, LEAST_CENTERS) if passes * each * LEAST_CENTERS < share else None


def fewer_centers(M: int) -> list[int]:
    """Return numbers of centers to try one after the other until memory allows one, the first of which is M."""
    return [M, *(fewer for fewer in (*_CENTERS, *_FEWER_CENTERS) if fewer < M)]


def searched_rows(memory_budget: int | float | str) -> int:
    """Return how many rows at most a search learns from: what is free decides nothing, so that it can be repeated."""
    if memory_budget == "auto" or parse_memory(memory_budget) == 0:
        return MOST_SEARCHED
    square, each = _SEARCH_BYTES
    room = (np.sqrt(each**2 + 4.0 * square * parse_memory(memory_budget)) - each) / (2 * square)
    return int(np.clip(room, _LEAST_SEARCHED, MOST_SEARCHED))


def least_seconds(n: int, outputs: int, d: int = 1) -> float:
    """Return about how long the smallest search and fit take, by counting operations: the same on every machine.

    Parameters
    ----------
    n : int
        Number of rows.
    outputs : int
        Numbers to predict, or classes.
    d : int
        Number of columns, encoded.
    """
    encoded = _EACH_VALUE * min(n, ENCODED_ROWS) * d
    centers = n if n <= QUICK_ROWS else LEAST_CENTERS
    before = min(_BEFORE[0], _LEAST_BEFORE * centers)
    columns = (LEAST_FOLDS + 1) * outputs
    passes = 2.0 * n * centers * (d + _LEAST_PASSES * columns) / _OPERATIONS
    vectors = _LEAST_VECTORS * n * columns
    calibration = _EACH_PROBABILITY * min(n * outputs, max(MOST_VALUES, outputs**2)) if outputs > 1 else 0.0
    return _LEAST_SEARCH + encoded + before + passes + vectors + calibration


def _product_seconds(kernel: Kernel, X: Any, centers: Array, n_jobs: int | None) -> Callable[[int], float]:
    """Return a function of a number of columns: how long a product of k(X, centers) with that many takes.

    It is measured with few columns, and grows in proportion beyond: a product with thousands takes as long as a fit.
    """
    rows = _first(X, _TRIAL_ROWS)
    operator = KernelOperator(kernel, rows, centers, n_jobs=n_jobs, memory_budget=0)
    operator.matmat(np.zeros((len(centers), 1), dtype=np.float32))

    @cache
    def measured(columns: int) -> float:
        V = np.zeros((len(centers), columns), dtype=np.float32)
        began = time.perf_counter()
        operator.matmat(V)
        return (time.perf_counter() - began) * float(X.shape[0] / len(rows))

    def seconds(columns: int) -> float:
        if columns <= _TRIAL_COLUMNS:
            return measured(columns)
        one, few = measured(1), measured(_TRIAL_COLUMNS)
        return few + max(few - one, 0.0) * (columns - _TRIAL_COLUMNS) / (_TRIAL_COLUMNS - 1)

    return seconds


def _first(X: Any, most: int) -> Array:
    return X[:most] if isinstance(X, np.ndarray) else np.asarray(X.take(np.arange(min(most, X.shape[0]))))
