"""What ``gyrfalcon check-device`` measures: copies, the phases of a block, what a block costs the host, and passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .._utils.copies import host_buffer
from .._utils.devices import free_memory, import_torch, resolve_devices
from ..backends import torch_tiles, triton_tiles
from ..kernels import Gaussian
from ..operators import DeviceOperator, KernelOperator
from ..operators._lanes import Lane
from ._device_model import least_seconds, peaks_of

FEW_FEATURES = 18  # of the instruction counts in docs/devices.md
_REPEATS = 3
_SMALL_BLOCKS, _SMALL_ROWS, _FEW_CENTERS = 200, 512, 8  # blocks that a device needs next to no time for


def copies(device: Any, nbytes: int) -> dict[str, float]:
    """Return GB a second from pinned memory to a device and back."""
    torch = import_torch()
    n = max(1, min(nbytes, free_memory(device) // 4) // 4)
    here, there = host_buffer((n,), torch.float32), torch.empty(n, dtype=torch.float32, device=device)
    here.zero_()
    up = _best(device, lambda: there.copy_(here, non_blocking=True))
    down = _best(device, lambda: here.copy_(there, non_blocking=True))
    return {"to_device_gb_per_second": 4e-9 * n / up, "to_host_gb_per_second": 4e-9 * n / down}


def phases(device: Any, n: int, M: int, d: int) -> dict[str, dict[str, float]]:
    """Return milliseconds of each phase of a block on a device, by its own events where it has them."""
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    kernel = Gaussian(float(np.sqrt(d)))
    tile = torch_tiles.prepare(kernel, X[:M], device)
    ways = {"unfused": None, "fused": triton_tiles.prepare(kernel, X[:M], device)}
    return {
        name: _phases_of(Lane(device, tile, None, fused), X, min(M, n))
        for name, fused in ways.items()
        if name == "unfused" or fused is not None
    }


def _phases_of(lane: Lane, X: Any, M: int) -> dict[str, float]:
    lane.begin(np.ones((M, 1), dtype=np.float32), (M, 1))
    rows = lane.upload_rows(X)
    U = lane.upload(np.ones((len(X), 1), dtype=np.float32))
    K = lane.tile(rows)

    def copy_rows() -> None:
        lane.upload_rows(X)
        lane.mark()

    runs: dict[str, Callable[[], object]] = {
        "rows_to_device": copy_rows,
        "tile": lambda: lane.tile(rows),
        "K_v": lambda: lane.image(K),
        "K_transposed_u": lambda: lane.add(K, U),
    }
    found = {phase: 1e3 * _best(lane.device, run) for phase, run in runs.items()}
    lane.end()
    return found


def host_microseconds(names: list[str]) -> float:
    """Return microseconds of the host for each block, by blocks that a device has next to nothing to do for."""
    X = np.zeros((_SMALL_BLOCKS * _SMALL_ROWS, 1), dtype=np.float32)
    operator = DeviceOperator(Gaussian(1.0), X, X[:_FEW_CENTERS], device=names)
    operator.block_size = _SMALL_ROWS
    v = np.ones(_FEW_CENTERS)
    operator.sandwich(v)  # keeps rows
    return 1e6 * min(_seconds(lambda: operator.sandwich(v)) for _ in range(_REPEATS)) / _SMALL_BLOCKS


def passes(names: list[str], description: str, dtype: str, n: int, M: int, d: int) -> dict[str, Any]:
    """Measure K'(K v) of the Gaussian kernel beside this machine's cores and the model's lower bound."""
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.dtype(dtype))
    kernel, Z, v = Gaussian(float(np.sqrt(d))), X[:M], np.ones(min(M, n))
    there = DeviceOperator(kernel, X, Z, device=names)
    first = _seconds(lambda: there.sandwich(v))
    seconds = min(_seconds(lambda: there.sandwich(v)) for _ in range(_REPEATS))
    part = KernelOperator(kernel, X[: max(1, n // 10)], Z, memory_budget=0)
    here = min(_seconds(lambda: part.sandwich(v)) for _ in range(2)) * n / part.shape[0]
    peaks = peaks_of(description) if dtype == "float32" else None
    devices = len(resolve_devices(names) or ())
    least = None if peaks is None else least_seconds(n, len(Z), d, peaks, fused=there.fused) / devices
    return {
        "rows": n,
        "centers": len(Z),
        "features": d,
        "dtype": dtype,
        "fused": there.fused,
        "block_rows": there.block_size,
        "first_pass_seconds": first,
        "seconds": seconds,
        "model_seconds": None if least is None or np.isnan(least) else least,
        "seconds_on_the_cores": here,
    }


def _best(device: Any, run: Callable[[], object]) -> float:
    """Return the fewest seconds of some runs after a first one, by events on CUDA."""
    torch = import_torch()
    run()
    times = []
    for _ in range(_REPEATS):
        if device.type == "cuda":
            with torch.cuda.device(device):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                run()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) / 1e3)
        else:
            times.append(_seconds(lambda: (run(), torch.mps.synchronize() if device.type == "mps" else None)))
    return max(min(times), 1e-9)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
