"""Intervals whose width follows the noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from short_search import Brief

import gyrfalcon
from gyrfalcon import AutoRegressor
from gyrfalcon.tables.spread import learn_spread


def noisy(n, seed):
    """Rows whose noise has a standard deviation from 0.1 to 1.1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    return X, 3 * X[:, 0] + (0.1 + X[:, 1]) * rng.standard_normal(n)


@pytest.fixture(scope="module")
def model():
    return AutoRegressor(600, families=("kernel",), random_state=0, callbacks=Brief(12)).fit(*noisy(1500, 0))


def test_widths_follow_the_noise(model):
    X, y = noisy(3000, 1)
    low, high = model.predict_interval(X, coverage=0.9).T
    covered, width = (low <= y) & (y <= high), high - low
    # 4 standard errors of 3,000 test rows, and as much for the calibration on 1,500
    assert 0.86 < covered.mean() < 0.94
    quiet, loud = X[:, 1] < 0.2, X[:, 1] > 0.8
    assert width[loud].mean() > 2 * width[quiet].mean()
    assert covered[quiet].mean() > 0.8
    assert covered[loud].mean() > 0.8


def test_quantiles_are_the_ends_of_intervals(model):
    X, _ = noisy(50, 2)
    found = model.predict_quantiles(X, [0.05, 0.5, 0.95])
    assert_array_equal(found[:, [0, 2]], model.predict_interval(X, coverage=0.9))
    assert_array_equal(found[:, 1], model.predict(X))
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_quantiles(X, [0.0])


def test_model_files_keep_them(model, tmp_path):
    X, _ = noisy(50, 2)
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))


def test_constant_noise_has_a_constant_width():
    rng = np.random.default_rng(0)
    assert learn_spread(rng.uniform(size=(2000, 2)), np.abs(rng.standard_normal(2000)), np.ones(5)) is None


def test_few_rows_have_a_constant_width():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100, 1))
    assert learn_spread(X, np.abs(rng.standard_normal(100)) * X[:, 0], np.ones(5)) is None
    assert learn_spread(X, np.zeros(100), np.ones(5)) is None


def test_the_scale_is_that_of_the_errors():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 2))
    spread = learn_spread(X, np.abs(rng.standard_normal(4000)) * np.exp(2 * X[:, 0]), np.ones(5))
    grid = np.column_stack([np.linspace(0.1, 0.9, 9), np.full(9, 0.5)])
    # half a 90% interval is 1.64 standard deviations
    assert_allclose(spread.width(grid, 0.9), 1.645 * np.exp(2 * grid[:, 0]), rtol=0.25)
