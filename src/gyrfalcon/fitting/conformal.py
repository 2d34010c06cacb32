"""Scores of rows that a model has not seen, and the quantile of them that intervals and sets of a coverage need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import array, number
from .._utils.registry import register

Array = NDArray[Any]
Vectors = NDArray[np.float64]

MOST_SCORES = 10_000  # with which the coverage is known to 0.3%

COVERAGE = number(lambda x: 0 < x < 1, "between 0 and 1, both excluded")


@register
@dataclass(frozen=True, eq=False)
class Conformity:
    """Sorted scores of rows that a model has not seen: the larger, the less a row is what the model foresaw.

    Attributes
    ----------
    scores : ndarray of shape (m, k), float64
        Increasing in each column.
    weights : ndarray of shape (m, k), float64, or None
        Sample weights in the order of the scores, of mean 1; positive.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.fitting.conformal import Conformity
    >>> Conformity.of(np.arange(1.0, 20.0)[::-1, None]).quantile(0.9)
    array([18.])
    """

    scores: Vectors
    weights: Vectors | None = None

    def __post_init__(self) -> None:
        array((None, None), finite=False)("scores", self.scores)
        if not len(self.scores) or not (self.scores[1:] >= self.scores[:-1]).all():
            raise ValueError("scores are not sorted, or there are none")
        if self.weights is not None:
            array(self.scores.shape)("weights", self.weights)
            if not (self.weights > 0).all():
                raise ValueError("weights holds numbers that are not positive")

    @classmethod
    def of(cls, scores: Array, weight: Array | None = None) -> Conformity:
        """Sort the scores, of shape (m, k), of rows with positive weights, of shape (m,)."""
        order = np.argsort(scores, axis=0, kind="stable")
        ordered = np.take_along_axis(scores, order, axis=0)
        return cls(ordered, None if weight is None else (weight / weight.mean())[order])

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return what a model file holds."""
        return dict(vars(self))

    def quantile(self, coverage: float) -> Vectors:
        """Return the score that a new row stays below with the given probability, of shape (k,).

        It is the ceil((m + 1) coverage)-th of the m scores: the new row is one more, whose own score may be any.
        """
        COVERAGE("coverage", coverage)
        m = len(self.scores)
        rank = (m + 1) * coverage * (1 - 1e-12)  # but for rounding
        if self.weights is None:
            at = np.full(self.scores.shape[1], math.ceil(rank) - 1)
        else:
            at = (np.cumsum(self.weights, axis=0) < rank).sum(axis=0)
        if at.max() >= m:
            raise ValueError(
                f"coverage={coverage!r} needs at least {math.ceil(coverage / (1 - coverage) * (1 - 1e-12))} rows that "
                f"judge, and there are {m}: ask for less, or give more rows"
            )
        found: Vectors = np.take_along_axis(self.scores, at[None], axis=0)[0]
        if not np.isfinite(found).all():
            raise ValueError(
                f"coverage={coverage!r} asks for infinite intervals: the model follows too many single rows whatever "
                "their y; raise the penalty"
            )
        return found
