"""The kernels that a search tries, each a function of distances with a length scale for every column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Gaussian, Kernel, Laplacian, Matern

Array = NDArray[Any]


@dataclass(frozen=True)
class Family:
    """Kernels that differ in their length scales.

    Attributes
    ----------
    name : what `candidates_` calls it
    make : function of length scales that gives the kernel
    factors : lengths to begin with, in units of half the typical distance between rows
    """

    name: str
    make: Callable[[Any], Kernel]
    factors: tuple[float, ...]

    def typical(self, X: Array, scales: Array) -> float:
        """Return half the typical distance between rows whose columns are multiplied by `scales`."""
        resolved: Any = self.make("scale").resolve((X * scales).astype(X.dtype, copy=False))
        return float(resolved.length_scale)

    def kernel(self, scales: Array, length: float) -> Kernel:
        """Return the kernel of columns multiplied by `scales` and divided by `length`."""
        return self.make(length / np.asarray(scales, dtype=np.float64))


LAPLACIAN_1 = Family("1-norm Laplacian", lambda length: Laplacian(length, norm=1), (1.0, 2.0))
MATERN = Family("Matern 3/2", lambda length: Matern(length, nu=1.5), (1.0, 2.0))
LAPLACIAN = Family("Laplacian", lambda length: Laplacian(length), (1.0, 2.0))
GAUSSIAN = Family("Gaussian", lambda length: Gaussian(length), (0.5, 1.0))
