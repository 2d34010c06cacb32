"""Available memory, memory budgets, and the one way to refuse what does not fit."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from numbers import Real
from pathlib import Path

from .threads import effective_n_jobs
from .words import shown

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_FALLBACK = 4 * 2**30
# Bytes of address space for each thread, which a copy of OpenBLAS takes at its first call: 32 MiB and half a stack.
# Where a limit refuses them it does not return an error: it ends the process, or waits forever.
_BLAS_WORKSPACE = 36 << 20


def _number_in(path: str, name: str = "") -> int | None:
    """Return the number in a file, or in its line that begins with `name`; None if there is none."""
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return int(line.removeprefix(name).split()[0])
    except (OSError, ValueError, IndexError):
        pass
    return None


def available_memory() -> int:
    """Return the bytes that this process may still allocate without swapping.

    It is the smallest of what the machine, the control group of the process, ``ulimit -v`` and ``ulimit -d`` leave.
    """
    kilobytes = _number_in("/proc/meminfo", "MemAvailable:")
    available = _physical_memory() // 2 if kilobytes is None else kilobytes * 1024
    limit, used = _number_in("/sys/fs/cgroup/memory.max"), _number_in("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        # the control group counts cached pages of files as used, but can reclaim them
        cached = _number_in("/sys/fs/cgroup/memory.stat", "inactive_file ") or 0
        available = min(available, max(0, limit - used + cached))
    return min([available, *_left_by_limits()])


def _left_by_limits() -> Iterator[int]:
    """Yield the bytes that each of the process' soft limits leaves; an allocation beyond fails, whatever is free."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    for kind, counts in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield max(0, limit - (_number_in("/proc/self/status", counts) or 0) * 1024)


def require_workspace() -> None:
    """Raise MemoryError if the process' limits leave no room for the workspace of BLAS."""
    needed = 2 * effective_n_jobs(None) * _BLAS_WORKSPACE  # NumPy's copy and SciPy's
    room = min(_left_by_limits(), default=needed)
    if room < needed:
        raise MemoryError(
            f"the limits of this process (ulimit -v, ulimit -d) leave {format_bytes(room)}, and BLAS may take "
            f"{format_bytes(needed)} of workspace for {effective_n_jobs(None)} threads: raise the limits, or set "
            "OMP_NUM_THREADS and OPENBLAS_NUM_THREADS to fewer"
        )


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _FALLBACK


def parse_memory(budget: int | float | str) -> int:
    """Return the bytes of a budget: a number, ``"4GB"``, ``"512MiB"``, or ``"auto"``, half of the available memory."""
    remedy = 'must be "auto", a number of bytes, or a string such as "4GB"'
    if isinstance(budget, str):
        if budget == "auto":
            return available_memory() // 2
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]I?)?B?\s*", budget.upper())
        if match is None:
            raise ValueError(f"memory_budget={shown(budget)} {remedy}")
        size = float(match[1]) * _UNITS[match[2] or ""]
        if size == math.inf:
            raise ValueError(f"memory_budget={shown(budget)} {remedy}")
        return int(size)
    if isinstance(budget, bool) or not isinstance(budget, Real):
        raise TypeError(f"memory_budget={shown(budget)} {remedy}")
    if not 0 <= budget < math.inf:
        raise ValueError(f"memory_budget={shown(budget)} {remedy}, not negative")
    return int(budget)


def limit_of(budget: int | float | str) -> int:
    """Return the limit for mandatory memory in bytes: the budget, or all available memory if it is "auto" or 0.

    It is at most what the limits of the process leave beside the workspace of SciPy's BLAS, which makes factors.
    """
    asked = 0 if budget == "auto" else parse_memory(budget)
    workspace = effective_n_jobs(None) * _BLAS_WORKSPACE
    return min([asked or available_memory(), *(max(0, room - workspace) for room in _left_by_limits())])


class BudgetError(MemoryError):
    """Mandatory memory of `size` bytes does not fit the budget; `room` says in words what is available."""

    def __init__(self, what: str, size: int, room: str, remedy: str) -> None:
        super().__init__(f"{what}, and {room}: {remedy}")
        self.size, self.room = size, room


def require(
    budget: int | float | str,
    size: int,
    what: str,
    remedy: str | Callable[[int], str],
    *,
    limit: int | None = None,
) -> None:
    """Raise BudgetError, which is a MemoryError, if mandatory memory of `size` bytes does not fit the budget.

    budget : as the user gave it, see `parse_memory`
    what : what needs the memory
    remedy : advice to the user, or a function that makes it from the limit in bytes
    limit : ``limit_of(budget)`` if it is known: available memory changes from one call to the next
    """
    limit = limit_of(budget) if limit is None else limit
    if size > limit:
        if budget == "auto" or parse_memory(budget) == 0 or limit < parse_memory(budget):
            room = f"{format_bytes(limit)} are available"
        else:
            room = f"memory_budget={shown(budget)} allows {format_bytes(limit)}"
        raise BudgetError(what, size, room, remedy if isinstance(remedy, str) else remedy(limit))


def require_memory(origin: str, size: int, available: int) -> None:
    """Raise MemoryError if a table takes more than the available memory, both in bytes."""
    if size > available:
        raise MemoryError(
            f"{origin}: the table takes about {format_bytes(size)} in memory, and {format_bytes(available)} are "
            "available"
        )


def format_bytes(count: int) -> str:
    """Format a number of bytes for people, such as "1.6 GB"."""
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
