"""Centers drawn in proportion to leverage scores: of all rows, by BLESS, or given by the user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigvalsh
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from .._utils.checks import integer, number, optional, positive
from .._utils.registry import register
from .._utils.words import a
from ..sources import Rows, as_rows
from ..sources.blocks import Block, stack
from .base import AnyKernel, Choice, KernelSelector, Selection
from .leverage import LARGEST_POOL, Array, Indices, RandomState, Scoring, zero_scores_error
from .sampling import pool_size

# Scores are computed where the effective dimension is about this share of M. A tenth is cheaper but less accurate: with
# 20 rare clusters the test error of BLESS was 0.084 instead of 0.057 with 100 centers, 0.030 instead of 0.025 with 400.
_DIMENSION = 0.5
_SPECTRUM_ROWS = 2_000
_LEAST_PENALTY = 1e-12  # relative to the largest k(x, x): a float64 factorisation does not see a smaller penalty

_PENALTY = optional(positive("a positive finite number, or None for the estimator's"))
_OVERSAMPLING = number(lambda x: 1 <= x < np.inf, "a finite number of at least 1")


@register
class LeverageScores(KernelSelector):
    """Rows drawn in proportion to their leverage scores (Definition 1 and Theorem 5 of the FALKON paper).

    Independent draws continue until they contain `n_centers` distinct rows; D accounts for rows drawn repeatedly.

    If the penalty is so small that the effective dimension exceeds M / 2, nearly every row would have to be a center
    and scores tell little, so they are computed at the larger penalty where the effective dimension is M / 2.

    Parameters
    ----------
    penalty : float, optional
        Penalty of the scores; that of the estimator by default.
    approximate : bool
        Whether to approximate scores by a uniform sample of rows, the pilot. Exact scores need an n x n matrix.
    n_pilot : int, optional
        Number of rows of the pilot; 1,000 or the number of centers by default, whichever is larger.

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

    def _pool_size(self, M: int, n: int) -> int:
        optional(integer(1))("n_pilot", self.n_pilot)
        return max(_SPECTRUM_ROWS, self._pilot_size(M))

    def _pilot_size(self, M: int) -> int:
        return max(1_000, M) if self.n_pilot is None else int(self.n_pilot)

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> Choice:
        _PENALTY("penalty", self.penalty)
        penalty = penalty if self.penalty is None else float(self.penalty)
        if self.approximate:
            score = scoring.pilot(self._pilot_size(M))
            scored = score.blocks(scoring.rows, resolvable_penalty(scoring, score.points, penalty, M))
            return _draw_distinct(scoring.random_state, scored, M, zero_scores_error(scoring.kernel))
        scores = scoring.exact(resolvable_penalty(scoring, scoring.sample(_SPECTRUM_ROWS), penalty, M))
        every = np.arange(scoring.n)
        scored_rows = [(slice(0, scoring.n), scoring.rows.take(every), scores)]
        return _draw_distinct(scoring.random_state, scored_rows, M, zero_scores_error(scoring.kernel))


