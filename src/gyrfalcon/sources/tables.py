"""Tables in files: Parquet, Arrow (Feather) and CSV, read by pyarrow, one file and a few columns at a time.

The readers of single files are used rather than pyarrow.dataset's scanner: they decode on the thread that asks and
hold no more than a part of one group of rows, so that order and memory are known. Parquet is read through small
buffers, which bounds memory by the number of columns, however large the row groups are.
"""

from __future__ import annotations

import gzip
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from csv import Error as CsvError
from csv import reader as csv_reader
from difflib import get_close_matches
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .stored import PIECE, Columns, ContentsError, Indices, Part, Piece, Stamp, StoredRows, cannot_read

Array = NDArray[Any]

_READ_BUFFER = 1 << 16  # bytes of each column of a Parquet file that are read at once
_PAGES = 3 << 20  # bytes of each column that a Parquet decoder holds: a page, the same decompressed, a dictionary
_CSV_BLOCK = 1 << 22
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}  # that a comma may be taken for
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")  # what pandas calls row numbers in CSV and Parquet
_MOST_LINES = 10_000_000  # that are counted to say where an error is, some seconds' work


def arrow() -> Any:
    """pyarrow, or how to get it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError('tables in files are read by pyarrow: pip install "gyrfalcon[files]"') from error
    return pyarrow


# ---- what a column is ------------------------------------------------------------------------------------------------


def kind_of(type_: Any) -> str:
    """number or label, or other: what can be neither a feature nor a target."""
    types = arrow().types
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_floating(type_) or types.is_integer(type_) or types.is_boolean(type_) or types.is_decimal(type_):
        return "number"
    if types.is_string(type_) or types.is_large_string(type_) or _is_view(type_):
        return "label"
    return "other"


def _is_view(type_: Any) -> bool:
    """Whether it is a string as polars writes it; older versions of pyarrow do not know the type."""
    return str(type_) == "string_view"


def is_narrow(type_: Any) -> bool:
    """Whether float32 holds all of its values."""
    types = arrow().types
    return bool(types.is_float32(type_) or types.is_float16(type_))


def plain(column: Any) -> Any:
    """A column without a dictionary, and with strings of the usual type."""
    if arrow().types.is_dictionary(column.type):
        return plain(column.dictionary).take(column.indices)
    return column.cast(arrow().string()) if _is_view(column.type) else column


def numbers(column: Any) -> Array:
    """A column without nulls as an array, without a copy where its type allows."""
    types = arrow().types
    if types.is_decimal(column.type):
        column = column.cast(arrow().float64())
    array: Array = column.to_numpy(zero_copy_only=False)
    return array


def labels(column: Any) -> Array:
    """Strings as Python's, each made once however often it occurs."""
    encoded = column.dictionary_encode()
    array: Array = encoded.dictionary.to_numpy(zero_copy_only=False)[encoded.indices.to_numpy()]
    return array


# ---- a file ----------------------------------------------------------------------------------------------------------


class NoValueError(ContentsError):
    """A value is missing in a file.

    Parameters
    ----------
    problem : str
        What is missing, and what helps.
    choice : str
        The advice to use other columns, for those who can choose.
    """

    def __init__(self, problem: str, choice: str) -> None:
        super().__init__(problem, choice)  # both, so that it can be pickled
        self.problem = problem
        self.choice = choice

    def __str__(self) -> str:
        return self.problem + self.choice


class TablePart(Part):
    """A file that holds a table.

    Attributes
    ----------
    types : dict
        The type of each column.
    """

    types: dict[str, Any]

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        """Record batches of these columns, each with the row of the file it begins at."""
        raise NotImplementedError

    def read(self, columns: Any, groups: Indices | None) -> Iterator[tuple[int, Piece]]:
        for start, batch in self.batches(columns, groups):
            yield start, Columns([numbers(self.column(batch, name, start, feature=True)) for name in columns])

    def column(self, batch: Any, name: str, start: int, *, feature: bool) -> Any:
        """A column of a batch that begins at a row of the file, plain and known to have no nulls."""
        column = plain(batch.column(name))
        if column.null_count:
            row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise NoValueError(
                f"{self.path}: column {name!r} has no value in row {row} (counted from 0){self.place(row)}: remove "
                "such rows or fill them in",
                ", or choose other columns with features=[...]" if feature else "",
            )
        return column

    def place(self, row: int) -> str:
        """Where else than by its number a row is found."""
        return ""


