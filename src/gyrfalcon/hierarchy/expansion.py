"""Predictions by a tree: f(x) = k(x, X_l) a_l + k(x, P_l) v_l, with the rows and the pivots of the leaf l of x."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import backends
from .._utils.checks import array
from .._utils.linalg import solve_lower
from .._utils.registry import register
from .._utils.threads import share
from ..kernels import Kernel
from .blocks import Hierarchy
from .factors import leaf_factors
from .tree import Tree

Array = NDArray[Any]
Vectors = NDArray[np.float64]


@register
@dataclass(frozen=True, eq=False)
class LocalExpansion:
    """The function that was learnt with one tree.

    Attributes
    ----------
    tree : Tree
    order : ndarray of shape (n,), int64
        Numbers of the training rows in the order of the tree.
    pivots : ndarray of shape (n_leaves, rank), int64
        Numbers of the training rows that are pivots of each leaf's parent.
    coef : ndarray of shape (n, k)
        Coefficients of the training rows, in the order of the tree.
    pivot_coef : ndarray of shape (n_leaves, rank, k)
    """

    tree: Tree
    order: Array
    pivots: Array
    coef: Array
    pivot_coef: Array

    def __post_init__(self) -> None:
        n, leaves = len(self.order), self.tree.n_leaves
        array((n,), np.int64)("order", self.order)
        array((leaves, None), np.int64)("pivots", self.pivots)
        array((n, None))("coef", self.coef)
        array((leaves, self.pivots.shape[1], self.coef.shape[1]))("pivot_coef", self.pivot_coef)
        if self.tree.starts[-1] != n:
            raise ValueError(f"the leaves of a tree have {self.tree.starts[-1]} rows, and its order has {n}")
        for name in ("order", "pivots"):
            numbers = vars(self)[name]
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < n:
                raise ValueError(f"{name} has numbers outside of 0 to {n - 1}")

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return what a model file holds."""
        return dict(vars(self))

    def hierarchy(self, kernel: Kernel, centers: Array) -> Hierarchy:
        """Return the hierarchy of the fit; only inner nodes above leaves have their pivots."""
        pivots = np.zeros((len(self.tree.children), self.pivots.shape[1]), dtype=np.int64)
        if len(pivots):
            pivots[self.tree.parents] = self.pivots
        return Hierarchy(kernel, centers, self.tree, self.order, pivots)

    def predict(self, kernel: Kernel, centers: Array, X: Array, n_threads: int = 1) -> Array:
        """Return the values of the function, of shape (b, k).

        Parameters
        ----------
        kernel : Kernel
        centers : ndarray of shape (n, d)
            The training rows.
        X : ndarray of shape (b, d)
            Of the dtype of the centers.
        n_threads : int
        """
        out = np.empty((len(X), self.coef.shape[1]), dtype=centers.dtype)

        def run(group: tuple[int, Array]) -> None:
            leaf, rows = group
            at = self.tree.leaf(leaf)
            points = centers[np.r_[self.order[at], self.pivots[leaf]]]
            coef = np.concatenate([self.coef[at], self.pivot_coef[leaf]]).astype(centers.dtype, copy=False)
            out[rows] = backends.prepare(kernel, points).matmat(np.ascontiguousarray(X[rows]), coef)

        share(run, by_leaf(self.tree.route(X)), n_threads)
        return out


@register
@dataclass(frozen=True, eq=False)
class LocalPosterior:
    """What the variance of f under one tree is computed from, beside its `LocalExpansion`.

    Attributes
    ----------
    covariances : ndarray of shape (n_leaves, rank, rank), float64
        Posterior covariances of the latent vectors of the leaves' parents; see `factors`.
    """

    covariances: Vectors

    def __post_init__(self) -> None:
        array((None, None, None))("covariances", self.covariances)

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return what a model file holds."""
        return dict(vars(self))

    def variances(
        self, hierarchy: Hierarchy, noise: Vectors, X: Array, diagonal: Vectors, n_threads: int = 1
    ) -> Vectors:
        """Return the posterior variance of f for a prior of covariance k_hc, of shape (b,).

        Parameters
        ----------
        hierarchy : Hierarchy
            As `LocalExpansion.hierarchy` returns it.
        noise : ndarray of shape (n,)
        X : ndarray of shape (b, d)
        diagonal : ndarray of shape (b,)
            k(x, x).
        n_threads : int
        """
        out = np.empty(len(X))
        parents = hierarchy.tree.parents

        def run(group: tuple[int, Array]) -> None:
            leaf, rows = group
            at = hierarchy.order[hierarchy.tree.leaf(leaf)]
            above = None if parents[leaf] < 0 else hierarchy.pivot_factor(int(parents[leaf]))
            lower, half, F = leaf_factors(hierarchy, leaf, noise[at], above)
            x = np.ascontiguousarray(X[rows], dtype=np.float64)
            b, variance = hierarchy.block(hierarchy.points(leaf), x), diagonal[rows].copy()
            if above is not None:
                phi = hierarchy.whitened(x, *above).T
                b = b - F @ phi
                variance -= np.einsum("ij,ij->j", phi, phi)
            local = solve_lower(lower, b)
            variance -= np.einsum("ij,ij->j", local, local)
            if above is not None:
                rest = phi - half.T @ local
                variance += np.einsum("ij,ij->j", rest, self.covariances[leaf] @ rest)
            out[rows] = variance

        share(run, by_leaf(hierarchy.tree.route(X)), n_threads)
        return np.maximum(out, 0.0, out=out)  # rounding


def by_leaf(leaves: Array) -> Iterator[tuple[int, Array]]:
    """Yield each leaf that has rows, and their positions.

    >>> [(leaf, rows.tolist()) for leaf, rows in by_leaf(np.array([3, 1, 3]))]
    [(1, [1]), (3, [0, 2])]
    """
    order = np.argsort(leaves, kind="stable")
    numbers, starts = np.unique(leaves[order], return_index=True)
    for leaf, rows in zip(numbers, np.split(order, starts[1:]), strict=True):
        yield int(leaf), rows
