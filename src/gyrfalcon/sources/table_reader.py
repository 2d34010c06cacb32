"""Readers of tables: the types of columns, their conversion to arrays, and what all formats of tables share."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import available_memory, require_memory
from .._utils.words import shown
from .blocks import Indices
from .limits import require_in_proportion
from .stored import READ_BYTES, ContentsError, RawColumns, RawRows, RowReader

Array = NDArray[Any]


def arrow() -> Any:
    """Import pyarrow; raise ImportError with the command to install it if it is missing."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("tables in files are read by pyarrow: pip install pyarrow") from error
    return pyarrow


def kind_of(type_: Any) -> str:
    """Classify a type as "number", "label", or "other", which can be neither a feature nor a target."""
    types = arrow().types
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_floating(type_) or types.is_integer(type_) or types.is_boolean(type_) or types.is_decimal(type_):
        return "number"
    if types.is_string(type_) or types.is_large_string(type_) or is_view(type_):
        return "label"
    return "other"


def is_time(type_: Any) -> bool:
    """Whether a type is that of dates, times of day, times or durations."""
    return bool(arrow().types.is_temporal(type_))


def is_view(type_: Any) -> bool:
    """Whether a type is that of polars' strings, for which older versions of pyarrow have no test."""
    return str(type_) == "string_view"


def is_narrow(type_: Any) -> bool:
    """Whether float32 holds all values of a type."""
    types = arrow().types
    return bool(types.is_float32(type_) or types.is_float16(type_))


def plain(column: Any) -> Any:
    """Decode a dictionary of numbers, and convert views of strings to strings.

    A dictionary of labels stays one: a long label that occurs in every row would fill memory.
    """
    if arrow().types.is_dictionary(column.type):
        values, indices = plain(column.dictionary), column.indices
        if values.null_count:  # a missing value may be one of the dictionary
            known = np.append(values.is_valid().to_numpy(zero_copy_only=False), False)
            positions = indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
            indices = arrow().array(positions, type=indices.type, mask=~known[positions])
        if kind_of(values.type) == "label":
            return arrow().DictionaryArray.from_arrays(indices, values)
        return values.take(indices)
    return column.cast(arrow().string()) if is_view(column.type) else column


def numbers(column: Any) -> Array:
    """Convert a column without nulls to an array, without a copy where its type allows."""
    types = arrow().types
    if types.is_decimal(column.type):
        column = column.cast(arrow().float64())
    array: Array = column.to_numpy(zero_copy_only=False)
    return array


def labels(column: Any) -> Array:
    """Convert a column of strings to an array of Python strings, each made once however often it occurs."""
    encoded = column if arrow().types.is_dictionary(column.type) else column.dictionary_encode()
    array: Array = encoded.dictionary.to_numpy(zero_copy_only=False)[encoded.indices.to_numpy()]
    return array


class MissingValueError(ContentsError):
    """A value is missing in a table. `choice`, which is empty for targets, advises to choose other columns."""

    def __init__(self, problem: str, choice: str) -> None:
        super().__init__(problem, choice)  # both, so that the error can be pickled
        self.problem = problem
        self.choice = choice

    def __str__(self) -> str:
        return self.problem + self.choice


