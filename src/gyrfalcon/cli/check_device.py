"""``gyrfalcon check-device``: whether a device computes what it should, and how fast, as a report to send in."""

from __future__ import annotations

import argparse
import json
import math
import platform
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._device_checks import Check

_FORMAT = 1  # of the report
_COPIED = 1 << 28  # bytes, to measure copies by
_PHASE_ROWS = 20_000  # of the block whose phases are measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon check-device``."""
    parser.add_argument("device", nargs="*", help="cuda, cuda:1, mps, cpu, or several (not given: what there is)")
    parser.add_argument("--output", metavar="FILE", help="write the whole report as JSON, to send in")
    parser.add_argument("--short", action="store_true", help="check few rows, in seconds")
    parser.add_argument("--rows", type=int, help="rows of the benchmark (200,000, or 2,000 with --short)")
    parser.add_argument("--centers", type=int, help="centers of the benchmark (5,000, or 50 with --short)")
    parser.add_argument("--features", type=int, default=90, help="features of the benchmark")


def run(arguments: argparse.Namespace) -> int:
    """Print the report, write it to a file if one is named, and return 0 if all results were right."""
    from .._utils.atomic import check_replaceable, replacing
    from .._utils.devices import import_torch, resolve_devices
    from ._device_checks import SHORT, Sizes, checks

    if arguments.output is not None:
        check_replaceable(arguments.output)
    torch = import_torch()
    names = arguments.device or _found(torch)
    devices = list(dict.fromkeys(resolve_devices(names) or ()))
    report: dict[str, Any] = {"format": _FORMAT, "short": arguments.short, "names": names, "versions": _versions(torch)}
    report["devices"] = [_described(torch, device) for device in devices]
    print(", ".join(f"{name} {number}" for name, number in report["versions"].items()))
    for one in report["devices"]:
        print(f"{one['name']}: {one['description']}, {one['free_bytes'] / 1e9:.1f} GB free")
    report["fused"], about_fused = _fused(names)
    print(about_fused)
    done = list(checks(names, SHORT if arguments.short else Sizes()))
    report["checks"] = [{**asdict(check), "right": check.right} for check in done]
    _print_checks(done)
    report["speed"] = _speed(arguments, names, devices, report["devices"][0]["description"])
    _print_speed(report["speed"])
    wrong = sum(not check.right for check in done)
    report["wrong"] = wrong
    if arguments.output is not None:
        with replacing(arguments.output) as partial, open(partial, "w", encoding="utf-8") as file:
            json.dump(_plain(report), file, indent=1, allow_nan=False)
        print(f"wrote {arguments.output}")
    print("all results are right" if not wrong else f"{wrong} results are WRONG: please send this report in")
    return int(wrong > 0)


def _found(torch: Any) -> list[str]:
    if torch.cuda.is_available():
        return [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["mps" if torch.backends.mps.is_available() else "cpu"]


def _versions(torch: Any) -> dict[str, str]:
    import scipy

    from .._utils.version import package_version

    found = {"gyrfalcon": package_version(), "python": platform.python_version(), "torch": str(torch.__version__)}
    found |= {
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
    }
    with suppress(PackageNotFoundError):  # it is not imported for this
        found["triton"] = version("triton")
    return {name: number for name, number in found.items() if number} | {"platform": platform.platform()}


def _described(torch: Any, device: Any) -> dict[str, Any]:
    from .._utils.devices import free_memory, has_fast_float64, has_fast_tf32, total_memory

    found = {"name": str(device), "description": platform.processor() or platform.machine(), "capability": None}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"description": properties.name, "capability": f"{properties.major}.{properties.minor}"}
    return found | {
        "total_bytes": total_memory(device),
        "free_bytes": free_memory(device),
        "fast_float64": has_fast_float64(device),
        "fast_tf32": has_fast_tf32(device),
    }


def _fused(names: list[str]) -> tuple[bool, str]:
    """Return whether the fused kernel is used, and a line about it."""
    from ..kernels import Gaussian
    from ..operators import DeviceOperator
    from ._device_speed import FEW_FEATURES

    X = np.zeros((2, FEW_FEATURES), dtype=np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        used = DeviceOperator(Gaussian(1.0), X, X, device=names).fused
    reasons = "; ".join(str(warning.message) for warning in caught) or "these devices have none"
    return used, "fused kernel: used" if used else f"fused kernel: not used, {reasons}"


def _speed(arguments: argparse.Namespace, names: list[str], devices: Sequence[Any], description: str) -> dict[str, Any]:
    from .._utils.devices import has_float64
    from ._device_speed import FEW_FEATURES, copies, host_microseconds, passes, phases

    short = arguments.short
    n = arguments.rows or (2_000 if short else 200_000)
    M = arguments.centers or (50 if short else 5_000)
    d = arguments.features
    found: dict[str, Any] = {"copies": {}, "phases_in_milliseconds": {}, "passes": []}
    for device in devices:
        found["copies"][str(device)] = copies(device, _COPIED >> (8 if short else 0))
        found["phases_in_milliseconds"][str(device)] = phases(device, min(n, _PHASE_ROWS), M, FEW_FEATURES)
    found["host_microseconds_a_block"] = host_microseconds(names)
    for dtype in ["float32", "float64"] if all(map(has_float64, devices)) else ["float32"]:
        for rows, features in ((max(1, n // 4), d), (n, d), (n, FEW_FEATURES)):
            found["passes"].append(passes(names, description, dtype, rows, M, features))
    return found


def _print_checks(done: Iterable[Check]) -> None:
    groups: dict[str, list[Check]] = {}
    for check in done:
        groups.setdefault(check.group, []).append(check)
    for group, members in groups.items():
        worst = max(members, key=lambda check: check.error / (check.allowed or 1.0))
        print(f"{group}: {len(members)} results, largest error {worst.error:.1e}, allowed {worst.allowed:.0e}")
        for check in members:
            if not check.right:
                raised = "" if check.raised is None else f" ({check.raised})"
                print(f"  WRONG {check.what}: off by {check.error:.1e}{raised}")


def _print_speed(speed: dict[str, Any]) -> None:
    for device, one in speed["copies"].items():
        there, back = one["to_device_gb_per_second"], one["to_host_gb_per_second"]
        print(f"copies: {there:.1f} GB/s to {device}, {back:.1f} GB/s to the host")
    for device, ways in speed["phases_in_milliseconds"].items():
        for way, times in ways.items():
            print(f"a block on {device}, {way}: " + ", ".join(f"{name} {t:.3g} ms" for name, t in times.items()))
    print(f"host: {speed['host_microseconds_a_block']:.0f} microseconds a block")
    for one in speed["passes"]:
        model = "" if one["model_seconds"] is None else f", at least {one['model_seconds']:.3g} s by the model"
        print(
            f"K'(K v) of {one['rows']:,} rows, {one['centers']:,} centers, {one['features']} features in "
            f"{one['dtype']}: {one['seconds']:.3g} s there (blocks of {one['block_rows']:,} rows"
            f"{', fused' if one['fused'] else ''}){model}, about {one['seconds_on_the_cores']:.3g} s on this "
            "machine's cores"
        )


def _plain(value: Any) -> Any:
    """Return what JSON can hold: null for numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
