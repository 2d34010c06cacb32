"""Predictions by the exact kernel of the rows nearest to a new row, which is in the middle of them.

A row near the border of its cell has its neighbors on one side only. With several features most rows are near a border,
and the mean of several trees does not mend it. The neighbors N of a row x are on all sides:

    f(x) = k(x, N) (k(N, N) + diag(noise))^-1 Y_N.

They are searched among the rows of the cells whose means are nearest to the mean of the cell of x.
"""

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
from .._utils.threads import share, single_threaded_blas
from ..kernels import Kernel
from .blocks import ridged_cholesky
from .expansion import LocalExpansion, by_leaf

Array = NDArray[Any]
Vectors = NDArray[np.float64]

_SEARCHED = 16_384  # rows among which neighbors are searched, or a multiple of their number
_SEARCHED_TIMES = 8  # that multiple
_AT_ONCE = 256  # rows that are predicted at once, so that their kernel matrix stays small
_RIDGES = np.r_[0.0, 1e-12 * 10.0 ** np.arange(12)]  # of kernel matrices whose noise is lost in rounding


@register
@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """Targets and noise of the training rows, from which the system of any row's neighbors is made.

    Attributes
    ----------
    size : int
        Number of neighbors.
    targets : ndarray of shape (n, k), float64
        What is left of y after the global part.
    noise : ndarray of shape (n,), float64
        Positive; penalty n / weight.
    """

    size: int
    targets: Vectors
    noise: Vectors

    def __post_init__(self) -> None:
        n = len(self.noise)
        array((n,))("noise", self.noise)
        array((n, None))("targets", self.targets)
        if type(self.size) is not int or not 1 <= self.size <= n:
            raise ValueError(f"size={self.size!r} is no number of neighbors among {n} rows")
        if self.noise.min() <= 0:
            raise ValueError("noise is not positive")

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return what a model file holds."""
        return dict(vars(self))

    def predict(self, kernel: Kernel, centers: Array, cells: LocalExpansion, X: Array, n_threads: int = 1) -> Array:
        """Return f at rows of an array, of shape (b, k).

        Parameters
        ----------
        kernel : Kernel
        centers : ndarray of shape (n, d)
            The training rows.
        cells : LocalExpansion
            Of a tree whose cells are searched for neighbors.
        X : ndarray of shape (b, d)
            Of the dtype of the centers.
        n_threads : int
        """
        out = np.empty((len(X), self.targets.shape[1]), dtype=centers.dtype)
        order = nearest_leaves(kernel, centers, cells)
        least = max(_SEARCHED, _SEARCHED_TIMES * self.size)
        sizes = np.diff(cells.tree.starts)

        def run(group: tuple[int, Array]) -> None:
            leaf, rows = group
            near = order(leaf)
            enough = int(np.searchsorted(np.cumsum(sizes[near]), least)) + 1
            numbers = np.sort(np.concatenate([cells.order[cells.tree.leaf(int(one))] for one in near[:enough]]))
            points = np.ascontiguousarray(centers[numbers])
            tiles, half = backends.prepare(kernel, points), kernel.diag(points) / 2
            K = tiles.fill(np.ascontiguousarray(X[rows]))
            for row, similar in zip(rows, K - half, strict=True):
                found = np.argpartition(-similar, self.size - 1)[: self.size]
                out[row] = self._solve(kernel, centers, np.sort(numbers[found]), X[row])

        with single_threaded_blas():
            share(run, _in_parts(cells.tree.route(X)), n_threads)
        return out

    def _solve(self, kernel: Kernel, centers: Array, near: Array, x: Array) -> Vectors:
        """Return f at x from the training rows `near`."""
        P = np.ascontiguousarray(centers[near], dtype=np.float64)
        tiles = backends.prepare(kernel, P)
        S = tiles.fill(P)
        S.flat[:: len(S) + 1] += self.noise[near]
        k = tiles.fill(np.ascontiguousarray(x[None], dtype=np.float64)).T
        solved = solve_lower(ridged_cholesky(S, _RIDGES), np.hstack([k, self.targets[near]]))
        out: Vectors = solved[:, 0] @ solved[:, 1:]
        return out


def nearest_leaves(kernel: Kernel, centers: Array, cells: LocalExpansion) -> Any:
    """Return a function of a leaf: all leaves, in the order of the distance of their means from its own mean."""
    tree = cells.tree
    means = np.empty((tree.n_leaves, centers.shape[1]))
    for leaf in range(tree.n_leaves):
        means[leaf] = np.mean(centers[cells.order[tree.leaf(leaf)]], axis=0, dtype=np.float64)
    tiles, half = backends.prepare(kernel, means), kernel.diag(means) / 2
    return lambda leaf: np.argsort(half - tiles.fill(means[leaf : leaf + 1])[0], kind="stable")


def _in_parts(leaves: Array) -> Iterator[tuple[int, Array]]:
    """Yield each leaf that has rows, and their positions, a part of them at a time."""
    for leaf, rows in by_leaf(leaves):
        for start in range(0, len(rows), _AT_ONCE):
            yield leaf, rows[start : start + _AT_ONCE]
