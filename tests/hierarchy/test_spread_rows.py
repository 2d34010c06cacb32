"""Trees over rows in a file: the same bits as in memory, whatever number of rows is in memory at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyrfalcon.hierarchy import SPLITS, factorise, make_hierarchy, make_stored_hierarchy
from gyrfalcon.kernels import Laplacian
from gyrfalcon.sources.rows_file import RowsFile
from gyrfalcon.testing import check_rows


def in_file(X: np.ndarray) -> RowsFile:
    rows = RowsFile(X.shape, X.dtype)
    rows[0 : len(X)] = X
    return rows


@settings(deadline=None)
@given(
    n=st.integers(1, 120),
    d=st.integers(1, 4),
    leaf_size=st.integers(1, 20),
    values=st.integers(1, 30),
    split=st.sampled_from(sorted(SPLITS)),
    most=st.integers(1, 130),
    narrow=st.booleans(),
)
def test_the_tree_is_that_of_rows_in_memory(
    n: int, d: int, leaf_size: int, values: int, split: str, most: int, narrow: bool
) -> None:
    X = np.random.default_rng(n).integers(0, values, (n, d)) / 7.0
    X = X.astype(np.float32 if narrow else np.float64)
    sizes = {"leaf_size": leaf_size, "rank": 1 + leaf_size // 3, "split": split, "seed": 5}
    wanted = make_hierarchy(Laplacian(1.0), X, **sizes)
    found = make_stored_hierarchy(Laplacian(1.0), in_file(X), **sizes, most=most)
    for name, value in wanted.tree.get_params().items():
        np.testing.assert_array_equal(found.tree.get_params()[name], value)
    np.testing.assert_array_equal(found.order, wanted.order)
    np.testing.assert_array_equal(found.pivots, wanted.pivots)
    for leaf in range(wanted.tree.n_leaves):
        np.testing.assert_array_equal(found.points(leaf), wanted.points(leaf))
    for node in range(len(wanted.tree.children)):
        np.testing.assert_array_equal(found.pivot_points(node), wanted.pivot_points(node))


def test_many_rows_are_sampled_for_directions_in_the_same_way() -> None:
    X = np.random.default_rng(0).standard_normal((9_000, 3)).astype(np.float32)
    sizes = {"leaf_size": 100, "rank": 20, "split": "principal", "seed": 1}
    wanted = make_hierarchy(Laplacian(1.0), X, **sizes)
    found = make_stored_hierarchy(Laplacian(1.0), in_file(X), **sizes, most=500)
    np.testing.assert_array_equal(found.tree.directions, wanted.tree.directions)
    np.testing.assert_array_equal(found.order, wanted.order)
    Y, noise = X[:, :1].astype(np.float64), np.full(len(X), 0.1)
    a, b = (factorise(one, Y, noise, n_threads=2, allocate=RowsFile) for one in (wanted, found))
    np.testing.assert_array_equal(a.coef, b.coef)
    np.testing.assert_array_equal(a.pivot_coef, b.pivot_coef)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_a_file(dtype: type) -> None:
    X = np.random.default_rng(0).standard_normal((301, 3)).astype(dtype)
    rows = in_file(X)
    check_rows(rows, X)
    np.testing.assert_array_equal(rows.mapped(), X)
    far = RowsFile((200_000, 2), dtype)  # rows that are far apart are read one by one
    far[0:200_000] = np.arange(400_000, dtype=dtype).reshape(-1, 2)
    np.testing.assert_array_equal(far[np.array([199_999, 5, 6, 5])][:, 0], np.array([399_998, 10, 12, 10], dtype))
    with pytest.raises(MemoryError, match="TMPDIR"):
        RowsFile((1 << 50, 3), dtype)
