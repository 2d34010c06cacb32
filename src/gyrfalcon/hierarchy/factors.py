"""The direct solve of (K_hc + diag(noise)) a = Y, in time n rank^2 and memory n rank.

In terms of a Gaussian process each inner node has a latent vector z with z_i = T_i z_p + e, cov(e) = Lambda_i =
I - T_i T_i' (the root: z = e, Lambda = I), and the rows of a leaf below p are F z_p plus what B - diag(noise) explains:

    leaf    B = k(X, X) + diag(noise) - F F',   Theta = F'B^-1 F,   q = F'B^-1 Y
    up      Xi, s: sums of the children's;      Theta = T'Xi (I + Lambda Xi)^-1 T,   q = T'(I + Xi Lambda)^-1 s
    down    g = (I + Lambda Xi)^-1 (T g_p + Lambda s);     leaf: a = B^-1 (Y - F g)

g is the posterior mean of z. Its covariance is Omega = (I + Lambda Xi)^-1 Lambda + H Omega_p H', H = (I + Lambda Xi)^-1
T; the block of the inverse of a leaf is B^-1 - V Omega V' with V = B^-1 F. log det = sum of log det B and of log det
(I + Lambda Xi). No difference of large numbers is formed but in B and Lambda, which are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from .._utils.linalg import solve_lower
from .._utils.threads import ordered_map, single_threaded_blas
from .blocks import Hierarchy

Array = NDArray[Any]
Vectors = NDArray[np.float64]
Item = TypeVar("Item")
Result = TypeVar("Result")
Above = tuple[Array, Vectors]  # the pivots of a node and the factor of their kernel matrix
Task = tuple[int, int]  # a subtree: the inner node above it, and its number among the children of that node

_TOP_LEVELS = 6  # below these levels of the tree, subtrees are solved side by side, whatever the number of threads

_getrf, _getrs = get_lapack_funcs(("getrf", "getrs"), dtype=np.float64)  # they let go of Python's lock


class SingularError(ValueError):
    """The matrix of a leaf is not positive definite: noise is lost in rounding."""


class LeafFactors(NamedTuple):
    """The Cholesky factor of B of a leaf, and L^-1 F and F (no columns if the tree is a single leaf)."""

    lower: Vectors
    half: Vectors
    F: Vectors


def leaf_matrix(hierarchy: Hierarchy, leaf: int, above: Above | None) -> tuple[Vectors, Vectors]:
    """Return B of a leaf without the noise, and F; `above` belongs to its parent."""
    X = hierarchy.points(leaf)
    B = hierarchy.block(X, X)
    F = np.empty((len(X), 0)) if above is None else hierarchy.whitened(X, *above)
    if F.shape[1]:
        B -= F @ F.T
    return B, F


def leaf_factors(hierarchy: Hierarchy, leaf: int, noise: Vectors, above: Above | None) -> LeafFactors:
    """Factor the matrix of a leaf; `noise` is that of its rows, and `above` belongs to its parent."""
    B, F = leaf_matrix(hierarchy, leaf, above)
    B.flat[:: len(B) + 1] += noise
    try:
        lower: Vectors = np.asarray(np.linalg.cholesky(B), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise SingularError(f"the kernel matrix of {len(B)} rows plus the noise is not positive definite") from None
    return LeafFactors(lower, solve_lower(lower, F), F)


class Sums(NamedTuple):
    """Theta and q of a leaf or a subtree, in the coordinates of its parent, and its number of leaves."""

    theta: Vectors
    q: Vectors
    leaves: int


class Latent(NamedTuple):
    """The posterior mean of z of an inner node, of shape (rank, k), and its covariance if it is needed."""

    mean: Vectors
    covariance: Vectors | None


class Node(NamedTuple):
    """An inner node after the way up: T (None for the root), the LU factors of I + Lambda Xi, and s."""

    T: Vectors | None
    lu: Vectors
    swaps: Array
    s: Vectors

    def solve(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        """Return (I + Lambda Xi)^-1 times some columns, or (I + Xi Lambda)^-1."""
        out: Vectors = _getrs(self.lu, self.swaps, right, trans=int(transposed))[0]
        return out

    def times_lambda(self, v: Vectors) -> Vectors:
        return v if self.T is None else v - self.T @ (self.T.T @ v)


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors of K_hc + diag(noise), and the coefficients of targets.

    coef : a, of shape (n, k), in the order of the tree
    pivot_coef : coefficients of the pivots of each leaf's parent, of shape (n_leaves, rank, k): see `LocalExpansion`
    log_det : log det (K_hc + diag(noise))
    inverse_diagonal : the diagonal of the inverse, in the order of the tree; None unless it was asked for
    covariances : Omega of each leaf's parent, of shape (n_leaves, rank, rank); None unless asked for
    """

    coef: Vectors
    pivot_coef: Vectors
    log_det: float
    inverse_diagonal: Vectors | None
    covariances: Vectors | None


