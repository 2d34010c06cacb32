"""`open`: rows, a target and weights of a file, a folder or a pattern, whatever the format."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.memory import format_bytes
from .._utils.words import plural, shown
from .base import Rows
from .csv_files import CsvFormat
from .memory import ArrayRows
from .stored import DataFiles

__all__ = ["Dataset", "open"]

Array = NDArray[Any]
PathLike = str | os.PathLike[str]

SUFFIXES = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".csv": "CSV",
    ".csv.gz": "CSV",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".h5": "HDF5",
    ".hdf5": "HDF5",
    ".zarr": "zarr",
    ".npy": "npy",
}
_STORE_MARKS = ("zarr.json", ".zarray", ".zgroup")


class Dataset:
    """Rows, a target and weights in files. Use `gyrfalcon.open` to make it, and `split` to hold rows out.

    Attributes
    ----------
    X : Rows
        The features, read when they are needed. See `gyrfalcon.sources.Rows`.
    y : array or None
        The target, of shape (n,), or (n, k) for a list of targets; read into memory at the first access.
    weight : array or None
        The weights, read in the same way.
    feature_names : list of str or None
    n_rows : int
    files : list of str
        Empty for tables that are no files.
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
        return f"<Dataset: {plural(n, 'row')} of {plural(d, 'feature')} in {self.X.dtype}{target}{weight}; {origin}>"


