"""Values that a fit keeps so that predictions come with their uncertainty.

Deviations are those of the posterior, in which y has the same noise everywhere. Intervals must also be wide where y is
noisy: log |leave-one-out error / deviation| is learnt by a small kernel ridge regression on the same rows, and
intervals are as wide as its exponential times the deviation. Its own leave-one-out values show how well that holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.sampling import draw
from .._utils.words import shown
from ..kernels import Kernel
from ..operators import KernelOperator, Operator
from ..preconditioners import Whitening
from ..solvers import Posterior, RidgePath, leave_one_out_scores, missed_by, nystrom_path, posterior_of
from ..sources import Rows
from .conformal import MOST_SCORES, Conformity
from .data import FitData
from .subspace import Subspace

Array = NDArray[Any]

# M x M matrices in float64: the factor of K_MM, F'F, its eigenvectors and room to make them, and the features
BUFFERS = 6

_FEWEST_OTHERS = 100
_LISTED = 1 << 20  # rows up to which those that may be chosen are listed
_MOST_MEANS = 10_000  # rows beyond which the mean of y is the same with and without one of them

# Centers and rows of the regression of errors' logarithms. Intervals were narrower by 6% on kin40k, 11% on
# california_housing and 13% on protein_raw than with deviations alone (one split each, M = 1,000), as often right.
_SPREAD_CENTERS, _FEWEST_SPREAD_ROWS = 300, 100
_SPREAD_GRID = np.logspace(-5, 1, 13)
_MOST_SPREAD = float(np.log(10.0))


@dataclass(frozen=True)
class Uncertainty:
    """The posterior of f, and how errors of unseen rows compare with its deviations.

    spread : coefficients of log(error / deviation) up to a constant, of shape (M, k)
    conformity : errors of unseen rows, divided by the deviations times the exponential of the above
    """

    posterior: Posterior
    spread: Array
    conformity: Conformity


def check_noise(penalty: float | str, penalties: Any = None) -> None:
    """Raise ValueError for a penalty of 0, which means that y has no noise and leaves the amplitude of f unknown."""
    name, used = ("penalty", penalty) if penalties is None else ("penalties", penalties)
    if not isinstance(used, str) and np.min(used) == 0:
        raise ValueError(
            f"uncertainty=True needs a positive penalty, not {name}={shown(used)}: 0 means that y has no noise; "
            'give penalty="auto", or a small number such as 1e-10'
        )


def uncertainty_of_centers(space: Subspace, coef: Array, penalty: float) -> Uncertainty:
    """Compute the uncertainty of coefficients found by iterations or in float32, in one more pass of n M^2 time.

    It is computed in float64: in float32 the factor of K_MM has a jitter as large as many variances.
    """
    operator, compute = space.operator, space.compute
    if operator.dtype != np.float64:
        operator = in_float64(operator.kernel, space.data.rows, operator.centers, compute)
    whitening = Whitening(operator.centers_gram(), operator.shape[0], n_jobs=compute.n_jobs)
    path = nystrom_path(operator, space.targets, whitening, space.data.weight)
    penalty = max(penalty, whitening.least_penalty)
    return uncertainty_of_path(
        path, space.data, operator, coef, space.targets, space.scale, penalty, space.selection.indices, compute
    )


def uncertainty_of_path(
    path: RidgePath,
    data: FitData,
    operator: Operator,
    coef: Array,
    targets: Array,
    scale: Array,
    penalty: float,
    center_rows: Array | None,
    compute: Compute,
) -> Uncertainty:
    """Compute the uncertainty of the predictions of `coef`.

    At most 10,000 rows are read again, or all of them if k(x, x) varies.

    coef : the coefficients used for predictions: the computed solution for `penalty`, times `scale`
    targets : array of shape (n, k), divided by `scale`
    penalty : a positive number
    center_rows : rows that are centers, or None if unknown
    """
    chosen = _judges(data, center_rows)
    weight = None if data.weight is None else data.weight[chosen]
    on_some = in_float64(operator.kernel, data.rows.subset(chosen), operator.centers, compute)
    # rounded as predictions are
    predicts = _in_precision(operator.kernel, data.rows.subset(chosen), operator.centers, data.rows.dtype, compute)
    features = path.features()
    constant = None
    if data.offset is not None and len(targets) <= _MOST_MEANS:
        ones = np.ones(len(targets)) if data.weight is None else data.weight[:]
        constant = features.T @ operator.rmatmat(ones[:, None].astype(operator.dtype))[:, 0]
    missed = missed_by(path, operator.kernel, data.rows.astype(np.float64), data.weight)
    scores, excess = leave_one_out_scores(
        features,
        path,
        penalty,
        on_some,
        targets[chosen].astype(np.float64, copy=False),
        weight,
        constant,
        missed,
        predicts.matmat(coef / scale),
    )
    found = posterior_of(features, path, penalty, missed)
    noise = np.hypot(found.noise_deviation, np.sqrt(excess))
    found = replace(found, prior_deviation=found.prior_deviation * scale, noise_deviation=noise * scale)
    spread, scores = _spread(on_some, scores, weight, compute)
    return Uncertainty(found, spread, Conformity.of(scores, weight))


def widening(operator: KernelOperator, spread: Array) -> Array:
    """Return the factor by which intervals of rows are wider than their deviations, of shape (n, k), from 0.1 to 10."""
    return np.exp(np.clip(operator.matmat(spread), -_MOST_SPREAD, _MOST_SPREAD))


def _spread(operator: KernelOperator, scores: Array, weight: Array | None, compute: Compute) -> tuple[Array, Array]:
    """Learn where scores are large; return coefficients of the centers, and scores relative to those of other rows."""
    (m, M), k = operator.shape, scores.shape[1]
    spread = np.zeros((M, k))
    middle = np.median(scores, axis=0)
    diagonal = np.maximum(operator.kernel.diag(operator.centers), 0.0)
    size = float(np.mean(diagonal))
    if m < _FEWEST_SPREAD_ROWS or not (np.isfinite(scores).all() and middle.min() > 0 and size > 0):
        return spread, scores
    logs = np.log(scores + middle / 10)  # so that errors that happen to be 0 do not decide
    logs -= np.average(logs, axis=0, weights=weight)
    some = np.linspace(0, M - 1, min(M, _SPREAD_CENTERS)).astype(np.intp)
    on_some = KernelOperator(
        operator.kernel, operator.rows, operator.centers[some], n_jobs=compute.n_jobs, memory_budget=0
    )
    weight = None if weight is None else weight / weight.mean()
    path = nystrom_path(on_some, logs, Whitening(on_some.centers_gram(), m, n_jobs=compute.n_jobs), weight)
    errors = path.leave_one_out(size * _SPREAD_GRID).mean(axis=1)
    penalty = size * float(_SPREAD_GRID[errors.argmin()])
    spread[some] = path.coefficients(penalty)
    residuals = path.leave_one_out_residuals(penalty)
    left_out = logs - (residuals if weight is None else residuals / np.sqrt(weight)[:, None])
    return spread, scores / np.exp(np.clip(left_out, -_MOST_SPREAD, _MOST_SPREAD))


def in_float64(kernel: Kernel, rows: Rows, centers: Any, compute: Compute) -> KernelOperator:
    """Return k(rows, centers) in float64, whatever the fit's precision: variances are small differences of values."""
    return _in_precision(kernel, rows, centers, np.float64, compute)


