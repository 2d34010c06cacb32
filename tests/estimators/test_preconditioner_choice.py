"""Which preconditioner a fit uses, and that the solution does not depend on it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from gyrfalcon import FalkonRegressor
from gyrfalcon.estimators import _falkon
from gyrfalcon.kernels import Gaussian

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def made(monkeypatch):
    """The names of the preconditioners that fits make."""
    names: list[str] = []
    for cls in (_falkon.Krill, _falkon.Preconditioner):

        def recorded(*args, cls=cls, **kwargs):
            names.append(cls.__name__)
            return cls(*args, **kwargs)

        monkeypatch.setattr(_falkon, cls.__name__, recorded)
    return names


def data(n=800, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n), rng.uniform(0.1, 3.0, n)


def dense(X, y, w, Z, penalty):
    K, G = Gaussian(1.0)(X, Z), Gaussian(1.0)(Z, Z)
    w = w / w.mean()
    alpha = np.linalg.lstsq(K.T @ (w[:, None] * K) + penalty * len(X) * G, K.T @ (w * y), rcond=1e-15)[0]
    return K @ alpha


@pytest.mark.parametrize(
    ("centers", "expected"),
    [
        ("uniform", "Preconditioner"),
        ("leverage", "Preconditioner"),
        ("bless", "Preconditioner"),
        ("rpcholesky", "Krill"),
        ("kmeans++", "Krill"),
        (np.linspace(-2, 2, 30).reshape(-1, 2), "Krill"),
    ],
)
def test_auto_looks_at_how_the_centers_were_chosen(centers, expected, made):
    X, y, _ = data()
    FalkonRegressor(Gaussian(1.0), n_centers=30, centers=centers, random_state=0).fit(X, y)
    assert made == [expected]


@pytest.mark.parametrize("preconditioner", ["auto", "falkon", "krill"])
@pytest.mark.parametrize("centers", ["uniform", "leverage", "rpcholesky", np.full((3, 2), 0.5) + np.eye(3, 2)])
def test_the_solution_is_the_same(preconditioner, centers):
    X, y, w = data()
    model = FalkonRegressor(
        Gaussian(1.0), n_centers=25, centers=centers, preconditioner=preconditioner, penalty=1e-4, max_iter=100,
        random_state=0,
    ).fit(X, y, sample_weight=w)  # fmt: skip
    assert_allclose(model.predict(X), dense(X, y, w, model.centers_, 1e-4), atol=1e-6)


def test_krill_where_the_centers_are_far_from_the_rows():
    X, y, _ = data()
    centers = np.vstack([X[:2], 3 + 0.3 * data(40, seed=1)[0]])  # most of them where there are few rows
    model = FalkonRegressor(Gaussian(1.0), centers=centers, penalty=1e-6, max_iter=30, tol=1e-6, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.set_params(preconditioner="falkon").fit(X, y)
    assert model.set_params(preconditioner="krill").fit(X, y).history_[-1]["converged"]


def test_given_centers_give_the_same_model_each_time():
    X, y, _ = data()
    fits = [
        FalkonRegressor(Gaussian(1.0), centers=X[:20], preconditioner="krill").fit(X, y).coef_
        for _ in range(2)
    ]
    assert_array_equal(*fits)


def test_auto_does_without_a_sketch_that_does_not_fit(made, monkeypatch):
    X, y, _ = data()
    monkeypatch.setattr(_falkon, "available_memory", lambda: 1_000)
    FalkonRegressor(Gaussian(1.0), centers=X[:20]).fit(X, y)
    assert made == ["Preconditioner"]


def test_the_condition_number_is_recorded():
    X, y, _ = data()
    history = FalkonRegressor(Gaussian(1.0), n_centers=200, penalty=1e-3, random_state=0).fit(X, y).history_
    numbers = [record["condition_number"] for record in history]
    assert numbers[0] == 1.0
    assert 1.0 < numbers[-1] < 17


def test_wrong_name():
    X, y, _ = data(20)
    with pytest.raises(ValueError, match="preconditioner='jacobi' must be one of 'auto', 'falkon', 'krill'"):
        FalkonRegressor(preconditioner="jacobi").fit(X, y)
