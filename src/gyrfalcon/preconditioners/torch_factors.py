"""Factorisations and triangular solves by PyTorch: tile by tile, on one device or several.

The matrix is in host memory, before and after. If the tiles of its triangle fit the budgets of the devices, each device
keeps its share of them meanwhile; otherwise each tile is copied when needed, through pinned memory and during the
previous product, and only a few are on a device at once. (The matrix is not pinned itself: PyTorch copies directly what
is contiguous, which tiles are not.) The arithmetic is the same, in the same order. A tile (i, j) is

    L_ij = (A_ij - sum_{k<j} L_ik L_jk') L_jj^-T     Cholesky, a column of tiles at a time
    H_ij = sum_{k>=i} L_ki' L_kj                     L'L (LAPACK's lauum, which PyTorch lacks), a row at a time

so that each tile is written once, and a device makes all tiles of a row (of a column), which are distributed in turn. A
device that keeps them needs no others but the tiles (j, k) of all k, or (k, i), once for each column (row): some
M^2 / 2 numbers. Without tiles that stay, square ones need the fewest copies for their memory: about M^3 / (3 size)
numbers, and half of them if those tiles fit on a device beside those at work. TF32 is switched off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._utils.copies import Copies, Fetched, copies_to
from .._utils.devices import import_torch, is_out_of_memory
from .._utils.precision import matmul_precision
from .._utils.reservations import Claim, unclaimed_memory, usable_memory
from .._utils.threads import share, single_threaded_blas
from .._utils.words import listed
from .factors import FactorEngine, Triangles, Vectors

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
Tensor = Any  # torch.Tensor, which type checkers know only where torch is installed

_RESIDENT_TILE = 2048  # largest side of a tile that stays on a device
_PANEL = 512  # columns of a factor that are kept on a device, or copied there, as a whole
_SOLVED_TILE = 256  # side of a tile on the diagonal in a solve, which PyTorch copies; the rest is read in place
_LARGEST_TILE = 8192  # side of a tile that is copied
_LEAST_TILE = 8
_TILES_AT_WORK = 7  # a tile, two that are multiplied and the next two on their way, their product, and a corner
_BUFFERS = 4  # pinned, for the tiles of two products: one is made while those of the next are copied


class TorchFactors(FactorEngine):
    """Factorisations on devices, in tiles that are distributed to them in turn.

    A device that is listed twice gets twice as many tiles. `budget` is the number of bytes that may be used on each
    device; by default most of what is free there at the time.
    """

    def __init__(self, devices: Sequence[torch.device], budget: int | None = None, n_threads: int = 1) -> None:
        super().__init__(n_threads)
        self.devices = tuple(devices)
        self._budget = budget

    def cholesky(self, matrix: Array, *, lower: bool) -> bool:
        with self._tiles(matrix if lower else matrix.T, axis=0) as tiles:
            return all(self._put_column(tiles, j) for j in range(len(tiles.spans)))

    def _put_column(self, tiles: _Tiles, j: int) -> bool:
        """Make column j of L from the columns before it."""
        panel = _Panel(tiles, [(j, k) for k in range(j)])
        corner = self._less_products(tiles, j, panel, j, tiles.copies_of(j))
        L, status = import_torch().linalg.cholesky_ex(corner)
        if _has_failed(L, status):
            return False
        tiles.write(j, j, L)

        def solve(i: int, copies: Copies) -> None:
            rest = self._less_products(tiles, i, panel, j, copies)
            solution = _solve_triangular(L.to(copies.device).T, rest, upper=True, left=False)
            tiles.write(i, j, solution)

        self._deal(solve, range(j + 1, len(tiles.spans)), tiles.copies)
        return True

    def _less_products(self, tiles: _Tiles, i: int, panel: _Panel, j: int, copies: Copies) -> Tensor:
        """Return A_ij - sum_{k<j} L_ik L_jk', in memory of its own; the panel has the tiles (j, k)."""
        tile = tiles.read(i, j, copies, own=True)
        for k in range(j):
            right = panel.read(k, copies)
            left = right if i == j else tiles.read(i, k, copies)
            tile.addmm_(left, right.T, alpha=-1)
            copies.mark()
        return tile

    def square_lower(self, matrix: Array) -> None:
        with self._tiles(matrix, axis=1) as tiles:
            n = len(tiles.spans)
            for i in range(n):
                corner = tiles.read(i, i, tiles.copies_of(i), own=True).tril_()
                panel = _Panel(tiles, [(k, i) for k in range(i + 1, n)])

                def multiply(
                    j: int, copies: Copies, i: int = i, corner: Tensor = corner, panel: _Panel = panel
                ) -> None:
                    row = corner if i == j else tiles.read(i, j, copies)
                    tile = corner.to(copies.device).T @ row
                    for k in range(i + 1, n):
                        left = panel.read(k - i - 1, copies)
                        tile.addmm_(left.T, left if i == j else tiles.read(k, j, copies))
                        copies.mark()
                    tiles.write(i, j, tile)

                self._deal(multiply, range(i), tiles.copies)
                multiply(i, tiles.copies_of(i))  # the last, since the others read what it overwrites

    def add_square(self, matrix: Array, S: Array) -> None:
        parts = import_torch().from_numpy(S)
        with self._tiles(matrix, axis=0) as tiles:
            step = tiles.size

            def add(i: int, copies: Copies) -> None:
                for j in range(i + 1):
                    tile = tiles.read(i, j, copies, own=True)
                    for start in range(0, len(parts), step):
                        rows = parts[start : start + step]
                        left = _read(rows[:, tiles.spans[i]], copies)
                        tile.addmm_(left.T, _read(rows[:, tiles.spans[j]], copies))
                        copies.mark()
                    tiles.write(i, j, tile)

            self._deal(add, range(len(tiles.spans)), tiles.copies)

    def solve_upper_transposed(self, U: Array, B: Array) -> None:
        columns = import_torch().from_numpy(B)
        with self._tiles(U.T, axis=0, read_only=True) as tiles:
            spans = _spans(B.shape[1], tiles.size)

            def solve(number: int, copies: Copies) -> None:
                at = spans[number]
                for i, row in enumerate(tiles.spans):
                    tile = _read(columns[row, at], copies, own=True)
                    for k, above in enumerate(tiles.spans[:i]):
                        tile.addmm_(tiles.read(i, k, copies), _read(columns[above, at], copies), alpha=-1)
                        copies.mark()
                    solution = _solve_triangular(tiles.read(i, i, copies), tile, upper=False)
                    columns[row, at] = Fetched(solution).tensor()

            self._deal(solve, range(len(spans)), tiles.copies)

    def triangles(self, buffer: Array) -> Triangles:
        rooms = {one: unclaimed_memory(one) if self._budget is None else self._budget for one in self.devices}
        if sum(rooms.values()) < buffer.nbytes:  # what stays there must leave room for blocks of rows
            rooms = {one: room // 2 for one, room in rooms.items()}
        return TorchTriangles(buffer, rooms)

    # ---- tiles and devices -------------------------------------------------------------------------------------------

    @contextmanager
    def _tiles(self, matrix: Array, *, axis: int, read_only: bool = False) -> Iterator[_Tiles]:
        """Give the tiles of the lower triangle, and bring back those that were not written to the host.

        `axis` is 0 where a device makes rows of tiles, and 1 where it makes columns.
        """
        M, itemsize, n = len(matrix), matrix.dtype.itemsize, len(self.devices)
        room = min(self._room(device) for device in self.devices) // itemsize
        size = _RESIDENT_TILE if n == 1 else min(_RESIDENT_TILE, self._share(M))
        resident = _numbers_that_stay(M, size, n, axis) <= room
        if not resident:
            size = self._tile_size(M, room)
        n_kept = -(-M // size) if resident else max(0, room // size**2 - _TILES_AT_WORK)
        try:
            with matmul_precision(), single_threaded_blas():
                copies = [copies_to(device, _BUFFERS) for device in self.devices]
                tiles = _Tiles(import_torch().from_numpy(matrix), size, copies, axis, n_kept)
                stays = resident and any(device.type != "cpu" for device in self.devices)
                if stays:
                    self._deal(tiles.send, range(len(tiles.spans)), copies)
                yield tiles
                if stays and not read_only:
                    self._deal(tiles.bring_back, range(len(tiles.spans)), copies)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            names = listed(self.devices, None, plain=True)
            raise MemoryError(
                f"{names} ran out of memory while {M} centers were factored: free memory there, or lower n_centers"
            ) from error

    def _room(self, device: torch.device) -> int:
        """Return the bytes that may be used on a device, for each time that it is listed."""
        budget = usable_memory(device) if self._budget is None else self._budget
        return budget // self.devices.count(device)

    def _tile_size(self, M: int, room: int) -> int:
        """Return the side of tiles of which some fit a device, and with which all devices have something to do."""
        size = min(math.isqrt(room // _TILES_AT_WORK), _LARGEST_TILE)
        if size < _LEAST_TILE:
            raise MemoryError(
                f"a device leaves room for {room} numbers, too few for the factors of {M} centers: free memory there"
            )
        size = 1 << (size.bit_length() - 1)  # the same, and so the same bits, if a little more or less is free
        return min(size, self._share(M))

    def _share(self, M: int) -> int:
        """Return the side of tiles of which each device gets a few in every row."""
        return max(_LEAST_TILE, -(-M // (4 * len(self.devices))))

    def _deal(self, work: Callable[[int, Copies], None], numbers: range, copies: Sequence[Copies]) -> None:
        """Call ``work(number, copies)`` for each number, the devices in turn, each in a thread of its own."""
        n = len(copies)
        cuda = import_torch().cuda
        # a new thread would compute on the default streams, and not wait for what the caller has launched on others
        streams = [cuda.current_stream(device) for device in dict.fromkeys(self.devices) if device.type == "cuda"]

        def run(device: int) -> None:
            with ExitStack() as stack:
                for stream in streams:
                    stack.enter_context(cuda.stream(stream))
                for number in numbers:
                    if number % n == device:
                        work(number, copies[device])

        share(run, sorted({number % n for number in numbers}), n)


class _Tiles:
    """The lower triangle of a matrix in host memory, in square tiles.

    host : of any strides, so that the upper triangle of a matrix is the lower one of its transpose
    size : side of a tile; those at the end may be smaller
    copies : one for each device, for as long as the tiles are used: memory that a stream has freed stays its own
    axis : which number of a tile says whose it is
    n_kept : how many tiles of others a device has room for beside its own and those at work
    """

    def __init__(self, host: Tensor, size: int, copies: list[Copies], axis: int, n_kept: int) -> None:
        self._host, self.size, self.copies, self._axis, self.n_kept = host, size, copies, axis, n_kept
        self.spans = _spans(len(host), size)
        self._there: dict[tuple[int, int], Tensor] = {}  # tiles that stay on their devices until they are brought back

    def copies_of(self, number: int) -> Copies:
        """Return the copies to the device that a row, or a column, belongs to."""
        return self.copies[number % len(self.copies)]

    def read(self, i: int, j: int, copies: Copies, *, own: bool = False) -> Tensor:
        """Return a tile on a device, for reading only unless it is to have memory of its own."""
        tile = self._there.get((i, j))
        return _read(self._at(i, j) if tile is None else tile, copies, own=own)

    def write(self, i: int, j: int, tile: Tensor) -> None:
        """Set a tile; of one on the diagonal, the lower triangle."""
        if (i, j) in self._there:
            self._there[i, j] = tile
        else:
            self._put(i, j, tile)

    def send(self, number: int, copies: Copies) -> None:
        """Let the tiles of a row, or of a column, stay on a device; the host has them anyway."""
        for i, j in self._of(number) if copies.device != self._host.device else ():
            self._there[i, j] = _read(self._at(i, j), copies)
            copies.mark()

    def bring_back(self, number: int, copies: Copies) -> None:
        """Copy the tiles of a row, or of a column, to the host."""
        for i, j in self._of(number):
            if (i, j) in self._there:
                self._put(i, j, self._there.pop((i, j)))

    def _of(self, number: int) -> list[tuple[int, int]]:
        """Return the numbers of the tiles of a row, or of a column."""
        n = len(self.spans)
        return [(number, j) for j in range(number + 1)] if self._axis == 0 else [(i, number) for i in range(number, n)]

    def _at(self, i: int, j: int) -> Tensor:
        return self._host[self.spans[i], self.spans[j]]

    def _put(self, i: int, j: int, tile: Tensor) -> None:
        place = self._at(i, j)
        if place.stride(0) < place.stride(1) and i != j:
            place, tile = place.T, tile.T  # in the order in which it is stored: the host transposes slowly
        tile = tile if tile.device == place.device else Fetched(tile.contiguous()).tensor()
        place.copy_(tile.tril() + place.triu(1) if i == j else tile)


def _numbers_that_stay(M: int, size: int, n_devices: int, axis: int) -> int:
    """Return how many numbers a device needs room for if the tiles of rows, or of columns, stay where they are made."""
    sides = [span.stop - span.start for span in _spans(M, size)]
    each = [side * (sum(sides[: at + 1]) if axis == 0 else sum(sides[at:])) for at, side in enumerate(sides)]
    of_others = M * size if n_devices > 1 else 0
    return max(sum(each[first::n_devices]) for first in range(n_devices)) + of_others + _TILES_AT_WORK * size**2


class TorchTriangles(Triangles):
    """`Triangles` with solves on devices, which keep copies of block columns of the buffer.

    Block columns that fit on no device are copied to the first one in each solve, each while the one before is used.
    Solves are made on the host once memory of a device runs out.

    Parameters
    ----------
    buffer : array of shape (M, M)
    rooms : dict
        Number of bytes that may be kept on each device.
    """

    def __init__(self, buffer: Array, rooms: dict[torch.device, int]) -> None:
        super().__init__(buffer)
        self._first = next(iter(rooms))
        M = len(buffer)
        self._spans = _spans(M, max(1, M) if buffer.nbytes <= rooms[self._first] else _PANEL)
        self._homes: list[torch.device | None] = []
        left = dict(rooms)
        for span in self._spans:
            size = self._nbytes(span)
            home = next((device for device, room in left.items() if size <= room), None)
            self._homes.append(home)
            if home is not None:
                left[home] -= size
        self._panels: list[Tensor] = [None] * len(self._spans)
        self._claims = {device: Claim(device, 0) for device in rooms}
        self._has_room = True
        self._copies: Copies | None = None
        self.changed()

    @property
    def kept_share(self) -> float:
        """The share of the block columns that devices keep."""
        return sum(home is not None for home in self._homes) / max(1, len(self._homes))

    def _nbytes(self, span: slice) -> int:
        return (span.stop - span.start) * len(self.buffer) * self.buffer.dtype.itemsize

    def changed(self) -> None:
        self._panels = [None] * len(self._spans)
        for device, claim in self._claims.items():
            kept = zip(self._spans, self._homes, strict=True)
            claim.pending = sum(self._nbytes(span) for span, home in kept if home == device) if self._has_room else 0

    def solve(self, x: Array, *, lower: bool, transposed: bool = False) -> Vectors:
        if self._has_room:
            try:
                return self._solve(x, lower=lower, transposed=transposed)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                self._has_room, self._copies = False, None
                self.changed()
        return super().solve(x, lower=lower, transposed=transposed)

    def _solve(self, x: Array, *, lower: bool, transposed: bool) -> Vectors:
        given = np.array(x, dtype=self.buffer.dtype)
        if given.size == 0:
            return given.astype(np.float64)
        forward = lower != transposed
        out = import_torch().from_numpy(given.reshape(len(given), -1))
        numbers = range(len(self._spans))
        with matmul_precision():
            for number in numbers if forward else reversed(numbers):
                panel, first = self._panel(number, lower)
                out = out.to(panel.device)
                _solve_panel(panel, first, self._spans[number], out, lower=lower, transposed=transposed)
                if self._copies is not None:
                    self._copies.mark()
        return np.asarray(out.cpu().numpy(), dtype=np.float64).reshape(given.shape)

    def _panel(self, number: int, lower: bool) -> tuple[Tensor, int]:
        """Return a block column of a triangle on a device, and the number of its first row."""
        span, home = self._spans[number], self._homes[number]
        columns = import_torch().from_numpy(self.buffer)[:, span]
        if home is None:
            if self._copies is None:
                self._copies = copies_to(self._first)
            return (
                (_read(columns[span.start :], self._copies), span.start)
                if lower
                else (_read(columns[: span.stop], self._copies), 0)
            )
        if self._panels[number] is None:
            self._panels[number] = columns.to(home)
            self._claims[home].pending -= self._nbytes(span)
        return self._panels[number], 0


def _solve_panel(panel: Tensor, first: int, span: slice, out: Tensor, *, lower: bool, transposed: bool) -> None:
    """Do the part of a solve that reads a block column of L or U, whose rows begin with `first`, in place."""
    steps = [
        slice(span.start + part.start, span.start + part.stop) for part in _spans(span.stop - span.start, _SOLVED_TILE)
    ]
    options = {"upper": lower if transposed else not lower, "unitriangular": lower}
    for at in steps if lower != transposed else reversed(steps):
        columns = panel[:, at.start - span.start : at.stop - span.start]
        corner = columns[at.start - first : at.stop - first]
        others = slice(at.stop, None) if lower else slice(first, at.start)
        beside = columns[at.stop - first :] if lower else columns[: at.start - first]
        if transposed:
            out[at].addmm_(beside.T, out[others], alpha=-1)
            out[at] = _solve_triangular(corner.T, out[at], **options)
        else:
            out[at] = _solve_triangular(corner, out[at], **options)
            out[others].addmm_(beside, out[at], alpha=-1)


class _Panel:
    """Tiles that are read for all tiles of a row or of a column, and stay on each device as far as there is room."""

    def __init__(self, tiles: _Tiles, places: Sequence[tuple[int, int]]) -> None:
        self._tiles, self._places = tiles, places
        self._kept: list[dict[int, Tensor]] = [{} for _ in tiles.copies]

    def read(self, number: int, copies: Copies) -> Tensor:
        """Return a tile on a device, for reading only."""
        kept = self._kept[self._tiles.copies.index(copies)]
        if number in kept:
            return kept[number]
        tile = self._tiles.read(*self._places[number], copies)
        if len(kept) < self._tiles.n_kept:
            kept[number] = tile
        return tile


def _read(part: Tensor, copies: Copies, *, own: bool = False) -> Tensor:
    """Return a part of a matrix on a device, for reading only unless it is to have memory of its own."""
    if part.device == copies.device:
        return part.clone() if own else part
    if part.device.type != "cpu":  # of another device, whose stream and ours PyTorch lets wait for each other
        return part.to(copies.device)
    # in the order in which it is stored: the host would transpose it more slowly than it is copied
    return copies.upload(part.T).T if part.stride(0) < part.stride(1) else copies.upload(part)


def _has_failed(L: Tensor, status: Tensor) -> bool:
    """Whether a tile was not positive definite; the libraries of some devices carry NaN through and report success."""
    return bool(status.item() != 0) or not bool(L.diagonal().isfinite().all().item())


def _solve_triangular(triangle: Tensor, B: Tensor, **options: bool) -> Tensor:
    return import_torch().linalg.solve_triangular(triangle, B, **options)


def _spans(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]
