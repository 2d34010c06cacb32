"""What is going to stay in the memory of a device: everyone asks here, so that two do not count on the same bytes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from .devices import free_memory

if TYPE_CHECKING:
    import torch

_USABLE = 0.85  # of the memory that is free: allocators lose some of it between tensors

_claims: dict[int, weakref.ref[Claim]] = {}


class Claim:
    """Bytes of a device that its owner is going to allocate; `pending` is set to 0 once they are no longer free.

    A claim ends when nothing refers to it.
    """

    def __init__(self, device: torch.device, nbytes: int) -> None:
        self.device, self.pending = device, nbytes
        key = id(self)
        _claims[key] = weakref.ref(self, lambda _: _claims.pop(key, None))


def usable_memory(device: torch.device) -> int:
    """Return the bytes of a device that can be used for a while, and freed before others allocate what they claim."""
    return int(_USABLE * free_memory(device))


def unclaimed_memory(device: torch.device) -> int:
    """Return the bytes of a device that can be used for long: those that nobody has claimed."""
    claims = [claim() for claim in list(_claims.values())]
    taken = sum(claim.pending for claim in claims if claim is not None and claim.device == device)
    return max(0, usable_memory(device) - taken)
