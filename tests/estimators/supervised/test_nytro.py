"""NYTRO against the paper's recursion, and its stopping rule."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from scipy.linalg import cholesky, solve_triangular
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from variant_checks import parametrize_with_variant_checks

import gyrfalcon
from gyrfalcon.estimators import NystromRegressor, NytroRegressor
from gyrfalcon.kernels import Gaussian, Linear

pytestmark = pytest.mark.filterwarnings("error")

KERNEL = 2.0 * Gaussian(0.8)
SPLITS = "rows that are repeated may land on both sides of the split that early stopping makes, weighted ones cannot"


@parametrize_with_checks(
    [NytroRegressor(step="auto", max_iter=100)],
    expected_failed_checks=lambda estimator: {
        f"check_sample_weight_equivalence_on_{kind}_data": SPLITS for kind in ("dense", "sparse")
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@parametrize_with_variant_checks([NytroRegressor(solver="cg", early_stopping=False, max_iter=20)])
def test_scikit_learn_checks_of_variants(estimator, check):
    check(estimator)


def data(n=150, k=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    return X, y if k is None else np.stack([y * 10.0**j + j for j in range(k)], axis=1)


def features(X, Z):
    """K R, with R R' = K_MM^-1."""
    return solve_triangular(cholesky(KERNEL(Z, Z), lower=True), KERNEL(Z, X), lower=True).T


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("step", [None, 0.3, "auto"])
def test_gradient_descent_follows_the_paper(step, weighted):
    X, y = data(k=2)
    n = len(X)
    w = np.random.default_rng(2).integers(0, 4, size=n) if weighted else np.ones(n)
    model = plain(NytroRegressor, KERNEL, n_centers=20, step=step, max_iter=12, early_stopping=False, random_state=0)
    model.fit(X, y, sample_weight=w if weighted else None)
    w = w / w.mean()
    A = features(X, model.centers_)
    # the paper's gamma is 1 / max k(x, x), and that is 2 here
    gamma = {None: 0.5, 0.3: 0.3, "auto": n / np.linalg.eigvalsh(A.T * w @ A)[-1]}[step]
    beta = np.zeros((20, 2))
    for _ in range(12):
        beta = beta - gamma / n * (A.T @ (w[:, None] * (A @ beta - y)))
    assert_allclose(model.predict(X), A @ beta, rtol=1e-2 if step == "auto" else 1e-8, atol=1e-8)
    assert model.n_iter_ == 12


def test_conjugate_gradient_is_best_in_its_krylov_space():
    X, y = data()
    model = plain(NytroRegressor, KERNEL, n_centers=20, solver="cg", max_iter=4, early_stopping=False, random_state=0)
    model.fit(X, y)
    A = features(X, model.centers_)
    b, G = A.T @ y, A.T @ A
    krylov = np.linalg.qr(np.stack([np.linalg.matrix_power(G, i) @ b for i in range(4)], axis=1))[0]
    best = A @ krylov @ np.linalg.lstsq(A @ krylov, y, rcond=None)[0]
    assert_allclose(model.predict(X), best, rtol=1e-5, atol=1e-6)


