"""The precision that a fit needs: what float32 would lose, foreseen on a sample of the rows or measured afterwards.

Entries of K in float32 are off by about eps k(x, z), and a sum of M of them that is made in float32 by about

    eps sqrt(M sum_j (k(x, z_j) coef_j)^2).

Where the kernel is smooth and the penalty small, coefficients are large and cancel each other, so that this is no
longer small beside the standard deviation of f. A direction in which K_MM / M has the eigenvalue s, and y the component
c, has coefficients of norm c / ((s + penalty) sqrt(M)): float32 is safe where the penalty or all eigenvalues are far
above eps k(x, x), and otherwise it depends on y. The jitter of K_MM's factors and products with K' lose as much again:
fits of 32 kinds of data (benchmarks/ill_conditioned.py) were off by up to four times the figure above.

In float64 that jitter is felt first. It adds penalty jitter |coef|^2 to the objective, which is mean(f^2) + penalty
|f|^2 and linear terms, so that f moves by no more than the root of this on the rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.ranges import power_of_two
from .._utils.sampling import draw
from .._utils.statistics import means
from ..kernels import Kernel
from ..operators import KernelOperator, Operator
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
_SAFE = 100.0  # times eps k(x, x): a penalty, or a least eigenvalue of K_MM / M, at which no fit loses as much
_SETTLED = 1e-3  # residual of iterations whose coefficients are nearly those of the penalty
_ROWS, _CENTERS = 3_000, 300  # size of the sample, which takes about 0.1 s
_VISIBLE = 3.0  # standard errors; a smaller component of y may be noise, which is less on all rows
_JUDGES = 256  # centers at which a fitted function is measured


def in_suitable_precision(data: FitData, kernel: Kernel, points: Any, penalty: float | None) -> FitData:
    """Return the data in float64 if float32 would lose part of f, or warn if the user asked for float32.

    The kernel is resolved and `points` are the centers; `penalty` is None if no single penalty bounds the coefficients.
    """
    if data.rows.dtype != np.float32:
        return data
    if not data.dtype_given:
        return data.in_precision(np.float64) if _needs_float64(data, kernel, points, penalty) else data
    kernel.check_terms(points, np.float32)
    if penalty is not None and not _resolves(kernel, points, penalty):
        warn_of_lost_penalty(penalty)
    elif penalty is not None and (share := _foreseen(kernel, points, data, penalty)) > _NOTICEABLE:
        warn_of_rounding(share, data.rows.dtype)
    if _drowned(data):
        warn_of_drowned_targets()
    return data


def _needs_float64(data: FitData, kernel: Kernel, points: Any, penalty: float | None) -> bool:
    """Whether float32 would lose a term of the kernel, the variation of y, the penalty, or a visible part of f."""
    least, most = kernel.term_sizes(points)
    if 0 < least < _BLURRED * _EPS * most or _drowned(data):
        return True
    if penalty is None:
        return False
    return not _resolves(kernel, points, penalty / 4) or _foreseen(kernel, points, data, penalty) > _NOTICEABLE


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
        jitter = 16 * float(np.finfo(np.float64).eps) * size * math.sqrt(M)
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


def _foreseen(kernel: Kernel, points: Any, data: FitData, penalty: float) -> float:
    """Return the share of f that float32 would lose, by ridge regression in float64 on some rows and centers."""
    M, n = points.shape[0], data.rows.shape[0]
    size = float(np.mean(np.maximum(kernel.diag(points), 0.0)))
    least = _SAFE * _EPS * size
    if not penalty < least < np.inf:
        return 0.0
    Z = points[_some(M, _CENTERS)].astype(np.float64)
    values, vectors = np.linalg.eigh(_matrix(kernel, Z, Z))
    if values[0] > least * Z.shape[0]:
        return 0.0
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
    residual = y - F @ (z / (values + penalty))
    noise = np.average(np.square(residual), axis=0, weights=weight) * values
    z = np.where(np.square(z) > _VISIBLE**2 * noise / len(at), z, np.sqrt(noise / n))
    coef = R @ (z / (values + penalty))
    return _share(_rounding(K, coef), K @ coef)
