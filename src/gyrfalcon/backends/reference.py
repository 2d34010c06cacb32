"""The reference backend: NumPy in float64, as plain as possible. It defines what is correct."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..kernels import Kernel
from .base import Tiles


class KernelTiles(Tiles):
    """Tiles computed by calling the kernel itself."""

    def __init__(self, kernel: Kernel, centers: Any) -> None:
        super().__init__(centers.shape[0], centers.dtype, sp.issparse(centers))
        self.kernel = kernel
        self.centers = centers

    def fill(self, rows: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        if out is None:
            out = np.empty((rows.shape[0], self.n_centers), dtype=self.dtype)
        for part in self.parts(rows):  # the kernel's own temporaries are several times its result
            K = self.kernel(rows[part], self.centers)
            with np.errstate(over="ignore"):
                out[part] = K
            if not np.isfinite(out[part]).all():
                raise ValueError(
                    f"{self.kernel!r} gave values that are not finite: check its parameters and the scale of X"
                )
        return out
