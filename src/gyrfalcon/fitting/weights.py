"""Sample weights: which rows count, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from ..sources import Rows
from ..sources.columns import Vector

Array = NDArray[Any]


@dataclass(frozen=True)
class Counted:
    """The rows of positive weight; a fit leaves out the others before it looks at any of them.

    n_given : number of rows, including those of weight 0
    positions : sorted indices of the rows of positive weight, or None for all rows
    weight : their weights, at most 1, or None if they are equal

    >>> counted = count([2.0, 0.0, 1.0], 3)
    >>> counted.weight, counted.among(np.array([7, -999, 8]))
    (array([1. , 0.5]), array([7, 8]))
    """

    n_given: int
    positions: NDArray[np.intp] | None = None
    weight: Array | None = None

    def among(self, values: Array) -> Array:
        """Return the entries of these rows of an array with an entry for each row that was given."""
        return values if self.positions is None else values[self.positions]

    def rows(self, rows: Rows) -> Rows:
        """Return these rows of a source."""
        return rows if self.positions is None else rows.subset(self.positions)

    def spread(self, values: Array, others: Any) -> Array:
        """Return an array with an entry for each row that was given; rows of weight 0 get `others`."""
        if self.positions is None:
            return values
        whole = np.empty((self.n_given, *values.shape[1:]), dtype=values.dtype)
        whole[self.left_out] = others
        whole[self.positions] = values
        return whole

    @property
    def left_out(self) -> NDArray[np.intp]:
        """Rows of weight 0."""
        if self.positions is None:
            return np.empty(0, dtype=np.intp)
        out = np.ones(self.n_given, dtype=bool)
        out[self.positions] = False
        return np.flatnonzero(out)

    def then(self, more: Counted) -> Counted:
        """Return the rows that count if only some of these rows do."""
        if self.positions is None or more.positions is None:
            positions = self.positions if more.positions is None else more.positions
        else:
            positions = self.positions[more.positions]
        return Counted(self.n_given, positions, more.weight)


def count(sample_weight: Any, n: int) -> Counted:
    """Return which of n rows count, and how much; no weight may be negative, and not all may be zero."""
    if sample_weight is None:
        return Counted(n)
    if isinstance(sample_weight, Vector):  # of positive numbers, which were checked
        if len(sample_weight) != n:
            raise ValueError(f"sample_weight has {len(sample_weight)} numbers, and X has {n} rows: they must be equal")
        largest = sample_weight.max()
        relative: Any = sample_weight / largest
        return Counted(n, None, None if sample_weight.min() == largest else relative)
    of_each = np.broadcast_to(0.0, (n, 1))
    weight = _check_sample_weight(sample_weight, of_each, dtype=np.float64, ensure_non_negative=True)
    if not weight.max() > 0:
        raise ValueError("sample_weight is zero for every row: at least one row must count")
    weight = weight / weight.max()  # so that no sum of them overflows
    kept = np.flatnonzero(weight)
    positions = None if len(kept) == n else kept
    weight = weight if positions is None else weight[positions]
    return Counted(n, positions, None if weight.min() == 1 else weight)
