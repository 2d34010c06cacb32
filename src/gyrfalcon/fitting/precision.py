"""The precision that a fit needs: what float32 would lose, foreseen on a sample of the rows or measured afterwards.

Entries of K in float32 are off by about eps k(x, z), and a sum of M of them that is made in float32 by about

    eps sqrt(M sum_j (k(x, z_j) coef_j)^2).

Where the kernel is smooth and the penalty small, coefficients are large and cancel each other, so that this is no
longer small beside the standard deviation of f. A direction in which K_MM / M has the eigenvalue s, and y the component
c, has coefficients of norm c / ((s + penalty) sqrt(M)): this is safe where the penalty or all eigenvalues are far above
eps k(x, x), and otherwise it depends on y.

The factors of K_MM take a jitter J of a few eps sqrt(M), and what cannot safely be removed of it stays in the problem,
as penalty (K_MM + rho I) with rho = (J - s) / 2 for a least eigenvalue s of K_MM below J. So functions that K_MM hardly
knows are penalised too much, and rows far from all centers, where such functions are large, are not fitted: with 40
centers in two dimensions f was off by 5% of its deviation with penalties of 1e-3 and of 1e-6 alike. Both losses are
computed in float64 on a sample: the solution with the jitter beside the one without, and rounding at the coefficients
that the jitter leaves. A kernel that is not positive needs a jitter that outweighs the negative eigenvalues of K_MM in
float64 too: both solutions have it.

In float64 the jitter is felt first. It adds penalty jitter |coef|^2 to the objective, which is mean(f^2) + penalty
|f|^2 and linear terms, so that f moves by no more than the root of this on the rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.ranges import power_of_two
from .._utils.sampling import draw
from .._utils.statistics import means
from ..kernels import Kernel
from ..operators import KernelOperator, Operator
from ..preconditioners.whitening import auto_jitter
from ..sources import as_rows
from .convergence import warn_of_drowned_targets, warn_of_lost_penalty, warn_of_rounding
from .data import FitData, drowns
from .session import Solution

Array = NDArray[Any]

_EPS = float(np.finfo(np.float32).eps)
# A term of the kernel that is this many times the rounding of another is known to 0.1%. Fits show what is lost: R2 of
# Linear() + 1.0 was 0.987 instead of 0.990 where the constant is 20 times that, and with targets of mean 100 and
# deviation 1 R2 of a polynomial was -4,000 at 100
_BLURRED = 1000.0
# Share of the deviation of f that may be lost. In float32, fits with a tenth of it differed from those in float64 by
# less than 1% of that deviation, and fits with four times as much by up to 26%. In float64, 60 fits with shares below
# 0.003 differed from dense solves by less than 1e-4, and four with 0.04 to 0.07, of rows with heavy tails, by up to 14%
_NOTICEABLE = 0.02
_NOTICEABLE_JITTER = 0.03
_UNWANTED = 0.01  # share at which the precision is float64, unless the user chose it: that costs nothing but time
_SAFE = 100.0  # times eps k(x, x): a penalty, or a least eigenvalue of K_MM / M, at which rounding loses less
_SETTLED = 1e-3  # residual of iterations whose coefficients are nearly those of the penalty
# Rows farther out than all of the sample lose several times its share, if the coefficients without jitter would too: a
# fit with 0.006 lost 0.009 of the deviation on its rows, and 0.4 on new ones with heavier tails
_FARTHER = 4.0
_ROWS, _CENTERS = 3_000, 300  # size of the sample, which takes about 0.1 s
_VISIBLE = 3.0  # standard errors; a smaller component of y may be noise, which is less on all rows
_JUDGES = 256  # centers at which a fitted function is measured


def in_suitable_precision(
    data: FitData,
    kernel: Kernel,
    points: Any,
    penalty: float | None,
    factors: DTypeLike | None = None,
    *,
    iterates: bool = False,
) -> FitData:
    """Return the data in float64 if float32 would lose part of f, or warn if the user asked for float32.

    The kernel is resolved and `points` are the centers; `penalty` is None if no single penalty bounds the coefficients.
    `factors` is the precision of the factors of K_MM, or None if every row is a center; `iterates` is then whether the
    solution is found by products with K_nn in the precision of the rows, and not in float64.
    """
    single = data.rows.dtype == np.float32
    if single and not data.dtype_given and _needs_float64(data, kernel, points, penalty, factors, iterates):
        data, single = data.in_precision(np.float64), False
    if not single:
        size = float(np.mean(np.maximum(kernel.diag(points), 0.0)))
        # solvers raise it to an eighth of eps k(x, x), and a small factor hardly matters
        if penalty is not None and 0 < penalty < float(np.finfo(np.float64).eps) / 80 * size < np.inf:
            warn_of_lost_penalty(penalty, np.float64)
        return data
    if not data.dtype_given:
        return data
    kernel.check_terms(points, np.float32)
    if penalty is not None and not _resolves(kernel, points, penalty):
        warn_of_lost_penalty(penalty)
    elif penalty is not None:
        share = _foreseen(kernel, points, data, penalty, factors, iterates)
        if share > _NOTICEABLE:
            warn_of_rounding(share, data.rows.dtype)
    if _drowned(data):
        warn_of_drowned_targets()
    return data


def _needs_float64(
    data: FitData, kernel: Kernel, points: Any, penalty: float | None, factors: DTypeLike | None, iterates: bool
) -> bool:
    """Whether float32 would lose a term of the kernel, the variation of y, the penalty, or a visible part of f."""
    least, most = kernel.term_sizes(points)
    if 0 < least < _BLURRED * _EPS * most or _drowned(data):
        return True
    if penalty is None:
        return False
    if not _resolves(kernel, points, penalty / 4):
        return True
    return _foreseen(kernel, points, data, penalty, factors, iterates) > _UNWANTED


def _drowned(data: FitData) -> bool:
    """Whether the fit has to represent y with its mean, so that float32 would lose the variation of y.

    With an offset, least squares are fitted to the difference from the mean.
    """
    if data.is_least_squares and data.offset is not None:
        return False
    return drowns(means(data.targets, data.weight), data.targets, data.weight)


def _resolves(kernel: Kernel, points: Any, penalty: float) -> bool:
    """Whether float32 can distinguish the penalty from rounding of the kernel's values, an eighth of eps k(x, x)."""
    diagonal = kernel.diag(points)
    size = float(diagonal[0]) if np.ptp(diagonal) == 0 else 1.0  # it differs between points for the linear kernel
    return penalty >= _EPS / 8 * size


