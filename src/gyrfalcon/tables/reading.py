"""Read tables of pandas, polars and pyarrow, files, Dask dataframes, arrays, lists and sparse matrices into columns.

None of these libraries is needed: the type of a table says which one it comes from, and that one is imported already.
Files, LazyFrames and Dask dataframes are read into memory by `sources`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from .._utils.words import a
from ..sources import Rows, read_whole
from ..sources.files import Dataset
from .columns import Column, from_codes, from_numbers, from_objects, recognised
from .dates import name_of

Array = NDArray[Any]

_LARGEST_DENSE = 2**30  # bytes of a sparse matrix in full


@dataclass(frozen=True)
class Table:
    """Columns with their names, or None if they have no names that are strings."""

    columns: list[Column]
    names: list[str] | None
    n_rows: int

    @property
    def labels(self) -> list[str]:
        """What to call the columns in messages: their names, or x0, x1 and so on, as scikit-learn does."""
        return [f"x{at}" for at in range(len(self.columns))] if self.names is None else self.names

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.n_rows, len(self.columns)

    def take(self, rows: Array) -> Table:
        """Return some of the rows."""
        return Table([column.take(rows) for column in self.columns], self.names, len(rows))


@runtime_checkable
class _ArrowStream(Protocol):
    """A table of any library that can be handed to pyarrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


def read_table(X: Any, owner: str) -> Table:
    """Read a table of any kind; `owner` is the name of the estimator, for errors."""
    if isinstance(X, Table):
        return X
    X = named(read_whole(X), X)
    if isinstance(X, Table):
        return _checked(X, owner)
    libraries = {one.__module__.partition(".")[0] for one in type(X).__mro__}
    for library, read in _READERS.items():
        if library in libraries:
            return _checked(read(X), owner)
    if isinstance(X, _ArrowStream):
        import pyarrow

        return _checked(_from_pyarrow(pyarrow.table(X)), owner)
    return _from_array(X, owner)


def named(block: Any, source: Any) -> Any:
    """Return numbers that were read from a source with the names of their columns, if they are known."""
    rows = source.X if isinstance(source, Dataset) else source
    if not isinstance(rows, Rows) or rows.feature_names is None or not isinstance(block, np.ndarray):
        return block
    columns = [from_numbers(np.ascontiguousarray(block[:, j])) for j in range(block.shape[1])]
    return Table(columns, list(rows.feature_names), block.shape[0])


def with_target(X: Any, y: Any) -> tuple[Any, Any]:
    """Return a table and its target, which is that of a `Dataset` where it is not given."""
    return X, X.y if y is None and isinstance(X, Dataset) else y


def recognised_table(X: Any, owner: str) -> Table:
    """Read a table of training, and find numbers and dates that are written as text."""
    table = read_table(X, owner)
    columns = [recognised(column) for column in table.columns]
    known = all(new is old for new, old in zip(columns, table.columns, strict=True))
    return table if known else replace(table, columns=columns)


def _checked(table: Table, owner: str) -> Table:
    """Refuse what scikit-learn refuses of an array, in its words."""
    shape = (table.n_rows, len(table.columns))
    if not table.columns:
        raise ValueError(f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required by {owner}.")
    if not table.n_rows:
        raise ValueError(f"Found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required by {owner}.")
    return table


def _names(names: list[Any]) -> list[str] | None:
    """The names, if all are strings; scikit-learn refuses a mixture."""
    strings = [isinstance(name, str) for name in names]
    if any(strings) and not all(strings):
        kinds = sorted({type(name).__name__ for name in names})
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{kinds} as feature name / column name types: make them strings"
        )
    return [str(name) for name in names] if all(strings) and names else None


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _from_array(X: Any, owner: str) -> Table:
    if scipy.sparse.issparse(X):
        full = X.shape[0] * X.shape[1] * 8
        if full > _LARGEST_DENSE:
            raise ValueError(
                f"X is a sparse matrix of shape {X.shape}, which takes {full / 2**30:.1f} GiB in full, more than the 1 "
                f"GiB that {owner} makes of one: the estimators take sparse rows without an encoder"
            )
        X = check_array(X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False, estimator=owner).toarray()
    elif isinstance(X, np.ma.MaskedArray):
        mask, X = np.ma.getmaskarray(X), X.data.astype(object)
        X[mask] = None
    elif isinstance(X, list | tuple):
        X = _from_lists(X)
    X = check_array(X, dtype=None, ensure_all_finite=False, estimator=owner)
    kind = X.dtype.kind
    if kind not in "biufMmOUSV" or kind == "V":
        raise ValueError(f"{owner} cannot read an array of {X.dtype}: use numbers, strings, dates or objects")
    read: Callable[[Array], Column] = from_objects if kind in "OUS" else from_numbers
    return Table([read(X[:, j]) for j in range(X.shape[1])], None, X.shape[0])


