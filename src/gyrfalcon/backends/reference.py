"""The reference backend: NumPy, float64, the plainest route. It defines what is correct."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Kernel
from .base import Tiles


class KernelTiles(Tiles):
    """Tiles made by calling the kernel itself."""

    def __init__(self, kernel: Kernel, centers: NDArray[Any]) -> None:
        super().__init__(len(centers), centers.dtype)
        self.kernel = kernel
        self.centers = centers

    def fill(self, rows: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        K = self.kernel(rows, self.centers)
        if not np.isfinite(K).all():
            raise ValueError(f"{self.kernel!r} gave values that are not finite: check its parameters and the scale of X")
        if out is None:
            return K.astype(self.dtype, copy=False)
        out[...] = K
        return out


def prepare(kernel: Kernel, centers: NDArray[Any]) -> Tiles:
    return KernelTiles(kernel, centers)