def warn_if_chosen_penalty_rounds(
    operator: Operator, data: FitData, penalty: float, factors: DTypeLike | None = None
) -> None:
    """Warn as `in_suitable_precision` does, after a direct solve has chosen the penalty from a list."""
    if operator.dtype == np.float32:
        share = _foreseen(operator.kernel, operator.centers, data, penalty, factors)
        if share > _NOTICEABLE:
            warn_of_rounding(share, operator.dtype)


def warn_if_iterates_rounded(
    operator: Operator, solution: Solution[Any], penalty: float | None, *, foreseen: bool
) -> None:
    """Warn as `warn_if_rounded` does of the result of iterations, which may be far from the solution."""
    settled = penalty if solution.last.residual <= _SETTLED else None
    warn_if_rounded(operator, solution.coef, settled, foreseen=foreseen or solution.stopped)


def warn_if_rounded(operator: Operator, coef: Array, penalty: float | None, *, foreseen: bool = False) -> None:
    """Warn of coefficients that cancel each other so far that rounding determines part of the function.

    penalty : the penalty of least squares, or None if `coef` is not their solution
    foreseen : whether a warning was given before the fit if float32 was a reason for one
    """
    if foreseen and operator.dtype == np.float32:
        return
    kernel, centers = operator.kernel, operator.centers.astype(np.float64)
    M = centers.shape[0]
    coef = coef / power_of_two(coef, axis=0)  # so that no square overflows
    K = _matrix(kernel, centers[_some(M, _JUDGES)], centers)
    if operator.dtype == np.float32:
        lost = _rounding(K, coef)
    else:
        size = float(np.mean(np.maximum(kernel.diag(centers), 0.0)))
        jitter = auto_jitter(size, M, np.float64)
        convexity = 0.0 if penalty is None or size == 0 else penalty / (1 + penalty / size)
        lost = np.sqrt(convexity * jitter * np.square(coef).sum(axis=0))
    share = _share(lost, K @ coef)
    if share > (_NOTICEABLE if operator.dtype == np.float32 else _NOTICEABLE_JITTER):
        warn_of_rounding(share, operator.dtype)


