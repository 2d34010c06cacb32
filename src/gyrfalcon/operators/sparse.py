"""A linear kernel's K that is itself sparse: kept as it is, products are SciPy's.

Rows so wide that two of them rarely share a column have a K with less in it than the rows. Of words nearly every pair
has some in common, and K is not sparse: then `sparse_kernel` gives None, and K is never made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ..backends.base import weighted
from ..kernels import linear_form
from .dense import KernelOperator, Weight

Array = NDArray[Any]

_SAMPLE = 4_096  # rows from which the size of K is judged


def sparse_kernel(X: Any, centers: Any, budget: int) -> Any:
    """X C' in float64 if it is hardly larger than `X` and, with its transpose, within `budget` bytes; else None.

    `X` must not have columns that no center has.
    """
    # a number of K takes 12 bytes with its index, here and in the transpose, and room while it is made
    if 40 * 2 * X.nnz > budget:
        return None
    # the columns numbered anew: SciPy's transpose is as long as there are columns
    columns, at = np.unique(centers.indices, return_inverse=True)
    transposed = sp.csr_array((centers.data, at, centers.indptr), shape=(centers.shape[0], len(columns))).T.tocsr()
    transposed = transposed.astype(np.float64)
    at = np.searchsorted(columns, X.indices)
    X = sp.csr_array((X.data.astype(np.float64), at, X.indptr), shape=(X.shape[0], len(columns)))
    some = X[:: max(1, X.shape[0] // _SAMPLE)]
    if (some @ transposed).nnz > 2 * some.nnz:
        return None
    return sp.csr_array(X @ transposed)


class SparseOperator(KernelOperator):
    """The operator of a linear kernel whose X C' is kept as the sparse matrix `products`."""

    def __init__(self, products: Any, kernel: Any, rows: Any, centers: Any, n_jobs: int | None) -> None:
        super().__init__(kernel, rows, centers, n_jobs=n_jobs, memory_budget=0)
        form = linear_form(self.kernel)
        assert form is not None
        self._slope, self._constant = form
        self._products, self._transposed = products, products.T.tocsr()

    @property
    def arithmetic(self) -> str:
        return "kept as a sparse matrix"

    @property
    def kept_bytes(self) -> int:
        """What the sparse K and its transpose take."""
        return sum(part.nbytes for K in (self._products, self._transposed) for part in (K.data, K.indices, K.indptr))

    def matmat(self, V: ArrayLike) -> Array:
        columns, as_given = self._columns(V, self.shape[1], "V")
        return as_given(self._right(columns))

    def rmatmat(self, U: ArrayLike) -> Array:
        columns, as_given = self._columns(U, self.shape[0], "U")
        return as_given(self._left(columns))

    def sandwich(self, V: ArrayLike, weight: Weight = None) -> Array:
        columns, as_given = self._columns(V, self.shape[1], "V")
        checked = self._weight(weight)
        T = self._right(columns)
        self.passes -= 1  # both products are one pass, as everywhere
        return as_given(self._left(weighted(T, checked, slice(0, self.shape[0]))))

    def on(self, rows: Any) -> KernelOperator:
        other = super().on(rows)
        other.__class__ = KernelOperator  # its K is another one
        del other._products, other._transposed  # type: ignore[attr-defined]
        return other

    def _right(self, V: Array) -> Array:
        self.passes += 1
        product = self._slope * (self._products @ V) + self._constant * V.sum(axis=0, dtype=np.float64)
        return self._finite(product.astype(self.dtype))

    def _left(self, U: Array) -> Array:
        self.passes += 1
        product = self._slope * (self._transposed @ U) + self._constant * U.sum(axis=0, dtype=np.float64)
        return self._finite(product)
