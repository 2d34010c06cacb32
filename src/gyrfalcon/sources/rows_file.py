"""Rows in a temporary file without a name, which are written and read in any order, by any number of threads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.memory import format_bytes
from .base import Rows
from .blocks import Indices
from .scratch import take_rows, temporary_file

Array = NDArray[Any]


class RowsFile(Rows):
    """A matrix in a file that is gone when the object is, or when the process ends.

    Rows are read by ``rows[start:stop]`` or ``rows[indices]``, and written by ``rows[start:stop] = block``. They do not
    count as memory of the process, unlike those of a memory map.

    Parameters
    ----------
    shape : tuple of int
        Of the matrix; its rows have no meaning before they are written.
    dtype : float32 or float64

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.sources.rows_file import RowsFile
    >>> rows = RowsFile((3, 2), np.float64)
    >>> rows[0:3] = np.arange(6.0).reshape(3, 2)
    >>> rows[np.array([2, 0])]
    array([[4., 5.],
           [0., 1.]])
    """

    is_sparse = False
    exact = True
    checked = True

    def __init__(self, shape: tuple[int, int], dtype: DTypeLike = np.float64) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        size = math.prod(shape) * self.dtype.itemsize
        file = temporary_file(size)
        if file is None:
            raise MemoryError(
                f"the disk of temporary files has no room for {format_bytes(size)}: set TMPDIR to a folder that has"
            )
        file.truncate(size)
        self._file = file

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: slice | Indices) -> Array:
        return self._read(*self._ends(at)) if isinstance(at, slice) else self.take(at)

    def __setitem__(self, at: slice, block: Array) -> None:
        start, stop = self._ends(at)
        block = np.ascontiguousarray(block, dtype=self.dtype)
        assert block.shape == (stop - start, self.shape[1])
        left, place = block.data.cast("B"), start * self._row_bytes
        while len(left):
            count = os.pwrite(self._file.fileno(), left, place)
            left, place = left[count:], place + count

    def blocks(self, size: int) -> Iterator[Array]:
        return (self[start : start + size] for start in range(0, len(self), size))

    def take(self, indices: Indices) -> Array:
        return take_rows(self._read, indices, self.shape[1], self.dtype)

    def mapped(self) -> Array:
        """Return the rows as an array that is read from the file where it is used."""
        return np.asarray(np.memmap(self._file, dtype=self.dtype, mode="r", shape=self.shape))

    @property
    def _row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    def _ends(self, at: slice) -> tuple[int, int]:
        start, stop, _ = at.indices(len(self))
        return start, max(start, stop)

    def _read(self, start: int, stop: int) -> Array:
        out = np.empty((stop - start, self.shape[1]), dtype=self.dtype)
        left, place = out.data.cast("B"), start * self._row_bytes
        while len(left):  # several threads read at the same time, so that the position of the file is not used
            count = os.preadv(self._file.fileno(), [left], place)
            if not count:
                raise EOFError("the temporary file of the rows ends before its last row")
            left, place = left[count:], place + count
        return out
