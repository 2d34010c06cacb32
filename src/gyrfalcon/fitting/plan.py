"""The memory plan of a fit: bytes needed, by purpose, checked before the fit starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._utils.compute import Compute
from .._utils.memory import format_bytes, limit_of, parse_memory, require
from ..operators import block_rows
from ..sources import Rows

# Number of centers up to which factors are made in float64 for float32 rows: they cost little (18 MB, some hundredths
# of a second), and make float32 fits of smooth kernels more accurate
_LARGEST_FLOAT64_FACTORS = 1_500
_TILE = 1 << 19  # entries of a tile that a thread makes and uses
_CENTER_VECTORS = 12  # float64 arrays of shape (M, k) that conjugate gradient holds


def check_memory(
    budget: int | float | str,
    needs: Mapping[str, int],
    what: str,
    remedy: str | Callable[[int], str],
    *,
    limit: int | None = None,
) -> int:
    """Raise MemoryError if the memory needed does not fit the budget; return the total in bytes.

    needs : bytes by purpose; of several purposes, the message lists those with at least a fiftieth of the total
    what : beginning of the message, before the total, such as "100 centers take"
    remedy : advice to the user, or a function that makes it from the limit in bytes
    limit : ``limit_of(budget)`` if it is known
    """
    total = sum(needs.values())
    words = f"{what} {format_bytes(total)}"
    if len(needs) > 1:
        parts = (f"{format_bytes(size)} for {purpose}" for purpose, size in needs.items() if size > total // 50)
        words = f"{words} ({', '.join(parts)})"
    require(budget, total, words, remedy, limit=limit)
    return total


@dataclass(frozen=True)
class Needs:
    """The memory that a solver on centers needs, and its demands on the kernel.

    buffers : number of M x M factors that are held at once
    row_vectors : number of arrays of shape (n, columns) that the solver holds
    columns : number of columns that a pass multiplies; None for those of the targets
    held : further bytes that the solver holds, as a function of the number of centers
    passes : expected number of passes over the rows; decides whether a large K is kept if the user does not
    penalty : the given penalty, or "auto"; selectors of centers may depend on it
    resolves_penalty : whether the precision of the kernel must resolve the penalty
    """

    buffers: int = 1
    row_vectors: int = 2
    columns: int | None = None
    held: Callable[[int], int] = lambda M: 0
    passes: int = 1
    penalty: float | str = 0.0
    resolves_penalty: bool = False


@dataclass(frozen=True)
class Plan:
    """The memory of a fit with M centers, without X and y; tiles have the precision of the rows.

    k : number of columns that a pass multiplies
    limit : bytes available for the fit
    """

    rows: Rows
    k: int
    needs: Needs
    compute: Compute
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        # once, because available memory changes from one call to the next
        object.__setattr__(self, "limit", limit_of(self.compute.memory_budget))

    def factors(self, M: int) -> np.dtype[Any]:
        """Precision of the factors."""
        small = M <= _LARGEST_FLOAT64_FACTORS and 8 * self.needs.buffers * M * M <= self.limit // 2
        return np.dtype(np.float64 if self.rows.dtype.itemsize == 8 or small else np.float32)

    def bytes_needed(self, M: int) -> dict[str, int]:
        """Bytes needed, by purpose."""
        (n, d), itemsize = self.rows.shape, self.rows.dtype.itemsize
        width = 0 if self.rows.is_sparse else d
        block, n_threads = block_rows(n, M, width), self.compute.n_threads
        in_flight = 2 * n_threads + 1
        return {
            "the factors": self.needs.buffers * M * M * self.factors(M).itemsize,
            "the centers": 2 * M * width * itemsize,
            "vectors": self.needs.row_vectors * n * self.k * itemsize
            + _CENTER_VECTORS * 8 * M * self.k
            + self.needs.held(M),
            "blocks at work": in_flight * block * (width + self.k) * itemsize
            + n_threads * min(_TILE, max(48, block) * M) * itemsize,
            # rows that are read elsewhere are buffered by workers, each with a budget of its own
            "reading": 0 if self.rows.runs_elsewhere else self.rows.buffer_bytes,
        }

    def check(self, M: int) -> None:
        """Raise MemoryError if M centers do not fit, and say how many would."""
        check_memory(
            self.compute.memory_budget,
            self.bytes_needed(M),
            f"{M} centers take",
            lambda limit: self._remedy(M),
            limit=self.limit,
        )

    def _remedy(self, M: int) -> str:
        """Say how many centers would fit."""
        low, high = 0, M
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if sum(self.bytes_needed(middle).values()) <= self.limit else (low, middle)
        return f"n_centers={low} would fit" if low else "no number of centers fits, so raise memory_budget"

    def spare(self, M: int) -> int:
        """Bytes available for the fit that it does not need."""
        return self.limit - sum(self.bytes_needed(M).values())

    def left(self, M: int) -> int:
        """Bytes of the budget for keeping kernel matrices."""
        return max(0, parse_memory(self.compute.memory_budget) - sum(self.bytes_needed(M).values()))
