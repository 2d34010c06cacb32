"""A progress bar for fits. tqdm is imported when the bar is shown."""

from __future__ import annotations

import importlib
import logging
import math
import os
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any, cast

from .._utils.checks import integer
from .._utils.forks import PerProcess
from .._utils.terminal import printable
from .._utils.words import plural
from .base import Callback, Record

logger = logging.getLogger("gyrfalcon")

_VERBOSE = integer(0)

_BEGUN = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} passes [{elapsed}]"  # nothing is known of the time left
_COUNTED = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} passes [{elapsed}<{remaining}{postfix}]"
_OPEN_ENDED = "{desc}: {n_fmt} passes [{elapsed}{postfix}]"


def progress_callback(verbose: int) -> ProgressBar | None:
    """Return the progress bar for the parameter `verbose`.

    0 gives none, unless the environment variable ``GYRFALCON_PROGRESS`` is ``1``. 1 gives a bar, and 2 or more also a
    line for each iteration.
    """
    if not isinstance(verbose, bool):  # True is 1, as in scikit-learn
        _VERBOSE("verbose", verbose)
    if verbose == 0 and os.environ.get("GYRFALCON_PROGRESS", "").strip().lower() not in ("1", "true", "yes", "on"):
        return None
    return ProgressBar(log=bool(verbose >= 2))


class ProgressBar(Callback):
    """A bar that counts passes over the rows, with the residual, the validation error and the time left.

    Estimators create one when ``verbose`` asks for it.

    Parameters
    ----------
    log : bool, default=False
        Whether to write a line for each iteration as well: to the logger ``"gyrfalcon"`` at level INFO, or above the
        bar if logging is not set up.
    file : text stream, optional
        Where to draw; by default standard error, or a widget in a notebook.

    Examples
    --------
    >>> from gyrfalcon.callbacks.progress import ProgressBar
    >>> ProgressBar(log=True)
    ProgressBar(log=True)
    """

    def __init__(self, *, log: bool = False, file: IO[str] | None = None) -> None:
        self.log = log
        self.file = file
        self._bar: Any = None
        self._name = ""

    def __repr__(self) -> str:
        return f"ProgressBar(log={self.log!r})"

    def __getstate__(self) -> dict[str, Any]:
        # A callback may pickle the estimator during the fit, and an open bar or stream cannot be pickled.
        return {"log": self.log, "file": None, "_bar": None, "_name": ""}

    def on_fit_start(self, estimator: Any, info: Mapping[str, Any]) -> None:
        self._name = type(estimator).__name__
        self._open(self._name, info)

    def on_round_start(self, info: Mapping[str, Any]) -> None:
        self._open(f"{self._name}, {info['n_centers']:,} centers", info)

    def _open(self, title: str, info: Mapping[str, Any]) -> None:
        self._close()
        file = sys.stderr if self.file is None else self.file
        if file is None:  # no console
            return
        max_iter = info.get("max_iter")
        # One pass for the right-hand side, and one per iteration.
        total = info.get("max_passes", None if max_iter is None else max_iter + 1)
        self._bar = bar_class(notebook=self.file is None)(
            desc=title,
            total=total,
            file=file,
            bar_format=_OPEN_ENDED if total is None else _BEGUN,
            dynamic_ncols=True,
            mininterval=0.1,
            miniters=1,
        )

    def on_iteration(self, record: Record) -> None:
        bar = self._bar
        if bar is None:
            return
        bar.set_postfix_str(_summary(record), refresh=False)
        bar.bar_format = _OPEN_ENDED if bar.total is None else _COUNTED
        # passes over a sample of the rows are parts of one, and one that was begun is shown
        passes = math.ceil(record.get("passes", bar.n + 1))
        if record.get("converged") or (bar.total is not None and passes > bar.total):
            # A fit that ends early is complete: a bar that stops halfway looks like a failure.
            bar.total = passes
        bar.update(passes - bar.n)
        if self.log:
            self._write_line(f"iteration {record.get('iteration', '?')}: {_details(record)}")

    def on_progress(self, passes: float) -> None:
        bar = self._bar
        if bar is not None:
            bar.update(round(passes, 2) - bar.n)

    def on_fit_end(self, estimator: Any) -> None:
        self._close()

    def _write_line(self, line: str) -> None:
        if logger.hasHandlers():
            # A handler may write to the terminal that the bar is on.
            self._bar.clear()
            logger.info(line)
            self._bar.refresh()
        else:
            self._bar.write(printable(line), file=self._bar.fp)

    def _close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.refresh()
            bar.close()


# The lock around drawing; tqdm's own would stay locked in a child that is forked while a bar is drawn.
_drawing = PerProcess(threading.RLock)


def bar_class(*, notebook: bool) -> type[Any]:
    """Return tqdm's bar, or its notebook widget, made safe for threads and forks."""
    tqdm: Any = importlib.import_module("tqdm.auto" if notebook else "tqdm").tqdm
    # tqdm's monitor thread, which outlives the bar, serves bars that skip updates by count. This one skips by time.
    bar: Any = type("_Bar", (tqdm,), {"monitor_interval": 0})
    bar.set_lock(_drawing.current)
    return cast("type[Any]", bar)


def _summary(record: Record) -> str:
    parts = []
    if record.get("residual") is not None:
        parts.append(f"residual {record['residual']:.1e}")
    if record.get("validation_error") is not None:
        parts.append(f"validation error {record['validation_error']:.4g}")
    return ", ".join(parts)


def _details(record: Record) -> str:
    parts = [_summary(record)]
    if "passes" in record:
        parts.append(plural(round(record["passes"], 1), "pass", "passes"))
    if "seconds" in record:
        parts.append(f"{record['seconds']:.2f} s")
    return ", ".join(part for part in parts if part)
