"""Time zones of dates: their names, and instants as the clock on the wall shows them there."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

UTC = "UTC"
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")
_SLOT = 900  # seconds in which the offset of a zone is the same: clocks change at quarters of an hour
_YEARS = (-62_135_510_400, 253_402_214_400)  # seconds of the years that `datetime` knows, less a day


def zone(name: str) -> datetime.tzinfo:
    """Return the time zone of a name, such as "Europe/Rome", "UTC" or "+02:00"; raise ValueError if there is none."""
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
    """Name the time zone of moments.

    Parameters
    ----------
    zones : time zones of the moments, as Python objects
    offsets : their distances from UTC, which name a zone without a name; UTC stands for several
    """
    names = {str(one) for one in zones}
    if len(names) == 1:
        (name,) = names
        try:
            zone(name)
        except ValueError:
            pass
        else:
            return name
    distinct = set(offsets)
    return offset_name(distinct.pop()) if len(distinct) == 1 else UTC


def offset_name(offset: datetime.timedelta | None) -> str:
    """Name a distance from UTC; one that has seconds is named UTC."""
    minutes, seconds = divmod(0 if offset is None else int(offset.total_seconds()), 60)
    if seconds or not minutes:
        return UTC
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def wall_clock(seconds: Array, name: str) -> Array:
    """Convert seconds since 1970 in UTC to what the clock on the wall shows in a time zone; NaN stays."""
    place = zone(name)
    known = np.isfinite(seconds)
    slots, inverse = np.unique(np.floor(np.where(known, seconds, 0.0) / _SLOT), return_inverse=True)
    starts = np.clip(slots * _SLOT, *_YEARS)
    shifts = [_shift(start, place) for start in starts.tolist()]
    return seconds + np.array(shifts)[inverse.reshape(-1)]


def _shift(start: float, place: datetime.tzinfo) -> float:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=start)
    offset = moment.astimezone(place).utcoffset()
    return 0.0 if offset is None else offset.total_seconds()
