"""Centers by randomly pivoted Cholesky factorisation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from .._utils.checks import integer, optional
from .._utils.registry import register
from .._utils.threads import effective_n_jobs, share
from .base import Choice, KernelSelector
from .leverage import Array, Indices, Scoring, require_matrix, zero_scores_error
from .sampling import ROUNDING, draw, pool_size, voronoi_weights

_COLUMNS = 2_048  # rows of the pool from which centers are eliminated at once, so that temporaries stay in the cache


@register
class RPCholesky(KernelSelector):
    """Randomly pivoted Cholesky: each center is drawn in proportion to what earlier centers leave unexplained.

    There is no penalty and nothing to tune; the trace of K_nn minus its Nyström approximation is close to the best that
    M centers can reach (Chen, Epperly, Tropp, Webber 2025). No two centers are nearly the same; if fewer than
    `n_centers` explain everything up to rounding in float64, only those are returned.

    Parameters
    ----------
    accelerated : bool
        Whether to draw a block of candidates at once and reject some of them, which gives the same distribution by
        matrix products (Epperly, Tropp, Webber 2024). One center at a time is several times slower.
    block_size : int, optional
        Number of candidates drawn at once; a tenth of the number of centers by default.
    max_rows : int, optional
        Size of the uniform sample of rows to choose from. By default 20,000 or 20 times the number of centers,
        whichever is larger, or what fits in a quarter of the available memory: M numbers are stored for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.centers import RPCholesky
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> model = FalkonRegressor(centers=RPCholesky(), n_centers=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.centers_.shape
    (50, 2)
    """

    def __init__(self, accelerated: bool = True, block_size: int | None = None, max_rows: int | None = None) -> None:
        self.accelerated = accelerated
        self.block_size = block_size
        self.max_rows = max_rows

    def _pool_size(self, M: int, n: int) -> int:
        return pool_size(self.max_rows, M, n, numbers_a_row=M)

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> Choice:
        optional(integer(1))("block_size", self.block_size)
        block = max(10, M // 10) if self.block_size is None else int(self.block_size)
        places = scoring.indices(self._pool_size(M, scoring.n))
        points = scoring.pool[places]
        require_matrix(M, points.shape[0], "use a smaller max_rows or fewer centers")
        chosen = rp_cholesky(scoring, points, M, block if self.accelerated else 1)
        return Choice(places[chosen], voronoi_weights(scoring, points, chosen), len(chosen), False)


def rp_cholesky(scoring: Scoring, pool: Any, M: int, block: int) -> Indices:
    """Draw up to M pivots, `block` candidates at a time, and return their positions in `pool` in the order drawn.

    Algorithm 2.2 of "Embrace rejection: kernel matrix approximation by accelerated randomly pivoted Cholesky"; a block
    of one is plain RPCholesky.
    """
    random, n_threads = scoring.random_state, effective_n_jobs(scoring.n_jobs)
    operator = scoring.operator(pool)
    diagonal = np.maximum(scoring.diagonal(pool), 0.0)
    d = diagonal.copy()
    G = np.empty((M, len(d)))  # K[pool, pool] is approximately G'G
    columns = [slice(start, start + _COLUMNS) for start in range(0, len(d), _COLUMNS)]
    chosen: list[int] = []
    while len(chosen) < M and d.any():
        i = len(chosen)
        drawn = draw(random, d, min(block, 2 * (M - i)))
        blocks = list(operator.on(pool[drawn]).blocks())  # K[drawn, :]
        H = np.vstack([K[:, drawn] for _, K in blocks]) - G[:i, drawn].T @ G[:i, drawn]
        least = ROUNDING * diagonal[drawn]
        exhausted = drawn[H.diagonal() <= least]  # d, which accumulates rounding errors, may still be positive there
        accepted, L = _accept(random, H, d[drawn], least)
        accepted, L = accepted[: M - i], L[: M - i, : M - i]
        S = drawn[accepted]
        if len(S):
            j = i + len(S)
            for at, K in blocks:
                here = slice(*np.searchsorted(accepted, [at.start, at.stop]))
                G[i:j][here] = K[accepted[here] - at.start]
            eliminate = partial(_eliminate, G[:i], G[i:j], G[:i, S], L, d)
            share(eliminate, columns, n_threads)
            chosen.extend(S.tolist())
        d[S] = d[exhausted] = 0.0
        d[d <= ROUNDING * diagonal] = 0.0
    if not chosen:
        raise zero_scores_error(scoring.kernel)
    return np.array(chosen, dtype=np.intp)


def _eliminate(known: Array, new: Array, pivots: Array, L: Array, d: Array, at: slice) -> None:
    """Replace K[S, at] in `new` by L^-1 (K[S, at] - G[:, S]' G[:, at]), and subtract its squares from `d`."""
    part = new[:, at] - pivots.T @ known[:, at]
    new[:, at] = solve_triangular(L, part, lower=True, check_finite=False, overwrite_b=True)
    d[at] -= np.einsum("ij,ij->j", new[:, at], new[:, at])


def _accept(random: np.random.RandomState, H: Array, u: Array, least: Array) -> tuple[Indices, Array]:
    """Return candidates accepted with the probability of being drawn next, and the Cholesky factor of H at them."""
    accepted: list[int] = []
    columns = []
    chance = random.random_sample(len(u)) * u
    for j in range(len(u)):
        if H[j, j] > max(chance[j], least[j]):
            column = H[:, j] / np.sqrt(H[j, j])
            H -= np.outer(column, column)
            accepted.append(j)
            columns.append(column)
    L = np.array(columns).T[accepted] if accepted else np.empty((0, 0))
    return np.array(accepted, dtype=np.intp), L
