"""Solvers: plain functions of an operator, a right-hand side and a few numbers, which yield a record an iteration."""

from gyrfalcon.solvers.cg import Iterate, conjugate_gradient

__all__ = ["Iterate", "conjugate_gradient"]
