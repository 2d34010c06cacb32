"""Tuning by gradients: what is found, in which units, and for which models."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import gyrfalcon
from gyrfalcon import ExactRegressor, FalkonClassifier, FalkonRegressor, KernelPCA, NystromRegressor, tune
from gyrfalcon.kernels import Gaussian, Linear, Matern, RationalQuadratic


def data(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("objective", ["evidence", "complexity", "validation"])
def test_features_that_do_not_matter_get_long_scales(objective):
    X, y = data()
    T, u = data(seed=1)
    plain = NystromRegressor(Gaussian(1.0), n_centers=60, penalty=1e-3, random_state=0).fit(X, y)
    model = tune(plain, X, y, objective=objective, random_state=0)
    scales = model.kernel_.length_scale
    assert scales[2] > 5 * scales[0]
    assert model.score(T, u) > plain.score(T, u)
    values = [record["objective"] for record in model.tuning_history_]
    assert values[-1] < values[0]
    assert [record["iteration"] for record in model.tuning_history_] == list(range(1, len(values) + 1))


def test_the_noise_is_found_by_the_evidence():
    X, y = data()
    model = tune(NystromRegressor(n_centers=100, uncertainty=True, random_state=0), X, y, random_state=0)
    assert 0.08 < np.sqrt(model.noise_variance_) < 0.12  # 0.1 is true


def test_all_rows_have_the_last_word():
    X, y = data()
    model = tune(NystromRegressor(n_centers=40), X, y, sample_size=200, max_iter=20, max_iter_all=4, random_state=0)
    rows = [record["rows"] for record in model.tuning_history_]
    assert rows[0] == 200
    assert rows[-1] == 600
    few = tune(NystromRegressor(n_centers=40), X, y, sample_size=200, max_iter=5, max_iter_all=0, random_state=0)
    assert {record["rows"] for record in few.tuning_history_} == {200}


def test_length_scales_are_in_the_units_of_the_features():
    X, y = data()
    units = np.array([1000.0, 1.0, 0.01])
    settings = {"max_iter": 4, "random_state": 0}  # few, so that rounding is not amplified
    a = tune(NystromRegressor(n_centers=60, random_state=0), X, y, **settings)
    b = tune(NystromRegressor(n_centers=60, random_state=0), X * units, y, **settings)
    assert_allclose(b.kernel.length_scale, a.kernel.length_scale * units, rtol=1e-5)
    assert_allclose(b.predict(X * units), a.predict(X), rtol=1e-4, atol=1e-4)


def test_centers_can_be_tuned():
    X, y = data()
    fixed = tune(NystromRegressor(n_centers=12), X, y, random_state=0)
    moved = tune(NystromRegressor(n_centers=12), X, y, tune_centers=True, max_iter=80, random_state=0)
    assert moved.tuning_history_[-1]["objective"] < fixed.tuning_history_[-1]["objective"]
    assert moved.centers_.shape == (12, 3)


@pytest.mark.parametrize(
    "kernel", [RationalQuadratic(2.0, alpha=0.5), 0.5 * Gaussian(1.0) + Matern(3.0, nu=2.5)], ids=repr
)
def test_other_parameters_are_tuned(kernel):
    X, y = data()
    model = tune(FalkonRegressor(kernel, n_centers=60, random_state=0), X, y, max_iter=10, random_state=0)
    before = kernel.with_log_parameters(kernel.log_parameters(3), 3)
    assert repr(model.kernel) != repr(before)
    assert model.score(X, y) > 0.9


def test_weights_count():
    X, y = data()
    w = np.ones(600)
    w[300:] = 0
    spoiled = y.copy()
    spoiled[300:] = 100
    a = tune(NystromRegressor(n_centers=30, random_state=0), X, spoiled, sample_weight=w, random_state=0, max_iter=8)
    assert a.score(X[300:], y[300:]) > 0.8


def test_classes_and_exact_models(tmp_path):
    X, y = data()
    labels = np.where(y > 0, "up", "down")
    model = tune(FalkonClassifier(n_centers=60, random_state=0), X, labels, max_iter=10, random_state=0)
    assert model.score(X, labels) > 0.9
    model.save(tmp_path / "model.gyr")
    assert gyrfalcon.load(tmp_path / "model.gyr").tuning_history_ == model.tuning_history_
    exact = tune(ExactRegressor(random_state=0), X, y, max_iter=10, random_state=0)
    assert exact.score(X, y) > 0.9


def test_callbacks_stop_the_search():
    X, y = data()
    seen = []

    def watch(record):
        seen.append(record["iteration"])
        return len(seen) == 3

    model = tune(NystromRegressor(n_centers=30), X, y, callbacks=watch, random_state=0)
    assert seen == [1, 2, 3]
    assert len(model.tuning_history_) == 3


def test_errors_say_what_to_do():
    X, y = data(60)
    with pytest.raises(ValueError, match="no parameters that gradients can tune"):
        tune(NystromRegressor(Linear(), scale=False), X, y)
    with pytest.raises(ValueError, match="has no parameter penalty"):
        tune(KernelPCA(), X, y)
    with pytest.raises(TypeError, match="estimator of this library"):
        tune("falkon", X, y)
    with pytest.raises(ValueError, match="no parameter centers"):
        tune(ExactRegressor(), X, y, tune_centers=True)
    with pytest.raises(ValueError, match="objective='loss'"):
        tune(NystromRegressor(), X, y, objective="loss")
    with pytest.raises(MemoryError, match="max_iter_all=0"):
        tune(NystromRegressor(n_centers=50, memory_budget="10kB"), X, y)
