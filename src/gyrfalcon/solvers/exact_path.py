"""Exact kernel ridge regression for a whole list of penalties, by one eigendecomposition of the kernel matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from gyrfalcon.solvers.direct import NystromPath, Vectors, _weighted

_BLOCK = 1 << 22  # entries of the squared eigenvectors that are held at a time


class ExactPath(NystromPath):
    """The solutions of ``(K + lambda n W^-1) alpha = y`` for every lambda.

    With S = W^(1/2) and S K S = U s U', alpha = S U (s + mu)^-1 U'S y: ridge regression on the features U s^(1/2),
    which is what makes this a `NystromPath` in which every row is a center.

    Parameters
    ----------
    gram : ndarray of shape (n, n), float64
        K. Overwritten.
    y : ndarray of shape (n,) or (n, k)
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W; zero is allowed.
    cutoff : float, optional
        Eigenvalues below ``cutoff`` times the largest are rounding: a kernel matrix with negative ones beyond that is
        refused, and a direction in which s + mu is that small is left out. By default n times the precision of float64.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.solvers.exact_path import ExactPath
    >>> path = ExactPath(np.eye(2), np.array([3.0, 6.0]))
    >>> path.coefficients([0.0, 1.0])
    array([[3., 1.],
           [6., 2.]])
    """

    def __init__(
        self, gram: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None = None, cutoff: float | None = None
    ) -> None:
        K, self._root, z = _weighted(gram, y, weight, True)
        self.n = len(K)
        self._trailing = y.shape[1:]
        self._Y = z  # weighted
        s, self._U = eigh(K, lower=True, overwrite_a=True, check_finite=False)
        largest = max(float(s[-1]), 0.0)
        cutoff = self.n * float(np.finfo(np.float64).eps) if cutoff is None else cutoff
        self._cutoff = np.float64(cutoff * largest)
        if s[0] < -max(cutoff, 1e-6) * largest:
            raise ValueError(
                f"the kernel is not positive: its matrix of these rows has the eigenvalue {s[0]:.3g} (the largest is "
                f"{s[-1]:.3g}); choose a positive semidefinite kernel"
            )
        self.eigenvalues = np.maximum(s, 0.0)
        self._Uz = self._U.T @ z
        self._projected = np.sqrt(self.eigenvalues)[:, None] * self._Uz
        self._squares = np.square(z).sum(axis=0)

    def coefficients(self, penalties: ArrayLike) -> Vectors:
        """Return alpha, of shape (n,) or (n, k); for a list of P penalties, of shape (n, P) or (n, k, P)."""
        inverse = self._inverse(penalties)
        alpha: Vectors = self._U @ (self._Uz[:, :, None] * inverse[:, None, :]).reshape(self.n, -1)
        if self._root is not None:
            alpha *= self._root[:, None]
        return alpha.reshape(self.n, *self._trailing, *(inverse.shape[1:] if np.ndim(penalties) else ()))

    def leave_one_out(self, penalties: ArrayLike) -> Vectors:
        """Return the mean of W e^2, of shape (P, k), where e_i is row i's residual of the fit without it."""
        filtered = self.eigenvalues[:, None] * self._inverse(penalties)
        kept = (self._Uz[:, :, None] * filtered[:, None, :]).reshape(self.n, -1)
        k = self._Y.shape[1]
        total = np.zeros((filtered.shape[1], k))
        size = max(1, _BLOCK // self.n)
        for start in range(0, self.n, size):
            at = slice(start, start + size)
            U = self._U[at]
            r = self._Y[at][:, :, None] - (U @ kept).reshape(len(U), k, -1)
            left = 1 - (np.square(U) @ filtered)[:, None, :]
            # a row that is fitted exactly whatever its y says nothing about others
            e = np.divide(r, left, out=np.full_like(r, np.inf), where=left > 1e-12)
            total += np.square(e).sum(axis=0).T
        return total / self.n
