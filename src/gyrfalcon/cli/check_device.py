"""``gyrfalcon check-device``: whether a device computes what it should, and how fast, as a report to send in."""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

# Errors of products of the kernel matrix relative to the sums of the terms' sizes: some hundred roundings
_TOLERANCE = {np.dtype(np.float32): 2e-5, np.dtype(np.float64): 1e-12}
_CHECKED_ROWS, _CHECKED_CENTERS = 1_000, 70
_FEW_FEATURES = 18  # of the benchmark of the fused kernel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon check-device``."""
    parser.add_argument("device", nargs="*", help="cuda, cuda:1, mps, cpu, or several (not given: what there is)")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the benchmark")
    parser.add_argument("--centers", type=int, default=5_000, help="centers of the benchmark")
    parser.add_argument("--features", type=int, default=90, help="features of the benchmark")


def run(arguments: argparse.Namespace) -> int:
    """Print the report, and return 0 if all products were right."""
    from .._utils.devices import free_memory, has_float64, import_torch, resolve_devices
    from .._utils.memory import format_bytes
    from .._utils.version import package_version

    torch = import_torch()
    names = arguments.device or _found(torch)
    devices = resolve_devices(names)
    assert devices is not None
    print(f"gyrfalcon {package_version()}, torch {torch.__version__}, {platform.platform()}")
    for device in dict.fromkeys(devices):
        print(f"{device}: {_description(torch, device)}, {format_bytes(free_memory(device))} free")
    fused, about_fused = _fused(names)
    print(about_fused)
    dtypes = [np.float32, np.float64] if all(map(has_float64, devices)) else [np.float32]
    wrong = 0
    for dtype in dtypes:
        worst = 0.0
        for what, error in _errors(names, dtype):
            worst = max(worst, error)
            if not error < _TOLERANCE[np.dtype(dtype)]:
                wrong += 1
                print(f"  WRONG {what} in {np.dtype(dtype)}: off by {error:.1e}")
        print(f"products in {np.dtype(dtype)}: largest error {worst:.1e}, allowed {_TOLERANCE[np.dtype(dtype)]:.0e}")
    for dtype in dtypes:
        print(_speed(names, dtype, arguments.rows, arguments.centers, arguments.features))
    if fused:
        print(_speed(names, np.float32, arguments.rows, arguments.centers, _FEW_FEATURES))
    print("all products are right" if not wrong else f"{wrong} products are WRONG: please send this report in")
    return int(wrong > 0)


def _found(torch: Any) -> list[str]:
    if torch.cuda.is_available():
        return [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["mps" if torch.backends.mps.is_available() else "cpu"]


def _description(torch: Any, device: Any) -> str:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return f"{properties.name}, compute capability {properties.major}.{properties.minor}"
    return platform.processor() or platform.machine()


def _fused(names: list[str]) -> tuple[bool, str]:
    """Return whether the fused kernel is used, and a line about it."""
    from ..kernels import Gaussian
    from ..operators import DeviceOperator

    X = np.zeros((2, _FEW_FEATURES), dtype=np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        used = DeviceOperator(Gaussian(1.0), X, X, device=names).fused
    reasons = "; ".join(str(warning.message) for warning in caught) or "these devices have none"
    return used, "fused kernel: used" if used else f"fused kernel: not used, {reasons}"


def _errors(names: list[str], dtype: Any) -> Iterator[tuple[str, float]]:
    """Compare products of every named kernel with NumPy's in float64: dense rows, also in TF32, and sparse ones."""
    from .._utils.devices import round_to_tf32
    from ..kernels import NAMES
    from ..operators import DeviceOperator, Rowwise
    from ..sources.tensors import as_torch, to_host

    rng = np.random.default_rng(0)
    X = rng.standard_normal((_CHECKED_ROWS, 6)).astype(dtype)
    sparse = sp.random_array((_CHECKED_ROWS, 200), density=0.05, format="csr", rng=rng).astype(dtype)
    V = rng.standard_normal((_CHECKED_CENTERS, 2)).astype(dtype)
    U = rng.standard_normal((_CHECKED_ROWS, 2)).astype(dtype)
    for kind, name in {kind: name for name, kind in reversed(NAMES.items())}.items():
        cases: list[tuple[Any, str, dict[str, Any]]] = [
            (X, name, {"fuses": False}),
            (sparse, f"{name}, sparse rows", {}),
        ]
        if dtype == np.float32:
            cases.append((round_to_tf32(X), f"{name}, TF32", {"precision": "tf32"}))
        if DeviceOperator(kind(), X, X[:_CHECKED_CENTERS], device=names).fused:
            cases.append((X, f"{name}, fused", {}))
        for rows, what, options in cases:
            centers = rows[:_CHECKED_CENTERS]
            operator = DeviceOperator(kind(), rows, centers, device=names, **options)
            K = operator.kernel(_dense(rows), _dense(centers))
            size = np.abs(K)
            for _ in range(2):  # the second time rows may have stayed on the device
                yield f"K V, {what}", _off(operator.matmat(V), K @ V, size @ np.abs(V))
                yield f"K' U, {what}", _off(operator.rmatmat(U), K.T @ U, size.T @ np.abs(U))
                terms = size.T @ (np.abs(U) + size @ np.abs(V))
                for where, portable in (("there", True), ("here", False)):
                    found = operator.sandwich(V, Rowwise(_residual, U, portable=portable))
                    yield f"K'(U - K V), U - K V {where}, {what}", _off(found, K.T @ (U - K @ V), terms)
    for name in dict.fromkeys(names):  # each has the rows, and gives some to the others
        there = DeviceOperator("gaussian", as_torch(X).to(name), X[:_CHECKED_CENTERS], device=names)
        K = there.kernel(_dense(X), _dense(X[:_CHECKED_CENTERS]))
        yield f"K V, a tensor on {name}", _off(to_host(there.image(V)), K @ V, K @ np.abs(V))


def _residual(T: Any, U: Any) -> Any:
    return U - T


def _dense(rows: Any) -> Any:
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64)


def _off(found: Any, exact: Any, size: Any) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(size))


def _speed(names: list[str], dtype: Any, n: int, M: int, d: int) -> str:
    from ..operators import DeviceOperator, KernelOperator

    X = np.random.default_rng(0).standard_normal((n, d), dtype=dtype)
    v = np.ones(M)
    there, native = DeviceOperator("gaussian", X, X[:M], device=names), KernelOperator("gaussian", X, X[:M])
    seconds = _seconds(lambda: there.sandwich(v))
    part = native.on(X[: max(1, n // 10)])
    here = _seconds(lambda: part.sandwich(v)) * n / part.shape[0]
    rate = n * M * 2 * (d + 2) / seconds / 1e12
    blocks = f"blocks of {there.block_size:,} rows{', fused' if there.fused else ''}"
    return (
        f"K'(K v) of {n:,} rows, {M:,} centers, {d} features in {np.dtype(dtype)}: {seconds:.3g} s there "
        f"({rate:.2g} Tflop/s, {blocks}), about {here:.3g} s on this machine's cores"
    )


def _seconds(run: Callable[[], object]) -> float:
    """Return the shortest of three times, after one that brings the rows there."""
    run()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