class _Part(Dataset):
    """Some rows of a Dataset.

    Parameters
    ----------
    whole : Dataset
    X : Rows
    chosen : array of int
        Their numbers in the whole.
    """

    def __init__(self, whole: Dataset, X: Rows, chosen: Array) -> None:
        super().__init__(whole._files, X, whole.files, whole._target, whole._weight, whole.file_bytes)
        self._whole, self._chosen = whole, chosen

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
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
) -> Dataset:
    """Open files as rows that estimators read block by block, never holding all of them in memory.

    Parameters
    ----------
    path : str, path-like or list of these, polars.LazyFrame or pyarrow.dataset.Dataset
        One file, a folder (with its subfolders; names that begin with a dot or an underscore are ignored), a
        pattern such as ``"data/2024-*.parquet"``, or a list of files. Parquet (``.parquet``, ``.pq``), CSV (``.csv``,
        ``.csv.gz``), Arrow or Feather (``.arrow``, ``.feather``, ``.ipc``), HDF5 (``.h5``, ``.hdf5``), zarr
        (``.zarr``) and ``.npy``. Rows are in the order of the files' sorted names (for a list, in its order). A
        LazyFrame or a pyarrow Dataset is read in batches; target, weight and features come from one run of a query.
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
    delimiter : str, optional
        Separator of the columns of CSV files, such as ``";"`` or ``"\\t"``; by default a comma, unless the first line
        has none but semicolons, tabs or bars.
    encoding : str, optional
        How the text of CSV files is encoded, such as ``"latin-1"`` or ``"cp1252"``; by default UTF-8, or UTF-16 if the
        file begins with its mark.
    decimal : {".", ","}, optional
        The decimal point of CSV files; by default a comma if columns are not separated by commas, and more columns are
        numbers with it.
    thousands : str, optional
        What separates groups of three digits in CSV files, such as ``"."``; nothing by default.

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
        If a file is damaged, files do not fit together, or a column is missing, is no number or has nulls.

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
    paths, format = ([], "table") if lazy else find(path)
    asked = None if dtype is None else np.dtype(dtype)
    if asked is not None and asked not in (np.float32, np.float64):
        raise ValueError(f"dtype={dtype!r} must be float32 or float64")
    csv = CsvFormat(delimiter, encoding, decimal, thousands)
    if csv.given and format != "CSV":
        name, value = next(iter(csv.given.items()))
        raise ValueError(f"{name}={value!r} is for CSV files, and {_listed(paths)} is {format}")
    if isinstance(target, tuple | np.ndarray):
        target = np.asarray(target).tolist()
    if isinstance(target, list) and not target:
        raise ValueError("target=[] names no column: use None where there is no target")
    targets = target if isinstance(target, list) else [] if target is None else [target]
    weights = [] if weight is None else [weight]
    for name in [*targets, *weights]:
        if format != "npy" and not isinstance(name, str):
            raise TypeError(f"{shown(name)} must be the name of a column")
    if lazy:
        from .lazy_tables import LazyTable

        files: DataFiles = LazyTable(path)
    elif format in ("Parquet", "Arrow", "CSV"):
        from .tables import TableFiles

        files = TableFiles(paths, format, csv)
    else:
        from .arrays import NamedArrays, NpyFiles

        files = NpyFiles(paths) if format == "npy" else NamedArrays(paths, format)
    X = files.rows(features, targets, weights, asked)
    if X.shape[0] == 0:
        raise ValueError(f"there are no rows in {_listed(paths)}")
    size = sum(reader.state.size for reader in X.readers if reader.state is not None)
    return Dataset(files, X, paths, target, weight, size)


def is_lazy_table(X: Any) -> bool:
    """Whether `X` is a LazyFrame or a pyarrow Dataset; neither library is imported to find out."""
    kinds = [(kind.__module__.split(".")[0], kind.__name__) for kind in type(X).__mro__]
    return ("polars", "LazyFrame") in kinds or ("pyarrow", "Dataset") in kinds


# ---- which files -----------------------------------------------------------------------------------------------------


def find(path: PathLike | Sequence[PathLike]) -> tuple[list[str], str]:
    """Find the files of a path, a folder, a pattern or a list, and their common format."""
    if isinstance(path, str | os.PathLike):
        paths = _expand(os.fspath(path))
    elif isinstance(path, Sequence) and all(isinstance(item, str | os.PathLike) for item in path):
        paths = [found for item in path for found in _expand(os.fspath(item))]
    else:
        raise TypeError(f"path={path!r} must be a path or a list of paths")
    if not paths:
        raise ValueError("path=[] names no file")
    formats = [_format(name) for name in paths]
    for name, format in zip(paths, formats, strict=True):
        if format != formats[0]:
            raise ValueError(
                f"{paths[0]} is {formats[0]} and {name} is {format}: give files of one kind, such as by a pattern"
            )
        if os.path.isfile(name) and os.path.getsize(name) == 0:
            raise ValueError(f"{name} is empty: it has 0 bytes")
    return paths, formats[0]


def _expand(path: str) -> list[str]:
    if not isinstance(path, str):
        raise TypeError(f"path={path!r} must be text, not bytes")
    if "://" in path:
        raise ValueError(f"{path} is not on this machine: copy it to a disk, or read it with Dask")
    path = os.path.expanduser(path)
    if _is_store(path) or os.path.isfile(path):
        return [os.path.abspath(path)]
    if os.path.isdir(path):
        return _in_folder(os.path.abspath(path))
    if os.path.exists(path):
        raise ValueError(f"{path} is neither a file nor a folder")
    if glob.has_magic(path):
        found = sorted(os.path.abspath(name) for name in glob.glob(path, recursive=True))
        found = [name for name in found if os.path.isfile(name) or _is_store(name)]
        if not found:
            raise FileNotFoundError(f"no file matches {path!r}")
        return found
    if os.path.lexists(path):
        raise FileNotFoundError(f"{path} is a link to a file that does not exist")
    parent = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(parent) and not os.access(parent, os.X_OK):
        raise PermissionError(f"{path} cannot be read: no permission")
    raise FileNotFoundError(f"{path} does not exist")


def _in_folder(path: str) -> list[str]:
    """List all files of known formats in a folder and its subfolders, sorted by name."""

    def fail(error: OSError) -> None:
        raise PermissionError(f"{error.filename} cannot be read: {error.strerror}") from error

    found: list[str] = []
    others: list[str] = []
    for folder, folders, names in os.walk(path, onerror=fail):
        stores = [name for name in folders if _is_store(os.path.join(folder, name))]
        folders[:] = [name for name in folders if not name.startswith((".", "_")) and name not in stores]
        for name in [*names, *stores]:
            if not name.startswith((".", "_")):
                known = _suffix(name) is not None or name in stores
                (found if known else others).append(os.path.join(folder, name))
    if not found:
        holds = f"it holds {os.path.basename(min(others))!r}" if others else "it is empty"
        raise ValueError(f"the folder {path} has no file to read ({holds}): {_KNOWN}")
    return sorted(found)


def _is_store(path: str) -> bool:
    return os.path.isdir(path) and (
        path.rstrip("/").endswith(".zarr") or any(os.path.exists(os.path.join(path, mark)) for mark in _STORE_MARKS)
    )


_KNOWN = f"files that can be read end in {', '.join(SUFFIXES)}"


def _suffix(path: str) -> str | None:
    return next((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), None)


def _format(path: str) -> str:
    if _is_store(path):
        return "zarr"
    suffix = _suffix(path)
    if suffix is not None:
        return SUFFIXES[suffix]
    if path.lower().endswith(".npz"):
        raise ValueError(
            f"{path} is an archive, which cannot be read row by row: save its arrays with numpy.save as .npy files, or "
            "load it and pass the arrays"
        )
    raise ValueError(f"{path} is of no known kind: {_KNOWN}")


def _listed(paths: list[str]) -> str:
    if not paths:
        return "the table"
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
