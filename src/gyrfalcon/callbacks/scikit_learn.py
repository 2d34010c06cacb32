"""Callbacks of scikit-learn 1.9 and newer, set by ``set_callbacks`` or passed down by a search.

A fit is a task to them, and each iteration a task below it. Older versions have no callbacks, and nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Callback, Record

__all__ = ["ScikitLearnCallbacks"]


class ScikitLearnCallbacks(Callback):
    """Pass the hooks of a fit on to the callbacks of scikit-learn that an estimator has."""

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