def _from_lists(X: Any) -> Any:
    """Return lists as an array in which numbers stay numbers; NumPy would convert all of them to strings."""
    try:
        array = np.asarray(X)
    except ValueError:  # rows of several lengths, which scikit-learn's check refuses
        return X
    return np.asarray(X, dtype=object) if array.dtype.kind in "OUS" and array.ndim == 2 else array


# ---- pandas ----------------------------------------------------------------------------------------------------------


def _from_pandas(X: Any) -> Table:
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got 1D array instead: {a(type(X).__name__)}. Use X.to_frame()")
    columns = [_pandas_column(X.iloc[:, j]) for j in range(X.shape[1])]
    return Table(columns, _names(list(X.columns)), len(X))


def _pandas_column(series: Any) -> Column:
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return from_codes(series.cat.codes.to_numpy(), list(dtype.categories))
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow

        return _arrow_column(pyarrow.array(series))
    if isinstance(dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
        dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biufcMm":
        return from_numbers(series.to_numpy())
    if isinstance(dtype, pd.StringDtype):
        codes, levels = series.factorize()
        return Column("text", codes.astype(np.int64), [str(level) for level in levels])
    missing = series.isna().to_numpy()
    if pd.api.types.is_bool_dtype(dtype):
        return from_numbers(series.to_numpy(dtype=np.bool_, na_value=False), missing)
    if pd.api.types.is_numeric_dtype(dtype):
        return from_numbers(series.to_numpy(dtype=np.float64, na_value=np.nan), missing)
    if dtype.kind == "M":
        utc = series.dt.tz_convert("UTC").dt.tz_localize(None)
        moments = utc.to_numpy(dtype="datetime64[us]", na_value=np.datetime64("NaT"))
        return from_numbers(
            moments, zone=name_of([dtype.tz], (dtype.tz.utcoffset(one) for one in moments.tolist() if one))
        )
    if dtype.kind == "m":
        return from_numbers(series.to_numpy(dtype="timedelta64[us]", na_value=np.timedelta64("NaT")))
    return from_objects(series.to_numpy(dtype=object))


# ---- polars ----------------------------------------------------------------------------------------------------------


def _from_polars(X: Any) -> Table:
    import polars as pl

    if isinstance(X, pl.Series):
        raise ValueError("Expected 2D array, got 1D array instead: a Series. Use X.to_frame()")
    return Table([_polars_column(series) for series in X.get_columns()], _names(X.columns), X.height)


def _polars_column(series: Any) -> Column:
    import polars as pl

    dtype = series.dtype
    missing = series.is_null().to_numpy()
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return from_objects(series.cast(pl.String).to_list(), "category")
    if dtype == pl.Boolean:
        return from_numbers(series.fill_null(False).to_numpy(), missing)
    if dtype.is_numeric() or dtype == pl.Null:
        return from_numbers(series.cast(pl.Float64).fill_null(float("nan")).to_numpy(), missing)
    if dtype in (pl.Date, pl.Datetime):
        zone = dtype.time_zone if dtype == pl.Datetime else None
        if zone is not None:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return from_numbers(series.cast(pl.Datetime("us")).to_numpy(), zone=zone or "")
    if dtype == pl.Duration:
        return from_numbers(series.cast(pl.Duration("us")).to_numpy())
    return from_objects(series.to_list())


# ---- pyarrow ---------------------------------------------------------------------------------------------------------


def _from_pyarrow(X: Any) -> Table:
    import pyarrow as pa

    if not isinstance(X, pa.Table | pa.RecordBatch):
        raise TypeError(f"X is {a(type(X).__name__)} of pyarrow: use a Table or a RecordBatch")
    return Table([_arrow_column(column) for column in X.columns], _names(X.column_names), X.num_rows)


def _arrow_column(column: Any) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    kind = column.type
    missing = column.is_null().to_numpy(zero_copy_only=False)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text or pa.types.is_dictionary(kind):
        coded = column.dictionary_encode() if is_text else column
        codes = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        levels = coded.dictionary.to_pylist()
        return Column("text", codes, levels) if is_text else from_codes(codes, levels)
    if pa.types.is_boolean(kind):
        return from_numbers(pc.fill_null(column, False).to_numpy(zero_copy_only=False), missing)
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if any(fits(kind) for fits in numeric):
        return from_numbers(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), missing)
    if pa.types.is_timestamp(kind):
        moments = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.timestamp("us"))  # in UTC
        return from_numbers(moments.to_numpy(zero_copy_only=False), zone=kind.tz or "")
    if pa.types.is_date(kind):
        return from_numbers(column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False))
    if pa.types.is_duration(kind):
        return from_numbers(column.cast(pa.duration("us"), safe=False).to_numpy(zero_copy_only=False))
    return from_objects(column.to_pylist())


_READERS: dict[str, Callable[[Any], Table]] = {
    "pandas": _from_pandas,
    "polars": _from_polars,
    "pyarrow": _from_pyarrow,
}
