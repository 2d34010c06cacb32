"""DaskOperator: the three verbs of `KernelOperator` on the partitions of Dask rows, where they are.

A product is one task for each partition, in which a `KernelOperator` of its rows does the work:

     here                                       a worker
     V, once a pass  ------------------------>  K_p'W(K_p V) of its partitions p
     M x k in float64  <---- sums of eight ---  M x k in float64

Kernel and centers go to each worker once. Partial sums are added in the order of the partitions, eight at a time, so
that results have the same bits whatever comes first and wherever it was made. What depends on all rows at once, the
M x M factors and the solvers, stays here. There is no other layer between: what moves, and what is made again when a
worker is lost, is Dask's business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..backends.base import weighted
from ..kernels import Kernel, KernelFunction
from ..sources import Rows, as_rows
from ..sources._schedulers import Scheduler, insist
from ..sources.dask import DaskRows, first_not_finite
from .dense import KernelOperator, Rowwise, Weight

__all__ = ["DaskOperator"]

Array = NDArray[Any]

_ADDED_AT_ONCE = 8
_REMEMBERED = 8  # arrays of one number or several a row that are cut to partitions
_SLACK = 1.25  # partitions are not spread quite evenly
_CLIENT_ROWS = 65_536
_SMALL = 1 << 20  # bytes that are sent with the tasks, or fetched one by one


class PartitionOperator(KernelOperator):
    """The operator of a partition, with the same blocks as an operator of all rows.

    Within a block sums are made in the precision of the tiles, so where blocks begin can be seen in the last digits,
    and conjugate gradient in float32 makes 1e-5 and more of it. So a partition begins with a block.
    """

    def part(self, rows: Any, block: int, keep: bool) -> PartitionOperator:
        """The operator of rows, in blocks of so many."""
        other = cast(PartitionOperator, self.on(rows))
        other._block = block
        other._kept = np.empty(other.shape, dtype=self.dtype) if keep else None
        return other

    def be_filled(self, filled: bool) -> None:
        """Have K, where it is kept, in the state that it has in memory: sums made while it is filled are others.

        A partition may come to another worker in the middle of a fit, or a first pass be made twice.
        """
        if self.keeps and filled and not self._filled:
            for _ in self.blocks():
                pass
        self._filled = self.keeps and filled


class Prepared:
    """A kernel and its centers on a worker.

    Every task of a process is given the same object, so what is prepared once can be used again; when the fit is over
    Dask forgets the object and with it all that it holds. A worker that comes later, or that has to make room, gets
    the object anew and prepares again.

    Parameters
    ----------
    kernel : Kernel
    centers : array of shape (M, d)
    block : int
        Rows of a block.
    n_jobs : int
        Threads of one task.
    room : int
        Bytes of this process for kernel matrices of partitions.
    """

    def __init__(self, kernel: Kernel, centers: Any, block: int, n_jobs: int, room: int) -> None:
        self.__setstate__((kernel, centers, block, n_jobs, room))

    def __getstate__(self) -> tuple[Any, ...]:
        return self.kernel, self.centers, self.block, self.n_jobs, self.room

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.kernel, self.centers, self.block, self.n_jobs, self.room = state
        self._lock = threading.Lock()
        self._operator: PartitionOperator | None = None
        self._kept: dict[int, PartitionOperator] = {}
        self._left = self.room

    def operator(self, partition: int, rows: Any) -> PartitionOperator:
        """The operator of a partition, which keeps its part of K if there is room."""
        with self._lock:
            if partition in self._kept:
                return self._kept[partition]
            if self._operator is None:
                self._operator = PartitionOperator(
                    self.kernel, rows[:0], self.centers, n_jobs=self.n_jobs, memory_budget=0
                )
            size = rows.shape[0] * self.centers.shape[0] * rows.dtype.itemsize
            operator = self._operator.part(rows, self.block, keep=size <= self._left)
            if operator.keeps:
                self._left -= size
                self._kept[partition] = operator
            return operator


class NotFiniteError(ValueError):
    """A task found NaN or infinity, in the row of that number."""


class Order:
    """What is asked of every partition in one pass: a verb, V, and the function of a `Rowwise` weight.

    `first` says whether it is the first pass over these rows.
    """

    def __init__(self, verb: str, V: Array, function: Callable[..., Array] | None = None) -> None:
        self.verb, self.V, self.function = verb, V, function
        self.first = False

    def run(self, prepared: Prepared, partition: int, start: int, rows: Any, *arrays: Array) -> Array:
        """The product of one partition, whose first row is number `start`."""
        operator = prepared.operator(partition, rows)
        try:
            operator.be_filled(not self.first)
            if self.verb == "rmatmat":
                return operator.rmatmat(arrays[0])
            if self.verb == "matmat":
                return operator.matmat(self.V)
            weight = arrays[0] if arrays else None
            return operator.sandwich(self.V, weight if self.function is None else Rowwise(self.function, *arrays))
        except ValueError:
            bad = first_not_finite(rows)
            if bad is None:
                raise
            raise NotFiniteError(start + bad) from None


def _run(order: Order, prepared: Prepared, partition: int, start: int, rows: Any, *arrays: Array) -> Array:
    return order.run(prepared, partition, start, rows, *arrays)


def _add(parts: Sequence[Array]) -> Array:
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def _tree(add: Callable[[list[Any]], Any], parts: list[Any]) -> list[Any]:
    while len(parts) > 1:
        parts = [add(parts[i : i + _ADDED_AT_ONCE]) for i in range(0, len(parts), _ADDED_AT_ONCE)]
    return parts


class DaskOperator:
    """The matrix k(rows, centers) of Dask rows as an operator. See `KernelOperator`, whose members it has.

    Parameters
    ----------
    kernel : Kernel, str or callable
        Sent to workers, so that a kernel of your own must be importable there, or picklable by cloudpickle.
    rows : DaskRows
        Kept in the workers' memory if they take less than a quarter of it, and else made again for every pass.
    centers : array of shape (M, d)
    n_jobs : int or None
        Threads of the work that is done here, on the M x M factors. Workers use the threads that they have.
    memory_budget : "auto", int or str
        Bytes of each worker for the kernel matrix of its partitions. "auto": half of what the worker may use, less the
        rows.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from gyrfalcon.operators.dask import DaskOperator
    >>> from gyrfalcon.sources import DaskRows
    >>> X = np.random.default_rng(0).standard_normal((1000, 3))
    >>> K = DaskOperator("gaussian", DaskRows(da.from_array(X, chunks=(250, 3))), X[:10])
    >>> v = np.ones(10)
    >>> bool(np.allclose(K.sandwich(v), K.rmatmat(K.matmat(v))))
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction,
        rows: DaskRows,
        centers: ArrayLike,
        *,
        n_jobs: int | None = None,
        memory_budget: int | float | str = "auto",
    ) -> None:
        # no rows: the checks of kernel and centers, and the work that is done here
        self._here = KernelOperator(kernel, rows.take([]), centers, n_jobs=n_jobs, memory_budget=0)
        self.kernel, self.centers, self.dtype = self._here.kernel, self._here.centers, self._here.dtype
        self._to(rows, memory_budget)

    def _to(self, rows: DaskRows, memory_budget: int | float | str) -> None:
        self.rows = rows
        self.shape = (rows.shape[0], self._here.shape[1])
        self.passes = 0
        self._scheduler: Scheduler = rows.scheduler
        block = self._here.on(rows)._block
        self._rows = rows.aligned(block)
        room_for_rows, room, room_of_one = self._scheduler.room(memory_budget)
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        self._keeps_rows = rows.nbytes <= room_for_rows
        self.keeps = self._keeps_rows and 0 < size <= room - rows.nbytes
        self._prepared = Prepared(
            self.kernel,
            self.centers,
            block=block,
            n_jobs=max(1, self._scheduler.threads() // max(1, len(self._rows.lengths))),
            room=int(_SLACK * room_of_one) if self.keeps else 0,
        )
        self._forget()

    def _forget(self) -> None:
        """Nothing has been sent."""
        self._parts: list[Any] | None = None
        self._sent: Any = None
        self._cut: dict[int, tuple[Array, list[Any]]] = {}

    def _forget_lost(self) -> None:
        """Of what has been sent, only what is still there counts. Rows are made again by Dask itself."""
        there = self._scheduler.is_there
        self._sent = self._sent if self._sent is not None and there(self._sent) else None
        self._cut = {key: (array, pieces) for key, (array, pieces) in self._cut.items() if all(map(there, pieces))}

    @property
    def arithmetic(self) -> str:
        """As for `KernelOperator`."""
        return "kept in memory" if self.keeps else "made again"

    @property
    def kept_bytes(self) -> int:
        """What K takes of this process's memory: it is the workers' that it is kept in."""
        return 0

    def matmat(self, V: ArrayLike) -> Array:
        """K V, in the dtype of the tiles. `V` has shape (M,) or (M, k)."""
        columns, as_given = self._here._columns(V, self.shape[1], "V")
        order = Order("matmat", columns)
        out = np.empty((self.shape[0], columns.shape[1]), dtype=self.dtype)
        if self.shape[0]:
            np.concatenate(self._pass(order, [], self._scheduler.attempt), out=out)
        return as_given(out)

    def rmatmat(self, U: ArrayLike) -> Array:
        """K' U, in float64. `U` has shape (n,) or (n, k)."""
        columns, as_given = self._here._columns(U, self.shape[0], "U")
        return as_given(self._sum(Order("rmatmat", np.empty(0)), [columns], columns.shape[1], once=True))

    def sandwich(self, V: ArrayLike, weight: Weight = None) -> Array:
        """K' W (K V), in float64 and in one pass, or in two where the weight is a function of any kind.

        Parameters
        ----------
        V : array of shape (M,) or (M, k)
        weight : None, array of shape (n,), Rowwise, or callable
            As for `KernelOperator.sandwich`. The arrays of a `Rowwise` are cut and sent to the partitions once, so
            do not write into them between passes. Any other function is run here: K V comes here and what the function
            makes of it goes back, for a second pass.
        """
        columns, as_given = self._here._columns(V, self.shape[1], "V")
        n, k = self.shape[0], columns.shape[1]
        if isinstance(weight, Rowwise):
            return as_given(self._sum(Order("sandwich", columns, weight.function), weight.arrays, k))
        if callable(weight):
            T = self.matmat(columns)
            for start in range(0, n, _CLIENT_ROWS):
                at = slice(start, min(start + _CLIENT_ROWS, n))
                T[at] = weighted(T[at], lambda part, T, at=at: weight(at, T), at)  # type: ignore[misc]
            return as_given(self._sum(Order("rmatmat", np.empty(0)), [T], k, once=True))
        arrays: list[Array] = []
        if weight is not None:
            arrays = [np.asarray(weight)]
            if arrays[0].shape != (n,):
                raise ValueError(f"weight has shape {arrays[0].shape}: it must have one number for each row, {n}")
        return as_given(self._sum(Order("sandwich", columns), arrays, k))

    def centers_gram(self, dtype: DTypeLike | None = None) -> Array:
        """K_MM = k(centers, centers), made here. See `KernelOperator.centers_gram`."""
        return self._here.centers_gram(dtype)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """K itself, a block of rows at a time and in order. The rows come here for it, in one pass."""
        yield from self._here.on(self.rows).blocks()
        self.passes += 1

    def on(self, rows: Rows | ArrayLike) -> DaskOperator | KernelOperator:
        """The operator of other rows with the same kernel and centers; where they are in memory, so are products."""
        other = as_rows(rows)
        if not isinstance(other, DaskRows):
            return self._here.on(other)
        operator: DaskOperator = object.__new__(DaskOperator)
        operator._here, operator.kernel, operator.centers = self._here, self.kernel, self.centers
        operator.dtype = self.dtype
        operator._to(other, 0)
        return operator

    # ---- one task for each partition ---------------------------------------------------------------------------------

    def _sum(self, order: Order, arrays: Sequence[Array], k: int, *, once: bool = False) -> Array:
        """The partitions' products of `k` columns, added in their order."""
        if not self.shape[0]:
            return np.zeros((self.shape[1], k))
        (total,) = self._pass(order, arrays, partial(self._run_sum, k), once=once)
        return total

    def _run_sum(self, k: int, tasks: list[Any]) -> list[Array]:
        from dask.delayed import delayed

        # the same sums here, where all of the parts are less to fetch than a few journeys cost
        if self.shape[1] * k * 8 * len(tasks) <= _SMALL:
            return _tree(_add, self._scheduler.attempt(tasks))
        return self._scheduler.attempt(_tree(delayed(_add, pure=False), tasks))

    def _pass(
        self, order: Order, arrays: Sequence[Array], run: Callable[[list[Any]], list[Array]], *, once: bool = False
    ) -> list[Array]:
        """Send what is missing, run a task for each partition, and begin again if a worker was lost that had some."""
        order.first = self.passes == 0

        def attempt(trial: int) -> list[Array]:
            if trial == 1:
                self._forget_lost()
            elif trial > 1:
                self._forget()
            return run(self._tasks(order, arrays, once))

        try:
            results = insist(attempt)
        except NotFiniteError as error:
            (row,) = error.args
            partition = np.searchsorted(self.rows.ends, row, "right")
            raise ValueError(
                f"row {row}, in partition {partition} of X, has NaN or infinity: remove or impute those values"
            ) from None
        self.passes += 1
        return results

    def _tasks(self, order: Order, arrays: Sequence[Array], once: bool) -> list[Any]:
        from dask.delayed import delayed

        scheduler, slices = self._scheduler, self._rows.slices
        if self._parts is None:
            self._parts = scheduler.keep(self._rows.parts) if self._keeps_rows else self._rows.parts
        if self._sent is None:
            (self._sent,) = scheduler.share([self._prepared])
        pieces = [self._pieces(array, once) for array in arrays]
        # a small order is sent with each task: that saves a journey, and cannot be lost
        sent = order
        if order.V.nbytes * len(slices) > _SMALL:
            (sent,) = scheduler.share([order])
        task = delayed(_run, pure=False)
        return [
            task(sent, self._sent, i, slices[i].start, rows, *(piece[i] for piece in pieces))
            for i, rows in enumerate(self._parts)
        ]

    def _pieces(self, array: Array, once: bool) -> list[Any]:
        """Handles of the partitions' rows of an array, which is remembered unless it is needed but once."""
        key = id(array)
        if key in self._cut:
            return self._cut[key][1]
        if len(array) != self.shape[0]:
            raise ValueError(f"an array of shape {array.shape} has no row for each of the {self.shape[0]} rows")
        pieces = self._scheduler.share([array[at] for at in self._rows.slices])
        if not once:
            while len(self._cut) >= _REMEMBERED:
                del self._cut[next(iter(self._cut))]
            self._cut[key] = (array, pieces)  # with the array, so that no other one gets its id
        return pieces