class ParquetPart(TablePart):
    """A Parquet file."""

    def __init__(self, path: str) -> None:
        stamp = Stamp.of(path)
        with self._open(path) as file:
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            self.types = _types(path, file.schema_arrow)
            counts = [group.num_rows for group in groups]
            if sum(counts) != file.metadata.num_rows or min(counts, default=0) < 0:
                raise ValueError(f"it has {file.metadata.num_rows} rows, in groups of {_shortened(counts)}")
        self._group_bytes = max((group.total_byte_size for group in groups), default=0)
        super().__init__(path, np.cumsum([0, *counts], dtype=np.intp), stamp, 0)

    def _open(self, path: str) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(path, buffer_size=_READ_BUFFER, pre_buffer=False)

    def expect(self, columns: Sequence[str]) -> None:
        """Say how much memory reading these columns takes."""
        held = min(2 * self._group_bytes, _PAGES * len(columns))
        self.buffer_bytes = held + 2 * 8 * len(columns) * min(_batch_rows(columns), self.n_rows)

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        size = _batch_rows(columns)
        with self._open(self.path) as file:
            for group in range(len(self.starts) - 1) if groups is None else groups.tolist():
                start = int(self.starts[group])
                for batch in file.iter_batches(size, row_groups=[group], columns=list(columns), use_threads=False):
                    batch.validate(full=True)  # text that is not UTF-8, indices beyond a dictionary
                    yield start, batch
                    start += batch.num_rows


