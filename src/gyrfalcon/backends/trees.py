"""Sums of the leaves of regression trees: native, and in NumPy."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._utils.threads import effective_n_jobs, share

Array = NDArray[Any]

_BLOCK = 200_000  # rows times trees whose nodes NumPy follows at once
_ROWS = 1_024  # rows that a thread takes at once


class Trees(Protocol):
    """The nodes of many trees, as `gyrfalcon.tables.tree_arrays.TreeArrays` has them."""

    @property
    def feature(self) -> Array: ...
    @property
    def threshold(self) -> Array: ...
    @property
    def left(self) -> Array: ...
    @property
    def right(self) -> Array: ...
    @property
    def missing_left(self) -> Array: ...
    @property
    def value(self) -> Array: ...
    @property
    def root(self) -> Array: ...
    @property
    def output(self) -> Array: ...


def tree_sums(trees: Trees, X: Array, n_outputs: int) -> Array:
    """Return the sums of the values of the leaves that rows reach, of shape (n, n_outputs), in float64.

    X has float32 or float64 numbers.
    """
    if os.environ.get("GYRFALCON_BACKEND") == "reference":
        return reference_sums(trees, X, n_outputs)
    try:
        from .. import _core
    except ImportError:
        return reference_sums(trees, X, n_outputs)
    rows = np.ascontiguousarray(X)
    sums = np.empty((len(rows), n_outputs))
    nodes = (trees.feature, trees.threshold, trees.left, trees.right, trees.missing_left, trees.value)
    blocks = [slice(start, start + _ROWS) for start in range(0, len(rows), _ROWS)]

    def add(block: slice) -> None:
        _core.tree_sums(*nodes, trees.root, trees.output, rows[block], sums[block])

    share(add, blocks, min(len(blocks), effective_n_jobs(None)) or 1)
    return sums


def reference_sums(trees: Trees, X: Array, n_outputs: int) -> Array:
    """Compute `tree_sums` in NumPy."""
    sums = np.zeros((len(X), n_outputs))
    size = max(1, _BLOCK // max(1, len(trees.root)))
    for start in range(0, len(X), size):
        leaves = _leaves(trees, X[start : start + size])
        for output in range(n_outputs):
            sums[start : start + size, output] = trees.value[leaves[:, trees.output == output]].sum(axis=1)
    return sums


def _leaves(trees: Trees, X: Array) -> Array:
    """Return the leaf of each row in each tree, of shape (n, n_trees)."""
    n, T = len(X), len(trees.root)
    leaves = np.tile(trees.root, n)
    row = np.repeat(np.arange(n), T)
    inside = np.flatnonzero(trees.left[leaves] >= 0)
    while len(inside):
        node = leaves[inside]
        x = X[row[inside], trees.feature[node]]
        with np.errstate(invalid="ignore"):
            goes_left = np.where(np.isnan(x), trees.missing_left[node], x <= trees.threshold[node])
        node = np.where(goes_left, trees.left[node], trees.right[node])
        leaves[inside] = node
        inside = inside[trees.left[node] >= 0]
    return np.asarray(leaves.reshape(n, T))
