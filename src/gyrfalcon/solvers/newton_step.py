"""One step of Newton's method: the objective, its direction by conjugate gradient, and the length of the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.portable import beside
from ..losses import Loss
from ..operators import Operator, Rowwise
from ..preconditioners import Halfway, Preconditioner
from ..sources.columns import Column
from ..sources.row_matrix import RowMatrix, row_matrix, row_parts
from .base import Vectors

Array = NDArray[Any]

_ARMIJO = 1e-4  # share of the decrease along the slope that a step must reach
_LONGEST = 4.0  # step length of the secant
_SECANTS = 8  # number of further secants on the slope along d for a sharp loss
_SHORTEST = 1e-10  # step length below which the line search gives up
_LEAST_SIGNAL = 0.01  # standard deviation of f, in units of the loss, below which it is a constant and rounding


class Accuracy(NamedTuple):
    """When CG stops: at a share of the first residual, or after some steps."""

    residual: float
    most_steps: int


@dataclass
class Direction:
    """The result of CG: d, K d, the slope of the objective along d, CG's steps and the share of the residual left."""

    d: Vectors
    Kd: RowMatrix
    slope: Vectors
    steps: int
    left: Vectors

    def numbers(self, t: Vectors, predicted: Vectors, n: int) -> dict[str, Any]:
        """Return what an iterate records of the direction, a step of length t along it, and its predicted decrease."""
        return {
            "residual": float(predicted.max(initial=0.0)),
            "residuals": predicted,
            "step": t,
            "ratio": self.left,
            "decrement": float(np.sqrt(np.maximum(-self.slope, 0).sum() / n)),
            "cg_steps": self.steps,
        }


