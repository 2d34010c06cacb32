"""Backends, which run blocks: they prepare centers once, and make `Tiles` that multiply blocks of rows with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

from .._utils.warnings import warn
from .._utils.words import listed
from ..kernels import Kernel
from .base import BlockWeight, Tiles, check_centers, check_weighted, weighted

__all__ = ["BlockWeight", "Tiles", "check_centers", "check_weighted", "prepare", "weighted"]


def _reference(kernel: Kernel, centers: Any) -> Tiles:
    from .reference import prepare

    return prepare(kernel, centers)


def _native(kernel: Kernel, centers: Any) -> Tiles:
    from .native import prepare

    return prepare(kernel, centers)


@cache  # so that the warning comes once, not with every operator
def _best() -> Callable[[Kernel, Any], Tiles]:
    try:
        from . import native  # noqa: F401
    except ImportError as error:
        warn(
            f"the native extension cannot be imported ({error}): the NumPy backend is used, several times slower. "
            "Reinstall gyrfalcon where a C++ compiler is present.",
            RuntimeWarning,
        )
        return _reference
    return _native


def _auto(kernel: Kernel, centers: Any) -> Tiles:
    return _best()(kernel, centers)


_BACKENDS: dict[str, Callable[[Kernel, Any], Tiles]] = {
    "auto": _auto,
    "native": _native,
    "reference": _reference,
}


def prepare(kernel: Kernel, centers: Any, backend: str = "auto") -> Tiles:
    """Make the `Tiles` of a resolved kernel and its centers.

    Parameters
    ----------
    kernel : Kernel
    centers : C-contiguous array or CSR matrix of shape (M, d), float32 or float64
        As `check_centers` returns them. Blocks of rows must be of the same kind.
    backend : {"auto", "native", "reference"}
        The environment variable ``GYRFALCON_BACKEND``, where it is set, replaces "auto".
    """
    if backend == "auto":
        backend = os.environ.get("GYRFALCON_BACKEND", "auto")
    if backend not in _BACKENDS:
        raise ValueError(f"backend={backend!r} is not known: use one of {listed(_BACKENDS, None, plain=True)}")
    kernel.check_precision(centers.dtype)
    return _BACKENDS[backend](kernel, centers)
