"""Reject date and text columns with an error that names them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.words import shown

REMEDY = "begin a pipeline with gyrfalcon.TableEncoder, or use AutoRegressor or AutoClassifier, made for such tables"
_TIMES = "mM"  # NumPy's kinds of durations and of times
_OBJECTS = datetime.date | datetime.time | datetime.timedelta  # a date with a time is a date, too


def check_columns(X: Any) -> None:
    """Raise ValueError for the first column of times or text; everything else is left to scikit-learn's checks.

    Examples
    --------
    >>> import pandas as pd
    >>> from gyrfalcon.sources.columns import check_columns
    >>> check_columns(pd.DataFrame({"rooms": [2, 3], "city": ["Genova", "Torino"]}))
    Traceback (most recent call last):
    ValueError: column 'city' holds text such as 'Genova': begin a pipeline with gyrfalcon.TableEncoder, ...
    """
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
        if column.ndim == 1:  # of several columns of one name, all would come
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
