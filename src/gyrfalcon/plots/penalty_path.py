"""What a list of penalties was chosen from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .._utils.checks import numbers
from ..estimators import ExactRegressor, HierarchicalClassifier, HierarchicalRegressor, NystromRegressor
from ._drawing import BLUE, GREEN, Array, Display, column, is_wide, mark, name_places
from ._fitted import find

_CRITERIA = {
    "validation_error": "validation error",
    "loo_error": "leave-one-out error",
    "gcv_error": "GCV error",
    "log_evidence": "log evidence",
}

_ON_TREES = (HierarchicalRegressor, HierarchicalClassifier)


class PenaltyPathDisplay(Display):
    """Error and degrees of freedom of each penalty, one above the other, with the chosen one marked.

    Parameters
    ----------
    penalties : array of shape (P,)
        The penalties, in any order. Their axis is logarithmic; if 0 is among them they are evenly spaced instead.
    errors : array of shape (P,)
        The criterion by which one of them is chosen.
    degrees_of_freedom : array of shape (P,), optional
        Effective number of parameters of the fit.
    chosen : float, optional
        The penalty to mark.
    error_name : str, default="error"
        Title of the axis of errors.

    Attributes
    ----------
    axes_, ax_, figure_ : array of Axes, Axes, Figure
        The panels, the first of them, and the figure.
    error_line_, df_line_, chosen_line_ : Line2D or None
        The curves, and the mark of the chosen penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import NystromRegressor
    >>> from gyrfalcon.plots import PenaltyPathDisplay
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(200)
    >>> model = NystromRegressor(n_centers=50, penalties=np.logspace(-8, 0, 9), random_state=0).fit(X, y)
    >>> display = PenaltyPathDisplay.from_estimator(model)
    >>> [ax.get_ylabel() for ax in display.axes_]
    ['leave-one-out error', 'degrees of freedom']
    """

    error_line_: Any
    df_line_: Any
    chosen_line_: Any

    def __init__(
        self,
        *,
        penalties: ArrayLike,
        errors: ArrayLike,
        degrees_of_freedom: ArrayLike | None = None,
        chosen: float | None = None,
        error_name: str = "error",
    ) -> None:
        given = column("penalties", penalties)
        numbers(lambda x: 0 <= x < np.inf, "a list of finite numbers of at least 0")("penalties", penalties)
        order = np.argsort(given, kind="stable")
        self.penalties = given[order]
        self.errors = column("errors", errors, len(given))[order]
        self.degrees_of_freedom = (
            None if degrees_of_freedom is None else column("degrees_of_freedom", degrees_of_freedom, len(given))[order]
        )
        self.chosen = None if chosen is None else float(chosen)
        self.error_name = error_name

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the criterion by which the penalty of an estimator was chosen.

        Parameters
        ----------
        estimator : fitted NystromRegressor, ExactRegressor, HierarchicalRegressor or HierarchicalClassifier
            Fitted with `penalties`; or a pipeline or a search that ends with one.
        ax : matplotlib.axes.Axes or list of them, optional
            Where to draw; see `plot`.

        Returns
        -------
        PenaltyPathDisplay
        """
        words = "a NystromRegressor, ExactRegressor or HierarchicalRegressor that was fitted with penalties"
        model, _ = find(estimator, (NystromRegressor, ExactRegressor, *_ON_TREES), cls, words)
        on_trees = isinstance(model, _ON_TREES)
        history = _of_each_penalty(model.history_[-1]) if on_trees else model.history_
        needed = {"penalty"} if on_trees else {"penalty", "df"}
        if not all(needed <= record.keys() for record in history) or model.penalties is None:
            raise ValueError(
                f"{cls.__name__} is drawn from a direct solve for several penalties: fit with penalties=[...], and "
                "without an iterative solver or method"
            )
        by = {"evidence": "log_evidence"}.get(model.choose_by, f"{model.choose_by}_error")
        key = by if by in history[0] else next(key for key in _CRITERIA if key in history[0])
        return cls(
            penalties=[record["penalty"] for record in history],
            errors=[record[key] for record in history],
            degrees_of_freedom=None if on_trees else [record["df"] for record in history],
            chosen=model.penalty_,
            error_name=_CRITERIA[key],
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        axes = self._open(ax, 1 if self.degrees_of_freedom is None else 2, stacked=True)
        marked = [] if self.chosen is None else [self.chosen]
        values = np.unique([*self.penalties, *marked])
        even = values[0] <= 0  # a penalty of 0 has no place on a logarithmic axis

        def places(penalties: ArrayLike) -> Array:
            return np.searchsorted(values, penalties) if even else np.asarray(penalties)

        (self.error_line_,) = axes[0].plot(places(self.penalties), self.errors, ".-", color=BLUE)
        axes[0].set(ylabel=self.error_name, yscale="log" if is_wide(self.errors) else "linear")
        self.df_line_ = self.chosen_line_ = None
        if self.degrees_of_freedom is not None:
            (self.df_line_,) = axes[1].plot(places(self.penalties), self.degrees_of_freedom, ".-", color=GREEN)
            axes[1].set(ylabel="degrees of freedom", yscale="log" if is_wide(self.degrees_of_freedom) else "linear")
        axes[-1].set_xlabel("penalty")
        for one in axes:
            if even:
                name_places(one.xaxis, places(values), [f"{value:.3g}" for value in values], thin=True)
            else:
                one.set_xscale("log")
        if self.chosen is not None:
            at = float(places(self.chosen))
            self.chosen_line_ = mark(axes[0], at, f"chosen: {self.chosen:.3g}")
            axes[0].legend()
            for below in axes[1:]:
                mark(below, at, "chosen")
        return self


def _of_each_penalty(record: Mapping[str, Any]) -> list[dict[str, float]]:
    """Return a record for each penalty, from one that has lists of them."""
    lists = {key: record[f"{key}s"] for key in _CRITERIA if f"{key}s" in record} | {"penalty": record["penalties"]}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
