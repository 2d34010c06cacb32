"""Scores of rows that a model has not seen, and the quantile of them that intervals and sets of a coverage need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from .._utils.checks import array, number
from .._utils.registry import register
from ..sources import as_source
from ..sources.rereading import checked_rows
from .rows import computed
from .targets import held_out, sortable_labels
from .weights import count

Array = NDArray[Any]
Vectors = NDArray[np.float64]

MOST_SCORES = 10_000  # maximum number of scores; their coverage is then known to 0.3%

COVERAGE = number(lambda x: 0 < x < 1, "between 0 and 1, both excluded")


@register
@dataclass(frozen=True, eq=False)
class Conformity:
    """Sorted scores of rows that a model has not seen; a larger score means a worse prediction.

    scores : array of shape (m, k), increasing in each column
    weights : positive sample weights of mean 1 in the order of the scores, or None
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

        It is the ceil((m + 1) coverage)-th of the m scores: the new row counts as one more, whose score is unknown.
        """
        COVERAGE("coverage", coverage)
        m = len(self.scores)
        rank = (m + 1) * coverage * (1 - 1e-12)  # allows for rounding
        if self.weights is None:
            at = np.full(self.scores.shape[1], math.ceil(rank) - 1)
        else:
            at = (np.cumsum(self.weights, axis=0) < rank).sum(axis=0)
        if at.max() >= m:
            raise ValueError(
                f"coverage={coverage!r} needs at least {math.ceil(coverage / (1 - coverage) * (1 - 1e-12))} held-out "
                f"rows, and there are {m}: ask for less, or give more rows"
            )
        found: Vectors = np.take_along_axis(self.scores, at[None], axis=0)[0]
        if not np.isfinite(found).all():
            raise ValueError(
                f"coverage={coverage!r} requires infinite intervals: the model would fit too many single rows exactly "
                "for any y; raise the penalty, or give more rows"
            )
        return found

    def accepted(self, scores: ArrayLike, coverage: float) -> NDArray[np.bool_]:
        """Return which scores a new row stays below with the given probability."""
        return np.asarray(np.asarray(scores) <= self.quantile(coverage))


@dataclass(frozen=True)
class Part:
    """Some rows, with their targets and sample weights.

    `biased` marks the calibration rows that are also used for learning; they get the largest possible score.
    """

    X: Any
    y: Array
    weight: Array | None
    biased: NDArray[np.bool_] | None = None


def hold_out(
    X: Any,
    y: Array,
    sample_weight: ArrayLike | None,
    X_val: Any,
    y_val: Array | None,
    share: float,
    random_state: np.random.RandomState,
    *,
    every_class: bool = False,
) -> tuple[Part, Part]:
    """Return the rows to learn from and the calibration rows: the validation rows, or a random `share` of X.

    Rows of weight 0 are in neither part. With `every_class`, y holds classes: if all rows of a class have been drawn
    for calibration, a random one of them is also learnt. It keeps its place in the calibration rows with the largest
    possible score, so that the coverage holds: all other calibration rows and a new row are exchangeable, and a score
    that is too large only makes sets larger.
    """
    # sparse matrices are sliced by scikit-learn, so that any model takes them
    source = None if scipy.sparse.issparse(X) else as_source(X)
    source = None if source is None else checked_rows(source)  # it is read for learning and for calibration
    rows = indexable(X)[0] if source is None else source
    check_consistent_length(rows, y)
    given = computed(sample_weight, source)
    positions = count(given, len(y)).positions
    # not normalised, because other models may depend on the size of weights
    weight = None if given is None else np.broadcast_to(np.asarray(given, dtype=np.float64), len(y))

    def part(indices: Array, biased: Array | None = None) -> Part:
        some = _safe_indexing(rows, indices) if source is None else source.subset(indices)
        return Part(some, y[indices], None if weight is None else weight[indices], biased)

    candidates = np.arange(len(y)) if positions is None else positions
    if every_class:
        check_classification_targets(sortable_labels(y[candidates], "y"))
    if X_val is not None:
        assert y_val is not None
        check_consistent_length(X_val, y_val)
        return Part(X, y, weight) if positions is None else part(positions), Part(X_val, y_val, None)
    size = held_out(len(candidates), share, "more rows")
    held = np.zeros(len(candidates), dtype=bool)
    held[random_state.choice(len(candidates), size, replace=False)] = True
    both = np.zeros(len(candidates), dtype=bool)
    if every_class:
        _, codes = np.unique(y[candidates], return_inverse=True)
        for code in np.flatnonzero(np.bincount(codes, weights=~held) == 0):
            both[random_state.choice(np.flatnonzero(codes == code))] = True
    return part(candidates[~held | both]), part(candidates[held], both[held])
