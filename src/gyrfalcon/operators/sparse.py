"""A linear kernel of sparse rows: columns that no center has are dropped, and a K that is sparse is kept as it is.

Where two rows rarely share a column, K has fewer stored values than the rows. Counts of words share columns in nearly
every pair, so K is not sparse: then `sparse_products` returns None, and K is never stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.memory import parse_memory
from .._utils.threads import effective_n_jobs, ordered_map
from ..backends import weighted
from ..kernels import Kernel, KernelFunction, linear_form
from ..sources import Rows
from ..sources.row_matrix import RowMatrix
from ..sources.sparse import SparseRows
from .base import Operator, Weight, as_columns, check_image, check_product, check_weight, recording
from .dense import KernelOperator

__all__ = ["SparseOperator", "linear_operator"]

Array = NDArray[Any]

_SEARCHED_ROWS = 4_096  # rows whose columns are looked up at a time
_SAMPLE = 4_096  # rows from which the size of K is judged


def linear_operator(
    kernel: Kernel | str | KernelFunction,
    rows: SparseRows,
    centers: Any,
    *,
    n_jobs: int | None = None,
    memory_budget: int | float | str = "auto",
) -> Operator:
    """Make the operator of a linear kernel; columns that no center has are dropped if that saves much memory.

    A dense K is never kept.
    """
    budget = parse_memory(memory_budget)
    seen = drop_unseen_columns(rows, centers, effective_n_jobs(n_jobs), budget)
    operator = KernelOperator(kernel, seen, centers, n_jobs=n_jobs, memory_budget=0)
    if seen is rows:
        return operator
    products = sparse_products(seen.X, sp.csr_array(centers), budget)
    return operator if products is None else SparseOperator(operator, products)


def drop_unseen_columns(rows: SparseRows, centers: Any, n_threads: int, budget: int) -> SparseRows:
    """Copy the rows without the columns that no center has; return the rows themselves where that saves little."""
    if not sp.issparse(centers) or centers.shape[1] != rows.shape[1] or budget == 0:
        return rows
    columns = sp.csr_array(centers).indices
    bits = np.zeros(rows.shape[1] // 8 + 1, dtype=np.uint8)
    np.bitwise_or.at(bits, columns >> 3, np.left_shift(1, columns & 7).astype(np.uint8))

    def see(block: Any) -> tuple[Any, bool]:
        seen = np.flatnonzero(_marked(bits, block.indices))
        parts = block.data[seen], block.indices[seen], np.searchsorted(seen, block.indptr)
        # non-finite values are the operator's to complain about
        little = 2 * len(seen) > len(block.data) or not np.isfinite(block.data).all()
        return sp.csr_array(parts, shape=block.shape), little

    blocks, size = [], 0
    for block, little in ordered_map(see, rows.blocks(_SEARCHED_ROWS), n_threads):
        size += block.data.nbytes + block.indices.nbytes
        if little or 2 * size > budget:  # twice while the blocks are joined
            return rows
        blocks.append(block)
    return SparseRows(sp.vstack(blocks, format="csr"), rows.dtype) if blocks else rows


def _marked(bits: NDArray[np.uint8], columns: NDArray[Any]) -> NDArray[Any]:
    """Return, for each column, whether its bit is set."""
    try:
        from .. import _core
    except ImportError:
        return bits[columns >> 3] & np.left_shift(1, columns & 7).astype(np.uint8)
    marked = np.empty(len(columns), dtype=bool)
    _core.marked(bits, columns, marked)
    return marked


def sparse_products(X: Any, centers: Any, budget: int) -> Any:
    """Compute X C' in float64 for an X without unseen columns; None if it is much larger than X or than `budget`."""
    # a number of K takes 12 bytes with its index, here and in the transpose, and room while it is made
    if 40 * 2 * X.nnz > budget:
        return None
    # renumber the columns: SciPy's transpose is as long as there are columns
    columns, at = np.unique(centers.indices, return_inverse=True)
    transposed = sp.csr_array((centers.data, at, centers.indptr), shape=(centers.shape[0], len(columns))).T.tocsr()
    transposed = transposed.astype(np.float64)
    at = np.searchsorted(columns, X.indices)
    X = sp.csr_array((X.data.astype(np.float64), at, X.indptr), shape=(X.shape[0], len(columns)))
    some = X[:: max(1, X.shape[0] // _SAMPLE)]
    if (some @ transposed).nnz > 2 * some.nnz:
        return None
    return sp.csr_array(X @ transposed)


class SparseOperator(Operator):
    """The operator of a linear kernel whose `products` X C' are kept as a CSR matrix and multiplied by SciPy.

    `tiled` is the same matrix made in tiles: for K itself, for the centers' Gram matrix, and for other rows.
    """

    def __init__(self, tiled: KernelOperator, products: Any) -> None:
        self.kernel, self.rows, self.centers = tiled.kernel, tiled.rows, tiled.centers
        self.shape, self.dtype, self.passes = tiled.shape, tiled.dtype, 0
        form = linear_form(self.kernel)
        assert form is not None
        self._slope, self._constant = form
        self._tiled = tiled
        self._products, self._transposed = products, products.T.tocsr()

    @property
    def keeps(self) -> bool:
        return True

    @property
    def arithmetic(self) -> str:
        return "kept as a sparse matrix"

    @property
    def kept_bytes(self) -> int:
        """Memory of the sparse K and its transpose."""
        return sum(part.nbytes for K in (self._products, self._transposed) for part in (K.data, K.indices, K.indptr))

    def matmat(self, V: ArrayLike) -> Array:
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        product = self._right(columns)
        self.passes += 1
        return like_given(product)

    def rmatmat(self, U: ArrayLike) -> Array:
        columns, like_given = as_columns(U, self.shape[0], self.dtype, "U")
        product = self._left(columns)
        self.passes += 1
        return like_given(product)

    def sandwich(self, V: ArrayLike, weight: Weight = None, *, KV: RowMatrix | None = None) -> Array:
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        checked = check_weight(weight, self.shape[0])
        if checked is not None and not callable(checked):
            checked = checked.astype(self.dtype)
        if KV is not None:
            checked = recording(checked, check_image(KV, self.shape[0], columns.shape[1], self.dtype))
        product = self._left(weighted(self._right(columns), checked, slice(0, self.shape[0])))
        self.passes += 1
        return like_given(product)

    def centers_gram(self, dtype: DTypeLike | None = None) -> Array:
        return self._tiled.centers_gram(dtype)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        yield from self._tiled.blocks()
        self.passes += 1

    def on(self, rows: Rows | ArrayLike) -> KernelOperator:
        return self._tiled.on(rows)

    def fill(self) -> None:
        """Do nothing: K was filled when the operator was made."""

    def _right(self, V: Array) -> Array:
        product = self._slope * (self._products @ V) + self._constant * V.sum(axis=0, dtype=np.float64)
        return check_product(product.astype(self.dtype), self.kernel, self.dtype)

    def _left(self, U: Array) -> Array:
        product = self._slope * (self._transposed @ U) + self._constant * U.sum(axis=0, dtype=np.float64)
        return check_product(product, self.kernel, self.dtype)
