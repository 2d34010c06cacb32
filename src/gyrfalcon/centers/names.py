"""Selectors by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from .._utils.words import hint, listed
from .base import Centers
from .dpp import KDPP
from .kmeans import KMeansPlusPlus
from .leverage_sampling import Bless, LeverageScores
from .rpcholesky import RPCholesky
from .uniform import Given, Uniform

NAMES: dict[str, type[Any]] = {
    "uniform": Uniform,
    "leverage": LeverageScores,
    "bless": Bless,
    "rpcholesky": RPCholesky,
    "kmeans++": KMeansPlusPlus,
    "dpp": KDPP,
}


def as_centers(centers: str | ArrayLike | Centers) -> Centers:
    """Convert a name, an array of points or a selector to a selector.

    Examples
    --------
    >>> from gyrfalcon.centers import as_centers
    >>> as_centers("bless")
    Bless()
    """
    if isinstance(centers, str):
        if centers not in NAMES:
            names, meant = listed((f'"{name}"' for name in NAMES), None, plain=True), hint(centers, NAMES)
            raise ValueError(f"centers={centers!r} is not known: use {names}, an array of points, or a selector{meant}")
        selector: Centers = NAMES[centers]()
        return selector
    # tables of polars and pyarrow are arrays of points, and have a `select` too, which chooses columns
    if isinstance(centers, Centers) and not isinstance(centers, type) and not hasattr(centers, "__array__"):
        return centers
    points: Any = centers
    return Given(points if scipy.sparse.issparse(points) else np.asarray(points))
