"""Kernel least squares with every row as a center, and the memory and the precision it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.ranges import check_kernel_scale, power_of_two
from ..kernels import Kernel, KernelFunction
from ..operators import KernelOperator, Operator, make_operator
from ..preconditioners.whitening import choose_engine
from ..solvers import exact_path, exact_ridge
from ..sources.rows_file import RowsFile
from .auto_penalty import as_penalty
from .data import FitData
from .kernel import fitted_kernel
from .plan import check_memory
from .precision import in_suitable_precision

Array = NDArray[Any]


@dataclass(frozen=True)
class EveryRow:
    """Kernel least squares with every row as a center, in the precision that was chosen.

    targets, scale : targets divided by powers of two that bring them near 1, and these powers
    penalties : the penalty, a list of penalties to choose from, or None for a method without a penalty
    stored : the same rows as `points` in a temporary file, if they are not held in memory
    """

    data: FitData
    kernel: Kernel
    points: Array
    targets: Array
    scale: Array
    penalties: Any
    stored: RowsFile | None = None

    @property
    def penalty(self) -> float | None:
        """The penalty, if there is only one and it is known before the solve."""
        return self.penalties if isinstance(self.penalties, float) else None

    def operator(self, centers: Array, compute: Compute, memory_budget: int) -> Operator:
        """Make k(rows, centers) on devices, or else in this process, wherever the rows are: there may be n centers."""
        given = self.kernel, self.data.rows, centers
        if compute.device is None:
            return KernelOperator(*given, n_jobs=compute.n_jobs, memory_budget=memory_budget)
        return make_operator(*given, n_jobs=compute.n_jobs, memory_budget=memory_budget, device=compute.device)


def every_row(
    kernel: Kernel | str | KernelFunction,
    penalties: Any,
    data: FitData,
    compute: Compute,
    random_state: np.random.RandomState,
    *,
    iterates: bool = False,
) -> EveryRow:
    """Read all rows into memory, and resolve the kernel, the penalty if it is "auto", and the precision.

    `iterates` is whether the solution is found by products with K_nn in that precision, and not in float64.
    """
    points = data.rows.take(np.arange(data.rows.shape[0]))
    found = fitted_kernel(kernel, data, points, data.weight, points.dtype)
    if penalties is not None and np.ndim(penalties) == 0:
        penalties = as_penalty(penalties, kernel, data, random_state, compute)
    penalty = penalties if isinstance(penalties, float) else None
    data = in_suitable_precision(data, found, points, penalty, iterates=iterates)
    points = points.astype(data.rows.dtype, copy=False)
    scale = power_of_two(data.targets, axis=0)
    return EveryRow(data, found, points, data.targets / scale, scale, penalties)


def least_penalty(operator: Operator, dtype: Any = None) -> float:
    """Return the smallest penalty that a precision, by default that of predictions, can distinguish from rounding."""
    mean = float(np.maximum(operator.kernel.diag(operator.centers), 0.0).mean())
    check_kernel_scale(mean, operator.dtype, power=1, kernel=operator.kernel)
    return mean * float(np.finfo(operator.dtype if dtype is None else dtype).eps) / 8


def ridge(
    operator: Operator, y: Array, penalty: float, weight: Array | None, remedy: str, compute: Compute | None = None
) -> Array:
    """Return the coefficients of kernel ridge regression; `operator` is k(rows, rows).

    The matrix is factored on the devices of `compute`, if there are any.
    """
    n = operator.shape[0]
    penalty = max(float(penalty), least_penalty(operator))
    # below this, Cholesky's factorisation divides by rounding errors where K is singular
    safe = penalty > 8 * n * least_penalty(operator, np.float64)
    check_gram_memory(n, 1 if safe else 3, remedy)
    gram = operator.centers_gram(np.float64)
    if safe:
        engine = (
            None if compute is None or compute.devices is None else choose_engine(compute.devices, compute.n_threads)
        )
        return exact_ridge(gram, y, penalty, weight, overwrite_gram=True, engine=engine)
    return exact_path(gram, y, weight).coefficients(penalty)


def check_gram_memory(n: int, matrices: int, remedy: str) -> None:
    """Raise MemoryError if the number of n x n matrices in float64 does not fit."""
    what = "a matrix" if matrices == 1 else f"{matrices} matrices"
    check_memory(
        "auto",
        {"matrices": matrices * 8 * n * n},
        f"{what} of {n} x {n} numbers:",
        lambda limit: f"{math.isqrt(limit // (8 * matrices))} rows would fit; use {remedy} or fewer rows",
    )
