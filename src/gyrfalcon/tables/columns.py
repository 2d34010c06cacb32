"""Columns of a table, in one form: numbers, booleans, dates, text and categories.

A column of numbers, booleans or dates is an array of float64 with NaN where a value is missing. One of text or
categories is an array of codes, -1 where a value is missing, beside the strings that they stand for.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kind: TypeAlias = Literal["number", "boolean", "date", "text", "category"]

_SECOND = 1_000_000  # in microseconds
_NULLS = {"NoneType", "NAType", "NaTType"}  # None, pandas.NA, pandas.NaT


@dataclass(frozen=True)
class Column:
    """Values of a column.

    Parameters
    ----------
    kind : {"number", "boolean", "date", "text", "category"}
        "category" is text that was declared to be categories, and so never taken for numbers.
    values : array of shape (n,)
        Numbers; 0 and 1 for booleans; seconds since 1970, by the clock on the wall, for dates; codes for text.
    levels : list of str
        What the codes stand for, each once.
    """

    kind: Kind
    values: Array
    levels: list[str] = field(default_factory=list)

    @property
    def is_text(self) -> bool:
        return self.kind in ("text", "category")

    @property
    def missing(self) -> NDArray[np.bool_]:
        return self.values < 0 if self.is_text else np.isnan(self.values)


def from_numbers(values: Array, missing: Array | None = None) -> Column:
    """Make a column of an array of booleans, numbers, dates or durations, all but those `missing`."""
    kind: Kind = {"b": "boolean", "M": "date"}.get(values.dtype.kind, "number")  # type: ignore[assignment]
    if values.dtype.kind == "M":
        numbers = _seconds(values.astype("datetime64[us]"))
    elif values.dtype.kind == "m":
        numbers = _seconds(values.astype("timedelta64[us]"))
    elif values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: a column is {values.dtype}")
    else:
        numbers = values.astype(np.float64)
    if missing is not None and missing.any():
        numbers = np.where(missing, np.nan, numbers)
    return Column(kind, numbers)


def from_text(values: Iterable[str | None], kind: Kind = "text") -> Column:
    """Make a column of strings; None is missing."""
    known: dict[str, int] = {}
    codes = [-1 if value is None else known.setdefault(value, len(known)) for value in values]
    return Column(kind, np.array(codes, dtype=np.int64), list(known))


def from_codes(codes: Array, levels: Sequence[Any]) -> Column:
    """Make a column of categories from codes and what they stand for; negative codes are missing."""
    merged = from_objects(levels, "category")
    lookup = np.append(as_text(merged).values, -1)
    codes = np.asarray(codes, dtype=np.int64)
    return Column("category", lookup[np.where(codes < 0, len(levels), codes)], as_text(merged).levels)


def from_objects(values: Iterable[Any], kind: Kind | None = None) -> Column:
    """Make a column of Python objects; what they are is decided by all of them, and what is mixed becomes text."""
    items, types = _without_nulls(list(values))
    if str in types and types <= {str, np.str_}:
        return from_text(items, kind or "text")
    if kind == "category":
        return from_text((None if item is None else _text(item) for item in items), kind)
    missing = np.array([item is None for item in items], dtype=np.bool_)
    if _all(types, bool, np.bool_) and types:
        return from_numbers(np.array([bool(item) for item in items]), missing)
    if _all(types, Real, Decimal, Fraction, np.bool_):
        return from_numbers(np.array([math.nan if item is None else _float(item) for item in items], dtype=np.float64))
    if _all(types, datetime.date, np.datetime64):  # a datetime is a date
        return from_numbers(np.array([_wall_clock(item) for item in items], dtype="datetime64[us]"))
    if _all(types, datetime.timedelta, np.timedelta64):
        return from_numbers(np.array(items, dtype="timedelta64[us]"))
    if _all(types, datetime.time):
        return from_numbers(np.array([math.nan if item is None else _seconds_of_day(item) for item in items]))
    if _all(types, complex, np.complexfloating):
        raise ValueError("Complex data not supported: a column holds complex numbers")
    return from_text(None if item is None else _text(item) for item in items)


def as_text(column: Column) -> Column:
    """Convert any column to text: whole numbers without a point, booleans as in Python, dates by ISO 8601."""
    if column.is_text:
        return column
    known, inverse = np.unique(column.values, return_inverse=True)
    known = known[~np.isnan(known)]  # the last, and they count as one
    levels = [_LEVELS[column.kind](value) for value in known.tolist()]
    return Column("text", np.where(column.missing, -1, inverse.reshape(-1)), levels)


def as_numbers(column: Column, name: str, lenient: bool = False) -> Array:
    """Convert a column to numbers, for one that had numbers in training.

    Parameters
    ----------
    column : Column
    name : str
        For errors.
    lenient : bool
        Whether text that is no number is missing, as in training, and no error.
    """
    if not column.is_text:
        if column.kind == "date" and not column.missing.all():
            _refuse(column, ~column.missing, name, "is a date", "numbers")
        return column.values
    numbers, wrong = parsed(column)
    if wrong.any() and not lenient:
        _refuse(column, wrong, name, "is not a number", "numbers")
    return numbers


def as_dates(column: Column, name: str) -> Array:
    """Convert a column to seconds since 1970, for one that had dates in training; text is read by ISO 8601."""
    if column.missing.all():
        return np.full(len(column.values), np.nan)
    if column.kind == "date":
        return column.values
    if not column.is_text:
        _refuse(column, ~column.missing, name, "is not a date", "dates")
    seconds, wrong = parsed_dates(column)
    if wrong.any():
        _refuse(column, wrong, name, "is not a date by ISO 8601", "dates")
    return seconds


def parsed_dates(column: Column) -> tuple[Array, NDArray[np.bool_]]:
    """Read text as dates by ISO 8601: seconds since 1970, and where there is text that is no date."""
    moments = np.full(len(column.levels) + 1, np.datetime64("NaT"), dtype="datetime64[us]")
    wrong = np.zeros(len(moments), dtype=np.bool_)
    for at, level in enumerate(column.levels):
        try:
            moments[at] = datetime.datetime.fromisoformat(level).replace(tzinfo=None) if level.strip() else None
        except ValueError:
            wrong[at] = True
    return _seconds(moments)[column.values], wrong[column.values]


def as_booleans(column: Column) -> Column:
    """Convert a column to text, for one that had booleans in training: the numbers 0 and 1 are False and True."""
    is_flag = column.kind == "number" and np.isin(column.values[~column.missing], (0.0, 1.0)).all()
    return as_text(Column("boolean", column.values) if is_flag else column)


def _refuse(column: Column, wrong: NDArray[np.bool_], name: str, what: str, wanted: str) -> NoReturn:
    row = int(np.argmax(wrong))
    text = as_text(column)
    raise ValueError(
        f"row {row} of column {name!r} holds {text.levels[text.values[row]]!r}, which {what}; training had {wanted} "
        "there: correct it, or make it missing"
    )


def parsed(column: Column) -> tuple[Array, NDArray[np.bool_]]:
    """Read text as numbers: the numbers, NaN where there is none, and where there is text that is no number.

    Blanks and "nan" are missing numbers.
    """
    numbers = np.full(len(column.levels) + 1, np.nan)
    wrong = np.zeros(len(column.levels) + 1, dtype=np.bool_)
    for at, level in enumerate(column.levels):
        try:
            numbers[at] = float(level) if level.strip() else np.nan
        except ValueError:
            wrong[at] = True
    return numbers[column.values], wrong[column.values]


def _without_nulls(items: list[Any]) -> tuple[list[Any], set[type]]:
    """Put None in place of all that means missing, and return what types the others have."""
    types = set(map(type, items))
    nulls = {one for one in types if one.__name__ in _NULLS}
    if nulls - {type(None)}:
        items = [None if type(item) in nulls else item for item in items]
    numbers = {one for one in types - nulls if issubclass(one, Real | Decimal)}
    if numbers:
        items = [None if type(item) in numbers and _is_nan(item) else item for item in items]
        types = set(map(type, items))
    return items, types - nulls - {type(None)}


def _is_nan(item: Any) -> bool:
    return item.is_nan() if isinstance(item, Decimal) else bool(item != item)


def _seconds(values: Array) -> Array:
    return np.where(np.isnat(values), np.nan, values.astype(np.int64) / _SECOND)


def _all(types: set[type], *classes: type) -> bool:
    return all(issubclass(one, classes) for one in types)


def _float(item: Any) -> float:
    try:
        return float(item)
    except OverflowError:  # an integer or a fraction beyond float64
        return math.inf if item > 0 else -math.inf


def _seconds_of_day(item: datetime.time) -> float:
    return item.hour * 3600 + item.minute * 60 + item.second + item.microsecond / _SECOND


def _wall_clock(item: Any) -> Any:
    return item.replace(tzinfo=None) if isinstance(item, datetime.datetime) else item


def _text(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    if isinstance(item, float | np.floating):
        return _number(float(item))
    return str(item)


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)


def _date(value: float) -> str:
    moment = np.datetime64(round(value * _SECOND), "us")
    return str(moment.astype("datetime64[D]") if value % 86_400 == 0 else moment.astype("datetime64[s]"))


_LEVELS = {"number": _number, "boolean": lambda value: str(bool(value)), "date": _date}
