"""Preconditioned conjugate gradient for the FALKON system, with one pass over the rows for each iteration.

Definition 4 of the FALKON paper's appendix A: alpha = B beta, and beta solves

    B'(K'WK + lambda n K_MM)B beta = B'K'W y.

K is used only through an operator's verbs, B and K_MM only through `Coordinates`: with FALKON's preconditioner this is
FALKON, with `Whitening` NYTRO's CG, with `Identity` the plain Nyström system.

CG updates its residual from step to step, and in float32 that soon differs from the true one. So whenever the residual
has fallen far it is computed anew, as further columns of the pass that the iteration makes anyway: no pass is added,
and on well-conditioned problems float32 ends 10 times closer to the float64 solution. Once the two residuals disagree,
a column's steps are no longer those of Lanczos' method, and its condition number stays as it was until then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import array
from .._utils.statistics import deviations
from ..operators import Operator
from ..preconditioners import Coordinates
from .base import Iterate, Vectors, coefficients, make_system, recall, signals, sizes
from .lanczos import condition_number, ritz_values

# Arrays of an iterate's state: of shape (rank, k), of shape (k,), and of shape (iterations, k)
_COUNTS = ("iteration", "seconds", "passes")
_TALL = ("beta", "r", "p", "b")
_FLAT = ("rr", "known", "step", "ratio")
_LISTS = ("steps", "ratios", "gains")
# Relative error of CG's updated residual above which the Lanczos matrix is not trusted
_DRIFT = 1e-2
_DELAY = 6  # iterations whose gain estimates the error before them
# Share of the estimated energy that is taken for the fitted values'. In 54 fits (nine kinds of data, six kernels) their
# true share was 0.27 in the middle, and below this wherever they were off by more than 5%
_OF_VALUES = 0.64


def conjugate_gradient(
    operator: Operator,
    y: NDArray[Any],
    coordinates: Coordinates,
    penalty: float,
    *,
    max_iter: int,
    tol: float,
    weight: NDArray[Any] | None = None,
    start: NDArray[Any] | None = None,
    resume: Mapping[str, Any] | None = None,
) -> Iterator[Iterate]:
    """Solve ``(K'WK + penalty n K_MM) alpha = K'W y`` for all columns of y at once.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M).
    y : ndarray of shape (n,) or (n, k)
        Targets.
    coordinates : Coordinates
        B, made from the same centers: the preconditioner.
    penalty : float
        lambda. The preconditioner may have been made for another one; it is then only less good. Below the
        coordinates' ``least_penalty`` it counts as that.
    max_iter : int
        Largest number of iterations; t of them cost t + 1 passes over the rows.
    tol : float
        A column is done when its residual is at most ``tol`` times the norm of its right-hand side ``B'K'W y``.
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W.
    start : ndarray of shape (M,) or (M, k), optional
        Coefficients to start from.
    resume : mapping, optional
        An iterate's `Iterate.state`: the iteration goes on from there, bit for bit, and `start` is ignored. A state
        that does not belong to the problem raises `StateError`.

    Yields
    ------
    Iterate
        One for each iteration (with `resume`, first the one that is resumed), computed when it is asked for: stop the
        solver by asking for no more.
    """
    began, passes, done = time.perf_counter(), operator.passes, 0
    B, M = coordinates, coordinates.M
    system = make_system(operator, y, B, max(penalty, B.least_penalty), weight)
    k = system.Y.shape[1]
    steps: list[Vectors] = []
    ratios: list[Vectors] = []
    gains: list[Vectors] = []
    if resume is not None:
        done, seconds, passes_done = recall(resume, {name: Iterate.rules[name] for name in _COUNTS})
        began, passes = began - seconds, passes - passes_done
        rules = {
            **dict.fromkeys(_TALL, array((B.rank, k))),
            **dict.fromkeys(_FLAT, array((k,))),
            "stuck": array((k,), bool),
            **dict.fromkeys(_LISTS, array((done, k))),
        }
        beta, r, p, b, rr, known, step, ratio, stuck, *lists = recall(resume, rules)
        steps, ratios, gains = map(list, lists)
    else:
        if start is None:
            beta = np.zeros((B.rank, k))
            b = r = system.rhs()
        else:
            beta = B.invert(start.reshape(M, k))
            b, r = system.rhs_and_residual(beta)
        p, rr = r, np.square(r).sum(axis=0)
        # The squared residual when it was last computed, not updated
        known, stuck = rr, np.zeros(k, dtype=bool)
        step, ratio = np.zeros(k), np.zeros(k)
    size, spread = sizes(b), deviations(system.Y, weight)
    # A step of length 0 ends a column's part in the condition number: it is at rest for good, or adrift
    adrift = steps[-1] == 0 if steps else np.zeros(k, dtype=bool)

    def record(iteration: int) -> Iterate:
        low, high = ritz_values(steps, ratios) if steps else (np.ones(k), np.ones(k))
        error = np.sqrt(_energy(rr, low, gains) / operator.shape[0])
        fitted = system.fitted_size(beta, b, r)
        return Iterate.measured(
            iteration,
            np.sqrt(rr) / size,
            tol,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes,
            step=step,
            ratio=ratio,
            condition_number=condition_number(low, high),
            error=error,
            signal=signals(fitted, error, spread),
            _coef=partial(coefficients, B, beta, (M, *y.shape[1:])),
            _state=partial(_state, [beta, r, p, b, rr, known, step, ratio, stuck], [steps, ratios, gains], iteration),
        )

    # An updated residual that has fallen by this much since it was last computed is not trusted.
    fall = float(np.sqrt(np.finfo(operator.dtype).eps))
    active = np.flatnonzero((np.sqrt(rr) > tol * size) & ~stuck)
    if resume is not None or max_iter == 0 or active.size == 0:
        yield record(done)
    if active.size == 0:
        return
    for iteration in range(done + 1, max_iter + 1):
        # Arrays already yielded stay as they are, and only the columns still at work take part in the pass.
        beta, r, p, rr, known, stuck = (x.copy() for x in (beta, r, p, rr, known, stuck))
        c = active
        if (rr[c] < fall * known[c]).any():
            Wp, fresh = system.product_and_residual(p[:, c], beta[:, c], c)
            adrift[c] |= np.square(fresh - r[:, c]).sum(axis=0) > _DRIFT**2 * rr[c]
            r[:, c] = fresh
            known[c] = rr[c] = np.square(fresh).sum(axis=0)
        else:
            Wp = system.product(p[:, c])
        curvature = (p[:, c] * Wp).sum(axis=0)
        # Without positive curvature (rounding, or a kernel that is not positive) a column has come as far as it can.
        ok = np.isfinite(curvature) & (curvature > 0)
        stuck[c[~ok]] = True
        c, Wp, curvature = c[ok], Wp[:, ok], curvature[ok]

        step, ratio, gain, before = np.zeros(k), np.zeros(k), np.zeros(k), rr[c]
        # (p, r) is (r, r) unless r was just computed anew, which may even have made p a bad direction: then restart.
        along = (p[:, c] * r[:, c]).sum(axis=0)
        step[c] = np.maximum(along / curvature, 0.0)
        gain[c] = step[c] * along
        beta[:, c] += step[c] * p[:, c]
        r[:, c] -= step[c] * Wp
        rr[c] = np.square(r[:, c]).sum(axis=0)
        ratio[c] = np.where(step[c] > 0, rr[c] / before, 0.0)
        p[:, c] = r[:, c] + ratio[c] * p[:, c]
        steps.append(np.where(adrift, 0.0, step))
        ratios.append(ratio)
        gains.append(gain)
        yield record(iteration)
        active = np.flatnonzero((np.sqrt(rr) > tol * size) & ~stuck)
        if active.size == 0:
            return


def _energy(rr: Vectors, low: Vectors, gains: list[Vectors]) -> Vectors:
    """Estimate |F e|^2 for what beta lacks, e, which is most of e'(F'F + lambda n B'K_MM B)e.

    That is at most r'r over the smallest eigenvalue, which exaggerates where the residual lies in other directions. And
    what the last iterations have gained is most of what was left before them, if they converge (Hestenes and Stiefel).
    """
    energy = rr / np.maximum(low, np.finfo(np.float64).tiny)
    if len(gains) >= _DELAY:
        energy = np.minimum(energy, np.sum(gains[-_DELAY:], axis=0))
    return _OF_VALUES * energy


def _state(arrays: list[NDArray[Any]], lists: list[list[Vectors]], iteration: int) -> dict[str, Any]:
    k = len(arrays[-1])
    # the lists go on growing after the iterate was made
    stacked = (np.reshape(numbers[:iteration], (iteration, k)) for numbers in lists)
    return dict(zip((*_TALL, *_FLAT, "stuck", *_LISTS), (*arrays, *stacked), strict=True))
