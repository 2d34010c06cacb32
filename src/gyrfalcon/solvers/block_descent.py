"""Block coordinate descent: blocks of coefficients solved in turn, with the others fixed.

Tu, Roelofs, Venkataraman, Recht, "Large Scale Kernel Learning using Block Coordinate Descent" (2016). For the block b
of the coefficients of ``(K'WK + lambda n G) alpha = K'W y``, with the residuals r = y - K alpha of all rows,

    (K_b'WK_b + lambda n G_bb) delta = K_b'W r - lambda n (G alpha)_b,     alpha_b += delta,     r -= K_b delta.

G is K_MM for centers and the identity for random features. A block costs two products with its own columns of K, so
that a sweep costs two passes. The first sweep sums the blocks K_b'WK_b, whose factors are kept: they take M times the
block's size in memory, where K'WK would take M^2. The more the blocks are correlated, the slower the convergence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from .._utils.statistics import average, deviations
from .._utils.threads import single_threaded_blas
from ..operators import Operator
from .base import Iterate, Vectors, signals, sizes
from .features import normal_equations

_SLOWEST = 1.25  # lower bound of the power p with which gains fall, like t^-p: at 1 their sum would be infinite


def block_descent(
    blocks: Sequence[Operator],
    y: NDArray[Any],
    gram: NDArray[Any] | None,
    penalty: float,
    *,
    max_iter: int,
    tol: float = 0.0,
    weight: NDArray[Any] | None = None,
    n_jobs: int | None = None,
) -> Iterator[Iterate]:
    """Run block coordinate descent on ``(K'WK + penalty n G) alpha = K'W y``, with a sweep of all blocks an iteration.

    Parameters
    ----------
    blocks : sequence of Operator
        Columns of K, block by block, of the same rows.
    y, weight
        As for `conjugate_gradient`.
    gram : ndarray of shape (M, M), or None
        G; None for the identity. Kept, not copied, and not overwritten.
    penalty : float
        lambda, not negative.
    max_iter : int
        Largest number of sweeps.
    tol : float
        Stop when each column's residual is at most ``tol`` times the norm of its right-hand side.
    n_jobs : int or None
        Threads; None is every core.

    Yields
    ------
    Iterate
        One for each sweep. Its residual is made of those that the blocks had before they were solved, and its error
        is what the gains of sweeps so far promise of those to come.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.solvers import block_descent
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> y = np.sin(X[:, 0])
    >>> K = KernelOperator("laplacian", X, X[:20])
    >>> halves = [KernelOperator(K.kernel, X, X[:10]), KernelOperator(K.kernel, X, X[10:20])]
    >>> *_, last = block_descent(halves, y, K.centers_gram(), 0.1, max_iter=300, tol=1e-10)
    >>> A = K.sandwich(np.eye(20)) + 0.1 * 200 * K.centers_gram()
    >>> np.allclose(last.coef(), np.linalg.solve(A, K.rmatmat(y)))
    True
    """
    began, passed = time.perf_counter(), sum(block.passes for block in blocks)
    n = blocks[0].shape[0]
    ends = np.cumsum([block.shape[1] for block in blocks])
    columns = [slice(int(end) - block.shape[1], int(end)) for block, end in zip(blocks, ends, strict=True)]
    Y = y.reshape(n, -1)
    w = None if weight is None else weight[:, None]
    M, k = int(ends[-1]), Y.shape[1]
    mu = penalty * n
    alpha, residual = np.zeros((M, k)), Y.astype(np.float64)
    spread = deviations(Y, weight)
    b, g = np.empty((M, k)), np.empty((M, k))
    solves: list[Callable[[Vectors], Vectors]] = []
    left = np.square(residual).sum(axis=0) if w is None else (w * np.square(residual)).sum(axis=0)  # the objective
    gains: list[Vectors] = []
    for iteration in range(1, max_iter + 1):
        gain = np.zeros(k)
        for i, (block, at) in enumerate(zip(blocks, columns, strict=True)):
            if iteration == 1:
                G_b, c = normal_equations(block, np.hstack([Y, residual]), weight, n_jobs=n_jobs)
                b[at], g[at] = c[:, :k], c[:, k:]
                G_b += mu * (np.eye(len(G_b)) if gram is None else gram[at, at])
                solves.append(_factored(G_b))
            else:
                g[at] = block.rmatmat(residual if w is None else w * residual)
            g[at] -= mu * (alpha[at] if gram is None else gram[at] @ alpha.astype(gram.dtype, copy=False))
            delta = solves[i](g[at])
            alpha[at] += delta
            gain += (g[at] * delta).sum(axis=0)
            residual -= block.matmat(delta)
        if not np.isfinite(alpha).all():
            raise FloatingPointError("block coordinate descent diverges: use a larger penalty or another kernel")
        gains.append(gain)
        left = np.maximum(left - gain, 0.0)
        residuals = np.linalg.norm(g, axis=0) / sizes(b)
        error = np.sqrt(np.minimum(left, _still_to_gain(gains)) / n)
        yield Iterate.measured(
            iteration,
            residuals,
            tol,
            seconds=time.perf_counter() - began,
            passes=-(-(sum(block.passes for block in blocks) - passed) // len(blocks)),
            step=np.zeros(k),
            ratio=np.zeros(k),
            error=error,
            signal=signals(np.sqrt(average(Y - residual, weight, np.square)), error, spread),
            _coef=partial(np.array, alpha.reshape(M, *y.shape[1:])),
        )
        if (residuals <= tol).all():
            return


def _still_to_gain(gains: list[Vectors]) -> Vectors:
    """Estimate the gain of later sweeps in the objective, e'(K'WK + lambda n G)e for the error e of alpha.

    Similar blocks converge ever more slowly, with gains falling like t^-p: later ones sum to t / (p - 1) of the last.
    Where they fall at a constant rate this is at least the sum, and not much more.
    """
    t = len(gains)
    if t == 1:
        return gains[0]
    half = t // 2
    before, last = (np.maximum(gain, np.finfo(np.float64).tiny) for gain in (gains[half - 1], gains[-1]))
    p = (np.log(before) - np.log(last)) / np.log(t / half)
    rest: Vectors = last * t / (np.maximum(p, _SLOWEST) - 1)
    return rest


def _factored(G: Vectors) -> Callable[[Vectors], Vectors]:
    """Return the solver with G plus the least diagonal that makes it definite, which does not change the limit."""
    if not np.isfinite(G).all():
        raise FloatingPointError("the normal equations of a block are not finite: rescale the features")
    least = len(G) * float(np.finfo(np.float64).eps) * max(float(G.diagonal().max(initial=0.0)), np.finfo(float).tiny)
    jitter, diagonal = least, G.diagonal().copy()
    with single_threaded_blas():
        while True:
            G.flat[:: len(G) + 1] = diagonal + jitter
            try:
                factor = cho_factor(G, lower=True, check_finite=False)
                break
            except np.linalg.LinAlgError:
                jitter *= 10

    def solve(g: Vectors) -> Vectors:
        with single_threaded_blas():
            return np.asarray(cho_solve(factor, g, check_finite=False), dtype=np.float64)

    return solve
