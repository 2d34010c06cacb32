"""Accelerated block coordinate descent for kernel ridge regression with every row as a center.

Rathore, Frangella, Yang, Derezinski, Udell, "Have ASkotch: A Neat Solution for Large-scale Kernel Ridge Regression"
(2024). With x = W^(-1/2) alpha, S = W^(1/2) and A = S K S + mu I, a step takes a random block b of rows of A x = S y,

    delta = A_bb^-1 (S y - A z)_b,    x = z + delta,    v = beta v + (1 - beta) z + gamma delta,
    z = a v + (1 - a) x,    beta = 1 - sqrt(m / nu),    gamma = 1 / sqrt(m nu),    a = 1 / (1 + gamma nu),

with nu = n / b. The products K x and K v are combined in the same way as x and v, so that a step takes only the columns
K_b of the matrix, a sweep over all blocks takes one pass, and the residual of every row is known after each step.
Memory is proportional to n, besides one block.

Two things differ from the paper. A_bb is factorised, where the paper has a sketch of rank 100 and a step length: for
blocks of some thousand rows this takes less time than K_b, and steps need no length. The convexity m is not mu, but is
estimated: the first sweeps have m = b / n, which is plain block descent, whose residuals fall like (1 - m)^(t / 2).
In trials a quarter of what they tell was best (kin40k and protein_raw, 5,000 rows, blocks of 50 and 500 rows, mu = 0.01
and 0.1); m = mu took several times as many sweeps with large blocks and a small mu. If the residual grows, the momentum
is dropped, and m is four times as large from then on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from .._utils.linalg import cholesky
from .._utils.threads import effective_n_jobs
from ..operators import KernelOperator
from .base import Iterate, Vectors, signals

_PLAIN = 3  # sweeps without momentum, from the last two of which m is estimated
_CAUTION = 0.25  # share of the estimate that is used
_GROWN = 1.5  # growth of the residual, over its least value, at which momentum is dropped
_PROGRESS = 0.7  # ratio of successive true residuals above which they count as no longer falling


class _Momentum:
    """The points x, v and z of all columns, each with its product with K: arrays of shape (2, n, k)."""

    def __init__(self, n: int, k: int, nu: float) -> None:
        self.x, self.v, self.z = (np.zeros((2, n, k)) for _ in range(3))
        self.nu, self.m = nu, 1 / nu

    def step(self, block: NDArray[np.intp], delta: Vectors, product: Vectors) -> None:
        """Go on from z, by `delta` in the rows of a block, whose product with K is given."""
        gamma, beta = 1 / np.sqrt(self.m * self.nu), 1 - np.sqrt(self.m / self.nu)
        share = 1 / (1 + gamma * self.nu)
        self.v *= beta
        self.v += (1 - beta) * self.z
        self.x[:] = self.z
        for point, length in ((self.x, 1.0), (self.v, gamma)):
            point[0, block] += length * delta
            point[1] += length * product
        np.multiply(self.v, share, out=self.z)
        self.z += (1 - share) * self.x

    def rest(self, m: float) -> None:
        """Drop the momentum, and set m."""
        self.m = min(m, 1 / self.nu)
        self.v[:], self.z[:] = self.x, self.x


def askotch(
    operator: KernelOperator,
    y: NDArray[Any],
    mu: float,
    size: Vectors,
    *,
    block_size: int,
    max_iter: int,
    tol: float,
    weight: NDArray[Any] | None = None,
    random_state: np.random.RandomState,
    n_jobs: int | None = None,
) -> Iterator[Iterate]:
    """Solve ``(K_nn + mu W^-1) alpha = y``, with a sweep over all rows, in random blocks, an iteration.

    Parameters
    ----------
    operator : KernelOperator
        K_nn: the centers are the rows, in their order.
    y : ndarray of shape (n, k)
    mu : float
        lambda n, greater than 0.
    size : ndarray of shape (k,)
        What the residuals are measured by.
    block_size : int
        Number of rows in a block.
    max_iter : int
        Largest number of sweeps, each of which is a pass over the rows.
    tol : float
        Stop when the norm of each column's residual is at most ``tol`` times its ``size``. This is decided by a product
        with K, and not by the residual that steps update.
    weight : ndarray of shape (n,), or None
        Sample weights, the diagonal of W; positive.
    random_state : RandomState
        Draws the blocks.
    n_jobs : int or None
        Number of threads; None for one per core.

    Yields
    ------
    Iterate
        One for each sweep. Its `coef` is alpha, of shape (n, k).

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.solvers import askotch
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> y = np.sin(X[:, :1])
    >>> K = KernelOperator("laplacian", X, X)
    >>> draws = np.random.RandomState(0)
    >>> *_, last = askotch(K, y, 1.0, np.ones(1), block_size=40, max_iter=50, tol=1e-9, random_state=draws)
    >>> last.converged, np.allclose(last.coef(), np.linalg.solve(K.centers_gram() + np.eye(200), y))
    (True, True)
    """
    began, (n, k) = time.perf_counter(), y.shape
    root = np.ones((n, 1)) if weight is None else np.sqrt(weight.astype(np.float64))[:, None]
    right = root * y
    now = _Momentum(n, k, n / min(block_size, n))
    passes, least, known, slow, converged = 0, np.inf, np.inf, 0, False
    told: list[float] = []

    def residual() -> Vectors:
        found: Vectors = np.linalg.norm(right - root * now.x[1] - mu * now.x[0], axis=0) / size
        return found

    for iteration in range(1, max_iter + 1):
        order = random_state.permutation(n)
        for start in range(0, n, block_size):
            block = order[start : start + block_size]
            _step(operator, now, right, root, mu, block, n_jobs)
        passes += 1
        residuals = residual()
        done = bool((residuals <= tol).all())
        if done or iteration == max_iter:
            now.x[1] = operator.matmat(root * now.x[0])
            passes, residuals = passes + 1, residual()
            converged = bool((residuals <= tol).all())
            if not converged:
                now.rest(now.m)
                slow = slow + 1 if done and residuals.max() > _PROGRESS * known else 0
            known = float(residuals.max())
        if not np.isfinite(now.x).all():
            raise FloatingPointError("block coordinate descent diverges: use a larger penalty or another kernel")
        largest = float(residuals.max(initial=0.0))
        told.append(largest)
        yield Iterate.measured(
            iteration,
            residuals,
            tol if converged else -1.0,
            seconds=time.perf_counter() - began,
            passes=passes,
            step=np.ones(k),
            ratio=np.zeros(k),
            error=residuals * size / np.sqrt(n),
            signal=signals(np.linalg.norm(root * now.x[1], axis=0), residuals * size, size) / np.sqrt(n),
            _coef=partial(np.multiply, root, now.x[0].copy()),
        )
        if converged or slow > 1:  # rounding allows no less
            return
        if largest > _GROWN * least:
            now.rest(4 * now.m)
            least = largest
        least = min(least, largest)
        if iteration == _PLAIN and told[-1] < told[-2]:
            now.rest(_CAUTION * 2 * np.log(told[-2] / told[-1]) / now.nu)


def _step(
    operator: KernelOperator,
    now: _Momentum,
    right: Vectors,
    root: Vectors,
    mu: float,
    block: NDArray[np.intp],
    n_jobs: int | None,
) -> None:
    """Solve for the rows of a block, with the others fixed."""
    columns = KernelOperator(operator.kernel, operator.rows, operator.centers[block], n_jobs=n_jobs, memory_budget=0)
    A = columns.centers_gram(np.float64)
    own = root[block]
    A *= own
    A *= own.T
    A.flat[:: len(A) + 1] += mu
    if not cholesky(A, lower=True, n_threads=effective_n_jobs(n_jobs)):
        raise ValueError(f"the kernel matrix of {len(A)} rows plus penalty * n = {mu:.3g} is not positive definite")
    left = right[block] - own * now.z[1, block] - mu * now.z[0, block]
    delta = cho_solve((A, True), left, check_finite=False)
    now.step(block, delta, columns.matmat(own * delta).astype(np.float64))
