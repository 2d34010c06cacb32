"""Schedulers of Dask tasks: the workers of a cluster, or one of the schedulers that run in this process.

Both have the same interface, so that rows and operators do not depend on which of them is used. A cluster can lose a
worker at any moment. Dask recomputes what it can, and `run` retries if results are lost on their way. Values that were
only sent to the workers (`share`) are gone: `attempt` raises `LostError`, and the caller sends them again. An exception
that a task itself raises, of whatever type, is not a loss and is raised unchanged.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Protocol, TypeVar

from .._utils.memory import available_memory, parse_memory

# Share of a worker's memory: Dask begins to write data to disk at 0.6 and pauses the worker at 0.8
_MOST_OF_WORKER = 0.6
_PATIENCE = 600  # seconds to wait for a worker
_TRIALS = 5  # attempts at the same work
# Raised by Dask when a result or a connection is lost; its CommClosedError, and TimeoutError, are OSErrors
_LOSSES = (CancelledError, asyncio.CancelledError, OSError)
STREAMED_AT_ONCE = 3  # tasks of a stream that a cluster computes at once

T = TypeVar("T")


class LostError(Exception):
    """A value that was sent to a worker, or computed there, is lost."""


def insist(attempt: Callable[[int], T]) -> T:
    """Return the result of ``attempt(trial)``, for trial 0, 1, ... until none raises `LostError`."""
    for trial in range(_TRIALS):
        try:
            return attempt(trial)
        except LostError as error:
            if trial == _TRIALS - 1:
                raise RuntimeError(
                    f"workers, or the data on them, were lost in {_TRIALS} attempts at the same work ({error}): see "
                    "the workers' logs for the reason. Rows that only a worker had (client.scatter) cannot be computed "
                    "again: read them from where they are stored"
                ) from error
    raise AssertionError


class Scheduler(Protocol):
    """The interface of schedulers. A task is a `dask.delayed` object; a handle can be an argument of tasks."""

    @property
    def remembers(self) -> bool:
        """Whether a shared object is the same one in the next task, and need not be sent again."""

    def threads(self) -> int:
        """Return the number of tasks that run at once."""

    def room(self, memory_budget: int | float | str) -> tuple[int, int, int]:
        """Return bytes for rows, bytes for the kernel matrix beside them, and bytes of one process for the latter."""

    def share(self, values: Sequence[Any]) -> list[Any]:
        """Send values to the workers; return their handles."""

    def keep(self, tasks: Sequence[Any]) -> list[Any]:
        """Compute tasks whose results stay on the workers; return their handles."""

    def is_there(self, handle: Any) -> bool:
        """Whether a shared value has not been lost."""

    def attempt(self, tasks: Sequence[Any]) -> list[Any]:
        """Compute tasks that need shared values; raise `LostError` if one is lost, which the caller can send again."""

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """Compute tasks; retry if results are lost."""

    def stream(self, tasks: Sequence[Any]) -> Iterator[Any]:
        """Compute tasks, a few at once; yield the results in order."""


def find_scheduler(client: Any = None) -> Scheduler:
    """Find the scheduler of a client, by default what Dask would use now: the default client, or its configuration."""
    if client is None:
        import dask.base
        import dask.threaded

        get = dask.base.get_scheduler() or dask.threaded.get
        client = getattr(get, "__self__", None)  # a client's bound method, or a plain function
        if client is None or "distributed" not in sys.modules:
            return InProcess(get)
    status = getattr(client, "status", "not a client")  # what the user gave may be anything
    if status != "running":
        raise RuntimeError(
            f"the Dask client is {status}: give one that is connected, as "
            "gyrfalcon.sources.DaskRows(X, client=client), or make a new distributed.Client"
        )
    return Cluster(client)


class InProcess:
    """Dask's threaded, multiprocessing or synchronous scheduler."""

    def __init__(self, get: Any) -> None:
        import dask.multiprocessing

        self._get = get
        self.remembers = get is not dask.multiprocessing.get

    def threads(self) -> int:
        import dask
        import dask.local
        from dask.system import CPU_COUNT

        if self._get is dask.local.get_sync:
            return 1
        pool = dask.config.get("pool", None)  # of threads or processes, or None
        return int(getattr(pool, "_max_workers", None) or dask.config.get("num_workers", None) or CPU_COUNT)

    def room(self, memory_budget: int | float | str) -> tuple[int, int, int]:
        if not self.remembers:
            return 0, 0, 0
        budget = parse_memory(memory_budget)
        return budget // 2, budget, budget  # half, because the user may hold the rows as well

    def share(self, values: Sequence[Any]) -> list[Any]:
        from dask.delayed import delayed

        return [delayed(value, pure=False, traverse=False) for value in values]

    def keep(self, tasks: Sequence[Any]) -> list[Any]:
        return self.share(self.run(tasks))

    def is_there(self, handle: Any) -> bool:
        return True

    def attempt(self, tasks: Sequence[Any]) -> list[Any]:
        return self.run(tasks)

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        import dask

        return list(dask.compute(*tasks, scheduler=self._get))

    def stream(self, tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            yield from self.run([task])


class Cluster:
    """The workers that a `distributed.Client` is connected to."""

    remembers = True

    def __init__(self, client: Any) -> None:
        self._client = client

    def threads(self) -> int:
        return max(1, sum(self._client.nthreads().values()))

    def room(self, memory_budget: int | float | str) -> tuple[int, int, int]:
        workers = self._client.scheduler_info()["workers"]
        count = max(1, len(self._client.nthreads()))
        # recent versions of Dask list a few workers only; limits rarely differ
        limits = [worker.get("memory_limit") or 0 for worker in workers.values()] or [0]
        limit = min(limits) or available_memory() // count
        each = limit // 2 if memory_budget == "auto" else min(parse_memory(memory_budget), int(_MOST_OF_WORKER * limit))
        return count * (limit // 4), count * each, each  # a quarter, because the user may hold the rows as well

    def share(self, values: Sequence[Any]) -> list[Any]:
        self._wait_for_a_worker()
        try:
            # hash=False: values with equal contents would be one, and a lost one would not be sent again. To one
            # worker, from which the others fetch it: broadcasting hangs if a worker dies meanwhile.
            return list(self._client.scatter(list(values), hash=False))
        except _LOSSES as error:
            raise self._loss(error) from error

    def _wait_for_a_worker(self) -> None:
        if self._client.nthreads():
            return
        try:
            self._client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise RuntimeError(f"the cluster has had no workers for {_PATIENCE} seconds: start some") from error

    def keep(self, tasks: Sequence[Any]) -> list[Any]:
        return list(self._client.compute(_renamed(tasks)))

    def is_there(self, handle: Any) -> bool:
        return str(handle.status) in ("finished", "pending")

    def attempt(self, tasks: Sequence[Any]) -> list[Any]:
        return self._gather(self._client.compute(list(tasks)))

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        return insist(lambda trial: self.attempt(_renamed(tasks) if trial else tasks))

    def stream(self, tasks: Sequence[Any]) -> Iterator[Any]:
        waiting: deque[tuple[Any, Any]] = deque()
        for task in tasks:
            waiting.append((task, self._client.compute(task)))
            if len(waiting) >= STREAMED_AT_ONCE:
                yield self._first(*waiting.popleft())
        while waiting:
            yield self._first(*waiting.popleft())

    def _first(self, task: Any, future: Any) -> Any:
        """Return the result of a task that has been started; start it again if the result is lost."""
        (result,) = insist(lambda trial: self.attempt(_renamed([task])) if trial else self._gather([future]))
        return result

    def _gather(self, futures: Sequence[Any]) -> list[Any]:
        from distributed import KilledWorker

        try:
            return list(self._client.gather(list(futures)))
        except (Exception, asyncio.CancelledError) as error:
            # The type alone does not mean a loss: a task that reads from a store may time out as well
            failed = [future for future in futures if future.status == "error"]
            if not failed:
                if self._client.status != "running" or isinstance(error, _LOSSES):
                    raise self._loss(error) from error
                raise
        raised = failed[0].exception()
        if isinstance(raised, KilledWorker):
            raise RuntimeError(
                f"workers died one after another at the same task ({raised}). Most often they run out of memory: make "
                "the partitions smaller (X.rechunk, X.repartition), use fewer centers, lower memory_budget, or give "
                "each worker more memory"
            ) from raised
        raise raised

    def _loss(self, error: BaseException) -> Exception:
        if self._client.status != "running":
            return RuntimeError(f"the Dask client is {self._client.status}: connect a new one and start again")
        return LostError(str(error))


def _renamed(tasks: Sequence[Any]) -> list[Any]:
    """Give tasks new names: a client may not compute again what was lost under the same name."""
    from dask.delayed import delayed

    same = delayed(_same, pure=False)
    return [same(task) for task in tasks]


def _same(result: T) -> T:
    return result
