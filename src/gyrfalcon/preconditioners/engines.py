"""The contract of those who factor M x M matrices in place, and LAPACK, the first of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from numpy.typing import NDArray

from .._utils import linalg
from ._triangles import Triangles

Array = NDArray[Any]


class FactorEngine(ABC):
    """The steps of which T and A are made, on matrices in host memory.

    Each overwrites its first argument but for LAPACK's other triangle, which is neither read nor written. Matrices are
    Fortran-ordered, float32 or float64, and everything is computed in their precision.
    """

    @abstractmethod
    def cholesky(self, matrix: Array, *, lower: bool) -> bool:
        """Put L of L L' into the lower triangle, or U of U'U into the upper one; return whether that was possible.

        If not, because the matrix is not positive definite, the triangle is undefined.
        """

    @abstractmethod
    def square_lower(self, matrix: Array) -> None:
        """Put L'L into the lower triangle, L being that triangle."""

    @abstractmethod
    def add_square(self, matrix: Array, S: Array) -> None:
        """Add S'S to the lower triangle of a square matrix, S having as many columns."""

    @abstractmethod
    def solve_upper_transposed(self, U: Array, B: Array) -> None:
        """Replace the many columns of B by U'^-1 B, U being the upper triangle of a matrix."""

    @abstractmethod
    def triangles(self, buffer: Array) -> Triangles:
        """Return solves with the two triangles of a buffer."""


class LapackFactors(FactorEngine):
    """Factorisations on this machine's cores, with the same bits for any number of threads.

    Parameters
    ----------
    n_threads : int
    """

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads

    def cholesky(self, matrix: Array, *, lower: bool) -> bool:
        return linalg.cholesky(matrix, lower=lower, n_threads=self._n_threads)

    def square_lower(self, matrix: Array) -> None:
        linalg.square_lower(matrix, n_threads=self._n_threads)

    def add_square(self, matrix: Array, S: Array) -> None:
        linalg.add_square(matrix, S, n_threads=self._n_threads)

    def solve_upper_transposed(self, U: Array, B: Array) -> None:
        linalg.solve_upper_transposed(U, B, n_threads=self._n_threads)

    def triangles(self, buffer: Array) -> Triangles:
        return Triangles(buffer)
