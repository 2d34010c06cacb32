"""Samples of rows stand for all of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon._utils import sampling
from gyrfalcon._utils.sampling import draw_by_weight

KINDS = ["equal", "spread", "rare", "zeros"]


def weights(kind):
    rng = np.random.default_rng(0)
    return {
        "equal": np.ones(200),
        "spread": 10.0 ** rng.uniform(-6, 6, 200),
        "rare": np.where(rng.uniform(size=200) < 0.05, 1000.0, 1.0),
        "zeros": rng.integers(0, 2, 200).astype(float),
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("many", [False, True])
def test_drawn_by_weight_without_bias(monkeypatch, kind, many):
    if many:  # as if the rows were very many, which are drawn part by part
        monkeypatch.setattr(sampling, "_PERMUTED", 100)
        monkeypatch.setattr(sampling, "_PART", 64)
    weight, rng = weights(kind), np.random.default_rng(1)
    values, sums, sizes = rng.uniform(1, 2, 200), [], []
    for seed in range(300):
        rows, own = draw_by_weight(weight, 40, np.random.RandomState(seed))
        sizes.append(len(rows))
        own = own * (weight.sum() / own.sum() if many else 1.0)  # as a fit does
        assert (np.diff(rows) > 0).all()
        assert (weight[rows] > 0).all()
        sums.append(own @ values[rows])
    spread = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - weight @ values) < 5 * spread + 1e-9 * (weight @ values)
    assert np.std(sums) < 0.1 * (weight @ values)
    if many:  # each row is drawn by itself
        assert abs(np.mean(sizes) - 40) < 5 * np.sqrt(40 / len(sizes))
    else:
        assert set(sizes) == {40}


def test_few_rows_are_all_drawn():
    weight = np.array([3.0, 0.0, 1.0])
    rows, own = draw_by_weight(weight, 5, np.random.RandomState(0))
    assert_array_equal(rows, [0, 2])
    assert_allclose(own, [3.0, 1.0])
