"""Lower bounds for the time of a pass on a device, from data sheets and from counted instructions."""

from __future__ import annotations

from dataclasses import dataclass

_BYTES = 4 * 5  # of an entry in float32 that PyTorch writes or reads five times, see docs/devices.md
_MOST_FMA_FEATURES = 256  # beyond which PyTorch multiplies, see `backends/triton_tiles.py`


@dataclass(frozen=True)
class Peaks:
    """What a device does in a second according to its data sheet.

    operations : in float32, where a fused multiplication and addition counts as two
    memory : bytes read or written
    tf32 : operations of tensor cores in TF32, or None where the fused kernel does not use them
    exponentials : 16 in each cycle of a multiprocessor
    """

    operations: float
    memory: float
    tf32: float | None
    exponentials: float


PEAKS = {
    "A100": Peaks(19.5e12, 1.56e12, 156e12, 16 * 108 * 1.41e9),
    "H100": Peaks(67e12, 3.35e12, 495e12, 16 * 132 * 1.83e9),
    "RTX 4090": Peaks(82e12, 1.01e12, None, 16 * 128 * 2.52e9),
}


def peaks_of(name: str) -> Peaks | None:
    """Return the peaks of a device by the name that its driver reports, or None if they are not listed."""
    return next((peaks for known, peaks in PEAKS.items() if known in name), None)


def least_seconds(n: int, M: int, d: int, peaks: Peaks, *, fused: bool) -> float:
    """Return the lower bound for K'(K v) of the Gaussian kernel in float32; NaN where no fused kernel is used."""
    if not fused:
        return n * M * max(2 * d / peaks.operations, _BYTES / peaks.memory)
    if peaks.tf32 is not None:
        return n * M * 2 * max(6 * d / peaks.tf32, 2 * 8 / peaks.operations, 1 / peaks.exponentials)
    return n * M * 2 * 2 * (1.25 * d + 5) / peaks.operations if d <= _MOST_FMA_FEATURES else float("nan")
