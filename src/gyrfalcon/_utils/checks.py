"""Checks of values: functions of a name and a value that raise a ValueError which says what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .words import a, listed, shown

Rule = Callable[[str, Any], None]


def integer(least: int, most: int | None = None, words: str = "") -> Rule:
    """An integer of at least `least` and at most `most`; `words` describe it in the message."""
    if not words:
        words = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"

    def check(name: str, value: Any) -> None:
        is_integer = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_integer or value < least or (most is not None and value > most):
            raise ValueError(f"{name}={shown(value)} must be {words}")

    return check


def number(holds: Callable[[float], bool], words: str) -> Rule:
    """A real number for which `holds` is true."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, Real) or not holds(float(value)):
            raise ValueError(f"{name}={shown(value)} must be {words}")

    return check


def numbers(holds: Callable[[float], bool], words: str, *, empty: bool = False, scalar: bool = False) -> Rule:
    """A list of real numbers for which `holds` is true; it may be `empty`, or a `scalar` in place of a list."""

    def check(name: str, value: Any) -> None:
        try:
            given = np.asarray(value)
            given = given.astype(np.float64) if given.dtype.kind in "fiuO" else np.array(np.nan)
        except (TypeError, ValueError):
            given = np.array(np.nan)
        fits = given.ndim == 1 or (scalar and given.ndim == 0)
        inside = holds(float(given.min())) and holds(float(given.max())) if given.size else empty
        if not (fits and inside):
            raise ValueError(f"{name}={shown(value)} must be {words}")

    return check


def one_of(*choices: Any) -> Rule:
    """One of a few strings (or None)."""

    def check(name: str, value: Any) -> None:
        if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
            raise ValueError(f"{name}={shown(value)} must be one of {listed(choices, None)}")

    return check


def optional(rule: Rule, instead: Any = None) -> Rule:
    """What `rule` allows, or `instead`."""

    def check(name: str, value: Any) -> None:
        if not (value is instead or (isinstance(value, str) and value == instead)):
            rule(name, value)

    return check


def positive(words: str = "a finite number greater than 0") -> Rule:
    """A finite number greater than 0."""
    return number(lambda x: 0 < x < math.inf, words)


def not_negative(words: str = "a finite number, not negative") -> Rule:
    """A finite number of at least 0."""
    return number(lambda x: 0 <= x < math.inf, words)


def boolean(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}={shown(value)} must be True or False")


def array(shape: tuple[int | None, ...], dtype: DTypeLike = np.float64, *, finite: bool = True) -> Rule:
    """An array of a dtype and a shape, in which None is any length; if `finite`, without NaN and infinity."""

    def check(name: str, value: Any) -> None:
        wanted = f"{name} must be an array of {np.dtype(dtype)} of shape {shape}"
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{wanted}, not {'None' if value is None else a(type(value).__name__)}")
        fits = value.ndim == len(shape) and all(map(lambda size, want: want in (size, None), value.shape, shape))
        if not fits or value.dtype != dtype:
            raise ValueError(f"{wanted}, not one of {value.dtype} of shape {value.shape}")
        if finite and not np.isfinite(value).all():
            raise ValueError(f"{name} holds NaN or infinity")

    return check


def float_dtype(name: str, value: Any) -> None:
    """A name of float32 or float64."""
    try:
        dtype = None if value is None else np.dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or dtype not in (np.float32, np.float64):
        raise ValueError(f'{name}={shown(value)} must be "auto", "float32" or "float64"')
