"""Kernels by name."""

from __future__ import annotations

from .base import Kernel, KernelFunction
from .callable import CallableKernel
from .dot_product import ArcCosine, Linear, Polynomial, Sigmoid
from .stationary import Gaussian, Laplacian, Matern, RationalQuadratic

NAMES: dict[str, type[Kernel]] = {
    "gaussian": Gaussian,
    "rbf": Gaussian,
    "laplacian": Laplacian,
    "matern": Matern,
    "rational_quadratic": RationalQuadratic,
    "linear": Linear,
    "polynomial": Polynomial,
    "poly": Polynomial,
    "sigmoid": Sigmoid,
    "arccosine": ArcCosine,
}


def as_kernel(kernel: Kernel | str | KernelFunction) -> Kernel:
    """Convert a name, a `Kernel` or a callable to a kernel.

    Examples
    --------
    >>> from gyrfalcon.kernels import as_kernel
    >>> as_kernel("gaussian")
    Gaussian()
    """
    if isinstance(kernel, str):
        if kernel not in NAMES:
            raise ValueError(f"kernel={kernel!r} is not known: use one of {', '.join(sorted(NAMES))}, or an object")
        return NAMES[kernel]()
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel) and not isinstance(kernel, type):
        return CallableKernel(kernel)
    raise TypeError(f"kernel={kernel!r} must be a name, a gyrfalcon.kernels.Kernel or a callable k(A, B)")
