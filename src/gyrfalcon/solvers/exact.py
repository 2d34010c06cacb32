"""Exact kernel ridge regression, with all rows as centers: ``(K + mu W^-1) alpha = y``, mu = lambda n.

Written as S (S K S + mu I)^-1 S y with S = W^(1/2), so that weights may be zero. A Cholesky factorisation solves it for
one penalty; `exact_path` does for a list of penalties, and for none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .._utils.checks import not_negative
from .._utils.words import shown
from ..preconditioners.factors import FactorEngine

Vectors = NDArray[np.float64]


def exact_ridge(
    gram: NDArray[Any],
    y: NDArray[Any],
    penalty: float,
    weight: NDArray[Any] | None = None,
    *,
    overwrite_gram: bool = False,
    engine: FactorEngine | None = None,
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
    engine : FactorEngine, optional
        What makes the factor; by default SciPy.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.solvers import exact_ridge
    >>> exact_ridge(np.eye(2), np.array([3.0, 6.0]), penalty=1.0)
    array([1., 2.])
    """
    not_negative()("penalty", penalty)
    K, root, z = weighted_gram(gram, y, weight, overwrite_gram)
    n = len(K)
    K[np.diag_indices(n)] += penalty * n
    alpha = _solution(K, z) if engine is None else _solution_by(engine, K, z)
    if alpha is None:
        raise ValueError(
            f"the kernel matrix plus penalty * n = {penalty * n:.3g} is not positive definite: raise "
            f"penalty={shown(penalty)}, or choose least squares, which takes a singular matrix"
        )
    return (alpha if root is None else root[:, None] * alpha).reshape(y.shape)


def _solution(K: Vectors, z: Vectors) -> Vectors | None:
    """Return K^-1 z, or None if K is not positive definite; both are overwritten."""
    try:
        factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    solution: Vectors = cho_solve(factor, z, overwrite_b=True, check_finite=False)
    return solution


def _solution_by(engine: FactorEngine, K: Vectors, z: Vectors) -> Vectors | None:
    """Return what `_solution` does, by another engine."""
    if not engine.cholesky(K, lower=False):
        return None
    triangles = engine.triangles(K)
    return triangles.solve(triangles.solve(z, lower=False, transposed=True), lower=False)


def weighted_gram(
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
        raise ValueError(f"weight must hold {n} finite numbers, at least 0, one for each row")
    K *= root
    K *= root[:, None]
    return K, root, root[:, None] * z
