"""Dates: time zones, and the cyclic parts (time of day, day of the week and of the year) as points on a circle."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .._utils.checks import array
from .._utils.registry import register

Array = NDArray[Any]

PARTS = ("time of day", "day of week", "day of year")
_DAY = 86_400.0
_FIRST_DAY = 3  # 1970 began on a Thursday, the third day after Monday
UTC = "UTC"
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")
_SLOT = 900  # seconds with the same offset from UTC: clocks change at quarters of an hour
_YEARS = (-62_135_510_400, 253_402_214_400)  # range of `datetime` in seconds since 1970, less a day on either side


@register
class DateParts(BaseEstimator):  # type: ignore[misc]
    """Sine and cosine of the parts of dates that vary among training rows; zeros for missing dates.

    `parts_`, of shape (n_columns, 3), tells which parts of each column vary; the others are left out.
    """

    parts_: Array

    def fit(self, seconds: Array) -> DateParts:
        """Find the parts that vary, in seconds since 1970 of shape (n, n_columns), where NaN is missing."""
        turns = _turns(seconds)
        known = np.isfinite(turns)
        low = np.where(known, turns, np.inf).min(axis=1)
        high = np.where(known, turns, -np.inf).max(axis=1)
        self.parts_ = (high > low).T.copy()
        return self

    def transform(self, seconds: Array) -> Array:
        """Return two columns for each part that is kept, column by column."""
        kept = _turns(seconds).transpose(2, 0, 1)[self.parts_].T
        angle = 2 * np.pi * kept
        pairs = np.stack([np.sin(angle), np.cos(angle)], axis=2)
        return np.nan_to_num(pairs.reshape(len(seconds), -1), copy=False)

    def _check_loaded(self) -> None:
        array((None, len(PARTS)), np.bool_)("parts_", self.parts_)

    def names(self, column: int) -> list[str]:
        """Name the outputs of a column."""
        kept = [part for part, keep in zip(PARTS, self.parts_[column], strict=True) if keep]
        return [f"({part}, {wave})" for part in kept for wave in ("sin", "cos")]


def _turns(seconds: Array) -> Array:
    """Return the parts as fractions of a period, in an array of shape (3, n, n_columns)."""
    missing = np.isnan(seconds)
    moments = np.where(missing, 0.0, seconds)
    days = np.floor(moments / _DAY)
    date = days.astype(np.int64).astype("datetime64[D]")
    day_of_year = (date - date.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64)
    parts = np.stack([moments / _DAY - days, (days + _FIRST_DAY) % 7 / 7, day_of_year / 366])
    return np.where(missing, np.nan, parts)


# ---- time zones ------------------------------------------------------------------------------------------------------


def zone_of(name: str) -> datetime.tzinfo:
    """Return the time zone with a name such as "Europe/Rome", "UTC" or "+02:00"; raise ValueError if it is unknown."""
    if name == UTC:
        return datetime.UTC
    offset = _OFFSET.fullmatch(name)
    try:
        if offset is not None:
            minutes = int(offset[2]) * 60 + int(offset[3])
            return datetime.timezone(datetime.timedelta(minutes=-minutes if offset[1] == "-" else minutes))
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"the time zone {name!r} is not known on this machine: convert the dates to UTC, or install tzdata"
        ) from error


def name_of(zones: Iterable[Any], offsets: Iterable[datetime.timedelta | None]) -> str:
    """Return the name of the time zone that dates share, the offset from UTC that they share, or UTC."""
    names = {str(one) for one in zones}
    if len(names) == 1:
        (name,) = names
        try:
            zone_of(name)
        except ValueError:
            pass
        else:
            return name
    distinct = set(offsets)
    return offset_name(distinct.pop()) if len(distinct) == 1 else UTC


def offset_name(offset: datetime.timedelta | None) -> str:
    """Return the name of an offset from UTC: "UTC" for 0 and for offsets that are not whole minutes."""
    minutes, seconds = divmod(0 if offset is None else int(offset.total_seconds()), 60)
    if seconds or not minutes:
        return UTC
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def wall_clock(seconds: Array, name: str) -> Array:
    """Convert seconds since 1970 in UTC to local time in a time zone; NaN stays."""
    place = zone_of(name)
    known = np.isfinite(seconds)
    slots, inverse = np.unique(np.floor(np.where(known, seconds, 0.0) / _SLOT), return_inverse=True)
    starts = np.clip(slots * _SLOT, *_YEARS)
    shifts = [_shift(start, place) for start in starts.tolist()]
    return seconds + np.array(shifts)[inverse.reshape(-1)]


def _shift(start: float, place: datetime.tzinfo) -> float:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=start)
    offset = moment.astimezone(place).utcoffset()
    return 0.0 if offset is None else offset.total_seconds()
