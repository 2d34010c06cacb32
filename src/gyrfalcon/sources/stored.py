"""Rows that are stored in files, whatever the format: blocks from pieces as they are read, the errors, the checks.

A file is a `Part`, and a part gives pieces: some rows as they come out of the file, and how to write them into a block.
`StoredRows` joins the parts' rows in order, cuts them into blocks on a thread that reads ahead, and finds single rows.
A new format is one class with `read`; see `tables` and `arrays`.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ._prefetch import prefetch

Array = NDArray[Any]
Indices = NDArray[np.intp]

AHEAD = 32 << 20  # bytes of finished blocks that may wait for the reader
PIECE = 8 << 20  # bytes of rows that are read at once where the format leaves the choice
_STRIP = 4096  # rows whose columns are interleaved at once, so that the block's lines stay in cache


class Piece(ABC):
    """Some rows of a file in memory."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def write(self, out: Array, at: slice | Indices) -> None:
        """Write the rows `at` into `out`, converted to its type."""


class Columns(Piece):
    """Rows that came as columns."""

    def __init__(self, columns: Sequence[Array]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def write(self, out: Array, at: slice | Indices) -> None:
        if not isinstance(at, slice):
            for j, column in enumerate(self.columns):
                out[:, j] = column[at]
            return
        for start in range(at.start, at.stop, _STRIP):
            stop = min(start + _STRIP, at.stop)
            strip = out[start - at.start : stop - at.start]
            for j, column in enumerate(self.columns):
                strip[:, j] = column[start:stop]


class Matrix(Piece):
    """Rows that came as rows."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def write(self, out: Array, at: slice | Indices) -> None:
        out[...] = self.rows[at]


class Stamp(NamedTuple):
    """What a file looks like from outside: if it changes, so did the file."""

    size: int
    modified: int
    inode: int

    @classmethod
    def of(cls, path: str) -> Stamp:
        status = os.stat(path)
        if not os.path.isdir(path):
            return cls(status.st_size, status.st_mtime_ns, status.st_ino)
        size, modified = 0, status.st_mtime_ns  # a zarr store: a folder of files
        for folder, _, names in os.walk(path):
            for name in names:
                status = os.stat(os.path.join(folder, name))
                size, modified = size + status.st_size, max(modified, status.st_mtime_ns)
        return cls(size, modified, 0)


class Part(ABC):
    """A file, and which rows of it are read together.

    Parameters
    ----------
    path : str
    starts : array of int
        Where each group of rows that is best read at once begins, and at the end the number of rows.
    stamp : Stamp or None
        What the file looked like when it was opened; None is not checked.
    buffer_bytes : int
        Memory that reading takes, beside the blocks.
    """

    def __init__(self, path: str, starts: Indices, stamp: Stamp | None, buffer_bytes: int) -> None:
        self.path = path
        self.starts = starts
        self.stamp = stamp
        self.buffer_bytes = buffer_bytes

    @property
    def n_rows(self) -> int:
        return int(self.starts[-1])

    @abstractmethod
    def read(self, columns: Any, groups: Indices | None) -> Iterator[tuple[int, Piece]]:
        """Pieces of these columns, each with the row of the file it begins at: all in order, or those of `groups`."""

    def pieces(self, columns: Any, groups: Indices | None = None) -> Iterator[tuple[int, Piece]]:
        """What `read` gives; if the file changed or is damaged, an error that names it."""
        return self.guarded(self.read(columns, groups), None if groups is not None else self.n_rows)

    def guarded(self, pieces: Iterator[tuple[int, Any]], expected: int | None) -> Iterator[tuple[int, Any]]:
        self.check_unchanged()
        count = 0
        try:
            for start, piece in pieces:
                yield start, piece
                count = start + len(piece)
        except (ContentsError, ImportError):
            raise
        except Exception as error:
            self.check_unchanged()  # the better explanation
            cannot_read(self.path, error)
        self.check_unchanged()
        if expected is not None and count != expected:
            raise ContentsError(f"{self.path} gave {count} rows where {expected} were found when it was opened")

    def check_unchanged(self) -> None:
        if self.stamp is None:
            return
        try:
            now = Stamp.of(self.path)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.path} is gone: it was there when it was opened") from error
        except OSError as error:
            cannot_read(self.path, error)
        if now != self.stamp:
            raise OSError(
                f"{self.path} has changed since it was opened: rows must stay the same during a fit; "
                "open it again and start again"
            )


class ContentsError(ValueError):
    """Something about the contents of a file; the message names it."""


def cannot_read(path: str, error: Exception) -> NoReturn:
    """Raise an error that names the file: OSError for what the system says, ValueError for what is in the file."""
    if isinstance(error, PermissionError):
        raise PermissionError(f"{path} cannot be read: no permission") from error
    if isinstance(error, MemoryError):
        raise MemoryError(
            f"{path} asks for more memory than there is: is it damaged, or written in too large pieces? ({error})"
        ) from error
    kind = OSError if isinstance(error, OSError) else ValueError
    raise kind(f"{path} cannot be read, is it damaged or cut short? ({error})") from error


class StoredRows:
    """The rows of one or more files, one after the other, read as they are needed.

    It holds names, not open files, and can be sent to other processes that see the same files. `gyrfalcon.open` makes
    it.

    Parameters
    ----------
    parts : sequence of Part
    columns : what the parts' `read` is given
    n_features : int
    dtype : float32 or float64
    feature_names : list of str, optional
    """

    def __init__(
        self,
        parts: Sequence[Part],
        columns: Any,
        n_features: int,
        dtype: np.dtype[Any],
        feature_names: list[str] | None = None,
    ) -> None:
        self.parts = [part for part in parts if part.n_rows > 0]
        self.columns = columns
        self.dtype = dtype
        self.feature_names = feature_names
        self._starts = np.concatenate([[0], np.cumsum([part.n_rows for part in self.parts], dtype=np.intp)])
        self.shape = (int(self._starts[-1]), n_features)

    def __repr__(self) -> str:
        n, d = self.shape
        return f"<{n:,} rows of {d} features in {self.dtype}, {len(self.parts)} file{'s' * (len(self.parts) != 1)}>"

    @property
    def buffer_bytes(self) -> int:
        """Memory held while the rows are read: finished blocks that wait, and what the files' format needs."""
        return self._ahead + max((part.buffer_bytes for part in self.parts), default=0)

    @property
    def _ahead(self) -> int:
        return min(AHEAD, self.shape[0] * self.shape[1] * self.dtype.itemsize)

    def blocks(self, size: int) -> Iterator[Array]:
        """Blocks of `size` rows, the rest last; a thread reads ahead until the generator is closed."""
        return prefetch(self._blocks(size), self._ahead)

    def _blocks(self, size: int) -> Iterator[Array]:
        n, d = self.shape
        given = filled = 0
        out = np.empty((min(size, n), d), dtype=self.dtype)
        for part in self.parts:
            for _, piece in part.pieces(self.columns):
                done = 0
                while done < len(piece):
                    if given == n:
                        raise ContentsError(f"{part.path} gave more rows than were found when it was opened")
                    count = min(len(out) - filled, len(piece) - done)
                    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as that
                        piece.write(out[filled : filled + count], slice(done, done + count))
                    done, filled = done + count, filled + count
                    if filled == len(out):
                        yield out
                        given, filled = given + len(out), 0
                        out = np.empty((min(size, n - given), d), dtype=self.dtype)

    def take(self, indices: Indices) -> Array:
        """The rows at `indices`, in that order; only the groups of rows that hold one are read, and each once."""
        indices = np.asarray(indices, dtype=np.intp)
        n, d = self.shape
        if len(indices) and not (-n <= indices.min() and indices.max() < n):
            raise IndexError(f"row {indices[np.argmax(np.abs(indices))]} is asked for, and there are {n} rows")
        indices = np.where(indices < 0, indices + n, indices)
        out = np.empty((len(indices), d), dtype=self.dtype)
        order = np.argsort(indices, kind="stable")
        ordered = indices[order]
        of_part = np.searchsorted(ordered, self._starts)
        for part, offset, first, last in zip(self.parts, self._starts, of_part[:-1], of_part[1:], strict=False):
            if first == last:
                continue
            wanted, places = ordered[first:last] - offset, order[first:last]
            groups = np.unique(np.searchsorted(part.starts, wanted, side="right") - 1)
            for start, piece in part.pieces(self.columns, groups):
                low, high = np.searchsorted(wanted, (start, start + len(piece)))
                if low < high:
                    rows = np.empty((high - low, d), dtype=self.dtype)
                    with np.errstate(over="ignore"):
                        piece.write(rows, wanted[low:high] - start)
                    out[places[low:high]] = rows
        return out

    def fingerprint(self) -> str:
        """Says whether the files are the same: names, sizes and times, which columns, and as what they are read."""
        files = [(os.path.basename(part.path), part.stamp, part.n_rows) for part in self.parts]
        digest = hashlib.sha256(repr((files, self.columns, self.dtype.str)).encode()).hexdigest()[:16]
        stamps = [part.stamp for part in self.parts if part.stamp is not None]
        if not stamps:
            return digest
        written = datetime.fromtimestamp(max(stamp.modified for stamp in stamps) / 1e9).isoformat(" ", "microseconds")
        size = sum(stamp.size for stamp in stamps)
        return f"{len(files)} file{'s' * (len(files) != 1)} of {size} bytes, last written {written} ({digest})"
