"""Sums over many rows: in parts, without a copy of all in float64, and with bits that BLAS has no say in."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import threadpoolctl

from gyrfalcon._utils import statistics
from gyrfalcon._utils.sampling import draw
from gyrfalcon._utils.statistics import average, means, quantiles, sums

N = 200_000  # some parts, the last of them not whole


@pytest.fixture(scope="module")
def y():
    return (np.random.default_rng(0).standard_normal((N, 2)) + np.array([3.0, -1e4])).astype(np.float32)


@pytest.fixture(scope="module")
def weight():
    return np.random.default_rng(1).random(N).astype(np.float32)


def test_sums_of_many_parts(y, weight):
    exact, w = y.astype(np.float64), weight.astype(np.float64)[:, None]
    for of in (np.copy, np.square):
        np.testing.assert_allclose(sums(y, None, of), of(exact).sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(sums(y, weight, of), (w * of(exact)).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(average(y, weight), (w * exact).sum(axis=0) / w.sum(), rtol=1e-12)
    np.testing.assert_allclose(means(y, weight), average(y, weight), rtol=1e-12)


def test_the_order_in_memory_and_threads_of_blas_do_not_matter(y, weight):
    found = []
    for n_threads in (1, 2):
        with threadpoolctl.threadpool_limits(n_threads, user_api="blas"):
            found += [sums(y, weight), sums(np.asfortranarray(y), weight)]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_no_copy_of_all_rows():
    many = np.ones((2_000_000, 1), dtype=np.float32)
    tracemalloc.start()
    try:
        assert average(many, None, np.square) == 1
        assert tracemalloc.get_traced_memory()[1] < many.nbytes / 2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("n", [1000, 10**7], ids=["permuted", "many"])
def test_rows_are_drawn_uniformly_and_once(n):
    rng, size = np.random.RandomState(0), 500
    places = []
    for _ in range(40):
        drawn = draw(n, size, rng)
        assert drawn.dtype == np.intp
        assert (np.diff(drawn) > 0).all()
        assert drawn[0] >= 0
        assert drawn[-1] < n
        places.append(drawn.mean() / n)
    # the mean of 20,000 places, whose deviation is at most sqrt(1 / 12)
    assert abs(np.mean(places) - 0.5) < 5 * np.sqrt(1 / 12 / 20_000)


def test_what_is_drawn_twice_is_drawn_again(monkeypatch):
    monkeypatch.setattr("gyrfalcon._utils.sampling._PERMUTED", 0)
    counts = np.zeros(12)
    for seed in range(2000):
        drawn = draw(12, 6, np.random.RandomState(seed))
        assert len(set(drawn)) == 6
        counts[drawn] += 1
    # each of 2,000 draws takes a row with probability 1/2
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(2000 / 4)


def test_many_are_drawn_without_a_permutation():
    tracemalloc.start()
    try:
        draw(10**7, 100_000, np.random.RandomState(0))
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("rounded", [False, True])
def test_weighted_quantiles_are_counted_as_they_are_sorted(monkeypatch, y, weight, rounded):
    y = np.round(y[:20_001], 1) if rounded else y[:20_001]
    whole, level = 0.5 + np.round(weight[: len(y)], 1), [0.05, 0.7]
    sorted_first = quantiles(y, level, whole), quantiles(y, 0.5, whole, np.array([3.0, -1e4]))
    monkeypatch.setattr(statistics, "_MANY", 1_000)
    monkeypatch.setattr(statistics, "_PART", 999)
    np.testing.assert_array_equal(quantiles(y, level, whole), sorted_first[0])
    np.testing.assert_array_equal(quantiles(y, 0.5, whole, np.array([3.0, -1e4])), sorted_first[1])
    heavy = np.where(np.arange(len(y)) == 17, 1e6, 1.0)
    np.testing.assert_array_equal(quantiles(y, [0.0, 1.0], heavy), [y[:, 0].min(), y[:, 1].max()])
    np.testing.assert_array_equal(quantiles(y, 0.5, heavy), y[17])
