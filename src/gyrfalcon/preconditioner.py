"""FALKON's preconditioner B: everything the solver learns from the centers alone, kept in one M x M buffer.

The maths is Definitions 3 and 4 of the FALKON paper's appendix A ("FALKON: An Optimal Large Scale Kernel Method"):

    D K_MM D + jitter I = T'T,     A'A = T W T' / M + lambda I,     B = D T^-1 A^-1 / sqrt(n),

and B is chosen so that B'(K'WK + lambda n K_MM)B is close to the identity.

When the centers are linearly dependent in feature space (duplicates, a linear kernel with few features) no square T
exists. A pivoted Cholesky factorisation then picks r independent centers S with

    D_S K_SM D = T1' T,     T = [T1 T2] of shape (r, M),     B = D_S T1^-1 A^-1 / sqrt(n) on S, zero elsewhere,

which spans the same functions as all M centers, needs no eigenvectors, and fits the same buffer. It stands in for the Q
of Definition 3 (there Q is an isometry, here it is a selection; the formula for A does not change).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

Vectors = NDArray[np.float64]

# Side of the square blocks in which one triangle is copied onto the other: two of them fit a core's cache.
BLOCK = 256


class Preconditioner:
    _PIV=False
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
        The M of ``T T' / M``: how many centers were drawn, when duplicates among them were merged. M by default.
    jitter : "auto" or float
        What to add to the diagonal of ``D K_MM D`` before it is factored (an absolute number). It shapes the
        preconditioner and leaves the problem alone: `normal_product` subtracts its share.

    Attributes
    ----------
    rank : int
        Number of columns of B: M, or the number of independent centers.
    method : {"cholesky", "pivoted_cholesky"}
        How ``D K_MM D`` was factored.
    jitter : float
        The number that was added to the diagonal.
    ridge : float
        What stands for lambda in A'A: the penalty, or a little more where A'A would otherwise not be positive
        definite in its precision.
    selected : ndarray of shape (rank,)
        The centers whose coefficients B can reach: all of them, or the independent ones.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.preconditioner import Preconditioner
    >>> gram = np.asfortranarray([[2.0, 1.0], [1.0, 2.0]])
    >>> preconditioner = Preconditioner(gram, penalty=0.5, n=10, jitter=0.0)
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
    ) -> None:
        self._check_gram(gram)
        self.M: int = gram.shape[0]
        self.n = n
        self.n_draws = self.M if n_draws is None else n_draws
        self.dtype: np.dtype[Any] = gram.dtype
        self.D = None if D is None else np.asarray(D, dtype=np.float64)
        self._potrf, self._pstrf, self._lauum = get_lapack_funcs(("potrf", "pstrf", "lauum"), dtype=gram.dtype)
        self._trsm, self._trsv, self._trmm, self._trmv, self._gemm, self._syrk = get_blas_funcs(
            ("trsm", "trsv", "trmm", "trmv", "gemm", "syrk"), dtype=gram.dtype
        )
        if self.D is not None:
            if self.D.shape != (self.M,) or not (np.isfinite(self.D).all() and (self.D > 0).all()):
                raise ValueError(f"D must hold {self.M} positive finite numbers, one a center")
            scale = self.D.astype(gram.dtype)
            gram *= scale[:, None]
            gram *= scale[None, :]
        self._factor_T(gram, jitter)
        self.update(penalty, center_weight)

    @staticmethod
    def _check_gram(gram: NDArray[Any]) -> None:
        if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or gram.shape[0] == 0:
            raise ValueError(f"gram has shape {gram.shape}, but K_MM is square and not empty")
        if gram.dtype not in (np.float32, np.float64) or not gram.flags.f_contiguous or not gram.flags.writeable:
            raise ValueError(
                f"gram is {gram.dtype} with strides {gram.strides}; pass a writeable Fortran-ordered float32 or "
                "float64 array, because it is factored in place"
            )
        # min and max carry NaN through, and need no M x M array of flags.
        if not (np.isfinite(gram.min()) and np.isfinite(gram.max())):
            raise ValueError(
                "the kernel matrix of the centers holds NaN or infinity; check the kernel's parameters and the scale "
                "of the features"
            )

    def _factor_T(self, gram: NDArray[Any], jitter: float | Literal["auto"]) -> None:
        """Factor ``gram = D K_MM D``, first as a full-rank matrix; when it is not one, by pivoting."""
        diagonal = gram.diagonal().copy()
        self.jitter = default_jitter(diagonal) if jitter == "auto" else float(jitter)
        if not (np.isfinite(self.jitter) and self.jitter >= 0):
            raise ValueError(f"jitter={jitter!r} must be 'auto' or a finite number, at least 0")
        self.method: Literal["cholesky", "pivoted_cholesky"] = "cholesky"
        self._order: NDArray[np.intp] = np.arange(self.M)

        set_diagonal(gram, diagonal + self.dtype.type(self.jitter))
        # clean=False keeps the lower triangle, and with it the matrix, for a second attempt.
        _, failed = self._potrf(gram, lower=False, clean=False, overwrite_a=True)
        if not failed and not (self._PIV and (np.square(gram.diagonal()).min() <= 2 * self.jitter)):
            self.rank = self.M
            self._T = gram
        else:
            copy_to_upper(gram)
            set_diagonal(gram, diagonal + self.dtype.type(self.jitter))
            self._factor_T_pivoted(gram)
        self._t = self._T1.diagonal().copy()

    def _factor_T_pivoted(self, gram: NDArray[Any]) -> None:
        self.method = "pivoted_cholesky"
        largest = float(gram.diagonal().max())
        if largest <= 0 and float(np.abs(gram).max()) > 0:
            raise ValueError(
                f"the largest k(z, z) over the centers is {largest:g}, so the kernel is not positive on any of them; "
                "choose a positive (semi)definite kernel"
            )
        tolerance = 2 * self.jitter
        _, pivots, rank, _ = self._pstrf(gram, tol=tolerance, lower=False, overwrite_a=True)
        self.rank = int(rank) if largest > 0 else 0
        self._order = pivots.astype(np.intp) - 1
        self._T = first_rows(gram, self.rank)

    @property
    def _T1(self) -> NDArray[Any]:
        """The square part of T; its lower triangle, without the diagonal, is A' with columns divided by ``_a``."""
        return self._T[:, : self.rank]

    @property
    def selected(self) -> NDArray[np.intp]:
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
        self.penalty = self.ridge = float(penalty)
        while not self._factor_A(root):
            # A only shapes the preconditioner (lambda enters the problem through `penalty`, in the solver), so a larger
            # ridge is harmless to the solution.
            scale = float(np.square(self._t, dtype=np.float64).max())
            self.ridge = max(10 * self.ridge, float(np.finfo(self.dtype).eps) * scale)

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


def default_jitter(diagonal: NDArray[Any]) -> float:
    return len(diagonal) * float(np.finfo(diagonal.dtype).eps) * float(diagonal.mean(dtype=np.float64))


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
