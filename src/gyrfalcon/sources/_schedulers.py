"""Who runs Dask's tasks: the workers of a cluster, or one of the schedulers that live in this process.

Both do the same few things, so that rows and operators do not learn which of them is at work. A cluster can lose a
worker at any moment. What Dask can make again it makes again, and if results are lost on their way `run` asks again;
what was only sent there (`share`) is gone, and whoever needs it finds out by the `LostError` of an `attempt` and sends
it again. An error of a task itself, of whatever type, is no loss: it comes out as it was raised.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Protocol, TypeVar

from .._utils.memory import available_memory, parse_memory

# Of what a worker may use: Dask begins to write data to disk at 0.6 and stops giving it tasks at 0.8
_MOST_OF_WORKER = 0.6
_PATIENCE = 600
_TRIALS = 5
# What Dask raises where a result or a connection is gone; its CommClosedError, and TimeoutError, are OSErrors
_LOSSES = (CancelledError, asyncio.CancelledError, OSError)
STREAMED_AT_ONCE = 3

T = TypeVar("T")


class LostError(Exception):
    """Something that was sent to a worker, or made there, is no longer there."""


def insist(attempt: Callable[[int], T]) -> T:
    """What ``attempt(trial)`` gives, for trial 0, 1, ... as long as something is lost in it."""
    for trial in range(_TRIALS):
        try:
            return attempt(trial)
        except LostError as error:
            if trial == _TRIALS - 1:
                raise RuntimeError(
                    f"workers, or what they held, were lost in {_TRIALS} attempts at the same work ({error}): see the "
                    "workers' logs for what they died of. Rows that only a worker had (client.scatter) cannot be made "
                    "again: read them from where they are stored"
                ) from error
    raise AssertionError


class Scheduler(Protocol):
    """What rows and operators need. A task is a `dask.delayed` object; a handle is what can stand in its place."""

    @property
    def remembers(self) -> bool:
        """Whether an object that is shared is the same one in the next task, and need not be sent again."""
        ...

    def threads(self) -> int:
        """How many tasks run at once."""
        ...

    def room(self, memory_budget: int | float | str) -> tuple[int, int, int]:
        """Bytes for rows, bytes for the kernel matrix beside them, and bytes of one process for the latter."""
        ...

    def share(self, values: Sequence[Any]) -> list[Any]:
        """Handles of values that are sent to workers."""
        ...

    def keep(self, tasks: Sequence[Any]) -> list[Any]:
        """Handles of results that stay where they were made."""
        ...

    def is_there(self, handle: Any) -> bool:
        """Whether a value that was shared has not been lost since."""
        ...

    def attempt(self, tasks: Sequence[Any]) -> list[Any]:
        """The results, or `LostError`: for tasks that need what was shared, which the caller can send again."""
        ...

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """The results, also if they are lost once or twice."""
        ...

    def stream(self, tasks: Sequence[Any]) -> Iterator[Any]:
        """The results, one after another, a few of them at work at once."""
        ...


def find_scheduler(client: Any = None) -> Scheduler:
    """The client's cluster; without one, what Dask itself would use now: the ambient client, or its configuration."""
    if client is None:
        import dask.base
        import dask.threaded

        get = dask.base.get_scheduler() or dask.threaded.get
        client = getattr(get, "__self__", None)
        if client is None or "distributed" not in sys.modules:
            return InProcess(get)
    if getattr(client, "status", None) != "running":
        raise RuntimeError(
            f"the Dask client is {getattr(client, 'status', 'not a client')}: give one that is connected, as "
            "gyrfalcon.sources.DaskRows(X, client=client), or make a new distributed.Client"
        )
    return Cluster(client)


class InProcess:
    """Dask's threads, processes or synchronous scheduler."""

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
        pool = dask.config.get("pool", None)
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
        # recent versions describe a few workers only; they are rarely of different kinds
        limits = [worker.get("memory_limit") or 0 for worker in workers.values()] or [0]
        limit = min(limits) or available_memory() // count
        each = limit // 2 if memory_budget == "auto" else min(parse_memory(memory_budget), int(_MOST_OF_WORKER * limit))
        return count * (limit // 4), count * each, each  # a quarter, because the user may hold the rows as well

    def share(self, values: Sequence[Any]) -> list[Any]:
        self._wait_for_a_worker()
        try:
            # No hash: by their contents two values may be one, and one that is lost would be looked for again. To one
            # worker, from which the others fetch it: broadcasting never ends if a worker dies meanwhile.
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
        """The result of a task that has been started, which is started again if that is lost."""
        (result,) = insist(lambda trial: self.attempt(_renamed([task])) if trial else self._gather([future]))
        return result

    def _gather(self, futures: Sequence[Any]) -> list[Any]:
        from distributed import KilledWorker

        try:
            return list(self._client.gather(list(futures)))
        except (Exception, asyncio.CancelledError) as error:
            # The type alone does not tell that something is lost: a task that reads from a store may time out as well
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
            return RuntimeError(f"the Dask client is {self._client.status}: the work cannot go on without it")
        return LostError(str(error))


def _renamed(tasks: Sequence[Any]) -> list[Any]:
    """The same tasks by other names: a client may hold it against a name that it was lost before."""
    from dask.delayed import delayed

    same = delayed(_same, pure=False)
    return [same(task) for task in tasks]


def _same(result: T) -> T:
    return result
