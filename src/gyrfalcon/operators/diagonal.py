"""Values k(x, x) for all rows, which products with the centers do not provide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.statistics import total
from ..kernels import Kernel
from ..sources import Rows

__all__ = ["diagonal_sum", "kernel_diagonal", "mean_diagonal"]

_ROWS = 16_384  # rows read at a time


def kernel_diagonal(kernel: Kernel, rows: Rows) -> NDArray[np.float64]:
    """Return k(x, x) of a resolved kernel for each row; the rows are read once, unless all values are the same.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Linear
    >>> from gyrfalcon.operators.diagonal import kernel_diagonal
    >>> from gyrfalcon.sources import as_rows
    >>> kernel_diagonal(Linear(), as_rows(np.array([[1.0, 2.0], [0.0, 3.0]])))
    array([5., 9.])
    """
    constant = kernel.constant_diag()
    if constant is not None:
        return np.broadcast_to(_checked(kernel, np.array([constant]), 0, rows), (rows.shape[0],))
    parts = list(_parts(kernel, rows))
    return np.concatenate(parts) if parts else np.zeros(0)


def mean_diagonal(kernel: Kernel, rows: Rows) -> float:
    """Return the mean of k(x, x) of a resolved kernel over the rows, without an array of their length."""
    constant = kernel.constant_diag()
    if constant is not None:
        return float(_checked(kernel, np.array([constant]), 0, rows)[0])
    return diagonal_sum(kernel, rows) / rows.shape[0]


def diagonal_sum(kernel: Kernel, rows: Rows, weight: NDArray[Any] | None = None) -> float:
    """Return the sum of k(x, x) of a resolved kernel over the rows, times their weights, without an array of it."""
    constant = kernel.constant_diag()
    if constant is not None:
        value = float(_checked(kernel, np.array([constant]), 0, rows)[0])
        return value * (rows.shape[0] if weight is None else total(weight))
    found, start = 0.0, 0
    for part in _parts(kernel, rows):
        found += float(part.sum() if weight is None else part @ weight[start : start + len(part)])
        start += len(part)
    return found


def _parts(kernel: Kernel, rows: Rows) -> Iterator[NDArray[np.float64]]:
    start = 0
    for block in rows.blocks(_ROWS):
        yield _checked(kernel, kernel.diag(block), start, rows)
        start += block.shape[0]


def _checked(kernel: Kernel, values: Any, start: int, rows: Rows) -> NDArray[np.float64]:
    """Return values in float64, which must be finite; `start` is the number of their first row."""
    diagonal = np.asarray(values, dtype=np.float64)
    if not np.isfinite(diagonal).all():
        row = start + int(np.flatnonzero(~np.isfinite(diagonal))[0])
        raise ValueError(
            f"k(x, x) of {kernel!r} is not finite in {rows.dtype} at row {row}: remove NaN and infinity, and rescale "
            "the features"
        )
    return diagonal
