"""Copies between the host and PyTorch's devices, by pinned memory and beside the computing where there are streams."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .devices import import_torch

Array = NDArray[Any]
Tensor = Any


def as_tensor(array: Array) -> Tensor:
    """Return an array as a tensor on the host, which shares its memory if it is writeable."""
    torch = import_torch()
    # torch warns of arrays that are not writeable
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

    def tensor(self) -> Tensor:
        """Wait for it, and return it as a tensor."""
        if self._event is not None:
            self._event.synchronize()
        return self._host

    def array(self) -> Array:
        """Wait for it, and return it as an array."""
        return np.asarray(self.tensor().numpy())


def host_buffer(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Return pinned memory, which a device reads and writes by itself, or ordinary memory if none can be pinned."""
    torch = import_torch()
    try:
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)
    except RuntimeError:
        return torch.empty(shape, dtype=dtype, device="cpu")


def upload(source: Tensor, device: Any) -> Tensor:
    """Copy a tensor on the host to a device, without waiting for the device."""
    if device.type != "cuda":
        return source.to(device)
    # from ordinary memory the copy would wait for everything that has been launched; PyTorch keeps what is pinned
    # until it has been copied
    staged = host_buffer(tuple(source.shape), source.dtype)
    staged.copy_(source)
    return staged.to(device, non_blocking=True)


class _Buffer:
    """Pinned memory for a copy, and the event after which it may be written to again."""

    def __init__(self) -> None:
        self._memory: Tensor = None
        self.free: Any = None

    def filled(self, source: Tensor) -> Tensor:
        if self.free is not None:
            self.free.synchronize()
        if self._memory is None or self._memory.numel() < source.numel() or self._memory.dtype != source.dtype:
            self._memory = host_buffer((source.numel(),), source.dtype)
        part = self._memory[: source.numel()].view(source.shape)
        part.copy_(source)
        return part


class StreamedCopies:
    """Copies to a CUDA device on a stream of their own, so that copying and computing overlap.

    `n_buffers` is the maximum number of copies that are being made or used.
    """

    def __init__(self, device: Any, n_buffers: int = 2) -> None:
        self.device = device
        self._stream = import_torch().cuda.Stream(device)
        self._buffers = [_Buffer() for _ in range(n_buffers)]
        self._used: list[_Buffer] = []

    def upload(self, source: Tensor) -> Tensor:
        """Begin to copy a tensor on the host, and let the computing stream wait for it."""
        torch = import_torch()
        buffer = self._buffers[0]
        part = buffer.filled(source)  # may find no memory, or be interrupted: the buffer is still in its place then
        self._buffers = [*self._buffers[1:], buffer]
        self._used.append(buffer)
        computing = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._stream):
            try:
                there = part.to(self.device, non_blocking=True)
            finally:  # a copy that is interrupted here may have begun
                buffer.free = self._stream.record_event()
        computing.wait_stream(self._stream)
        there.record_stream(computing)
        return there

    def mark(self) -> None:
        """Let later copies wait for everything launched so far, so that no more than the buffers are in use."""
        launched = import_torch().cuda.current_stream(self.device).record_event()
        for buffer in self._used:
            buffer.free = launched
        self._used = []


class PlainCopies:
    """Copies to a device without streams; none for the host itself."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def upload(self, source: Tensor) -> Tensor:
        """Copy a tensor on the host."""
        return source.to(self.device)

    def mark(self) -> None:
        """Do nothing: copies are over when they return."""


Copies = StreamedCopies | PlainCopies


def copies_to(device: Any, n_buffers: int = 2) -> Copies:
    """Return the object that copies to a device."""
    return StreamedCopies(device, n_buffers) if device.type == "cuda" else PlainCopies(device)
