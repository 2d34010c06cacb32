"""Lanes: what a device needs to take part in a pass, its prepared centers, buffers for rows, and the sums it makes.

     host                                            device
     rows --> two buffers, pinned --- copy stream --> X --> K = k(X, centers) --> T = K V
     a weight's arrays  ------------------------------------------------> U = W T, where it is arithmetic
     out, or a weight that is not  <------------------------------------------------ T
     U  ------------------------------------------------------------------------> K' U, added in float64

Nothing waits for a device but `Fetched.array`, `Lane.total`, and the third block of rows, which needs a buffer that the
first was copied from: so that one block is copied while another is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._utils.devices import has_float64, import_torch
from ..backends.torch_tiles import MakeTile, SparseColumns

Array = NDArray[Any]
Tensor = Any

# Rows of K over which products are summed in the precision of the tile: one product in float32 over 30,000 rows would
# lose two digits
SUMMED_ROWS = 256


def as_tensor(array: Array) -> Tensor:
    """Return an array as a tensor on the host, which shares its memory if it may be written to."""
    torch = import_torch()
    # torch warns of arrays that it could write to though they are not to be
    return torch.from_numpy(array if array.flags.writeable and array.flags.c_contiguous else array.copy("C"))


class Fetched:
    """A tensor on its way to the host."""

    def __init__(self, tensor: Tensor) -> None:
        self._event = None
        if tensor.device.type != "cuda":
            self._host = tensor.cpu()
            return
        torch = import_torch()
        self._host = host_buffer(tuple(tensor.shape), tensor.dtype)
        self._host.copy_(tensor, non_blocking=True)
        self._event = torch.cuda.current_stream(tensor.device).record_event()

    def array(self) -> Array:
        """Wait for it."""
        if self._event is not None:
            self._event.synchronize()
        return np.asarray(self._host.numpy())


def host_buffer(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Return memory that a device copies from and to by itself; ordinary memory where none can be pinned."""
    torch = import_torch()
    try:
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    except RuntimeError:
        return torch.empty(shape, dtype=dtype)


class _Buffer:
    """Memory for a block of rows, and the event after which it may be written to again."""

    def __init__(self) -> None:
        self._memory: Tensor = None
        self.free: Any = None

    def filled(self, rows: Array) -> Tensor:
        if self.free is not None:
            self.free.synchronize()
        source = as_tensor(rows)
        if self._memory is None or len(self._memory) < len(source) or self._memory.dtype != source.dtype:
            self._memory = host_buffer(tuple(source.shape), source.dtype)
        part = self._memory[: len(source)]
        part.copy_(source)
        return part


class StreamedRows:
    """Copies of rows to a CUDA device, on a stream of their own."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._stream = import_torch().cuda.Stream(device)
        self._buffers = [_Buffer(), _Buffer()]

    def upload(self, rows: Array) -> Tensor:
        """Begin to copy a block, and let the computing stream wait for it."""
        torch = import_torch()
        self._buffers.reverse()
        part = self._buffers[0].filled(rows)
        computing = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            X = part.to(self._device, non_blocking=True)
        computing.wait_stream(self._stream)
        X.record_stream(computing)
        return X

    def mark(self) -> None:
        """Let the next but one block wait until what has been launched is done."""
        self._buffers[0].free = import_torch().cuda.current_stream(self._device).record_event()


class CopiedRows:
    """Copies of rows to a device without streams; none for the host itself."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def upload(self, rows: Array) -> Tensor:
        """Copy a block."""
        return as_tensor(rows).to(self._device)

    def mark(self) -> None:
        """Do nothing: copies are over when they return."""


class Sums:
    """Sums in float64 on the device."""

    def __init__(self, shape: tuple[int, int], device: Any) -> None:
        torch = import_torch()
        self._total = torch.zeros(shape, dtype=torch.float64, device=device)

    def add(self, parts: Tensor) -> None:
        """Add tensors, which are one along the first axis."""
        self._total += parts.sum(dim=0, dtype=self._total.dtype)

    def array(self) -> Array:
        """Return the sum."""
        return np.asarray(self._total.cpu().numpy())


