"""The contract between solvers and changes of variables, and the changes that only scale."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.checks import integer
from .._utils.ranges import check_kernel_scale
from .factors import check_gram

Vectors = NDArray[np.float64]
Halfway = tuple[Vectors, ...]

_AT_LEAST_1 = integer(1)


class Coordinates(ABC):
    """Change of variables alpha = B beta, from a solver's variables to coefficients of the centers.

    The system ``(K'WK + lambda n K_MM) alpha = K'W y`` becomes ``B'(K'WK + lambda n K_MM)B beta = B'K'W y``. A solver
    passes over the rows between `forward` and `backward`, and never sees K_MM.

    Attributes
    ----------
    n, M : int
        Rows and centers of the problem.
    rank : int
        Length of beta.
    least_penalty : float
        The smallest lambda that the precision of the tiles can tell from rounding; CG replaces smaller ones by it.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Coordinates, Preconditioner
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> B = Preconditioner(KernelOperator("gaussian", X, X[:5]).centers_gram(), penalty=1e-3, n=100)
    >>> isinstance(B, Coordinates), B.rank
    (True, 5)
    >>> alpha = np.arange(5.0)
    >>> np.allclose(B.apply(B.invert(alpha)), alpha)
    True
    """

    n: int
    M: int
    rank: int
    least_penalty: float = 0.0

    @abstractmethod
    def forward(self, beta: NDArray[Any]) -> tuple[Vectors, Halfway]:
        """Return alpha = B beta, and intermediate results for `backward`."""

    @abstractmethod
    def backward(self, s: NDArray[Any], halfway: Halfway, penalty: float) -> Vectors:
        """Return ``B's + penalty n B'K_MM B beta`` for the beta that ``halfway`` came from; any sign of penalty."""

    def apply(self, beta: NDArray[Any]) -> Vectors:
        """Return B beta, of shape (M,) or (M, k)."""
        return self.forward(beta)[0]

    @abstractmethod
    def apply_transpose(self, s: NDArray[Any]) -> Vectors:
        """Return B's, of shape (rank,) or (rank, k)."""

    @abstractmethod
    def invert(self, alpha: NDArray[Any]) -> Vectors:
        """Return the beta for which B beta is the same function as alpha (alpha itself if the rank is M)."""


class _Scaling(Coordinates):
    """B = I / sqrt(n)."""

    def __init__(self, n: int, M: int) -> None:
        _AT_LEAST_1("n", n)
        self.n, self.M, self.rank = n, M, M

    def forward(self, beta: NDArray[Any]) -> tuple[Vectors, Halfway]:
        alpha = np.asarray(beta, dtype=np.float64) / np.sqrt(self.n)
        return alpha, (alpha,)

    def apply_transpose(self, s: NDArray[Any]) -> Vectors:
        return np.asarray(s, dtype=np.float64) / np.sqrt(self.n)

    def invert(self, alpha: NDArray[Any]) -> Vectors:
        return np.asarray(alpha, dtype=np.float64) * np.sqrt(self.n)


class Identity(_Scaling):
    """No change but that of scale, B = I / sqrt(n): the plain Nyström system, equation (8) of the FALKON paper.

    Parameters
    ----------
    gram : ndarray of shape (M, M), float32 or float64
        K_MM. Kept, not copied, and not overwritten.
    n : int
        Number of rows of the problem.
    tile_dtype : dtype, optional
        Precision of the products with K, if it is not that of ``gram``.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.preconditioners import Identity
    >>> Identity(np.eye(2), n=4).apply(np.array([1.0, 2.0]))
    array([0.5, 1. ])
    """

    def __init__(self, gram: NDArray[Any], n: int, *, tile_dtype: DTypeLike | None = None) -> None:
        check_gram(gram, in_place=False)
        # K'K r with a residual r = K'y
        diagonal = np.maximum(gram.diagonal(), 0).astype(np.float64)
        check_kernel_scale(float(diagonal.mean()), gram.dtype if tile_dtype is None else tile_dtype, power=3)
        super().__init__(n, gram.shape[0])
        self.gram = gram

    def backward(self, s: NDArray[Any], halfway: Halfway, penalty: float) -> Vectors:
        s = np.asarray(s, dtype=np.float64)
        if penalty != 0:
            (alpha,) = halfway
            s = s + penalty * self.n * (self.gram @ alpha.astype(self.gram.dtype, copy=False))
        return self.apply_transpose(s)


class FeatureCoordinates(_Scaling):
    """Coordinates for random features, B = I / sqrt(n): their Gram matrix is the identity, which is not stored.

    Parameters
    ----------
    n, M : int
        Rows and features.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.preconditioners import FeatureCoordinates
    >>> FeatureCoordinates(4, 2).apply(np.array([1.0, 2.0]))
    array([0.5, 1. ])
    """

    def backward(self, s: NDArray[Any], halfway: Halfway, penalty: float) -> Vectors:
        (alpha,) = halfway
        return self.apply_transpose(s + penalty * self.n * alpha)
