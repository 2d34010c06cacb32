"""Preconditioned conjugate gradient for exact kernel ridge regression, many systems with one product K_nn V each time.

The FALKON paper's "Prec. KRR". With x = W^(-1/2) alpha, each column has the system

    (W^(1/2) K_nn W^(1/2) + mu I) x = W^(1/2) y

of its own target, its own mu, and its own rows: those of a fold can be left out, where x is 0 then. K_nn alpha in these
rows is a prediction by a model that has not seen them, and costs no further product. Columns that have converged leave
the product.

Vectors and scalar products are in float64, and only the products with K have the operator's precision. The residual
that CG updates drifts away from the true one then, so the true one is computed in every tenth iteration, and before a
column counts as converged: as a further column of the next pass. Where the two differ by half of the residual, twice in
a row and without progress in between, a column has come as far as the operator's precision lets it, and rests.

The norm of the residual is what predictions ask for: the fitted values K alpha are off by W^(1/2) K W^(1/2) times the
system's inverse times the residual, so by no more than the residual itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .base import Iterate, Vectors, signals
from .gradient import SquareOperator

_REFRESH = 10  # iterations between true residuals
_ADRIFT = 0.5  # of the true residual, by which the updated one is off: most of what is left is rounding
_PROGRESS = 0.7  # a true residual has fallen by at least this since the last one, or it no longer falls


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
    """

    values: Vectors = field(default_factory=lambda: np.empty((0, 0)), repr=False, compare=False)
    n_active: int = 0


def kernel_cg(
    operator: SquareOperator,
    systems: KernelSystems,
    preconditioner: InverseGuess | None,
    *,
    max_iter: int,
    tol: float,
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
    """
    began, passes = time.perf_counter(), operator.passes
    n, columns = operator.shape
    if n != columns:
        raise ValueError(f"the operator has shape {operator.shape}, but kernel_cg needs every row as a center")
    mu, size, k = systems.mu, systems.size, len(systems.mu)
    everything = np.arange(k)

    def product(V: Vectors) -> tuple[Vectors, Vectors]:
        """Return K alpha, and W^(1/2) K alpha."""
        values = operator.matmat(systems.weighted(V)).astype(np.float64)
        return values, systems.weighted(values)

    def solve(R: Vectors, c: NDArray[np.intp]) -> Vectors:
        if preconditioner is None:
            return R.copy()
        return systems.masked(preconditioner.apply(R, mu[c], systems.left_out[c]), c)

    def record(iteration: int, n_active: int) -> KernelIterate:
        return KernelIterate(
            iteration=iteration,
            residual=float(residuals.max(initial=0.0)),
            residuals=residuals,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes,
            converged=bool((residuals <= tol).all() and not len(active)),
            step=step,
            ratio=np.zeros(k),
            error=residuals * size / np.sqrt(n),
            signal=signals(_norms(systems.weighted(values)), residuals * size, size) / np.sqrt(n),
            values=values,
            n_active=n_active,
            _coef=partial(systems.weighted, x),
        )

    right = systems.weighted(systems.targets)
    x, values, step = np.zeros((n, k)), np.zeros((n, k)), np.zeros(k)
    r = systems.masked(right[:, systems.output].astype(np.float64), everything)
    residuals = _norms(r) / size
    if not np.isfinite(residuals).all():
        raise ValueError("the right-hand side W^(1/2) y is not finite; check y and the sample weights, or rescale y")
    # The last true residuals, and whether they were far from the updated ones without having fallen
    known, adrift, stalled = np.full(k, np.inf), np.zeros(k, dtype=bool), np.zeros(k, dtype=bool)
    active = np.flatnonzero(residuals > tol)
    if max_iter == 0 or not len(active):
        yield record(0, 0)
        return
    p = np.zeros((n, k))
    p[:, active] = solve(r[:, active], active)

    def renew(c: NDArray[np.intp], fresh: tuple[Vectors, Vectors]) -> None:
        """Put true residuals in the place of those that were updated."""
        true = systems.masked(right[:, systems.output[c]] - fresh[1] - mu[c] * x[:, c], c)
        residuals[c] = _norms(true) / size[c]
        off = (_norms(true - r[:, c]) / size[c] > _ADRIFT * residuals[c]) & (residuals[c] > _PROGRESS * known[c])
        stalled[c], adrift[c], known[c] = adrift[c] & off, off, residuals[c]
        values[:, c], r[:, c] = fresh[0], true

    for iteration in range(1, max_iter + 1):
        # Arrays already yielded stay as they are
        x, values, residuals, step = x.copy(), values.copy(), residuals.copy(), np.zeros(k)
        c, taking_part = active, len(active)
        doubtful = c if iteration % _REFRESH == 0 else c[residuals[c] <= tol]
        K, WK = product(np.hstack([p[:, c], x[:, doubtful]]))
        q, Kp = WK[:, : len(c)], K[:, : len(c)]
        if len(doubtful):
            renew(doubtful, (K[:, len(c) :], WK[:, len(c) :]))
        q = systems.masked(q + mu[c] * p[:, c], c)
        curvature = _dots(p[:, c], q)
        # Without positive curvature (rounding, or a kernel that is not positive) a column has come as far as it can
        ends = ~(curvature > 0) | stalled[c]
        ends[np.isin(c, doubtful)] |= residuals[c[np.isin(c, doubtful)]] <= tol
        c, q, Kp, curvature = c[~ends], q[:, ~ends], Kp[:, ~ends], curvature[~ends]
        # An exact line search along p, wherever the residual came from, and the next p is conjugate to this one
        step[c] = _dots(p[:, c], r[:, c]) / curvature
        x[:, c] += step[c] * p[:, c]
        values[:, c] += step[c] * Kp
        r[:, c] -= step[c] * q
        residuals[c] = _norms(r[:, c]) / size[c]
        active = c
        claims = residuals[c] <= tol
        if len(c) and (claims.all() or iteration == max_iter):
            # Nobody else needs another pass: this one is for the truth alone
            renew(c, product(x[:, c]))
            active = c[(residuals[c] > tol) & ~stalled[c]]
        if len(active) and iteration < max_iter:
            kept = np.isin(c, active)
            c, q, curvature = c[kept], q[:, kept], curvature[kept]
            z = solve(r[:, c], c)
            p[:, c] = z - _dots(z, q) / curvature * p[:, c]
        yield record(iteration, taking_part)
        if not len(active):
            return


def _dots(U: Vectors, V: Vectors) -> Vectors:
    products: Vectors = np.einsum("ij,ij->j", U, V)
    return products


def _norms(V: Vectors) -> Vectors:
    return np.sqrt(_dots(V, V))
