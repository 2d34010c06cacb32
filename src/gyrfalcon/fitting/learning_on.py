"""Learning on: batches of rows that a fitted regressor takes in, or forgets, without the rows it has learnt before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .._utils.checks import integer, number
from .._utils.warnings import warn
from ..operators import Operator
from ..solvers.running_sums import RunningSums, empty_sums, find_novel
from ..sources import Rows
from .data import FitData
from .rows import Features, Reading, classify, labelled, more_rows, scaled
from .targets import check_y, number_columns
from .weights import count

Array = NDArray[Any]

FORGETTING_FACTOR = number(lambda x: 0 < x <= 1, "a number above 0 and at most 1")
MOST_NEW_CENTERS = integer(0)

# Share of k(x, x) that no center represents, from which on a row may become a center
NOVEL = 0.1
# Share of the penalty that rounding may make up, from which on a warning is given
_ROUNDED = 0.01


@dataclass(frozen=True)
class Batch:
    """Rows that were given to a fitted regressor, as its kernel sees them.

    targets : of shape (n, k)
    weight : of shape (n,), in the units in which they were given, or None for 1
    """

    rows: Rows
    targets: Array
    weight: Array | None


@dataclass(frozen=True)
class Scaling:
    """How a fitted estimator scales features: means and standard deviations, or None, and its precision."""

    mean: Array | None
    scale: Array | None
    dtype: np.dtype[Any]


def read_batch(
    reading: Reading, features: Features, scaling: Scaling, n_outputs: int, X: Any, y: Any, sample_weight: Any
) -> Batch:
    """Check the arguments of `partial_fit`; rows of weight 0 are left out."""
    X, y, sample_weight = labelled(X, y, sample_weight)
    given = classify(X, y, sample_weight, device=reading.device)
    rows = more_rows(reading, features, given.X, standardised=scaling.scale is not None)
    y = check_y(given.y, rows.shape[0], reading.owner, multi_output=True, y_numeric=True)
    counted = count(given.weight, rows.shape[0])
    targets = number_columns(counted.among(y))
    if targets.shape[1] != n_outputs:
        raise ValueError(f"y has {targets.shape[1]} columns, and {reading.owner} was fitted to {n_outputs}")
    rows = scaled(counted.rows(rows), scaling.mean, scaling.scale, scaling.dtype)
    return Batch(rows, targets.astype(np.float64), _in_units(counted.weight, given.weight, len(targets)))


def begin_sums(operator: Operator, data: FitData, penalty: float, sample_weight: Any) -> RunningSums:
    """Return the sums over the rows of a fit, which take one pass of n M^2 operations."""
    origin = np.zeros(data.targets.shape[1]) if data.offset is None else np.asarray(data.offset, dtype=np.float64)
    weight = None if data.counted is None else data.counted.weight
    if weight is not None and data.kept is not None:
        weight = weight[np.asarray(data.kept)]
    weight = _in_units(weight, sample_weight, len(data.targets))
    return empty_sums(operator, origin, penalty).changed(operator, data.targets, weight)


def _in_units(weight: Array | None, given: Any, n: int) -> Array | None:
    """Return weights in the units in which they were given; `weight` is relative to the largest."""
    if given is None:
        return None
    largest = float(np.max(given))
    return np.full(n, largest) if weight is None else weight * largest


def learn(sums: RunningSums, operator: Operator, batch: Batch, forgetting_factor: float) -> RunningSums:
    """Return the sums with a batch added, after the weights of all earlier rows were multiplied by a factor."""
    return sums.faded(forgetting_factor).changed(operator, batch.targets - sums.origin, batch.weight)


def forget(sums: RunningSums, operator: Operator, batch: Batch) -> RunningSums:
    """Return the sums with a batch taken away."""
    left = sums.changed(operator, batch.targets - sums.origin, batch.weight, sign=-1.0)
    if left.rounding > _ROUNDED:
        warn(
            "most of what was learnt has been forgotten, and rounding errors of the rows that are gone reach "
            f"{left.rounding:.1%} of the penalty: fit the rows that remain again, or use a larger penalty",
            RuntimeWarning,
        )
    return left


def add_centers(sums: RunningSums, centers: Any, operator: Operator, most: int) -> tuple[RunningSums, Any] | None:
    """Return sums and centers with rows of a batch as further centers, or None if the centers represent all rows."""
    found = find_novel(sums, operator, most, NOVEL) if most else None
    if found is None:
        return None
    points = operator.rows.take(found.positions)
    stack = scipy.sparse.vstack if scipy.sparse.issparse(centers) else np.vstack
    more = stack([centers, points.astype(centers.dtype, copy=False)])
    return sums.extended(found), more
