"""The direct solve on the workers of a Dask cluster: subtrees are solved where their rows are, and the top here.

here                                            a worker
cell of each row  --------------------------->  the rows of its partitions, by subtree
factors of the pivots above  ---------------->  the way up, with its rows from all partitions: factors stay
the way up and down the top  <----- Theta, q -
posterior means above  ---------------------->  the way down
coefficients  <-------------------------------
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.threads import single_threaded_blas
from ..kernels import Kernel
from ..sources._schedulers import Scheduler, insist
from ..sources.dask import DaskRows
from .blocks import Hierarchy
from .factors import Above, Factors, Latent, Solve, Sums, Task, factorise, ignore
from .tree import Tree

Array = NDArray[Any]
Vectors = NDArray[np.float64]


def factorise_on_workers(
    hierarchy: Hierarchy,
    Y: Vectors,
    noise: Vectors,
    *,
    rows: DaskRows,
    n_threads: int = 1,
    with_diagonal: bool = False,
    with_covariances: bool = False,
    tell: Callable[[int], None] = ignore,
) -> Factors:
    """Do what `factorise` does, with the rows of the hierarchy as a Dask collection; factors stay on the workers.

    If workers are lost with what they had, the solve begins anew. A tree of one leaf is solved here.
    """
    if not len(hierarchy.tree.children):
        return factorise(hierarchy, Y, noise, with_diagonal=with_diagonal, with_covariances=with_covariances)
    return insist(
        lambda trial: _SolveOnWorkers(
            hierarchy, Y, noise, n_threads, with_diagonal, with_covariances, _Few, tell, rows
        ).run()
    )


class Subtree(NamedTuple):
    """What a worker is told of a subtree, whose rows have numbers from 0 in the order of the tree.

    kernel : resolved
    pivots : of its inner nodes
    order : which of its rows, in their original order, is next in that of the tree
    Y, noise : of its rows
    """

    kernel: Kernel
    tree: Tree
    pivots: Array
    order: Array
    Y: Vectors
    noise: Vectors
    with_diagonal: bool
    with_covariances: bool


class Solved(NamedTuple):
    """What a worker found: the rows of `Factors` that belong to a subtree, and the terms of the log-determinant."""

    coef: Vectors
    pivot_coef: Vectors
    diagonal: Vectors | None
    covariances: Vectors | None
    log_dets: Vectors


def split_rows(block: Array, subtrees: Array, count: int) -> list[Array]:
    """Return the rows of a partition that belong to each subtree, in their order."""
    return [np.ascontiguousarray(block[subtrees == number]) for number in range(count)]


def solve_up(subtree: Subtree, above: Above | None, pieces: Sequence[Array]) -> tuple[Sums, Solve]:
    """Join the rows of a subtree from all partitions, and go up; return what the parent needs, and the factors."""
    X = np.concatenate(pieces)[subtree.order]
    hierarchy = Hierarchy(subtree.kernel, X, subtree.tree, np.arange(len(X)), subtree.pivots)
    wanted = subtree.with_diagonal, subtree.with_covariances
    solve = Solve(hierarchy, subtree.Y, subtree.noise, 1, *wanted, np.empty, ignore, is_part=True)
    with single_threaded_blas():
        return solve.up(_root(subtree.tree), above), solve


def solve_down(state: tuple[Sums, Solve], given: tuple[Latent, Above]) -> Solved:
    """Go down a subtree; return its coefficients."""
    solve = copy(state[1])
    solve.coef = solve.coef.copy()  # Dask may run a task again
    solve.diagonal = None if solve.diagonal is None else solve.diagonal.copy()
    with single_threaded_blas():
        solve.down(_root(solve.tree), *given)
    return Solved(solve.coef, solve.pivot_coef, solve.diagonal, solve.covariances, solve.log_dets)


def _root(tree: Tree) -> int:
    return 0 if len(tree.children) else -1


def _first(state: tuple[Sums, Solve]) -> Sums:
    return state[0]


class _Few:
    """A tall matrix of zeros of which only few rows are ever assigned."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._rows: dict[int, Array] = {}
        self._zeros = np.zeros(shape[1])

    def __setitem__(self, at: slice, block: Array) -> None:
        self._rows.update(zip(range(at.start, at.stop), block, strict=True))

    def __getitem__(self, at: slice) -> Array:
        return np.stack([self._rows.get(number, self._zeros) for number in range(at.start, at.stop)])


