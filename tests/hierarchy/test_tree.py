"""Trees: every row in one leaf, leaves of bounded size, and splits along the features that count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyrfalcon.hierarchy import SPLITS, Tree, grow_tree, make_hierarchy
from gyrfalcon.kernels import Laplacian


@settings(deadline=None)
@given(
    n=st.integers(1, 80),
    d=st.integers(1, 4),
    leaf_size=st.integers(1, 20),
    values=st.integers(1, 30),
    split=st.sampled_from(sorted(SPLITS)),
)
def test_every_row_is_in_one_small_leaf(n: int, d: int, leaf_size: int, values: int, split: str) -> None:
    X = np.random.default_rng(n).integers(0, values, (n, d)).astype(np.float64)
    tree, order = grow_tree(X, leaf_size, split, seed=0)
    assert sorted(order) == list(range(n))
    sizes = np.diff(tree.starts)
    assert sizes.sum() == n
    assert 1 <= sizes.min() <= sizes.max() <= leaf_size
    _, first = np.unique(X, axis=0, return_index=True)
    if len(first) == n:  # equal rows may be in different leaves
        np.testing.assert_array_equal(tree.route(X[order]), np.repeat(np.arange(tree.n_leaves), sizes))


def test_splits_follow_the_length_scales_of_the_kernel() -> None:
    X = np.random.default_rng(0).standard_normal((500, 2))
    kernel = Laplacian(np.array([1e4, 1.0]))  # the first feature does not count
    for split in SPLITS:
        tree = make_hierarchy(kernel, X, leaf_size=50, rank=5, split=split, seed=0).tree
        assert np.abs(tree.directions[:, 0]).max() < 0.05 * np.abs(tree.directions[:, 1]).min()


def test_a_forged_tree_is_refused() -> None:
    tree, _ = grow_tree(np.arange(8.0)[:, None], 2, "axis", seed=0)
    values = tree.get_params()
    for name, wrong in (
        ("children", np.zeros_like(tree.children)),
        ("children", tree.children[::-1].copy()),
        ("starts", tree.starts[::-1].copy()),
        ("thresholds", np.full(3, np.nan)),
    ):
        with pytest.raises(ValueError):
            Tree(**(values | {name: wrong}))
