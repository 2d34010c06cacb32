"""Tiles of K in PyTorch, on any of its devices: a formula for each named kernel, found by the kernel's type.

Rows come as dense tensors. Sparse rows are made dense in the columns that the centers have; what a row has elsewhere
matters by its norm alone, which is kept in two more columns (`SparseColumns`): the centers are 0 there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.devices import import_torch
from .._utils.precision import matmul_precision
from .._utils.sparse import canonical
from ..kernels import (
    ArcCosine,
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
from .base import check_indices

__all__ = ["SparseColumns", "centered", "expands", "prepare", "uncentered", "unit_rows"]

Array = NDArray[Any]
Tensor = Any
MakeTile = Callable[[Tensor], Tensor]

# As for native tiles: above these values of the profile's argument, on average over the centers or at the farthest of
# them, expanding |x - z|^2 loses too much, and squared differences are summed.
_LARGEST_EXPANSION = 32.0
_FARTHEST_EXPANSION = 256.0
# Kinds of devices whose cdist makes a tensor of the differences in all features, d times as large as a tile
_ONE_FEATURE_AT_A_TIME = {"mps"}


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
    if type(kernel) not in _PROFILES:
        return _by_numpy(kernel, centers, device, columns)
    if tf32 and kernel.geometry in _IN_TF32 and np.ptp(scale := _scaling(kernel, centers, columns)) == 0:
        return _IN_TF32[kernel.geometry](kernel, centers, device, float(scale[0]) ** 2)
    return _GEOMETRIES[kernel.geometry](kernel, centers, device, columns)


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
    transposed, norms = Z.T.contiguous(), Z.square().sum(dim=1)

    def tile(X: Tensor) -> Tensor:
        X = scaled(X)
        with matmul_precision():
            s = torch.addmm(norms, X, transposed, alpha=-2.0)
        return profile(kernel, s.add_(X.square().sum(dim=1)[:, None]).clamp_(min=0.0))

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


class SparseColumns:
    """The columns in which sparse rows are made dense, for a resolved kernel and CSR centers.

    They are the columns of the centers, and two for the euclidean norm and the 1-norm of a row's values in all others.
    All columns are kept where the kernel has a scale for each of them, or no formula in this module.
    """

    def __init__(self, kernel: Kernel, centers: Any) -> None:
        self.n_features = d = centers.shape[1]
        self._all = _needs_all_columns(kernel, d)
        self.columns = np.arange(d) if self._all else np.unique(centers.indices)
        self.width = len(self.columns) + 2
        self._seen = np.zeros(d, dtype=bool)
        self._seen[self.columns] = True

    def scaling(self, kernel: Kernel) -> Array:
        """Return the factor of each dense column for a kernel: of the norms only the one that it is a function of."""
        scale = kernel.scaling(self.n_features)
        beyond = np.array([0.0, scale[0]] if kernel.geometry == "manhattan" else [scale[0], 0.0])
        return np.concatenate([scale[self.columns], beyond])

    def positions(self, rows: Any) -> tuple[Array, Array]:
        """Return distinct positions in a flattened array of shape (b, width), and the values of CSR rows there."""
        check_indices(rows)
        rows = canonical(rows)
        b = rows.shape[0]
        of = np.repeat(np.arange(b), np.diff(rows.indptr))
        seen = self._seen[rows.indices]
        at = of[seen] * self.width + np.searchsorted(self.columns, rows.indices[seen])
        values = rows.data[seen]
        if seen.all():
            return at, values
        others, of = rows.data[~seen].astype(np.float64), of[~seen]
        squares = np.sqrt(np.bincount(of, weights=np.square(others), minlength=b))
        sizes = np.bincount(of, weights=np.abs(others), minlength=b)
        ends = np.arange(b) * self.width + self.width
        norms = np.concatenate([squares, sizes]).astype(rows.dtype)
        return np.concatenate([at, ends - 2, ends - 1]), np.concatenate([values, norms])

    def dense(self, rows: Any) -> Array:
        """Return CSR rows as an array of shape (b, width)."""
        at, values = self.positions(rows)
        out = np.zeros((rows.shape[0], self.width), dtype=rows.dtype)
        out.reshape(-1)[at] = values
        return out


def _needs_all_columns(kernel: Kernel, d: int) -> bool:
    if isinstance(kernel, Sum | Product):
        return _needs_all_columns(kernel.k1, d) or _needs_all_columns(kernel.k2, d)
    if type(kernel) is Constant:
        return False
    return type(kernel) not in _PROFILES or bool(np.ptp(kernel.scaling(d)) > 0)
