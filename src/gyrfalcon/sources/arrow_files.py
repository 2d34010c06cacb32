"""Readers of Parquet and Arrow (Feather) files.

The readers of single files are used rather than pyarrow.dataset's scanner: they decode on the calling thread and hold
only a part of one row group, so that order and memory are known. Parquet is read through small buffers, so that memory
depends on the number of columns and not on the size of row groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._utils.memory import format_bytes
from ._arrow_messages import check_messages
from ._parquet_pages import Pages, pages_of
from .blocks import Indices
from .limits import require_in_proportion
from .locations import LocatedReader, Location
from .stored import READ_BYTES, ContentsError
from .table_reader import arrow, check_columns, column_types, is_view, kind_of, plain, shortened

_FOOTER = 60  # bytes of memory for each byte that describes the columns of a Parquet file
_COLUMN_BYTES = 15_000  # bytes of memory for each column that is read: its description, its decoder, its arrays
_AT_ONCE = 2_000  # columns that are read beside each other by one decoder, which takes kilobytes for each
_REPEATED = 4 << 20  # bytes of texts that are decoded at once where each can repeat the one before
_PAGES = 3 << 20  # bytes of each column that a Parquet decoder holds: a page, the same decompressed, a dictionary


class ParquetReader(LocatedReader):
    """Reader of a Parquet file."""

    def __init__(self, location: Location) -> None:
        self.location, path = location, location.path
        state = location.state()
        check_footer(location, state.size)
        with self._open() as file:
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            self.types = column_types(path, file.schema_arrow)
            counts = [group.num_rows for group in groups]
            if sum(counts) != file.metadata.num_rows or min(counts, default=0) < 0:
                raise ValueError(f"it has {file.metadata.num_rows} rows, in groups of {shortened(counts)}")
        self._checked: dict[int, dict[str, Pages]] = {}  # by row group
        self._group_bytes = max((group.total_byte_size for group in groups), default=0)
        self._bytes = sum(group.total_byte_size for group in groups)
        super().__init__(path, np.cumsum([0, *counts], dtype=np.intp), state, 0)

    @contextmanager
    def _open(self, texts: Sequence[str] = (), buffer: int | None = None) -> Iterator[Any]:
        from pyarrow import parquet

        buffer = self.location.read_buffer if buffer is None else buffer
        with self.location.file() as file:
            # a dictionary of texts is not decoded: one that occurs in every row would fill memory
            options = {"read_dictionary": list(texts), "page_checksum_verification": True}
            yield parquet.ParquetFile(file, buffer_size=buffer, pre_buffer=False, **options)

    def plan_memory(self, columns: Sequence[str]) -> None:
        held = min(2 * self._group_bytes, (_PAGES + self.location.read_buffer) * len(columns))
        self.buffer_bytes = held + 2 * 8 * len(columns) * min(_batch_rows(columns), self.n_rows)

    def stored_batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        chosen = range(len(self.starts) - 1) if groups is None else groups.tolist()
        pages = self._check_pages(chosen, columns)
        repeating = {name: max((known[name].repeating for known in pages), default=0) for name in columns}
        labels = [name for name in columns if kind_of(self.types[name]) == "label"]
        # pyarrow makes no dictionary of texts that are stored as differences
        texts = [name for name in labels if not repeating[name]]
        size = min(_batch_rows(columns), max(1, _REPEATED // max(1, *repeating.values())))
        parts = [list(columns[i : i + _AT_ONCE]) for i in range(0, len(columns), _AT_ONCE)]
        with self._open(texts) as file:
            for group in chosen:
                start = int(self.starts[group])
                for batch in _beside(file, group, parts, size, int(self.starts[group + 1]) - start):
                    batch.validate(full=True)  # refuses invalid UTF-8 and indices beyond a dictionary
                    yield start, batch
                    start += batch.num_rows

    def table_bytes(self) -> int:
        return self._bytes

    def _whole(self, columns: Sequence[str], as_text: Collection[str]) -> Iterator[tuple[int, Any]]:
        self.check_whole(columns)
        self._check_texts([name for name in columns if kind_of(self.types[name]) == "label"])
        with self._open(buffer=0) as file:
            parts = [list(columns[i : i + _AT_ONCE]) for i in range(0, len(columns), _AT_ONCE)]
            tables = [file.read(columns=part).select(part) for part in parts]
        arrays = [column for table in tables for column in table.columns]
        yield 0, arrow().Table.from_arrays(arrays, list(columns))

    def check_whole(self, columns: Sequence[str]) -> None:
        super().check_whole(columns)
        self._check_pages(range(len(self.starts) - 1), self.split(columns)[0])

    def _check_texts(self, columns: Sequence[str]) -> None:
        """Raise ContentsError if decoded texts take memory out of proportion to the file."""
        from pyarrow import compute

        assert self.state is not None
        size = 0
        for name in columns:
            for _, batch in self.stored_batches([name], None):
                column = batch.column(name)
                if arrow().types.is_dictionary(column.type):
                    lengths = compute.binary_length(plain(column.dictionary)).take(column.indices)
                else:
                    lengths = compute.binary_length(plain(column))
                size += compute.sum(lengths).as_py() or 0
                what = f"the texts of column {name!r} take"
                require_in_proportion(self.path, self.state.size, size, what, "are such texts meant?")

    def _check_pages(self, groups: Sequence[int], columns: Sequence[str]) -> list[dict[str, Pages]]:
        """Find what the pages of columns decode to, for each row group.

        Raises ContentsError if those that are decoded at once, or the columns' number, are out of proportion to the
        file.
        """
        assert self.state is not None
        check_columns(self.path, self.state.size, len(columns), _COLUMN_BYTES)
        unknown = [group for group in groups if not self._checked.setdefault(group, {}).keys() >= {*columns}]
        if unknown:
            with self._open() as file:
                for group in unknown:
                    known = self._checked[group]
                    known |= _pages(self.location, file.metadata.row_group(group), {*columns}.difference(known))
                    what = f"pages of {shortened(columns)} decode to"
                    held = sum(known[name].held for name in columns)
                    remedy = "write smaller pages, or read fewer columns"
                    require_in_proportion(self.path, self.state.size, held, what, remedy)
        return [self._checked[group] for group in groups]


def _beside(file: Any, group: int, parts: list[list[str]], size: int, count: int) -> Iterator[Any]:
    """Read parts of the columns of a group of `count` rows, and join them to record batches of `size` rows."""

    def read(part: list[str]) -> Iterator[Any]:
        batches: Iterator[Any] = file.iter_batches(size, row_groups=[group], columns=part, use_threads=False)
        return batches

    if len(parts) == 1:
        yield from read(parts[0])
        return
    # one decoder after the other, if each has a single batch to give
    rows = (
        iter([[batch for part in parts for batch in read(part)]])
        if count <= size
        else zip(*map(read, parts), strict=True)
    )
    for batches in rows:
        columns = [column for batch in batches for column in batch.columns]
        yield arrow().RecordBatch.from_arrays(columns, [name for batch in batches for name in batch.schema.names])


def _pages(location: Location, group: Any, names: set[str]) -> dict[str, Pages]:
    """Find what the pages of some columns of a row group decode to; a nested column is made of several."""
    found = dict.fromkeys(names, Pages(0, 0))
    with location.file() as file:
        for j in range(group.num_columns):
            column = group.column(j)
            leaf = column.path_in_schema
            name = leaf if leaf in names else next((name for name in names if leaf.startswith(name + ".")), None)
            if name is not None:
                pages = pages_of(location.path, file, column)
                found[name] = Pages(found[name].held + pages.held, max(found[name].repeating, pages.repeating))
    return found


def check_footer(location: Location, file_bytes: int) -> None:
    """Raise ContentsError if the description of columns at the end of a Parquet file takes too much memory."""
    with location.file() as file:
        file.seek(file_bytes - min(8, file_bytes))
        length = int.from_bytes(file.read(4), "little")
    if length <= file_bytes:  # else pyarrow says what is wrong
        what = f"its description of {format_bytes(length)} takes"
        remedy = "write fewer columns and row groups"
        require_in_proportion(location.path, file_bytes, _FOOTER * length, what, remedy)


def _batch_rows(columns: Sequence[str]) -> int:
    return max(256, READ_BYTES // (8 * len(columns)))


class ArrowReader(LocatedReader):
    """Reader of an Arrow (Feather) file, or of an Arrow stream."""

    def __init__(self, location: Location) -> None:
        self.location, path = location, location.path
        state = location.state()
        with self._open([]) as reader:
            self.types = column_types(path, reader.schema)
        self._size = state.size
        self._decoded = check_messages(location, state.size)
        # One column is enough to count rows, if the file stores its values: others fit any number of rows.
        kinds = [kind_of(type_) for type_ in self.types.values()]
        counted = next((number for number, kind in enumerate(kinds) if kind != "other"), 0)
        with self._open([counted]) as reader:
            counts = [batch.num_rows for _, batch in self._numbered(reader, None)]
        super().__init__(path, np.cumsum([0, *counts], dtype=np.intp), state, 0)

    @contextmanager
    def _open(self, fields: list[int]) -> Iterator[Any]:
        from pyarrow import ipc

        with self.location.file() as file:
            magic = file.read(6)
            if magic.startswith(b"FEA1"):
                raise ContentsError(f"{self.location.path} is Feather of version 1: write it again as version 2")
            file.seek(0)
            options = ipc.IpcReadOptions(included_fields=fields, use_threads=False)
            yield (ipc.open_file if magic == b"ARROW1" else ipc.open_stream)(file, options=options)

    def _numbered(self, reader: Any, groups: Indices | None) -> Iterator[tuple[int, Any]]:
        """Read batches with their numbers and validate them: pyarrow trusts the lengths and offsets in a file."""
        for number, batch in self._unchecked(reader, groups):
            batch.validate(full=True)
            for column in batch.columns:
                self._check_views(column)
            yield number, batch

    def _check_views(self, column: Any) -> None:
        """Raise ContentsError if views of text, many of which can share bytes, take too much memory as copies."""
        if is_view(column.type):
            views = np.frombuffer(column.buffers()[1], dtype=np.int32)[4 * column.offset :][: 4 * len(column) : 4]
            size = int(views.sum(dtype=np.int64))
            require_in_proportion(self.path, self._size, size, "the texts of a record batch take", "use shorter texts")

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

    def check_whole(self, columns: Sequence[str]) -> None:
        super().check_whole(columns)
        what = "its record batches decode to"
        require_in_proportion(self.path, self._size, self._decoded, what, "are so many rows meant?")

    def stored_batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        place = {name: at for at, name in enumerate(self.types)}
        with self._open(sorted(place[name] for name in columns)) as reader:
            for number, batch in self._numbered(reader, groups):
                # in slices, since truth values, decimals and categories take more as numbers
                for start in range(0, batch.num_rows, _batch_rows(columns)):
                    yield int(self.starts[number]) + start, batch.slice(start, _batch_rows(columns))
