"""Random samples of rows, for numbers that a part of the rows tells well enough."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .statistics import total

_MOST = 10_000
_PERMUTED = 1 << 20
_PART = 1 << 16  # number of weights that are read at a time


def draw(n: int, size: int, random_state: np.random.RandomState) -> NDArray[np.intp]:
    """Draw `size` of n rows uniformly without replacement, and return their indices sorted.

    If n is very large, no permutation of all rows is made, which would take 8 bytes for each.
    """
    if n <= _PERMUTED or 2 * size > n:
        return np.sort(random_state.choice(n, size=size, replace=False))
    drawn = np.sort(random_state.randint(n, size=size, dtype=np.intp))
    while (again := np.flatnonzero(drawn[1:] == drawn[:-1])).size:  # what was drawn twice is drawn again
        drawn[again] = random_state.randint(n, size=again.size, dtype=np.intp)
        drawn.sort()
    return drawn


class Rest:
    """The increasing numbers below n that are not among a few others, without an array of them.

    It has what an increasing array of indices is used for: slices and selections of it are arrays.

    >>> rest = Rest(6, np.array([1, 4]))
    >>> rest[:], rest[np.array([3, 0])], rest.searchsorted([2, 5])
    (array([0, 2, 3, 5]), array([5, 0]), array([1, 3]))
    """

    def __init__(self, n: int, others: NDArray[np.intp]) -> None:
        self.n, self.others = n, others
        self._places = others - np.arange(len(others))  # how many of the rest are below each of the others

    def __len__(self) -> int:
        return self.n - len(self.others)

    def __getitem__(self, at: Any) -> NDArray[np.intp]:
        if not isinstance(at, slice):
            places = np.asarray(at, dtype=np.intp)
            return np.asarray(places + np.searchsorted(self._places, places, side="right"))
        start, stop, _ = at.indices(len(self))
        if start >= stop:
            return np.empty(0, dtype=np.intp)
        first, last = self[np.array([start, stop - 1])]
        left_out = self.others[slice(*np.searchsorted(self.others, (first, last)))]
        return np.delete(np.arange(first, last + 1), left_out - first)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(np.intp if dtype is None else dtype, copy=False)

    def searchsorted(self, values: Any, side: str = "left", sorter: None = None) -> NDArray[np.intp]:
        """Return how many of the rest are below each of some values from 0 to n."""
        assert side == "left"
        return np.asarray(values - np.searchsorted(self.others, values))


def draw_by_weight(
    weight: NDArray[Any], size: int, random_state: np.random.RandomState
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Draw about `size` rows with probabilities proportional to their weights, at most 1, without replacement.

    Returns sorted indices, and weights with which sums over these rows estimate weighted sums over all rows. These
    weights are equal, except for rows so heavy that they are always drawn. Rows of weight 0 are not drawn.
    """
    if len(weight) > _PERMUTED and 2 * size <= len(weight):
        return _drawn_in_parts(weight, size, random_state)
    wide = weight[:].astype(np.float64)
    rows = np.flatnonzero(wide)
    if size >= len(rows):
        return rows, wide[rows]
    # the rate c of probabilities min(1, c w) that add up to the size; the heaviest rows are certain
    order = rows[np.argsort(-wide[rows], kind="stable")]
    rest = np.cumsum(wide[order][::-1])[::-1][:size]  # of the weights from each on
    certain = int(np.argmax(wide[order][:size] * (size - np.arange(size)) < rest))
    rate = (size - certain) / rest[certain]
    # one point in each of equal parts of the probabilities, laid out in random order
    shuffled = random_state.permutation(order[certain:])
    ends = np.cumsum(wide[shuffled]) * rate
    points = np.arange(size - certain) + random_state.uniform()
    drawn = shuffled[np.minimum(np.searchsorted(ends, points, side="right"), len(shuffled) - 1)]
    chosen = np.unique(np.concatenate([order[:certain], drawn]))
    return chosen, np.maximum(wide[chosen], 1 / rate)


def _drawn_in_parts(
    weight: NDArray[Any], size: int, random_state: np.random.RandomState
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Draw rows as `draw_by_weight` does, each by itself, without a vector of the length of the rows."""
    parts = [slice(start, min(start + _PART, len(weight))) for start in range(0, len(weight), _PART)]

    def of(at: slice) -> NDArray[np.float64]:
        return weight[at].astype(np.float64)

    certain, rest, rate = 0, total(weight), 0.0
    while certain < size and rest > 0:  # the rate c of probabilities min(1, c w) that add up to the size
        rate = (size - certain) / rest
        heavy = sum(int(np.count_nonzero(of(at) * rate >= 1)) for at in parts)
        if heavy <= certain:
            break
        certain, rest = heavy, sum(float(wide[wide * rate < 1].sum()) for wide in map(of, parts))
    rows, found = [], []
    for at in parts:
        wide = of(at)
        drawn = np.flatnonzero(random_state.uniform(size=len(wide)) < wide * rate)
        rows.append(drawn + at.start)
        found.append(wide[drawn])
    return np.concatenate(rows), np.maximum(np.concatenate(found), 1 / rate)


def sample_rows(n: int, random_state: np.random.RandomState, weight: NDArray[Any] | None = None) -> NDArray[np.intp]:
    """Return sorted indices of at most 10,000 of n rows, none of weight 0: enough to resolve a kernel's length scale.

    Nothing is drawn from `random_state` if all rows are taken.

    >>> sample_rows(4, np.random.RandomState(0), np.array([1.0, 0.0, 2.0, 1.0]))
    array([0, 2, 3])
    """
    if n > _PERMUTED and (weight is None or weight.min() > 0):
        return draw(n, _MOST, random_state)
    candidates = np.arange(n) if weight is None else np.flatnonzero(weight)
    if len(candidates) > _MOST:
        candidates = np.sort(random_state.choice(candidates, _MOST, replace=False))
    return candidates
