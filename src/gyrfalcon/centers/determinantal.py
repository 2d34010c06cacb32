"""Exact samples of determinantal point processes: subsets S of the rows with probability det(L_S) / det(I + L).

L = alpha k(X, X); the factor alpha sets the expected size, tr L (I + L)^-1. A determinant is small where rows are
alike, so that samples are diverse. Two samplers with one method, `draw`:

`SpectralDPP` has the eigenvectors of L: n^3 time once, for some thousand rows (Hough, Krishnapur, Peres, Virag 2006).

`VfxDPP` is DPP-VFX (Derezinski, Calandriello, Valko 2019) for any n. With features F of M centers, F F' <= k(X, X) and
F'F = V diag(S) V', each row has a score, about the probability that it is in a sample,

    l_i = alpha (k_ii - |f_i|^2) + f_i' (I / alpha + F'F)^-1 f_i,     s = sum l_i,
    z = sum alpha S / (1 + alpha S),     D = sum log(1 + alpha S).

A proposal is t ~ Poisson(q e^(s/q)) rows drawn in proportion to l, which are a problem of size t of their own: with the
counts c of its distinct rows, W^2 = c s / (q l) and L~ = W L W, it is accepted with the logarithm of the probability
z + log det(I + L~) - D - t s / q (not positive, since log det is concave), and then a sample of DPP(L~) is one of
DPP(L). That holds for any centers and any q: they decide how many proposals are rejected, and nothing else. The share
that is accepted is det(I + L) exp(z - D + q - q e^(s/q)). F is made anew for each block of rows and never stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from .._utils.linalg import add_square, cholesky, solve_upper_transposed
from .._utils.threads import effective_n_jobs, single_threaded_blas
from ..operators import KernelOperator
from ..preconditioners import Whitening
from .leverage import Array, Indices, Scoring, require_matrix, zero_scores_error
from .rpcholesky import rp_cholesky
from .sampling import pool_size

# 1 / alpha is compared with eigenvalues of k(X, X). Below this share of its trace they are rounding, as are the scores.
_LEAST_EIGENVALUE = 1e-11
_NOT_POSITIVE = 1e-6  # of the largest eigenvalue or k(x, x): what rounding does not explain
_WEAK = 1e-3  # alpha S of directions that are left to the rest, which costs half the square of it in acceptance
_MOST_REJECTIONS = 20_000  # attempts after which a draw gives up
_HOPELESS = 0.01  # expected share of accepted proposals below which a process is refused
_CALLS = 1e6  # cost of a proposal's function calls, in multiplications
_EIGENVECTORS = 10.0  # cost of eigenvectors, over the cube of the number of rows
_FEW = 30  # rows of a proposal whose eigenvectors take no longer than a function's call
_NOTHING = np.empty(0)
_SMALL = 1e6  # multiplications of a kernel matrix below which preparing tiles takes longer than computing it


class Sampler(Protocol):
    """A prepared process, from which samples are drawn."""

    @property
    def expected_size(self) -> float:
        """The expected size of a sample, or an upper bound of it."""
        ...

    def draw(self, random: np.random.RandomState, size: int | None) -> Indices:
        """Draw a sample, as sorted indices of rows; of a given size if there is one."""
        ...


@dataclass(frozen=True)
class Spectrum:
    """What is known of the eigenvalues of k(X, X): those of its part F F', and the diagonal of the rest.

    S : eigenvalues of F F', none negative
    rest : diagonal of k(X, X) - F F', not negative; empty if nothing was left out
    """

    S: Array
    rest: Array

    @property
    def trace(self) -> float:
        """Trace of k(X, X)."""
        return float(self.S.sum() + self.rest.sum())

    @property
    def least(self) -> float:
        """The smallest eigenvalue that is not rounding."""
        return _LEAST_EIGENVALUE * self.trace

    @property
    def rank(self) -> int:
        """An upper bound of the largest size of a sample."""
        return sum(int(np.greater(values, self.least).sum()) for values in (self.S, self.rest))

    def expected_size(self, alpha: float) -> float:
        """Return an upper bound of the expected size of a sample, which it is if nothing was left out.

        It is the sum of x / (1 + x) over the eigenvalues x of L. That function is concave and 0 at 0, so its sum for
        two matrices is at least that for their sum (Rotfel'd), and its sum over a diagonal at least that over
        eigenvalues (Schur and Horn).
        """
        return float(sum((alpha * values / (1 + alpha * values)).sum() for values in (self.S, self.rest)))

    def alpha(self, size: int | None, expected_size: float | None) -> float:
        """Return the factor for an expected size, or for which samples of a size are frequent; 1 if both are None."""
        if size is None and expected_size is None:
            return 1.0
        name, wanted = ("size", size) if expected_size is None else ("expected_size", expected_size)
        assert wanted is not None
        # no factor makes the expected size equal to the rank, but samples of that size are frequent half a row below
        target = float(wanted) if expected_size is not None else min(float(wanted), self.rank - 0.5)
        most = (1.0 if self.rest.size else 1e4) / self.least  # it multiplies the rounding of the rest, if there is one
        if wanted > self.rank or target >= self.expected_size(most):
            than = "at most" if expected_size is None else "less than"
            raise ValueError(
                f"{name}={wanted} must be {than} {self.rank}, the rank of the kernel matrix up to rounding: further "
                "rows are combinations of others for the kernel; ask for fewer, or use a shorter length scale"
            )
        low = target / (2 * self.trace)
        return math.exp(brentq(lambda x: self.expected_size(math.exp(x)) - target, math.log(low), math.log(most)))


def prepare_dpp(
    scoring: Scoring, size: int | None = None, expected_size: float | None = None, n_centers: int | None = None
) -> tuple[Sampler, float]:
    """Prepare a process on all rows, and return it with the factor alpha of the kernel.

    The factor is chosen for `size` or `expected_size`, and is 1 without both. `n_centers` is the number of centers of
    `VfxDPP`, raised above the number of rows of a sample. If it reaches the number of rows, which is the default for up
    to 2,000 rows, the process is a `SpectralDPP`.
    """
    n = scoring.n
    if size is not None and size > n:
        raise ValueError(f"size={size} must be at most {n}, the number of rows")
    if expected_size is not None and expected_size >= n:
        raise ValueError(f"expected_size={expected_size} must be less than {n}, the number of rows")
    if n_centers is None:
        n_centers = n if n <= 2_000 else max(500, math.ceil(10 * (size or expected_size or 0)))
    # Rows that centers leave out count as independent ones, so that a size beyond the rank is not noticed. As many
    # centers as a sample has rows are independent themselves, or leave nothing out.
    n_centers = max(n_centers, math.floor(size or expected_size or 0) + 1)
    if n_centers >= n:
        return _prepare_spectral(scoring, size, expected_size)
    return _prepare_vfx(scoring, n_centers, size, expected_size)


# ---- all eigenvectors ------------------------------------------------------------------------------------------------


class SpectralDPP:
    """A process known by the eigenvalues of L (zeros may be left out), and its eigenvectors as columns."""

    def __init__(self, values: Array, vectors: Array) -> None:
        self._chances = values / (1 + values)
        self._vectors = vectors

    @property
    def expected_size(self) -> float:
        return float(self._chances.sum())

    def draw(self, random: np.random.RandomState, size: int | None = None) -> Indices:
        for _ in range(_MOST_REJECTIONS):
            chosen = random.random_sample(len(self._chances)) < self._chances
            if size is None or chosen.sum() == size:
                return _draw_of_projection(random, self._vectors[:, chosen])
        raise _too_rare(f"size={size}", "ask for another size")


def _draw_of_projection(random: np.random.RandomState, V: Array) -> Indices:
    """Draw as many rows as V has orthonormal columns, from the process whose kernel is V V'.

    Each row is drawn in proportion to the variance that earlier ones leave: the diagonal of a pivoted Cholesky factor.
    """
    n, k = V.shape
    variances = np.square(V).sum(axis=1)
    columns = np.empty((k, n))
    chosen = np.empty(k, dtype=np.intp)
    for i in range(k):
        edges = np.cumsum(variances)
        j = chosen[i] = min(int(np.searchsorted(edges, random.random_sample() * edges[-1], side="right")), n - 1)
        column = V @ V[j] - columns[:i, j] @ columns[:i]
        columns[i] = column / math.sqrt(variances[j])
        variances = np.maximum(variances - np.square(columns[i]), 0.0)
        variances[chosen[: i + 1]] = 0.0
    return np.sort(chosen)


def _prepare_spectral(scoring: Scoring, size: int | None, expected_size: float | None) -> tuple[Sampler, float]:
    spectrum, vectors, negative = _eigenvectors(scoring, scoring.rows.take(np.arange(scoring.n)))
    if negative > _NOT_POSITIVE * float(spectrum.S.max(initial=0.0)) or not len(spectrum.S):
        raise _not_positive(scoring)
    alpha = spectrum.alpha(size, expected_size)
    return SpectralDPP(alpha * spectrum.S, vectors), alpha


def spectral_sample(scoring: Scoring, points: Any, size: int) -> Indices:
    """Draw `size` of the points, or as many as are independent; the kernel's negative eigenvalues are ignored."""
    spectrum, vectors, _ = _eigenvectors(scoring, points)
    if not len(spectrum.S):
        raise zero_scores_error(scoring.kernel)
    size = min(size, spectrum.rank)
    return SpectralDPP(spectrum.alpha(size, None) * spectrum.S, vectors).draw(scoring.random_state, size)


def _eigenvectors(scoring: Scoring, points: Any) -> tuple[Spectrum, Array, float]:
    """Return the eigenvalues above rounding of the points' kernel matrix, their vectors, and minus the smallest."""
    n = points.shape[0]
    require_matrix(3 * n, n, "take fewer rows, or centers in the place of their eigenvectors")
    gram = scoring.operator(points).centers_gram()
    with single_threaded_blas():
        values, vectors = eigh(gram, overwrite_a=True, check_finite=False, driver="evd")
    kept = values > Spectrum(np.maximum(values, 0.0), _NOTHING).least
    return Spectrum(values[kept], _NOTHING), vectors[:, kept], -float(values[0])


# ---- DPP-VFX ---------------------------------------------------------------------------------------------------------


class VfxDPP:
    """A process known by the scores of its rows; see the module's docstring.

    alpha : factor of the kernel
    scores : l
    S : eigenvalues of the part F F' of the kernel matrix that the scores were made with
    expected_size : an upper bound of the expected size of a sample
    left_out : sum of log(1 + alpha x) over the diagonal x of the kernel matrix without the part F F'
    """

    def __init__(
        self,
        scoring: Scoring,
        alpha: float,
        scores: Array,
        S: Array,
        expected_size: float,
        left_out: float,
        n_centers: int,
    ) -> None:
        self._scoring, self._alpha, self._scores, self._expected_size = scoring, alpha, scores, expected_size
        self._edges = np.cumsum(scores)
        self._s = s = float(self._edges[-1])
        z = float((alpha * S / (1 + alpha * S)).sum())
        self._surplus = z - float(np.log1p(alpha * S).sum())  # z - D
        self._q = _cheapest_q(s, scoring.rows.shape[1])
        self._rate = self._q * math.exp(s / self._q)
        # log det(I + L) is at most D + left_out, as in `Spectrum.expected_size`
        if z + left_out + self._q - self._rate < math.log(_HOPELESS / _MOST_REJECTIONS):
            raise ValueError(
                f"{n_centers} centers leave too much of the kernel matrix out to draw samples of about "
                f"{expected_size:.0f} rows: raise n_centers, or ask for fewer rows by expected_size"
            )
        most = math.ceil(self._rate + 6 * math.sqrt(self._rate))
        require_matrix(3 * most, most, f"about {s:.0f} rows are expected in a sample: ask for fewer")

    @property
    def expected_size(self) -> float:
        return self._expected_size

    def draw(self, random: np.random.RandomState, size: int | None = None) -> Indices:
        rejected = 0
        for _ in range(_MOST_REJECTIONS):
            items, L = self._propose(random)
            if L is None:
                rejected += 1
                continue
            vectors = None
            if size is None or len(L) <= _FEW:
                values, vectors = _decompose(L)
            else:  # the size is known before the eigenvectors, which take most of the time
                values = eigh(L, eigvals_only=True, check_finite=False)
            values = np.maximum(values, 0.0)
            chosen = random.random_sample(len(values)) < values / (1 + values)
            if size is not None and chosen.sum() != size:
                continue
            if vectors is None:
                vectors = _decompose(L)[1]
            return items[_draw_of_projection(random, vectors[:, chosen])]
        if rejected > 0.99 * _MOST_REJECTIONS:
            raise _too_rare("proposals", "raise n_centers, whose functions leave too much of the kernel matrix out")
        raise _too_rare(f"size={size}", "raise n_centers, or ask for another size")

    def _propose(self, random: np.random.RandomState) -> tuple[Indices, Array | None]:
        """Propose distinct rows, and return L~ of them if the proposal is accepted, else None."""
        s, q = self._s, self._q
        t = int(random.poisson(self._rate))
        drawn = np.searchsorted(self._edges, random.random_sample(t) * s, side="right")
        items, counts = np.unique(np.minimum(drawn, len(self._edges) - 1), return_counts=True)
        if t == 0:
            L, log_det = np.empty((0, 0)), 0.0
        else:
            W = np.sqrt(self._alpha * counts * s / (q * self._scores[items]))
            L = self._gram(items) * W[:, None] * W
            factor = np.array(L, order="F")
            factor.T.reshape(-1)[:: len(L) + 1] += 1.0
            if not cholesky(factor, lower=True):
                raise _not_positive(self._scoring)
            log_det = 2 * float(np.log(factor.diagonal()).sum())
        # 1 - x is in (0, 1]
        accepted = math.log(1 - random.random_sample()) < self._surplus + log_det - t * s / q
        return items, L if accepted else None

    def _gram(self, items: Indices) -> Array:
        points = self._scoring.rows.take(items)
        if len(items) ** 2 * points.shape[1] < _SMALL:
            return np.asarray(self._scoring.kernel(points, points), dtype=np.float64)
        return self._scoring.operator(points).centers_gram()


def _decompose(L: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors; of few rows by NumPy, whose call takes a tenth of SciPy's time there."""
    if len(L) <= _FEW:
        return np.linalg.eigh(L)
    values, vectors = eigh(L, overwrite_a=True, check_finite=False, driver="evd")
    return values, vectors


def _prepare_vfx(
    scoring: Scoring, n_centers: int, size: int | None, expected_size: float | None
) -> tuple[Sampler, float]:
    """Make the scores in two passes over the rows: for the eigenvalues of F'F, and with the factor that they give."""
    features = _Features(scoring, n_centers)
    diagonal, rest = np.empty(scoring.n), np.empty(scoring.n)
    G = np.zeros((features.rank, features.rank), order="F")
    for at, points, F in features:
        diagonal[at] = scoring.diagonal(points)
        rest[at] = diagonal[at] - np.square(F).sum(axis=0)
        add_square(G, F.T, n_threads=features.n_threads)
    if diagonal.min() < 0 or not diagonal.max() > 0:
        raise _not_positive(scoring)
    with single_threaded_blas():
        S, V = eigh(G, lower=True, overwrite_a=True, check_finite=False, driver="evd")
    S = np.maximum(S, 0.0)
    spectrum = Spectrum(S, np.maximum(rest, 0.0))
    if spectrum.rest.sum() <= spectrum.least:  # rounding
        spectrum = Spectrum(S, _NOTHING)
    alpha = spectrum.alpha(size, expected_size)
    expected = spectrum.expected_size(alpha)
    strong = alpha * S > _WEAK if spectrum.rest.size else np.greater(S, spectrum.least)
    S, V = S[strong], V[:, strong]
    scores = np.empty(scoring.n)
    shrinkage = alpha / (1 + alpha * S)
    logarithms = 0.0
    for at, _, F in features:
        with single_threaded_blas():
            squares = np.square(V.T @ F)
            left_out = diagonal[at] - squares.sum(axis=0)
            scores[at] = shrinkage @ squares
        if spectrum.rest.size:
            missed = alpha * np.maximum(left_out, 0.0)
            scores[at] += missed
            logarithms += float(np.log1p(missed).sum())
        if (left_out < -_NOT_POSITIVE * diagonal[at]).any():
            raise _not_positive(scoring)
    return VfxDPP(scoring, alpha, scores, S, expected, logarithms, features.rank), alpha


class _Features:
    """Blocks of F' = T^-T K' with M centers, by RPCholesky: a jitter in T makes F F' smaller, as it may be."""

    def __init__(self, scoring: Scoring, n_centers: int) -> None:
        pool = scoring.sample(pool_size(None, n_centers, scoring.n, numbers_a_row=n_centers))
        require_matrix(n_centers, pool.shape[0], "ask for fewer rows, or for fewer centers")
        centers = pool[rp_cholesky(scoring, pool, n_centers, max(10, n_centers // 10))]
        operator = scoring.operator(centers)
        self.n_threads = effective_n_jobs(scoring.n_jobs)
        whitening = Whitening(operator.centers_gram(), scoring.n, n_jobs=scoring.n_jobs)
        self.rank, self._selected = whitening.rank, whitening.selected
        self._T = whitening.T[:, : self.rank]
        self._operator: KernelOperator = operator.on(scoring.rows)

    def __iter__(self) -> Iterator[tuple[slice, Any, Array]]:
        """Yield a block's rows as a slice, their points, and their features as columns."""
        points = self._operator.rows.blocks(self._operator.block_size)
        for (at, K), block in zip(self._operator.blocks(), points, strict=True):
            F = np.array(K.T[self._selected])
            solve_upper_transposed(self._T, F, n_threads=self.n_threads)
            yield at, block, F


def _cheapest_q(s: float, width: int) -> float:
    """Choose q for the least expected time of a sample.

    If centers leave little out, a proposal is accepted with probability exp(s - q (e^(s/q) - 1)), about e^(-s^2 / 2 q),
    and costs the cube of its size q e^(s/q). The best q is near s^2 / 7, and larger if the overhead of calls dominates.
    The paper uses s^2.
    """
    x = np.geomspace(1e-3, 1.5, 200)  # s / q
    rate = s * np.exp(x) / x
    proposals = np.exp(np.minimum(s * (np.expm1(x) / x - 1), 500.0))  # and no overflow, times the size's cube
    cost = proposals * (_CALLS + width * rate**2 + rate**3 / 3) + _EIGENVECTORS * rate**3
    return s / float(x[np.argmin(cost)])


def _not_positive(scoring: Scoring) -> ValueError:
    return ValueError(
        f"{scoring.kernel!r} is zero or not positive semidefinite on these rows, and determinants of it are no "
        "probabilities: choose another kernel"
    )


def _too_rare(what: str, remedy: str) -> RuntimeError:
    return RuntimeError(f"{what} was not met in {_MOST_REJECTIONS} attempts: {remedy}")
