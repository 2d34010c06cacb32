"""Products with K of distance kernels on a GPU without K in memory, by Triton where it works.

With few features an entry of K costs less to make again than to write and to read. The kernel is in
`triton_kernels.py`, which is imported when a device can use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.devices import import_torch
from .._utils.warnings import warn
from ..kernels import Gaussian, Kernel, Laplacian, Matern, RationalQuadratic
from .torch_tiles import centered

__all__ = ["FUSED_ON", "MOST_COLUMNS", "FusedTile", "MakeFusedTile", "prepare"]

Array = NDArray[Any]
Tensor = Any

# Kinds of devices: ROCm's are named "cuda" too. Tests add "cpu", on which Triton's interpreter runs.
FUSED_ON = {"cuda"}
# An entry is made twice in a pass, from differences: beyond this, a matrix product and the memory for K may cost less
_MOST_FEATURES = 32
# Columns of V beyond which a matrix product with K costs less than sums of a program's own
MOST_COLUMNS = 32
# Largest relative error of sums of entries, on a device that computes them as it should
_TOLERANCE = 2e-5

_PROFILES: dict[type[Kernel], Callable[[Any], str]] = {
    Gaussian: lambda kernel: "gaussian",
    Laplacian: lambda kernel: "exponential" if kernel.norm == 1 else "laplacian",
    Matern: lambda kernel: {0.5: "laplacian", 1.5: "matern_3", 2.5: "matern_5"}[kernel.nu],
    RationalQuadratic: lambda kernel: "rational_quadratic",
}

# Whether a profile has been right on a device, in this process
_checked: dict[tuple[Any, str], bool] = {}


def prepare(kernel: Kernel, centers: Array, device: Any) -> MakeFusedTile | None:
    """Return the function that makes fused tiles k(rows, centers), or None where PyTorch is to make K.

    The first time that a device is to use a profile, products are compared with NumPy's. If they are wrong, or Triton
    is missing or fails, one warning says so.

    Parameters
    ----------
    kernel : Kernel
        Resolved.
    centers : array of shape (M, d)
        Dense.
    device : torch.device
    """
    suits = device.type in FUSED_ON and centers.dtype == np.float32 and centers.shape[1] <= _MOST_FEATURES
    if not suits or type(kernel) not in _PROFILES:
        return None
    key = device, _PROFILES[type(kernel)](kernel)
    if key not in _checked:
        problem = _problem(kernel, centers.shape[1], device)
        _checked[key] = problem is None
        if problem is not None:
            warn(f"{device} makes {kernel!r} by PyTorch, without the fused kernel: {problem}", RuntimeWarning)
    return MakeFusedTile(kernel, centers, device) if _checked[key] else None


def _problem(kernel: Kernel, d: int, device: Any) -> str | None:
    """Return what is wrong with fused products on a device, if anything is."""
    torch = import_torch()
    points = np.random.default_rng(0).standard_normal((100, d)) / (kernel.scaling(d) * np.sqrt(d))
    centers = points.astype(np.float32)
    rows = centers[:40]
    K = kernel(rows.astype(np.float64), centers.astype(np.float64))
    try:
        tile = MakeFusedTile(kernel, centers, device)(torch.from_numpy(rows.copy()).to(device))
        V, U = (torch.ones((n, 2), dtype=torch.float32, device=device) for n in (len(centers), len(rows)))
        found = (tile @ V).cpu().numpy(), tile.chunked_products(U).sum(dim=0).cpu().numpy()
    except Exception as error:  # a compiler, a driver or a linker, each with exceptions of its own
        return f"Triton failed ({type(error).__name__}: {error})"
    for one, exact in zip(found, (K.sum(axis=1), K.sum(axis=0)), strict=True):
        off = float((np.abs(one - exact[:, None]) / exact[:, None]).max())
        if not off < _TOLERANCE:
            return f"its products are off by {off:.1e}; please send in what gyrfalcon check-device prints"
    return None


class MakeFusedTile:
    """Makes fused tiles of dense rows on a device.

    Parameters
    ----------
    kernel : Kernel
        Resolved.
    centers : array of shape (M, d)
    device : torch.device
    """

    def __init__(self, kernel: Kernel, centers: Array, device: Any) -> None:
        from . import triton_kernels

        self._kernels = triton_kernels
        Z, self._scaled = centered(kernel, centers, device)
        self.n_centers, self.centers = len(centers), _padded(Z)
        self._measure = triton_kernels.MEASURES[kernel.geometry]
        self._profile = triton_kernels.PROFILES[_PROFILES[type(kernel)](kernel)]
        self._alpha = float(kernel.alpha) if isinstance(kernel, RationalQuadratic) else 1.0

    def __call__(self, X: Tensor) -> FusedTile:
        return FusedTile(self, _padded(self._scaled(X)), len(X))

    def sums(self, A: Tensor, B: Tensor, W: Tensor) -> Tensor:
        """Return sums of k(a, b) w over chunks of b, as a tensor of shape (chunks, k, I).

        Parameters
        ----------
        A, B : tensors of shape (d, I) and (d, J)
            Padded points.
        W : tensor of shape (number of b, k)
        """
        W = _padded(W)
        (d, I), J, k = A.shape, B.shape[1], len(W)  # noqa: E741
        TI, TJ = self._kernels.TILE, self._kernels.SUMMED
        chunks = -(-J // TJ)
        out = A.new_empty((chunks, k, I))
        with import_torch().cuda.device_of(A):  # Triton launches on the current device, wherever the tensors are
            self._kernels.products[(chunks * -(-I // TI),)](
                A,
                B,
                W,
                out,
                I,
                J,
                k,
                d,
                self._alpha,
                measure=self._measure,
                profile=self._profile,
                TI=TI,
                TJ=TJ,
                num_warps=4,
                enable_fp_fusion=True,
            )
        return out


class FusedTile:
    """k(rows, centers) of a block of rows as its products, each of which makes the entries anew.

    Parameters
    ----------
    make : MakeFusedTile
    rows : tensor of shape (d, I)
        Scaled and padded.
    n : int
        Rows that are not padding.
    """

    def __init__(self, make: MakeFusedTile, rows: Tensor, n: int) -> None:
        self._make, self._rows, self._n = make, rows, n

    def __matmul__(self, V: Tensor) -> Tensor:
        """Compute K V."""
        parts = self._make.sums(self._rows, self._make.centers, V)
        total = parts.sum(dim=0, dtype=import_torch().float64)[:, : self._n]
        return total.T.to(V.dtype)

    def chunked_products(self, U: Tensor) -> Tensor:
        """Compute K' U over chunks of rows, as a tensor of shape (chunks, M, k)."""
        parts = self._make.sums(self._make.centers, self._rows, U)
        return parts[:, :, : self._make.n_centers].transpose(1, 2)


def _padded(points: Tensor) -> Tensor:
    """Return the transpose, with zeros up to a multiple of 16: loads of four numbers are then aligned."""
    n, d = points.shape
    out = points.new_zeros((d, -(-n // 16) * 16))
    out[:, :n] = points.T
    return out
