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

from ..fitting.weights import Counted
from ..sources import Rows, as_source, as_table, to_host
from ..sources.base import DerivedRows
from ..sources.blocks import Block, Indices
from ..sources.rereading import checked_rows
from ..sources.scratch import Scratch
from ..storage.describe import digest
from .encoder import TableEncoder
from .mixing import Mixing
from .reading import Table, named, read_table

Array = NDArray[Any]

_BLOCK = 65_536  # rows of a sparse matrix that are encoded at once


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


class EncodedRows(DerivedRows):
    """Rows that are encoded, and optionally multiplied by a matrix, whenever they are read."""

    def __init__(self, rows: Rows, encoder: TableEncoder, mixing: Mixing | None = None) -> None:
        super().__init__(rows)
        self.feature_names = None
        self.encoder = encoder
        self.mixing = mixing
        self.shape = (rows.shape[0], len(encoder.feature_origin_))
        self.dtype = np.dtype(encoder.dtype)

    def blocks(self, size: int) -> Iterator[Block]:
        return (self._made(block) for block in self.rows.blocks(size))

    def take(self, indices: Indices) -> Block:
        if not len(indices):
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        return self._made(self.rows.take(indices))

    def subset(self, indices: Indices) -> Rows:
        return EncodedRows(self.rows.subset(indices), self.encoder, self.mixing)

    def mixed(self, mixing: Mixing) -> EncodedRows:
        """Return the same rows, multiplied by a matrix."""
        return EncodedRows(self.rows, self.encoder, mixing)

    def _made(self, block: Block) -> Array:
        rows: Array = self.encoder.transform(named(block, self.rows))
        return rows if self.mixing is None else self.mixing.transform(rows)

    @property
    def is_sparse(self) -> bool:
        return False

    def fingerprint(self) -> str:
        return f"{self.rows.fingerprint()} {self.encoder!r} {self.mixing!r}"


def apply_mixing(rows: Any, mixing: Mixing | None) -> Any:
    """Multiply encoded rows, an array or rows that are encoded as they are read, by a matrix if there is one."""
    if mixing is None:
        return rows
    return rows.mixed(mixing) if isinstance(rows, EncodedRows) else mixing.transform(rows)


def text_columns(encoder: TableEncoder) -> list[str]:
    """Return the names of the columns that were text in training, which those of a CSV file stay."""
    names = vars(encoder).get("feature_names_in_")  # only an encoder of a table with names has them
    return [] if names is None else [str(name) for name in names[np.isin(encoder.kinds_, ["category", "text"])]]


def as_inputs(
    X: Any, scratch: Scratch | None = None, counted: Counted | None = None, as_text: Collection[str] = ()
) -> Inputs:
    """Return the X of `fit` or `predict` (a table, an array, a tensor, a source or a Dask collection) as inputs.

    scratch : keeps rows that are slow to read for later passes
    counted : rows with a weight; the other rows are left out
    as_text : columns that were text in training; see `text_columns`
    """
    X = as_table(to_host(X), as_text)
    if scipy.sparse.issparse(X):
        inputs: Inputs = SparseInputs(X)
    elif (source := as_source(X)) is not None:
        source = source.with_gaps()
        inputs = StreamedInputs(checked_rows(source) if scratch is None else scratch.rows(source))
    else:
        inputs = TableInputs(X)
    return inputs if counted is None or counted.positions is None else inputs.subset(counted.positions)
