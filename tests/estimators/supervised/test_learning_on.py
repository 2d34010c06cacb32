"""Models that learn on: batches added and taken away against refits with the same centers, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import gyrfalcon
from gyrfalcon import FalkonRegressor, NystromRegressor
from gyrfalcon.kernels import Gaussian, Laplacian

KERNEL = Gaussian(1.0)


def data(n=400, k=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = 100 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)
    return X, y if k is None else np.stack([y, -2 * y], axis=1), rng.uniform(0.5, 3.0, n)


def refit(model, X, y, w=None):
    """The model fitted at once to these rows, with the same centers and penalty."""
    fixed = clone(model).set_params(centers=model.centers_, n_centers=None, penalty=model.penalty_)
    return fixed.fit(X, y, w)


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_batches_give_the_fit_to_all_rows(k, weighted, intercept):
    X, y, w = data(k=k)
    w = w if weighted else None
    model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, fit_intercept=intercept, random_state=0)
    for start in range(0, 400, 40):
        at = slice(start, start + 40)
        model.partial_fit(X[at], y[at], None if w is None else w[at])
    assert model.n_samples_seen_ == 400
    assert_allclose(model.predict(X), refit(model, X, y, w).predict(X), rtol=1e-8)


def test_the_order_of_batches_does_not_matter():
    X, y, w = data()
    first = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0).partial_fit(X[:100], y[:100], w[:100])
    saved = first.running_sums_
    predictions = []
    for order in ([1, 2, 3], [3, 1, 2]):
        model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0)
        model.partial_fit(X[:100], y[:100], w[:100])
        for b in order:
            at = slice(100 * b, 100 * b + 100)
            model.partial_fit(X[at], y[at], w[at])
        predictions.append(model.predict(X))
    assert_allclose(*predictions, rtol=1e-9)
    assert first.running_sums_ is saved  # values do not change


@pytest.mark.parametrize("weighted", [False, True])
def test_what_was_forgotten_was_never_learnt(weighted):
    X, y, w = data()
    w = w if weighted else np.ones(400)
    model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, incremental=True, random_state=0)
    model.fit(X, y, w if weighted else None)
    model.forget(X[250:], y[250:], w[250:] if weighted else None)
    assert model.n_samples_seen_ == 250
    assert_allclose(model.predict(X), refit(model, X[:250], y[:250], w[:250]).predict(X), rtol=1e-8)


def test_falkon_updates_and_forgets():
    X, y, w = data()
    model = FalkonRegressor(Laplacian(2.0), n_centers=40, penalty=1e-4, incremental=True, random_state=0)
    model.fit(X[:200], y[:200], w[:200]).update(X[200:], y[200:], w[200:])
    whole = NystromRegressor(Laplacian(2.0), centers=model.centers_, penalty=1e-4)
    assert_allclose(model.predict(X), whole.fit(X, y, w).predict(X), rtol=1e-7)
    model.forget(X[200:], y[200:], w[200:])
    assert_allclose(model.predict(X), whole.fit(X[:200], y[:200], w[:200]).predict(X), rtol=1e-7)


def test_a_forgetting_factor_is_a_weight_of_earlier_rows():
    X, y, _ = data()
    model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0).partial_fit(X[:200], y[:200])
    model.partial_fit(X[200:], y[200:], forgetting_factor=0.25)
    w = np.repeat([0.25, 1.0], 200)
    assert_allclose(model.predict(X), refit(model, X, y, w).predict(X), rtol=1e-8)


def test_rows_of_weight_zero_are_ignored():
    X, y, _ = data()
    w = np.ones(100)
    w[::3] = 0
    spoiled = y[100:200].copy()
    spoiled[::3] = 1e9
    models = [NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0) for _ in range(2)]
    models[0].partial_fit(X[:100], y[:100]).partial_fit(X[100:200], spoiled, w)
    models[1].partial_fit(X[:100], y[:100]).partial_fit(X[100:200][w > 0], y[100:200][w > 0])
    assert_allclose(models[0].predict(X), models[1].predict(X), rtol=1e-12)
    assert models[0].n_samples_seen_ == models[1].n_samples_seen_


def test_new_centers_are_rows_that_the_centers_miss():
    X, y, _ = data()
    model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0).partial_fit(X[:200], y[:200])
    far, few = X[200:] + 8, X[200:]
    y_far = 100 + np.cos(far[:, 0])
    before = model.predict(X[:200])
    model.partial_fit(far, y_far, max_new_centers=60)
    assert 30 < len(model.centers_) <= 90
    assert model.history_[-1]["new_centers"] == len(model.centers_) - 30
    assert model.score(far, y_far) > 0.9
    assert_allclose(model.predict(X[:200]), before, atol=0.02 * y.std())  # earlier rows keep their values
    known = clone(model).partial_fit(few, y[200:])
    many = len(known.centers_)
    known.partial_fit(known.centers_, np.zeros(many), max_new_centers=9)
    assert len(known.centers_) == many  # nothing of the centers themselves is new


def test_features_with_new_centers_are_those_of_all_centers():
    """After an extension R R' is the inverse of the kernel matrix of all centers."""
    X, y, _ = data()
    model = NystromRegressor(KERNEL, n_centers=20, penalty=1e-5, random_state=0).partial_fit(X[:200], y[:200])
    model.partial_fit(X[200:] * 3, y[200:], max_new_centers=10)
    R = model.running_sums_.projection
    assert_allclose(R.T @ KERNEL(model.centers_, model.centers_) @ R, np.eye(R.shape[1]), atol=1e-7)


