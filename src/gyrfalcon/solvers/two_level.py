"""Conjugate gradient on all rows, preconditioned by a few steps of conjugate gradient on a sample of them.

FALKON's preconditioner is made from the centers alone, and leaves condition numbers of 30 to 200 where lambda is small
for M: ten to twenty passes. A sample of s rows, several times the number of centers, approximates the system better,

    W = B'(K'WK + lambda n K_MM)B,     W_s = B'((n/s) K_s'W_s K_s + lambda n K_MM)B,

and an iteration on it costs s/n of a pass, or less if K_s is kept in memory. So the first solution is the sample's, and
each iteration on all rows goes along z = W_s^-1 r, approximated by a few steps of CG: flexible conjugate gradient
(Notay 2000), since this is not linear in r. With hundreds of rows for a center, one or two iterations on all rows are
as good as ten of CG. z'r estimates the distance from the solution, in the norm of the problem; the sample understates
it by a factor that is estimated from the true gain of each iteration.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import array, integer
from .._utils.statistics import deviations, sums
from ..operators import Operator
from ..preconditioners import Coordinates
from .base import Iterate, System, Vectors, coefficients, make_system, recall, signals, sizes
from .lanczos import ritz_values

FIRST_STEPS = 10  # number of steps on the sample for the first solution
# Fewest and largest number of steps on the sample for a residual. In between they stop when the remaining share of the
# residual is at most RESIDUAL_SHARE times the root of centers over rows of the sample, which measures how much the
# problem of the sample differs. Chosen by the time of fits with test errors within 0.2% of the solution's: with
# n = 463,715, M = 10,000 there is one pass more after 2 and 3 steps, and with n = 200,000, M = 2,000 after 5 instead
# of 7
FEWEST_STEPS, STEPS, RESIDUAL_SHARE = 5, 8, 0.7
# Share of the rows up to which a sample is small, and RESIDUAL_SHARE for such samples: one more step on them costs less
# than the pass that it saves (measured with n = 500,000, M = 1,000)
_SMALL_SHARE, _SMALL_SAMPLE_SHARE = 1 / 24, 0.4
# A sample is poor if its steps leave more than this share of the residual, or if the step along their direction is
# shorter than this. Good samples left 0.2 to 0.4, with steps of 0.4 to 1; a smooth kernel with penalties of 1e-7 and
# 1e-9, where FALKON's preconditioner hardly helps, 0.8 to 2 and 0.04 to 0.15
POOR_SHARE, _SHORT = 0.6, 0.3
_SOLVED = 1e-3  # share of a residual below which steps on the sample end at once: its equations were factored
# Where the equations of the sample were factored, an iteration lowers the energy to about centers over rows of it, 1/30
# to 1/80. If more than _SLOW is left, a few rows decide much, which the sample counts many times or not at all, and it
# may understate the energy of the error by _UNDERSTATED: a row 1,000 deviations away left an error of 0.24 of the
# fitted values where 0.012 was estimated
_SLOW, _UNDERSTATED = 0.1, 30.0
# Numbers and arrays of an iterate's state, of shape (rank, k) and (k,)
_COUNTS = {**{name: Iterate.rules[name] for name in ("iteration", "seconds", "passes")}, "sampled": integer(0)}
_TALL = ("beta", "r", "p", "b")
_FLAT = ("energy", "missed", "scale", "shrinks", "known", "step", "left")
ENOUGH = 1.25e-3  # energy of the error over the least objective; the squared error of predictions grows by about 0.1%
# Root mean square error of fitted values, as a share of their own standard deviation, below which a fit is done; half
# of that after _MANY iterations, since the estimate of the error is then rough. It is stricter than ENOUGH where fitted
# values explain less than a third of y's variance, so that most of the objective is noise
CLOSE, _MANY = 0.046, 10
_AHEAD = 6  # iterations after which no step is extrapolated: a sample that needs more lacks important rows
_LONGEST = 2.0  # largest step along a direction whose product with the system is not known
_SCALES = 1.0, 10.0  # limits of the factor by which the sample understates the energy of the error


@dataclass(frozen=True)
class RowSample:
    """Some of the rows, drawn with probabilities proportional to their weights.

    Attributes
    ----------
    operator : Operator
        K_s, of shape (s, M).
    y : ndarray of shape (s, k)
    weight : ndarray of shape (s,)
        Weights with which sums over the sample estimate sums over all rows.

    Examples
    --------
    See `two_level_cg`.

    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.solvers import RowSample
    >>> X = np.random.default_rng(0).standard_normal((1000, 2))
    >>> some = KernelOperator("gaussian", X[:200], X[:20])
    >>> sample = RowSample(some, np.sin(X[:200, :1]), np.full(200, 1000 / 200))
    >>> float(sample.weight.sum())
    1000.0
    """

    operator: Operator
    y: NDArray[Any]
    weight: NDArray[Any]


def two_level_cg(
    operator: Operator,
    y: NDArray[Any],
    sample: RowSample,
    coordinates: Coordinates,
    penalty: float,
    *,
    max_iter: int,
    tol: float,
    enough: float = ENOUGH,
    weight: NDArray[Any] | None = None,
    start: NDArray[Any] | None = None,
    resume: Mapping[str, Any] | None = None,
) -> Iterator[Iterate]:
    """Solve ``(K'WK + penalty n K_MM) alpha = K'W y`` for all columns of y at once.

    Parameters
    ----------
    operator, y, coordinates, penalty, max_iter, tol, weight, start, resume
        As for `conjugate_gradient`. With `start` the sample is not solved first.
    sample : RowSample
        Of the same rows.
    enough : float
        Stop as well when the energy of the error is at most this share of the least objective, and the error of the
        fitted values less than 4.6% of their deviation; 0 stops by the residual alone.

    Yields
    ------
    Iterate
        One for each iteration on all rows. `Iterate.passes` counts those over the sample as parts of a pass,
        `Iterate.ratio` is the share of each residual that the steps on the sample have left, and there is no condition
        number.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Preconditioner
    >>> from gyrfalcon.solvers import RowSample, two_level_cg
    >>> X = np.random.default_rng(0).standard_normal((2000, 2))
    >>> y, penalty = np.sin(X[:, 0]), 1e-4
    >>> K = KernelOperator("gaussian", X, X[:20])
    >>> sample = RowSample(K.on(X[:400]), y[:400, None], np.full(400, 2000 / 400))
    >>> B = Preconditioner(K.centers_gram(), penalty=penalty, n=2000)
    >>> *_, last = two_level_cg(K, y, sample, B, penalty, max_iter=20, tol=1e-10, enough=0.0)
    >>> left = K.sandwich(np.eye(20)) + penalty * 2000 * K.centers_gram()
    >>> np.allclose(last.coef(), np.linalg.solve(left, K.rmatmat(y)))
    True
    """
    began, done = time.perf_counter(), 0
    B, (n, M), penalty = coordinates, operator.shape, max(penalty, coordinates.least_penalty)
    system = make_system(operator, y, B, penalty, weight)
    few = System(sample.operator, sample.y.reshape(len(sample.y), -1), sample.weight, B, penalty)
    passes, sampled, share = operator.passes, sample.operator.passes, sample.operator.shape[0] / n
    sample.operator.fill()  # before the first product: sums over a stored K are added in another order
    targets = sums(system.Y, weight, np.square), deviations(system.Y, weight)
    if resume is None:
        now = _begin(system, few, start)
    else:
        done, seconds, passes_done, sampled_done = recall(resume, _COUNTS)
        began -= seconds
        # the earlier passes over all rows are a whole number; the pass of `fill` is among those over the sample
        passes, sampled = passes - round(passes_done - share * sampled_done), sample.operator.passes - sampled_done
        now = _resume(resume, (B.rank, system.Y.shape[1]))

    def record(iteration: int) -> Iterate:
        on_sample, residuals = sample.operator.passes - sampled, np.linalg.norm(now.r, axis=0) / now.size
        ahead, error, signal, near = _measure(system, now, targets, enough, iteration)
        return Iterate(
            iteration=iteration,
            residual=float(residuals.max(initial=0.0)),
            residuals=residuals,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes + share * on_sample,
            converged=bool(((residuals <= tol) | near).all()),
            step=now.step,
            ratio=now.left,
            error=error,
            signal=signal,
            _coef=partial(coefficients, B, now.beta + ahead, (M, *y.shape[1:])),
            _state=partial(_state, now, on_sample),
        )

    latest = record(done)
    if resume is not None or max_iter == 0 or latest.converged:
        yield latest
    while latest.iteration < max_iter and not latest.converged:
        found = _step(system, few, now, first=latest.iteration == 0)
        if found is None:
            if latest.iteration == 0:  # which has not been yielded yet
                yield latest
            return
        now = found
        latest = record(latest.iteration + 1)
        yield latest


@dataclass(frozen=True)
class _Columns:
    """State of all columns after an iteration; arrays that were yielded are never changed.

    beta, r, p, b : the solution so far, its residual, the next direction, and the right-hand side, of shape (rank, k)
    energy : z'r, the energy of the error as estimated by the sample
    missed : energy left by the steps on the sample
    scale : factor by which the sample understates the energy
    shrinks : ratio of the energies after and before the last iteration
    known : squared norm of r when it was last computed instead of updated
    step, left : length of the last step, and share of the residual left by the steps on the sample
    size : norm of b
    """

    beta: Vectors
    r: Vectors
    p: Vectors
    b: Vectors
    energy: Vectors
    missed: Vectors
    scale: Vectors
    shrinks: Vectors
    known: Vectors
    step: Vectors
    left: Vectors
    size: Vectors


def _begin(system: System, few: System, start: NDArray[Any] | None) -> _Columns:
    """Solve the sample's problem, or take `start`, and make the columns before the first iteration in one pass."""
    B, k = system.B, system.Y.shape[1]
    if start is None:
        beta, _, _ = _few_steps(few, few.rhs(), FIRST_STEPS, 0.0)
    else:
        beta = B.invert(start.reshape(B.M, k))
    b, r = system.rhs_and_residual(beta)
    size = sizes(b)
    z, left, missed = _few_steps(few, r, STEPS, _least_share(system, few))
    energy, known = (z * r).sum(axis=0), np.square(r).sum(axis=0)
    return _Columns(beta, r, z, b, energy, missed, np.ones(k), np.ones(k), known, np.ones(k), left, size)


def _resume(state: Mapping[str, Any], shape: tuple[int, int]) -> _Columns:
    """Make the columns of an iterate's state."""
    rules = {**dict.fromkeys(_TALL, array(shape)), **dict.fromkeys(_FLAT, array(shape[1:]))}
    found = dict(zip(rules, recall(state, rules), strict=True))
    return _Columns(**found, size=sizes(found["b"]))


def _state(now: _Columns, on_sample: int) -> dict[str, Any]:
    return {"sampled": on_sample, **{name: vars(now)[name] for name in (*_TALL, *_FLAT)}}


def _step(system: System, few: System, before: _Columns, first: bool) -> _Columns | None:
    """Make one iteration on all rows; None if rounding, or a kernel that is not positive, lets no column step."""
    beta, r, p, known = before.beta, before.r, before.p, before.known
    # As in `conjugate_gradient`, a residual that has fallen by this much since it was last computed is not trusted.
    fall = float(np.sqrt(np.finfo(system.operator.dtype).eps))
    if (np.square(r).sum(axis=0) < fall * known).any():
        Wp, r = system.product_and_residual(p, beta, np.arange(len(known)))
        known = np.square(r).sum(axis=0)
    else:
        Wp = system.product(p)
    along = (p * r).sum(axis=0)
    step = np.maximum(_quotient(along, (p * Wp).sum(axis=0)), 0.0)
    if not step.any():
        return None
    beta, last_r, r = beta + step * p, r, r - step * Wp
    z, left, missed = _few_steps(few, r, STEPS, _least_share(system, few))
    # Polak and Ribière's ratio, for a preconditioner that changes
    ratio = np.maximum(_quotient((z * (r - last_r)).sum(axis=0), before.energy), 0.0)
    energy = (z * r).sum(axis=0)
    scale = np.clip(_quotient(step * along, before.energy - energy), *_SCALES)
    # where the error falls irregularly, one large reduction does not promise the next
    floor = 0.0 if first else before.shrinks / 2
    shrinks = np.clip(_quotient(energy, before.energy), floor, 1.0)
    p = z + ratio * p
    return _Columns(beta, r, p, before.b, energy, missed, scale, shrinks, known, step, left, before.size)


def _measure(
    system: System, now: _Columns, targets: tuple[Vectors, Vectors], enough: float, iteration: int
) -> tuple[Vectors, Vectors, Vectors, NDArray[np.bool_]]:
    """Return a step beyond what is known, or 0; the error after it, the signal, and whether the error is small enough.

    The next direction is at hand, and the next step is about as long as the last. With it the energy shrinks once more
    as much as in the last iteration, if the sample's problem is like that of all rows. `targets` are y'Wy and the
    standard deviations of y.
    """
    n, (squares, spread) = system.operator.shape[0], targets
    ahead, rest = np.zeros_like(now.p), now.scale * np.maximum(now.energy, 0.0)
    if enough > 0 and iteration <= _AHEAD:  # not where the residual alone decides
        ahead = np.minimum(now.step, _LONGEST) * now.p
        # where the sample's equations were factored, the first reduction is much larger than those that follow
        foreseen = (now.left <= POOR_SHARE) & (now.step >= 0.5) & ((now.left > _SOLVED) | (iteration > 1))
        rest = rest * np.where(foreseen, now.shrinks, 1.0)
    slow = (now.left <= _SOLVED) & (now.shrinks > _SLOW) & (iteration > 0)
    rest = rest * np.where(slow, _UNDERSTATED, 1.0) + now.missed
    error = np.sqrt(rest / n)
    signal = signals(system.fitted_size(now.beta, now.b, now.r), error, spread)
    objective = np.maximum(squares - ((now.b + now.r) * now.beta).sum(axis=0), 0.0)
    close = CLOSE if iteration <= _MANY else CLOSE / 2
    limit = np.minimum(enough * objective, n * np.square(close * signal))
    return ahead, error, signal, (now.left <= POOR_SHARE) & (rest <= limit) & (enough > 0)


def _least_share(system: System, few: System) -> float:
    """Return the share of a residual below which steps on the sample stop; see `RESIDUAL_SHARE`."""
    (n, M), s = system.operator.shape, few.operator.shape[0]
    known = _SMALL_SAMPLE_SHARE if s / n <= _SMALL_SHARE else RESIDUAL_SHARE
    return min(known * float(np.sqrt(M / s)), 2 / 3 * POOR_SHARE)


def is_poor(iterate: Iterate) -> bool:
    """Whether the sample's problem differs much from that of all rows, or was not solved."""
    return bool((iterate.ratio > POOR_SHARE).any() or (iterate.step < _SHORT).any())


def _few_steps(system: System, r: Vectors, steps: int, least: float) -> tuple[Vectors, Vectors, Vectors]:
    """Solve the system for right-hand sides r by at most `steps` steps of conjugate gradient from zero.

    They end when at most the share `least` of each column's residual is left. Returns the solution, that share, and the
    energy of the solution's error: at most the squared residual over the least eigenvalue, as far as CG has found it.
    """
    x, q, rr = np.zeros_like(r), r, np.square(r).sum(axis=0)
    whole = rr
    lengths: list[Vectors] = []
    ratios: list[Vectors] = []
    for number in range(steps):
        Wq = system.product(q)
        step = _quotient(rr, (q * Wq).sum(axis=0))
        x, r = x + step * q, r - step * Wq
        before, rr = rr, np.square(r).sum(axis=0)
        lengths.append(step)
        ratios.append(_quotient(rr, before))
        wanted = least if number + 1 >= FEWEST_STEPS else _SOLVED
        if (rr <= wanted**2 * whole).all():
            break
        q = r + ratios[-1] * q
    low, _ = ritz_values(lengths, ratios)
    return x, np.sqrt(_quotient(rr, whole)), _quotient(rr, low)


def _quotient(a: Vectors, b: Vectors) -> Vectors:
    """Return a / b, and 0 where b is not positive or not finite."""
    return np.divide(a, b, out=np.zeros_like(a), where=(b > 0) & np.isfinite(b))
