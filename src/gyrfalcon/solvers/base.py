"""What the solvers share: the operator, the system in their own variables, and the record of an iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gyrfalcon.operator import Weight
from gyrfalcon.preconditioner import Coordinates

Vectors = NDArray[np.float64]


class Operator(Protocol):
    """What the iterations need of K = k(rows, centers)."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def passes(self) -> int: ...
    def rmatmat(self, U: NDArray[Any]) -> Vectors: ...
    def sandwich(self, V: NDArray[Any], weight: Weight = None) -> Vectors: ...


@dataclass
class Iterate:
    """The record of one iteration.

    Attributes
    ----------
    iteration : int
        From 1; 0 when there was nothing to do (the start already solves the problem, or ``max_iter=0``).
    residual : float
        The largest of ``residuals``.
    residuals : ndarray of shape (k,)
        Norm of each column's residual, relative to the norm of its right-hand side.
    seconds : float
        Since the solver started.
    passes : int
        Passes over the rows since the solver started.
    converged : bool
        Whether every column met the tolerance.
    step, ratio : ndarray of shape (k,)
        CG's two numbers of this iteration for each column, the length of the step and the ratio of the squared
        residuals: they make up the Lanczos matrix, which estimates the condition number. 0 for columns at rest.
        For gradient descent the step is what was asked for, and the ratio 0.
    condition_number : float
        Of the preconditioned system, as far as CG has seen it: a bound from below that grows to the true one, 1 at
        iteration 0. NaN from solvers that do not estimate it.
    """

    iteration: int
    residual: float
    residuals: Vectors
    seconds: float
    passes: int
    converged: bool
    step: Vectors
    ratio: Vectors
    condition_number: float = float("nan")
    _coef: Callable[[], Vectors] = field(default=lambda: np.empty(0), repr=False, compare=False)

    @property
    def details(self) -> dict[str, Any]:
        """What is worth a record beside the numbers that every solver has."""
        return {} if math.isnan(self.condition_number) else {"condition_number": self.condition_number}

    def coef(self) -> Vectors:
        """Return alpha = B beta: a few triangular solves, so ask only when it is needed."""
        return self._coef()


@dataclass(frozen=True)
class System:
    """B'(K'WK + lambda n K_MM)B beta = B'K'W y; each method is one pass over the rows."""

    operator: Operator
    Y: NDArray[Any]
    weight: NDArray[Any] | None
    B: Coordinates
    penalty: float

    def rhs(self) -> Vectors:
        """Return the right-hand side."""
        return self.B.apply_transpose(
            self.operator.rmatmat(self.Y if self.weight is None else self.weight[:, None] * self.Y)
        )

    def product(self, p: Vectors) -> Vectors:
        """Return the left-hand side at p."""
        v, halfway = self.B.forward(p)
        return self.B.backward(self.operator.sandwich(v, self.weight), halfway, self.penalty)

    def residual(self, beta: Vectors) -> Vectors:
        """Return what beta leaves of the right-hand side."""
        alpha, halfway = self.B.forward(beta)

        def weighted(rows: slice, T: NDArray[Any]) -> NDArray[Any]:
            U = self.Y[rows] - T
            return U if self.weight is None else self.weight[rows, None] * U

        return self.B.backward(self.operator.sandwich(alpha, weighted), halfway, -self.penalty)

    def rhs_and_residual(self, beta: Vectors) -> tuple[Vectors, Vectors]:
        """Return the right-hand side and what beta leaves of it."""
        s, residual = self._beside_residual(None, beta, np.arange(self.Y.shape[1]))
        return self.B.apply_transpose(s), residual

    def product_and_residual(self, p: Vectors, beta: Vectors, columns: NDArray[np.intp]) -> tuple[Vectors, Vectors]:
        """Return the left-hand side at p, and what beta leaves of the right-hand side's ``columns``."""
        v, halfway = self.B.forward(p)
        s, residual = self._beside_residual(v, beta, columns)
        return self.B.backward(s, halfway, self.penalty), residual

    def _beside_residual(self, v: Vectors | None, beta: Vectors, columns: NDArray[np.intp]) -> tuple[Vectors, Vectors]:
        """Return K'W K v (K'W y if v is None) and B'(K'W (y - K B beta) - lambda n K_MM B beta), as one product."""
        k = len(columns)
        alpha, halfway = self.B.forward(beta)

        def weighted(rows: slice, T: NDArray[Any]) -> NDArray[Any]:
            y = self.Y[rows][:, columns]
            U = np.hstack([y if v is None else T[:, :k], y - T[:, k:]])
            return U if self.weight is None else self.weight[rows, None] * U

        s = self.operator.sandwich(np.hstack([np.zeros_like(alpha) if v is None else v, alpha]), weighted)
        return s[:, :k], self.B.backward(s[:, k:], halfway, -self.penalty)


def make_system(
    operator: Operator, y: NDArray[Any], coordinates: Coordinates, penalty: float, weight: NDArray[Any] | None
) -> System:
    """Return the system, if operator and coordinates belong together."""
    shape, made_for = operator.shape, (coordinates.n, coordinates.M)
    if shape != made_for:
        raise ValueError(f"the operator has shape {shape}, but the coordinates were made for {made_for}")
    return System(operator, y.reshape(shape[0], -1), weight, coordinates, penalty)


def sizes(b: Vectors) -> Vectors:
    """Return the norms that residuals are relative to; 1 for a right-hand side of zeros."""
    size = np.linalg.norm(b, axis=0)
    if not np.isfinite(size).all():
        raise ValueError("the right-hand side K'W y is not finite; check y and the sample weights, or rescale y")
    size[size == 0] = 1.0
    return size


def coefficients(B: Coordinates, beta: Vectors, shape: tuple[int, ...]) -> Vectors:
    """Return B beta in the shape that coefficients of y have."""
    return B.apply(beta).reshape(shape)
