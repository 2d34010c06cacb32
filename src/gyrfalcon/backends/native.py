"""The native backend: fused C++ tiles, so that K is computed in registers and never written to memory.

Sums and products fill a tile for each operand; kernels without a native profile fill tiles by their own NumPy profile.
A kernel's profile is found by its type, in `_PROFILES`; the profiles are those that the extension names. With one
right-hand side both products are fused with the computation of the tile; with several they are made strip by strip,
while its entries are in cache; with very many they are matrix products, which BLAS does as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .. import _core
from .._utils.words import listed
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
    Stationary,
    Sum,
)
from .base import BlockWeight, Tiles

Array = NDArray[Any]

_FUSED_COLUMNS = 256  # largest number of columns of a fused product; BLAS is as fast for wider ones
HALF_SETS = ("avx512", "avx2")  # instruction sets that convert entries of 16 bits
_LOG2E = 1.0 / np.log(2.0)

# Where AVX2 is faster than AVX-512, measured on a Xeon (Sapphire Rapids): float32 centers that fill one AVX2 vector,
# unless rows are long and products are summed; and up to two vectors if rows are short.
_ONE_VECTOR = 32  # bytes
_LONG_ROWS, _SHORT_ROWS = 128, 8

# Expanding |x - z|^2 loses about eps |z|^2. Above these values of the profile's argument, on average over the centers
# or at the farthest of them, that is not small beside the tile's rounding, and squared differences are summed instead.
_LARGEST_EXPANSION = 32.0
_FARTHEST_EXPANSION = 256.0

# Nanoseconds of an entry, and of each feature in it, as measured on one AVX-512 core at 3 GHz. Sums of differences, of
# squares or in the 1-norm, take twice as long for each feature as products.
_ENTRY_COST = {np.dtype(np.float32): (0.4, 0.022), np.dtype(np.float64): (1.2, 0.044)}
_COMBINING_COST = 0.5

_CACHED_ENTRIES = 1 << 16  # numbers of a part of the centers that stays in cache


class Profile(NamedTuple):
    """A profile of the extension and its parameters.

    Rows and centers are multiplied by `factor`, and by the kernel's scaling, before the profile is applied. `gain` is
    the largest factor by which an error of the argument grows in the logarithm of the profile.
    """

    code: Any
    factor: float = 1.0
    param0: float = 0.0
    param1: float = 0.0
    degree: int = 0
    gain: float = 1.0


_MATERN = {0.5: _core.Profile.laplacian, 1.5: _core.Profile.matern32, 2.5: _core.Profile.matern52}
_LAPLACIAN = {1: Profile(_core.Profile.laplacian1, _LOG2E), 2: Profile(_core.Profile.laplacian, np.sqrt(2 * _LOG2E**2))}
_ARC_COSINE = {0: _core.Profile.arccosine0, 1: _core.Profile.arccosine1}

# Distances: the native argument is -|x' - z'|^2 / 2, the exponent of a power of 2 (Gaussian) or its square; in the
# 1-norm it is that exponent itself.
_PROFILES: dict[type[Kernel], Callable[[Any], Profile]] = {
    Gaussian: lambda k: Profile(_core.Profile.gaussian, np.sqrt(_LOG2E)),
    Laplacian: lambda k: _LAPLACIAN[k.norm],
    Matern: lambda k: Profile(_MATERN[k.nu], np.sqrt(4 * k.nu * _LOG2E**2)),
    RationalQuadratic: lambda k: Profile(
        _core.Profile.rational, np.sqrt(1.0 / k.alpha), k.alpha, gain=max(1.0, k.alpha)
    ),
    Linear: lambda k: Profile(_core.Profile.linear),
    Polynomial: lambda k: Profile(_core.Profile.polynomial, 1.0, k.gamma, k.coef0, k.degree),
    Sigmoid: lambda k: Profile(_core.Profile.sigmoid, 1.0, k.gamma, k.coef0),
    ArcCosine: lambda k: Profile(_ARC_COSINE[k.degree]),
}


def profile_of(kernel: Kernel) -> Profile | None:
    """Return the native profile of a resolved kernel, or None; a subclass may have changed its profile, so has none."""
    make = _PROFILES.get(type(kernel))
    return None if make is None else make(kernel)


def instruction_set() -> str:
    """Return the instruction set in use: the best of this processor, or that of ``GYRFALCON_ISA``.

    Examples
    --------
    >>> from gyrfalcon.backends.native import instruction_set
    >>> instruction_set() in ("avx512", "avx2", "baseline")
    True
    """
    available: list[str] = _core.instruction_sets()
    asked = os.environ.get("GYRFALCON_ISA", "")
    if asked and asked not in available:
        raise ValueError(
            f"GYRFALCON_ISA={asked!r} is not available here: use one of {listed(available, None, plain=True)}"
        )
    return asked or available[0]


def dense_instruction_set(n_centers: int, n_features: int, dtype: Any, differences: bool) -> str:
    """Return the instruction set for dense rows: `instruction_set`, or a narrower one that is faster for the shape.

    It depends on the arguments alone, so that results have the same bits every time. ``GYRFALCON_ISA`` overrides it.
    `differences` says whether distances are sums of differences, rather than computed from dot products.
    """
    widest = instruction_set()
    if widest != "avx512" or os.environ.get("GYRFALCON_ISA") or "avx2" not in _core.instruction_sets():
        return widest
    itemsize = np.dtype(dtype).itemsize
    few = n_centers * itemsize <= _ONE_VECTOR and itemsize == 4 and (differences or n_features <= _LONG_ROWS)
    short = n_centers * itemsize <= 2 * _ONE_VECTOR and n_features <= _SHORT_ROWS
    return "avx2" if few or short else widest


def are_fused(columns: Array) -> bool:
    """Whether several columns are multiplied by the extension, rather than by BLAS."""
    return 1 < columns.shape[1] <= _FUSED_COLUMNS


class FusedTiles(Tiles):
    """Tiles made by native `centers` with the verbs fill, matvec, rmatvec and sandwich."""

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

    def sandwich(self, rows: Array, V: Array, weight: BlockWeight, added: Array | None = None) -> Array:
        if V.shape[1] != 1 or callable(weight) or added is not None:
            return super().sandwich(rows, V, weight, added)
        out = np.empty(self.n_centers)
        self._centers.sandwich(rows, np.ascontiguousarray(V[:, 0]), weight, out)
        return out[:, None]

    def right(self, K: Array, V: Array) -> Array:
        if V.shape[1] == 1:
            out = np.empty(len(K), dtype=self.dtype)
            _core.dense(self.isa, _core.Verb.matvec, K, np.ascontiguousarray(V[:, 0]), None, out)
            return out[:, None]
        if not are_fused(V):
            return super().right(K, V)
        products = np.empty((len(K), V.shape[1]), dtype=self.dtype)
        _core.dense_matmat(self.isa, K, np.ascontiguousarray(V), products)
        return products

    def left(self, K: Array, U: Array) -> Array:
        if U.shape[1] == 1:
            out = np.empty(self.n_centers)
            _core.dense(self.isa, _core.Verb.rmatvec, K, None, np.ascontiguousarray(U[:, 0]), out)
            return out[:, None]
        if not are_fused(U):
            return super().left(K, U)
        sums = np.empty((self.n_centers, U.shape[1]))
        _core.dense_rmatmat(self.isa, K, np.ascontiguousarray(U), sums)
        return sums

    def narrow(self, K: Array, out: Array) -> None:
        if self.isa not in HALF_SETS:
            return super().narrow(K, out)
        _core.narrow(self.isa, K, out)

    def half_both(self, K: Array, V: Array, weight: Array | None) -> Array:
        if self.isa not in HALF_SETS or not 1 <= V.shape[1] <= _FUSED_COLUMNS:
            return super().half_both(K, V, weight)
        sums = np.empty((self.n_centers, V.shape[1]))
        _core.half_sandwich(self.isa, K, np.ascontiguousarray(V), weight, sums)
        return sums

    def signed_sums(self, K: Array, rows: Array, centers: Array, coef: Array) -> Array:
        out = np.empty((*rows.shape, len(coef)), dtype=self.dtype)
        _core.signed_sums(self.isa, K, rows, centers, coef, out)
        return out

    def both(
        self, K: Array, V: Array, weight: BlockWeight, part: slice | None = None, added: Array | None = None
    ) -> Array:
        if callable(weight) or (V.shape[1] != 1 and not are_fused(V)):
            return super().both(K, V, weight, part, added)
        w = weight if weight is None or part is None else weight[part]
        a = added if added is None or part is None else added[part]
        if V.shape[1] == 1:
            out, a = np.empty(self.n_centers), None if a is None else np.ascontiguousarray(a[:, 0])
            _core.dense(self.isa, _core.Verb.sandwich, K, np.ascontiguousarray(V[:, 0]), w, out, a)
            return out[:, None]
        sums = np.empty((self.n_centers, V.shape[1]))
        _core.dense_sandwich(self.isa, K, np.ascontiguousarray(V), w, sums, a)
        return sums


class NativeTiles(FusedTiles):
    """Tiles of a named kernel, computed in C++."""

    def __init__(self, kernel: Kernel, profile: Profile, centers: Array) -> None:
        dtype = centers.dtype
        shift = np.zeros(centers.shape[1])
        scale = kernel.scaling(centers.shape[1]) * profile.factor
        difference = False
        if kernel.geometry in ("distance", "manhattan"):
            # a common offset does not change differences, but adds to their rounding: center on the centers' mean
            shift = centers.mean(axis=0, dtype=np.float64).astype(dtype).astype(np.float64)
        if kernel.geometry == "distance":
            spread = 0.5 * profile.gain * _squared_norms(centers, shift, scale)
            far = spread.mean() > _LARGEST_EXPANSION or spread.max() > _FARTHEST_EXPANSION
            difference = bool(not kernel.smooth or far)
            if difference:
                scale *= np.sqrt(0.5)
        differences = difference or kernel.geometry in ("angle", "manhattan")
        isa = dense_instruction_set(len(centers), centers.shape[1], dtype, differences)
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
            isa,
        )
        super().__init__(native, len(centers), dtype, isa)
        entry, feature = _ENTRY_COST[self.dtype]
        by_differences = difference or kernel.geometry == "manhattan"
        self.entry_cost = entry + (2 if by_differences else 1) * feature * centers.shape[1]
        # entries of stationary kernels lie between 0 and 1
        self.fits_half = isinstance(kernel, Stationary) and dtype == np.float32 and isa in HALF_SETS

    def matmat(self, rows: Array, V: Array) -> Array:
        if not are_fused(V):
            return super().matmat(rows, V)
        out = np.empty((rows.shape[0], V.shape[1]), dtype=self.dtype)
        self._centers.matmat(rows, np.ascontiguousarray(V), out)
        return out

    def rmatmat(self, rows: Array, U: Array) -> Array:
        if not are_fused(U):
            return super().rmatmat(rows, U)
        out = np.empty((self.n_centers, U.shape[1]))
        self._centers.rmatmat(rows, np.ascontiguousarray(U), out)
        return out

    def sandwich(self, rows: Array, V: Array, weight: BlockWeight, added: Array | None = None) -> Array:
        if callable(weight) or not (V.shape[1] == 1 or are_fused(V)):
            return super().sandwich(rows, V, weight, added)
        if V.shape[1] == 1:
            sums, a = np.empty(self.n_centers), None if added is None else np.ascontiguousarray(added[:, 0])
            self._centers.sandwich(rows, np.ascontiguousarray(V[:, 0]), weight, sums, a)
            return sums[:, None]
        out = np.empty((self.n_centers, V.shape[1]))
        self._centers.sandwich_columns(rows, np.ascontiguousarray(V), weight, out, added)
        return out


def _squared_norms(centers: Array, shift: Array, scale: Array) -> Array:
    """Return |scale (z - shift)|^2 of each center, infinite where that overflows; by parts that stay in cache."""
    norms, step = np.empty(len(centers)), max(1, _CACHED_ENTRIES // centers.shape[1])
    with np.errstate(over="ignore"):
        for start in range(0, len(centers), step):
            part = (centers[start : start + step] - shift) * scale
            norms[start : start + step] = np.einsum("ij,ij->i", part, part)
    return norms


class PairTiles(Tiles):
    """Tiles of a sum or product of two kernels: a tile of each, combined in place."""

    def __init__(self, kernel: Sum | Product, first: Tiles, second: Tiles) -> None:
        super().__init__(first.n_centers, first.dtype, first.sparse)
        self.combine = type(kernel).combine
        self.first, self.second = first, second
        self.entry_cost = self.first.entry_cost + self.second.entry_cost + _COMBINING_COST

    def fill(self, rows: Array, out: Array | None = None) -> Array:
        if out is None:
            out = np.empty((rows.shape[0], self.n_centers), dtype=self.dtype)
        for part in self.parts(rows):
            self.first.fill(rows[part], out[part])
            self.combine(out[part], self.second.fill(rows[part]), out=out[part])
        return out

    def signed_sums(self, K: Array, rows: Array, centers: Array, coef: Array) -> Array:
        return self.first.signed_sums(K, rows, centers, coef)  # whatever the kernel


class ConstantTiles(Tiles):
    """Tiles of a constant, broadcast: an intercept or a scaling costs one sweep over the other kernel's tile."""

    entry_cost = 0.0

    def __init__(self, kernel: Constant, centers: Array) -> None:
        super().__init__(centers.shape[0], centers.dtype, sp.issparse(centers))
        self.value = np.array(kernel.value, dtype=self.dtype)

    def fill(self, rows: Array, out: Array | None = None) -> Array:
        if out is None:
            return np.broadcast_to(self.value, (rows.shape[0], self.n_centers))
        out[...] = self.value
        return out


def shapley_sums(z: Array, b: Array, nodes: Array, weights: Array) -> Array:
    """Compute the integrals of `gyrfalcon.backends.shapley.shapley_sums`."""
    out = np.empty_like(z)
    _core.shapley_sums(instruction_set(), z, b, nodes, weights, out)
    return out
