"""Two CUDA devices that are not there: tensors of the CPU that say where they would be, and refuse to be mixed.

The code for CUDA runs as it is, streams and pinned memory included, and gives numbers that can be compared. Everything
is done at once, but streams count what is launched: what a real device might use too early is an `OrderError`.
PyTorch's own FakeTensorMode cannot index tensors of a device that PyTorch was built without.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

CPU = torch.device("cpu")


class MixedDevicesError(AssertionError):
    """An operation was given tensors of two devices."""


class OrderError(AssertionError):
    """Something was used before it was sure to be there."""


class Event:
    """How many launches of each stream are over when it has happened."""

    known = Counter()  # what the host has waited for

    def __init__(self, over):
        self.over = over

    def synchronize(self):
        Event.known |= self.over


class Stream:
    current = threading.local()  # of each device
    defaults = {}

    def __init__(self, device=None):
        self.device, self.before = device, Counter()  # launches of each stream that are over before the next one here

    @classmethod
    def of(cls, device=None):
        device = device or torch.device("cuda", 0)
        return vars(cls.current).get(device) or cls.defaults.setdefault(device, cls(device))

    @classmethod
    @contextlib.contextmanager
    def entered(cls, stream):
        given = cls.of(stream.device)
        vars(cls.current)[stream.device] = stream
        try:
            yield
        finally:
            vars(cls.current)[stream.device] = given

    def launch(self):
        self.before[self] += 1
        return self, self.before[self]

    def wait_stream(self, other):
        assert other.device == self.device
        self.before |= other.before

    def record_event(self):
        return Event(self.before.copy())


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
        self.read_from = {}  # host memory that launched copies read from, and these

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
        for tensor in tensors:
            check_order(tensor.__dict__.get("_launched"), where(tensor), f"the result of a launch, by {name}")
        if name == "copy_":
            if where(args[0]) == CPU:
                _, launched = self.read_from.get(memory(args[0]), (None, None))
                check_order(launched, CPU, "a buffer that is being copied, by another copy")
            self.note(args[1], where(args[0]))
            self.launch_copy(args[1], where(args[0]), args[0], kwargs)
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
            if copied:
                self.launch_copy(args[0], at, out, kwargs)
        else:
            if "device" in kwargs:
                at, kwargs["device"] = torch.device(kwargs["device"]), CPU
            out = function(*args, **kwargs)
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                tensor._pretended = at
                if at != CPU and name != "to":
                    tensor._launched = Stream.of(at).launch()
        return out

    def launch_copy(self, source, at, out, options):
        """Launch a copy on the stream of the device: the host goes on, or waits for it."""
        if CPU == at == where(source):
            return
        stream = Stream.of(where(source) if at == CPU else at)
        launched = stream.launch()
        if at != CPU:
            out._launched = launched
        if not options.get("non_blocking"):
            stream.record_event().synchronize()
        elif at == CPU:
            out._launched = launched
        else:
            self.read_from[memory(source)] = source, launched  # with the tensor, so that no other gets its memory

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


def check_order(launched, at, what):
    """Raise an OrderError unless the host, or the current stream of a device, comes after a launch."""
    before = Event.known if at == CPU else Stream.of(at).before
    if launched is not None and before[launched[0]] < launched[1]:
        raise OrderError(f"{what}, before {'the host' if at == CPU else at} has waited for it")


def memory(tensor):
    return tensor.untyped_storage().data_ptr()


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
        "get_device_capability": lambda device: (8, 0),
        "mem_get_info": lambda device: (free, 16 << 30),
        "memory_reserved": lambda device: reserved,
        "memory_allocated": lambda device: 0,
        "empty_cache": lambda: None,
        "Stream": Stream,
        "current_stream": Stream.of,
        "stream": Stream.entered,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    return PretendedDevices()
