"""Arrays in files: HDF5, zarr and ``.npy``, and the open objects of h5py and zarr themselves.

What is stored in chunks is read in whole chunks. ``.npy`` files are read, not mapped: pages of a mapped file count as
memory of the process, and a mapped file that is cut short would end it.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import format_bytes, require
from . import _hdf5, _zarr
from .base import fingerprint
from .stored import PIECE, ContentsError, Indices, Matrix, Part, Piece, Stamp, StoredRows, cannot_read

Array = NDArray[Any]
Result = TypeVar("Result")

_GROUP = 1 << 16  # bytes of rows that are read around a single row
_MOST_GROUPS = 1 << 20  # however many rows an array says it has


class ArrayPart(Part):
    """A 2-D array in a file, or its columns `columns`.

    Parameters
    ----------
    path : str
    shape : tuple of int
    dtype : dtype
        As stored.
    chunk : int or None
        Rows of a chunk, None if it can be read from any row to any other.
    """

    def __init__(self, path: str, shape: tuple[int, ...], dtype: Any, chunk: int | None, stamp: Stamp | None) -> None:
        n, d = map(int, shape)
        self.shape = (n, d)
        self.stored = np.dtype(dtype)
        row = max(1, d * self.stored.itemsize)
        group = max(1, _GROUP // row) if chunk is None else int(chunk)
        group *= -(-n // (group * _MOST_GROUPS)) or 1
        self.step = max(1, PIECE // (row * group)) * group  # rows of a piece
        size = min(self.step, n) * row
        what = f"{path}: its {d} columns are read {min(self.step, n)} rows at a time, which takes {format_bytes(size)}"
        require("auto", size, what, "write them in smaller chunks")
        starts = np.append(np.arange(0, n, group, dtype=np.intp), n) if n else np.zeros(1, dtype=np.intp)
        super().__init__(path, starts, stamp, 2 * size)

    @contextmanager
    def opened(self) -> Iterator[Callable[[int, int], Array]]:
        """A function that gives the rows from one to another."""
        raise NotImplementedError
        yield

    def read(self, columns: Any, groups: Indices | None) -> Iterator[tuple[int, Piece]]:
        n = self.n_rows
        if groups is None:
            bounds = [(start, min(start + self.step, n)) for start in range(0, n, self.step)]
        else:
            bounds = list(zip(self.starts[groups].tolist(), self.starts[groups + 1].tolist(), strict=True))
        with self.opened() as rows:
            for start, stop in bounds:
                piece = rows(start, stop)
                yield start, Matrix(piece if columns is None else piece[:, columns])


class NpyPart(ArrayPart):
    """A ``.npy`` file."""

    def __init__(self, path: str) -> None:
        stamp = Stamp.of(path)
        shape, self.fortran, dtype, self.offset = _npy_header(path, stamp.size)
        check_array(path, shape, dtype)
        super().__init__(path, shape, dtype, None, stamp)

    @contextmanager
    def opened(self) -> Iterator[Callable[[int, int], Array]]:
        n, d = self.shape
        size = self.stored.itemsize
        with open(self.path, "rb", buffering=0) as file:

            def numbers(first: int, count: int) -> Array:
                out = np.empty(count, dtype=self.stored)
                file.seek(self.offset + first * size)
                if file.readinto(out.view(np.uint8).data) != count * size:
                    raise EOFError("it ends before its last row")
                return out

            def rows(start: int, stop: int) -> Array:
                if self.fortran:
                    return np.stack([numbers(j * n + start, stop - start) for j in range(d)], axis=1)
                return numbers(start * d, (stop - start) * d).reshape(-1, d)

            yield rows


def _npy_header(path: str, size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order and type of an array in a file of that many bytes, and where its numbers begin."""
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        offset = file.tell()
    if any(length < 0 for length in shape):
        raise ContentsError(f"{path} says its shape is {shape}")
    expected = offset + math.prod(map(int, shape)) * dtype.itemsize
    if size < expected:
        raise ContentsError(f"{path} is cut short: it should have {expected} bytes and has {size}")
    return shape, fortran, dtype, offset


class Hdf5Part(ArrayPart):
    """A dataset of an HDF5 file."""

    def __init__(self, path: str, name: str) -> None:
        self.name = name
        stamp = Stamp.of(path)
        with _hdf5.open_array(path, name) as array:
            check_array(f"{path}, {name!r}", array.shape, array.dtype)
            super().__init__(path, array.shape, array.dtype, array.chunks and array.chunks[0], stamp)

    @contextmanager
    def opened(self) -> Iterator[Callable[[int, int], Array]]:
        with _hdf5.open_array(self.path, self.name) as array:
            yield lambda start, stop: array[start:stop]


