"""FALKON's preconditioner, from the centers alone, in one M x M buffer.

Definitions 3 and 4 in appendix A of "FALKON: An Optimal Large Scale Kernel Method":

    D K_MM D + jitter I = T'T,     A'A = T W T' / M + ridge I,     B = D T^-1 A^-1 / sqrt(n),

so that B'(K'WK + lambda n K_MM)B is close to the identity. T is `Whitening`'s; this adds A, below T in the same buffer.
The formula for A also holds where T is (r, M), because most centers are linear combinations of others. Other factors A
make coordinates with T in the same way (`TwoFactors`).

The *ridge*, the lambda of A, was chosen by measurement (Gaussian kernels of several widths on real and synthetic data,
n = 20,000, M = 300 to 2,500, lambda = 1e-5 to 1e-9 and 0, counting passes to a test error within 1% of the best). When
lambda is far below what M centers can resolve, T T'/M underestimates K'K/n in the small directions and CG is slow. A
only shapes the preconditioner, so its ridge may exceed lambda. For Gaussian kernels the best one is where the effective
dimension is M/2, which T's diagonal gives: t_i^2 is the variance of center i given those before it, and on the learning
curve of a noiseless Gaussian process d_eff(t_i^2 / i) = i. Rough kernels (Laplacian) do better without it, so a fifth
of it is used as a compromise, less as the centers become all the rows. With M = 1,000 and lambda = 1e-7 the passes fell
from 32 to 12, 41 to 9, 27 to 12 and stayed at 8; at 1e-5 they hardly changed. `as_published=True` leaves this out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.checks import integer, not_negative
from ..operators import Operator
from .coordinates import Coordinates, Halfway, Vectors
from .factors import BLOCK, column, copy_to_lower, eps, growing, set_diagonal
from .whitening import Whitening

if TYPE_CHECKING:
    import torch

Fill = Callable[[NDArray[Any]], None]

_N_DRAWS = integer(1)
_PENALTY = not_negative()


class FactorA:
    """The factor A of ``A'A = H + ridge I``, in the lower triangle of the buffer that holds T.

    A' = L diag(a) with L unit lower triangular: L is below the diagonal of T's square part, which stays T's, and a
    beside it. So no solve has to write.
    """

    def __init__(self, whitening: Whitening) -> None:
        self._triangles = whitening.triangles
        self._engine = whitening.engine
        self._t = self._triangles.buffer.diagonal().copy()
        self._a = self._t

    def factor(self, fill: Fill, ridge: float) -> float:
        """Make A, with a larger ridge if H + ridge I is not positive definite; return the ridge that was used.

        ``fill`` writes H into the lower triangle and the diagonal of an array of shape (rank, rank), and nothing above.
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
        return self._triangles.solve(np.asarray(x / a, dtype=np.float64), lower=True, transposed=True)

    def solve_transposed(self, x: NDArray[Any]) -> Vectors:
        """Return A^-T x."""
        x = self._triangles.solve(x, lower=True)
        return np.asarray(x / column(self._a.astype(np.float64), x), dtype=np.float64)

    def multiply(self, x: NDArray[Any]) -> Vectors:
        """Return A x."""
        x = self._triangles.multiply(x, lower=True, transposed=True)
        return np.asarray(x * column(self._a.astype(np.float64), x), dtype=np.float64)


class TwoFactors(Coordinates):
    """B = D Q T^-1 A^-1 / sqrt(n), from T and a factor A that is still to be made by ``A.factor``."""

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
        return self.A.solve_transposed(self.whitening.apply_transpose(s))

    def invert(self, alpha: NDArray[Any]) -> Vectors:
        return self.A.multiply(self.whitening.invert(alpha))


class RowFactors(TwoFactors):
    """Two factors whose A is made from rows: from a sketch of them, or from a sample."""

    def __init__(
        self,
        rows: Operator,
        gram: NDArray[Any],
        penalty: float,
        n: int,
        *,
        jitter: float | Literal["auto"] = "auto",
        n_jobs: int | None = None,
        devices: Sequence[torch.device] | None = None,
    ) -> None:
        M = rows.shape[1]
        if gram.shape != (M, M):
            raise ValueError(f"gram has shape {gram.shape}, but the operator has {M} centers")
        _PENALTY("penalty", penalty)
        super().__init__(Whitening(gram, n, jitter=jitter, tile_dtype=rows.dtype, n_jobs=n_jobs, devices=devices))
        self.penalty = float(penalty)

    def factor(self, fill: Fill) -> None:
        """Make A from the matrix that `fill` writes; the ridge is the penalty, or the least that rounding allows."""
        self.ridge = self.A.factor(fill, max(self.penalty, self.least_penalty))


