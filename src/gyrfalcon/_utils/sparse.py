"""Plain formulas for CSR matrices that never make a row dense: the reference for the fast paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


def canonical(X: Any) -> Any:
    """Return `X`, or a copy with its columns sorted and duplicate entries added."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def total_variance(X: Any) -> float:
    """Return the sum of the columns' variances; only columns with stored values can vary."""
    X = csr64(X)
    _, at, counts = np.unique(X.indices, return_inverse=True, return_counts=True)
    mean = np.bincount(at, weights=X.data) / X.shape[0]
    stored = np.square(X.data - mean[at]).sum()
    return float(stored + ((X.shape[0] - counts) * np.square(mean)).sum()) / X.shape[0]


def mean_absolute_differences(X: Any) -> float:
    """Return the sum over the columns of the mean absolute difference between two rows."""
    X = csr64(X)
    n = X.shape[0]
    _, column, counts = np.unique(X.indices, return_inverse=True, return_counts=True)
    order = np.lexsort((X.data, column))
    values = X.data[order]
    # a value's rank in its column, in which the zeros that are not stored come before the positive values
    place = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    place += np.where(values > 0, n - np.repeat(counts, counts), 0)
    return 2 * float(((2 * place + 1 - n) * values).sum()) / n**2


def csr64(X: Any) -> Any:
    """Convert `X` to CSR in float64, with duplicate entries added."""
    return canonical(sp.csr_array(X, dtype=np.float64))


def scaled(X: Any, scale: Array) -> Any:
    """Multiply the columns of a sparse `X` by `scale`, in float64."""
    X = csr64(X)
    data = X.data * (scale[0] if scale.strides == (0,) else scale[X.indices])
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


def row_squares(X: Any) -> Array:
    """Return the squared norms of the rows of a CSR matrix."""
    of = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return np.asarray(np.bincount(of, weights=np.square(X.data), minlength=X.shape[0]), dtype=np.float64)


# Where |a|^2 + |b|^2 - 2 a.b is below this part of |a|^2 + |b|^2 it has lost 12 bits, and |a - b|^2 is summed instead.
_NEAR = 1.0 / 4096


def squared_distances(A: Any, B: Any) -> Array:
    """Return squared distances between the rows of two CSR matrices."""
    size = row_squares(A)[:, None] + row_squares(B)
    squares: Array = size - 2 * (A @ B.T).toarray()
    for i, j in _pairs(squares < _NEAR * size):
        squares[i, j] = row_squares(sp.csr_array(A[i] - B[j]))
    return squares


def absolute_distances(A: Any, B: Any) -> Array:
    """Return distances in the 1-norm between the rows of two CSR matrices, a few thousand differences at a time."""
    distances = np.empty((A.shape[0], B.shape[0]))
    for start in range(0, distances.size, 4096):
        at = np.arange(start, min(start + 4096, distances.size))
        i, j = np.divmod(at, B.shape[0])
        distances[i, j] = abs(sp.csr_array(A[i] - B[j])).sum(axis=1)
    return distances


def squared_chords(A: Any, B: Any) -> Array:
    """Return squared distances between rows of unit length, also accurate where they are nearly opposite."""
    squares = squared_distances(A, B)
    for i, j in _pairs(squares > 4 - 2 * _NEAR):
        squares[i, j] = 4 - row_squares(sp.csr_array(A[i] + B[j]))
    return squares


def _pairs(mask: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield the indices where `mask` is true, a few thousand at a time."""
    i, j = np.nonzero(mask)
    for start in range(0, len(i), 4096):
        yield i[start : start + 4096], j[start : start + 4096]