def _batch_rows(columns: Sequence[str]) -> int:
    return max(256, PIECE // (8 * len(columns)))


class ArrowPart(TablePart):
    """An Arrow file (Feather is one) or stream."""

    def __init__(self, path: str) -> None:
        stamp = Stamp.of(path)
        with self._open(path, []) as reader:
            self.types = _types(path, reader.schema)
        # One column is enough to count rows, if it takes room in the file: others agree with any number of them.
        kinds = [kind_of(type_) for type_ in self.types.values()]
        counted = next((number for number, kind in enumerate(kinds) if kind != "other"), 0)
        with self._open(path, [counted]) as reader:
            counts = [batch.num_rows for _, batch in self._numbered(reader, None)]
        super().__init__(path, np.cumsum([0, *counts], dtype=np.intp), stamp, 0)

    @contextmanager
    def _open(self, path: str, fields: list[int]) -> Iterator[Any]:
        from pyarrow import ipc

        # not mapped into memory: a mapped file that is cut short would end the process
        with arrow().OSFile(path) as file:
            magic = file.read(6)
            if magic.startswith(b"FEA1"):
                raise ContentsError(f"{path} is Feather of version 1: write it again, as version 2")
            file.seek(0)
            options = ipc.IpcReadOptions(included_fields=fields, use_threads=False)
            yield (ipc.open_file if magic == b"ARROW1" else ipc.open_stream)(file, options=options)

    def _numbered(self, reader: Any, groups: Indices | None) -> Iterator[tuple[int, Any]]:
        """Batches that are what they say: pyarrow follows the lengths and offsets of a file to wherever they lead."""
        for number, batch in self._unchecked(reader, groups):
            batch.validate(full=True)
            yield number, batch

    def _unchecked(self, reader: Any, groups: Indices | None) -> Iterator[tuple[int, Any]]:
        if hasattr(reader, "get_batch"):
            for number in range(reader.num_record_batches) if groups is None else groups.tolist():
                yield number, reader.get_batch(number)
            return
        for number, batch in enumerate(reader):  # a stream has no other way to get there
            if groups is None or number in groups:
                yield number, batch

    def expect(self, columns: Sequence[str]) -> None:
        self.buffer_bytes = 2 * 8 * len(columns) * int(np.diff(self.starts).max(initial=0))

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        names = list(self.types)
        with self._open(self.path, sorted(names.index(name) for name in columns)) as reader:
            for number, batch in self._numbered(reader, groups):
                yield int(self.starts[number]), batch


class CsvPart(TablePart):
    """Text with one line of names. Numbers are read as float64, whether or not the first ones have a decimal point."""

    def __init__(self, path: str, delimiter: str | None = None) -> None:
        from pyarrow import csv

        stamp = Stamp.of(path)
        self.delimiter = "," if delimiter is None else delimiter
        if delimiter is None:
            _check_separator(path)
        options = {"parse_options": self._lines()}
        with csv.open_csv(path, read_options=self._blocks(), **options) as reader:  # types as the first lines suggest
            self.types = _types(path, reader.schema)
        nothing, float64 = arrow().null(), arrow().float64()
        self.types = {name: float64 if type_ == nothing else type_ for name, type_ in self.types.items()}
        count = 0
        first = next(iter(self.types))
        options["convert_options"] = csv.ConvertOptions(include_columns=[first], column_types={first: arrow().string()})
        with csv.open_csv(path, read_options=self._blocks(threads=True), **options) as reader:
            for batch in reader:
                count += batch.num_rows
        super().__init__(path, np.array([0, count], dtype=np.intp), stamp, 8 * min(_CSV_BLOCK, stamp.size))

    def _blocks(self, threads: bool = False) -> Any:
        from pyarrow import csv

        return csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=threads)

    def _lines(self) -> Any:
        from pyarrow import csv

        return csv.ParseOptions(delimiter=self.delimiter)

    def place(self, row: int) -> str:
        """The line of a row; empty lines and those within quotes make it another than the row's number suggests."""
        if row < _MOST_LINES:
            with suppress(CsvError, OSError), _open_text(self.path) as file:
                reader = csv_reader(file, delimiter=self.delimiter)
                ended = seen = 0
                for record in reader:
                    if record and seen == row + 1:  # after the names and the rows before
                        return f", line {ended + 1} of the file"
                    seen += bool(record)
                    ended = reader.line_num
        return f", about line {row + 2} of the file"

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        from pyarrow import csv

        text = all(kind_of(self.types[name]) == "label" for name in columns)
        bool_, float64 = arrow().bool_(), arrow().float64()
        options = csv.ConvertOptions(
            include_columns=list(columns),
            column_types={name: self.types[name] if text or self.types[name] == bool_ else float64 for name in columns},
            strings_can_be_null=True,
            null_values=[""] if text else None,  # "NA" may be a label
        )
        start = 0
        try:
            with csv.open_csv(
                self.path, read_options=self._blocks(), parse_options=self._lines(), convert_options=options
            ) as reader:
                for batch in reader:
                    yield start, batch
                    start += batch.num_rows
        except arrow().ArrowInvalid as error:
            place = re.match(r"In CSV column #(\d+): (.*)", str(error), re.DOTALL)
            if place is None:
                raise
            name = list(self.types)[int(place[1])]
            raise ContentsError(f"{self.path}: column {name!r} after row {start}: {place[2]}") from error


def _open_text(path: str) -> IO[str]:
    opener: Any = gzip.open if path.lower().endswith(".gz") else open
    file: IO[str] = opener(path, "rt", encoding="utf-8", errors="replace", newline="")
    return file


def _check_separator(path: str) -> None:
    """Raise an error if the first line of a text has no commas, and something else that separates names."""
    with _open_text(path) as file:
        first = file.readline(1 << 20)
    for separator, words in _SEPARATORS.items():
        if separator in first and "," not in first:
            raise ContentsError(
                f"{path} has no comma in its first line, and its columns seem to be separated by {words}: say so with "
                f"delimiter={separator!r}"
            )


def _lacks_names(names: Sequence[str]) -> bool:
    """Whether the names of columns look like a row of numbers."""
    try:
        return len([float(name) for name in names]) > 0
    except ValueError:
        return False


