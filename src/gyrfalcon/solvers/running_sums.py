"""The sums that Nyström regression depends on, to which rows can be added and from which they can be taken away.

With F = K R and R'K_MM R = I (`Whitening`), the coefficients are alpha = R a,

    (F'WF + lambda w I) a = F'W(y - m),     w = sum of the weights,     m = the mean of y, or 0 without an intercept.

F'WF, F'Wy, F'W1 and two numbers for each output are sums over rows, so that a batch of rows is learnt by adding its
part, and forgotten by subtracting it. This takes b M^2 + M^3 / 3 operations for b rows, whatever was learnt before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, eigh, get_lapack_funcs, solve_triangular

from .._utils.checks import array, not_negative
from .._utils.registry import register
from ..operators import Operator
from ..preconditioners import Whitening
from .ridge_path import jitter_factor

Vectors = NDArray[np.float64]

_LEAST_BLOCK = 512  # rows
_CANDIDATES = 2_000  # rows of a batch among which new centers are looked for


@register
@dataclass(frozen=True, eq=False)
class RunningSums:
    """Sums over the rows learnt so far.

    Attributes
    ----------
    projection : ndarray of shape (M, r)
        R, by which values of the kernel become features.
    gram : ndarray of shape (r, r)
        F'WF.
    products : ndarray of shape (r, k)
        F'W(Y - origin).
    totals : ndarray of shape (r,)
        F'W1.
    origin : ndarray of shape (k,)
        Values from which targets are measured, so that a large mean does not drown their differences.
    targets : ndarray of shape (k,)
        Sum of W(Y - origin).
    weight : float
        Sum of the weights.
    peak : float
        The largest sum of weights until now, to which rounding errors are proportional.
    penalty : float
        lambda.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.solvers.running_sums import empty_sums
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> y = np.sin(X[:, :1])
    >>> K = KernelOperator("gaussian", X, X[:10])
    >>> sums = empty_sums(K, np.zeros(1), 1e-3)
    >>> once = sums.changed(K, y)
    >>> twice = once.changed(K, y).changed(K, y, sign=-1.0)
    >>> np.allclose(once.solution(True)[0], twice.solution(True)[0])
    True
    """

    projection: Vectors
    gram: Vectors
    products: Vectors
    totals: Vectors
    origin: Vectors
    targets: Vectors
    weight: float
    peak: float
    penalty: float

    def __post_init__(self) -> None:
        array((None, None))("projection", self.projection)
        r = self.projection.shape[1]
        array((r, r))("gram", self.gram)
        array((None,))("origin", self.origin)
        array((r, len(self.origin)))("products", self.products)
        array((r,))("totals", self.totals)
        array(self.origin.shape)("targets", self.targets)
        for name in ("weight", "peak", "penalty"):
            not_negative()(name, vars(self)[name])

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return what a model file holds."""
        return dict(vars(self))

    def changed(
        self, operator: Operator, Y: NDArray[Any], weight: Vectors | None = None, *, sign: float = 1.0
    ) -> RunningSums:
        """Return the sums with rows added, or taken away.

        Parameters
        ----------
        operator : Operator
            k(rows, centers) of the rows.
        Y : ndarray of shape (n, k)
            Their targets, measured from `origin`.
        weight : ndarray of shape (n,), optional
            Their weights.
        sign : float
            1 to add the rows, -1 to take them away.
        """
        gram, products, totals = self.gram.copy(), self.products.copy(), self.totals.copy()
        root = None if weight is None else np.sqrt(weight)
        for at, F in self.features(operator):
            targets = Y[at].astype(np.float64)
            ones = np.ones(len(F))
            if root is not None:
                ones = root[at]
                F, targets = F * ones[:, None], targets * ones[:, None]
            gram += sign * (F.T @ F)
            products += sign * (F.T @ targets)
            totals += sign * (F.T @ ones)
        size = float(len(Y) if weight is None else weight.sum())
        sums = np.asarray(Y, dtype=np.float64).T @ (np.ones(len(Y)) if weight is None else weight)
        total = self.weight + sign * size
        if total <= 1e-12 * max(self.peak, size):
            raise ValueError(
                f"the rows to forget have the total weight {size:g}, and those that were learnt {self.weight:g}: "
                "at least one row must remain"
            )
        return replace(
            self,
            gram=gram,
            products=products,
            totals=totals,
            targets=self.targets + sign * sums,
            weight=total,
            peak=max(self.peak, total),
        )

    def features(self, operator: Operator) -> Iterator[tuple[slice, Vectors]]:
        """Yield rows of F in blocks of about M rows, so that adding to F'WF takes little beside making it."""
        n, M = operator.shape
        size = max(M, _LEAST_BLOCK)
        K, begin, end = np.empty((min(n, size), M)), 0, 0
        for at, block in operator.blocks():
            for start in range(at.start, at.stop, size):
                stop = min(start + size, at.stop)
                if stop - begin > len(K):
                    yield slice(begin, end), K[: end - begin] @ self.projection
                    begin = end
                K[start - begin : stop - begin] = block[start - at.start : stop - at.start]
                end = stop
        if end > begin:
            yield slice(begin, end), K[: end - begin] @ self.projection

    def faded(self, factor: float) -> RunningSums:
        """Return the sums with the weights of all rows multiplied by `factor`."""
        if factor == 1:
            return self
        names = ("gram", "products", "totals", "targets", "weight", "peak")
        return replace(self, **{name: factor * vars(self)[name] for name in names})

    @property
    def rounding(self) -> float:
        """The share of the penalty that rounding errors of rows that were forgotten can make up."""
        scale = float(np.trace(self.gram)) / max(self.weight, np.finfo(float).tiny)
        return float(np.finfo(np.float64).eps) * self.peak * scale / max(self.penalty * self.weight, 1e-300)

    def solution(self, intercept: bool) -> tuple[Vectors, Vectors]:
        """Return the coefficients of the centers, of shape (M, k), and the offset, of shape (k,)."""
        mean = self.targets / self.weight if intercept else np.zeros_like(self.targets)
        rhs = self.products - self.totals[:, None] * mean
        mu = self.penalty * self.weight
        A = self.gram.copy()
        A.flat[:: len(A) + 1] += mu
        try:
            L = np.linalg.cholesky(
                A
            )  # by the BLAS of the products: threads of another would wait for those of this one
            a = cho_solve((L, True), rhs, check_finite=False)
        except np.linalg.LinAlgError:  # singular without a penalty, or by the rounding of rows that were forgotten
            s, V = eigh(self.gram, check_finite=False)
            kept = s + mu > len(s) * np.finfo(float).eps * max(float(s[-1]), mu)
            a = V[:, kept] @ ((V[:, kept].T @ rhs) / (s[kept] + mu)[:, None])
        return self.projection @ a, self.origin + mean

    def extended(self, new: Novel) -> RunningSums:
        """Return the sums for more centers; rows learnt before count by their part in the span of the old ones."""
        M, r = self.projection.shape
        m = new.root.shape[1]
        projection = np.zeros((M + m, r + m))
        projection[:M, :r] = self.projection
        inverse = solve_triangular(new.root, np.eye(m), lower=True, trans="T")
        projection[:M, r:] = -(self.projection @ (new.features.T @ inverse))
        projection[M:, r:] = inverse
        return replace(
            self,
            projection=projection,
            gram=np.pad(self.gram, ((0, m), (0, m))),
            products=np.pad(self.products, ((0, m), (0, 0))),
            totals=np.pad(self.totals, (0, m)),
        )


