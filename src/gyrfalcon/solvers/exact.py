"""Exact kernel regression, with all rows as centers: ``(K + mu W^-1) alpha = y``, mu = lambda n.

Written as S (S K S + mu I)^-1 S y with S = W^(1/2), so that weights may be zero: by a Cholesky factorisation for one
penalty, by an eigendecomposition for a whole list of them and for none (mu = 0).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from .direct import NystromPath, Vectors

_BLOCK = 1 << 22  # entries of the squared eigenvectors that are held at a time


def exact_ridge(
    gram: NDArray[Any],
    y: NDArray[Any],
    penalty: float,
    weight: NDArray[Any] | None = None,
    *,
    overwrite_gram: bool = False,
) -> Vectors:
    """Return kernel ridge regression's alpha, ``(K + penalty n W^-1) alpha = y``, by a Cholesky factorisation.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        K.
    y : ndarray of shape (n,) or (n, k)
    penalty : float
        lambda, at least 0.
    weight : ndarray of shape (n,), optional
        Sample weights; coefficients of rows with weight 0 are 0.
    overwrite_gram : bool
        Whether gram's memory may be used for the factor (if it is float64 and Fortran-ordered).

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.solvers import exact_ridge
    >>> exact_ridge(np.eye(2), np.array([3.0, 6.0]), penalty=1.0)
    array([1., 2.])
    """
    if not (np.isfinite(penalty) and penalty >= 0):
        raise ValueError(f"penalty={penalty!r} must be a finite number, at least 0")
    K, root, z = _weighted(gram, y, weight, overwrite_gram)
    n = len(K)
    K[np.diag_indices(n)] += penalty * n
    try:
        factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        raise ValueError(
            f"the kernel matrix plus penalty * n = {penalty * n:.3g} is not positive definite: raise "
            f"penalty={penalty!r}, or choose least squares, which takes a singular matrix"
        ) from None
    return _unweighted(cho_solve(factor, z, overwrite_b=True, check_finite=False), root, y.shape)


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
    floor : float
        Directions in which s + mu is below this are left out, as are those in which it is n times the precision of
        float64 below the largest eigenvalue: what is there is rounding, and dividing by it would blow it up.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.solvers import ExactPath
    >>> path = ExactPath(np.eye(2), np.array([3.0, 6.0]))
    >>> path.coefficients([0.0, 1.0])
    array([[3., 1.],
           [6., 2.]])
    """

    def __init__(
        self, gram: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None = None, floor: float = 0.0
    ) -> None:
        K, self._root, z = _weighted(gram, y, weight, True)
        self.n = len(K)
        self._trailing = y.shape[1:]
        self._Y = z  # weighted
        s, self._U = eigh(K, lower=True, overwrite_a=True, check_finite=False)
        largest = float(s[-1])
        if s[0] < -1e-6 * max(largest, 0.0):
            raise ValueError(
                f"the kernel is not positive: its matrix of these rows has eigenvalues from {s[0]:.3g} to "
                f"{largest:.3g}; choose a positive semidefinite kernel"
            )
        self._cutoff = np.float64(max(self.n * np.finfo(np.float64).eps * largest, floor))
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


def _weighted(
    gram: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None, overwrite: bool
) -> tuple[Vectors, Vectors | None, Vectors]:
    """Return S K S, S and S y with S = W^(1/2), the first as a Fortran-ordered array to write into."""
    n = len(gram)
    if gram.ndim != 2 or gram.shape[1] != n or n == 0 or len(y) != n:
        raise ValueError(f"gram has shape {gram.shape} and y {y.shape}: gram must be n x n and y have n rows")
    if not (np.isfinite(gram.min()) and np.isfinite(gram.max())):
        raise ValueError("the kernel matrix holds NaN or infinity; check the kernel's parameters and the features")
    K = gram.astype(np.float64, order="F", copy=not overwrite)
    z = np.array(y, dtype=np.float64, order="F").reshape(n, -1)
    if weight is None:
        return K, None, z
    root = np.sqrt(np.asarray(weight, dtype=np.float64))
    if root.shape != (n,) or not np.isfinite(root).all():
        raise ValueError(f"weight must hold {n} finite numbers, at least 0, one a row")
    K *= root
    K *= root[:, None]
    return K, root, root[:, None] * z


def _unweighted(z: Vectors, root: Vectors | None, shape: tuple[int, ...]) -> Vectors:
    alpha = z if root is None else root[:, None] * z
    return alpha.reshape(shape)