_NAMES_WANTED = "; they look like a row of numbers, and the first line of the file must be the columns' names"


PARTS: dict[str, Any] = {"Parquet": ParquetPart, "Arrow": ArrowPart, "CSV": CsvPart}


def _types(path: str, schema: Any) -> dict[str, Any]:
    types = dict(zip(schema.names, schema.types, strict=True))
    if len(types) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        hint = _NAMES_WANTED * _lacks_names(schema.names)
        raise ContentsError(f"{path} has two columns named {twice!r}: give each a name of its own{hint}")
    if not types:
        raise ContentsError(f"{path} has no columns")
    return types


# ---- several files ---------------------------------------------------------------------------------------------------


class TableFiles:
    """Files with the same columns, of which some are features and others targets or weights.

    Parameters
    ----------
    paths : list of str
    format : one of `PARTS`
    delimiter : str, optional
        What separates the columns of a text.
    """

    def __init__(self, paths: Sequence[str], format: str, delimiter: str | None = None) -> None:
        self.format = format
        options = {} if delimiter is None else {"delimiter": delimiter}
        self.parts: list[TablePart] = []
        for path in paths:
            try:
                self.parts.append(PARTS[format](path, **options))
            except (ContentsError, ImportError):
                raise
            except (PermissionError, MemoryError) as error:
                cannot_read(path, error)
            except Exception as error:
                raise ValueError(
                    f"{path} cannot be read as {format}: is it damaged, cut short or something else? ({error})"
                ) from error

    @property
    def _first(self) -> TablePart:
        """The file that the others are compared with: the types of a text without lines say nothing."""
        return next((part for part in self.parts if part.n_rows), self.parts[0])

    def rows(
        self, features: Any, targets: Sequence[str], weights: Sequence[str], dtype: np.dtype[Any] | None
    ) -> StoredRows:
        """The features as rows; by default they are all columns that are neither target nor weight."""
        first = self._first
        others = [*targets, *weights]
        self.check(targets, "target")
        self.check(weights, "weight")
        if features is None:
            names = [name for name in first.types if name not in others]
            for part in self.parts:
                new = [name for name in part.types if name not in first.types]
                if new:
                    raise ContentsError(
                        f"{part.path} has a column {new[0]!r} that {first.path} has not: files must have the same "
                        "columns, or choose those that all have with features=[...]"
                    )
            self._warn(names)
        else:
            names = [features] if isinstance(features, str) else list(features)
            if not all(isinstance(name, str) for name in names):
                raise TypeError(f"features={features!r} must be names of columns")
            if len(set(names)) < len(names):
                raise ValueError(f"features={names!r} names a column twice")
            both = [name for name in names if name in others]
            if both:
                raise ValueError(f"{both[0]!r} is among the features and is the target or the weight: it can be one")
        self.check(names, "features")
        for name in others:
            if kind_of(first.types[name]) == "other":
                raise ContentsError(
                    f"{first.path}: column {name!r} is {first.types[name]}, neither numbers nor labels: convert it"
                )
        wrong = [name for name in names if kind_of(first.types[name]) != "number"]
        if wrong:
            listed = ", ".join(f"{name!r} ({first.types[name]})" for name in wrong[:10])
            good = [name for name in names if name not in wrong]
            point = " (numbers have a decimal point, not a comma)" * (getattr(first, "delimiter", ",") != ",")
            choice = f", or choose others: features={_shortened(good)}" if good else ""
            raise ContentsError(
                f"{first.path}: features must be numbers, and these columns are not: {listed}. Convert them{point}"
                f"{choice}"
            )
        if not names:
            raise ValueError(f"{first.path} has no column left for features: its columns are {_shortened(first.types)}")
        for part in self.parts:
            if isinstance(part, ParquetPart | ArrowPart):
                part.expect(names)
        if dtype is None:
            narrow = all(is_narrow(first.types[name]) for name in names) and self.format != "CSV"
            dtype = np.dtype(np.float32 if narrow else np.float64)
        return StoredRows(self.parts, names, len(names), dtype, names)

    def _warn(self, names: Sequence[str]) -> None:
        """Of features that nobody has chosen and that nobody may want."""
        path = self._first.path
        index = [name for name in names if name in _INDEX_NAMES]
        if index:
            warnings.warn(
                f"{path}: the column {index[0]!r} looks like row numbers as pandas writes them, and is taken for a "
                "feature: write the file with index=False, or choose the columns with features=[...]",
                UserWarning,
                stacklevel=4,
            )
        # whole numbers are what the columns of an array are called
        if self.format == "CSV" and _lacks_names(names) and not all(name.isdecimal() for name in names):
            warnings.warn(
                f"{path}: the columns are named {_shortened(names)}{_NAMES_WANTED}", UserWarning, stacklevel=4
            )

    def check(self, names: Sequence[str], role: str) -> None:
        """Whether all files have these columns, with the same types."""
        first = self._first
        for name in names:
            if name not in first.types:
                folders = f"/{name}=" in first.path.replace(os.sep, "/")
                hint = _NAMES_WANTED * (self.format == "CSV" and _lacks_names(list(first.types)))
                raise ValueError(
                    f"{first.path} has no column {name!r} for {role}: {_suggestions(name, first.types)}"
                    f"{' (values in names of folders are not read as columns)' * folders}{hint}"
                )
            for part in self.parts:
                if name not in part.types:
                    raise ContentsError(
                        f"{part.path} has no column {name!r}, which {first.path} has: {_suggestions(name, part.types)}"
                    )
                if part.n_rows and not self._alike(part.types[name], first.types[name]):
                    raise ContentsError(
                        f"{part.path}: column {name!r} is {part.types[name]}, and {first.types[name]} in {first.path}: "
                        "write the files with the same types"
                    )

    def _alike(self, type_: Any, other: Any) -> bool:
        # what the first lines of a text look like is a guess
        return kind_of(type_) == kind_of(other) if self.format == "CSV" else bool(type_ == other)

    def values(self, names: Sequence[str]) -> list[Array]:
        """Whole columns, of numbers or labels, in one pass over these columns alone."""
        n = sum(part.n_rows for part in self.parts)
        whole: dict[str, Array] = {}
        offset = 0
        for part in self.parts:
            for start, batch in part.guarded(part.batches(names, None), part.n_rows):
                for name in names:
                    column = part.column(batch, name, start, feature=False)
                    values = numbers(column) if kind_of(column.type) == "number" else labels(column)
                    out = whole.get(name)
                    if out is None:
                        out = whole[name] = np.empty(0, dtype=values.dtype)
                    elif out.dtype != values.dtype:  # true and false in one text file and numbers in another
                        out = whole[name] = out.astype(np.result_type(out, values))
                    end = offset + start + len(values)
                    if end > offset + part.n_rows:
                        raise ContentsError(f"{part.path} gave more rows than were found when it was opened")
                    if end > len(out):  # as rows come: what a file says of their number may not be true
                        out.resize(min(n, max(end, 2 * len(out))), refcheck=False)
                    out[offset + start : end] = values
            offset += part.n_rows
        return [self._whole(name, whole[name]) for name in names]

    def _whole(self, name: str, column: Array) -> Array:
        """Numbers of a text that were all written without a point are integers."""
        if self.format != "CSV" or not all(arrow().types.is_integer(part.types[name]) for part in self.parts):
            return column
        if len(column) and np.abs(column).max() >= 2.0**53:
            raise ContentsError(
                f"{self._first.path}: column {name!r} has whole numbers beyond 2^53, which are not told apart when "
                "they are read from text: write them as Parquet"
            )
        integers = column.astype(np.int64)
        return integers if np.array_equal(integers, column) else column


def _suggestions(name: str, names: Any) -> str:
    close = get_close_matches(name, list(names), n=3)
    others = [other for other in names if other not in close]
    return f"the columns are {_shortened([*close, *others])}"


def _shortened(names: Any) -> str:
    names = list(names)
    return str(names) if len(names) <= 20 else f"[{', '.join(map(repr, names[:20]))}, ... {len(names)} in all]"
