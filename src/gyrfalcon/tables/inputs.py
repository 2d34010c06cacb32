"""Training rows of the automatic estimators: a table in memory, or rows that are read from files or Dask."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from .._utils.memory import limit_of
from ..fitting.weights import Counted
from ..sources import Rows, as_source, as_table, to_host
from ..sources.base import DerivedRows, SubsetRows
from ..sources.blocks import Block, Indices
from ..sources.files import Dataset
from ..sources.rereading import checked_rows
from ..sources.scratch import Scratch, ScratchRows
from ..storage.describe import digest
from .budget import ENCODED_ROWS
from .encoder import TableEncoder
from .mixing import Mixing
from .reading import Table, named, read_table

Array = NDArray[Any]

_BLOCK = 65_536  # rows of a sparse matrix that are encoded at once
_KEPT_TABLES, _KEPT_ROWS = 4, 200_000  # tables of some rows of files that are kept, and the most rows of one
# Bytes of a cell of a table in memory, as it is read, recognised and encoded, and the share of the memory budget from
# which a table stays in its files
_CELL_BYTES, _TABLE_SHARE = 24, 4


class Inputs(ABC):
    """A table with n rows, from which rows can be taken."""

    n_rows: int

    @abstractmethod
    def take(self, indices: Indices) -> Any:
        """Return the rows at `indices` as a table in memory."""

    @abstractmethod
    def subset(self, indices: Indices) -> Inputs:
        """Return the rows at increasing `indices`."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a digest of the contents, which identifies them in a checkpoint."""

    @abstractmethod
    def encoded(self, encoder: TableEncoder) -> Any:
        """Return all rows, encoded: an array, or rows that are encoded whenever they are read."""


class TableInputs(Inputs):
    """A table or an array in memory, which is read into columns once."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self.n_rows = int(_num_samples(X))

    @cached_property
    def table(self) -> Table:
        return read_table(self.X, TableEncoder.__name__)

    def take(self, indices: Indices) -> Any:
        if len(indices) == self.n_rows and np.array_equal(indices, np.arange(self.n_rows)):
            return self.table
        return self.table.take(np.asarray(indices))

    def subset(self, indices: Indices) -> Inputs:
        return type(self)(_safe_indexing(self.X, np.asarray(indices)))

    def fingerprint(self) -> str:
        parts: list[Any] = [json.dumps(self.table.names).encode()]
        for column in self.table.columns:
            parts += [json.dumps([column.kind, column.levels, column.zone]).encode(), column.values]
        return f"({self.n_rows}, {len(self.table.columns)}) {digest(*parts)}"

    def encoded(self, encoder: TableEncoder) -> Any:
        return encoder.transform(self.table)


class SparseInputs(TableInputs):
    """A sparse matrix, which is read into columns block by block: all of it may be too large."""

    def __init__(self, X: Any) -> None:
        super().__init__(X.tocsr())  # not all formats can be indexed

    def take(self, indices: Indices) -> Any:
        return self.X[np.asarray(indices)]

    def encoded(self, encoder: TableEncoder) -> Any:
        parts = [encoder.transform(self.X[start : start + _BLOCK]) for start in range(0, self.n_rows, _BLOCK)]
        return np.concatenate(parts)


class StreamedInputs(Inputs):
    """Rows that are read in blocks."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.n_rows = rows.shape[0]

    def take(self, indices: Indices) -> Any:
        return named(self.rows.take(indices), self.rows)

    def subset(self, indices: Indices) -> Inputs:
        return StreamedInputs(self.rows.subset(indices))

    def fingerprint(self) -> str:
        return f"{self.rows.shape} {self.rows.fingerprint()}"

    def encoded(self, encoder: TableEncoder) -> Any:
        return EncodedRows(self.rows, encoder)


class FileInputs(StreamedInputs):
    """Columns of files, with text, categories or dates, of which only some rows are in memory at a time.

    Encoded rows are written to `scratch`, if there is one, when all of them are first read. The rows that were taken
    last are kept: several encodings of a search need the same ones.
    """

    def __init__(self, rows: Rows, scratch: Scratch | None = None, as_text: Collection[str] = ()) -> None:
        super().__init__(rows)
        self.scratch, self.as_text = scratch, as_text
        self._taken: list[tuple[Indices, Table]] = []

    def take(self, indices: Indices) -> Any:
        indices = np.asarray(indices, dtype=np.intp)
        for known, table in self._taken:
            if np.array_equal(known, indices):
                return table
        table = read_table(self.rows.table(indices, self.as_text), TableEncoder.__name__)
        if len(indices) <= _KEPT_ROWS:
            self._taken = [(indices, table), *self._taken[: _KEPT_TABLES - 1]]
        return table

    def subset(self, indices: Indices) -> Inputs:
        return FileInputs(self.rows.subset(indices), self.scratch, self.as_text)

    def encoded(self, encoder: TableEncoder) -> Any:
        encoded = EncodedFile(self, encoder)
        stored = encoded if self.scratch is None else self.scratch.rows(encoded)
        return StoredEncoding(encoded, stored) if isinstance(stored, ScratchRows) else stored