@register
class Bless(KernelSelector):
    """Rows drawn in proportion to leverage scores that are estimated without reading all rows.

    BLESS (Rudi, Calandriello, Carratino, Rosasco 2018) lowers the penalty from a large one to the estimator's, or until
    the effective dimension exceeds M / 2. The centers are then drawn from a uniform pool of rows. Time and memory do
    not grow with n.

    Parameters
    ----------
    penalty : float, optional
        Penalty of the scores; that of the estimator by default.
    oversampling : float
        Number of rows that scores are computed from, as a multiple of the effective dimension. More rows are more
        accurate, and the time grows with their square.
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

    def _pool_size(self, M: int, n: int) -> int:
        return max(LARGEST_POOL, pool_size(self.max_rows, M, n))

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> Choice:
        _OVERSAMPLING("oversampling", self.oversampling)
        _PENALTY("penalty", self.penalty)
        least = _LEAST_PENALTY * _largest_diagonal(scoring)
        penalty = penalty if self.penalty is None else float(self.penalty)
        level = scoring.bless(max(penalty, least), dimension=_DIMENSION * M, oversampling=float(self.oversampling))
        places = scoring.indices(pool_size(self.max_rows, M, scoring.n))
        scored = level.score.blocks(scoring.pool[places], level.penalty)
        chosen = _draw_distinct(scoring.random_state, scored, M, zero_scores_error(scoring.kernel))
        return chosen._replace(places=places[chosen.places], points=None)


@register
class GivenScores(BaseEstimator):  # type: ignore[misc]
    """Rows drawn in proportion to numbers given by the user: `lev_scores` of the FALKON paper's Algorithm 2.

    The numbers are leverage scores from elsewhere, or any probabilities of sampling. Independent draws continue until
    they contain `n_centers` distinct rows. If row j has the share p_j of all scores and was drawn count_j times, then
    D_jj^2 = count_j / (n p_j), as Definition 2 of the paper's appendix requires.

    Parameters
    ----------
    scores : array of shape (n,)
        A number for each row given to `fit`, not negative; their sum need not be 1. Rows with 0 are never chosen.

    See Also
    --------
    LeverageScores : Scores computed from the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.centers import GivenScores
    >>> from gyrfalcon.centers.leverage import leverage_scores
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> scores = leverage_scores(X, "gaussian", penalty=1e-3)
    >>> model = FalkonRegressor(centers=GivenScores(scores), n_centers=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.centers_.shape
    (50, 2)
    """

    def __init__(self, scores: ArrayLike) -> None:
        self.scores = scores

    def among(self, n_given: int, positions: Indices | None) -> GivenScores:
        """Return the selector for some of the rows: those at `positions` of the `n_given` that have scores."""
        scores = self._checked(n_given)
        return self if positions is None else GivenScores(scores[positions])

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
        """Choose centers; see `Centers.select`. Kernel and penalty are not used."""
        integer(1)("n_centers", n_centers)
        rows = as_rows(rows)
        scores = self._checked(rows.shape[0])
        places = np.arange(rows.shape[0]) if candidates is None else np.sort(candidates)
        scored = [(slice(0, len(places)), places[:, None], scores[places])]
        nothing = ValueError("scores are zero for every row: at least one must be positive")
        found = _draw_distinct(check_random_state(random_state), scored, int(n_centers), nothing)
        order = np.argsort(found.places)
        indices = places[found.places[order]]
        return Selection(rows.take(indices), indices, found.D[order], found.n_draws)

    def _checked(self, n: int) -> Array:
        try:
            scores = np.asarray(self.scores, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"scores must be an array of numbers, not {a(type(self.scores).__name__)}") from None
        if scores.shape != (n,):
            raise ValueError(
                f"scores have shape {scores.shape}, and there are {n} rows: give one number for each row of X"
            )
        bad = np.flatnonzero(~(np.isfinite(scores) & (scores >= 0)))
        if bad.size:
            raise ValueError(
                f"scores[{bad[0]}]={scores[bad[0]]:g}: scores must be finite and not negative, and {bad.size} of {n} "
                "are not"
            )
        largest = float(scores.max(initial=0.0))
        if not largest > 0:
            raise ValueError("scores are zero for every row: at least one must be positive")
        return scores / largest  # so that their sum does not overflow


def resolvable_penalty(scoring: Scoring, sample: Any, penalty: float, M: int) -> float:
    """Return the penalty, or the larger one where the effective dimension is M / 2, estimated from a uniform sample."""
    sample = sample[:: max(1, sample.shape[0] // _SPECTRUM_ROWS)][:_SPECTRUM_ROWS]
    gram = scoring.operator(sample).centers_gram()
    spectrum = np.maximum(eigvalsh(gram, overwrite_a=True, check_finite=False), 0.0) / sample.shape[0]
    if not spectrum.any():
        raise zero_scores_error(scoring.kernel)
    low, high = max(penalty, _LEAST_PENALTY * float(spectrum.sum())), float(spectrum.sum())
    wanted = min(_DIMENSION * M, sample.shape[0] / 2)
    if np.sum(spectrum / (spectrum + low)) <= wanted:
        return low
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if np.sum(spectrum / (spectrum + middle)) > wanted else (low, middle)
    return high


def _largest_diagonal(scoring: Scoring) -> float:
    largest = float(scoring.diagonal(scoring.sample(500)).max())
    if not largest > 0:
        raise zero_scores_error(scoring.kernel)
    return largest


def _draw_distinct(
    random: np.random.RandomState, scored: Iterable[tuple[slice, Block, Array]], M: int, nothing: ValueError
) -> Choice:
    """Draw in proportion to scores, while rows are read, until M are distinct: D_jj^2 = count_j / (n p_j).

    Row j is drawn at the times of a Poisson process whose rate is its score, the first of them E / score_j with E from
    the exponential distribution. So only the M rows with the earliest first draws are held, and the draws end with the
    first draw of the last of them. Their order has the distribution of independent draws. If the rows are a uniform
    pool, p_j is a row's share of the scores times the pool's share of the rows, so that n p_j = |pool| score_j / sum.
    `nothing` is raised if every score is 0.
    """
    places, scores, times = np.empty(0, dtype=np.intp), np.empty(0), np.empty(0)
    held: list[Block] = []
    n, n_positive, total = 0, 0, 0.0
    for at, rows, found in scored:
        n, n_positive, total = at.stop, n_positive + int(np.count_nonzero(found)), total + float(found.sum())
        waits = random.standard_exponential(len(found))
        came = np.divide(waits, found, out=np.full(len(found), np.inf), where=found > 0)
        new = np.flatnonzero(came < (times.max() if len(times) == M else np.inf))
        if len(new) == 0:
            continue
        times = np.concatenate([times, came[new]])
        first = np.argsort(times, kind="stable")[:M]
        times, scores = times[first], np.concatenate([scores, found[new]])[first]
        places = np.concatenate([places, at.start + new])[first]
        held = [stack([*held, rows[new]])[first]]
    if n_positive == 0:
        raise nothing
    if n_positive <= M:  # the other rows count for nothing: D is that of endless draws
        return Choice(places, np.ones(len(places)), n, True, held[0])
    # rows that a hundred draws per center do not contain hardly matter
    end = min(times[-1], max(100 * M / total, times[0]))
    drawn = times <= end
    counts = 1 + random.poisson(scores[drawn] * (end - times[drawn]))
    D = np.sqrt(counts / (n * scores[drawn] / total))
    return Choice(places[drawn], D, int(counts.sum()), True, held[0][drawn])
