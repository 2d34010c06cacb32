"""What the displays share: colours, panels and labels. matplotlib is imported when something is drawn.

Backgrounds and text follow matplotlib's style. The colours are visible on white and on black, and to the colour-blind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#b5578c", "#808080"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, GREY)
MAP = "viridis"  # perceptually uniform, also in grey
FEW = 8  # largest number of values that are all named on an axis

_PANEL = (5.2, 4.0)  # inches
_STACKED = (6.4, 2.7)
_WIDE = 20.0  # ratio of the largest to the smallest value from which an axis is logarithmic


class Display(ABC):
    """A drawing that can be repeated: `plot` sets the panels `axes_`, the first of them `ax_`, and their `figure_`."""

    axes_: Array
    ax_: Axes
    figure_: Figure

    @abstractmethod
    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or list of them, optional
            Where to draw: a list of as many axes as there are panels, or one, in whose place they are put. None makes
            a new figure.

        Returns
        -------
        self
        """

    def _open(self, ax: Any, count: int = 1, *, stacked: bool = False) -> list[Axes]:
        """Set and return the panels: new ones, those given, or parts of the place of the one that is given."""
        try:
            from matplotlib.axes import Axes
        except ImportError as error:
            raise ImportError(f"{type(self).__name__} needs matplotlib: pip install matplotlib") from error
        if ax is None:
            axes = _new(count, stacked)
        elif not isinstance(ax, Axes):
            axes = np.asarray(ax, dtype=object).ravel()
            if len(axes) != count or not all(isinstance(one, Axes) for one in axes):
                raise ValueError(f"ax={ax!r} must be None, one matplotlib Axes, or a list of {count}")
        else:
            axes = np.array([ax], dtype=object) if count == 1 else _divide(ax, count, stacked)
        self.axes_, self.ax_, self.figure_ = axes, axes[0], axes[0].figure
        for one in axes:
            one.spines[["top", "right"]].set_visible(False)
            one.grid(alpha=0.25)
            one.set_axisbelow(True)
        return list(axes)


def _new(count: int, stacked: bool) -> Array:
    from matplotlib import pyplot

    width, height = (_STACKED[0], _STACKED[1] * count) if stacked and count > 1 else (_PANEL[0] * count, _PANEL[1])
    shape = (count, 1) if stacked else (1, count)
    figure = pyplot.figure(figsize=(width, height), layout="constrained")
    return np.asarray(figure.subplots(*shape, sharex=stacked, squeeze=False), dtype=object).ravel()


def _divide(ax: Axes, count: int, stacked: bool) -> Array:
    """Put panels into the place of one."""
    place = ax.get_subplotspec()
    if place is None:
        raise ValueError(
            f"ax does not belong to a grid of subplots, and cannot be divided: pass a list of {count} axes"
        )
    ax.set_axis_off()
    grid = place.subgridspec(*((count, 1) if stacked else (1, count)))
    axes = np.asarray(grid.subplots(sharex=stacked, squeeze=False), dtype=object).ravel()
    axes[0].set_title(ax.get_title())
    ax.set_title("")
    return axes


def mark(ax: Axes, x: float, label: str) -> Any:
    """Draw a vertical line that the legend names."""
    return ax.axvline(x, color=ORANGE, linestyle="--", linewidth=1.2, label=label, zorder=1)


def count_steps(ax: Axes) -> None:
    """Let the horizontal axis have whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def name_places(axis: Any, places: ArrayLike, names: Sequence[str], *, thin: bool = False) -> None:
    """Name the values of an axis where they are: all if they are few; else none, or some of them if `thin`."""
    every = -(-len(names) // FEW)
    if every == 1 or thin:
        axis.set_ticks(np.asarray(places)[::every], labels=names[::every])
        axis.set_ticks([], minor=True)


def is_wide(values: ArrayLike) -> bool:
    """Whether values are positive and differ so much that their axis should be logarithmic."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    return bool(len(finite) and finite.min() > 0 and finite.max() >= _WIDE * finite.min())


def column(name: str, values: ArrayLike, length: int | None = None) -> Array:
    """Return values as a list of float64, of the length that is expected."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, got {values!r}") from error
    if array.ndim != 1 or not len(array) or (length is not None and len(array) != length):
        wanted = "a list of at least one number" if length is None else f"a list of {length} numbers"
        raise ValueError(f"{name} must be {wanted}, got an array of shape {array.shape}")
    return array