class EncodedRows(DerivedRows):
    """Rows that are encoded whenever they are read."""

    def __init__(self, rows: Rows, encoder: TableEncoder) -> None:
        super().__init__(rows)
        self.feature_names = None
        self.encoder = encoder
        self.shape = (rows.shape[0], len(encoder.feature_origin_))
        self.dtype = np.dtype(encoder.dtype)

    def blocks(self, size: int) -> Iterator[Block]:
        return (self._made(block) for block in self.rows.blocks(size))

    def take(self, indices: Indices) -> Block:
        if not len(indices):
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        return self._made(self.rows.take(indices))

    def subset(self, indices: Indices) -> Rows:
        return EncodedRows(self.rows.subset(indices), self.encoder)

    def _made(self, block: Block) -> Array:
        rows: Array = self.encoder.transform(named(block, self.rows))
        return rows

    @property
    def is_sparse(self) -> bool:
        return False

    def fingerprint(self) -> str:
        return f"{self.rows.fingerprint()} {self.encoder!r}"


class EncodedFile(EncodedRows):
    """Columns of files, with text, categories or dates, that are encoded as they are read."""

    def __init__(self, inputs: FileInputs, encoder: TableEncoder) -> None:
        super().__init__(inputs.rows, encoder)
        self.slow_to_read = True
        self._inputs = inputs

    def blocks(self, size: int) -> Iterator[Block]:
        return (self._made(table) for table in self.rows.tables_from(size, 0, self._inputs.as_text))

    def take(self, indices: Indices) -> Block:
        if not len(indices):
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        return self._made(self._inputs.take(indices))

    def subset(self, indices: Indices) -> Rows:
        return SubsetRows(self, indices)


class StoredEncoding(DerivedRows):
    """Encoded rows that are written to a scratch file when all of them are first read.

    Until then, some rows are encoded by themselves: the search needs a sample alone, of several encodings.
    """

    is_sparse = False

    def __init__(self, encoded: EncodedFile, stored: ScratchRows) -> None:
        super().__init__(stored)
        self._encoded, self._stored = encoded, stored

    def blocks(self, size: int) -> Iterator[Block]:
        return self._stored.blocks(size)

    def take(self, indices: Indices) -> Block:
        return (self._stored if self._stored.is_complete else self._encoded).take(indices)

    def fingerprint(self) -> str:
        return self._encoded.fingerprint()


class MixedRows(DerivedRows):
    """Encoded rows that are multiplied by a matrix whenever they are read."""

    is_sparse = False

    def __init__(self, rows: Rows, mixing: Mixing) -> None:
        super().__init__(rows)
        self.mixing = mixing
        self.shape = (rows.shape[0], mixing.matrix.shape[1])

    def blocks(self, size: int) -> Iterator[Block]:
        return (self.mixing.transform(block) for block in self.rows.blocks(size))

    def take(self, indices: Indices) -> Block:
        rows = self.rows.take(indices)
        return self.mixing.transform(rows) if len(rows) else np.empty((0, self.shape[1]), dtype=self.dtype)

    def subset(self, indices: Indices) -> Rows:
        return MixedRows(self.rows.subset(indices), self.mixing)

    def fingerprint(self) -> str:
        return f"{self.rows.fingerprint()} {self.mixing!r}"


def apply_mixing(rows: Any, mixing: Mixing | None) -> Any:
    """Multiply encoded rows, an array or rows that are encoded as they are read, by a matrix if there is one."""
    if mixing is None:
        return rows
    return MixedRows(rows, mixing) if isinstance(rows, Rows) else mixing.transform(rows)


def text_columns(encoder: TableEncoder) -> list[str]:
    """Return the names of the columns that were text in training, which those of a CSV file stay."""
    names = vars(encoder).get("feature_names_in_")  # only an encoder of a table with names has them
    return [] if names is None else [str(name) for name in names[np.isin(encoder.kinds_, ["category", "text"])]]


def stays_in_files(X: Any, memory_budget: int | float | str = "auto") -> bool:
    """Whether X is columns of files, with text, categories or dates, that would take much memory as a table."""
    rows = X.X if isinstance(X, Dataset) else X
    if not isinstance(rows, Rows) or not rows.tables_in_blocks or rows.is_numeric():
        return False
    n, d = rows.shape
    return n > ENCODED_ROWS and n * d * _CELL_BYTES > limit_of(memory_budget) // _TABLE_SHARE


def as_table_or_files(X: Any, memory_budget: int | float | str = "auto") -> Any:
    """Read a source with text, categories or dates into memory as a table, unless it is too large for that."""
    return X if stays_in_files(X, memory_budget) else as_table(X)


def as_inputs(
    X: Any,
    scratch: Scratch | None = None,
    counted: Counted | None = None,
    as_text: Collection[str] = (),
    memory_budget: int | float | str = "auto",
) -> Inputs:
    """Return the X of `fit` or `predict` (a table, an array, a tensor, a source or a Dask collection) as inputs.

    scratch : keeps rows that are slow to read for later passes
    counted : rows with a weight; the other rows are left out
    as_text : columns that were text in training; see `text_columns`
    memory_budget : columns of files that are not numbers stay there if they would take more than a quarter of it
    """
    in_files = stays_in_files(X, memory_budget)
    X = X if in_files else as_table(to_host(X), as_text)
    if in_files:
        inputs: Inputs = FileInputs(X.X if isinstance(X, Dataset) else X, scratch, as_text)
    elif scipy.sparse.issparse(X):
        inputs = SparseInputs(X)
    elif (source := as_source(X)) is not None:
        source = source.with_gaps()
        inputs = StreamedInputs(checked_rows(source) if scratch is None else scratch.rows(source))
    else:
        inputs = TableInputs(X)
    return inputs if counted is None or counted.positions is None else inputs.subset(counted.positions)
