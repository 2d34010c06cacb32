"""Tiles: the contract of a backend, to run blocks of rows against prepared centers, with plain defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
BlockWeight = Array | Callable[[slice, Array], Array] | None

# Entries of a tile of K that is made, used and thrown away: large enough for GEMM, small enough to stay in cache.
_TILE_ENTRIES = 1 << 19


def check_centers(centers: Any, dtype: DTypeLike, *, sparse: bool = False) -> Any:
    """Check centers and convert them to what tiles are prepared from: a C-contiguous array, or CSR for sparse rows.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.backends import check_centers
    >>> check_centers([[0, 1], [2, 3]], np.float32).dtype
    dtype('float32')
    """
    points = centers if sp.issparse(centers) else np.asarray(centers)
    if points.ndim != 2 or points.shape[0] == 0:
        raise ValueError(f"centers must be a 2-D array with at least one row, not of shape {points.shape}")
    if sparse:
        points = sp.csr_array(points, dtype=dtype)
    elif sp.issparse(points):
        raise ValueError("centers are sparse and rows are not: give both sparse, or centers.toarray()")
    else:
        points = np.ascontiguousarray(points, dtype=dtype)
    if not np.isfinite(points.data if sparse else points).all():
        raise ValueError(
            "centers contain NaN or infinity, and so does X if they were drawn from it: remove or impute those values"
        )
    return points


def weighted(T: Array, weight: BlockWeight, part: slice) -> Array:
    """Compute W T for the rows `part` of a block; `weight` is None, one number per row, or a function of part and T.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.backends import weighted
    >>> weighted(np.ones((2, 1)), np.array([1.0, 2.0, 3.0]), slice(1, 3))
    array([[2.],
           [3.]])
    """
    if weight is None:
        return T
    if callable(weight):
        U = np.asarray(weight(part, T))
        check_weighted(U, T)
        return U.astype(T.dtype, copy=False)
    return T * weight[part][:, None]


def check_weighted(U: Any, T: Any) -> None:
    """Raise a ValueError if what a weight made of T, arrays or tensors, has another shape.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.backends import check_weighted
    >>> check_weighted(np.ones((5, 2)), np.zeros((5, 2)))
    >>> try:
    ...     check_weighted(np.ones(5), np.zeros((5, 2)))
    ... except ValueError:
    ...     print("refused")
    refused
    """
    if U.shape != T.shape:
        given, wanted = tuple(U.shape), tuple(T.shape)
        raise ValueError(f"weight gave an array of shape {given} for {len(T)} rows: it must give {wanted}")


def check_indices(rows: Any) -> None:
    """Raise a ValueError if the index arrays of a CSR matrix do not fit its shape and data."""
    (n, d), stored = rows.shape, len(rows.data)
    starts, columns = rows.indptr, rows.indices
    if len(starts) != n + 1 or len(columns) != stored:
        raise ValueError(f"a sparse block of shape {rows.shape} has index arrays of the wrong length")
    if starts[0] < 0 or starts[-1] > stored or (np.diff(starts) < 0).any():
        raise ValueError(f"the indptr of a sparse block does not increase from 0 to its {stored} numbers")
    # viewed as unsigned, negative indices are large
    if stored and int(columns.view(f"u{columns.itemsize}").max()) >= d:
        raise ValueError(f"a column index is outside the {d} features of a sparse block")


class Tiles(ABC):
    """A kernel and its prepared centers, which multiply blocks of rows.

    A block is an array, or a CSR matrix where the centers are one. Only `fill` has to be defined. The verbs `matmat`,
    `rmatmat` and `sandwich` take a block of rows; `right`, `left` and `both` are the same products with a block of K
    that already exists. `V` is (M, k), `U`, `T` and `added` are (b, k). Sums over rows are returned in float64.

    Attributes
    ----------
    worth_keeping : bool
        Whether products with a K kept in memory are faster than computing it again.
    entry_cost : float
        Nanoseconds in which one core makes and uses an entry, by a fixed model; infinite where there is none.
    fits_half : bool
        Whether entries lie between 0 and 1, where 16 bits hold them, and `half_both` is fast.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.backends import check_centers, prepare
    >>> from gyrfalcon.kernels import Gaussian
    >>> Z = np.array([[0.0], [1.0]])
    >>> tiles = prepare(Gaussian(1.0), check_centers(Z, np.float64))
    >>> block = tiles.accept(np.array([[0.0]]))
    >>> tiles.matmat(block, np.eye(2)).round(3)
    array([[1.   , 0.607]])
    """

    worth_keeping = True
    fits_half = False
    entry_cost = float("inf")

    def __init__(self, n_centers: int, dtype: Any, sparse: bool = False) -> None:
        self.n_centers = n_centers
        self.dtype = np.dtype(dtype)
        self.sparse = sparse
        self._tile_rows = max(48, _TILE_ENTRIES // max(1, n_centers) // 48 * 48)

    def accept(self, block: Any) -> Any:
        """Convert a source's block to what the verbs take, or raise a ValueError; `check_finite` is left to threads."""
        if sp.issparse(block) != self.sparse:
            kinds = ("a dense array", "sparse") if self.sparse else (f"a sparse {block.format} matrix", "dense")
            raise ValueError(
                f"a block of rows is {kinds[0]} where the centers are {kinds[1]}: give both sparse (CSR), or both dense"
            )
        if self.sparse:
            return self._accept_sparse(block)
        rows = np.ascontiguousarray(block, dtype=self.dtype)
        if rows.ndim != 2:
            raise ValueError(f"a block of rows has shape {rows.shape}: it must be 2-D")
        return rows

    def _accept_sparse(self, block: Any) -> Any:
        # values and indices are not looked at here: see `check_finite`
        if block.format != "csr" or block.ndim != 2:
            raise ValueError(f"a block of rows is a sparse {block.format} matrix: sources must give CSR ones")
        index = block.indices.dtype if block.indices.dtype in (np.int32, np.int64) else np.dtype(np.int64)
        data = np.ascontiguousarray(block.data, dtype=self.dtype)
        indices = np.ascontiguousarray(block.indices, dtype=index)
        indptr = np.ascontiguousarray(block.indptr, dtype=index)
        if data is block.data and indices is block.indices and indptr is block.indptr:
            return block
        return type(block)((data, indices, indptr), shape=block.shape)

    def check_finite(self, rows: Any) -> bool:
        """Return whether all values of an accepted block are finite: native tiles may turn a NaN into a number.

        Raise a ValueError if indices of a sparse block lead outside of it: compiled code trusts them.
        """
        if self.sparse:
            check_indices(rows)
        return bool(np.isfinite(rows.data if self.sparse else rows).all())

    @abstractmethod
    def fill(self, rows: Array, out: Array | None = None) -> Array:
        """Compute k(rows, centers), into `out` if given."""

    def right(self, K: Array, V: Array) -> Array:
        """Compute K V."""
        with np.errstate(over="ignore", invalid="ignore"):  # the operator refuses products that are not finite
            product: Array = K @ V
        return product

    def left(self, K: Array, U: Array) -> Array:
        """Compute K' U; BLAS sums in the tile's own precision, over the rows of one tile only."""
        total = np.zeros((K.shape[1], U.shape[1]))
        step = self._tile_rows
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(K), step):
                total += K[start : start + step].T @ U[start : start + step]
        return total

    def both(
        self, K: Array, V: Array, weight: BlockWeight, part: slice | None = None, added: Array | None = None
    ) -> Array:
        """Compute K' W (K V + added) for the rows `part` of a block; tile by tile, so that K is read only once."""
        # a function is called once: passing Python's lock between threads takes longer than reading K again
        total = np.zeros((self.n_centers, V.shape[1]))
        offset = 0 if part is None else part.start
        for tile in [slice(0, len(K))] if callable(weight) else self.parts(K):
            at = slice(offset + tile.start, offset + tile.stop)
            T = self.right(K[tile], V)
            total += self.left(K[tile], weighted(T if added is None else T + added[at], weight, at))
        return total

    def narrow(self, K: Array, out: Array) -> None:
        """Round a block of K, whose entries lie between 0 and 1, to steps of 1/65535, into `out`."""
        out[...] = np.rint(K * 65535.0)

    def half_both(self, K: Array, V: Array, weight: Array | None) -> Array:
        """Compute K' W K V with a block of K in 16 bits, as `narrow` makes it."""
        total = np.zeros((self.n_centers, V.shape[1]))
        for part in self.parts(K):
            total += self.both((K[part] / 65535.0).astype(self.dtype), V, weight, part)
        return total

    def matmat(self, rows: Array, V: Array) -> Array:
        """Compute K V."""
        out = np.empty((rows.shape[0], V.shape[1]), dtype=self.dtype)
        for part in self.parts(rows):
            out[part] = self.right(self.fill(rows[part]), V)
        return out

    def rmatmat(self, rows: Array, U: Array) -> Array:
        """Compute K' U."""
        total = np.zeros((self.n_centers, U.shape[1]))
        for part in self.parts(rows):
            total += self.left(self.fill(rows[part]), U[part])
        return total

    def sandwich(self, rows: Array, V: Array, weight: BlockWeight, added: Array | None = None) -> Array:
        """Compute K' W (K V + added)."""
        total = np.zeros((self.n_centers, V.shape[1]))
        for part in self.parts(rows):
            total += self.both(self.fill(rows[part]), V, weight, part, added)
        return total

    def signed_sums(self, K: Array, rows: Array, centers: Array, coef: Array) -> Array:
        """Compute sum_l K_il coef_lc sign(rows_ij - centers_lj) for each row i, feature j and column c: (b, d, k).

        `centers` and `coef` are transposed, of shape (d, M) and (k, M).
        """
        out = np.empty((*rows.shape, len(coef)), dtype=self.dtype)
        for j, values in enumerate(centers):
            out[:, j] = (K * np.sign(rows[:, j, None] - values)) @ coef.T
        return out

    def parts(self, rows: Array) -> list[slice]:
        """Split the rows of a block into parts whose tiles stay in cache."""
        n, step = rows.shape[0], self._tile_rows
        return [slice(start, min(start + step, n)) for start in range(0, n, step)]
