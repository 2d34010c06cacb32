"""KernelOperator: the products with K = k(rows, centers) computed in this process, a block of rows at a time.

     rows (sources/)            KernelOperator                    tiles (backends/)
blocks(size), take(i)   -->   the block loop, this file   -->   a block against prepared centers
                              ordered, on a few threads         fused C++, or NumPy
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from inspect import Signature, signature
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import backends
from .._utils.devices import check_precision
from .._utils.memory import parse_memory
from .._utils.threads import effective_n_jobs, ordered_map, share, single_threaded_blas
from .._utils.words import shown
from ..backends import BlockWeight, check_centers
from ..kernels import Kernel, KernelFunction, as_kernel
from ..sources import Rows, as_rows
from ._arguments import as_columns, check_image, check_product, check_weight, recording
from .base import Operator, Shifted, Weight
from .blocking import SMALLEST_BLOCK, block_rows, stored_per_row
from .keeping import Halving, is_worth_keeping

__all__ = ["KernelOperator"]

Array = NDArray[Any]
BlockProduct = Callable[[slice, Array], Array]

# Operations that one thread makes in the time that others take to start and to end
_FEW_OPERATIONS = 1 << 24
_PROFILE_COST = 16  # operations of a kernel's profile, beside those for each feature


def _locate_non_finite(start: int, rows: Any, names: Sequence[str] | None) -> str:
    """Locate the first non-finite value of a block whose first row is number `start`."""
    if scipy.sparse.issparse(rows):
        at = int(np.flatnonzero(~np.isfinite(rows.data))[0])
        row, column = int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
        value = rows.data[at]
    else:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        value = rows[row, column]
    return f"row {start + row} has {value} in feature {column if names is None else repr(names[column])}"


class KernelOperator(Operator):
    """The matrix k(rows, centers) of any rows, multiplied in this process, or on devices of PyTorch if some are named.

    With `device` what is made is a `DeviceOperator`, which has the same methods and keeps no K.

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
    passes : int or None
        How many passes there will be at most, if that is known. A large K is then kept only where that many passes gain
        from it by `gyrfalcon.operators.keeping`.
    halving : Halving or None
        Leave to keep a float32 K in 16 bits, where its entries lie between 0 and 1 and are costly. Only `sandwich`
        reads it, unless its weight is a function: entries are then off by up to 1/131,070. All other products,
        residuals among them, are made again and exact.
    device : None, str, torch.device or list of these
        "cuda", "cuda:1", "mps", "cpu", or several. `rows`, `n_jobs` and `memory_budget` are then as for
        `DeviceOperator`, and `backend`, `passes` and `halving`, which are about this process, are left out.
    precision : {None, "tf32"}
        As for `DeviceOperator`; None without a device.

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

    # DeviceOperator: `device.py`, which imports this file and so cannot be imported here, sets it
    _on_devices: ClassVar[Callable[..., Any]]

    def __new__(cls, *arguments: Any, device: Any = None, **options: Any) -> Self:
        """Make a DeviceOperator if devices are named; no arguments are needed to copy and to unpickle."""
        if device is None or cls is not KernelOperator:
            return super().__new__(cls)
        for name, default in {"backend": "auto", "passes": None, "halving": None}.items():
            value = options.pop(name, default)
            if value != default:
                raise ValueError(
                    f"{name}={shown(value)} is for products on the cores of this machine, and device={device!r} was "
                    "given: leave one of them out"
                )
        return KernelOperator._on_devices(*arguments, device=device, **options)

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
        device: Any = None,
        precision: str | None = None,
    ) -> None:
        if device is not None:
            raise ValueError(
                f"device={device!r}: {type(self).__name__} is for the cores of this machine, use device=None"
            )
        check_precision(precision, device)
        self.rows = as_rows(rows)
        self.dtype = np.dtype(self.rows.dtype)
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"rows of type {self.dtype} cannot be used: a source must give float32 or float64")
        self.centers = check_centers(centers, self.dtype, sparse=self.rows.is_sparse)
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
        self.block_size = block_rows(*self.shape, stored_per_row(self.centers))
        # K is allocated now (that costs nothing until it is written) and filled by the first pass
        self._kept: Array | None = None
        self._filled = False
        entries, itemsize = self.shape[0] * self.shape[1], self.dtype.itemsize
        worth = self._tiles.worth_keeping and (
            passes is None or is_worth_keeping(self._tiles.entry_cost, entries, itemsize, passes)
        )
        whole = worth and 0 < entries * itemsize <= parse_memory(memory_budget)
        if halving is not None and self._tiles.fits_half and halving.is_worth(self._tiles.entry_cost, entries):
            self._kept = np.empty(self.shape, dtype=np.uint16)
        elif whole:
            self._kept = np.empty(self.shape, dtype=self.dtype)

    # Python would show that of `__new__`
    __signature__: ClassVar[Signature] = signature(__init__).replace(
        parameters=list(signature(__init__).parameters.values())[1:]
    )

    @property
    def _halved(self) -> bool:
        return self._kept is not None and self._kept.dtype != self.dtype

    @property
    def arithmetic(self) -> str:
        return "kept in 16 bits" if self._halved else super().arithmetic

    @property
    def keeps(self) -> bool:
        return self._kept is not None

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
        columns, like_given = as_columns(U, self.shape[0], self.dtype, "U")
        total = self._sum(
            columns.shape[1],
            lambda at, rows: self._tiles.rmatmat(rows, columns[at]),
            lambda at, K: self._tiles.left(K, columns[at]),
        )
        return like_given(total)

    def sandwich(self, V: ArrayLike, weight: Weight = None, *, KV: Array | None = None) -> Array:
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        checked: BlockWeight = check_weight(weight, self.shape[0])
        if checked is not None and not callable(checked):
            checked = np.ascontiguousarray(checked, dtype=self.dtype)
        if KV is not None:
            checked = recording(checked, check_image(KV, self.shape[0], columns.shape[1], self.dtype))

        if isinstance(checked, Shifted):
            return like_given(self._shifted_sandwich(columns, checked))
        if self._halved and self._filled and not callable(checked):
            return like_given(self._half_sandwich(columns, checked))

        def of_block(at: slice) -> BlockWeight:
            if callable(checked):
                return lambda part, T: checked(slice(at.start + part.start, at.start + part.stop), T)
            return None if checked is None else checked[at]

        total = self._sum(
            columns.shape[1],
            lambda at, rows: self._tiles.sandwich(rows, columns, of_block(at)),
            lambda at, K: self._tiles.both(K, columns, of_block(at)),
        )
        return like_given(total)

    def centers_gram(self, dtype: DTypeLike | None = None) -> Array:
        tiles, centers = self._tiles, self.centers
        if dtype is not None and np.dtype(dtype) != self.dtype:
            centers = centers.astype(dtype)
            tiles = backends.prepare(self.kernel, centers, self._backend)
        m = centers.shape[0]
        gram = np.empty((m, m), dtype=centers.dtype)
        size = block_rows(m, m, stored_per_row(centers))

        def run(start: int) -> None:
            self._finite(tiles.fill(centers[start : start + size], gram[start : start + size]))

        share(run, range(0, m, size), self._n_threads)
        return gram.T  # symmetric, so transposing only declares it Fortran-ordered

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        kept = None if self._halved else self._kept
        for at, rows in self._blocks(from_rows=kept is None or not self._filled):
            if rows is None:
                assert kept is not None
                yield at, kept[at]
                continue
            K = np.empty((rows.shape[0], self.shape[1]), dtype=self.dtype) if kept is None else kept[at]
            self._fill_block(at, rows, K)
            if self._halved and not self._filled:
                assert self._kept is not None
                self._tiles.narrow(K, self._kept[at])
            yield at, K
        self.passes += 1
        self._filled = self._kept is not None

    def on(self, rows: Rows | ArrayLike, *, block_size: int | None = None, keep: bool = False) -> KernelOperator:
        """Make the operator of other rows with the same kernel and centers, which are not prepared again.

        Parameters
        ----------
        rows : array or sparse matrix of shape (n, d), or a source
            As wide as the centers, and of their dtype.
        block_size : int, optional
            Rows of a block; by default as many as for an operator of these rows alone.
        keep : bool
            Whether K is kept.
        """
        other = copy.copy(self)
        other.rows = as_rows(rows)
        if other.rows.dtype != self.dtype or other.rows.shape[1] != self.centers.shape[1]:
            raise ValueError(
                f"rows have {other.rows.shape[1]} features of type {other.rows.dtype}: the centers have "
                f"{self.centers.shape[1]} of type {self.dtype}"
            )
        other.shape = (other.rows.shape[0], self.shape[1])
        other.passes = 0
        other.block_size = block_size or block_rows(*other.shape, stored_per_row(self.centers))
        other._kept = np.empty(other.shape, dtype=self.dtype) if keep else None
        other._filled = False
        return other

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

    def _fill_block(self, at: slice, rows: Array, K: Array) -> None:
        """Compute k(rows, centers) into `K`, shared among the threads."""
        self._check_block(at, rows)
        b = rows.shape[0]
        size = max(SMALLEST_BLOCK, -(-b // 8))  # whatever the threads

        def run(start: int) -> None:
            self._finite(self._tiles.fill(rows[start : start + size], K[start : start + size]))

        share(run, range(0, b, size), self._n_threads)

    def _check_block(self, at: slice, rows: Array) -> None:
        if not self._tiles.check_finite(rows):
            where = _locate_non_finite(at.start, rows, self.rows.feature_names)
            raise ValueError(
                f"{where}: remove or impute NaN and infinity, and rescale numbers that are too large for the dtype"
            )

    def _pass(
        self, with_rows: BlockProduct, with_kept: BlockProduct, join: Callable[[list[Array]], Array]
    ) -> Iterator[tuple[slice, Array]]:
        """Run every block once, with its rows or its block of a filled K, and yield the products in order.

        `join` makes the product of a block from those of its tiles.
        """
        halved = self._halved
        kept = None if halved and self._filled else self._kept

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
                K = self._tiles.fill(rows[part], None if halved else kept[tile])
                if halved:
                    self._tiles.narrow(K, kept[tile])
                products.append(with_kept(tile, K))
            return at, self._finite(join(products))

        with single_threaded_blas():
            yield from ordered_map(run, self._blocks(from_rows=kept is None or not self._filled), self._threads())
        self.passes += 1
        self._filled = self._kept is not None

    def _half_sandwich(self, columns: Array, weight: Array | None) -> Array:
        """Compute K' W K V with the filled K in 16 bits."""
        kept, total = self._kept, np.zeros((self.shape[1], columns.shape[1]))
        assert kept is not None

        def run(block: tuple[slice, Any]) -> Array:
            at = block[0]
            return self._finite(self._tiles.half_both(kept[at], columns, None if weight is None else weight[at]))

        with single_threaded_blas():
            for product in ordered_map(run, self._blocks(from_rows=False), self._threads()):
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
        )

    def _threads(self) -> int:
        """Return the number of threads for a pass: one where starting others takes as long as the pass."""
        n, M = self.shape
        alone = n <= self.block_size or n * M * (stored_per_row(self.centers) + _PROFILE_COST) <= _FEW_OPERATIONS
        return 1 if alone else self._n_threads

    def _blocks(self, from_rows: bool) -> Iterator[tuple[slice, Array | None]]:
        n = self.shape[0]
        if not from_rows:
            for start in range(0, n, self.block_size):
                yield slice(start, min(start + self.block_size, n)), None
            return
        yield from self.read_blocks(self.block_size)

    def _finite(self, product: Array) -> Array:
        return check_product(product, self.kernel, self.dtype)

    def _sum(self, k: int, with_rows: BlockProduct, with_kept: BlockProduct) -> Array:
        """Add the blocks' products of `k` columns, in their order and in float64."""
        total = np.zeros((self.shape[1], k))
        for _, product in self._pass(with_rows, with_kept, partial(reduce, np.add)):
            total += product
        return total
