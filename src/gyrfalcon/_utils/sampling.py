"""Random samples of rows, for numbers that a part of the rows tells well enough."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST = 10_000
_PERMUTED = 1 << 20


def draw(n: int, size: int, random_state: np.random.RandomState) -> NDArray[np.intp]:
    """Draw `size` of n rows uniformly without replacement, and return their indices sorted.

    Of very many rows they are drawn without a permutation of all, which takes 8 bytes for each.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.sampling import draw
    >>> draw(10, 3, np.random.RandomState(0))
    array([2, 4, 8])
    """
    if n <= _PERMUTED or 2 * size > n:
        return np.sort(random_state.choice(n, size=size, replace=False))
    drawn = np.sort(random_state.randint(n, size=size, dtype=np.intp))
    while (again := np.flatnonzero(drawn[1:] == drawn[:-1])).size:  # what was drawn twice is drawn again
        drawn[again] = random_state.randint(n, size=again.size, dtype=np.intp)
        drawn.sort()
    return drawn


def sample_rows(n: int, random_state: np.random.RandomState, weight: NDArray[Any] | None = None) -> NDArray[np.intp]:
    """Return sorted indices of at most 10,000 of n rows, none of weight 0: enough to resolve a kernel's length scale.

    Nothing is drawn from `random_state` if all rows are taken.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.sampling import sample_rows
    >>> sample_rows(4, np.random.RandomState(0), np.array([1.0, 0.0, 2.0, 1.0]))
    array([0, 2, 3])
    """
    candidates = np.arange(n) if weight is None else np.flatnonzero(weight)
    if len(candidates) > _MOST:
        candidates = np.sort(random_state.choice(candidates, _MOST, replace=False))
    return candidates
