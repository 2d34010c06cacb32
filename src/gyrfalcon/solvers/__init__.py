"""Solvers: plain functions of an operator, a right-hand side and a few numbers, which yield a record an iteration."""

from gyrfalcon.solvers.base import Iterate
from gyrfalcon.solvers.cg import conjugate_gradient
from gyrfalcon.solvers.direct import NystromPath
from gyrfalcon.solvers.exact import ExactPath, exact_ridge
from gyrfalcon.solvers.gradient import gradient_descent, kernel_descent, largest_eigenvalue, stochastic_gradient

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