class CompensatedSums:
    """Sums in float32 and what they have lost to rounding, for devices without float64 (Knuth's two-sum)."""

    def __init__(self, shape: tuple[int, int], device: Any) -> None:
        torch = import_torch()
        self._total = torch.zeros(shape, dtype=torch.float32, device=device)
        self._lost = torch.zeros_like(self._total)

    def add(self, parts: Tensor) -> None:
        """Add tensors, which are one along the first axis."""
        for part in parts:
            total = self._total + part
            of_part = total - self._total
            self._lost += (self._total - (total - of_part)) + (part - of_part)
            self._total = total

    def array(self) -> Array:
        """Return the sum in float64."""
        total, lost = (np.asarray(one.cpu().numpy(), dtype=np.float64) for one in (self._total, self._lost))
        return total + lost


def chunked_products(K: Tensor, U: Tensor) -> Tensor:
    """Compute K' U over chunks of rows, as a tensor of shape (chunks, M, k)."""
    torch = import_torch()
    (b, M), k, size = K.shape, U.shape[1], SUMMED_ROWS
    if K.dtype == torch.float64 or b <= size:
        return (K.T @ U)[None]
    if K.device.type == "cpu":  # one thread has a product of its own in cache, and batches of narrow ones are slow
        return torch.stack([K[i : i + size].T @ U[i : i + size] for i in range(0, b, size)])
    whole = b // size * size
    parts = torch.bmm(K[:whole].view(-1, size, M).transpose(1, 2), U[:whole].reshape(-1, size, k))
    return parts if whole == b else torch.cat([parts, (K[whole:].T @ U[whole:])[None]])


class Lane:
    """A device's part in the passes of one operator.

    Parameters
    ----------
    device : torch.device
    tile : function that makes a tile of dense rows on the device
    columns : SparseColumns or None
        Which make sparse rows dense.
    """

    def __init__(self, device: Any, tile: MakeTile, columns: SparseColumns | None) -> None:
        self.device, self.tile, self._columns = device, tile, columns
        self._rows = StreamedRows(device) if device.type == "cuda" else CopiedRows(device)
        self.waiting: Any = None  # a block whose product is on its way to the host
        self.V: Tensor = None
        self._sums: Any = None
        self._finite: Tensor = None

    def begin(self, V: Array | None, shape: tuple[int, int] | None) -> None:
        """Begin a pass: upload what K is multiplied with, and start a sum of the given shape."""
        self.V = None if V is None else self.upload(V)
        self._finite = import_torch().ones((), dtype=import_torch().bool, device=self.device)
        if shape is not None:
            self._sums = (Sums if has_float64(self.device) else CompensatedSums)(shape, self.device)

    def end(self) -> None:
        """Let go of what belongs to a pass."""
        self.waiting = self.V = self._sums = self._finite = None

    def upload(self, array: Array) -> Tensor:
        """Copy an array to the device, without waiting for it."""
        source = as_tensor(array)
        if self.device.type != "cuda":
            return source.to(self.device)
        # from ordinary memory the copy would wait for everything that has been launched; PyTorch keeps what is pinned
        # until it has been copied
        staged = host_buffer(tuple(source.shape), source.dtype)
        staged.copy_(source)
        return staged.to(self.device, non_blocking=True)

    def upload_rows(self, rows: Any) -> Tensor:
        """Copy a block of rows to the device, as a dense tensor."""
        if not sp.issparse(rows):
            X = self._rows.upload(rows)
        else:
            assert self._columns is not None
            torch = import_torch()
            at, values = (self.upload(part) for part in self._columns.positions(rows))
            X = torch.zeros(rows.shape[0] * self._columns.width, dtype=values.dtype, device=self.device)
            X[at] = values
            X = X.view(rows.shape[0], self._columns.width)
        # collected where it is made: asking would wait for the device
        self._finite = self._finite & X.isfinite().all()
        return X

    def mark(self) -> None:
        """Say that a block of rows has been launched."""
        self._rows.mark()

    def add(self, K: Tensor, U: Tensor) -> None:
        """Add K' U to the sum."""
        self._sums.add(chunked_products(K, U))

    def saw_finite_rows(self) -> bool:
        """Return whether all rows of the pass were finite."""
        return bool(self._finite)

    def total(self) -> Array:
        """Return the sum of the pass, in float64."""
        total: Array = self._sums.array()
        return total
