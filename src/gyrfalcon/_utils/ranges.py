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
    """Return the power of two that brings the largest of some numbers near 1; dividing by it is exact.

    Parameters
    ----------
    X : ndarray
    axis : int, optional
        0 for a power of each column; by default one for all numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.ranges import power_of_two
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
    """Refuse numbers whose largest is infinite in `dtype`, or (`too_small`) loses digits there.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.ranges import check_range
    >>> check_range(np.array([1.0, -1e40]), np.float32, "y")
    Traceback (most recent call last):
    ValueError: y holds 1e+40, too large for float32: rescale or use dtype="float64"
    """
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

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.ranges import check_squares
    >>> check_squares(np.array([1.0, 1e20, 2.0]), np.float32, "y")
    >>> check_squares(np.array([1e155, 2e155]), np.float64, "y")
    Traceback (most recent call last):
    ValueError: y holds 2e+155, and losses other than the squared one take squares, too large for float64: rescale y
    """
    info, largest = np.finfo(np.dtype(dtype)), float(_largest(y))
    squares = "losses other than the squared one take squares"
    # a loss of an outlier is linear in it
    if largest * (float(np.median(np.abs(y))) / float(info.max)) > float(info.eps):
        raise ValueError(f"{name} holds {largest:.3g}, and {squares}, too large for {info.dtype}: rescale {name}")
    if 0 < largest < float(info.tiny / info.eps) ** 0.5:
        raise ValueError(
            f"{name} holds no number larger than {largest:.3g}, and {squares}, too small for {info.dtype}: "
            f"rescale {name}"
        )


def check_kernel_scale(scale: float, dtype: DTypeLike, *, power: float = 1.5, kernel: Any = "the kernel") -> None:
    """Refuse a kernel whose values are too small or too large for a fit in `dtype`; 0 is not too small.

    Products that underflow lose digits or vanish, and a solver would take what is left for a solution. Tiles that
    overflow are found elsewhere; sums of squares in float64 are not, so they get room for the number of rows.

    Parameters
    ----------
    scale : float
        The mean of k(x, x).
    dtype : float32 or float64
        Of the tiles.
    power : float
        The largest products of tiles are of the size of K^power, and scalar products in float64 of K^(4/3 power).
        1.5 where vectors are in coordinates of `Whitening`, of the size of 1 / sqrt(K): K'(K v).
    kernel : object
        Name of the kernel in the error.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.ranges import check_kernel_scale
    >>> check_kernel_scale(1e-310, np.float64)
    Traceback (most recent call last):
    ValueError: values of the kernel are about 1e-310, and in float64 they must be between 1e-146 and 2e+146: ...
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
