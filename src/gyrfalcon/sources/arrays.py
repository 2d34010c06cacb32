"""Rows of arrays in files, HDF5, zarr and ``.npy``, and of open arrays of h5py and zarr.

Arrays in chunks are read in whole chunks. ``.npy`` files are read, not memory-mapped: pages of a mapped file count as
memory of the process, and access to a mapped file that was cut short kills it.
"""

from __future__ import annotations

import math
import operator
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import format_bytes, require
from .._utils.words import shown, similar
from . import _hdf5, _zarr
from .base import hash_of_blocks
from .blocks import Indices
from .limits import require_in_proportion, text_labels
from .stored import (
    READ_BYTES,
    ContentsError,
    DataFiles,
    FileState,
    RawMatrix,
    RawRows,
    RowReader,
    StoredRows,
    open_checked,
)

Array = NDArray[Any]

_GROUP_BYTES = 1 << 16  # bytes of rows that are read to take a single row
_MOST_GROUPS = 1 << 20  # bounds the memory of `starts`, whatever shape a file declares
_MOST_CHUNKS = 1024  # chunks that are read at once: zarr and HDF5 take some ten kilobytes for each
_FREE_PASS, _PASS_RATIO = 4 << 30, 4000  # bytes of rows that any file may declare, and more for each of its bytes
_MOST_TINY, _TINY = 1 << 20, 1 << 12  # largest number of chunks that have fewer bytes than this

_FORMATS: dict[str, Any] = {"HDF5": _hdf5, "zarr": _zarr}  # modules with `shapes` and `open_array`

ReadBlock = Callable[[int, int, int, int], Array]  # the rows from the first to the second, and columns in the same way


