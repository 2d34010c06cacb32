"""What a Dask worker does for `DaskOperator`: the product of one partition, by a `KernelOperator` of its rows."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Kernel
from ..sources.dask import first_not_finite
from .base import Rowwise, Weight
from .dense import KernelOperator
from .keeping import Keeping

Array = NDArray[Any]


class NonFiniteRowError(ValueError):
    """A task found NaN or infinity in the row whose number is the only argument."""


class WorkerOperators:
    """The operators of the partitions that one worker process multiplies.

    All tasks of a process share the object, so that the centers are prepared once and up to `room` bytes of kernel
    matrices are kept. Dask releases it after the fit. A worker that joins later receives a copy and prepares again.

    Partitions use the `block_size` of an operator of all rows: sums within a block have the precision of the tiles, so
    that other block boundaries change the last digits, which conjugate gradient in float32 amplifies to 1e-5 and more.
    """

    def __init__(self, kernel: Kernel, centers: Any, block_size: int, n_jobs: int, room: int) -> None:
        self.kernel, self.centers = kernel, centers
        self.block_size, self.n_jobs, self.room = block_size, n_jobs, room
        self._lock = threading.Lock()
        self._without_rows: KernelOperator | None = None
        self._kept: dict[int, KernelOperator] = {}
        self._room_left = room

    def __reduce__(self) -> tuple[Any, ...]:
        # prepared centers and kept matrices stay where they are
        return WorkerOperators, (self.kernel, self.centers, self.block_size, self.n_jobs, self.room)

    def operator(self, partition: int, rows: Any) -> KernelOperator:
        """Return the operator of a partition, which keeps its part of K if there is room."""
        with self._lock:
            if partition in self._kept:
                return self._kept[partition]
            if self._without_rows is None:
                self._without_rows = KernelOperator(
                    self.kernel, rows[:0], self.centers, n_jobs=self.n_jobs, memory_budget=0
                )
            size = rows.shape[0] * self.centers.shape[0] * rows.dtype.itemsize
            keeping = Keeping.WHOLE if size <= self._room_left else Keeping.NONE
            operator = self._without_rows.on(rows, block_size=self.block_size, keeping=keeping)
            if operator.keeps:
                self._room_left -= size
                self._kept[partition] = operator
            return operator


class PartitionProduct:
    """One product ("matmat", "rmatmat" or "sandwich") that every partition computes.

    `weight` has no rows, since its arrays are sent with each partition. With `image`, K V is returned beside the
    sandwich. `first` says whether this is the first pass over the rows: a partition may move to another worker during
    a fit, or repeat its first pass, and the last bits must not depend on that.
    """

    def __init__(
        self, verb: str, V: Array | None = None, weight: Rowwise | None = None, *, image: bool = False, first: bool
    ) -> None:
        self.verb, self.V, self.weight, self.image, self.first = verb, V, weight, image, first

    @property
    def nbytes(self) -> int:
        """Bytes to be sent to workers."""
        return 0 if self.V is None else self.V.nbytes

    def of(self, operator: KernelOperator, arrays: tuple[Array, ...]) -> Array | tuple[Array, Array]:
        """Compute the product with one operator; `arrays` are its rows of U, of the weight, or of a `Rowwise`."""
        operator.set_filled(not self.first)
        if self.verb == "rmatmat":
            return operator.rmatmat(arrays[0])
        assert self.V is not None
        if self.verb == "matmat":
            return operator.matmat(self.V)
        weight: Weight = arrays[0] if arrays else None
        if self.weight is not None:
            weight = self.weight.of(*arrays)
        if not self.image:
            return operator.sandwich(self.V, weight)
        KV = np.empty((operator.shape[0], self.V.shape[1]), operator.dtype)
        return operator.sandwich(self.V, weight, KV=KV), KV


def run_product(
    product: PartitionProduct, operators: WorkerOperators, partition: int, start: int, rows: Any, *arrays: Array
) -> Array | tuple[Array, Array]:
    """Compute the product of one partition, whose first row is number `start`: the task that Dask runs."""
    operator = operators.operator(partition, rows)
    try:
        return product.of(operator, arrays)
    except ValueError:
        row = first_not_finite(rows)
        if row is None:
            raise
        raise NonFiniteRowError(start + row) from None


def add(parts: list[Array]) -> Array:
    """Add arrays in their order."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total
