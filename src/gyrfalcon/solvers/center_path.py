"""Nyström ridge regression with growing numbers of centers, in one pass over the rows: the number as the regulariser.

"Less is More: Nyström Computational Regularization" (Rudi, Camoriano, Rosasco 2015) computes the solutions for 1 to M
centers by updates of a Cholesky factor, a column for each further center. In blocks these updates are Cholesky's
factorisation itself: T of `Whitening` is upper triangular, so the features of the first m centers are the first m
columns of F = K R, and every matrix here has that of m centers as its leading block. With mu = lambda n,

    F'WF + mu R'K_MM R = L L',     L z = F'W y,     L_m' beta_m = z_m,     alpha_m = R_m beta_m,

where the index m stands for leading blocks. A further m costs two triangular solves, and a further lambda M^3 / 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve_triangular

from .._utils.checks import not_negative
from ..operators import Operator
from ..preconditioners import Whitening
from .nystrom_features import feature_sums

Vectors = NDArray[np.float64]


class CenterPath:
    """The solutions of Nyström ridge regression on the first m centers, for any m and any penalty.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M), with the centers in the order in which they are added.
    y : ndarray of shape (n,) or (n, k)
        Targets.
    whitening : Whitening
        T of the same centers, made with ``nested=True`` from K_MM in float64.
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import CenterPath
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> K = KernelOperator("gaussian", X, X[:20])
    >>> path = CenterPath(K, np.sin(X[:, 0]), Whitening(K.centers_gram(), 200, nested=True))
    >>> path.coefficients(1e-6, [5, 10, 20]).shape
    (20, 3)
    """

    def __init__(
        self, operator: Operator, y: NDArray[Any], whitening: Whitening, weight: NDArray[Any] | None = None
    ) -> None:
        if not whitening.nested:
            raise ValueError("the whitening may have reordered the centers: make it with nested=True")
        n = operator.shape[0]
        self.n, self._trailing, self._whitening = n, y.shape[1:], whitening
        Y = y.reshape(n, -1).astype(np.float64, copy=False)
        weight = None if weight is None else weight.astype(np.float64, copy=False)
        G, self._rhs = feature_sums(operator, whitening, Y, weight)
        self._G = np.triu(G) + np.triu(G, 1).T
        # R'K_MM R, which is I but for the jitter, as far as that can be removed
        T_inverse = whitening.solve_T(np.eye(whitening.rank))
        self._unit = np.eye(whitening.rank) - whitening.correction * (T_inverse.T @ T_inverse)

    def coefficients(self, penalty: float, sizes: Sequence[int]) -> Vectors:
        """Return alpha for each number of centers, with zeros for the others.

        Parameters
        ----------
        penalty : float
            lambda, at least 0.
        sizes : sequence of int
            Numbers of centers, from 1 to M.

        Returns
        -------
        array of shape (M, S) or (M, k, S)
        """
        not_negative()("penalty", penalty)
        L = self._factor(penalty)
        z = solve_triangular(L, self._rhs, lower=True)
        beta = np.zeros((*z.shape, len(sizes)))
        for i, m in enumerate(sizes):
            beta[:m, :, i] = solve_triangular(L[:m, :m], z[:m], lower=True, trans="T")
        M = self._whitening.M
        alpha = self._whitening.apply(beta.reshape(len(z), -1)) * np.sqrt(self.n)
        return alpha.reshape(M, *self._trailing, len(sizes))

    def _factor(self, penalty: float) -> Vectors:
        """Return L; where rounding makes the matrix indefinite, of the matrix and a little more on its diagonal."""
        H = self._G + penalty * self.n * self._unit
        diagonal, ridge = H.diagonal().copy(), 0.0
        while True:
            try:
                L = np.linalg.cholesky(H)
            except LinAlgError:
                rounding = len(H) * float(np.finfo(np.float64).eps) * float(diagonal.max())
                ridge = max(10 * ridge, rounding, float(np.finfo(np.float64).tiny))
                H[np.diag_indices(len(H))] = diagonal + ridge
            else:
                return np.asarray(L, dtype=np.float64)
