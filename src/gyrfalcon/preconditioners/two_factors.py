"""B = D Q T^-1 A^-1 / sqrt(n), with T above and A' below the diagonal of one buffer, whatever A is made from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.linalg import cholesky
from ._triangles import column, eps, growing, set_diagonal
from .coordinates import Halfway, Vectors
from .whitening import Whitening


class TwoFactors(Whitening, ABC):
    """T as in `Whitening`, and A for which ``A'A - ridge I``, filled in by a subclass, is near R'K'WK R / n."""

    ridge: float

    def __init__(
        self,
        gram: NDArray[Any],
        n: int,
        *,
        D: NDArray[Any] | None = None,
        jitter: float | Literal["auto"] = "auto",
        tile_dtype: DTypeLike | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(gram, n, D=D, jitter=jitter, tile_dtype=tile_dtype, n_jobs=n_jobs)
        # Strictly below T1's diagonal is A' with columns divided by this, its own diagonal.
        self._a = self._t

    @abstractmethod
    def _fill_A(self) -> None:
        """Put ``A'A - ridge I`` into the lower triangle and the diagonal of T1."""

    def _factor_A(self) -> None:
        """Put A' into the lower triangle, with a larger ridge if A'A is not positive definite without it."""
        while self.rank and not self._cholesky_A():
            scale = float(np.square(self._t, dtype=np.float64).max())
            self.ridge = growing(self.ridge, eps(self.dtype) * scale, self.dtype)

    def _cholesky_A(self) -> bool:
        T1 = self._T1
        self._fill_A()
        if not np.isfinite(T1.diagonal()).all():  # no ridge would help
            raise ValueError(
                f"the preconditioner is not finite in {self.dtype}: rescale the features (scale=True does), y or the "
                "weights to moderate numbers"
            )
        set_diagonal(T1, T1.diagonal() + self.dtype.type(self.ridge))
        done = cholesky(T1, lower=True, n_threads=self._n_threads)
        self._a = T1.diagonal().copy()
        if done:
            # A' = L diag(a) with L unit lower triangular: the diagonal is free for T's, and no solve has to write.
            for j in range(self.rank - 1):
                T1[j + 1 :, j] /= self._a[j]
        set_diagonal(T1, self._t)
        return done

    def forward(self, beta: NDArray[Any]) -> tuple[Vectors, Halfway]:
        """Return alpha = B beta, and what `backward` uses again: A^-1 beta and T^-1 A^-1 beta."""
        return super().forward(self.solve_A(beta))

    def backward(self, s: NDArray[Any], halfway: Halfway, penalty: float) -> Vectors:
        """Return ``B's + penalty n B'K_MM B beta``; the second term is penalty A^-T A^-1 beta but for the jitter."""
        return self.solve_At(super().backward(s, halfway, penalty))

    def apply_transpose(self, s: NDArray[Any]) -> Vectors:
        """Return B' s, of shape (rank,) or (rank, k)."""
        return self.solve_At(super().apply_transpose(s))

    def invert(self, alpha: NDArray[Any]) -> Vectors:
        """Return the beta for which B beta is the same function as alpha, and is alpha itself when the rank is M."""
        a = super().invert(alpha)
        return self._scaled_by_a(self._triangular(a, lower=True, transposed=True, multiply=True), divide=False)

    def solve_A(self, x: NDArray[Any]) -> Vectors:
        """Return A^-1 x."""
        return self._triangular(self._scaled_by_a(x), lower=True, transposed=True)

    def solve_At(self, x: NDArray[Any]) -> Vectors:
        """Return A^-T x."""
        return self._scaled_by_a(self._triangular(x, lower=True))

    def _scaled_by_a(self, x: NDArray[Any], divide: bool = True) -> Vectors:
        a = column(self._a.astype(np.float64), x)
        return np.asarray(x / a if divide else x * a, dtype=np.float64)


def checked_penalty(penalty: float) -> float:
    """Return the penalty, if it is one."""
    if not (np.isfinite(penalty) and penalty >= 0):
        raise ValueError(f"penalty={penalty!r} must be a finite number, at least 0")
    return float(penalty)
