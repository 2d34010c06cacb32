"""Forms of numbers and dates that are written as text: found in training, and used to read later text.

A column has a form if nearly all of its values are written in it. The other values are missing, in training and later.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .._utils.checks import boolean, one_of
from .._utils.registry import register

Array = NDArray[Any]

PARSEABLE = 0.95  # smallest share of the values that are written in a form
_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none"}  # text that stands for a missing number or date
_INFINITE = {"inf", "infinity", "+inf", "+infinity", "-inf", "-infinity"}
_SAMPLE = 1000  # number of values that decide whether all of them are read
_LONG = 9  # digits from which whole numbers of equal length are codes, such as phone numbers
_EXACT = 15  # largest number of digits that float64 represents exactly


def is_missing(text: str) -> bool:
    """Whether text stands for a missing number or date."""
    return text.strip().lower() in _MISSING


# ---- numbers ---------------------------------------------------------------------------------------------------------

_PLAIN_CHARACTERS = str.maketrans({**dict.fromkeys("\u00a0\u202f\u2007\u2009", " "), "\u2212": "-", "\u2019": "'"})
_CODES = "AED ARS AUD BRL CAD CHF CLP CNY COP CZK DKK EUR GBP HKD HUF IDR ILS INR JPY KRW MXN MYR NOK NZD PHP PLN RON "
_CODES += "RUB SAR SEK SGD THB TRY TWD UAH USD ZAR kr zł Kč Ft Fr Fr. Rs Rs."
_SYMBOLS = "$€£¥¢₡₦₩₪₫₭₮₱₲₴₵₸₹₺₼₽₾₿฿"
_SIGN = rf"(?:[A-Z]{{0,2}}[{re.escape(_SYMBOLS)}]|{'|'.join(map(re.escape, _CODES.split()))}|%)"
_PARTS = re.compile(
    rf"(?P<open>\()? ?(?P<minus>[-+])? ?(?P<before>{_SIGN})? ?(?P<inner>[-+])? ?"
    rf"(?P<body>[\d.,' ]*\d[.,]?(?:[eE][-+]?\d+)?) ?(?P<after>{_SIGN})? ?(?P<close>\))?",
    re.ASCII,
)
# Decimal and thousands separators, the most likely first: of styles that read equally many values, the first is used
_STYLES = ((".", ","), (",", "."), (".", " "), (",", " "), (".", "'"), (",", "'"))


def _body(decimal: str, thousands: str) -> re.Pattern[str]:
    point, separator = re.escape(decimal), re.escape(thousands)
    grouped = rf"|[1-9]\d{{0,2}}(?:{separator}\d{{3}})+" if thousands else ""
    return re.compile(rf"(?:(?:\d+{grouped})(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?", re.ASCII)


_BODIES = {style: _body(*style) for style in ((".", ""), (",", ""), *_STYLES)}


@dataclass(frozen=True)
class _Parts:
    """Parts of a number as it is written: plus or minus (or parentheses), digits with separators, and a unit's sign."""

    negative: bool
    plus: bool
    body: str
    sign: str

    @property
    def digits(self) -> str:
        """The digits of a whole number without a unit; empty for other numbers."""
        digits = self.body.replace(" ", "")
        return digits if digits.isdigit() and not self.sign else ""

    @property
    def is_code(self) -> bool:
        """Whether the digits are a name and not a quantity: those of postcodes, phone numbers and long ids."""
        n = len(self.digits)
        return self.has_leading_zero or n > _EXACT or (self.plus and n >= _LONG - 1)

    @property
    def has_leading_zero(self) -> bool:
        return self.digits[:1] == "0" and len(self.digits) > 1


def _split(text: str) -> _Parts | None:
    found = _PARTS.fullmatch(" ".join(text.translate(_PLAIN_CHARACTERS).split()))
    if found is None:
        return None
    minuses, signs = f"{found['minus'] or ''}{found['inner'] or ''}", (found["before"], found["after"])
    brackets = found["open"] is not None
    if brackets != (found["close"] is not None) or len(minuses) + brackets > 1 or all(signs):
        return None
    return _Parts(minuses == "-" or brackets, minuses == "+", found["body"].strip(), signs[0] or signs[1] or "")


