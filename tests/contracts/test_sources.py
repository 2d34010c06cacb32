"""Every source gives its rows in order, in blocks of any size, again and again."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian
from gyrfalcon.sources import Rows, RowsLike, as_rows
from gyrfalcon.sources.base import DerivedRows
from gyrfalcon.testing import check_rows

from .market import BACKENDS, SOURCE_VALUES, SOURCES

pytestmark = pytest.mark.parametrize("name", SOURCES)


def dense(block):
    return block.toarray() if scipy.sparse.issparse(block) else block


def test_says_what_it_is(name, tmp_path):
    source = SOURCES[name](tmp_path)
    assert isinstance(source, RowsLike)
    rows = as_rows(source)
    assert isinstance(rows, Rows)
    assert rows is source or name == "generated"
    assert as_rows(rows) is rows
    assert source.shape == (103, 4)
    assert source.dtype in (np.dtype(np.float32), np.dtype(np.float64))


def test_derived_rows_are_as_slow_and_as_large_as_their_source(name, tmp_path):
    source = as_rows(SOURCES[name](tmp_path))
    if not isinstance(source, DerivedRows):
        pytest.skip("not made of other rows")
    assert source.slow_to_read == source.rows.slow_to_read
    assert source.buffer_bytes == source.rows.buffer_bytes
    assert (source.buffer_bytes > 0) == name.startswith("encoded")


def test_keeps_the_contract(name, tmp_path):
    """Blocks of every size, again and again, readers beside each other, and rows by their numbers."""
    check_rows(SOURCES[name](tmp_path), SOURCE_VALUES)


def test_blocks_from_a_row(name, tmp_path):
    rows = as_rows(SOURCES[name](tmp_path))
    for start in (0, 40, 100):
        blocks = [dense(block) for block in rows.blocks_from(20, start)]
        assert [len(block) for block in blocks] == [min(20, 103 - at) for at in range(start, 103, 20)]
        np.testing.assert_array_equal(np.concatenate(blocks), SOURCE_VALUES[start:])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("budget", [0, "1GB"])
def test_operator(name, backend, budget, tmp_path):
    source = SOURCES[name](tmp_path)
    kernel = Gaussian(60.0)
    centers = source.take(np.arange(0, 103, 5))
    K = kernel(SOURCE_VALUES, centers)
    V = np.random.default_rng(0).standard_normal((len(centers), 2))
    operator = KernelOperator(kernel, source, centers, backend=backend, memory_budget=budget)
    rtol = 1e-5 if source.dtype == np.float32 else 1e-12
    for _ in range(2):
        atol = rtol * np.abs(K.T @ (K @ V)).max()
        np.testing.assert_allclose(operator.sandwich(V), K.T @ (K @ V), rtol=rtol, atol=atol)
        np.testing.assert_allclose(operator.matmat(V), K @ V, rtol=rtol, atol=rtol * np.abs(K @ V).max())
