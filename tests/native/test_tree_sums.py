"""Sums of leaves: the native core against NumPy, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gyrfalcon import _core
from gyrfalcon.backends.trees import reference_sums, tree_sums

REFUSED = (TypeError, ValueError, RuntimeError)
NODES = ("feature", "threshold", "left", "right", "missing_left", "value")


def forest(n_trees, n_features, n_outputs, depth=4, seed=0):
    """Full binary trees with random splits and values."""
    rng = np.random.default_rng(seed)
    size = 2**depth - 1
    inner = np.arange(size) < 2 ** (depth - 1) - 1
    child = 2 * np.arange(size) + 1
    shift = np.repeat(np.arange(n_trees) * size, size)
    left = np.where(np.tile(inner, n_trees), np.tile(child, n_trees) + shift, -1).astype(np.int32)
    return SimpleNamespace(
        feature=rng.integers(0, n_features, n_trees * size).astype(np.int32),
        threshold=rng.standard_normal(n_trees * size),
        left=left,
        right=np.where(left < 0, -1, left + 1).astype(np.int32),
        missing_left=rng.random(n_trees * size) < 0.5,
        value=rng.standard_normal(n_trees * size),
        root=(np.arange(n_trees) * size).astype(np.int32),
        output=rng.integers(0, n_outputs, n_trees).astype(np.int32),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "n_trees", "n_outputs"), [(0, 3, 1), (1, 1, 1), (63, 7, 1), (65, 20, 3), (2500, 5, 2)])
def test_sums_of_leaves(n, n_trees, n_outputs, dtype):
    trees = forest(n_trees, 5, n_outputs)
    X = np.random.default_rng(1).standard_normal((n, 5)).astype(dtype)
    X[::3, 1] = np.nan
    if n:
        X[0, 0] = trees.threshold[0]  # equal to a threshold, if that is a number of this precision
    # sums of n_trees numbers in another order
    np.testing.assert_allclose(
        tree_sums(trees, X, n_outputs), reference_sums(trees, X, n_outputs), atol=1e-13 * n_trees
    )


def test_a_tree_of_one_leaf():
    leaf = forest(1, 1, 1, depth=1)
    np.testing.assert_array_equal(tree_sums(leaf, np.zeros((3, 1)), 1), np.full((3, 1), leaf.value[0]))


@pytest.mark.parametrize(
    ("name", "value"),
    [("left", 10_000), ("right", 0), ("feature", 5), ("feature", -1), ("root", 10_000), ("root", -1), ("output", 2)],
)
def test_indices_that_do_not_exist_are_refused(name, value):
    trees = forest(3, 5, 2)
    vars(trees)[name][0] = value
    with pytest.raises(ValueError, match=r"node|root|output|feature"):
        tree_sums(trees, np.zeros((2, 5)), 2)


@pytest.mark.parametrize("name", [*NODES, "root", "output", "X", "out"])
def test_arrays_of_another_length_or_type_are_refused(name):
    trees = forest(3, 5, 2)
    given = {**{one: vars(trees)[one] for one in NODES}, "root": trees.root, "output": trees.output}
    given |= {"X": np.zeros((4, 5)), "out": np.zeros((4, 2))}
    _core.tree_sums(*given.values())
    for changed in (given[name][:-1], given[name].astype(np.int64)):
        with pytest.raises(REFUSED):
            _core.tree_sums(*(given | {name: np.ascontiguousarray(changed)}).values())
