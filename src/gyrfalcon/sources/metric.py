"""Arrays of rows whose distances have a meaning already, so that standardising them would undo it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dask import is_dask


class MetricArray(np.ndarray[Any, Any]):
    """An array as `LearnedMetric` and `TableEncoder` return it: ``scale="auto"`` leaves its rows as they are.

    Slices and selections of rows are of this class too. What is computed from one is a plain array: its columns may
    have any size.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.sources.metric import MetricArray
    >>> rows = np.eye(3).view(MetricArray)
    >>> type(rows[:2]).__name__, type(rows * 2).__name__, type(rows.sum()).__name__
    ('MetricArray', 'ndarray', 'float64')
    """

    def __array_wrap__(self, array: NDArray[Any], context: Any = None, return_scalar: bool = False) -> Any:
        # NumPy calls it with the result of a computation
        plain = np.asarray(array)
        return plain[()] if return_scalar or plain.ndim == 0 else plain


def has_metric(X: Any) -> bool:
    """Whether `X` is a `MetricArray`, or a Dask array of them."""
    return isinstance(X._meta if is_dask(X) else X, MetricArray)
