"""Numbers of each row, such as a long target, that stay in a file: an array of them would be the largest of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.sampling import Rest
from .base import Rows
from .blocks import Indices
from .row_matrix import read_rows
from .scratch import take_rows, temporary_file, write_block

Array = NDArray[Any]

LONG = 1 << 21  # number of rows from which a target is not held in memory
_COPIED_ROWS = 1 << 18  # rows of a block that is written to the file
_MOST_CLASSES = 1 << 12  # different labels that may stay in a file
_EXACT = 2.0**53  # below it all integers are different in float64


class Column:
    """A matrix (y - shift) / unit of n rows and few columns, whose y is in a file and is read when it is needed.

    It has the methods of an array that fits use: slices and selections of rows are arrays, and
    all other results are columns or the smallest and the largest number, which are known.

    Parameters
    ----------
    file : open file of y as raw numbers, row by row
    shape : tuple of int
        (n, k).
    stored : dtype
        Type of the numbers in the file.
    extremes : array of shape (2, k)
        The smallest and the largest number of each column in the file.
    """

    ndim = 2

    def __init__(self, file: IO[bytes], shape: tuple[int, int], stored: np.dtype[Any], extremes: Array) -> None:
        self._file, self._stored, self._extremes = file, stored, extremes
        self.shape, self.dtype = shape, stored
        self._width = shape[1]  # numbers of a row in the file
        self._positions: Indices | Rest | None = None  # of the rows among those in the file; None for all of them
        self._decode: Callable[[Array], Array] | None = None
        self._rounded = stored  # precision of numbers less their shift
        self._shift: Array | None = None
        self._unit: Array | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: slice | Indices) -> Array:
        if isinstance(at, slice):
            start, stop, _ = at.indices(self.shape[0])
            return self._value(self._read_rows(start, max(start, stop)))
        places = at if self._positions is None else self._positions[at]
        return self._value(take_rows(self._read, places, self._width, self._stored))

    def parts(self) -> Iterator[Array]:
        """Iterate over all rows, some at a time."""
        return (self[start : start + _COPIED_ROWS] for start in range(0, len(self), _COPIED_ROWS))

    def among(self, positions: Indices | Rest) -> Column:
        """Return the rows at increasing positions, which stay in the file."""
        assert self._positions is None
        other = self._changed(self.dtype, self._shift, self._unit)
        other._positions, other.shape = positions, (len(positions), self.shape[1])
        raw = self._changed(self._rounded, None, None)
        raw._positions, raw.shape = other._positions, other.shape
        other._extremes = np.array([[np.inf], [-np.inf]]) * np.ones(self.shape[1])
        for part in raw.parts():
            np.minimum(other._extremes[0], part.min(axis=0), out=other._extremes[0])
            np.maximum(other._extremes[1], part.max(axis=0), out=other._extremes[1])
        other._extremes = other._extremes.astype(self._extremes.dtype)
        return other

    def reshape(self, n: int, k: int) -> Column:
        """Return the column itself, which is a matrix of n rows already."""
        assert n == self.shape[0]
        assert k in (-1, self.shape[1])
        return self

    def astype(self, dtype: DTypeLike, copy: bool = False) -> Column:
        """Return the same numbers, rounded to another precision."""
        return self._changed(np.dtype(dtype), self._shift, self._unit)

    def minus(self, shift: Array) -> Column:
        """Return the column less a number for each of its columns, computed in float64 and rounded to its precision."""
        assert self._shift is None
        assert self._unit is None
        return self._changed(self.dtype, shift, None)

    def over(self, unit: Array) -> Column:
        """Return the column divided by a power of two for each of its columns."""
        assert self._unit is None
        return self._changed(self.dtype, self._shift, unit)

    def repeated(self, copies: int) -> Column:
        """Return a matrix of copies of the only column."""
        if self.shape[1] != 1:
            raise ValueError(
                f"y has {self.shape[1]} columns: several quantiles can be predicted only if y is one column, so "
                "fit one model for each"
            )
        extremes = np.repeat(self._extremes, copies, axis=1)
        return self.decoded(lambda raw: np.repeat(raw, copies, axis=1), extremes, self.dtype)

    def decoded(self, decode: Callable[[Array], Array], extremes: Array, dtype: np.dtype[Any]) -> Column:
        """Return the columns that a function makes of rows as they are in the file, rounded to a precision.

        `extremes`, of shape (2, k), are the smallest and the largest number of each column that it makes.
        """
        assert self._shift is None
        assert self._unit is None
        other = self._changed(dtype, None, None)
        other.shape, other._extremes = (self.shape[0], extremes.shape[1]), extremes
        other._decode, other._rounded = decode, dtype
        return other

    def min(self, axis: int | None = None, out: None = None, initial: float = np.inf) -> Any:
        """Return the smallest number, or that of each column."""
        least = np.minimum(self._shifted(self._extremes[:1])[0], initial)
        return least if axis == 0 else least.min()

    def max(self, axis: int | None = None, out: None = None, initial: float = -np.inf) -> Any:
        """Return the largest number, or that of each column."""
        most = np.maximum(self._shifted(self._extremes[1:])[0], initial)
        return most if axis == 0 else most.max()

    def _changed(self, dtype: np.dtype[Any], shift: Array | None, unit: Array | None) -> Column:
        other = Column(self._file, self.shape, self._stored, self._extremes)
        other._width, other._decode, other._rounded = self._width, self._decode, self._rounded
        other._positions = self._positions
        other.dtype, other._shift, other._unit = dtype, shift, unit
        return other

    def _value(self, raw: Array) -> Array:
        return self._shifted(raw if self._decode is None else self._decode(raw).astype(self._rounded))

    def _shifted(self, raw: Array) -> Array:
        with np.errstate(over="ignore"):
            if self._shift is not None:
                raw = np.subtract(raw, self._shift).astype(self._rounded)
            return np.asarray(raw if self._unit is None else raw / self._unit).astype(self.dtype, copy=False)

    def _read_rows(self, start: int, stop: int) -> Array:
        if self._positions is None or start == stop:
            return self._read(start, stop)
        places = self._positions[start:stop]
        return self._read(int(places[0]), int(places[-1]) + 1)[places - places[0]]

    def _read(self, start: int, stop: int) -> Array:
        return read_rows(self._file, start, stop, self._width, self._stored)


class Vector:
    """Numbers of the n rows in a file, such as weights, divided by some numbers one after the other.

    It has the methods of an array of shape (n,) that fits use: slices and selections of rows are arrays.

    Parameters
    ----------
    column : Column
        The numbers in the file, its only column.
    divisors : tuple of float
        Positive numbers.
    dtype : dtype
        Precision to which quotients, computed in float64, are rounded.
    """

    ndim = 1

    def __init__(self, column: Column, divisors: tuple[float, ...] = (), dtype: DTypeLike = np.float64) -> None:
        assert column.shape[1] == 1
        self.column, self.divisors, self.dtype = column, divisors, np.dtype(dtype)
        self.shape = column.shape[:1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: slice | Indices) -> Array:
        return self._divided(self.column[at][:, 0])

    def __truediv__(self, divisor: float) -> Vector:
        return Vector(self.column, (*self.divisors, divisor), self.dtype)

    def among(self, positions: Indices | Rest) -> Vector:
        """Return the numbers at increasing positions, which stay in the file."""
        return Vector(self.column.among(positions), self.divisors, self.dtype)

    def parts(self) -> Iterator[Array]:
        """Iterate over all numbers, some at a time."""
        return (self._divided(part[:, 0]) for part in self.column.parts())

    def astype(self, dtype: DTypeLike, copy: bool = False) -> Vector:
        """Return the same numbers, rounded to another precision."""
        return Vector(self.column, self.divisors, dtype)

    def min(self) -> float:
        """Return the smallest number."""
        return float(self._divided(np.atleast_1d(self.column.min()))[0])

    def max(self) -> float:
        """Return the largest number."""
        return float(self._divided(np.atleast_1d(self.column.max()))[0])

    def _divided(self, numbers: Array) -> Array:
        wide = numbers.astype(np.float64)
        for divisor in self.divisors:
            wide /= divisor
        return wide.astype(self.dtype, copy=False)


class WeightedColumn:
    """The rows of a column times their weights, which K' is multiplied with."""

    def __init__(self, column: Column, weight: Array | Vector) -> None:
        self._column, self._weight = column, weight
        self.shape = column.shape

    def __getitem__(self, at: slice) -> Array:
        weight: Array = self._weight[at]
        return weight[:, None] * self._column[at]

    def parts(self) -> Iterator[Array]:
        """Iterate over all rows, some at a time."""
        return (self[start : start + _COPIED_ROWS] for start in range(0, self.shape[0], _COPIED_ROWS))


