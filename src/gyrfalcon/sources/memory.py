"""Rows of arrays in memory, arrays whose distances have a meaning, and an error for columns of dates or text."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from .._utils.words import shown
from .base import Rows
from .blocks import Indices

REMEDY = "begin a pipeline with gyrfalcon.TableEncoder, or use AutoRegressor or AutoClassifier, made for such tables"
_TIMES = "mM"  # NumPy's kinds of durations and of times
_OBJECTS = datetime.date | datetime.time | datetime.timedelta  # a date with a time is a date, too


class ArrayRows(Rows):
    """The rows of a 2-D array; only the current block is copied, and only if its type or order differs.

    Parameters
    ----------
    X : array of shape (n, d)
    dtype : float32 or float64, optional
        The type of the blocks; by default float32 stays and all else becomes float64.
    index : array of int, optional
        The rows to use, in this order; all by default.
    feature_names : list of str, optional

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.sources import ArrayRows
    >>> rows = ArrayRows(np.arange(6.0).reshape(3, 2))
    >>> [len(block) for block in rows.blocks(2)]
    [2, 1]
    """

    is_sparse = False
    in_memory = True

    def __init__(
        self, X: ArrayLike, dtype: Any = None, index: Indices | None = None, feature_names: list[str] | None = None
    ) -> None:
        self.X: NDArray[Any] = np.asarray(X)
        self.index = index
        self.feature_names = feature_names
        if self.X.ndim != 2:
            raise ValueError(f"rows must be a 2-D array, not one of shape {self.X.shape}")
        if self.X.dtype.kind not in "fiub":
            raise ValueError(f"rows of type {self.X.dtype} are not numbers: convert them to float32 or float64")
        self.dtype = np.dtype(dtype if dtype is not None else np.float32 if self.X.dtype == np.float32 else np.float64)
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"dtype={self.dtype} must be float32 or float64")
        self.shape = (len(self.X) if index is None else len(index), self.X.shape[1])

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        for start in range(0, self.shape[0], size):
            at = slice(start, start + size)
            yield np.ascontiguousarray(self.X[at if self.index is None else self.index[at]], dtype=self.dtype)

    def take(self, indices: Indices) -> NDArray[Any]:
        at = indices if self.index is None else self.index[indices]
        return np.ascontiguousarray(self.X[at], dtype=self.dtype)

    def subset(self, indices: Indices) -> ArrayRows:
        """Return the rows at `indices`, in any order, which are copied block by block when they are read."""
        index = indices if self.index is None else self.index[indices]
        return ArrayRows(self.X, self.dtype, index, self.feature_names)


class MetricArray(np.ndarray[Any, Any]):
    """An array as `LearnedMetric` and `TableEncoder` return it: ``scale="auto"`` leaves its rows as they are.

    Slices and selections of rows are of this class too. The result of a computation is a plain array: its columns may
    have any size.
    """

    def __array_wrap__(self, array: NDArray[Any], context: Any = None, return_scalar: bool = False) -> Any:
        # NumPy calls it with the result of a computation
        plain = np.asarray(array)
        return plain[()] if return_scalar or plain.ndim == 0 else plain


def check_columns(X: Any) -> None:
    """Raise ValueError for the first column of times or text; everything else is left to scikit-learn's checks."""
    if scipy.sparse.issparse(X) or isinstance(X, list | tuple):
        return
    for name, column in _columns(X):
        odd: Any = None
        if column.dtype.kind in _TIMES and len(column):
            odd = column[0]
        elif column.dtype.kind in "OUS":
            odd = next((value for value in column if isinstance(value, str | bytes | _OBJECTS)), None)
        if isinstance(odd, np.datetime64 | np.timedelta64 | _OBJECTS):
            raise ValueError(
                f"column {shown(name)} holds times such as {str(odd)!r}, which are not numbers: make features of it, "
                f"such as its year, its day of the week and seconds since a start; or {REMEDY}"
            )
        if odd is not None and not _is_number(odd):
            raise ValueError(f"column {shown(name)} holds text such as {str(odd)!r}: {REMEDY}")


def _columns(X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield names and values of the columns of a table or of an array that is not of numbers."""
    if isinstance(X, np.ndarray):
        if X.ndim == 2 and X.dtype.kind not in "fiubc":
            yield from enumerate(X.T)
        return
    try:
        names = _names(X)
    except (AttributeError, TypeError):
        return  # no table
    for name in names:
        column = np.asarray(X[name])
        if column.ndim == 1:  # several columns of one name would give a matrix
            yield name, column


def _names(X: Any) -> list[Any]:
    """Return the names of the columns of a table: pyarrow's `columns` are the columns themselves."""
    try:
        return list(X.column_names)
    except AttributeError:
        return list(X.columns)


def _is_number(text: str | bytes) -> bool:
    """Whether scikit-learn's checks read the text as a number, as they do for arrays of objects."""
    try:
        float(text)
    except ValueError:
        return False
    return True
