"""penalty="auto", and what the estimators make of a table with no parameters at all."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.model_selection import cross_val_score, train_test_split

import gyrfalcon
from gyrfalcon import (
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalRegressor,
    NystromRegressor,
    RandomFeaturesRegressor,
)
from gyrfalcon.kernels import Gaussian

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def data(n=400, noise=0.5):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    return X, np.sin(2 * X[:, 0]) + noise * rng.standard_normal(n)


def friedman(number):
    X, y = {1: make_friedman1, 2: make_friedman2, 3: make_friedman3}[number](2000, random_state=0)
    noise = 1.0 if number == 1 else 0.2 * y.std()
    return train_test_split(X, y + noise * np.random.default_rng(0).standard_normal(2000), random_state=0)


def test_diabetes_with_no_parameters():
    assert cross_val_score(FalkonRegressor(random_state=0), *load_diabetes(return_X_y=True)).mean() >= 0.44


@pytest.mark.parametrize("number", [1, 2, 3])
def test_friedman_with_no_parameters(number):
    X, X_test, y, y_test = friedman(number)
    score = FalkonRegressor(random_state=0).fit(X, y).score(X_test, y_test)
    path = NystromRegressor(n_centers=1000, penalties=np.logspace(-9, 0, 20), random_state=0)
    errors = [record["validation_error"] for record in path.fit(X, y, X_val=X_test, y_val=y_test).history_]
    assert score > 1 - min(errors) ** 2 / y_test.var() - 0.02


@pytest.mark.parametrize(
    "Estimator", [FalkonRegressor, NystromRegressor, ExactRegressor, HierarchicalRegressor, RandomFeaturesRegressor]
)
def test_the_noisier_the_larger(Estimator):
    penalties = [Estimator(random_state=0).fit(*data(noise=noise)).penalty_ for noise in (0.01, 0.3, 3.0)]
    assert penalties[0] < penalties[1] < penalties[2]


def test_all_rows_as_centers_give_what_leave_one_out_of_all_rows_does():
    X, y = data()
    grid = np.logspace(-9, 0, 37)
    exact = ExactRegressor(Gaussian(1.0), penalties=grid).fit(X, y)
    errors = {record["penalty"]: record["loo_error"] for record in exact.history_}
    chosen = ExactRegressor(Gaussian(1.0), random_state=0).fit(X, y).penalty_
    nearest = grid[np.abs(np.log(grid / chosen)).argmin()]
    assert nearest == pytest.approx(chosen)
    assert errors[nearest] <= 1.001 * min(errors.values())


def test_a_number_is_taken_as_it_is():
    assert FalkonRegressor(penalty=3e-4, n_centers=20).fit(*data()).penalty_ == 3e-4
    with pytest.raises(ValueError, match=r"penalty='best' must be \"auto\" or a finite number"):
        FalkonRegressor(penalty="best").fit(*data())


@pytest.mark.parametrize("loss", ["huber", "quantile", "poisson"])
def test_other_losses(loss):
    X, y = data(1200)
    y = np.random.default_rng(1).poisson(np.exp(y)).astype(float) if loss == "poisson" else y
    model = FalkonRegressor(loss=loss, n_centers=100, random_state=0)
    score = model.fit(X[:800], y[:800]).score(X[800:], y[800:])
    grid = [
        FalkonRegressor(loss=loss, n_centers=100, random_state=0, penalty=penalty).fit(X[:800], y[:800])
        for penalty in np.logspace(-6, 0, 7)
    ]
    assert score > max(other.score(X[800:], y[800:]) for other in grid) - 0.03


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_classes(loss, classes):
    X, y = data(1200)
    y = np.digitize(y, [0.0] if classes == 2 else [-0.5, 0.5])
    model = FalkonClassifier(loss=loss, n_centers=100, random_state=0)
    score = model.fit(X[:800], y[:800]).score(X[800:], y[800:])
    grid = [model.set_params(penalty=penalty).fit(X[:800], y[:800]) for penalty in (1e-5, 1e-3, 1e-1)]
    assert score > max(other.score(X[800:], y[800:]) for other in grid) - 0.03


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_few_rows(n, loss):
    X, y = data(n)
    model = FalkonRegressor(loss=loss, random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert model.penalty_ > 0


def test_rows_of_all_kinds():
    X, y = data()
    model = FalkonRegressor(n_centers=30, random_state=0)
    for rows in (np.repeat(X[:20], 20, axis=0), scipy.sparse.csr_array(X), X.astype(np.float32), np.zeros_like(X)):
        assert np.isfinite(model.fit(rows, y).predict(rows)).all()
    assert model.set_params(kernel=lambda A, B: A @ B.T + 1).fit(X, y).penalty_ > 0
    assert (model.fit(X, np.full(len(X), 7.0)).predict(X) == 7).all()
    weight = np.where(np.arange(400) < 300, 1.0, 0.0)
    y[300:] = 1e6
    assert model.set_params(kernel="gaussian").fit(X, y, sample_weight=weight).score(X[:300], y[:300]) > 0.3


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_last_bits_of_the_rows_do_not_matter(loss):
    X, y = data()
    model = FalkonRegressor(Gaussian(2.0), n_centers=30, loss=loss, random_state=0)
    near = X * (1 + 1e-15 * np.random.default_rng(0).standard_normal(X.shape))
    assert model.fit(near, y).penalty_ == pytest.approx(model.fit(X, y).penalty_, rel=1e-9)


def test_a_checkpointed_fit_resumes_with_its_penalty(tmp_path):
    X, y = data()

    def make(**options):
        return FalkonRegressor(n_centers=40, tol=0, random_state=0, **options)

    whole = make(max_iter=6).fit(X, y)
    make(max_iter=2, checkpoint=tmp_path).fit(X, y)
    resumed = make(max_iter=6, checkpoint=tmp_path).fit(X, y)
    assert resumed.penalty_ == whole.penalty_
    assert_array_equal(resumed.dual_coef_, whole.dual_coef_)


def test_model_files_keep_it(tmp_path):
    model = FalkonRegressor(n_centers=30, random_state=0).fit(*data())
    model.save(tmp_path / "model.gyr")
    assert gyrfalcon.load(tmp_path / "model.gyr").penalty_ == model.penalty_


def explained(noise, seed=0, n=8000):
    """Return the R2 against the truth of penalties, and the one that was chosen."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + 1000, 6))
    truth = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    y = truth + noise * np.std(truth) * rng.standard_normal(len(X))

    def score(penalty):
        model = FalkonRegressor(n_centers=150, penalty=penalty, random_state=seed).fit(X[:n], y[:n])
        return model.score(X[n:], truth[n:]), model.penalty_

    return score


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_does_not_mislead(seed):
    """Where R2 is 0.01, all that can be explained is a hundredth of the error."""
    score = explained(10.0, seed)
    assert score("auto")[0] > max(score(penalty)[0] for penalty in (1e-3, 3e-3, 1e-2)) - 0.05


def test_penalties_that_cannot_be_told_apart_give_the_largest():
    """A flat curve: seeds choose penalties that differ by orders of magnitude only if noise decides."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6000, 1))
    y = X[:, 0] + 0.3 * rng.standard_normal(6000)
    chosen = [FalkonRegressor(n_centers=50, random_state=seed).fit(X, y).penalty_ for seed in range(3)]
    assert max(chosen) <= 20 * min(chosen)
    assert min(chosen) > 1e-4