def _some(count: int, most: int) -> NDArray[np.intp]:
    """Return indices of at most `most` of `count` points, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))


def _matrix(kernel: Kernel, A: Any, B: Any) -> Array:
    """Return k(A, B) of points in float64."""
    K = np.empty((A.shape[0], B.shape[0]))
    for at, block in KernelOperator(kernel, as_rows(A), B, memory_budget=0).blocks():
        K[at] = block
    return K


def _rounding(K: Array, coef: Array) -> Array:
    """Return the part of each column of K coef that float32 loses, as a root mean square."""
    return _EPS * np.sqrt(K.shape[1] * (np.square(K) @ np.square(coef)).mean(axis=0))


def _share(lost: Array, f: Array) -> float:
    """Return the loss relative to the standard deviation of f, the largest of all columns."""
    deviation = np.maximum(f.std(axis=0), 1e-2 * np.abs(f.mean(axis=0)))
    return float(np.divide(lost, deviation, out=np.zeros_like(lost), where=deviation > 0).max())


def _foreseen(
    kernel: Kernel, points: Any, data: FitData, penalty: float, factors: DTypeLike | None, iterates: bool = False
) -> float:
    """Return the share of f that float32 would lose, by ridge regression in float64 on some rows and centers."""
    M, n = points.shape[0], data.rows.shape[0]
    size = float(np.mean(np.maximum(kernel.diag(points), 0.0)))
    least = _SAFE * _EPS * size
    penalty = max(penalty, float(np.finfo(np.float64).eps) / 8 * size)  # as solvers do
    if not 0 < least < np.inf or (penalty >= least and factors is None):
        return 0.0
    Z = points[_some(M, _CENTERS)].astype(np.float64)
    m = Z.shape[0]
    K_ZZ = _matrix(kernel, Z, Z)
    # eigenvalues of K_MM are about M / m times as large
    jitter = 0.0 if factors is None else auto_jitter(size, M, factors, np.float32) * m / M
    if _all_above(K_ZZ, least * m if penalty < least else jitter):
        return 0.0
    values, vectors = np.linalg.eigh(K_ZZ)
    # that of a kernel that is not positive outweighs its negative eigenvalues, in float64 too
    inevitable = -float(values[0]) if values[0] < -jitter < 0 else 0.0
    remaining = inevitable or max(0.0, jitter - float(values[0])) / 2
    kept = values > 1e-15 * values[-1]
    R = vectors[:, kept] / np.sqrt(values[kept])
    at = draw(n, min(n, _ROWS), np.random.RandomState(0))
    K = _matrix(kernel, data.rows.take(at).astype(np.float64), Z)
    weight = np.ones(len(at)) if data.weight is None else data.weight[at] / data.weight[at].mean()
    y = data.targets[at].astype(np.float64)
    if data.offset is not None:  # losses other than the squared one have not subtracted it
        y -= np.average(y, axis=0, weights=weight)
    y /= np.maximum(np.abs(y).max(axis=0), np.finfo(np.float64).tiny)
    F = K @ R
    values, vectors = np.linalg.eigh(F.T @ (weight[:, None] * F) / len(at))
    F, R, values = F @ vectors, R @ vectors, np.maximum(values, 0.0)[:, None]
    z = F.T @ (weight[:, None] * y) / len(at)

    def solution(penalty: float, jitter: float) -> Array:
        if jitter == 0:
            return z / (values + penalty)
        return np.linalg.solve(np.diagflat(values + penalty) + penalty * jitter * (R.T @ R), z)

    residual = y - F @ solution(penalty, inevitable)
    noise = np.average(np.square(residual), axis=0, weights=weight) * values
    z = np.where(np.square(z) > _VISIBLE**2 * noise / len(at), z, np.sqrt(noise / n))
    raised = max(penalty, _EPS / 8 * size)
    beta, found = solution(penalty, inevitable), solution(raised, remaining)
    lost, f = np.sqrt(np.square(F @ (beta - found)).mean(axis=0)), F @ beta
    if factors is None:  # coefficients of all rows are residuals over penalty n
        squares = np.square(weight * np.sqrt(np.square(K).mean(axis=1)))[:, None]
        rounding = _EPS / raised * np.sqrt((squares * np.square(residual)).mean(axis=0))
        return _share(np.hypot(lost, rounding * (1.0 if iterates else min(1.0, 2 / math.sqrt(n)))), f)
    share = _share(np.hypot(lost, _rounding(K, R @ found)), f)
    return max(share, min(_FARTHER * share, _share(np.hypot(lost, _rounding(K, R @ beta)), f)))


def _all_above(K: Array, bound: float) -> bool:
    """Whether all eigenvalues of a symmetric matrix are above a bound, or it is not finite."""
    try:
        np.linalg.cholesky(K - bound * np.eye(len(K)))
    except np.linalg.LinAlgError:
        return not np.isfinite(K).all()
    return True