class ArrayReader(RowReader):
    """Reader of a 2-D array; `dtype` is the type as stored, and `chunks` is None if the array is not chunked."""

    def __init__(
        self, path: str, shape: tuple[int, ...], dtype: Any, chunks: Sequence[int] | None, state: FileState | None
    ) -> None:
        n, d = map(int, shape)
        self.shape = (n, d)
        self.stored = np.dtype(dtype)
        row = max(1, d * self.stored.itemsize)
        self.chunks = (max(1, _GROUP_BYTES // row), d) if chunks is None else (int(chunks[0]), int(chunks[1]))
        group = self.chunks[0]
        across = -(-d // self.chunks[1])  # chunks beside each other
        together = max(1, min(READ_BYTES // (row * group), _MOST_CHUNKS // across))
        self.step = together * group  # rows that are read at once
        self.width = min(across, _MOST_CHUNKS) * self.chunks[1]  # columns that are read at once
        group *= -(-n // (group * _MOST_GROUPS)) or 1
        size = min(self.step, n) * row
        what = f"{path}: its {d} columns are read {min(self.step, n)} rows at a time, which takes {format_bytes(size)}"
        require("auto", size, what, "write them in smaller chunks")
        if state is not None and chunks is not None:
            largest = max(size, math.prod(self.chunks) * self.stored.itemsize)
            require_in_proportion(
                path, state.size, largest, f"reading a chunk of {self.chunks} values takes", "write smaller chunks"
            )
        starts = np.append(np.arange(0, n, group, dtype=np.intp), n) if n else np.zeros(1, dtype=np.intp)
        super().__init__(path, starts, state, 2 * size)
        self._checked = 0  # number of rows, from the first, whose chunks were checked

    @abstractmethod
    def opened(self) -> AbstractContextManager[ReadBlock]:
        """Open the array; return a context with a function that reads rows and columns."""

    def read(self, columns: Any, groups: Indices | None) -> Iterator[tuple[int, RawRows]]:
        if groups is None:
            self._check_pass()
            ranges: Iterator[tuple[int, int]] = iter([(0, self.n_rows)])
        else:
            ranges = zip(self.starts[groups].tolist(), self.starts[groups + 1].tolist(), strict=True)
        with self.opened() as block:
            for first, last in ranges:
                for start in range(first, last, self.step):
                    rows = self._rows(block, start, min(start + self.step, last))
                    yield start, RawMatrix(rows if columns is None else rows[:, columns])

    def _check_pass(self) -> None:
        """Raise ContentsError if a pass over all rows would not end: they are not in the file, or in tiny chunks."""
        if self.state is None:
            return
        n, d = self.shape
        declared = n * d * self.stored.itemsize
        if declared > _FREE_PASS + _PASS_RATIO * self.state.size:
            raise ContentsError(
                f"{self.path} declares {n} rows of {d} columns, {format_bytes(declared)}, and has "
                f"{format_bytes(self.state.size)}: such rows are not read, as almost none can be there"
            )
        check_number_of_chunks(self.path, self.shape, self.chunks, self.stored.itemsize)

    def _rows(self, block: ReadBlock, start: int, stop: int) -> Array:
        """Read some rows, in groups of columns where a row is in many chunks."""
        d = self.shape[1]
        parts = [block(start, stop, first, min(first + self.width, d)) for first in range(0, d, self.width)]
        if start <= self._checked < stop:
            self._checked = stop
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _corners(self, start: int, stop: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Iterate over the first row and column of each chunk that has some of these rows and columns."""
        rows, columns = self.chunks
        for i in range(start - start % rows, stop, rows):
            for j in range(first - first % columns, last, columns):
                yield i, j


class NpyReader(ArrayReader):
    """Reader of a ``.npy`` file; an array with one axis is refused, or read `as_column`."""

    def __init__(self, path: str, *, as_column: bool = False) -> None:
        state = FileState.of(path)
        shape, self.fortran, dtype, self.offset = _npy_header(path, state.size)
        if as_column and len(shape) == 1:
            shape = (*shape, 1)
        check_array(path, shape, dtype)
        super().__init__(path, shape, dtype, None, state)

    @contextmanager
    def opened(self) -> Iterator[ReadBlock]:
        n, d = self.shape
        size = self.stored.itemsize
        with open(self.path, "rb", buffering=0) as file:

            def numbers(first: int, count: int) -> Array:
                out = np.empty(count, dtype=self.stored)
                file.seek(self.offset + first * size)
                if file.readinto(out.view(np.uint8).data) != count * size:
                    raise EOFError("the file ends before its last row")
                return out

            def block(start: int, stop: int, first: int, last: int) -> Array:
                if self.fortran:
                    return np.stack([numbers(j * n + start, stop - start) for j in range(first, last)], axis=1)
                return numbers(start * d, (stop - start) * d).reshape(-1, d)[:, first:last]

            yield block


def _npy_header(path: str, size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Read the header of a file of `size` bytes: shape, whether in Fortran order, dtype, and offset of the values."""
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        offset = file.tell()
    if any(length < 0 for length in shape):
        raise ContentsError(f"{path} declares the shape {shape}, which no array has")
    expected = offset + math.prod(map(int, shape)) * dtype.itemsize
    if size < expected:
        raise ContentsError(f"{path} is cut short: it should have {expected} bytes and has {size}")
    return shape, fortran, dtype, offset


class NamedArrayReader(ArrayReader):
    """Reader of an array of an HDF5 file or a zarr store."""

    def __init__(self, path: str, format: str, name: str) -> None:
        self._open = partial(_FORMATS[format].open_array, path, name)
        state = FileState.of(path)
        with self._open() as opened:
            array = opened.array
            check_array(f"{path}, {name!r}", array.shape, array.dtype)
            super().__init__(path, array.shape, array.dtype, array.chunks, state)

    @contextmanager
    def opened(self) -> Iterator[ReadBlock]:
        with self._open() as opened:

            def block(start: int, stop: int, first: int, last: int) -> Array:
                if stop > self._checked:
                    opened.check_chunks(self._corners(start, stop, first, last))
                return np.asarray(opened.array[start:stop, first:last])

            yield block


@runtime_checkable
class OpenArray(Protocol):
    """An open array of h5py or zarr, whose rows can be read in slices."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    def __getitem__(self, rows: Any) -> Any: ...


class OpenArrayReader(ArrayReader):
    """Reader of an array that the user has opened, and that this object does not close."""

    def __init__(self, array: OpenArray) -> None:
        self.array = array
        check_array(repr(array), array.shape, array.dtype)
        chunks = getattr(array, "chunks", None)  # h5py's views of another type have none
        super().__init__(repr(array), array.shape, array.dtype, chunks, None)

    @contextmanager
    def opened(self) -> Iterator[ReadBlock]:
        yield lambda start, stop, first, last: np.asarray(self.array[start:stop, first:last])


class OpenArrayRows(StoredRows):
    """Rows of an open h5py.Dataset or zarr.Array."""

    def __init__(self, array: OpenArray) -> None:
        reader = OpenArrayReader(array)
        super().__init__([reader], None, reader.shape[1], tile_dtype(reader.stored))

    def fingerprint(self) -> str:
        """Hash all values: an open array has no file whose modification time can be checked."""
        return hash_of_blocks(self)


def check_array(what: str, shape: Sequence[int], dtype: Any) -> None:
    """Raise ContentsError if an array is not a matrix of numbers; `what` names it."""
    if shape is None or len(shape) != 2:
        raise ContentsError(f"{what}: rows must be a 2-D array, not one of shape {shape}")
    if shape[1] == 0:
        raise ContentsError(f"{what}: the array has no columns")
    if np.dtype(dtype).kind not in "fiub":
        raise ContentsError(f"{what}: rows of type {dtype} are not numbers: store them as float32 or float64")


def check_number_of_chunks(what: str, shape: Sequence[int], chunks: Sequence[int], itemsize: int) -> None:
    """Raise ContentsError for an array in very many chunks of a few bytes."""
    count = math.prod(-(-a // b) for a, b in zip(shape, chunks, strict=True))
    if count > _MOST_TINY and math.prod(chunks) * itemsize < _TINY:
        raise ContentsError(
            f"{what} has {count} chunks of {' x '.join(map(str, chunks))} values, which take longer to find than to "
            f"read: write it in chunks of {_TINY} bytes or more"
        )


def tile_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Choose float32 for arrays of float32 or less, and float64 for all others."""
    return np.dtype(np.float32 if stored.kind == "f" and stored.itemsize <= 4 else np.float64)


# ---- several files ---------------------------------------------------------------------------------------------------


class ArrayFiles(DataFiles):
    """Files that each hold an array of rows."""

    readers: Sequence[ArrayReader]

    def _check_alike(self) -> None:
        first = self.readers[0]
        for other in self.readers[1:]:
            if other.shape[1] != first.shape[1]:
                raise ContentsError(f"{other.path} has {other.shape[1]} columns, and {first.path} has {first.shape[1]}")
            if other.stored != first.stored:
                raise ContentsError(f"{other.path} holds {other.stored}, and {first.path} holds {first.stored}")


class NpyFiles(ArrayFiles):
    """``.npy`` files. A target or weight is a column's number, or the name of another ``.npy`` file."""

    format = "npy"

    def __init__(self, paths: Sequence[str]) -> None:
        self.readers = [open_checked(path, self.format, partial(NpyReader, path)) for path in paths]
        self._check_alike()

    def rows(
        self, features: Any, targets: Sequence[Any], weights: Sequence[Any], dtype: np.dtype[Any] | None
    ) -> StoredRows:
        d = self.readers[0].shape[1]
        others = [self._column(value, d) for value in (*targets, *weights) if not isinstance(value, str | os.PathLike)]
        if features is None:
            columns = [j for j in range(d) if j not in others]
        elif isinstance(features, str):
            raise TypeError(f"features={shown(features)}: columns of a .npy file have no names, give their numbers")
        else:
            columns = [self._column(value, d) for value in np.atleast_1d(features).tolist()]
            if set(columns) & set(others):
                raise ValueError(
                    f"features={shown(features)} contains the target or the weight, which cannot be features: leave "
                    "them out"
                )
        if not columns:
            raise ValueError(f"{self.readers[0].path} has {d} columns, and none of them is left for features")
        everything = columns == list(range(d))
        return StoredRows(
            self.readers, None if everything else columns, len(columns), dtype or tile_dtype(self.readers[0].stored)
        )

    def _column(self, value: Any, d: int) -> int:
        try:
            column = operator.index(value)
        except TypeError:
            column = None
        if column is None or isinstance(value, bool):
            raise TypeError(
                f"{shown(value)} is no column of {self.readers[0].path}: give its number, from 0 to {d - 1}"
            )
        if not -d <= column < d:
            raise ValueError(f"{self.readers[0].path} has no column {column}: there are {d}, from 0 to {d - 1}")
        return column % d

    def values(self, names: Sequence[Any]) -> list[Array]:
        return [
            self._values_of_file(os.fspath(name)) if isinstance(name, str | os.PathLike) else self._values(name)
            for name in names
        ]

    def numbers(self, names: Sequence[Any]) -> StoredRows | None:
        if not any(isinstance(name, str | os.PathLike) for name in names):
            return self.rows(list(names), [], [], None)
        if len(names) > 1:
            return None
        reader = open_checked(os.fspath(names[0]), self.format, partial(NpyReader, os.fspath(names[0]), as_column=True))
        return StoredRows([reader], None, reader.shape[1], tile_dtype(reader.stored))

    def label_type(self, name: Any) -> np.dtype[Any] | None:
        rows = self.numbers([name])
        stored = None if rows is None else rows.readers[0].stored.newbyteorder("=")
        return stored if stored is not None and stored.kind in "iub" else None

    def _values(self, name: Any) -> Array:
        column = self._column(name, self.readers[0].shape[1])
        n = sum(reader.n_rows for reader in self.readers)
        out = np.empty(n, dtype=self.readers[0].stored.newbyteorder("="))
        offset = 0
        for reader in self.readers:
            for start, raw in reader.read_checked([column]):
                raw.copy_to(out[offset + start : offset + start + len(raw), None], slice(0, len(raw)))
            offset += reader.n_rows
        return out

    def _values_of_file(self, path: str) -> Array:
        def whole() -> Array:
            shape, _, _, _ = _npy_header(path, os.path.getsize(path))
            _check_length(path, shape, self.readers)
            return text_labels(np.load(path, allow_pickle=False), path, os.path.getsize(path))

        return open_checked(path, "npy", whole)


class NamedArrays(ArrayFiles):
    """HDF5 files and zarr stores, whose arrays have names."""

    def __init__(self, paths: Sequence[str], format: str) -> None:
        self.format = format
        self.paths = list(paths)
        self.readers = []

    def rows(
        self, features: Any, targets: Sequence[Any], weights: Sequence[Any], dtype: np.dtype[Any] | None
    ) -> StoredRows:
        shapes = self._shapes(self.paths[0])
        for name in (*targets, *weights):
            self._check_name(name, shapes)
        if features is None:
            features = self._default_features(shapes, [*targets, *weights])
        elif not isinstance(features, str):
            raise TypeError(
                f"features={shown(features)} must be the name of the 2-D array of {self.paths[0]} to be used"
            )
        self._check_name(features, shapes)
        make = partial(NamedArrayReader, format=self.format, name=features)
        self.readers = [open_checked(path, self.format, partial(make, path)) for path in self.paths]
        self._check_alike()
        return StoredRows(self.readers, None, self.readers[0].shape[1], dtype or tile_dtype(self.readers[0].stored))

    def _shapes(self, path: str) -> dict[str, tuple[int, ...]]:
        return open_checked(path, self.format, partial(_FORMATS[self.format].shapes, path))

    def _check_name(self, name: Any, shapes: dict[str, tuple[int, ...]]) -> None:
        if name not in shapes:
            close = similar(str(name), shapes)
            names = [*close, *(other for other in shapes if other not in close)]
            listed = ", ".join(f"{other!r} {shapes[other]}" for other in names[:20]) or "none"
            raise ValueError(f"{self.paths[0]} has no array {name!r}: its arrays are {listed}")

    def _default_features(self, shapes: dict[str, tuple[int, ...]], others: Sequence[str]) -> str:
        if "X" in shapes:
            return "X"
        found = [name for name, shape in shapes.items() if len(shape) == 2 and name not in others]
        if len(found) != 1:
            listed = ", ".join(f"{name!r} {shape}" for name, shape in shapes.items()) or "none"
            raise ValueError(
                f"{self.paths[0]}: which array holds the rows? Name it with features=...; its arrays are {listed}"
            )
        return found[0]

    def values(self, names: Sequence[Any]) -> list[Array]:
        return [self._values(name) for name in names]

    def _values(self, name: str) -> Array:
        found = []
        for reader in self.readers:
            reader.check_unchanged()
            whole = partial(self._values_of_file, reader, name)
            found.append(open_checked(reader.path, self.format, whole))
            reader.check_unchanged()
        return np.concatenate(found)

    def _values_of_file(self, reader: ArrayReader, name: str) -> Array:
        what = f"{reader.path}, {name!r}"
        with _FORMATS[self.format].open_array(reader.path, name) as opened:
            array = opened.array
            _check_length(what, array.shape, [reader])
            chunks = array.chunks or array.shape
            size = max(math.prod(map(int, chunks)), math.prod(map(int, array.shape))) * array.dtype.itemsize
            require("auto", size, f"{what} takes {format_bytes(size)} of memory", "choose another array")
            assert reader.state is not None
            require_in_proportion(what, reader.state.size, size, "it takes", "choose another array")
            check_number_of_chunks(what, array.shape, chunks, array.dtype.itemsize)
            opened.check_chunks()
            if array.dtype.kind == "O":
                return text_labels(_hdf5.read_text(reader.path, array), what, reader.state.size)
            across = math.prod(-(-a // b) for a, b in zip(array.shape[1:], chunks[1:], strict=True))
            step = max(1, _MOST_CHUNKS // across) * int(chunks[0])
            parts = [np.asarray(array[start : start + step]) for start in range(0, array.shape[0], step)]
            return text_labels(np.concatenate(parts) if parts else np.asarray(array[()]), what, reader.state.size)


def _check_length(what: str, shape: Sequence[int] | None, readers: Sequence[ArrayReader]) -> None:
    n = sum(reader.n_rows for reader in readers)
    if shape is None or len(shape) not in (1, 2) or shape[0] != n:
        raise ContentsError(f"{what} has shape {shape}, where one number for each of the {n} rows is needed")
