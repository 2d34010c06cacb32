"""What a fit owes to the number of threads that BLAS has: nothing, or its last bits."""

from __future__ import annotations

import numpy as np
import pytest
import threadpoolctl
from numpy.testing import assert_array_equal

import gyrfalcon
from gyrfalcon import FalkonClassifier, FalkonRegressor, NytroRegressor, leverage_scores
from gyrfalcon._utils import linalg as _linalg
from gyrfalcon.kernels import Gaussian, Linear

FALKON = {
    "uniform": FalkonRegressor(),
    "krill": FalkonRegressor(preconditioner="krill"),
    "leverage": FalkonRegressor(centers="leverage"),
    "bless": FalkonRegressor(centers="bless"),
    "rpcholesky": FalkonRegressor(centers="rpcholesky"),
    "kmeans++": FalkonRegressor(centers="kmeans++"),
    "low rank": FalkonRegressor(Linear()),
    "logistic": FalkonClassifier(loss="logistic"),
    "quantile": FalkonRegressor(loss="quantile", quantiles=[0.1, 0.9]),
    "nytro": NytroRegressor(solver="cg"),
}
DIRECT = ["NystromRegressor", "ExactRegressor", "EigenProRegressor", "RandomFeaturesRegressor"]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def data(n=800):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 5))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def coefficients(model, X, y, n_threads):
    with threadpoolctl.threadpool_limits(n_threads, user_api="blas"):
        model.fit(X, y)
    return model.feature_coef_ if isinstance(model, gyrfalcon.RandomFeaturesRegressor) else model.dual_coef_


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("name", FALKON)
def test_falkon_has_the_same_bits_for_any_threads_of_blas(name, tiled, monkeypatch):
    if tiled:
        monkeypatch.setattr(_linalg, "_SMALL", 0)
        monkeypatch.setattr(_linalg, "_TILE", 48)
    X, y = data()
    model = FALKON[name].set_params(n_centers=150, max_iter=6, random_state=0)
    if name != "low rank":
        model.set_params(kernel=Gaussian(2.0))
    y = y > 0 if isinstance(model, FalkonClassifier) else y
    assert_array_equal(coefficients(model, X, y, 3), coefficients(model, X, y, 1))


@pytest.mark.parametrize("method", ["exact", "pilot", "bless"])
def test_leverage_scores_have_the_same_bits_for_any_threads_of_blas(method):
    X, _ = data(1000)
    found = []
    for n_threads in (1, 2):
        with threadpoolctl.threadpool_limits(n_threads, user_api="blas"):
            found.append(leverage_scores(X, Gaussian(2.0), 1e-4, method=method, random_state=0))
    assert_array_equal(found[1], found[0])


@pytest.mark.parametrize("name", DIRECT)
def test_direct_methods_have_the_same_bits_for_the_same_threads_of_blas(name):
    X, y = data(300)
    model = getattr(gyrfalcon, name)(Gaussian(2.0), random_state=0)
    if name == "RandomFeaturesRegressor":
        model.set_params(n_components=300)
    for n_threads in (1, 2):
        assert_array_equal(coefficients(model, X, y, n_threads), coefficients(model, X, y, n_threads))


def test_blas_has_its_threads_back_after_a_fit():
    X, y = data(200)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = [library["num_threads"] for library in threadpoolctl.threadpool_info()]
        assert 2 in before
        FalkonRegressor(n_centers=20, random_state=0).fit(X, y)
        assert [library["num_threads"] for library in threadpoolctl.threadpool_info()] == before
