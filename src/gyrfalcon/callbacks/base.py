"""Watching a fit and stopping it: progress bars, early stopping, time limits and plots hang off one stream of records.

A solver yields a record per iteration; the estimator hands it to a `CallbackList`, which hands it on. A record is a
plain dict, the same one that ends up in ``history_``: ``iteration``, ``residual``, ``seconds``, ``passes``, with a
validation set also ``validation_error``, and whatever keys callbacks add to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Callback", "CallbackLike", "CallbackList", "NoImprovement", "Record", "TimeLimit"]

Record: TypeAlias = dict[str, Any]

_HOOKS = ("on_fit_start", "on_iteration", "on_fit_end")


class Callback:
    """Base class of objects that watch a fit; override the hooks you need.

    For ``on_iteration`` alone a plain function of the record does as well.

    Examples
    --------
    >>> from gyrfalcon.callbacks import Callback
    >>> class StopWhenGood(Callback):
    ...     def on_iteration(self, record):
    ...         return record["residual"] < 1e-3
    >>> StopWhenGood().on_iteration({"iteration": 4, "residual": 2e-4})
    True
    """

    def on_fit_start(self, estimator: Any, info: Mapping[str, Any]) -> None:
        """Called once, before the first pass over the rows.

        Parameters
        ----------
        estimator : estimator
            The estimator being fitted.
        info : mapping
            What is known beforehand, such as ``max_iter``, ``n_rows`` and ``n_centers``.
        """

    def on_iteration(self, record: Record) -> bool | None:
        """Called after every iteration.

        Parameters
        ----------
        record : dict
            The iteration's entry in ``history_``. Keys added here are kept there.

        Returns
        -------
        bool or None
            True stops the fit after this iteration, with the solution found so far. Anything else lets it go on.
        """
        return None

    def on_fit_end(self, estimator: Any) -> None:
        """Called once at the end, also when the fit was stopped, failed or was interrupted.

        Parameters
        ----------
        estimator : estimator
            The estimator. Its fitted attributes exist only if the fit succeeded.
        """


CallbackLike: TypeAlias = Callback | Callable[[Record], Any]


class CallbackList:
    """The callbacks of one fit, called in order.

    Parameters
    ----------
    callbacks : None, callback, or iterable of callbacks
        A callback is a `Callback`, any object with some of its hooks, or a function of the record.

    Examples
    --------
    >>> from gyrfalcon.callbacks import CallbackList
    >>> seen = []
    >>> with CallbackList(seen.append).fitting(estimator=None, info={"max_iter": 2}) as callbacks:
    ...     for iteration in (1, 2):
    ...         if callbacks.on_iteration({"iteration": iteration}):
    ...             break
    >>> seen
    [{'iteration': 1}, {'iteration': 2}]
    """

    def __init__(self, callbacks: CallbackLike | Iterable[CallbackLike] | None = None) -> None:
        if callbacks is None:
            given: list[Any] = []
        elif _is_callback(callbacks):
            given = [callbacks]
        elif isinstance(callbacks, Iterable) and not isinstance(callbacks, str | bytes | Mapping | type):
            given = list(callbacks)
        else:
            given = [callbacks]
        for i, callback in enumerate(given):
            if isinstance(callback, type):
                raise TypeError(
                    f"callbacks[{i}] is the class {callback.__name__}: pass an instance, {callback.__name__}(...)"
                )
            if not _is_callback(callback):
                raise TypeError(
                    f"callbacks[{i}]={callback!r} of type {type(callback).__name__} is not a callback: pass a "
                    "gyrfalcon.callbacks.Callback or a function of the iteration's record"
                )
        self.callbacks: list[Any] = given
        self._started: list[Any] = []

    def __len__(self) -> int:
        return len(self.callbacks)

    @contextmanager
    def fitting(self, estimator: Any, info: Mapping[str, Any]) -> Iterator[CallbackList]:
        """Call ``on_fit_start`` now and ``on_fit_end`` at the end of the ``with`` block, whatever happens in it.

        An exception from the block, Ctrl-C included, goes on to the caller; a second one that a callback raises while
        it cleans up is added to the first as a note instead of hiding it.

        Parameters
        ----------
        estimator : estimator
            Handed to the hooks.
        info : mapping
            Handed to ``on_fit_start``.

        Yields
        ------
        CallbackList
            This object, whose `on_iteration` is to be called in the block.
        """
        try:
            self.on_fit_start(estimator, info)
            yield self
        except BaseException as error:
            final = self._end(estimator, error)
            if final is not error:
                raise final from error
            raise
        else:
            self.on_fit_end(estimator)

    def on_fit_start(self, estimator: Any, info: Mapping[str, Any]) -> None:
        """Call each callback's ``on_fit_start``; prefer `fitting`, which cannot forget the end."""
        self._started = []
        for callback in self.callbacks:
            _hook(callback, "on_fit_start")(estimator, info)
            self._started.append(callback)

    def on_iteration(self, record: Record) -> bool:
        """Show every callback the record, and say whether one of them asks to stop."""
        stop = False
        for callback in self.callbacks:
            answer = _hook(callback, "on_iteration")(record)
            # Not any true value: a function used for its effect, such as one that draws, may return what it likes.
            stop |= isinstance(answer, bool | np.bool_) and bool(answer)
        return stop

    def on_fit_end(self, estimator: Any) -> None:
        """Call ``on_fit_end`` of all that were started, even if one of them raises; then raise the first such error."""
        error = self._end(estimator, None)
        if error is not None:
            raise error

    def _end(self, estimator: Any, error: BaseException | None) -> Any:
        """End all, given the error that ended the fit; return the one to raise."""
        started, self._started = self._started, []
        for callback in started:
            try:
                _hook(callback, "on_fit_end")(estimator)
            except BaseException as another:
                # An interrupt must reach the top even when it comes while an ordinary error is on its way there.
                if error is None or (isinstance(error, Exception) and not isinstance(another, Exception)):
                    error = another
                else:
                    error.add_note(f"Then {callback!r}.on_fit_end raised {another!r}")
        return error


