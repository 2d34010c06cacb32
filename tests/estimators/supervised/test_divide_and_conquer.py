"""Divide and conquer against the average of dense solutions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon.estimators import DivideAndConquerRegressor, ExactRegressor, divide_and_conquer
from gyrfalcon.kernels import Gaussian

pytestmark = pytest.mark.filterwarnings("error")

KERNEL = Gaussian(1.2)


@parametrize_with_checks([DivideAndConquerRegressor()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def data(n=90, k=None):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    return X, y if k is None else np.stack([y * 10.0**j + j for j in range(k)], axis=1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("m", [1, 4, 30])
def test_the_average_of_exact_fits(m, k, weighted):
    X, y = data(k=k)
    w = np.random.default_rng(2).uniform(0.5, 2, size=90) if weighted else None
    model = plain(DivideAndConquerRegressor, KERNEL, n_partitions=m, penalty=1e-3, random_state=0).fit(
        X, y, sample_weight=w
    )
    assert model.n_iter_ == m
    # which rows are in which part is read off the centers
    order = [int(np.flatnonzero((center == X).all(axis=1))[0]) for center in model.centers_]
    assert sorted(order) == list(range(90))
    average = 0.0
    for part in np.array_split(order, m):
        fit = plain(ExactRegressor, KERNEL, penalty=1e-3).fit(
            X[part], y[part], sample_weight=None if w is None else w[part]
        )
        average = average + fit.predict(X) / m
    assert_allclose(model.predict(X), average, rtol=1e-9, atol=1e-10)
    sizes = [record["rows"] for record in model.history_]
    assert sum(sizes) == 90
    assert max(sizes) - min(sizes) <= 1


def test_one_part_is_exact():
    X, y = data()
    model = plain(DivideAndConquerRegressor, KERNEL, penalty=1e-3).fit(X, y)
    assert_allclose(
        model.predict(X), plain(ExactRegressor, KERNEL, penalty=1e-3).fit(X, y).predict(X), rtol=1e-8, atol=1e-9
    )


def test_default_parts(monkeypatch):
    X, y = data()
    monkeypatch.setattr(divide_and_conquer, "_LARGEST_PART", 40)
    model = plain(DivideAndConquerRegressor, KERNEL, random_state=0).fit(X, y)
    assert [record["rows"] for record in model.history_] == [30, 30, 30]


def test_better_than_a_part_and_close_to_the_whole():
    X, y = data(n=1200)
    truth = np.sin(2 * X[:, 0])
    whole, part, average = (
        np.mean((model.predict(X) - truth) ** 2)
        for model in (
            plain(ExactRegressor, KERNEL, penalty=1e-4).fit(X, y),
            plain(ExactRegressor, KERNEL, penalty=1e-4).fit(X[:300], y[:300]),
            plain(DivideAndConquerRegressor, KERNEL, penalty=1e-4, n_partitions=4, random_state=0).fit(X, y),
        )
    )
    assert average < 2 * whole
    assert average < 0.5 * part


def test_rows_of_weight_zero_are_in_no_part():
    X, y = data()
    w = np.where(np.arange(90) % 3, 1.0, 0.0)
    model = plain(DivideAndConquerRegressor, KERNEL, n_partitions=3, random_state=0).fit(X, y, sample_weight=w)
    without = plain(DivideAndConquerRegressor, KERNEL, n_partitions=3, random_state=0).fit(X[w > 0], y[w > 0])
    assert_allclose(model.predict(X), without.predict(X), rtol=1e-8)


def test_validation_error_is_that_of_the_average_so_far():
    X, y = data()
    X_val, y_val = X[:20] + 0.1, y[:20]
    model = plain(DivideAndConquerRegressor, KERNEL, n_partitions=3, random_state=0).fit(X, y, X_val=X_val, y_val=y_val)
    assert_allclose(model.history_[-1]["validation_error"], np.sqrt(np.mean((model.predict(X_val) - y_val) ** 2)))
    first = clone(model).set_params(callbacks=lambda record: True).fit(X, y, X_val=X_val, y_val=y_val)
    assert first.n_iter_ == 1
    assert len(first.centers_) == 30
    assert first.history_[0]["validation_error"] == model.history_[0]["validation_error"]
    assert_allclose(
        first.history_[0]["validation_error"], np.sqrt(np.mean((first.predict(X_val) - y_val) ** 2)), rtol=1e-9
    )


def test_float32_and_model_files(tmp_path):
    X, y = data(k=2)
    model = plain(DivideAndConquerRegressor, KERNEL, n_partitions=3, penalty=1e-3, random_state=0)
    single = clone(model).fit(X.astype(np.float32), y.astype(np.float32))
    assert single.centers_.dtype == np.float32
    assert_allclose(single.predict(X), model.fit(X, y).predict(X), rtol=2e-3, atol=2e-3)
    single.save(tmp_path / "model.safetensors")
    assert_array_equal(gyrfalcon.load(tmp_path / "model.safetensors").predict(X), single.predict(X))


def test_bad_input(monkeypatch):
    X, y = data()
    with pytest.raises(ValueError, match="n_partitions=91 must be at most the number of rows with positive weight, 90"):
        plain(DivideAndConquerRegressor, n_partitions=91).fit(X, y)
    with pytest.raises(ValueError, match="n_partitions=0 must be an integer of at least 1"):
        plain(DivideAndConquerRegressor, n_partitions=0).fit(X, y)
    with pytest.raises(ValueError, match="not positive"):
        plain(DivideAndConquerRegressor, lambda A, B: -KERNEL(A, B), n_partitions=3).fit(X, y)
    assert_allclose(plain(DivideAndConquerRegressor).fit(X[:1], y[:1]).predict(X[:1]), y[:1], rtol=1e-5)
    monkeypatch.setattr("gyrfalcon._utils.memory.available_memory", lambda: 10_000)
    with pytest.raises(MemoryError, match=r"45 x 45 numbers: 16.2 kB, and 10 kB are .* use more n_partitions"):
        plain(DivideAndConquerRegressor, n_partitions=2).fit(X, y)
    assert plain(DivideAndConquerRegressor, n_partitions=3, random_state=0).fit(X, y).n_iter_ == 3
