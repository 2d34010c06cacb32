"""Factors of M x M matrices, made in place: who makes them, and two triangular matrices in one square buffer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import get_blas_funcs

from .._utils import linalg
from .._utils.threads import share, single_threaded_blas

Array = NDArray[Any]
Vectors = NDArray[np.float64]

BLOCK = 256  # side of the square blocks in which one triangle is copied onto the other: two fit a core's cache
_SMALL = 10**8  # multiplications: some milliseconds of one thread


class Triangles:
    """Products and solves with the two triangles of a square buffer, for vectors or matrices in float64.

    The buffer, which is kept and not copied, is Fortran-ordered, float32 or float64. It holds U on and above the
    diagonal, and below it L, whose diagonal is 1 and not stored.
    """

    def __init__(self, buffer: Array) -> None:
        self.buffer = buffer
        names = ("trsm", "trsv", "trmm", "trmv")
        self._trsm, self._trsv, self._trmm, self._trmv = get_blas_funcs(names, dtype=buffer.dtype)

    def changed(self) -> None:
        """Forget copies of the buffer: it was written to. Here there are none."""

    def solve(self, x: Array, *, lower: bool, transposed: bool = False) -> Vectors:
        """Return L^-1 x for the lower triangle and U^-1 x for the upper one, or the same with L' and U'."""
        return self._run(self._trsv, self._trsm, x, lower=lower, transposed=transposed)

    def multiply(self, x: Array, *, lower: bool, transposed: bool = False) -> Vectors:
        """Return L x for the lower triangle and U x for the upper one, or the same with L' and U'."""
        return self._run(self._trmv, self._trmm, x, lower=lower, transposed=transposed)

    def _run(self, with_vector: Any, with_matrix: Any, x: Array, *, lower: bool, transposed: bool) -> Vectors:
        x = np.array(x, dtype=self.buffer.dtype, order="F")
        if x.size == 0:
            return x.astype(np.float64)
        # BLAS's threads keep a core busy for a while after their work is done, which here is a pass over the rows.
        with single_threaded_blas() if len(self.buffer) * x.size < _SMALL else nullcontext():
            if x.ndim == 1 or x.shape[1] == 1:
                # The matrix routines are several times slower than these on a single vector.
                out = with_vector(self.buffer, x.ravel(), lower=lower, trans=transposed, diag=lower, overwrite_x=True)
            else:
                out = with_matrix(1.0, self.buffer, x, lower=lower, trans_a=transposed, diag=lower, overwrite_b=True)
        return np.asarray(out, dtype=np.float64).reshape(x.shape)


def ridge_factor(square: Array, ridge: float) -> Triangles:
    """Return U of square + ridge I = U'U, with a larger ridge if rounding asks for it."""
    while True:
        matrix = square.copy(order="F")
        matrix[np.diag_indices(len(matrix))] += ridge
        if linalg.cholesky(matrix, lower=False):
            return Triangles(matrix)
        ridge *= 4


class FactorEngine(ABC):
    """The steps that make T and A, on matrices in host memory.

    Each step overwrites one triangle of its first argument, and neither reads nor writes the other one. Matrices are
    Fortran-ordered, float32 or float64, and everything is computed in their precision. `n_threads` is the number of
    threads for what is done on the host.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads

    @abstractmethod
    def cholesky(self, matrix: Array, *, lower: bool) -> bool:
        """Put L of L L' or U of U'U into its triangle; return False, with it undefined, if not positive definite."""

    @abstractmethod
    def square_lower(self, matrix: Array) -> None:
        """Replace the lower triangle L by that of L'L."""

    @abstractmethod
    def add_square(self, matrix: Array, S: Array) -> None:
        """Add S'S to the lower triangle of a square matrix that has as many columns as S."""

    @abstractmethod
    def solve_upper_transposed(self, U: Array, B: Array) -> None:
        """Replace B, which has many columns, by U'^-1 B for the upper triangle U of a matrix."""

    @abstractmethod
    def triangles(self, buffer: Array) -> Triangles:
        """Return solves with the two triangles of a buffer."""