@register
class NumberForm(BaseEstimator):  # type: ignore[misc]
    """Form of numbers that are written as text.

    Negative numbers have an ASCII or a Unicode minus, or parentheses around them. Spaces may be no-break spaces.

    decimal : "." or ","
    thousands : separator of groups of three digits, one of "", ",", ".", " ", "'", which may be absent
    sign : a currency or "%", before or after the number, which is left out: "12.3%" is 12.3; a currency may be absent
    """

    def __init__(self, decimal: str = ".", thousands: str = "", sign: str = "") -> None:
        if (decimal, thousands) not in _BODIES:
            raise ValueError(f"decimal={decimal!r} and thousands={thousands!r} are no separators of numbers")
        if not isinstance(sign, str) or (sign and re.fullmatch(_SIGN, sign, re.ASCII) is None):
            raise ValueError(f"sign={sign!r} must be a currency or %")
        self.decimal = decimal
        self.thousands = thousands
        self.sign = sign

    def read(self, text: str) -> float | None:
        """Read a number; return NaN for text that means a missing number, and None for any other text."""
        word = text.strip().lower()
        if word in _MISSING:
            return math.nan
        if word in _INFINITE:
            return float(word)
        parts = _split(text)
        return self._number(parts) if parts is not None and self.fits(parts) else None

    def fits(self, parts: _Parts) -> bool:
        """Whether a number is written in this form."""
        signs = (self.sign,) if self.sign == "%" else ("", self.sign)
        return parts.sign in signs and _BODIES[self.decimal, self.thousands].fullmatch(parts.body) is not None

    def _number(self, parts: _Parts) -> float:
        digits = parts.body.replace(self.thousands, "") if self.thousands else parts.body
        number = float(digits.replace(self.decimal, "."))
        return -number if parts.negative else number

    def __str__(self) -> str:
        return f"1{self.thousands}234{self.decimal}5{' ' * (self.sign not in ('', '%'))}{self.sign}"


PLAIN = NumberForm()


def number_form(levels: Sequence[str], counts: Array) -> NumberForm | None:
    """Find the form of numbers among distinct strings, where `counts` is the number of rows with each string.

    Returns None for text that is not numbers, and for codes that consist of digits.
    """
    parts = [_split(level) for level in levels]
    infinite = np.array([level.strip().lower() in _INFINITE for level in levels], dtype=np.bool_)
    n = int(counts[~np.array([is_missing(level) for level in levels], dtype=np.bool_)].sum())
    sign, most = _usual_sign(parts, counts), -1
    for decimal, thousands in _STYLES:
        form = NumberForm(decimal, thousands, sign)
        fits = np.array([one is not None and form.fits(one) for one in parts], dtype=np.bool_)
        total = int(counts[fits | infinite].sum())
        if total > most:
            best, most, fitting = form, total, fits
        if total == n:
            break
    if most < PARSEABLE * n or not counts[fitting].sum():
        return None
    numbers = [one for one, fit in zip(parts, fitting, strict=True) if fit and one is not None]
    return None if _are_codes(numbers, counts[fitting]) else best


def _usual_sign(parts: Sequence[_Parts | None], counts: Array) -> str:
    """Return the currency or "%" of most rows; empty if no number has one."""
    rows: Counter[str] = Counter()
    for one, count in zip(parts, counts.tolist(), strict=True):
        if one is not None and one.sign:
            rows[one.sign] += count
    return max(rows, key=rows.__getitem__, default="")


def _are_codes(numbers: list[_Parts], counts: Array) -> bool:
    """Whether more than a few numbers are codes, or all have equally many digits, and many or some a leading zero."""
    codes = np.array([one.is_code for one in numbers])
    if counts[codes].sum() > (1 - PARSEABLE) * counts.sum():
        return True
    lengths = {len(one.digits) for one in numbers}
    if lengths == {0} or len(lengths) > 1 or any(one.negative for one in numbers):
        return False
    return any(one.has_leading_zero for one in numbers) or (len(numbers) > 1 and lengths.pop() >= _LONG)


# ---- dates -----------------------------------------------------------------------------------------------------------

_DATE = re.compile(
    r"(\d{1,4})([/.-])(\d{1,2})\2(\d{2}|\d{4})"
    r"(?:[ T,]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6}))?)?(?: ?([AaPp])\.?[Mm]\.?)?)?",
    re.ASCII,
)
_DATE_YEAR_FIRST = re.compile(_DATE.pattern.replace(r"(\d{1,4})", r"(\d{4})").replace(r"(\d{2}|\d{4})", r"(\d{1,2})"))
_ORDERS = ("iso", "year first", "day first", "month first")  # of those that read equally many values, the first is used
_PIVOT = 69  # first year of two digits that belongs to the last century


