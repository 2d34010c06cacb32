"""Values k(x, x) for all rows, which products with the centers do not provide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernels import Kernel
from ..sources import Rows

__all__ = ["kernel_diagonal"]

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
    n, constant = rows.shape[0], kernel.constant_diag()
    if constant is not None:
        diagonal = np.broadcast_to(np.float64(constant), (n,))
    else:
        parts = [np.asarray(kernel.diag(block), dtype=np.float64) for block in rows.blocks(_ROWS)]
        diagonal = np.concatenate(parts) if parts else np.zeros(0)
    if not np.isfinite(diagonal).all():
        row = int(np.flatnonzero(~np.isfinite(diagonal))[0])
        raise ValueError(
            f"k(x, x) of {kernel!r} is not finite in {rows.dtype} at row {row}: remove NaN and infinity, and rescale "
            "the features"
        )
    return diagonal
