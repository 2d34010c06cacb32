"""Rows of a scipy.sparse matrix, which are never made dense; only the current block is copied."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from .._utils.memory import parse_memory
from .._utils.sparse import canonical
from .._utils.threads import effective_n_jobs, ordered_map
from ..kernels import Kernel, KernelFunction, as_kernel, linear_form
from .base import Rows
from .blocks import Indices

if TYPE_CHECKING:
    from ..operators.dense import KernelOperator

_BLOCK = 4_096  # rows looked through at a time for what the centers can see
_LARGE = 10_000_000  # stored values from which on a conversion to CSR, which is a second copy, gives a warning


class SparseRows(Rows):
    """The rows of a scipy.sparse matrix, in CSR blocks.

    A CSR matrix of float32 or float64 is used as it is: blocks are views of its arrays. Other formats are converted
    once, as are matrices with unsorted or duplicate column indices; duplicates are summed.

    Parameters
    ----------
    X : sparse matrix or array of shape (n, d)
    dtype : float32 or float64, optional
        The type of the blocks; by default float32 stays and all else becomes float64.
    index : array of int, optional
        The rows to use, in this order; all by default.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from gyrfalcon.sources.sparse import SparseRows
    >>> rows = SparseRows(sp.random(5, 1_000_000, density=1e-5, format="csr", random_state=0))
    >>> [block.shape for block in rows.blocks(3)]
    [(3, 1000000), (2, 1000000)]
    """

    is_sparse = True

    def __init__(self, X: Any, dtype: DTypeLike | None = None, index: Indices | None = None) -> None:
        if not sp.issparse(X):
            raise TypeError(f"rows are a {type(X).__name__}, not a scipy.sparse matrix: use ArrayRows for arrays")
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

    def make_operator(
        self,
        kernel: Kernel | str | KernelFunction,
        centers: Any,
        *,
        n_jobs: int | None = None,
        memory_budget: int | float | str = "auto",
    ) -> KernelOperator:
        """k(rows, centers). Of a linear kernel not K is kept, but what the centers see of the rows, if that is less.

        Numbers in columns that no center has never matter then, and in very wide rows most are.
        """
        from ..operators.dense import KernelOperator

        rows: SparseRows = self
        if linear_form(as_kernel(kernel)) is not None:
            budget = parse_memory(memory_budget)
            rows = self._seen(centers, effective_n_jobs(n_jobs), budget)
            memory_budget = 0
            if rows is not self:
                from ..operators.sparse import SparseOperator, sparse_kernel

                products = sparse_kernel(rows.X, sp.csr_array(centers), budget)
                if products is not None:
                    return SparseOperator(products, kernel, rows, centers, n_jobs)
        return KernelOperator(kernel, rows, centers, n_jobs=n_jobs, memory_budget=memory_budget)

    def _seen(self, centers: Any, n_threads: int, budget: int) -> SparseRows:
        """The rows without the columns that no center has; the rows themselves where that would save little."""
        if not sp.issparse(centers) or centers.shape[1] != self.shape[1] or budget == 0:
            return self
        columns = sp.csr_array(centers).indices
        bits = np.zeros(self.shape[1] // 8 + 1, dtype=np.uint8)
        np.bitwise_or.at(bits, columns >> 3, np.left_shift(1, columns & 7).astype(np.uint8))

        def see(block: Any) -> tuple[Any, bool]:
            seen = np.flatnonzero(_marked(bits, block.indices))
            parts = block.data[seen], block.indices[seen], np.searchsorted(seen, block.indptr)
            # numbers that are not finite are the operator's to complain about
            little = 2 * len(seen) > len(block.data) or not np.isfinite(block.data).all()
            return sp.csr_array(parts, shape=block.shape), little

        blocks, size = [], 0
        for block, little in ordered_map(see, self.blocks(_BLOCK), n_threads):
            size += block.data.nbytes + block.indices.nbytes
            if little or 2 * size > budget:  # twice while the blocks become one
                return self
            blocks.append(block)
        return SparseRows(sp.vstack(blocks, format="csr"), self.dtype) if blocks else self

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


def _marked(bits: NDArray[np.uint8], columns: NDArray[Any]) -> NDArray[Any]:
    """Which columns have their bit set."""
    try:
        from .. import _core  # type: ignore[attr-defined]
    except ImportError:
        return bits[columns >> 3] & np.left_shift(1, columns & 7).astype(np.uint8)
    marked = np.empty(len(columns), dtype=bool)
    _core.marked(bits, columns, marked)
    return marked


def warn_of_conversion(X: Any, stacklevel: int) -> None:
    """Warn if a large matrix is about to be converted to CSR."""
    if X.format != "csr" and X.nnz > _LARGE:
        warnings.warn(
            f"sparse rows in {X.format.upper()} format are converted to CSR, a second copy of {X.nnz:,} numbers: give "
            "X.tocsr() and delete X to save that memory",
            UserWarning,
            stacklevel=stacklevel,
        )


def _csr(X: Any) -> Any:
    """Convert to a valid CSR array with sorted and unique column indices, which shares the arrays of `X` if it can."""
    if X.format != "csr":
        warn_of_conversion(X, stacklevel=5)
        return _csr(X.tocsr())
    csr = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    csr.check_format(full_check=True)  # SciPy's C code would read outside its arrays
    return canonical(csr)
