"""Torch and its devices: the one place that imports torch, which is optional, and only when a device is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .checks import one_of
from .memory import available_memory
from .warnings import warn

if TYPE_CHECKING:
    import torch

_PRECISION = one_of(None, "tf32")
_REMEDY = 'give None, "cpu", "cuda", "cuda:1", "mps", or a list of these'

# How many devices of a kind there are; ROCm's are named "cuda" too
_COUNT: dict[str, Callable[[Any], int]] = {
    "cpu": lambda torch: 1,
    "cuda": lambda torch: torch.cuda.device_count() if torch.cuda.is_available() else 0,
    "mps": lambda torch: int(torch.backends.mps.is_available()),
}


def import_torch() -> Any:
    """Import torch, or say which extra installs it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("devices are run by PyTorch: pip install torch") from error
    return torch


def is_torch(X: Any) -> bool:
    """Whether `X` is a tensor of PyTorch, which is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def resolve_devices(device: Any) -> tuple[torch.device, ...] | None:
    """Check the devices that a user names, and return them with their numbers; None if `device` is None.

    `device` is a name, a device of PyTorch, or a list of these, which may name a device more than once.
    """
    if device is None:
        return None
    named = list(device) if isinstance(device, Sequence) and not isinstance(device, str) else [device]
    if not named:
        raise ValueError(f"device={device!r} names no device: {_REMEDY}")
    return tuple(_resolve(one) for one in named)


def _resolve(name: Any) -> torch.device:
    torch = import_torch()
    if not isinstance(name, str | torch.device):
        raise TypeError(f"device={name!r} is not the name of a device: {_REMEDY}")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device={name!r} is not a device that PyTorch knows: {_REMEDY}") from error
    if device.type not in _COUNT:
        raise ValueError(f"device={name!r} cannot compute kernels: {_REMEDY}")
    count = _COUNT[device.type](torch)
    if (device.index or 0) >= count:
        there = f"has {count} of that kind" if count else "finds none of that kind"
        raise ValueError(f"device={name!r} is not available: PyTorch {torch.__version__} {there}; use another, or None")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device if device.type == "cuda" else torch.device(device.type)


def check_precision(precision: Any, device: Any) -> None:
    """Raise a ValueError unless `precision` is None, or "tf32" for a device."""
    _PRECISION("precision", precision)
    if precision is not None and device is None:
        raise ValueError(f'precision={precision!r} is for devices: give one, as device="cuda", or precision=None')


def free_memory(device: torch.device) -> int:
    """Return the bytes that can be allocated on a device, including memory that PyTorch has reserved and not used."""
    torch = import_torch()
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    if device.type == "mps":
        return max(0, int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()))
    return available_memory()


def total_memory(device: torch.device) -> int:
    """Return the bytes of a device, used or not; for the host, those that are free."""
    torch = import_torch()
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return int(torch.mps.recommended_max_memory()) if device.type == "mps" else available_memory()


def has_float64(device: torch.device) -> bool:
    """Return whether a device computes in float64 at all."""
    return device.type != "mps"


# Compute capabilities whose float64 is half as fast as float32, or as fast; on others it is 1/32 or 1/64
_FAST_FLOAT64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
# Those whose tensor cores make three products in TF32 faster than other units make one in float32
_FAST_TF32 = {(8, 0), (9, 0)}


def _capability(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability of an NVIDIA device, and None for others."""
    torch = import_torch()
    if device.type != "cuda" or torch.version.hip is not None:
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return int(major), int(minor)


def has_fast_float64(device: torch.device) -> bool:
    """Return whether float64 is not much slower than float32 on a device; those for games have few units for it."""
    capability = _capability(device)
    return has_float64(device) and (capability is None or capability in _FAST_FLOAT64)


def has_fast_tf32(device: torch.device) -> bool:
    """Return whether three products in TF32 are faster on a device than one in float32."""
    return _capability(device) in _FAST_TF32


def has_ptx(device: torch.device) -> bool:
    """Return whether a device understands the instructions of NVIDIA's PTX."""
    return _capability(device) is not None


def require_precision(device: Any, dtype: Any) -> None:
    """Raise a ValueError if one of the devices that a user names cannot compute in a precision."""
    for one in resolve_devices(device) or ():
        if np.dtype(dtype) == np.float64 and not has_float64(one):
            raise ValueError(f'device={str(one)!r} has no float64: use dtype="float32", or float32 rows')


def warn_if_slow(devices: Sequence[torch.device], dtype: Any) -> None:
    """Warn of devices that have few units for float64, if this is what they are to compute in."""
    if np.dtype(dtype) != np.float64:
        return
    for device in dict.fromkeys(devices):
        if not has_fast_float64(device):
            remedy = 'use dtype="float32", or float32 rows'
            warn(f"{device} computes in float64 at 1/32 of its speed in float32 or less: {remedy}", UserWarning)


def torch_dtype(dtype: Any) -> Any:
    """Return PyTorch's type for NumPy's float32 or float64."""
    torch = import_torch()
    return torch.float32 if np.dtype(dtype) == np.float32 else torch.float64


def round_to_tf32(array: Any) -> Any:
    """Round float32 numbers, an array or a tensor, to the 11 bits of TF32, with ties to even.

    A matrix product in TF32 then does not round its arguments. What is not finite stays as it is: adding to the bits of
    a NaN could make a number of it.
    """
    module = np if isinstance(array, np.ndarray) else import_torch()
    bits = array.view(module.int32)
    rounded = (bits + (0x0FFF + ((bits >> 13) & 1))) & ~0x1FFF
    return module.where(module.isfinite(array), rounded, bits).view(array.dtype)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether PyTorch failed for lack of memory; only CUDA has its own exception for that.

    Libraries that it calls, such as CUBLAS and CUSOLVER, each have a status of that name, and report that they are not
    initialized if there was no memory for their handle. MPS refuses tensors that are larger than its largest buffer.
    """
    words = str(error)
    return isinstance(error, import_torch().cuda.OutOfMemoryError) or any(sign in words for sign in _NO_MEMORY)


_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "_STATUS_ALLOC_FAILED",
    "_STATUS_NOT_INITIALIZED",
    "Invalid buffer size",
)
