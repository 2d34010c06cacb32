"""Tables that another library reads or computes on demand: polars' LazyFrame, pyarrow's Dataset.

They come in batches and are never collected as a whole. A query may give its rows in another order each time, so
targets, weights and features must come from one run of it: see `QueryRun`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.words import plural
from .base import Rows, hash_of_blocks
from .blocks import Indices
from .folders import NO_FOLDERS
from .rereading import CheckedRows, RowHashes, RowsChangedError
from .scratch import ScratchReader, temporary_file, write_block
from .stored import READ_BYTES, RawColumns, StoredRows
from .table_reader import MissingValueError, TableReader, arrow, column_types
from .tables import TableFiles, TableRows, WholeColumns

__all__ = ["LazyTable"]

Array = NDArray[Any]


class LazyTable(TableFiles):
    """A polars.LazyFrame or pyarrow.dataset.Dataset in place of files, with features, targets and weights."""

    def __init__(self, table: Any) -> None:
        arrow()  # if pyarrow is missing, the error says what to install
        of_polars = type(table).__module__.startswith("polars")
        self.format, self.folders = "LazyFrame" if of_polars else "pyarrow Dataset", NO_FOLDERS
        self.reader = LazyFrameReader(table) if of_polars else DatasetReader(table)
        self.readers = [self.reader]
        self._run: QueryRun | None = None

    def rows(self, features: Any, targets: Sequence[str], weights: Sequence[str], dtype: Any) -> TableRows:
        rows = super().rows(features, targets, weights, dtype)
        rows.files = copy.copy(self)  # without the run, which holds these rows: a circle would keep its file open
        others = [*targets, *weights]
        self.reader.plan_memory([*rows.columns, *others])
        plain = LazyRows(rows, self.reader.remedy)
        if not others:
            return plain
        self._run = QueryRun(self.reader, plain, others)
        return RunRows(plain, self._run)

    def values(self, names: Sequence[str]) -> list[Array]:
        """Return whole columns, of the run of the query that gives the features as well."""
        assert self._run is not None, "no column was named as target or weight"
        values = self._run.values
        return [values[name] for name in names]

    def numbers(self, names: Sequence[str]) -> None:
        return None  # targets come from the run of the query that gives the features


class LazyRows(TableRows):
    """Rows of a table without files, so that no modification time shows whether it has changed."""

    def __init__(self, rows: TableRows, remedy: str) -> None:
        super().__init__(rows.files, rows.columns, rows.dtype, rows.obstacle)
        self.remedy = remedy
        self.tables_in_blocks = False  # a query has no groups of rows

    def __repr__(self) -> str:
        n, d = self.shape
        return f"<{plural(n, 'row')} of {plural(d, 'feature')} in {self.dtype}>"

    def fingerprint(self) -> str:
        return hash_of_blocks(self)


class RunRows(LazyRows):
    """Rows of the one run of a query that gives targets and weights as well."""

    checked = True

    _gaps = False

    def __init__(self, rows: LazyRows, run: QueryRun) -> None:
        super().__init__(rows, rows.remedy)
        self.slow_to_read = False  # the run is kept
        self._run = run

    @property
    def buffer_bytes(self) -> int:
        return super().buffer_bytes + 4 * self.shape[0]  # of the hashes

    def with_gaps(self) -> Self:
        other = super().with_gaps()
        other._gaps = True
        return other

    def table(self, indices: Indices | None = None, as_text: Collection[str] = ()) -> Any:
        return self._run.table if indices is None else self._run.table.take(indices)

    def blocks(self, size: int) -> Iterator[Array]:
        return self._numbers().blocks(size)

    def take(self, indices: Indices) -> Array:
        return np.asarray(self._numbers().take(indices))

    def _numbers(self) -> Rows:
        self._require_numbers()
        rows = self._run.rows
        if self._run.missing is not None and not self._gaps:
            raise self._run.missing
        return rows


class QueryRun:
    """One run of a query, when it is first needed: targets, weights and hashes of the features are kept in memory.

    The features of a LazyFrame are written to a temporary file without a name, from which they are read as long as this
    object exists. Those of a Dataset, and of a LazyFrame for which the disk has no room or that was sent to another
    process, are read again for each pass and compared with the run by their hashes. Features that are not numbers are
    kept in memory as a table. `source` are the features, and `names` the columns of targets and weights.
    """

    def __init__(self, reader: TableReader, source: LazyRows, names: Sequence[str]) -> None:
        self._reader, self._source, self._names = reader, source, list(names)
        self._done: tuple[Rows, dict[str, Array]] | None = None
        self._table: Any = None
        self.missing: MissingValueError | None = None  # for the first missing number of the features
        self._running = threading.Lock()

    @property
    def rows(self) -> Rows:
        """The features."""
        return self._once()[0]

    @property
    def values(self) -> dict[str, Array]:
        """The targets and weights by name."""
        return self._once()[1]

    @property
    def table(self) -> Any:
        """The features as a table with their types, of the same run as the targets and weights."""
        values = self.values
        if self._table is None:
            table, again = self._typed()
            if not all(np.array_equal(values[name], again[name]) for name in self._names):
                raise RowsChangedError(
                    f"{self._reader.path} gave other rows when it was read again: rows must be the same, in the same "
                    f"order, whenever they are read. {self._source.remedy}"
                )
            self._table = table
        return self._table

    def _once(self) -> tuple[Rows, dict[str, Array]]:
        with self._running:
            if self._done is None:
                if self._source.obstacle is None:
                    self._done = self._run()
                else:
                    self._table, values = self._typed()
                    self._done = self._source, values
            return self._done

    def _typed(self) -> tuple[Any, dict[str, Array]]:
        """Run the query; return the features as a table, and the targets and weights."""
        table = self._reader.whole([*self._source.columns, *self._names], ())
        columns = WholeColumns(self._names, table.num_rows)
        start = 0
        for batch in table.select(self._names).to_batches():
            columns.add(self._reader, 0, start, batch)
            start += batch.num_rows
        return table.select(self._source.columns), columns.values

    def _run(self) -> tuple[Rows, dict[str, Array]]:
        reader, source = self._reader, self._source
        with_gaps = source.with_gaps()
        n, d = source.shape
        hashes, columns = RowHashes(n), WholeColumns(self._names, n)
        file = temporary_file(n * d * source.dtype.itemsize) if reader.parses_text else None
        batches = reader.batches([*source.columns, *self._names], None)
        for start, batch in reader.checked(batches, n):
            columns.add(reader, 0, start, batch)
            block = np.empty((batch.num_rows, d), dtype=source.dtype)
            with np.errstate(over="ignore"):  # values that overflow become infinite, and are refused as such
                RawColumns(self._features(batch, start)).copy_to(block, slice(0, len(block)))
            hashes.differences(slice(start, start + len(block)), block)
            if file is not None and not write_block(file, block):
                file.close()
                file = None
        if file is None:
            return CheckedRows(with_gaps, hashes), columns.values
        kept = ScratchReader(file, source.shape, source.dtype)
        return KeptRows(kept, with_gaps, hashes), columns.values

    def _features(self, batch: Any, start: int) -> list[Array]:
        """Return the features of a batch, with NaN for missing numbers; the error for the first one is kept."""
        names, reader = self._source.columns, self._reader
        try:
            return [reader.feature(batch, name, start) for name in names]
        except MissingValueError as error:
            self.missing = self.missing or error
        gaps = reader.with_gaps()
        return [gaps.feature(batch, name, start) for name in names]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_running": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _running=threading.Lock())


class KeptRows(StoredRows):
    """Rows of a run in a temporary file; another process, which has no such file, runs the query and compares."""

    def __init__(self, kept: ScratchReader, source: LazyRows, hashes: RowHashes) -> None:
        super().__init__([kept], None, source.shape[1], source.dtype, source.feature_names)
        self._source, self._hashes = source, hashes

    def __reduce__(self) -> tuple[type[CheckedRows], tuple[LazyRows, RowHashes]]:
        return CheckedRows, (self._source, self._hashes)


class LazyFrameReader(TableReader):
    """Reader of a polars LazyFrame, whose query is run by polars' streaming engine."""

    parses_text = True  # a query may be anything: a fit keeps what it gave in a temporary file
    remedy = (
        "The query gives its rows in another order, or other rows, whenever it is run: end it with .sort(...) by "
        "columns that tell rows apart, use maintain_order=True in group_by, unique and join, give samples a seed, or "
        "learn from query.collect()"
    )

    def __init__(self, frame: Any) -> None:
        import polars

        if tuple(int(part) for part in polars.__version__.split(".")[:2]) < (1, 34):
            raise ImportError(
                f"a LazyFrame is read in batches by polars 1.34 or newer, and this is {polars.__version__}: upgrade, "
                "or write the rows with sink_parquet and open that file"
            )
        self.frame = frame
        self.types = column_types("the LazyFrame", frame.head(0).collect().to_arrow().schema)
        count = frame.select(polars.len()).collect().item()
        super().__init__("the LazyFrame", np.array([0, count], dtype=np.intp), None, 0)

    def plan_memory(self, columns: Sequence[str]) -> None:
        self.buffer_bytes = 4 * 8 * len(columns) * min(_batch_rows(columns), self.n_rows)

    def stored_batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        start = 0
        frames = self.frame.select(list(columns)).collect_batches(
            chunk_size=_batch_rows(columns), maintain_order=True, engine="streaming"
        )
        for frame in frames:
            for batch in frame.to_arrow().to_batches():
                yield start, batch
                start += batch.num_rows


class DatasetReader(TableReader):
    """Reader of a pyarrow Dataset: many files, also remote ones and partitioned ones."""

    remedy = (
        "Leave the files of the Dataset alone until the fit has ended; now make it again and start again, or learn "
        "from dataset.to_table()"
    )

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.types = column_types("the Dataset", dataset.schema)
        super().__init__("the Dataset", np.array([0, dataset.count_rows()], dtype=np.intp), None, 0)

    def plan_memory(self, columns: Sequence[str]) -> None:
        self.buffer_bytes = 4 * 8 * len(columns) * min(_batch_rows(columns), self.n_rows)

    def stored_batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        start = 0
        for batch in self.dataset.to_batches(
            columns=list(columns),
            batch_size=_batch_rows(columns),
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        ):
            yield start, batch
            start += batch.num_rows


def _batch_rows(columns: Sequence[str]) -> int:
    return max(256, READ_BYTES // (8 * len(columns)))
