"""Preconditioned conjugate gradient for exact kernel ridge regression: many systems share each product K_nn V.

The FALKON paper's "Prec. KRR". With x = W^(-1/2) alpha, each column has the system

    (W^(1/2) K_nn W^(1/2) + mu I) x = W^(1/2) y

of its own target, mu, and rows: those of a fold can be left out, where x is 0 then. K_nn alpha in these rows is a
prediction by a model that has not seen them, without a further product. Converged columns leave the product.

Only the products with K have the operator's precision; vectors and scalar products are in float64. The residual that CG
updates then drifts away from the true one, which is therefore computed in every tenth iteration, and before a column
counts as converged, as a further column of the next pass. If the two differ by half of the residual twice in a row,
without progress in between, the column has reached the limit of the operator's precision, and rests.

The norm of the residual bounds the error of predictions: the fitted values K alpha are off by W^(1/2) K W^(1/2) times
the system's inverse times the residual, which is no more than the residual itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .base import Iterate, SquareOperator, Vectors, signals

_REFRESH = 10  # iterations between computations of the true residual
_ADRIFT = 0.5  # difference of the true and the updated residual, relative to the true one, that only rounding explains
_PROGRESS = 0.7  # ratio of successive true residuals above which they count as no longer falling


class InverseGuess(Protocol):
    """A preconditioner, such as `NystromPreconditioner`."""

    def apply(self, V: Vectors, shift: Vectors, left_out: NDArray[np.intp]) -> Vectors:
        """Apply it to columns, each with its mu and the fold that it leaves out (-1: none)."""
        ...


@dataclass(frozen=True)
class KernelSystems:
    """The systems that `kernel_cg` solves, one for each column.

    Attributes
    ----------
    targets : ndarray of shape (n, k)
    output : ndarray of shape (c,)
        Which column of the targets each system has.
    mu : ndarray of shape (c,)
        Its ridge, lambda n.
    left_out : ndarray of shape (c,)
        The fold whose rows it leaves out, -1 for none.
    size : ndarray of shape (c,)
        What its residual is measured by.
    fold : ndarray of shape (n,), or None
        Number of each row's fold, from 0.
    weight : ndarray of shape (n,), or None
        Sample weights, the diagonal of W; positive.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.solvers import KernelSystems
    >>> y = np.array([[3.0], [4.0]])
    >>> both = KernelSystems(  # one target, two ridges
    ...     targets=y, output=np.array([0, 0]), mu=np.array([0.1, 1.0]), left_out=np.array([-1, -1]),
    ...     size=np.array([5.0, 5.0]),
    ... )
    >>> both.weighted(y) is y  # no weights
    True
    """

    targets: Vectors
    output: NDArray[np.intp]
    mu: Vectors
    left_out: NDArray[np.intp]
    size: Vectors
    fold: NDArray[np.intp] | None = None
    weight: NDArray[Any] | None = None

    def masked(self, V: Vectors, columns: NDArray[np.intp]) -> Vectors:
        """Set the rows that each column leaves out to 0, in place."""
        if self.fold is not None:
            V[self.fold[:, None] == self.left_out[columns]] = 0.0
        return V

    def weighted(self, V: NDArray[Any]) -> NDArray[Any]:
        """Return W^(1/2) V."""
        return V if self.weight is None else np.sqrt(self.weight)[:, None] * V


@dataclass
class KernelIterate(Iterate):
    """The record of one iteration of `kernel_cg`.

    Attributes
    ----------
    values : ndarray of shape (n, c)
        K alpha of each column, as CG has updated it.
    n_active : int
        Columns that took part in the pass.

    Examples
    --------
    See `kernel_cg`.

    >>> from gyrfalcon.solvers import Iterate, KernelIterate
    >>> issubclass(KernelIterate, Iterate)
    True
    """

    values: Vectors = field(default_factory=lambda: np.empty((0, 0)), repr=False, compare=False)
    n_active: int = 0


def kernel_cg(
    operator: SquareOperator, systems: KernelSystems, preconditioner: InverseGuess | None, *, max_iter: int, tol: float
) -> Iterator[KernelIterate]:
    """Solve ``(K_nn + mu W^-1) alpha = y`` for many columns at once.

    Parameters
    ----------
    operator : Operator
        K_nn, of shape (n, n): the centers are the rows, in their order.
    systems : KernelSystems
    preconditioner : NystromPreconditioner, or None
    max_iter : int
        Largest number of iterations, each of which is a pass over the rows.
    tol : float
        A column is done when the norm of its residual is at most ``tol`` times its ``size``.

    Yields
    ------
    KernelIterate
        One for each iteration. Its `coef` is alpha, of shape (n, c).

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.solvers import KernelSystems, kernel_cg
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> y = np.sin(X[:, :1])
    >>> K = KernelOperator("gaussian", X, X)
    >>> systems = KernelSystems(
    ...     targets=y, output=np.array([0]), mu=np.array([0.1]), left_out=np.array([-1]), size=np.linalg.norm(y, axis=0)
    ... )
    >>> *_, last = kernel_cg(K, systems, None, max_iter=200, tol=1e-12)
    >>> np.allclose(last.coef(), np.linalg.solve(K.matmat(np.eye(100)) + 0.1 * np.eye(100), y))
    True
    """
    began, passes = time.perf_counter(), operator.passes
    n, columns = operator.shape
    if n != columns:
        raise ValueError(f"the operator has shape {operator.shape}, but kernel_cg needs every row as a center")
    problem = _Problem(operator, systems, preconditioner, systems.weighted(systems.targets))
    size, now = systems.size, _begin(problem, tol)

    def record(iteration: int, n_active: int) -> KernelIterate:
        return KernelIterate(
            iteration=iteration,
            residual=float(now.residuals.max(initial=0.0)),
            residuals=now.residuals,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes,
            converged=bool((now.residuals <= tol).all() and not len(now.active)),
            step=now.step,
            ratio=np.zeros(len(size)),
            error=now.residuals * size / np.sqrt(n),
            signal=signals(_norms(systems.weighted(now.values)), now.residuals * size, size) / np.sqrt(n),
            values=now.values,
            n_active=n_active,
            _coef=partial(systems.weighted, now.x),
        )

    if max_iter == 0 or not len(now.active):
        yield record(0, 0)
        return
    now.p[:, now.active] = problem.preconditioned(now.r[:, now.active], now.active)
    for iteration in range(1, max_iter + 1):
        n_active = len(now.active)
        _step(problem, now, tol, refresh=iteration % _REFRESH == 0, last=iteration == max_iter)
        yield record(iteration, n_active)
        if not len(now.active):
            return


@dataclass(frozen=True)
class _Problem:
    """The systems, the products that solve them, and ``right``, which is W^(1/2) y of all targets."""

    operator: SquareOperator
    systems: KernelSystems
    preconditioner: InverseGuess | None
    right: NDArray[Any]

    def products(self, V: Vectors) -> tuple[Vectors, Vectors]:
        """Return K alpha, and W^(1/2) K alpha, in one pass."""
        values = self.operator.matmat(self.systems.weighted(V)).astype(np.float64)
        return values, self.systems.weighted(values)

    def preconditioned(self, R: Vectors, c: NDArray[np.intp]) -> Vectors:
        """Apply the preconditioner to the residuals of some columns."""
        if self.preconditioner is None:
            return R.copy()
        systems = self.systems
        return systems.masked(self.preconditioner.apply(R, systems.mu[c], systems.left_out[c]), c)


@dataclass
class _Columns:
    """State of all columns. A step replaces x, values, residuals and step, which were yielded, and changes the others.

    x, values, r, p : the solution, K alpha, the residual as updated by CG, and the next direction, of shape (n, c)
    residuals, step : norm of each residual relative to the system's size, and length of the last step
    known : the residuals that were last computed instead of updated
    adrift, stalled : whether the last computed residual differed much from the updated one and had hardly fallen; and
        whether that happened twice in a row
    active : columns that are not done
    """

    x: Vectors
    values: Vectors
    r: Vectors
    p: Vectors
    residuals: Vectors
    step: Vectors
    known: Vectors
    adrift: NDArray[np.bool_]
    stalled: NDArray[np.bool_]
    active: NDArray[np.intp]


def _begin(problem: _Problem, tol: float) -> _Columns:
    """Make the columns before the first iteration, without a pass."""
    systems = problem.systems
    n, k = problem.operator.shape[0], len(systems.mu)
    r = systems.masked(problem.right[:, systems.output].astype(np.float64), np.arange(k))
    residuals = _norms(r) / systems.size
    if not np.isfinite(residuals).all():
        raise ValueError("the right-hand side W^(1/2) y is not finite; check y and the sample weights, or rescale y")
    x, values, p = (np.zeros((n, k)) for _ in range(3))
    adrift, stalled = np.zeros(k, dtype=bool), np.zeros(k, dtype=bool)
    active = np.flatnonzero(residuals > tol)
    return _Columns(x, values, r, p, residuals, np.zeros(k), np.full(k, np.inf), adrift, stalled, active)


def _step(problem: _Problem, now: _Columns, tol: float, *, refresh: bool, last: bool) -> None:
    """Make one iteration of the active columns."""
    systems, r, p, c = problem.systems, now.r, now.p, now.active
    x, values, residuals, step = now.x.copy(), now.values.copy(), now.residuals.copy(), np.zeros(len(systems.mu))
    now.x, now.values, now.residuals, now.step = x, values, residuals, step
    doubtful = c if refresh else c[residuals[c] <= tol]
    K, WK = problem.products(np.hstack([p[:, c], x[:, doubtful]]))
    q, Kp = WK[:, : len(c)], K[:, : len(c)]
    if len(doubtful):
        _renew(problem, now, doubtful, (K[:, len(c) :], WK[:, len(c) :]))
    q = systems.masked(q + systems.mu[c] * p[:, c], c)
    curvature = _dots(p[:, c], q)
    # Without positive curvature (rounding, or a kernel that is not positive) a column has come as far as it can
    ends = ~(curvature > 0) | now.stalled[c]
    ends[np.isin(c, doubtful)] |= residuals[c[np.isin(c, doubtful)]] <= tol
    c, q, Kp, curvature = c[~ends], q[:, ~ends], Kp[:, ~ends], curvature[~ends]
    # An exact line search along p, also after r was computed anew; the next p is conjugate to this one
    step[c] = _dots(p[:, c], r[:, c]) / curvature
    x[:, c] += step[c] * p[:, c]
    values[:, c] += step[c] * Kp
    r[:, c] -= step[c] * q
    residuals[c] = _norms(r[:, c]) / systems.size[c]
    now.active = c
    if len(c) and ((residuals[c] <= tol).all() or last):
        # No column needs another direction: this pass is for the true residuals alone
        _renew(problem, now, c, problem.products(x[:, c]))
        now.active = c[(residuals[c] > tol) & ~now.stalled[c]]
    if len(now.active) and not last:
        kept = np.isin(c, now.active)
        c, q, curvature = c[kept], q[:, kept], curvature[kept]
        z = problem.preconditioned(r[:, c], c)
        p[:, c] = z - _dots(z, q) / curvature * p[:, c]


def _renew(problem: _Problem, now: _Columns, c: NDArray[np.intp], fresh: tuple[Vectors, Vectors]) -> None:
    """Replace the updated residuals of columns by the true ones, from `fresh` products with x."""
    systems, size = problem.systems, problem.systems.size[c]
    true = systems.masked(problem.right[:, systems.output[c]] - fresh[1] - systems.mu[c] * now.x[:, c], c)
    now.residuals[c] = residuals = _norms(true) / size
    off = (_norms(true - now.r[:, c]) / size > _ADRIFT * residuals) & (residuals > _PROGRESS * now.known[c])
    now.stalled[c], now.adrift[c], now.known[c] = now.adrift[c] & off, off, residuals
    now.values[:, c], now.r[:, c] = fresh[0], true


def _dots(U: Vectors, V: Vectors) -> Vectors:
    products: Vectors = np.einsum("ij,ij->j", U, V)
    return products


def _norms(V: Vectors) -> Vectors:
    return np.sqrt(_dots(V, V))
