"""`open`: rows, a target and weights of a file, a folder or a pattern, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.memory import format_bytes
from .._utils.words import plural, shown
from . import columns
from .base import HeldTable, Rows
from .columns import Column, Labels, Vector, stored_column, stored_labels
from .csv_files import CsvFormat
from .folders import folder_columns
from .limits import require_in_proportion
from .locations import as_filesystem, locations
from .memory import ArrayRows
from .paths import PathLike, find
from .stored import DataFiles

__all__ = ["Dataset", "open"]

Array = NDArray[Any]


class Dataset:
    """Rows, a target and weights in files. Use `gyrfalcon.open` to make it, and `split` to hold rows out.

    Attributes
    ----------
    X : Rows
        The features, read when they are needed. See `gyrfalcon.sources.Rows`. Columns of text, categories and dates can
        be learnt by AutoRegressor, AutoClassifier and TableEncoder, or be read with `table`; reading them as numbers is
        an error that names them.
    y : array or None
        The target, of shape (n,), or (n, k) for a list of targets; read into memory at the first access.
    weight : array or None
        The weights, read in the same way.
    feature_names : list of str or None
    n_rows : int
    files : list of str
        Empty for tables that are not in files.
    file_bytes : int
        Size of the files.
    """

    def __init__(self, files: DataFiles, X: Rows, paths: list[str], target: Any, weight: Any, size: int) -> None:
        self._files = files
        self.X = X
        self.files = paths
        self._target = target
        self._weight = weight
        self.file_bytes = size
        # not functools.cached_property: before Python 3.12 it has a lock, which a fork may leave locked
        self._kept: dict[str, Array | None] = {}
        self._long: Column | None = None
        self._long_weight: Vector | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_long": None, "_long_weight": None}  # a copy makes temporary files of its own

    @property
    def feature_names(self) -> list[str] | None:
        return self.X.feature_names

    @property
    def n_rows(self) -> int:
        return self.X.shape[0]

    @property
    def y(self) -> Array | None:
        if "y" not in self._kept:
            self._kept["y"] = self._read_target()
        return self._kept["y"]

    @property
    def weight(self) -> Array | None:
        if "weight" not in self._kept:
            self._kept["weight"] = self._read_weight()
        return self._kept["weight"]

    def long_target(self) -> Column | None:
        """Return the target as numbers in a temporary file, which exists as long as the data that are opened.

        None if there are few rows, if the target was read into memory before or is not numbers, if there are weights
        that `long_weight` does not return, or if the disk has no room.
        """
        if self.n_rows < columns.LONG or self._target is None or "y" in self._kept:
            return None
        if self._weight is not None and self.long_weight() is None:
            return None
        if self._long is None:
            rows = self._numbers(self._target)
            self._long = None if rows is None else stored_column(rows)
        return self._long

    def long_weight(self) -> Vector | None:
        """Return the weights as numbers in a temporary file, as `long_target` does.

        None also if there are none, or if they are not all positive: a fit leaves out rows of weight 0, and which these
        are would take an array.
        """
        if self.n_rows < columns.LONG or self._weight is None or "weight" in self._kept:
            return None
        if self._long_weight is None:
            rows = self._numbers(self._weight)
            column = None if rows is None else stored_column(rows, "sample_weight")
            if column is None or column.shape[1] != 1 or not column.min() > 0:
                _ = self.weight  # is read into memory once, and no other time into a file
                return None
            self._long_weight = Vector(column)
        return self._long_weight

    def long_labels(self) -> Labels | None:
        """Return a target of integers or booleans with its classes, as `long_target` does; None for others."""
        if self.n_rows < columns.LONG or self._target is None or isinstance(self._target, list):
            return None
        dtype = self._files.label_type(self._target)
        column = None if dtype is None else self.long_target()
        if dtype is None or column is None or column.shape[1] != 1:
            return None
        return stored_labels(column, dtype)

    def _numbers(self, names: Any) -> Rows | None:
        return self._files.numbers(names if isinstance(names, list) else [names])

    @property
    def has_several_targets(self) -> bool:
        """Whether a list of targets was named, so that y has an axis for them."""
        return isinstance(self._target, list)

    @property
    def has_categories(self) -> bool:
        """Whether the files say that the target is categories, whatever they are written as."""
        return isinstance(self._target, str) and self._files.is_category(self._target)

    def table(self, as_text: Collection[str] = ()) -> Any:
        r"""Read the features into memory with the types of their columns: text, categories, dates and gaps stay.

        Parameters
        ----------
        as_text : collection of str, optional
            Columns of CSV files to read as text, even if all of their values look like numbers.

        Returns
        -------
        pyarrow.Table, or an array for formats whose columns have no types (HDF5, zarr, ``.npy``)

        Raises
        ------
        MemoryError
            If the table is larger than the available memory; it is raised before the memory is taken.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import gyrfalcon
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "houses.csv").write_text("area,city,price\n50,Genova,100\n,Roma,300\n")
        ...     data = gyrfalcon.open(folder, target="price")
        ...     print(data.table().to_pydict(), data.y)
        {'area': [50, None], 'city': ['Genova', 'Roma']} [100 300]
        """
        if self.feature_names is None:  # readers of tables look at what their columns take
            n, d = self.X.shape
            size, what = n * d * self.X.dtype.itemsize, f"its {n} rows take"
            require_in_proportion(self.X.origin(), self.file_bytes, size, what, "are so many rows meant?")
        return self.X.table(as_text=as_text)

    def split(
        self,
        test_size: float | int = 0.25,
        random_state: int | np.random.RandomState | None = None,
        shuffle: bool = True,
    ) -> tuple[Dataset, Dataset]:
        """Split into rows to learn from and rows to judge by, with their targets and weights; nothing is copied.

        The same rows as those of `sklearn.model_selection.train_test_split`, but each part has its rows in the order
        of the files, which a pass over a part reads and leaves the others out.

        Parameters
        ----------
        test_size : float or int, default=0.25
            Share of the rows, between 0 and 1, or number of rows of the second part.
        random_state : int, RandomState or None, default=None
            Seed of the choice of rows.
        shuffle : bool, default=True
            Whether rows are chosen at random. With False the second part is the last rows, as for times.

        Returns
        -------
        train, test : Dataset

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np
        >>> import gyrfalcon
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(os.path.join(folder, "rows.npy"), np.arange(12.0).reshape(4, 3))
        ...     train, test = gyrfalcon.open(folder, target=-1).split(shuffle=False)
        ...     print(train.X.shape, test.y)
        (3, 2) [11.]
        """
        from sklearn.model_selection import train_test_split

        rows = np.arange(self.n_rows)
        train, test = train_test_split(rows, test_size=test_size, random_state=random_state, shuffle=shuffle)
        return self.subset(np.sort(train)), self.subset(np.sort(test))

    def subset(self, indices: ArrayLike) -> Dataset:
        """Return the rows at increasing `indices`, with their targets and weights; they stay in the files.

        Parameters
        ----------
        indices : array of int

        Returns
        -------
        Dataset
        """
        chosen = self._checked(indices)
        if (np.diff(chosen) <= 0).any():
            raise ValueError("indices must increase: sort them, or read the rows into memory with take(indices)")
        return _Part(self, self.X.subset(chosen), chosen)

    def take(self, indices: ArrayLike) -> Dataset:
        """Return the rows at `indices`, in that order, with their targets and weights; they are read into memory.

        Parameters
        ----------
        indices : array of int

        Returns
        -------
        Dataset
        """
        chosen = self._checked(indices)
        if not self.X.is_numeric():
            return _Part(self, HeldTable(self.X, chosen), chosen)
        return _Part(self, ArrayRows(self.X.take(chosen), feature_names=self.feature_names), chosen)

    def _checked(self, indices: ArrayLike) -> Array:
        """Return numbers of rows that exist, at least one."""
        chosen, n = np.asarray(indices), self.n_rows
        if chosen.ndim != 1 or not len(chosen) or chosen.dtype.kind not in "iu":
            raise ValueError("indices must be a list or an array of integers, at least one")
        if chosen.min() < 0 or chosen.max() >= n:
            raise IndexError(f"indices go from {chosen.min()} to {chosen.max()}, and rows from 0 to {n - 1}")
        return chosen.astype(np.intp)

    def _read_target(self) -> Array | None:
        if self._target is None:
            return None
        if not isinstance(self._target, list):
            (column,) = self._files.values([self._target])
            return column
        columns = self._files.values(self._target)
        if any(column.dtype.kind not in "fiub" for column in columns):
            raise ValueError(f"target={shown(self._target)}: several targets must be numbers")
        return np.column_stack(columns)

    def _read_weight(self) -> Array | None:
        if self._weight is None:
            return None
        (column,) = self._files.values([self._weight])
        if column.dtype.kind not in "fiub" or column.ndim != 1:
            raise ValueError(f"weight={shown(self._weight)} must be one number a row")
        return column.astype(np.float64)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError(
            "a Dataset is rows, a target and weights: take the rows alone, data.X, or the target, "
            "data.y; data.split(test_size=0.25) takes the place of train_test_split, and data.take(indices) reads rows "
            "into memory"
        )

    def __repr__(self) -> str:
        target = "" if self._target is None else f", target {shown(self._target)}"
        weight = "" if self._weight is None else f", weight {shown(self._weight)}"
        n, d = self.X.shape
        count = len(self.files)
        files = f"{plural(count, f'{self._files.format} file')}, {format_bytes(self.file_bytes)}"
        origin = files if count else f"a {self._files.format}"
        dtype = f" in {self.X.dtype}" if self.X.is_numeric() else ""
        return f"<Dataset: {plural(n, 'row')} of {plural(d, 'feature')}{dtype}{target}{weight}; {origin}>"


class _Part(Dataset):
    """Some rows of a Dataset; `chosen` are their numbers in the whole."""

    def __init__(self, whole: Dataset, X: Rows, chosen: Array) -> None:
        super().__init__(whole._files, X, whole.files, whole._target, whole._weight, whole.file_bytes)
        self._whole, self._chosen = whole, chosen

    def _numbers(self, names: Any) -> None:
        return None

    def _read_target(self) -> Array | None:
        return None if self._whole.y is None else self._whole.y[self._chosen]

    def _read_weight(self) -> Array | None:
        return None if self._whole.weight is None else self._whole.weight[self._chosen]


def open(
    path: PathLike | Sequence[PathLike] | Any,
    *,
    target: Any = None,
    features: Any = None,
    weight: Any = None,
    dtype: DTypeLike | None = None,
    filesystem: Any = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
) -> Dataset:
    """Open files as rows that estimators read block by block, never holding all of them in memory.

    AutoRegressor, AutoClassifier and TableEncoder accept columns of text, categories and dates, and missing values.
    They read such files into memory, unless these are Parquet or Arrow files that are too large for it. The other
    estimators raise an error when they read such columns.

    Parameters
    ----------
    path : str, path-like or list of these, polars.LazyFrame or pyarrow.dataset.Dataset
        One file, a folder (with its subfolders; names that begin with a dot or an underscore are ignored), a
        pattern such as ``"data/2024-*.parquet"``, or a list of files. Parquet (``.parquet``, ``.pq``), CSV (``.csv``,
        ``.csv.gz``, ``.csv.zst``), Arrow or Feather (``.arrow``, ``.feather``, ``.ipc``), HDF5 (``.h5``, ``.hdf5``),
        zarr (``.zarr``) and ``.npy``. Rows are in the order of the files' sorted names (for a list, in its order). A
        LazyFrame or a pyarrow Dataset is read in batches; target, weight and features come from one run of a query.
        Names of folders below the one that is opened, such as ``year=2024``, are columns of Parquet, Arrow and CSV.
    target : str or list of str, optional
        The column to learn, or several. HDF5 and zarr: another array's name. ``.npy``: a column's number, or the name
        of another ``.npy`` file.
    features : list of str, optional
        The columns to learn from; all but target and weight by default. HDF5 and zarr: the name of the 2-D array of
        rows, by default "X" or the only one. ``.npy``: numbers of columns.
    weight : str, optional
        The column of sample weights.
    dtype : float32 or float64, optional
        The type of the features; by default float32 if all of them are stored as float32 or less, else float64.
    filesystem : pyarrow.fs.FileSystem or filesystem of fsspec, optional
        Where Parquet, Arrow and CSV files are, such as ``pyarrow.fs.S3FileSystem()``; by default on this machine.
    delimiter : str, optional
        Separator of the columns of CSV files, such as ``";"`` or ``"\\t"``; by default a comma, unless the first line
        contains semicolons, tabs or bars and no comma.
    encoding : str, optional
        How the text of CSV files is encoded, such as ``"latin-1"`` or ``"cp1252"``; by default UTF-8, or UTF-16 if the
        file begins with its mark.
    decimal : {".", ","}, optional
        The decimal point of CSV files. By default it is a comma if columns are not separated by commas, and if more
        columns can then be read as numbers.
    thousands : str, optional
        Separator of groups of three digits in CSV files, such as ``"."``; nothing by default.

    Returns
    -------
    Dataset
        With `X`, `y` and `weight`. ``model.fit(data)`` is ``model.fit(data.X, data.y, data.weight)``.

    Raises
    ------
    OSError
        If a file is missing, cannot be read, or changes after it was opened; also later, if rows that are read again
        differ from those that were read before.
    ValueError
        If a file is damaged, files do not fit together, or a column is missing; also later, if a column is read as
        numbers and is text or dates, or has nulls.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import gyrfalcon
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     name = os.path.join(folder, "rows.npy")
    ...     np.save(name, np.arange(12.0).reshape(4, 3))
    ...     data = gyrfalcon.open(name, target=-1)
    ...     print(data.X.shape, data.y)
    (4, 2) [ 2.  5.  8. 11.]
    """
    lazy = is_lazy_table(path)
    if lazy and filesystem is not None:
        raise ValueError("filesystem= is for paths: a LazyFrame or a pyarrow Dataset knows where its files are")
    where = None if filesystem is None else as_filesystem(filesystem)
    paths, format = ([], "table") if lazy else find(path, where)
    if where is not None and format not in _TABLES:
        raise ValueError(
            f"filesystem= is for {', '.join(_TABLES)}, and {_listed(paths)} is {format}: copy it to a disk"
        )
    asked = None if dtype is None else np.dtype(dtype)
    if asked is not None and asked not in (np.float32, np.float64):
        raise ValueError(f"dtype={dtype!r} must be float32 or float64")
    csv = CsvFormat(delimiter, encoding, decimal, thousands)
    if csv.given and format != "CSV":
        name, value = next(iter(csv.given.items()))
        raise ValueError(f"{name}={value!r} is for CSV files, and {_listed(paths)} is {format}")
    if isinstance(target, tuple | np.ndarray):
        target = np.asarray(target).tolist()
    targets, weights = _names(target, format), [] if weight is None else _names([weight], format)
    files = _lazy_files(path) if lazy else _READERS[format](path, paths, format, where, csv)
    X = files.rows(features, targets, weights, asked)
    if X.shape[0] == 0:
        raise ValueError(f"there are no rows in {_listed(paths)}")
    size = sum(reader.state.size for reader in X.readers if reader.state is not None)
    return Dataset(files, X, paths, target, weight, size)


def _names(target: Any, format: str) -> list[Any]:
    """Return the targets as a list; raise an error if one cannot be the name of a column."""
    if isinstance(target, list) and not target:
        raise ValueError("target=[] names no column: use None where there is no target")
    targets = target if isinstance(target, list) else [] if target is None else [target]
    for name in targets:
        if format != "npy" and not isinstance(name, str):
            raise TypeError(f"{shown(name)} must be the name of a column")
    return targets


# ---- the reader of each format, whose libraries are imported when it is used -----------------------------------------


def _lazy_files(table: Any) -> DataFiles:
    from .lazy_tables import LazyTable

    return LazyTable(table)


def _table_files(asked: Any, paths: list[str], format: str, filesystem: Any, csv: CsvFormat) -> DataFiles:
    from .tables import TableFiles

    return TableFiles(locations(paths, filesystem), format, folder_columns(asked, paths), csv)


def _array_files(asked: Any, paths: list[str], format: str, filesystem: Any, csv: CsvFormat) -> DataFiles:
    from .arrays import NamedArrays, NpyFiles

    return NpyFiles(paths) if format == "npy" else NamedArrays(paths, format)


_TABLES = ("Parquet", "Arrow", "CSV")
_READERS: dict[str, Callable[[Any, list[str], str, Any, CsvFormat], DataFiles]] = {
    **dict.fromkeys(_TABLES, _table_files),
    **dict.fromkeys(("HDF5", "zarr", "npy"), _array_files),
}


def is_lazy_table(X: Any) -> bool:
    """Whether `X` is a LazyFrame or a pyarrow Dataset; neither library is imported to find out."""
    kinds = [(kind.__module__.split(".")[0], kind.__name__) for kind in type(X).__mro__]
    return ("polars", "LazyFrame") in kinds or ("pyarrow", "Dataset") in kinds


def _listed(paths: list[str]) -> str:
    if not paths:
        return "the table"
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
