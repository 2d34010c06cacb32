"""Whether K is worth the memory it takes, by a fixed model of what entries cost.

The decision changes the last bits of products, so it must not depend on clocks, nor on the number of threads: it is
made for an ordinary machine. Making entries is shared by cores and reading them is not, so that on many cores a K of
few features is made in less time than it takes to read it, and the pass that fills K writes memory that is new to the
process, the slowest access of all. Measured, on one core and per entry: reading takes 0.25 ns in float32 and 0.45 in
float64, filling 0.7 to 1.5 ns more than making; `Tiles.entry_cost` says what making takes.
"""

from __future__ import annotations

__all__ = ["is_worth_halving", "is_worth_keeping"]

_CORES = 4
_READ_BANDWIDTH = 25.0  # bytes a nanosecond, by all cores
_FILL_BANDWIDTH = 4.0  # of pages that are touched for the first time
_LEAST_GAIN = 1.25  # in the time of all passes
_FEWEST_PASSES = 4
_SMALL = 1 << 28  # bytes of a K that is kept in any case


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
    if entries * itemsize <= _SMALL:
        return True
    if entry_cost == float("inf"):
        return passes > 1
    return _gains(entry_cost, itemsize, passes)


def is_worth_halving(entry_cost: float, passes: int | None) -> bool:
    """Whether passes take clearly less time if a K that does not fit is kept in half precision.

    Parameters
    ----------
    entry_cost : float
        As for `is_worth_keeping`.
    passes : int or None
        As many as a fit makes at least, if that is not known.

    Examples
    --------
    >>> from gyrfalcon.operators.keeping import is_worth_halving
    >>> is_worth_halving(0.8, passes=4), is_worth_halving(1.8, passes=4)  # as with 18 and with 64 features
    (False, True)
    """
    return entry_cost < float("inf") and _gains(entry_cost, 2, _FEWEST_PASSES if passes is None else passes)


def _gains(entry_cost: float, itemsize: int, passes: int) -> bool:
    made, read, filled = entry_cost / _CORES, itemsize / _READ_BANDWIDTH, itemsize / _FILL_BANDWIDTH
    return passes * made >= _LEAST_GAIN * (made + filled + (passes - 1) * read)