def test_mini_batches_follow_the_textbook():
    X, y = data(n=60)
    model = plain(
        NytroRegressor,
        KERNEL,
        centers=X[:10],
        solver="sgd",
        batch_size=25,
        max_iter=3,
        early_stopping=False,
        random_state=0,
    ).fit(X, y)
    A = features(X, X[:10])
    rng = np.random.RandomState(0)
    beta = np.zeros(10)
    for _ in range(3):
        order = rng.permutation(60)
        for i in range(0, 60, 25):
            I = order[i : i + 25]  # noqa: E741
            beta = beta - 0.5 / len(I) * A[I].T @ (A[I] @ beta - y[I])
    assert_allclose(model.predict(X), A @ beta, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("solver", ["gd", "cg", "sgd"])
def test_comes_to_least_squares(solver):
    X, y = data()
    t = {"cg": 30, "gd": 600, "sgd": 300}[solver]
    model = plain(
        NytroRegressor,
        KERNEL,
        n_centers=5,
        solver=solver,
        max_iter=t,
        batch_size=150,
        early_stopping=False,
        random_state=0,
    ).fit(X, y)
    A = features(X, model.centers_)
    assert_allclose(model.predict(X), A @ np.linalg.lstsq(A, y, rcond=None)[0], rtol=1e-3, atol=1e-3)


def test_iterations_are_a_penalty():
    # Theorem 5: t steps of length gamma are like the penalty 1 / (gamma t)
    X, y = data(n=400)
    truth = np.sin(2 * X[:, 0])
    for t in (20, 200):
        nytro = plain(NytroRegressor, KERNEL, n_centers=40, max_iter=t, early_stopping=False, random_state=0).fit(X, y)
        ridge = plain(NystromRegressor, KERNEL, n_centers=40, penalty=2 / t, random_state=0).fit(X, y)
        assert np.mean((nytro.predict(X) - truth) ** 2) < 1.5 * np.mean((ridge.predict(X) - truth) ** 2)


# ---- the stopping time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [1e-2, 1e-3])
def test_stops_by_the_papers_rule(threshold):
    X, y = data()
    X_val, y_val = data(seed=1)
    model = plain(NytroRegressor, KERNEL, n_centers=40, max_iter=5000, min_decrease=threshold, random_state=0)
    model.fit(X, y, X_val=X_val, y_val=y_val)
    errors = [record["validation_error"] for record in model.history_]
    falls = [1 - after / before for before, after in pairwise(errors)]
    assert min(falls[:-1]) > threshold >= falls[-1]
    assert model.n_iter_ == len(errors) < 5000
    assert_allclose(np.sqrt(np.mean((model.predict(X_val) - y_val) ** 2)), min(errors), rtol=1e-9)


def test_the_noisier_the_sooner():
    X, y = data(n=400)
    noise = 3 * np.random.default_rng(1).standard_normal(400)
    model = plain(NytroRegressor, KERNEL, n_centers=40, random_state=0)
    assert clone(model).fit(X, y + noise).n_iter_ < clone(model).fit(X, y).n_iter_


def test_patience_and_the_held_out_rows():
    X, y = data()
    model = plain(NytroRegressor, KERNEL, n_centers=1000, solver="cg", random_state=0).fit(X, y)
    assert len(model.centers_) == 120  # a fifth is held out
    patient = clone(model).set_params(n_iter_no_change=4).fit(X, y)
    errors = [record["validation_error"] for record in patient.history_]
    assert patient.n_iter_ >= model.n_iter_ + 3 or errors[model.n_iter_] < errors[model.n_iter_ - 1]


def test_without_early_stopping_all_rows_are_used():
    X, y = data()
    model = plain(NytroRegressor, KERNEL, n_centers=1000, early_stopping=False, max_iter=9).fit(X, y)
    assert len(model.centers_) == 150
    assert model.n_iter_ == 9
    assert "validation_error" not in model.history_[0]
    watched = clone(model).fit(X, y, X_val=X, y_val=y)
    assert watched.n_iter_ == 9
    assert "validation_error" in watched.history_[0]


# ---- all of them -----------------------------------------------------------------------------------------------------

EACH = pytest.mark.parametrize("solver", ["gd", "cg", "sgd"])


def nytro(solver, **parameters):
    return plain(
        NytroRegressor,
        KERNEL,
        **{"n_centers": 20, "solver": solver, "batch_size": 40, "max_iter": 20, "random_state": 0} | parameters,
    )


@EACH
def test_float32(solver):
    X, y = data()
    single = nytro(solver).fit(X.astype(np.float32), y.astype(np.float32))
    assert single.centers_.dtype == np.float32
    assert_allclose(single.predict(X), nytro(solver).fit(X, y).predict(X), rtol=5e-3, atol=5e-3)


@EACH
def test_saved_and_loaded(solver, tmp_path):
    X, y = data(k=2)
    model = nytro(solver).fit(X, y)
    model.save(tmp_path / "model.safetensors")
    assert_array_equal(gyrfalcon.load(tmp_path / "model.safetensors").predict(X), model.predict(X))
    assert_array_equal(nytro(solver).fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize("solver", ["gd", "cg"])
def test_weighted_rows_are_repeated_rows(solver):
    X, y = data()
    w = np.random.default_rng(2).integers(0, 4, size=150)
    model = nytro(solver, centers=X[:15], early_stopping=False)
    repeated = clone(model).fit(X.repeat(w, axis=0), y.repeat(w))
    assert_allclose(clone(model).fit(X, y, sample_weight=w).predict(X), repeated.predict(X), rtol=1e-6, atol=1e-7)


def test_weights_do_not_make_mini_batches_diverge():
    X, y = data()
    w = np.where(np.arange(150) < 3, 1000.0, 1.0)
    model = nytro("sgd", batch_size=2, max_iter=5, early_stopping=False).fit(X, y, sample_weight=w)
    assert np.abs(model.predict(X)).max() < 10


@EACH
def test_duplicates_low_rank_and_more_centers_than_rows(solver):
    X, y = data()
    X = X[np.arange(150) % 10]
    for kernel in (KERNEL, Linear()):
        model = nytro(solver, n_centers=1000).set_params(kernel=kernel).fit(X, y)
        assert len(model.centers_) == 120
        assert np.abs(model.predict(X)).max() < 10


@EACH
def test_one_row(solver):
    with pytest.raises(ValueError, match="no rows to hold out for validation, with n_samples=1: give X_val and y_val"):
        nytro(solver).fit([[1.0]], [2.0])
    for model in (
        nytro(solver).fit([[1.0]], [2.0], X_val=[[1.0]], y_val=[2.0]),
        nytro(solver, early_stopping=False).fit([[1.0]], [2.0]),
    ):
        assert_allclose(model.predict([[1.0]]), 2.0, rtol=1e-6)


@EACH
def test_not_finite(solver):
    X, y = data()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        nytro(solver).fit(X, y)


@EACH
def test_kernel_that_is_not_positive(solver):
    X, y = data()
    with pytest.raises(ValueError, match="not positive"):
        nytro(solver).set_params(kernel=lambda A, B: -KERNEL(A, B)).fit(X, y)


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("step", [4.0, 100.0])
def test_a_step_that_diverges(step, early_stopping):
    X, y = data()
    model = nytro("gd", step=step, early_stopping=early_stopping)
    with pytest.raises(FloatingPointError, match=rf"diverges with step={step:g}, where the largest stable .* [23]\.\d"):
        model.fit(X, y)
    assert not hasattr(model, "dual_coef_")
    # longer than what is safe for all data, but stable for these
    assert nytro("gd", step=1.5, max_iter=100).fit(X, y).score(X, y) > 0.5


def test_a_step_that_diverges_with_mini_batches():
    X, y = data()
    with pytest.raises(FloatingPointError, match="diverges with step=100"):
        nytro("sgd", step=100.0, early_stopping=False).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"solver": "direct"}, "solver='direct' must be one of 'gd', 'cg', 'sgd'"),
        ({"step": -1.0}, "step=-1.0"),
        (
            {"solver": "cg", "step": 0.5},
            'step=0.5 is for solver="gd" and solver="sgd": conjugate gradient finds its own',
        ),
        ({"min_decrease": -0.1}, "min_decrease=-0.1"),
        ({"n_iter_no_change": 0}, "n_iter_no_change=0"),
        ({"batch_size": 1.5}, "batch_size=1.5"),
        ({"max_iter": 0}, "max_iter=0"),
    ],
)
def test_parameters_that_make_no_sense(parameters, match):
    X, y = data()
    with pytest.raises(ValueError, match=match):
        plain(NytroRegressor, **parameters).fit(X, y)
