"""Conjugate gradient on all rows, preconditioned by a few steps of conjugate gradient on a sample of them.

FALKON's preconditioner knows the rows by the centers alone, and leaves condition numbers of 30 to 200 where lambda is
small for M: ten to twenty passes. A sample of s rows, some times more than there are centers, knows the system better,

    W = B'(K'WK + lambda n K_MM)B,     W_s = B'((n/s) K_s'W_s K_s + lambda n K_MM)B,

and an iteration on it costs s/n of a pass, or less if K_s is kept in memory. So the first solution is the sample's, and
each iteration on all rows goes along z = W_s^-1 r, up to a few steps of CG: flexible conjugate gradient (Notay 2000),
since what a few steps do is no linear function of r. One or two iterations on all rows are as good as ten of CG where
there are hundreds of rows for a center, and z'r estimates how far the solution still is, in the norm of the problem:
the sample understates that by a factor which the true gain of each iteration tells.
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

FIRST_STEPS = 10
# Later ones are for a residual. After the fewest they stop when the share of it that is left is so many times the root
# of centers over rows of the sample, by which its problem differs from that of all rows. Chosen by the time of fits
# with test errors within 0.2% of the solution's: with n = 463,715, M = 10,000 there is one pass more after 2 and 3
# steps, and with n = 200,000, M = 2,000 after 5 instead of 7. Where the sample is a small share of the rows, a step
# more costs less than the pass that it saves (n = 500,000, M = 1,000)
FEWEST_STEPS, STEPS, KNOWN = 5, 8, 0.7
_SMALL_SHARE, _KNOWN_OF_SMALL = 1 / 24, 0.4
# Share of the residual that steps on the sample may leave, and least step along what they found. Where they say much of
# the problem they left 0.2 to 0.4, and steps were 0.4 to 1; with a smooth kernel and penalties of 1e-7 and 1e-9, for
# which FALKON's preconditioner is none, 0.8 to 2 and 0.04 to 0.15
POOR, _SHORT = 0.6, 0.3
_COUNTS = ("iteration", "seconds", "passes")
_TALL = ("beta", "r", "p", "b")
_FLAT = ("energy", "missed", "scale", "shrinks", "known", "step", "left")
# Energy of the error, relative to the least objective, below which it does not show in predictions: their squared
# error grows by about a thousandth
ENOUGH = 1.25e-3
# Root mean square error of fitted values, as a share of their own deviation, below which a fit is done. Where they
# explain less than a third of y's variance, this is stricter than the objective, most of which is noise then.
# After many iterations it is half of that: the sample tells little, and what it tells of the error is rough
CLOSE, _MANY = 0.046, 10
# Iterations after which no step is taken beyond what is known: a sample that needs so many misses rows that matter
_AHEAD = 6
_LONGEST = 2.0  # step along a direction whose product with the system is not known
_SCALES = 1.0, 10.0  # by which the sample may understate the error, as the gain of the last iteration shows


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
    """
    began = time.perf_counter()
    B, (n, M) = coordinates, operator.shape
    penalty = max(penalty, B.least_penalty)
    system = make_system(operator, y, B, penalty, weight)
    k = system.Y.shape[1]
    few = System(sample.operator, sample.y.reshape(len(sample.y), -1), sample.weight, B, penalty)
    passes, sampled, done, share = operator.passes, sample.operator.passes, 0, sample.operator.shape[0] / n
    least = min(
        (_KNOWN_OF_SMALL if share <= _SMALL_SHARE else KNOWN) * float(np.sqrt(M / sample.operator.shape[0])),
        2 / 3 * POOR,
    )
    # the sum of K that is kept has its own order, whoever makes it
    sample.operator.fill()
    squares, spread = sums(system.Y, weight, np.square), deviations(system.Y, weight)  # y'Wy

    if resume is not None:
        counts = {**{name: Iterate.rules[name] for name in _COUNTS}, "sampled": integer(0)}
        done, seconds, passes_done, sampled_done = recall(resume, counts)
        began -= seconds
        # whole numbers of passes before, of which that of `fill` is one
        passes, sampled = passes - round(passes_done - share * sampled_done), sample.operator.passes - sampled_done
        rules = {**dict.fromkeys(_TALL, array((B.rank, k))), **dict.fromkeys(_FLAT, array((k,)))}
        beta, r, p, b, energy, missed, scale, shrinks, known, step, left = recall(resume, rules)
        size = sizes(b)
    else:
        if start is None:
            beta, _, _ = _few_steps(few, few.rhs(), FIRST_STEPS, 0.0)
        else:
            beta = B.invert(start.reshape(M, k))
        b, r = system.rhs_and_residual(beta)
        size = sizes(b)
        z, left, missed = _few_steps(few, r, STEPS, least)
        p, energy, step = z, (z * r).sum(axis=0), np.ones(k)
        known, scale, shrinks = np.square(r).sum(axis=0), np.ones(k), np.ones(k)

    def record(iteration: int) -> Iterate:
        on_sample = sample.operator.passes - sampled
        residuals = np.linalg.norm(r, axis=0) / size
        objective = np.maximum(squares - ((b + r) * beta).sum(axis=0), 0.0)
        rest = scale * np.maximum(energy, 0.0)
        ahead = np.zeros_like(p)
        if enough > 0 and iteration <= _AHEAD:  # predictions decide, and not a residual that is asked for
            # The next direction is at hand, and the next step is about as long as the last: with it, what is left
            # shrinks once more as much as in an iteration, if the sample's steps say much of all rows' problem
            ahead = np.minimum(step, _LONGEST) * p
            rest = rest * np.where((left <= POOR) & (step >= 0.5), shrinks, 1.0)
        rest = rest + missed
        error = np.sqrt(rest / n)
        fitted = system.fitted_size(beta, b, r)
        signal = signals(fitted, error, spread)
        close = CLOSE if iteration <= _MANY else CLOSE / 2
        near = np.minimum(enough * objective, n * np.square(close * signal))
        settled = (residuals <= tol) | ((left <= POOR) & (rest <= near) & (enough > 0))
        return Iterate(
            iteration=iteration,
            residual=float(residuals.max(initial=0.0)),
            residuals=residuals,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes + share * on_sample,
            converged=bool(settled.all()),
            step=step,
            ratio=left,
            error=error,
            signal=signal,
            _coef=partial(coefficients, B, beta + ahead, (M, *y.shape[1:])),
            _state=partial(_state, on_sample, beta, r, p, b, energy, missed, scale, shrinks, known, step, left),
        )

    now = record(done)
    if resume is not None or max_iter == 0 or now.converged:
        yield now
    # As in `conjugate_gradient`, a residual that has fallen by this much since it was last computed is not trusted.
    fall = float(np.sqrt(np.finfo(operator.dtype).eps))
    for iteration in range(done + 1, max_iter + 1):
        if now.converged:
            return
        if (np.square(r).sum(axis=0) < fall * known).any():
            Wp, r = system.product_and_residual(p, beta, np.arange(k))
            known = np.square(r).sum(axis=0)
        else:
            Wp = system.product(p)
        curvature = (p * Wp).sum(axis=0)
        along = (p * r).sum(axis=0)
        step = np.maximum(_quotient(along, curvature), 0.0)
        if not step.any():  # rounding, or a kernel that is not positive: the solution is as near as it can come
            if now.iteration == 0:  # which nobody has seen yet
                yield now
            return
        beta, before, r = beta + step * p, r, r - step * Wp
        z, left, missed = _few_steps(few, r, STEPS, least)
        # Polak and Ribière's ratio, for a preconditioner that changes
        ratio = np.maximum(_quotient((z * (r - before)).sum(axis=0), energy), 0.0)
        last, energy = energy, (z * r).sum(axis=0)
        scale = np.clip(_quotient(step * along, last - energy), *_SCALES)
        # where the error falls by fits and starts, one fall does not promise the next
        floor = shrinks / 2 if iteration > 1 else 0.0
        p, shrinks = z + ratio * p, np.clip(_quotient(energy, last), floor, 1.0)
        now = record(iteration)
        yield now


