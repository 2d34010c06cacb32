"""Shared by the iterative solvers: the system in their own variables, the record of an iteration, resumed states."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import Rule, array, boolean, integer, not_negative, number
from ..operators import Operator, Shifted
from ..preconditioners import Coordinates
from ..sources.columns import Column, WeightedColumn

Vectors = NDArray[np.float64]


@dataclass
class Iterate:
    """The record of one iteration.

    Attributes
    ----------
    iteration : int
        Counted from 1; 0 if there was nothing to do (the start solves the problem, or ``max_iter=0``).
    residual : float
        The largest of ``residuals``.
    residuals : ndarray of shape (k,)
        Norm of each column's residual, relative to the norm of its right-hand side.
    seconds : float
        Since the solver started.
    passes : float
        Passes over the rows since the solver started; those over a sample of them count as parts of one.
    converged : bool
        Whether every column met the tolerance.
    step, ratio : ndarray of shape (k,)
        CG's step length and ratio of the squared residuals, from which the condition number is estimated; 0 for
        columns at rest. For gradient descent the given step, and 0.
    condition_number : float
        CG's estimate for the preconditioned system, from below; 1 at iteration 0. NaN if not estimated.
    error : ndarray of shape (k,)
        Estimated distance of the fitted values from the solution's: root mean square over the rows, in the units of y,
        mostly within a factor of 3. Empty if not estimated.
    signal : ndarray of shape (k,)
        Scale of the error: root mean square of the solution's fitted values, as far as it is known, or the standard
        deviation of y if that is less (because y was not centered). Empty if the error is not estimated.
    preconditioner : str
        Name of the preconditioner, for the record; empty where there is no choice of it.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Preconditioner
    >>> from gyrfalcon.solvers import conjugate_gradient
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> K = KernelOperator("gaussian", X, X[:20])
    >>> B = Preconditioner(K.centers_gram(), penalty=1e-3, n=500)
    >>> iterates = list(conjugate_gradient(K, np.sin(X[:, 0]), B, 1e-3, max_iter=3, tol=0.0))
    >>> [iterate.iteration for iterate in iterates], [iterate.passes for iterate in iterates]
    ([1, 2, 3], [2, 3, 4])
    >>> iterates[-1].coef().shape
    (20,)
    """

    iteration: int
    residual: float
    residuals: Vectors
    seconds: float
    passes: float
    converged: bool
    step: Vectors
    ratio: Vectors
    condition_number: float = float("nan")
    error: Vectors = field(default_factory=lambda: np.empty(0))
    signal: Vectors = field(default_factory=lambda: np.empty(0))
    preconditioner: str = ""
    # What a record from a file must be
    rules: ClassVar[Mapping[str, Rule]] = {
        "iteration": integer(0),
        "residual": number(lambda x: True, "a number"),
        "residuals": array((None,), finite=False),
        "seconds": not_negative(),
        "passes": not_negative(),
        "converged": boolean,
        "step": array((None,), finite=False),
        "ratio": array((None,), finite=False),
        "condition_number": number(lambda x: True, "a number"),
        "error": array((None,), finite=False),
        "signal": array((None,), finite=False),
    }
    _coef: Callable[[], Vectors] = field(default=lambda: np.empty(0), repr=False, compare=False)
    _state: Callable[[], dict[str, Any]] | None = field(default=None, repr=False, compare=False)

    @property
    def details(self) -> dict[str, Any]:
        """Numbers for the record that this solver has beside those of every solver."""
        found: dict[str, Any] = {"preconditioner": self.preconditioner} if self.preconditioner else {}
        if self.error.size:
            found["error"] = self.relative_error
        if not math.isnan(self.condition_number):
            found["condition_number"] = self.condition_number
        return found

    @property
    def relative_error(self) -> float:
        """The largest error of all columns as a share of what the solution explains; 0 if unknown."""
        shares = np.divide(self.error, self.signal, out=np.zeros_like(self.error), where=self.signal > 0)
        return float(shares.max(initial=0.0))

    def coef(self) -> Vectors:
        """Return the coefficients alpha = B beta; this costs a few triangular solves."""
        return self._coef()

    @classmethod
    def measured(cls, iteration: int, residuals: Vectors, tol: float, **more: Any) -> Self:
        """Make an iterate from the residuals of all columns: the largest, and whether all meet the tolerance."""
        largest, converged = float(residuals.max(initial=0.0)), bool((residuals <= tol).all())
        return cls(iteration=iteration, residual=largest, residuals=residuals, converged=converged, **more)

    def numbers(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return {name: vars(self)[name] for name in self.rules}

    @classmethod
    def again(cls, numbers: Mapping[str, Any], **functions: Any) -> Self:
        """Make an iterate of what `numbers` gave, or of a state; `StateError` if it is not complete and sound."""
        found = cls(**dict(zip(cls.rules, recall(numbers, cls.rules), strict=True)), **functions)
        if found.error.shape != found.signal.shape:
            raise StateError(f"error has shape {found.error.shape} and signal {found.signal.shape}")
        return found

    def state(self) -> dict[str, Any]:
        """Return numbers and arrays by name from which the solver can go on, bit for bit.

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
        Y: Any = self.Y
        weighted: Any
        if isinstance(Y, Column):
            weighted = Y if self.weight is None else WeightedColumn(Y, self.weight)
        else:
            weighted = Y if self.weight is None else self.weight[:, None] * Y
        return self.B.apply_transpose(self.operator.rmatmat(weighted))

    def product(self, p: Vectors) -> Vectors:
        """Return the left-hand side at p."""
        v, halfway = self.B.forward(p)
        return self.B.backward(self.operator.sandwich(v, self.weight), halfway, self.penalty)

    def residual(self, beta: Vectors) -> Vectors:
        """Return the residual at beta."""
        alpha, halfway = self.B.forward(beta)
        s = self.operator.sandwich(-alpha, Shifted(self.Y, self.weight))
        return self.B.backward(s, halfway, -self.penalty)

    def fitted_size(self, beta: Vectors, b: Vectors, r: Vectors) -> Vectors:
        """Return the root mean square of the fitted values at beta, without a pass.

        With the right-hand side b and the residual r, beta'(b - r) is |W^(1/2) K B beta|^2 and the penalty's part.
        """
        n, halfway = self.operator.shape[0], self.B.forward(beta)[1]
        penalised = self.B.backward(np.zeros((self.B.M, beta.shape[1])), halfway, self.penalty)
        squares = (beta * (b - r - penalised)).sum(axis=0)
        return np.sqrt(np.maximum(squares, 0.0) / n)

    def rhs_and_residual(self, beta: Vectors) -> tuple[Vectors, Vectors]:
        """Return the right-hand side, and the residual at beta."""
        s, residual = self._beside_residual(None, beta, np.arange(self.Y.shape[1]))
        return self.B.apply_transpose(s), residual

    def product_and_residual(self, p: Vectors, beta: Vectors, columns: NDArray[np.intp]) -> tuple[Vectors, Vectors]:
        """Return the left-hand side at p, and the residual at beta of some ``columns`` of the right-hand side."""
        v, halfway = self.B.forward(p)
        s, residual = self._beside_residual(v, beta, columns)
        return self.B.backward(s, halfway, self.penalty), residual

    def _beside_residual(self, v: Vectors | None, beta: Vectors, columns: NDArray[np.intp]) -> tuple[Vectors, Vectors]:
        """Return K'W K v (K'W y if v is None) and B'(K'W (y - K B beta) - lambda n K_MM B beta), as one product."""
        k = len(columns)
        alpha, halfway = self.B.forward(beta)
        chosen = np.eye(self.Y.shape[1], dtype=self.Y.dtype)[:, columns]
        if v is None:
            V, C = np.hstack([np.zeros_like(alpha), -alpha]), np.hstack([chosen, chosen])
        else:
            V, C = np.hstack([v, -alpha]), np.hstack([np.zeros_like(chosen), chosen])
        s = self.operator.sandwich(V, Shifted(self.Y, self.weight, C))
        return s[:, :k], self.B.backward(s[:, k:], halfway, -self.penalty)


