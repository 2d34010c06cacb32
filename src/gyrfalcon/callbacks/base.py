"""The hooks that watch a fit, and the list that calls them.

A solver yields a record per iteration; the estimator passes it to a `CallbackList`, which passes it to every callback.
A record is a plain dict, the same one that ends up in ``history_``: ``iteration``, ``residual``, ``seconds``,
``passes``, with a validation set also ``validation_error``, and whatever keys callbacks add to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from .._utils.words import shown

Record: TypeAlias = dict[str, Any]


class Callback:
    """Base class for objects that watch a fit; override the hooks you need.

    A plain function of the record can take the place of an object that has only ``on_iteration``.

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
        """Prepare for a fit; called once, when data and centers are ready and before the solver's first pass.

        Parameters
        ----------
        estimator : estimator
            The estimator being fitted.
        info : mapping
            Sizes and limits known at the start, such as ``max_iter``, ``n_rows`` and ``n_centers``.
        """

    def on_iteration(self, record: Record) -> bool | None:
        """Look at one iteration; called after every iteration.

        Parameters
        ----------
        record : dict
            The iteration's entry in ``history_``. Keys added here are kept there.

        Returns
        -------
        bool or None
            True stops the fit after this iteration, with the solution found so far. Any other value is ignored.
        """
        return None

    def on_round_start(self, info: Mapping[str, Any]) -> bool | None:
        """Look at what is next; called before each round but the first of a fit with ``n_centers="auto"``.

        Parameters
        ----------
        info : mapping
            What is known of the round: ``n_centers``, ``max_iter``, and ``expected_seconds``, an estimate.

        Returns
        -------
        bool or None
            True ends the fit with what the rounds before have found. Any other value is ignored.
        """
        return None

    def on_progress(self, passes: float) -> None:
        """Look at how far the work has come within a long iteration, such as that of a tree of many leaves.

        Parameters
        ----------
        passes : float
            Passes over the rows so far, with the finished part of the current one.
        """

    def on_fit_end(self, estimator: Any) -> None:
        """Clean up after a fit; called once, also when the fit was stopped, failed or was interrupted.

        Parameters
        ----------
        estimator : estimator
            The estimator. It has the attributes of this fit only if the fit succeeded.
        """


CallbackLike: TypeAlias = Callback | Callable[[Record], Any]


class _Wrapped(Callback):
    """A function of the record, or an object of another class that has some of the hooks, which replace the methods."""

    def __init__(self, wrapped: Any, **hooks: Callable[..., Any]) -> None:
        self._wrapped = wrapped
        vars(self).update(hooks)

    def __repr__(self) -> str:
        return repr(self._wrapped)


_HOOKS = ("on_fit_start", "on_iteration", "on_round_start", "on_progress", "on_fit_end")


def _as_callback(value: Any) -> Callback | None:
    """Return `value` as a `Callback`, or None if it cannot be one."""
    if isinstance(value, Callback):
        return value
    if isinstance(value, type):
        return None
    # The one place that asks an object which hooks it has: users need not derive from `Callback`.
    found = {name: getattr(value, name, None) for name in _HOOKS}
    hooks = {name: hook for name, hook in found.items() if callable(hook)}
    if hooks:
        return _Wrapped(value, **hooks)
    return _Wrapped(value, on_iteration=value) if callable(value) else None


