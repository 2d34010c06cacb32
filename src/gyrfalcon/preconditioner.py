"""FALKON's preconditioner B: all that the solver learns from the centers alone, in one M x M buffer.

The maths is Definitions 3 and 4 in appendix A of "FALKON: An Optimal Large Scale Kernel Method":

    D K_MM D + jitter I = T'T,     A'A = T W T' / M + ridge I,     B = D T^-1 A^-1 / sqrt(n),

so that B'(K'WK + lambda n K_MM)B is close to the identity.

When most centers are linear combinations of others in feature space (a linear kernel of few features, many duplicates),
a pivoted Cholesky factorisation picks r independent ones, S, and

    T = [T1 T2] of shape (r, M),     D_S K_SM D = T1'T,     B = D_S T1^-1 A^-1 / sqrt(n) on S and zero elsewhere.

S spans the functions of all M centers, the formula for A does not change, and neither eigenvectors nor a second buffer
are needed. The selection of S plays the part of Q in Definition 3.

What was chosen by measurement (Gaussian kernels of several widths on real and synthetic data, n = 20,000,
M = 300 to 2,500, lambda = 1e-5 to 1e-9 and 0, counting passes to a test error within 1% of the best):

- *ridge*, the lambda of A. When lambda is far below what M centers can resolve, T T'/M underestimates K'K/n in the
  small directions and CG crawls. A only shapes the preconditioner, so it may use a larger number than the problem. For
  Gaussian kernels the best one is where the effective dimension is M/2, and T's diagonal tells it: t_i^2 is the
  variance of center i given those before it, and on the learning curve of a noiseless Gaussian process
  d_eff(t_i^2 / i) = i. Rough kernels (Laplacian) are better off without, the more so the closer one wants to come to
  the exact solution, so a fifth of it is a compromise; it fades as the centers become all the rows. With M = 1,000 and
  lambda = 1e-7 the passes fell from 32 to 12, 41 to 9, 27 to 12 and stayed at 8; at 1e-5 they hardly changed.
- *jitter*. What makes CG fast is the ridge, so the jitter only has to cover the rounding of the factorisation (in
  practice a few eps sqrt(M)) and of the kernel's tiles. A larger one slows down all directions below it.
- *correction*. A jitter left in the problem penalises |alpha|^2 (test error 0.386 instead of 0.360 at jitter 1e-5 M).
  The solver can take it out at no cost, but where K_MM is singular to working precision only rounding noise would be
  left of the penalty, and CG diverges. So it takes out as much as leaves at least half of the penalty that T implies.
  For the same reason a lambda below eps/8 counts as eps/8: with 0, float32 tiles and a smooth kernel CG diverged.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

Vectors = NDArray[np.float64]

# Side of the square blocks in which one triangle is copied onto the other: two of them fit a core's cache.
BLOCK = 256


class Preconditioner:
    """The factors T and A of the general FALKON preconditioner, and products with B, B' and B^-1.

    Parameters
    ----------
    gram : ndarray of shape (M, M), Fortran order, float32 or float64
        K_MM. Overwritten: afterwards its memory holds T in the upper triangle and A' in the lower one.
    penalty : float
        lambda, at least 0.
    n : int
        Number of rows of the problem to be preconditioned.
    D : ndarray of shape (M,), optional
        Sampling weights of the centers (Definition 2), all positive; 1 for uniform centers.
    center_weight : ndarray of shape (M,), optional
        Sample weights at the centers, at least 0; 1 by default.
    n_draws : int, optional
        The M of ``T W T' / M``: how many centers were drawn, when duplicates among them were merged. M by default.
    jitter : "auto" or float
        What to add to the diagonal of ``D K_MM D`` before it is factored (an absolute number).
    tile_dtype : dtype, optional
        Precision of the products with K that B will be used with, if it is not that of ``gram``.

    Attributes
    ----------
    rank : int
        Number of columns of B: M, or the number of independent centers.
    method : {"cholesky", "pivoted_cholesky"}
        How ``D K_MM D`` was factored.
    selected : ndarray of shape (rank,)
        The centers whose coefficients B can reach: all of them, or the independent ones.
    jitter : float
        The number that was added to the diagonal.
    correction : float
        How much of the jitter the solver is to take out of the penalty again.
    ridge : float
        What stands for lambda in A'A; at least the penalty.
    least_penalty : float
        The smallest lambda that means something at the precision of the tiles.
    dtype : dtype
        Of the factors. Vectors are float64 on both sides.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.preconditioner import Preconditioner
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
    ) -> None:
        check_gram(gram)
        self.M: int = gram.shape[0]
        self.n = n
        self.n_draws = self.M if n_draws is None else n_draws
        if self.n < 1 or self.n_draws < 1:
            raise ValueError(f"n={n} and n_draws={n_draws} must be at least 1")
        self.dtype: np.dtype[Any] = gram.dtype
        self._potrf, self._pstrf, self._lauum = get_lapack_funcs(("potrf", "pstrf", "lauum"), dtype=gram.dtype)
        self._trsm, self._trsv, self._trmm, self._trmv, self._syrk = get_blas_funcs(
            ("trsm", "trsv", "trmm", "trmv", "syrk"), dtype=gram.dtype
        )
        self.D = None if D is None else np.asarray(D, dtype=np.float64)
        if self.D is not None:
            if self.D.shape != (self.M,) or not (np.isfinite(self.D).all() and (self.D > 0).all()):
                raise ValueError(f"D must hold {self.M} positive finite numbers, one a center")
            d = self.D.astype(gram.dtype)
            gram *= d[:, None]
            gram *= d[None, :]

        diagonal = gram.diagonal().astype(np.float64)
        scale = float(np.maximum(diagonal, 0).mean())
        tile_eps = eps(gram.dtype if tile_dtype is None else tile_dtype)
        rounding = 4 * max(4 * eps(gram.dtype), tile_eps) * scale * float(np.sqrt(self.M))
        self.jitter = rounding if jitter == "auto" else float(jitter)
        if not (np.isfinite(self.jitter) and self.jitter >= 0):
            raise ValueError(f"jitter={jitter!r} must be 'auto' or a finite number, at least 0")
        self.least_penalty = scale * tile_eps / 8
        self._factor_T(gram, diagonal, rounding)
        self.correction = self._safe_correction()
        self.update(penalty, center_weight)

    def _factor_T(self, gram: NDArray[Any], diagonal: Vectors, rounding: float) -> None:
        """Factor ``gram = D K_MM D`` plus jitter, or a selection of its rows if most centers depend on others."""
        self.method: Literal["cholesky", "pivoted_cholesky"] = "cholesky"
        self.rank, self._T = self.M, gram
        self._order: NDArray[np.intp] = np.arange(self.M)
        largest = float(diagonal.max())
        if largest > 0:
            # Only a kernel that is not positive needs more than the first attempt or two. Its jitter then outweighs
            # its negative eigenvalues.
            while not self._cholesky(gram, diagonal):
                self.jitter = max(10 * self.jitter, rounding)
            variances = np.square(gram.diagonal(), dtype=np.float64)
            # A duplicate keeps twice the jitter when its like is eliminated: its own and the other's.
            low_rank = self.jitter <= 100 * rounding and np.median(variances) <= 3 * self.jitter
        elif gram.min() < 0 or gram.max() > 0:
            raise ValueError(
                f"the kernel is not positive: k(z, z) is {largest:g} or less at every center z; "
                "choose a positive semidefinite kernel"
            )
        else:
            variances, low_rank = np.zeros(self.M), True

        variance = float(variances[2 * self.M // 5 : 3 * self.M // 5 + 1].mean()) - self.jitter
        share_left_out = max(1 - self.n_draws / self.n, 0.0)
        self._least_ridge = 0.2 * share_left_out * 2 * max(variance, 0.0) / self.n_draws
        if low_rank:
            copy_to_upper(gram)
            set_diagonal(gram, diagonal)
            tolerance = max(self.jitter, 4 * eps(self.dtype) * largest * float(np.sqrt(self.M)))
            _, pivots, rank, _ = self._pstrf(gram, tol=tolerance, lower=False, overwrite_a=True)
            self.method, self.jitter = "pivoted_cholesky", 0.0
            self.rank = int(rank) if largest > 0 else 0
            self._order = pivots.astype(np.intp) - 1
            self._T = first_rows(gram, self.rank)
        self._t = self._a = self._T1.diagonal().copy()

    def _cholesky(self, gram: NDArray[Any], diagonal: Vectors) -> bool:
        """Put T into the upper triangle; if that fails, put the matrix back and return False."""
        set_diagonal(gram, diagonal + self.jitter)
        # clean=False spares the lower triangle, and with it the matrix.
        _, failed = self._potrf(gram, lower=False, clean=False, overwrite_a=True)
        if failed or np.square(gram.diagonal(), dtype=np.float64).min() <= eps(self.dtype) * float(diagonal.max()):
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

    @property
    def _T1(self) -> NDArray[Any]:
        """The square part of T; its lower triangle, without the diagonal, is A' with columns divided by ``_a``."""
        return self._T[:, : self.rank]

    @property
    def selected(self) -> NDArray[np.intp]:
        """The centers whose coefficients B can reach."""
        return self._order[: self.rank]

    def update(self, penalty: float, center_weight: NDArray[Any] | None = None) -> None:
        """Make A again for another penalty or other weights at the centers; T stays.

        Parameters
        ----------
        penalty : float
            lambda, at least 0.
        center_weight : ndarray of shape (M,), optional
            W in ``A'A = T W T' / M + lambda I``; 1 by default.
        """
        if not (np.isfinite(penalty) and penalty >= 0):
            raise ValueError(f"penalty={penalty!r} must be a finite number, at least 0")
        weight = np.ones(self.M) if center_weight is None else np.asarray(center_weight, dtype=np.float64)
        if weight.shape != (self.M,) or not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise ValueError(f"center_weight must hold {self.M} finite numbers, at least 0, one a center")
        root = np.sqrt(weight[self._order] / self.n_draws).astype(self.dtype)
        self.penalty = float(penalty)
        self.ridge = max(self.penalty, self._least_ridge * float(weight.mean()))
        while self.rank and not self._factor_A(root):
            scale = float(np.square(self._t, dtype=np.float64).max())
            self.ridge = max(10 * self.ridge, eps(self.dtype) * scale)

    def _factor_A(self, root: NDArray[Any]) -> bool:
        """Put A' into the lower triangle, ``root`` being (W / M)^(1/2); False if A'A is not positive definite."""
        T1, T2 = self._T1, self._T[:, self.rank :]
        copy_to_lower(T1, scale=root[: self.rank])
        self._lauum(T1, lower=True, overwrite_c=True)
        for j in range(0, T2.shape[1], BLOCK):
            block = np.asfortranarray(T2[:, j : j + BLOCK] * root[self.rank + j :][:BLOCK])
            self._syrk(1.0, block, beta=1.0, c=T1, lower=True, overwrite_c=True)
        set_diagonal(T1, T1.diagonal() + self.dtype.type(self.ridge))
        _, failed = self._potrf(T1, lower=True, clean=False, overwrite_a=True)
        self._a = T1.diagonal().copy()
        if not failed:
            # A' = L diag(a) with L unit lower triangular: the diagonal is free for T's, and no solve has to write.
            for j in range(self.rank - 1):
                T1[j + 1 :, j] /= self._a[j]
        set_diagonal(T1, self._t)
        return not failed

    def apply(self, beta: NDArray[Any]) -> Vectors:
        """Return B beta, of shape (M,) or (M, k)."""
        return self.lift(self.solve_T(self.solve_A(beta)))

    def apply_transpose(self, s: NDArray[Any]) -> Vectors:
        """Return B' s, of shape (rank,) or (rank, k)."""
        return self.solve_At(self.solve_Tt(self.restrict(s)))

    def invert(self, alpha: NDArray[Any]) -> Vectors:
        """Return the beta for which B beta is the same function as alpha, and is alpha itself when the rank is M."""
        y = np.asarray(alpha, dtype=np.float64) * np.sqrt(self.n)
        if self.D is not None:
            y = y / column(self.D, y)
        y = y[self._order].astype(self.dtype, order="F")
        a = self._triangular(y[: self.rank], multiply=True)
        if self.rank < self.M:
            a = a + self._T[:, self.rank :] @ y[self.rank :]
        return self._scaled_by_a(self._triangular(a, lower=True, transposed=True, multiply=True), divide=False)

    def lift(self, u: NDArray[Any]) -> Vectors:
        """Return D Q u / sqrt(n): coordinates of T become coefficients of the centers."""
        u = np.asarray(u, dtype=np.float64)
        v = np.zeros((self.M, *u.shape[1:]))
        v[self.selected] = u / np.sqrt(self.n)
        return v if self.D is None else v * column(self.D, v)

    def restrict(self, s: NDArray[Any]) -> Vectors:
        """Return Q' D s / sqrt(n), the transpose of `lift`."""
        s = np.asarray(s, dtype=np.float64) / np.sqrt(self.n)
        s = s if self.D is None else s * column(self.D, s)
        return s[self.selected]

    def solve_T(self, x: NDArray[Any]) -> Vectors:
        """Return T^-1 x (T1^-1 x when the rank is below M)."""
        return self._triangular(x)

    def solve_Tt(self, x: NDArray[Any]) -> Vectors:
        """Return T^-T x."""
        return self._triangular(x, transposed=True)

    def solve_A(self, x: NDArray[Any]) -> Vectors:
        """Return A^-1 x."""
        return self._triangular(self._scaled_by_a(x), lower=True, transposed=True)

    def solve_At(self, x: NDArray[Any]) -> Vectors:
        """Return A^-T x."""
        return self._scaled_by_a(self._triangular(x, lower=True))

    def _scaled_by_a(self, x: NDArray[Any], divide: bool = True) -> Vectors:
        a = column(self._a.astype(np.float64), x)
        return np.asarray(x / a if divide else x * a, dtype=np.float64)

    def _triangular(
        self, x: NDArray[Any], *, lower: bool = False, transposed: bool = False, multiply: bool = False
    ) -> Vectors:
        """Solve with, or multiply by, one triangle of the buffer: T above, or the unit lower L of A' = L diag(a)."""
        x = np.array(x, dtype=self.dtype, order="F")
        if x.size == 0:
            return x.astype(np.float64)
        if x.ndim == 1 or x.shape[1] == 1:
            # The matrix routines are several times slower than these on a single vector.
            routine = self._trmv if multiply else self._trsv
            out = routine(self._T1, x.ravel(), lower=lower, trans=transposed, diag=lower, overwrite_x=True)
        else:
            routine = self._trmm if multiply else self._trsm
            out = routine(1.0, self._T1, x, lower=lower, trans_a=transposed, diag=lower, overwrite_b=True)
        return np.asarray(out, dtype=np.float64).reshape(x.shape)


def check_gram(gram: NDArray[Any]) -> None:
    """Refuse what cannot be factored in place."""
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or gram.shape[0] == 0:
        raise ValueError(f"gram has shape {gram.shape}, but K_MM is square and not empty")
    if gram.dtype not in (np.float32, np.float64) or not gram.flags.f_contiguous or not gram.flags.writeable:
        raise ValueError(
            f"gram is {gram.dtype} with strides {gram.strides}; pass a writeable Fortran-ordered float32 or float64 "
            "array, because it is factored in place"
        )
    # min and max carry NaN through, and need no M x M array of flags.
    if not (np.isfinite(gram.min()) and np.isfinite(gram.max())):
        raise ValueError(
            "the kernel matrix of the centers holds NaN or infinity; check the kernel's parameters and the features"
        )


def eps(dtype: DTypeLike) -> float:
    """Return the distance from 1 to the next number of ``dtype``."""
    return float(np.finfo(np.dtype(dtype)).eps)


def column(x: Vectors, like: NDArray[Any]) -> Vectors:
    """View the vector ``x`` so that it multiplies the rows of ``like``."""
    return x.reshape(-1, *[1] * (like.ndim - 1))


def set_diagonal(matrix: NDArray[Any], values: NDArray[Any]) -> None:
    """Write ``values`` on the diagonal of a square Fortran-ordered matrix."""
    matrix.T.reshape(-1)[:: matrix.shape[0] + 1] = values


def copy_to_lower(matrix: NDArray[Any], scale: NDArray[Any]) -> None:
    """Make the lower triangle and the diagonal ``diag(scale) U'``, where U is the upper triangle, by blocks."""
    M = matrix.shape[0]
    for i in range(0, M, BLOCK):
        corner = matrix[i : i + BLOCK, i : i + BLOCK]
        corner[...] = np.triu(corner, 1) + np.tril(corner.T * scale[i : i + BLOCK, None])
        for j in range(i + BLOCK, M, BLOCK):
            block = matrix[i : i + BLOCK, j : j + BLOCK]
            matrix[j : j + BLOCK, i : i + BLOCK] = block.T * scale[j : j + BLOCK, None]


def copy_to_upper(matrix: NDArray[Any]) -> None:
    """Make the matrix symmetric again from its lower triangle, by blocks."""
    copy_to_lower(matrix.T, np.ones(matrix.shape[0], dtype=matrix.dtype))


def first_rows(matrix: NDArray[Any], rows: int) -> NDArray[Any]:
    """Pack the first rows of a Fortran-ordered matrix into the beginning of its own memory."""
    M = matrix.shape[1]
    flat = matrix.T.reshape(-1)
    for j in range(1, M):
        flat[j * rows : (j + 1) * rows] = flat[j * M : j * M + rows]
    packed = flat[: rows * M].reshape((rows, M), order="F")
    # A small remainder moves out so that the large buffer can be freed.
    return packed.copy(order="F") if 4 * rows <= M else packed
