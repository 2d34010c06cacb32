"""Warn of features whose scales differ so much that the largest ones dominate all distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .._utils.warnings import warn
from ..kernels import Kernel

_MOST = 100.0  # ratio of standard deviations
_FEW = 0.05  # share of the features: some pixels of an image are nearly constant without any meaning


def unlike_scales(kernel: Kernel, points: Any) -> tuple[int, int, NDArray[np.float64]] | None:
    """Find the features that vary most and least, if they share a length scale and differ by orders of magnitude.

    Returns their indices and the standard deviations of all features, or None. The centers are used because they are in
    memory. Features of one or two values, such as encoded categories, are not compared.
    """
    if scipy.sparse.issparse(points) or not kernel.has_common_scale:
        return None
    wide = np.asarray(points, dtype=np.float64)
    low, high = wide.min(axis=0), wide.max(axis=0)
    compared = np.flatnonzero(((wide != low) & (wide != high)).any(axis=0))
    if len(compared) < 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = wide.std(axis=0)
    most, least = compared[deviations[compared].argmax()], compared[deviations[compared].argmin()]
    drowned = deviations[most] > _MOST * deviations[compared]
    if not drowned.mean() >= _FEW:
        return None
    return int(most), int(least), deviations


def warn_of_unlike_scales(kernel: Kernel, points: Any, names: Any) -> None:
    """Warn of features that one length scale does not suit; `names` are those of the features, or None."""
    found = unlike_scales(kernel, points)
    if found is None:
        return
    most, least, deviations = found
    large, small = (repr(names[at]) if names is not None else f"number {at}" for at in (most, least))
    warn(
        f"features differ in size by orders of magnitude: column {large} varies by {deviations[most]:.3g} and column "
        f"{small} by {deviations[least]:.3g}, which has almost no effect: use scale=True, after which length "
        "scales are in standard deviations, or a length scale for each feature",
        UserWarning,
    )