def stored_column(rows: Rows, name: str = "y") -> Column | None:
    """Copy rows of few features into a temporary file without a name; return None if the disk has no room for it.

    Raises ValueError for the first number that is not finite; `name` is that of the argument in the message.
    """
    (n, k), dtype = rows.shape, np.dtype(rows.dtype)
    file = temporary_file(n * k * dtype.itemsize)
    if file is None:
        return None
    extremes, start = np.empty((2, k), dtype=dtype), 0
    extremes[0], extremes[1] = np.inf, -np.inf
    for block in rows.blocks(_COPIED_ROWS):
        low, high = block.min(axis=0), block.max(axis=0)
        if not np.isfinite(np.stack([low, high])).all():
            row = start + int(np.argwhere(~np.isfinite(block))[0, 0])
            raise ValueError(f"Input {name} contains NaN or infinity, first in row {row} of {rows.origin(row)}")
        np.minimum(extremes[0], low, out=extremes[0])
        np.maximum(extremes[1], high, out=extremes[1])
        start += len(block)
        if not write_block(file, block):
            file.close()
            return None
    return Column(file, (n, k), dtype, extremes)


@dataclass(frozen=True)
class Labels:
    """Labels that stay in a file: a column of integers, and its different values in order and in their own type."""

    column: Column
    classes: Array

    def columns(
        self, as_columns: Callable[[Array, int], Array], extremes: tuple[float, float], dtype: np.dtype[Any]
    ) -> Column:
        """Return what `as_columns` makes of class numbers and the number of classes; `extremes` are those of it."""
        known, n_classes = self.classes.astype(np.float64), len(self.classes)

        def decode(raw: Array) -> Array:
            return as_columns(np.searchsorted(known, raw[:, 0]), n_classes)

        k = as_columns(np.zeros(1, dtype=np.intp), n_classes).shape[1]
        return self.column.decoded(decode, np.repeat(np.array(extremes)[:, None], k, axis=1), dtype)


def stored_labels(column: Column, dtype: np.dtype[Any]) -> Labels | None:
    """Find the different values of a column of integers or booleans of a type; None if there are very many of them."""
    known = np.empty(0)
    for part in column.parts():
        known = np.union1d(known, part.astype(np.float64))
        if len(known) > _MOST_CLASSES:
            return None
    if not (np.abs(known) < _EXACT).all():
        return None
    return Labels(column, known.astype(dtype))
