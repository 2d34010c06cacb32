"""Who runs Dask's tasks: the workers of a cluster, or one of the schedulers that live in this process.

Both do the same few things, so that rows and operators do not learn which of them is at work. A cluster can lose a
worker at any moment. What Dask can make again it makes again; what was only sent there (`share`) is gone, and whoever
needs it finds out by `LostError` and sends it again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, Protocol

from ._memory import available_memory, parse_memory

# Of what a worker may use: Dask begins to write data to disk at 0.6 and stops giving it tasks at 0.8
_MOST_OF_WORKER = 0.6
_PATIENCE = 600
STREAMED_AT_ONCE = 3


class LostError(Exception):
    """Something that was sent to a worker is no longer there."""


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

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """The results."""
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
        with _clear_errors(self._client, lost=OSError):
            # No hash: by their contents two values may be one, and one that is lost would be looked for again. To one
            # worker, from which the others fetch it: broadcasting never ends if a worker dies meanwhile.
            return list(self._client.scatter(list(values), hash=False))

    def _wait_for_a_worker(self) -> None:
        if self._client.nthreads():
            return
        try:
            self._client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise RuntimeError(f"the cluster has had no workers for {_PATIENCE} seconds: start some") from error

    def keep(self, tasks: Sequence[Any]) -> list[Any]:
        return list(self._client.compute(list(tasks)))

    def is_there(self, handle: Any) -> bool:
        return str(handle.status) in ("finished", "pending")

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        with _clear_errors(self._client):
            return list(self._client.gather(self._client.compute(list(tasks))))

    def stream(self, tasks: Sequence[Any]) -> Iterator[Any]:
        waiting: deque[Any] = deque()
        with _clear_errors(self._client):
            for task in tasks:
                waiting.append(self._client.compute(task))
                if len(waiting) >= STREAMED_AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


@contextmanager
def _clear_errors(client: Any, lost: type[Exception] = TimeoutError) -> Iterator[None]:
    """Around work of a cluster: what was lost becomes `LostError`, and what a worker died of is said."""
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise RuntimeError(
            f"workers died one after another at the same task ({error}). Most often they run out of memory: make the "
            "partitions smaller (X.rechunk, X.repartition), use fewer centers, lower memory_budget, or give each "
            "worker more memory"
        ) from error
    except Exception as error:
        if client.status != "running":
            raise RuntimeError(f"the Dask client is {client.status}: the work cannot go on without it") from error
        if isinstance(error, CancelledError | asyncio.CancelledError | CommClosedError | lost):
            raise LostError(str(error)) from error
        raise
