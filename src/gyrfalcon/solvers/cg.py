"""Preconditioned conjugate gradient for the FALKON system, one pass over the rows an iteration.

Definition 4 of the FALKON paper's appendix A: alpha = B beta, and beta solves

    B'(K'WK + lambda n K_MM)B beta = B'K'W y.

K is met only through an operator's verbs, K_MM only through the preconditioner's factors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gyrfalcon.preconditioner import Preconditioner

Vectors = NDArray[np.float64]
Weight = NDArray[Any] | Callable[[slice, NDArray[Any]], NDArray[Any]] | None


class Operator(Protocol):
    """What the solver needs of K = k(rows, centers)."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def passes(self) -> int: ...
    def rmatmat(self, U: NDArray[Any]) -> Vectors: ...
    def sandwich(self, V: NDArray[Any], weight: Weight = None) -> Vectors: ...


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
        Norm of each column's residual, relative to the norm of its ``B'K'W y``.
    seconds : float
        Since the solver started.
    passes : int
        Passes over the rows since the solver started.
    converged : bool
        Whether every column met the tolerance.
    step, ratio : ndarray of shape (k,)
        CG's two numbers of this iteration for each column, the length of the step and the ratio of squared residual norms: the
        entries of the Lanczos matrix, from which the condition number can be estimated. 0 for columns at rest.
    metrics : dict
        Room for what callbacks add.
    """

    iteration: int
    residual: float
    residuals: Vectors
    seconds: float
    passes: int
    converged: bool
    step: Vectors
    ratio: Vectors
    metrics: dict[str, Any] = field(default_factory=dict)
    _coef: Callable[[], Vectors] = field(default=lambda: np.empty(0), repr=False, compare=False)

    def coef(self) -> Vectors:
        """Return alpha = B beta: two triangular solves, so ask only when it is needed."""
        return self._coef()


def conjugate_gradient(
    operator: Operator,
    y: NDArray[Any],
    preconditioner: Preconditioner,
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
    preconditioner : Preconditioner
        B, made from the same centers.
    penalty : float
        lambda. The preconditioner may have been made for another one; it is then only less good.
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
    (n, M), B = operator.shape, preconditioner
    if (n, M) != (B.n, B.M):
        raise ValueError(f"the operator has shape {(n, M)}, but the preconditioner was made for {(B.n, B.M)}")
    Y = y.reshape(n, -1)
    k = Y.shape[1]
    if start is None:
        beta = np.zeros((B.rank, k))
        b = r = B.apply_transpose(operator.rmatmat(Y if weight is None else weight[:, None] * Y))
    else:
        beta = B.invert(start.reshape(M, k))
        b, r = _rhs_and_residual(operator, Y, B, penalty, weight, beta)
    size = np.linalg.norm(b, axis=0)
    if not np.isfinite(size).all():
        raise ValueError("the right-hand side K'W y is not finite; check y and the sample weights, or rescale y")
    size[size == 0] = 1.0

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
            _coef=partial(_coefficients, B, beta, (M, *y.shape[1:])),
        )

    p, rr = r, np.square(r).sum(axis=0)
    step, ratio = np.zeros(k), np.zeros(k)
    stuck = np.zeros(k, dtype=bool)
    active = np.flatnonzero(np.sqrt(rr) > tol * size)
    if max_iter == 0 or active.size == 0:
        yield record(0)
        return
    for iteration in range(1, max_iter + 1):
        # Only the columns still at work take part in the pass; the others keep their beta.
        q = p[:, active]
        Wq = _product(operator, B, penalty, weight, q)
        curvature = (q * Wq).sum(axis=0)
        # Without positive curvature (rounding, or a kernel that is not positive) a column has come as far as it can.
        ok = np.isfinite(curvature) & (curvature > 0)
        stuck[active[~ok]] = True
        active, q, Wq, curvature = active[ok], q[:, ok], Wq[:, ok], curvature[ok]

        step, ratio, before = np.zeros(k), np.zeros(k), rr[active]
        step[active] = before / curvature
        beta, r, p, rr = beta.copy(), r.copy(), p.copy(), rr.copy()
        beta[:, active] += step[active] * q
        r[:, active] -= step[active] * Wq
        rr[active] = np.square(r[:, active]).sum(axis=0)
        ratio[active] = rr[active] / before
        p[:, active] = r[:, active] + ratio[active] * q
        yield record(iteration)
        active = np.flatnonzero((np.sqrt(rr) > tol * size) & ~stuck)
        if active.size == 0:
            return


def _product(operator: Operator, B: Preconditioner, penalty: float, weight: NDArray[Any] | None, p: Vectors) -> Vectors:
    """Return B'(K'WK + lambda n K_MM)B p."""
    a = B.solve_A(p)
    u = B.solve_T(a)
    return _from_centers(B, penalty, operator.sandwich(B.lift(u), weight), a, u)


def _rhs_and_residual(
    operator: Operator, Y: NDArray[Any], B: Preconditioner, penalty: float, weight: NDArray[Any] | None, beta: Vectors
) -> tuple[Vectors, Vectors]:
    """Return B'K'W y and B'(K'W (y - K B beta) - lambda n K_MM B beta) from one pass, as two groups of columns."""
    k = Y.shape[1]
    a = B.solve_A(beta)
    u = B.solve_T(a)
    v = B.lift(u)

    def targets_and_errors(rows: slice, T: NDArray[Any]) -> NDArray[Any]:
        U = np.hstack([Y[rows], Y[rows] - T[:, k:]])
        return U if weight is None else weight[rows, None] * U

    s = operator.sandwich(np.hstack([np.zeros_like(v), v]), targets_and_errors)
    return B.apply_transpose(s[:, :k]), _from_centers(B, -penalty, s[:, k:], a, u)


def _from_centers(B: Preconditioner, penalty: float, s: Vectors, a: Vectors, u: Vectors) -> Vectors:
    """Return B's + B'(lambda n K_MM)B p, where a = A^-1 p and u = T^-1 a.

    The second term is lambda A^-T (I - jitter T^-T T^-1) A^-1 p, by T'T = D K_MM D + jitter I: no product with K_MM, and
    no trace of the jitter in the problem that is solved.
    """
    return B.solve_At(B.solve_Tt(B.restrict(s) - penalty * B.jitter * u) + penalty * a)


def _coefficients(B: Preconditioner, beta: Vectors, shape: tuple[int, ...]) -> Vectors:
    return B.apply(beta).reshape(shape)
