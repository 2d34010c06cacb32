"""What a fit keeps so that predictions come with their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..kernels import Kernel
from ..operators import KernelOperator, Operator
from ..preconditioners import Whitening
from ..solvers import Posterior, RidgePath, leave_one_out_scores, nystrom_path, posterior_of
from ..sources import Rows
from .conformal import MOST_SCORES, Conformity
from .data import FitData
from .subspace import Subspace

Array = NDArray[Any]

# M x M matrices in float64: the factor of K_MM, F'F, its eigenvectors and room to make them, and the features
BUFFERS = 6

_FEWEST_OTHERS = 100


@dataclass(frozen=True)
class Uncertainty:
    """The posterior of f, and how errors of unseen rows compare with what it foresees."""

    posterior: Posterior
    conformity: Conformity


def uncertainty_of_centers(space: Subspace, n_jobs: int | None) -> Uncertainty:
    """Find the uncertainty of a solution that was found by iterations: one more pass over the rows, of n M^2 time."""
    operator, (n, _) = space.operator, space.operator.shape
    whitening = Whitening(operator.centers_gram(np.float64), n, tile_dtype=operator.dtype, n_jobs=n_jobs)
    path = nystrom_path(operator, space.targets, whitening, space.data.weight)
    penalty = max(space.penalty, whitening.least_penalty)
    return uncertainty_of_path(
        path, space.data, operator, space.targets, space.scale, penalty, space.selection.indices, n_jobs
    )


def uncertainty_of_path(
    path: RidgePath,
    data: FitData,
    operator: Operator,
    targets: Array,
    scale: Array,
    penalty: float,
    center_rows: Array | None,
    n_jobs: int | None,
) -> Uncertainty:
    """Find the uncertainty of the solution of one penalty; of the rows, at most 10,000 are read again.

    Parameters
    ----------
    path : the solutions of all penalties
    data : FitData
    operator : k(rows, centers)
    targets : array of shape (n, k), divided by `scale`
    scale : array of shape (k,)
    penalty : float
        Positive.
    center_rows : array of int, or None
        Rows that are centers, if they are known.
    n_jobs : int or None
    """
    chosen = _judges(data, center_rows)
    weight = None if data.weight is None else data.weight[chosen]
    on_some = in_float64(operator.kernel, data.rows.subset(chosen), operator.centers, n_jobs)
    features = path.features()
    scores = leave_one_out_scores(
        features, path, penalty, on_some, targets[chosen].astype(np.float64, copy=False), weight
    )
    found = posterior_of(features, path, penalty)
    tau = found.prior_deviation
    scores = np.divide(scores, tau, out=np.where(scores > 0, np.inf, 0.0), where=tau > 0)
    found = replace(found, prior_deviation=tau * scale, noise_deviation=found.noise_deviation * scale)
    return Uncertainty(found, Conformity.of(scores, weight))


def in_float64(kernel: Kernel, rows: Rows, centers: Any, n_jobs: int | None) -> KernelOperator:
    """Return k(rows, centers) in float64, whatever the fit's precision: variances are small differences of values."""
    if scipy.sparse.issparse(centers) and not rows.is_sparse:
        rows = rows.map(scipy.sparse.csr_array, rows.dtype)
    return KernelOperator(kernel, rows.astype(np.float64), centers.astype(np.float64), n_jobs=n_jobs, memory_budget=0)


def _judges(data: FitData, center_rows: Array | None) -> Array:
    """Choose rows whose leave-one-out errors are like those of new rows.

    A row that is a center has functions of its own even if it is left out. Where nearly all rows are centers, the rest
    are too few to judge by, and new rows are hardly different.
    """
    counts = np.ones(len(data.targets), dtype=bool) if data.weight is None else data.weight > 0
    others = counts.copy()
    if center_rows is not None:
        others[center_rows] = False
    rows = np.flatnonzero(others if others.sum() >= _FEWEST_OTHERS else counts)
    if len(rows) <= MOST_SCORES:
        return rows
    # one sample is as good as another, and a fit that is resumed must find the same
    return np.sort(np.random.default_rng(0).choice(rows, MOST_SCORES, replace=False))
