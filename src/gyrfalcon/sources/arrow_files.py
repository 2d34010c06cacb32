"""Readers of Parquet and Arrow (Feather) files.

The readers of single files are used rather than pyarrow.dataset's scanner: they decode on the calling thread and hold
only a part of one row group, so that order and memory are known. Parquet is read through small buffers, so that memory
depends on the number of columns and not on the size of row groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._utils.memory import format_bytes
from .blocks import Indices
from .limits import FREE_BYTES, require_in_proportion
from .stored import READ_BYTES, ContentsError, FileState
from .table_reader import TableReader, arrow, column_types, kind_of, plain, shortened

_READ_BUFFER = 1 << 16  # bytes of each column of a Parquet file that are read at once
_FOOTER = 60  # bytes of memory for each byte that describes the columns of a Parquet file
_PAGES = 3 << 20  # bytes of each column that a Parquet decoder holds: a page, the same decompressed, a dictionary


class ParquetReader(TableReader):
    """Reader of a Parquet file."""

    def __init__(self, path: str) -> None:
        state = FileState.of(path)
        check_footer(path, state.size)
        with self._open(path) as file:
            check_pages(path, state.size, file.metadata)
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            self.types = column_types(path, file.schema_arrow)
            counts = [group.num_rows for group in groups]
            if sum(counts) != file.metadata.num_rows or min(counts, default=0) < 0:
                raise ValueError(f"it has {file.metadata.num_rows} rows, in groups of {shortened(counts)}")
        self._group_bytes = max((group.total_byte_size for group in groups), default=0)
        super().__init__(path, np.cumsum([0, *counts], dtype=np.intp), state, 0)

    def _open(self, path: str, texts: Sequence[str] = ()) -> Any:
        from pyarrow import parquet

        # a dictionary of texts is not decoded: one that occurs in every row would fill memory
        return parquet.ParquetFile(path, buffer_size=_READ_BUFFER, pre_buffer=False, read_dictionary=list(texts))

    def plan_memory(self, columns: Sequence[str]) -> None:
        held = min(2 * self._group_bytes, _PAGES * len(columns))
        self.buffer_bytes = held + 2 * 8 * len(columns) * min(_batch_rows(columns), self.n_rows)

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        size = _batch_rows(columns)
        texts = [name for name in columns if kind_of(self.types[name]) == "label"]
        with self._open(self.path, texts) as file:
            for group in range(len(self.starts) - 1) if groups is None else groups.tolist():
                start = int(self.starts[group])
                for batch in file.iter_batches(size, row_groups=[group], columns=list(columns), use_threads=False):
                    batch.validate(full=True)  # refuses invalid UTF-8 and indices beyond a dictionary
                    yield start, batch
                    start += batch.num_rows


def check_footer(path: str, file_bytes: int) -> None:
    """Raise ContentsError if the description of columns at the end of a Parquet file takes too much memory."""
    with open(path, "rb") as file:
        file.seek(-min(8, file_bytes), os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
    if length <= file_bytes:  # else pyarrow says what is wrong
        what = f"its description of {format_bytes(length)} takes"
        require_in_proportion(path, file_bytes, _FOOTER * length, what, "write fewer columns and row groups")


def check_pages(path: str, file_bytes: int, metadata: Any) -> None:
    """Raise ContentsError if what a column of a row group decompresses to is out of proportion to the file."""
    largest = max(
        (
            metadata.row_group(i).column(j).total_uncompressed_size
            for i in range(metadata.num_row_groups)
            if metadata.row_group(i).total_byte_size > FREE_BYTES
            for j in range(metadata.num_columns)
        ),
        default=0,
    )
    what = "a column of a group of rows decompresses to"
    require_in_proportion(path, file_bytes, largest, what, "write smaller groups of rows, or with a dictionary")


def check_texts(path: str, columns: Sequence[str]) -> None:
    """Raise ContentsError if the texts of a Parquet file take memory out of proportion to it, once they are decoded."""
    from pyarrow import compute

    reader = ParquetReader(path)
    assert reader.state is not None
    reader.check_whole(columns)
    size = 0
    for name in columns:
        if kind_of(reader.types[name]) != "label":
            continue
        for _, batch in reader.batches([name], None):
            column = batch.column(name)
            if arrow().types.is_dictionary(column.type):
                lengths = compute.binary_length(plain(column.dictionary)).take(column.indices)
                size += compute.sum(lengths).as_py() or 0
            what = f"the texts of column {name!r} take"
            require_in_proportion(path, reader.state.size, size, what, "are such texts meant?")


def _batch_rows(columns: Sequence[str]) -> int:
    return max(256, READ_BYTES // (8 * len(columns)))


class ArrowReader(TableReader):
    """Reader of an Arrow file, of which Feather is one, or of an Arrow stream."""

    def __init__(self, path: str) -> None:
        state = FileState.of(path)
        with self._open(path, []) as reader:
            self.types = column_types(path, reader.schema)
        # One column is enough to count rows, if the file stores its values: others fit any number of rows.
        kinds = [kind_of(type_) for type_ in self.types.values()]
        counted = next((number for number, kind in enumerate(kinds) if kind != "other"), 0)
        with self._open(path, [counted]) as reader:
            counts = [batch.num_rows for _, batch in self._numbered(reader, None)]
        super().__init__(path, np.cumsum([0, *counts], dtype=np.intp), state, 0)

    @contextmanager
    def _open(self, path: str, fields: list[int]) -> Iterator[Any]:
        from pyarrow import ipc

        # not memory-mapped: access to a mapped file that was cut short kills the process
        with arrow().OSFile(path) as file:
            magic = file.read(6)
            if magic.startswith(b"FEA1"):
                raise ContentsError(f"{path} is Feather of version 1: write it again as version 2")
            file.seek(0)
            options = ipc.IpcReadOptions(included_fields=fields, use_threads=False)
            yield (ipc.open_file if magic == b"ARROW1" else ipc.open_stream)(file, options=options)

    def _numbered(self, reader: Any, groups: Indices | None) -> Iterator[tuple[int, Any]]:
        """Read batches with their numbers and validate them: pyarrow trusts the lengths and offsets in a file."""
        for number, batch in self._unchecked(reader, groups):
            batch.validate(full=True)
            yield number, batch

    def _unchecked(self, reader: Any, groups: Indices | None) -> Iterator[tuple[int, Any]]:
        from pyarrow import ipc

        if isinstance(reader, ipc.RecordBatchFileReader):
            for number in range(reader.num_record_batches) if groups is None else groups.tolist():
                yield number, reader.get_batch(number)
            return
        for number, batch in enumerate(reader):  # a stream must be read in order
            if groups is None or number in groups:
                yield number, batch

    def plan_memory(self, columns: Sequence[str]) -> None:
        self.buffer_bytes = 2 * 8 * len(columns) * int(np.diff(self.starts).max(initial=0))

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        place = {name: at for at, name in enumerate(self.types)}
        with self._open(self.path, sorted(place[name] for name in columns)) as reader:
            for number, batch in self._numbered(reader, groups):
                yield int(self.starts[number]), batch
