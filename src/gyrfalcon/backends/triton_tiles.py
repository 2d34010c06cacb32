"""Products with K on a GPU without K in memory, by Triton where it works.

An entry of K costs less to make again than to write and to read, unless there are very many features. The kernels are
in `triton_kernels.py`, which is imported when a device can use it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.devices import (
    has_fast_float64,
    has_fast_tf32,
    has_ptx,
    import_torch,
    is_out_of_memory,
    round_to_tf32,
)
from .._utils.warnings import warn
from ..kernels import (
    ArcCosine,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from .torch_tiles import centered, expands, uncentered, unit_rows

__all__ = ["FUSED_ON", "MOST_COLUMNS", "FusedTile", "MakeFusedTile", "prepare"]

Array = NDArray[Any]
Tensor = Any

# Kinds of devices: ROCm's are named "cuda" too. Tests add "cpu", on which Triton's interpreter runs.
FUSED_ON = {"cuda"}
# Features beyond which a matrix product and memory for K cost less than inner products by FMA, twice a pass: in
# float32, in float64, and in float64 where that is slow. Tensor cores have no such number, nor have differences.
_MOST_FEATURES = {"float32": 256, "float64": 100, "slow float64": 24}
MOST_COLUMNS = 32  # columns of V beyond which a matrix product with K costs less
_LONGEST_SUM = 2048  # of terms in the precision of K; sums of these are added in float64
_TOLERANCE = {
    "float32": 2e-5,
    "float64": 1e-12,
}  # largest relative error of sums of entries that are computed correctly
_LOG2_E = float(np.log2(np.e))


# Values of alpha up to which a profile of RationalQuadratic uses a logarithm in float32: its error of 2^-22 and the
# rounding of 1 + x are alpha times as large in an entry, 4e-6 in all
_LARGEST_ALPHA = 16.0


@dataclass(frozen=True)
class _Profile:
    """A function of `triton_kernels`.

    name : its key in `PROFILES`
    factor : what points are scaled by for it
    parameters : its other arguments
    offset : what is added to inner products of scaled points
    """

    name: str
    factor: float = 1.0
    parameters: tuple[float, ...] = ()
    offset: float = 0.0


def _matern(kernel: Any, dtype: np.dtype[Any]) -> _Profile:
    name = "laplacian" if kernel.nu == 0.5 else f"matern_{int(2 * kernel.nu)}"
    return _Profile(name, factor=(4 * kernel.nu) ** 0.5 * _LOG2_E)


def _laplacian(kernel: Any, dtype: np.dtype[Any]) -> _Profile:
    return _Profile("exponential", _LOG2_E) if kernel.norm == 1 else _Profile("laplacian", 2**0.5 * _LOG2_E)


def _rational_quadratic(kernel: Any, dtype: np.dtype[Any]) -> _Profile:
    alpha = float(kernel.alpha)
    if dtype != np.float32 or alpha <= _LARGEST_ALPHA:
        return _Profile("rational_quadratic", alpha**-0.5, (alpha,))
    return _Profile("rational_quadratic_large", _LOG2_E**0.5, (-1 / (alpha * _LOG2_E),))


def _polynomial(kernel: Any, dtype: np.dtype[Any]) -> _Profile:
    return _Profile("polynomial", kernel.gamma**0.5, (float(int(kernel.degree)),), float(kernel.coef0))


def _sigmoid(kernel: Any, dtype: np.dtype[Any]) -> _Profile:
    return _Profile("sigmoid", (2 * _LOG2_E * kernel.gamma) ** 0.5, offset=2 * _LOG2_E * float(kernel.coef0))


_PROFILES: dict[type[Kernel], Callable[[Any, np.dtype[Any]], _Profile]] = {
    Gaussian: lambda kernel, dtype: _Profile("gaussian", factor=_LOG2_E**0.5),
    Laplacian: _laplacian,
    Matern: _matern,
    RationalQuadratic: _rational_quadratic,
    Linear: lambda kernel, dtype: _Profile("linear"),
    Polynomial: _polynomial,
    Sigmoid: _sigmoid,
    ArcCosine: lambda kernel, dtype: _Profile(f"arc_cosine_{kernel.degree}"),
}

_checked: dict[tuple[Any, ...], bool] = {}  # whether a profile is correct on a device, in a precision and by a method


class _NoMemoryError(Exception):
    """A device has no memory for the comparison of a few products."""


def prepare(kernel: Kernel, centers: Array, device: Any) -> MakeFusedTile | None:
    """Return the function that makes fused tiles of a resolved kernel, or None where PyTorch has to compute K.

    Before a profile is first used on a device, its products are compared with NumPy's. One warning is given if they
    are wrong, or if Triton is missing or fails.
    """
    method = _method(kernel, centers, device)
    if method is None:
        return None
    key = device, _PROFILES[type(kernel)](kernel, centers.dtype).name, method, centers.dtype
    if key not in _checked:
        try:
            problem = _problem(kernel, centers, device, method)
        except _NoMemoryError:  # which says nothing of the kernel: the next one to use it finds out
            return None
        _checked[key] = problem is None
        if problem is not None:
            warn(f"{device} makes {kernel!r} by PyTorch, without the fused kernel: {problem}", RuntimeWarning)
    return MakeFusedTile(kernel, centers, device, method) if _checked[key] else None


def _method(kernel: Kernel, centers: Array, device: Any) -> str | None:
    """Return how entries of K are made: by "dots" or "inner" products, or from differences; None if by PyTorch."""
    if device.type not in FUSED_ON or type(kernel) not in _PROFILES:
        return None
    if kernel.geometry == "manhattan":
        return "sizes"
    if kernel.geometry == "angle" or (kernel.geometry == "distance" and not expands(kernel, centers)):
        return "squares"
    if centers.dtype == np.float32:
        if has_fast_tf32(device):
            return "dots"
        most = _MOST_FEATURES["float32"]
    else:
        most = _MOST_FEATURES["float64" if has_fast_float64(device) else "slow float64"]
    return "inner" if centers.shape[1] <= most else None


def _problem(kernel: Kernel, given: Array, device: Any, method: str) -> str | None:
    """Return what is wrong with fused products on a device, if anything is."""
    torch = import_torch()
    d = given.shape[1]
    points = np.random.default_rng(0).standard_normal((100, d)) / (kernel.scaling(d) * np.sqrt(d))
    centers = points.astype(given.dtype)
    rows = centers[:40]
    K = kernel(rows.astype(np.float64), centers.astype(np.float64))
    try:
        tile = MakeFusedTile(kernel, centers, device, method)(torch.from_numpy(rows.copy()).to(device))
        V, U = (torch.ones((n, 2), dtype=tile.dtype, device=device) for n in (len(centers), len(rows)))
        found = [tile @ V, tile.chunked_products(U).sum(dim=0), tile @ V[:, :1], tile.chunked_products(U[:, :1]).sum(0)]
        found = [one.cpu().numpy() for one in found]
    except Exception as error:  # a compiler, a driver or a linker, each with exceptions of its own
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise _NoMemoryError from error
        return f"Triton failed ({type(error).__name__}: {error})"
    exact, size = 2 * [K.sum(axis=1), K.sum(axis=0)], 2 * [np.abs(K).sum(axis=1), np.abs(K).sum(axis=0)]
    for one, right, scale in zip(found, exact, size, strict=True):
        off = float((np.abs(one - right[:, None]) / scale[:, None]).max())
        if not off < _TOLERANCE[str(given.dtype)]:
            return f"its products are off by {off:.1e}; please send in what gyrfalcon check-device prints"
    return None


@dataclass(frozen=True)
class _Points:
    """Points as the kernels read them, filled up with zeros; the first `n` are not padding.

    values : shape (d, N) for `products`, (N, 3 d) for `products_by_dots`
    norms : -|x|^2 / 2, or 0, of shape (N,)
    factor : what rows of K are multiplied with, of shape (n, 1), or None
    """

    values: Tensor
    norms: Tensor
    n: int
    factor: Tensor = None


class MakeFusedTile:
    """Makes fused tiles of a resolved kernel for dense rows on a device."""

    def __init__(self, kernel: Kernel, centers: Array, device: Any, method: str) -> None:
        from . import triton_kernels

        self._kernels, self._method, self._kernel = triton_kernels, method, kernel
        self._profile = profile = _PROFILES[type(kernel)](kernel, centers.dtype)
        about = centered if kernel.geometry in ("distance", "manhattan") else uncentered
        Z, self._scaled = about(kernel, centers, device)
        self._parameters = Z.new_tensor([*profile.parameters, 0.0, 0.0][:2])
        self._ptx = has_ptx(device) and centers.dtype == np.float32
        self._tile = "dots" if method == "dots" else str(centers.dtype)
        self.centers = self._points(Z, of_rows=False)

    def __call__(self, X: Tensor) -> FusedTile:
        return FusedTile(self, self._points(self._scaled(X), of_rows=True))

    def _points(self, points: Tensor, *, of_rows: bool) -> _Points:
        factor = None
        if self._kernel.geometry == "angle":
            points, norms = unit_rows(points)
            factor = norms if self._kernel.norm_power == 1 else None
        points = points if self._profile.factor == 1 else points * self._profile.factor
        n = len(points)
        size = -(-n // self._multiple) * self._multiple
        norms = points.new_zeros(size)
        if self._kernel.geometry == "distance" and self._method in ("inner", "dots"):
            norms[:n] = points.square().sum(dim=1).mul_(-0.5)
        elif of_rows:
            norms.fill_(self._profile.offset)
        values = self._split(points, size, of_rows) if self._method == "dots" else self._padded(points, size)
        return _Points(values, norms, n, factor)

    @property
    def _multiple(self) -> int:
        TI, TJ, _ = self._kernels.TILES[self._tile]
        return max(TI, TJ)

    def _padded(self, points: Tensor, size: int) -> Tensor:
        n, d = points.shape
        out = points.new_zeros((-(-d // self._kernels.FEATURES) * self._kernels.FEATURES, size))
        out[:d, :n] = points.T
        return out

    def _split(self, points: Tensor, size: int, of_rows: bool) -> Tensor:
        """Return points as sums of two numbers of TF32 each, so that inner products are those of float32.

        For x = a + b and z = u + v, with small b and v, x'z is b'u + a'v + a'u; b'v is below a rounding.
        """
        n, d = points.shape
        large = round_to_tf32(points.contiguous())
        small = round_to_tf32(points - large)
        out = points.new_zeros((size, _dot_width(3 * d)))
        for place, part in enumerate([small, large, large] if of_rows else [large, small, large]):
            out[:n, place * d : (place + 1) * d] = part
        return out

    def sums(self, A: _Points, B: _Points, W: Tensor) -> Tensor:
        """Return sums of k(a, b) w over parts of b, of shape (parts, k, I), for W of shape (n of b, k)."""
        if B.factor is not None:
            W = W * B.factor
        dots = self._method == "dots"
        I, J, k = len(A.norms), len(B.norms), W.shape[1]  # noqa: E741
        d = A.values.shape[1 if dots else 0]
        columns = W.new_zeros((k, J))
        columns[:, : B.n] = W.T
        TI, TJ, warps = self._kernels.TILES[self._tile]
        tiles = _LONGEST_SUM // TJ if k == 1 else 1
        parts = -(-J // (tiles * TJ))
        out = A.norms.new_empty((parts, k, I))
        arguments = A.values, B.values, A.norms, B.norms, columns, out, self._parameters, I, J, k, d, A.n, tiles
        options = {"profile": self._kernels.PROFILES[self._profile.name], "SINGLE": k == 1, "TI": TI, "TJ": TJ}
        options |= {"PTX": self._ptx, "num_warps": warps, "enable_fp_fusion": True}
        grid = (parts * -(-A.n // TI),)
        with import_torch().cuda.device_of(A.norms):  # Triton launches on the current device, wherever the tensors are
            if dots:
                C = min(d, 64) if d <= 64 else 32
                self._kernels.products_by_dots[grid](*arguments, C=C, WHOLE=d == C, **options)
            else:
                self._kernels.products[grid](*arguments, measure=self._method, C=self._kernels.FEATURES, **options)
        return out if A.factor is None else out[:, :, : A.n] * A.factor.T


def _dot_width(width: int) -> int:
    """Return the number of columns that a product of tiles takes, at most 64 at a time and 32 if there are more."""
    return next((size for size in (16, 32, 64) if width <= size), -(-width // 32) * 32)


class FusedTile:
    """Products with k(rows, centers), each of which computes the entries again."""

    def __init__(self, make: MakeFusedTile, rows: _Points) -> None:
        self._make, self._rows = make, rows

    @property
    def dtype(self) -> Any:
        """The precision of products, of PyTorch."""
        return self._rows.norms.dtype

    def __matmul__(self, V: Tensor) -> Tensor:
        """Compute K V."""
        parts = self._make.sums(self._rows, self._make.centers, V)
        total = parts.sum(dim=0, dtype=import_torch().float64)[:, : self._rows.n]
        return total.T.to(V.dtype)

    def chunked_products(self, U: Tensor) -> Tensor:
        """Compute K' U over chunks of rows, as a tensor of shape (chunks, M, k)."""
        parts = self._make.sums(self._make.centers, self._rows, U)
        return parts[:, :, : self._make.centers.n].transpose(1, 2)
