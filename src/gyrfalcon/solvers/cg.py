"""Preconditioned conjugate gradient for the FALKON system, one pass over the rows an iteration.

Definition 4 of the FALKON paper's appendix A: alpha = B beta, and beta solves

    B'(K'WK + lambda n K_MM)B beta = B'K'W y.

K is met only through an operator's verbs, K_MM only through the preconditioner's factors.

CG follows its residual from step to step, and in float32 what it follows soon has little to do with what is left. So
whenever the residual has fallen far it is computed anew, as further columns of the pass that the iteration makes
anyway: no pass is added, and on well-conditioned problems float32 ends 10 times closer to the float64 solution.
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
    def dtype(self) -> np.dtype[Any]: ...
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
        CG's two numbers of this iteration for each column, the length of the step and the ratio of the squared
        residuals: they make up the Lanczos matrix, which estimates the condition number. 0 for columns at rest.
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
        lambda. The preconditioner may have been made for another one; it is then only less good. Below the
        preconditioner's ``least_penalty`` it counts as that.
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
    system = _System(operator, Y, weight, B, max(penalty, B.least_penalty))

    if start is None:
        beta = np.zeros((B.rank, k))
        b = r = B.apply_transpose(operator.rmatmat(Y if weight is None else weight[:, None] * Y))
    else:
        beta = B.invert(start.reshape(M, k))
        b, r = system.rhs_and_residual(beta)
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
        yield record(iteration)
        active = np.flatnonzero((np.sqrt(rr) > tol * size) & ~stuck)
        if active.size == 0:
            return


@dataclass(frozen=True)
class _System:
    """B'(K'WK + lambda n K_MM)B beta = B'K'W y; each method is one pass over the rows."""

    operator: Operator
    Y: NDArray[Any]
    weight: NDArray[Any] | None
    B: Preconditioner
    penalty: float

    def product(self, p: Vectors) -> Vectors:
        """Return the left-hand side at p."""
        a = self.B.solve_A(p)
        u = self.B.solve_T(a)
        return _from_centers(self.B, self.penalty, self.operator.sandwich(self.B.lift(u), self.weight), a, u)

    def rhs_and_residual(self, beta: Vectors) -> tuple[Vectors, Vectors]:
        """Return the right-hand side and what beta leaves of it."""
        s, residual = self._beside_residual(None, beta, np.arange(self.Y.shape[1]))
        return self.B.apply_transpose(s), residual

    def product_and_residual(self, p: Vectors, beta: Vectors, columns: NDArray[np.intp]) -> tuple[Vectors, Vectors]:
        """Return the left-hand side at p, and what beta leaves of the right-hand side's ``columns``."""
        a = self.B.solve_A(p)
        u = self.B.solve_T(a)
        s, residual = self._beside_residual(self.B.lift(u), beta, columns)
        return _from_centers(self.B, self.penalty, s, a, u), residual

    def _beside_residual(self, v: Vectors | None, beta: Vectors, columns: NDArray[np.intp]) -> tuple[Vectors, Vectors]:
        """Return K'W K v (K'W y if v is None) and B'(K'W (y - K B beta) - lambda n K_MM B beta), as one product."""
        k = len(columns)
        a = self.B.solve_A(beta)
        u = self.B.solve_T(a)
        alpha = self.B.lift(u)

        def weighted(rows: slice, T: NDArray[Any]) -> NDArray[Any]:
            y = self.Y[rows][:, columns]
            U = np.hstack([y if v is None else T[:, :k], y - T[:, k:]])
            return U if self.weight is None else self.weight[rows, None] * U

        s = self.operator.sandwich(np.hstack([np.zeros_like(alpha) if v is None else v, alpha]), weighted)
        return s[:, :k], _from_centers(self.B, -self.penalty, s[:, k:], a, u)


def _from_centers(B: Preconditioner, penalty: float, s: Vectors, a: Vectors, u: Vectors) -> Vectors:
    """Return B's + B'(lambda n K_MM)B p, where a = A^-1 p and u = T^-1 a.

    The second term is lambda A^-T (I - jitter T^-T T^-1) A^-1 p, by T'T = D K_MM D + jitter I: no product with K_MM,
    and no trace of the jitter in the problem that is solved (but for what cannot safely be taken out).
    """
    return B.solve_At(B.solve_Tt(B.restrict(s) - penalty * B.correction * u) + penalty * a)


def _coefficients(B: Preconditioner, beta: Vectors, shape: tuple[int, ...]) -> Vectors:
    return B.apply(beta).reshape(shape)