def is_poor(iterate: Iterate) -> bool:
    """Whether the sample's problem tells little of that of all rows, or was not solved."""
    return bool((iterate.ratio > POOR).any() or (iterate.step < _SHORT).any())


def _few_steps(system: System, r: Vectors, steps: int, least: float) -> tuple[Vectors, Vectors, Vectors]:
    """Solve the system for right-hand sides r by a few steps of conjugate gradient from zero.

    All of them, or enough to leave at most the share `least` of each column's residual. Returns what they make of the
    solution, that share, and the energy that the solution has beyond them: at most the squared residual over the least
    eigenvalue, as far as they have seen it.
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
        if number + 1 >= FEWEST_STEPS and (rr <= least**2 * whole).all():
            break
        q = r + ratios[-1] * q
    low, _ = ritz_values(lengths, ratios)
    return x, np.sqrt(_quotient(rr, whole)), _quotient(rr, low)


def _quotient(a: Vectors, b: Vectors) -> Vectors:
    """Return a / b, and 0 where b is not positive or not finite."""
    return np.divide(a, b, out=np.zeros_like(a), where=(b > 0) & np.isfinite(b))


def _state(on_sample: int, *arrays: NDArray[Any]) -> dict[str, Any]:
    return {"sampled": on_sample, **dict(zip((*_TALL, *_FLAT), arrays, strict=True))}
