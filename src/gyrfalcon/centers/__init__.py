"""Who may be a center.

A selector chooses the M points that stand for all rows. It gives a `Selection`: the points, where they came from, and
the weights D that the preconditioner needs so that K_MM D^2 K_MM / M estimates K'K / n (Definition 2 of the FALKON
paper's appendix).

=================== ================================================================= =================================
selector            a row is chosen                                                   cost
=================== ================================================================= =================================
`Uniform`           like any other                                                    none
`LeverageScores`    in proportion to how much it decides its own prediction           n m^2, m rows of a pilot
`Bless`             the same, scored in a pool that does not grow with n              pool x M^2
`RPCholesky`        in proportion to what the centers before it leave unexplained     pool x M^2, pool x M memory
`KMeansPlusPlus`    in proportion to its squared distance from the centers before it  pool x M
=================== ================================================================= =================================

The first three draw with known probabilities, so that D makes the estimate unbiased. The last two choose rows that
repel each other, and no probability is known; their D_jj^2 is M times the share of the rows that center j is the
nearest of, as if each row were moved to its center. With 300 centers (one seed) on data with rare clusters FALKON was
then within 2% of its final test error after 5 iterations, where D = 1 took more than 20 (RPCholesky) and more than 10
(k-means++); on California housing and with a Laplacian kernel it saved a few iterations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigvalsh, solve_triangular
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from .._utils.memory import available_memory
from .._utils.registry import register
from .._utils.threads import effective_n_jobs, share
from ..kernels import Kernel, KernelFunction
from ..operators.dense import as_points
from ..sources import Rows, as_rows, is_sparse
from .leverage import RandomState, Scoring, check_count, check_memory, no_scores

__all__ = [
    "Bless",
    "Centers",
    "Given",
    "KMeansPlusPlus",
    "LeverageScores",
    "RPCholesky",
    "Selection",
    "Uniform",
    "as_centers",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
AnyKernel = Kernel | str | KernelFunction

# Scores are taken where the effective dimension is about this share of M. A tenth is cheaper but less accurate: with 20
# rare clusters the test error of BLESS was 0.084 instead of 0.057 with 100 centers, 0.030 instead of 0.025 with 400.
_DIMENSION = 0.5
_SPECTRUM_ROWS = 2_000
_LEAST_PENALTY = 1e-12  # of the largest k(x, x): below it, a float64 factorisation sees no penalty
_ROUNDING = 1e-12  # of k(x, x): what remains of a row that is the same as a center
_POOL = 20_000
_COLUMNS = 2_048  # rows of the pool that RPCholesky eliminates centers from at once


@dataclass(frozen=True)
class Selection:
    """Chosen centers.

    Attributes
    ----------
    points : array of shape (M, d)
    indices : array of shape (M,), or None
        The rows they are; None if they are not rows.
    D : array of shape (M,), or None
        Sampling weights; None is 1 for each, right for uniform sampling.
    n_draws : int, or None
        How many were drawn, where duplicates among them were merged; None is M.
    sampled : bool
        Whether the points were drawn with known probabilities, so that K_MM D^2 K_MM / n_draws estimates K'K / n.
        Where it is False the estimate may be poor, and a preconditioner that looks at the rows is the safer one.
    """

    points: NDArray[Any]
    indices: Indices | None = None
    D: Array | None = None
    n_draws: int | None = None
    sampled: bool = True


class Centers(Protocol):
    """What chooses centers."""

    def select(
        self,
        rows: Rows | ArrayLike,
        n_centers: int,
        *,
        kernel: AnyKernel,
        penalty: float,
        candidates: Indices | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> Selection:
        """Choose centers.

        Parameters
        ----------
        rows : source, or array of shape (n, d)
        n_centers : int
            M. All candidates are chosen if there are no more than that.
        kernel : Kernel, str or callable
            Parameters given as "scale" are worked out from some of the rows.
        penalty : float
            lambda of the estimator.
        candidates : array of int, optional
            The rows that may be centers, and that count; all by default.
        random_state : int, RandomState or None
        n_jobs : int or None
            Threads; None is every core.

        Returns
        -------
        Selection
            At most `n_centers` points: fewer where more would be the same again.
        """
        ...


@register
class Uniform(BaseEstimator):  # type: ignore[misc]
    """Rows drawn uniformly without replacement, in the order of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.centers import Uniform
    >>> Uniform().select(np.arange(10.0)[:, None], 3, random_state=0).indices
    array([2, 4, 8])
    """

    def select(
        self,
        rows: Rows | ArrayLike,
        n_centers: int,
        *,
        kernel: AnyKernel | None = None,
        penalty: float = 0.0,
        candidates: Indices | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> Selection:
        rows = as_rows(rows)
        n = rows.shape[0] if candidates is None else len(candidates)
        # reading rows in their order is kind to files, and keeps the bits when all rows are chosen
        size = min(check_count("n_centers", n_centers), n)
        chosen = np.sort(check_random_state(random_state).choice(n, size=size, replace=False))
        indices = chosen if candidates is None else candidates[chosen]
        return Selection(rows.take(indices), indices)


@register
class Given(BaseEstimator):  # type: ignore[misc]
    """Points the user gives.

    Parameters
    ----------
    points : array or sparse matrix of shape (M, d)

    Examples
    --------
    >>> from gyrfalcon.centers import Given
    >>> Given([[0.0], [1.0]]).select([[3.0], [4.0], [5.0]], 2).points
    array([[0.],
           [1.]])
    """

    def __init__(self, points: ArrayLike) -> None:
        self.points = points

    def select(
        self,
        rows: Rows | ArrayLike,
        n_centers: int,
        *,
        kernel: AnyKernel | None = None,
        penalty: float = 0.0,
        candidates: Indices | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> Selection:
        rows = as_rows(rows)
        points: Any = self.points if scipy.sparse.issparse(self.points) else np.asarray(self.points)
        if points.ndim != 2 or points.dtype.kind not in "fiu" or points.shape[0] == 0:
            raise ValueError(
                "centers must be a 2-D array of numbers with at least one row, not one of shape "
                f"{points.shape} and type {points.dtype}"
            )
        if points.shape[1] != rows.shape[1]:
            raise ValueError(f"centers have {points.shape[1]} features, X has {rows.shape[1]}")
        return Selection(as_points(points, rows.dtype, sparse=is_sparse(rows)).copy(), sampled=False)


class _Chooser(BaseEstimator):  # type: ignore[misc]
    """Selectors that look at the data: the checks, the case of too few rows, and the way back to the rows' indices."""

    def select(
        self,
        rows: Rows | ArrayLike,
        n_centers: int,
        *,
        kernel: AnyKernel,
        penalty: float,
        candidates: Indices | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> Selection:
        """Choose centers; see `Centers.select`."""
        rows = as_rows(rows)
        candidates = None if candidates is None else np.sort(candidates)
        n = rows.shape[0] if candidates is None else len(candidates)
        M = check_count("n_centers", n_centers)
        if not 0 <= penalty < np.inf:
            raise ValueError(f"penalty={penalty!r} must be a finite number, not negative")
        if n <= M:
            indices = np.arange(n) if candidates is None else candidates
            return Selection(rows.take(indices), indices)
        scoring = Scoring(rows, kernel, random_state, n_jobs, candidates)
        chosen, D, n_draws, sampled = self._choose(scoring, M, float(penalty))
        order = np.argsort(chosen)
        indices = chosen[order] if candidates is None else candidates[chosen[order]]
        return Selection(rows.take(indices), indices, D[order], n_draws, sampled)

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> tuple[Indices, Array, int, bool]:
        """Distinct positions among the rows of `scoring`, their D, the number of draws, and `Selection.sampled`."""
        raise NotImplementedError


@register
class LeverageScores(_Chooser):
    """Rows drawn in proportion to their leverage scores, as Definition 1 and Theorem 5 of the FALKON paper.

    Draws are independent, go on until they make `n_centers` distinct rows, and what is drawn twice is merged in D.

    At a penalty that is small for the number of centers (an effective dimension above M / 2) nearly every row would
    have to be a center and scores say little, so that they are taken at the larger penalty where it is M / 2.

    Parameters
    ----------
    penalty : float, optional
        Of the scores; that of the estimator by default.
    approximate : bool
        Score against a uniform pilot; otherwise by the exact formula, which needs an n x n matrix.
    n_pilot : int, optional
        Rows of the pilot; 1,000 or the number of centers by default, whichever is larger.

    See Also
    --------
    Bless : The same at a cost that does not grow with n.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.centers import LeverageScores
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> model = FalkonRegressor(centers=LeverageScores(), n_centers=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.centers_.shape
    (50, 2)
    """

    def __init__(self, penalty: float | None = None, approximate: bool = True, n_pilot: int | None = None) -> None:
        self.penalty = penalty
        self.approximate = approximate
        self.n_pilot = n_pilot

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> tuple[Indices, Array, int, bool]:
        n_pilot = max(1_000, M) if self.n_pilot is None else check_count("n_pilot", self.n_pilot)
        penalty = _own(self.penalty, penalty)
        if self.approximate:
            score = scoring.pilot(n_pilot)
            scores = score(scoring.rows, _resolved(scoring, score.points, penalty, M))
        else:
            scores = scoring.exact(_resolved(scoring, scoring.sample(_SPECTRUM_ROWS), penalty, M))
        return _draw(scoring, scores, np.arange(scoring.n), M)


@register
class Bless(_Chooser):
    """Rows drawn in proportion to leverage scores that are found without looking at all rows.

    BLESS (Rudi, Calandriello, Carratino, Rosasco 2018) goes down from a large penalty and stops at the estimator's or
    where the effective dimension passes M / 2, whichever comes first. The centers are then drawn among a uniform pool
    of rows. Time and memory do not grow with n.

    Parameters
    ----------
    penalty : float, optional
        Of the scores; that of the estimator by default.
    oversampling : float
        Rows against which scores are taken, as a multiple of the effective dimension. More is more accurate and costs
        its square in time.
    max_rows : int, optional
        Size of the pool; 20,000 or 20 times the number of centers by default, whichever is larger.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.centers import Bless
    >>> X = np.random.default_rng(0).standard_normal((5_000, 2))
    >>> model = FalkonRegressor(centers=Bless(), n_centers=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.centers_.shape
    (50, 2)
    """

    def __init__(self, penalty: float | None = None, oversampling: float = 3.0, max_rows: int | None = None) -> None:
        self.penalty = penalty
        self.oversampling = oversampling
        self.max_rows = max_rows

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> tuple[Indices, Array, int, bool]:
        if not 1 <= self.oversampling < np.inf:
            raise ValueError(f"oversampling={self.oversampling!r} must be a finite number of at least 1")
        size = _pool_size(self.max_rows, M, scoring.n)
        least = _LEAST_PENALTY * _largest_diagonal(scoring)
        level = scoring.bless(
            max(_own(self.penalty, penalty), least), dimension=_DIMENSION * M, oversampling=float(self.oversampling)
        )
        pool = scoring.indices(size)
        return _draw(scoring, level.score(scoring.rows.take(pool), level.penalty), pool, M)


@register
class RPCholesky(_Chooser):
    """Randomly pivoted Cholesky: each center is drawn in proportion to what those before it leave unexplained.

    No penalty and nothing to tune; the trace of K_nn minus its Nyström approximation is close to the best that M
    centers can do (Chen, Epperly, Tropp, Webber 2025). Centers are never nearly the same, and if fewer than
    `n_centers` explain all that float64 can tell there are no more than those.

    Parameters
    ----------
    accelerated : bool
        Draw a block of candidates at once and reject some, which gives the same distribution by matrix products
        (Epperly, Tropp, Webber 2024); otherwise one center at a time, several times slower.
    block_size : int, optional
        Candidates drawn at once; a tenth of the number of centers by default.
    max_rows : int, optional
        Choose among a uniform sample of that many rows. By default 20,000 or 20 times the number of centers, whichever
        is larger, or what a quarter of the available memory has room for: M numbers are kept for each row.

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

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> tuple[Indices, Array, int, bool]:
        size = _pool_size(self.max_rows, M, scoring.n, numbers_a_row=M)
        block = max(10, M // 10) if self.block_size is None else check_count("block_size", self.block_size)
        check_memory(M, size, "use a smaller max_rows or fewer centers")
        pool = scoring.indices(size)
        points = scoring.rows.take(pool)
        chosen = rp_cholesky(scoring, points, M, block if self.accelerated else 1)
        return pool[chosen], _voronoi(scoring, points, chosen), len(chosen), False


def rp_cholesky(scoring: Scoring, pool: Any, M: int, block: int) -> Indices:
    """Positions in `pool` of up to M pivots, in the order they were drawn, `block` candidates at a time.

    Algorithm 2.2 of "Embrace rejection: kernel matrix approximation by accelerated randomly pivoted Cholesky"; a block
    of one is plain RPCholesky.
    """
    random, n_threads = scoring.random_state, effective_n_jobs(scoring.n_jobs)
    operator = scoring.operator(pool)
    diagonal = np.maximum(scoring.diagonal(pool), 0.0)
    d = diagonal.copy()
    G = np.empty((M, len(d)))  # K[pool, pool] is about G'G
    columns = [slice(start, start + _COLUMNS) for start in range(0, len(d), _COLUMNS)]
    chosen: list[int] = []
    while len(chosen) < M and d.any():
        i = len(chosen)
        drawn = _pick(random, d, min(block, 2 * (M - i)))
        blocks = list(operator.on(pool[drawn]).blocks())  # K[drawn, :]
        H = np.vstack([K[:, drawn] for _, K in blocks]) - G[:i, drawn].T @ G[:i, drawn]
        least = _ROUNDING * diagonal[drawn]
        exhausted = drawn[H.diagonal() <= least]  # though d, which is a difference of sums, says otherwise
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
        d[d <= _ROUNDING * diagonal] = 0.0
    if not chosen:
        raise no_scores(scoring.kernel)
    return np.array(chosen, dtype=np.intp)


def _eliminate(known: Array, new: Array, pivots: Array, L: Array, d: Array, at: slice) -> None:
    """Turn K[S, at] in `new` into L^-1 (K[S, at] - G[:, S]' G[:, at]), and take it off the diagonal `d`.

    Few columns at a time, so that temporaries stay in the cache.
    """
    part = new[:, at] - pivots.T @ known[:, at]
    new[:, at] = solve_triangular(L, part, lower=True, check_finite=False, overwrite_b=True)
    d[at] -= np.einsum("ij,ij->j", new[:, at], new[:, at])


def _accept(random: np.random.RandomState, H: Array, u: Array, least: Array) -> tuple[Indices, Array]:
    """Which candidates are accepted, each with the probability that it would have been drawn after those before it.

    Also the Cholesky factor of H at the accepted ones.
    """
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


@register
class KMeansPlusPlus(_Chooser):
    """The seeds of k-means++: each center is drawn in proportion to its squared distance from those before it.

    The distance is that of the kernel's feature space, k(x, x) + k(z, z) - 2 k(x, z). Cheap, and the centers cover the
    data; it knows nothing of how well they explain it.

    Parameters
    ----------
    max_rows : int, optional
        Choose among a uniform sample of that many rows; 20,000 or 20 times the number of centers by default,
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

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> tuple[Indices, Array, int, bool]:
        positions = scoring.indices(_pool_size(self.max_rows, M, scoring.n))
        pool = scoring.rows.take(positions)
        operator = scoring.operator(pool)
        diagonal = scoring.diagonal(pool)
        least = _ROUNDING * float(np.abs(diagonal).max())
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
            chosen.extend(_pick(scoring.random_state, distance, 1).tolist())
        return positions[chosen], _shares(nearest, len(chosen)), len(chosen), False


def _voronoi(scoring: Scoring, pool: Any, chosen: Indices) -> Array:
    """D from the share of the pool that each center is the nearest of, in feature space."""
    centers = pool[chosen]
    half = scoring.kernel.diag(centers) / 2
    operator = scoring.operator(centers).on(pool)
    nearest = np.concatenate([np.argmax(K - half, axis=1) for _, K in operator.blocks()])
    return _shares(nearest, len(chosen))


def _shares(nearest: Indices, M: int) -> Array:
    """D_jj^2 = M times the share of the rows that are nearest to center j, each of which is nearest to itself."""
    counts = np.maximum(np.bincount(nearest, minlength=M), 1)
    return np.sqrt(M * counts / counts.sum())


NAMES: dict[str, type[Any]] = {
    "uniform": Uniform,
    "leverage": LeverageScores,
    "bless": Bless,
    "rpcholesky": RPCholesky,
    "kmeans++": KMeansPlusPlus,
}


def as_centers(centers: str | ArrayLike | Centers) -> Centers:
    """The selector meant by a name, an array of points, or a selector.

    Examples
    --------
    >>> from gyrfalcon.centers import as_centers
    >>> as_centers("bless")
    Bless()
    """
    if isinstance(centers, str):
        if centers not in NAMES:
            names = ", ".join(f'"{name}"' for name in NAMES)
            raise ValueError(f"centers={centers!r} is not known: use {names}, an array of points, or a selector")
        return cast(Centers, NAMES[centers]())
    # tables of polars and pyarrow have a `select` too, which chooses columns
    if hasattr(centers, "select") and not isinstance(centers, type) and not hasattr(centers, "__array__"):
        return cast(Centers, centers)
    return Given(cast(Any, centers) if scipy.sparse.issparse(centers) else np.asarray(centers))


def _own(penalty: Any, estimators: float) -> float:
    """A selector's own penalty, or else the estimator's."""
    if penalty is None:
        return estimators
    if isinstance(penalty, bool) or not 0 < penalty < np.inf:
        raise ValueError(f"penalty={penalty!r} must be a positive finite number, or None for the estimator's")
    return float(penalty)


def _pool_size(max_rows: Any, M: int, n: int, numbers_a_row: int = 0) -> int:
    if max_rows is not None:
        # fewer rows than centers cannot be what is meant: the rows of the pool would all be centers
        return min(n, max(check_count("max_rows", max_rows), M))
    size = max(_POOL, 20 * M)
    if numbers_a_row:
        size = max(2 * M, min(size, available_memory() // (4 * 8 * numbers_a_row)))
    return min(n, size)


def _largest_diagonal(scoring: Scoring) -> float:
    largest = float(scoring.diagonal(scoring.sample(500)).max())
    if not largest > 0:
        raise no_scores(scoring.kernel)
    return largest


def _resolved(scoring: Scoring, sample: Any, penalty: float, M: int) -> float:
    """The penalty, or the larger one where the effective dimension is M / 2, by the spectrum of a uniform sample."""
    sample = sample[:: max(1, sample.shape[0] // _SPECTRUM_ROWS)][:_SPECTRUM_ROWS]
    gram = scoring.operator(sample).centers_gram()
    spectrum = np.maximum(eigvalsh(gram, overwrite_a=True, check_finite=False), 0.0) / sample.shape[0]
    if not spectrum.any():
        raise no_scores(scoring.kernel)
    low, high = max(penalty, _LEAST_PENALTY * float(spectrum.sum())), float(spectrum.sum())
    wanted = min(_DIMENSION * M, sample.shape[0] / 2)
    if np.sum(spectrum / (spectrum + low)) <= wanted:
        return low
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if np.sum(spectrum / (spectrum + middle)) > wanted else (low, middle)
    return high


def _pick(random: np.random.RandomState, weights: Array, size: int) -> Indices:
    """Independent draws in proportion to `weights`."""
    edges = np.cumsum(weights)
    return np.searchsorted(edges, random.random_sample(size) * edges[-1], side="right")


def _draw(scoring: Scoring, scores: Array, positions: Indices, M: int) -> tuple[Indices, Array, int, bool]:
    """Draw from a uniform pool in proportion to scores until there are M distinct rows: D_jj^2 = count_j / (n p_j).

    A row has probability p_j = score_j / sum over the pool, times the share of the rows that the pool is, so that n p_j
    is |pool| score_j / sum.
    """
    positive = np.flatnonzero(scores)
    if len(positive) == 0:
        raise no_scores(scoring.kernel)
    if len(positive) <= M:  # the rest is zero in feature space, so these are all rows
        return positions[positive], np.ones(len(positive)), len(scores), True
    counts = np.zeros(len(scores), dtype=np.intp)
    draws: Indices = np.empty(0, dtype=np.intp)
    # a hundred draws a center: then the rows that are still missing hardly count
    while len(draws) < 100 * M and len(np.unique(draws)) < M:
        draws = np.concatenate([draws, _pick(scoring.random_state, scores, M)])
    first = np.sort(np.unique(draws, return_index=True)[1])[:M]
    n_draws = len(draws) if len(first) < M else int(first[-1]) + 1
    counts = np.bincount(draws[:n_draws], minlength=len(scores))
    chosen = np.flatnonzero(counts)
    np_j = len(scores) * scores[chosen] / scores.sum()
    return positions[chosen], np.sqrt(counts[chosen] / np_j), n_draws, True