class ZarrPart(ArrayPart):
    """An array of a zarr store."""

    def __init__(self, path: str, name: str) -> None:
        self.name = name
        stamp = Stamp.of(path)
        array = _zarr.open_array(path, name)
        check_array(f"{path}, {name!r}", array.shape, array.dtype)
        super().__init__(path, array.shape, array.dtype, array.chunks[0], stamp)

    @contextmanager
    def opened(self) -> Iterator[Callable[[int, int], Array]]:
        array = _zarr.open_array(self.path, self.name)
        yield lambda start, stop: np.asarray(array[start:stop])


class OpenPart(ArrayPart):
    """An array that somebody else has opened: anything with slices of rows."""

    def __init__(self, array: Any) -> None:
        self.array = array
        check_array(repr(array), array.shape, array.dtype)
        chunks = getattr(array, "chunks", None)
        super().__init__(repr(array), array.shape, array.dtype, chunks and chunks[0], None)

    @contextmanager
    def opened(self) -> Iterator[Callable[[int, int], Array]]:
        yield lambda start, stop: np.asarray(self.array[start:stop])


class OpenRows(StoredRows):
    """Rows of an array that somebody else has opened: nothing but its numbers tells whether it is the same."""

    def fingerprint(self) -> str:
        return fingerprint(StreamOf(self))


class StreamOf:
    """The four members of a source, and none of what it may say beyond them."""

    def __init__(self, rows: StoredRows) -> None:
        self.shape, self.dtype, self.blocks, self.take = rows.shape, rows.dtype, rows.blocks, rows.take


def adopt(X: Any) -> StoredRows | None:
    """Rows of an open h5py.Dataset or zarr.Array; None for anything else."""
    package = type(X).__module__.partition(".")[0]
    if package not in ("h5py", "zarr") or not all(hasattr(X, name) for name in ("shape", "dtype", "__getitem__")):
        return None
    part = OpenPart(X)
    return OpenRows([part], None, part.shape[1], tile_dtype(part.stored))


def check_array(what: str, shape: Sequence[int], dtype: Any) -> None:
    if shape is None or len(shape) != 2:
        raise ContentsError(f"{what}: rows must be a 2-D array, not one of shape {shape}")
    if shape[1] == 0:
        raise ContentsError(f"{what}: the array has no columns")
    if np.dtype(dtype).kind not in "fiub":
        raise ContentsError(f"{what}: rows of type {dtype} are not numbers: store them as float32 or float64")


def tile_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32 if stored.kind == "f" and stored.itemsize <= 4 else np.float64)


# ---- several files ---------------------------------------------------------------------------------------------------


class ArrayFiles(ABC):
    """Files that each hold an array of rows; what is a target or a weight is said in the way of the format."""

    format: str
    parts: Sequence[ArrayPart]

    @abstractmethod
    def rows(
        self, features: Any, targets: Sequence[Any], weights: Sequence[Any], dtype: np.dtype[Any] | None
    ) -> StoredRows:
        """The features."""

    @abstractmethod
    def values(self, names: Sequence[Any]) -> list[Array]:
        """Targets or weights, whole."""

    def _check_alike(self) -> None:
        first = self.parts[0]
        for part in self.parts[1:]:
            if part.shape[1] != first.shape[1]:
                raise ContentsError(f"{part.path} has {part.shape[1]} columns, and {first.path} has {first.shape[1]}")
            if part.stored != first.stored:
                raise ContentsError(f"{part.path} holds {part.stored}, and {first.path} holds {first.stored}")


class NpyFiles(ArrayFiles):
    """``.npy`` files. A target is a column's number, or the name of another ``.npy`` file."""

    def __init__(self, paths: Sequence[str], format: str) -> None:
        self.format = format
        self.parts = [_readable(path, format, partial(NpyPart, path)) for path in paths]
        self._check_alike()

    def rows(
        self, features: Any, targets: Sequence[Any], weights: Sequence[Any], dtype: np.dtype[Any] | None
    ) -> StoredRows:
        d = self.parts[0].shape[1]
        others = [self._column(value, d) for value in (*targets, *weights) if not isinstance(value, str | os.PathLike)]
        if features is None:
            columns = [j for j in range(d) if j not in others]
        elif isinstance(features, str):
            raise TypeError(f"features={features!r}: columns of a .npy file have no names, give their numbers")
        else:
            columns = [self._column(value, d) for value in np.atleast_1d(features).tolist()]
            if set(columns) & set(others):
                raise ValueError(f"features={features!r} has a column that is the target or the weight: it can be one")
        if not columns:
            raise ValueError(f"{self.parts[0].path} has {d} columns, of which none is left for features")
        everything = columns == list(range(d))
        return StoredRows(
            self.parts, None if everything else columns, len(columns), dtype or tile_dtype(self.parts[0].stored)
        )

    def _column(self, value: Any, d: int) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{value!r} is no column of {self.parts[0].path}: give its number, from 0 to {d - 1}")
        column = int(value.__index__())
        if not -d <= column < d:
            raise ValueError(f"{self.parts[0].path} has no column {column}: there are {d}, from 0 to {d - 1}")
        return column % d

    def values(self, names: Sequence[Any]) -> list[Array]:
        return [
            self._other(os.fspath(name)) if isinstance(name, str | os.PathLike) else self._values(name)
            for name in names
        ]

    def _values(self, name: Any) -> Array:
        column = self._column(name, self.parts[0].shape[1])
        out = np.empty(sum(part.n_rows for part in self.parts), dtype=self.parts[0].stored.newbyteorder("="))
        offset = 0
        for part in self.parts:
            for start, piece in part.pieces([column]):
                piece.write(out[offset + start : offset + start + len(piece), None], slice(0, len(piece)))
            offset += part.n_rows
        return out

    def _other(self, path: str) -> Array:
        def whole() -> Array:
            shape, _, _, _ = _npy_header(path, os.path.getsize(path))
            _check_length(path, shape, self.parts)
            return _as_text(np.load(path, allow_pickle=False))

        return _readable(path, "npy", whole)


