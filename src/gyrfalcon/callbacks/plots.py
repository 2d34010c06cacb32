"""A plot of how a fit converged. matplotlib is imported when it is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .base import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["convergence_plot"]


def convergence_plot(history: Any, ax: Axes | None = None) -> Axes:
    """Draw the residual, and the validation error if there is one, against passes over the rows.

    Parameters
    ----------
    history : estimator or list of dict
        A fitted estimator, or its ``history_``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure. The validation error gets a second axis on its right.

    Returns
    -------
    matplotlib.axes.Axes
        The axes of the residual; ``.figure.savefig(path)`` writes the figure to a file.

    Examples
    --------
    >>> from gyrfalcon.callbacks import convergence_plot
    >>> ax = convergence_plot([{"passes": 2, "residual": 0.1}, {"passes": 3, "residual": 0.01}])
    >>> ax.get_yscale()
    'log'
    """
    records = _records(history)
    if not records:
        raise ValueError("history is empty: there is nothing to draw")
    try:
        from matplotlib import pyplot
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise ImportError("convergence_plot needs matplotlib: pip install gyrfalcon[plots]") from error
    if ax is None:
        ax = pyplot.subplots()[1]

    passes: list[Any] = [record.get("passes", record.get("iteration", i)) for i, record in enumerate(records, start=1)]
    # A residual of exactly zero has no logarithm: leave a gap instead of a warning.
    residuals = [r if r > 0 else math.nan for r in (float(record.get("residual", math.nan)) for record in records)]
    lines = ax.plot(passes, residuals, marker=".", color="C0", label="residual")
    ax.set_yscale("log")
    ax.set_xlabel("passes over the rows")
    ax.set_ylabel("relative residual")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))

    errors = [record.get("validation_error") for record in records]
    if any(error is not None for error in errors):
        right = ax.twinx()
        values = [math.nan if error is None else float(error) for error in errors]
        lines += right.plot(passes, values, marker=".", color="C1", label="validation error")
        right.set_ylabel("validation error")
    ax.legend(handles=lines)
    return ax


def _records(history: Any) -> Sequence[Record]:
    try:
        records: Sequence[Record] = history if isinstance(history, Sequence) else history.history_
        if all(isinstance(record, Mapping) for record in records):
            return records
    except AttributeError:  # not fitted, or no estimator
        pass
    raise TypeError(f"history must be a fitted estimator or its history_, got {type(history).__name__}")
