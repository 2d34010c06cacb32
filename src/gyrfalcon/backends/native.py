"""The native backend: fused C++ tiles, so that K is computed in registers and never written to memory.

Sums and products fill a tile for each operand; kernels without a native profile fill tiles by their own NumPy profile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .. import _core  # type: ignore[attr-defined]
from ..kernels import Constant, Kernel, Product, Stationary, Sum, linear_form
from .base import BlockWeight, Tiles
from .fused import HALF_SETS, FusedTiles, Profile, are_fused, dense_instruction_set, instruction_set, profile_of
from .reference import KernelTiles
from .sparse import LinearTiles, SparseTiles

__all__ = ["instruction_set", "prepare"]

Array = NDArray[Any]

# Expanding |x - z|^2 loses about eps |z|^2. Beyond this many units of the profile's argument, on average over the
# centers or at the farthest of them, that is no longer small beside the tile's own rounding, and squared differences
# are summed instead.
_LARGEST_EXPANSION = 32.0
_FARTHEST_EXPANSION = 256.0

# Nanoseconds of an entry, and of each feature in it, as measured on one AVX-512 core at 3 GHz. Sums of differences, of
# squares or in the 1-norm, take twice as long for each feature as products.
_ENTRY_COST = {np.dtype(np.float32): (0.4, 0.022), np.dtype(np.float64): (1.2, 0.044)}
_COMBINING_COST = 0.5

_CACHED_ENTRIES = 1 << 16


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

    def __init__(self, kernel: Sum | Product, centers: Array) -> None:
        super().__init__(centers.shape[0], centers.dtype, sp.issparse(centers))
        self.combine = type(kernel).combine
        self.first, self.second = prepare(kernel.k1, centers), prepare(kernel.k2, centers)
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


def prepare(kernel: Kernel, centers: Any) -> Tiles:
    """Make the tiles of a kernel: native if it has a profile, else NumPy's."""
    sparse = sp.issparse(centers)
    form = linear_form(kernel) if sparse else None
    if form is not None and form[0] != 0:
        return LinearTiles(*form, centers)
    if isinstance(kernel, Sum | Product):
        return PairTiles(kernel, centers)
    if type(kernel) is Constant:
        return ConstantTiles(kernel, centers)
    profile = profile_of(kernel)
    if profile is None:
        return KernelTiles(kernel, centers)
    return (SparseTiles if sparse else NativeTiles)(kernel, profile, centers)
