"""What the solvers share: the operator, the system in their own variables, and the record of an iteration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..operators import Operator, Rowwise
from ..preconditioners import Coordinates

Vectors = NDArray[np.float64]


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
    error : ndarray of shape (k,)
        How far the fitted values still are from the solution's, as CG estimates it: root mean square over the rows, in
        the units of y. Mostly within a factor of 3. Empty from solvers that do not estimate it.
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
    error: Vectors = field(default_factory=lambda: np.empty(0))
    _coef: Callable[[], Vectors] = field(default=lambda: np.empty(0), repr=False, compare=False)
    _state: Callable[[], dict[str, Any]] | None = field(default=None, repr=False, compare=False)

    @property
    def details(self) -> dict[str, Any]:
        """What is worth a record beside the numbers that every solver has."""
        return {} if math.isnan(self.condition_number) else {"condition_number": self.condition_number}

    def coef(self) -> Vectors:
        """Return alpha = B beta: a few triangular solves, so ask only when it is needed."""
        return self._coef()

    @classmethod
    def measured(cls, iteration: int, residuals: Vectors, tol: float, **more: Any) -> Self:
        """Make an iterate of the columns' residuals: which is the largest, and whether all meet the tolerance."""
        largest, converged = float(residuals.max(initial=0.0)), bool((residuals <= tol).all())
        return cls(iteration=iteration, residual=largest, residuals=residuals, converged=converged, **more)

    def numbers(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")}

    @classmethod
    def again(cls, numbers: Mapping[str, Any], **functions: Any) -> Self:
        """Make an iterate of what `numbers` gave, or of a state."""
        return cls(**{f.name: numbers[f.name] for f in fields(cls) if not f.name.startswith("_")}, **functions)

    def state(self) -> dict[str, Any]:
        """Return numbers and arrays by name, from which the solver goes on as if it had never stopped.

        The same solver of the same problem takes them as ``resume``, and begins with this iterate.
        """
        if self._state is None:
            raise NotImplementedError("this solver cannot be resumed")
        return {**self.numbers(), **self._state()}


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
        return self.B.backward(self.operator.sandwich(alpha, self._rowwise(_residual)), halfway, -self.penalty)

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
        both = np.hstack([np.zeros_like(alpha) if v is None else v, alpha])
        s = self.operator.sandwich(both, self._rowwise(partial(_beside_residual, columns, v is None)))
        return s[:, :k], self.B.backward(s[:, k:], halfway, -self.penalty)

    def _rowwise(self, function: Callable[..., NDArray[Any]]) -> Rowwise:
        """A function of T and each row's target and weight."""
        return Rowwise(function, self.Y) if self.weight is None else Rowwise(function, self.Y, self.weight)


# Functions of the module and no closures, so that they can be sent to where the rows are


def _residual(T: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None = None) -> NDArray[Any]:
    U = y - T
    return U if weight is None else weight[:, None] * U


def _beside_residual(
    columns: NDArray[np.intp],
    beside_y: bool,
    T: NDArray[Any],
    y: NDArray[Any],
    weight: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """y or the first columns of T, and beside them what the other columns leave of y."""
    k = len(columns)
    y = y[:, columns]
    U = np.hstack([y if beside_y else T[:, :k], y - T[:, k:]])
    return U if weight is None else weight[:, None] * U


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


def recall(state: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> list[NDArray[Any]]:
    """Return the arrays of a state, if they have the shapes they must have."""
    for name, shape in shapes.items():
        found = getattr(state.get(name), "shape", None)
        if found != shape:
            raise ValueError(f"the state does not belong to this problem: {name} must have shape {shape}, not {found}")
    return [state[name] for name in shapes]
