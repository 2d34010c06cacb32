"""Preconditioned conjugate gradient for the FALKON system, one pass over the rows an iteration.

Definition 4 of the FALKON paper's appendix A: alpha = B beta, and beta solves

    B'(K'WK + lambda n K_MM)B beta = B'K'W y.

K is met only through an operator's verbs, B and K_MM only through `Coordinates`: with FALKON's preconditioner this is
FALKON, with `Whitening` NYTRO's CG, with `Identity` the plain Nyström system.

CG follows its residual from step to step, and in float32 what it follows soon has little to do with what is left. So
whenever the residual has fallen far it is computed anew, as further columns of the pass that the iteration makes
anyway: no pass is added, and on well-conditioned problems float32 ends 10 times closer to the float64 solution.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gyrfalcon.preconditioner import Coordinates
from gyrfalcon.solvers.base import Iterate, Operator, Vectors, coefficients, make_system, sizes
from gyrfalcon.solvers.lanczos import condition_number


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
) -> Iterator[Iterate]:
    """Solve ``(K'WK + penalty n K_MM) alpha = K'W y`` for all columns of y at once.

    Parameters
    ----------
    operator : KernelOperator
        K, of shape (n, M).
    y : ndarray of shape (n,) or (n, k)
        Targets.
    coordinates : Coordinates
        B, made from the same centers: the preconditioner.
    penalty : float
        lambda. The preconditioner may have been made for another one; it is then only less good. Below the
        coordinates' ``least_penalty`` it counts as that.
    max_iter : int
        Most iterations to do; t of them cost t + 1 passes over the rows.
    tol : float
        A column is done when its residual is at most ``tol`` times the norm of its right-hand side ``B'K'W y``.
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W.
    start : ndarray of shape (M,) or (M, k), optional
        Coefficients to start from.

    Yields
    ------
    Iterate
        One an iteration, made when it is asked for: a consumer stops the solver by asking no more.
    """
    began, passes = time.perf_counter(), operator.passes
    B, M = coordinates, coordinates.M
    system = make_system(operator, y, B, max(penalty, B.least_penalty), weight)
    k = system.Y.shape[1]
    if start is None:
        beta = np.zeros((B.rank, k))
        b = r = system.rhs()
    else:
        beta = B.invert(start.reshape(M, k))
        b, r = system.rhs_and_residual(beta)
    size = sizes(b)

    def record(iteration: int) -> Iterate:
        residuals = np.sqrt(rr) / size
        return Iterate(
            iteration=iteration,
            residual=float(residuals.max(initial=0.0)),
            residuals=residuals,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes,
            converged=bool((residuals <= tol).all()),
            step=step,
            ratio=ratio,
            condition_number=condition_number(steps, ratios),
            _coef=partial(coefficients, B, beta, (M, *y.shape[1:])),
        )

    p, rr = r, np.square(r).sum(axis=0)
    step, ratio = np.zeros(k), np.zeros(k)
    steps: list[Vectors] = []
    ratios: list[Vectors] = []
    stuck = np.zeros(k, dtype=bool)
    # Where the residual was last known, not only followed; a fall by this much since then is not to be trusted.
    known, fall = rr, float(np.sqrt(np.finfo(operator.dtype).eps))
    active = np.flatnonzero(np.sqrt(rr) > tol * size)
    if max_iter == 0 or active.size == 0:
        yield record(0)
        return
    for iteration in range(1, max_iter + 1):
        # Arrays already yielded stay as they are, and only the columns still at work take part in the pass.
        beta, r, p, rr, known = beta.copy(), r.copy(), p.copy(), rr.copy(), known.copy()
        c = active
        if (rr[c] < fall * known[c]).any():
            Wp, r[:, c] = system.product_and_residual(p[:, c], beta[:, c], c)
            known[c] = rr[c] = np.square(r[:, c]).sum(axis=0)
        else:
            Wp = system.product(p[:, c])
        curvature = (p[:, c] * Wp).sum(axis=0)
        # Without positive curvature (rounding, or a kernel that is not positive) a column has come as far as it can.
        ok = np.isfinite(curvature) & (curvature > 0)
        stuck[c[~ok]] = True
        c, Wp, curvature = c[ok], Wp[:, ok], curvature[ok]

        step, ratio, before = np.zeros(k), np.zeros(k), rr[c]
        # (p, r) is (r, r) unless r was just computed anew, which may even have made p a bad direction: then restart.
        step[c] = np.maximum((p[:, c] * r[:, c]).sum(axis=0) / curvature, 0.0)
        beta[:, c] += step[c] * p[:, c]
        r[:, c] -= step[c] * Wp
        rr[c] = np.square(r[:, c]).sum(axis=0)
        ratio[c] = np.where(step[c] > 0, rr[c] / before, 0.0)
        p[:, c] = r[:, c] + ratio[c] * p[:, c]
        steps.append(step)
        ratios.append(ratio)
        yield record(iteration)
        active = np.flatnonzero((np.sqrt(rr) > tol * size) & ~stuck)
        if active.size == 0:
            return