def _is_callback(value: Any) -> bool:
    return not isinstance(value, type) and (callable(value) or any(callable(getattr(value, h, None)) for h in _HOOKS))


def _hook(callback: Any, name: str) -> Callable[..., Any]:
    """The hook of that name; a function is its own ``on_iteration``, and hooks an object lacks do nothing."""
    hook = getattr(callback, name, None)
    if callable(hook):
        return hook
    if name == "on_iteration" and callable(callback) and not any(hasattr(callback, h) for h in _HOOKS):
        return callback
    return _nothing


def _nothing(*args: Any) -> None:
    return None


def _check_type(name: str, value: Any, expected: type, words: str) -> None:
    if isinstance(value, bool) or not isinstance(value, expected):
        raise TypeError(f"{name}={value!r} must be {words}")


class TimeLimit(Callback):
    """Stops the fit after the first iteration that ends later than `seconds` after the start.

    The fit can take longer by up to one iteration, and by what it does before the first one.

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
        _check_type("seconds", seconds, Real, "a number")
        if not seconds > 0:
            raise ValueError(f"seconds={seconds!r} must be greater than 0")
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

    def on_fit_end(self, estimator: Any) -> None:
        self._start = None


class NoImprovement:
    """Tells when an error has stopped falling: the rule behind ``early_stopping=True``.

    Two things are kept apart. The best value is the smallest ever seen, by however little, since its solution is the
    one to return. Patience is renewed only by a fall of more than `tol` relative to the value that renewed it last, so
    that a crawl in the last digits is stopped, but a slow steady fall is not.

    Parameters
    ----------
    n_iter_no_change : int
        Stop after this many values in a row without improvement; at least 1.
    tol : float, default=1e-4
        The smallest relative fall that counts as improvement.

    Attributes
    ----------
    best : float
        The smallest value so far; infinity before the first. NaN is never the best.
    best_iteration : int or None
        When it was seen.
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
        _check_type("n_iter_no_change", n_iter_no_change, Integral, "an integer")
        if n_iter_no_change < 1:
            raise ValueError(f"n_iter_no_change={n_iter_no_change!r} must be at least 1")
        _check_type("tol", tol, Real, "a number")
        if not 0 <= tol < 1:
            raise ValueError(f"tol={tol!r} must be at least 0 and less than 1")
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.best = math.inf
        self.best_iteration: int | None = None
        self.improved = False
        self._reference = math.inf
        self._waiting = 0

    def update(self, value: float, iteration: int) -> bool:
        """Take in one more value.

        Parameters
        ----------
        value : float
            The error to be made small. NaN counts as no improvement.
        iteration : int
            When it was seen.

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
        """Return what `resume` needs to go on from here."""
        return {
            "best": self.best,
            "best_iteration": self.best_iteration,
            "reference": self._reference,
            "waiting": self._waiting,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state` was asked for."""
        self.best, self.best_iteration = float(state["best"]), state["best_iteration"]
        self._reference, self._waiting = float(state["reference"]), int(state["waiting"])