class _SolveOnWorkers(Solve):
    """A solve whose subtrees are tasks of Dask."""

    def __init__(self, *arguments: Any) -> None:
        *others, self._rows = arguments
        super().__init__(*others)
        self._scheduler: Scheduler = self._rows.scheduler
        self._states: list[Any] = []
        self._ends = self.tree.ranges()

    def ups(self, tasks: list[Task], above: dict[int, Above]) -> list[Sums]:
        from dask.delayed import delayed

        told = self._scheduler.share([self._subtree(child) for _, child in tasks])
        factors = self._scheduler.share([above[node] for node, _ in tasks])
        split, up, first = (delayed(one, pure=False) for one in (split_rows, solve_up, _first))
        numbers = np.empty(len(self.Y), dtype=np.int32)
        for number, (_, child) in enumerate(tasks):
            numbers[self.hierarchy.order[self._rows_of(child)]] = number
        shares = self._scheduler.share([numbers[at] for at in self._rows.slices])
        pieces = [split(part, share, len(tasks)) for part, share in zip(self._rows.parts, shares, strict=True)]
        self._states = self._scheduler.keep(
            [
                up(one, factor, [piece[i] for piece in pieces])
                for i, (one, factor) in enumerate(zip(told, factors, strict=True))
            ]
        )
        return self._scheduler.attempt([first(state) for state in self._states])

    def downs(self, tasks: list[Task], latent: dict[int, Latent], above: dict[int, Above]) -> None:
        from dask.delayed import delayed

        down = delayed(solve_down, pure=False)
        given = self._scheduler.share([(latent[node], above[node]) for node, _ in tasks])
        found = self._scheduler.attempt([down(state, one) for state, one in zip(self._states, given, strict=True)])
        self._states = []
        for (_, child), one in zip(tasks, found, strict=True):
            self._keep(child, one)

    def _rows_of(self, child: int) -> slice:
        _, _, leaves = self.tree.subtree(child, self._ends)
        return slice(int(self.tree.starts[leaves.start]), int(self.tree.starts[leaves.stop]))

    def _subtree(self, child: int) -> Subtree:
        tree, nodes, _ = self.tree.subtree(child, self._ends)
        rows = self.hierarchy.order[self._rows_of(child)]
        back = np.argsort(rows)
        pivots = back[np.searchsorted(rows, self.hierarchy.pivots[nodes], sorter=back)]
        order = np.empty_like(back)
        order[back] = np.arange(len(back))
        return Subtree(
            self.hierarchy.kernel,
            tree,
            pivots,
            order,
            self.Y[rows],
            self.noise[rows],
            self.diagonal is not None,
            self.covariances is not None,
        )

    def _keep(self, child: int, found: Solved) -> None:
        _, nodes, leaves = self.tree.subtree(child, self._ends)
        rows, n_leaves = self._rows_of(child), self.tree.n_leaves
        self.coef[rows], self.pivot_coef[leaves] = found.coef, found.pivot_coef
        own = leaves.stop - leaves.start
        self.log_dets[leaves] = found.log_dets[:own]
        self.log_dets[n_leaves + nodes.start : n_leaves + nodes.stop] = found.log_dets[own:]
        if self.diagonal is not None and found.diagonal is not None:
            self.diagonal[rows] = found.diagonal
        if self.covariances is not None and found.covariances is not None:
            self.covariances[leaves] = found.covariances
