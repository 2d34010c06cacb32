"""Coordinates in which the centers' functions are orthonormal, by one factorisation of K_MM in place.

Definition 3 in appendix A of "FALKON: An Optimal Large Scale Kernel Method":

    D K_MM D + jitter I = T'T,     B = D T^-1 / sqrt(n),     so that n B'K_MM B = I.

When most centers are linear combinations of others in feature space (a linear kernel of few features, many duplicates),
a pivoted Cholesky factorisation picks r independent ones, S, and

    T = [T1 T2] of shape (r, M),     D_S K_SM D = T1'T,     B = D_S T1^-1 / sqrt(n) on S and zero elsewhere.

S spans the functions of all M centers and takes the place of Q in Definition 3, without eigenvectors or a second
buffer. R = sqrt(n) B is the R of the NYTRO paper, with R R' = K_MM^+ on the span of S.

Choices by measurement (data and sizes in `gyrfalcon.preconditioners.falkon`):

- *jitter*. It only has to cover the rounding of the factorisation (in practice a few eps sqrt(M)) and of the kernel's
  tiles; FALKON's ridge is what makes CG fast. A larger jitter slows down all directions below it.
- *correction*. A jitter left in the problem penalises |alpha|^2 (test error 0.386 instead of 0.360 at jitter 1e-5 M).
  The solver can subtract it at no cost, but where K_MM is singular to working precision only rounding noise would be
  left of the penalty, and CG diverges. So it subtracts only what leaves at least half of the penalty that T implies.
  For the same reason a lambda below eps/8 is raised to it: with 0, float32 tiles and a smooth kernel CG diverged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import get_lapack_funcs

from .._utils.checks import integer, not_negative, optional
from .._utils.devices import has_float64, import_torch
from .._utils.ranges import check_kernel_scale
from .._utils.threads import effective_n_jobs, single_threaded_blas
from .coordinates import Coordinates, Halfway, Vectors
from .factors import (
    FactorEngine,
    LapackFactors,
    check_gram,
    column,
    copy_to_upper,
    eps,
    first_rows,
    growing,
    set_diagonal,
)
from .torch_factors import TorchFactors

if TYPE_CHECKING:
    import torch

_AT_LEAST_1 = integer(1)
_JITTER = optional(not_negative('"auto" or a finite number, not negative'), "auto")


class Whitening(Coordinates):
    """The factor T of the general FALKON preconditioner, and products with B = D Q T^-1 / sqrt(n), B' and B^-1.

    Parameters
    ----------
    gram : ndarray of shape (M, M), Fortran order, float32 or float64
        K_MM. Overwritten: afterwards its memory holds T in the upper triangle; what is below is free for A.
    n : int
        Number of rows of the problem.
    D : ndarray of shape (M,), optional
        Sampling weights of the centers (Definition 2), all positive; 1 for uniform centers.
    jitter : "auto" or float
        Added to the diagonal of ``D K_MM D`` before it is factored (an absolute number).
    tile_dtype : dtype, optional
        Precision of the products with K that B will be used with, if it is not that of ``gram``.
    nested : bool
        Whether the centers keep their order, so that the factor of the first m is the first m x m block of T. None is
        then left out because it depends on others.
    n_jobs : int or None
        Threads; None is every core. The factors have the same bits for any number.
    devices : sequence of torch.device, optional
        Where the factors are made; None leaves them to LAPACK.

    Attributes
    ----------
    rank : int
        Number of columns of B: M, or the number of independent centers.
    T : ndarray of shape (rank, M)
        T on and above the diagonal, with its columns in the order ``order``. Below the diagonal is scratch space.
    order : ndarray of shape (M,)
        The centers, the selected ones first.
    method : {"cholesky", "pivoted_cholesky"}
        How ``D K_MM D`` was factored.
    selected : ndarray of shape (rank,)
        The centers whose coefficients B can reach: all of them, or the independent ones.
    jitter : float
        The number that was added to the diagonal.
    correction : float
        The part of the jitter that `backward` takes out of the penalty again.
    variance : float
        The variance of a center in the middle, given those before it: FALKON's ridge is read off it.
    least_penalty : float
        The smallest lambda that the precision of the tiles can tell from rounding.
    dtype : dtype
        Of T. Vectors are float64 on both sides.
    triangles : Triangles
        Solves with the square part of T.
    engine : FactorEngine
        What T was made by, and A is to be.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.preconditioners import Whitening
    >>> K_MM = np.asfortranarray([[2.0, 1.0], [1.0, 2.0]])
    >>> B = Whitening(K_MM.copy(order="F"), n=10).apply(np.eye(2))
    >>> np.allclose(10 * B.T @ K_MM @ B, np.eye(2))
    True
    """

    def __init__(
        self,
        gram: NDArray[Any],
        n: int,
        *,
        D: NDArray[Any] | None = None,
        jitter: float | Literal["auto"] = "auto",
        tile_dtype: DTypeLike | None = None,
        nested: bool = False,
        n_jobs: int | None = None,
        devices: Sequence[torch.device] | None = None,
    ) -> None:
        check_gram(gram)
        _AT_LEAST_1("n", n)
        _JITTER("jitter", jitter)
        self.n, self.M, self.nested = n, gram.shape[0], nested
        self.dtype: np.dtype[Any] = gram.dtype
        self.engine = choose_engine(devices, effective_n_jobs(n_jobs))
        diagonal = np.maximum(gram.diagonal(), 0).astype(np.float64)
        check_kernel_scale(float(diagonal.mean()), gram.dtype if tile_dtype is None else tile_dtype)
        self.D = None if D is None else np.asarray(D, dtype=np.float64)
        if self.D is not None:
            if self.D.shape != (self.M,) or not (np.isfinite(self.D).all() and (self.D > 0).all()):
                raise ValueError(f"D must hold {self.M} positive finite numbers, one for each center")
            d = self.D.astype(gram.dtype)
            gram *= d[:, None]
            gram *= d[None, :]

        diagonal = gram.diagonal().astype(np.float64)
        scale = float(np.maximum(diagonal, 0).mean())
        rounding = auto_jitter(scale, self.M, gram.dtype, tile_dtype)
        self.jitter = rounding if jitter == "auto" else float(jitter)
        self.least_penalty = scale * eps(gram.dtype if tile_dtype is None else tile_dtype) / 8
        self._factor_T(gram, diagonal, rounding)
        self.correction = self._safe_correction()

    def _factor_T(self, gram: NDArray[Any], diagonal: Vectors, rounding: float) -> None:
        """Factor ``gram = D K_MM D`` plus jitter, or a selection of its rows if most centers depend on others."""
        self.method: Literal["cholesky", "pivoted_cholesky"] = "cholesky"
        self.rank, self.T = self.M, gram
        self.order: NDArray[np.intp] = np.arange(self.M)
        largest = float(diagonal.max())
        if largest > 0:
            # Only a kernel that is not positive needs more than the first attempt or two. Its jitter then outweighs
            # its negative eigenvalues, and is a multiple of a rounding error that is no longer 0.
            while not self._cholesky(gram, diagonal):
                self.jitter = growing(self.jitter, rounding, self.dtype)
            variances = np.square(gram.diagonal(), dtype=np.float64)
            # A duplicate keeps twice the jitter when its like is eliminated: its own and the other's.
            low_rank = self.jitter <= 100 * rounding and np.median(variances) <= 3 * self.jitter and not self.nested
        elif gram.min() < 0 or gram.max() > 0:
            raise ValueError(
                f"the kernel is not positive: k(z, z) is {largest:g} or less at every center z; "
                "choose a positive semidefinite kernel"
            )
        else:
            variances, low_rank = np.zeros(self.M), True

        self.variance = float(variances[2 * self.M // 5 : 3 * self.M // 5 + 1].mean()) - self.jitter
        if low_rank:
            copy_to_upper(gram)
            set_diagonal(gram, diagonal)
            tolerance = max(self.jitter, 4 * eps(self.dtype) * largest * float(np.sqrt(self.M)))
            pstrf = get_lapack_funcs("pstrf", dtype=gram.dtype)
            with single_threaded_blas():
                _, pivots, rank, _ = pstrf(gram, tol=tolerance, lower=False, overwrite_a=True)
            self.method, self.jitter = "pivoted_cholesky", 0.0
            self.rank = int(rank) if largest > 0 else 0
            self.order = pivots.astype(np.intp) - 1
            self.T = first_rows(gram, self.rank)
        self.selected = self.order[: self.rank]
        self.triangles = self.engine.triangles(self.T[:, : self.rank])

    def _cholesky(self, gram: NDArray[Any], diagonal: Vectors) -> bool:
        """Put T into the upper triangle; if that fails, put the matrix back and return False."""
        set_diagonal(gram, diagonal + self.jitter)
        # the lower triangle still has the matrix
        done = self.engine.cholesky(gram, lower=False)
        if not done or np.square(gram.diagonal(), dtype=np.float64).min() <= eps(self.dtype) * float(diagonal.max()):
            copy_to_upper(gram)
            return False
        return True

    def _safe_correction(self) -> float:
        """Return the largest c up to the jitter with c T^-T T^-1 <= I/2, by inverse iteration with T'T."""
        if self.rank == 0 or self.jitter == 0:
            return 0.0
        x = np.random.default_rng(0).standard_normal(self.rank)
        smallest = np.inf
        for _ in range(6):
            x = self.solve_T(self.solve_Tt(x / np.linalg.norm(x)))
            smallest = 1 / float(np.linalg.norm(x))
        return min(self.jitter, smallest / 2)

    def forward(self, beta: NDArray[Any]) -> tuple[Vectors, Halfway]:
        """Return alpha = B beta, and for `backward` the pair (beta, T^-1 beta)."""
        beta = np.asarray(beta, dtype=np.float64)
        u = self.solve_T(beta)
        alpha = np.zeros((self.M, *u.shape[1:]))
        alpha[self.selected] = u / np.sqrt(self.n)
        return alpha if self.D is None else alpha * column(self.D, alpha), (beta, u)

    def backward(self, s: NDArray[Any], halfway: Halfway, penalty: float) -> Vectors:
        """Return ``B's + penalty n B'K_MM B beta``.

        The second term is penalty (I - jitter T^-T T^-1) beta, by T'T = D K_MM D + jitter I: without a product with
        K_MM, and without the jitter, as far as it can safely be subtracted.
        """
        beta, u = halfway
        return self.solve_Tt(self.restrict(s) - penalty * self.correction * u) + penalty * beta

    def apply_transpose(self, s: NDArray[Any]) -> Vectors:
        return self.solve_Tt(self.restrict(s))

    def features_on(self, device: torch.device) -> Callable[[Any], Any]:
        """Return the function that computes the features F' = R'K' of a block of K on a device, in float64.

        R = B sqrt(n), so that R'K_MM R = I up to the jitter.
        """
        torch = import_torch()
        # LAPACK's order is that of the transposed matrix for PyTorch
        lower = torch.from_numpy(np.ascontiguousarray(self.T[:, : self.rank].T, dtype=np.float64)).to(device)
        selected = torch.from_numpy(self.selected.astype(np.int64)).to(device)
        factors = None if self.D is None else torch.from_numpy(self.D[self.selected, None]).to(device)

        def features(K: Any) -> Any:
            chosen = K.T if self.rank == self.M and self.method == "cholesky" else K.T[selected]
            restricted = chosen.double() if factors is None else chosen.double() * factors
            return torch.linalg.solve_triangular(lower, restricted, upper=False)

        return features

    def invert(self, alpha: NDArray[Any]) -> Vectors:
        y = np.asarray(alpha, dtype=np.float64) * np.sqrt(self.n)
        if self.D is not None:
            y = y / column(self.D, y)
        y = y[self.order].astype(self.dtype, order="F")
        a = self.triangles.multiply(y[: self.rank], lower=False)
        if self.rank < self.M:
            a = a + self.T[:, self.rank :] @ y[self.rank :]
        return a

    def restrict(self, s: NDArray[Any]) -> Vectors:
        """Return Q' D s / sqrt(n), the first step of B's."""
        s = np.asarray(s, dtype=np.float64) / np.sqrt(self.n)
        s = s if self.D is None else s * column(self.D, s)
        return s[self.selected]

    def solve_T(self, x: NDArray[Any]) -> Vectors:
        """Return T^-1 x (T1^-1 x when the rank is below M)."""
        return self.triangles.solve(x, lower=False)

    def solve_Tt(self, x: NDArray[Any]) -> Vectors:
        """Return T^-T x."""
        return self.triangles.solve(x, lower=False, transposed=True)


def auto_jitter(scale: float, M: int, dtype: DTypeLike, tile_dtype: DTypeLike | None = None) -> float:
    """Return the jitter that covers the rounding of factors in `dtype` and of K in the precision of the tiles.

    `scale` is the mean of k(z, z) over the M centers.
    """
    tile_eps = eps(dtype if tile_dtype is None else tile_dtype)
    return 4 * max(4 * eps(dtype), tile_eps) * scale * float(np.sqrt(M))


def choose_engine(devices: Sequence[torch.device] | None, n_threads: int) -> FactorEngine:
    """Return the engine for resolved devices; LAPACK if there are none, or if one lacks float64 (MPS)."""
    if devices is None or not all(has_float64(device) for device in devices):
        return LapackFactors(n_threads)  # up to 1,500 centers the factors are in float64
    return TorchFactors(devices, n_threads=n_threads)
