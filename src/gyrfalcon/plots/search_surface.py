"""Scores of a search over two parameters."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils.validation import check_is_fitted

from ._drawing import FEW, MAP, ORANGE, Array, Display, column, is_wide, name_places


class SearchSurfaceDisplay(Display):
    """Scores of pairs of two parameters, usually length scale and penalty, with the best pair marked.

    A full grid is drawn as cells, pairs that were drawn at random as points. An axis of positive numbers is to scale,
    logarithmic if they are of many sizes. One with other values, such as a penalty of 0 or a length scale of "scale",
    has them at even distances, with their names: numbers in order, then words. The scale of colours is logarithmic in
    the distance from the best score, so that scores near the best one have different colours, however low others are.

    Parameters
    ----------
    x, y : array of shape (t,)
        Values of the two parameters that were tried together: numbers, or anything that `str` names.
    scores : array of shape (t,)
        Their scores; the largest is the best. Of equal pairs the best score counts. NaN, a failed fit, is left out.
    x_name, y_name, score_name : str
        Titles of the axes and of the bar of colours.

    Attributes
    ----------
    best : tuple of float or str
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
        x: ArrayLike | Sequence[Any],
        y: ArrayLike | Sequence[Any],
        scores: ArrayLike,
        x_name: str = "length_scale",
        y_name: str = "penalty",
        score_name: str = "mean test score",
    ) -> None:
        results = column("scores", scores)
        xs, ys = _values("x", x, len(results)), _values("y", y, len(results))
        pairs: dict[tuple[float | str, float | str], float] = {}
        for a, b, score in zip(xs, ys, results.tolist(), strict=True):
            if not np.isnan(score):
                pairs[a, b] = max(score, pairs.get((a, b), -np.inf))
        if not pairs:
            raise ValueError("every score is NaN: there is nothing to draw")
        self.x, self.y = (_array(values) for values in zip(*pairs, strict=True))
        self.scores = np.array(list(pairs.values()))
        self.x_name, self.y_name, self.score_name = x_name, y_name, score_name

    @property
    def best(self) -> tuple[float | str, float | str]:
        """The pair with the largest score."""
        at = int(self.scores.argmax())
        return self.x.tolist()[at], self.y.tolist()[at]

    @classmethod
    def from_estimator(
        cls, search: Any, *, x: str | None = None, y: str | None = None, score: str = "mean_test_score", ax: Any = None
    ) -> Self:
        """Draw the scores of a search.

        Parameters
        ----------
        search : fitted GridSearchCV or RandomizedSearchCV
            Or another search of scikit-learn. Where it has more than two parameters, the best of the others counts;
            of a list of grids, those count that have both parameters.
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
                f"{cls.__name__} is drawn from a search, such as GridSearchCV: got {type(search).__name__}; arrays are "
                f"given to {cls.__name__}(x=, y=, scores=)"
            )
        check_is_fitted(search, "cv_results_")
        results = search.cv_results_
        x_key, y_key = _searched(results, x, "length_scale", "x"), _searched(results, y, "penalty", "y")
        if score not in results:
            known = ", ".join(key for key in results if key.startswith("mean_test"))
            raise ValueError(f"score={score!r} is no column of cv_results_: it has {known}")
        # what a candidate does not set is masked, with anything at all below the mask
        both = ~(np.ma.getmaskarray(results[x_key]) | np.ma.getmaskarray(results[y_key]))
        if not both.any():
            raise ValueError(f"no candidate of the search sets both {x_key[6:]} and {y_key[6:]}: choose other x and y")
        return cls(
            x=np.ma.getdata(results[x_key])[both],
            y=np.ma.getdata(results[y_key])[both],
            scores=np.asarray(results[score])[both],
            x_name=x_key.removeprefix("param_").rpartition("__")[2],
            y_name=y_key.removeprefix("param_").rpartition("__")[2],
            score_name=score.replace("_", " "),
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        (axes,) = self._open(ax)
        axes.grid(False)
        xs, ys = _in_order(self.x), _in_order(self.y)
        full = len(self.scores) == len(xs) * len(ys)
        across, along = _Axis(xs, full), _Axis(ys, full)
        axes.set(xscale=across.scale, yscale=along.scale)
        if full:
            table = np.empty((len(ys), len(xs)))
            for a, b, score in zip(self.x.tolist(), self.y.tolist(), self.scores, strict=True):
                table[ys.index(b), xs.index(a)] = score
            self.surface_ = axes.pcolormesh(across.edges(), along.edges(), table, cmap=MAP, norm=_norm(self.scores))
        else:
            places = across.of(self.x.tolist()), along.of(self.y.tolist())
            self.surface_ = axes.scatter(*places, c=self.scores, cmap=MAP, norm=_norm(self.scores), s=45)
            axes.margins(0.1)  # the ring around the best point has room within the frame
        for axis, values in ((axes.xaxis, across), (axes.yaxis, along)):
            if full or values.even:  # points to scale can be too near each other to be named
                name_places(axis, values.places, [_name(value) for value in values.values], thin=values.even)
        at = self.best
        (self.best_point_,) = axes.plot(
            across.of(at[:1]), along.of(at[1:]), "o", markersize=13, markerfacecolor="none", markeredgecolor=ORANGE,
            markeredgewidth=2.5, linestyle="none",
            label=f"best: {self.scores.max():.4g} at {_name(at[0])}, {_name(at[1])}",
        )  # fmt: skip
        axes.set(xlabel=self.x_name, ylabel=self.y_name)
        ticks = _ticks(self.surface_.norm)
        self.colorbar_ = self.figure_.colorbar(
            self.surface_, ax=axes, label=self.score_name, ticks=ticks, format="%.3g"
        )
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, frameon=False)
        return self


def _norm(scores: Array) -> Any:
    """Return a scale of colours that is logarithmic in the distance from the best score."""
    from matplotlib.colors import FuncNorm, Normalize

    best, worst = float(scores.max()), float(scores.min())
    gaps = best - scores[scores < best]
    if not len(gaps) or not np.isfinite(gaps).all():
        return Normalize(worst, best)
    unit = float(np.quantile(gaps, 0.25))  # a quarter of the scores are nearer to the best than this

    def shade(score: ArrayLike) -> Array:
        return -np.log1p(np.maximum(best - np.asarray(score), 0.0) / unit)

    def score(shade: ArrayLike) -> Array:
        return best - unit * np.expm1(-np.asarray(shade))

    return FuncNorm((shade, score), worst, best)


def _ticks(norm: Any) -> Array:
    """Return six scores at even distances on the scale of colours."""
    return np.asarray(norm.inverse(np.linspace(0.0, 1.0, 6)))


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


def _values(name: str, given: Any, length: int) -> list[float | str]:
    """Return finite numbers as float, and the names of all else."""
    values = np.asarray(given, dtype=object)
    if values.shape != (length,):
        raise ValueError(
            f"{name} must be a list of {length} values, as scores is: got an array of shape {values.shape}"
        )
    return [
        float(value) if isinstance(value, Real | np.bool_) and np.isfinite(float(value)) else str(value)
        for value in values
    ]


def _array(values: Sequence[float | str]) -> Array:
    """Return an array that keeps numbers apart from words."""
    return np.array(values, dtype=object if any(isinstance(value, str) for value in values) else np.float64)


def _name(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _in_order(values: Array) -> list[float | str]:
    """Return the different values: numbers from the least to the largest, then words as they came."""
    different = dict.fromkeys(values.tolist())
    return [
        *sorted(value for value in different if not isinstance(value, str)),
        *(value for value in different if isinstance(value, str)),
    ]


class _Axis:
    """Where the different values of a parameter are: to scale, or evenly spaced."""

    def __init__(self, values: list[float | str], full: bool) -> None:
        self.values = values
        array = _array(values)
        words = array.dtype == object
        # near 0 there is no room for numbers of many sizes; points that are many and not positive stay to scale
        self.even = words or (array.min() <= 0 and (full or len(values) <= FEW))
        self.places = np.arange(float(len(values))) if self.even else array
        self.scale = "log" if not self.even and is_wide(array) else "linear"

    def of(self, values: Sequence[float | str]) -> Array:
        """Return the places of some values."""
        return self.places[[self.values.index(value) for value in values]]

    def edges(self) -> Array:
        """Return the borders of cells around the values."""
        if len(self.places) == 1:
            half = abs(float(self.places[0])) / 2 or 0.5
            return np.array([self.places[0] - half, self.places[0] + half])
        places = np.log(self.places) if self.scale == "log" else self.places
        middle = (places[1:] + places[:-1]) / 2
        edges = np.concatenate([[2 * places[0] - middle[0]], middle, [2 * places[-1] - middle[-1]]])
        return np.exp(edges) if self.scale == "log" else edges
