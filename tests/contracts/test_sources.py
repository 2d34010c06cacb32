"""Every source gives its rows in order, in blocks of any size, again and again."""

from __future__ import annotations

import numpy as np
import pytest

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian
from gyrfalcon.sources import Rows, RowsLike, as_rows
from gyrfalcon.testing import check_rows

from .market import BACKENDS, SOURCE_VALUES, SOURCES

pytestmark = pytest.mark.parametrize("name", SOURCES)


def test_says_what_it_is(name, tmp_path):
    source = SOURCES[name](tmp_path)
    assert isinstance(source, RowsLike)
    rows = as_rows(source)
    assert isinstance(rows, Rows)
    assert rows is source or name == "generated"
    assert as_rows(rows) is rows
    assert source.shape == (103, 4)
    assert source.dtype in (np.dtype(np.float32), np.dtype(np.float64))


def test_keeps_the_contract(name, tmp_path):
    check_rows(SOURCES[name](tmp_path), SOURCE_VALUES)


@pytest.mark.parametrize("size", [1, 7, 102, 103, 104, 1000])
def test_blocks_are_the_rows(name, size, tmp_path):
    source = SOURCES[name](tmp_path)
    for _ in range(2):
        blocks = list(source.blocks(size))
        assert [len(block) for block in blocks[:-1]] == [size] * (len(blocks) - 1)
        for block in blocks:
            assert block.dtype == source.dtype
            assert block.flags.c_contiguous
        np.testing.assert_array_equal(np.vstack(blocks), SOURCE_VALUES)


def test_two_readers_do_not_disturb_each_other(name, tmp_path):
    source = SOURCES[name](tmp_path)
    first, second = source.blocks(50), source.blocks(30)
    np.testing.assert_array_equal(next(first), SOURCE_VALUES[:50])
    np.testing.assert_array_equal(next(second), SOURCE_VALUES[:30])
    np.testing.assert_array_equal(next(first), SOURCE_VALUES[50:100])
    np.testing.assert_array_equal(next(second), SOURCE_VALUES[30:60])


def test_take(name, tmp_path):
    source = SOURCES[name](tmp_path)
    indices = np.array([102, 0, 5, 5, 1])
    taken = source.take(indices)
    assert taken.dtype == source.dtype
    assert taken.flags.c_contiguous
    np.testing.assert_array_equal(taken, SOURCE_VALUES[indices])


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
