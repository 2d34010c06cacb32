"""Scratch files of a fit: rows that are slow to read, such as text, are parsed once and then read as numbers.

The first reading, whatever its purpose, also writes its numbers to a temporary file, from which later readings are
served. The file has no name, so that nothing is left behind however the process ends. Rows that are read from their
source again and again are compared with the first reading; see `rereading`.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from .arrays import ArrayReader, ReadBlock
from .base import DerivedRows, Rows
from .blocks import Block, Indices
from .rereading import checked_rows
from .stored import StoredRows

Array = NDArray[Any]

_FILL_ROWS = 65_536  # rows of a block, if rows are read only to fill the file
_LEFT_FREE = 1 << 28  # bytes of the disk that are left free
_TAKEN_BYTES = 1 << 16  # bytes that are read at once to take single rows


class Scratch:
    """The scratch files of a fit, which are gone when it is closed.

    By default files are written to the folder of temporary files that the environment names (``TMPDIR``), or to
    ``/var/tmp``, or to the folder that `tempfile` finds: ``/tmp`` is kept in memory on many machines.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._files: list[IO[bytes]] = []

    def rows(self, rows: Rows) -> Rows:
        """Return rows that stay the same while a fit reads them.

        Those that are slow to read are read from their source once, if the disk has room for them. All others are
        compared with the first reading, except those in memory, which are returned unchanged.
        """
        source = checked_rows(rows)
        if not rows.slow_to_read or rows.is_sparse:
            return source
        file = temporary_file(rows.shape[0] * rows.shape[1] * rows.dtype.itemsize, self._folder)
        if file is None:
            return source
        self._files.append(file)
        return ScratchRows(source, file)

    def close(self) -> None:
        """Remove the files."""
        while self._files:
            self._files.pop().close()


def has_room(size: int, folder: str | None = None) -> bool:
    """Whether the disk of temporary files has room for `size` bytes."""
    try:
        return size + _LEFT_FREE <= shutil.disk_usage(folder or _temporary_folder()).free
    except OSError:  # no folder
        return False


class _TemporaryFile(io.FileIO):
    """A file that is closed when nothing refers to it any more: several matrices can share one."""

    def __del__(self) -> None:
        self.close()


def temporary_file(size: int, folder: str | None = None) -> IO[bytes] | None:
    """Make an empty file without a name for `size` bytes, or return None if the disk has no room for them."""
    try:
        folder = folder or _temporary_folder()
        if size == 0 or not has_room(size, folder):
            return None
        with tempfile.TemporaryFile(dir=folder, prefix="gyrfalcon-", buffering=0) as file:
            return cast(IO[bytes], _TemporaryFile(os.dup(file.fileno()), "rb+"))
    except OSError:  # a folder that cannot be written into, or none
        return None


def take_rows(read: Callable[[int, int], Array], indices: Indices, width: int, dtype: np.dtype[Any]) -> Array:
    """Return single rows, in any order, of those that ``read(start, stop)`` returns: near ones are read together."""
    wanted = np.asarray(indices, dtype=np.intp)
    out = np.empty((len(wanted), width), dtype=dtype)
    group = max(1, _TAKEN_BYTES // (width * dtype.itemsize))
    order = np.argsort(wanted, kind="stable")
    ordered = wanted[order]
    first = 0
    while first < len(ordered):
        start = int(ordered[first])
        last = int(np.searchsorted(ordered, start + group))
        out[order[first:last]] = read(start, int(ordered[last - 1]) + 1)[ordered[first:last] - start]
        first = last
    return out


def _temporary_folder() -> str:
    named = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return "/var/tmp" if not named and os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()


class ScratchRows(DerivedRows):
    """Rows of a source that is read once, which also writes them to an empty file. See `Scratch`."""

    is_sparse = False

    def __init__(self, rows: Rows, file: IO[bytes]) -> None:
        super().__init__(rows)
        self.slow_to_read, self.checked = False, True
        self._file: IO[bytes] | None = file
        self._filling = threading.Lock()
        self._stored: StoredRows | None = None

    def blocks(self, size: int) -> Iterator[Block]:
        if self._stored is not None:
            return self._stored.blocks(size)
        return self._filled_on_the_way(size)

    def _filled_on_the_way(self, size: int) -> Iterator[Block]:
        file = self._file
        if file is None or not self._filling.acquire(blocking=False):  # no room, or another reading writes already
            yield from self.rows.blocks(size)
            return
        if self._stored is not None:  # the file was completed between the call of `blocks` and the first block
            self._filling.release()
            yield from self._stored.blocks(size)
            return
        try:
            file.seek(0)
            file.truncate()
            count = 0
            for block in self.rows.blocks(size):
                count += block.shape[0]
                if self._file is not None and not write_block(file, block):
                    self._give_up()
                yield block
            if self._file is not None and count == self.shape[0]:
                reader = ScratchReader(file, self.shape, self.dtype)
                self._stored = StoredRows([reader], None, self.shape[1], self.dtype, self.feature_names)
        finally:
            self._filling.release()

    @property
    def is_complete(self) -> bool:
        """Whether all rows are in the file."""
        return self._stored is not None

    def _give_up(self) -> None:
        """Free what was written; rows are read from their source again."""
        if self._file is not None:
            self._file.truncate(0)
            self._file = None

    def take(self, indices: Indices) -> Block:
        # a whole reading costs a format of text no more than some of its rows
        if self._stored is None and self._file is not None and len(indices):
            for _ in self.blocks(_FILL_ROWS):
                pass
        return (self.rows if self._stored is None else self._stored).take(indices)

    def fingerprint(self) -> str:
        return self.rows.fingerprint()

    def __reduce__(self) -> tuple[Callable[[Rows], Rows], tuple[Rows]]:
        return _itself, (self.rows,)  # another process has no such file


def _itself(rows: Rows) -> Rows:
    return rows


def write_block(file: IO[bytes], block: Array) -> bool:
    """Write a block; return whether the disk had room for it."""
    left = np.ascontiguousarray(block).data.cast("B")
    try:
        while len(left):
            left = left[file.write(left) :]
    except OSError:
        return False
    return True


class ScratchReader(ArrayReader):
    """Reader of the numbers in an open file without a header."""

    def __init__(self, file: IO[bytes], shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        super().__init__("a scratch file", shape, dtype, None, None)
        self._file = file
        self._reading = threading.Lock()  # the file has one position

    @contextmanager
    def opened(self) -> Iterator[ReadBlock]:
        d = self.shape[1]

        def block(start: int, stop: int, first: int, last: int) -> Array:
            out = np.empty((stop - start, d), dtype=self.stored)
            left = out.data.cast("B")
            with self._reading:
                self._file.seek(start * d * self.stored.itemsize)
                while len(left):
                    count = self._file.readinto(left)  # type: ignore[attr-defined]
                    if not count:
                        raise EOFError("the scratch file ends before its last row")
                    left = left[count:]
            return out[:, first:last]

        yield block