@dataclass(frozen=True)
class Novel:
    """Rows of a batch that become centers.

    positions : their positions in the batch
    features : their features, of shape (m, r)
    root : a lower triangular factor, of shape (m, m), of what the centers cannot represent of their kernel matrix
    """

    positions: NDArray[np.intp]
    features: Vectors
    root: Vectors


def empty_sums(operator: Operator, origin: Vectors, penalty: float) -> RunningSums:
    """Return the sums over no row.

    Parameters
    ----------
    operator : Operator
        k(rows, centers); its number of rows does not matter.
    origin : ndarray of shape (k,)
        Values from which targets will be measured.
    penalty : float
        Raised to the least one that the precision of the kernel can tell from rounding.
    """
    n = operator.shape[0]
    whitening = Whitening(operator.centers_gram(np.float64), n, tile_dtype=operator.dtype)
    R = whitening.apply(np.eye(whitening.rank)) * np.sqrt(n)
    L = jitter_factor(whitening)
    if L is not None:
        R = solve_triangular(L, R.T, lower=True).T
    r, k = R.shape[1], len(origin)
    zeros = np.zeros((r, r)), np.zeros((r, k)), np.zeros(r)
    return RunningSums(R, *zeros, origin, np.zeros(k), 0.0, 0.0, max(penalty, whitening.least_penalty))


def find_novel(sums: RunningSums, operator: Operator, most: int, threshold: float) -> Novel | None:
    """Choose rows that the centers represent badly; None if there are none.

    The rows are the pivots of a Cholesky factorisation of what the centers cannot represent of their kernel matrix.

    Parameters
    ----------
    sums : RunningSums
    operator : Operator
        k(rows, centers).
    most : int
        The largest number of rows to choose.
    threshold : float
        A row is chosen if at least this share of k(x, x) is in none of the centers.
    """
    kernel, rows = operator.kernel, operator.rows
    F = np.concatenate([F for _, F in sums.features(operator)])
    left, least = np.empty(len(F)), np.empty(len(F))
    start = 0
    for block in rows.blocks(_CANDIDATES):
        at = slice(start, start + block.shape[0])
        diagonal = np.asarray(kernel.diag(block), dtype=np.float64)
        left[at], least[at] = diagonal - np.square(F[at]).sum(axis=1), threshold * diagonal
        start = at.stop
    candidates = np.flatnonzero(left > least)
    if not len(candidates):
        return None
    candidates = np.sort(candidates[np.argsort(-left[candidates], kind="stable")[:_CANDIDATES]])
    points = rows.take(candidates)
    S = np.asfortranarray(kernel(points, points), dtype=np.float64) - F[candidates] @ F[candidates].T
    (pstrf,) = get_lapack_funcs(("pstrf",), (S,))
    factor, pivots, rank, _ = pstrf(S, tol=float(least[candidates].min()), lower=True)
    m = min(max(int(rank), 1), most)
    chosen = pivots[:m].astype(np.intp) - 1
    return Novel(candidates[chosen], F[candidates[chosen]], np.tril(factor[:m, :m]))
