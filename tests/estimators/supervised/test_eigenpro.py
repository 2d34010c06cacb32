"""EigenProRegressor: what the estimator adds to the solver."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

import gyrfalcon
from gyrfalcon import KernelOperator
from gyrfalcon.estimators import EigenProRegressor
from gyrfalcon.kernels import Gaussian, Laplacian
from gyrfalcon.solvers.eigenpro import eigenpro, top_eigensystem


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(400, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    return X[:300], y[:300], X[300:], y[300:]


@parametrize_with_checks([EigenProRegressor()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_is_the_solver(data):
    X, y, X_test, _ = data
    model = plain(EigenProRegressor, Laplacian(1.5), n_subsamples=100, max_iter=4, random_state=7).fit(X, y)
    rng = np.random.RandomState(7)
    operator = KernelOperator(Laplacian(1.5), X, X)
    system = top_eigensystem(operator, n_subsamples=100, random_state=rng)
    *_, last = eigenpro(operator, y, system, max_iter=4, random_state=rng)
    assert_allclose(model.dual_coef_, last.coef(), rtol=1e-12)
    assert_array_equal(model.centers_, X)
    assert_allclose(model.predict(X_test), Laplacian(1.5)(X_test, X) @ last.coef(), rtol=1e-9)
    assert (model.n_components_, model.batch_size_) == (system.n_components, system.batch_size)
    assert model.step_ == system.step(system.batch_size)
    assert [record["iteration"] for record in model.history_] == [1, 2, 3, 4]
    assert model.history_[-1]["residual"] == last.residual


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_interpolates(data, scale):
    X, y = data[0][:60], data[1][:60]
    model = plain(EigenProRegressor, Laplacian(0.3), max_iter=500, random_state=0).fit(X, scale * y)
    assert model.n_iter_ < 500  # tol=None: where more would not be seen
    assert_allclose(model.predict(X), scale * y, atol=1e-8 * scale)
    exact = np.linalg.solve(Laplacian(0.3)(X, X), scale * y)
    assert_allclose(model.dual_coef_, exact, atol=1e-7 * np.abs(exact).max())


def test_many_outputs_are_fitted_as_if_alone(data):
    X, y, X_test, _ = data
    both = plain(EigenProRegressor, "laplacian", random_state=0, max_iter=5).fit(X, np.column_stack([y, -3 * y]))
    alone = plain(EigenProRegressor, "laplacian", random_state=0, max_iter=5).fit(X, y)
    assert both.dual_coef_.shape == (300, 2)
    assert_allclose(both.predict(X_test), np.column_stack([1, -3]) * alone.predict(X_test)[:, None], rtol=1e-9)


def test_learns_better_than_plain_descent_in_as_many_epochs(data):
    X, y, X_test, y_test = data
    options = {"kernel": "gaussian", "batch_size": 50, "max_iter": 10, "random_state": 0}
    error = [
        np.sqrt(
            np.mean(np.square(plain(EigenProRegressor, n_components=q, **options).fit(X, y).predict(X_test) - y_test))
        )
        for q in (0, None)
    ]
    assert error[1] < 0.5 * error[0]


def test_stops_early_and_keeps_the_best(data):
    X, y, X_val, y_val = data
    noisy = y + 0.5 * np.random.default_rng(1).standard_normal(len(y))
    model = plain(
        EigenProRegressor, Laplacian(1.0), early_stopping=True, n_iter_no_change=3, max_iter=200, random_state=0
    )
    model.fit(X, noisy, X_val, y_val)
    errors = [record["validation_error"] for record in model.history_]
    assert model.n_iter_ == len(errors) < 200
    assert np.argmin(errors) == len(errors) - 4
    assert_allclose(np.sqrt(np.mean(np.square(model.predict(X_val) - y_val))), min(errors), rtol=1e-9)


def test_holds_out_rows_of_its_own(data):
    X, y, *_ = data
    model = plain(EigenProRegressor, early_stopping=True, validation_fraction=0.2, random_state=0, max_iter=5).fit(X, y)
    assert model.centers_.shape == (240, 2)
    assert "validation_error" in model.history_[0]


def test_is_the_same_each_time_and_for_any_number_of_threads(data):
    X, y, X_test, _ = data
    fits = [plain(EigenProRegressor, random_state=3, max_iter=3, n_jobs=jobs).fit(X, y) for jobs in (1, 2, None)]
    for model in fits[1:]:
        assert_array_equal(model.predict(X_test), fits[0].predict(X_test))
    other = plain(EigenProRegressor, random_state=4, max_iter=3).fit(X, y)
    assert not np.array_equal(other.predict(X_test), fits[0].predict(X_test))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_model_files(data, tmp_path, dtype):
    X, y, X_test, _ = data
    model = plain(EigenProRegressor, Laplacian(1.0), n_components=5, max_iter=3, random_state=0).fit(X.astype(dtype), y)
    model.save(tmp_path / "model")
    loaded = gyrfalcon.load(tmp_path / "model")
    assert type(loaded) is EigenProRegressor
    assert_array_equal(loaded.predict(X_test), model.predict(X_test))
    assert (loaded.n_components_, loaded.batch_size_, loaded.step_) == (5, model.batch_size_, model.step_)
    assert loaded.history_ == model.history_
    assert_array_equal(clone(loaded).fit(X.astype(dtype), y).dual_coef_, model.dual_coef_)
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X_test), model.predict(X_test))


def test_float32_stays_float32(data):
    X, y, *_ = data
    model = plain(EigenProRegressor, max_iter=2, random_state=0).fit(X.astype(np.float32), y)
    assert model.predict(X).dtype == np.float32
    assert model.centers_.dtype == np.float32


def test_no_sample_weights(data):
    X, y, *_ = data
    assert not has_fit_parameter(EigenProRegressor(), "sample_weight")
    with pytest.raises(TypeError, match="sample_weight"):
        plain(EigenProRegressor).fit(X, y, sample_weight=np.ones(len(y)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_subsamples": 0}, "n_subsamples=0 must be an integer of at least 1"),
        ({"n_components": -1}, "n_components=-1 must be an integer of at least 0"),
        ({"n_components": 2.5}, "n_components=2.5 must be"),
        ({"batch_size": 0}, "batch_size=0 must be"),
        ({"step": "long"}, "step='long' must be \"auto\" or"),
        ({"step": 0.0}, "step=0.0 must be"),
        ({"step": np.inf}, "step=inf must be"),
        ({"max_iter": 0}, "max_iter=0 must be"),
        ({"tol": -1.0}, "tol=-1.0 must be"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_parameters(data, options, words):
    with pytest.raises(ValueError, match=words):
        plain(EigenProRegressor, **options).fit(*data[:2])


def test_divergence_leaves_no_half_fitted_model(data):
    X, y, *_ = data
    model = plain(EigenProRegressor, step=1e6, random_state=0)
    with pytest.raises(FloatingPointError, match=r"diverges with step=1e\+06 .* choose a shorter one"):
        model.fit(X, y)
    assert not hasattr(model, "dual_coef_")


def test_says_when_it_has_not_converged(data):
    X, y, *_ = data
    with pytest.warns(ConvergenceWarning, match="after 2 epochs, above tol=1e-05"):
        plain(EigenProRegressor, max_iter=2, tol=1e-5, random_state=0).fit(X, y)


def test_eigenvectors_that_do_not_fit(data, monkeypatch):
    monkeypatch.setattr("gyrfalcon._utils.memory.available_memory", lambda: 10_000)
    with pytest.raises(MemoryError, match="n_subsamples=200 rows take 960 kB, and 10 kB are available"):
        plain(EigenProRegressor, n_subsamples=200).fit(*data[:2])


def test_more_of_everything_than_there_are_rows():
    X, y = np.array([[0.0], [1.0]]), np.array([1.0, 2.0])
    model = plain(EigenProRegressor, Laplacian(1.0), n_subsamples=50, n_components=40, batch_size=30, max_iter=300)
    assert_allclose(model.fit(X, y).predict(X), y, atol=1e-6)
    assert model.batch_size_ == 2
    assert model.n_components_ == 1
    assert_allclose(plain(EigenProRegressor).fit(X[:1] + 1, y[:1]).predict(X[:1] + 1), y[:1])


@pytest.mark.parametrize("n_components", [1, 2, 5])
def test_components_that_are_all_alike(n_components):
    """Of 200 standard normal features with a short length scale: no row is near another, and K is the identity."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((500, 200)), rng.standard_normal(500)
    model = plain(EigenProRegressor, Gaussian(0.5), n_components=n_components, random_state=0).fit(X, y)
    assert_allclose(model.predict(X), y, atol=1e-6)
    assert_allclose(model.predict(X + 10), 0, atol=1e-12)
    bare = plain(EigenProRegressor, Gaussian(0.5), n_components=0, random_state=0).fit(X, y)
    assert model.step_ / model.batch_size_ == pytest.approx(bare.step_ / bare.batch_size_, rel=1e-6)
