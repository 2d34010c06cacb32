"""Principal components of the rows in feature space, from their Nyström features F = K R.

With f the mean of the rows of F, the components are eigenvectors V of the covariance

    H = F'F / n - f f',      scores of a row x: (f(x) - f)'V = k(x, centers) R V - f'V,

so that scores are expansions of M kernels and a constant (Sterge, Sriperumbudur, Rosasco, Rudi, "Gain with no Pain:
Efficiency of Kernel-PCA by Nyström Sampling", 2020). All eigenvectors take F'F, n M^2 time. A few of them take products
with H alone, each of which is one pass over the rows: a block Krylov method (Musco, Musco 2015), whose Ritz vectors are
taken from all blocks so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from .._utils.threads import single_threaded_blas
from ..operators import Operator
from ..preconditioners import Whitening
from .nystrom_features import feature_sums

__all__ = ["Components", "krylov_block", "largest_components", "principal_components"]

Vectors = NDArray[np.float64]

_MORE = 8  # columns of a block beyond the components asked for
_MOST_BLOCKS = 30


@dataclass(frozen=True)
class Components:
    """Eigenvectors of the covariance H of the features, and the mean of the features.

    Attributes
    ----------
    eigenvalues : ndarray of shape (q,), falling
        Variances of the scores.
    vectors : ndarray of shape (rank, q)
        V.
    mean : ndarray of shape (rank,)
        f.
    residual : float
        Largest norm of H v - s v, relative to the largest eigenvalue; 0 for a direct solve.
    passes : int
        Passes over the rows.
    """

    eigenvalues: Vectors
    vectors: Vectors
    mean: Vectors
    residual: float
    passes: int


def principal_components(operator: Operator, whitening: Whitening) -> Components:
    """Compute all principal components of the features, in one pass over the rows.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M).
    whitening : Whitening
        T of the same centers, in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import principal_components
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> K = KernelOperator("linear", X, X[:10])  # of rank 3: PCA itself
    >>> found = principal_components(K, Whitening(K.centers_gram(), 200))
    >>> np.allclose(found.eigenvalues[::-1], np.linalg.eigvalsh(np.cov(X.T, bias=True)))
    True
    """
    n = operator.shape[0]
    G, total = feature_sums(operator, whitening, np.ones((n, 1)))
    mean = total[:, 0] / n
    G /= n
    G -= np.outer(mean, mean)
    if not whitening.rank:
        return Components(np.zeros(0), np.zeros((0, 0)), mean, 0.0, 1)
    with single_threaded_blas():
        s, V = eigh(G, lower=False, overwrite_a=True, check_finite=False, driver="evd")
    return Components(np.maximum(s[::-1], 0.0), V[:, ::-1], mean, 0.0, 1)


def krylov_block(n_components: int) -> int:
    """Return how many columns a pass of `largest_components` multiplies."""
    return n_components + max(_MORE, n_components // 4)


def largest_components(
    operator: Operator, whitening: Whitening, n_components: int, *, tol: float, random_state: np.random.RandomState
) -> Components:
    """Compute the first few principal components, in some passes over the rows.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M).
    whitening : Whitening
        T of the same centers.
    n_components : int
        At most the rank of the whitening.
    tol : float
        Residual, relative to the largest eigenvalue, at which the iterations end. An eigenvalue is then known to about
        the square of that.
    random_state : RandomState
        Of the first block.
    """
    n, root_n = operator.shape[0], np.sqrt(whitening.n)
    mean = whitening.apply_transpose(operator.rmatmat(np.ones((n, 1), dtype=operator.dtype)))[:, 0] * (root_n / n)

    def covariance(X: Vectors) -> Vectors:
        product = whitening.apply_transpose(operator.sandwich(whitening.apply(X))) * (whitening.n / n)
        return product - np.outer(mean, mean @ X)

    start = random_state.standard_normal((whitening.rank, min(whitening.rank, krylov_block(n_components))))
    s, V, residual, steps = _block_krylov(covariance, start, n_components, tol)
    return Components(np.maximum(s, 0.0), V, mean, residual, steps + 1)


def _block_krylov(
    product: Callable[[Vectors], Vectors], start: Vectors, q: int, tol: float
) -> tuple[Vectors, Vectors, float, int]:
    """Return the q largest eigenvalues of a symmetric matrix, their vectors, the largest residual, and the products."""
    basis, images = np.zeros((len(start), 0)), np.zeros((len(start), 0))
    block, steps = start, 0
    while steps < _MOST_BLOCKS:
        steps += 1
        block = _orthonormal(block, basis)
        image = product(block)
        basis, images = np.hstack([basis, block]), np.hstack([images, image])
        with single_threaded_blas():
            small = basis.T @ images
            s, W = eigh((small + small.T) / 2, check_finite=False)
            s, W = s[::-1][:q], W[:, ::-1][:, :q]
            V = basis @ W
            residuals = np.linalg.norm(images @ W - V * s, axis=0)
        largest = max(float(s[0]), np.finfo(np.float64).tiny)
        residual = float(residuals.max()) / largest
        # a basis of the whole space, or a matrix that is zero, leaves nothing to find
        if residual <= tol or basis.shape[1] >= len(start) or not image.any():
            break
        block = image[:, : len(start) - basis.shape[1]]
    return s, V, residual, steps


def _orthonormal(block: Vectors, basis: Vectors) -> Vectors:
    """Return an orthonormal basis of a block that is orthogonal to `basis`; twice, for what rounding leaves."""
    with single_threaded_blas():
        for _ in range(2):
            block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
    return block
