"""DeviceOperator: the products with K computed on PyTorch's devices, to which blocks of rows are dealt in turn.

What a block takes there is in `_lanes.py`, and who gets which block in `_dealing.py`. Sums stay on the devices, and are
brought back once a pass and added in the order of the list.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.copies import Fetched
from .._utils.devices import (
    check_precision,
    has_float64,
    import_torch,
    require_precision,
    resolve_devices,
    round_to_tf32,
    torch_dtype,
    warn_if_slow,
)
from .._utils.memory import parse_memory
from .._utils.reservations import unclaimed_memory
from .._utils.words import listed
from ..backends import BlockWeight, check_weighted, triton_tiles, weighted
from ..backends.torch_tiles import prepare, sparse_columns
from ..kernels import Kernel, KernelFunction
from ..sources import Rows, TensorRows, as_rows, near
from ..sources.columns import Column, WeightedColumn
from ..sources.row_matrix import RowMatrix
from ._dealing import Dealing, Launch, Pass
from ._lanes import Lane, Tensor
from .base import Rowwise, Weight, as_columns, check_image, check_product, check_weight, recording
from .dense import KernelOperator
from .keeping import stored_per_row
from .squares import BlockSums, SquareSums

__all__ = ["DeviceOperator"]

Array = NDArray[Any]


class DeviceOperator(Dealing):
    """The matrix k(rows, centers) of any rows, multiplied on one device of PyTorch or on several.

    Parameters
    ----------
    kernel : Kernel, str or callable
        Kernels that are not of `gyrfalcon.kernels` are evaluated on the host, and their tiles copied.
    rows : array, tensor or sparse matrix of shape (n, d), or a source
        A tensor stays on its device, and its blocks are copied to other devices only. Other dense rows stay on the
        devices after the first pass if they fit there beside a block and what else is to stay; on "cpu" they are not
        copied, so that later changes of the array, as of a tensor, change products. Sparse rows stay sparse for kernels
        of inner products and of distances that can be expanded, if a tenth of the centers' numbers or fewer are not 0.
        For other kernels blocks are made dense, in the columns that the centers have.
    centers : array or sparse matrix of shape (M, d)
    device : str, torch.device or list of these
        "cuda", "cuda:1", "mps", "cpu", or several, to which blocks are dealt in turn.
    n_jobs : int or None
        Threads for what is done on the host. PyTorch has threads of its own for its device "cpu".
    memory_budget : "auto", int or str
        Bytes of the host that rows may take if the device is "cpu". It does not limit the memory of other devices.
    precision : {None, "tf32"}
        "tf32" rounds float32 rows and centers, which must be dense, to the 11 bits of TF32. The inner products that
        kernels of one length scale are made of are then as exact in TF32 as in float32, so that this is the matrix of
        points that are slightly elsewhere, and no less positive. Products with the matrix are made in float32.
    fuses : bool
        False computes K by PyTorch also where a kernel of Triton would use its entries where they are made.

    Attributes
    ----------
    block_size : int
        Rows of a block. If a device runs out of memory they are halved, and stay so; if that does not help after some
        times, rows that are kept there are given up.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.operators import DeviceOperator
    >>> X = np.random.default_rng(0).standard_normal((1000, 3))
    >>> K = DeviceOperator("gaussian", X, X[:10], device="cpu")  # doctest: +SKIP
    >>> v = np.ones(10)
    >>> bool(np.allclose(K.sandwich(v), K.rmatmat(K.matmat(v))))  # doctest: +SKIP
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction,
        rows: Rows | ArrayLike,
        centers: ArrayLike,
        *,
        device: Any,
        n_jobs: int | None = None,
        memory_budget: int | float | str = "auto",
        precision: str | None = None,
        fuses: bool = True,
    ) -> None:
        devices = resolve_devices(device)
        if devices is None:
            raise ValueError("device=None names no device: use KernelOperator, or name one")
        check_precision(precision, devices)
        rows = as_rows(near(rows, devices))
        require_precision(devices, rows.dtype)
        warn_if_slow(devices, rows.dtype)
        self._n_jobs = n_jobs
        self._tf32 = precision == "tf32" and rows.dtype == np.float32
        if self._tf32:
            if rows.is_sparse:
                raise ValueError('precision="tf32" is for dense rows, and these are sparse: use precision=None')
            centers = round_to_tf32(np.ascontiguousarray(centers, dtype=np.float32))
        self._devices = devices
        host = KernelOperator(kernel, self._rounded(rows), centers, n_jobs=n_jobs, memory_budget=0)
        self._prepare(host, tf32=self._tf32, fuses=fuses and not self._tf32)
        self._take(host, parse_memory(memory_budget))

    def _prepare(self, host: KernelOperator, *, tf32: bool, fuses: bool) -> None:
        """Prepare the centers of `host` on the devices."""
        self.kernel, self.centers, self.dtype = host.kernel, host.centers, host.dtype
        self._columns = None
        points = self.centers
        if host.rows.is_sparse:
            self._columns = sparse_columns(self.kernel, points, self._devices)
            points = self._columns.dense(points)
        csr = self._columns is not None and self._columns.stays_csr
        self._width = 1 + stored_per_row(self.centers) if csr else int(points.shape[1])
        each = list(dict.fromkeys(self._devices))
        prepared = {one: prepare(self.kernel, points, one, self._columns, tf32=tf32) for one in each}
        self._tiles = [(one, prepared[one]) for one in self._devices]
        fusable = each if fuses and self._columns is None else []
        self._fused = {one: triton_tiles.prepare(self.kernel, points, one) for one in fusable}

    @property
    def keeps(self) -> bool:
        """Whether K is kept: never, a device makes it again as fast."""
        return False

    @property
    def arithmetic(self) -> str:
        on = "made again on " + listed((lane.device for lane in self._lanes), None, plain=True)
        return f"{on} in TF32" if self._tf32 else f"{on}, fused" if self.fused else on

    @property
    def fused(self) -> bool:
        """Whether entries of K are used where they are made, on every device, if there are few columns to multiply."""
        return all(self._fused.get(lane.device) is not None for lane in self._lanes)

    @property
    def kept_bytes(self) -> int:
        """0: K is not kept."""
        return 0

    def matmat(self, V: ArrayLike) -> Array:
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        out = np.empty((self.shape[0], columns.shape[1]), dtype=self.dtype)

        def launch(lane: Lane, at: slice, X: Tensor) -> Callable[[], None]:
            product = Fetched(lane.image(lane.tile(X)))

            def finish() -> None:
                out[at] = product.array()

            return finish

        self._pass(launch, columns, ahead=True)
        check_product(out, self.kernel, self.dtype)
        self.passes += 1
        return like_given(out)

    def image(self, V: ArrayLike) -> Any:
        rows = self.rows
        if not isinstance(rows, TensorRows):
            return self.matmat(V)
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        shape = (self.shape[0], columns.shape[1])
        out = import_torch().empty(shape, dtype=torch_dtype(self.dtype), device=rows.device)

        def launch(lane: Lane, at: slice, X: Tensor) -> None:
            out[at] = lane.image(lane.tile(X)).to(out.device)

        self._pass(launch, columns)
        check_product(out, self.kernel, self.dtype)
        self.passes += 1
        return like_given(out)

    def rmatmat(self, U: ArrayLike) -> Array:
        if isinstance(U, Column | WeightedColumn):  # numbers that are in a file
            return self._product_with(U)
        columns, like_given = as_columns(U, self.shape[0], self.dtype, "U")
        return like_given(self._product_with(columns))

    def _product_with(self, U: Array | Column | WeightedColumn) -> Array:
        def launch(lane: Lane, at: slice, X: Tensor) -> None:
            lane.add(lane.tile(X), lane.upload(np.ascontiguousarray(U[at], dtype=self.dtype)))

        return self._sum(launch, None, U.shape[1])

    def sandwich(self, V: ArrayLike, weight: Weight = None, *, KV: RowMatrix | None = None) -> Array:
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        n, k = self.shape[0], columns.shape[1]
        checked: BlockWeight = check_weight(weight, n)
        image = None if KV is None else check_image(KV, n, k, self.dtype)
        if checked is not None and not callable(checked):
            checked = Rowwise(_times, checked, portable=True)
        if checked is None or (isinstance(checked, Rowwise) and checked.portable):
            return like_given(self._sum(self._on_device(checked, image), columns, k, ahead=True))
        launch = self._through_host(checked if image is None else recording(checked, image))
        return like_given(self._sum(launch, columns, k, calls=True))

    def add_blocks(self, sums: BlockSums) -> None:
        squares, M = sums.squares, self.shape[1]
        if not self._has_room(squares.nbytes(M)):
            super().add_blocks(sums)
            return

        def launch(lane: Lane, at: slice, X: Tensor) -> None:
            lane.add_block(at, lane.tile(X))

        begin = [partial(lane.begin, None, None, partial(SquareSums, squares, M)) for lane in self._lanes]
        pass_ = Pass(launch, lambda: self.block_size)
        try:
            totals = self._beside_kept_rows(lambda: self._try_pass(pass_, begin, sums=True))
        except MemoryError:  # of a device: blocks need less there if the sums are made on the host
            super().add_blocks(sums)
            return
        G, c = (sum(parts[1:], start=parts[0]) for parts in zip(*totals, strict=True))
        if not (np.isfinite(G).all() and np.isfinite(c).all()):
            super().add_blocks(sums)  # and find out what is wrong with the blocks
            return
        self.passes += 1
        sums.put(G, c)

    def _has_room(self, nbytes: int) -> bool:
        """Whether every device can hold a number of bytes for as long as a pass takes, and computes in float64."""
        each = dict.fromkeys(self._devices)
        return all(has_float64(one) and self._devices.count(one) * nbytes <= unclaimed_memory(one) for one in each)

    def centers_gram(self, dtype: DTypeLike | None = None) -> Array:
        return self._gram(self.dtype if dtype is None else np.dtype(dtype))

    def rounded_gram(self, dtype: DTypeLike) -> Array:
        return self._gram(np.dtype(np.float64), dtype)

    def _gram(self, dtype: np.dtype[Any], rounded: DTypeLike | None = None) -> Array:
        """Return K_MM, computed in a precision without TF32, and rounded to another."""
        if dtype == np.float64 and not all(has_float64(one) for one in self._devices):
            return self._host.centers_gram(dtype).astype(dtype if rounded is None else rounded, copy=False)
        centers = self.centers.astype(dtype)
        there = copy.copy(self)
        there._tf32 = False
        host = KernelOperator(self.kernel, as_rows(centers), centers, n_jobs=self._n_jobs, memory_budget=0)
        there._prepare(host, tf32=False, fuses=False)
        there._take(host, None)
        gram = np.empty((self.shape[1], self.shape[1]), dtype=dtype if rounded is None else rounded)
        with np.errstate(over="ignore"):  # infinite values are refused by factorisations
            for at, K in there.blocks():
                gram[at] = K
        return gram.T  # symmetric, so transposing only declares it Fortran-ordered

    def on(self, rows: Rows | ArrayLike) -> DeviceOperator:
        """Make the operator of other rows on the same devices, with the same kernel and centers; it keeps no rows."""
        other = copy.copy(self)
        other._take(self._host.on(self._rounded(as_rows(near(rows, self._devices)))), None)
        return other

    def _rounded(self, rows: Rows) -> Rows:
        return rows.map(round_to_tf32, rows.dtype) if self._tf32 and rows.dtype == np.float32 else rows

    # ---- what is launched for a block --------------------------------------------------------------------------------

    def _on_device(self, weight: Rowwise | None, image: Array | None) -> Launch:
        """Launch blocks whose weight is made where they are, and fetch their product into `image` if there is one."""

        def launch(lane: Lane, at: slice, X: Tensor) -> Callable[[], None] | None:
            K = lane.tile(X)
            T = lane.image(K)
            if weight is None:
                U = T
            else:
                parts = (np.ascontiguousarray(array[at], dtype=self.dtype) for array in weight.arrays)
                U = weight.function(T, *(lane.upload(part) for part in parts))
                check_weighted(U, T)
            if image is None:
                lane.add(K, U.to(T.dtype))
                return None
            product = Fetched(T)  # before the sum, which must not be made twice where this finds no memory
            lane.add(K, U.to(T.dtype))

            def finish() -> None:
                image[at] = product.array()

            return finish

        return launch

    def _through_host(self, weight: Callable[[slice, Array], Array]) -> Launch:
        """Launch blocks whose product is needed on the host, for a function that is known there alone."""

        def launch(lane: Lane, at: slice, X: Tensor) -> Callable[[], None]:
            K = lane.tile(X)
            product = Fetched(lane.image(K))

            def finish() -> None:
                T = product.array()
                U = weighted(T, lambda part, T: weight(at, T), slice(0, len(T)))
                lane.add(K, lane.upload(U))

            return finish

        return launch

    def _sum(self, launch: Launch, V: Array | None, k: int, *, ahead: bool = False, calls: bool = False) -> Array:
        totals = self._pass(launch, V, (self.shape[1], k), ahead=ahead, calls=calls)
        total = np.zeros((self.shape[1], k))
        for part in totals:
            total += part
        check_product(total, self.kernel, self.dtype)
        self.passes += 1
        return total


def _times(T: Any, weight: Any) -> Any:
    """Multiply rows by their weights, as arrays or tensors."""
    return T * weight[:, None]
