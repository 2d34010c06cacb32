"""A preconditioner of two scales for all rows: far rows by pivots, near rows exactly.

With r of the rows as pivots, k(P, P) = L L' and F = W^(1/2) k(X, P) L^-T, F F' is the Nyström approximation of
W^(1/2) K_nn W^(1/2). Within the leaves of a tree the approximation is replaced by the matrix itself:

    W^(1/2) K_nn W^(1/2) + s I  ~  F F' + B,     B_l = W_l^(1/2) k(X_l, X_l) W_l^(1/2) - F_l F_l' + s I for each leaf l.

This is the hierarchically compositional kernel of a tree that has a single inner node, with more pivots than a leaf has
rows. Its inverse is B^-1 - B^-1 F (I + F'B^-1 F)^-1 F'B^-1.

A system that leaves out the rows O needs the inverse of B in the others, which follows from that of all rows:

    Q = B^-1 - B^-1 E_O S^-1 E_O'B^-1,     S = (B^-1)_OO,     F'Q F = F'B^-1 F - (B^-1 F)_O' S^-1 (B^-1 F)_O.

Q is 0 in the rows and columns of O. So a fold costs a factor of its own rows alone, and all folds together about as
much as the factors of all rows, in time and memory.

The formula is a difference that loses the digits of F'B^-1 F, whose norm is of the order of n / s. Therefore everything
is computed in float64, from the inverse factors of B as they are stored: rounded to float32 they are those of another
positive definite B, and the formula is exact for that. With them solves are products, which threads do side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.linalg import add_square, solve_lower
from .._utils.threads import effective_n_jobs, ordered_map, share, single_threaded_blas
from ..kernels import Kernel
from ..operators import KernelOperator
from ..preconditioners.factors import Triangles, copy_to_upper, ridge_factor
from .blocks import Hierarchy
from .factors import leaf_matrix
from .tree import grow_tree

Array = NDArray[Any]
Vectors = NDArray[np.float64]

GATHERED = 2048  # rows that are squared at once

_SHARED = 4.0  # largest ratio of two shifts that share their factors


class _LeftOut(NamedTuple):
    """The rows of a leaf that are in a fold, and C with C'C = S^-1."""

    at: NDArray[np.intp]
    root: Vectors


class _Leaf(NamedTuple):
    """A leaf with one of the shifts: R with R'R = B^-1, in the dtype of storage, and what belongs to each fold."""

    root: Array
    folds: dict[int, _LeftOut]


def shared_shifts(mu: Vectors) -> Vectors:
    """Return shifts such that each mu is within a factor of two of one of them.

    >>> shared_shifts(np.array([1.0, 0.01, 0.03])).round(3)
    array([0.017, 1.   ])
    """
    shifts, left = [], np.unique(mu)
    while len(left):
        near = left <= _SHARED * left[0]
        shifts.append(float(np.sqrt(left[0] * left[near][-1])))
        left = left[~near]
    return np.array(shifts)