class Objective:
    """The objective, and the current iterate u; `look` evaluates the objective there, in one pass."""

    def __init__(
        self,
        operator: Operator,
        y: Array,
        loss: Loss,
        weight: Array | None,
        B: Preconditioner,
        offset: Array | None,
        start: Array | None,
    ) -> None:
        if operator.shape != (B.n, B.M):
            raise ValueError(f"the operator has shape {operator.shape}, but the coordinates were made for {(B.n, B.M)}")
        k, dtype = y.shape[1], operator.dtype
        self.operator, self.y, self.loss = operator, y, loss
        self.whitening, self.A = B.whitening, B.A
        self.weight = None if weight is None else weight.astype(dtype)
        self.offset = np.zeros(k, dtype) if offset is None else np.asarray(offset).astype(dtype)
        self.u = np.zeros((B.rank, k)) if start is None else self.whitening.invert(start.reshape(B.M, k))
        # vectors of the length of the rows are in files if y is
        self.in_file = isinstance(y, Column)
        self.parts = row_parts(*y.shape)
        self.f = self._row_matrix()
        self.s = np.empty((B.M, k))
        self.halfway: Halfway = ()

    def total(self, x: Array) -> Vectors:
        """Sum over each column, or over all of them where the loss couples them."""
        return np.atleast_1d(np.sum(x, axis=None if self.loss.coupled else 0, dtype=np.float64))

    def _row_matrix(self) -> RowMatrix:
        """Make a matrix of the shape of y, whose entries are not set yet."""
        return row_matrix(len(self.y), self.y.shape[1], self.operator.dtype, in_file=self.in_file)

    def weighted(self, x: Array, at: slice) -> Array:
        """Multiply the rows `at` by their sample weights."""
        return x if self.weight is None else self.weight[at][:, None] * x

    def _sum(self, of: Callable[[slice], Array]) -> Any:
        """Add up what a function returns for the parts of the rows."""
        return sum((of(at) for at in self.parts[1:]), of(self.parts[0]))

    def _rowwise(self, function: Callable[..., Array], *arrays: Any, portable: bool = False) -> Rowwise:
        """Make a weight that can be sent to the rows, times the sample weights."""
        if self.weight is None:
            return Rowwise(function, *arrays, portable=portable)
        return Rowwise(partial(_weighted, function), self.weight, *arrays, portable=portable)

    def look(self) -> None:
        """Compute f and K'W loss' at u, in one pass over the rows."""
        alpha, self.halfway = self.whitening.forward(self.u)
        slopes = self._rowwise(partial(_slopes, self.loss, self.offset), self.y, portable=self.loss.portable)
        if not self.in_file:
            self.f = self._row_matrix()  # the former f may be in use
        self.s = self.operator.sandwich(alpha, slopes, KV=self.f)
        for at in self.parts:
            self.f[at] = self.f[at] + self.offset

    def hessian(self, center_rows: Array | None) -> tuple[float, Vectors | None]:
        """Return the mean over all rows of the weighted second derivative, itself averaged over the columns.

        Also return those of the rows of the centers, if these are known.
        """

        def of(at: Any) -> Vectors:
            h = self.weighted(self.loss.hessian(self.y[at], self.f[at]), at).mean(axis=1, dtype=np.float64)
            return np.maximum(h, 0.0)

        mean = float(self._sum(lambda at: of(at).sum())) / len(self.y)
        return mean, None if center_rows is None else of(center_rows)

    def moved(self, t: Vectors, Kd: RowMatrix) -> tuple[Vectors, Vectors]:
        """Return the root mean square of t K d, and the standard deviation of f after this step, at least 0.01."""
        n, t = len(self.y), t.astype(self.operator.dtype)

        def after(at: slice) -> Array:
            return self.f[at] + t * Kd[at]

        mean = self._sum(lambda at: self.weighted(after(at), at).sum(axis=0, dtype=np.float64)) / n
        squares = self._sum(lambda at: self.total(self.weighted(np.square(t * Kd[at]), at)))
        centered = mean.astype(self.operator.dtype)
        spread = self._sum(lambda at: self.total(self.weighted(np.square(after(at) - centered), at)))
        return np.sqrt(squares / n), np.maximum(np.sqrt(spread / n), _LEAST_SIGNAL)

    def square_norm(self) -> float:
        """Return n times the squared norm of the function u."""
        halfway = self.whitening.forward(self.u)[1]
        return float(self._inner(halfway, halfway).sum())

    def _inner(self, a: Halfway, b: Halfway) -> Vectors:
        """Return inner products of functions, times n; the jitter is taken out as in `Whitening.backward`."""
        return self.total(a[0] * b[0] - self.whitening.correction * (a[1] * b[1]))

    def direction(self, mu: float, steps: int | None, accuracy: Accuracy) -> Direction:
        """Solve H d = -g by CG, preconditioned with A, for `steps` steps, or to `accuracy` if they are None."""
        whitening, A = self.whitening, self.A
        curvature_at_f = self._curvature()
        g = whitening.backward(self.s, self.halfway, mu)
        Kp, Kd, d, r = self._row_matrix(), self._row_matrix(), np.zeros_like(g), -g
        for at in self.parts:
            Kd[at] = np.zeros(1, Kd.dtype)

        p = z = A.solve(A.solve_transposed(r))
        rz = first = self.total(r * z)
        active = first > 0
        step = 0
        while active.any() and step < (steps or accuracy.most_steps):
            step += 1
            v, halfway = whitening.forward(p)
            Hp = whitening.backward(self.operator.sandwich(v, curvature_at_f, KV=Kp), halfway, mu)
            curvature = self.total(p * Hp)
            # Without positive curvature (rounding, or a loss that is not convex) the direction so far has to do, or
            # the first one, which the line search will make short enough.
            good = np.isfinite(curvature) & (curvature > 0)
            a = np.where(active & good, rz / np.where(good, curvature, 1.0), float(step == 1) * (active & ~good))
            active &= good
            d += a * p
            length = a.astype(Kd.dtype)
            for at in self.parts:
                Kd[at] = Kd[at] + length * Kp[at]
            r = r - np.where(good, a, 0.0) * Hp
            z = A.solve(A.solve_transposed(r))
            new = np.where(active, self.total(r * z), rz)
            if steps is None:
                active &= new > accuracy.residual**2 * first
            p = z + np.where(active, new / np.where(rz > 0, rz, 1.0), 0.0) * p
            rz = new
        left = np.sqrt(np.maximum(rz, 0.0) / np.where(first > 0, first, 1.0))
        return Direction(d, Kd, self.total(g * d), step, left)

    def _curvature(self) -> Rowwise:
        """Return the weight that multiplies by second derivatives at f."""
        if self.in_file:  # they are computed again whenever they are used
            return self._rowwise(partial(_curvature, self.loss), self.y, self.f)
        assert isinstance(self.f, np.ndarray)
        at_f = self.loss.curvature_at(self.y, self.f)
        return self._rowwise(at_f.function, *at_f.arrays, portable=at_f.portable)

    def line_search(self, direction: Direction, mu: float, rounding: float) -> tuple[Vectors, Vectors, Vectors]:
        """Return step lengths with enough decrease (0 if there is none), and the objective before and after."""
        d, Kd, slope = direction.d, direction.Kd, direction.slope
        along = self.whitening.forward(d)[1]
        uu, ud, dd = (self._inner(*pair) for pair in ((self.halfway,) * 2, (self.halfway, along), (along,) * 2))

        def objective(t: Vectors) -> Vectors:
            length = t.astype(Kd.dtype)

            def of(at: slice) -> Vectors:
                with np.errstate(over="ignore", invalid="ignore"):
                    values = self.loss.value(self.y[at], self.f[at] + length * Kd[at])
                return self.total(self.weighted(values, at))

            return self._sum(of) + mu / 2 * (uu + 2 * t * ud + t * t * dd)

        def slope_at(t: Vectors) -> Vectors:
            length = t.astype(Kd.dtype)

            def of(at: slice) -> Vectors:
                moved = Kd[at]
                with np.errstate(over="ignore", invalid="ignore"):
                    gradient = self.weighted(self.loss.gradient(self.y[at], self.f[at] + length * moved), at)
                    return self.total(gradient * moved)

            with np.errstate(over="ignore", invalid="ignore"):
                return self._sum(of) + mu * (ud + t * dd)

        before = objective(np.zeros_like(slope))
        t = np.where(slope < 0, _bracketed(slope, slope_at) if self.loss.sharp else _secant(slope, slope_at), 0.0)
        while True:
            after = objective(t)
            bad = ~(after <= before + _ARMIJO * t * slope + rounding * before) & (t > 0)
            if not bad.any():
                return t, before, after
            # the minimum of the parabola through the known values and slope, if it is sensible
            excess = after - before - slope * t
            parabola = -slope * t / np.where(excess > 0, 2 * excess, np.inf)
            shorter = t * np.clip(np.nan_to_num(parabola), 0.1, 0.5)
            t = np.where(bad, np.where(shorter > _SHORTEST, shorter, 0.0), t)


