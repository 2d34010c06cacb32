"""The tall matrix k(rows, centers) that is never built, known by its products: the contract and who keeps it."""

from .base import Operator, Rowwise, Shifted, Weight
from .blocking import block_rows
from .choose import make_operator
from .dense import KernelOperator
from .derivatives import gradients, mean_square_gradient
from .device import DeviceOperator
from .features import feature_operator

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
