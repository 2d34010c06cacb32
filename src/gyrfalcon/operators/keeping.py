"""Whether K is worth the memory it takes, by a fixed model of what entries cost.

The decision changes the last bits of products, so it must not depend on clocks, nor on the number of threads: it is
made for an ordinary machine. Making entries is shared by cores and reading them is not, so that on many cores a K of
few features is made in less time than it takes to read it, and the pass that fills K writes memory that is new to the
process, the slowest access of all. Measured, on one core and per entry: reading takes 0.25 ns in float32 and 0.45 in
float64, filling 0.7 to 1.5 ns more than making; `Tiles.entry_cost` says what making takes. In 16 bits reading
takes 0.2 ns and rounding 0.15 to 0.4.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FEW_PASSES", "Halving", "is_worth_keeping"]

_CORES = 4
_READ_BANDWIDTH = 25.0  # bytes a nanosecond, by all cores
_FILL_BANDWIDTH = 4.0  # of pages that are touched for the first time
_LEAST_GAIN = 1.25  # in the time of all passes
_HALF_FILL = 2 / _FILL_BANDWIDTH + 0.15  # nanoseconds, with those of rounding
_LEAST_HALF_GAIN = 2.0  # for a K that is not small
_SMALL = 1 << 28  # bytes of a K that is kept in any case if there are more than a few passes
FEW_PASSES = 8


def is_worth_keeping(entry_cost: float, entries: int, itemsize: int, passes: int) -> bool:
    """Whether passes take clearly less time if K is kept.

    Parameters
    ----------
    entry_cost : float
        Nanoseconds in which a core makes an entry; infinite if it is not known.
    entries : int
        n M.
    itemsize : int
        Bytes of an entry.
    passes : int
        How many there will be, at most.

    Examples
    --------
    >>> from gyrfalcon.operators.keeping import is_worth_keeping
    >>> is_worth_keeping(0.5, 10**9, 4, passes=21), is_worth_keeping(2.5, 10**9, 4, passes=21)
    (False, True)
    """
    if entries * itemsize <= _SMALL and passes > FEW_PASSES:
        return True
    made, read, filled = entry_cost / _CORES, itemsize / _READ_BANDWIDTH, itemsize / _FILL_BANDWIDTH
    if made == float("inf"):
        return passes > 1
    return passes * made >= _LEAST_GAIN * (made + filled + (passes - 1) * read)


@dataclass(frozen=True)
class Halving:
    """Leave to keep a K in 16 bits, half the bytes, for products that need not be exact.

    A preconditioner's are such. Conjugate gradient itself is not: with a smooth kernel and a small penalty, rounding
    moves its solution by more than predictions bear, and nothing in its recurrence shows that.

    Attributes
    ----------
    budget : int
        Bytes that it may take.
    passes : int
        How many there will be, as a rule.

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
        """Whether it fits, and passes take clearly less time; arguments as for `is_worth_keeping`."""
        if not 0 < 2 * entries <= self.budget or entry_cost == float("inf"):
            return False
        made, later = entry_cost / _CORES, self.passes - 1
        least = _LEAST_GAIN if 2 * entries <= _SMALL else _LEAST_HALF_GAIN
        return self.passes * made >= least * (made + _HALF_FILL + later * 2 / _READ_BANDWIDTH)
