"""Centers by a determinantal point process."""

from __future__ import annotations

from .._utils.registry import register
from .base import Choice, KernelSelector
from .determinantal import spectral_sample
from .leverage import Scoring
from .sampling import pool_size, voronoi_weights

_POOL = 2_000


@register
class KDPP(KernelSelector):
    """Rows with probability proportional to the determinant of their kernel matrix, of all sets of that size.

    Rows that are alike make the determinant small, so that centers keep away from each other. They are an exact sample
    of the determinantal point process on a uniform pool of rows, which takes the eigenvectors of the pool's kernel
    matrix. If fewer than `n_centers` rows are independent up to rounding, as many as are independent are returned.

    Parameters
    ----------
    max_rows : int, optional
        Size of the pool: time grows with its cube and memory with its square. By default 2,000 or twice the number of
        centers, whichever is larger.

    See Also
    --------
    gyrfalcon.sample_dpp : Samples among all rows, for some hundred of them.
    RPCholesky : Nearly as diverse, and much cheaper for many centers.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.centers import KDPP
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> model = FalkonRegressor(centers=KDPP(), n_centers=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.centers_.shape
    (50, 2)
    """

    def __init__(self, max_rows: int | None = None) -> None:
        self.max_rows = max_rows

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> Choice:
        size = pool_size(max(_POOL, 2 * M) if self.max_rows is None else self.max_rows, M, scoring.n)
        pool = scoring.indices(size)
        points = scoring.rows.take(pool)
        chosen = spectral_sample(scoring, points, M)
        return Choice(pool[chosen], voronoi_weights(scoring, points, chosen), len(chosen), False)
