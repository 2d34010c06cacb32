"""Rows stored in files, whatever the format: blocks, single rows, checks and errors.

A `RowReader` reads one file and yields `RawRows`: rows as the format gives them, which copy themselves into a block.
`StoredRows` joins the rows of all files in order, cuts them into blocks on a thread that reads ahead, and finds single
rows. A new format is a `RowReader` with the method `read`, and a `DataFiles` for what several files have in common; see
`tables` and `arrays`.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._utils.words import plural
from ._prefetch import prefetch
from .base import Rows
from .blocks import Indices
from .rereading import RowsChangedError

Array = NDArray[Any]
Result = TypeVar("Result")

AHEAD = 32 << 20  # bytes of finished blocks that may wait for the consumer
READ_BYTES = 8 << 20  # bytes of rows that are read at once where the format leaves the choice
FILES_REMEDY = "Leave the files alone until the fit has ended; now open them again and start again"
_STRIP = 4096  # rows whose columns are interleaved at once, so that the block's lines stay in cache


class RawRows(ABC):
    """Some rows of a file in memory, in the layout and the types of the file."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def copy_to(self, out: Array, at: slice | Indices) -> None:
        """Write the rows `at` into `out`, converted to its type."""


class RawColumns(RawRows):
    """Rows in separate columns, as tables store them."""

    def __init__(self, columns: Sequence[Array]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def copy_to(self, out: Array, at: slice | Indices) -> None:
        if not isinstance(at, slice):
            for j, column in enumerate(self.columns):
                out[:, j] = column[at]
            return
        for start in range(at.start, at.stop, _STRIP):
            stop = min(start + _STRIP, at.stop)
            strip = out[start - at.start : stop - at.start]
            for j, column in enumerate(self.columns):
                strip[:, j] = column[start:stop]


class RawMatrix(RawRows):
    """Rows in a 2-D array."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def copy_to(self, out: Array, at: slice | Indices) -> None:
        out[...] = self.rows[at]


class FileState(NamedTuple):
    """Size, modification time and inode of a file; if one of them changes, so did the file.

    For a folder of files: the sum of sizes, the latest time, and a checksum of all names, sizes, times and inodes.
    """

    size: int
    modified: int
    inode: int

    @classmethod
    def of(cls, path: str) -> FileState:
        """Look at a file, or at all files of a folder."""
        status = os.stat(path)
        if not os.path.isdir(path):
            return cls(status.st_size, status.st_mtime_ns, status.st_ino)
        size, modified, files = 0, status.st_mtime_ns, 0  # a zarr store is a folder of files
        for folder, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(names):
                where = os.path.join(folder, name)
                status = os.stat(where)
                size, modified = size + status.st_size, max(modified, status.st_mtime_ns)
                # a file may be replaced by one that is as long and older
                seen = (os.path.relpath(where, path), status.st_size, status.st_mtime_ns, status.st_ino)
                files = zlib.crc32(repr(seen).encode(), files)
        return cls(size, modified, files)


class RowReader(ABC):
    """Reader of the rows of one file.

    starts : the first row of each group of rows that is best read at once; at the end, the number of rows
    state : the state of the file when it was opened; None is not checked
    buffer_bytes : memory that reading takes in addition to the blocks
    """

    parses_text = False  # whether numbers are parsed from text whenever they are read

    def __init__(self, path: str, starts: Indices, state: FileState | None, buffer_bytes: int) -> None:
        self.path = path
        self.starts = starts
        self.state = state
        self.buffer_bytes = buffer_bytes

    @property
    def n_rows(self) -> int:
        return int(self.starts[-1])

    @abstractmethod
    def read(self, columns: Any, groups: Indices | None) -> Iterator[tuple[int, RawRows]]:
        """Read columns of all rows in order, or of those in `groups`; yield them with the number of the first row."""

    def read_checked(self, columns: Any, groups: Indices | None = None) -> Iterator[tuple[int, RawRows]]:
        """Read as `read` does; if the file has changed or is damaged, raise an error that names it."""
        return self.checked(self.read(columns, groups), None if groups is not None else self.n_rows)

    def checked(self, batches: Iterator[tuple[int, Any]], expected: int | None) -> Iterator[tuple[int, Any]]:
        """Yield batches of rows with the checks of `read_checked`; `expected` is the number of rows, if known."""
        self.check_unchanged()
        count = 0
        try:
            for start, batch in batches:
                yield start, batch
                count = start + len(batch)
        except (ContentsError, RowsChangedError, ImportError):
            raise
        except Exception as error:
            self.check_unchanged()  # the better explanation
            raise_read_error(self.path, error)
        self.check_unchanged()
        if expected is not None and count != expected:
            raise ContentsError(f"{self.path} gave {count} rows where {expected} were found when it was opened")

    def check_unchanged(self) -> None:
        """Raise OSError if the file has changed since it was opened."""
        if self.state is None:
            return
        try:
            now = self.state_now()
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.path} is gone: it was there when it was opened") from error
        except OSError as error:
            raise_read_error(self.path, error)
        if now != self.state:
            raise RowsChangedError(
                f"{self.path} has changed since it was opened: rows must be the same whenever they are read. "
                f"{FILES_REMEDY}"
            )

    def state_now(self) -> FileState:
        """Look at the file as it is now."""
        return FileState.of(self.path)

    @property
    def name(self) -> str:
        """The name of the file, which stays the same if a whole folder is moved."""
        return os.path.basename(self.path)


class ContentsError(ValueError):
    """An error in the contents of a file; the message names the file."""


def raise_read_error(path: str, error: Exception) -> NoReturn:
    """Raise an error that names the file: OSError for errors of the system, ValueError for errors in the contents."""
    if isinstance(error, PermissionError):
        raise PermissionError(f"{path} cannot be read: no permission") from error
    if isinstance(error, MemoryError):  # raised by the format's library, which may have been told a wrong size
        raise MemoryError(
            f"{path} asks for more memory than there is: is it damaged, or written in too large pieces? ({error})"
        ) from error
    kind = OSError if isinstance(error, OSError) else ValueError
    raise kind(f"{path} cannot be read, is it damaged or cut short? ({error})") from error


def open_checked(path: str, format: str, function: Callable[[], Result]) -> Result:
    """Call a function that opens a file; if it fails, raise an error that names the file."""
    try:
        return function()
    except (ContentsError, ImportError):
        raise
    except (PermissionError, MemoryError) as error:
        raise_read_error(path, error)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} does not exist") from error
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as {format}: is it damaged, cut short or something else? ({error})"
        ) from error


class DataFiles(ABC):
    """Files of one format, in which some columns or arrays are features, targets or weights."""

    format: str

    @abstractmethod
    def rows(
        self, features: Any, targets: Sequence[Any], weights: Sequence[Any], dtype: np.dtype[Any] | None
    ) -> StoredRows:
        """Return the features as rows; by default they are all that is neither target nor weight."""

    @abstractmethod
    def values(self, names: Sequence[Any]) -> list[Array]:
        """Read whole targets or weights."""

    def numbers(self, names: Sequence[Any]) -> Rows | None:
        """Return targets as rows that are read in blocks, or None if they can only be read as a whole."""
        return None

    def label_type(self, name: Any) -> np.dtype[Any] | None:
        """Return the type that `values` has for a target of integers or booleans, or None for others."""
        return None

    def is_category(self, name: Any) -> bool:
        """Whether the files say that a target is categories, whatever they are written as."""
        return False


class StoredRows(Rows):
    """The rows of one or more files, in order, read when they are needed. Use `gyrfalcon.open` to make it.

    It holds the files' names, not open files, and can be sent to other processes that see the same files. `columns` is
    passed to the readers' `read`.
    """

    is_sparse = False
    exact = True
    remedy = FILES_REMEDY

    def __init__(
        self,
        readers: Sequence[RowReader],
        columns: Any,
        n_features: int,
        dtype: np.dtype[Any],
        feature_names: list[str] | None = None,
    ) -> None:
        self.readers: Sequence[Any] = [reader for reader in readers if reader.n_rows > 0]
        self.columns = columns
        self.dtype = dtype
        self.feature_names = feature_names
        self.slow_to_read = any(reader.parses_text for reader in self.readers)
        self._starts = np.concatenate([[0], np.cumsum([reader.n_rows for reader in self.readers], dtype=np.intp)])
        self.shape = (int(self._starts[-1]), n_features)

    def __repr__(self) -> str:
        (n, d), count = self.shape, len(self.readers)
        return f"<{plural(n, 'row')} of {plural(d, 'feature')} in {self.dtype}, {plural(count, 'file')}>"

    @property
    def buffer_bytes(self) -> int:
        """Memory held while the rows are read: finished blocks that wait, and what the format needs."""
        return self._ahead + max((reader.buffer_bytes for reader in self.readers), default=0)

    @property
    def _ahead(self) -> int:
        return min(AHEAD, self.shape[0] * self.shape[1] * self.dtype.itemsize)

    def origin(self, row: int | None = None) -> str:
        if row is not None:
            return self.readers[int(np.searchsorted(self._starts, row, side="right")) - 1].path
        count = len(self.readers)
        return self.readers[0].path + f" and {count - 1} more" * (count > 1)

    def blocks(self, size: int) -> Iterator[Array]:
        """Iterate over blocks of `size` rows; a thread reads ahead until the generator is closed."""
        return prefetch(self._blocks(size), self._ahead)

    def blocks_from(self, size: int, start: int) -> Iterator[Array]:
        return prefetch(self._blocks(size, start), self._ahead)

    def _blocks(self, size: int, start: int = 0) -> Generator[Array, None, None]:
        n, d = self.shape
        given, filled = start, 0
        out = np.empty((min(size, n - start), d), dtype=self.dtype)
        for reader, done, raw in self._pieces(start, lambda reader, groups: reader.read(self.columns, groups)):
            while done < len(raw):
                if given == n:
                    raise ContentsError(f"{reader.path} gave more rows than were found when it was opened")
                count = min(len(out) - filled, len(raw) - done)
                with np.errstate(over="ignore"):  # values that overflow become infinite, and are refused as such
                    raw.copy_to(out[filled : filled + count], slice(done, done + count))
                done, filled = done + count, filled + count
                if filled == len(out):
                    yield out
                    given, filled = given + len(out), 0
                    out = np.empty((min(size, n - given), d), dtype=self.dtype)

    def _pieces(
        self, start: int, read: Callable[[Any, Indices | None], Iterator[tuple[int, Any]]]
    ) -> Iterator[tuple[Any, int, Any]]:
        """Read from row `start` on by groups; yield the reader, the number of rows before `start`, and rows."""
        for reader, offset in zip(self.readers, self._starts.tolist(), strict=False):
            first = max(0, start - offset)
            if first >= reader.n_rows:
                continue
            begun = int(np.searchsorted(reader.starts, first, side="right")) - 1
            groups = np.arange(begun, len(reader.starts) - 1) if first else None
            for at, raw in reader.checked(read(reader, groups), None if first else reader.n_rows):
                if at + len(raw) > first:
                    yield reader, max(0, first - at), raw

    def take(self, indices: Indices) -> Array:
        """Return the rows at `indices`, in that order; only the groups of rows that hold them are read, each once."""
        out = np.empty((len(indices), self.shape[1]), dtype=self.dtype)
        for places, raw, at in self._chosen(indices, lambda reader, groups: reader.read(self.columns, groups)):
            rows = np.empty((len(at), self.shape[1]), dtype=self.dtype)
            with np.errstate(over="ignore"):
                raw.copy_to(rows, at)
            out[places] = rows
        return out

    def _chosen(
        self, indices: Indices, read: Callable[[Any, Indices], Iterator[tuple[int, Any]]]
    ) -> Iterator[tuple[Indices, Any, Indices]]:
        """Read the groups that hold rows; yield places among `indices`, rows that were read, and which of these."""
        indices, n = np.asarray(indices, dtype=np.intp), self.shape[0]
        if len(indices) and not (-n <= indices.min() and indices.max() < n):
            raise IndexError(f"row {indices[np.argmax(np.abs(indices))]} was requested, and there are {n} rows")
        indices = np.where(indices < 0, indices + n, indices)
        order = np.argsort(indices, kind="stable")
        ordered = indices[order]
        edges = np.searchsorted(ordered, self._starts)
        for reader, offset, first, last in zip(self.readers, self._starts, edges[:-1], edges[1:], strict=False):
            if first == last:
                continue
            wanted, places = ordered[first:last] - offset, order[first:last]
            groups = np.unique(np.searchsorted(reader.starts, wanted, side="right") - 1)
            for start, raw in reader.checked(read(reader, groups), None):
                low, high = np.searchsorted(wanted, (start, start + len(raw)))
                if low < high:
                    yield places[low:high], raw, wanted[low:high] - start

    def fingerprint(self) -> str:
        """Describe the files' names, sizes and modification times, the columns, and the type that they are read as."""
        files = [(reader.name, reader.state, reader.n_rows) for reader in self.readers]
        digest = hashlib.sha256(repr((files, self.columns, self.dtype.str)).encode()).hexdigest()[:16]
        states = [reader.state for reader in self.readers if reader.state is not None]
        if not states:
            return digest
        written = datetime.fromtimestamp(max(state.modified for state in states) / 1e9).isoformat(" ", "microseconds")
        size = sum(state.size for state in states)
        return f"{len(files)} file{'s' * (len(files) != 1)} of {size} bytes, last written {written} ({digest})"
