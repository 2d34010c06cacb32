"""The base class of all sources of rows, with defaults that work for every source, and rows derived from other rows."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any, NoReturn, cast

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike, NDArray

from .._utils.memory import format_bytes, require
from .._utils.sampling import Rest
from .blocks import Block, Indices, reblock, stack
from .scaling import Moments

_HASHED_ROWS = 8_192  # rows of a block that is hashed
_MOMENTS_ROWS = 16_384  # rows of a block whose moments are computed
_TABLE_ROWS = 65_536  # rows of a block that is read into memory
_TABLE_PART = 1 << 20  # rows of a table that are chosen at once: the groups at both ends are read twice


class Rows(ABC):
    """A tall matrix that can be read in blocks, again and again.

    A new source sets `shape` and `dtype` and defines `blocks` and `take`; the other members have defaults, which a
    source overrides where it can do better. An object that does not derive from this class but has these four members
    is a source as well: `as_rows` wraps it. `gyrfalcon.testing.check_rows` tests a source.

    Attributes
    ----------
    shape : tuple of int
        Number of rows and of columns.
    dtype : dtype
        float32 or float64, the type of the blocks.
    feature_names : list of str or None
        Names of the columns, if known.
    client : distributed.Client or None
        The Dask client that computes the rows, if one was given.
    runs_elsewhere : bool
        Whether products run where the rows are stored, and not in this process.
    slow_to_read : bool
        Whether reading takes much longer than reading the same numbers from a file would, as parsing text does. A fit
        then writes them to a temporary file as it first reads them.
    in_memory : bool
        Whether the rows are held in memory. All others are compared with the first reading whenever a fit reads them.
    exact : bool
        Whether all readings of a row have the same bits, as those of files do. Rows that are computed as they are read
        may be rounded differently in blocks of another size.
    checked : bool
        Whether the source itself raises RowsChangedError where a reading differs from the first one.
    tables_in_blocks : bool
        Whether `tables_from` and `table` of some rows hold only these in memory, and not the whole table.
    remedy : str
        What to do if two readings differ: a sentence for error messages.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.sources import Rows
    >>> class Squares(Rows):
    ...     shape, dtype = (100, 1), np.dtype(np.float64)
    ...     def blocks(self, size):
    ...         for start in range(0, 100, size):
    ...             yield self.take(np.arange(start, min(start + size, 100)))
    ...     def take(self, indices):
    ...         return np.square(indices, dtype=np.float64)[:, None]
    >>> Squares().subset(np.array([3, 5])).take(np.array([1]))
    array([[25.]])
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    feature_names: list[str] | None = None
    client: Any = None
    runs_elsewhere: bool = False
    slow_to_read: bool = False
    in_memory: bool = False
    exact: bool = False
    checked: bool = False
    tables_in_blocks: bool = False
    remedy: str = (
        "Write the source so that `blocks` and `take` give the same rows each time, which "
        "gyrfalcon.testing.check_rows tests"
    )

    @abstractmethod
    def blocks(self, size: int) -> Iterator[Block]:
        """Iterate over the rows in order, `size` at a time; the last block has the rest. May be called many times.

        Each block is a C-contiguous array, or each is a scipy.sparse CSR matrix.
        """

    @abstractmethod
    def take(self, indices: Indices) -> Block:
        """Return the rows at `indices`, in that order, as the same kind of matrix as a block."""

    def blocks_from(self, size: int, start: int) -> Iterator[Block]:
        """Iterate over the blocks of `blocks(size)` that begin at row `start` or later, a multiple of `size`."""
        return islice(self.blocks(size), start // size, None)

    def tables_from(self, size: int, start: int, as_text: Collection[str] = ()) -> Iterator[Any]:
        """Iterate over what `table` returns, `size` rows at a time from row `start` on.

        Sources that can read a part of a table with its types hold only that part in memory.
        """
        table = self.table(as_text=as_text)
        return (table[at : at + size] for at in range(start, self.shape[0], size))

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        # without it NumPy makes an array of one object, and its errors name something else
        raise TypeError(
            f"{type(self).__name__} is read block by block, and is no array: rows.take(indices) reads rows into "
            "memory, rows.subset(indices) leaves them where they are, and gyrfalcon.open(...).split() takes the place "
            "of train_test_split"
        )

    @property
    def is_sparse(self) -> bool:
        """Whether blocks are CSR."""
        return bool(scipy.sparse.issparse(self.take(np.empty(0, dtype=np.intp))))

    @property
    def buffer_bytes(self) -> int:
        """Memory that the source holds while it is read."""
        return 0

    def origin(self, row: int | None = None) -> str:
        """Name the origin of the rows, or of one of them, for error messages."""
        return type(self).__name__

    def subset(self, indices: Indices) -> Rows:
        """Return the rows at increasing `indices` as a source."""
        return SubsetRows(self, indices)

    def without(self, indices: Indices) -> Rows:
        """Return the rows that are not at some increasing `indices` as a source.

        Rows that are neither in memory nor elsewhere are chosen without an array of their length.
        """
        rest = Rest(self.shape[0], indices)
        return self.subset(np.asarray(rest)) if self.in_memory or self.runs_elsewhere else SubsetRows(self, rest)

    def is_numeric(self, as_text: Collection[str] = ()) -> bool:
        """Whether all columns are numbers or booleans, so that the rows can be read in blocks.

        Parameters
        ----------
        as_text : collection of str
            Names of columns that were text in training: a format without types may show them as numbers.
        """
        return True

    def table(self, indices: Indices | None = None, as_text: Collection[str] = ()) -> Any:
        """Read rows into memory with the types of their columns.

        Parameters
        ----------
        indices : array of int, optional
            The rows to return; all by default.
        as_text : collection of str
            Names of columns to read as text where the format has no types, even if all values look like numbers.

        Returns
        -------
        pyarrow.Table, if the source has columns with types, else an array or a CSR matrix
        """
        n, d = self.shape if indices is None else (len(indices), self.shape[1])
        size = n * d * self.dtype.itemsize
        what = f"{self.origin()}: {n} rows of {d} features take {format_bytes(size)} in memory"
        require("auto", size, what, "use fewer rows")
        return stack(list(self.blocks(_TABLE_ROWS))) if indices is None else self.take(indices)

    def with_gaps(self) -> Rows:
        """Return the same rows with NaN for missing values, where reading them would raise an error otherwise."""
        return self

    def map(self, function: Callable[[Block], Block], dtype: DTypeLike) -> Rows:
        """Apply a function to every block.

        Parameters
        ----------
        function : callable
            Takes a block and returns one of the same shape; each row of the result depends on that row alone.
        dtype : float32 or float64
            The type of the result.
        """
        return MappedRows(self, function, dtype)

    def astype(self, dtype: DTypeLike) -> Rows:
        """Convert the rows to another precision; return the source itself if it has that precision."""
        return self if self.dtype == dtype else self.map(Cast(dtype), dtype)

    def fingerprint(self) -> str:
        """Return a string that changes when the contents do."""
        return hash_of_blocks(self)

    def moments(self, weight: NDArray[Any] | None = None) -> Moments:
        """Compute the mean and the variance of every feature in one pass.

        Parameters
        ----------
        weight : array of shape (n,), optional
            Weights of the rows, not all zero.
        """
        start, d = 0, self.shape[1]
        total = Moments(0.0, np.zeros(d), np.zeros(d))
        for block in self.blocks(_MOMENTS_ROWS):
            stop = start + block.shape[0]
            total += Moments.of(block, None if weight is None else weight[start:stop])
            start = stop
        return total


def hash_of_blocks(rows: Rows) -> str:
    """Hash the shape, the type and all values."""
    digest = hashlib.blake2b(repr((rows.shape, np.dtype(rows.dtype).str)).encode(), digest_size=16)
    for block in rows.blocks(_HASHED_ROWS):
        parts = [block]
        if scipy.sparse.issparse(block):  # the same hash whatever the type of its indices
            parts = [block.indptr.astype(np.int64), block.indices.astype(np.int64), block.data]
        for part in parts:
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


class DerivedRows(Rows):
    """Rows computed from other rows, with their feature names and their buffers."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.shape, self.dtype = rows.shape, rows.dtype
        self.feature_names = rows.feature_names
        self.slow_to_read = rows.slow_to_read
        self.in_memory, self.exact, self.checked, self.remedy = rows.in_memory, rows.exact, rows.checked, rows.remedy

    @property
    def buffer_bytes(self) -> int:
        return self.rows.buffer_bytes

    def origin(self, row: int | None = None) -> str:
        return self.rows.origin(row)


class SubsetRows(DerivedRows):
    """The rows of a source at increasing `indices`: all rows are read, and the others are left out."""

    def __init__(self, rows: Rows, indices: Indices | Rest) -> None:
        super().__init__(rows)
        self.indices = indices
        self.shape = (len(indices), rows.shape[1])
        self.tables_in_blocks = rows.tables_in_blocks

    def blocks(self, size: int) -> Iterator[Block]:
        return reblock(self._chosen(size), size)

    def _chosen(self, size: int) -> Iterator[Block]:
        start = 0
        for block in self.rows.blocks(size):
            stop = start + block.shape[0]
            first, last = np.searchsorted(self.indices, (start, stop))
            if first < last:
                yield block[self.indices[first:last] - start]
            start = stop

    def take(self, indices: Indices) -> Block:
        return self.rows.take(self.indices[indices])

    def is_numeric(self, as_text: Collection[str] = ()) -> bool:
        return self.rows.is_numeric(as_text)

    def table(self, indices: Indices | None = None, as_text: Collection[str] = ()) -> Any:
        return self.rows.table(np.asarray(self.indices) if indices is None else self.indices[indices], as_text)

    def tables_from(self, size: int, start: int, as_text: Collection[str] = ()) -> Iterator[Any]:
        if not self.tables_in_blocks:
            yield from super().tables_from(size, start, as_text)
            return
        step = size * -(-_TABLE_PART // size)
        for first in range(start, self.shape[0], step):
            part = self.rows.table(self.indices[first : first + step], as_text)
            yield from (part[at : at + size] for at in range(0, len(part), size))

    def with_gaps(self) -> Rows:
        return SubsetRows(self.rows.with_gaps(), self.indices)

    def origin(self, row: int | None = None) -> str:
        return self.rows.origin(None if row is None else int(self.indices[row]))

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=8)
        for start in range(0, len(self.indices), _HASHED_ROWS):
            digest.update(np.ascontiguousarray(self.indices[start : start + _HASHED_ROWS]).data)
        return f"{self.rows.fingerprint()}, {len(self.indices)} of them ({digest.hexdigest()})"


class HeldTable(SubsetRows):
    """Rows of a source with columns of text, in any order, which are held in memory as a table."""

    def __init__(self, rows: Rows, indices: Indices) -> None:
        super().__init__(rows, indices)
        self._table = rows.table(indices)
        self.tables_in_blocks = False

    def blocks(self, size: int) -> Iterator[Block]:
        n = self.shape[0]
        return (self.take(np.arange(start, min(start + size, n))) for start in range(0, n, size))

    def table(self, indices: Indices | None = None, as_text: Collection[str] = ()) -> Any:
        return self._table if indices is None else self._table.take(indices)


class MappedRows(DerivedRows):
    """A function of every block of a source, applied when the block is read. See `Rows.map`."""

    def __init__(self, rows: Rows, function: Callable[[Block], Block], dtype: DTypeLike) -> None:
        super().__init__(rows)
        self.function = function
        self.dtype = np.dtype(cast(Any, dtype))

    def blocks(self, size: int) -> Iterator[Block]:
        return (self.function(block) for block in self.rows.blocks(size))

    def take(self, indices: Indices) -> Block:
        return self.function(self.rows.take(indices))

    def subset(self, indices: Indices) -> Rows:
        return MappedRows(self.rows.subset(indices), self.function, self.dtype)

    def fingerprint(self) -> str:
        return f"{self.rows.fingerprint()} {self.function!r}"


class Cast:
    """Conversion of blocks to a precision."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(cast(Any, dtype))

    def __call__(self, block: Block) -> Block:
        with np.errstate(over="ignore"):  # values that overflow become infinite, and are refused as such
            return block.astype(self.dtype)

    def __repr__(self) -> str:
        return f"Cast({self.dtype.name})"
