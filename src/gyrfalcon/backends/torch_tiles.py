"""Tiles of K in PyTorch, on any of its devices: a formula for each named kernel, found by the kernel's type.

Rows come as dense tensors, or as `CsrRows` where a product of sparse rows is all that a kernel needs. Other sparse
rows are made dense in the columns that the centers have; what a row has elsewhere matters by its norm alone, which is
kept in two more columns (`SparseColumns`): the centers are 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.devices import import_torch
from .._utils.precision import matmul_precision
from ..kernels import (
    ArcCosine,
    CallableKernel,
    Constant,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Product,
    RationalQuadratic,
    Sigmoid,
    Sum,
)
from ..kernels.features import FeatureMap
from .sparse_tensors import CsrRows, SparseColumns, silence_warnings

__all__ = ["MakeTile", "centered", "expands", "prepare", "sparse_columns", "uncentered", "unit_rows"]

Array = NDArray[Any]
Tensor = Any
MakeTile = Callable[[Tensor], Tensor]

# As for native tiles: above these values of the profile's argument, on average over the centers or at the farthest of
# them, expanding |x - z|^2 loses too much, and squared differences are summed.
_LARGEST_EXPANSION = 32.0
_FARTHEST_EXPANSION = 256.0
# Kinds of devices whose cdist makes a tensor of the differences in all features, d times as large as a tile
_ONE_FEATURE_AT_A_TIME = {"mps"}
# Kinds of devices that multiply sparse tensors, and the share of numbers that are not 0 up to which this is faster
_CSR_ON = {"cpu", "cuda"}
_CSR_SHARE = 0.1


# ---- profiles, which write into their argument -----------------------------------------------------------------------


def _gaussian(kernel: Any, s: Tensor) -> Tensor:
    return s.mul_(-0.5).exp_()


def _laplacian(kernel: Any, s: Tensor) -> Tensor:
    return (s if kernel.norm == 1 else s.sqrt_()).neg_().exp_()


def _matern(kernel: Any, s: Tensor) -> Tensor:
    a = s.mul_(2 * kernel.nu).sqrt_()
    if kernel.nu == 0.5:
        return a.neg_().exp_()
    decay = a.neg().exp_()
    if kernel.nu == 1.5:
        return a.add_(1).mul_(decay)
    return a.mul(a).div_(3).add_(a).add_(1).mul_(decay)


def _rational_quadratic(kernel: Any, s: Tensor) -> Tensor:
    return s.div_(2 * kernel.alpha).log1p_().mul_(-kernel.alpha).exp_()


def _polynomial(kernel: Any, s: Tensor) -> Tensor:
    return s.mul_(kernel.gamma).add_(kernel.coef0).pow_(int(kernel.degree))


def _sigmoid(kernel: Any, s: Tensor) -> Tensor:
    return s.mul_(kernel.gamma).add_(kernel.coef0).tanh_()


def _arc_cosine(kernel: Any, s: Tensor) -> Tensor:
    theta = s.div_(2).clamp_(0, 1).sqrt_().asin_().mul_(2)
    if kernel.degree == 0:
        return theta.div_(-np.pi).add_(1)
    sine = theta.sin()
    return theta.cos().mul_(theta.neg_().add_(np.pi)).add_(sine).div_(np.pi)


_PROFILES: dict[type[Kernel], Callable[[Any, Tensor], Tensor]] = {
    Gaussian: _gaussian,
    Laplacian: _laplacian,
    Matern: _matern,
    RationalQuadratic: _rational_quadratic,
    Linear: lambda kernel, s: s,
    Polynomial: _polynomial,
    Sigmoid: _sigmoid,
    ArcCosine: _arc_cosine,
}


# Activations of random features, which write into their argument
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cos": lambda F: F.cos_(),
    "sin": lambda F: F.sin_(),
    "relu": lambda F: F.relu_(),
    "step": lambda F: F.gt_(0),
    "tanh": lambda F: F.tanh_(),
    "sigmoid": lambda F: F.sigmoid_(),
    "softplus": lambda F: F.copy_(F.logaddexp(F.new_zeros(()))),
    "erf": lambda F: F.erf_(),
    "identity": lambda F: F,
}


# ---- tiles -----------------------------------------------------------------------------------------------------------


def prepare(
    kernel: Kernel, centers: Array, device: Any, columns: SparseColumns | None = None, *, tf32: bool = False
) -> MakeTile:
    """Return the function that computes a tile k(rows, centers) of a resolved kernel for dense rows on a device.

    `columns` made rows and centers dense, if they are sparse. With `tf32`, rows and centers are rounded to TF32, and
    multiplied in it if the kernel has one length scale: numbers scaled by several have all bits of float32 again.
    """
    if isinstance(kernel, Sum | Product):
        first, second = (prepare(operand, centers, device, columns, tf32=tf32) for operand in (kernel.k1, kernel.k2))
        if isinstance(kernel, Sum):
            return lambda X: first(X).add_(second(X))
        return lambda X: first(X).mul_(second(X))
    if type(kernel) is Constant:
        return lambda X: X.new_full((X.shape[0], len(centers)), float(kernel.value))
    if isinstance(kernel, CallableKernel) and isinstance(kernel.function, FeatureMap) and columns is None:
        return _features(kernel.function, centers, device) or _by_numpy(kernel, centers, device, columns)
    if type(kernel) not in _PROFILES:
        return _by_numpy(kernel, centers, device, columns)
    if columns is not None and columns.stays_csr:
        return _prepare_csr(kernel, centers, device, columns)
    if tf32 and kernel.geometry in _IN_TF32 and np.ptp(scale := _scaling(kernel, centers, columns)) == 0:
        return _IN_TF32[kernel.geometry](kernel, centers, device, float(scale[0]) ** 2)
    return _GEOMETRIES[kernel.geometry](kernel, centers, device, columns)


def _features(features: FeatureMap, weights: Array, device: Any) -> MakeTile | None:
    """Make tiles of random features; None if an activation is a function that is known to NumPy alone."""
    torch = import_torch()
    if not all(isinstance(name, str) for name, _ in features.activations):
        return None
    transposed, offset, scale = (
        torch.from_numpy(np.ascontiguousarray(part, dtype=weights.dtype)).to(device)
        for part in (weights.T, features.offset, features.scale)
    )

    def tile(X: Tensor) -> Tensor:
        with matmul_precision():
            F = torch.addmm(offset, X, transposed)
        start = 0
        for name, count in features.activations:
            _ACTIVATIONS[name](F[:, start : start + count])
            start += count
        return F.mul_(scale)

    return tile


def _by_numpy(kernel: Kernel, centers: Array, device: Any, columns: SparseColumns | None) -> MakeTile:
    """Make tiles of a kernel that PyTorch has no formula for: on the host, by the kernel itself."""
    torch = import_torch()
    if columns is not None:
        centers = centers[:, : columns.n_features]

    def tile(X: Tensor) -> Tensor:
        with matmul_precision():
            K = kernel(X.cpu().numpy()[:, : centers.shape[1]], centers)
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.ascontiguousarray(K, dtype=centers.dtype)).to(device)

    return tile


def _scaling(kernel: Kernel, centers: Array, columns: SparseColumns | None) -> Array:
    if columns is None:
        return np.array(kernel.scaling(centers.shape[1]))
    return columns.scaling(kernel)


def _scaled(centers: Array, shift: Array, scale: Array, device: Any) -> tuple[Tensor, MakeTile]:
    """Return (centers - shift) scale on the device, and the function that does the same to rows."""
    torch = import_torch()

    def upload(numbers: Array) -> Tensor:
        return torch.from_numpy(numbers.astype(centers.dtype)).to(device)

    on_device, factor = upload(shift), upload(scale)
    Z = upload((centers - shift) * scale)
    if not shift.any():
        return Z, (lambda X: X) if (scale == 1).all() else (lambda X: X * factor)
    return Z, lambda X: (X - on_device).mul_(factor)


def _mean(centers: Array) -> Array:
    """Return the centers' mean: a common offset does not change differences, but adds to their rounding."""
    return centers.mean(axis=0, dtype=np.float64).astype(centers.dtype).astype(np.float64)


