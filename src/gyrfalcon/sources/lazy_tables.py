"""Tables that another library reads or computes when it is asked to: polars' LazyFrame, pyarrow's Dataset.

They come in batches and are never collected as a whole. A pass over the rows runs the query again, so that it must give
the same rows in the same order each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .base import hash_of_blocks
from .blocks import Indices
from .stored import READ_BYTES, StoredRows
from .table_reader import TableReader, arrow, column_types
from .tables import TableFiles

__all__ = ["LazyTable"]


class LazyTable(TableFiles):
    """A table in place of files, of whose columns some are features and others targets or weights.

    Parameters
    ----------
    table : polars.LazyFrame or pyarrow.dataset.Dataset
    """

    def __init__(self, table: Any) -> None:
        arrow()  # an error that says what to install, where it is missing
        of_polars = type(table).__module__.startswith("polars")
        self.format = "LazyFrame" if of_polars else "pyarrow Dataset"
        self.delimiter = None
        self.readers = [LazyFrameReader(table) if of_polars else DatasetReader(table)]

    def rows(self, features: Any, targets: Sequence[str], weights: Sequence[str], dtype: Any) -> StoredRows:
        rows = super().rows(features, targets, weights, dtype)
        return LazyRows(rows.readers, rows.columns, rows.shape[1], rows.dtype, rows.feature_names)


class LazyRows(StoredRows):
    """Rows of a table that has no files whose state could tell whether it has changed."""

    def __repr__(self) -> str:
        n, d = self.shape
        return f"<{n:,} rows of {d} features in {self.dtype}>"

    def fingerprint(self) -> str:
        return hash_of_blocks(self)


class LazyFrameReader(TableReader):
    """Reader of a polars LazyFrame, whose query is run by polars' streaming engine."""

    parses_text = True  # a query may be anything: a fit keeps what it gave in a temporary file

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

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
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

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.types = column_types("the Dataset", dataset.schema)
        super().__init__("the Dataset", np.array([0, dataset.count_rows()], dtype=np.intp), None, 0)

    def plan_memory(self, columns: Sequence[str]) -> None:
        self.buffer_bytes = 4 * 8 * len(columns) * min(_batch_rows(columns), self.n_rows)

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
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