@register
class DateForm(BaseEstimator):  # type: ignore[misc]
    """Form of dates that are written as text.

    order : "iso" (ISO 8601), or "year first", "day first" or "month first": numbers separated by slashes, dots or
        hyphens, optionally followed by a time
    zoned : whether dates have an offset from UTC, which only ISO 8601 can express
    """

    def __init__(self, order: str = "iso", zoned: bool = False) -> None:
        one_of(*_ORDERS)("order", order)
        boolean("zoned", zoned)
        if zoned and order != "iso":
            raise ValueError(f"order={order!r} has no time zone")
        self.order = order
        self.zoned = zoned

    def read(self, text: str) -> datetime.datetime | None:
        """Read a date; return None for any other text."""
        text = " ".join(text.translate(_PLAIN_CHARACTERS).split())
        if text.isdigit():  # an id; Python would read some ids as dates
            return None
        try:
            moment = datetime.datetime.fromisoformat(text) if self.order == "iso" else _by_numbers(text, self.order)
        except ValueError:
            return None
        return moment if (moment.tzinfo is not None) == self.zoned else None

    def __str__(self) -> str:
        return f"ISO 8601{' with offsets' * self.zoned}" if self.order == "iso" else f"the {self.order}"


def _by_numbers(text: str, order: str) -> datetime.datetime:
    """Read a date that consists of three numbers and optionally a time; raise ValueError for any other text."""
    found = (_DATE_YEAR_FIRST if order == "year first" else _DATE).fullmatch(text)
    if found is None:
        raise ValueError
    first, separator, second, third = found.group(1, 2, 3, 4)
    if order == "year first":
        year, month, day = first, second, third
    else:
        (day, month), year = ((first, second) if order == "day first" else (second, first)), third
        if len(year) == 2 and separator != "/" and (len(first), len(second)) != (2, 2):  # 1.2.10 is a version
            raise ValueError
    century = 0 if len(year) == 4 else 1900 if int(year) >= _PIVOT else 2000
    hour, minute, second_, fraction, half = found.group(5, 6, 7, 8, 9)
    time = (_hour(hour, half), int(minute or 0), int(second_ or 0), int((fraction or "0").ljust(6, "0")))
    return datetime.datetime(century + int(year), int(month), int(day), *time)


def _hour(hour: str | None, half: str | None) -> int:
    """Return the hour of a time that may be written with a.m. or p.m."""
    hours = int(hour or 0)
    if half is None:
        return hours
    if not 1 <= hours <= 12:
        raise ValueError
    return hours % 12 + (12 if half in "pP" else 0)


_DATE_FORMS = (DateForm(), DateForm(zoned=True), *(DateForm(order) for order in _ORDERS[1:]))


def date_form(levels: Sequence[str], counts: Array) -> tuple[DateForm, bool] | None:
    """Find the form of dates, and whether day and month could be exchanged in all of them; None for other text."""
    known = np.array([not is_missing(level) for level in levels], dtype=np.bool_)
    needed = PARSEABLE * counts[known].sum()
    totals = []
    for form in _DATE_FORMS:
        fits = np.array([form.read(level) is not None for level in levels], dtype=np.bool_)
        totals.append(int(counts[fits & known].sum()))
    best = int(np.argmax(totals))
    if not totals[best] or totals[best] < needed:
        return None
    form = _DATE_FORMS[best]
    return form, form.order == "day first" and totals[best] == totals[-1]


# ---- columns ---------------------------------------------------------------------------------------------------------


def is_likely(levels: Sequence[str], values: Array, reads: Callable[[str], bool]) -> bool:
    """Whether `reads` is true for at least half of a sample of values; if not, all of them need not be read.

    `values` are codes that refer to `levels`, negative where a value is missing.
    """
    codes = values[values >= 0]
    sample = codes[:: max(1, len(codes) // _SAMPLE)].tolist()
    known = [code for code in sample if not is_missing(levels[code])]
    return not known or 2 * sum(reads(levels[code]) for code in known) >= len(known)


def may_be_number(text: str) -> bool:
    """Whether text is a number in some form."""
    return _split(text) is not None or text.strip().lower() in _INFINITE


def may_be_date(text: str) -> bool:
    """Whether text is a date in some form."""
    return any(form.read(text) is not None for form in _DATE_FORMS)
