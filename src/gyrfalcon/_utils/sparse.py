"""Plain formulas for CSR matrices, in which nothing is as long as a row: what fast paths are checked against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


def canonical(X: Any) -> Any:
    """`X`, or a copy with its columns sorted and numbers of the same place added."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def total_variance(X: Any) -> float:
    """Sum of the columns' variances, with nothing as long as a row: only columns that occur can vary."""
    X = csr64(X)
    _, at, counts = np.unique(X.indices, return_inverse=True, return_counts=True)
    mean = np.bincount(at, weights=X.data) / X.shape[0]
    stored = np.square(X.data - mean[at]).sum()
    return float(stored + ((X.shape[0] - counts) * np.square(mean)).sum()) / X.shape[0]


def mean_absolute_differences(X: Any) -> float:
    """Sum over the columns of the mean absolute difference between two rows, in the same way."""
    X = csr64(X)
    n = X.shape[0]
    _, column, counts = np.unique(X.indices, return_inverse=True, return_counts=True)
    order = np.lexsort((X.data, column))
    values = X.data[order]
    # its place in the column's order, where zeros that are not stored stand before the positive numbers
    place = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    place += np.where(values > 0, n - np.repeat(counts, counts), 0)
    return 2 * float(((2 * place + 1 - n) * values).sum()) / n**2


def csr64(X: Any) -> Any:
    """`X` as CSR in float64, with numbers of the same place added."""
    return canonical(sp.csr_array(X, dtype=np.float64))


def scaled(X: Any, scale: Array) -> Any:
    """The columns of a sparse `X` times `scale`, in float64."""
    X = csr64(X)
    data = X.data * (scale[0] if scale.strides == (0,) else scale[X.indices])
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


def row_squares(X: Any) -> Array:
    of = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return np.asarray(np.bincount(of, weights=np.square(X.data), minlength=X.shape[0]), dtype=np.float64)


# Of |a|^2 + |b|^2 - 2 a.b, what is below this part of |a|^2 + |b|^2 has lost 12 bits, and is summed as a difference.
_NEAR = 1.0 / 4096


def squared_distances(A: Any, B: Any) -> Array:
    """Squared distances between the rows of two CSR matrices, which never become dense."""
    size = row_squares(A)[:, None] + row_squares(B)
    squares: Array = size - 2 * (A @ B.T).toarray()
    for i, j in _pairs(squares < _NEAR * size):
        squares[i, j] = row_squares(sp.csr_array(A[i] - B[j]))
    return squares


def absolute_distances(A: Any, B: Any) -> Array:
    """Distances in the 1-norm between the rows of two CSR matrices: some thousand differences at a time."""
    distances = np.empty((A.shape[0], B.shape[0]))
    for start in range(0, distances.size, 4096):
        at = np.arange(start, min(start + 4096, distances.size))
        i, j = np.divmod(at, B.shape[0])
        distances[i, j] = abs(sp.csr_array(A[i] - B[j])).sum(axis=1)
    return distances


def squared_chords(A: Any, B: Any) -> Array:
    """The same between rows of unit length, as accurate where they are opposite as where they are the same."""
    squares = squared_distances(A, B)
    for i, j in _pairs(squares > 4 - 2 * _NEAR):
        squares[i, j] = 4 - row_squares(sp.csr_array(A[i] + B[j]))
    return squares


def _pairs(mask: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Where `mask` holds, some thousand entries at a time."""
    i, j = np.nonzero(mask)
    for start in range(0, len(i), 4096):
        yield i[start : start + 4096], j[start : start + 4096]
