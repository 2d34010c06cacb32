"""Operators: products with the matrix k(rows, centers), which is never built as a whole."""

from .base import Operator, Rowwise, Shifted, Weight
from .choose import make_operator
from .dense import KernelOperator
from .derivatives import gradients, mean_square_gradient
from .device import DeviceOperator
from .features import feature_operator
from .keeping import block_rows

__all__ = [
    "DeviceOperator",
    "KernelOperator",
    "Operator",
    "Rowwise",
    "Shifted",
    "Weight",
    "block_rows",
    "feature_operator",
    "gradients",
    "make_operator",
    "mean_square_gradient",
]
