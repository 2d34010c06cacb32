"""Exact kernel least squares against its own formulas, in float64 and by the plainest route."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from scipy.linalg import solve
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.utils.estimator_checks import parametrize_with_checks
from variant_checks import parametrize_with_variant_checks

import gyrfalcon
from gyrfalcon.estimators import ExactRegressor
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.solvers import exact_path

pytestmark = pytest.mark.filterwarnings("error")

KERNEL = Gaussian(1.2)
SPLITS = "rows that are repeated may land on both sides of the split that early stopping makes, weighted ones cannot"


@parametrize_with_checks([ExactRegressor()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@parametrize_with_variant_checks(
    [
        ExactRegressor(penalties=[1e-3, 1e-1], choose_by="gcv"),
        ExactRegressor(method="least_squares"),
        ExactRegressor(method="early_stopping", step="auto"),
        ExactRegressor(method="early_stopping", step="auto", early_stopping=False, max_iter=50),
        ExactRegressor(method="gd", penalty=1e-2),
        ExactRegressor(method="nu"),
        ExactRegressor(method="nu", early_stopping=False, max_iter=30),
    ],
    expected_failed_checks=lambda estimator: (
        {"check_sample_weight_equivalence_on_dense_data": SPLITS}
        if estimator.method in ("early_stopping", "nu") and estimator.early_stopping
        else {}
    ),
)
def test_scikit_learn_checks_of_variants(estimator, check):
    check(estimator)


def data(n=80, d=2, k=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    return X, y if k is None else np.stack([y * 10.0**j + j for j in range(k)], axis=1)


def weights(n=80):
    return np.random.default_rng(5).integers(0, 4, size=n)


# ---- ridge -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [None, 1, 3])
@pytest.mark.parametrize("penalty", [1e-6, 1e-3, 1.0])
def test_ridge_is_the_dense_solution(penalty, k):
    X, y = data(k=k)
    n = len(X)
    model = plain(ExactRegressor, KERNEL, penalty=penalty).fit(X, y)
    assert_allclose(model.dual_coef_, solve(KERNEL(X, X) + penalty * n * np.eye(n), y), rtol=1e-6, atol=1e-9)
    assert model.dual_coef_.shape == y.shape
    assert model.penalty_ == penalty
    assert_array_equal(model.centers_, X)
    peer = KernelRidge(kernel="rbf", gamma=1 / (2 * 1.2**2), alpha=penalty * n).fit(X, y)
    assert_allclose(model.predict(X[:9] + 0.1), peer.predict(X[:9] + 0.1), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", ["ridge", "least_squares", "early_stopping"])
def test_weighted_rows_are_repeated_rows(method):
    X, y = data()
    w = weights()
    penalty = 1e-2 if method == "ridge" else "auto"
    model = plain(
        ExactRegressor, Linear() + Gaussian(), method=method, penalty=penalty, early_stopping=False, max_iter=30
    )
    weighted = clone(model).fit(X, y, sample_weight=w)
    repeated = clone(model).fit(X.repeat(w, axis=0), y.repeat(w))
    assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-4, atol=1e-4)
    assert len(weighted.centers_) == np.count_nonzero(w)


@pytest.mark.parametrize("choose_by", ["validation", "gcv", "loo"])
def test_penalties_give_what_each_alone_gives(choose_by):
    X, y = data(k=2)
    X_val, y_val = data(k=2, seed=1)
    penalties = np.logspace(-8, 0, 5)
    w = weights()
    model = plain(ExactRegressor, KERNEL, penalties=penalties, choose_by=choose_by)
    model.fit(X, y, sample_weight=w, X_val=X_val, y_val=y_val)
    assert [record["penalty"] for record in model.history_] == list(penalties)
    for record in model.history_:
        alone = plain(ExactRegressor, KERNEL, penalty=record["penalty"]).fit(
            X, y, sample_weight=w, X_val=X_val, y_val=y_val
        )
        assert_allclose(record["validation_error"], alone.history_[0]["validation_error"], rtol=1e-6)
    errors = [record[f"{choose_by}_error"] for record in model.history_]
    assert model.penalty_ == penalties[np.argmin(errors)]
    best = plain(ExactRegressor, KERNEL, penalty=model.penalty_).fit(X, y, sample_weight=w)
    assert_allclose(model.predict(X_val), best.predict(X_val), rtol=1e-6, atol=1e-8)


def test_errors_of_the_path_are_what_they_say():
    X, y = data(n=40)
    n = len(X)
    K = KERNEL(X, X)
    for penalty in (1e-5, 1e-2):
        H = K @ np.linalg.inv(K + penalty * n * np.eye(n))
        loo = plain(ExactRegressor, KERNEL, penalties=[penalty]).fit(X, y).history_[0]
        gcv = plain(ExactRegressor, KERNEL, penalties=[penalty], choose_by="gcv").fit(X, y).history_[0]
        assert_allclose([loo["df"], gcv["df"]], np.trace(H), rtol=1e-8)
        assert_allclose(gcv["gcv_error"], np.sqrt(np.mean((y - H @ y) ** 2)) / (1 - np.trace(H) / n), rtol=1e-6)
        # n - 1 rows with the same mu: mu = lambda n stays as it is when a row is left out
        peer = KernelRidge(kernel="rbf", gamma=1 / (2 * 1.2**2), alpha=penalty * n)
        left_out = cross_val_predict(peer, X, y, cv=LeaveOneOut())
        assert_allclose(loo["loo_error"], np.sqrt(np.mean((y - left_out) ** 2)), rtol=1e-6)


def test_weighted_leave_one_out():
    X, y = data(n=30)
    w = np.random.default_rng(1).uniform(0.1, 2.0, size=30)
    w /= w.mean()
    K, mu = KERNEL(X, X), 1e-2 * 30
    errors = []
    for i in range(30):
        j = np.arange(30) != i
        alpha = np.linalg.solve(K[j][:, j] + mu * np.diag(1 / w[j]), y[j])
        errors.append(y[i] - K[i, j] @ alpha)
    model = plain(ExactRegressor, KERNEL, penalties=[1e-2]).fit(X, y, sample_weight=w)
    assert_allclose(model.history_[0]["loo_error"], np.sqrt(np.mean(w * np.square(errors))), rtol=1e-8)


def test_validation_holds_rows_out():
    X, y = data()
    model = plain(ExactRegressor, KERNEL, penalties=[1e-4, 1e-2], choose_by="validation", random_state=0).fit(X, y)
    assert len(model.centers_) == 64
    # given rows are what None chooses by
    given = plain(ExactRegressor, KERNEL, penalties=[1e-4, 1e-2]).fit(X, y, X_val=X[:9], y_val=y[:9])
    assert "loo_error" not in given.history_[0]
    assert len(given.centers_) == 80


def test_the_noisier_the_larger_the_penalty():
    X, y = data(n=200)
    noise = 3 * np.random.default_rng(3).standard_normal(200)
    penalties = np.logspace(-8, 0, 17)
    clean = plain(ExactRegressor, KERNEL, penalties=penalties).fit(X, np.sin(2 * X[:, 0]))
    noisy = plain(ExactRegressor, KERNEL, penalties=penalties).fit(X, y + noise)
    assert clean.penalty_ < 1e-4 < noisy.penalty_


# ---- least squares ---------------------------------------------------------------------------------------------------


def test_least_squares_is_the_pseudo_inverse():
    X, y = data(n=30, k=2)
    X = np.vstack([X, X[:10]])  # singular
    y = np.vstack([y, y[:10] + 1])
    kernel = Gaussian(0.3)
    model = plain(ExactRegressor, kernel, method="least_squares").fit(X, y)
    assert_allclose(model.dual_coef_, np.linalg.pinv(kernel(X, X), hermitian=True) @ y, rtol=1e-7, atol=1e-7)
    # rows that are there twice have the mean of their targets, all others their own
    assert_allclose(model.predict(X[:10]), y[:10] + 0.5, rtol=1e-6)
    assert_allclose(model.predict(X[10:30]), y[10:30], rtol=1e-6)
    assert_allclose(model.history_[0]["df"], 30, rtol=1e-6)


def test_least_squares_of_a_low_rank_kernel_is_ordinary_least_squares():
    X, y = data(n=60, d=3)
    model = plain(ExactRegressor, Linear(), method="least_squares").fit(X, y)
    assert_allclose(model.predict(X), X @ np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-7, atol=1e-9)


# ---- early stopping --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [None, 0.7])
def test_early_stopping_follows_the_textbook(step):
    X, y = data(k=2)
    n, K = len(X), KERNEL(X, X)
    w = weights() / weights().mean()
    gamma = 1.0 if step is None else step  # the largest k(x, x) is 1
    model = plain(ExactRegressor, KERNEL, method="early_stopping", step=step, max_iter=25, early_stopping=False)
    model.fit(X, y, sample_weight=w)
    alpha = np.zeros_like(y)
    for _ in range(25):
        alpha = alpha - gamma / n * (w[:, None] * (K @ alpha - y))
    kept = w > 0
    # the weights' mean is over rows that count, and so is n
    assert_allclose(model.dual_coef_, alpha[kept], rtol=1e-8)
    assert model.n_iter_ == 25


def test_early_stopping_stops_by_the_papers_rule():
    X, y = data(n=150)
    X_val, y_val = data(n=100, seed=1)
    model = plain(ExactRegressor, KERNEL, method="early_stopping", max_iter=5000, min_decrease=1e-3)
    model.fit(X, y, X_val=X_val, y_val=y_val)
    errors = [record["validation_error"] for record in model.history_]
    falls = [1 - after / before for before, after in pairwise(errors)]
    assert min(falls[:-1]) > 1e-3
    assert falls[-1] <= 1e-3
    assert model.n_iter_ == len(errors) < 5000
    assert_allclose(np.sqrt(np.mean((model.predict(X_val) - y_val) ** 2)), min(errors), rtol=1e-9)


def test_early_stopping_needs_no_memory(monkeypatch):
    X, y = data()
    model = plain(ExactRegressor, KERNEL, method="early_stopping", max_iter=5, early_stopping=False)
    kept = clone(model).fit(X, y)
    monkeypatch.setattr("gyrfalcon._utils.memory.available_memory", lambda: 1000)
    assert_allclose(clone(model).set_params(memory_budget=0).fit(X, y).dual_coef_, kept.dual_coef_, rtol=1e-12)


# ---- all of them -----------------------------------------------------------------------------------------------------

EACH = pytest.mark.parametrize(
    "model",
    [
        plain(ExactRegressor, KERNEL, penalty=1e-3),
        plain(ExactRegressor, KERNEL, penalties=[1e-3, 1e-2]),
        plain(ExactRegressor, KERNEL, method="pcg", penalty=1e-3, random_state=0),
        plain(ExactRegressor, Gaussian(0.05), method="least_squares"),
        plain(ExactRegressor, KERNEL, method="early_stopping", random_state=0, max_iter=50),
    ],
    ids=["ridge", "penalties", "pcg", "least squares", "early stopping"],
)


@EACH
def test_float32(model):
    X, y = data()
    single = clone(model).fit(X.astype(np.float32), y.astype(np.float32))
    double = clone(model).fit(X, y)
    assert single.centers_.dtype == np.float32
    assert single.predict(X.astype(np.float32)).dtype == np.float32
    assert_allclose(single.predict(X), double.predict(X), rtol=2e-3, atol=2e-3)


@EACH
def test_saved_and_loaded(model, tmp_path):
    X, y = data(k=2)
    model = clone(model).fit(X, y)
    model.save(tmp_path / "model.safetensors")
    loaded = gyrfalcon.load(tmp_path / "model.safetensors")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.history_ == model.history_


@EACH
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_targets_of_any_size(model, size):
    X, y = data()
    expected = clone(model).fit(X, y).predict(X)
    assert_allclose(clone(model).fit(X, y * size).predict(X) / size, expected, rtol=1e-6, atol=1e-9)


@EACH
def test_one_row(model):
    if model.method == "early_stopping":
        with pytest.raises(ValueError, match="hold out for validation, with n_samples=1"):
            clone(model).fit([[1.0]], [2.0])
        model = clone(model).set_params(early_stopping=False)
    assert_allclose(clone(model).fit([[1.0]], [2.0]).predict([[1.0]]), 2.0, rtol=0.05)


@EACH
def test_not_finite(model):
    X, y = data()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        clone(model).fit(X, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        clone(model).fit(data()[0], np.where(np.arange(80) == 3, np.nan, y))


@EACH
def test_history_and_callbacks(model):
    X, y = data()
    seen = []
    fitted = clone(model).set_params(callbacks=seen.append).fit(X, y)
    assert seen == fitted.history_
    assert fitted.n_iter_ == len(seen) == seen[-1]["iteration"]
    assert all(record["seconds"] >= 0 for record in seen)


def not_positive(A, B):
    return -np.exp(-np.square(A[:, None] - B[None]).sum(axis=2))


@EACH
def test_kernel_that_is_not_positive(model):
    X, y = data()
    model = clone(model).set_params(kernel=not_positive, early_stopping=False, max_iter=5000)
    with pytest.raises((ValueError, FloatingPointError), match="not positive"):
        model.fit(X, y)
    assert not hasattr(model, "dual_coef_")


def test_a_penalty_of_zero_and_rows_that_are_there_twice():
    X, y = data(n=40)
    X, y = np.vstack([X, X]), np.concatenate([y, y + 1])
    model = plain(ExactRegressor, Gaussian(0.3), penalty=0.0).fit(X, y)
    assert_allclose(model.predict(X), (np.concatenate([y[:40], y[:40]]) + 0.5), atol=1e-4)


def test_too_little_memory(monkeypatch):
    X, y = data()
    monkeypatch.setattr("gyrfalcon._utils.memory.available_memory", lambda: 10_000)
    message = '51.2 kB, and 10 kB are available: 35 rows would fit; use method="pcg" or FalkonRegressor'
    with pytest.raises(MemoryError, match=message):
        plain(ExactRegressor).fit(X, y)
    with pytest.raises(MemoryError, match="154 kB"):
        plain(ExactRegressor, method="least_squares").fit(X, y)
    with pytest.raises(MemoryError, match="154 kB"):
        plain(ExactRegressor, penalties=[1.0]).fit(X, y)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_step_that_diverges(early_stopping):
    X, y = data()
    model = plain(ExactRegressor, KERNEL, method="early_stopping", step=100.0, early_stopping=early_stopping)
    with pytest.raises(FloatingPointError, match=r"diverges with step=100, where the largest stable step is about \d"):
        model.fit(X, y)
    assert (
        plain(ExactRegressor, KERNEL, method="early_stopping", step="auto", random_state=0).fit(X, y).score(X, y) > 0.5
    )


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"method": "lasso"}, "method='lasso' must be one of 'ridge', 'pcg', 'askotch', 'gd', 'least_squares'"),
        ({"penalties": []}, r"penalties=\[\] must be None or a list of at least one"),
        ({"penalties": [1e-3, -1e-3]}, "none negative"),
        ({"penalties": [np.nan]}, "finite"),
        ({"penalties": 1e-3}, "list"),
        ({"penalties": "many"}, "list"),
        ({"choose_by": "aic"}, "choose_by='aic' must be one of None, 'validation', 'cv', 'gcv', 'loo'"),
        ({"choose_by": "cv"}, 'choose_by="cv" is for method="pcg", not for method=\'ridge\''),
        ({"method": "pcg", "choose_by": "loo"}, "choose_by='loo' needs the n x n matrix"),
        ({"method": "pcg", "cv": 1}, "cv=1 must be an integer of at least 2"),
        ({"method": "pcg", "tol": -1.0}, "tol=-1.0"),
        ({"method": "pcg", "n_centers": 0}, "n_centers=0"),
        ({"penalty": -1.0}, "penalty=-1.0"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"step": -1.0}, 'step=-1.0 must be None, "auto" or'),
        ({"step": "long"}, "step='long' must be"),
        ({"min_decrease": 1.0}, "min_decrease=1.0"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0"),
    ],
)
def test_parameters_that_make_no_sense(parameters, match):
    X, y = data()
    with pytest.raises(ValueError, match=match):
        plain(ExactRegressor, **parameters).fit(X, y)


def test_nothing_of_an_earlier_fit_is_left():
    X, y = data()
    model = plain(ExactRegressor, KERNEL, penalty=1e-3).fit(X, y)
    assert model.penalty_ == 1e-3
    model.set_params(method="early_stopping", penalty="auto", max_iter=3, random_state=0).fit(X, y)
    assert not hasattr(model, "penalty_")


def test_path_of_zeros():
    path = exact_path(np.zeros((3, 3)), np.ones(3))
    assert_array_equal(path.coefficients(0.0), 0)
    assert_array_equal(path.degrees_of_freedom([0.0, 1.0]), 0)
