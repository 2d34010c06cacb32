"""Extreme eigenvalues of a symmetric operator, from the tridiagonal matrix that Lanczos' method or CG builds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal, norm
from scipy.linalg.lapack import dsterf

Vectors = NDArray[np.float64]


def extreme_eigenvalues(diagonal: Vectors, beside: Vectors) -> tuple[float, float]:
    """Return the smallest and the largest eigenvalue of a symmetric tridiagonal matrix."""
    last = len(diagonal) - 1
    if last == 0:
        return float(diagonal[0]), float(diagonal[0])
    if last < 100:  # computing all of them is faster
        values, failed = dsterf(diagonal, beside)
        if not failed:
            return float(values[0]), float(values[-1])
    low, high = (float(eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(i, i))[0]) for i in (0, last))
    return low, high


def ritz_values(steps: Sequence[Vectors], ratios: Sequence[Vectors]) -> tuple[Vectors, Vectors]:
    """Return estimates (low, high) of the extreme eigenvalues of CG's system from each column, within the true ones.

    With T_ii = 1/step_i + ratio_{i-1}/step_{i-1} and T_i,i+1 = sqrt(ratio_i)/step_i, T is the system in the directions
    that CG has searched: its eigenvalues lie between the system's extreme ones (up to rounding), and the outermost
    approach them within a few iterations. `steps` and `ratios` hold an array of shape (k,) for each iteration. A column
    is used until its first step of length 0 (at rest, or restarted); without any step it gives 1 and 1.
    """
    S, C = np.stack(steps), np.stack(ratios)
    low, high = np.ones(S.shape[1]), np.ones(S.shape[1])
    for column, (step, ratio) in enumerate(zip(S.T, C.T, strict=True)):
        t = int(np.argmin(step > 0)) if not (step > 0).all() else len(step)
        if t == 0:
            continue
        step, ratio = step[:t], ratio[: t - 1]
        diagonal = 1 / step
        diagonal[1:] += ratio / step[:-1]
        low[column], high[column] = extreme_eigenvalues(diagonal, np.sqrt(ratio) / step[:-1])
    return low, high


def condition_number(low: Vectors, high: Vectors) -> float:
    """Return the largest condition number of the columns, from extreme eigenvalues; infinite if one is not positive."""
    return float(np.max(np.divide(high, low, out=np.full_like(high, np.inf), where=low > 0), initial=1.0))


def lanczos(product: Callable[[Vectors], Vectors], size: int, n_iter: int) -> tuple[float, float]:
    """Estimate the extreme eigenvalues of a symmetric operator, from within, by at most `n_iter` products."""
    v = np.random.default_rng(0).standard_normal(size)
    basis: list[Vectors] = []
    diagonal: list[float] = []
    beside: list[float] = []
    length = float(norm(v, check_finite=False))
    for _ in range(min(n_iter, size)):
        basis.append(v / length)
        v = product(basis[-1])
        diagonal.append(float(basis[-1] @ v))
        # Orthogonalise against all vectors, twice, so that no eigenvalue appears twice; cheap beside a pass.
        Q = np.stack(basis)
        for _ in range(2):
            v = v - Q.T @ (Q @ v)
        length = float(norm(v, check_finite=False))
        if not length > 1e-12 * max(map(abs, diagonal)):
            break
        beside.append(length)
    if not diagonal:
        return 0.0, 0.0
    return extreme_eigenvalues(np.array(diagonal), np.array(beside[: len(diagonal) - 1]))
