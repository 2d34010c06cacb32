"""Rows in a temporary file without a name, which are written and read in any order, by any number of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.memory import format_bytes
from .base import Rows
from .blocks import Indices
from .row_matrix import FileMatrix
from .scratch import temporary_file

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
        self._matrix = FileMatrix(file, shape, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: slice | Indices) -> Array:
        return self._matrix[at]

    def __setitem__(self, at: slice, block: Array) -> None:
        start, stop, _ = at.indices(len(self))
        assert block.shape == (max(start, stop) - start, self.shape[1])
        self._matrix[at] = block

    def blocks(self, size: int) -> Iterator[Array]:
        return (self[start : start + size] for start in range(0, len(self), size))

    def take(self, indices: Indices) -> Array:
        return self._matrix[indices]

    def mapped(self) -> Array:
        """Return the rows as an array that is read from the file where it is used."""
        return self._matrix.mapped()
