"""Kernels: a few parameters and a profile, which is a function of the distance or the dot product of rows."""

from .base import Kernel, KernelFunction, ProductTerm, Slope
from .callable import CallableKernel
from .composite import Constant, Product, Sum, linear_form
from .dot_product import ArcCosine, Linear, Polynomial, Sigmoid
from .features import FeatureMap
from .layer import RandomLayer
from .names import ALIASES, NAMES, as_kernel
from .stationary import Gaussian, Laplacian, Matern, RationalQuadratic, Stationary

__all__ = [
    "ALIASES",
    "NAMES",
    "ArcCosine",
    "CallableKernel",
    "Constant",
    "FeatureMap",
    "Gaussian",
    "Kernel",
    "KernelFunction",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "Product",
    "ProductTerm",
    "RandomLayer",
    "RationalQuadratic",
    "Sigmoid",
    "Slope",
    "Stationary",
    "Sum",
    "as_kernel",
    "linear_form",
]
