"""What a checkpoint holds of a fit: its beginning with the centers, and its progress; checked when read from a file."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...centers import Selection
from ...sources import Rows
from ..values import ModelFileError
from .parameter import CheckpointError

Array = NDArray[Any]

_FOREIGN_CENTERS = "the checkpoint's centers do not belong to these rows: delete its folder to start afresh"


@dataclass
class Beginning:
    """What is drawn or decided once in a fit."""

    random_state: dict[str, Any]  # state of the generator before anything was drawn
    selection: dict[str, Any]  # the centers and their sample weights, as `encode_selection` returns them
    budget: int  # bytes for keeping kernel matrices
    spare: int  # bytes beyond the budget, which decide whether KRILL's factors fit
    arithmetic: str  # how products are computed, see `KernelOperator.arithmetic`: it decides the last bits
    factors: str  # precision of the factors, which depends on the memory too
    penalty: float  # may have been chosen from a sample of the rows


@dataclass
class Progress:
    """How far a fit has come."""

    state: dict[str, Any]  # the solver's state, as `Iterate.state` returns it
    last: dict[str, Any]  # the numbers of the last iterate
    history: list[dict[str, Any]]  # the records up to the last iterate
    best: Array | None = None  # the coefficients with the smallest validation error, if these are kept
    patience: dict[str, Any] | None = None  # the state of the early stopping rule, if there is one
    coef: Array | None = None  # the solution, once the fit has ended
    may_go_on: bool = False  # whether the fit ended only because of `max_iter` or a callback

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


def encode_selection(selection: Selection, weight: Array | None) -> dict[str, Any]:
    """Return centers and their sample weights as plain values; centers that are rows are stored as row numbers."""
    return {
        "points": None if selection.indices is not None else selection.points,
        "indices": selection.indices,
        "D": selection.D,
        "n_draws": selection.n_draws,
        "sampled": selection.sampled,
        "weight": weight,
    }


def decode_selection(values: Mapping[str, Any], rows: Rows) -> tuple[Selection, Array | None]:
    """Return the arguments of `encode_selection`; raise CheckpointError if it cannot be centers of these rows."""
    names = ("points", "indices", "D", "n_draws", "sampled", "weight")
    points, indices, D, n_draws, sampled, weight = map(values.get, names)
    n, d = rows.shape
    fits = _are_points(points, d) if indices is None else points is None and _are_rows(indices, n)
    if not fits:
        raise CheckpointError(_FOREIGN_CENTERS)
    centers: Any = points if indices is None else rows.take(indices)
    weighted = all(one is None or (_is_finite(one) and one.shape == centers.shape[:1]) for one in (D, weight))
    drawn = n_draws is None or (type(n_draws) is int and 1 <= n_draws < 2**63)
    if not (weighted and isinstance(sampled, bool) and drawn):
        raise CheckpointError(_FOREIGN_CENTERS)
    return Selection(centers, indices, D, n_draws, sampled), weight


def _are_rows(indices: Any, n: int) -> bool:
    whole = isinstance(indices, np.ndarray) and indices.dtype.kind == "i" and indices.ndim == 1
    return whole and len(indices) > 0 and 0 <= indices.min() <= indices.max() < n


def _are_points(points: Any, d: int) -> bool:
    # the indices of sparse points were checked as the file was read
    numbers = points.data if scipy.sparse.issparse(points) else points
    return _is_finite(numbers) and points.ndim == 2 and points.shape[0] > 0 and points.shape[1] == d


def _is_finite(value: Any) -> bool:
    return _is_floats(value) and bool(np.isfinite(value).all())


def _is_floats(value: Any) -> bool:
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
    if not (value is None or _is_floats(value)):
        raise ModelFileError(f"its {name} is not an array of numbers")
    return value


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if not (isinstance(value, Real) or _is_floats(value)):
            raise ModelFileError(f"its {name} is {reprlib.repr(value)}")
    return _Stored(values)
