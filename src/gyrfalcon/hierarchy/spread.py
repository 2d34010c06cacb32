"""Trees over rows that are not in the memory of this process: in a file, or on the workers of a cluster.

The cells of the first levels are split by passes over all rows, one for each level, of which only a number for each row
comes here: its product with the direction of its cell. Once a cell is small enough, its rows are brought together, and
the rest of its tree is grown by whoever has them. The tree has the same bits as that of the same rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels import Kernel
from ..sources.rows_file import RowsFile
from .blocks import Hierarchy, draw_pivots
from .tree import ROOT, Cut, Cutter, assemble, pieces, scaled_factors, subdivide

Array = NDArray[Any]


class Cell(NamedTuple):
    """A cell of a tree: its path, and where its rows are in the order of the tree."""

    path: int
    start: int
    stop: int


class SpreadRows(Protocol):
    """Rows of which a process sees some at a time."""

    shape: tuple[int, int]

    def take(self, indices: Any) -> Array:
        """Return the rows at some numbers."""

    def project(self, cells: Array, directions: Array) -> Array:
        """Return the product of each row with the direction of its cell; rows of cell -1 are left out."""


class RowsInFile:
    """Rows in a file as `SpreadRows`."""

    def __init__(self, rows: RowsFile) -> None:
        self.rows, self.shape = rows, rows.shape

    def take(self, indices: Any) -> Array:
        return self.rows.take(indices)

    def project(self, cells: Array, directions: Array) -> Array:
        out = np.empty(len(cells))
        for at in pieces(*self.shape):
            out[at] = project_block(self.rows[at], cells[at], directions)
        return out


def project_block(X: Array, cells: Array, directions: Array) -> Array:
    """Return the products of rows with the directions of their cells, and 0 for rows of cell -1."""
    out = np.zeros(len(X))
    some = np.flatnonzero(cells >= 0)
    out[some] = np.einsum("ij,ij->i", X[some], directions[cells[some]])
    return out


def grow_top(rows: SpreadRows, how: Cutter, most: int) -> tuple[dict[int, Cut], Array, list[Cell]]:
    """Split cells of more than `most` rows.

    Returns
    -------
    cuts : dict
        By path.
    order : ndarray of shape (n,)
        Numbers of the rows, those of each cell in increasing order.
    cells : list of Cell
        The cells that are left, in the order of the tree.
    """
    n = rows.shape[0]
    order = np.arange(n)
    cuts: dict[int, Cut] = {}
    waiting, done = [Cell(ROOT, 0, n)], list[Cell]()
    while waiting:
        large: list[Cell] = []
        for cell in waiting:
            (large if cell.stop - cell.start > max(most, how.leaf_size) else done).append(cell)
        cuts.update(_cut_level(rows, order, large, how))
        waiting = [child for cell in large for child in _children(cell, cuts[cell.path])]
    return cuts, order, sorted(done, key=lambda cell: cell.start)


def _children(cell: Cell, cut: Cut) -> tuple[Cell, Cell]:
    middle = cell.start + cut.first
    return Cell(2 * cell.path, cell.start, middle), Cell(2 * cell.path + 1, middle, cell.stop)


def _cut_level(rows: SpreadRows, order: Array, cells: list[Cell], how: Cutter) -> dict[int, Cut]:
    """Split some cells at once, and bring `order` into that of their children."""
    tried = {}
    for cell in cells:
        members = order[cell.start : cell.stop]
        tried[cell] = how.candidates(cell.path, len(members), lambda at, members=members: rows.take(members[at]))  # type: ignore[misc]
    cuts: dict[int, Cut] = {}
    while tried:
        directions = {cell: next(one.directions, None) for cell, one in tried.items()}
        numbers = np.full(rows.shape[0], -1, dtype=np.int32)
        given = [cell for cell, direction in directions.items() if direction is not None]
        for number, cell in enumerate(given):
            numbers[order[cell.start : cell.stop]] = number
        products = rows.project(numbers, np.array([directions[cell] for cell in given])) if given else np.empty(0)
        for cell, direction in directions.items():
            members = order[cell.start : cell.stop]
            one = tried[cell]
            found = one.halves() if direction is None else one.cut(direction, products[members])
            if found is not None:
                cut, first = found
                order[cell.start : cell.stop] = np.r_[members[first], members[~first]]
                cuts[cell.path] = cut
                del tried[cell]
    return cuts


@dataclass(frozen=True, eq=False)
class StoredHierarchy(Hierarchy):
    """A hierarchy whose rows are in a file, in the order of the tree.

    X : RowsFile
    places : the pivots of each inner node, as numbers of rows in the order of the tree
    """

    places: Array

    def points(self, leaf: int) -> Array:
        return np.asarray(self.X[self.tree.leaf(leaf)], dtype=np.float64)

    def pivot_points(self, node: int) -> Array:
        return np.asarray(self.X[self.places[node]], dtype=np.float64)


def make_stored_hierarchy(
    kernel: Kernel, rows: RowsFile, *, leaf_size: int, rank: int, split: str, seed: int, most: int
) -> StoredHierarchy:
    """Make the hierarchy that `make_hierarchy` would make, of rows in a file, with at most `most` of them in memory.

    Its rows are written to another file, leaf by leaf. Memory takes some 30 bytes for each row beside.
    """
    n, d = rows.shape
    how = Cutter(split, seed, leaf_size, scaled_factors(d, kernel.scaling(d)))
    cuts, order, cells = grow_top(RowsInFile(rows), how, most)
    by_leaf = RowsFile(rows.shape, rows.dtype)
    for place, block in _runs(rows, order):
        by_leaf[place : place + len(block)] = block
    for path, start, stop in cells:
        X, inner = by_leaf[start:stop], np.arange(stop - start)
        subdivide(X, inner, path, how, cuts)
        by_leaf[start:stop] = X[inner]
        order[start:stop] = order[start:stop][inner]
    tree = assemble(cuts, n, d)
    pivots, places = draw_pivots(tree, order, rank, seed)
    return StoredHierarchy(kernel, by_leaf, tree, order, pivots, places)


def _runs(rows: RowsFile, order: Array) -> Iterator[tuple[int, Array]]:
    """Yield rows that are next to each other in the order of the tree, and the place of the first."""
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    for at in pieces(*rows.shape):
        block, places = rows[at], place[at]
        sorting = np.argsort(places, kind="stable")
        for run in np.split(sorting, np.flatnonzero(np.diff(places[sorting]) != 1) + 1):
            yield int(places[run[0]]), block[run]
