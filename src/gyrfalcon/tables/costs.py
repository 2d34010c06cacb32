"""How long a fit of all rows will take, from products that are measured on a few of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import limit_of, parse_memory
from ..kernels import Kernel
from ..operators import KernelOperator
from .parts import Settings

Array = NDArray[Any]

_TRIAL_ROWS = 4_096  # enough for all threads
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


def exact_seconds(kernel: Kernel, X: Array, settings: Settings) -> Callable[[int], float]:
    """Return a function of the number of columns (penalties x folds x outputs), that says how long an exact fit takes.

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
    return lambda columns: before + passes * product(columns)


def affordable_centers(
    kernel: Kernel, X: Any, outputs: int, cost: tuple[int, int], share: float, settings: Settings
) -> int:
    """Return how many centers time and memory allow.

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
        if passes * each * M + factorisations * _CUBE * M**3 < share and 0.5 * limit > _SQUARES * M * M:
            return min(n, M)
    return min(n, _CENTERS[-1])


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


def _product_seconds(kernel: Kernel, X: Any, centers: Array, n_jobs: int | None) -> Callable[[int], float]:
    """Return a function that measures how long a product of k(X, centers) with so many columns takes."""
    rows = _first(X, _TRIAL_ROWS)
    operator = KernelOperator(kernel, rows, centers, n_jobs=n_jobs, memory_budget=0)
    operator.matmat(np.zeros((len(centers), 1), dtype=np.float32))

    def seconds(columns: int) -> float:
        V = np.zeros((len(centers), columns), dtype=np.float32)
        began = time.perf_counter()
        operator.matmat(V)
        return (time.perf_counter() - began) * float(X.shape[0] / len(rows))

    return seconds


def _first(X: Any, most: int) -> Array:
    return X[:most] if isinstance(X, np.ndarray) else np.asarray(X.take(np.arange(min(most, X.shape[0]))))
