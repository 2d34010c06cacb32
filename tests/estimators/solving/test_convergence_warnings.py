"""No fit is silently wrong: errors are told by what is explained, and history_ has them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gyrfalcon import ExactRegressor, FalkonClassifier, FalkonRegressor, NystromRegressor, RandomFeaturesRegressor
from gyrfalcon.kernels import Gaussian, Matern, Polynomial

pytestmark = pytest.mark.filterwarnings("error")


def noisy(n=3000, noise=10.0):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + noise * rng.standard_normal(n)


@pytest.mark.parametrize("preconditioner", ["falkon", "krill", "sample"])
def test_errors_hidden_by_noise_are_told(preconditioner):
    """After few iterations they are a few hundredths of the deviation of y, and much of what is explained."""
    X, y = noisy()
    model = FalkonRegressor(
        Gaussian(1.0), n_centers=150, penalty=1e-5, preconditioner=preconditioner, max_iter=2, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="of their standard deviation after 2 iterations"):
        model.fit(X, y)
    exact = FalkonRegressor(Gaussian(1.0), n_centers=150, penalty=1e-5, max_iter=100, random_state=0).fit(X, y)
    wanted = exact.predict(X)
    off = np.std(model.predict(X) - wanted) / np.std(wanted)
    assert off > 0.05
    assert off / 3 < model.history_[-1]["error"] < 6 * off
    assert exact.history_[-1]["error"] < 1e-3


@pytest.mark.parametrize(
    "model",
    [
        NystromRegressor(Gaussian(1.0), n_centers=150, penalty=1e-5, solver="cg", max_iter=2, random_state=0),
        NystromRegressor(Gaussian(1.0), n_centers=300, penalty=1e-6, solver="bcd", max_iter=1, random_state=0),
        RandomFeaturesRegressor(n_components=300, penalty=1e-6, solver="bcd", max_iter=1, random_state=0),
        ExactRegressor(Gaussian(1.0), penalty=1e-6, method="pcg", n_centers=20, max_iter=2, random_state=0),
    ],
    ids=["cg", "blocks", "blocks of features", "pcg"],
)
def test_other_solvers_tell_too(model):
    X, y = noisy(1000)
    with pytest.warns(ConvergenceWarning, match="of their standard deviation"):
        model.fit(X, y)
    assert model.history_[-1]["error"] > 0.05


def test_rounding_that_decides_is_told():
    """Directions in which the centers hardly differ are the main thing of rows far from all others."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(1.5, (4000, 6))
    mild = np.arcsinh(X)
    y = np.sin(2 * mild[:, 0]) + mild[:, 1] * mild[:, 2] + 0.3 * rng.standard_normal(4000)
    model = FalkonRegressor(Gaussian(100.0), n_centers=300, penalty=1e-6, scale=False, random_state=0)
    with pytest.warns(ConvergenceWarning, match="rounding in float64 may move predictions"):
        model.fit(X, y)
    model.fit(mild, y)  # without extreme rows there is nothing to tell


def test_a_penalty_lost_in_float64_is_told():
    rng = np.random.default_rng(0)
    X = 1000 + rng.standard_normal((2000, 3))
    model = FalkonRegressor(Polynomial(degree=2), n_centers=50, penalty=1e-6, scale=False, random_state=0)
    with pytest.warns(ConvergenceWarning, match="penalty=1e-06 is below the rounding errors of float64.*rescale"):
        model.fit(X, X[:, 0] ** 2)


def hardly_explained(**options):
    """A logistic fit whose objective is near that of the best constant, and its decision values."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((1000, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 4 * rng.standard_normal(1000) > 0
    model = FalkonClassifier(
        Matern(2.0, nu=2.5), n_centers=50, penalty=1e-4, loss="logistic", random_state=0, **options
    ).fit(X, y)
    return model, model.decision_function(X)


def test_newton_goes_on_until_fitted_values_stand_still():
    """The objective, of which little is explained, no longer changed where decision values were off by 15%."""
    model, found = hardly_explained()
    wanted = hardly_explained(tol=1e-12, max_iter=100)[1]
    assert np.std(found - wanted) < 0.05 * np.std(wanted)
    assert model.history_[-1]["error"] <= 0.05 < model.history_[0]["error"]


def test_newton_steps_that_still_move_fitted_values_are_told():
    """The last step promises to lower the objective by less than 5e-3, and moves decision values by more than 5%."""
    with pytest.warns(ConvergenceWarning, match="the last of 5 Newton steps moved fitted values by 0.*max_iter=5"):
        model, _ = hardly_explained(max_iter=5)
    assert model.history_[-1]["residual"] < 5e-3
    assert hardly_explained(max_iter=5, tol=5e-3)[0].n_iter_ == 5  # which is what was asked for: no warning
