"""What a checkpoint holds of a fit: its beginning and its progress, and their checks when they come from a file."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..values import ModelFileError
from .parameter import CheckpointError

__all__ = ["Beginning", "Progress", "is_floats", "read_beginning", "read_progress"]

Array = NDArray[Any]


@dataclass
class Beginning:
    """What is drawn or decided once in a fit.

    Attributes
    ----------
    random_state : dict
        State of the generator before anything was drawn.
    selection : dict
        The centers and their sample weights, as `encode_selection` returns them.
    budget : int
        Bytes for keeping kernel matrices.
    spare : int
        Bytes beyond the budget, which decide whether KRILL's factors fit.
    arithmetic : str
        How products are computed, see `KernelOperator.arithmetic`: it decides the last bits.
    factors : str
        Precision of the factors, which depends on the memory too.
    penalty : float
        The penalty, which may have been chosen from a sample of the rows.
    """

    random_state: dict[str, Any]
    selection: dict[str, Any]
    budget: int
    spare: int
    arithmetic: str
    factors: str
    penalty: float


@dataclass
class Progress:
    """How far a fit has come.

    Attributes
    ----------
    state : dict
        The solver's state, as `Iterate.state` returns it.
    last : dict
        The numbers of the last iterate.
    history : list of dict
        The records up to it.
    best : array or None
        The coefficients with the smallest validation error, if these are kept.
    patience : dict or None
        The state of the early stopping rule, if there is one.
    coef : array or None
        The solution, once the fit has ended.
    may_go_on : bool
        Whether it ended only because of `max_iter` or a callback.
    """

    state: dict[str, Any]
    last: dict[str, Any]
    history: list[dict[str, Any]]
    best: Array | None = None
    patience: dict[str, Any] | None = None
    coef: Array | None = None
    may_go_on: bool = False

    def is_over(self, max_iter: int) -> bool:
        """Return whether nothing is left to do for this number of iterations."""
        return self.coef is not None and not (self.may_go_on and max_iter > self.last["iteration"])


class _Stored(dict[str, Any]):
    """Values read from a checkpoint, where a missing name is reported as damage of the file."""

    def __missing__(self, name: str) -> Any:
        raise CheckpointError(f"cannot resume: the checkpoint lacks {name!r}. Delete its folder to start afresh")


def read_beginning(values: Mapping[str, Any]) -> Beginning:
    """Check the values of a file and return them as a `Beginning`; the centers are checked by `decode_selection`."""
    beginning = Beginning(
        random_state=_of_type(dict, values, "random_state"),
        selection=_of_type(dict, values, "selection"),
        budget=_bytes(values, "budget"),
        spare=_bytes(values, "spare"),
        arithmetic=_of_type(str, values, "arithmetic"),
        factors=_of_type(str, values, "factors"),
        penalty=_of_type(float, values, "penalty"),
    )
    if beginning.factors not in ("float32", "float64"):
        raise ModelFileError(f"its factors are {reprlib.repr(beginning.factors)}")
    if not 0 <= beginning.penalty < np.inf:
        raise ModelFileError(f"its penalty is {beginning.penalty!r}")
    return beginning


def read_progress(values: Mapping[str, Any]) -> Progress:
    """Check the values of a file and return them as a `Progress`; the solver checks its own state."""
    progress = Progress(
        state=_of_type(dict, values, "state"),
        last=_numbers(_of_type(dict, values, "last")),
        history=_of_type(list, values, "history"),
        best=_floats(values, "best"),
        patience=None if values.get("patience") is None else _numbers(_of_type(dict, values, "patience")),
        coef=_floats(values, "coef"),
        may_go_on=_of_type(bool, values, "may_go_on"),
    )
    if type(progress.last.get("iteration")) is not int:
        raise ModelFileError("its last iteration has no number")
    for record in progress.history:
        if not (isinstance(record, dict) and isinstance(record.get("seconds"), Real)):
            raise ModelFileError(f"its history has a record {reprlib.repr(record)}")
    return progress


def is_floats(value: Any) -> bool:
    """Return whether a value is an array of floating-point numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _of_type(kind: type, values: Mapping[str, Any], name: str) -> Any:
    value = values.get(name)
    if not isinstance(value, kind):
        raise ModelFileError(f"its {name} is {reprlib.repr(value)}")
    return value


def _bytes(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise ModelFileError(f"its {name} is {reprlib.repr(value)}")
    return value


def _floats(values: Mapping[str, Any], name: str) -> Array | None:
    value = values.get(name)
    if not (value is None or is_floats(value)):
        raise ModelFileError(f"its {name} is not an array of numbers")
    return value


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if not (isinstance(value, Real) or is_floats(value)):
            raise ModelFileError(f"its {name} is {reprlib.repr(value)}")
    return _Stored(values)
