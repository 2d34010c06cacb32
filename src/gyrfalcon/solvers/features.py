"""Ridge regression on features F: normal equations added up over blocks of rows, and their solution.

F may have any number of rows: only the M x M matrix F'WF is held.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from .._utils.ranges import check_kernel_scale
from .._utils.threads import effective_n_jobs, share
from ..operators import Operator
from ..operators.squares import BlockSums, Squares
from .nystrom_features import parts_of

Vectors = NDArray[np.float64]

_PANELS = 8  # of the columns of F, so that there are enough products of two of them to share among threads


def normal_equations(
    operator: Operator, y: NDArray[Any], weight: NDArray[Any] | None = None, *, n_jobs: int | None = None
) -> tuple[Vectors, Vectors]:
    """Return F'WF and F'Wy, in one pass and O(M^2) memory whatever the number of rows.

    Blocks are converted to float64 before they are multiplied, so that F'WF is positive to that precision, and added in
    order. Threads share a block's product by columns, so that the bits of the result do not depend on their number.

    Parameters
    ----------
    operator : Operator
        F, of shape (n, M).
    y : array of shape (n, k)
    weight : array of shape (n,), optional
        The diagonal of W, not negative.
    n_jobs : int or None

    Returns
    -------
    G : array of shape (M, M), symmetric
    c : array of shape (M, k)

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.solvers import normal_equations
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> F = KernelOperator("gaussian", X, X[:20])
    >>> G, c = normal_equations(F, np.sin(X[:, :1]))
    >>> np.allclose(G, F.sandwich(np.eye(20))), c.shape
    (True, (20, 1))
    """
    sums = _NormalEquations(operator.shape[1], y, weight, effective_n_jobs(n_jobs))
    operator.add_blocks(sums)
    G, c = sums.G, sums.c
    squares = float(G.trace()) / operator.shape[0]  # of a row's features: k(x, x), on average
    check_kernel_scale(squares if squares or not c.any() else 5e-324, np.float64, power=1)
    for left, right in sums.pairs:
        G[right, left] = G[left, right].T
    return G, c


class _NormalEquations(BlockSums):
    """F'WF, in tiles on and above the diagonal of G, and F'Wy."""

    def __init__(self, M: int, y: NDArray[Any], weight: NDArray[Any] | None, n_threads: int) -> None:
        self._y, self._weight, self._n_threads = y, weight, n_threads
        self.G, self.c = np.zeros((M, M)), np.zeros((M, y.shape[1]))
        size = min(512, max(64, -(-M // _PANELS)))
        panels = [slice(start, min(start + size, M)) for start in range(0, M, size)]
        self.pairs = [(panels[i], panels[j]) for i in range(len(panels)) for j in range(i, len(panels))]

    @property
    def squares(self) -> Squares:
        return Squares(self._y, self._weight)

    def add(self, at: slice, K: NDArray[Any]) -> None:
        for part, rows in parts_of(at, K):
            self._add(part, rows)

    def _add(self, at: slice, K: NDArray[Any]) -> None:
        F, Y = K.astype(np.float64, copy=self._weight is not None), self._y[at].astype(np.float64)
        if self._weight is not None:
            root = np.sqrt(self._weight[at].astype(np.float64))[:, None]
            F *= root
            Y *= root

        def add(pair: tuple[slice, slice]) -> None:
            left, right = pair
            with np.errstate(over="ignore", invalid="ignore"):  # the check of the scale finds it
                self.G[left, right] += F[:, left].T @ F[:, right]
                if left is right:
                    self.c[left] += F[:, left].T @ Y

        share(add, self.pairs, self._n_threads)

    def put(self, G: Vectors, c: Vectors) -> None:
        self.G, self.c = G[0], c


def solve_ridge(G: Vectors, c: Vectors, ridge: float) -> Vectors:
    """Return (G + ridge I)^-1 c for a positive semidefinite G; the shortest solution if that is singular.

    G is overwritten.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.solvers import solve_ridge
    >>> solve_ridge(np.diag([3.0, 0.0]), np.array([[2.0], [0.0]]), 1.0)
    array([[0.5],
           [0. ]])
    >>> solve_ridge(np.ones((2, 2)), np.array([[2.0], [2.0]]), 0.0).round(12)
    array([[1.],
           [1.]])
    """
    M = len(G)
    diagonal = G.diagonal().copy()
    noise = M * np.finfo(np.float64).eps * diagonal.max(initial=0.0)
    G.flat[:: M + 1] = diagonal + ridge
    try:
        # LAPACK is given columns and writes one triangle; the other still has G if the factor is no good
        factor = cho_factor(G.T, lower=True, overwrite_a=True, check_finite=False)
        if np.square(factor[0].diagonal()).min() > noise:
            solution: Vectors = cho_solve(factor, c, check_finite=False)
            return solution
    except LinAlgError:
        pass
    G.flat[:: M + 1] = diagonal
    values, vectors = eigh(G.T, lower=False, overwrite_a=True, check_finite=False)
    kept = values > max(noise, np.finfo(np.float64).tiny)
    values, vectors = values[kept], vectors[:, kept]
    return vectors @ ((vectors.T @ c) / (values + ridge)[:, None])
