"""Memory of devices: how many rows make a block, and whether rows stay there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.devices import free_memory, total_memory
from .._utils.reservations import Claim, unclaimed_memory
from ._lanes import SUMMED_ROWS

if TYPE_CHECKING:
    import torch

# Entries of K in a block: some milliseconds of a device's time, or what stays in the cache of a core
_BLOCK_ENTRIES = {"cuda": 1 << 27, "mps": 1 << 26, "cpu": 1 << 19}
_COPIES = 8  # copies of a block's entries that must fit in memory: K, the temporaries of its profile, and as much again
LEAST_ROWS = 32  # of a block
# Entries of K in a block of fused products, which are not in memory, as a multiple of those in other blocks
_FUSED = 8
_FUSED_NUMBERS = 1 << 24  # of the rows of such a block


def block_size(devices: Sequence[torch.device], shape: tuple[int, int], width: int, dtype: np.dtype[Any]) -> int:
    """Return how many of n rows make a block, for K of shape (n, M) and rows of some width on a device.

    It follows from the memory that the devices have, whoever else uses it, so that the same fit has the same bits
    again; only if half of what is free does not suffice, it follows from that.
    """
    (n, M), bytes_of_entry = shape, _COPIES * dtype.itemsize
    size = -(-n // len(devices))
    for device in dict.fromkeys(devices):
        room = min(total_memory(device) // 4, free_memory(device) // 2)
        entries = min(_BLOCK_ENTRIES[device.type], _power_of_two(room // bytes_of_entry))
        size = min(size, entries // max(M, width))
    return max(LEAST_ROWS, -(-size // SUMMED_ROWS) * SUMMED_ROWS if size > SUMMED_ROWS else size)


def fused_block_size(block: int, shape: tuple[int, int], width: int, n_devices: int) -> int:
    """Return how many rows make a block whose entries of K are never in memory, where `block` do otherwise."""
    share = max(-(-shape[0] // n_devices), 1)
    return max(block, min(_FUSED * block, _FUSED_NUMBERS // width, -(-share // SUMMED_ROWS) * SUMMED_ROWS))


def claims(
    devices: Sequence[torch.device], shape: tuple[int, int], width: int, dtype: np.dtype[Any], block: int, room: int
) -> dict[str, list[Claim]]:
    """Claim memory of each device for a block of K and for its rows, or nothing if one of the devices has too little.

    `room` is the number of bytes that rows may take on the host.
    """
    n, M = shape
    found: dict[str, list[Claim]] = {"block": [], "rows": []}
    share = -(-n // len(devices))
    for device in dict.fromkeys(devices):
        rows = devices.count(device) * share * width * dtype.itemsize
        entries = 0 if device.type == "cpu" else min(block, share) * M * _COPIES * dtype.itemsize
        if rows > (room if device.type == "cpu" else unclaimed_memory(device) - entries):
            return {}
        found["block"].append(Claim(device, entries))
        found["rows"].append(Claim(device, rows))
    return found


def _power_of_two(number: int) -> int:
    """Return the largest power of two that is not larger: figures of free memory change a little all the time."""
    return 1 << max(0, number.bit_length() - 1)
