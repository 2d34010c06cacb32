"""Dense factorisations with the same bits for any number of threads.

BLAS shares a factorisation among its threads in ways that change the last bits, so that a fit in a joblib worker, where
BLAS has one thread, would differ from the same fit outside. Here BLAS always has one thread. Small matrices are left to
it whole; products of large ones are shared among our own threads, in tiles of a fixed size.

Measured on two cores (AVX-512, float32): up to M = 4,000 one thread takes up to 0.3 s, two of BLAS 0.6 of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from .threads import share, single_threaded_blas

Array = NDArray[Any]

_SMALL = 4096  # rows of a matrix that one thread factors in some tenths of a second
_TILE = 512
_SOLVED = 64  # rows of a triangular matrix that are solved at once while Python's lock is held


def cholesky(matrix: Array, *, lower: bool, n_threads: int = 1) -> bool:
    """Factor one triangle of a symmetric Fortran-ordered matrix in place; the other is left as it is.

    The lower triangle becomes L of L L', or the upper one U of U'U. Returns whether the matrix is positive definite; if
    not, the triangle is undefined.
    """
    potrf = get_lapack_funcs("potrf", dtype=matrix.dtype)
    with single_threaded_blas():
        if len(matrix) <= _SMALL:
            return not potrf(matrix, lower=lower, clean=False, overwrite_a=True)[1]
        return _tiled_cholesky(matrix.T if lower else matrix, potrf, n_threads)


def _tiled_cholesky(A: Array, potrf: Callable[..., Any], n_threads: int) -> bool:
    """Put U of A = U'U into the upper triangle, a row of tiles at a time.

    A row is computed from all rows above it in one long product, so that each tile is written once. Subtracting each
    row from the rows below it would write most of the matrix once for every row of tiles.
    """
    M, trsm = len(A), get_blas_funcs("trsm", dtype=A.dtype)
    for row in _tiles(0, M):
        above = A[: row.start, row].T
        corner = np.array(A[row, row], order="F")

        def reduce(part: slice, row: slice = row, above: Array = above, corner: Array = corner) -> None:
            corner[:, part] -= above @ A[: row.start, row][:, part]

        share(reduce, _tiles(0, len(corner), _TILE // 4), n_threads)
        U, failed = potrf(corner, lower=False, clean=False, overwrite_a=True)
        if failed:
            return False
        A[row, row] = np.triu(U) + np.tril(A[row, row], -1)

        def solve(at: slice, row: slice = row, above: Array = above, U: Array = U) -> None:
            X = A[row, at] - above @ A[: row.start, at]
            A[row, at] = trsm(1.0, U, np.asfortranarray(X), trans_a=True, overwrite_b=True)

        share(solve, _tiles(row.stop, M), n_threads)
    return True


def square_lower(matrix: Array, *, n_threads: int = 1) -> None:
    """Put L'L, L being the lower triangle of a Fortran-ordered matrix, into that triangle; the upper one stays."""
    lauum = get_lapack_funcs("lauum", dtype=matrix.dtype)
    M = len(matrix)
    with single_threaded_blas():
        if M <= _SMALL:
            lauum(matrix, lower=True, overwrite_c=True)
            return
        for row in _tiles(0, M):
            L, below = np.tril(matrix[row, row]), matrix[row.stop :, row]

            def multiply(at: slice, row: slice = row, L: Array = L, below: Array = below) -> None:
                if at == row:  # nobody else reads the corner
                    corner = matrix[row, row]
                    corner[...] = np.tril(L.T @ L + below.T @ below) + np.triu(corner, 1)
                else:
                    matrix[row, at] = L.T @ matrix[row, at] + below.T @ matrix[row.stop :, at]

            share(multiply, _tiles(0, row.stop), n_threads)


def add_square(matrix: Array, S: Array, *, n_threads: int = 1) -> None:
    """Add S'S to the lower triangle of a matrix, S having as many columns; the upper triangle stays."""

    def add(at: slice) -> None:
        below = slice(at.stop, None)
        matrix[below, at] += S[:, below].T @ S[:, at]
        matrix[at, at] += np.tril(S[:, at].T @ S[:, at])

    share(add, _tiles(0, len(matrix)), n_threads)


def solve_upper_transposed(U: Array, B: Array, *, n_threads: int = 1) -> None:
    """Replace the many columns of B by U'^-1 B, U being the upper triangle of a matrix."""
    trsm = get_blas_funcs("trsm", dtype=U.dtype)

    def solve(at: slice) -> None:
        X = np.array(B[:, at], order="F")
        for row in _tiles(0, len(U)):
            part = X[row] - U[: row.start, row].T @ X[: row.start]
            X[row] = trsm(1.0, np.asfortranarray(U[row, row]), part, trans_a=True)
        B[:, at] = X

    share(solve, _tiles(0, B.shape[1]), n_threads)


def solve_lower(L: Array, B: Array, *, transposed: bool = False) -> Array:
    """Return L^-1 B, or L'^-1 B, with the lower triangle L of a matrix, so that threads can do so side by side.

    SciPy's triangular solves hold Python's lock; only those of small blocks are left to it here, and the rest is
    products. Measured on two cores with 512 rows and 128 columns: two threads take as long as one.
    """
    trsm = get_blas_funcs("trsm", dtype=L.dtype)
    X = np.array(B, dtype=L.dtype)
    blocks = _tiles(0, len(L), _SOLVED)
    for row in reversed(blocks) if transposed else blocks:
        if transposed:
            rest = X[row] - L[row.stop :, row].T @ X[row.stop :]
        else:
            rest = X[row] - L[row, : row.start] @ X[: row.start]
        X[row] = trsm(1.0, L[row, row], rest, lower=True, trans_a=transposed)
    return X


def _tiles(start: int, stop: int, size: int | None = None) -> list[slice]:
    step = size or _TILE
    return [slice(i, min(i + step, stop)) for i in range(start, stop, step)]
