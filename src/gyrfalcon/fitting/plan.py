"""What a fit takes in memory, known before it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._utils.memory import format_bytes, limit_of, parse_memory, require
from ..operators import block_rows

# Up to here factors in float64 cost little (18 MB, some hundredths of a second), and make float32 fits of smooth
# kernels more accurate
_LARGEST_FLOAT64_FACTORS = 1_500
_TILE = 1 << 19  # entries of a tile that a thread makes and uses
_CENTER_VECTORS = 12  # of conjugate gradient, in float64, beside those of the rows


@dataclass(frozen=True)
class Plan:
    """The memory of a fit with M centers, beside X and y.

    Attributes
    ----------
    n, width, k : rows, numbers of a row, and targets
    itemsize : bytes of a number of the tiles
    buffers : M x M factors that are held at once
    row_vectors : arrays of shape (n, k) that the solver holds
    n_threads : how many blocks are at work at once
    buffered : what the source holds while it is read
    budget : `memory_budget` as the user gave it
    held : function of M that gives further bytes which the solver holds
    limit : bytes that there are
    """

    n: int
    width: int
    k: int
    itemsize: int
    buffers: int
    row_vectors: int
    n_threads: int
    buffered: int
    budget: int | float | str
    held: Callable[[int], int] = lambda M: 0
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        # once, for what is available changes
        object.__setattr__(self, "limit", limit_of(self.budget))

    def factors(self, M: int) -> np.dtype[Any]:
        """Precision of the factors."""
        small = M <= _LARGEST_FLOAT64_FACTORS and 8 * self.buffers * M * M <= self.limit // 2
        return np.dtype(np.float64 if self.itemsize == 8 or small else np.float32)

    def needs(self, M: int) -> dict[str, int]:
        """Bytes by what they are for."""
        block = block_rows(self.n, M, self.width)
        in_flight = 2 * self.n_threads + 1
        return {
            "the factors": self.buffers * M * M * self.factors(M).itemsize,
            "the centers": 2 * M * self.width * self.itemsize,
            "vectors": self.row_vectors * self.n * self.k * self.itemsize
            + _CENTER_VECTORS * 8 * M * self.k
            + self.held(M),
            "blocks at work": in_flight * block * (self.width + self.k) * self.itemsize
            + self.n_threads * min(_TILE, max(48, block) * M) * self.itemsize,
            "reading": self.buffered,
        }

    def check(self, M: int) -> None:
        """Raise MemoryError if it does not fit, and say what would."""
        needs = self.needs(M)
        total = sum(needs.values())
        parts = ", ".join(f"{format_bytes(size)} for {what}" for what, size in needs.items() if size > total // 50)
        what = f"{M} centers take {format_bytes(total)} ({parts})"
        require(self.budget, total, what, lambda limit: self._remedy(M), limit=self.limit)

    def _remedy(self, M: int) -> str:
        """Say how many centers would fit."""
        low, high = 0, M
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if sum(self.needs(middle).values()) <= self.limit else (low, middle)
        return f"n_centers={low} would fit" if low else "no number of centers fits, so raise memory_budget"

    def spare(self, M: int) -> int:
        """Bytes that the fit leaves."""
        return self.limit - sum(self.needs(M).values())

    def left(self, M: int) -> int:
        """Bytes for keeping kernel matrices."""
        return max(0, parse_memory(self.budget) - sum(self.needs(M).values()))
