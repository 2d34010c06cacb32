"""Threads that run blocks of rows: short-lived Python threads over code that releases the GIL.

No OpenMP, whose copies in torch and scikit-learn fight with each other. Results come back in the order of the blocks,
whatever the number of threads, so that sums over blocks have the same bits for any number of threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from numbers import Integral
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import threadpoolctl

from .forks import PerProcess
from .words import shown

Item = TypeVar("Item")
Result = TypeVar("Result")


def effective_n_jobs(n_jobs: int | None) -> int:
    """Return the number of threads for the parameter `n_jobs`.

    None is every core this process may use, or ``OMP_NUM_THREADS`` if that is smaller (joblib's workers set it, so that
    a grid search over processes does not oversubscribe). Negative numbers count from the end: -1 is every core, -2 all
    but one.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        cores = os.cpu_count() or 1
    if n_jobs is None:
        asked = os.environ.get("OMP_NUM_THREADS", "")
        return max(1, min(cores, int(asked))) if asked.isdigit() else cores
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral):
        raise TypeError(f"n_jobs={shown(n_jobs)} must be an integer or None")
    n_jobs = int(n_jobs)
    if n_jobs == 0:
        raise ValueError("n_jobs=0 has no meaning: use None for all cores, or a positive number of threads")
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


@cache
def _controller() -> Any:
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


class _Limit:
    """The process-wide limit on BLAS threads: the first holder sets it, and the last one to leave lifts it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a signal's handler may fork where the lock is held
        self.holders = 0
        self.limiter: Any = None

    def lift(self) -> None:
        _let_anyone_set_limits()
        self.limiter.restore_original_limits()
        _let_anyone_set_limits()

    def leave(self) -> None:
        """Lift the limit in a forked child: the threads that held it were not copied, and would never lift it."""
        if self.holders:
            self.lift()


_limit = PerProcess(_Limit, lambda limit: limit.lock, _Limit.leave)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread: blocks run in parallel, and the bits of a block must not depend on the threads."""
    limit = _limit.current
    with limit.lock:
        if limit.holders == 0:
            limit.limiter = _controller().limit(limits=1)
        limit.holders += 1
    try:
        yield
    finally:
        with limit.lock:
            limit.holders -= 1
            if limit.holders == 0:
                limit.lift()


def _let_anyone_set_limits() -> None:
    """Let any thread set limits: threadpoolctl 3.8 and later accepts only the one that set it, which may have ended."""
    clear = getattr(getattr(threadpoolctl, "OpenBLASController", None), "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


def share(function: Callable[[Item], object], items: Iterable[Item], n_threads: int) -> None:
    """Call ``function(item)`` for each item on `n_threads` threads, with BLAS limited to one each; results are ignored.

    >>> seen = []
    >>> share(seen.append, range(4), n_threads=2)
    >>> sorted(seen)
    [0, 1, 2, 3]
    """
    with single_threaded_blas():
        for _ in ordered_map(function, items, n_threads):
            pass


class _Task(Generic[Item, Result]):
    """A function to be called with an item, by whichever thread comes first."""

    __slots__ = ("error", "finished", "function", "item", "result")

    def __init__(self, function: Callable[[Item], Result], item: Item) -> None:
        self.function = function
        self.item = item
        self.result: Result
        self.error: BaseException | None = None
        self.finished = threading.Lock()
        self.finished.acquire()

    def run(self, catching: type[BaseException]) -> None:
        item = self.item
        del self.item  # a block of rows, that need not wait for the results before its own
        try:
            self.result = self.function(item)
        except catching as error:
            self.error = error
        self.finished.release()


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], n_threads: int) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order, with at most a few items in progress at once.

    The calling thread also works: if it only waited, waking it for each result would take longer than computing small
    blocks. An exception, including KeyboardInterrupt, cancels what has not started and waits for the running blocks,
    which are short; no thread outlives the call. `items` is then closed if it can be, since it may have its own thread.
    """
    close: Callable[[], None] = getattr(items, "close", lambda: None)
    if n_threads == 1:
        try:
            for item in items:
                yield function(item)
        finally:
            close()
        return
    waiting: deque[_Task[Item, Result]] = deque()
    todo: SimpleQueue[_Task[Item, Result] | None] = SimpleQueue()
    helpers: list[threading.Thread] = []

    def help_out() -> None:
        while (task := todo.get()) is not None:
            task.run(BaseException)
            del task

    def result_of(first: _Task[Item, Result]) -> Result:
        """Work on whatever has not been started until the first task is done."""
        while not first.finished.acquire(blocking=False):
            try:
                task = todo.get_nowait()
            except Empty:
                first.finished.acquire()
                break
            assert task is not None
            task.run(Exception)  # an interrupt is this thread's, and nobody's result
        if first.error is not None:
            raise first.error
        return first.result

    try:
        for item in items:
            task = _Task(function, item)
            waiting.append(task)
            todo.put(task)
            if len(helpers) < min(n_threads, len(waiting)) - 1:
                # a daemon, lest a generator that nobody closes keeps the interpreter from ending
                helper = threading.Thread(target=help_out, name="gyrfalcon", daemon=True)
                helpers.append(helper)  # before it starts: Ctrl-C while it does so must not leave it without an end
                helper.start()
            if len(waiting) > 2 * n_threads:
                yield result_of(waiting.popleft())
        while waiting:
            yield result_of(waiting.popleft())
    finally:
        try:
            with suppress(Empty):
                while True:
                    todo.get_nowait()
        finally:
            for _ in helpers:
                todo.put(None)
            for helper in helpers:
                if helper.is_alive():  # one whose start was interrupted ends by itself, if it runs at all
                    helper.join()
            close()
