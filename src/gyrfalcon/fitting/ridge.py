"""Kernel ridge regression on all rows at once, and the memory and the precision it needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import format_bytes, require
from .._utils.ranges import check_kernel_scale
from ..operators import Operator
from ..solvers import exact_path, exact_ridge

Array = NDArray[Any]


def least_penalty(operator: Operator, dtype: Any = None) -> float:
    """Return the smallest penalty that a precision can tell from rounding; by default that of the predictions."""
    mean = float(np.maximum(operator.kernel.diag(operator.centers), 0.0).mean())
    check_kernel_scale(mean, operator.dtype, power=1, kernel=operator.kernel)
    return mean * float(np.finfo(operator.dtype if dtype is None else dtype).eps) / 8


def ridge(operator: Operator, y: Array, penalty: float, weight: Array | None, remedy: str) -> Array:
    """Return the coefficients of kernel ridge regression; `operator` is k(rows, rows)."""
    n = operator.shape[0]
    penalty = max(float(penalty), least_penalty(operator))
    # below this, Cholesky's factorisation divides by rounding errors where K is singular
    safe = penalty > 8 * n * least_penalty(operator, np.float64)
    check_gram_memory(n, 1 if safe else 3, remedy)
    gram = operator.centers_gram(np.float64)
    if safe:
        return exact_ridge(gram, y, penalty, weight, overwrite_gram=True)
    return exact_path(gram, y, weight).coefficients(penalty)


def check_gram_memory(n: int, matrices: int, remedy: str) -> None:
    """Raise MemoryError if so many n x n matrices in float64 do not fit."""
    size = matrices * 8 * n * n
    what = "a matrix" if matrices == 1 else f"{matrices} matrices"
    require(
        "auto",
        size,
        f"{what} of {n} x {n} numbers: {format_bytes(size)}",
        lambda limit: f"{math.isqrt(limit // (8 * matrices))} rows would fit; use {remedy} or fewer rows",
    )
