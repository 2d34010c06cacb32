"""KernelOperator: the products with K = k(rows, centers) computed in this process, a block of rows at a time.

     rows (sources/)            KernelOperator                    tiles (backends/)
blocks(size), take(i)   -->   the block loop, this file   -->   a block against prepared centers
                              ordered, on a few threads         fused C++, or NumPy
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import backends
from .._utils.memory import parse_memory
from .._utils.threads import effective_n_jobs, ordered_map, share, single_threaded_blas
from ..backends import BlockWeight, Tiles, check_centers
from ..kernels import Kernel, KernelFunction, as_kernel
from ..sources import Rows, as_rows
from ..sources.columns import Column, Vector, WeightedColumn
from ..sources.row_matrix import RowMatrix
from .base import (
    Operator,
    Shifted,
    Weight,
    as_columns,
    check_image,
    check_product,
    check_weight,
    locate_non_finite,
    recording,
)
from .interrupted import Pass, Sums, name_of
from .keeping import SMALLEST_BLOCK, Halving, Keeping, block_rows, choose_keeping, stored_per_row

__all__ = ["KernelOperator"]

Array = NDArray[Any]
BlockProduct = Callable[[slice, Array], Array]

_FEW_OPERATIONS = 1 << 24  # arithmetic operations of one thread in the time that other threads take to start and end
_PROFILE_COST = 16  # operations of a kernel's profile for one entry, beside those for each feature


class KernelOperator(Operator):
    """The matrix k(rows, centers) of any rows, multiplied on the cores of this machine.

    `gyrfalcon.operators.make_operator` also makes operators with the same methods for devices of PyTorch, for Dask
    collections and for sparse rows with a linear kernel.

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
        Memory for K, in bytes or as a string such as "4GB". If K fits, it is kept, so that later products do not
        compute it again. "auto" is half of the available memory. 0 never keeps it.
    passes : int or None
        The largest number of passes there will be, if it is known. A large K is then kept only where that many passes
        gain from it by `gyrfalcon.operators.keeping`.
    halving : Halving or None
        Permission to keep a float32 K in 16 bits, where its entries lie between 0 and 1 and are costly. Only `sandwich`
        reads it, unless its weight is a function: entries are then off by up to 1/131,070. All other products,
        residuals among them, are made again and exact.
    device : None
        Other values are refused: `make_operator` makes operators for devices.
    precision : None
        As `device`.

    Attributes
    ----------
    shape : tuple of int
        (n, M).
    dtype : dtype
        Of the entries of K.
    passes : int
        Completed passes over the rows.
    block_size : int
        Rows of a block.
    keeping : Keeping
        How K is kept between passes.

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
        passes: int | None = None,
        halving: Halving | None = None,
        device: None = None,
        precision: None = None,
    ) -> None:
        for name, value in (("device", device), ("precision", precision)):
            if value is not None:
                raise ValueError(
                    f"{name}={value!r}: {type(self).__name__} is for the cores of this machine; for devices use "
                    f"gyrfalcon.operators.make_operator(..., {name}={value!r})"
                )
        rows = as_rows(rows)
        self.dtype = np.dtype(rows.dtype)
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"rows of type {self.dtype} cannot be used: a source must give float32 or float64")
        self.centers = check_centers(centers, self.dtype, sparse=rows.is_sparse)
        if rows.shape[1] != self.centers.shape[1]:
            raise ValueError(
                f"rows have {rows.shape[1]} features and centers {self.centers.shape[1]}: they must have the same"
            )
        if self.centers.shape[1] == 0:
            raise ValueError("rows and centers have no features: at least one is needed")
        self.kernel = as_kernel(kernel).resolve(self.centers)
        self._n_threads = effective_n_jobs(n_jobs)
        self._backend = backend
        self._tiles = backends.prepare(self.kernel, self.centers, backend)
        entries = rows.shape[0] * self.centers.shape[0]
        self._take(rows, choose_keeping(self._tiles, entries, parse_memory(memory_budget), passes, halving))

    def _take(self, rows: Rows, keeping: Keeping, block_size: int | None = None) -> None:
        """Take the rows to be multiplied, and allocate K if it is kept."""
        n, M = self.shape = (rows.shape[0], self.centers.shape[0])
        stored = stored_per_row(self.centers)
        self.rows, self.passes, self.keeping = rows, 0, keeping
        self.block_size = block_size or block_rows(n, M, stored)
        # one thread where starting others takes as long as a pass
        alone = n <= self.block_size or n * M * (stored + _PROFILE_COST) <= _FEW_OPERATIONS
        self._pass_threads = 1 if alone else self._n_threads
        # allocating costs nothing until K is written, by the first pass
        dtype = {Keeping.WHOLE: self.dtype, Keeping.HALF: np.dtype(np.uint16)}.get(keeping)
        self._kept: Array | None = None if dtype is None else np.empty(self.shape, dtype)
        self._filled = False
        self._sums: Sums | None = None

    @property
    def arithmetic(self) -> str:
        return self.keeping.value

    @property
    def keeps(self) -> bool:
        return self.keeping is not Keeping.NONE

    @property
    def kept_bytes(self) -> int:
        return 0 if self._kept is None else self._kept.nbytes

    def matmat(self, V: ArrayLike) -> Array:
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        out = np.empty((self.shape[0], columns.shape[1]), dtype=self.dtype)

        for at, product in self._pass(
            lambda at, rows: self._tiles.matmat(rows, columns),
            lambda at, K: self._tiles.right(K, columns),
            np.concatenate,
        ):
            out[at] = product
        return like_given(out)

    def rmatmat(self, U: ArrayLike) -> Array:
        if isinstance(U, Column | WeightedColumn):
            return self._product_with_column(U)
        columns, like_given = as_columns(U, self.shape[0], self.dtype, "U")
        total = self._sum(
            columns.shape[1],
            lambda at, rows: self._tiles.rmatmat(rows, columns[at]),
            lambda at, K: self._tiles.left(K, columns[at]),
            None if self._sums is None else name_of("rmatmat", [columns]),
        )
        return like_given(total)

    def _product_with_column(self, U: Column | WeightedColumn) -> Array:
        """Compute K' U of numbers that are in a file."""

        def part(at: slice) -> Array:
            return np.ascontiguousarray(U[at], dtype=self.dtype)

        return self._sum(
            U.shape[1],
            lambda at, rows: self._tiles.rmatmat(rows, part(at)),
            lambda at, K: self._tiles.left(K, part(at)),
            None if self._sums is None else name_of("rmatmat", U.parts()),
        )

    def sandwich(self, V: ArrayLike, weight: Weight = None, *, KV: RowMatrix | None = None) -> Array:
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        checked: BlockWeight = check_weight(weight, self.shape[0])
        if isinstance(checked, Vector):
            checked = checked.astype(self.dtype)
        elif checked is not None and not callable(checked):
            checked = np.ascontiguousarray(checked, dtype=self.dtype)
        if KV is not None:
            checked = recording(checked, check_image(KV, self.shape[0], columns.shape[1], self.dtype))

        if isinstance(checked, Shifted):
            return like_given(self._shifted_sandwich(columns, checked))
        if self.keeping is Keeping.HALF and self._filled and not callable(checked):
            return like_given(self._half_sandwich(columns, checked))

        def of_block(at: slice) -> BlockWeight:
            if callable(checked):
                return lambda part, T: checked(slice(at.start + part.start, at.start + part.stop), T)
            return None if checked is None else checked[at]

        total = self._sum(
            columns.shape[1],
            lambda at, rows: self._tiles.sandwich(rows, columns, of_block(at)),
            lambda at, K: self._tiles.both(K, columns, of_block(at)),
            None if self._sums is None or callable(checked) else name_of("sandwich", [columns]),
        )
        return like_given(total)

    def centers_gram(self, dtype: DTypeLike | None = None) -> Array:
        tiles, centers = self._tiles, self.centers
        if dtype is not None and np.dtype(dtype) != self.dtype:
            centers = centers.astype(dtype)
            tiles = backends.prepare(self.kernel, centers, self._backend)
        m = centers.shape[0]
        gram = np.empty((m, m), dtype=centers.dtype)
        self._fill(tiles, centers, gram, block_rows(m, m, stored_per_row(centers)))
        return gram.T  # symmetric, so transposing only declares it Fortran-ordered

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        kept = self._kept if self.keeping is Keeping.WHOLE else None
        for at, rows in self._blocks(from_rows=kept is None or not self._filled):
            if rows is None:
                assert kept is not None
                yield at, kept[at]
                continue
            K = np.empty((rows.shape[0], self.shape[1]), dtype=self.dtype) if kept is None else kept[at]
            self._check_block(at, rows)
            self._fill(self._tiles, rows, K, max(SMALLEST_BLOCK, -(-rows.shape[0] // 8)))  # whatever the threads
            if self.keeping is Keeping.HALF and not self._filled:
                assert self._kept is not None
                self._tiles.narrow(K, self._kept[at])
            yield at, K
        self.passes += 1
        self._filled = self._kept is not None

    def on(
        self, rows: Rows | ArrayLike, *, block_size: int | None = None, keeping: Keeping = Keeping.NONE
    ) -> KernelOperator:
        """Make the operator of other rows with the same kernel and centers, which are not prepared again.

        Parameters
        ----------
        rows : array or sparse matrix of shape (n, d), or a source
            As wide as the centers, and of their dtype.
        block_size : int, optional
            Rows of a block; by default as many as for an operator of these rows alone.
        keeping : Keeping
            How K is kept.
        """
        rows = as_rows(rows)
        if rows.dtype != self.dtype or rows.shape[1] != self.centers.shape[1]:
            raise ValueError(
                f"rows have {rows.shape[1]} features of type {rows.dtype}: the centers have "
                f"{self.centers.shape[1]} of type {self.dtype}"
            )
        other = copy.copy(self)
        other._take(rows, keeping, block_size)
        return other

    def remember(self, sums: Sums) -> None:
        self._sums = sums

    def set_filled(self, filled: bool) -> None:
        """Bring a K that is kept into its state before the first pass (False) or after it (True).

        It decides the last bits of the next product: the pass that fills K adds products in another order than later
        ones. Nothing happens where K is not kept.
        """
        if self.keeps and filled and not self._filled:
            for _ in self.blocks():
                pass
        self._filled = self.keeps and filled

    def read_blocks(self, size: int) -> Iterator[tuple[slice, Any]]:
        """Read the rows in blocks of `size`, as tiles take them: of the right shape, and not yet known to be finite."""
        n, width = self.shape[0], self.centers.shape[1]
        start = 0
        for given in self.rows.blocks(size):
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

    def check_rows(self) -> None:
        """Read the rows and raise ValueError for the first one that is not finite."""
        for at, rows in self.read_blocks(self.block_size):
            self._check_block(at, rows)

    # ---- the block loop ----------------------------------------------------------------------------------------------

    def _fill(self, tiles: Tiles, rows: Array, K: Array, size: int) -> None:
        """Compute k(rows, centers) into `K`, in parts of `size` rows that the threads share."""

        def run(start: int) -> None:
            check_product(tiles.fill(rows[start : start + size], K[start : start + size]), self.kernel, self.dtype)

        share(run, range(0, rows.shape[0], size), self._n_threads)

    def _check_block(self, at: slice, rows: Array) -> None:
        if not self._tiles.check_finite(rows):
            where = locate_non_finite(at.start, rows, self.rows.feature_names)
            raise ValueError(
                f"{where}: remove or impute NaN and infinity, and rescale numbers that are too large for the dtype"
            )

    def _pass(
        self,
        with_rows: BlockProduct,
        with_kept: BlockProduct,
        join: Callable[[list[Array]], Array],
        first: int = 0,
    ) -> Iterator[tuple[slice, Array]]:
        """Run every block once, with its rows or its block of K, and yield products in order; `join` combines tiles.

        Blocks before the row `first` are read, so that sources can compare them with other readings, and left out.
        """
        halved = self.keeping is Keeping.HALF
        kept = None if halved and self._filled else self._kept

        def run(block: tuple[slice, Array | None]) -> tuple[slice, Array]:
            at, rows = block
            if rows is not None:
                self._check_block(at, rows)
            if kept is None:
                assert rows is not None
                return at, check_product(with_rows(at, rows), self.kernel, self.dtype)
            if rows is None:
                return at, check_product(with_kept(at, kept[at]), self.kernel, self.dtype)
            products = []
            for part in self._tiles.parts(rows):  # each tile is used while it is still in cache
                tile = slice(at.start + part.start, at.start + part.stop)
                K = self._tiles.fill(rows[part], None if halved else kept[tile])
                if halved:
                    self._tiles.narrow(K, kept[tile])
                products.append(with_kept(tile, K))
            return at, check_product(join(products), self.kernel, self.dtype)

        with single_threaded_blas():
            blocks = self._blocks(from_rows=kept is None or not self._filled, first=first)
            yield from ordered_map(run, blocks, self._pass_threads)
        self.passes += 1
        self._filled = self._kept is not None

    def _half_sandwich(self, columns: Array, weight: Array | None) -> Array:
        """Compute K' W K V with the filled K in 16 bits."""
        kept, total = self._kept, np.zeros((self.shape[1], columns.shape[1]))
        assert kept is not None

        def run(block: tuple[slice, Any]) -> Array:
            at = block[0]
            product = self._tiles.half_both(kept[at], columns, None if weight is None else weight[at])
            return check_product(product, self.kernel, self.dtype)

        with single_threaded_blas():
            for product in ordered_map(run, self._blocks(from_rows=False), self._pass_threads):
                total += product
        self.passes += 1
        return total

    def _shifted_sandwich(self, columns: Array, weight: Shifted) -> Array:
        """Compute K' W (K V + Y C)."""
        tiles, dtype = self._tiles, self.dtype
        weight.check_columns(columns.shape[1])
        return self._sum(
            columns.shape[1],
            lambda at, rows: tiles.sandwich(rows, columns, weight.weights(at, dtype), weight.added(at, dtype)),
            lambda at, K: tiles.both(K, columns, weight.weights(at, dtype), added=weight.added(at, dtype)),
            None if self._sums is None else name_of("shifted", [columns, weight.C]),
        )

    def _blocks(self, from_rows: bool, first: int = 0) -> Iterator[tuple[slice, Array | None]]:
        n = self.shape[0]
        if not from_rows:
            for start in range(0, n, self.block_size):
                yield slice(start, min(start + self.block_size, n)), None
            return
        yield from (block for block in self.read_blocks(self.block_size) if block[0].start >= first)

    def _sum(self, k: int, with_rows: BlockProduct, with_kept: BlockProduct, name: str | None) -> Array:
        """Add the blocks' products of `k` columns, in their order and in float64; `name` is that of the sum, if any."""
        (n, M), sums = self.shape, None if name is None or self.keeps else self._sums
        found = Pass(sums, name or "", n, self.block_size, (M, k))
        if found.is_over:
            self.passes += 1
            return found.total
        for at, product in self._pass(with_rows, with_kept, partial(reduce, np.add), found.start):
            found.add(at, product)
        return found.total
