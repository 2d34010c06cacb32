"""Preconditioned conjugate gradient for the FALKON system, with one pass over the rows for each iteration.

Definition 4 of the FALKON paper's appendix A: alpha = B beta, and beta solves

    B'(K'WK + lambda n K_MM)B beta = B'K'W y.

K is used only through an operator's methods, B and K_MM only through `Coordinates`: with FALKON's preconditioner this
is FALKON, with `Whitening` NYTRO's CG, with `Identity` the plain Nyström system.

In float32 the residual that CG updates soon differs from the true one. So whenever it has fallen far it is computed
anew, as further columns of the iteration's own pass; on well-conditioned problems float32 ends 10 times closer to the
float64 solution. Once the two residuals disagree, a column's steps are no longer those of Lanczos' method, and its
condition number is not updated any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import array
from .._utils.statistics import deviations
from ..operators import Operator
from ..preconditioners import Coordinates
from .base import Iterate, System, Vectors, coefficients, make_system, recall, signals, sizes
from .lanczos import condition_number, ritz_values

# Arrays of an iterate's state: of shape (rank, k), of shape (k,), and of shape (iterations, k)
_COUNTS = ("iteration", "seconds", "passes")
_TALL = ("beta", "r", "p", "b")
_FLAT = ("rr", "known", "step", "ratio")
_LISTS = ("steps", "ratios", "gains")
_DRIFT = 1e-2  # relative error of CG's updated residual above which the Lanczos matrix is not trusted
_DELAY = 6  # number of iterations whose gain estimates the error before them
# Share of the estimated energy that is attributed to the fitted values. In 54 fits (nine kinds of data, six kernels)
# the median of the true share was 0.27, and it was below this wherever fitted values were off by more than 5%
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
        lambda; values below the coordinates' ``least_penalty`` are raised to it. Coordinates made for another lambda
        are only less effective.
    max_iter : int
        Largest number of iterations; t of them cost t + 1 passes over the rows.
    tol : float
        A column is done when its residual is at most ``tol`` times the norm of its right-hand side ``B'K'W y``.
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W.
    start : ndarray of shape (M,) or (M, k), optional
        Coefficients to start from.
    resume : mapping, optional
        An iterate's `Iterate.state` to continue from, bit for bit; `start` is then ignored. A state of another problem
        raises `StateError`.

    Yields
    ------
    Iterate
        One for each iteration (with `resume`, first the resumed one), computed when it is requested.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Preconditioner
    >>> from gyrfalcon.solvers import conjugate_gradient
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> y, penalty = np.sin(X[:, 0]), 1e-3
    >>> K = KernelOperator("gaussian", X, X[:20])
    >>> B = Preconditioner(K.centers_gram(), penalty=penalty, n=500)
    >>> *_, last = conjugate_gradient(K, y, B, penalty, max_iter=50, tol=1e-12)
    >>> left = K.sandwich(np.eye(20)) + penalty * 500 * K.centers_gram()
    >>> np.allclose(last.coef(), np.linalg.solve(left, K.rmatmat(y)))
    True
    """
    began, passes, done = time.perf_counter(), operator.passes, 0
    B = coordinates
    system = make_system(operator, y, B, max(penalty, B.least_penalty), weight)
    if resume is None:
        now = _begin(system, start)
    else:
        done, seconds, passes_done = recall(resume, {name: Iterate.rules[name] for name in _COUNTS})
        began, passes = began - seconds, passes - passes_done
        now = _resume(resume, (B.rank, system.Y.shape[1]), done)
    size, spread = sizes(now.b), deviations(system.Y, weight)
    ones = np.ones(len(size))

    def record(iteration: int) -> Iterate:
        low, high = ritz_values(now.steps, now.ratios) if now.steps else (ones, ones)
        error = np.sqrt(_energy(now.rr, low, now.gains) / operator.shape[0])
        fitted = system.fitted_size(now.beta, now.b, now.r)
        return Iterate.measured(
            iteration,
            np.sqrt(now.rr) / size,
            tol,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes,
            step=now.step,
            ratio=now.ratio,
            condition_number=condition_number(low, high),
            error=error,
            signal=signals(fitted, error, spread),
            _coef=partial(coefficients, B, now.beta, (B.M, *y.shape[1:])),
            _state=partial(_state, now, iteration),
        )

    active = np.flatnonzero((np.sqrt(now.rr) > tol * size) & ~now.stuck)
    if resume is not None or max_iter == 0 or active.size == 0:
        yield record(done)
    if active.size == 0:
        return
    for iteration in range(done + 1, max_iter + 1):
        now = _step(system, now, active)
        yield record(iteration)
        active = np.flatnonzero((np.sqrt(now.rr) > tol * size) & ~now.stuck)
        if active.size == 0:
            return