def ignore(leaves: int) -> None:
    """Do nothing with the number of leaves that are done."""


def factorise(
    hierarchy: Hierarchy,
    Y: Vectors,
    noise: Vectors,
    *,
    n_threads: int = 1,
    with_diagonal: bool = False,
    with_covariances: bool = False,
    allocate: Callable[[tuple[int, int]], Any] = np.empty,
    tell: Callable[[int], None] = ignore,
) -> Factors:
    """Solve (K_hc + diag(noise)) a = Y.

    Parameters
    ----------
    hierarchy : Hierarchy
    Y : ndarray of shape (n, k), float64
        Targets of the rows, in their own order.
    noise : ndarray of shape (n,), float64
        Positive; penalty n / weight.
    n_threads : int
        Results have the same bits for any number.
    with_diagonal, with_covariances : bool
        Whether to compute the diagonal of the inverse, and what deviations are computed from.
    allocate : callable
        Makes the matrices for the factors, given their shape: they take most of the memory, and may be in a file.
        Slices of their rows are assigned and read.
    tell : callable
        Called with the number of leaves that are done, on the way up.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.hierarchy import factorise, make_hierarchy
    >>> from gyrfalcon.kernels import Laplacian
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> leaf = make_hierarchy(Laplacian(1.0), X, leaf_size=100, rank=10, split="random", seed=0)  # one leaf: k itself
    >>> a = factorise(leaf, X[:, :1], np.full(100, 0.1)).coef
    >>> bool(np.allclose(Laplacian(1.0)(X, X) @ a + 0.1 * a, X[:, :1]))
    True
    """
    return Solve(hierarchy, Y, noise, n_threads, with_diagonal, with_covariances, allocate, tell).run()


