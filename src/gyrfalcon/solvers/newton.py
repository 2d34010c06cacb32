"""Newton's method for any smooth convex loss, with FALKON's preconditioner inside: logistic FALKON without schedules.

Minimises, over f = offset + K alpha with k columns,

    sum_i w_i loss(y_i, f_i) + n penalty / 2 tr(alpha'K_MM alpha)

as Marteau-Ferey, Bach and Rudi, "Globally convergent Newton methods for ill-conditioned generalized self-concordant
losses" (2019), do: approximate Newton steps, while the penalty falls from a large one, for which any start is near
enough, to the one asked for. All vectors are in the coordinates of `Whitening`, alpha = D Q T^-1 u / sqrt(n), where the
penalty is |u|^2 / 2. A Newton step is

    one pass      f = K alpha (kept, so that nothing drifts) and the gradient g = B'K'W loss' + penalty u
    no pass       A'A = T W T' / M + penalty I made again, with W = w loss'' at the centers, the columns' mean
    a few passes  conjugate gradient on H d = -g with H = B'K'W loss'' K B + penalty I, preconditioned with A, until the
                  residual is a fraction of what it was; K d is put together from the products that CG makes anyway
    no pass       a line search along d, on f + t K d

so that t steps of CG cost t + 1 passes. Columns that a loss does not couple (several quantiles, one class against the
rest) share the passes, each with its own CG and its own length of step; those it couples (softmax) are one vector.

What was chosen by measurement (a9a: n = 16,000, M = 500; MNIST, ten classes: n = 20,000, M = 700; lambda = 1e-6).
Counted are passes to an objective within the number in brackets of the least:

- *the path*: a tenth of the penalty after each step that was near, in that the predicted decrease is less than half of
  the objective. On MNIST it reaches the last penalty after 21 passes, and a rule twice as strict after 30, for nothing;
  factors of 30 and 100 are not faster.
- *accuracy of CG*: to half of the first residual, in the norm of the preconditioner. MNIST takes 49 passes (9e-4); to
  0.3 it takes 58 (4e-4), to 0.1 at the last penalty 74 (1e-3): too much is done for a direction that the next step
  changes. On a9a it makes no difference.
- *length of the step*: by one secant on the slope along d, which may also be longer than 1: MNIST 37 passes (4e-3)
  instead of 43 (2e-3), more at the beginning.
- *weights at the centers*: where few centers have most of the weight (well separated classes: 5% of them) A is made
  from too few points, and a constant weight is better: MNIST 66 passes (2e-3) instead of 86 (4e-3). Where weights are
  even it is worse: a9a 57 (2e-6) instead of 37 (1e-6). So A's weights are the centers' own as far as these are even,
  and their mean for the rest. A from rows drawn by their weights did not help MNIST, and costs several times as much.
- *stages*: a loss that is nearly not smooth (`Quantile`) is minimised through smoother ones: half the passes. The
  last of them has curvature in few rows, which A does not know, and a step that predicts little may hide a long way to
  go: CG that was cut off after 20 steps says nothing, nor does a single step. So CG goes on, and two steps in a row
  must predict little. On 10 problems of 200 to 2,000 rows with weights that differ by factors of up to 1e12 what was
  left were 4% of the objective on average, with 174 passes, and are 0.15%, with twice as many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import Rule, array, boolean, integer, not_negative, number
from .._utils.portable import beside
from ..losses import Loss
from ..operators import Operator, Rowwise
from ..preconditioners import Halfway, Preconditioner
from .base import Iterate, Vectors, recall

Array = NDArray[Any]

_FALL = 10.0  # of the penalty from one level of the path to the next
_NEAR = 0.5  # predicted decrease, relative to the objective, from which on the next level can be begun
_NEAR_STAGE = 0.05  # ... and the next stage of a loss
_CG_RESIDUAL = 0.5
_MOST_CG_STEPS, _MORE_CG_STEPS = 20, 100  # the second for the last stage of a loss with stages
_ARMIJO = 1e-4
_LONGEST = 4.0
_SHORTEST = 1e-10
_CONFIRMED = 2  # steps in a row that predict little, for a loss with stages
_LEAST_SIGNAL = 0.01  # standard deviation of f in the unit of the loss, below which it is a constant and rounding
_PATIENCE = 2  # steps in a row that change the objective by no more than rounding


@dataclass
class NewtonIterate(Iterate):
    """The record of one Newton step.

    For each column, `step` is its length and `ratio` the share of the residual that CG left.

    Attributes
    ----------
    residual : float
        The decrease that the step's quadratic model predicted, relative to the objective; `residuals` for each column.
    error, signal : ndarray of shape (k,)
        Root mean square by which the step moved f, and the standard deviation of f after it, or 0.01 of the loss's unit
        where that is larger.
    penalty : float
        The penalty of the step, which falls to the one asked for.
    objective : float
        After the step: mean loss + penalty / 2 |f|^2, with the penalty asked for and not that of the step, but with the
        loss of the step where that has stages.
    decrement : float
        Newton's, of the mean: the square root of twice the predicted decrease, over n.
    cg_steps : int
        Steps of conjugate gradient.
    at_penalty : bool
        Whether the step had the penalty and the loss asked for, and not one on the way there.
    """

    penalty: float = 0.0
    objective: float = float("nan")
    decrement: float = 0.0
    cg_steps: int = 0
    at_penalty: bool = True
    rules: ClassVar[Mapping[str, Rule]] = {
        **Iterate.rules,
        "penalty": not_negative(),
        "objective": number(lambda x: True, "a number"),
        "decrement": number(lambda x: True, "a number"),
        "cg_steps": integer(0),
        "at_penalty": boolean,
    }

    @property
    def details(self) -> dict[str, Any]:
        """Numbers for the record that this solver has beside those of every solver."""
        return super().details | {
            "penalty": self.penalty,
            "objective": self.objective,
            "decrement": self.decrement,
            "cg_steps": self.cg_steps,
            "step": float(self.step.min()),
        }


def newton(
    operator: Operator,
    y: Array,
    loss: Loss,
    coordinates: Preconditioner,
    penalty: float,
    *,
    max_iter: int,
    tol: float,
    close: float = np.inf,
    weight: Array | None = None,
    start: Array | None = None,
    offset: Array | None = None,
    center_rows: Array | None = None,
    path: Sequence[float] | None = None,
    cg_steps: int | Sequence[int] | None = None,
    resume: Mapping[str, Any] | None = None,
) -> Iterator[NewtonIterate]:
    """Minimise ``mean(w loss(y, offset + K alpha)) + penalty / 2 tr(alpha'K_MM alpha)``.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M).
    y : ndarray of shape (n, k)
        Targets, as the loss has them.
    loss : Loss
        With its parameters resolved (`Loss.resolve`).
    coordinates : Preconditioner
        FALKON's, of the same centers; its A is updated for every step.
    penalty : float
        lambda. Below the coordinates' ``least_penalty`` it counts as that.
    max_iter : int
        Largest number of Newton steps.
    tol : float
        Done when a step at the last penalty predicts, for every column, a decrease of at most ``tol`` times the
        objective, and for a loss with stages when two steps in a row do; the step is still taken, so what remains is
        smaller. Also done when steps no longer lower the objective at the precision of the tiles.
    close : float
        Such a step must also move the fitted values of every column by at most this share of their standard deviation.
    weight : ndarray of shape (n,), optional
        Sample weights, with mean 1.
    start : ndarray of shape (M, k), optional
        Coefficients to start from, at the last penalty: there is no path then.
    offset : ndarray of shape (k,), optional
        The value of f where K alpha is 0.
    center_rows : ndarray of shape (M,), optional
        Indices of the rows that the centers are. Without it A's weights are the mean of all rows.
    path : sequence of float, optional
        Penalties for the first Newton steps, one each, before the last penalty; found by itself if None.
    cg_steps : int or sequence of int, optional
        Steps of CG in each Newton step: one number for all, or a list, whose last number holds for all that follow. If
        None, as many as the accuracy asks for.
    resume : mapping, optional
        An iterate's `Iterate.state`: steps go on from there, bit for bit. All else must be as it was, `start` too. A
        state that does not belong to the problem raises `StateError`.

    Yields
    ------
    NewtonIterate
        One for each Newton step (with `resume`, first the one that is resumed), computed when it is asked for.
    """
    passes: float = operator.passes
    began, done = time.perf_counter(), 0
    if operator.shape != (coordinates.n, coordinates.M):
        raise ValueError(
            f"the operator has shape {operator.shape}, but the coordinates were made for "
            f"{(coordinates.n, coordinates.M)}"
        )
    model = _Model(operator, y, loss, weight, coordinates, offset, start)
    last = max(penalty, coordinates.least_penalty)
    rounding = 4 * float(np.finfo(operator.dtype).eps)
    given = None if path is None else [max(mu, last) for mu in path]
    if start is not None and given is None:
        given = []
    mu, near, waiting, settled = last, True, 0, 0
    stages = [loss] if start is not None else list(loss.stages())
    has_stages = len(loss.stages()) > 1
    if resume is not None:
        rules = {
            "u": array(model.u.shape),
            "near": boolean,
            "waiting": integer(0),
            "settled": integer(0),
            "n_stages": number(lambda x: x in range(1, len(stages) + 1), f"an integer from 1 to {len(stages)}"),
        }
        model.u, near, waiting, settled, n_stages = recall(resume, rules)
        del stages[: len(stages) - n_stages]
        iterate = NewtonIterate.again(
            resume, _coef=partial(coordinates.whitening.apply, model.u), _state=partial(dict, resume)
        )
        done, mu = iterate.iteration, iterate.penalty
        began, passes = began - iterate.seconds, passes - iterate.passes
        yield iterate
        if _is_over(iterate, waiting, rounding):
            return
    for iteration in range(done + 1, max_iter + 1):
        if iteration > 1 and mu == last and near and len(stages) > 1:
            del stages[0]
        model.loss = stages[0]
        model.look()
        h = model.hessian()
        if given is not None:
            mu = given[iteration - 1] if iteration <= len(given) else last
        elif near:
            mu = max(last, _first_penalty(coordinates, operator, h) if iteration == 1 else mu / _FALL)
        coordinates.update(mu, _center_weight(h, center_rows, coordinates.M))
        at_last = mu == last and len(stages) == 1
        wanted = None if cg_steps is None else _number(cg_steps, iteration)
        direction = model.direction(mu, wanted, _MORE_CG_STEPS if has_stages and at_last else _MOST_CG_STEPS)
        t, before, after = model.line_search(direction, mu, rounding)
        predicted = np.maximum(-0.5 * direction.slope, 0) / np.maximum(before, np.finfo(np.float64).tiny)
        model.u = model.u + t * direction.d
        largest = float(predicted.max(initial=0.0))
        near = largest < (_NEAR if mu > last else _NEAR_STAGE)
        waiting = waiting + 1 if ((before - after) <= rounding * before).all() else 0
        error, signal = model.moved(t.astype(direction.Kd.dtype) * direction.Kd)
        still = largest <= tol and bool((error <= close * signal).all())
        settled = settled + 1 if at_last and still else 0
        iterate = NewtonIterate(
            iteration=iteration,
            residual=largest,
            residuals=predicted,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes,
            converged=settled >= (_CONFIRMED if has_stages else 1),
            step=t,
            ratio=direction.left,
            error=error,
            signal=signal,
            penalty=mu,
            objective=float((after.sum() + 0.5 * (last - mu) * model.square_norm()) / coordinates.n),
            decrement=float(np.sqrt(np.maximum(-direction.slope, 0).sum() / coordinates.n)),
            cg_steps=direction.steps,
            at_penalty=at_last,
            _coef=partial(coordinates.whitening.apply, model.u),
            _state=partial(dict, u=model.u, near=near, waiting=waiting, settled=settled, n_stages=len(stages)),
        )
        yield iterate
        if _is_over(iterate, waiting, rounding):
            return


def _is_over(iterate: NewtonIterate, waiting: int, rounding: float) -> bool:
    """Return whether the iteration has converged, or a further step would change nothing."""
    stuck = not iterate.step.any() or iterate.residual <= rounding or waiting >= _PATIENCE
    return iterate.converged or (iterate.at_penalty and stuck)


@dataclass
class _Direction:
    """The result of CG: d, K d, the slope of the objective along d, CG's steps and the share of the residual left."""

    d: Vectors
    Kd: Array
    slope: Vectors
    steps: int
    left: Vectors


class _Model:
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
        k, dtype = y.shape[1], operator.dtype
        self.operator, self.y, self.loss = operator, y, loss
        self.whitening, self.A = B.whitening, B.A
        self.weight = None if weight is None else weight.astype(dtype)[:, None]
        self.offset = np.zeros(k, dtype) if offset is None else np.asarray(offset).astype(dtype)
        self.u = np.zeros((B.rank, k)) if start is None else self.whitening.invert(start.reshape(B.M, k))
        self.f = np.empty(y.shape, dtype)
        self.s = np.empty((B.M, k))
        self.halfway: Halfway = ()

    def total(self, x: Array) -> Vectors:
        """Sum over each column, or over all of them where the loss couples them."""
        return np.atleast_1d(np.sum(x, axis=None if self.loss.coupled else 0, dtype=np.float64))

    def weighted(self, x: Array) -> Array:
        """Multiply rows by their sample weights."""
        return x if self.weight is None else self.weight * x

    def _rowwise(self, function: Callable[..., Array], *arrays: Array, portable: bool = False) -> Rowwise:
        """Make a weight that can be sent to the rows, times the sample weights."""
        if self.weight is None:
            return Rowwise(function, *arrays, portable=portable)
        return Rowwise(partial(_weighted, function), self.weight, *arrays, portable=portable)

    def look(self) -> None:
        """Compute f and K'W loss' at u, in one pass over the rows."""
        alpha, self.halfway = self.whitening.forward(self.u)
        self.f = np.empty(self.y.shape, self.operator.dtype)
        slopes = self._rowwise(partial(_slopes, self.loss, self.offset), self.y, portable=self.loss.portable)
        self.s = self.operator.sandwich(alpha, slopes, KV=self.f)
        self.f += self.offset

    def hessian(self) -> Vectors:
        """Return the weighted second derivative of each row, averaged over the columns."""
        h = self.weighted(self.loss.hessian(self.y, self.f)).mean(axis=1, dtype=np.float64)
        return np.maximum(h, 0.0)

    def moved(self, change: Array) -> tuple[Vectors, Vectors]:
        """Return the root mean square of a change of f, and the standard deviation of f after it, at least 0.01."""
        after = self.f + change
        after -= self.weighted(after).mean(axis=0, dtype=np.float64).astype(after.dtype)
        squares, spread = (self.total(self.weighted(np.square(x))) for x in (change, after))
        return np.sqrt(squares / len(after)), np.maximum(np.sqrt(spread / len(after)), _LEAST_SIGNAL)

    def square_norm(self) -> float:
        """Return n times the squared norm of the function u."""
        halfway = self.whitening.forward(self.u)[1]
        return float(self._inner(halfway, halfway).sum())

    def _inner(self, a: Halfway, b: Halfway) -> Vectors:
        """Return inner products of functions, times n; the jitter is taken out as in `Whitening.backward`."""
        return self.total(a[0] * b[0] - self.whitening.correction * (a[1] * b[1]))

    def direction(self, mu: float, steps: int | None, most: int) -> _Direction:
        """Solve H d = -g by CG, preconditioned with A, for `steps` steps, or to its accuracy in at most `most`."""
        whitening, A, f = self.whitening, self.A, self.f
        at_f = self.loss.curvature_at(self.y, f)
        curvature_at_f = self._rowwise(at_f.function, *at_f.arrays, portable=at_f.portable)
        g = whitening.backward(self.s, self.halfway, mu)
        Kp, Kd, d, r = np.empty_like(f), np.zeros_like(f), np.zeros_like(g), -g

        p = z = A.solve(A.solve_transposed(r))
        rz = first = self.total(r * z)
        active = first > 0
        step = 0
        while active.any() and step < (steps or most):
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
            Kd += a.astype(Kd.dtype) * Kp
            r = r - np.where(good, a, 0.0) * Hp
            z = A.solve(A.solve_transposed(r))
            new = np.where(active, self.total(r * z), rz)
            if steps is None:
                active &= new > _CG_RESIDUAL**2 * first
            p = z + np.where(active, new / np.where(rz > 0, rz, 1.0), 0.0) * p
            rz = new
        left = np.sqrt(np.maximum(rz, 0.0) / np.where(first > 0, first, 1.0))
        return _Direction(d, Kd, self.total(g * d), step, left)

    def line_search(self, direction: _Direction, mu: float, rounding: float) -> tuple[Vectors, Vectors, Vectors]:
        """Return step lengths with enough decrease (0 if there is none), and the objective before and after."""
        d, Kd, slope = direction.d, direction.Kd, direction.slope
        along = self.whitening.forward(d)[1]
        uu, ud, dd = (self._inner(*pair) for pair in ((self.halfway,) * 2, (self.halfway, along), (along,) * 2))

        def objective(t: Vectors) -> Vectors:
            with np.errstate(over="ignore", invalid="ignore"):
                values = self.loss.value(self.y, self.f + t.astype(Kd.dtype) * Kd)
            return self.total(self.weighted(values)) + mu / 2 * (uu + 2 * t * ud + t * t * dd)

        before = objective(np.zeros_like(slope))
        t = np.where(slope < 0, self._secant(direction, mu * (ud + dd)), 0.0)
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

    def _secant(self, direction: _Direction, penalty_slope: Vectors) -> Vectors:
        """Return the step at which the slope along d is 0 by the secant from 0 to 1; 1 if it is small there already."""
        before = direction.slope
        with np.errstate(over="ignore", invalid="ignore"):
            gradient = self.weighted(self.loss.gradient(self.y, self.f + direction.Kd))
            slope = self.total(gradient * direction.Kd) + penalty_slope
        sensible = np.isfinite(slope) & (np.abs(slope) > 0.1 * np.abs(before)) & (slope > before)
        return np.where(sensible, np.clip(before / np.where(sensible, before - slope, 1.0), 0.1, _LONGEST), 1.0)


def _slopes(loss: Loss, offset: Array, T: Array, y: Array) -> Array:
    return loss.gradient(y, T + beside(offset, T))


def _weighted(function: Callable[..., Array], T: Array, weight: Array, *parts: Array) -> Array:
    return weight * function(T, *parts)


def _first_penalty(coordinates: Preconditioner, operator: Operator, h: Vectors) -> float:
    """Return a penalty near the largest eigenvalue of the Hessian; for the logistic loss a tenth of k(x, x)."""
    size = 8 * coordinates.least_penalty / float(np.finfo(operator.dtype).eps)  # the mean of k(z, z)
    return 0.4 * size * float(h.mean())


def _center_weight(h: Vectors, center_rows: Array | None, M: int) -> Vectors:
    """Return A's weights at the centers: their own as far as these are even, the mean of all rows for the rest."""
    mean = np.full(M, h.mean())
    if center_rows is None:
        return mean
    own = h[center_rows]
    squares = float(np.square(own).sum())
    even = float(own.sum()) ** 2 / (M * squares) if squares > 0 else 0.0  # effective number of centers, over M
    share = min(1.0, 2 * even)
    return share * own + (1 - share) * mean


def _number(cg_steps: Any, iteration: int) -> int:
    return int(cg_steps) if isinstance(cg_steps, Integral) else cg_steps[min(iteration, len(cg_steps)) - 1]