def test_history_has_the_error_before_each_batch():
    X, y, _ = data()
    model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0).partial_fit(X[:200], y[:200])
    expected = np.sqrt(np.mean((model.predict(X[200:]) - y[200:]) ** 2))
    model.partial_fit(X[200:], y[200:])
    assert model.history_[-1]["error_before"] == pytest.approx(expected, rel=1e-9)
    assert model.history_[-1]["rows"] == 200


def test_model_files_and_copies_learn_on(tmp_path):
    X, y, _ = data()
    model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0).partial_fit(X[:200], y[:200])
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    assert_array_equal(loaded.partial_fit(X[200:], y[200:]).predict(X), model.partial_fit(X[200:], y[200:]).predict(X))


def test_sparse_rows_and_sources(tmp_path):
    X, y, _ = data()
    X[np.abs(X) < 0.5] = 0
    dense, sparse = (NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0) for _ in range(2))
    S = scipy.sparse.csr_array(X)
    dense.partial_fit(X[:200], y[:200]).partial_fit(X[200:], y[200:])
    sparse.partial_fit(S[:200], y[:200]).partial_fit(S[200:], y[200:], max_new_centers=2)
    assert sparse.n_samples_seen_ == dense.n_samples_seen_
    np.save(tmp_path / "rows.npy", X[200:])
    filed = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0).partial_fit(X[:200], y[:200])
    filed.partial_fit(gyrfalcon.open(tmp_path / "rows.npy").X, y[200:])
    assert_allclose(filed.predict(X), dense.predict(X), rtol=1e-10)


def test_scales_of_the_first_batch_stay():
    X, y, _ = data()
    X = X * [1.0, 50.0, 0.01]
    model = NystromRegressor(n_centers=30, penalty=1e-5, random_state=0).partial_fit(X[:200], y[:200])
    mean = model.mean_.copy()
    model.partial_fit(X[200:], y[200:])
    assert_array_equal(model.mean_, mean)
    assert model.score(X, y) > 0.9


def test_errors_say_what_to_do():
    X, y, _ = data()
    fitted = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0).fit(X, y)
    with pytest.raises(AttributeError, match="partial_fit") as raised:
        fitted.partial_fit(X, y)
    assert "incremental=True" in str(raised.value.__cause__)
    with pytest.raises(ValueError, match="incremental=True"):
        fitted.forget(X, y)
    with pytest.raises(ValueError, match="incremental=True"):
        FalkonRegressor(KERNEL, n_centers=30, penalty=1e-5).fit(X, y).update(X, y)
    with pytest.raises(ValueError, match="ConformalRegressor"):
        NystromRegressor(incremental=True, uncertainty=True).fit(X, y)
    with pytest.raises(ValueError, match="squared loss"):
        FalkonRegressor(incremental=True, loss="huber").fit(X, y)
    model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0).partial_fit(X[:200], y[:200])
    before = model.predict(X)
    with pytest.raises(ValueError, match="at least one row must remain"):
        model.forget(X[:200], y[:200])
    with pytest.raises(ValueError, match="2 columns"):
        model.partial_fit(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.partial_fit(X[:, :2], y)
    with pytest.raises(ValueError, match="forgetting_factor=0"):
        model.partial_fit(X, y, forgetting_factor=0)
    with pytest.raises(ValueError, match="max_new_centers=-1"):
        model.partial_fit(X, y, max_new_centers=-1)
    assert_array_equal(model.predict(X), before)
    assert model.n_samples_seen_ == 200


def test_forgetting_nearly_everything_warns():
    X, y, _ = data()
    model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-13, random_state=0).partial_fit(X, y)
    with pytest.warns(RuntimeWarning, match="fit the rows that remain again"):
        model.forget(X[1:], y[1:])


def test_a_fit_drops_what_was_learnt_before():
    X, y, _ = data()
    model = NystromRegressor(KERNEL, n_centers=30, penalty=1e-5, random_state=0).partial_fit(X[:200], y[:200])
    model.fit(X[200:], y[200:])
    assert "running_sums_" not in vars(model)
