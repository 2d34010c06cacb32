"""Kernels by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .._utils.words import hint, listed
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

# Names that other libraries have for a kernel with a parameter.
ALIASES: dict[str, Callable[..., Kernel]] = {
    "matern12": partial(Matern, nu=0.5),
    "matern32": partial(Matern, nu=1.5),
    "matern52": partial(Matern, nu=2.5),
}


def with_kernel_object(params: Mapping[str, Any], kernel: Any) -> dict[str, Any]:
    """Return parameters for `set_params` in which a kernel given by name, some of whose own are set, is an object.

    Examples
    --------
    >>> from gyrfalcon.kernels.names import with_kernel_object
    >>> with_kernel_object({"kernel__length_scale": 2.0}, kernel="gaussian")
    {'kernel': Gaussian(), 'kernel__length_scale': 2.0}
    """
    kernel = params.get("kernel", kernel)
    if isinstance(kernel, str) and any(name.startswith("kernel__") for name in params):
        return {"kernel": as_kernel(kernel)} | {name: value for name, value in params.items() if name != "kernel"}
    return dict(params)


def as_kernel(kernel: Kernel | str | KernelFunction) -> Kernel:
    """Convert a name, a `Kernel` or a callable to a kernel.

    Examples
    --------
    >>> from gyrfalcon.kernels import as_kernel
    >>> as_kernel("gaussian"), as_kernel("matern52")
    (Gaussian(), Matern(nu=2.5))
    """
    if isinstance(kernel, str):
        if kernel in ALIASES:
            return ALIASES[kernel]()
        if kernel not in NAMES:
            known = listed(sorted(NAMES), None, plain=True)
            raise ValueError(f"kernel={kernel!r} is not known: use one of {known}, or an object{hint(kernel, NAMES)}")
        return NAMES[kernel]()
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel) and not isinstance(kernel, type):
        return CallableKernel(kernel)
    raise TypeError(f"kernel={kernel!r} must be a name, a gyrfalcon.kernels.Kernel or a callable k(A, B)")
