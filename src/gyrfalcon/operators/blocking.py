"""The size of a block of rows: a function of the problem alone, so that sums do not depend on threads or memory."""

from __future__ import annotations

from typing import Any

import scipy.sparse

__all__ = ["block_rows", "stored_per_row"]

_BLOCK_ENTRIES = 1 << 23  # kernel entries of a block: some milliseconds of work
_BLOCKS_AT_LEAST = 32  # ... but enough blocks to share among threads
SMALLEST_BLOCK = 96


def block_rows(n: int, n_centers: int, n_features: int) -> int:
    """Choose the number of rows of a block.

    Parameters
    ----------
    n, n_centers : int
        Shape of K.
    n_features : int
        Stored values per row.

    Examples
    --------
    >>> from gyrfalcon.operators.blocking import block_rows
    >>> block_rows(1_000_000, 1_000, 10)
    8448
    """
    size = min(_BLOCK_ENTRIES // max(1, n_centers, 4 * n_features), -(-n // _BLOCKS_AT_LEAST))
    return max(SMALLEST_BLOCK, -(-size // SMALLEST_BLOCK) * SMALLEST_BLOCK)


def stored_per_row(centers: Any) -> int:
    """Average stored values per row, from the centers."""
    return int(centers.nnz // centers.shape[0] if scipy.sparse.issparse(centers) else centers.shape[1])