_SINGLE = (str, bytes, Mapping, type)  # iterable, but never a list of callbacks


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
        given: list[Any]
        if callbacks is None:
            given = []
        elif _as_callback(callbacks) is None and isinstance(callbacks, Iterable) and not isinstance(callbacks, _SINGLE):
            given = list(callbacks)
        else:
            given = [callbacks]
        self.callbacks: list[Callback] = []
        for i, value in enumerate(given):
            callback = _as_callback(value)
            if callback is None:
                if isinstance(value, type):
                    raise TypeError(
                        f"callbacks[{i}] is the class {value.__name__}: pass an instance, {value.__name__}(...)"
                    )
                raise TypeError(
                    f"callbacks[{i}]={shown(value)} of type {type(value).__name__} is not a callback: pass a "
                    "gyrfalcon.callbacks.Callback or a function of the iteration's record"
                )
            self.callbacks.append(callback)
        self._started: list[Callback] = []

    def __len__(self) -> int:
        return len(self.callbacks)

    @contextmanager
    def fitting(self, estimator: Any, info: Mapping[str, Any]) -> Iterator[CallbackList]:
        """Call ``on_fit_start`` now and ``on_fit_end`` at the end of the ``with`` block, whatever happens in it.

        An exception from the block, Ctrl-C included, propagates to the caller; one that a callback raises while it
        cleans up is added to the first as a note instead of hiding it.

        Parameters
        ----------
        estimator : estimator
            Passed to the hooks.
        info : mapping
            Passed to ``on_fit_start``.

        Yields
        ------
        CallbackList
            This object; call its `on_iteration` in the block.
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
        """Call each callback's ``on_fit_start``; prefer `fitting`, which always calls the end as well."""
        self._started = []
        for callback in self.callbacks:
            callback.on_fit_start(estimator, info)
            self._started.append(callback)

    def on_iteration(self, record: Record) -> bool:
        """Pass the record to every callback, and return whether one of them asks to stop."""
        return _any_true([callback.on_iteration(record) for callback in self.callbacks])

    def on_round_start(self, info: Mapping[str, Any]) -> bool:
        """Tell every callback of another round, and return whether one of them asks to stop."""
        return _any_true([callback.on_round_start(info) for callback in self.callbacks])

    def on_progress(self, passes: float) -> None:
        """Tell every callback how far the work has come."""
        for callback in self.callbacks:
            callback.on_progress(passes)

    def on_fit_end(self, estimator: Any) -> None:
        """Call ``on_fit_end`` of all started callbacks, even if one of them raises; then raise the first error."""
        error = self._end(estimator, None)
        if error is not None:
            raise error

    def _end(self, estimator: Any, error: BaseException | None) -> Any:
        """Call ``on_fit_end`` of all started callbacks, given the fit's own error; return the error to raise."""
        started, self._started = self._started, []
        for callback in started:
            try:
                callback.on_fit_end(estimator)
            except BaseException as another:
                # An interrupt must reach the caller even if it comes while an ordinary error propagates.
                if error is None or (isinstance(error, Exception) and not isinstance(another, Exception)):
                    error = another
                else:
                    error.add_note(f"Then {callback!r}.on_fit_end raised {another!r}")
        return error


def _any_true(answers: list[Any]) -> bool:
    """Whether an answer is True; a function used for its side effect, such as drawing, may return anything."""
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


class ScikitLearnCallbacks(Callback):
    """Pass the hooks of a fit on to callbacks of scikit-learn, set by ``set_callbacks`` or passed down by a search.

    A fit is a task to them, and each iteration a task below it. scikit-learn has callbacks from version 1.9 on.
    """

    def __init__(self) -> None:
        self._fit: Any = None
        self._limit: int | None = None
        self._n_tasks = 0

    def on_fit_start(self, estimator: Any, info: Mapping[str, Any]) -> None:
        self._estimator, self._limit, self._n_tasks = estimator, info.get("max_iter"), 0
        self._fit = estimator._init_callback_context(max_subtasks=self._limit)
        self._fit.call_on_fit_task_begin(estimator=estimator)

    def on_iteration(self, record: Record) -> bool | None:
        if self._n_tasks == self._limit:  # scikit-learn refuses more than were announced
            return None
        self._n_tasks += 1
        task = self._fit.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(estimator=self._estimator)
        return bool(task.call_on_fit_task_end(estimator=self._estimator))

    def on_fit_end(self, estimator: Any) -> None:
        from sklearn.callback import with_callbacks

        def end(estimator: Any) -> None:
            self._fit.call_on_fit_task_end(estimator=estimator)

        with_callbacks(end)(estimator)  # which tells them that all is over, whatever happens
