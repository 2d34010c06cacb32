"""The data of the commands: files that `gyrfalcon.open` reads, with columns as they are typed on the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import available_memory, require_memory
from .._utils.words import plural
from ..sources.csv_files import CsvFormat
from ..sources.files import Dataset
from ..sources.files import open as open_files
from ..sources.limits import text_labels
from ..sources.paths import find
from ..sources.table_reader import MissingValueError
from ..tables._auto import AutoEstimator
from ..tables.forms import NumberForm
from ..tables.inputs import text_columns
from ..tables.targets import in_form
from ._shared import listed
from .main import UsageError

Array = NDArray[Any]

_WITH_NAMES = ("Parquet", "Arrow", "CSV")  # formats whose columns have names
_TYPED = ("Parquet", "Arrow")  # formats whose columns have types
_BLOCK_ROWS = 65_536  # rows that are read at once where a table becomes an array
_SMALLER = ": give the rows in several files, one after another"


@dataclass(frozen=True)
class TableData:
    """A table in memory: X of pyarrow or NumPy, target, weights, files, and whether these say that y is categories."""

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


def csv_format(arguments: argparse.Namespace) -> CsvFormat:
    """Return how CSV files are written, as the arguments say."""
    try:
        return CsvFormat(arguments.delimiter, arguments.encoding, arguments.decimal, arguments.thousands)
    except ValueError as error:
        raise UsageError(str(error)) from error


def open_data(
    paths: Sequence[str],
    *,
    target: Sequence[Any] | None = None,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    csv: CsvFormat | None = None,
) -> Dataset:
    """Open files as `gyrfalcon.open` does, with names as typed; columns of ``.npy`` files are numbers or files."""
    opened = list(paths) if len(paths) > 1 else paths[0]
    files, format = find(opened)
    if features is not None and (both := [name for name in target or [] if name in features]):
        raise UsageError(f"--target {both[0]} is one of --features as well: leave out one of them")
    columns: Any = features
    if format == "npy":
        target, columns, weight = _columns_of_npy(target, features, weight)
    elif format in ("HDF5", "zarr") and features is not None:
        columns = _one_array(features, files[0])
    names: Any = target and list(target)
    one = names[0] if names and len(names) == 1 else names
    return open_files(opened, target=one, features=columns, weight=weight, **({} if csv is None else csv.given))


def _columns_of_npy(target: Sequence[Any] | None, features: Sequence[str] | None, weight: str | None) -> Any:
    """Return target, features and weight as numbers of columns, or as other files."""
    return (
        target and [_column_or_file(name, "--target") for name in target],
        features and _numbers_of_columns(features),
        weight and _column_or_file(weight, "--weight"),
    )


def _numbers_of_columns(features: Sequence[str]) -> list[int]:
    columns = [_column(name) for name in features]
    if any(isinstance(column, str) for column in columns):
        raise UsageError(f"--features {','.join(features)}: columns of .npy files have no names, only numbers")
    return columns


def _one_array(features: Sequence[str], path: str) -> str:
    if len(features) > 1:
        raise UsageError(f"--features {','.join(features)}: name the one array of {path} that holds the rows")
    return features[0]


def _column(name: Any) -> Any:
    try:
        return int(name)
    except ValueError:
        return name


def _column_or_file(name: Any, option: str) -> Any:
    column = _column(name)
    if isinstance(column, str) and not column.endswith(".npy"):
        raise UsageError(f"{option} {name}: columns of .npy files have no names: give a number, or another .npy file")
    return column


def read_data(
    paths: Sequence[str], remedy: str, csv: CsvFormat, *, as_text: Collection[str] = (), **options: Any
) -> TableData:
    """Read files into memory, with the types of their columns.

    `remedy` ends the error for files that are larger than memory. Columns named in `as_text` are text in CSV files,
    even if all values look like numbers. `options` are those of `open_data`.
    """
    files, format = find(list(paths))
    if csv.given and format != "CSV":
        option, value = next(iter(csv.given.items()))
        raise UsageError(f"--{option} {value} is for CSV files, and {files[0]} is {format}")
    try:
        require_memory(files[0], sum(map(os.path.getsize, files)), available_memory())  # before rows are counted
        data = open_data(paths, csv=csv, **options)
        X = data.table(as_text)
    except MemoryError as error:
        raise MemoryError(f"{error}{remedy}") from error
    y = None if data.y is None else text_labels(data.y, files[0], data.file_bytes)
    return TableData(X, y, data.weight, files, data.has_categories)


def rows_for(
    model: Any,
    arguments: argparse.Namespace,
    target: Sequence[str] | None = None,
    weight: str | None = None,
    *,
    in_blocks: bool = False,
) -> Dataset | TableData:
    """Read the data of the arguments as the model takes it: numbers block by block, or a table in memory.

    With `in_blocks`, tables whose files have types are read block by block as well.
    """
    paths, features = arguments.data, arguments.features
    known = vars(model).get("feature_names_in_")  # only a model of named columns has them
    automatic = isinstance(model, AutoEstimator)
    files, format = find(list(paths))
    if automatic:
        _check_names(features, known, files[0], format)
    if features is None and known is not None and format in _WITH_NAMES:
        features = [str(name) for name in known]
    csv, options = csv_format(arguments), {"target": target, "features": features, "weight": weight}
    data: Dataset | TableData
    if automatic and known is not None and in_blocks and format in _TYPED:
        data = open_data(paths, csv=csv, **{**options, "features": [str(name) for name in known]})
    elif not automatic:
        data = open_data(paths, csv=csv, **options)
        names = data.feature_names
        if names is not None and known is not None and list(names) != list(known):
            raise UsageError(f"--features {listed(names)}: the model was fitted to {listed(known)}, in that order")
    elif known is None and format in _WITH_NAMES:  # a model of arrays, which takes columns by their places
        rows = open_data(paths, csv=csv, **options)
        data = TableData(np.concatenate(list(rows.X.with_gaps().blocks(_BLOCK_ROWS))), rows.y, rows.weight, rows.files)
    else:
        data = read_data(paths, _SMALLER, csv, as_text=text_columns(model.encoders_[0]), **options)
    if data.X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{data.files[0]} gives {plural(data.X.shape[1], 'feature')}, and the model was fitted to "
            f"{model.n_features_in_}: choose them with --features"
        )
    return data


def _check_names(features: Sequence[str] | None, known: Array | None, path: str, format: str) -> None:
    """Raise UsageError if columns are not those that a model of tables was fitted to."""
    if known is not None and features is not None and sorted(features) != sorted(known):
        raise UsageError(f"--features {listed(features)}: the model was fitted to {listed(list(known))}")
    if known is not None and format not in _WITH_NAMES:
        raise UsageError(f"{path}: the columns of {format} files have no names, and the model was fitted to names")


def known_target(model: Any, data: Dataset | TableData) -> Array:
    """Return the target of rows, as numbers if the model was fitted to text that is numbers."""
    assert data.y is not None
    form = vars(model).get("target_form_")  # which only models of the command line have beside AutoRegressor
    y: Array = in_form(data.y, form if isinstance(form, NumberForm) else None, "the target")
    return y


@contextmanager
def no_choice_of_features() -> Iterator[None]:
    """Leave out of errors the advice to choose other features: those of a fitted model are fixed."""
    try:
        yield
    except MissingValueError as error:
        raise ValueError(error.problem) from error


def where(paths: list[str], files: list[str]) -> str:
    """Describe the files that paths stand for."""
    if len(paths) > 1:
        return plural(len(files), "file")
    return paths[0] if len(files) == 1 else f"{plural(len(files), 'file')} of {paths[0]}"
