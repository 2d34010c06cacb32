"""Timing side by side: every contender in every round, best of several, so that a noisy machine is noisy for all."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def best_of(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of each contender: the best of `rounds` rounds, each of which runs all of them once."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, run in contenders.items():
            gc.collect()
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table in Markdown."""
    print(f"\n### {title}\n")
    text = [[_text(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in text) for i in range(len(header))]
    for number, row in enumerate(text):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    sys.stdout.flush()


def _text(cell: Any) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "NO"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def touch_memory(gigabytes: float) -> None:
    """Touch memory, and let what is freed stay with the process, where the C library can be told so (glibc).

    A virtual machine may take seconds for a gigabyte that it has not had before, or has given back: more than most of
    what is measured.
    """
    if sys.platform == "linux":
        never_mapped, never_trimmed = (-4, 0), (-1, -1)  # M_MMAP_MAX, M_TRIM_THRESHOLD
        for parameter, value in (never_mapped, never_trimmed):
            ctypes.CDLL(None).mallopt(parameter, value)
    np.empty(int(gigabytes * 2**27), dtype=np.float64).fill(1.0)


def resident() -> int:
    """Bytes resident now."""
    return _status("VmRSS:")


def peak() -> int:
    """Most bytes resident so far (not ru_maxrss, which a process inherits from the one that started it)."""
    return _status("VmHWM:")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/self/status: memory is measured on Linux")


def in_subprocess(code: str, *arguments: Any) -> Any:
    """Run `code` in a new process, where peak memory starts from nothing; it prints one line of JSON."""
    here = str(Path(__file__).resolve().parent)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{code}", *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])
