"""Random generators restored from a state that a file may hold."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from .checks import array, integer, number

_KEYS = 624  # 32-bit words of MT19937

_is_key = array((_KEYS,), np.uint32)
_is_position = integer(0, _KEYS)
_is_flag = integer(0, 1)
_is_gauss = number(math.isfinite, "a finite number")


def restored(state: Any) -> np.random.RandomState:
    """Return a generator in the state that ``RandomState.get_state`` returned, as a tuple or as a dict.

    NumPy does not check the position of MT19937, and a position outside the keys then reads and writes outside their
    memory, so all parts of the state are checked here; a ValueError is raised for anything else.
    """
    name, keys, position, has_gauss, gauss = _parts(state)
    if name != "MT19937":
        raise ValueError(f"a random state is one of {reprlib.repr(name)} and not of MT19937")
    if not isinstance(keys, np.ndarray):
        raise ValueError("the keys of a random state must be an array")
    _is_key("the keys of a random state", keys)
    _is_position("the position of a random state", position)
    _is_flag("the flag has_gauss of a random state", has_gauss)
    _is_gauss("the number gauss of a random state", gauss)
    if not keys.any():
        raise ValueError("the keys of a random state are all zero, from which MT19937 draws zeros alone")
    generator = np.random.RandomState(0)
    generator.set_state((name, np.ascontiguousarray(keys), int(position), int(has_gauss), float(gauss)))
    return generator


def _parts(state: Any) -> tuple[Any, ...]:
    """Return name, keys, position, flag and Gaussian number of a state in either form."""
    if isinstance(state, tuple) and len(state) == 5:
        return state
    if isinstance(state, Mapping) and isinstance(inner := state.get("state"), Mapping):
        outer = (state.get("bit_generator"), inner.get("key"), inner.get("pos"))
        return *outer, state.get("has_gauss"), state.get("gauss")
    raise ValueError(f"{reprlib.repr(state)} is not the state of a random generator")