class Solve:
    """One solve: arrays that tasks fill in parallel, each its own part.

    The parameters are those of `factorise`; `is_part` says whether the tree is a subtree of another one.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        Y: Vectors,
        noise: Vectors,
        n_threads: int,
        with_diagonal: bool,
        with_covariances: bool,
        allocate: Callable[[tuple[int, int]], Any],
        tell: Callable[[int], None],
        is_part: bool = False,
    ) -> None:
        self.hierarchy, self.tree = hierarchy, hierarchy.tree
        self.Y, self.noise = Y, noise
        self.n_threads, self.tell = n_threads, tell
        (n, k), r, m = Y.shape, hierarchy.rank, len(self.tree.children)
        leaves, width = self.tree.n_leaves, r if m or is_part else 0
        self.V = allocate((n, width)) if width else np.empty((n, 0))
        self.matrices = allocate((2 * m, r * r)) if m else np.empty((0, 0))  # transposed LU factors, and T
        self.coef = np.empty((n, k))
        self.swaps = np.empty((m, r), dtype=np.int32)
        self.s = np.empty((m, r, k))
        self.pivot_coef = np.zeros((leaves, width, k))
        self.diagonal = np.empty(n) if with_diagonal else None
        self.covariances = np.zeros((leaves, width, width)) if with_covariances else None
        self.log_dets = np.zeros(m + leaves)
        self.with_covariances = with_diagonal or with_covariances

    def run(self) -> Factors:
        with single_threaded_blas():
            self._run()
        return Factors(self.coef, self.pivot_coef, float(self.log_dets.sum()), self.diagonal, self.covariances)

    def _run(self) -> None:
        children, parents = self.tree.children, self.tree.node_parents
        levels = _top(parents)
        top = [node for level in levels for node in level]
        above = dict(zip(top, self._each(self.hierarchy.pivot_factor, top), strict=True))
        tasks = [(node, int(child)) for node in top for child in children[node] if child not in above]
        tasks = tasks or [(-1, -1)]  # a single leaf
        sums: dict[int, Sums] = {}
        done = 0
        for (_, child), one in zip(tasks, self.ups(tasks, above), strict=True):
            sums[child] = one
            done += one.leaves
            self.tell(done)

        def join(node: int) -> Sums:
            found = [sums.pop(int(child)) for child in children[node]]
            return self._join(node, found, above[node], above.get(parents[node]))

        latent: dict[int, Latent] = {}
        for level in reversed(levels):
            sums.update(zip(level, self._each(join, level), strict=True))
        for level in levels:
            latent.update(zip(level, self._each(lambda n: self._latent(n, latent.get(parents[n])), level), strict=True))
        self.downs(tasks, latent, above)

    def ups(self, tasks: list[Task], above: dict[int, Above]) -> Iterable[Sums]:
        """Solve the subtrees below the top of the tree; yield their sums."""
        return self._each(lambda task: self.up(task[1], above.get(task[0])), tasks)

    def downs(self, tasks: list[Task], latent: dict[int, Latent], above: dict[int, Above]) -> None:
        """Compute the coefficients of these subtrees."""
        for _ in self._each(lambda task: self.down(task[1], latent.get(task[0]), above.get(task[0])), tasks):
            pass

    def _each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        return ordered_map(function, items, self.n_threads)

    # ---- up ----------------------------------------------------------------------------------------------------------

    def up(self, child: int, above: Above | None) -> Sums:
        """Solve a leaf or a subtree; return its sums in the coordinates of its parent."""
        if child < 0:
            return self._leaf_up(-1 - child, above)
        own = self.hierarchy.pivot_factor(child)
        return self._join(child, [self.up(int(c), own) for c in self.tree.children[child]], own, above)

    def _leaf_up(self, leaf: int, above: Above | None) -> Sums:
        at = self.tree.leaf(leaf)
        rows = self.hierarchy.order[at]
        lower, half, _ = leaf_factors(self.hierarchy, leaf, self.noise[rows], above)
        self.log_dets[leaf] = 2 * np.log(lower.diagonal()).sum()
        right = solve_lower(lower, self.Y[rows])
        solved = solve_lower(lower, np.hstack([half, right]), transposed=True)
        rank = half.shape[1]
        self.V[at], self.coef[at] = solved[:, :rank], solved[:, rank:]
        if self.diagonal is not None:
            inverse = solve_lower(lower, np.eye(len(lower)))
            self.diagonal[at] = np.einsum("ij,ij->j", inverse, inverse)
        return Sums(half.T @ half, half.T @ right, 1)

    def _join(self, node: int, found: list[Sums], own: Above, above: Above | None) -> Sums:
        """Combine the sums of a node's children, and carry them to its parent."""
        Xi, s = found[0].theta + found[1].theta, found[0].q + found[1].q
        T = None if above is None else self.hierarchy.transfer(*own, above)
        A = Xi if T is None else Xi - T @ (T.T @ Xi)
        A.flat[:: len(A) + 1] += 1.0
        lu, swaps, _ = _getrf(A)
        self.log_dets[self.tree.n_leaves + node] = np.log(np.abs(lu.diagonal())).sum()
        self.matrices[2 * node : 2 * node + 1] = lu.T.reshape(1, -1)
        if T is not None:
            self.matrices[2 * node + 1 : 2 * node + 2] = T.reshape(1, -1)
        self.swaps[node], self.s[node] = swaps, s
        one = Node(T, lu, swaps, s)
        leaves = found[0].leaves + found[1].leaves
        if T is None:
            return Sums(Xi, s, leaves)  # nobody asks for those of the root
        theta = T.T @ (Xi @ one.solve(T))
        return Sums((theta + theta.T) / 2, T.T @ one.solve(s, transposed=True), leaves)

    # ---- down --------------------------------------------------------------------------------------------------------

    def _latent(self, node: int, above: Latent | None) -> Latent:
        """Return the posterior mean of z of a node, and its covariance if it is needed."""
        lu, T = self.matrices[2 * node : 2 * node + 2].reshape(2, *2 * (self.hierarchy.rank,))
        one = Node(None if above is None else T, lu.T, self.swaps[node], self.s[node])
        right = one.times_lambda(one.s)
        if above is not None:
            assert one.T is not None
            right = right + one.T @ above.mean
        mean = one.solve(right)
        if not self.with_covariances:
            return Latent(mean, None)
        identity = np.eye(len(mean))
        covariance = one.solve(one.times_lambda(identity))
        if above is not None:
            assert one.T is not None
            assert above.covariance is not None
            H = one.solve(one.T)
            covariance += H @ above.covariance @ H.T
        return Latent(mean, (covariance + covariance.T) / 2)

    def down(self, child: int, above: Latent | None, own: Above | None) -> None:
        """Compute the coefficients of a leaf or a subtree; `own` is that of its parent, for a leaf."""
        if child < 0:
            self._leaf_down(-1 - child, above, own)
            return
        latent = self._latent(child, above)
        children = self.tree.children[child]
        factor = self.hierarchy.pivot_factor(child) if (children < 0).any() else None
        for c in children:
            self.down(int(c), latent, factor)

    def _leaf_down(self, leaf: int, above: Latent | None, own: Above | None) -> None:
        at = self.tree.leaf(leaf)
        if above is None or own is None:
            return
        V = self.V[at]
        self.coef[at] -= V @ above.mean
        if above.covariance is not None:
            if self.diagonal is not None:
                self.diagonal[at] -= np.einsum("ij,ij->i", V @ above.covariance, V)
            if self.covariances is not None:
                self.covariances[leaf] = above.covariance
        P, L = own
        c = solve_lower(L, self.hierarchy.product(P, self.hierarchy.points(leaf), self.coef[at]))
        self.pivot_coef[leaf] = solve_lower(L, above.mean - c, transposed=True)


def _top(parents: Array) -> list[list[int]]:
    """Return the inner nodes of each of the first levels."""
    depth = np.zeros(len(parents), dtype=np.int64)
    for node in range(1, len(parents)):
        depth[node] = depth[parents[node]] + 1
    levels = [np.flatnonzero(depth == level).tolist() for level in range(_TOP_LEVELS)]
    return [level for level in levels if level]
