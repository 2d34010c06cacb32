"""Hierarchy: a tree with pivots at its inner nodes, and the kernel matrices that the solver asks it for.

k_hc(x, x') = k(x, x') within a leaf. Across the two children of an inner node p it is the Nyström approximation with
the pivots of p; rows reach p through the pivots of the nodes between:

    k_hc(x, x') = f(x)'f(x'),     f(x) = L_p^-1 k(P_p, x) for a row of a leaf below p,     L_p L_p' = k(P_p, P_p),

and f <- T_i'f for each further level, T_i = L_i^-1 k(P_i, P_p) L_p^-T (Chen, Avron, Sindhwani 2016). It is positive
definite, and every row is a center.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import backends
from .._utils.linalg import solve_lower
from ..kernels import Kernel
from .tree import Tree, grow_tree

Array = NDArray[Any]
Vectors = NDArray[np.float64]

JITTER = 1e-8  # share of the mean diagonal that is added to the kernel matrices of pivots


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Rows, a tree over them, and pivots.

    kernel : resolved
    X : rows, an array of shape (n, d)
    order : numbers of the rows in the order of the tree
    pivots : numbers of the rows that are pivots of each inner node, of shape (n_nodes, rank)
    """

    kernel: Kernel
    X: Any
    tree: Tree
    order: Array
    pivots: Array

    @property
    def rank(self) -> int:
        return self.pivots.shape[1]

    def points(self, leaf: int) -> Array:
        """Return the rows of a leaf."""
        return self._rows(self.order[self.tree.leaf(leaf)])

    def pivot_points(self, node: int) -> Array:
        return self._rows(self.pivots[node])

    def _rows(self, numbers: Array) -> Array:
        return np.ascontiguousarray(self.X[numbers], dtype=np.float64)

    def block(self, rows: Array, centers: Array) -> Vectors:
        """Return k(rows, centers)."""
        out: Vectors = backends.prepare(self.kernel, centers).fill(rows)
        return out

    def product(self, rows: Array, centers: Array, coef: Vectors) -> Vectors:
        """Return k(rows, centers) coef."""
        out: Vectors = backends.prepare(self.kernel, centers).matmat(rows, np.ascontiguousarray(coef))
        return out

    def pivot_factor(self, node: int) -> tuple[Array, Vectors]:
        """Return the pivots of a node and the lower triangle L, L L' = k(P, P) with a small ridge."""
        P = self.pivot_points(node)
        return P, ridged_cholesky(self.block(P, P), JITTER * 10.0 ** np.arange(9))

    def whitened(self, rows: Array, P: Array, L: Vectors) -> Vectors:
        """Return F = k(rows, P) L^-T, of shape (b, rank)."""
        return solve_lower(L, self.block(P, rows)).T

    def transfer(self, P: Array, L: Vectors, above: tuple[Array, Vectors]) -> Vectors:
        """Return T = L^-1 k(P, P_p) L_p^-T of a node with pivots P and factor L; `above` are those of its parent p."""
        return solve_lower(L, self.whitened(P, *above))


def ridged_cholesky(S: Vectors, ridges: Array) -> Vectors:
    """Return L of L L' = S + a ridge, the first of these shares of the mean diagonal that suffices; S is changed."""
    diagonal = S.diagonal().copy()
    size = max(float(diagonal.mean()), float(np.finfo(np.float64).tiny))
    for ridge in ridges:
        S.flat[:: len(S) + 1] = diagonal + ridge * size
        with suppress(np.linalg.LinAlgError):
            return np.asarray(np.linalg.cholesky(S), dtype=np.float64)
    raise ValueError(f"the kernel matrix of {len(S)} rows is not positive semidefinite: choose another kernel")


def make_hierarchy(kernel: Kernel, X: Array, *, leaf_size: int, rank: int, split: str, seed: int) -> Hierarchy:
    """Grow a tree over the rows, in the kernel's own scales, and draw pivots from the rows below each inner node.

    Parameters
    ----------
    kernel : Kernel
        Resolved.
    X : ndarray of shape (n, d)
    leaf_size, rank : int
        Most rows of a leaf, and pivots of an inner node, not more than that.
    split : str
        One of `SPLITS`.
    seed : int
        Of the random numbers.
    """
    if not 1 <= rank <= leaf_size:
        raise ValueError(f"rank={rank} must be between 1 and leaf_size={leaf_size}")
    tree, order = grow_tree(X, leaf_size, split, seed, kernel.scaling(X.shape[1]))
    pivots, _ = draw_pivots(tree, order, rank, seed)
    return Hierarchy(kernel, X, tree, order, pivots)


def draw_pivots(tree: Tree, order: Array, rank: int, seed: int) -> tuple[Array, Array]:
    """Draw pivots of each inner node from the rows below it; return their numbers and their places in the tree's order.

    Both have the shape (n_nodes, rank), and numbers increase.
    """
    pivots, places = (np.empty((len(tree.children), rank), dtype=np.int64) for _ in range(2))
    first, last = tree.ranges()
    for node in range(len(pivots)):
        rng = np.random.default_rng([seed, node, 1])
        start, stop = tree.starts[first[node]], tree.starts[last[node] + 1]
        at = start + rng.choice(stop - start, rank, replace=False)
        at = at[np.argsort(order[at])]
        pivots[node], places[node] = order[at], at
    return pivots, places