def _secant(before: Vectors, slope_at: Callable[[Vectors], Vectors]) -> Vectors:
    """Return the step at which the slope along d is 0 by the secant from 0 to 1; 1 if it is small there already."""
    slope = slope_at(np.ones_like(before))
    sensible = np.isfinite(slope) & (np.abs(slope) > 0.1 * np.abs(before)) & (slope > before)
    return np.where(sensible, np.clip(before / np.where(sensible, before - slope, 1.0), 0.1, _LONGEST), 1.0)


def _bracketed(before: Vectors, slope_at: Callable[[Vectors], Vectors]) -> Vectors:
    """Return the step at which the slope along d is 0, at most `_LONGEST`, by secants and bisections of a bracket."""
    low, high = np.zeros_like(before), np.ones_like(before)
    below, above = before, slope_at(high)
    while (longer := (above < 0) & (high < _LONGEST)).any():
        low, below = np.where(longer, high, low), np.where(longer, above, below)
        high = np.where(longer, 2 * high, high)
        above = slope_at(high)
    t = high
    for k in range(_SECANTS):
        rise = above - below
        share = np.where(rise > 0, -below / np.where(rise > 0, rise, 1.0), 0.5) if k % 3 < 2 else 0.5
        t = low + np.clip(share, 0.0, 1.0) * (high - low)
        slope = slope_at(t)
        short = slope < 0
        low, below = np.where(short, t, low), np.where(short, slope, below)
        high, above = np.where(short, high, t), np.where(short, above, slope)
    return t


def _slopes(loss: Loss, offset: Array, T: Array, y: Array) -> Array:
    return loss.gradient(y, T + beside(offset, T))


def _curvature(loss: Loss, T: Array, y: Array, f: Array) -> Array:
    return loss.curvature(y, f, T)


def _weighted(function: Callable[..., Array], T: Array, weight: Array, *parts: Array) -> Array:
    return weight[:, None] * function(T, *parts)
