"""Which magnitudes can be computed with: clear errors in place of what overflow and underflow do later."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def power_of_two(X: NDArray[Any]) -> float:
    """What to divide numbers by so that the largest is near 1, without a change in any bit of a mantissa.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.ranges import power_of_two
    >>> power_of_two(np.array([3.0, -5.0]))
    4.0
    """
    return float(np.ldexp(1.0, np.frexp(_largest(X))[1] - 1))


def _largest(X: NDArray[Any]) -> float:
    return max(float(X.max()), -float(X.min())) if X.size else 0.0


def check_range(X: NDArray[Any], dtype: DTypeLike, name: str, *, too_small: bool = True) -> None:
    """Refuse numbers of which the largest becomes infinite in `dtype`, or (`too_small`) loses digits there.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.ranges import check_range
    >>> check_range(np.array([1.0, -1e40]), np.float32, "y")
    Traceback (most recent call last):
    ValueError: y holds 1e+40, too large for float32: rescale or use dtype="float64"
    """
    info, largest = np.finfo(np.dtype(dtype)), _largest(X)
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
    info, largest = np.finfo(np.dtype(dtype)), _largest(y)
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

    Products that underflow lose digits or vanish, and a solver would take what is left for a solution; those of the
    tiles that overflow are found, sums of squares in float64 are not, so they get room for the number of rows.

    Parameters
    ----------
    scale : float
        The mean of k(x, x).
    dtype : float32 or float64
        Of the tiles.
    power : float
        The largest numbers that are made of tiles are of the size of K^power, and scalar products in float64 of
        K^(4/3 power). 1.5 where vectors are in coordinates of `Whitening`, of the size of 1 / sqrt(K): K'(K v).
    kernel : object
        What to call it.

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


def powers_of_two(targets: NDArray[Any]) -> NDArray[Any]:
    """What to divide each column by so that its largest number is near 1, without a change in any bit of a mantissa."""
    largest = np.maximum(targets.max(axis=0), -targets.min(axis=0)).astype(np.float64)
    powers: NDArray[Any] = np.ldexp(1.0, np.frexp(largest)[1] - 1)
    return powers
