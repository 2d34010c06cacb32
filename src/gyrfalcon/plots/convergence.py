"""How a fit converged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from ..estimators import LearnedMetric
from ..estimators._base import KernelEstimator
from ._drawing import BLUE, GREEN, PURPLE, Display, column, count_steps, mark
from ._fitted import find


class ConvergenceDisplay(Display):
    """Residual, inertia and validation error of each iteration, one above the other, with the best iteration marked.

    Make one with `from_estimator` or `from_history`.

    Parameters
    ----------
    steps : array of shape (t,)
        Positions of the iterations on the horizontal axis.
    residuals : array of shape (t,), optional
        Relative residuals. Those that are not positive are left out, because the axis is logarithmic.
    validation_errors : array of shape (t,), optional
        Errors of validation rows; NaN where there is none.
    inertias : array of shape (t,), optional
        Sums of squared distances to the nearest centroid, of a clustering.
    iterations : array of shape (t,), optional
        Numbers of the iterations, 1, 2, ... by default.
    step_name : str, default="passes over the rows"
        Title of the horizontal axis.

    Attributes
    ----------
    best_iteration : int or None
        The iteration with the smallest validation error (the first one, if there are several).
    axes_, ax_, figure_ : array of Axes, Axes, Figure
        The panels, the first of them, and the figure.
    residual_line_, inertia_line_, error_line_, best_line_ : Line2D or None
        The curves, and the mark of the best iteration.

    Examples
    --------
    >>> from gyrfalcon.plots import ConvergenceDisplay
    >>> history = [{"passes": 2, "residual": 0.1, "validation_error": 0.4},
    ...            {"passes": 3, "residual": 0.01, "validation_error": 0.2}]
    >>> display = ConvergenceDisplay.from_history(history)
    >>> display.best_iteration
    2
    >>> [ax.get_ylabel() for ax in display.axes_]
    ['relative residual', 'validation error']
    """

    residual_line_: Any
    inertia_line_: Any
    error_line_: Any
    best_line_: Any

    def __init__(
        self,
        *,
        steps: ArrayLike,
        residuals: ArrayLike | None = None,
        validation_errors: ArrayLike | None = None,
        inertias: ArrayLike | None = None,
        iterations: ArrayLike | None = None,
        step_name: str = "passes over the rows",
    ) -> None:
        self.steps = column("steps", steps)
        n = len(self.steps)
        self.residuals = None if residuals is None else column("residuals", residuals, n)
        self.validation_errors = (
            None if validation_errors is None else column("validation_errors", validation_errors, n)
        )
        self.inertias = None if inertias is None else column("inertias", inertias, n)
        self.iterations = np.arange(1, n + 1) if iterations is None else np.asarray(iterations)
        self.step_name = step_name
        if self.residuals is None and self.validation_errors is None and self.inertias is None:
            raise ValueError("there is nothing to draw: residuals, validation_errors or inertias must be given")

    @property
    def _best(self) -> int | None:
        """The place of the least validation error."""
        errors = self.validation_errors
        return None if errors is None or np.isnan(errors).all() else int(np.nanargmin(errors))

    @property
    def best_iteration(self) -> int | None:
        """The iteration with the smallest validation error (the first one, if there are several)."""
        return None if self._best is None else int(self.iterations[self._best])

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw how the fit of an estimator converged.

        Parameters
        ----------
        estimator : fitted estimator
            Any that has a `history_` of iterations; a pipeline or a search that ends with one; or `AutoRegressor` and
            `AutoClassifier`, whose model with the largest weight is drawn.
        ax : matplotlib.axes.Axes or list of them, optional
            Where to draw; see `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        kinds = (KernelEstimator, LearnedMetric)
        model, _ = find(estimator, kinds, cls, "an estimator with a history_ of iterations, such as FalkonRegressor")
        history = vars(model).get("history_")
        if history is None:
            raise TypeError(f"{cls.__name__} is drawn from iterations, and {type(model).__name__} keeps no history_")
        return cls.from_history(history, ax=ax)

    @classmethod
    def from_history(cls, history: Sequence[Mapping[str, Any]], *, ax: Any = None) -> Self:
        """Draw a list of records, as a `history_` is and as callbacks are given them.

        Parameters
        ----------
        history : list of dict
            With at least one of `residual`, `inertia` and `validation_error`, and `passes` and `iteration` where they
            are known.
        ax : matplotlib.axes.Axes or list of them, optional
            Where to draw; see `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        known = _known(history)

        def values(key: str) -> list[float] | None:
            if key not in known:
                return None
            return [np.nan if record.get(key) is None else float(record[key]) for record in history]

        iterations = [record.get("iteration", i) for i, record in enumerate(history, start=1)]
        passes = values("passes")
        return cls(
            steps=iterations if passes is None else passes,
            residuals=values("residual"),
            validation_errors=values("validation_error"),
            inertias=values("inertia"),
            iterations=iterations,
            step_name="iteration" if passes is None else "passes over the rows",
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        residuals, inertias, errors = self.residuals, self.inertias, self.validation_errors
        axes = self._open(ax, sum(given is not None for given in (residuals, inertias, errors)), stacked=True)
        self.residual_line_ = self.inertia_line_ = self.error_line_ = self.best_line_ = None
        if residuals is not None:
            # a residual of exactly zero has no logarithm: leave a gap
            shown = np.where(residuals > 0, residuals, np.nan)
            (self.residual_line_,) = axes[0].plot(self.steps, shown, ".-", color=BLUE)
            axes[0].set(yscale="log", ylabel="relative residual")
        if inertias is not None:
            panel = axes[0 if residuals is None else 1]
            (self.inertia_line_,) = panel.plot(self.steps, inertias, ".-", color=PURPLE)
            panel.set_ylabel("inertia")
        if errors is not None:
            (self.error_line_,) = axes[-1].plot(self.steps, errors, ".-", color=GREEN)
            axes[-1].set_ylabel("validation error")
        if errors is not None and self._best is not None:
            least, step = float(errors[self._best]), float(self.steps[self._best])
            self.best_line_ = mark(axes[-1], step, f"best: {least:.4g} in iteration {self.best_iteration}")
            axes[-1].legend()
            for above in axes[:-1]:
                mark(above, step, "best")
        axes[-1].set_xlabel(self.step_name)
        count_steps(axes[-1])
        return self


def _known(history: Any) -> set[str]:
    """Return the quantities that records have; raise an error if none of them can be drawn."""
    if not isinstance(history, Sequence) or not all(isinstance(record, Mapping) for record in history):
        raise TypeError(f"history must be a list of records, as history_ is: got {type(history).__name__}")
    if not history:
        raise ValueError("history is empty: there is nothing to draw")
    known = {key for record in history for key in record if record[key] is not None}
    # Newton's method has penalties too, which it lowers from one iteration to the next
    if "penalty" in known and "residual" not in known:
        raise ValueError(
            "history is of penalties and not of iterations: draw it with PenaltyPathDisplay, if there are several"
        )
    if not known & {"residual", "validation_error", "inertia"}:
        raise ValueError(
            "history has neither residuals nor validation errors nor inertias: the fit was a direct solve; give "
            "fit X_val and y_val, or use an iterative solver"
        )
    return known