@dataclass(frozen=True)
class _Columns:
    """State of all columns after an iteration; arrays that were yielded are never changed.

    beta, r, p, b : the solution so far, its residual, the next direction, and the right-hand side, of shape (rank, k)
    rr, known : squared norm of r now, and when r was last computed instead of updated
    step, ratio : those of the last iteration
    stuck : whether a column cannot be improved further
    adrift : whether a column's updated residual has differed from the true one; its steps are recorded as 0 from then
        on, which ends its part in the condition number
    steps, ratios, gains : those of all iterations; the lists keep growing
    """

    beta: Vectors
    r: Vectors
    p: Vectors
    b: Vectors
    rr: Vectors
    known: Vectors
    step: Vectors
    ratio: Vectors
    stuck: NDArray[np.bool_]
    adrift: NDArray[np.bool_]
    steps: list[Vectors]
    ratios: list[Vectors]
    gains: list[Vectors]


def _begin(system: System, start: NDArray[Any] | None) -> _Columns:
    """Make the columns before the first iteration, in one pass."""
    B, k = system.B, system.Y.shape[1]
    if start is None:
        beta = np.zeros((B.rank, k))
        b = r = system.rhs()
    else:
        beta = B.invert(start.reshape(B.M, k))
        b, r = system.rhs_and_residual(beta)
    rr = np.square(r).sum(axis=0)
    no = np.zeros(k, dtype=bool)
    return _Columns(beta, r, r, b, rr, rr, np.zeros(k), np.zeros(k), no, no.copy(), [], [], [])


def _resume(state: Mapping[str, Any], shape: tuple[int, int], done: int) -> _Columns:
    """Make the columns of an iterate's state."""
    k = shape[1]
    rules = {
        **dict.fromkeys(_TALL, array(shape)),
        **dict.fromkeys(_FLAT, array((k,))),
        "stuck": array((k,), bool),
        **dict.fromkeys(_LISTS, array((done, k))),
    }
    found = dict(zip(rules, recall(state, rules), strict=True))
    lists = {name: list(found[name]) for name in _LISTS}
    adrift = lists["steps"][-1] == 0 if done else np.zeros(k, dtype=bool)
    return _Columns(**{**found, **lists, "adrift": adrift})


def _step(system: System, before: _Columns, active: NDArray[np.intp]) -> _Columns:
    """Make one iteration; only the columns still at work take part in the pass."""
    beta, r, p, rr, known = (x.copy() for x in (before.beta, before.r, before.p, before.rr, before.known))
    stuck, adrift, k, c = before.stuck.copy(), before.adrift.copy(), len(before.rr), active
    # An updated residual that has fallen by this much since it was last computed is not trusted.
    fall = float(np.sqrt(np.finfo(system.operator.dtype).eps))
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

    step, ratio, gain, last = np.zeros(k), np.zeros(k), np.zeros(k), rr[c]
    # (p, r) is (r, r) unless r was just computed anew, which may even have made p a bad direction: then restart.
    along = (p[:, c] * r[:, c]).sum(axis=0)
    step[c] = np.maximum(along / curvature, 0.0)
    gain[c] = step[c] * along
    beta[:, c] += step[c] * p[:, c]
    r[:, c] -= step[c] * Wp
    rr[c] = np.square(r[:, c]).sum(axis=0)
    ratio[c] = np.where(step[c] > 0, rr[c] / last, 0.0)
    p[:, c] = r[:, c] + ratio[c] * p[:, c]
    before.steps.append(np.where(adrift, 0.0, step))
    before.ratios.append(ratio)
    before.gains.append(gain)
    return replace(before, beta=beta, r=r, p=p, rr=rr, known=known, step=step, ratio=ratio, stuck=stuck, adrift=adrift)


def _energy(rr: Vectors, low: Vectors, gains: list[Vectors]) -> Vectors:
    """Estimate |F e|^2 for the error e of beta, which is most of e'(F'F + lambda n B'K_MM B)e.

    It is at most r'r over the smallest eigenvalue, too large if the residual lies in other directions; and the gain of
    the last iterations is most of what was left before them, if they converge (Hestenes and Stiefel).
    """
    energy = rr / np.maximum(low, np.finfo(np.float64).tiny)
    if len(gains) >= _DELAY:
        energy = np.minimum(energy, np.sum(gains[-_DELAY:], axis=0))
    return _OF_VALUES * energy


def _state(now: _Columns, iteration: int) -> dict[str, Any]:
    arrays = {name: vars(now)[name] for name in (*_TALL, *_FLAT, "stuck")}
    # the lists go on growing after the iterate was made
    shape = (iteration, len(now.rr))
    return arrays | {name: np.reshape(vars(now)[name][:iteration], shape) for name in _LISTS}
