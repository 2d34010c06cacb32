"""A Nyström preconditioner for all rows: (F F' + s I)^-1 approximates (K_nn + mu I)^-1.

With M of the rows as centers, K_MM = T'T and F = W^(1/2) K_nM T^-1, F F' is the Nyström approximation of
W^(1/2) K_nn W^(1/2), and by Woodbury's formula

    s (F F' + s I)^-1 v = v - F (F'F + s I)^-1 F'v.

M random features of all rows serve in the same way [1]: they are F W^(-1/2) themselves, and T is the identity.

F is not stored: products with it are products with K_nM, which its operator keeps if there is room, and triangular
solves. F'F + s I is factored by Cholesky for each s when first needed: with M = 1,000 that takes 0.02 s, where an
eigendecomposition, which would serve every s, takes 0.26 s.

A system that leaves some rows out needs F'F without these rows, to all digits: if F'F was too small by one part in a
thousand (scaling that of all rows is less accurate), the formula would turn negative wherever F'F exceeds 1,000 s. So
F'F is summed for each fold of the rows, which costs the same.

[1] Avron, Clarkson, Woodruff, "Faster Kernel Ridge Regression Using Sketching and Preconditioning", 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh

from .._utils.linalg import add_square
from .._utils.threads import effective_n_jobs, share, single_threaded_blas
from ..operators import Operator
from ..operators.squares import BlockSums, Squares
from .factors import Triangles, copy_to_upper, eps, ridge_factor
from .whitening import Whitening

Vectors = NDArray[np.float64]

# Rounding of the tiles beside the largest eigenvalue of F'F, in units of eps: a smaller s would multiply it. Measured
# in float32 with 8,000 rows and mu = 0.001: 92 and 36 iterations with 4 and 256 for a Laplacian kernel.
_ROUNDING = 256.0

GATHERED = 2048  # rows that are squared at once: updates with the few rows of one block and fold would wait for memory


class NystromPreconditioner:
    """The inverse of F F' + s I, up to a factor, for all rows or for those outside of a fold.

    Parameters
    ----------
    operator : Operator
        K_nM, of shape (n, M): its centers are some of the rows. Or a `FeatureOperator` of M random features.
    mu : float
        The least mu of the systems, from which the precision of T follows.
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W.
    fold : ndarray of shape (n,), optional
        Number of each row's fold, from 0.
    n_jobs : int or None
        Threads; None is every core. Results have the same bits for any number.

    Attributes
    ----------
    least_shift : float
        The smallest s that serves: neither lost in rounding nor below what F F' lacks. Smaller ones count as that.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.preconditioners import NystromPreconditioner
    >>> X = np.random.default_rng(0).standard_normal((50, 2))
    >>> P = NystromPreconditioner(KernelOperator(Gaussian(1.0), X, X), mu=0.1)  # every row is a center
    >>> v = np.ones((50, 1))
    >>> u = P.apply(v, shift=np.array([0.1]), left_out=np.array([-1]))
    >>> bool(np.allclose(Gaussian(1.0)(X, X) @ u + 0.1 * u, 0.1 * v, atol=1e-3))
    True
    """

    def __init__(
        self,
        operator: Operator,
        mu: float,
        *,
        weight: NDArray[Any] | None = None,
        fold: NDArray[Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.operator = operator
        n, M = operator.shape
        self.n_threads = effective_n_jobs(n_jobs)
        self.weight = None if weight is None else weight.astype(np.float64)
        self.root = None if self.weight is None else np.sqrt(self.weight)[:, None]
        gram = operator.centers_gram(np.float64)
        diagonal = float(np.maximum(gram.diagonal(), 0.0).mean())
        # Eigenvalues of K_nn are those of K_MM times n / M or so: what is lost below the jitter is below mu
        rounding = _ROUNDING * eps(operator.dtype) * float(np.sqrt(M))
        jitter = max(rounding * diagonal, min(0.1 * mu * M / n, 1e-2 * diagonal))
        self.whitening = Whitening(gram, n, jitter=jitter, tile_dtype=operator.dtype, n_jobs=n_jobs)
        parts = [self._whitened(square) for square in self._squares(fold)]
        whole: Vectors = np.sum(parts, axis=0)
        # F'F of the rows outside of each fold, and by -1 of all rows; then the factors of F'F + s I
        self._squared = {-1: whole} | ({} if fold is None else {f: whole - part for f, part in enumerate(parts)})
        self._factors: dict[tuple[int, float], Triangles] = {}
        self.least_shift = self._least_shift(whole)

    def _least_shift(self, square: Vectors) -> float:
        tiny = float(np.finfo(np.float64).tiny)
        if not square.size:
            return tiny
        with single_threaded_blas():
            values = eigvalsh(square, check_finite=False)
        least, largest = float(values[0]), float(values[-1])
        # K_nn has eigenvalues from mu to about the smallest of F'F in the directions that F F' lacks. Measured with mu
        # = 0.001: 18 iterations instead of 33, where that one is 0.25. A negative one is the size of F'F's rounding.
        return max(_ROUNDING * eps(self.operator.dtype) * largest, least, -10 * least, tiny)

    def _squares(self, fold: NDArray[Any] | None) -> Vectors:
        """Return K_nM' W K_nM of each fold, in float64 and in one pass."""
        sums = _FoldSums(self.operator.shape, self.weight, fold, self.n_threads)
        self.operator.add_blocks(sums)
        for square in sums.squared:
            copy_to_upper(square)
        return sums.squared

    def _whitened(self, square: Vectors) -> Vectors:
        """Return F'F."""
        half = self.whitening.apply_transpose(square)
        whitened = self.whitening.apply_transpose(half.T) * self.whitening.n
        return (whitened + whitened.T) / 2

    def apply(self, V: Vectors, shift: Vectors, left_out: NDArray[np.intp]) -> Vectors:
        """Return s (F F' + s I)^-1 V, in which each column has a shift s and a fold that is left out.

        Parameters
        ----------
        V : ndarray of shape (n, c)
            0 in the rows that are left out. What is returned is not 0 there, and means nothing.
        shift : ndarray of shape (c,)
        left_out : ndarray of shape (c,)
            Number of a fold, or -1 for none.
        """
        n = self.whitening.n
        s = np.maximum(shift, self.least_shift)
        Z = self.whitening.apply_transpose(self.operator.rmatmat(self._weighted(V))) * np.sqrt(n)
        groups: dict[tuple[int, float], list[int]] = {}
        for column, of in enumerate(zip(left_out.tolist(), s.tolist(), strict=True)):
            groups.setdefault(of, []).append(column)

        def solve(of: tuple[int, float]) -> None:
            if of not in self._factors:
                self._factors[of] = ridge_factor(self._squared[of[0]], of[1])
            U, c = self._factors[of], groups[of]
            Z[:, c] = U.solve(U.solve(Z[:, c], lower=False, transposed=True), lower=False)

        share(solve, groups, self.n_threads)
        product = self.operator.matmat(self.whitening.apply(Z) * np.sqrt(n))
        return V - self._weighted(product)

    def _weighted(self, V: NDArray[Any]) -> NDArray[Any]:
        return V if self.root is None else self.root * V


