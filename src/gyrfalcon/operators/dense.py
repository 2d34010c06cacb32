"""KernelOperator: the tall matrix K = k(rows, centers), n x M, that is never built, and its three verbs.

Every method here and every way of running it is a few products with K, and each product is a concatenation or a sum
over blocks of rows:

    matmat(V)            K V              one block of the result for each block of rows
    rmatmat(U)           K' U             a sum over blocks
    sandwich(V, weight)  K' W (K V)       a sum over blocks; each tile of K is computed once and used twice

          rows (sources/)            KernelOperator                    tiles (backends/)
     blocks(size), take(i)   -->   the block loop, this file   -->   a block against prepared centers
                                   ordered, on a few threads         fused C++, or NumPy

Solvers know the three verbs and nothing else. Blocks have a size that depends on the problem alone and are added in
their order in float64, so that results have the same bits for any number of threads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import backends
from .._utils.memory import parse_memory
from .._utils.threads import effective_n_jobs, ordered_map, share, single_threaded_blas
from ..backends.base import BlockWeight
from ..kernels import Kernel, KernelFunction, as_kernel
from ..sources import Rows, as_rows

__all__ = ["KernelOperator", "Rowwise", "make_operator"]

Array = NDArray[Any]
BlockProduct = Callable[[slice, Array], Array]
Weight = ArrayLike | Callable[[slice, Array], Array] | None

_BLOCK_ENTRIES = 1 << 23  # kernel entries of a block: some milliseconds of work
_BLOCKS_AT_LEAST = 32  # ... but enough blocks to share among threads
_SMALLEST_BLOCK = 96


class Rowwise:
    """A weight for `KernelOperator.sandwich` that says which of each row's numbers it is a function of.

    An operator whose rows are elsewhere can then send each part its own numbers, instead of fetching K V.

    Parameters
    ----------
    function : callable
        ``function(T, *parts)``: T = (K V)[at] of shape (b, k) and the rows `at` of the arrays, to an array like T.
    arrays : arrays whose first axis is that of the rows
    """

    def __init__(self, function: Callable[..., Array], *arrays: Array) -> None:
        self.function = function
        self.arrays = arrays

    def __call__(self, at: slice, T: Array) -> Array:
        return self.function(T, *(array[at] for array in self.arrays))


def block_rows(n: int, n_centers: int, n_features: int) -> int:
    """Rows of a block. A function of the problem alone: the same sums whatever the threads and the memory."""
    size = min(_BLOCK_ENTRIES // max(1, n_centers, 4 * n_features), -(-n // _BLOCKS_AT_LEAST))
    return max(_SMALLEST_BLOCK, -(-size // _SMALLEST_BLOCK) * _SMALLEST_BLOCK)


def as_points(centers: Any, dtype: DTypeLike, *, sparse: bool = False) -> Any:
    """Centers as the tiles want them: a C-contiguous array, or CSR where the rows are CSR; checked."""
    points = centers if scipy.sparse.issparse(centers) else np.asarray(centers)
    if points.ndim != 2 or points.shape[0] == 0:
        raise ValueError(f"centers must be a 2-D array with at least one row, not of shape {points.shape}")
    if sparse:
        points = scipy.sparse.csr_array(points, dtype=dtype)
    elif scipy.sparse.issparse(points):
        raise ValueError("centers are sparse and rows are not: give both sparse, or centers.toarray()")
    else:
        points = np.ascontiguousarray(points, dtype=dtype)
    if not np.isfinite(points.data if sparse else points).all():
        raise ValueError(
            "centers contain NaN or infinity, and so does X if they were drawn from it: remove or impute those values"
        )
    return points


def _first_bad(start: int, rows: Any, names: Sequence[str] | None) -> str:
    """Where the first number of a block is that is not finite."""
    if scipy.sparse.issparse(rows):
        at = int(np.flatnonzero(~np.isfinite(rows.data))[0])
        row, column = int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
        value = rows.data[at]
    else:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        value = rows[row, column]
    return f"row {start + row} has {value} in feature {column if names is None else repr(names[column])}"


def _width(points: Any) -> int:
    """Numbers of a row, as far as the centers tell."""
    return int(points.nnz // points.shape[0] if scipy.sparse.issparse(points) else points.shape[1])


class KernelOperator:
    """The matrix k(rows, centers) as an operator.

    Parameters
    ----------
    kernel : Kernel, str or callable
        See `gyrfalcon.kernels`. Parameters given as "scale" are worked out from the centers.
    rows : array or sparse matrix of shape (n, d), or a source
        float32 rows make float32 tiles; all else makes float64 tiles.
    centers : array or sparse matrix of shape (M, d)
    backend : {"auto", "native", "reference"}
        "auto" is native where the extension is built.
    n_jobs : int or None
        Threads; None is every core. Results have the same bits for any number.
    memory_budget : "auto", int or str
        If K fits it is kept, and products after the first run at memory speed. Bytes, a string such as "4GB", or
        "auto": half the memory available. 0 never keeps it.

    Attributes
    ----------
    shape : tuple of int
        (n, M).
    dtype : dtype
        Of the tiles.
    passes : int
        How often the rows have been passed over.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> X = np.random.default_rng(0).standard_normal((1000, 3))
    >>> K = KernelOperator("gaussian", X, X[:10])
    >>> v = np.ones(10)
    >>> bool(np.allclose(K.sandwich(v), K.rmatmat(K.matmat(v))))
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction,
        rows: Rows | ArrayLike,
        centers: ArrayLike,
        *,
        backend: str = "auto",
        n_jobs: int | None = None,
        memory_budget: int | float | str = "auto",
    ) -> None:
        self.rows = as_rows(rows)
        self.dtype = np.dtype(self.rows.dtype)
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"rows of type {self.dtype} cannot be used: a source must give float32 or float64")
        self.centers = as_points(centers, self.dtype, sparse=self.rows.is_sparse)
        if self.rows.shape[1] != self.centers.shape[1]:
            raise ValueError(
                f"rows have {self.rows.shape[1]} features and centers {self.centers.shape[1]}: they must have the same"
            )
        if self.centers.shape[1] == 0:
            raise ValueError("rows and centers have no features: at least one is needed")
        self.kernel = as_kernel(kernel).resolve(self.centers)
        self.shape = (self.rows.shape[0], self.centers.shape[0])
        self.passes = 0
        self._n_threads = effective_n_jobs(n_jobs)
        self._backend = backend
        self._tiles = backends.prepare(self.kernel, self.centers, backend)
        self._block = self._block_rows()
        # K is allocated now (that costs nothing until it is written) and filled by the first pass
        self._kept: Array | None = None
        self._filled = False
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        if self._tiles.worth_keeping and 0 < size <= parse_memory(memory_budget):
            self._kept = np.empty(self.shape, dtype=self.dtype)

    @property
    def keeps(self) -> bool:
        """Whether K is kept in memory."""
        return self._kept is not None

    @property
    def arithmetic(self) -> str:
        """How products are made, in words: those made in another way have other last bits."""
        return "kept in memory" if self.keeps else "made again"

    @property
    def kept_bytes(self) -> int:
        """What K takes of this process's memory."""
        return 0 if self._kept is None else self._kept.nbytes

    def matmat(self, V: ArrayLike) -> Array:
        """K V, in the dtype of the tiles. `V` has shape (M,) or (M, k)."""
        columns, as_given = self._columns(V, self.shape[1], "V")
        out = np.empty((self.shape[0], columns.shape[1]), dtype=self.dtype)

        for at, product in self._pass(
            lambda at, rows: self._tiles.matmat(rows, columns),
            lambda at, K: self._tiles.right(K, columns),
            np.concatenate,
        ):
            out[at] = product
        return as_given(out)

    def rmatmat(self, U: ArrayLike) -> Array:
        """K' U, in float64. `U` has shape (n,) or (n, k)."""
        columns, as_given = self._columns(U, self.shape[0], "U")
        total = self._sum(
            columns.shape[1],
            lambda at, rows: self._tiles.rmatmat(rows, columns[at]),
            lambda at, K: self._tiles.left(K, columns[at]),
        )
        return as_given(total)

    def sandwich(self, V: ArrayLike, weight: Weight = None) -> Array:
        """K' W (K V), in float64 and in one pass.

        Parameters
        ----------
        V : array of shape (M,) or (M, k)
        weight : None, array of shape (n,), or callable
            The diagonal of W; or ``weight(at, T)``, called from several threads with a slice of the rows and
            T = (K V)[at] of shape (b, k), which gives what K' is multiplied with, of the same shape. So
            ``sandwich(a, lambda at, T: y[at] - T)`` is K'(y - K a).
        """
        columns, as_given = self._columns(V, self.shape[1], "V")
        checked = self._weight(weight)

        def of_block(at: slice) -> BlockWeight:
            if callable(checked):
                return lambda part, T: checked(slice(at.start + part.start, at.start + part.stop), T)
            return None if checked is None else checked[at]

        total = self._sum(
            columns.shape[1],
            lambda at, rows: self._tiles.sandwich(rows, columns, of_block(at)),
            lambda at, K: self._tiles.both(K, columns, of_block(at)),
        )
        return as_given(total)

    def centers_gram(self, dtype: DTypeLike | None = None) -> Array:
        """K_MM = k(centers, centers): a new Fortran-ordered array, the caller's to overwrite.

        Parameters
        ----------
        dtype : float32 or float64, optional
            Its precision; that of the tiles by default.
        """
        tiles, centers = self._tiles, self.centers
        if dtype is not None and np.dtype(dtype) != self.dtype:
            centers = centers.astype(dtype)
            tiles = backends.prepare(self.kernel, centers, self._backend)
        m = centers.shape[0]
        gram = np.empty((m, m), dtype=centers.dtype)
        size = block_rows(m, m, _width(centers))

        def run(start: int) -> None:
            self._finite(tiles.fill(centers[start : start + size], gram[start : start + size]))

        share(run, range(0, m, size), self._n_threads)
        return gram.T  # symmetric, so this only says in which order it is stored

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """K itself, a block of rows at a time and in order: for methods that need more of K than products.

        One pass over the rows. A block is not to be written into; BLAS has its threads again while the caller uses it.

        Yields
        ------
        at : slice
            The rows of the block.
        K : array of shape (b, M)
            In the dtype of the tiles.
        """
        for at, rows in self._blocks(from_rows=not self._filled):
            if rows is None:
                assert self._kept is not None
                yield at, self._kept[at]
                continue
            K = np.empty((rows.shape[0], self.shape[1]), dtype=self.dtype) if self._kept is None else self._kept[at]
            self._fill(at, rows, K)
            yield at, K
        self.passes += 1
        self._filled = self._kept is not None

    def on(self, rows: Rows | ArrayLike) -> KernelOperator:
        """The operator of other rows with the same kernel and centers, which are not prepared again; K is not kept."""
        other = copy.copy(self)
        other.rows = as_rows(rows)
        if other.rows.dtype != self.dtype or other.rows.shape[1] != self.centers.shape[1]:
            raise ValueError(
                f"rows have {other.rows.shape[1]} features of type {other.rows.dtype}: the centers have "
                f"{self.centers.shape[1]} of type {self.dtype}"
            )
        other.shape = (other.rows.shape[0], self.shape[1])
        other.passes = 0
        other._block = other._block_rows()
        other._kept, other._filled = None, False
        return other

    def _block_rows(self) -> int:
        return block_rows(*self.shape, _width(self.centers))

    # ---- the block loop ----------------------------------------------------------------------------------------------

    def _fill(self, at: slice, rows: Array, K: Array) -> None:
        """Write k(rows, centers) into `K`, shared among the threads."""
        self._check_block(at, rows)
        b = rows.shape[0]
        size = max(_SMALLEST_BLOCK, -(-b // 8))  # whatever the threads

        def run(start: int) -> None:
            self._finite(self._tiles.fill(rows[start : start + size], K[start : start + size]))

        share(run, range(0, b, size), self._n_threads)

    def _check_block(self, at: slice, rows: Array) -> None:
        if not self._tiles.check_finite(rows):
            where = _first_bad(at.start, rows, self.rows.feature_names)
            raise ValueError(
                f"{where}: remove or impute NaN and infinity, and rescale numbers that are too large for the dtype"
            )

    def _pass(
        self, with_rows: BlockProduct, with_kept: BlockProduct, join: Callable[[list[Array]], Array]
    ) -> Iterator[tuple[slice, Array]]:
        """Run every block once, with its rows or, where K is kept, with its block of K; give the results in order.

        `join` makes the product of a block of those of its tiles.
        """
        kept = self._kept

        def run(block: tuple[slice, Array | None]) -> tuple[slice, Array]:
            at, rows = block
            if rows is not None:
                self._check_block(at, rows)
            if kept is None:
                assert rows is not None
                return at, self._finite(with_rows(at, rows))
            if rows is None:
                return at, self._finite(with_kept(at, kept[at]))
            products = []
            for part in self._tiles.parts(rows):  # each tile is used while it is still in cache
                tile = slice(at.start + part.start, at.start + part.stop)
                self._tiles.fill(rows[part], kept[tile])
                products.append(with_kept(tile, kept[tile]))
            return at, self._finite(join(products))

        with single_threaded_blas():
            yield from ordered_map(run, self._blocks(from_rows=not self._filled), self._n_threads)
        self.passes += 1
        self._filled = kept is not None

    def _blocks(self, from_rows: bool) -> Iterator[tuple[slice, Array | None]]:
        n, width = self.shape[0], self.centers.shape[1]
        if not from_rows:
            for start in range(0, n, self._block):
                yield slice(start, min(start + self._block, n)), None
            return
        start = 0
        for given in self.rows.blocks(self._block):
            rows = self._tiles.accept(given)
            b = rows.shape[0]
            if rows.shape[1] != width or start + b > n:
                raise ValueError(
                    f"the source gave a block of shape {rows.shape} at row {start}, where its shape says {(n, width)}: "
                    "did it change meanwhile?"
                )
            yield slice(start, start + b), rows
            start += b
        if start != n:
            raise ValueError(f"the source gave {start} rows where its shape says {n}: did it change meanwhile?")

    def _finite(self, product: Array) -> Array:
        if not np.isfinite(product).all():
            raise ValueError(
                f"a product with {self.kernel!r} is not finite in {self.dtype}: check the vectors it is multiplied "
                "with, the kernel's parameters and the scale of the rows"
            )
        return product

    def _sum(self, k: int, with_rows: BlockProduct, with_kept: BlockProduct) -> Array:
        """The blocks' products of `k` columns, added in their order in float64."""
        total = np.zeros((self.shape[1], k))
        for _, product in self._pass(with_rows, with_kept, partial(reduce, np.add)):
            total += product
        return total

    def _weight(self, weight: Weight) -> BlockWeight:
        """The weights of `sandwich`, of the tiles' dtype and as many as there are rows where they are numbers."""
        if weight is None or callable(weight):
            return weight
        numbers = np.ascontiguousarray(weight, dtype=self.dtype)
        if numbers.shape != (self.shape[0],):
            raise ValueError(f"weight has shape {numbers.shape}: it must have one number for each row, {self.shape[0]}")
        return numbers

    def _columns(self, V: ArrayLike, length: int, name: str) -> tuple[Array, Callable[[Array], Array]]:
        """`V` as columns in the tiles' dtype, and how to give the result back in the form that `V` came in."""
        columns = np.asarray(V)
        if columns.dtype.kind not in "fiub":
            raise ValueError(f"{name} is of type {columns.dtype}: it must hold real numbers")
        with np.errstate(over="ignore"):  # a product with infinity is refused
            columns = columns.astype(self.dtype, copy=False)
        if columns.ndim not in (1, 2) or len(columns) != length:
            raise ValueError(f"{name} has shape {columns.shape}: it must be ({length},) or ({length}, k)")
        if columns.ndim == 1:
            return np.ascontiguousarray(columns[:, None]), lambda out: out[:, 0]
        return np.ascontiguousarray(columns), lambda out: out


def make_operator(
    kernel: Kernel | str | KernelFunction,
    rows: Rows,
    centers: Any,
    *,
    n_jobs: int | None = None,
    memory_budget: int | float | str = "auto",
) -> KernelOperator:
    """The operator that suits the source: its own, if it runs products where its rows are."""
    own: Callable[..., KernelOperator] = getattr(rows, "make_operator", None) or partial(KernelOperator, rows=rows)
    return own(kernel=kernel, centers=centers, n_jobs=n_jobs, memory_budget=memory_budget)
