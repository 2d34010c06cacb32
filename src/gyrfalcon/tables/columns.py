"""Columns of a table, in one representation: numbers, booleans, dates, text and categories.

A column of numbers, booleans or dates is a floating-point array with NaN for missing values. A column of text or
categories is an array of codes, with -1 for missing values, and the list of strings that the codes refer to.
`recognised` finds numbers and dates that are written as text.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .dates import name_of, wall_clock
from .forms import (
    PLAIN,
    DateForm,
    NumberForm,
    date_form,
    is_likely,
    is_missing,
    may_be_date,
    may_be_number,
    number_form,
)

Array = NDArray[Any]
Form: TypeAlias = NumberForm | DateForm
Kind: TypeAlias = Literal["number", "boolean", "date", "text", "category"]

_SECOND = 1_000_000  # microseconds
_NULLS = {"NoneType", "NAType", "NaTType"}  # names of the classes of None, pandas.NA and pandas.NaT
_TRUE = {"true", "t", "yes", "y", "on", "1", "1.0"}
_FALSE = {"false", "f", "no", "n", "off", "0", "0.0"}


@dataclass(frozen=True)
class Column:
    """Values of a column.

    kind : "category" is text that was declared to be categories, so it is never read as numbers or dates
    values : numbers in float64 or float32; 0 and 1 for booleans; codes for text; seconds since 1970 for dates, in UTC
        if they have a time zone and in local time otherwise
    levels : the distinct strings that the codes refer to
    zone : name of the time zone of dates, or empty
    form : form in which numbers or dates were written, if they were text
    ambiguous : whether day and month could be exchanged in all dates, so that the form is a guess
    """

    kind: Kind
    values: Array
    levels: list[str] = field(default_factory=list)
    zone: str = ""
    form: Form | None = None
    ambiguous: bool = False

    @property
    def is_text(self) -> bool:
        return self.kind in ("text", "category")

    @property
    def missing(self) -> NDArray[np.bool_]:
        return self.values < 0 if self.is_text else np.isnan(self.values)

    def take(self, rows: Array) -> Column:
        """Return some of the rows; text keeps only the levels of these rows, in the order in which they occur."""
        values = self.values[rows]
        if self.kind != "text":
            return replace(self, values=values)
        codes, first = np.unique(values[values >= 0], return_index=True)
        codes = codes[np.argsort(first)]
        lookup = np.full(len(self.levels) + 1, -1)  # the last entry is for missing values
        lookup[codes] = np.arange(len(codes))
        return replace(self, values=lookup[values], levels=[self.levels[code] for code in codes])


def from_numbers(values: Array, missing: Array | None = None, zone: str = "") -> Column:
    """Make a column of an array of booleans, numbers, dates or durations; dates with a time zone are given in UTC."""
    kind: Kind = {"b": "boolean", "M": "date"}.get(values.dtype.kind, "number")  # type: ignore[assignment]
    if values.dtype.kind == "M":
        numbers = _seconds(values.astype("datetime64[us]"))
    elif values.dtype.kind == "m":
        numbers = _seconds(values.astype("timedelta64[us]"))
    elif values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: a column is {values.dtype}")
    else:
        # float32 is kept, so that a large table is not copied before it is encoded in blocks
        numbers = values if values.dtype == np.float32 else values.astype(np.float64, copy=False)
    if missing is not None and missing.any():
        numbers = np.where(missing, np.nan, numbers)
    return Column(kind, numbers, zone=zone)


def from_text(values: Iterable[str | None], kind: Kind = "text") -> Column:
    """Make a column of strings; None is missing."""
    known: dict[str, int] = {}
    codes = [-1 if value is None else known.setdefault(value, len(known)) for value in values]
    return Column(kind, np.array(codes, dtype=np.int64), list(known))


def from_codes(codes: Array, levels: Sequence[Any]) -> Column:
    """Make a column of categories from codes and the objects that they refer to; negative codes are missing."""
    merged = from_objects(levels, "category")
    lookup = np.append(as_text(merged).values, -1)
    codes = np.asarray(codes, dtype=np.int64)
    return Column("category", lookup[np.where(codes < 0, len(levels), codes)], as_text(merged).levels)


def from_objects(values: Iterable[Any], kind: Kind | None = None) -> Column:
    """Make a column of Python objects. Its kind is one that suits all objects; a mixture becomes text."""
    items, types = _without_nulls(list(values))
    if types == {str}:
        return from_text(items, kind or "text")
    if kind is None:
        for classes, make in _MAKERS:
            if all(issubclass(one, classes) for one in types or {float}):  # all missing: numbers
                return make(items)
    return from_text((None if item is None else _text(item) for item in items), kind or "text")


def as_text(column: Column) -> Column:
    """Convert any column to text: whole numbers without a point, booleans as in Python, dates by ISO 8601."""
    if column.is_text:
        return column
    known, inverse = np.unique(column.values, return_inverse=True)
    known = known[~np.isnan(known)]  # NumPy sorts NaN last, and counts it once
    levels = [_LEVELS[column.kind](value) for value in known.tolist()]
    return Column("text", np.where(column.missing, -1, inverse.reshape(-1)), levels)


def recognised(column: Column) -> Column:
    """Convert training text to numbers or dates if nearly all of it is written in one form, or else to categories."""
    if column.kind != "text":
        return column
    levels, counts = column.levels, np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
    if is_likely(levels, column.values, may_be_number):
        form = number_form(levels, counts)
        if form is not None:
            return Column("number", _read(column, form)[0], form=form)
    if is_likely(levels, column.values, may_be_date):
        found = date_form(levels, counts)
        if found is not None:
            seconds, _, zone = _read_dates(column, found[0])
            return Column("date", seconds, zone=zone, form=found[0], ambiguous=found[1])
    return Column("category", column.values, levels)


def as_numbers(column: Column, name: str, form: NumberForm | None = None) -> Array:
    """Convert a column to numbers, for one that had numbers in training.

    `form` is the form of training, if the numbers were text there. With it, text that is not a number is missing;
    without it, such text is an error, which mentions `name`.
    """
    if not column.is_text:
        if column.kind == "date" and not column.missing.all():
            _refuse(column, ~column.missing, name, "is a date", "numbers")
        return column.values
    numbers, wrong = _read(column, form or PLAIN)
    if wrong.any() and form is None:
        _refuse(column, wrong, name, "is not a number", "numbers")
    return numbers


def as_dates(column: Column, name: str, zone: str, form: DateForm | None = None) -> Array:
    """Convert a column to seconds since 1970 in local time, for one that had dates in training.

    Dates are converted to `zone`, the time zone of training, which is empty if there was none. `form` is the form of
    training, if the dates were text there. With it, text that is not a date is missing; without it, text is read as ISO
    8601, and other text is an error, which mentions `name`.
    """
    if column.missing.all():
        return np.full(len(column.values), np.nan)
    seconds, given = column.values, column.zone
    if column.is_text:
        seconds, wrong, given = _read_dates(column, form or DateForm(zoned=bool(zone)))
        if wrong.any():
            _, odd, other = _read_dates(column, DateForm(zoned=not zone))
            if not odd[wrong].any():
                _refuse_zone(name, zone, other)
        if wrong.any() and form is None:
            _refuse(column, wrong, name, "is not a date by ISO 8601", "dates")
        if np.isnan(seconds).all():
            return seconds
    elif column.kind != "date":
        _refuse(column, ~column.missing, name, "is not a date", "dates")
    if bool(given) != bool(zone):
        _refuse_zone(name, zone, given)
    return wall_clock(seconds, zone) if zone else seconds


def _refuse_zone(name: str, zone: str, given: str) -> NoReturn:
    """Raise ValueError for dates without a time zone where training had one, or the other way round."""
    if zone:
        raise ValueError(
            f"column {name!r} holds dates without a time zone, and training had the time zone {zone!r} there: say "
            f"which one they are in, in pandas with dt.tz_localize({zone!r})"
        )
    raise ValueError(
        f"column {name!r} holds dates in a time zone ({given}), and training had dates without one there: convert them "
        "to the zone that training was in and leave it out, in pandas with dt.tz_convert(...).dt.tz_localize(None)"
    )


def _read_dates(column: Column, form: DateForm) -> tuple[Array, NDArray[np.bool_], str]:
    """Read text as dates; return seconds since 1970, a mask of the rows that are no dates, and the time zone."""
    moments = [form.read(level) for level in column.levels]
    aware = [moment for moment in moments if moment is not None and moment.tzinfo is not None]
    zone = name_of((moment.tzinfo for moment in aware), (moment.utcoffset() for moment in aware)) if aware else ""
    seconds = np.array([*(math.nan if moment is None else _since_1970(moment) for moment in moments), math.nan])
    wrong = [moment is None and not is_missing(level) for moment, level in zip(moments, column.levels, strict=True)]
    return seconds[column.values], np.array([*wrong, False])[column.values], zone


def as_booleans(column: Column, name: str) -> Column:
    """Convert a column to text, for one that had booleans in training; words are those of `_TRUE` and `_FALSE`."""
    if column.kind == "boolean":
        return as_text(column)
    if column.is_text:
        words = [level.strip().lower() for level in column.levels]
        flags = [1.0 if word in _TRUE else 0.0 if word in _FALSE else math.nan for word in words]
        blank = [is_missing(level) for level in column.levels]
        wrong = np.array([*(flag != flag and not gap for flag, gap in zip(flags, blank, strict=True)), False])
        values, odd = np.array([*flags, math.nan])[column.values], wrong[column.values]
    else:
        values = column.values
        odd = ~column.missing if column.kind == "date" else ~column.missing & ~np.isin(values, (0.0, 1.0))
    if odd.any():
        _refuse(column, odd, name, "is neither true nor false", "booleans")
    return as_text(Column("boolean", values))


def _refuse(column: Column, wrong: NDArray[np.bool_], name: str, what: str, wanted: str) -> NoReturn:
    row = int(np.argmax(wrong))
    text = as_text(column)
    raise ValueError(
        f"row {row} of column {name!r} holds {text.levels[text.values[row]]!r}, which {what}; training had {wanted} "
        "there: correct it, or make it missing"
    )


def _read(column: Column, form: NumberForm) -> tuple[Array, NDArray[np.bool_]]:
    """Read text as numbers; return them, with NaN for other text, and a mask of the rows that are no numbers."""
    numbers = [form.read(level) for level in column.levels]
    values = np.array([*(math.nan if number is None else number for number in numbers), math.nan])
    wrong = np.array([*(number is None for number in numbers), False])
    return values[column.values], wrong[column.values]


def _without_nulls(items: list[Any]) -> tuple[list[Any], set[type]]:
    """Replace all missing values by None; return the items, and the types of those that are not missing."""
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


def _from_booleans(items: list[Any]) -> Column:
    return from_numbers(np.array([bool(item) for item in items]), np.array([item is None for item in items]))


def _from_reals(items: list[Any]) -> Column:
    return Column("number", np.array([math.nan if item is None else _float(item) for item in items]))


def _float(item: Any) -> float:
    try:
        return float(item)
    except OverflowError:  # an integer or a fraction beyond float64
        return math.inf if item > 0 else -math.inf


def _from_dates(items: list[Any]) -> Column:
    """Make a column of dates; those with time zones get the zone that they share, or UTC."""
    aware = [item for item in items if isinstance(item, datetime.datetime) and item.tzinfo is not None]
    if not aware:
        return from_numbers(np.array(items, dtype="datetime64[us]"))
    if len(aware) < sum(item is not None for item in items):
        raise ValueError("a column holds dates with and without a time zone: give all of them one, or none")
    zone = name_of((item.tzinfo for item in aware), (item.utcoffset() for item in aware))
    return Column("date", np.array([math.nan if item is None else _since_1970(item) for item in items]), zone=zone)


def _from_durations(items: list[Any]) -> Column:
    return from_numbers(np.array(items, dtype="timedelta64[us]"))


def _from_times(items: list[Any]) -> Column:
    """Make a column of seconds since midnight."""
    whole = [math.nan if item is None else item.hour * 3600 + item.minute * 60 + item.second for item in items]
    micro = [0.0 if item is None else item.microsecond / _SECOND for item in items]
    return Column("number", np.array(whole, dtype=np.float64) + micro)


def _refuse_complex(items: list[Any]) -> NoReturn:
    raise ValueError("Complex data not supported: a column holds complex numbers")


# Classes of Python objects, and the function that makes a column of them; the first row that suits all objects is used
_MAKERS: tuple[tuple[tuple[type, ...], Callable[[list[Any]], Column]], ...] = (
    ((bool, np.bool_), _from_booleans),
    ((datetime.timedelta, np.timedelta64), _from_durations),  # before numbers: NumPy's are integers too
    ((Real, Decimal, Fraction, np.bool_), _from_reals),
    ((datetime.date, np.datetime64), _from_dates),  # a datetime is a date
    ((datetime.time,), _from_times),
    ((complex, np.complexfloating), _refuse_complex),
)


def _since_1970(moment: datetime.datetime) -> float:
    """Return seconds since 1970, in UTC for a moment with a time zone and in local time otherwise."""
    start = datetime.datetime(1970, 1, 1, tzinfo=None if moment.tzinfo is None else datetime.UTC)
    return (moment - start) / datetime.timedelta(seconds=1)


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
