"""Intervals against the truth."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .._utils.checks import integer
from .._utils.words import plural
from ..estimators import ConformalRegressor
from ..estimators._posterior import UncertainRegressor
from ..fitting.rows import computed
from ..tables import AutoRegressor
from ._drawing import BLUE, ORANGE, Display, column
from ._fitted import feature_names, feature_of, find, number_of


class IntervalDisplay(Display):
    """Intervals of some rows as bars with the true values in them, and the share of all rows inside them.

    Parameters
    ----------
    y_true : array of shape (n,)
        True values.
    low, high : array of shape (n,)
        Ends of the intervals.
    x : array of shape (n,), optional
        Positions of the rows on the horizontal axis; the middles of the intervals by default.
    coverage : float, optional
        The requested share, which is shown in the legend.
    x_name : str, default="middle of the interval"
        Title of the horizontal axis.
    max_rows : int, default=100
        Maximum number of rows to draw. They are evenly spaced in the order of the
        horizontal axis; the share is that of all rows.

    Attributes
    ----------
    observed_coverage : float
        The share of all rows whose y_true is in the interval, ends included.
    ax_, axes_, figure_ : Axes, array of Axes, Figure
        Where it was drawn.
    inside_, outside_ : tuple
        The bars (LineCollection) and the points (Line2D) of rows inside their intervals, and of those outside.

    Examples
    --------
    >>> from gyrfalcon.plots import IntervalDisplay
    >>> display = IntervalDisplay.from_predictions([1.0, 2.0, 3.0, 9.0], [[0, 2], [1, 3], [2, 4], [3, 5]], coverage=0.8)
    >>> display.observed_coverage
    0.75
    """

    inside_: tuple[Any, Any]
    outside_: tuple[Any, Any]

    def __init__(
        self,
        *,
        y_true: ArrayLike,
        low: ArrayLike,
        high: ArrayLike,
        x: ArrayLike | None = None,
        coverage: float | None = None,
        x_name: str = "middle of the interval",
        max_rows: int = 100,
    ) -> None:
        integer(1)("max_rows", max_rows)
        self.y_true = column("y_true", y_true)
        n = len(self.y_true)
        self.low, self.high = column("low", low, n), column("high", high, n)
        self.x = (self.low + self.high) / 2 if x is None else column("x", x, n)
        self.coverage, self.x_name, self.max_rows = coverage, x_name, max_rows

    @property
    def observed_coverage(self) -> float:
        """The share of all rows whose y_true is in the interval, ends included."""
        return float(((self.low <= self.y_true) & (self.y_true <= self.high)).mean())

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        coverage: float = 0.9,
        feature: int | str | None = None,
        max_rows: int = 100,
        ax: Any = None,
    ) -> Self:
        """Draw the intervals that an estimator predicts.

        Parameters
        ----------
        estimator : fitted estimator with `predict_interval`
            `AutoRegressor`, `ConformalRegressor`, or `FalkonRegressor`, `NystromRegressor`, `ExactRegressor` and
            `HierarchicalRegressor` with `uncertainty=True`; or a pipeline or a search that ends with one.
        X : rows that the estimator has not seen
        y : array of shape (n,)
        coverage : float, default=0.9
            The share of rows that should be inside their intervals.
        feature : int or str, optional
            Number or name of the feature to put on the horizontal axis; by default it is the middle of the interval.
        max_rows : int, default=100
            Maximum number of rows to draw.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        IntervalDisplay
        """
        kinds = (UncertainRegressor, ConformalRegressor, AutoRegressor)
        words = "a regressor with predict_interval, such as AutoRegressor or FalkonRegressor(uncertainty=True)"
        model, X = find(estimator, kinds, cls, words, X)
        x, x_name = None, "middle of the interval"
        if feature is not None:
            names = feature_names(model)
            place = number_of(feature, names)
            x, x_name = feature_of(X, place, names[place]), names[place]
        ends = model.predict_interval(X, coverage=coverage)
        y = computed(y, X)
        return cls.from_predictions(y, ends, coverage=coverage, x=x, x_name=x_name, max_rows=max_rows, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        intervals: ArrayLike,
        *,
        coverage: float | None = None,
        x: ArrayLike | None = None,
        x_name: str = "middle of the interval",
        max_rows: int = 100,
        ax: Any = None,
    ) -> Self:
        """Draw intervals that anyone has predicted.

        Parameters
        ----------
        y_true : array of shape (n,)
            True values.
        intervals : array of shape (n, 2)
            Lower and upper ends.
        coverage : float, optional
            The share of rows that should be inside their intervals.
        x : array of shape (n,), optional
            Positions of the rows on the horizontal axis; the middles of the intervals by default.
        x_name : str
            Title of the horizontal axis.
        max_rows : int, default=100
            Maximum number of rows to draw.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        IntervalDisplay
        """
        ends = np.asarray(intervals, dtype=np.float64)
        if ends.ndim != 2 or ends.shape[1] != 2:
            raise ValueError(
                f"intervals must be of shape (n, 2), got {ends.shape}: of several outputs draw one at a time, "
                "from_predictions(y[:, 0], intervals[:, :, 0])"
            )
        return cls(
            y_true=y_true, low=ends[:, 0], high=ends[:, 1], x=x, coverage=coverage, x_name=x_name, max_rows=max_rows
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        (axes,) = self._open(ax)
        n = len(self.x)
        shown = np.argsort(self.x, kind="stable")[np.unique(np.linspace(0, n - 1, min(n, self.max_rows)).astype(int))]
        x, y, low, high = self.x[shown], self.y_true[shown], self.low[shown], self.high[shown]
        holds = (low <= y) & (y <= high)
        asked = "" if self.coverage is None else f", {100 * self.coverage:.3g}% asked for"
        of = f"{100 * self.observed_coverage:.3g}% of {plural(n, 'row')}"
        drawn = []
        for which, color, marker, label in (
            (holds, BLUE, ".", f"inside: {of}{asked}"),
            (~holds, ORANGE, "x", "outside"),
        ):
            bars = axes.vlines(x[which], low[which], high[which], color=color, linewidth=1.0)
            (points,) = axes.plot(x[which], y[which], marker, color=color, markersize=5, label=label)
            drawn.append((bars, points))
        self.inside_, self.outside_ = drawn
        axes.set(xlabel=self.x_name, ylabel="y and its interval")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2, frameon=False)
        return self
