"""Two CUDA devices that are not there: tensors of the CPU that say where they would be, and refuse to be mixed.

The code for CUDA runs as it is, streams and pinned memory included, and gives numbers that can be compared.
PyTorch's own FakeTensorMode cannot index tensors of a device that PyTorch was built without.
"""

from __future__ import annotations

import contextlib

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

CPU = torch.device("cpu")


class MixedDevicesError(AssertionError):
    """An operation was given tensors of two devices."""


class Event:
    def synchronize(self):
        pass


class Stream:
    def __init__(self, device=None):
        self.device = device

    def wait_stream(self, other):
        assert other.device == self.device

    def record_event(self):
        return Event()


class PretendedDevices(TorchFunctionMode):
    """Keeps the pretended device of every tensor, and what a test wants to go wrong.

    Attributes
    ----------
    seen : set of the devices that computed something
    fetched : list of the shapes that were copied from a device to the host
    sent : list of the shapes that were copied from the host to a device
    room : most rows of a tile, or None; beyond it a device is out of memory
    pins : whether memory can be pinned
    breaks_after : number of tiles after which cuda:1 breaks, or None
    """

    def __init__(self):
        super().__init__()
        self.seen, self.room, self.pins, self.pinned, self.breaks_after, self.tiles = set(), None, True, 0, None, 0
        self.fetched, self.sent = [], []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if name == "__get__" and getattr(function, "__self__", None) is torch.Tensor.device:
            return where(tensors[0])
        if kwargs.pop("pin_memory", False):
            if not self.pins:
                raise RuntimeError("cannot pin memory")
            self.pinned += 1
        if name == "copy_":
            self.note(args[1], where(args[0]))
            return function(*args, **kwargs)
        if name == "numpy":
            assert where(tensors[0]) == CPU, "memory of a device cannot be read"
        at = self.place(function, tensors)
        if name == "addmm":
            self.count(args[1], at)
        if name in ("to", "cpu"):
            at = CPU if name == "cpu" else next((torch.device(a) for a in args[1:] if is_device(a)), at)
            dtype = next((a for a in args[1:] if isinstance(a, torch.dtype)), args[0].dtype)
            self.note(args[0], at)
            copied = kwargs.get("copy", False) or at != where(args[0])
            out = args[0].clone() if copied else args[0]
            out = out if out.dtype == dtype else out.to(dtype)
        else:
            if "device" in kwargs:
                at, kwargs["device"] = torch.device(kwargs["device"]), CPU
            out = function(*args, **kwargs)
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                tensor._pretended = at
        return out

    def note(self, tensor, at):
        """Count copies between a device and the host."""
        if CPU in (at, where(tensor)) and at != where(tensor):
            (self.fetched if at == CPU else self.sent).append(tuple(tensor.shape))

    def place(self, function, tensors):
        """Return the one device of an operation; single numbers of the CPU may join any other."""
        places = {where(tensor) for tensor in tensors if tensor.ndim or where(tensor) != CPU}
        if len(places) > 1:
            raise MixedDevicesError(f"{function.__name__} was given tensors of {places}")
        self.seen |= places
        return places.pop() if places else CPU

    def count(self, X, at):
        self.tiles += 1
        if self.room is not None and len(X) > self.room:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory, as a test wants it")
        if self.breaks_after is not None and at.index == 1 and self.tiles > self.breaks_after:
            raise RuntimeError("an illegal memory access was encountered")


def is_device(argument):
    return isinstance(argument, torch.device | str)


def where(tensor):
    return tensor.__dict__.get("_pretended", CPU)


def pretend(monkeypatch, free=8 << 30, reserved=0):
    """Make PyTorch find two CUDA devices."""
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: 0,
        "mem_get_info": lambda device: (free, 16 << 30),
        "memory_reserved": lambda device: reserved,
        "memory_allocated": lambda device: 0,
        "empty_cache": lambda: None,
        "Stream": Stream,
        "current_stream": lambda device=None: Stream(device),
        "stream": lambda stream: contextlib.nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    return PretendedDevices()
