"""The native backend of sparse rows: CSR blocks against CSR centers, with nothing dense but tiles of K.

The profiles are those of the dense tiles. A linear kernel, also one that is scaled or has an intercept, never computes
K: its products go through the columns that occur in the centers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .. import _core
from .._utils.sparse import canonical
from ..kernels import Kernel, Linear
from .base import BlockWeight, weighted
from .native import FusedTiles, Profile, instruction_set

Array = NDArray[Any]


def common_scale(scale: Array) -> Array:
    """Return a single number if the scaling is one broadcast to all features, else the scaling."""
    return scale[:1] if scale.strides == (0,) else scale


class CsrCenters:
    """Native centers whose verbs take CSR rows; rows with unsorted columns are sorted first."""

    def __init__(self, kernel: Kernel, profile: Profile, centers: Any, isa: str) -> None:
        centers.check_format(full_check=True)
        centers = canonical(centers)
        scale = common_scale(kernel.scaling(centers.shape[1])) * profile.factor
        make = _core.SparseF32 if centers.dtype == np.float32 else _core.SparseF64
        parameters = float(profile.param0), float(profile.param1), int(profile.degree)
        self.native = make(*_arrays(centers), scale, profile.code, *parameters, isa)

    def fill(self, rows: Any, out: Array) -> None:
        if not self.native.fill(*_arrays(rows), out):
            self.native.fill(*_arrays(_sorted(rows)), out)

    def matvec(self, rows: Any, v: Array, out: Array) -> None:
        if not self.native.matvec(*_arrays(rows), v, out):
            self.native.matvec(*_arrays(_sorted(rows)), v, out)

    def rmatvec(self, rows: Any, u: Array, out: Array) -> None:
        if not self.native.rmatvec(*_arrays(rows), u, out):
            self.native.rmatvec(*_arrays(_sorted(rows)), u, out)

    def sandwich(self, rows: Any, v: Array, weight: Array | None, out: Array) -> None:
        if not self.native.sandwich(*_arrays(rows), v, weight, out):
            self.native.sandwich(*_arrays(_sorted(rows)), v, weight, out)


def _arrays(X: Any) -> tuple[Array, Array, Array, int]:
    return X.data, X.indices, X.indptr, X.shape[1]


def _sorted(rows: Any) -> Any:
    # a new matrix, because the old one may claim to be sorted
    return canonical(sp.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape))


class SparseTiles(FusedTiles):
    """Tiles of a named kernel and sparse rows, computed in C++."""

    def __init__(self, kernel: Kernel, profile: Profile, centers: Any) -> None:
        isa = instruction_set()
        super().__init__(CsrCenters(kernel, profile, centers, isa), centers.shape[0], centers.dtype, isa, sparse=True)


class LinearTiles(SparseTiles):
    """Tiles of ``slope * Linear() + constant``, without K: K V = X (C'V) and K'U = C (X'U), as cheap as reading X."""

    worth_keeping = False

    def __init__(self, slope: float, constant: float, centers: Any) -> None:
        super().__init__(Linear(), Profile(_core.Profile.linear), centers)
        self.slope, self.constant = slope, constant
        self._projected: tuple[Array, Array] | None = None

    def fill(self, rows: Any, out: Array | None = None) -> Array:
        out = super().fill(rows, out)
        if self.slope != 1:
            out *= self.slope
        if self.constant != 0:
            out += self.constant
        return out

    def matmat(self, rows: Any, V: Array) -> Array:
        if not V.shape[1]:
            return super().matmat(rows, V)
        out = np.empty((rows.shape[0], V.shape[1]), dtype=self.dtype)
        self._centers.native.linear_matmat(*_arrays(rows), self._projection(V), out)
        if self.slope != 1:
            out *= self.slope
        if self.constant != 0:
            out += (self.constant * V.sum(axis=0, dtype=np.float64)).astype(self.dtype)
        return out

    def rmatmat(self, rows: Any, U: Array) -> Array:
        if not U.shape[1]:
            return super().rmatmat(rows, U)
        out = np.empty((self.n_centers, U.shape[1]))
        self._centers.native.linear_rmatmat(*_arrays(rows), np.ascontiguousarray(U), out)
        return self.slope * out + self.constant * U.sum(axis=0, dtype=np.float64)

    def sandwich(self, rows: Any, V: Array, weight: BlockWeight, added: Array | None = None) -> Array:
        if callable(weight) or self.constant != 0 or not V.shape[1] or added is not None:
            T = self.matmat(rows, V)
            if added is not None:
                T += added
            return self.rmatmat(rows, weighted(T, weight, slice(0, rows.shape[0])))
        out = np.empty((self.n_centers, V.shape[1]))
        self._centers.native.linear_sandwich(*_arrays(rows), self._projection(V), weight, out)
        return self.slope**2 * out

    def _projection(self, V: Array) -> Array:
        """Compute C'V, or return the last one: all blocks of a pass need the same."""
        known = self._projected
        if known is not None and np.array_equal(known[0], V):
            return known[1]
        P = np.empty((self._centers.native.n_columns, V.shape[1]), dtype=self.dtype)
        self._centers.native.project(np.ascontiguousarray(V), P)
        self._projected = V.copy(), P  # one assignment: other threads see the old pair or the new one
        return P
