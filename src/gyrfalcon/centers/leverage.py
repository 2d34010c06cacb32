"""Which rows matter: ridge leverage scores, and their sum, the effective dimension.

The score of row i at the penalty lambda is l_i = (K_nn (K_nn + lambda n I)^-1)_ii: how much row i decides its own
prediction in kernel ridge regression. Centers drawn in proportion to the scores need not be more than a small multiple
of d_eff = sum of l_i, where uniform ones must be a multiple of n max l_i (Theorem 5 of the FALKON paper).

K_nn does not fit for large n, and a weighted set J of rows can stand for all:

    l_i = (k_ii - k_Ji' (K_JJ + lambda n W)^-1 k_Ji) / (lambda n),     W_jj = how often row j was expected in J,

since sum over J of phi_j phi_j' / W_jj then estimates the sum over all rows of phi_i phi_i'. What remains is where J
comes from: a uniform pilot, or BLESS, which walks from a large penalty down to the one that is meant and at each level
draws J in proportion to the scores that the level before gives. Everything here is in float64: scores are differences
of nearly equal numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import get_lapack_funcs
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from .._utils.linalg import cholesky, solve_upper_transposed
from .._utils.memory import format_bytes, require
from .._utils.ranges import check_kernel_scale
from .._utils.threads import effective_n_jobs, single_threaded_blas
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operators.dense import KernelOperator
from ..sources import Rows, as_rows, converted, subset

__all__ = ["effective_dimension", "leverage_scores"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
RandomState = int | np.random.RandomState | None
Method = Literal["exact", "pilot", "bless"]

_PILOT = 1_000
_SAMPLE = 4_000  # rows whose mean score stands for all: 2% of error where scores vary as much as they are large
_SCALE_ROWS = 2_000  # rows from which a kernel's "scale" is worked out
_SCALE_CHECK = 500  # ... and of those, rows that tell whether its values can be computed with
_DIAGONAL_ROWS = 8_192
# BLESS. With these numbers the largest error of 2,000 scores was at most a factor of 2 in 95 of 96 runs, and 2.19 in
# the other (Gaussian and Laplacian kernels, penalties 1e-2 to 1e-6, rare clusters or none, 8 seeds); with 4 d_eff rows
# in the last set as well it was up to 3.6.
_OVERSAMPLING = 10.0
_OVERSAMPLING_ON_THE_WAY = 4.0
_STEP = 2.0
_LEAST_SET = 200
_LEAST_POOL = 500
_LARGEST_POOL = 20_000
_LARGEST_POOL_ON_THE_WAY = 5_000


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
    """Ridge leverage scores of all rows, the diagonal of K_nn (K_nn + penalty n I)^-1.

    Parameters
    ----------
    X : array of shape (n, d), or a source
    kernel : Kernel, str or callable
        Parameters given as "scale" are worked out from the rows, or 2,000 of them.
    penalty : float
        The papers' lambda; positive.
    method : {"exact", "pilot", "bless"}
        "exact" factors the n x n matrix: n^3 / 3 operations, 8 n^2 bytes. "pilot" scores against `n_pilot` uniform rows
        and is good if those meet every part of the data; "bless" against some times d_eff rows that are chosen with
        care (Rudi, Calandriello, Carratino, Rosasco 2018). With m such rows both cost n m^2 operations.
    n_pilot : int, optional
        Rows of the pilot; 1,000 by default.
    random_state : int, RandomState or None
        Seed of "pilot" and "bless".
    n_jobs : int or None
        Threads; None is every core.

    Returns
    -------
    array of shape (n,)
        Between 0 and 1. For a kernel that is not positive semidefinite, those at the smallest penalty that makes
        the matrix positive definite.

    Examples
    --------
    A row far from the others counts for itself alone:

    >>> from gyrfalcon.centers.leverage import leverage_scores
    >>> from gyrfalcon.kernels import Gaussian
    >>> leverage_scores([[0.0], [0.1], [0.2], [9.0]], Gaussian(1.0), penalty=1e-2).round(2)
    array([0.49, 0.33, 0.49, 0.96])
    """
    penalty = _checked(penalty, method, n_pilot)
    scoring = Scoring(X, kernel, random_state, n_jobs)
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
    """d_eff, the sum of the leverage scores: how many directions of the data the penalty leaves alive.

    A number of centers well below it is too small for the penalty.

    Parameters
    ----------
    X, kernel, penalty, method, n_pilot, random_state, n_jobs
        As for `leverage_scores`. With "pilot" and "bless" the mean score of 4,000 uniform rows stands for all, so that
        the cost does not grow with n.

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
    penalty = _checked(penalty, method, n_pilot)
    scoring = Scoring(X, kernel, random_state, n_jobs)
    if method == "exact":
        return float(scoring.exact(penalty).sum())
    score = scoring.bless(penalty).score if method == "bless" else scoring.pilot(n_pilot)
    return float(score(scoring.sample(_SAMPLE), penalty).mean()) * scoring.n


