"""The kernel of a fit, with parameters that depend on the data worked out, and the validation error it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.ranges import power_of_two
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operators import Operator, make_operator
from .data import FitData
from .scales import warn_of_unlike_scales

Array = NDArray[Any]


def fitted_kernel(
    kernel: Kernel | str | KernelFunction,
    data: FitData,
    points: Any,
    weight: Array | None,
    dtype: Any = None,
    *,
    warns: bool = True,
) -> Kernel:
    """Return the kernel of a fit as `resolved_kernel` does, and warn of features that its length scale does not suit.

    There is no warning if features were standardised or if their sizes are meaningful.
    """
    found = resolved_kernel(kernel, points, weight, dtype)
    if warns and data.scale is None and not data.metric:
        warn_of_unlike_scales(found, points, data.feature_names)
    return found


def resolved_kernel(
    kernel: Kernel | str | KernelFunction, points: Any, weight: Array | None, dtype: Any = None
) -> Kernel:
    """Return the kernel with parameters that depend on the data resolved; a point of weight 2 counts as two points.

    If its values are computed in `dtype`, an error is raised if that precision would lose one of its terms.
    """
    found = as_kernel(kernel).resolve(points if weight is None else _two_points(points, weight))
    if dtype is not None:
        found.check_terms(points, dtype)
    return found


def _two_points(points: Any, weight: Array) -> Any:
    """Return two rows with the mean and the variance of weighted points."""
    share = weight / weight.sum()
    if scipy.sparse.issparse(points):
        columns, at = np.unique(points.indices, return_inverse=True)
        each = np.repeat(share, np.diff(points.indptr))
        unit = power_of_two(points.data)  # so that no square overflows
        values = points.data.astype(np.float64) / unit
        mean = np.bincount(at, each * values, minlength=len(columns))
        variance = np.bincount(at, each * np.square(values), minlength=len(columns)) - mean**2
        deviation = np.sqrt(np.maximum(variance, 0.0))
        data = unit * np.concatenate([mean - deviation, mean + deviation])
        starts = np.arange(3) * len(columns)
        return scipy.sparse.csr_array((data, np.tile(columns, 2), starts), shape=(2, points.shape[1]))
    unit = power_of_two(points)  # so that no square overflows
    mean = share @ (points / unit).astype(np.float64)
    deviation = np.sqrt(share @ np.square(points / unit - mean))
    return unit * np.stack([mean - deviation, mean + deviation])


def validation_watch(
    data: FitData, operator: Operator, compute: Compute, budget: int
) -> Callable[[Array], float] | None:
    """Return the function that gives the validation error of coefficients, or None without validation rows.

    The kernel matrix of the validation rows is kept if it fits `budget` bytes beside that of the training rows.
    """
    if data.validation is None:
        return None
    left = max(0, budget - operator.kept_bytes)
    validation = make_operator(
        operator.kernel,
        data.validation.rows,
        operator.centers,
        n_jobs=compute.n_jobs,
        memory_budget=left,
        device=compute.device,
    )
    return lambda coef: data.validation_error(validation.matmat(coef))