class HierarchicalPreconditioner:
    """The inverse of F F' + B, for all rows or for those outside of a fold.

    Parameters
    ----------
    kernel : Kernel
        Resolved.
    X : ndarray of shape (n, d)
    shifts : ndarray of shape (P,)
        Positive; a column is solved with the nearest one. See `shared_shifts`.
    n_pivots, leaf_size : int
        Rows that are pivots, and most rows of a leaf.
    seed : int
        Of the tree and the pivots.
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W.
    fold : ndarray of shape (n,), optional
        Number of each row's fold, from 0.
    dtype : dtype
        In which the inverse factors of B are stored, n leaf_size numbers for each shift.
    n_jobs : int or None
        Threads; None is every core. Results have the same bits for any number.
    memory_budget : int
        Bytes; k(X, P) is kept if it fits, in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.hierarchy import HierarchicalPreconditioner
    >>> from gyrfalcon.kernels import Laplacian
    >>> X = np.random.default_rng(0).standard_normal((50, 2))
    >>> shift = np.array([0.1])
    >>> P = HierarchicalPreconditioner(Laplacian(1.0), X, shift, n_pivots=50, leaf_size=10, seed=0)
    >>> v = np.ones((50, 1))
    >>> u = P.apply(v, shift, left_out=np.array([-1]))
    >>> bool(np.allclose(Laplacian(1.0)(X, X) @ u + 0.1 * u, v, atol=1e-5))
    True
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Array,
        shifts: Vectors,
        *,
        n_pivots: int,
        leaf_size: int,
        seed: int,
        weight: Array | None = None,
        fold: NDArray[Any] | None = None,
        dtype: DTypeLike = np.float64,
        n_jobs: int | None = None,
        memory_budget: int = 0,
    ) -> None:
        self.shifts = shifts
        self.n_threads = effective_n_jobs(n_jobs)
        self.root = None if weight is None else np.sqrt(weight.astype(np.float64))[:, None]
        self._fold, self._dtype = fold, np.dtype(dtype)
        tree, order = grow_tree(X, leaf_size, "principal", seed)
        pivots = np.sort(np.random.default_rng([seed, len(X)]).choice(len(X), n_pivots, replace=False))
        self.hierarchy = Hierarchy(kernel, X, tree, order, pivots[None])
        with single_threaded_blas():
            P, self._lower = self.hierarchy.pivot_factor(0)
            self._leaves: list[list[_Leaf]] = [[] for _ in shifts]
            self._cores = self._factorise(P)
        rows = X.astype(np.float64, copy=False)
        self.operator = KernelOperator(kernel, rows, P, n_jobs=n_jobs, memory_budget=memory_budget)

    def _factorise(self, P: Array) -> dict[tuple[int, int], Triangles]:
        """Make the leaves; return the factors of I + F'B^-1 F, and without each fold, by numbers of shift and fold."""
        r, n_folds = len(P), 0 if self._fold is None else int(self._fold.max()) + 1
        cores = {}
        squares = np.zeros((len(self.shifts), n_folds + 1, r, r))
        for made in self._gathered(P):
            for square, parts in zip(squares, made, strict=True):
                add_square(square[-1], np.concatenate([part[-1] for part in parts]), n_threads=self.n_threads)
                for f in range(n_folds):
                    S = [part[f] for part in parts if f in part]
                    if S:
                        add_square(square[f], np.concatenate(S), n_threads=self.n_threads)
        for i, square in enumerate(squares):
            for each in square:
                copy_to_upper(each)
            cores[i, -1] = ridge_factor(square[-1], 1.0)
            for f in range(n_folds):
                cores[i, f] = ridge_factor(square[-1] - square[f], 1.0)
        return cores

    def _gathered(self, P: Array) -> Iterator[list[list[dict[int, Vectors]]]]:
        """Make leaves; yield for each shift, of several leaves, whose squares sum to F'B^-1 F, and what folds take."""
        tree = self.hierarchy.tree
        start = 0
        while start < tree.n_leaves:
            stop = start + 1
            while stop < tree.n_leaves and tree.starts[stop] - tree.starts[start] < GATHERED:
                stop += 1
            made = list(ordered_map(lambda leaf: self._make_leaf(leaf, P), range(start, stop), self.n_threads))
            for leaf in made:
                for kept, (each, _) in zip(self._leaves, leaf, strict=True):
                    kept.append(each)
            yield [[leaf[i][1] for leaf in made] for i in range(len(self.shifts))]
            start = stop

    def _make_leaf(self, leaf: int, P: Array) -> list[tuple[_Leaf, dict[int, Vectors]]]:
        """Return a leaf for each shift, and the roots of what it adds to F'B^-1 F (-1) and of what folds take away."""
        hierarchy, made = self.hierarchy, []
        rows = hierarchy.order[hierarchy.tree.leaf(leaf)]
        B, F = leaf_matrix(hierarchy, leaf, (P, self._lower))
        if self.root is not None:
            weight = self.root[rows]
            B, F = B * weight * weight.T, F * weight
        for shift in self.shifts:
            root = _inverse_root(B, shift).astype(self._dtype)
            R = root.astype(np.float64, copy=False)
            half = R @ F
            parts, folds = {-1: half}, {}
            if self._fold is not None:
                V = R.T @ half
                for f in np.unique(self._fold[rows]).tolist():
                    at = np.flatnonzero(self._fold[rows] == f)
                    folds[f] = _LeftOut(at, _inverse_root(R[:, at].T @ R[:, at], 0.0))
                    parts[f] = folds[f].root @ V[at]
            made.append((_Leaf(root, folds), parts))
        return made

    def apply(self, V: Vectors, shift: Vectors, left_out: NDArray[np.intp]) -> Vectors:
        """Return (F F' + B)^-1 V, in which each column has a shift and a fold that is left out.

        Parameters
        ----------
        V : ndarray of shape (n, c)
            0 in the rows that are left out, as is what is returned.
        shift : ndarray of shape (c,)
        left_out : ndarray of shape (c,)
            Number of a fold, or -1 for none.
        """
        nearest = np.abs(np.log(shift)[:, None] - np.log(self.shifts)).argmin(axis=1)
        U = self._solve(V, nearest, left_out)
        Z = solve_lower(self._lower, self.operator.rmatmat(self._weighted(U)))
        groups: dict[tuple[int, int], list[int]] = {}
        for column, of in enumerate(zip(nearest.tolist(), left_out.tolist(), strict=True)):
            groups.setdefault(of, []).append(column)

        def solve(of: tuple[int, int]) -> None:
            T, c = self._cores[of], groups[of]
            Z[:, c] = T.solve(T.solve(Z[:, c], lower=False, transposed=True), lower=False)

        share(solve, groups, self.n_threads)
        far = self.operator.matmat(solve_lower(self._lower, Z, transposed=True))
        return self._solve(V - self._weighted(far), nearest, left_out)

    def _solve(self, V: Vectors, nearest: NDArray[np.intp], left_out: NDArray[np.intp]) -> Vectors:
        """Return B^-1 V, or Q V for columns that leave a fold out."""
        hierarchy, out = self.hierarchy, np.empty(V.shape)
        columns = [np.flatnonzero(nearest == i) for i in range(len(self.shifts))]

        def run(leaf: int) -> None:
            rows = hierarchy.order[hierarchy.tree.leaf(leaf)]
            for leaves, c in zip(self._leaves, columns, strict=True):
                R, right = leaves[leaf].root.astype(np.float64, copy=False), V[np.ix_(rows, c)]
                found = R.T @ (R @ right)
                if (left_out[c] >= 0).any():
                    for f, (at, C) in leaves[leaf].folds.items():
                        some = np.ix_(at, np.flatnonzero(left_out[c] == f))
                        right[some] -= C.T @ (C @ found[some])
                    found = R.T @ (R @ right)
                out[np.ix_(rows, c)] = found

        share(run, range(hierarchy.tree.n_leaves), self.n_threads)
        return out

    def _weighted(self, V: Vectors) -> Vectors:
        return V if self.root is None else self.root * V


def _inverse_root(matrix: Vectors, shift: float) -> Vectors:
    """Return L^-1 of matrix + shift I = L L', with a larger shift if rounding asks for it."""
    eye, ridge = np.eye(len(matrix)), shift
    while True:
        with suppress(np.linalg.LinAlgError):
            return solve_lower(np.linalg.cholesky(matrix + ridge * eye), eye)
        ridge = max(4 * ridge, 1e-15 * float(np.abs(matrix.diagonal()).max()))
