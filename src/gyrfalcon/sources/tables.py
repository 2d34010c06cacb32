"""Tables in several files: Parquet, Arrow (Feather) and CSV, read by pyarrow."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import available_memory, require_memory
from .._utils.warnings import warn
from .._utils.words import shown, similar
from ._prefetch import prefetch
from .arrow_files import ArrowReader, ParquetReader
from .blocks import Indices
from .csv_files import CsvFormat, CsvReader
from .folders import FolderColumns
from .locations import Location
from .stored import AHEAD, ContentsError, DataFiles, StoredRows, open_checked
from .table_reader import (
    NAMES_WANTED,
    TableReader,
    arrow,
    is_narrow,
    is_time,
    is_view,
    kind_of,
    labels,
    lacks_names,
    numbers,
    plain,
    shortened,
)

Array = NDArray[Any]

_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")  # names that pandas gives to row numbers in CSV and Parquet


class TableFiles(DataFiles):
    """Parquet, Arrow or CSV files with the same columns: some are features, others targets or weights.

    Names of `folders`, such as year=2024, are columns as well, behind those of the files.
    """

    def __init__(
        self, files: Sequence[Location], format: str, folders: FolderColumns, csv: CsvFormat | None = None
    ) -> None:
        arrow()  # a user without pyarrow is told to install it
        self.format, self.folders = format, folders
        readers: dict[str, Callable[[Location], TableReader]] = {
            "Parquet": ParquetReader,
            "Arrow": ArrowReader,
            "CSV": partial(CsvReader, format=csv),
        }
        opened = [open_checked(file.path, format, partial(readers[format], file)) for file in files]
        self.readers: list[TableReader] = [
            reader.in_folders(values, folders.types) for reader, values in zip(opened, folders.values, strict=True)
        ]

    @property
    def _first(self) -> TableReader:
        """The file that the others are compared with: the first with rows, since an empty CSV file has no types."""
        return next((reader for reader in self.readers if reader.n_rows), self.readers[0])

    def rows(
        self, features: Any, targets: Sequence[str], weights: Sequence[str], dtype: np.dtype[Any] | None
    ) -> TableRows:
        first, others = self._first, [*targets, *weights]
        self.check(targets, "target")
        self.check(weights, "weight")
        names = self._default_features(others) if features is None else _named_features(features, others)
        self.check(names, "features")
        if not names:
            raise ValueError(f"{first.path} has no column left for features: its columns are {shortened(first.types)}")
        for name in others:
            if kind_of(first.types[name]) == "other":
                raise ContentsError(
                    f"{first.path}: column {name!r} is {first.types[name]}, neither numbers nor labels: convert it"
                )
            problem = self._difference(name, lambda type_, other: kind_of(type_) == kind_of(other))
            if problem is not None:
                raise ContentsError(problem)
        for reader in self.readers:
            reader.plan_memory(names)
        return TableRows(self, names, dtype or self._dtype(names), self._obstacle(names))

    def numbers(self, names: Sequence[str]) -> TableRows | None:
        return TableRows(self, list(names), self._dtype(names), None) if self._obstacle(names) is None else None

    def _dtype(self, names: Sequence[str]) -> np.dtype[Any]:
        """Return the precision in which columns are read: float32 if all of them are stored as that or less."""
        stored, others = self._first.split(names)
        narrow = all(is_narrow(self._first.types[name]) for name in stored) and self.format != "CSV"
        numbers = [name for name in others if kind_of(self._first.types[name]) == "number"]
        return np.dtype(np.float32 if narrow and all(map(self.folders.is_narrow, numbers)) else np.float64)

    def _default_features(self, others: Sequence[str]) -> list[str]:
        """Return all columns that are neither target nor weight, which all files must have."""
        first = self._first
        for reader in self.readers:
            new = [name for name in reader.types if name not in first.types and not self._is_optional(reader, name)]
            if new:
                raise ContentsError(
                    f"{reader.path} has a column {new[0]!r} that {first.path} has not: files must have the same "
                    "columns, or choose those that all have with features=[...]"
                )
        names = [name for name in first.types if name not in others and not self._is_optional(first, name)]
        self._warn_of_unlikely_features(names)
        return names

    def _is_optional(self, reader: TableReader, name: str) -> bool:
        return name in reader.folders and name in self.folders.optional

    def _obstacle(self, names: Sequence[str]) -> str | None:
        """Return why columns cannot be read as numbers, in the same way from all files; None if they can."""
        first = self._first
        wrong = [name for name in names if kind_of(first.types[name]) != "number"]
        if not wrong:
            differences = (self._difference(name, self._alike) for name in names)
            return next((found for found in differences if found is not None), None)
        times = any(is_time(first.types[name]) for name in wrong)
        parts = " (of times, make features such as the year, the day of the week and seconds since a start)" * times
        listed = ", ".join(f"{name!r} ({first.types[name]})" for name in wrong[:10])
        good = [name for name in names if name not in wrong]
        csv = " (decimal=',' and thousands='.' say how numbers are written)" * (self.format == "CSV")
        choice = f", or choose others: features={shortened(good)}" if good else ""
        return (
            f"{first.path}: features must be numbers, and these columns are not: {listed}. Convert them{csv}"
            f"{choice}{parts}; or use AutoRegressor, AutoClassifier or a pipeline that begins with TableEncoder, which "
            "take such columns"
        )

    def _difference(self, name: str, alike: Callable[[Any, Any], bool]) -> str | None:
        """Describe the first file that has another type for a column than the first file with rows has."""
        first = self._first
        for reader in self.readers:
            if reader.n_rows and name not in reader.without_values and not alike(reader.types[name], first.types[name]):
                return (
                    f"{reader.path}: column {name!r} is {reader.types[name]}, and {first.types[name]} in {first.path}: "
                    "write the files with the same types"
                )
        return None

    def label_type(self, name: str) -> np.dtype[Any] | None:
        if name in self._first.folders:
            return None
        kinds, types = {reader.types[name] for reader in self.readers}, arrow().types
        kind = kinds.pop()
        if kinds or self.format == "CSV" or not (types.is_integer(kind) or types.is_boolean(kind)):
            return None
        return np.dtype(kind.to_pandas_dtype())

    def is_category(self, name: str) -> bool:
        return all(arrow().types.is_dictionary(reader.types[name]) for reader in self.readers)

    def is_guessed(self, names: Sequence[str], as_text: Collection[str]) -> bool:
        """Whether columns that look like numbers are text in a table: files of text and folders have no types."""
        stored, others = self._first.split(names)
        return any(name in as_text for name in others) or (
            self.format == "CSV"
            and (any(name in as_text for name in stored) or any(reader.has_codes(stored) for reader in self.readers))
        )

    def table_type(self, name: str, as_text: Collection[str] = ()) -> Any:
        """Return the type that a column has in a table: one that holds the values of all files."""
        if name in self._first.folders and name in as_text:
            return arrow().string()
        types = [reader.types[name] for reader in self.readers if reader.n_rows]
        empty = [arrow().schema([(name, type_)]) for type_ in types]
        type_ = arrow().unify_schemas(empty, promote_options="permissive").field(name).type
        return arrow().large_string() if is_view(type_) else type_

    def table(self, names: Sequence[str], as_text: Collection[str] = ()) -> Any:
        """Read whole columns as a table of pyarrow; in CSV files, those in `as_text` are read as text in any case."""
        size = sum(reader.table_bytes() for reader in self.readers)
        require_memory(self._first.path, size, available_memory())
        parts = [reader.whole(names, as_text) for reader in self.readers]
        try:
            return arrow().concat_tables(parts, promote_options="permissive").unify_dictionaries()
        except (arrow().ArrowInvalid, arrow().ArrowTypeError) as error:
            for reader, part in zip(self.readers, parts, strict=True):
                for name in names:
                    first, here = parts[0].schema.field(name).type, part.schema.field(name).type
                    if kind_of(first) != kind_of(here):
                        message = f"column {name!r} is {first} in {self.readers[0].path} and {here} in {reader.path}"
                        raise ContentsError(f"{message}: make them the same") from error
            raise

    def _warn_of_unlikely_features(self, names: Sequence[str]) -> None:
        """Warn of default features that are probably not meant: row numbers, and a row of numbers taken for names."""
        path = self._first.path
        index = [name for name in names if name in _INDEX_NAMES]
        if index:
            warn(
                f"{path}: the column {index[0]!r} looks like row numbers as pandas writes them, and is taken for a "
                "feature: write the file with index=False, or choose the columns with features=[...]",
                UserWarning,
            )
        # not of whole numbers, which pandas gives to the columns of an array
        if self.format == "CSV" and lacks_names(names) and not all(name.isdecimal() for name in names):
            warn(f"{path}: the columns are named {shortened(names)}{NAMES_WANTED}", UserWarning)

    def check(self, names: Sequence[str], role: str) -> None:
        """Raise ValueError if a file lacks one of these columns."""
        first = self._first
        for name in names:
            if name not in first.types:
                hint = NAMES_WANTED * (self.format == "CSV" and lacks_names(list(first.types)))
                raise ValueError(
                    f"{first.path} has no column {name!r} for {role}: {_suggestions(name, first.types)}{hint}"
                )
            for reader in self.readers:
                if name not in reader.types:
                    raise ContentsError(
                        f"{reader.path} has no column {name!r}, which {first.path} has: "
                        f"{_suggestions(name, reader.types)}"
                    )

    def _alike(self, type_: Any, other: Any) -> bool:
        # types of CSV columns are inferred from the first lines
        return kind_of(type_) == kind_of(other) if self.format == "CSV" else bool(type_ == other)

    def values(self, names: Sequence[str]) -> list[Array]:
        """Read whole columns of numbers or labels in one pass."""
        whole = WholeColumns(names, sum(reader.n_rows for reader in self.readers))
        offset = 0
        for reader in self.readers:
            reader.check_whole(names)
            for start, batch in reader.checked(reader.batches(names, None), reader.n_rows):
                whole.add(reader, offset, start, batch)
            offset += reader.n_rows
        return [self._whole(name, whole.values[name]) for name in names]

    def _whole(self, name: str, column: Array) -> Array:
        """Convert numbers of CSV files to integers if all were written without a decimal point."""
        if (
            self.format != "CSV"
            or name in self._first.folders
            or not all(arrow().types.is_integer(reader.types[name]) for reader in self.readers)
        ):
            return column
        if len(column) and np.abs(column).max() >= 2.0**53:
            raise ContentsError(
                f"{self._first.path}: column {name!r} has whole numbers beyond 2^53, which are not told apart when "
                "they are read from text: write them as Parquet"
            )
        integers = column.astype(np.int64)
        return integers if np.array_equal(integers, column) else column


class TableRows(StoredRows):
    """Columns of tables: numbers are read block by block, and all others, with text and dates, as a table in memory.

    `obstacle` is the error message that says why the columns cannot be read as numbers, or None.
    """

    def __init__(self, files: TableFiles, names: list[str], dtype: np.dtype[Any], obstacle: str | None) -> None:
        super().__init__(files.readers, names, len(names), dtype, names)
        self.files, self.obstacle = files, obstacle
        self.tables_in_blocks = not self.slow_to_read  # the types of text are told by all rows

    def __repr__(self) -> str:
        return super().__repr__() if self.obstacle is None else super().__repr__().replace(f" in {self.dtype}", "")

    def is_numeric(self, as_text: Collection[str] = ()) -> bool:
        return self.obstacle is None and not self.files.is_guessed(self.columns, as_text)

    def table(self, indices: Indices | None = None, as_text: Collection[str] = ()) -> Any:
        if indices is not None and len(indices) and self.tables_in_blocks:
            return self._some(indices, as_text)
        table = self.files.table(self.columns, as_text)
        return table if indices is None else table.take(indices)

    def _some(self, indices: Indices, as_text: Collection[str]) -> Any:
        """Read only the groups of rows that hold some rows."""
        schema, parts, found = self._schema(as_text), [], []
        for places, batch, at in self._chosen(indices, lambda reader, groups: reader.batches(self.columns, groups)):
            parts.append(_typed(batch, schema).take(arrow().array(at)))
            found.append(places)
        whole = arrow().Table.from_batches(parts, schema).unify_dictionaries()
        return whole.take(arrow().array(np.argsort(np.concatenate(found), kind="stable")))

    def tables_from(self, size: int, start: int, as_text: Collection[str] = ()) -> Iterator[Any]:
        if not self.tables_in_blocks:
            return super().tables_from(size, start, as_text)
        return prefetch(self._tables(size, start, as_text), AHEAD)

    def _tables(self, size: int, start: int, as_text: Collection[str]) -> Generator[Any, None, None]:
        schema = self._schema(as_text)
        waiting, count = [], 0
        for _, done, batch in self._pieces(start, lambda reader, groups: reader.batches(self.columns, groups)):
            waiting.append(_typed(batch, schema).slice(done))
            count += len(waiting[-1])
            while count >= size:
                whole = arrow().Table.from_batches(waiting)
                yield whole.slice(0, size)
                waiting, count = whole.slice(size).to_batches(), count - size
        if count:
            yield arrow().Table.from_batches(waiting)

    def _schema(self, as_text: Collection[str]) -> Any:
        return arrow().schema({name: self.files.table_type(name, as_text) for name in self.columns})

    def with_gaps(self) -> Self:
        other = copy.copy(self)
        other.readers = [reader.with_gaps() for reader in self.readers]
        return other

    def blocks(self, size: int) -> Iterator[Array]:
        self._require_numbers()
        return super().blocks(size)

    def take(self, indices: Indices) -> Array:
        self._require_numbers()
        return super().take(indices)

    def _require_numbers(self) -> None:
        if self.obstacle is not None:
            raise ContentsError(self.obstacle)


def _typed(batch: Any, schema: Any) -> Any:
    """Return the columns of a batch with the types of a table."""
    columns = [plain(batch.column(field.name)).cast(field.type) for field in schema]
    return arrow().RecordBatch.from_arrays(columns, schema=schema)


class WholeColumns:
    """Columns of numbers or labels, of `n` rows in all files, that are joined from batches."""

    def __init__(self, names: Sequence[str], n: int) -> None:
        self.names, self.n = names, n
        self.values: dict[str, Array] = {}

    def add(self, reader: TableReader, offset: int, start: int, batch: Any) -> None:
        """Add a batch that begins at row `start` of a file that begins at row `offset`."""
        for name in self.names:
            column = reader.column(batch, name, start, feature=False)
            values = numbers(column) if kind_of(column.type) == "number" else labels(column)
            out = self.values.get(name)
            if out is None:
                out = self.values[name] = np.empty(0, dtype=values.dtype)
            elif out.dtype != values.dtype:  # booleans in one CSV file and numbers in another
                out = self.values[name] = out.astype(np.result_type(out, values))
            end = offset + start + len(values)
            if end > offset + reader.n_rows:
                raise ContentsError(f"{reader.path} gave more rows than were found when it was opened")
            if end > len(out):  # grown with the rows read: a damaged file may declare any number
                out.resize(min(self.n, max(end, 2 * len(out))), refcheck=False)
            out[offset + start : end] = values


def _named_features(features: Any, others: Sequence[str]) -> list[str]:
    """Return the columns that the user has chosen."""
    names = [features] if isinstance(features, str) else list(features)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"features={shown(features)} must be names of columns")
    names = [str(name) for name in names]  # and not of NumPy
    if len(set(names)) < len(names):
        raise ValueError(f"features={names!r} names a column twice")
    both = [name for name in names if name in others]
    if both:
        raise ValueError(f"{both[0]!r} cannot be a feature and at the same time the target or the weight")
    return names


def _suggestions(name: str, names: Any) -> str:
    """List columns for an error message, those with similar names first."""
    close = similar(name, names)
    others = [other for other in names if other not in close]
    return f"the columns are {shortened([*close, *others])}"
