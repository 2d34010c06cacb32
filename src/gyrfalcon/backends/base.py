"""Blocks of rows against prepared centers: what a backend must do, and the plain way of doing all but one of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BlockWeight = Array | Callable[[slice, Array], Array] | None

# Entries of a tile of K that is made, used and thrown away: large enough for GEMM, small enough to stay in cache.
_TILE_ENTRIES = 1 << 19


def weighted(T: Array, weight: BlockWeight, part: slice) -> Array:
    """W T for the rows `part` of a block: `weight` is None, one number a row, or a function of the part and T."""
    if weight is None:
        return T
    if callable(weight):
        U = np.asarray(weight(part, T))
        if U.shape != T.shape:
            raise ValueError(f"weight gave an array of shape {U.shape} for {len(T)} rows: it must give {T.shape}")
        return U.astype(T.dtype, copy=False)
    return T * weight[part, None]


class Tiles(ABC):
    """A kernel and its centers, ready to be multiplied with blocks of rows.

    Only `fill` has to be defined. The verbs `matmat`, `rmatmat` and `sandwich` take a block of rows; `right`, `left`
    and `both` are the same products with a block of K that already exists. `V` is (M, k), `U` and `T` are (b, k). What
    is summed over rows comes back in float64.
    """

    def __init__(self, n_centers: int, dtype: Any) -> None:
        self.n_centers = n_centers
        self.dtype = np.dtype(dtype)

    @abstractmethod
    def fill(self, rows: Array, out: Array | None = None) -> Array:
        """k(rows, centers), into `out` if given."""

    def right(self, K: Array, V: Array) -> Array:
        """K V."""
        product: Array = K @ V
        return product

    def left(self, K: Array, U: Array) -> Array:
        """K' U. Summed by BLAS in the tile's own precision, over the rows of one tile only."""
        total = np.zeros((K.shape[1], U.shape[1]))
        step = self._tile_rows()
        for start in range(0, len(K), step):
            total += K[start : start + step].T @ U[start : start + step]
        return total

    def both(self, K: Array, V: Array, weight: BlockWeight, part: slice | None = None) -> Array:
        """K' W K V, K being the rows `part` of a block; tile by tile, so that K comes from memory once."""
        total = np.zeros((self.n_centers, V.shape[1]))
        offset = 0 if part is None else part.start
        for tile in self.parts(K):
            at = slice(offset + tile.start, offset + tile.stop)
            total += self.left(K[tile], weighted(self.right(K[tile], V), weight, at))
        return total

    def matmat(self, rows: Array, V: Array) -> Array:
        out = np.empty((len(rows), V.shape[1]), dtype=self.dtype)
        for part in self.parts(rows):
            out[part] = self.right(self.fill(rows[part]), V)
        return out

    def rmatmat(self, rows: Array, U: Array) -> Array:
        total = np.zeros((self.n_centers, U.shape[1]))
        for part in self.parts(rows):
            total += self.left(self.fill(rows[part]), U[part])
        return total

    def sandwich(self, rows: Array, V: Array, weight: BlockWeight) -> Array:
        total = np.zeros((self.n_centers, V.shape[1]))
        for part in self.parts(rows):
            total += self.both(self.fill(rows[part]), V, weight, part)
        return total

    def _tile_rows(self) -> int:
        return max(48, _TILE_ENTRIES // max(1, self.n_centers) // 48 * 48)

    def parts(self, rows: Array) -> list[slice]:
        """The rows of a block, as many at a time as make a tile that stays in cache."""
        step = self._tile_rows()
        return [slice(start, min(start + step, len(rows))) for start in range(0, len(rows), step)]
