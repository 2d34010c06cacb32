"""EigenPro: mini-batch gradient descent for K_nn alpha = y, with the largest eigenvalues of K_nn reduced.

The largest eigenvalue limits the steps of plain descent, which is slow in the directions of small ones. EigenPro (Ma,
Belkin, "Diving into the shallows", 2017; "Kernel machines that adapt to GPUs", 2019) multiplies the gradient by

    P = I - sum_{i <= q} (1 - sigma_{q+1} / sigma_i) e_i e_i',     e_i = sum_j U_ji k(x_j, .) / sqrt(sigma_i),

with K_ss = U diag(sigma) U' of s rows, which makes the first q + 1 eigenvalues equal. A batch I of m rows then changes
coefficients at its own rows and at the s rows:

    alpha_I <- alpha_I + (step/m) r,     alpha_s <- alpha_s - (step/m) V K_sI r,     r = y_I - K_I alpha,
    V = U_q diag((1 - sigma_{q+1}/sigma_i) / sigma_i) U_q'.

For the length of a step, let k_P be the kernel that P leaves, beta the largest k_P(x, x) and lambda the largest
eigenvalue of its n x n matrix over n. A batch drawn without replacement has

    E[((1/m) sum_I phi phi')^2] <= L/m E[phi phi'],   L = beta (n - m)/(n - 1) + lambda n (m - 1)/(n - 1),

so the squared distance to the interpolant falls in expectation while step < 2m/L, fastest with m/L: the papers'
m/(beta + (m - 1) lambda) for m << n, and 1/lambda for m = n. Larger batches than m = beta/lambda slow down the progress
per epoch, so that is the batch size, and q is chosen to make it as large as suits the machine. lambda is measured on
newly drawn rows: on the s rows themselves P looks better than it is, and on others, by convexity, no better on average.
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
from sklearn.utils import check_random_state

from .._utils.checks import integer, optional
from .._utils.ranges import check_kernel_scale
from ..operators import KernelOperator
from ..operators.diagonal import kernel_diagonal
from .base import Iterate, Vectors
from .gradient import Step, check_step
from .lanczos import lanczos

__all__ = ["Eigensystem", "eigenpro", "top_eigensystem"]

_GROWTH = 10.0  # factor of growth of the residual that the noise of batches does not explain


@dataclass(frozen=True)
class Eigensystem:
    """The preconditioner P, and the two numbers that bound the length of a step.

    indices : the s rows that P was made from
    U : eigenvectors of their kernel matrix, of shape (s, q)
    damping : (1 - sigma_{q+1}/sigma_i) / sigma_i, of shape (q,)
    beta : the largest k_P(x, x) among all rows
    largest : the largest eigenvalue of k_P's n x n matrix, over n
    subsample : the operator k(rows, the s rows)
    """

    indices: NDArray[np.intp]
    U: Vectors
    damping: Vectors
    beta: float
    largest: float
    subsample: KernelOperator

    @property
    def n_components(self) -> int:
        """q."""
        return self.U.shape[1]

    @property
    def batch_size(self) -> int:
        """The largest batch that costs no progress per epoch."""
        n = self.subsample.shape[0]
        return n if not n * self.largest > self.beta else max(1, int(self.beta / self.largest))

    def step(self, batch_size: int) -> float:
        """Return the step m/L, with which the bound above falls fastest; 0 if the kernel is 0 at all rows."""
        n, m = self.subsample.shape[0], batch_size
        if n == 1:
            return 1 / self.beta if self.beta > 0 else 0.0
        L = (self.beta * (n - m) + self.largest * n * (m - 1)) / (n - 1)
        return m / L if L > 0 else 0.0

    def correction(self, rows: NDArray[Any], r: NDArray[Any]) -> Vectors:
        """Return V K_sI r for the rows I: the part of the gradient that P removes, as coefficients of the s rows."""
        return self.U @ (self.damping[:, None] * (self.U.T @ self.subsample.on(rows).rmatmat(r)))


def top_eigensystem(
    operator: KernelOperator,
    *,
    n_subsamples: int,
    n_components: int | None = None,
    batch_size: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> Eigensystem:
    """Make the preconditioner P from a random subset of s = `n_subsamples` rows, at most n.

    `n_components` is q; fewer are used if the kernel matrix of the s rows has a lower rank. By default it is the
    smallest q, at most s/4, for which batches of `batch_size` rows (by default n/10, at most 1,000) cost no progress.
    The centers of `operator` are its rows, in the same order.
    """
    n = operator.shape[0]
    _check_square(operator)
    rng: np.random.RandomState = check_random_state(random_state)
    s = min(n_subsamples, n)
    indices = np.sort(rng.choice(n, s, replace=False))
    rows, kernel = operator.rows, operator.kernel
    subsample = KernelOperator(kernel, rows, rows.take(indices), n_jobs=n_jobs, memory_budget=0)
    gram = subsample.centers_gram(np.float64)
    diagonal = gram.diagonal().copy()
    check_kernel_scale(float(np.maximum(diagonal, 0).mean()), operator.dtype, power=2, kernel=kernel)
    if not diagonal.max() > 0 and gram.any():
        raise ValueError(
            f"k(x, x) of {kernel!r} is {diagonal.max():g} or less at every row drawn: choose a positive semidefinite "
            "kernel"
        )
    most = s // 4 if n_components is None else n_components
    top = min(most + 1, s)
    if top > 1:
        sigma, U = eigh(gram, subset_by_index=(s - top, s - 1), overwrite_a=True, driver="evr")
        if len(sigma) < top:  # LAPACK's bisection finds none where all are alike up to rounding, as of rows far apart
            sigma, U = eigh(subsample.centers_gram(np.float64), overwrite_a=True, driver="evd")
            sigma, U = sigma[-top:], U[:, -top:]
        sigma, U = sigma[::-1], U[:, ::-1]
    else:
        sigma, U = np.array([lanczos(lambda v: gram @ v, s, 30)[1]]), np.empty((s, 0))
    rank = int((sigma > s * np.finfo(operator.dtype).eps * sigma[0]).sum()) if sigma[0] > 0 else 0
    q = max(0, min(most, top - 1, rank - 1))  # an eigenvalue must be left to cut the others down to
    if n_components is None and q:
        wanted = min(1_000, -(-n // 10)) if batch_size is None else batch_size
        q = _fewest(sigma[: q + 1], U[:, : q + 1], diagonal, wanted)
    tail = float(sigma[q]) if rank else 0.0
    U, damping = np.ascontiguousarray(U[:, :q]), (1 - tail / sigma[:q]) / sigma[:q]
    system = Eigensystem(indices, U, damping, _beta(subsample, U, damping), tail / s, subsample)
    if s == n:
        return system
    return Eigensystem(indices, U, damping, system.beta, _largest(system, s, rng, n_jobs), subsample)


def _fewest(sigma: Vectors, U: Vectors, diagonal: Vectors, wanted: int) -> int:
    """Return the least q for which beta/lambda is `wanted`, as far as the subsample tells, or the most there is."""
    s = len(U)
    squares = np.square(U)
    cut = np.cumsum(sigma * squares, axis=1) - sigma * squares  # sum_{i <= q} sigma_i u_i^2, a column for each q
    weight = np.cumsum(squares, axis=1) - squares
    beta = (diagonal[:, None] - cut + sigma * weight).max(axis=0)
    enough = np.flatnonzero(s * beta >= wanted * sigma)
    return int(enough[0]) if len(enough) else len(sigma) - 1


def _beta(subsample: KernelOperator, U: Vectors, damping: Vectors) -> float:
    """Return the largest k_P(x, x) among all rows; without eigenvectors that takes no pass."""
    V, kernel, rows = (U * np.sqrt(damping)).astype(subsample.dtype), subsample.kernel, subsample.rows
    if not V.shape[1]:
        return max(0.0, float(kernel_diagonal(kernel, rows).max()))
    diagonal = kernel_diagonal(kernel, rows).copy()
    for at, K in subsample.blocks():
        diagonal[at] -= np.square(K @ V, dtype=np.float64).sum(axis=1)
    return max(0.0, float(diagonal.max()))


def _largest(system: Eigensystem, size: int, rng: np.random.RandomState, n_jobs: int | None) -> float:
    """Return the largest eigenvalue of k_P's matrix of rows drawn anew, over their number."""
    n, kernel = system.subsample.shape[0], system.subsample.kernel
    rows = system.subsample.rows.take(np.sort(rng.choice(n, size, replace=False)))
    gram = KernelOperator(kernel, rows, rows, n_jobs=n_jobs, memory_budget=0).centers_gram(np.float64)
    if system.n_components:
        on_rows = system.subsample.on(rows)
        F = on_rows.matmat(system.U * np.sqrt(system.damping)).astype(np.float64)
        gram -= F @ F.T
    return max(0.0, lanczos(lambda v: gram @ v, size, 30)[1]) / size