class Scoring:
    """What all ways of scoring share: the rows that count, in float64, a kernel that is worked out, and a seed."""

    def __init__(
        self,
        X: Rows | ArrayLike,
        kernel: Kernel | str | KernelFunction,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        candidates: Indices | None = None,
    ) -> None:
        rows = as_rows(X)
        self.rows = converted(rows if candidates is None else subset(rows, candidates), np.float64)
        self.n = self.rows.shape[0]
        if self.n == 0:
            raise ValueError("X has no rows: at least one is needed")
        self.random_state: np.random.RandomState = check_random_state(random_state)
        self.n_jobs = n_jobs
        sample = self.sample(_SCALE_ROWS)
        self.kernel = as_kernel(kernel).resolve(sample)
        scale = float(np.maximum(self.diagonal(sample[:_SCALE_CHECK]), 0.0).mean())
        check_kernel_scale(scale, np.float64, kernel=self.kernel)

    def indices(self, size: int) -> Indices:
        """Uniform without repetition, in the order of the rows; time and memory do not grow with n."""
        if size >= self.n:
            return np.arange(self.n)
        chosen = sample_without_replacement(self.n, size, random_state=self.random_state)
        return np.sort(chosen).astype(np.intp)

    def sample(self, size: int) -> Any:
        return self.rows.take(self.indices(size))

    def diagonal(self, points: Any) -> Array:
        """k(x, x) of points, all finite."""
        diagonal = np.asarray(self.kernel.diag(points), dtype=np.float64)
        if not np.isfinite(diagonal).all():
            raise ValueError(
                f"{self.kernel!r} gave values that are not finite: check its parameters, and rescale the features"
            )
        return diagonal

    def exact(self, penalty: float) -> Array:
        """1 - mu ((K + mu I)^-1)_ii with mu = penalty n, from the columns of L^-1, in one n x n buffer."""
        check_memory(self.n, self.n, 'use method="bless" or "pilot"')
        operator, shift = self.operator(self.rows.take(np.arange(self.n))), np.full(self.n, penalty * self.n)
        L, mu = _cholesky(operator, shift, effective_n_jobs(self.n_jobs))
        (trtri,) = get_lapack_funcs(("trtri",), dtype=np.float64)
        with single_threaded_blas():
            inverse, _ = trtri(L, lower=True, overwrite_c=True)
            squares = np.array([inverse[j:, j] @ inverse[j:, j] for j in range(self.n)])
        return np.clip(1 - mu * squares, 0.0, 1.0)

    def pilot(self, n_pilot: int | None = None) -> Scorer:
        """Scores against uniform rows."""
        points = self.sample(_PILOT if n_pilot is None else n_pilot)
        size = points.shape[0]
        return Scorer(self, points, np.full(size, size / self.n))

    def operator(self, points: Any) -> KernelOperator:
        return KernelOperator(self.kernel, points, points, n_jobs=self.n_jobs, memory_budget=0)

    def bless(self, penalty: float, *, dimension: float = math.inf, oversampling: float = _OVERSAMPLING) -> Level:
        """Algorithm 1 of "On fast leverage score sampling and optimal learning", until d_eff passes `dimension`.

        Rows of the pool enter J independently of each other with probability `oversampling` times their score, which
        varies less than as many draws with replacement. The paper's pool has some multiple of max k_ii / lambda_h rows,
        enough for any data; n max l_i are enough for the data at hand, which for small penalties are far fewer, so the
        pool stops growing at 5,000 rows (20,000 for the last level) or 5 |J|, whatever n is.
        """
        kappa = float(self.diagonal(self.sample(_LEAST_POOL)).max())
        if not kappa > 0:
            raise no_scores(self.kernel)
        level = Level(max(kappa, penalty), 0.0, Scorer(self, np.empty((0, self.rows.shape[1])), np.empty(0)))
        while level.d_eff < dimension:
            mine = max(level.penalty / _STEP, penalty)
            last = mine <= penalty
            most = max(_LARGEST_POOL if last else _LARGEST_POOL_ON_THE_WAY, 5 * level.score.points.shape[0])
            pool = self.sample(max(_LEAST_POOL, min(most, math.ceil(oversampling * kappa / mine))))
            share = pool.shape[0] / self.n
            scores = level.score(pool, mine)
            d_eff = float(scores.sum()) / share
            if not d_eff > 0:
                raise no_scores(self.kernel)
            times = oversampling if last or d_eff >= dimension else min(oversampling, _OVERSAMPLING_ON_THE_WAY)
            # P(j in J) = share * chance: in proportion to the score, and `times` d_eff rows on the whole
            chance = np.minimum(1.0, max(times, _LEAST_SET / d_eff) * scores / share)
            kept = self.random_state.random_sample(pool.shape[0]) < chance
            level = Level(mine, d_eff, Scorer(self, pool[kept], share * chance[kept]))
            if last:
                break
        return level


