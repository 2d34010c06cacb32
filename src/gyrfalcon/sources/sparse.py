"""Rows of a scipy.sparse matrix, which are never made dense; only the current block is copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from .._utils.sparse import canonical
from .._utils.warnings import warn
from .._utils.words import a
from .base import Rows
from .blocks import Indices

_LARGE = 10_000_000  # stored values from which on a conversion to CSR, which is a second copy, gives a warning


class SparseRows(Rows):
    """The rows of a scipy.sparse matrix, in CSR blocks; `index` selects rows, in this order.

    A CSR matrix of float32 or float64 is used as it is: blocks are views of its arrays. Other formats are converted
    once, as are matrices with unsorted or duplicate column indices; duplicates are summed. By default blocks of a
    float32 matrix are float32, and all others float64.
    """

    is_sparse = True
    in_memory = True

    def __init__(self, X: Any, dtype: DTypeLike | None = None, index: Indices | None = None) -> None:
        if not sp.issparse(X):
            raise TypeError(f"rows are {a(type(X).__name__)}, not a scipy.sparse matrix: use ArrayRows for arrays")
        if X.ndim != 2:
            raise ValueError(f"rows must be a 2-D matrix, not one of shape {X.shape}")
        if X.dtype.kind not in "fiub":
            raise ValueError(f"rows of type {X.dtype} are not numbers: convert them to float32 or float64")
        self.dtype = np.dtype(dtype if dtype is not None else np.float32 if X.dtype == np.float32 else np.float64)
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"dtype={self.dtype} must be float32 or float64")
        self.X: Any = _csr(X)
        self.index = index
        self.shape = (self.X.shape[0] if index is None else len(index), self.X.shape[1])

    def blocks(self, size: int) -> Iterator[Any]:
        for start in range(0, self.shape[0], size):
            stop = min(start + size, self.shape[0])
            yield self._slice(start, stop) if self.index is None else self._typed(self.X[self.index[start:stop]])

    def take(self, indices: Indices) -> Any:
        return self._typed(self.X[indices if self.index is None else self.index[indices]])

    def subset(self, indices: Indices) -> SparseRows:
        """Return the rows at `indices`, in any order, which are copied block by block when they are read."""
        other = object.__new__(SparseRows)  # X has been checked
        other.X, other.dtype = self.X, self.dtype
        other.index = np.asarray(indices) if self.index is None else self.index[indices]
        other.shape = (len(other.index), self.shape[1])
        return other

    def _slice(self, start: int, stop: int) -> Any:
        X = self.X
        first, last = X.indptr[start], X.indptr[stop]
        # set one by one, because the constructor copies views
        block = sp.csr_array((stop - start, X.shape[1]), dtype=X.dtype)
        block.data, block.indices = X.data[first:last], X.indices[first:last]
        block.indptr = X.indptr[start : stop + 1] - first
        return self._typed(block)

    def _typed(self, block: Any) -> Any:
        block = block.astype(self.dtype, copy=False)
        block.has_canonical_format = True  # as X has: SciPy need not check again
        return block


def warn_of_conversion(X: Any) -> None:
    """Warn if a large matrix is about to be converted to CSR."""
    if X.format != "csr" and X.nnz > _LARGE:
        warn(
            f"sparse rows in {X.format.upper()} format are converted to CSR, a second copy of {X.nnz:,} numbers: give "
            "X.tocsr() and delete X to save that memory",
            UserWarning,
        )


def _csr(X: Any) -> Any:
    """Convert to a valid CSR array with sorted and unique column indices, which shares the arrays of `X` if it can."""
    if X.format != "csr":
        warn_of_conversion(X)
        return _csr(X.tocsr())
    csr = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    csr.check_format(full_check=True)  # SciPy's C code would read outside its arrays
    return canonical(csr)
