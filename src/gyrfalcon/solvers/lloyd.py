"""Lloyd's algorithm for k-means on the Nyström features F = K R, which are never stored.

A centroid c is a combination of features, and so an expansion of M kernels with the coefficients R c:

    |f(x) - c|^2 = |f(x)|^2 - 2 k(x, centers) R c + |c|^2,

where the first term is the same for all centroids. The label of a row is the largest of K R C' - |c|^2 / 2, the sums
of the rows of each cluster are R'K'U with U the labels as columns of 0 and 1, and both are one `sandwich`
(Calandriello, Rosasco, "Statistical and Computational Trade-Offs in Kernel K-Means", 2018). Restarts are further
columns of the same passes; one that has converged leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Linear
from ..operators import KernelOperator, Operator
from ..preconditioners import Whitening
from ..sources.row_matrix import FileMatrix, RowMatrix, row_matrix, row_parts
from .nystrom_features import features_of
from .principal import components_of_centers

__all__ = ["Clustering", "Lloyd", "approach", "approach_bytes"]

Array = NDArray[Any]
Vectors = NDArray[np.float64]

# Coordinates of `approach` beside those along the centroids, and the share of the tolerance to which it iterates. On
# MNIST 2 to 4 passes remain after it, and 5 to 17 without it.
_COORDINATES, _CLOSER = 32, 0.1
_LOOKED_AT, _MOST_LOOKED_AT = 100, 1_000  # rows whose features are computed at once, and in all, for empty clusters


@dataclass(frozen=True)
class Clustering:
    """Centroids, and the rows that are nearest to each.

    Attributes
    ----------
    centroids : ndarray of shape (rank, k)
        The centroids c, in coordinates of the features.
    coef : ndarray of shape (M, k)
        Coefficients R c of the centroids.
    squares : ndarray of shape (k,)
        |c|^2.
    labels : ndarray of shape (n,), int32, or FileMatrix of shape (n, 1)
        The nearest centroid of each row.
    inertia : float
        Sum of the weighted squared distances of rows to their centroids, with what the centers miss of the rows.
    counts : ndarray of shape (k,)
        Weights of the clusters.
    iteration : int
        Passes after which it was found.
    converged : bool
        Whether labels or centroids no longer change.
    farthest : float
        The largest squared distance of a row of positive weight to its centroid, including what the centers miss; 0 if
        that is rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import Lloyd, features_of
    >>> X = np.array([[0.0], [0.2], [5.0], [5.2]])
    >>> K = KernelOperator("gaussian", X, X)
    >>> T = Whitening(K.centers_gram(), 4)
    >>> lloyd = Lloyd(K, T, features_of(K, T, X[:2]), 2, np.ones(4))
    >>> while lloyd.running:
    ...     lloyd.step()
    >>> found = lloyd.best  # a Clustering
    >>> found.counts, found.converged
    (array([2., 2.]), True)
    """

    centroids: Vectors
    coef: Vectors
    squares: Vectors
    labels: Array | FileMatrix
    inertia: float
    counts: Vectors
    iteration: int
    converged: bool
    farthest: float


@dataclass(frozen=True)
class _RowSums:
    """Weights of the clusters, the sum of the weighted squared distances, and the largest distance of a row."""

    counts: Vectors
    inertia: float
    farthest: float


class Lloyd:
    """Lloyd's algorithm from several starts at once; `step` makes one pass over the rows.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M).
    whitening : Whitening
        T of the same centers.
    centroids : ndarray of shape (rank, R k)
        Centroids to start from, in coordinates of the features: those of the first start, of the second, and so on.
    n_clusters : int
        k.
    diagonal : ndarray of shape (n,)
        k(x, x) of the rows.
    weight : ndarray of shape (n,), optional
        Sample weights.
    tol : float
        A start has converged when the squared moves of its centroids add up to this share of the variance of the rows.
    in_file : bool
        Whether labels and distances of the rows are in temporary files.

    Attributes
    ----------
    iteration, running : int
        Number of passes so far, and of starts that have not converged.
    moved : float
        The largest of the squared moves, as a share of the variance.
    best : Clustering or None
        The one with the least inertia, of those that have converged and those that have not.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import Lloyd, features_of
    >>> X = np.array([[0.0], [0.2], [5.0], [5.2]])
    >>> K = KernelOperator("gaussian", X, X)
    >>> T = Whitening(K.centers_gram(), 4)
    >>> lloyd = Lloyd(K, T, features_of(K, T, X[:2]), 2, np.ones(4))
    >>> while lloyd.running:
    ...     lloyd.step()
    >>> lloyd.best.labels
    array([0, 0, 1, 1], dtype=int32)
    """

    def __init__(
        self,
        operator: Operator,
        whitening: Whitening,
        centroids: Vectors,
        n_clusters: int,
        diagonal: Vectors,
        weight: Array | None = None,
        *,
        tol: float = 0.0,
        in_file: bool = False,
    ) -> None:
        self.operator, self.whitening, self.k = operator, whitening, n_clusters
        self.diagonal, self.tol = diagonal, tol
        self.weight = None if weight is None else np.asarray(weight, dtype=np.float64)
        largest = max(float(diagonal.max(initial=0.0)), -float(diagonal.min(initial=0.0)))
        self._rounding = 100 * float(np.finfo(operator.dtype).eps) * largest
        n = operator.shape[0]
        self._in_file, self._parts = in_file, row_parts(n, 1)
        self._total = float(n) if self.weight is None else float(self.weight.sum())
        self._squares = sum(float(self._weights(at) @ diagonal[at]) for at in self._parts)  # of the rows
        self.iteration, self.moved = 0, np.inf
        self._finished: list[Clustering] = []
        self._running: list[Clustering] = []
        self._centroids = centroids
        self._settled = np.zeros(centroids.shape[1] // n_clusters, dtype=bool)
        self._labels: list[RowMatrix] | None = None

    @property
    def running(self) -> int:
        return len(self._settled)

    @property
    def best(self) -> Clustering | None:
        return min([*self._finished, *self._running], key=lambda found: found.inertia, default=None)

    def _weights(self, at: slice) -> Array:
        """Return the weights of the rows `at`."""
        return np.ones(at.stop - at.start) if self.weight is None else self.weight[at]

    def _columns(self, dtype: Any) -> list[RowMatrix]:
        """Make a column for each start, whose entries are not set yet."""
        return [row_matrix(self.operator.shape[0], 1, dtype, in_file=self._in_file) for _ in range(self.running)]

    def step(self) -> None:
        """Assign every row to its nearest centroid, and move the centroids to the means of their rows; one pass.

        `best` has the labels together with the centroids that they belong to, those before the move.
        """
        k, R = self.k, self.running
        C, root_n = self._centroids, np.sqrt(self.whitening.n)
        coef, squares = self.whitening.apply(C) * root_n, np.square(C).sum(axis=0)
        labels, nearest = self._columns(np.int32), self._columns(self.operator.dtype)
        half = (squares / 2).astype(self.operator.dtype)

        def assign(at: slice, T: Array) -> Array:
            near = (T - half).reshape(len(T), R, k)
            chosen = near.argmax(axis=2)[:, :, None]
            values = np.take_along_axis(near, chosen, axis=2)
            for r in range(R):
                labels[r][at], nearest[r][at] = chosen[:, r], values[:, r]
            near[...] = 0
            np.put_along_axis(near, chosen, self._weights(at).astype(T.dtype)[:, None, None], axis=2)
            return near.reshape(len(T), R * k)

        sums = self.whitening.apply_transpose(self.operator.sandwich(coef, assign)) * root_n
        self.iteration += 1
        found_rows = [self._rows(labels[r], nearest[r]) for r in range(R)]
        counts = np.stack([rows.counts for rows in found_rows])
        centroids, moved, relocated = self._move(sums, counts, labels, nearest)
        same = np.zeros(R, dtype=bool)
        if self._labels is not None:
            same[:] = [self._agree(*both) for both in zip(labels, self._labels, strict=True)]
        done = (same & ~relocated) | self._settled

        found = []
        for r in range(R):
            at = slice(r * k, (r + 1) * k)
            rows, own = found_rows[r], labels[r]
            found.append(
                Clustering(
                    centroids=C[:, at],
                    coef=coef[:, at],
                    squares=squares[at],
                    labels=own[:, 0] if isinstance(own, np.ndarray) else own,
                    inertia=max(0.0, rows.inertia),
                    counts=counts[r],
                    iteration=self.iteration,
                    converged=bool(done[r]),
                    farthest=rows.farthest if rows.farthest > self._rounding else 0.0,
                )
            )
        self._finished += [one for one, over in zip(found, done, strict=True) if over]
        self._running = [one for one, over in zip(found, done, strict=True) if not over]
        going = ~done
        self.moved = float(moved[going].max(initial=0.0))
        self._settled = (moved <= self.tol)[going] & ~relocated[going]
        self._labels = [column for column, on in zip(labels, going, strict=True) if on]
        self._centroids = centroids[:, np.repeat(going, k)]

    def _rows(self, labels: RowMatrix, nearest: RowMatrix) -> _RowSums:
        """Add up what the rows of a start have."""
        counts, inertia, farthest = np.zeros(self.k), 0.0, 0.0
        for at in self._parts:
            weight = self._weights(at)
            distances = self.diagonal[at] - 2.0 * nearest[at][:, 0]
            counts += np.bincount(labels[at][:, 0], weight, minlength=self.k)
            inertia += float(weight @ distances)
            farthest = max(farthest, float(distances[weight > 0].max(initial=0.0)))
        return _RowSums(counts, inertia, farthest)

    def _agree(self, labels: RowMatrix, before: RowMatrix) -> bool:
        """Whether two assignments of all rows are the same."""
        return all(np.array_equal(labels[at], before[at]) for at in self._parts)

    def _move(
        self, sums: Vectors, counts: Vectors, labels: list[RowMatrix], nearest: list[RowMatrix]
    ) -> tuple[Vectors, Vectors, NDArray[np.bool_]]:
        """Return the next centroids, their squared moves as shares of the variance, and which starts had to relocate.

        An empty cluster takes the row whose features are farthest from their centroid, away from the cluster it is in.
        """
        k, R, total = self.k, self.running, self._total
        relocated = np.zeros(R, dtype=bool)
        moved = np.zeros(R)
        centroids = self._centroids.copy()
        for r in range(R):
            at = slice(r * k, (r + 1) * k)
            S, count = sums[:, at], counts[r].copy()
            empty = np.flatnonzero(count == 0)
            if len(empty):
                # rare, so that these vectors may be in memory
                distances = self.diagonal - 2.0 * nearest[r][:][:, 0]
                relocated[r] = self._relocate(S, count, empty, self._centroids[:, at], labels[r][:][:, 0], distances)
            kept = count > 0
            centroids[:, at][:, kept] = S[:, kept] / count[kept]
            shift = float(np.square(centroids[:, at] - self._centroids[:, at]).sum())
            mean = S.sum(axis=1) / total
            variance = self._squares / total - float(mean @ mean)
            moved[r] = shift / variance if variance > 0 else 0.0
        return centroids, moved, relocated

    def _relocate(
        self, S: Vectors, count: Vectors, empty: Array, C: Vectors, labels: Array, distances: Vectors
    ) -> bool:
        """Give empty clusters the farthest rows, in the sums and counts; return whether there were such rows.

        What the centers miss of a row is part of its distance, but no centroid can come nearer to it, and the cluster
        would be empty again. So distances are upper bounds until the features of a row have been computed.
        """
        weight = self._weights(slice(0, len(distances)))
        far = np.where(weight > 0, distances, -np.inf)
        bounded = np.ones(len(far), dtype=bool)
        found, left = False, _MOST_LOOKED_AT
        for j in empty:
            while True:
                i = int(far.argmax())
                if not far[i] > self._rounding:
                    return found
                if count[labels[i]] <= weight[i]:  # a cluster by itself, which leaves nothing to gain
                    far[i] = -np.inf
                elif not bounded[i]:
                    break
                elif left <= 0:
                    far[bounded] = -np.inf
                else:
                    candidates = np.flatnonzero(bounded & (far > self._rounding))
                    some = np.sort(candidates[np.argsort(-far[candidates], kind="stable")[:_LOOKED_AT]])
                    F = features_of(self.operator, self.whitening, self.operator.rows.take(some))
                    far[some] = np.square(F - C[:, labels[some]]).sum(axis=0)
                    bounded[some] = False
                    left -= len(some)
            f = features_of(self.operator, self.whitening, self.operator.rows.take(np.array([i])))[:, 0]
            S[:, labels[i]] -= weight[i] * f
            count[labels[i]] -= weight[i]
            S[:, j], count[j] = weight[i] * f, weight[i]
            far[i], found = -np.inf, True
        return found


def approach_bytes(operator: Operator, n_clusters: int) -> int:
    """Return how much memory `approach` takes.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.solvers import approach_bytes
    >>> X = np.random.default_rng(0).standard_normal((1000, 2))
    >>> approach_bytes(KernelOperator("gaussian", X, X[:50]), n_clusters=3) > 0
    True
    """
    return 2 * operator.shape[0] * (n_clusters + _COORDINATES) * operator.dtype.itemsize


def approach(
    operator: Operator,
    whitening: Whitening,
    centroids: Vectors,
    diagonal: Vectors,
    weight: Array | None,
    tol: float,
    max_iter: int,
    random_state: np.random.RandomState,
) -> Vectors:
    """Bring centroids that a sample has found near to those of all rows, with one pass over the rows.

    Centroids move within the space that they span and the directions in which rows vary most. So the pass finds the
    coordinates of the rows along the centroids and the first components of the centers, and Lloyd's algorithm goes on
    with these few numbers a row, which takes next to no time.

    Parameters
    ----------
    operator, whitening, centroids, diagonal, weight, tol : as for `Lloyd`, of one start
    max_iter : int
        Iterations at most.
    random_state : RandomState

    Returns
    -------
    ndarray of shape (rank, k)

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import approach, features_of
    >>> X = np.concatenate([np.linspace(0, 1, 50), np.linspace(5, 6, 50)])[:, None]
    >>> K = KernelOperator("gaussian", X, X[::10])
    >>> T = Whitening(K.centers_gram(), 100)
    >>> start = features_of(K, T, X[[0, 99]])
    >>> found = approach(K, T, start, np.ones(100), None, 1e-4, 10, np.random.RandomState(0))
    >>> means = np.stack([features_of(K, T, part).mean(axis=1) for part in (X[:50], X[50:])], axis=1)
    >>> np.allclose(found, means, atol=0.02)
    True
    """
    n, rank = operator.shape[0], whitening.rank
    if not rank:  # the kernel is zero
        return centroids
    components = components_of_centers(operator, whitening, min(_COORDINATES, rank), random_state).vectors
    basis = np.linalg.qr(np.hstack([centroids, components])[:, :rank])[0]
    rows = operator.matmat(whitening.apply(basis) * np.sqrt(whitening.n))
    # rows times the identity are the rows: coordinates are features of a linear kernel
    identity = np.eye(basis.shape[1], order="F")
    linear = KernelOperator(Linear(), rows, identity.astype(rows.dtype), memory_budget=0)
    start, k = basis.T @ centroids, centroids.shape[1]
    lloyd = Lloyd(linear, Whitening(identity, n), start, k, diagonal, weight, tol=_CLOSER * tol)
    while lloyd.running and lloyd.iteration < max_iter:
        lloyd.step()
    assert lloyd.best is not None
    return basis @ lloyd.best.centroids
