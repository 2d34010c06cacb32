"""Ridge leverage scores of rows, their sum, the effective dimension, and n times their maximum, N_infinity.

The score of row i at the penalty lambda is l_i = (K_nn (K_nn + lambda n I)^-1)_ii, the influence of row i on its own
prediction in kernel ridge regression. A small multiple of d_eff = sum of l_i centers drawn in proportion to the scores
is enough, where uniform ones must be a multiple of n max l_i (Theorem 5 of the FALKON paper).

For large n, K_nn does not fit in memory, and a weighted set J of rows replaces all rows:

    l_i = (k_ii - k_Ji' (K_JJ + lambda n W)^-1 k_Ji) / (lambda n),     W_jj = expected number of times row j is in J,

since sum over J of phi_j phi_j' / W_jj then estimates the sum over all rows of phi_i phi_i'. J is either a uniform
pilot, or made by BLESS, which lowers a large penalty step by step to the given one, and at each level draws J in
proportion to the scores of the level before. Scores are differences of nearly equal numbers, hence in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import get_lapack_funcs
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from .._utils.checks import integer, one_of, optional, positive
from .._utils.linalg import cholesky, solve_upper_transposed
from .._utils.memory import format_bytes, require
from .._utils.ranges import check_kernel_scale
from .._utils.threads import effective_n_jobs, single_threaded_blas
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operators import KernelOperator
from ..sources import Rows, as_rows
from ..sources.base import DerivedRows
from ..sources.blocks import Block

__all__ = ["effective_dimension", "leverage_scores", "n_infinity"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
RandomState = int | np.random.RandomState | None
Method = Literal["exact", "pilot", "bless"]

_PILOT = 1_000
_SAMPLE = 4_000  # rows whose mean score estimates that of all: to 2% if the standard deviation equals the mean
_SCALE_ROWS = 2_000  # rows from which a kernel's "scale" is computed
_SCALE_CHECK = 500  # rows of those at which the size of the kernel's values is checked
_DIAGONAL_ROWS = 8_192
# BLESS. With these numbers the largest error of 2,000 scores was at most a factor of 2 in 95 of 96 runs, and 2.19 in
# the other (Gaussian and Laplacian kernels, penalties 1e-2 to 1e-6, rare clusters or none, 8 seeds); with 4 d_eff rows
# in the last set as well it was up to 3.6.
_OVERSAMPLING = 10.0
_OVERSAMPLING_ON_THE_WAY = 4.0
_STEP = 2.0  # by which each level divides the penalty
_LEAST_SET = 200
_LEAST_POOL = 500
LARGEST_POOL = 20_000
_LARGEST_POOL_ON_THE_WAY = 5_000

_PENALTY = positive("a positive finite number: scores have no meaning without a penalty")


def leverage_scores(
    X: Rows | ArrayLike,
    kernel: Kernel | str | KernelFunction,
    penalty: float,
    *,
    method: Method = "exact",
    n_pilot: int | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> Array:
    """Compute the ridge leverage scores of all rows, the diagonal of K_nn (K_nn + penalty n I)^-1.

    Parameters
    ----------
    X : array of shape (n, d), or a source
    kernel : Kernel, str or callable
        Parameters given as "scale" are computed from at most 2,000 of the rows.
    penalty : float
        The papers' lambda; positive.
    method : {"exact", "pilot", "bless"}
        "exact" factors the n x n matrix: n^3 / 3 operations, 8 n^2 bytes. "pilot" estimates scores from `n_pilot`
        uniform rows, and is accurate if those cover all parts of the data; "bless" from a multiple of d_eff rows drawn
        by importance (Rudi, Calandriello, Carratino, Rosasco 2018). With m such rows both cost n m^2 operations.
    n_pilot : int, optional
        Number of rows of the pilot; 1,000 by default.
    random_state : int, RandomState or None
        Seed of "pilot" and "bless".
    n_jobs : int or None
        Number of threads; None for one per core.

    Returns
    -------
    array of shape (n,)
        Scores between 0 and 1. For a kernel that is not positive semidefinite, the scores at the smallest penalty that
        makes the matrix positive definite.

    Examples
    --------
    The score of a row far from the others is near 1:

    >>> from gyrfalcon.centers.leverage import leverage_scores
    >>> from gyrfalcon.kernels import Gaussian
    >>> leverage_scores([[0.0], [0.1], [0.2], [9.0]], Gaussian(1.0), penalty=1e-2).round(2)
    array([0.49, 0.33, 0.49, 0.96])
    """
    _check(penalty, method, n_pilot)
    penalty, scoring = float(penalty), Scoring(X, kernel, random_state, n_jobs, pool=_pool(method, n_pilot))
    if method == "exact":
        return scoring.exact(penalty)
    score = scoring.bless(penalty).score if method == "bless" else scoring.pilot(n_pilot)
    return score(scoring.rows, penalty)


def effective_dimension(
    X: Rows | ArrayLike,
    kernel: Kernel | str | KernelFunction,
    penalty: float,
    *,
    method: Method = "bless",
    n_pilot: int | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> float:
    """Compute the effective dimension, the sum of the leverage scores.

    It is the number of directions of the data that the penalty does not suppress. A number of centers well below it is
    too small for the penalty.

    Parameters
    ----------
    X, kernel, penalty, method, n_pilot, random_state, n_jobs
        As for `leverage_scores`. "pilot" and "bless" use the mean score of 4,000 uniform rows, so that the cost does
        not grow with n.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.centers.leverage import effective_dimension
    >>> X = np.random.default_rng(0).standard_normal((100_000, 2))
    >>> 5 < effective_dimension(X, "gaussian", penalty=1e-2, random_state=0) < 15
    True
    """
    _check(penalty, method, n_pilot)
    penalty, scoring = float(penalty), Scoring(X, kernel, random_state, n_jobs, pool=_pool(method, n_pilot))
    if method == "exact":
        return float(scoring.exact(penalty).sum())
    score = scoring.bless(penalty).score if method == "bless" else scoring.pilot(n_pilot)
    return float(score(scoring.sample(_SAMPLE), penalty).mean()) * scoring.n


def n_infinity(
    X: Rows | ArrayLike,
    kernel: Kernel | str | KernelFunction,
    penalty: float,
    *,
    points: Rows | ArrayLike | None = None,
    method: Method = "exact",
    n_pilot: int | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
) -> float:
    """Compute N_infinity(lambda) of the FALKON paper: n times the largest leverage score.

    It is the maximum over x of <K_x, (C + penalty I)^-1 K_x>, with the mean of K_x K_x' over the rows as C. (The paper
    prints the norm of (C + lambda I)^-1/2 K_x; its bound kappa^2 / lambda is that of the square, which is meant.) The
    number of uniform centers that Theorems 4 and 5 ask for grows with it, where the number of those drawn by leverage
    scores grows with the effective dimension, which is smaller.

    Parameters
    ----------
    X, kernel, penalty, method, n_pilot, random_state, n_jobs
        As for `leverage_scores`.
    points : array of shape (p, d), or a source, optional
        Points among which the maximum is looked for; the rows themselves by default.

    Returns
    -------
    float
        At least the effective dimension, unless other `points` are given, and at most max k(x, x) / penalty.

    Examples
    --------
    >>> from gyrfalcon import n_infinity
    >>> from gyrfalcon.kernels import Gaussian
    >>> X = [[0.0], [0.1], [0.2], [9.0]]
    >>> round(n_infinity(X, Gaussian(1.0), penalty=1e-2), 2)
    3.85
    """
    _check(penalty, method, n_pilot)
    penalty, scoring = float(penalty), Scoring(X, kernel, random_state, n_jobs, pool=_pool(method, n_pilot))
    if method == "exact" and points is None:
        return float(scoring.exact(penalty).max()) * scoring.n
    if method == "exact":
        require_matrix(scoring.n, scoring.n, 'use method="bless" or "pilot"')
        score = Scorer(scoring, scoring.rows.take(np.arange(scoring.n)), np.ones(scoring.n))
    else:
        score = scoring.bless(penalty).score if method == "bless" else scoring.pilot(n_pilot)
    judged = scoring.rows if points is None else as_rows(points).astype(np.float64)
    if judged.shape[0] == 0 or judged.shape[1] != scoring.rows.shape[1]:
        raise ValueError(
            f"points have shape {judged.shape}: give at least one, with the {scoring.rows.shape[1]} features of X"
        )
    largest = max(float(left.max()) for _, _, left in score.unexplained(judged, penalty))
    return max(largest, 0.0) / penalty


class Scoring:
    """The rows to be scored, in float64, with a resolved kernel and a seed.

    `pool` rows (20,000 by default) are drawn once, uniformly, and held in memory: all samples are taken from them, so
    that a source is not read for each. Only the rows with indices `candidates`, if given, are considered.

    rows, n : the rows and their number
    pool, positions : the rows of the pool, and their increasing indices among the rows
    """

    def __init__(
        self,
        X: Rows | ArrayLike,
        kernel: Kernel | str | KernelFunction,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        candidates: Indices | None = None,
        pool: int | None = None,
    ) -> None:
        rows = as_rows(X)
        self.rows = (rows if candidates is None else rows.subset(candidates)).astype(np.float64)
        self.n = self.rows.shape[0]
        if self.n == 0:
            raise ValueError("X has no rows: give at least one")
        self.random_state: np.random.RandomState = check_random_state(random_state)
        self.n_jobs = n_jobs
        size = max(_SCALE_ROWS, LARGEST_POOL if pool is None else pool)
        self.positions: Indices = self._drawn(self.n, size)
        self.pool = self.rows.take(self.positions)
        sample = self.sample(_SCALE_ROWS)
        self.kernel = as_kernel(kernel).resolve(sample)
        scale = float(np.maximum(self.diagonal(sample[:_SCALE_CHECK]), 0.0).mean())
        check_kernel_scale(scale, np.float64, kernel=self.kernel)

    def _drawn(self, n: int, size: int) -> Indices:
        """Draw sorted numbers below n uniformly without replacement; the cost does not grow with n."""
        if size >= n:
            return np.arange(n)
        return np.sort(sample_without_replacement(n, size, random_state=self.random_state)).astype(np.intp)

    def indices(self, size: int) -> Indices:
        """Draw rows of the pool uniformly without replacement and return their sorted places in it."""
        return self._drawn(len(self.positions), size)

    def sample(self, size: int) -> Any:
        """Draw rows of the pool uniformly without replacement."""
        return self.pool[self.indices(size)]

    def diagonal(self, points: Any) -> Array:
        """Compute k(x, x) of points, and raise ValueError unless all are finite."""
        diagonal = np.asarray(self.kernel.diag(points), dtype=np.float64)
        if not np.isfinite(diagonal).all():
            raise ValueError(
                f"{self.kernel!r} gave values that are not finite: check its parameters, and rescale the features"
            )
        return diagonal

    def exact(self, penalty: float) -> Array:
        """Compute 1 - mu ((K + mu I)^-1)_ii with mu = penalty n, from the columns of L^-1, in one n x n buffer."""
        require_matrix(self.n, self.n, 'use method="bless" or "pilot"')
        operator, shift = self.operator(self.rows.take(np.arange(self.n))), np.full(self.n, penalty * self.n)
        L, mu = _cholesky(operator, shift, effective_n_jobs(self.n_jobs))
        (trtri,) = get_lapack_funcs(("trtri",), dtype=np.float64)
        with single_threaded_blas():
            inverse, _ = trtri(L, lower=True, overwrite_c=True)
            squares = np.array([inverse[j:, j] @ inverse[j:, j] for j in range(self.n)])
        return np.clip(1 - mu * squares, 0.0, 1.0)

    def pilot(self, n_pilot: int | None = None) -> Scorer:
        """Make a scorer from a uniform sample of rows."""
        points = self.sample(_PILOT if n_pilot is None else n_pilot)
        size = points.shape[0]
        return Scorer(self, points, np.full(size, size / self.n))

    def operator(self, points: Any) -> KernelOperator:
        """Make the operator whose rows and centers are `points`."""
        return KernelOperator(self.kernel, points, points, n_jobs=self.n_jobs, memory_budget=0)

    def bless(self, penalty: float, *, dimension: float = math.inf, oversampling: float = _OVERSAMPLING) -> Level:
        """Run BLESS down to `penalty`, or until d_eff exceeds `dimension`.

        Algorithm 1 of "On fast leverage score sampling and optimal learning". Rows of the pool enter J independently
        with probability `oversampling` times their score, which has less variance than draws with replacement. The
        paper's pool of a multiple of max k_ii / lambda_h rows is enough for any data; for the given data n max l_i rows
        are, which is far less for small penalties, so the pool is limited to 5,000 rows (20,000 for the last level) or
        5 |J|, for any n.
        """
        kappa = float(self.diagonal(self.sample(_LEAST_POOL)).max())
        if not kappa > 0:
            raise zero_scores_error(self.kernel)
        level = Level(max(kappa, penalty), 0.0, Scorer(self, np.empty((0, self.rows.shape[1])), np.empty(0)))
        while level.d_eff < dimension:
            mine = max(level.penalty / _STEP, penalty)
            last = mine <= penalty
            most = max(LARGEST_POOL if last else _LARGEST_POOL_ON_THE_WAY, 5 * level.score.points.shape[0])
            pool = self.sample(max(_LEAST_POOL, min(most, math.ceil(oversampling * kappa / mine))))
            share = pool.shape[0] / self.n
            scores = level.score(pool, mine)
            d_eff = float(scores.sum()) / share
            if not d_eff > 0:
                raise zero_scores_error(self.kernel)
            times = oversampling if last or d_eff >= dimension else min(oversampling, _OVERSAMPLING_ON_THE_WAY)
            # P(j in J) = share * chance: in proportion to the score, and `times` d_eff rows in total
            chance = np.minimum(1.0, max(times, _LEAST_SET / d_eff) * scores / share)
            kept = self.random_state.random_sample(pool.shape[0]) < chance
            level = Level(mine, d_eff, Scorer(self, pool[kept], share * chance[kept]))
            if last:
                break
        return level


class Scorer:
    """Scores of any rows, estimated from the set `points` with weights `W`; without points they are k_ii / mu."""

    def __init__(self, scoring: Scoring, points: Any, W: Array) -> None:
        self.scoring, self.points, self.W = scoring, points, W

    def __call__(self, X: Rows | ArrayLike, penalty: float) -> Array:
        rows = as_rows(X)
        scores = np.empty(rows.shape[0])
        for at, _, found in self.blocks(rows, penalty):
            scores[at] = found
        return scores

    def blocks(self, X: Rows | ArrayLike, penalty: float) -> Iterator[tuple[slice, Block, Array]]:
        """Iterate over the rows and their scores, a block at a time and in order."""
        for at, block, left in self.unexplained(X, penalty):
            # rounding errors, or a kernel that is not positive, can lead outside these bounds
            yield at, block, np.clip(left / (penalty * self.scoring.n), 0.0, 1.0)

    def unexplained(self, X: Rows | ArrayLike, penalty: float) -> Iterator[tuple[slice, Block, Array]]:
        """Iterate over the rows and the part of k(x, x) that the points leave, which is mu times the score."""
        rows, mu, n_threads = _Last(as_rows(X)), penalty * self.scoring.n, effective_n_jobs(self.scoring.n_jobs)
        for at, explained in self._explained(rows, mu, n_threads):
            left = self.scoring.diagonal(rows.last) - explained
            if not np.isfinite(left).all():
                raise ValueError(f"leverage scores of {self.scoring.kernel!r} are not finite: rescale the features")
            yield at, rows.last, left

    def _explained(self, rows: Rows, mu: float, n_threads: int) -> Iterator[tuple[slice, Array | float]]:
        """Iterate over the part of k_ii that the points explain."""
        if not self.points.shape[0]:
            start = 0
            for block in rows.blocks(_DIAGONAL_ROWS):
                yield slice(start, start + block.shape[0]), 0.0
                start += block.shape[0]
            return
        operator = self.scoring.operator(self.points)
        L, _ = _cholesky(operator, mu * self.W, n_threads)
        for at, K in operator.on(rows).blocks():
            V = np.array(K.T)
            solve_upper_transposed(L.T, V, n_threads=n_threads)
            yield at, np.einsum("ij,ij->j", V, V)


class _Last(DerivedRows):
    """Rows that keep the block that was read last, so that no block is read twice."""

    last: Block

    def blocks(self, size: int) -> Iterator[Block]:
        for block in self.rows.blocks(size):
            self.last = block
            yield block

    def take(self, indices: Indices) -> Block:
        return self.rows.take(indices)


@dataclass(frozen=True)
class Level:
    """State of BLESS: a penalty, the effective dimension there, and a scorer from rows drawn for that penalty."""

    penalty: float
    d_eff: float
    score: Scorer


def _cholesky(operator: KernelOperator, shift: Array, n_threads: int) -> tuple[Array, Array]:
    """Factor K_JJ + diag(shift) = L L', with a larger shift if it is not positive definite; return L and the shift."""
    require_matrix(len(shift), len(shift), "use a larger penalty, or a smaller pilot")
    jitter, widened = 0.0, False
    while True:  # ends, since the jitter grows without bound: the checked scale of the kernel keeps it from being 0
        gram = operator.centers_gram()  # computed anew for each attempt, which is rare, so that one buffer is enough
        diagonal = gram.diagonal()
        least = float(np.finfo(np.float64).eps) * len(gram) * float(np.abs(diagonal).max())
        gram.T.reshape(-1)[:: len(gram) + 1] = diagonal + shift + jitter
        if not cholesky(gram, lower=True, n_threads=n_threads):
            jitter = max(10 * jitter, least)
        elif jitter <= 100 * least or widened:
            return gram, shift + jitter
        else:  # the kernel is not positive: the jitter must be large compared to its negative eigenvalues
            jitter, widened = 10 * jitter, True


def _check(penalty: Any, method: Any, n_pilot: Any) -> None:
    _PENALTY("penalty", penalty)
    one_of("exact", "pilot", "bless")("method", method)
    optional(integer(1))("n_pilot", n_pilot)


def _pool(method: str, n_pilot: int | None) -> int:
    """Return the rows of the pool from which a method takes its samples."""
    return LARGEST_POOL if method == "bless" else max(_SAMPLE, int(n_pilot or _PILOT))


def require_matrix(rows: int, columns: int, remedy: str) -> None:
    """Raise MemoryError if a float64 matrix does not fit in the available memory."""
    size = 8 * rows * columns
    require("auto", size, f"a {rows} x {columns} kernel matrix takes {format_bytes(size)}", remedy)


def zero_scores_error(kernel: Kernel) -> ValueError:
    """Make the error for a kernel without any positive score."""
    return ValueError(
        f"every leverage score is zero: {kernel!r} is not positive at the rows drawn; choose a positive semidefinite "
        'kernel, or centers="uniform"'
    )