class Preconditioner(TwoFactors):
    """FALKON's preconditioner B = D Q T^-1 A^-1 / sqrt(n), with both factors in one buffer.

    Parameters
    ----------
    gram : ndarray of shape (M, M), Fortran order, float32 or float64
        K_MM. Overwritten: afterwards its memory holds T in the upper triangle and A' in the lower one.
    penalty : float
        lambda, at least 0.
    n, D, jitter, tile_dtype, n_jobs, devices
        As for `Whitening`.
    center_weight : ndarray of shape (M,), optional
        Sample weights at the centers, at least 0; 1 by default.
    n_draws : int, optional
        The M of ``T W T' / M``: the number of draws, if duplicate centers were merged. M by default.
    as_published : bool
        Whether to follow the paper to the letter: the ridge is lambda, and the jitter is the M times the machine
        epsilon of its Algorithms 1 and 2, which the penalty keeps.

    Attributes
    ----------
    whitening : Whitening
        T, with the jitter and the selection of centers that it took.
    A : FactorA
        A, below T in the same buffer.
    ridge : float
        The ridge in A'A; at least the penalty, and equal to it if `as_published`.
    rank, least_penalty
        As in `Whitening`.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.preconditioners import Preconditioner
    >>> gram = np.asfortranarray([[2.0, 1.0], [1.0, 2.0]])
    >>> preconditioner = Preconditioner(gram, penalty=0.5, n=10)
    >>> beta = np.array([1.0, -1.0])
    >>> np.allclose(preconditioner.invert(preconditioner.apply(beta)), beta)
    True
    """

    def __init__(
        self,
        gram: NDArray[Any],
        penalty: float,
        n: int,
        *,
        D: NDArray[Any] | None = None,
        center_weight: NDArray[Any] | None = None,
        n_draws: int | None = None,
        jitter: float | Literal["auto"] = "auto",
        tile_dtype: DTypeLike | None = None,
        n_jobs: int | None = None,
        devices: Sequence[torch.device] | None = None,
        as_published: bool = False,
    ) -> None:
        if as_published and jitter == "auto":
            jitter = eps(gram.dtype) * len(gram)
        super().__init__(Whitening(gram, n, D=D, jitter=jitter, tile_dtype=tile_dtype, n_jobs=n_jobs, devices=devices))
        self.n_draws = self.M if n_draws is None else n_draws
        _N_DRAWS("n_draws", self.n_draws)
        share_left_out = max(1 - self.n_draws / self.n, 0.0)
        self._least_ridge = 0.2 * share_left_out * 2 * max(self.whitening.variance, 0.0) / self.n_draws
        if as_published:
            self._least_ridge = self.whitening.correction = 0.0
        self.update(penalty, center_weight)

    def update(self, penalty: float, center_weight: NDArray[Any] | None = None) -> None:
        """Make A again for another penalty or other weights at the centers; T stays.

        Parameters
        ----------
        penalty : float
            lambda, at least 0.
        center_weight : ndarray of shape (M,), optional
            W in ``A'A = T W T' / M + lambda I``; 1 by default.
        """
        _PENALTY("penalty", penalty)
        self.penalty = float(penalty)
        weight = np.ones(self.M) if center_weight is None else np.asarray(center_weight, dtype=np.float64)
        if weight.shape != (self.M,) or not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise ValueError(f"center_weight must hold {self.M} finite numbers, at least 0, one for each center")
        root = np.sqrt(weight[self.whitening.order] / self.n_draws).astype(self.whitening.dtype)
        ridge = max(self.penalty, self._least_ridge * float(weight.mean()))
        self.ridge = self.A.factor(partial(_put_TWTt, self.whitening, root), ridge)


def _put_TWTt(whitening: Whitening, root: NDArray[Any], T1: NDArray[Any]) -> None:
    """Put T W T' / M into the lower triangle of the square part of T, with root = (W / M)^(1/2)."""
    rank, engine = whitening.rank, whitening.engine
    T2 = whitening.T[:, rank:]
    copy_to_lower(T1, root[:rank], engine.n_threads)
    engine.square_lower(T1)
    for j in range(0, T2.shape[1], BLOCK):
        block = T2[:, j : j + BLOCK] * root[rank + j :][:BLOCK]
        engine.add_square(T1, block.T)
