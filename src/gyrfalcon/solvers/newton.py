"""Newton's method for smooth convex losses, with FALKON's preconditioner inside: logistic FALKON without schedules.

Minimises, over f = offset + K alpha with k columns,

    sum_i w_i loss(y_i, f_i) + n penalty / 2 tr(alpha'K_MM alpha)

by the method of Marteau-Ferey, Bach and Rudi, "Globally convergent Newton methods for ill-conditioned generalized
self-concordant losses" (2019): approximate Newton steps, while the penalty falls from a large one, for which any start
is near enough, to the requested one. All vectors are in the coordinates of `Whitening`, alpha = D Q T^-1 u / sqrt(n),
where the penalty is |u|^2 / 2. A Newton step consists of

    one pass      f = K alpha (stored, so that errors do not accumulate) and the gradient g = B'K'W loss' + penalty u
    no pass       A'A = T W T' / M + penalty I, with W = w loss'' at the centers, averaged over the columns
    a few passes  conjugate gradient on H d = -g with H = B'K'W loss'' K B + penalty I, preconditioned with A, until the
                  residual has fallen to a fraction; K d is assembled from the products that CG computes anyway
    no pass       a line search along d, on f + t K d

so that t steps of CG cost t + 1 passes. Columns that the loss does not couple (several quantiles, one class against the
rest) share the passes, each with its own CG and step length; coupled columns (softmax) are one vector.

Choices by measurement (a9a: n = 16,000, M = 500; MNIST, ten classes: n = 20,000, M = 700; lambda = 1e-6), in passes to
an objective within the number in brackets of the least:

- *path*: the penalty is divided by ten after each step whose predicted decrease is below half of the objective. MNIST
  reaches the last penalty after 21 passes; a rule twice as strict takes 30, and factors of 30 and 100 are not faster.
- *accuracy of CG*: half of the first residual, in the norm of the preconditioner. MNIST takes 49 passes (9e-4); 58
  (4e-4) with 0.3, and 74 (1e-3) with 0.1 at the last penalty. On a9a it makes no difference.
- *length of the step*: one secant on the slope along d, possibly above 1: MNIST 37 passes (4e-3) instead of 43 (2e-3).
- *weights at the centers*: where few centers have most of the weight (5% of them for well separated classes), A is made
  from too few points, and a constant weight is better: MNIST 66 passes (2e-3) instead of 86 (4e-3). Where weights are
  even it is worse: a9a 57 (2e-6) instead of 37 (1e-6). So A's weights are the centers' own as far as these are even,
  and their mean for the rest. Rows drawn by their weights did not help MNIST, and cost several times as much.
- *stages*: a nearly non-smooth loss (`Quantile`) is minimised through smoother ones, in half the passes. The last stage
  has curvature in few rows, which A does not represent, so that a small predicted decrease alone does not show
  convergence: CG may take more steps, and two Newton steps in a row must predict little. On 10 problems of 200 to 2,000
  rows with weights that differ by factors of up to 1e12 the remaining excess fell from 4% of the objective on average
  (174 passes) to 0.15% (twice as many).
- *sharp losses* (hinges): rows gain and lose their curvature within a step, whose length is therefore found by several
  secants, and at the last penalty CG goes on to a fifth of the first residual. On moons, a9a and MNIST (2,000 to 10,000
  rows, M = 300 and 500, penalties 1e-4 to 1e-6) this took 6 to 18 instead of 6 to 28 Newton steps for the squared
  hinge, and 8 to 24 instead of 11 to 44 for the hinge with two thirds of the passes, to the same objective. A tenth of
  the residual takes as many steps and up to a half more passes; half of it up to twice as many steps. As with stages,
  two steps in a row must predict little: with one, 500 rows with a penalty of 1e-6 stopped 1.2% above the minimum.
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
from ..losses import Loss
from ..operators import Operator
from ..preconditioners import Preconditioner
from .base import Iterate, Vectors, recall
from .newton_step import Accuracy, Objective

Array = NDArray[Any]

_FALL = 10.0  # factor by which the penalty falls from one level of the path to the next
_NEAR = 0.5  # predicted decrease, relative to the objective, below which the next level of the path begins
_NEAR_STAGE = 0.05  # ... and below which the next stage of a loss begins
_ACCURACY = Accuracy(residual=0.5, most_steps=20)
_LAST_ACCURACY = Accuracy(residual=0.5, most_steps=100)  # for the last stage of a loss with stages
_SHARP_ACCURACY = Accuracy(residual=0.2, most_steps=60)  # for a sharp loss, at the last penalty
_CONFIRMED = 2  # number of steps in a row that must meet the tolerance, for a loss that is sharp or has stages
_PATIENCE = 2  # number of steps in a row that may change the objective by no more than rounding


@dataclass
class NewtonIterate(Iterate):
    """The record of one Newton step.

    For each column, `step` is the length of the step and `ratio` the share of the residual that CG left.

    residual : decrease predicted by the step's quadratic model, relative to the objective; `residuals` by column
    error, signal : root mean square by which the step moved f, and the standard deviation of f after it, or 0.01 of the
        loss's unit if that is larger
    penalty : penalty of this step; it falls to the requested one
    objective : mean loss + penalty / 2 |f|^2 after the step, with the requested penalty and the loss of its stage
    decrement : Newton decrement of the mean objective, the square root of twice the predicted decrease over n
    cg_steps : number of conjugate gradient steps
    at_penalty : whether the step had the requested penalty and loss, not intermediate ones
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

    Yields one iterate for each Newton step (with `resume`, first the resumed one), computed when it is requested.

    y : targets of shape (n, k), in the form that the loss expects
    loss : with its parameters resolved (`Loss.resolve`)
    coordinates : FALKON's preconditioner of the same centers; its A is updated for every step
    penalty : lambda; values below ``coordinates.least_penalty`` are raised to it
    max_iter : largest number of Newton steps
    tol : stop when a step at the last penalty predicts, for every column, a decrease of at most ``tol`` times the
        objective (two steps in a row for a loss that is sharp or has stages), or when steps no longer lower the
        objective at the precision of the tiles; the step is still taken
    close : such a step must also move the fitted values of a column by at most this share of their deviation
    weight : sample weights of shape (n,), with mean 1
    start : coefficients of shape (M, k) to start from, at the last penalty and without a path
    offset : value of f where K alpha is 0, of shape (k,)
    center_rows : row indices of the centers; without them A's weights are the mean of all rows
    path : penalties of the first Newton steps, one each; chosen automatically if None
    cg_steps : number of CG steps in each Newton step, or a list whose last number is repeated; None stops by accuracy
    resume : state of an iterate (`Iterate.state`) to continue from, bit for bit, with all other arguments unchanged; a
        state of another problem raises `StateError`
    """
    passes: float = operator.passes
    began, done = time.perf_counter(), 0
    objective = Objective(operator, y, loss, weight, coordinates, offset, start)
    last, rounding = max(penalty, coordinates.least_penalty), 4 * float(np.finfo(operator.dtype).eps)
    course = _Course(loss, last, path, started=start is not None)
    if resume is not None:
        iterate = course.resume(resume, objective)
        done = iterate.iteration
        began, passes = began - iterate.seconds, passes - iterate.passes
        yield iterate
        if _is_over(iterate, course.waiting, rounding):
            return
    for iteration in range(done + 1, max_iter + 1):
        objective.loss = course.next_stage(iteration)
        objective.look()
        mean, own = objective.hessian(center_rows)
        mu = course.next_penalty(iteration, partial(_first_penalty, coordinates, operator, mean))
        coordinates.update(mu, _center_weight(mean, own, coordinates.M))
        wanted = None if cg_steps is None else _number(cg_steps, iteration)
        direction = objective.direction(mu, wanted, course.accuracy)
        t, before, after = objective.line_search(direction, mu, rounding)
        predicted = np.maximum(-0.5 * direction.slope, 0) / np.maximum(before, np.finfo(np.float64).tiny)
        objective.u = objective.u + t * direction.d
        largest = float(predicted.max(initial=0.0))
        error, signal = objective.moved(t, direction.Kd)
        lowered = not ((before - after) <= rounding * before).all()
        course.took_step(largest, lowered, still=largest <= tol and bool((error <= close * signal).all()))
        iterate = NewtonIterate(
            iteration=iteration,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes,
            error=error,
            signal=signal,
            objective=float((after.sum() + 0.5 * (last - mu) * objective.square_norm()) / coordinates.n),
            _coef=partial(coordinates.whitening.apply, objective.u),
            _state=partial(dict, u=objective.u, **course.state()),
            **direction.numbers(t, predicted, coordinates.n),
            **course.numbers(),
        )
        yield iterate
        if _is_over(iterate, course.waiting, rounding):
            return


def _is_over(iterate: NewtonIterate, waiting: int, rounding: float) -> bool:
    """Return whether the iteration has converged, or a further step would change nothing."""
    stuck = not iterate.step.any() or iterate.residual <= rounding or waiting >= _PATIENCE
    return iterate.converged or (iterate.at_penalty and stuck)


class _Course:
    """The path to the requested penalty and loss: chooses those of the next step, and decides when the steps are done.

    mu : penalty of the step
    near : whether the last predicted decrease was small enough to begin the next penalty or stage
    waiting : number of steps in a row that have not lowered the objective by more than rounding
    settled : number of steps in a row that met the tolerance
    """

    def __init__(self, loss: Loss, last: float, path: Sequence[float] | None, started: bool) -> None:
        self.last = self.mu = last
        self.given: list[float] | None = [] if started else None
        if path is not None:
            self.given = [max(mu, last) for mu in path]
        self.stages = [loss] if started else list(loss.stages())
        self.has_stages, self.sharp = len(loss.stages()) > 1, loss.sharp
        self.near, self.waiting, self.settled = True, 0, 0

    @property
    def at_end(self) -> bool:
        """Whether the step has the penalty and the loss asked for."""
        return self.mu == self.last and len(self.stages) == 1

    @property
    def accuracy(self) -> Accuracy:
        """When CG stops."""
        if self.sharp and self.mu == self.last:
            return _SHARP_ACCURACY
        return _LAST_ACCURACY if self.has_stages and self.at_end else _ACCURACY

    def next_stage(self, iteration: int) -> Loss:
        """Return the loss of the next step."""
        if iteration > 1 and self.mu == self.last and self.near and len(self.stages) > 1:
            del self.stages[0]
        return self.stages[0]

    def next_penalty(self, iteration: int, first: Callable[[], float]) -> float:
        """Return the penalty of the next step; `first` finds that of the first step."""
        if self.given is not None:
            self.mu = self.given[iteration - 1] if iteration <= len(self.given) else self.last
        elif self.near:
            self.mu = max(self.last, first() if iteration == 1 else self.mu / _FALL)
        return self.mu

    def took_step(self, predicted: float, lowered: bool, still: bool) -> None:
        """Note the predicted decrease, whether the objective fell, and whether the step met the tolerance."""
        self.near = predicted < (_NEAR if self.mu > self.last else _NEAR_STAGE)
        self.waiting = 0 if lowered else self.waiting + 1
        self.settled = self.settled + 1 if self.at_end and still else 0

    def numbers(self) -> dict[str, Any]:
        """Return what an iterate records of the course."""
        converged = self.settled >= (_CONFIRMED if self.has_stages or self.sharp else 1)
        return {"converged": converged, "penalty": self.mu, "at_penalty": self.at_end}

    def state(self) -> dict[str, Any]:
        """Return what `resume` takes, without the iterate and u."""
        return {"near": self.near, "waiting": self.waiting, "settled": self.settled, "n_stages": len(self.stages)}

    def resume(self, state: Mapping[str, Any], objective: Objective) -> NewtonIterate:
        """Go on from a state, and return its iterate."""
        n = len(self.stages)
        rules = {
            "u": array(objective.u.shape),
            "near": boolean,
            "waiting": integer(0),
            "settled": integer(0),
            "n_stages": number(lambda x: x in range(1, n + 1), f"an integer from 1 to {n}"),
        }
        objective.u, self.near, self.waiting, self.settled, n_stages = recall(state, rules)
        del self.stages[: n - n_stages]
        iterate = NewtonIterate.again(
            state, _coef=partial(objective.whitening.apply, objective.u), _state=partial(dict, state)
        )
        self.mu = iterate.penalty
        return iterate


def _first_penalty(coordinates: Preconditioner, operator: Operator, mean: float) -> float:
    """Return a penalty near the largest eigenvalue of the Hessian; for the logistic loss a tenth of k(x, x)."""
    size = 8 * coordinates.least_penalty / float(np.finfo(operator.dtype).eps)  # the mean of k(z, z)
    return 0.4 * size * mean


def _center_weight(mean: float, own: Vectors | None, M: int) -> Vectors:
    """Return A's weights at the centers: their own as far as these are even, the mean of all rows for the rest."""
    means = np.full(M, mean)
    if own is None:
        return means
    squares = float(np.square(own).sum())
    even = float(own.sum()) ** 2 / (M * squares) if squares > 0 else 0.0  # effective number of centers, over M
    share = min(1.0, 2 * even)
    return share * own + (1 - share) * means


def _number(cg_steps: Any, iteration: int) -> int:
    return int(cg_steps) if isinstance(cg_steps, Integral) else cg_steps[min(iteration, len(cg_steps)) - 1]
