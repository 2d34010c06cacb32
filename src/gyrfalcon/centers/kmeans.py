"""Centers by the seeding of k-means++."""

from __future__ import annotations

import numpy as np

from .._utils.registry import register
from .base import Choice, KernelSelector
from .leverage import Scoring
from .sampling import ROUNDING, draw, pool_size, weights_by_share


@register
class KMeansPlusPlus(KernelSelector):
    """Seeds of k-means++: each center is drawn in proportion to its squared distance from earlier centers.

    The distance is that of the kernel's feature space, k(x, x) + k(z, z) - 2 k(x, z). It is cheap and the centers cover
    the data, but it does not measure how well they explain it.

    Parameters
    ----------
    max_rows : int, optional
        Size of the uniform sample of rows to choose from; 20,000 or 20 times the number of centers by default,
        whichever is larger.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.centers import KMeansPlusPlus
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> model = FalkonRegressor(centers=KMeansPlusPlus(), n_centers=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.centers_.shape
    (50, 2)
    """

    def __init__(self, max_rows: int | None = None) -> None:
        self.max_rows = max_rows

    def _pool_size(self, M: int, n: int) -> int:
        return pool_size(self.max_rows, M, n)

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> Choice:
        places = scoring.indices(self._pool_size(M, scoring.n))
        pool = scoring.pool[places]
        operator = scoring.operator(pool)
        diagonal = scoring.diagonal(pool)
        least = ROUNDING * float(np.abs(diagonal).max())
        distance = np.full(len(diagonal), np.inf)
        nearest = np.zeros(len(diagonal), dtype=np.intp)
        chosen = [int(scoring.random_state.randint(len(diagonal)))]
        while True:
            c = chosen[-1]
            ((_, K),) = operator.on(pool[c : c + 1]).blocks()
            new = diagonal + diagonal[c] - 2 * K[0]
            new[c] = 0.0
            closer = new < distance
            nearest[closer] = len(chosen) - 1
            distance = np.minimum(distance, new)
            distance[distance <= least] = 0.0
            if len(chosen) == M or not distance.any():
                break
            chosen.extend(draw(scoring.random_state, distance, 1).tolist())
        return Choice(places[chosen], weights_by_share(nearest, len(chosen)), len(chosen), False)
