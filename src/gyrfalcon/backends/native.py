"""The native backend: fused C++ tiles, so that K is made in registers and never written to memory.

A kernel finds its native profile by its type, in `_PROFILES`. Sums and products fill a tile for each operand; any
other kernel fills tiles by its own NumPy profile. With one right-hand side both products are fused with the making of
the tile; with many the second stage is a matrix product, which BLAS does best on tiles that stay in cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .. import _core  # type: ignore[attr-defined]
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
    linear_form,
)
from .base import BlockWeight, Tiles
from .reference import KernelTiles

Array = NDArray[Any]

_MATVEC, _RMATVEC, _SANDWICH = 1, 2, 3
_FEW = 3  # columns up to which BLAS, made for square matrices, is slower than one product for each
_LOG2E = 1.0 / np.log(2.0)
# Expanding |x - z|^2 loses about eps |z|^2. Beyond this many units of the profile's argument, on average over the
# centers or at the farthest of them, that is no longer small beside the tile's own rounding, and squared differences
# are summed instead.
_LARGEST_EXPANSION = 32.0
_FARTHEST_EXPANSION = 256.0


class Profile(NamedTuple):
    """`code` is tiles.h's; `unit` brings |x - z|^2 / length_scale^2 / 2 to the native profile's argument.

    `gain` is how much an error of the argument can grow in the logarithm of the profile.
    """

    code: int
    unit: float = 1.0
    param0: float = 0.0
    param1: float = 0.0
    degree: int = 0
    gain: float = 1.0


def _matern(kernel: Matern) -> Profile:
    # the native argument is -a^2 with 2^-a, so |x - z|^2 / 2 is multiplied by 2 (2 nu) log2(e)^2
    return Profile({0.5: 1, 1.5: 2, 2.5: 3}[kernel.nu], 4 * kernel.nu * _LOG2E**2)


_PROFILES: dict[type[Kernel], Callable[[Any], Profile]] = {
    Gaussian: lambda k: Profile(0, _LOG2E),
    Laplacian: lambda k: Profile(1, 2 * _LOG2E**2),
    Matern: _matern,
    RationalQuadratic: lambda k: Profile(4, 1.0 / k.alpha, k.alpha, gain=max(1.0, k.alpha)),
    Linear: lambda k: Profile(5),
    Polynomial: lambda k: Profile(6, 1.0, k.gamma, k.coef0, k.degree),
    Sigmoid: lambda k: Profile(7, 1.0, k.gamma, k.coef0),
    ArcCosine: lambda k: Profile(8 + k.degree),
}


def instruction_set() -> str:
    """The instruction set in use: the best this processor has, or what ``GYRFALCON_ISA`` says.

    Examples
    --------
    >>> from gyrfalcon.backends.native import instruction_set
    >>> instruction_set() in ("avx512", "avx2", "baseline")
    True
    """
    available: list[str] = _core.instruction_sets()
    asked = os.environ.get("GYRFALCON_ISA", "")
    if asked and asked not in available:
        raise ValueError(f"GYRFALCON_ISA={asked!r} is not available here: use one of {', '.join(available)}")
    return asked or available[0]


class FusedTiles(Tiles):
    """Tiles whose native `centers` have the verbs fill, matvec, rmatvec and sandwich."""

    def __init__(self, centers: Any, n_centers: int, dtype: Any, isa: str, sparse: bool = False) -> None:
        super().__init__(n_centers, dtype, sparse)
        self._centers = centers
        self.isa = isa

    def fill(self, rows: Array, out: Array | None = None) -> Array:
        if out is None:
            out = np.empty((rows.shape[0], self.n_centers), dtype=self.dtype)
        self._centers.fill(rows, out)
        return out

    def matmat(self, rows: Array, V: Array) -> Array:
        if V.shape[1] != 1:
            return super().matmat(rows, V)
        out = np.empty(rows.shape[0], dtype=self.dtype)
        self._centers.matvec(rows, np.ascontiguousarray(V[:, 0]), out)
        return out[:, None]

    def rmatmat(self, rows: Array, U: Array) -> Array:
        if U.shape[1] != 1:
            return super().rmatmat(rows, U)
        out = np.empty(self.n_centers)
        self._centers.rmatvec(rows, np.ascontiguousarray(U[:, 0]), out)
        return out[:, None]

    def sandwich(self, rows: Array, V: Array, weight: BlockWeight) -> Array:
        if V.shape[1] != 1 or callable(weight):
            return super().sandwich(rows, V, weight)
        out = np.empty(self.n_centers)
        self._centers.sandwich(rows, np.ascontiguousarray(V[:, 0]), weight, out)
        return out[:, None]

    def right(self, K: Array, V: Array) -> Array:
        if V.shape[1] > _FEW:
            return super().right(K, V)
        out = np.empty((V.shape[1], len(K)), dtype=self.dtype)
        for v, product in zip(np.ascontiguousarray(V.T), out, strict=True):
            _core.dense(self.isa, _MATVEC, K, v, None, product)
        return out.T

    def left(self, K: Array, U: Array) -> Array:
        if U.shape[1] > _FEW:
            return super().left(K, U)
        out = np.empty((U.shape[1], self.n_centers))
        for u, product in zip(np.ascontiguousarray(U.T), out, strict=True):
            _core.dense(self.isa, _RMATVEC, K, None, u, product)
        return out.T

    def both(self, K: Array, V: Array, weight: BlockWeight, part: slice | None = None) -> Array:
        if V.shape[1] != 1 or callable(weight):
            return super().both(K, V, weight, part)
        w = weight if weight is None or part is None else weight[part]
        out = np.empty(self.n_centers)
        _core.dense(self.isa, _SANDWICH, K, np.ascontiguousarray(V[:, 0]), w, out)
        return out[:, None]


class NativeTiles(FusedTiles):
    """A named kernel's tiles, made in C++."""

    def __init__(self, kernel: Kernel, profile: Profile, centers: Array) -> None:
        dtype, isa = centers.dtype, instruction_set()
        shift = np.zeros(centers.shape[1])
        scale = np.array(kernel.scaling(centers.shape[1]), dtype=np.float64)
        difference = False
        if kernel.geometry == "distance":
            # distances do not see a common offset, but their rounding does: center on the centers' mean
            shift = centers.mean(axis=0, dtype=np.float64).astype(dtype).astype(np.float64)
            scale *= np.sqrt(profile.unit)
            with np.errstate(over="ignore"):  # infinite is far
                spread = 0.5 * profile.gain * np.square((centers - shift) * scale).sum(axis=1)
            far = spread.mean() > _LARGEST_EXPANSION or spread.max() > _FARTHEST_EXPANSION
            difference = bool(not kernel.smooth or far)
            if difference:
                scale *= np.sqrt(0.5)
        make = _core.CentersF32 if dtype == np.float32 else _core.CentersF64
        native = make(
            np.ascontiguousarray(centers),
            shift.astype(dtype),
            scale.astype(dtype),
            profile.code,
            float(profile.param0),
            float(profile.param1),
            int(profile.degree),
            difference,
            kernel.geometry == "angle",
            isa,
        )
        super().__init__(native, len(centers), dtype, isa)


