"""Magnitudes that can be computed with: clear errors in place of a later overflow or underflow."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray


@overload
def power_of_two(X: NDArray[Any], axis: None = None) -> float: ...
@overload
def power_of_two(X: NDArray[Any], axis: int) -> NDArray[np.float64]: ...
def power_of_two(X: NDArray[Any], axis: int | None = None) -> float | NDArray[np.float64]:
    """Return the power of two that brings the largest of some numbers near 1, or with ``axis=0`` of each column.

    Division by it is exact.

    >>> power_of_two(np.array([3.0, -5.0]))
    4.0
    >>> power_of_two(np.array([[3.0, 0.3], [-5.0, 0.1]]), axis=0)
    array([4.  , 0.25])
    """
    powers: NDArray[np.float64] = np.ldexp(1.0, np.frexp(_largest(X, axis))[1] - 1)
    return float(powers) if axis is None else powers


def _largest(X: NDArray[Any], axis: int | None = None) -> NDArray[np.float64]:
    """Return the largest absolute value, 0 if there is none."""
    high, low = np.max(X, axis, initial=0.0), np.min(X, axis, initial=0.0)
    return np.maximum(high.astype(np.float64), -low.astype(np.float64))


def check_range(X: NDArray[Any], dtype: DTypeLike, name: str, *, too_small: bool = True) -> None:
    """Refuse numbers whose largest is infinite in `dtype`, or (`too_small`) loses digits there."""
    info, largest = np.finfo(np.dtype(dtype)), float(_largest(X))
    if largest > float(info.max):
        raise ValueError(f'{name} holds {largest:.3g}, too large for {info.dtype}: rescale or use dtype="float64"')
    if too_small and 0 < largest < float(info.tiny):
        wider = "" if info.dtype == np.float64 else ' or use dtype="float64"'
        raise ValueError(
            f"{name} holds no number larger than {largest:.3g}, too small for {info.dtype}: rescale{wider}"
        )


def check_squares(y: NDArray[Any], dtype: DTypeLike, name: str) -> None:
    """Refuse numbers whose squares leave the range of `dtype`; a few may be far larger than the others.

    >>> check_squares(np.array([1.0, 1e20, 2.0]), np.float32, "y")
    >>> check_squares(np.array([1e155, 2e155]), np.float64, "y")
    Traceback (most recent call last):
    ValueError: y holds 2e+155, and losses other than the squared one take squares, too large for float64: rescale y
    """
    info, largest = np.finfo(np.dtype(dtype)), float(_largest(y))
    squares = "losses other than the squared one take squares"
    # a loss of an outlier is linear in it; the median is at most the largest
    large = largest * (largest / float(info.max)) > float(info.eps)
    if large and largest * (float(np.median(np.abs(y[:]))) / float(info.max)) > float(info.eps):
        raise ValueError(f"{name} holds {largest:.3g}, and {squares}, too large for {info.dtype}: rescale {name}")
    if 0 < largest < float(info.tiny / info.eps) ** 0.5:
        raise ValueError(
            f"{name} holds no number larger than {largest:.3g}, and {squares}, too small for {info.dtype}: "
            f"rescale {name}"
        )


def check_kernel_scale(scale: float, dtype: DTypeLike, *, power: float = 1.5, kernel: Any = "the kernel") -> None:
    """Refuse a kernel whose values are too small or too large for a fit in `dtype`; 0 is not too small.

    Products that underflow lose digits or vanish, and a solver would take the rest for a solution. Tiles that overflow
    are found elsewhere; sums of squares in float64 are not, so they get room for the number of rows.

    scale : the mean of k(x, x)
    dtype : precision of the tiles
    power : the largest products of tiles have the size of K^power, and scalar products in float64 that of K^(4/3
        power); 1.5 for vectors in coordinates of `Whitening`, of the size of 1 / sqrt(K): K'(K v)
    kernel : name of the kernel in the error
    """
    tiles, sums = np.finfo(np.dtype(dtype)), np.finfo(np.float64)
    least = max(float(tiles.tiny / tiles.eps) ** (1 / power), float(sums.tiny / sums.eps) ** (0.75 / power))
    most = min(float(tiles.max) ** (1 / power), float(sums.max * sums.eps) ** (0.75 / power))
    if scale == 0 or least <= scale <= most:
        return
    wider = "" if tiles.dtype == np.float64 else ', or use dtype="float64"'
    raise ValueError(
        f"values of {kernel} are about {scale:.3g}, and in {tiles.dtype} they must be between {least:.1g} and "
        f"{most:.1g}: rescale the features (scale=True does) or change the kernel's parameters{wider}"
    )