def centered(
    kernel: Kernel, centers: Array, device: Any, columns: SparseColumns | None = None
) -> tuple[Tensor, MakeTile]:
    """Return scaled centers about their mean on the device, and the function that does the same to rows."""
    return _scaled(centers, _mean(centers), _scaling(kernel, centers, columns), device)


def uncentered(
    kernel: Kernel, centers: Array, device: Any, columns: SparseColumns | None = None
) -> tuple[Tensor, MakeTile]:
    """Return scaled centers on the device, and the function that does the same to rows."""
    scale = _scaling(kernel, centers, columns)
    return _scaled(centers, np.zeros_like(scale), scale, device)


def unit_rows(X: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows of norm 1, and the norms; zero rows get a column of their own, and are orthogonal to all others."""
    torch = import_torch()
    norms = torch.linalg.vector_norm(X, dim=1, keepdim=True)
    zero = norms == 0
    return torch.cat([X / norms.masked_fill(zero, 1.0), zero.to(X.dtype)], dim=1), norms


def _distance(kernel: Kernel, centers: Array, device: Any, columns: SparseColumns | None) -> MakeTile:
    torch = import_torch()
    profile = _PROFILES[type(kernel)]
    Z, scaled = centered(kernel, centers, device, columns)
    if not expands(kernel, centers, columns):
        return lambda X: profile(kernel, _differences(torch, scaled(X), Z, 2))
    if isinstance(kernel, Gaussian):
        return _gaussian_tile(Z, scaled)
    transposed, norms = Z.T.contiguous(), Z.square().sum(dim=1)

    def tile(X: Tensor) -> Tensor:
        X = scaled(X)
        with matmul_precision():
            s = torch.addmm(norms, X, transposed, alpha=-2.0)
        return profile(kernel, s.add_(X.square().sum(dim=1)[:, None]).clamp_(min=0.0))

    return tile


def _gaussian_tile(Z: Tensor, scaled: MakeTile) -> MakeTile:
    """Return the function that computes exp(x'z - |z|^2 / 2 - |x|^2 / 2) for scaled centers.

    A tile is written three times and read twice less often than by steps: |x|^2 is one more feature of the product. The
    exponent is not bounded by 0, so that entries may exceed 1 by as much as rounding makes others smaller.
    """
    torch = import_torch()
    norms = Z.square().sum(dim=1).mul_(-0.5)
    beside = torch.cat([Z, torch.ones_like(norms)[:, None]], dim=1).T.contiguous()

    def tile(X: Tensor) -> Tensor:
        X = scaled(X)
        X = torch.cat([X, X.square().sum(dim=1, keepdim=True).mul_(-0.5)], dim=1)
        with matmul_precision():
            return torch.addmm(norms, X, beside).exp_()

    return tile


def expands(kernel: Kernel, centers: Array, columns: SparseColumns | None = None) -> bool:
    """Whether |x - z|^2 may be computed as |x|^2 - 2 x'z + |z|^2, about the centers' mean."""
    return _expands(kernel, centers, _mean(centers), _scaling(kernel, centers, columns))


def _expands(kernel: Kernel, centers: Array, shift: Array | float, scale: Array | float) -> bool:
    """Whether |x - z|^2 may be computed as |x|^2 - 2 x'z + |z|^2, about `shift`."""
    with np.errstate(over="ignore"):  # infinite is far
        squares = np.square((centers - shift) * scale).sum(axis=1)
    gain = max(1.0, kernel.alpha) if isinstance(kernel, RationalQuadratic) else 1.0
    spread = 0.5 * gain * squares
    return bool(kernel.smooth and spread.mean() <= _LARGEST_EXPANSION and spread.max() <= _FARTHEST_EXPANSION)


def _manhattan(kernel: Kernel, centers: Array, device: Any, columns: SparseColumns | None) -> MakeTile:
    torch = import_torch()
    Z, scaled = centered(kernel, centers, device, columns)
    profile = _PROFILES[type(kernel)]
    return lambda X: profile(kernel, _differences(torch, scaled(X), Z, 1))


def _dot(kernel: Kernel, centers: Array, device: Any, columns: SparseColumns | None) -> MakeTile:
    Z, scaled = uncentered(kernel, centers, device, columns)
    transposed = Z.T.contiguous()
    profile = _PROFILES[type(kernel)]

    def tile(X: Tensor) -> Tensor:
        X = scaled(X)
        with matmul_precision():
            s = X @ transposed
        return profile(kernel, s)

    return tile


def _angle(kernel: Kernel, centers: Array, device: Any, columns: SparseColumns | None) -> MakeTile:
    torch = import_torch()
    Z, scaled = uncentered(kernel, centers, device, columns)
    profile = _PROFILES[type(kernel)]
    U, center_norms = unit_rows(Z)

    def tile(X: Tensor) -> Tensor:
        V, norms = unit_rows(scaled(X))
        K = profile(kernel, _differences(torch, V, U, 2).mul_(0.5))
        return K.mul_(norms).mul_(center_norms.T) if kernel.norm_power == 1 else K

    return tile


def _differences(torch: Any, X: Tensor, Z: Tensor, p: int) -> Tensor:
    """Return sums of |x - z|^p over features, which are exact where rows and centers are near each other."""
    if X.device.type not in _ONE_FEATURE_AT_A_TIME:
        distances = torch.cdist(X, Z, p=float(p), compute_mode="donot_use_mm_for_euclid_dist")
        return distances if p == 1 else distances.square_()
    total = X.new_zeros((len(X), len(Z)))
    part = torch.empty_like(total)
    for x, z in zip(X.T, Z.T, strict=True):
        torch.sub(x[:, None], z, out=part)
        if p == 1:
            total.add_(part.abs_())
        else:
            total.addcmul_(part, part)
    return total


def _distance_in_tf32(kernel: Kernel, centers: Array, device: Any, factor: float) -> MakeTile:
    torch = import_torch()
    if not _expands(kernel, centers.astype(np.float64), 0.0, np.sqrt(factor)):
        return _distance(kernel, centers, device, None)
    Z = torch.from_numpy(centers.copy()).to(device)
    transposed, norms = Z.T.contiguous(), Z.square().sum(dim=1).mul_(factor)

    def tile(X: Tensor) -> Tensor:
        with matmul_precision(tf32=True):
            s = torch.addmm(norms, X, transposed, alpha=-2.0 * factor)
        return _PROFILES[type(kernel)](kernel, s.add_(X.square().sum(dim=1)[:, None] * factor).clamp_(min=0.0))

    return tile


def _dot_in_tf32(kernel: Kernel, centers: Array, device: Any, factor: float) -> MakeTile:
    transposed = import_torch().from_numpy(centers.copy()).to(device).T.contiguous()

    def tile(X: Tensor) -> Tensor:
        with matmul_precision(tf32=True):
            s = X @ transposed
        return _PROFILES[type(kernel)](kernel, s if factor == 1 else s.mul_(factor))

    return tile


_IN_TF32 = {"distance": _distance_in_tf32, "dot": _dot_in_tf32}

_GEOMETRIES: dict[str, Callable[[Kernel, Array, Any, SparseColumns | None], MakeTile]] = {
    "distance": _distance,
    "manhattan": _manhattan,
    "dot": _dot,
    "angle": _angle,
}


# ---- sparse rows -----------------------------------------------------------------------------------------------------


def sparse_columns(kernel: Kernel, centers: Any, devices: Sequence[Any]) -> SparseColumns:
    """Choose the columns of sparse rows that are copied, and whether the rows stay CSR there.

    They do for kernels of inner products, and of distances that can be expanded without the centers' mean, if the
    centers are sparse enough.
    """
    columns = SparseColumns(centers, all_columns=_needs_all_columns(kernel, centers.shape[1]))
    sparse = centers.nnz <= _CSR_SHARE * centers.shape[0] * (columns.width - 2)
    if sparse and all(device.type in _CSR_ON for device in devices):
        columns.stays_csr = _takes_csr(kernel, columns.dense(centers), columns)
    if columns.stays_csr:
        silence_warnings()
    return columns


def _takes_csr(kernel: Kernel, points: Array, columns: SparseColumns) -> bool:
    if isinstance(kernel, Sum | Product):
        return all(_takes_csr(operand, points, columns) for operand in (kernel.k1, kernel.k2))
    if type(kernel) not in _PROFILES:
        return type(kernel) is Constant
    if kernel.geometry == "distance":
        return _expands(kernel, points.astype(np.float64), 0.0, columns.scaling(kernel))
    return kernel.geometry == "dot"


def _prepare_csr(kernel: Kernel, centers: Array, device: Any, columns: SparseColumns) -> Callable[[CsrRows], Tensor]:
    """Return the function that computes a tile for `CsrRows`; a product of sparse rows with dense centers."""
    torch = import_torch()
    scale = columns.scaling(kernel)
    *each, beyond, _ = np.square(scale)
    squared = np.array(each)
    Z = centers[:, :-2]
    transposed = torch.from_numpy(np.ascontiguousarray((Z * squared).T, dtype=centers.dtype)).to(device)
    profile = _PROFILES[type(kernel)]
    if kernel.geometry == "dot":
        return lambda X: profile(kernel, X.product(transposed))
    norms = torch.from_numpy(np.square(centers * scale).sum(axis=1).astype(centers.dtype)).to(device)
    squared_scale = torch.from_numpy(squared.astype(centers.dtype)).to(device)

    def tile(X: CsrRows) -> Tensor:
        s = X.product(transposed).mul_(-2.0).add_(norms).add_(X.squares(squared_scale, float(beyond)))
        return profile(kernel, s.clamp_(min=0.0))

    return tile


def _needs_all_columns(kernel: Kernel, d: int) -> bool:
    if isinstance(kernel, Sum | Product):
        return _needs_all_columns(kernel.k1, d) or _needs_all_columns(kernel.k2, d)
    if type(kernel) is Constant:
        return False
    return type(kernel) not in _PROFILES or bool(np.ptp(kernel.scaling(d)) > 0)