class NamedArrays(ArrayFiles):
    """HDF5 files and zarr stores: arrays by names."""

    def __init__(self, paths: Sequence[str], format: str) -> None:
        self.format = format
        self.paths = list(paths)
        self.parts = []

    def rows(
        self, features: Any, targets: Sequence[Any], weights: Sequence[Any], dtype: np.dtype[Any] | None
    ) -> StoredRows:
        shapes = self._shapes(self.paths[0])
        for name in (*targets, *weights):
            self._find(name, shapes)
        if features is None:
            features = self._only(shapes, [*targets, *weights])
        elif not isinstance(features, str):
            raise TypeError(f"features={features!r} must be the name of the 2-D array of {self.paths[0]} to be used")
        self._find(features, shapes)
        make = Hdf5Part if self.format == "HDF5" else ZarrPart
        self.parts = [_readable(path, self.format, partial(make, path, features)) for path in self.paths]
        self._check_alike()
        return StoredRows(self.parts, None, self.parts[0].shape[1], dtype or tile_dtype(self.parts[0].stored))

    def _shapes(self, path: str) -> dict[str, tuple[int, ...]]:
        return _readable(path, self.format, partial(_SHAPES[self.format], path))

    def _find(self, name: Any, shapes: dict[str, tuple[int, ...]]) -> None:
        if name not in shapes:
            close = get_close_matches(str(name), list(shapes), n=3)
            names = [*close, *(other for other in shapes if other not in close)]
            listed = ", ".join(f"{other!r} {shapes[other]}" for other in names[:20]) or "none"
            raise ValueError(f"{self.paths[0]} has no array {name!r}: its arrays are {listed}")

    def _only(self, shapes: dict[str, tuple[int, ...]], others: Sequence[str]) -> str:
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
        for part in self.parts:
            part.check_unchanged()

            def whole(part: ArrayPart = part) -> Array:
                with _OPENED[self.format](part.path, name) as array:
                    what = f"{part.path}, {name!r}"
                    _check_length(what, array.shape, [part])
                    size = math.prod(map(int, array.shape)) * array.dtype.itemsize
                    require("auto", size, f"{what} takes {format_bytes(size)} of memory", "choose another array")
                    if self.format == "HDF5" and array.dtype.kind == "O":
                        _hdf5.check_heaps(part.path)
                        array = array.asstr()
                    return _as_text(np.asarray(array[()]))

            found.append(_readable(part.path, self.format, whole))
            part.check_unchanged()
        return np.concatenate(found)


@contextmanager
def _zarr_array(path: str, name: str) -> Iterator[Any]:
    yield _zarr.open_array(path, name)


_SHAPES: dict[str, Callable[[str], dict[str, tuple[int, ...]]]] = {"HDF5": _hdf5.shapes, "zarr": _zarr.shapes}
_OPENED: dict[str, Callable[[str, str], Any]] = {"HDF5": _hdf5.open_array, "zarr": _zarr_array}


def _check_length(what: str, shape: Sequence[int] | None, parts: Sequence[ArrayPart]) -> None:
    n = sum(part.n_rows for part in parts)
    if shape is None or len(shape) not in (1, 2) or shape[0] != n:
        raise ContentsError(f"{what} has shape {shape}, where one number for each of the {n} rows is needed")


def _as_text(values: Array) -> Array:
    return values.astype(str) if values.dtype.kind in "SO" else values


def _readable(path: str, format: str, function: Callable[[], Result]) -> Result:
    """What the function gives; if it fails, an error that names the file."""
    try:
        return function()
    except (ContentsError, ImportError):
        raise
    except (PermissionError, MemoryError) as error:
        cannot_read(path, error)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} does not exist") from error
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as {format}: is it damaged, cut short or something else? ({error})"
        ) from error
