"""Sketched preconditioned SVRG for ridge regression (Gonen, Orabona, Shalev-Shwartz, 2016).

The objective is mean(w (y - F alpha)^2) / 2 + penalty |alpha|^2 / 2, with the Hessian H = C + penalty I, C = F'WF / n.
A sketch of C gives its first q eigenvectors u_i and eigenvalues s_i, and the preconditioner

    P = sum_{i <= q} (s_i + penalty) u_i u_i' + (s_q + penalty) (I - sum_{i <= q} u_i u_i').

An epoch computes the gradient g of all rows at a snapshot alpha~, and then makes one step for each batch I of m rows:

    alpha <- alpha - step P^-1 (F_I'W_I F_I / m + penalty I) (alpha - alpha~) - step P^-1 g.

The noise of a batch vanishes as alpha and alpha~ approach the solution, so that a constant step converges to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from ..operators import Operator
from .base import Iterate, Vectors, sizes
from .lanczos import lanczos

__all__ = ["SketchedHessian", "sketched_hessian", "svrg"]

_OVERSAMPLED = 10  # columns of the sketch beyond those that are kept
_ROUNDS = 2  # products with C before the eigenvectors are read off
_SHARE = 0.5  # of the step with which the bound on a batch's curvature falls fastest, for the noise of the snapshots


@dataclass(frozen=True)
class SketchedHessian:
    """The preconditioner P.

    vectors : its first eigenvectors, of shape (M, q)
    values : their eigenvalues, of shape (q,)
    tail : the eigenvalue in all other directions
    """

    vectors: Vectors
    values: Vectors
    tail: float

    def solve(self, V: Vectors) -> Vectors:
        """Return P^-1 V."""
        inside = self.vectors.T @ V
        return V / self.tail + self.vectors @ (inside * (1 / self.values - 1 / self.tail)[:, None])


def sketched_hessian(
    operator: Operator,
    penalty: float,
    n_components: int,
    random_state: np.random.RandomState,
    weight: NDArray[Any] | None = None,
) -> SketchedHessian:
    """Make P from a random sketch of F'WF, in three passes.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.kernels import Linear
    >>> from gyrfalcon.solvers.svrg import sketched_hessian
    >>> F = KernelOperator(Linear(), np.diag([2.0, 1.0, 1.0]), np.eye(3))  # F'F / 3 = diag(4, 1, 1) / 3
    >>> P = sketched_hessian(F, 1.0, 2, np.random.RandomState(0))
    >>> bool(np.allclose(P.solve(np.eye(3)), np.diag([3 / 7, 3 / 4, 3 / 4])))
    True
    """
    n, M = operator.shape
    q = min(n_components, M)
    Q = random_state.standard_normal((M, min(M, q + _OVERSAMPLED)))
    for _ in range(_ROUNDS):
        Q = np.linalg.qr(operator.sandwich(np.linalg.qr(Q)[0], weight))[0]
    values, vectors = eigh(Q.T @ operator.sandwich(Q, weight) / n)
    values = np.maximum(values[::-1][:q], 0.0) + penalty
    # without a penalty the null space would be divided by 0; no gradient has a part there
    floor = np.finfo(operator.dtype).eps * values.max(initial=0.0)
    values = np.maximum(values, floor if floor > 0 else 1.0)
    return SketchedHessian(Q @ vectors[:, ::-1][:, :q], values, float(values[-1]))


def svrg(
    operator: Operator,
    y: NDArray[Any],
    penalty: float,
    hessian: SketchedHessian,
    *,
    batch_size: int,
    max_iter: int,
    tol: float = 0.0,
    random_state: np.random.RandomState,
    weight: NDArray[Any] | None = None,
) -> Iterator[Iterate]:
    """Run variance-reduced mini-batches towards ``(F'WF + penalty n I) alpha = F'W y``, in two passes for each epoch.

    operator : F, whose rows can be taken in any order
    hessian : P
    batch_size : m; the last batch of an epoch may be smaller
    max_iter : number of epochs

    Yields an iterate for each epoch; its residual is that of its snapshot, the epoch before.
    """
    began, passes = time.perf_counter(), operator.passes
    (n, M), Y = operator.shape, y.reshape(len(y), -1).astype(np.float64)
    W = np.ones((n, 1)) if weight is None else np.asarray(weight, dtype=np.float64)[:, None]
    alpha = np.zeros((M, Y.shape[1]))
    step = _step(operator, penalty, hessian, W, min(batch_size, n))
    size = sizes(operator.rmatmat(W * Y) / n)
    for epoch in range(1, max_iter + 1):
        snapshot = alpha
        g = penalty * alpha - operator.sandwich(alpha, partial(_weighted_residual, Y, W)) / n
        residuals = np.linalg.norm(g, axis=0) / size
        order = random_state.permutation(n)
        for start in range(0, n, batch_size):
            batch = np.sort(order[start : start + batch_size])
            moved = alpha - snapshot
            curved = operator.on(operator.rows.take(batch)).sandwich(moved, W[batch, 0]) / len(batch)
            alpha = alpha - step * hessian.solve(curved + penalty * moved + g)
        yield Iterate.measured(
            epoch,
            residuals,
            tol,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes + epoch,  # the batches of an epoch are a pass
            step=np.full(Y.shape[1], step),
            ratio=np.zeros(Y.shape[1]),
            _coef=partial(alpha.reshape, (M, *y.shape[1:])),
        )
        if (residuals <= tol).all():
            return


def _weighted_residual(Y: Vectors, W: Vectors, at: slice, T: NDArray[Any]) -> Vectors:
    residual: Vectors = W[at] * (Y[at] - T)
    return residual


def _step(operator: Operator, penalty: float, hessian: SketchedHessian, W: Vectors, m: int) -> float:
    """Return the length of a step, from a bound on the mean square of a batch's preconditioned Hessian.

    With beta the largest w F_i P^-1 F_i' of a row and largest the largest eigenvalue of P^-1 H, the bound for m of n
    rows drawn without replacement is beta (n - m) / ((n - 1) m) + largest n (m - 1) / ((n - 1) m), as in EigenPro.
    """
    n, beta = operator.shape[0], 0.0
    for at, F in operator.blocks():
        rows = F.astype(np.float64)
        beta = max(beta, float((W[at, 0] * np.einsum("ij,ji->i", rows, hessian.solve(rows.T))).max(initial=0.0)))
    root = 1 / np.sqrt(hessian.values) - 1 / np.sqrt(hessian.tail)

    def product(v: Vectors) -> Vectors:
        """Return P^(-1/2) H P^(-1/2) v."""

        def half(u: Vectors) -> Vectors:
            return u / np.sqrt(hessian.tail) + hessian.vectors @ (root * (hessian.vectors.T @ u))

        u = half(v)
        return half(operator.sandwich(u, W[:, 0]) / n + penalty * u)

    largest = lanczos(product, operator.shape[1], 10)[1]
    if n > 1:
        largest = (beta * (n - m) + largest * n * (m - 1)) / ((n - 1) * m)
    return _SHARE / largest if largest > 0 else 1.0
