"""How K is divided into blocks of rows, and how it is kept between passes: not at all, whole, or in 16 bits.

Both decisions change the last bits of products, so they do not depend on clocks or on the number of threads. The size
of a block depends on the problem alone. How K is kept depends on the memory budget, and on a fixed model of an ordinary
machine with four cores: these share the work of computing entries but not the bandwidth of memory, so that a K of few
features can be computed faster than it is read, and the pass that fills K writes new memory, which is slowest. Measured
on one core, in nanoseconds per entry: reading takes 0.25 in float32 and 0.45 in float64, filling 0.7 to 1.5 more than
computing (`Tiles.entry_cost`). In 16 bits reading takes 0.2 and rounding 0.15 to 0.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import scipy.sparse

from ..backends import Tiles

__all__ = ["FEW_PASSES", "Halving", "Keeping", "block_rows", "choose_keeping", "is_worth_keeping", "stored_per_row"]

_BLOCK_ENTRIES = 1 << 23  # largest number of kernel entries of a block: some milliseconds of work
# Most rows of a block: with 20 and 100 centers a pass takes as long as with 233,000 and 84,000 rows, and less memory
_MOST_ROWS = 1 << 15
_BLOCKS_AT_LEAST = 32  # least number of blocks of many rows, so that threads can share them
SMALLEST_BLOCK = 96  # rows; all blocks but the last have a multiple of it

# The model's machine; bandwidths are of all its cores together, in bytes per nanosecond
_CORES = 4
_READ_BANDWIDTH = 25.0
_FILL_BANDWIDTH = 4.0  # of pages that are touched for the first time
_HALF_FILL = 2 / _FILL_BANDWIDTH + 0.15  # nanoseconds to round an entry to 16 bits and to write it
# Least ratio of the times of all passes, without a kept K to with it, at which K is kept
_LEAST_GAIN = 1.25
_LEAST_HALF_GAIN = 2.0  # in 16 bits, for a K that is not small
_SMALL = 1 << 28  # bytes of a K that is kept whatever it costs if there are more than `FEW_PASSES` passes
FEW_PASSES = 8


def block_rows(n: int, n_centers: int, n_features: int) -> int:
    """Choose the number of rows of a block of K, of shape (n, n_centers), for rows of `n_features` stored values.

    Examples
    --------
    >>> from gyrfalcon.operators import block_rows
    >>> block_rows(1_000_000, 1_000, 10)
    8448
    """
    size = min(_BLOCK_ENTRIES // max(1, n_centers, 4 * n_features), _MOST_ROWS, -(-n // _BLOCKS_AT_LEAST))
    return max(SMALLEST_BLOCK, -(-size // SMALLEST_BLOCK) * SMALLEST_BLOCK)


def stored_per_row(centers: Any) -> int:
    """Average stored values per row, from the centers."""
    return int(centers.nnz // centers.shape[0] if scipy.sparse.issparse(centers) else centers.shape[1])


class Keeping(Enum):
    """How K is kept between passes; the value describes it in words, as `Operator.arithmetic` does."""

    NONE = "made again"
    WHOLE = "kept in memory"
    HALF = "kept in 16 bits"


def choose_keeping(tiles: Tiles, entries: int, budget: int, passes: int | None, halving: Halving | None) -> Keeping:
    """Choose how K, with `entries` = n M, is kept; a whole K may take `budget` bytes.

    `passes` is the largest number of passes. If it is None, not known, a whole K is kept wherever it fits.
    """
    cost, itemsize = tiles.entry_cost, tiles.dtype.itemsize
    if halving is not None and tiles.fits_half and halving.is_worth(cost, entries):
        return Keeping.HALF
    worth = tiles.worth_keeping and (passes is None or is_worth_keeping(cost, entries, itemsize, passes))
    return Keeping.WHOLE if worth and 0 < entries * itemsize <= budget else Keeping.NONE


def is_worth_keeping(entry_cost: float, entries: int, itemsize: int, passes: int) -> bool:
    """Whether passes take clearly less time if K, with `entries` = n M of `itemsize` bytes, is kept.

    `entry_cost` is the time in nanoseconds in which one core computes an entry; infinite if that is not known.
    """
    if entries * itemsize <= _SMALL and passes > FEW_PASSES:
        return True
    made, read, filled = entry_cost / _CORES, itemsize / _READ_BANDWIDTH, itemsize / _FILL_BANDWIDTH
    if made == float("inf"):
        return passes > 1
    return passes * made >= _LEAST_GAIN * (made + filled + (passes - 1) * read)


@dataclass(frozen=True)
class Halving:
    """Permission to keep a K in 16 bits, half the bytes of float32, for products that need not be exact.

    Those of a preconditioner need not be. Those of conjugate gradient must be: with a smooth kernel and a small
    penalty, rounding changes its predictions noticeably, and nothing in its recurrence shows that. K may take `budget`
    bytes, and `passes` is the typical number of passes.

    Examples
    --------
    >>> from gyrfalcon.operators.keeping import Halving
    >>> few, many = Halving(10**10, passes=4), Halving(10**10, passes=21)
    >>> [few.is_worth(cost, 10**9) for cost in (2.4, 10.1)], many.is_worth(1.8, 10**9)  # 90, 440 and 64 features
    ([False, True], True)
    >>> many.is_worth(0.8, 10**8), many.is_worth(0.8, 10**9)  # 18 features: not for gigabytes
    (True, False)
    """

    budget: int
    passes: int

    def is_worth(self, entry_cost: float, entries: int) -> bool:
        """Whether K fits, and passes take clearly less time; parameters as for `is_worth_keeping`."""
        if not 0 < 2 * entries <= self.budget or entry_cost == float("inf"):
            return False
        made, later = entry_cost / _CORES, self.passes - 1
        least = _LEAST_GAIN if 2 * entries <= _SMALL else _LEAST_HALF_GAIN
        return self.passes * made >= least * (made + _HALF_FILL + later * 2 / _READ_BANDWIDTH)
