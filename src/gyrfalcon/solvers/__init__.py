"""Solvers: plain functions of an operator, a right-hand side and a few numbers, which yield a record an iteration."""

from .base import Iterate
from .cg import conjugate_gradient
from .direct import NystromPath
from .exact import ExactPath, exact_ridge
from .gradient import gradient_descent, kernel_descent, largest_eigenvalue, stochastic_gradient

__all__ = [
    "ExactPath",
    "Iterate",
    "NystromPath",
    "conjugate_gradient",
    "exact_ridge",
    "gradient_descent",
    "kernel_descent",
    "largest_eigenvalue",
    "stochastic_gradient",
]
