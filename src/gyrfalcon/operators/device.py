"""DeviceOperator: the products with K computed on PyTorch's devices, to which blocks of rows are dealt in turn.

What a block takes there is in `_lanes.py`. One thread launches everything, since devices compute while it goes on;
sums stay on the devices, and are brought back once a pass and added in the order of the list.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.copies import Fetched
from .._utils.devices import (
    check_precision,
    free_memory,
    import_torch,
    is_out_of_memory,
    require_precision,
    resolve_devices,
    round_to_tf32,
    torch_dtype,
    warn_if_slow,
)
from .._utils.memory import format_bytes, parse_memory
from .._utils.reservations import Claim
from .._utils.words import listed
from ..backends import BlockWeight, check_weighted, triton_tiles, weighted
from ..backends.torch_tiles import MakeTile, SparseColumns, prepare
from ..kernels import Kernel, KernelFunction
from ..sources import Rows, TensorRows, as_rows, near
from ..sources.row_matrix import RowMatrix
from ._lanes import Lane, Tensor
from ._room import LEAST_ROWS, block_size, claims
from .base import Operator, Rowwise, Weight, as_columns, check_image, check_product, check_weight, recording
from .dense import KernelOperator

__all__ = ["DeviceOperator"]

Array = NDArray[Any]
# Launches a block of rows, and returns what is left to do when its product has come to the host
Launch = Callable[[Lane, slice, Tensor], Callable[[], None] | None]

_HALVINGS_BESIDE_ROWS = 4  # of blocks, before rows that are kept on a device are given up


class _CrowdedError(Exception):
    """A device has no memory for a block of reasonable size beside the rows that are kept there."""


class DeviceOperator(Operator):
    """The matrix k(rows, centers) of any rows, multiplied on one device of PyTorch or on several.

    Parameters
    ----------
    kernel : Kernel, str or callable
        Kernels that are not of `gyrfalcon.kernels` are evaluated on the host, and their tiles copied.
    rows : array, tensor or sparse matrix of shape (n, d), or a source
        A tensor stays on its device, and its blocks are copied to other devices only. Other dense rows stay on the
        devices after the first pass if they fit there beside a block and what else is to stay; on "cpu" they are not
        copied, so that later changes of the array, as of a tensor, change products. Sparse rows are made dense in
        blocks, in the columns that the centers have.
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
        self._tf32 = precision == "tf32" and rows.dtype == np.float32
        if self._tf32:
            if rows.is_sparse:
                raise ValueError('precision="tf32" is for dense rows, and these are sparse: use precision=None')
            centers = round_to_tf32(np.ascontiguousarray(centers, dtype=np.float32))
        self._host = KernelOperator(kernel, self._rounded(rows), centers, n_jobs=n_jobs, memory_budget=0)
        self.kernel, self.centers, self.dtype = self._host.kernel, self._host.centers, self._host.dtype
        self._columns: SparseColumns | None = None
        points = self.centers
        if self._host.rows.is_sparse:
            self._columns = SparseColumns(self.kernel, points)
            points = self._columns.dense(points)
        self._width = int(points.shape[1])
        prepared = {
            one: prepare(self.kernel, points, one, self._columns, tf32=self._tf32) for one in dict.fromkeys(devices)
        }
        self._devices = devices
        self._tiles: list[tuple[Any, MakeTile]] = [(one, prepared[one]) for one in devices]
        fusable = list(prepared) if fuses and not self._tf32 and self._columns is None else []
        self._fused = {one: triton_tiles.prepare(self.kernel, points, one) for one in fusable}
        self._take(self._host, parse_memory(memory_budget))

    def _take(self, host: KernelOperator, room: int | None) -> None:
        """Take the rows of `host`, and decide how many make a block and whether they stay on the devices.

        `room` is the number of bytes that rows may take on the host; None keeps no rows on any device.
        """
        self._host, self.rows, self.shape, self.passes = host, host.rows, host.shape, 0
        self._lanes = [Lane(device, tile, self._columns, self._fused.get(device)) for device, tile in self._tiles]
        self.block_size = block_size(self._devices, self.shape, self._width, self.dtype)
        self._least_beside_rows = max(LEAST_ROWS, self.block_size >> _HALVINGS_BESIDE_ROWS)
        # how many bytes of the devices a block and the rows are going to take, if rows are to stay there
        self._claims: dict[str, list[Claim]] = {}
        if room is not None and self._columns is None:
            self._claims = claims(self._devices, self.shape, self._width, self.dtype, self.block_size, room)
        self._may_keep = len(self._claims) > 0
        self._kept: list[tuple[slice, Lane, Tensor]] | None = None  # once a pass has read them all
        self._keeping: list[tuple[slice, Lane, Tensor]] = []

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

        self._pass(launch, columns)
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
        columns, like_given = as_columns(U, self.shape[0], self.dtype, "U")

        def launch(lane: Lane, at: slice, X: Tensor) -> None:
            lane.add(lane.tile(X), lane.upload(columns[at]))

        return like_given(self._sum(launch, None, columns.shape[1]))

    def sandwich(self, V: ArrayLike, weight: Weight = None, *, KV: RowMatrix | None = None) -> Array:
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        n, k = self.shape[0], columns.shape[1]
        checked: BlockWeight = check_weight(weight, n)
        image = None if KV is None else check_image(KV, n, k, self.dtype)
        if checked is not None and not callable(checked):
            checked = Rowwise(operator.mul, checked[:, None], portable=True)
        if checked is None or (isinstance(checked, Rowwise) and checked.portable):
            launch = self._on_device(checked, image)
        else:
            launch = self._through_host(checked if image is None else recording(checked, image))
        return like_given(self._sum(launch, columns, k))

    def centers_gram(self, dtype: DTypeLike | None = None) -> Array:
        return self._host.centers_gram(dtype)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Iterate over K as `Operator.blocks` does; it is computed on the host."""
        yield from self._host.blocks()
        self.passes += 1

    def on(self, rows: Rows | ArrayLike) -> DeviceOperator:
        """Make the operator of other rows on the same devices, with the same kernel and centers; it keeps no rows."""
        other = copy.copy(self)
        other._take(self._host.on(self._rounded(as_rows(near(rows, self._devices)))), None)
        return other

    def _rounded(self, rows: Rows) -> Rows:
        return rows.map(round_to_tf32, rows.dtype) if self._tf32 and rows.dtype == np.float32 else rows

    # ---- a pass ------------------------------------------------------------------------------------------------------

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

    def _sum(self, launch: Launch, V: Array | None, k: int) -> Array:
        totals = self._pass(launch, V, (self.shape[1], k))
        total = np.zeros((self.shape[1], k))
        for part in totals:
            total += part
        check_product(total, self.kernel, self.dtype)
        self.passes += 1
        return total

    def _pass(self, launch: Launch, V: Array | None, shape: tuple[int, int] | None = None) -> list[Array]:
        """Launch all blocks, and return the sums of the devices if there are any to be made."""
        size = self.block_size
        try:
            return self._try_pass(launch, V, shape)
        except _CrowdedError:
            pass  # and the tensors of its frames are gone
        self._kept, self._may_keep, self._claims, self.block_size = None, False, {}, size
        self._empty_cache()
        return self._try_pass(launch, V, shape)

    def _try_pass(self, launch: Launch, V: Array | None, shape: tuple[int, int] | None) -> list[Array]:
        try:
            for lane in self._lanes:
                self._beside_rows(lane, "what K is multiplied with", partial(lane.begin, V, shape))
            kept = self._kept
            if kept is None:
                self._launch_read(launch)
            else:
                for at, lane, X in kept:
                    self._launch(lane, at, X.__getitem__, launch)
            for lane in self._lanes:
                self._settle(lane, launch)
            if kept is None and not all(lane.saw_finite_rows() for lane in self._lanes):
                self._host.check_rows()
            if kept is None and self._may_keep:
                self._kept = self._keeping
                self._claims.pop("rows", None)  # they are there
            if shape is None:
                return []
            return [self._beside_rows(lane, "the sums of a pass", lane.total) for lane in self._lanes]
        finally:
            self._keeping = []
            for lane in self._lanes:
                lane.end()

    def _launch_read(self, launch: Launch) -> None:
        """Launch the rows as they are read."""
        self._keeping = []
        for number, (at, part_of) in enumerate(self._read()):
            lane = self._lanes[number % len(self._lanes)]
            self._launch(lane, at, partial(_upload, lane, part_of), launch)

    def _read(self) -> Iterator[tuple[slice, Callable[[slice], Any]]]:
        """Yield the slice of each block of rows, and a function that returns the rows of a part of the block."""
        rows, size = self.rows, self.block_size
        if not isinstance(rows, TensorRows):
            yield from ((at, block.__getitem__) for at, block in self._host.read_blocks(size))
            return
        for start in range(0, self.shape[0], size):
            yield slice(start, min(start + size, self.shape[0])), partial(_part_of, rows, start)

    def _launch(
        self, lane: Lane, at: slice, part_of: Callable[[slice], Tensor], launch: Launch, *, keeps: bool = True
    ) -> None:
        """Launch a block on a device, in smaller parts if it runs out of memory; its rows may stay there."""
        begin, b = 0, at.stop - at.start
        while begin < b:
            part = slice(begin, min(begin + self.block_size, b))
            rows = slice(at.start + part.start, at.start + part.stop)
            crowded = lane.waiting is not None  # by the tile of the block before
            done, X = self._try(lane, rows, partial(part_of, part))
            self._settle(lane, launch)
            if not done and crowded:
                continue
            if done:
                done, finish = self._try(lane, rows, partial(launch, lane, rows, X))
            if not done:
                X = None
                self._halve()
                continue
            lane.mark()
            lane.waiting = None if finish is None else (rows, X, finish)
            if keeps and self._kept is None and self._may_keep:
                self._keeping.append((rows, lane, X))
            begin = part.stop

    def _settle(self, lane: Lane, launch: Launch) -> None:
        """Do what is left of the block that a device was given last, while it may already have rows of the next."""
        if lane.waiting is None:
            return
        rows, X, finish = lane.waiting
        lane.waiting = None
        if self._try(lane, rows, finish)[0]:
            return
        del finish  # and with it a tile
        self._halve()
        self._launch(lane, rows, X.__getitem__, launch, keeps=False)  # they are kept already, as a whole
        self._settle(lane, launch)

    def _try(self, lane: Lane, rows: slice, run: Callable[[], Any]) -> tuple[bool, Any]:
        """Return True and what `run` returns; False if there was not enough memory, and smaller blocks can help."""
        try:
            return True, run()
        except RuntimeError as error:
            self._check_memory(error, lane, rows)
        return False, None  # here, where the error and the tensors of its frames are gone

    def _check_memory(self, error: RuntimeError, lane: Lane, rows: slice) -> None:
        """Return if smaller blocks can help, or the end of the one that waits; raise otherwise."""
        where = f"rows {rows.start} to {rows.stop} of {self.shape[0]} on {lane.device}"
        if not is_out_of_memory(error):
            error.add_note(f"It happened with {where}.")
            raise error
        if lane.waiting is not None:
            return
        if (self._kept or self._keeping) and self.block_size <= self._least_beside_rows:
            raise _CrowdedError
        if self.block_size <= LEAST_ROWS:
            raise self._no_memory(f"{where} do", lane) from error

    def _beside_rows(self, lane: Lane, what: str, run: Callable[[], Any]) -> Any:
        """Return what `run` returns, which needs memory that blocks do not get smaller by."""
        for last in (False, True):
            try:
                return run()
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if last and (self._kept or self._keeping):
                    raise _CrowdedError from None
                if last:
                    raise self._no_memory(f"{what} does", lane) from error
            self._empty_cache()

    def _no_memory(self, what: str, lane: Lane) -> MemoryError:
        return MemoryError(
            f"{what} not fit in its memory, of which {format_bytes(free_memory(lane.device))} are free, beside "
            f"{self.shape[1]} centers: use fewer centers, free memory there, or use device=None"
        )

    def _halve(self) -> None:
        """Make blocks smaller for good."""
        self.block_size = max(LEAST_ROWS, self.block_size // 2)
        self._empty_cache()

    def _empty_cache(self) -> None:
        if any(lane.device.type == "cuda" for lane in self._lanes):
            import_torch().cuda.empty_cache()


def _upload(lane: Lane, part_of: Callable[[slice], Any], part: slice) -> Tensor:
    return lane.upload_rows(part_of(part))


def _part_of(rows: TensorRows, start: int, part: slice) -> Tensor:
    return rows.tensor(slice(start + part.start, start + part.stop))
