"""Backends, which run blocks: they prepare centers once, and make `Tiles` that multiply blocks of rows with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import scipy.sparse

from .._utils.warnings import warn
from .._utils.words import listed
from ..kernels import Constant, Kernel, Product, Sum, linear_form
from .base import BlockWeight, Tiles, check_centers, check_weighted, weighted

__all__ = ["BlockWeight", "Tiles", "check_centers", "check_weighted", "prepare", "weighted"]


def _reference(kernel: Kernel, centers: Any) -> Tiles:
    from .reference import KernelTiles

    return KernelTiles(kernel, centers)


def _native(kernel: Kernel, centers: Any) -> Tiles:
    from .native import ConstantTiles, NativeTiles, PairTiles, profile_of
    from .sparse import LinearTiles, SparseTiles

    sparse = scipy.sparse.issparse(centers)
    form = linear_form(kernel) if sparse else None
    if form is not None and form[0] != 0:
        return LinearTiles(*form, centers)
    if isinstance(kernel, Sum | Product):
        return PairTiles(kernel, _native(kernel.k1, centers), _native(kernel.k2, centers))
    if type(kernel) is Constant:
        return ConstantTiles(kernel, centers)
    profile = profile_of(kernel)
    if profile is None:
        return _reference(kernel, centers)
    return (SparseTiles if sparse else NativeTiles)(kernel, profile, centers)


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


_BACKENDS: dict[str, Callable[[Kernel, Any], Tiles]] = {"native": _native, "reference": _reference}


def prepare(kernel: Kernel, centers: Any, backend: str = "auto") -> Tiles:
    """Make the `Tiles` of a resolved kernel and its centers.

    Parameters
    ----------
    kernel : Kernel
    centers : C-contiguous array or CSR matrix of shape (M, d), float32 or float64
        As `check_centers` returns them. Blocks of rows must be of the same kind.
    backend : {"auto", "native", "reference"}
        The environment variable ``GYRFALCON_BACKEND``, where it is set, replaces "auto".

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.backends import prepare
    >>> from gyrfalcon.kernels import Gaussian
    >>> tiles = prepare(Gaussian(1.0), np.zeros((3, 2)), backend="reference")
    >>> tiles.n_centers, tiles.dtype
    (3, dtype('float64'))
    """
    if backend == "auto":
        backend = os.environ.get("GYRFALCON_BACKEND", "auto")
    if backend != "auto" and backend not in _BACKENDS:
        known = listed(["auto", *_BACKENDS], None, plain=True)
        raise ValueError(f"backend={backend!r} is not known: use one of {known}")
    kernel.check_precision(centers.dtype)
    make = _best() if backend == "auto" else _BACKENDS[backend]
    return make(kernel, centers)