class _FoldSums(BlockSums):
    """K_nM' W K_nM of each fold, in its lower triangle. Several blocks are gathered for one addition."""

    def __init__(
        self, shape: tuple[int, int], weight: Vectors | None, fold: NDArray[Any] | None, n_threads: int
    ) -> None:
        (self._n, M), self._fold, self._weight, self._n_threads = shape, fold, weight, n_threads
        self.squared = np.zeros((self.squares.n_groups, M, M))
        self._start, self._waiting = 0, list[Vectors]()

    @property
    def squares(self) -> Squares:
        return Squares(np.empty((self._n, 0)), self._weight, group=self._fold)

    def add(self, at: slice, K: NDArray[Any]) -> None:
        self._waiting.append(K.astype(np.float64))
        if at.stop - self._start < GATHERED and at.stop < self._n:
            return
        rows, S = slice(self._start, at.stop), np.concatenate(self._waiting)
        self._start, self._waiting = at.stop, []
        if self._weight is not None:
            S *= np.sqrt(self._weight[rows])[:, None]
        if self._fold is None:
            add_square(self.squared[0], S, n_threads=self._n_threads)
            return
        fold = self._fold[rows]
        for f in np.unique(fold):
            add_square(self.squared[f], S[fold == f], n_threads=self._n_threads)

    def put(self, G: Vectors, c: Vectors) -> None:
        self.squared = G
