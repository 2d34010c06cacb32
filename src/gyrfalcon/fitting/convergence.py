"""The one place that warns of a fit that has not converged."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.warnings import warn
from ..solvers import Clustering, Iterate
from ..solvers.newton import NewtonIterate

Array = NDArray[Any]

# Residuals at which more iterations change nothing that can be seen in predictions of that precision
TOLERANCES = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-10}

# The decrease that the last Newton step predicts, relative to the objective. What remains after that step is less:
# 0.07% of the objective on a9a and 0.09% on MNIST, with a log-loss on test rows 0.1% below and 0.3% above the converged
# one's.
NEWTON_TOLERANCE = 5e-3

# Root mean square by which predictions may be off, as a share of their own standard deviation: 0.0025 of what they
# explain. Newton's method goes on until a step moves fitted values by less: where a model explains little, or classes
# are nearly separated, the objective hardly tells. With it, 7 instead of 18 of 46 logistic fits (3,000 to 11,000 rows,
# penalties 1e-3 to 1e-9) were off by more, for a fifth more passes, and for 4% more on ordinary data
UNSETTLED = 0.05


def tolerance(tol: float | None, dtype: np.dtype[Any]) -> float:
    """Return the residual at which a linear solver stops: `tol`, or the smallest that matters in that precision."""
    return TOLERANCES[dtype] if tol is None else float(tol)


def warn_if_unsettled(last: Iterate, *, tol: float | None, reached: float, steps: str, remedy: str) -> None:
    """Warn of a linear solver that `max_iter` has stopped too early.

    That is if predictions would still move by more than a twentieth of their own standard deviation, whatever `tol` is,
    or if the residual is above the user's `tol`. The standard deviation of y would hide errors if most of it is noise.
    """
    if last.converged:
        return
    off = last.relative_error
    if off > UNSETTLED:
        warn(
            f"predictions are still off by about {off:.2g} of their standard deviation after {last.iteration} {steps}: "
            f"{remedy}",
            ConvergenceWarning,
        )
    elif tol:
        warn(
            f"the residual is {last.residual:.1e} after {last.iteration} {steps}, above tol={reached:g}: {remedy}",
            ConvergenceWarning,
        )


def warn_if_newton_unsettled(
    last: NewtonIterate, *, tol: float | None, reached: float, max_iter: int, has_stages: bool
) -> None:
    """Warn of Newton's method that `max_iter` has stopped before it reached the penalty or the user's `tol`.

    `has_stages` says whether smoother losses led to the one asked for.
    """
    if not last.at_penalty:
        smoother, ones = (" and a smoother loss", "ones") if has_stages else ("", "one")
        warn(
            f"{last.iteration} Newton steps were not enough to come from penalty={last.penalty:g}{smoother} down to "
            f"the {ones} asked for: raise max_iter={max_iter}",
            ConvergenceWarning,
        )
    elif not last.converged and last.residual > (tol or NEWTON_TOLERANCE):
        warn(
            f"another Newton step would still lower the objective by {last.residual:.1e} after {last.iteration} steps, "
            "above "
            f"tol={reached:g}: raise max_iter={max_iter}, the penalty or tol",
            ConvergenceWarning,
        )
    elif not last.converged and tol is None and last.iteration >= max_iter and last.relative_error > UNSETTLED:
        warn(
            f"the last of {last.iteration} Newton steps moved fitted values by {last.relative_error:.2g} of their "
            f"standard deviation: raise max_iter={max_iter} or the penalty",
            ConvergenceWarning,
        )


def warn_of_lost_penalty(penalty: float, dtype: DTypeLike = np.float32) -> None:
    """Warn of a penalty that the kernel's precision cannot resolve."""
    name = np.dtype(dtype).name
    remedy = 'use dtype="float64"' if name == "float32" else "rescale the features (scale=True does)"
    warn(
        f"penalty={penalty:g} is below the rounding errors of {name}, so a larger one is used: raise it, or {remedy}",
        ConvergenceWarning,
    )


def warn_if_components_unsettled(residual: float, tol: float, passes: int) -> None:
    """Warn of principal components that the iterations have not found to `tol`."""
    if residual > tol:
        warn(
            f"the residual of the components is {residual:.1e} after {passes} passes, above tol={tol:g}: raise tol, or "
            'use solver="direct"',
            ConvergenceWarning,
        )


def warn_of_rounded_components(found: int, wanted: int, dtype: np.dtype[Any]) -> None:
    """Warn of principal components that are zeros, since their variance would be rounding."""
    remedy = "ask for fewer, or use a shorter length scale"
    if dtype == np.float32:
        remedy = 'use dtype="float64", or ' + remedy
    warn(
        f"{found} of {wanted} components have a variance above the rounding errors of {dtype.name}, and the others are "
        f"zeros: {remedy}",
        ConvergenceWarning,
    )


def warn_of_missed_share(share: float, wanted: float) -> None:
    """Warn of centers whose span holds less of the variance than requested."""
    warn(
        f"the centers explain {share:.2g} of the variance and not n_components={wanted}: raise n_centers",
        ConvergenceWarning,
    )


def warn_if_clusters_unsettled(found: Clustering, n_clusters: int, max_iter: int, *, few_centers: bool) -> None:
    """Warn of k-means that `max_iter` has stopped, or that has found fewer clusters than requested.

    `few_centers` says whether there are fewer centers than rows, so that they may miss some rows.
    """
    distinct = int((found.counts > 0).sum())
    words = f"{distinct} clusters were found where n_clusters={n_clusters}"
    missed = few_centers and found.farthest > 0
    if distinct < n_clusters and not missed:
        warn(f"{words}: the kernel does not distinguish more points among the rows", ConvergenceWarning)
    elif distinct < n_clusters and found.converged:
        warn(
            f"{words}: the centers do not distinguish the other rows, which may be rare; raise n_centers, or use "
            'centers="rpcholesky", which looks for such rows',
            ConvergenceWarning,
        )
    elif not found.converged:
        warn(f"centroids still move after max_iter={max_iter} iterations: raise max_iter or tol", ConvergenceWarning)


def warn_of_rounding(share: float, dtype: np.dtype[Any]) -> None:
    """Warn of a function that a precision has lost part of, relative to its standard deviation or norm."""
    remedy = "a larger penalty or a shorter length scale"
    if dtype == np.float32:
        remedy = 'dtype="float64", ' + remedy
    size = f"by about {share:.2g} of their standard deviation" if share < 1 else "beyond recognition"
    warn(
        f"rounding in {dtype.name} may move predictions {size}, since the kernel is so smooth for its penalty that "
        f"coefficients cancel each other: use {remedy}",
        ConvergenceWarning,
    )


def warn_of_drowned_targets() -> None:
    """Warn of targets whose mean is so large that the requested float32 loses their variation."""
    warn(
        "the mean of y is so large, compared with its standard deviation, that float32 loses part of the variation: "
        "subtract it, "
        'or use dtype="float64"',
        ConvergenceWarning,
    )
