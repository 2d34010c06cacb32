"""Which magnitudes can be computed with: clear errors in place of what overflow and underflow do later."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike


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
    >>> from gyrfalcon._ranges import check_kernel_scale
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
