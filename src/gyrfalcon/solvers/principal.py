"""Principal components of the rows in feature space, from their Nyström features F = K R.

With f the mean of the rows of F, the components are eigenvectors V of the covariance

    H = F'F / n - f f',      scores of a row x: (f(x) - f)'V = k(x, centers) R V - f'V,

so that scores are expansions of M kernels and a constant (Sterge, Sriperumbudur, Rosasco, Rudi, "Gain with no Pain:
Efficiency of Kernel-PCA by Nyström Sampling", 2020). All eigenvectors take F'F, n M^2 time. A few of them take products
with H alone, each of which is one pass over the rows: a block Krylov method (Musco, Musco 2015), whose Ritz vectors are
taken from all blocks so far. It starts from the components of the centers alone, which take no pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from .._utils.portable import beside
from .._utils.threads import single_threaded_blas
from ..operators import Operator, Rowwise
from ..preconditioners import Whitening
from .nystrom_features import feature_sums

__all__ = ["Components", "components_of_centers", "krylov_block", "largest_components", "principal_components"]

Vectors = NDArray[np.float64]

_MORE = 8  # columns of a block beyond the components asked for

# The first block: components of about this number of centers, to this residual, and random columns for what the
# centers do not represent. MNIST, kin40k and protein_raw (20 components, float32) take 4, 5 and 3 passes from there,
# and 7, 7 and 5 from random columns alone.
_ENOUGH_CENTERS, _ROUGH = 2_000, 0.03
_RANDOM = 8
_FEWEST_BLOCKS, _MOST_BLOCKS = 3, 30


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

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import principal_components
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> K = KernelOperator("linear", X, X[:10])
    >>> found = principal_components(K, Whitening(K.centers_gram(), 200))
    >>> found.vectors.shape, found.passes
    ((3, 3), 1)
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
    operator, whitening
        As for `nystrom_features`.

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
    G, total = feature_sums(operator, whitening, np.broadcast_to(np.ones(1), (n, 1)))
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
    return n_components + max(_MORE, n_components // 4) + _RANDOM


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
        Residual, relative to the largest eigenvalue, at which iterations end; the error of an eigenvalue is its square.
    random_state : RandomState
        Generator of the first block.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import largest_components, principal_components
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> K = KernelOperator("gaussian", X, X[:50])
    >>> T = Whitening(K.centers_gram(), 300)
    >>> few = largest_components(K, T, 2, tol=1e-6, random_state=np.random.RandomState(0))
    >>> np.allclose(few.eigenvalues, principal_components(K, T).eigenvalues[:2])
    True
    """
    rank, columns = whitening.rank, krylov_block(n_components)
    found = components_of_centers(operator, whitening, min(rank, columns - _RANDOM), random_state).vectors
    start = np.hstack([found, random_state.standard_normal((rank, _RANDOM))])[:, :rank]
    return _from_start(operator, whitening, start, n_components, tol)


def components_of_centers(
    operator: Operator, whitening: Whitening, n_components: int, random_state: np.random.RandomState
) -> Components:
    """Compute roughly the first few principal components of the centers, as far as they tell those of the rows.

    Parameters
    ----------
    operator, whitening, n_components, random_state
        As for `largest_components`. The rows of the operator are not read.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import components_of_centers
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> K = KernelOperator("gaussian", X, X[:50])
    >>> found = components_of_centers(K, Whitening(K.centers_gram(), 300), 2, np.random.RandomState(0))
    >>> found.vectors.shape[1], K.passes
    (2, 0)
    """
    some = operator.centers[:: -(-operator.shape[1] // _ENOUGH_CENTERS)]
    start = random_state.standard_normal((whitening.rank, n_components))
    return _from_start(operator.on(some), whitening, start, n_components, _ROUGH)


def _from_start(operator: Operator, whitening: Whitening, start: Vectors, q: int, tol: float) -> Components:
    """Compute the first q principal components from a block of vectors to start from."""
    n, b = operator.shape[0], start.shape[1]
    start = _orthonormal(start, np.zeros((len(start), 0)))
    # the first pass also adds up the features: one more column, of ones in the place of a product
    last = np.zeros(b + 1, dtype=operator.dtype)
    last[b] = 1.0
    V = np.hstack([whitening.apply(start), np.zeros((operator.shape[1], 1))])
    first = whitening.apply_transpose(operator.sandwich(V, Rowwise(lambda T: T + beside(last, T), portable=True)))
    mean = first[:, b] * (np.sqrt(whitening.n) / n)

    def centered(product: Vectors, X: Vectors) -> Vectors:
        return product * (whitening.n / n) - np.outer(mean, mean @ X)

    def covariance(X: Vectors) -> Vectors:
        return centered(whitening.apply_transpose(operator.sandwich(whitening.apply(X))), X)

    s, vectors, residual, steps = _block_krylov(covariance, start, centered(first[:, :b], start), q, tol)
    return Components(np.maximum(s, 0.0), vectors, mean, residual, steps)


def _block_krylov(
    product: Callable[[Vectors], Vectors], block: Vectors, image: Vectors, q: int, tol: float
) -> tuple[Vectors, Vectors, float, int]:
    """Return the q largest eigenvalues of a symmetric matrix, their vectors, the largest residual, and the products.

    `block` is orthonormal, and `image` its product, the first of them.
    """
    rank, steps = len(block), 1
    basis, images = block, image
    while True:
        with single_threaded_blas():
            small = basis.T @ images
            s, W = eigh((small + small.T) / 2, check_finite=False)
            s, W = s[::-1][:q], W[:, ::-1][:, :q]
            V = basis @ W
            residuals = np.linalg.norm(images @ W - V * s, axis=0)
        largest = max(float(s[0]), np.finfo(np.float64).tiny)
        residual = float(residuals.max()) / largest
        # a basis of the whole space, or a matrix that is zero, leaves nothing to find
        settled = residual <= tol and steps >= _FEWEST_BLOCKS
        if settled or basis.shape[1] >= rank or steps == _MOST_BLOCKS or not image.any():
            return s, V, residual, steps
        block = _orthonormal(image[:, : rank - basis.shape[1]], basis)
        image, steps = product(block), steps + 1
        basis, images = np.hstack([basis, block]), np.hstack([images, image])


def _orthonormal(block: Vectors, basis: Vectors) -> Vectors:
    """Return an orthonormal basis of a block that is orthogonal to `basis`; twice, for what rounding leaves."""
    with single_threaded_blas():
        for _ in range(2):
            block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
    return block
