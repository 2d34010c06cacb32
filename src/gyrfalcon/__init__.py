"""Gyrfalcon: kernel learning at scale, behind the scikit-learn API."""

from . import kernels
from .operator import KernelOperator

__all__ = ["KernelOperator", "kernels"]
