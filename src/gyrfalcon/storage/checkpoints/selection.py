"""The chosen centers of a fit as values of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...centers import Selection
from ...sources import Rows
from .parameter import CheckpointError
from .state import is_floats

__all__ = ["decode_selection", "encode_selection"]

Array = NDArray[Any]

_DAMAGED = "the checkpoint's centers do not belong to these rows: delete its folder to start afresh"


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
    """Return what `encode_selection` was given.

    Raises
    ------
    CheckpointError
        If the values cannot be centers of these rows.
    """
    names = ("indices", "D", "n_draws", "sampled", "weight")
    indices, D, n_draws, sampled, weight = (values.get(name) for name in names)
    points = _points(values.get("points"), indices, rows)
    if not all(array is None or (is_floats(array) and array.shape == points.shape[:1]) for array in (D, weight)):
        raise CheckpointError(_DAMAGED)
    finite = all(array is None or np.isfinite(array).all() for array in (D, weight))
    drawn = n_draws is None or (type(n_draws) is int and 1 <= n_draws < 2**63)
    if not (finite and isinstance(sampled, bool) and drawn):
        raise CheckpointError(_DAMAGED)
    return Selection(points, indices, D, n_draws, sampled), weight


def _points(points: Any, indices: Any, rows: Rows) -> Any:
    n, d = rows.shape
    if indices is not None:
        whole = isinstance(indices, np.ndarray) and indices.dtype.kind == "i" and indices.ndim == 1
        if not (whole and len(indices) and 0 <= indices.min() <= indices.max() < n and points is None):
            raise CheckpointError(_DAMAGED)
        return rows.take(indices)
    # the indices of sparse points were checked as the file was read
    if not (scipy.sparse.issparse(points) or is_floats(points)):
        raise CheckpointError(_DAMAGED)
    if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] != d or points.dtype.kind != "f":
        raise CheckpointError(_DAMAGED)
    if not np.isfinite(points.data if scipy.sparse.issparse(points) else points).all():
        raise CheckpointError(_DAMAGED)
    return points