def eigenpro(
    operator: KernelOperator,
    y: NDArray[Any],
    system: Eigensystem,
    *,
    max_iter: int,
    tol: float = 0.0,
    step: Step = "auto",
    batch_size: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Iterator[Iterate]:
    """Run preconditioned mini-batch gradient descent towards the interpolant, K_nn alpha = y.

    Each epoch visits all rows once, in a new order, and yields an iterate whose residual is that of all batches, each
    as it was visited; ``passes`` counts epochs. Coefficients change by step/m times the residual; the last batch of an
    epoch, which may be smaller, uses the same factor, and so a shorter step.

    operator : K_nn, whose centers are the rows in the same order; K_nn is not stored
    system : P, of the same operator
    max_iter : number of epochs
    tol : stop when each column's residual is at most ``tol`` times the norm of its targets
    step : length of the steps; "auto" is ``system.step(batch_size)``
    batch_size : m; by default ``system.batch_size``
    random_state : seed of the orders
    """
    began, n = time.perf_counter(), operator.shape[0]
    _check_square(operator)
    optional(integer(1))("batch_size", batch_size)
    check_step("step", step)
    m = min(n, system.batch_size if batch_size is None else batch_size)
    length = system.step(m) if step == "auto" else float(step)
    rng: np.random.RandomState = check_random_state(random_state)
    Y = y.reshape(n, -1).astype(np.float64)
    k = Y.shape[1]
    size = np.linalg.norm(Y, axis=0)
    size[size == 0] = 1.0
    alpha = np.zeros((n, k))
    limit = float(np.sqrt(np.finfo(operator.dtype).max))  # a product with larger numbers could overflow

    def record(epoch: int, residuals: Vectors) -> Iterate:
        return Iterate.measured(
            epoch,
            residuals,
            tol,
            seconds=time.perf_counter() - began,
            passes=epoch,
            step=np.full(k, length if epoch else 0.0),
            ratio=np.zeros(k),
            _coef=partial(alpha.copy().reshape, (n, *y.shape[1:])),
        )

    if max_iter == 0 or not Y.any():
        yield record(0, np.full(k, float(Y.any())))
        return
    smallest = np.ones(k)
    for epoch in range(1, max_iter + 1):
        order, squares = rng.permutation(n), np.zeros(k)
        for start in range(0, n, m):
            batch = np.sort(order[start : start + m])
            rows = operator.rows.take(batch)
            if not np.abs(alpha).max() < limit:
                raise _diverged(length, m, system)
            r = Y[batch] - operator.on(rows).matmat(alpha)
            squares += np.square(r).sum(axis=0)
            alpha[batch] += length / m * r
            if system.n_components:
                alpha[system.indices] -= length / m * system.correction(rows, r)
        residuals = np.sqrt(squares) / size
        if not (residuals <= _GROWTH * np.maximum(smallest, np.sqrt(np.finfo(operator.dtype).eps))).all():
            raise _diverged(length, m, system)
        smallest = np.minimum(smallest, residuals)
        yield record(epoch, residuals)
        if (residuals <= tol).all():
            return


def _check_square(operator: KernelOperator) -> None:
    n, columns = operator.shape
    if n != columns:
        raise ValueError(f"the operator has shape {operator.shape}, but EigenPro needs every row as a center")


def _diverged(step: float, batch_size: int, system: Eigensystem) -> FloatingPointError:
    stable = 2 * system.step(batch_size)
    if step < 0.9 * stable:
        reason = (
            "so the kernel may not be positive semidefinite, or the subsample too small to tell: take more "
            "n_subsamples, or a shorter step"
        )
    else:
        reason = "choose a shorter one, or 'auto'"
    return FloatingPointError(
        f"EigenPro diverges with step={step:g} and batches of {batch_size} rows, where steps up to about {stable:.3g} "
        f"are expected to be stable: {reason}"
    )
