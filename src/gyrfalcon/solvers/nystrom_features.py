"""The Nyström features F = K R of the rows, block by block, and their sums: what direct methods on centers are made of.

R is that of `Whitening`, with R'K_MM R = I, so that inner products of rows of F are those of the rows' projections onto
the span of the centers in feature space: F F' = K K_MM^+ K'. F is made with triangular solves. Forming K'K first, and
R'(K'K)R of it, would square the condition number: with a smooth kernel (4,000 rows, M = 300) the fifth eigenvalue was
off by more than 1% in float64, and the second in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, dsyrk

from .._utils.threads import share
from ..operators import Operator
from ..operators.squares import BlockSums, Squares
from ..preconditioners import Whitening

Vectors = NDArray[np.float64]

_SQUARED_ROWS = 512
_PART = 1 << 21  # entries of K that are copied at once, and the least number of rows, so that products are efficient
_FEWEST_ROWS = 2048


def nystrom_features(operator: Operator, whitening: Whitening) -> Iterator[tuple[slice, Vectors]]:
    """Yield blocks of rows of the Nyström features, as columns of F' = R'K'; one pass over the rows.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M), of any rows: those of a fit, or new ones.
    whitening : Whitening
        T of the same centers, in float64.

    Yields
    ------
    at : slice
        The rows of the block.
    F : ndarray of shape (rank, b), float64
        Their features, a column for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import nystrom_features
    >>> X = np.random.default_rng(0).standard_normal((6, 2))
    >>> K = KernelOperator("gaussian", X, X)  # every row is a center: nothing is lost
    >>> [(at, F)] = nystrom_features(K, Whitening(K.centers_gram(), 6))
    >>> np.allclose(F.T @ F, K.centers_gram())
    True
    """
    _check(operator, whitening)
    for at, K in operator.blocks():
        for part, rows in parts_of(at, K):
            yield part, _features(whitening, rows)


def _check(operator: Operator, whitening: Whitening) -> None:
    """Raise ValueError unless the whitening is that of the operator's centers, in float64."""
    if operator.shape[1] != whitening.M:
        raise ValueError(f"the operator has {operator.shape[1]} centers, but the whitening was made for {whitening.M}")
    if whitening.dtype != np.float64:
        raise ValueError(f"the whitening is {whitening.dtype}: make it from centers_gram(np.float64)")


def _features(whitening: Whitening, K: NDArray[Any]) -> Vectors:
    """Return the features of a block of K, a column for each row."""
    return whitening.apply_transpose(K.T) * np.sqrt(whitening.n)


def parts_of(at: slice, K: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Iterate over a block of K in parts of which a copy in float64 takes little memory."""
    size = max(_FEWEST_ROWS, _PART // max(1, K.shape[1]))
    for start in range(0, len(K), size):
        part = K[start : start + size]
        yield slice(at.start + start, at.start + start + len(part)), part


def feature_sums(
    operator: Operator, whitening: Whitening, Y: NDArray[Any], weight: NDArray[Any] | None = None
) -> tuple[Vectors, Vectors]:
    """Return F'WF, in its upper triangle, and F'WY, in one pass over the rows.

    Parameters
    ----------
    operator, whitening : as for `nystrom_features`
    Y : ndarray of shape (n, k)
    weight : ndarray of shape (n,), optional
        The diagonal of W.

    Returns
    -------
    G : ndarray of shape (rank, rank), Fortran order
    rhs : ndarray of shape (rank, k)

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import feature_sums, nystrom_features
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> K = KernelOperator("gaussian", X, X[:20])
    >>> T = Whitening(K.centers_gram(), 200)
    >>> G, rhs = feature_sums(K, T, np.ones((200, 1)))
    >>> F = np.concatenate([block for _, block in nystrom_features(K, T)], axis=1)
    >>> np.allclose(np.triu(G), np.triu(F @ F.T)), np.allclose(rhs[:, 0], F.sum(axis=1))
    (True, True)
    """
    _check(operator, whitening)
    sums = _FeatureSums(whitening, Y, weight)
    operator.add_blocks(sums)
    return sums.G, sums.rhs


class _FeatureSums(BlockSums):
    """F'WF, in the upper triangle of G, and F'WY."""

    def __init__(self, whitening: Whitening, Y: NDArray[Any], weight: NDArray[Any] | None) -> None:
        self._whitening, self._Y, self._weight = whitening, Y, weight
        rank = whitening.rank
        self.G, self.rhs = np.zeros((rank, rank), order="F"), np.zeros((rank, Y.shape[1]), order="F")

    @property
    def squares(self) -> Squares:
        return Squares(self._Y, self._weight, self._whitening)

    def add(self, at: slice, K: NDArray[Any]) -> None:
        for part, rows in parts_of(at, K):
            self._add(part, rows)

    def _add(self, at: slice, K: NDArray[Any]) -> None:
        F, y_block = _features(self._whitening, K), np.ascontiguousarray(self._Y[at])
        if self._weight is not None:
            root = np.sqrt(self._weight[at])
            F, y_block = F * root, root[:, None] * y_block
        # All by SciPy's BLAS, which also solves with triangles: NumPy's has threads of its own, and the threads of one
        # keep the cores busy for a while when it is the other's turn (F @ y_block took 20 times as long as G).
        if len(F):
            self.G = dsyrk(1.0, F, beta=1.0, c=self.G, overwrite_c=True)
        if self.rhs.size:
            self.rhs = dgemm(1.0, F, y_block, beta=1.0, c=self.rhs, overwrite_c=True)

    def put(self, G: Vectors, c: Vectors) -> None:
        self.G, self.rhs = np.asfortranarray(G[0]), c


def features_of(operator: Operator, whitening: Whitening, points: Any) -> Vectors:
    """Return the features of a few rows, of shape (rank, b).

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import features_of
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> K = KernelOperator("gaussian", X, X[:20])
    >>> F = features_of(K, Whitening(K.centers_gram(), 200), X[:20])  # of the centers: their products are the kernel
    >>> np.allclose(F.T @ F, K.centers_gram())
    True
    """
    root_n = np.sqrt(whitening.n)
    parts = [whitening.apply_transpose(K.T.astype(np.float64)) * root_n for _, K in operator.on(points).blocks()]
    return np.hstack(parts) if parts else np.zeros((whitening.rank, 0))


def row_squares(operator: Operator, V: Vectors, n_threads: int) -> Vectors:
    """Return the squared norms of the rows of K V, of shape (n,), without a matrix of that size; one pass.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M).
    V : ndarray of shape (M, r)
    n_threads : int

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.solvers import row_squares
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> K = KernelOperator("gaussian", X, X[:20])
    >>> V = np.eye(20)[:, :3]
    >>> np.allclose(row_squares(K, V, n_threads=1), (K.matmat(V) ** 2).sum(axis=1))
    True
    """
    out = np.empty(operator.shape[0])
    for at, squares in row_square_blocks(operator, V, n_threads):
        out[at] = squares
    return out


def row_square_blocks(operator: Operator, V: Vectors, n_threads: int) -> Iterator[tuple[slice, Vectors]]:
    """Iterate over what `row_squares` returns, a block of rows at a time."""
    for at, K in operator.blocks():
        squares = np.empty(len(K))

        def run(start: int, K: NDArray[Any] = K, squares: Vectors = squares) -> None:
            product = K[start : start + _SQUARED_ROWS] @ V
            squares[start : start + _SQUARED_ROWS] = np.einsum("ij,ij->i", product, product)

        share(run, range(0, len(K), _SQUARED_ROWS), n_threads)
        yield at, squares
