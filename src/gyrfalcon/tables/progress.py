"""A line on the terminal that shows the progress of a search."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .._utils.terminal import printable
from ..callbacks import Record
from ..callbacks.progress import bar_class
from .budget import Budget


@contextmanager
def progress_line(
    name: str, verbose: int, budget: Budget
) -> Iterator[tuple[Callable[[Record], None], Callable[[str], None]]]:
    """Show stage, number of candidates, least error and time left, if `verbose` or ``GYRFALCON_PROGRESS`` asks for it.

    Yields two functions, one that takes the record of each step, and one that writes a line of text above. With
    `verbose` of 2 or more, each record is written on a line as well.
    """
    asked = os.environ.get("GYRFALCON_PROGRESS", "").strip().lower() in ("1", "true", "yes", "on")
    if not (verbose or asked) or sys.stderr is None:
        yield lambda record: None, lambda text: None
        return
    bar: Any = bar_class(notebook=True)(
        desc=name,
        file=sys.stderr,
        bar_format="{desc} [{elapsed}]",
        dynamic_ncols=True,
        mininterval=0.1,
    )
    tried, least = 0, math.inf

    def show(record: Record) -> None:
        nonlocal tried, least
        tried += 1
        least = min(least, record["error"]) if record["error"] == record["error"] else least
        text = f"{record['stage']}, {tried} tried, least error {least:.4g}, {max(0.0, budget.left):.0f} s left"
        bar.set_description_str(f"{name}: {text}", refresh=False)
        bar.update(1)
        if verbose >= 2:
            details = f"{record['encoding']}, {record['kernel']}, round {record['round']}"
            line = f"{record['stage']}: {details}: error {record['error']:.4g} ({record['seconds']:.1f} s)"
            bar.write(printable(line), bar.fp)

    try:
        yield show, lambda text: bar.write(text, bar.fp)
    finally:
        bar.refresh()
        bar.close()
