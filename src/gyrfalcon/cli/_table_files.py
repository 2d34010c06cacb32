"""Tables in files, read into memory with the types of their columns: text, categories, dates and gaps stay."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import available_memory, format_bytes
from .._utils.words import plural
from ..sources.arrow_files import ArrowReader, ParquetReader, check_texts, read_parquet
from ..sources.csv_files import FIRST_BLOCK, CsvFormat, beginning, check_text, explained, place_of, wrong_encoding
from ..sources.files import Dataset, find
from ..sources.limits import require_in_proportion, text_labels
from ..sources.stored import ContentsError
from ..sources.table_reader import arrow, column_types, is_time, kind_of, labels, numbers, plain, shortened
from ..tables._auto import AutoEstimator
from ..tables.forms import NumberForm
from ..tables.given import in_form
from ._shared import csv_format, listed, open_data, open_for
from .main import UsageError

Array = NDArray[Any]

_FORMATS = ("Parquet", "Arrow", "CSV")
_LARGEST_BLOCK = 1 << 30  # bytes of a CSV file from which the types of columns are inferred
_EXPANSION = 6  # of gzip
_ARRAY_BLOCK = 65_536


@dataclass(frozen=True)
class TableData:
    """A table in memory.

    Attributes
    ----------
    X : table of pyarrow, or array
    y : array of shape (n,) or (n, k), or None
    weight : array of shape (n,) or None
    files : list of str
    has_categories : whether the file says that the target is categories
    """

    X: Any
    y: Array | None
    weight: Array | None
    files: list[str]
    has_categories: bool = False

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    def take(self, indices: Array) -> TableData:
        """Return some of the rows."""
        X = self.X[indices] if isinstance(self.X, np.ndarray) else self.X.take(indices)
        y = None if self.y is None else self.y[indices]
        return replace(self, X=X, y=y, weight=None if self.weight is None else self.weight[indices])


def read_data(
    paths: Sequence[str],
    *,
    target: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    csv: CsvFormat | None = None,
    as_text: Collection[str] = (),
    remedy: str = "",
) -> TableData:
    """Read files into memory.

    Parameters
    ----------
    paths : list of files, folders and patterns
    target, features, weight : names of columns, as for `gyrfalcon.open`
    csv : CsvFormat, optional
        How CSV files are written.
    as_text : names of columns that are text in CSV files, also if they look like numbers
    remedy : str
        What to do if the files are larger than memory.
    """
    files, format = find(list(paths))
    if format not in _FORMATS:
        data = open_data(paths, target=target, features=features, weight=weight, csv=csv)
        size = data.n_rows * data.X.shape[1] * 8
        _require_memory(files[0], size, remedy)
        require_in_proportion(
            files[0], data.file_bytes, size, f"its {data.n_rows} rows take", "are so many rows meant?"
        )
        X = np.concatenate([np.asarray(block) for block in data.X.blocks(_ARRAY_BLOCK)])
        return TableData(X, None if target is None else data.y, data.weight, files)
    if csv is not None and csv.given and format != "CSV":
        option, value = next(iter(csv.given.items()))
        raise UsageError(f"--{option} {value} is for CSV files, and {files[0]} is {format}")
    readers: dict[str, Callable[[], Reader]] = {
        "Parquet": ParquetTable,
        "Arrow": ArrowTable,
        "CSV": lambda: CsvTable(csv or CsvFormat(), as_text),
    }
    reader = readers[format]()
    known = reader.names(files[0])
    present, targets = set(known), list(target or [])
    weights = [] if weight is None else [weight]
    for option, names in (("--target", targets), ("--weight", weights), ("--features", list(features or []))):
        for name in names:
            if name not in present:
                typed = "" if option == "--features" else f"{option} {name}: "
                raise ValueError(f"{typed}{files[0]} has no column {name!r}, its columns are {shortened(known)}")
    if features is not None and (both := [name for name in targets if name in features]):
        raise UsageError(f"--target {both[0]} is one of --features as well: leave out one of them")
    others = {*targets, *weights}
    chosen = [name for name in known if name not in others] if features is None else list(features)
    if not chosen:
        raise ValueError(f"{files[0]} has no columns to learn from beside {', '.join([*targets, *weights])}")
    needed = list(dict.fromkeys([*chosen, *targets, *weights]))
    _require_memory(files[0], sum(reader.size(path, needed) for path in files), remedy)
    parts = [reader.read(path, needed) for path in files]
    table = _joined(files, parts)
    if not table.num_rows:
        raise ValueError(f"there are no rows in {files[0]}")
    starts = np.cumsum([0, *(part.num_rows for part in parts)])

    def place(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        inside = row - int(starts[which])
        return f"in row {inside} of {files[which]} (counted from 0){reader.place(files[which], inside)}"

    file_bytes = sum(map(os.path.getsize, files))
    ys = [
        text_labels(_values(table.column(name), f"the target {name!r}", place), files[0], file_bytes)
        for name in targets
    ]
    if len(ys) > 1 and any(y.dtype.kind not in "fiub" for y in ys):
        raise ValueError(f"--target {', '.join(targets)}: several targets must be numbers")
    w = None if weight is None else _values(table.column(weight), f"the weight {weight!r}", place)
    if w is not None and w.dtype.kind not in "fiub":
        raise ValueError(f"--weight {weight}: the weights must be numbers")
    y = None if not ys else ys[0] if len(ys) == 1 else np.column_stack(ys)
    categories = len(targets) == 1 and arrow().types.is_dictionary(table.column(targets[0]).type)
    return TableData(table.select(chosen), y, w, files, categories)


def rows_for(
    model: Any, arguments: argparse.Namespace, target: Sequence[str] | None = None, weight: str | None = None
) -> Dataset | TableData:
    """Open the data of the arguments as the model takes it: numbers read block by block, or a table in memory."""
    if isinstance(model, AutoEstimator):
        return _read_for(model, arguments, target, weight)
    return open_for(model, arguments, target, weight)


def known_target(model: Any, data: Dataset | TableData) -> Array:
    """Return the target of rows, as numbers if the model was fitted to text that is numbers."""
    assert data.y is not None
    form = vars(model).get("target_form_")  # which only models of the command line have beside AutoRegressor
    y: Array = in_form(data.y, form if isinstance(form, NumberForm) else None, "the target")
    return y


def _read_for(
    model: AutoEstimator, arguments: argparse.Namespace, target: Sequence[str] | None = None, weight: str | None = None
) -> TableData:
    """Read the files of the arguments with the columns that the model was fitted to."""
    features, known = arguments.features, vars(model).get("feature_names_in_")
    if known is not None and features is not None and sorted(features) != sorted(known):
        raise UsageError(f"--features {listed(features)}: the model was fitted to {listed(known)}")
    files, format = find(list(arguments.data))
    if features is None and known is not None and format in _FORMATS:
        features = [str(name) for name in known]
    if known is not None and format not in _FORMATS:
        raise UsageError(f"{files[0]}: the columns of {format} files have no names, and the model was fitted to names")
    kinds = model.encoders_[0].kinds_
    texts = [] if known is None else [str(name) for name in known[kinds == "category"]]
    data = read_data(
        arguments.data,
        target=target,
        features=features,
        weight=weight,
        csv=csv_format(arguments),
        as_text=texts,
        remedy=": give the rows in several files, one after another",
    )
    if known is None and not isinstance(data.X, np.ndarray):  # a model of arrays, which takes columns by their places
        rows = [numbers(plain(column.combine_chunks())) for column in data.X.columns]
        data = replace(data, X=np.column_stack(rows))
    if data.n_features != model.n_features_in_:
        raise ValueError(
            f"{data.files[0]} gives {plural(data.n_features, 'column')}, and the model was fitted to "
            f"{model.n_features_in_}: choose them with --features"
        )
    return data


def _require_memory(path: str, size: int, remedy: str) -> None:
    available = available_memory()
    if size > available:
        raise MemoryError(
            f"{path}: the table takes about {format_bytes(size)} in memory, and {format_bytes(available)} are available"
            f"{remedy}"
        )


def _joined(files: list[str], parts: list[Any]) -> Any:
    try:
        return arrow().concat_tables(parts, promote_options="permissive").unify_dictionaries()
    except (arrow().ArrowInvalid, arrow().ArrowTypeError) as error:
        for path, part in zip(files, parts, strict=True):
            for name in part.column_names:
                first, here = parts[0].schema.field(name).type, part.schema.field(name).type
                if kind_of(first) != kind_of(here):
                    message = f"column {name!r} is {first} in {files[0]} and {here} in {path}: make them the same"
                    raise ContentsError(message) from error
        raise


def _values(column: Any, what: str, place: Callable[[int], str]) -> Array:
    """Return a target or weights as an array; raise ValueError that says where one is missing."""
    column = column.combine_chunks()
    if is_time(column.type):
        raise ValueError(f"{what} is {column.type}: only numbers and labels can be learnt, so write it as a number")
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if kind_of(column.type) == "number" and not missing.all():
        filled = plain(column).drop_null()
        values = numbers(filled)
        if values.dtype.kind == "f":
            missing[~missing] = ~np.isfinite(values)
    if missing.any():
        more = f" and in {missing.sum() - 1:,} more" if missing.sum() > 1 else ""
        raise ValueError(f"{what} is missing or infinite {place(int(missing.argmax()))}{more}: remove such rows")
    if kind_of(column.type) == "other":
        raise ValueError(f"{what} is {column.type}: only numbers and labels can be learnt")
    decoded = plain(column)
    return labels(decoded) if kind_of(column.type) == "label" else numbers(decoded)


# ---- formats ---------------------------------------------------------------------------------------------------------


class Reader:
    """How files of a format are read into memory."""

    def names(self, path: str) -> list[str]:
        """Return the names of the columns."""
        raise NotImplementedError

    def size(self, path: str, columns: Sequence[str]) -> int:
        """Estimate the bytes that columns of a file take in memory."""
        return os.path.getsize(path)

    def read(self, path: str, columns: Sequence[str]) -> Any:
        """Read columns of a file."""
        raise NotImplementedError

    def place(self, path: str, row: int) -> str:
        """Describe where in the file a row is, for formats with lines."""
        return ""


def _require_columns(path: str, present: Collection[str], columns: Sequence[str]) -> None:
    known = set(present)
    for name in columns:
        if name not in known:
            raise ContentsError(f"{path} has no column {name!r}, its columns are {shortened(present)}")


class ParquetTable(Reader):
    """Parquet files."""

    def names(self, path: str) -> list[str]:
        arrow()
        return list(ParquetReader(path).types)

    def size(self, path: str, columns: Sequence[str]) -> int:
        from pyarrow import parquet

        found = parquet.read_metadata(path)
        return sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))

    def read(self, path: str, columns: Sequence[str]) -> Any:
        _require_columns(path, self.names(path), columns)
        check_texts(path, columns)
        return read_parquet(path, columns)


class ArrowTable(Reader):
    """Arrow files, of which Feather is one."""

    def names(self, path: str) -> list[str]:
        arrow()
        return list(ArrowReader(path).types)

    def read(self, path: str, columns: Sequence[str]) -> Any:
        reader = ArrowReader(path)
        _require_columns(path, reader.types, columns)
        reader.check_whole(columns)
        batches = [batch for _, batch in reader.batches(columns, None)]
        schema = arrow().schema([(name, reader.types[name]) for name in reader.types if name in columns])
        return arrow().Table.from_batches(batches, schema).select(list(columns))


class CsvTable(Reader):
    """CSV files, whose types are inferred from all rows. Empty fields are missing, and so are NA, NaN and null."""

    def __init__(self, format: CsvFormat, as_text: Collection[str]) -> None:
        self.given = format
        self.as_text = as_text
        self.known: dict[str, CsvFormat] = {}

    def _format(self, path: str) -> CsvFormat:
        """Return how a file is written, found once."""
        if path not in self.known:
            self.known[path] = self.given.of(path)
        return self.known[path]

    def names(self, path: str) -> list[str]:
        arrow()
        from pyarrow import csv

        format = self._format(path)
        with (
            explained(path, format.encoding or "utf-8"),
            csv.open_csv(beginning(path), format.reading(FIRST_BLOCK), _parsing(format)) as reader,
        ):
            return list(column_types(path, reader.schema))

    def size(self, path: str, columns: Sequence[str]) -> int:
        return os.path.getsize(path) * (_EXPANSION if path.lower().endswith(".gz") else 1)

    def read(self, path: str, columns: Sequence[str]) -> Any:
        from pyarrow import csv

        _require_columns(path, self.names(path), columns)
        format = self._format(path)
        check_text(path, format.delimiter or ",")
        text = {name: arrow().string() for name in self.as_text}
        block = min(max(self.size(path, columns) + 1, FIRST_BLOCK), _LARGEST_BLOCK)

        def table(names: Sequence[str], types: dict[str, Any]) -> Any:
            converting = format.converting(include_columns=list(names), column_types=types, strings_can_be_null=True)
            with explained(path, format.encoding or "utf-8"):
                return csv.read_csv(path, format.reading(block, threads=True), _parsing(format), converting)

        read = table(columns, text)
        if any(arrow().types.is_binary(type_) for type_ in read.schema.types):
            raise wrong_encoding(path, format.encoding or "utf-8")
        whole = [field.name for field in read.schema if arrow().types.is_integer(field.type)]
        if whole:
            read = _with_codes(read, table(whole, dict.fromkeys(whole, arrow().string())), whole)
        return read if format.thousands is None else _ungrouped(read, format, self.as_text)

    def place(self, path: str, row: int) -> str:
        return place_of(path, row, self._format(path))


def _parsing(format: CsvFormat) -> Any:
    return format.parsing(newlines_in_values=True)


def _with_codes(table: Any, text: Any, whole: Sequence[str]) -> Any:
    """Keep whole numbers with leading zeros text: postcodes would lose them."""
    import pyarrow.compute as pc

    place = {name: at for at, name in enumerate(table.column_names)}
    for name in whole:
        if pc.any(pc.match_substring_regex(text.column(name), r"^\s*[+-]?0\d")).as_py():
            table = table.set_column(place[name], name, text.column(name))
    return table


def _ungrouped(table: Any, format: CsvFormat, as_text: Collection[str]) -> Any:
    """Convert text with thousands separators to numbers."""
    for at, field in enumerate(table.schema):
        if kind_of(field.type) == "label" and field.name not in as_text:
            numbers_ = format.numbers(table.column(at))
            table = table if numbers_ is None else table.set_column(at, field.name, numbers_)
    return table
