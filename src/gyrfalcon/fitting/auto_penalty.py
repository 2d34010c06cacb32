"""The penalty that a sample of the rows recommends if the user gives none.

The sample and all rows share mu = penalty n, the ratio of the noise's variance to the kernel's: it is a property of the
data, while the penalty of the papers falls as rows are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.memory import parse_memory
from .._utils.ranges import power_of_two
from .._utils.sampling import draw
from .._utils.statistics import deviations
from ..kernels import Kernel, KernelFunction
from ..operators import Operator, make_operator
from ..preconditioners import Preconditioner, Whitening
from ..solvers import nystrom_path
from ..solvers.newton import newton
from ..sources import as_rows
from .data import FitData
from .kernel import resolved_kernel
from .targets import mean_loss

Array = NDArray[Any]

# Rows and centers of the sample; a path by leave-one-out then takes about a second. R2 of test rows was within
# 0.004 of the best of a grid of penalties for all rows (Gaussian kernel: friedman1 to 3, kin8nm, cpu_act, house_16h).
_ROWS, _CENTERS = 3_000, 750
_LOSS_ROWS, _LOSS_CENTERS = 1_500, 200  # the same for a path by Newton's method
_HELD_OUT = 1 / 3  # share of the sample to hold out for losses other than the squared one

# mu / (n k(x, x)) of the paths: smaller values interpolate the targets, larger ones ignore them
_GRID = np.logspace(-9, 0, 37)
_LOSS_GRID = np.logspace(0, -7, 15)

# Among penalties whose errors cannot be distinguished, the largest is the safest: errors within a standard error of the
# difference from the smallest one, and within this share of the error and of the explained variance. The standard error
# alone would allow penalties that explain nothing if R2 is 0.01, and ones whose effect looks like noise if y has none
_EQUAL_SHARE = 0.01
# Explained share of the variance below which noise would decide the penalty on this sample, so that more rows and fewer
# centers are used, at the same cost
_NOISY = 0.2
_NOISY_ROWS, _NOISY_CENTERS = 12_000, 375
_EQUAL = 1e-3  # relative difference of other losses below which they count as equal
_WIDEST = 10_000  # largest number of features for which equal sparse rows are merged
_PATIENCE = 3  # number of penalties in a row without a lower error after which the path of another loss ends


def as_penalty(
    penalty: float | str,
    kernel: Kernel | str | KernelFunction,
    data: FitData,
    random_state: np.random.RandomState,
    compute: Compute,
) -> float:
    """Return the given penalty, or the one that a sample of the rows recommends if it is "auto".

    For the squared loss the whole path of penalties is solved, and the one with the least leave-one-out error is
    returned. For other losses Newton's method follows the path, and the mean loss of held-out rows of the sample
    decides. The sample has fewer rows if the memory budget is small.
    """
    if not isinstance(penalty, str):
        return float(penalty)
    n = data.rows.shape[0]
    most, centers = (_ROWS, _CENTERS) if data.is_least_squares else (_LOSS_ROWS, _LOSS_CENTERS)
    # number of centers whose M x M matrices and blocks of rows fit in memory
    room = max(1, min(math.isqrt(parse_memory(compute.memory_budget or "auto") // 128), n))
    sample = _drawn(data, kernel, min(most, 4 * min(centers, room)), random_state)
    if not (np.isfinite(sample.size) and sample.size > 0):
        return 0.0
    if data.is_least_squares:
        share, explained = _squared_loss(sample, min(centers, room), compute)
        more = min(_NOISY_ROWS, 32 * room, n)
        if explained < _NOISY and more > len(sample.at):
            sample = _drawn(data, kernel, more, random_state)
            share, _ = _squared_loss(sample, min(_NOISY_CENTERS, room), compute)
    else:
        share = _other_loss(sample, min(centers, room), compute)
    mu = share * sample.size * float(sample.at.sum())
    # not less than the precision of the rows can distinguish from rounding
    return max(mu / n, sample.size * float(np.finfo(data.rows.dtype).eps))


@dataclass(frozen=True)
class _Sample:
    """Distinct rows in random order, with their targets in `data`.

    kernel : the kernel, with parameters that depend on the rows resolved
    at : the weights of the rows
    size : the mean of k(x, x)
    """

    kernel: Kernel
    points: Any
    data: FitData
    at: Array
    size: float


def _drawn(
    data: FitData, kernel: Kernel | str | KernelFunction, most: int, random_state: np.random.RandomState
) -> _Sample:
    """Draw at most `most` rows."""
    n = data.rows.shape[0]
    drawn = draw(n, most, random_state) if n > most else np.arange(n)
    given = np.ones(len(drawn)) if data.weight is None else data.weight[drawn]
    targets = data.targets[drawn]
    points, kept, at = _merged(data.rows.take(drawn).astype(np.float64), targets, given)
    resolved = resolved_kernel(kernel, points, at)
    size = float(np.average(np.maximum(resolved.diag(points), 0.0), weights=at))
    few = replace(data, rows=as_rows(points), targets=targets[kept], weight=at, validation=None)
    return _Sample(resolved, points, few, at, size)


def _merged(points: Any, targets: Array, weight: Array) -> tuple[Any, Array, Array]:
    """Merge equal rows into one with the sum of their weights, and shuffle the rows; the first ones are the centers.

    A row of weight 2 counts as two rows: if one of them were left out, the other would remain. Returns the rows, their
    indices among those given, and their weights.
    """
    if scipy.sparse.issparse(points):
        words = [
            points[[i]].toarray().tobytes() if points.shape[1] <= _WIDEST else b"%d" % i for i in range(len(weight))
        ]
        keys = np.array([word + target.tobytes() for word, target in zip(words, targets, strict=True)], dtype=object)
        _, kept, groups = np.unique(keys, return_index=True, return_inverse=True)
    else:
        # sorted by value, which gives the same order if rows from another source differ in their last bits
        both = np.hstack([points, targets.astype(np.float64)])
        _, kept, groups = np.unique(both, axis=0, return_index=True, return_inverse=True)
        groups = groups.ravel()  # NumPy 2.0 gives a column
    total = np.bincount(groups, weights=weight)
    order = np.random.RandomState(0).permutation(len(kept))
    return points[kept[order]], kept[order], total[order]


def _squared_loss(sample: _Sample, M: int, compute: Compute) -> tuple[float, float]:
    """Return mu / (k(x, x) times the sum of the weights), and the share of the variance that it explains.

    It is the largest penalty whose leave-one-out error cannot be distinguished from the smallest.
    """
    n, weight, M = len(sample.at), sample.at, min(M, len(sample.at))
    operator = make_operator(
        sample.kernel, sample.data.rows, sample.points[:M], n_jobs=compute.n_jobs, memory_budget=8 * n * M
    )
    whitening = Whitening(operator.centers_gram(np.float64), n)
    targets = sample.data.targets / power_of_two(sample.data.targets, axis=0)
    targets = targets.astype(np.float64, copy=False)
    path = nystrom_path(operator, targets, whitening, weight, keep=True)  # two passes over it follow
    penalties = np.maximum(_GRID * sample.size * float(weight.mean()), whitening.least_penalty)
    errors = path.leave_one_out(penalties)
    # the error of each output is relative to its smallest
    best = errors.min(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(best > 0, errors / best, np.where(errors > 0, np.inf, 1.0)).mean(axis=1)
    shares = np.where(np.isnan(shares), np.inf, shares)
    least = int(np.argmin(shares))
    if not (best > 0).all():
        return float(_GRID[np.flatnonzero(shares <= shares[least])[-1]]), 1.0
    explained = np.maximum(np.square(deviations(targets, weight)) * weight.mean() / best - 1, 0.0).mean()
    with np.errstate(invalid="ignore", over="ignore"):
        blur = np.nan_to_num(path.paired_standard_errors(penalties, least, best), nan=0.0, posinf=0.0)
    equal = np.minimum(blur, _EQUAL_SHARE * min(1.0, explained))
    good = np.flatnonzero(shares <= shares[least] + equal)
    return float(_GRID[good[-1]]), float(explained / (1 + explained))


def _other_loss(drawn: _Sample, M: int, compute: Compute) -> float:
    """Return mu / (k(x, x) times the sum of the weights) with the smallest mean loss of held-out rows."""
    kernel, points, sample, weight, size = drawn.kernel, drawn.points, drawn.data, drawn.at, drawn.size
    n = len(weight)
    held = math.floor(_HELD_OUT * n)
    train = n - held
    if held == 0:
        return 1.0
    M = min(M, train)
    loss, mean = sample.loss, float(weight[:train].mean())
    unit = loss.unit(sample.targets, weight)
    factor = loss.penalty_unit(sample.targets, weight) * unit
    targets, offset = sample.targets / unit, None if sample.offset is None else sample.offset / unit
    fitted = _operator(kernel, points[:train], points[:M], compute)
    validation = _operator(kernel, points[train:], points[:M], compute)
    scaled = loss.in_units(unit)
    coordinates = Preconditioner(fitted.centers_gram(np.float64), size, train, n_jobs=compute.n_jobs)
    start, least, best, worse = None, np.inf, float(_LOSS_GRID[0]), 0
    for share in _LOSS_GRID:
        *_, last = newton(
            fitted,
            targets[:train].astype(np.float64, copy=False),
            scaled,
            coordinates,
            share * size * factor * mean,
            max_iter=5,
            tol=1e-2,
            weight=weight[:train],
            start=start,
            offset=offset,
            center_rows=np.arange(M),
        )
        start = last.coef()
        f = validation.matmat(start) + (0.0 if offset is None else offset)
        error = mean_loss(scaled, targets[train:], weight[train:], f)
        if error < least * (1 - _EQUAL):
            least, best, worse = error, float(share), 0
        else:
            worse += 1
            if worse == _PATIENCE:
                break
    return best


def _operator(kernel: Kernel, points: Any, centers: Any, compute: Compute) -> Operator:
    budget = 8 * points.shape[0] * centers.shape[0]
    return make_operator(kernel, as_rows(points), centers, n_jobs=compute.n_jobs, memory_budget=budget)
