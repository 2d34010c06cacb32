"""Products with K of distance kernels on a GPU without K in memory, by Triton where it works.

With few features an entry of K costs less to make again than to write and to read. The kernel is in
`triton_kernels.py`, which is imported when a device can use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.devices import import_torch, is_out_of_memory
from .._utils.warnings import warn
from ..kernels import Gaussian, Kernel, Laplacian, Matern, RationalQuadratic
from .torch_tiles import centered

__all__ = ["FUSED_ON", "MOST_COLUMNS", "FusedTile", "MakeFusedTile", "prepare"]

Array = NDArray[Any]
Tensor = Any

# Kinds of devices: ROCm's are named "cuda" too. Tests add "cpu", on which Triton's interpreter runs.
FUSED_ON = {"cuda"}
_MOST_FEATURES = 32  # with more, a matrix product and memory for K may cost less than computing each entry twice a pass
MOST_COLUMNS = 32  # columns of V beyond which a matrix product with K costs less
_TOLERANCE = 2e-5  # largest relative error of sums of entries, on a device that computes them correctly

_PROFILES: dict[type[Kernel], Callable[[Any], str]] = {
    Gaussian: lambda kernel: "gaussian",
    Laplacian: lambda kernel: "exponential" if kernel.norm == 1 else "laplacian",
    Matern: lambda kernel: {0.5: "laplacian", 1.5: "matern_3", 2.5: "matern_5"}[kernel.nu],
    RationalQuadratic: lambda kernel: "rational_quadratic",
}

_checked: dict[tuple[Any, str], bool] = {}  # whether a profile is correct on a device


class _NoMemoryError(Exception):
    """A device has no memory for the comparison of a few products."""


def prepare(kernel: Kernel, centers: Array, device: Any) -> MakeFusedTile | None:
    """Return the function that makes fused tiles of a resolved kernel, or None where PyTorch has to compute K.

    Before a profile is first used on a device, its products are compared with NumPy's. One warning is given if they
    are wrong, or if Triton is missing or fails.
    """
    suits = device.type in FUSED_ON and centers.dtype == np.float32 and centers.shape[1] <= _MOST_FEATURES
    if not suits or type(kernel) not in _PROFILES:
        return None
    key = device, _PROFILES[type(kernel)](kernel)
    if key not in _checked:
        try:
            problem = _problem(kernel, centers.shape[1], device)
        except _NoMemoryError:  # which says nothing of the kernel: the next one to use it finds out
            return None
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
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise _NoMemoryError from error
        return f"Triton failed ({type(error).__name__}: {error})"
    for one, exact in zip(found, (K.sum(axis=1), K.sum(axis=0)), strict=True):
        off = float((np.abs(one - exact[:, None]) / exact[:, None]).max())
        if not off < _TOLERANCE:
            return f"its products are off by {off:.1e}; please send in what gyrfalcon check-device prints"
    return None


class MakeFusedTile:
    """Makes fused tiles of a resolved kernel for dense rows on a device."""

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
        """Return sums of k(a, b) w over chunks of b, of shape (chunks, k, I), for padded A (d, I) and B (d, J)."""
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
    """Products with k(rows, centers), each of which computes the entries again.

    `rows`, of shape (d, I), are scaled and padded; the first `n` are not padding.
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