class PairTiles(Tiles):
    """A sum or product of two kernels: a tile of each, combined in place."""

    def __init__(self, kernel: Sum | Product, centers: Array) -> None:
        super().__init__(centers.shape[0], centers.dtype, sp.issparse(centers))
        self.combine = type(kernel).combine
        self.first, self.second = prepare(kernel.k1, centers), prepare(kernel.k2, centers)

    def fill(self, rows: Array, out: Array | None = None) -> Array:
        if out is None:
            out = np.empty((rows.shape[0], self.n_centers), dtype=self.dtype)
        for part in self.parts(rows):
            self.first.fill(rows[part], out[part])
            self.combine(out[part], self.second.fill(rows[part]), out=out[part])
        return out


class ConstantTiles(Tiles):
    """The same number everywhere, broadcast: an intercept or a scaling costs one sweep over the other's tile."""

    def __init__(self, kernel: Constant, centers: Array) -> None:
        super().__init__(centers.shape[0], centers.dtype, sp.issparse(centers))
        self.value = np.array(kernel.value, dtype=self.dtype)

    def fill(self, rows: Array, out: Array | None = None) -> Array:
        if out is None:
            return np.broadcast_to(self.value, (rows.shape[0], self.n_centers))
        out[...] = self.value
        return out


def prepare(kernel: Kernel, centers: Any) -> Tiles:
    """Tiles of the kernel's type: native where there is a profile, else NumPy's."""
    sparse = sp.issparse(centers)
    if sparse:
        from .sparse import LinearTiles, SparseTiles

        form = linear_form(kernel)
        if form is not None and form[0] != 0:
            return LinearTiles(*form, _PROFILES[Linear](Linear()), centers)
    if isinstance(kernel, Sum | Product):
        return PairTiles(kernel, centers)
    if type(kernel) is Constant:
        return ConstantTiles(kernel, centers)
    profile = _PROFILES.get(type(kernel))
    if profile is None:
        return KernelTiles(kernel, centers)
    return (SparseTiles if sparse else NativeTiles)(kernel, profile(kernel), centers)
