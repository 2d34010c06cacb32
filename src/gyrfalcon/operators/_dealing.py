"""Dealing: blocks of rows are dealt to PyTorch's devices in turn, launched, and settled when their product is back.

One thread launches everything, since devices compute while it goes on. A device that runs out of memory gets smaller
blocks, and gives up the rows that it keeps if this does not help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.copies import Fetched
from .._utils.devices import free_memory, import_torch, is_out_of_memory
from .._utils.memory import format_bytes
from .._utils.precision import matmul_precision
from .._utils.reservations import Claim
from ..backends.sparse_tensors import SparseColumns
from ..backends.torch_tiles import MakeTile
from ..backends.triton_tiles import MakeFusedTile
from ..sources import TensorRows
from ._lanes import Lane, Tensor
from ._room import LEAST_ROWS, block_size, claims, fused_block_size
from .base import Operator, check_product
from .dense import KernelOperator

__all__ = ["Dealing", "Launch", "Pass"]

Array = NDArray[Any]
# Launches a block of rows, and returns what is left to do when its product has come to the host
Launch = Callable[[Lane, slice, Tensor], Callable[[], None] | None]

_HALVINGS_BESIDE_ROWS = 4  # of blocks, before rows that are kept on a device are given up


class CrowdedError(Exception):
    """A device has no memory for a block of reasonable size beside the rows that are kept there."""


@dataclass(frozen=True)
class Pass:
    """What is done with each block in a pass over the rows.

    launch : launches a block
    rows : returns the largest number of rows of a block, which memory may make smaller meanwhile
    ahead : whether a block is launched before the one before it is done
    keeps : whether rows may stay on the devices
    """

    launch: Launch
    rows: Callable[[], int]
    ahead: bool = False
    keeps: bool = True


class Dealing(Operator):
    """The passes of an operator on devices: which block goes where, and what happens if memory runs out.

    Attributes
    ----------
    block_size : int
        Rows of a block whose entries of K are in memory.
    """

    block_size: int
    _host: KernelOperator
    _devices: tuple[Any, ...]
    _width: int
    _tf32: bool
    _columns: SparseColumns | None
    _tiles: list[tuple[Any, MakeTile]]
    _fused: dict[Any, MakeFusedTile | None]

    def _take(self, host: KernelOperator, room: int | None) -> None:
        """Take the rows of `host`, and decide how many make a block and whether they stay on the devices.

        `room` is the number of bytes that rows may take on the host; None keeps no rows on any device.
        """
        self._host, self.rows, self.shape, self.passes = host, host.rows, host.shape, 0
        self._lanes = self._new_lanes()
        self.block_size = block_size(self._devices, self.shape, self._width, self.dtype)
        self._first_size = self.block_size
        self._fused_size = fused_block_size(self.block_size, self.shape, self._width, len(self._devices))
        self._least_beside_rows = max(LEAST_ROWS, self.block_size >> _HALVINGS_BESIDE_ROWS)
        # how many bytes of the devices a block and the rows are going to take, if rows are to stay there
        self._claims: dict[str, list[Claim]] = {}
        if room is not None and self._columns is None:
            self._claims = claims(self._devices, self.shape, self._width, self.dtype, self.block_size, room)
        self._may_keep = len(self._claims) > 0
        self._kept: list[tuple[slice, Lane, Tensor]] | None = None  # once a pass has read them all
        self._keeping: list[tuple[slice, Lane, Tensor]] = []

    def _new_lanes(self) -> list[Lane]:
        return [Lane(device, tile, self._columns, self._fused.get(device)) for device, tile in self._tiles]

    # ---- a pass ------------------------------------------------------------------------------------------------------

    def _pass(
        self,
        launch: Launch,
        V: Array | None,
        shape: tuple[int, int] | None = None,
        *,
        ahead: bool = False,
        calls: bool = False,
    ) -> list[Array]:
        """Launch all blocks, and return the sums of the devices if there are any to be made.

        V : what K is multiplied with, or None
        shape : that of the sums, or None
        ahead : whether what is left of a block takes no memory, so that the next one is launched before it is done
        calls : whether a function of the user runs on the host in the pass, which keeps the user's settings then
        """
        columns = V.shape[1] if shape is None and V is not None else shape[1] if shape is not None else 0
        pass_ = Pass(launch, partial(self._rows_for, columns), ahead=ahead)
        begin = [partial(lane.begin, V, shape) for lane in self._lanes]
        # once for the whole pass: for each product it would take the host as long as launching it
        with nullcontext() if calls or self._tf32 else matmul_precision():
            return self._beside_kept_rows(lambda: self._try_pass(pass_, begin, sums=shape is not None))

    def _rows_for(self, columns: int) -> int:
        """Return how many rows make a block in products with a number of columns."""
        fuses = self.block_size == self._first_size and all(lane.fuses(columns) for lane in self._lanes)
        return self._fused_size if fuses else self.block_size

    def _beside_kept_rows(self, run: Callable[[], Any]) -> Any:
        """Return what `run` returns; it is run again without the rows that devices keep, if they take too much."""
        size = self.block_size
        try:
            return run()
        except CrowdedError:
            pass  # and the tensors of its frames are gone
        self._give_up_rows(size)
        return run()

    def _give_up_rows(self, size: int) -> None:
        self._kept, self._may_keep, self._claims, self.block_size = None, False, {}, size
        self._empty_cache()

    def _try_pass(self, pass_: Pass, begin: Sequence[Callable[[], None]], *, sums: bool) -> list[Any]:
        try:
            for lane, run in zip(self._lanes, begin, strict=True):
                self._beside_rows(lane, "what K is multiplied with", run)
            kept = self._kept
            if kept is None:
                self._launch_read(pass_)
            else:
                for at, lane, X in kept:
                    self._launch(lane, at, X.__getitem__, pass_)
            for lane in self._lanes:
                self._settle(lane, pass_)
            self._check_finite(self._lanes)
            if kept is None and self._may_keep:
                self._kept = self._keeping
                self._claims.pop("rows", None)  # they are there
            return [self._beside_rows(lane, "the sums of a pass", lane.total) for lane in self._lanes] if sums else []
        finally:
            self._keeping = []
            for lane in self._lanes:
                lane.end()

    def _check_finite(self, lanes: list[Lane]) -> None:
        """Raise the host's error if one of the rows that were uploaded is not finite."""
        if self._kept is None and not all(lane.saw_finite_rows() for lane in lanes):
            self._host.check_rows()

    def _launch_read(self, pass_: Pass) -> None:
        """Launch the rows as they are read."""
        self._keeping = []
        for number, (at, part_of) in enumerate(self._read(pass_.rows())):
            lane = self._lanes[number % len(self._lanes)]
            self._launch(lane, at, partial(_upload, lane, part_of), pass_)

    def _read(self, size: int) -> Iterator[tuple[slice, Callable[[slice], Any]]]:
        """Yield the slice of each block of rows, and a function that returns the rows of a part of the block."""
        rows = self.rows
        if not isinstance(rows, TensorRows):
            yield from ((at, block.__getitem__) for at, block in self._host.read_blocks(size))
            return
        for start in range(0, self.shape[0], size):
            yield slice(start, min(start + size, self.shape[0])), partial(_part_of, rows, start)

    def _launch(
        self, lane: Lane, at: slice, part_of: Callable[[slice], Tensor], pass_: Pass, *, keeps: bool = True
    ) -> None:
        """Launch a block on a device, in smaller parts if it runs out of memory; its rows may stay there."""
        begin, b = 0, at.stop - at.start
        while begin < b:
            part = slice(begin, min(begin + pass_.rows(), b))
            rows = slice(at.start + part.start, at.start + part.stop)
            crowded = lane.waiting is not None  # by what the block before has left
            done, X = self._try(lane, rows, partial(part_of, part))
            if not (done and pass_.ahead):
                self._settle(lane, pass_)
            if done:
                crowded = lane.waiting is not None
                done, finish = self._try(lane, rows, partial(pass_.launch, lane, rows, X))
            if not done:
                X = None
                self._settle(lane, pass_)
                if not crowded:
                    self._halve(rows)
                continue
            lane.mark()
            self._settle(lane, pass_)
            lane.waiting = None if finish is None else (rows, X, finish)
            if keeps and pass_.keeps and self._kept is None and self._may_keep:
                self._keeping.append((rows, lane, X))
            begin = part.stop

    def _settle(self, lane: Lane, pass_: Pass) -> None:
        """Do what is left of the block that a device was given last, while it may already have rows of the next."""
        if lane.waiting is None:
            return
        rows, X, finish = lane.waiting
        lane.waiting = None
        if self._try(lane, rows, finish)[0]:
            return
        del finish  # and with it a tile
        self._halve(rows)
        self._launch(lane, rows, X.__getitem__, pass_, keeps=False)  # they are kept already, as a whole
        self._settle(lane, pass_)

    # ---- blocks of K -------------------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Iterate over K as `Operator.blocks` does; it is computed on the devices, and copied from there."""
        n, start = self.shape[0], 0
        while start < n:
            try:
                for at, K in self._fetched(start):
                    yield at, K
                    start = at.stop
            except CrowdedError:
                self._give_up_rows(self._first_size)
        self.passes += 1

    def _fetched(self, start: int) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of K from a row on, in their order."""
        first, lanes = start, self._new_lanes()  # others are used by products that are made between two blocks
        ready: dict[int, tuple[slice, Array]] = {}

        def launch(lane: Lane, at: slice, X: Tensor) -> Callable[[], None]:
            K = Fetched(lane.tile(X))

            def finish() -> None:
                ready[at.start] = at, K.array()

            return finish

        def arrived() -> Iterator[tuple[slice, Array]]:
            nonlocal start
            while start in ready:
                at, K = ready.pop(start)
                start = at.stop
                if not np.isfinite(K).all():
                    self._host.check_rows()
                    check_product(K, self.kernel, self.dtype)
                yield at, K

        pass_ = Pass(launch, lambda: min(self.block_size, self._host.block_size), ahead=True, keeps=False)
        try:
            for lane in lanes:
                self._beside_rows(lane, "a block", lane.begin)
            for at, lane, part_of in self._dealt(lanes, pass_.rows()):
                if at.stop > first:
                    begin = max(at.start, first)
                    part_of = partial(_part_from, begin - at.start, part_of)
                    self._launch(lane, slice(begin, at.stop), part_of, pass_)
                    yield from arrived()
            for lane in lanes:
                self._settle(lane, pass_)
            yield from arrived()
            self._check_finite(lanes)
        finally:
            for lane in lanes:
                lane.end()

    def _dealt(self, lanes: list[Lane], size: int) -> Iterator[tuple[slice, Lane, Callable[[slice], Tensor]]]:
        """Yield the slice of each block, the device that is given it, and a function that uploads a part of it."""
        if self._kept is not None:
            yield from ((at, lanes[self._lanes.index(lane)], X.__getitem__) for at, lane, X in self._kept)
            return
        for number, (at, part_of) in enumerate(self._read(size)):
            lane = lanes[number % len(lanes)]
            yield at, lane, partial(_upload, lane, part_of)

    # ---- memory ------------------------------------------------------------------------------------------------------

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
        size = rows.stop - rows.start
        if (self._kept or self._keeping) and size <= self._least_beside_rows:
            raise CrowdedError
        if size <= LEAST_ROWS:
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
                    raise CrowdedError from None
                if last:
                    raise self._no_memory(f"{what} does", lane) from error
            self._empty_cache()

    def _no_memory(self, what: str, lane: Lane) -> MemoryError:
        return MemoryError(
            f"{what} not fit in its memory, of which {format_bytes(free_memory(lane.device))} are free, beside "
            f"{self.shape[1]} centers: use fewer centers, free memory there, or use device=None"
        )

    def _halve(self, rows: slice) -> None:
        """Make blocks smaller for good: half as large as one that did not fit, unless they already are."""
        half = (rows.stop - rows.start) // 2
        self._fused_size = max(self.block_size, min(self._fused_size, half))
        self.block_size = max(LEAST_ROWS, min(self.block_size, half))
        self._empty_cache()

    def _empty_cache(self) -> None:
        if any(lane.device.type == "cuda" for lane in self._lanes):
            import_torch().cuda.empty_cache()


def _upload(lane: Lane, part_of: Callable[[slice], Any], part: slice) -> Tensor:
    return lane.upload_rows(part_of(part))


def _part_from(start: int, part_of: Callable[[slice], Tensor], part: slice) -> Tensor:
    return part_of(slice(start + part.start, start + part.stop))


def _part_of(rows: TensorRows, start: int, part: slice) -> Tensor:
    return rows.tensor(slice(start + part.start, start + part.stop))
