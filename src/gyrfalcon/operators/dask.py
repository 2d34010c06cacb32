"""DaskOperator: the products with K computed on the partitions of Dask rows, where they are.

A product is one task for each partition (`_partitions.py`), in which a `KernelOperator` of its rows does the work:

     here                                       a worker
     V, once a pass  ------------------------>  K_p'W(K_p V) of its partitions p
     M x k in float64  <---- sums of eight ---  M x k in float64

Kernel and centers go to each worker once. Partial sums are added in the order of the partitions, eight at a time, so
that results have the same bits whichever worker finishes first. The M x M factors and the solvers stay in this process.
Dask decides where data moves, and what is computed again when a worker is lost.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..backends import weighted
from ..kernels import Kernel, KernelFunction
from ..sources import Rows, as_rows
from ..sources._schedulers import Scheduler, insist
from ..sources.dask import DaskRows
from ..sources.row_matrix import RowMatrix
from ._partitions import NonFiniteRowError, PartitionProduct, WorkerOperators, add, run_product
from .base import Operator, Rowwise, Weight, as_columns, check_image, check_weight
from .dense import KernelOperator

__all__ = ["DaskOperator"]

Array = NDArray[Any]

_ADDED_AT_ONCE = 8
_REMEMBERED = 4  # per-row arrays whose pieces stay on the workers
_SLACK = 1.25  # factor on a worker's memory for K, since partitions are not spread evenly
_CLIENT_ROWS = 65_536
_SMALL = 1 << 20  # bytes that are sent with the tasks, or fetched one by one


class DaskOperator(Operator):
    """The matrix k(rows, centers) of Dask rows, multiplied where their partitions are.

    kernel : sent to the workers, so a custom kernel must be importable there, or picklable by cloudpickle
    rows : kept in the workers' memory if they take less than a quarter of it, otherwise computed again for every pass
    n_jobs : threads for the M x M factors in this process; workers use the threads that they have
    memory_budget : bytes of each worker for its part of K; "auto" is half of what the worker may use, less the rows
    local : the same matrix, whose products fetch the rows; `on` passes it, so that centers are not prepared again
    """

    rows: DaskRows

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction,
        rows: DaskRows,
        centers: ArrayLike,
        *,
        n_jobs: int | None = None,
        memory_budget: int | float | str = "auto",
        local: KernelOperator | None = None,
    ) -> None:
        self._local = local or KernelOperator(kernel, rows, centers, n_jobs=n_jobs, memory_budget=0)
        self.kernel, self.rows, self.centers = self._local.kernel, rows, self._local.centers
        self.shape, self.dtype, self.passes = self._local.shape, self._local.dtype, 0
        self._scheduler: Scheduler = rows.scheduler
        self._aligned = rows.aligned(self._local.block_size)  # so that each partition begins with a block
        room_for_rows, room, room_of_one = self._scheduler.room(memory_budget)
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        self._keeps_rows = rows.nbytes <= room_for_rows
        self._keeps = self._keeps_rows and 0 < size <= room - rows.nbytes
        self._operators = WorkerOperators(
            self.kernel,
            self.centers,
            block_size=self._local.block_size,
            n_jobs=max(1, self._scheduler.threads() // max(1, len(self._aligned.lengths))),
            room=int(_SLACK * room_of_one) if self._keeps else 0,
        )
        self._parts: list[Any] | None = None
        self._sent_operators: Any = None
        self._sent_arrays: dict[int, list[Any]] = {}

    @property
    def keeps(self) -> bool:
        return self._keeps

    @property
    def kept_bytes(self) -> int:
        """0: K is kept in the memory of the workers."""
        return 0

    def matmat(self, V: ArrayLike) -> Array:
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        out = np.empty((self.shape[0], columns.shape[1]), dtype=self.dtype)
        parts = self._pass(self._product("matmat", columns), [], self._scheduler.attempt)
        if parts:
            np.concatenate(parts, out=out)
        return like_given(out)

    def rmatmat(self, U: ArrayLike) -> Array:
        columns, like_given = as_columns(U, self.shape[0], self.dtype, "U")
        return like_given(self._sum(self._product("rmatmat"), [columns], columns.shape[1], once=True))

    def sandwich(self, V: ArrayLike, weight: Weight = None, *, KV: RowMatrix | None = None) -> Array:
        """Compute K' W (K V), in float64; see `Operator.sandwich`.

        A weight's array, or the arrays of a `Rowwise`, are split and sent to the partitions once, so they must not
        change between passes. Any other function is run in this process, on K V, and its result needs a second pass.
        """
        columns, like_given = as_columns(V, self.shape[1], self.dtype, "V")
        n, k = self.shape[0], columns.shape[1]
        checked = check_weight(weight, n)
        image = None if KV is None else check_image(KV, n, k, self.dtype)
        if callable(checked) and not isinstance(checked, Rowwise):
            T = self.matmat(columns)
            if image is not None:
                image[:] = T
            for start in range(0, n, _CLIENT_ROWS):
                at = slice(start, min(start + _CLIENT_ROWS, n))
                T[at] = weighted(T[at], lambda part, T, at=at: checked(at, T), at)  # type: ignore[misc]
            return like_given(self._sum(self._product("rmatmat"), [T], k, once=True))
        rowwise: Rowwise | None = None
        arrays: Sequence[Array] = []
        if isinstance(checked, Rowwise):
            rowwise, arrays = checked.of(*(array[:0] for array in checked.arrays)), checked.arrays
        elif checked is not None:
            arrays = [checked]
        return like_given(self._sum(self._product("sandwich", columns, rowwise, image is not None), arrays, k, image))

    def centers_gram(self, dtype: DTypeLike | None = None) -> Array:
        return self._local.centers_gram(dtype)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Iterate over K as `Operator.blocks` does; the rows are fetched for it."""
        yield from self._local.blocks()
        self.passes += 1

    def on(self, rows: Rows | ArrayLike) -> Operator:
        """Make the operator of other rows, which keeps no K; rows that are not Dask's are multiplied locally."""
        other = as_rows(rows)
        local = self._local.on(other)
        if not isinstance(other, DaskRows):
            return local
        return DaskOperator(self.kernel, other, self.centers, memory_budget=0, local=local)

    # ---- one task for each partition ---------------------------------------------------------------------------------

    def _product(
        self, verb: str, V: Array | None = None, weight: Rowwise | None = None, image: bool = False
    ) -> PartitionProduct:
        return PartitionProduct(verb, V, weight, image=image, first=self.passes == 0)

    def _sum(
        self,
        product: PartitionProduct,
        arrays: Sequence[Array],
        k: int,
        image: Array | None = None,
        *,
        once: bool = False,
    ) -> Array:
        """Add the partitions' products of `k` columns, in their order; fetch K V into `image` if that is given."""
        run = self._run_sum if image is None else self._run_sum_and_image
        results = self._pass(product, arrays, partial(run, k), once=once)
        if not results:
            return np.zeros((self.shape[1], k))
        if image is not None:
            np.concatenate(results[1:], out=image)
        return results[0]

    def _run_sum(self, k: int, tasks: list[Any]) -> list[Array]:
        from dask.delayed import delayed

        # the same sums here, where fetching all parts costs less than a few more round trips
        if self.shape[1] * k * 8 * len(tasks) <= _SMALL:
            return _add_in_groups(add, self._scheduler.attempt(tasks))
        return self._scheduler.attempt(_add_in_groups(delayed(add, pure=False), tasks))

    def _run_sum_and_image(self, k: int, tasks: list[Any]) -> list[Array]:
        """Return the sum, and after it K V of each partition."""
        from dask.delayed import delayed

        if self.shape[1] * k * 8 * len(tasks) <= _SMALL:
            pairs = self._scheduler.attempt(tasks)
            return [*_add_in_groups(add, [total for total, _ in pairs]), *(T for _, T in pairs)]
        sums = _add_in_groups(delayed(add, pure=False), [task[0] for task in tasks])
        return self._scheduler.attempt([*sums, *(task[1] for task in tasks)])

    def _pass(
        self,
        product: PartitionProduct,
        arrays: Sequence[Array],
        run: Callable[[list[Any]], list[Array]],
        *,
        once: bool = False,
    ) -> list[Array]:
        """Send what is missing, run a task for each partition, and start over if a lost worker had some of it."""

        def attempt(trial: int) -> list[Array]:
            if trial == 1:
                self._forget_lost()
            elif trial > 1:
                self._forget()
            return run(self._tasks(product, arrays, once))

        try:
            results = insist(attempt) if self.shape[0] else []
        except NonFiniteRowError as error:
            (row,) = error.args
            partition = np.searchsorted(self.rows.ends, row, "right")
            raise ValueError(
                f"row {row}, in partition {partition} of X, has NaN or infinity: remove or impute those values"
            ) from None
        self.passes += 1
        return results

    def _tasks(self, product: PartitionProduct, arrays: Sequence[Array], once: bool) -> list[Any]:
        from dask.delayed import delayed

        scheduler, slices = self._scheduler, self._aligned.slices
        if self._parts is None:
            self._parts = scheduler.keep(self._aligned.parts) if self._keeps_rows else self._aligned.parts
        if self._sent_operators is None:
            (self._sent_operators,) = scheduler.share([self._operators])
        pieces = [self._pieces(array, once) for array in arrays]
        # a small product is sent with each task: that saves a round trip, and cannot be lost
        sent = product
        if product.nbytes * len(slices) > _SMALL:
            (sent,) = scheduler.share([product])
        task = delayed(run_product, pure=False)
        return [
            task(sent, self._sent_operators, i, slices[i].start, rows, *(piece[i] for piece in pieces))
            for i, rows in enumerate(self._parts)
        ]

    def _pieces(self, array: Array, once: bool) -> list[Any]:
        """Send each partition its rows of an array, and remember the handles unless the array is used but once."""
        key = id(array)
        if key in self._sent_arrays:
            self._sent_arrays[key] = pieces = self._sent_arrays.pop(key)  # now the one that was used last
            return pieces
        pieces = self._scheduler.share([array[at] for at in self._aligned.slices])
        if not once:
            while len(self._sent_arrays) >= _REMEMBERED:
                del self._sent_arrays[next(iter(self._sent_arrays))]
            self._sent_arrays[key] = pieces
            # Drop the pieces with the array, before another one gets its id; the weak reference lets the operator be
            # freed while the array lives
            weakref.finalize(array, _forget_array, weakref.ref(self), key).atexit = False
        return pieces

    def _forget(self) -> None:
        """Forget all that has been sent."""
        self._parts, self._sent_operators = None, None
        self._sent_arrays.clear()

    def _forget_lost(self) -> None:
        """Forget what has been sent and is no longer there. Dask itself makes lost rows again."""
        there = self._scheduler.is_there
        if self._sent_operators is not None and not there(self._sent_operators):
            self._sent_operators = None
        for key in [key for key, pieces in self._sent_arrays.items() if not all(map(there, pieces))]:
            del self._sent_arrays[key]


def _forget_array(operator: weakref.ref[DaskOperator], key: int) -> None:
    """Forget what was sent of an array, if its operator is still there."""
    found = operator()
    if found is not None:
        found._sent_arrays.pop(key, None)


def _add_in_groups(add: Callable[[list[Any]], Any], parts: list[Any]) -> list[Any]:
    while len(parts) > 1:
        parts = [add(parts[i : i + _ADDED_AT_ONCE]) for i in range(0, len(parts), _ADDED_AT_ONCE)]
    return parts
