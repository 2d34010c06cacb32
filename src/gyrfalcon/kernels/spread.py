"""Spread of rows, from which kernels derive the parameters given as "scale"."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .._utils import sparse
from .._utils.ranges import power_of_two


def total_variance(X: Any) -> tuple[float, float]:
    """Compute the sum of the features' variances in units of unit^2, and the unit, so that no square overflows.

    Both are 1 if no feature varies.
    """
    if not sp.issparse(X):
        X = np.asarray(X, dtype=np.float64)
    unit = power_of_two(X.data if sp.issparse(X) else X)
    total = sparse.total_variance(X / unit) if sp.issparse(X) else float(np.var(X / unit, axis=0).sum())
    return (total, unit) if total > 0 else (1.0, 1.0)


def mean_absolute_difference(X: Any) -> float:
    """Compute the mean distance between rows in the 1-norm; 1 if all rows are equal."""
    if not sp.issparse(X):
        X = np.asarray(X, dtype=np.float64)
    unit = power_of_two(X.data if sp.issparse(X) else X)
    if sp.issparse(X):
        total = sparse.mean_absolute_differences(X / unit)
    else:
        # Sorted, x_i is the larger of i pairs and the smaller of n - 1 - i. Differences from the median lose no digits
        # to a common offset.
        ordered = np.sort(X / unit, axis=0)
        n = len(ordered)
        total = 2 * float(((2 * np.arange(n) + 1 - n) @ (ordered - ordered[n // 2])).sum()) / n**2
    return unit * total if total > 0 else 1.0
