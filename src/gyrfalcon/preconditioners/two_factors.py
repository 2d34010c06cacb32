"""The factor A, kept below T in one buffer, and coordinates made of T and A, whatever A is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._triangles import column, eps, growing, set_diagonal
from .coordinates import Coordinates, Halfway, Vectors
from .whitening import Whitening

Fill = Callable[[NDArray[Any]], None]


class FactorA:
    """The factor A of ``A'A = H + ridge I``, in the lower triangle of the buffer that holds T.

    A' = L diag(a) with L unit lower triangular: L is below the diagonal of T's square part, which stays T's, and a
    beside it. So no solve has to write.

    Parameters
    ----------
    whitening : Whitening
        T.
    """

    def __init__(self, whitening: Whitening) -> None:
        self._triangles = whitening.triangles
        self._engine = whitening.engine
        self._t = self._triangles.buffer.diagonal().copy()
        self._a = self._t

    def factor(self, fill: Fill, ridge: float) -> float:
        """Make A, with a larger ridge if H + ridge I is not positive definite; return the ridge that was used.

        Parameters
        ----------
        fill : function of an array of shape (rank, rank)
            Puts H into its lower triangle and its diagonal, and leaves what is above.
        ridge : float
        """
        dtype = self._t.dtype
        while len(self._t) and not self._cholesky(fill, ridge):
            scale = float(np.square(self._t, dtype=np.float64).max())
            ridge = growing(ridge, eps(dtype) * scale, dtype)
        self._triangles.changed()
        return ridge

    def _cholesky(self, fill: Fill, ridge: float) -> bool:
        buffer = self._triangles.buffer
        fill(buffer)
        if not np.isfinite(buffer.diagonal()).all():  # no ridge would help
            raise ValueError(
                f"the preconditioner is not finite in {buffer.dtype}: rescale the features (scale=True does), y or the "
                "weights to moderate numbers"
            )
        set_diagonal(buffer, buffer.diagonal() + buffer.dtype.type(ridge))
        done = self._engine.cholesky(buffer, lower=True)
        self._a = buffer.diagonal().copy()
        if done:
            for j in range(len(buffer) - 1):
                buffer[j + 1 :, j] /= self._a[j]
        set_diagonal(buffer, self._t)
        return done

    def solve(self, x: NDArray[Any]) -> Vectors:
        """Return A^-1 x."""
        a = column(self._a.astype(np.float64), x)
        return self._triangles.solve_lower(np.asarray(x / a, dtype=np.float64), transposed=True)

    def solve_transposed(self, x: NDArray[Any]) -> Vectors:
        """Return A^-T x."""
        x = self._triangles.solve_lower(x)
        return np.asarray(x / column(self._a.astype(np.float64), x), dtype=np.float64)

    def multiply(self, x: NDArray[Any]) -> Vectors:
        """Return A x."""
        x = self._triangles.multiply_lower(x, transposed=True)
        return np.asarray(x * column(self._a.astype(np.float64), x), dtype=np.float64)


class TwoFactors(Coordinates):
    """B = D Q T^-1 A^-1 / sqrt(n), from T and a factor A that is still to be made.

    Parameters
    ----------
    whitening : Whitening
        T.

    Attributes
    ----------
    whitening : Whitening
        T, and B without A^-1.
    A : FactorA
    """

    def __init__(self, whitening: Whitening) -> None:
        self.whitening = whitening
        self.A = FactorA(whitening)
        self.n, self.M, self.rank = whitening.n, whitening.M, whitening.rank
        self.least_penalty = whitening.least_penalty

    def forward(self, beta: NDArray[Any]) -> tuple[Vectors, Halfway]:
        """Return alpha = B beta, and for `backward` the pair (A^-1 beta, T^-1 A^-1 beta)."""
        return self.whitening.forward(self.A.solve(beta))

    def backward(self, s: NDArray[Any], halfway: Halfway, penalty: float) -> Vectors:
        """Return ``B's + penalty n B'K_MM B beta``; the second term is penalty A^-T A^-1 beta but for the jitter."""
        return self.A.solve_transposed(self.whitening.backward(s, halfway, penalty))

    def apply_transpose(self, s: NDArray[Any]) -> Vectors:
        """Return B's, of shape (rank,) or (rank, k)."""
        return self.A.solve_transposed(self.whitening.apply_transpose(s))

    def invert(self, alpha: NDArray[Any]) -> Vectors:
        """Return the beta for which B beta is the same function as alpha (alpha itself if the rank is M)."""
        return self.A.multiply(self.whitening.invert(alpha))