def _in_precision(kernel: Kernel, rows: Rows, centers: Any, dtype: Any, compute: Compute) -> KernelOperator:
    if scipy.sparse.issparse(centers) and not rows.is_sparse:
        rows = rows.map(scipy.sparse.csr_array, rows.dtype)
    return KernelOperator(kernel, rows.astype(dtype), centers.astype(dtype), n_jobs=compute.n_jobs, memory_budget=0)


def _judges(data: FitData, center_rows: Array | None) -> Array:
    """Choose rows whose leave-one-out errors are like those of new rows.

    A row that is a center has functions of its own even if it is left out. If nearly all rows are centers, the other
    rows are too few, and new rows are hardly different.
    """
    n, known = len(data.targets), 0 if center_rows is None else len(center_rows)
    if n > _LISTED and 2 * (MOST_SCORES + known) <= n:  # without a list of all rows
        drawn = draw(n, MOST_SCORES + known, np.random.RandomState(0))
        others = drawn if center_rows is None else np.setdiff1d(drawn, center_rows)
        return np.sort(np.random.default_rng(0).choice(others, MOST_SCORES, replace=False))
    others = np.ones(n, dtype=bool)
    if center_rows is not None:
        others[center_rows] = False
    rows = np.flatnonzero(others) if others.sum() >= _FEWEST_OTHERS else np.arange(len(others))
    if len(rows) <= MOST_SCORES:
        return rows
    # one sample is as good as another, and a fit that is resumed must find the same
    return np.sort(np.random.default_rng(0).choice(rows, MOST_SCORES, replace=False))
