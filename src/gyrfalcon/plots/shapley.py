"""Which columns predictions are due to: Shapley values of many rows, or of one."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._utils.checks import integer, one_of
from ..estimators.shapley import ShapleyValues, shapley_values
from ._drawing import BLUE, GREY, MAP, ORANGE, Display, column

Array = NDArray[Any]

_BINS = 100  # across the width of a swarm; points in one bin are put above each other
_SWARM = 0.4  # half the height of the densest part of a swarm


class ShapleyDisplay(Display):
    """Shapley values: a point for each row and column (beeswarm), or the steps to the prediction of a row (waterfall).

    Parameters
    ----------
    explanation : ShapleyValues
        As `gyrfalcon.shapley_values` returns it.
    kind : {"beeswarm", "waterfall"}, default="beeswarm"
        The colour of a point of a swarm is the rank of the column's value, from the lowest to the highest; grey if the
        column has no numbers.
    row : int, default=0
        The row of a waterfall.
    output : int, default=0
        Which of several outputs or classes.
    max_features : int, default=12
        Maximum number of columns to draw; a waterfall sums up the others.

    Attributes
    ----------
    order : array of int
        The columns that are drawn, the most important first.
    points_ : list of PathCollection, or None
        The swarm of each column.
    bars_ : BarContainer or None
        The steps of a waterfall.
    axes_, ax_, figure_ : array of Axes, Axes, Figure
        The panel, as an array and alone, and the figure.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor, shapley_values
    >>> from gyrfalcon.plots import ShapleyDisplay
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> model = FalkonRegressor("gaussian", random_state=0).fit(X, 3 * X[:, 1] + X[:, 0])
    >>> display = ShapleyDisplay(explanation=shapley_values(model, X[:50], background=X[50:]))
    >>> display.order
    array([1, 0, 2])
    """

    points_: Any
    bars_: Any

    def __init__(
        self,
        *,
        explanation: ShapleyValues,
        kind: str = "beeswarm",
        row: int = 0,
        output: int = 0,
        max_features: int = 12,
    ) -> None:
        one_of("beeswarm", "waterfall")("kind", kind)
        integer(1)("max_features", max_features)
        values = np.asarray(explanation.values, dtype=np.float64)
        values = values[:, :, None] if values.ndim == 2 else values
        for name, number, most in (("row", row, len(values)), ("output", output, values.shape[2])):
            integer(0, most - 1)(name, number)
        self.values = values[:, :, output]
        self.base_values = np.asarray(explanation.base_values).reshape(len(values), -1)[:, output]
        self.data = explanation.data
        self.names = explanation.feature_names
        self.kind, self.row, self.output, self.max_features = kind, row, output, max_features
        sizes = np.abs(self.values[row]) if kind == "waterfall" else np.abs(self.values).mean(axis=0)
        self.order = np.argsort(-sizes, kind="stable")[:max_features]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        background: Any = None,
        *,
        kind: str = "beeswarm",
        row: int = 0,
        output: int = 0,
        max_features: int = 12,
        ax: Any = None,
    ) -> Self:
        """Compute Shapley values of an estimator's predictions, and draw them.

        Parameters
        ----------
        estimator : fitted estimator
        X : table or array of shape (n, n_features)
            Rows to explain.
        background : table or array of shape (m, n_features), optional
            As for `gyrfalcon.shapley_values`.
        kind : {"beeswarm", "waterfall"}, default="beeswarm"
        row : int, default=0
            The row of a waterfall.
        output : int, default=0
            Which of several outputs or classes.
        max_features : int, default=12
            Maximum number of columns to draw.
        ax : matplotlib.axes.Axes, optional
            Where to draw; see `plot`.

        Returns
        -------
        ShapleyDisplay
        """
        explanation = shapley_values(estimator, X, background, random_state=0)
        return cls(explanation=explanation, kind=kind, row=row, output=output, max_features=max_features).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        (panel,) = self._open(ax)
        if ax is None:
            self.figure_.set_figheight(max(self.figure_.get_figheight(), 0.32 * len(self.order) + 1.0))
        self.points_ = self.bars_ = None
        if self.kind == "waterfall":
            self._draw_steps(panel)
        else:
            self._draw_swarms(panel)
        panel.grid(visible=False, axis="y")
        return self

    def _draw_swarms(self, panel: Any) -> None:
        self.points_ = []
        unit = float(np.ptp(self.values)) or 1.0
        for place, j in enumerate(self.order):
            x = self.values[:, j]
            ranks = _ranks(self.data[:, j])
            colors: dict[str, Any] = (
                {"color": GREY} if ranks is None else {"c": ranks, "cmap": MAP, "vmin": 0, "vmax": 1}
            )
            self.points_.append(panel.scatter(x, place + _spread(x, unit), s=10, linewidths=0, **colors))
        panel.axvline(0, color=GREY, linewidth=0.8, zorder=0)
        panel.set_yticks(np.arange(len(self.order)), labels=[self.names[j] for j in self.order])
        panel.set_ylim(len(self.order) - 0.5, -0.5)
        panel.set(xlabel="Shapley value: part of the prediction")
        from matplotlib.cm import ScalarMappable

        bar = self.figure_.colorbar(ScalarMappable(cmap=MAP), ax=panel, ticks=[0, 1], aspect=40)
        bar.set_ticklabels(["lowest", "highest"])
        bar.set_label("value of the column", labelpad=-20)

    def _draw_steps(self, panel: Any) -> None:
        shown = self.values[self.row, self.order]
        labels = [_labelled(self.names[j], self.data[self.row, j]) for j in self.order]
        rest = float(self.values[self.row].sum() - shown.sum())
        n_rest = self.values.shape[1] - len(self.order)
        if n_rest:
            shown, labels = np.append(shown, rest), [*labels, f"{n_rest} other columns"]
        base = float(self.base_values[self.row])
        # from the base value at the bottom to the prediction at the top
        ends = base + np.cumsum(shown[::-1])[::-1]
        places = np.arange(len(shown))
        colors = [ORANGE if one >= 0 else BLUE for one in shown]
        self.bars_ = panel.barh(places, shown, left=ends - shown, color=colors, height=0.7)
        panel.bar_label(self.bars_, labels=[f"{one:+.3g}" for one in shown], padding=3, fontsize="small")
        panel.axvline(base, color=GREY, linewidth=0.8, linestyle="--", label=f"base value {base:.4g}")
        panel.axvline(ends[0], color=GREY, linewidth=0.8, label=f"prediction {ends[0]:.4g}")
        panel.set_yticks(places, labels=labels)
        panel.set_ylim(len(places) - 0.4, -0.6)
        panel.use_sticky_edges = False  # bars would end at the border, and their labels outside of it
        panel.margins(x=0.15)
        panel.set(xlabel="prediction")
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=2, fontsize="small", frameon=False)


def _ranks(values: Array) -> Array | None:
    """Return ranks from 0 to 1, the middle for missing values; None if the values are no numbers."""
    try:
        numbers = column("data", values)
    except ValueError:
        return None
    known = np.isfinite(numbers)
    if not known.any():
        return None
    levels, place = np.unique(numbers[known], return_inverse=True)
    ranks = np.full(len(numbers), 0.5)
    if len(levels) > 1:
        ranks[known] = place / (len(levels) - 1)
    return ranks


def _spread(x: ArrayLike, unit: float) -> Array:
    """Return vertical positions that keep points with nearly equal values apart."""
    bins = np.floor(np.asarray(x) / unit * _BINS).astype(np.int64)
    _, which, counts = np.unique(bins, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    starts = np.cumsum(counts) - counts
    within = np.empty(len(bins))
    within[order] = np.arange(len(bins)) - starts[which[order]]
    return (within - (counts[which] - 1) / 2) * (2 * _SWARM / max(int(counts.max()), 8))


def _labelled(name: str, value: Any) -> str:
    """Return the name of a column and its value."""
    if isinstance(value, float | np.floating):
        return name if np.isnan(value) else f"{name} = {value:.4g}"
    return f"{name} = {value}"
