"""What a solver needs of a change of variables, and the one that changes nothing."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.ranges import check_kernel_scale
from ._triangles import check_gram

Vectors = NDArray[np.float64]
Halfway = tuple[Vectors, ...]


class Coordinates(Protocol):
    """alpha = B beta: coefficients of the centers in terms of a solver's own variables.

    The system ``(K'WK + lambda n K_MM) alpha = K'W y`` becomes ``B'(K'WK + lambda n K_MM)B beta = B'K'W y``. A solver
    passes over the rows between `forward` and `backward`, and never sees K_MM.

    Attributes
    ----------
    n, M : int
        Rows and centers of the problem.
    rank : int
        Length of beta.
    least_penalty : float
        The smallest lambda that means something at the precision of the tiles; CG counts smaller ones as that.
    """

    @property
    def n(self) -> int: ...
    @property
    def M(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def least_penalty(self) -> float: ...

    def forward(self, beta: NDArray[Any]) -> tuple[Vectors, Halfway]:
        """Return alpha = B beta, and what `backward` can use again."""
        ...

    def backward(self, s: NDArray[Any], halfway: Halfway, penalty: float) -> Vectors:
        """Return ``B's + penalty n B'K_MM B beta`` for the beta that ``halfway`` came from; any sign of penalty."""
        ...

    def apply(self, beta: NDArray[Any]) -> Vectors:
        """Return B beta, of shape (M,) or (M, k)."""
        ...

    def apply_transpose(self, s: NDArray[Any]) -> Vectors:
        """Return B's, of shape (rank,) or (rank, k)."""
        ...

    def invert(self, alpha: NDArray[Any]) -> Vectors:
        """Return the beta for which B beta is the same function as alpha."""
        ...


class Identity:
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

    least_penalty = 0.0

    def __init__(self, gram: NDArray[Any], n: int, *, tile_dtype: DTypeLike | None = None) -> None:
        check_gram(gram, in_place=False)
        # K'K r with a residual r = K'y
        diagonal = np.maximum(gram.diagonal(), 0).astype(np.float64)
        check_kernel_scale(float(diagonal.mean()), gram.dtype if tile_dtype is None else tile_dtype, power=3)
        if n < 1:
            raise ValueError(f"n={n} must be at least 1")
        self.gram, self.n, self.M, self.rank = gram, n, gram.shape[0], gram.shape[0]

    def forward(self, beta: NDArray[Any]) -> tuple[Vectors, Halfway]:
        alpha = self.apply(beta)
        return alpha, (alpha,)

    def backward(self, s: NDArray[Any], halfway: Halfway, penalty: float) -> Vectors:
        s = np.asarray(s, dtype=np.float64)
        if penalty != 0:
            (alpha,) = halfway
            s = s + penalty * self.n * (self.gram @ alpha.astype(self.gram.dtype, copy=False))
        return self.apply_transpose(s)

    def apply(self, beta: NDArray[Any]) -> Vectors:
        return np.asarray(beta, dtype=np.float64) / np.sqrt(self.n)

    def apply_transpose(self, s: NDArray[Any]) -> Vectors:
        return np.asarray(s, dtype=np.float64) / np.sqrt(self.n)

    def invert(self, alpha: NDArray[Any]) -> Vectors:
        return np.asarray(alpha, dtype=np.float64) * np.sqrt(self.n)