class SquareOperator(Protocol):
    """The part of an operator K_nn that `kernel_cg` and `kernel_descent` use."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def passes(self) -> int: ...
    def matmat(self, V: NDArray[Any]) -> NDArray[Any]: ...


def make_system(
    operator: Operator, y: NDArray[Any], coordinates: Coordinates, penalty: float, weight: NDArray[Any] | None
) -> System:
    """Make the system, from an operator and coordinates of the same shape."""
    shape, made_for = operator.shape, (coordinates.n, coordinates.M)
    if shape != made_for:
        raise ValueError(f"the operator has shape {shape}, but the coordinates were made for {made_for}")
    return System(operator, y.reshape(shape[0], -1), weight, coordinates, penalty)


def signals(fitted: Vectors, error: Vectors, spread: Vectors) -> Vectors:
    """Return an iterate's `signal`; CG's error is orthogonal to its fitted values, so that their squares add up."""
    found: Vectors = np.minimum(np.hypot(fitted, error), spread)
    return found


def sizes(b: Vectors) -> Vectors:
    """Return the norms of the columns of a right-hand side, to divide residuals by; 1 for a column of zeros."""
    size = np.linalg.norm(b, axis=0)
    if not np.isfinite(size).all():
        raise ValueError("the right-hand side K'W y is not finite; check y and the sample weights, or rescale y")
    size[size == 0] = 1.0
    return size


def coefficients(B: Coordinates, beta: Vectors, shape: tuple[int, ...]) -> Vectors:
    """Return B beta in the shape that coefficients of y have."""
    return B.apply(beta).reshape(shape)


class StateError(ValueError):
    """A solver was given a state to resume from that is damaged, or belongs to another problem.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Preconditioner
    >>> from gyrfalcon.solvers import StateError, conjugate_gradient
    >>> X = np.random.default_rng(0).standard_normal((50, 2))
    >>> K = KernelOperator("gaussian", X, X[:5])
    >>> B = Preconditioner(K.centers_gram(), penalty=1e-3, n=50)
    >>> try:
    ...     next(conjugate_gradient(K, X[:, 0], B, 1e-3, max_iter=3, tol=0.0, resume={}))
    ... except StateError as error:
    ...     print(str(error)[:34])
    the state to resume from has no 'i
    """


def recall(state: Mapping[str, Any], rules: Mapping[str, Rule]) -> list[Any]:
    """Return a state's values in the order of the rules; `StateError` names the first that is missing or invalid."""
    for name, rule in rules.items():
        if name not in state:
            raise StateError(f"the state to resume from has no {name!r}")
        try:
            rule(name, state[name])
        except ValueError as error:
            raise StateError(f"the state to resume from does not belong to this problem: {error}") from None
    return [state[name] for name in rules]
