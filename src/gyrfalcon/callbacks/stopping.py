"""Rules that stop a fit: a time limit, and an error that no longer decreases."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from .._utils.checks import integer, number, optional
from .base import Callback, Record

_check_seconds = number(lambda x: x > 0, "a number greater than 0")
_check_error = number(lambda x: x == x, "a number")
_check_tol = number(lambda x: 0 <= x < 1, "a number, at least 0 and less than 1")


class TimeLimit(Callback):
    """Stop the fit after the first iteration that ends later than `seconds` after the start.

    The fit can take longer by up to one iteration, and by the work before the first one. With ``n_centers="auto"`` it
    also ends before more centers are tried, if that is expected to take longer than the time that is left.

    Parameters
    ----------
    seconds : float
        The limit, greater than 0.

    Examples
    --------
    >>> from gyrfalcon.callbacks import TimeLimit
    >>> TimeLimit(60)
    TimeLimit(60)
    """

    def __init__(self, seconds: float) -> None:
        _check_seconds("seconds", seconds)
        self.seconds = seconds
        self._start: float | None = None

    def __repr__(self) -> str:
        return f"TimeLimit({self.seconds!r})"

    def on_fit_start(self, estimator: Any, info: Mapping[str, Any]) -> None:
        self._start = time.perf_counter()

    def on_iteration(self, record: Record) -> bool:
        if self._start is None:
            return False
        return time.perf_counter() - self._start >= self.seconds

    def on_round_start(self, info: Mapping[str, Any]) -> bool:
        if self._start is None:
            return False
        return time.perf_counter() - self._start + float(info.get("expected_seconds", 0.0)) > self.seconds

    def on_fit_end(self, estimator: Any) -> None:
        self._start = None


class NoImprovement:
    """Detect when an error has stopped decreasing: the rule behind ``early_stopping=True``.

    The best value and the patience are tracked separately. The best value is the smallest ever seen, by however
    little, since its solution is the one to return. Patience is renewed only by a decrease of more than `tol` relative
    to the value that renewed it last: changes in the last digits end the fit, a slow steady decrease does not.

    Parameters
    ----------
    n_iter_no_change : int
        Stop after this many values in a row without improvement; at least 1.
    tol : float, default=1e-4
        The smallest relative decrease that counts as improvement.

    Attributes
    ----------
    best : float
        The smallest value so far; infinity before the first. NaN is never the best.
    best_iteration : int or None
        The iteration at which it was seen.
    improved : bool
        Whether the last value is the best.

    Examples
    --------
    >>> from gyrfalcon.callbacks import NoImprovement
    >>> rule = NoImprovement(2)
    >>> [rule.update(value, iteration) for iteration, value in enumerate([5.0, 3.0, 3.5, 3.2], start=1)]
    [False, False, False, True]
    >>> rule.best, rule.best_iteration
    (3.0, 2)
    """

    def __init__(self, n_iter_no_change: int, tol: float = 1e-4) -> None:
        integer(1)("n_iter_no_change", n_iter_no_change)
        _check_tol("tol", tol)
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.best = math.inf
        self.best_iteration: int | None = None
        self.improved = False
        self._reference = math.inf
        self._waiting = 0

    def update(self, value: float, iteration: int) -> bool:
        """Add one more value.

        Parameters
        ----------
        value : float
            The error to be minimised. NaN counts as no improvement.
        iteration : int
            The number of the iteration.

        Returns
        -------
        bool
            True if it is time to stop.
        """
        value = float(value)
        self.improved = value < self.best
        if self.improved:
            self.best, self.best_iteration = value, iteration
        # inf - tol * inf would be NaN.
        target = self._reference if math.isinf(self._reference) else self._reference - self.tol * abs(self._reference)
        if value < target:
            self._reference = value
            self._waiting = 0
        else:
            self._waiting += 1
        return self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether it is time to stop."""
        return self._waiting >= self.n_iter_no_change

    def state(self) -> dict[str, Any]:
        """Return the state that `resume` takes."""
        return {
            "best": self.best,
            "best_iteration": self.best_iteration,
            "reference": self._reference,
            "waiting": self._waiting,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned; raise ValueError if it cannot have."""
        for name in ("best", "reference"):
            _check_error(name, state[name])
        integer(0)("waiting", state["waiting"])
        optional(integer(0))("best_iteration", state["best_iteration"])
        self.best, self.best_iteration = float(state["best"]), state["best_iteration"]
        self._reference, self._waiting = float(state["reference"]), int(state["waiting"])
