"""Samples of rows stand for all of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon._utils.sampling import draw_by_weight


@pytest.mark.parametrize("kind", ["equal", "spread", "rare", "zeros"])
def test_drawn_by_weight_without_bias(kind):
    rng = np.random.default_rng(0)
    weight = {
        "equal": np.ones(200),
        "spread": 10.0 ** rng.uniform(-6, 6, 200),
        "rare": np.where(rng.uniform(size=200) < 0.05, 1000.0, 1.0),
        "zeros": rng.integers(0, 2, 200).astype(float),
    }[kind]
    values, sums = rng.uniform(1, 2, 200), []
    for seed in range(300):
        rows, own = draw_by_weight(weight, 40, np.random.RandomState(seed))
        assert len(rows) == 40
        assert (np.diff(rows) > 0).all()
        assert (weight[rows] > 0).all()
        sums.append(own @ values[rows])
    spread = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - weight @ values) < 5 * spread + 1e-9 * (weight @ values)
    assert np.std(sums) < 0.1 * (weight @ values)


def test_few_rows_are_all_drawn():
    weight = np.array([3.0, 0.0, 1.0])
    rows, own = draw_by_weight(weight, 5, np.random.RandomState(0))
    assert_array_equal(rows, [0, 2])
    assert_allclose(own, [3.0, 1.0])