class Scorer:
    """Scores of any rows against the weighted set `points`, `W`. No points: k_ii / mu."""

    def __init__(self, scoring: Scoring, points: Any, W: Array) -> None:
        self.scoring = scoring
        self.points = points
        self.W = W

    def __call__(self, X: Rows | ArrayLike, penalty: float) -> Array:
        rows, mu = as_rows(X), penalty * self.scoring.n
        scores = np.concatenate([self.scoring.diagonal(block) for block in rows.blocks(_DIAGONAL_ROWS)])
        if self.points.shape[0]:
            operator = self.scoring.operator(self.points)
            n_threads = effective_n_jobs(self.scoring.n_jobs)
            L, _ = _cholesky(operator, mu * self.W, n_threads)
            for at, K in operator.on(rows).blocks():
                V = np.array(K.T)
                solve_upper_transposed(L.T, V, n_threads=n_threads)
                scores[at] -= np.einsum("ij,ij->j", V, V)
        if not np.isfinite(scores).all():
            raise ValueError(f"leverage scores of {self.scoring.kernel!r} are not finite: rescale the features")
        # rounding, or a kernel that is not positive, leaves these bounds
        return np.clip(scores / mu, 0.0, 1.0)


@dataclass(frozen=True)
class Level:
    """Where BLESS is: the penalty, the effective dimension there, and scores against rows chosen for that penalty."""

    penalty: float
    d_eff: float
    score: Scorer


def _cholesky(operator: KernelOperator, shift: Array, n_threads: int) -> tuple[Array, Array]:
    """L of K_JJ + diag(shift), a lower triangle, and the shift that it took: more if that is not positive definite."""
    check_memory(len(shift), len(shift), "use a larger penalty, or a smaller pilot")
    jitter, widened = 0.0, False
    while True:  # ends because the jitter, which the scale of the kernel keeps from being 0, grows without bound
        gram = operator.centers_gram()  # made again for each attempt, which is rare, so that there is one buffer only
        diagonal = gram.diagonal()
        least = float(np.finfo(np.float64).eps) * len(gram) * float(np.abs(diagonal).max())
        gram.T.reshape(-1)[:: len(gram) + 1] = diagonal + shift + jitter
        if not cholesky(gram, lower=True, n_threads=n_threads):
            jitter = max(10 * jitter, least)
        elif jitter <= 100 * least or widened:
            return gram, shift + jitter
        else:  # not rounding but a kernel that is not positive: its negative eigenvalues are to be small beside this
            jitter, widened = 10 * jitter, True


def _checked(penalty: Any, method: Any, n_pilot: Any) -> float:
    if isinstance(penalty, bool) or not isinstance(penalty, Real) or not 0 < float(penalty) < math.inf:
        raise ValueError(f"penalty={penalty!r} must be a positive finite number: without it a score says nothing")
    if method not in ("exact", "pilot", "bless"):
        raise ValueError(f'method={method!r} must be "exact", "pilot" or "bless"')
    if n_pilot is not None:
        check_count("n_pilot", n_pilot)
    return float(penalty)


def check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}={value!r} must be an integer of at least 1")
    return int(value)


def check_memory(rows: int, columns: int, remedy: str) -> None:
    """Refuse a matrix of float64 that does not fit."""
    size = 8 * rows * columns
    require("auto", size, f"a {rows} x {columns} kernel matrix takes {format_bytes(size)}", remedy)


def no_scores(kernel: Kernel) -> ValueError:
    return ValueError(
        f"every leverage score is zero: {kernel!r} is not positive at the rows drawn; choose a positive semidefinite "
        'kernel, or centers="uniform"'
    )