class LapackFactors(FactorEngine):
    """Factorisations on this machine's cores, with the same bits for any number of threads."""

    def cholesky(self, matrix: Array, *, lower: bool) -> bool:
        return linalg.cholesky(matrix, lower=lower, n_threads=self.n_threads)

    def square_lower(self, matrix: Array) -> None:
        linalg.square_lower(matrix, n_threads=self.n_threads)

    def add_square(self, matrix: Array, S: Array) -> None:
        linalg.add_square(matrix, S, n_threads=self.n_threads)

    def solve_upper_transposed(self, U: Array, B: Array) -> None:
        linalg.solve_upper_transposed(U, B, n_threads=self.n_threads)

    def triangles(self, buffer: Array) -> Triangles:
        return Triangles(buffer)


def check_gram(gram: Array, in_place: bool = True) -> None:
    """Raise ValueError for a matrix that cannot be K_MM, or that cannot be factored in place."""
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or gram.shape[0] == 0:
        raise ValueError(f"gram has shape {gram.shape}, but K_MM is square and not empty")
    if gram.dtype not in (np.float32, np.float64):
        raise ValueError(f"gram is {gram.dtype}; pass a Fortran-ordered float32 or float64 array")
    if in_place and not (gram.flags.f_contiguous and gram.flags.writeable):
        raise ValueError(
            f"gram has strides {gram.strides}; pass a writeable Fortran-ordered array, because it is factored in place"
        )
    # min and max carry NaN through, and need no M x M array of flags.
    if not (np.isfinite(gram.min()) and np.isfinite(gram.max())):
        raise ValueError(
            "the kernel matrix of the centers holds NaN or infinity; check the kernel's parameters and the features"
        )


def eps(dtype: DTypeLike) -> float:
    """Return the distance from 1 to the next number of ``dtype``."""
    return float(np.finfo(np.dtype(dtype)).eps)


def growing(number: float, least: float, dtype: np.dtype[Any]) -> float:
    """Return ten times the number, at least ``least``, after a failed factorisation; ValueError if 0 or too large."""
    larger = max(10 * number, least)
    if not 0 < larger <= float(np.finfo(dtype).max) / 2:
        raise ValueError(
            f"the kernel matrix of the centers cannot be factored in {dtype}, even with {number:.3g} added to its "
            "diagonal: choose a positive semidefinite kernel, and rescale the features (scale=True does)"
        )
    return larger


def column(x: Vectors, like: Array) -> Vectors:
    """View the vector ``x`` so that it multiplies the rows of ``like``."""
    return x.reshape(-1, *[1] * (like.ndim - 1))


def set_diagonal(matrix: Array, values: Array) -> None:
    """Write ``values`` on the diagonal of a square Fortran-ordered matrix."""
    matrix.T.reshape(-1)[:: matrix.shape[0] + 1] = values


def copy_to_lower(matrix: Array, scale: Array, n_threads: int = 1) -> None:
    """Make the lower triangle and the diagonal ``diag(scale) U'``, where U is the upper triangle, by blocks."""
    M = matrix.shape[0]

    def copy_row(i: int) -> None:
        corner = matrix[i : i + BLOCK, i : i + BLOCK]
        corner[...] = np.triu(corner, 1) + np.tril(corner.T * scale[i : i + BLOCK, None])
        for j in range(i + BLOCK, M, BLOCK):
            block = matrix[i : i + BLOCK, j : j + BLOCK]
            matrix[j : j + BLOCK, i : i + BLOCK] = block.T * scale[j : j + BLOCK, None]

    share(copy_row, range(0, M, BLOCK), n_threads)


def copy_to_upper(matrix: Array) -> None:
    """Make the matrix symmetric again from its lower triangle, by blocks."""
    copy_to_lower(matrix.T, np.ones(matrix.shape[0], dtype=matrix.dtype))


def first_rows(matrix: Array, rows: int) -> Array:
    """Pack the first rows of a Fortran-ordered matrix into the beginning of its own memory."""
    M = matrix.shape[1]
    flat = matrix.T.reshape(-1)
    for j in range(1, M):
        flat[j * rows : (j + 1) * rows] = flat[j * M : j * M + rows]
    packed = flat[: rows * M].reshape((rows, M), order="F")
    # A small remainder moves out so that the large buffer can be freed.
    return packed.copy(order="F") if 4 * rows <= M else packed
