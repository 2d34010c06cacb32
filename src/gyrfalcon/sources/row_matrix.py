"""Matrices with a row for each row of a source that a solver writes and reads again, such as K v: in a file if long."""

from __future__ import annotations

import os
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .blocks import Indices
from .scratch import take_rows, temporary_file

Array = NDArray[Any]

_PART = 1 << 19  # numbers of a part
_SMALLEST_PART = 4096  # rows


class FileMatrix:
    """A matrix of n rows and few columns in a temporary file without a name.

    Slices of rows can be read and written, by several threads at the same time, and single rows can be read.
    """

    ndim = 2

    def __init__(self, file: IO[bytes], shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self._file, self.shape, self.dtype = file, shape, dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: slice | Indices) -> Array:
        if isinstance(at, slice):
            start, stop, _ = at.indices(self.shape[0])
            return self._read(start, max(start, stop))
        return take_rows(self._read, at, self.shape[1], self.dtype)

    def __setitem__(self, at: slice, values: Array) -> None:
        start, stop, _ = at.indices(self.shape[0])
        out = np.ascontiguousarray(np.broadcast_to(values, (stop - start, self.shape[1])), dtype=self.dtype)
        left, place = out.data.cast("B"), start * self.shape[1] * self.dtype.itemsize
        while len(left):
            written = os.pwrite(self._file.fileno(), left, place)
            left, place = left[written:], place + written

    def mapped(self) -> Array:
        """Return an array whose memory is the file, which cannot be written; pages that are read may be dropped."""
        return np.memmap(self._file, self.dtype, mode="r", shape=self.shape).view(np.ndarray)

    def _read(self, start: int, stop: int) -> Array:
        return read_rows(self._file, start, stop, self.shape[1], self.dtype)


RowMatrix = Array | FileMatrix


def row_matrix(n: int, k: int, dtype: Any, *, in_file: bool) -> RowMatrix:
    """Make a matrix of n rows whose entries are not set yet; in memory if the disk has no room for it."""
    dtype = np.dtype(dtype)
    file = temporary_file(n * k * dtype.itemsize) if in_file else None
    return np.empty((n, k), dtype) if file is None else FileMatrix(file, (n, k), dtype)


def row_parts(n: int, k: int) -> list[slice]:
    """Divide n rows of k numbers into parts, at least one; sums over them have the same bits in files and in memory."""
    size = max(_SMALLEST_PART, _PART // max(1, k))
    if n == 0:
        return [slice(0, 0)]
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def read_rows(file: IO[bytes], start: int, stop: int, k: int, dtype: np.dtype[Any]) -> Array:
    """Read some rows of k numbers from an open file without a header; the position of the file is not used."""
    out = np.empty((stop - start, k), dtype=dtype)
    left, at = out.data.cast("B"), start * k * dtype.itemsize
    while len(left):
        found = os.pread(file.fileno(), len(left), at)
        if not found:
            raise EOFError("a temporary file of a fit ends before its last row")
        left[: len(found)] = found
        left, at = left[len(found) :], at + len(found)
    return out