class TableReader(RowReader):
    """Reader of a table in a file."""

    types: dict[str, Any]  # the pyarrow type of each column
    without_values: Collection[str] = ()  # columns of unknown type, as the first rows of a text file have no value
    gaps = False  # whether missing numbers are read as NaN; otherwise they are an error
    folders: Mapping[str, str | None] = {}  # values of columns that are not in the file, but names of its folders

    @abstractmethod
    def stored_batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        """Read record batches of some columns of the file; yield them with the number of their first row."""

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        """Read record batches of some columns, those of folders included, with the number of their first row."""
        stored, others = self.split(columns)
        if not others:
            yield from self.stored_batches(stored, groups)
        elif stored:
            for start, batch in self.stored_batches(stored, groups):
                arrays = [*batch.columns, *self._constants(others, batch.num_rows)]
                yield start, arrow().RecordBatch.from_arrays(arrays, [*batch.schema.names, *others])
        else:
            for group in range(len(self.starts) - 1) if groups is None else groups.tolist():
                start, end = self.starts[group : group + 2].tolist()
                for first in range(start, end, READ_BYTES // 8):
                    arrays = self._constants(others, min(READ_BYTES // 8, end - first))
                    yield first, arrow().RecordBatch.from_arrays(arrays, others)

    def split(self, columns: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return those columns that are in the file, and those that are names of folders."""
        return [name for name in columns if name not in self.folders], [
            name for name in columns if name in self.folders
        ]

    def _constants(self, names: Sequence[str], count: int, as_text: Collection[str] = ()) -> list[Any]:
        """Return columns of folders: the same value in `count` rows."""
        pa = arrow()
        texts = [pa.scalar(self.folders[name], pa.string()) for name in names]
        types = [pa.string() if name in as_text else self.types[name] for name in names]
        return [pa.repeat(text.cast(type_), count) for text, type_ in zip(texts, types, strict=True)]

    def in_folders(self, values: Mapping[str, str | None], types: Mapping[str, Any]) -> Self:
        """Return a reader that has the values of its folders as columns, unless the file has columns of these names."""
        other = copy.copy(self)
        other.folders = {name: text for name, text in values.items() if name not in self.types}
        other.types = self.types | {name: types[name] for name in other.folders}
        return other

    @property
    def name(self) -> str:
        return "/".join([*(f"{name}={text}" for name, text in self.folders.items()), super().name])

    def with_gaps(self) -> Self:
        """Return a reader that reads missing numbers as NaN."""
        other = copy.copy(self)
        other.gaps = True
        return other

    def plan_memory(self, columns: Sequence[str]) -> None:
        """Set `buffer_bytes` to what reading these columns takes, if that depends on the columns."""

    def read(self, columns: Any, groups: Indices | None) -> Iterator[tuple[int, RawRows]]:
        for start, batch in self.batches(columns, groups):
            yield start, RawColumns([self.feature(batch, name, start) for name in columns])

    def has_codes(self, columns: Sequence[str]) -> bool:
        """Whether a column that looks like numbers has leading zeros, as postcodes have, and is text in the table."""
        return False

    def table_bytes(self) -> int:
        """Estimate the bytes that the table takes in memory; 0 if nothing is known before it is read."""
        return 0 if self.state is None else self.state.size

    def whole(self, columns: Sequence[str], as_text: Collection[str]) -> Any:
        """Read whole columns as a typed table of pyarrow, with the checks of `read_checked`.

        In formats without types the columns in `as_text` are text, even if all of their values look like numbers.
        """
        stored, others = self.split(columns)
        if not stored:
            return arrow().Table.from_arrays(self._constants(others, self.n_rows, as_text), others)
        ((_, table),) = self.checked(self._whole(stored, as_text), self.n_rows)
        for name, column in zip(others, self._constants(others, self.n_rows, as_text), strict=True):
            table = table.append_column(name, column)
        return table.select(list(columns))

    def _whole(self, columns: Sequence[str], as_text: Collection[str]) -> Iterator[tuple[int, Any]]:
        """Yield the number of the first row, 0, and the table that `whole` returns."""
        self.check_whole(columns)
        batches: list[Any] = []
        size, available = 0, available_memory()
        for _, batch in self.stored_batches(columns, None):
            size += batch.nbytes
            require_memory(self.path, size, available)
            batches.append(batch)
        schema = arrow().schema([(name, self.types[name]) for name in self.types if name in columns])
        table = arrow().Table.from_batches(batches, None if batches else schema).select(list(columns))
        for at, field in enumerate(table.schema):
            if is_view(field.type):
                table = table.set_column(at, field.name, table.column(at).cast(arrow().large_string()))
        yield 0, table

    def feature(self, batch: Any, name: str, start: int) -> Array:
        """Return a column of numbers of a batch that begins at row `start`."""
        if self.gaps:
            column = plain(batch.column(name))
            return numbers(column.cast(arrow().float64()) if column.null_count else column)
        return numbers(self.column(batch, name, start, feature=True))

    def column(self, batch: Any, name: str, start: int, *, feature: bool) -> Any:
        """Return a decoded column of a batch that begins at row `start`; raise MissingValueError if it has nulls."""
        column = plain(batch.column(name))
        if column.null_count:
            row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise MissingValueError(
                f"{self.path}: column {name!r} has no value in row {row} (counted from 0){self.place(row)}: remove "
                "such rows or fill them in",
                ", or choose other columns with features=[...]" if feature else "",
            )
        return column

    def check_whole(self, columns: Sequence[str]) -> None:
        """Raise ContentsError if whole columns take memory out of proportion to the file."""
        if self.state is not None:
            size = 8 * self.n_rows * len(columns)
            what = f"{self.n_rows} rows of {shortened(columns)} take"
            require_in_proportion(self.path, self.state.size, size, what, "are so many rows meant?")

    def place(self, row: int) -> str:
        """Describe where in the file a row is, for formats with lines."""
        return ""


def column_types(path: str, schema: Any) -> dict[str, Any]:
    """Return the type of each column by name; raise ContentsError if names are not unique."""
    types = dict(zip(schema.names, schema.types, strict=True))
    if len(types) < len(schema.names):
        twice = Counter(schema.names).most_common(1)[0][0]
        hint = NAMES_WANTED * lacks_names(schema.names)
        raise ContentsError(f"{path} has two columns named {twice!r}: give each a name of its own{hint}")
    if not types:
        raise ContentsError(f"{path} has no columns")
    return types


def check_columns(path: str, file_bytes: int, count: int, column_bytes: int) -> None:
    """Raise ContentsError if a table has more columns than its size explains: each takes memory to read."""
    what = f"its {count} columns take"
    require_in_proportion(path, file_bytes, count * column_bytes, what, "write rows as one array, in HDF5 or .npy")


def lacks_names(names: Sequence[str]) -> bool:
    """Whether the names of columns look like a row of numbers, as in a file without names."""
    try:
        return len([float(name) for name in names]) > 0
    except ValueError:
        return False


NAMES_WANTED = "; they look like a row of numbers, and the first line of the file must be the columns' names"


def shortened(names: Any) -> str:
    """List names for an error message, at most 20 of them."""
    names = list(names)
    return shown(names) if len(names) <= 20 else f"[{shown(names[:20])[1:-1]}, ... {len(names)} in all]"
