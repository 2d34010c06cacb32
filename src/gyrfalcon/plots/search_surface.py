"""Scores of a search over two parameters."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils.validation import check_is_fitted

from ._drawing import MAP, ORANGE, Array, Display, column, is_wide

__all__ = ["SearchSurfaceDisplay"]

_FEW = 8  # values of a parameter that are all named on its axis


class SearchSurfaceDisplay(Display):
    """Scores of pairs of two parameters, length scale and penalty as a rule, with the best pair marked.

    A full grid is drawn as cells, pairs that were drawn at random as points.

    Parameters
    ----------
    x, y : array of shape (t,)
        Values of the two parameters that were tried together.
    scores : array of shape (t,)
        Their scores, of which the largest is the best. Of equal pairs the best score counts, and NaN, a fit that
        failed, is left out.
    x_name, y_name, score_name : str
        Titles of the axes and of the bar of colours.

    Attributes
    ----------
    best : tuple of float
        The pair with the largest score.
    ax_, axes_, figure_ : Axes, array of Axes, Figure
        Where it was drawn.
    surface_ : QuadMesh or PathCollection
        The cells, or the points.
    best_point_ : Line2D
        The mark of the best pair.
    colorbar_ : Colorbar
        The bar of colours.

    Examples
    --------
    >>> from gyrfalcon.plots import SearchSurfaceDisplay
    >>> display = SearchSurfaceDisplay(x=[1, 1, 4, 4], y=[1e-6, 1e-3, 1e-6, 1e-3], scores=[0.7, 0.8, 0.9, 0.6])
    >>> display.best
    (4.0, 1e-06)
    >>> display.plot().ax_.get_yscale()
    'log'
    """

    surface_: Any
    best_point_: Any
    colorbar_: Any

    def __init__(
        self,
        *,
        x: ArrayLike,
        y: ArrayLike,
        scores: ArrayLike,
        x_name: str = "length_scale",
        y_name: str = "penalty",
        score_name: str = "mean test score",
    ) -> None:
        first = column("x", x)
        pairs: dict[tuple[float, float], float] = {}
        columns = first, column("y", y, len(first)), column("scores", scores, len(first))
        for a, b, score in zip(*(values.tolist() for values in columns), strict=True):
            if not np.isnan(score):
                pairs[a, b] = max(score, pairs.get((a, b), -np.inf))
        if not pairs:
            raise ValueError("every score is NaN: there is nothing to draw")
        self.x, self.y = (np.array(values) for values in zip(*pairs, strict=True))
        self.scores = np.array(list(pairs.values()))
        self.x_name, self.y_name, self.score_name = x_name, y_name, score_name

    @property
    def best(self) -> tuple[float, float]:
        """The pair with the largest score."""
        at = int(self.scores.argmax())
        return float(self.x[at]), float(self.y[at])

    @classmethod
    def from_estimator(
        cls, search: Any, *, x: str | None = None, y: str | None = None, score: str = "mean_test_score", ax: Any = None
    ) -> Self:
        """Draw the scores of a search.

        Parameters
        ----------
        search : fitted GridSearchCV or RandomizedSearchCV
            Or another search of scikit-learn. Where it has more than two parameters, the best of the others counts.
        x, y : str, optional
            Names of the parameters, as the search has them. By default those that end with "length_scale" and with
            "penalty".
        score : str, default="mean_test_score"
            The column of `cv_results_`.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        SearchSurfaceDisplay
        """
        if not isinstance(search, BaseSearchCV):
            raise TypeError(
                f"{cls.__name__} is drawn of a search, such as GridSearchCV: got {type(search).__name__}; arrays are "
                f"given to {cls.__name__}(x=, y=, scores=)"
            )
        check_is_fitted(search, "cv_results_")
        results = search.cv_results_
        x_key, y_key = _searched(results, x, "length_scale", "x"), _searched(results, y, "penalty", "y")
        if score not in results:
            known = ", ".join(key for key in results if key.startswith("mean_test"))
            raise ValueError(f"score={score!r} is no column of cv_results_: it has {known}")
        return cls(
            x=_numbers(results, x_key),
            y=_numbers(results, y_key),
            scores=results[score],
            x_name=x_key.removeprefix("param_").rpartition("__")[2],
            y_name=y_key.removeprefix("param_").rpartition("__")[2],
            score_name=score.replace("_", " "),
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        self
        """
        (axes,) = self._open(ax)
        axes.grid(False)
        xs, ys = np.unique(self.x), np.unique(self.y)
        if len(self.scores) == len(xs) * len(ys):
            table = np.empty((len(ys), len(xs)))
            table[np.searchsorted(ys, self.y), np.searchsorted(xs, self.x)] = self.scores
            self.surface_ = axes.pcolormesh(_edges(xs), _edges(ys), table, cmap=MAP)
        else:
            self.surface_ = axes.scatter(self.x, self.y, c=self.scores, cmap=MAP, s=45)
        axes.set(xscale="log" if is_wide(xs) else "linear", yscale="log" if is_wide(ys) else "linear")
        for axis, values in ((axes.xaxis, xs), (axes.yaxis, ys)):
            if len(values) <= _FEW:
                axis.set_ticks(values, labels=[f"{value:.3g}" for value in values])
                axis.set_ticks([], minor=True)
        at = self.best
        (self.best_point_,) = axes.plot(
            *at, "o", markersize=13, markerfacecolor="none", markeredgecolor=ORANGE, markeredgewidth=2.5,
            linestyle="none", label=f"best: {self.scores.max():.4g} at {at[0]:.3g}, {at[1]:.3g}",
        )  # fmt: skip
        axes.set(xlabel=self.x_name, ylabel=self.y_name)
        self.colorbar_ = self.figure_.colorbar(self.surface_, ax=axes, label=self.score_name)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, frameon=False)
        return self


def _searched(results: Any, name: str | None, ending: str, which: str) -> str:
    """Return the column of a parameter: the one that is named, or the only one with this ending."""
    searched = [key.removeprefix("param_") for key in results if key.startswith("param_")]
    if name is None:
        found = [key for key in searched if key == ending or key.endswith(f"__{ending}")]
    else:
        found = [key for key in searched if key == name]
    if len(found) != 1:
        wanted = f"{which}={name!r} names" if name is not None else f"{which} is not given, and {ending!r} ends"
        raise ValueError(f"{wanted} {len(found)} of the parameters that were searched: choose among {searched}")
    return f"param_{found[0]}"


def _numbers(results: Any, key: str) -> Array:
    values = np.ma.getdata(results[key])
    try:
        return column(key.removeprefix("param_"), values)
    except ValueError as error:
        raise ValueError(f"{key.removeprefix('param_')} has values that are no numbers: {list(values)!r}") from error


def _edges(centers: Array) -> Array:
    """Return the borders of cells around values, on a logarithmic axis if there is to be one."""
    if len(centers) == 1:
        half = abs(float(centers[0])) / 2 or 0.5
        return np.array([centers[0] - half, centers[0] + half])
    wide = is_wide(centers)
    places = np.log(centers) if wide else centers
    middle = (places[1:] + places[:-1]) / 2
    edges = np.concatenate([[2 * places[0] - middle[0]], middle, [2 * places[-1] - middle[-1]]])
    return np.exp(edges) if wide else edges
