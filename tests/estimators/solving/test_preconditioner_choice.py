"""Which preconditioner a fit uses, and that the solution does not depend on it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gyrfalcon import FalkonRegressor, load
from gyrfalcon.centers import Given
from gyrfalcon.fitting import falkon as _falkon
from gyrfalcon.kernels import Gaussian

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:predictions are still off"),  # of fits that are cut short on purpose
]


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
    """Fitted values by ridge regression on orthonormal functions: the normal equations would lose half the digits."""
    K, (values, vectors) = Gaussian(1.0)(X, Z), np.linalg.eigh(Gaussian(1.0)(Z, Z))
    kept = values > 1e-13 * values[-1]
    F = K @ vectors[:, kept] / np.sqrt(values[kept])
    root = np.sqrt(w / w.mean())
    ridge = np.sqrt(penalty * len(X)) * np.eye(F.shape[1])
    beta = np.linalg.lstsq(np.vstack([root[:, None] * F, ridge]), np.append(root * y, np.zeros(len(ridge))))[0]
    return F @ beta


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
    plain(FalkonRegressor, Gaussian(1.0), n_centers=30, centers=centers, random_state=0).fit(X, y)
    assert made == [expected]


@pytest.mark.parametrize("preconditioner", ["auto", "falkon", "krill"])
@pytest.mark.parametrize("centers", ["uniform", "leverage", "rpcholesky", np.full((3, 2), 0.5) + np.eye(3, 2)])
def test_the_solution_is_the_same(preconditioner, centers):
    X, y, w = data()
    model = plain(FalkonRegressor,
        Gaussian(1.0), n_centers=25, centers=centers, preconditioner=preconditioner, penalty=1e-4, max_iter=100,
        random_state=0,
    ).fit(X, y, sample_weight=w)  # fmt: skip
    assert_allclose(model.predict(X), dense(X, y, w, model.centers_, 1e-4), atol=1e-6)


def test_krill_where_the_centers_are_far_from_the_rows():
    X, y, _ = data()
    centers = np.vstack([X[:2], 3 + 0.3 * data(40, seed=1)[0]])  # most of them where there are few rows
    model = plain(FalkonRegressor, Gaussian(1.0), centers=centers, penalty=1e-6, max_iter=30, tol=1e-6, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.set_params(preconditioner="falkon").fit(X, y)
    model.set_params(preconditioner="krill").fit(X, y)
    assert model.history_[-1]["converged"]


def test_auto_changes_horses_where_uniform_centers_miss_rare_rows(made):
    rng = np.random.default_rng(0)
    X = np.vstack([0.3 * rng.standard_normal((1960, 2)), 4 * rng.standard_normal((40, 2))])
    y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1])
    auto = plain(FalkonRegressor, Gaussian(1.0), n_centers=200, penalty=1e-6, random_state=0).fit(X, y)
    assert made == ["Preconditioner", "Krill"]
    iterations = [record["iteration"] for record in auto.history_]
    assert iterations == list(range(1, auto.n_iter_ + 1))
    # the sketch, and the residual to go on from
    assert [record["passes"] - record["iteration"] for record in auto.history_] == [1] * 4 + [3] * (auto.n_iter_ - 4)
    falkon = clone(auto).set_params(preconditioner="falkon")
    assert np.abs(falkon.fit(X, y).predict(X) - auto.predict(X)).max() > 0.5
    assert_allclose(falkon.set_params(max_iter=300).fit(X, y).predict(X), auto.predict(X), atol=1e-6)


def test_auto_stays_where_it_would_be_the_last_iteration(made):
    rng = np.random.default_rng(0)
    X = np.vstack([0.3 * rng.standard_normal((1960, 2)), 4 * rng.standard_normal((40, 2))])
    model = plain(
        FalkonRegressor,
        Gaussian(1.0),
        n_centers=200,
        penalty=1e-6,
        max_iter=4,
        random_state=0,
    ).fit(X, X[:, 0])
    assert made == ["Preconditioner"]
    assert model.n_iter_ == len(model.history_) == 4


def test_given_centers_give_the_same_model_each_time():
    X, y, _ = data()
    fits = [
        plain(
            FalkonRegressor,
            Gaussian(1.0),
            centers=X[:20],
            preconditioner="krill",
        )
        .fit(X, y)
        .dual_coef_
        for _ in range(2)
    ]
    assert_array_equal(*fits)


def test_auto_does_without_a_sketch_that_does_not_fit(made):
    X, y, _ = data()
    plain(FalkonRegressor, Gaussian(1.0), centers=X[:200], max_iter=1, memory_budget="4MB").fit(X, y)
    plain(FalkonRegressor, Gaussian(1.0), centers=X[:200], max_iter=1, memory_budget="1.4MB").fit(X, y)
    assert made == ["Krill", "Preconditioner"]


def test_the_condition_number_is_recorded():
    X, y, _ = data()
    history = plain(FalkonRegressor, Gaussian(1.0), n_centers=200, penalty=1e-3, random_state=0).fit(X, y).history_
    numbers = [record["condition_number"] for record in history]
    assert numbers[0] == 1.0
    assert 1.0 < numbers[-1] < 17


def test_wrong_name():
    X, y, _ = data(20)
    with pytest.raises(ValueError, match="='jacobi' must be one of 'auto', 'falkon', 'paper', 'krill', 'sample'"):
        plain(FalkonRegressor, preconditioner="jacobi").fit(X, y)


@pytest.mark.parametrize("scale", [True, False])
def test_given_centers_that_were_drawn_uniformly_get_falkon(made, scale, tmp_path):
    X, y, _ = data()
    options = {"kernel": Gaussian(1.0), "penalty": 1e-4, "random_state": 0, "scale": scale}
    for sampled, name in ((None, "Krill"), ("uniform", "Preconditioner")):
        made.clear()
        model = FalkonRegressor(centers=Given(X[::10], sampled), **options).fit(X, y)
        assert made[0] == name
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").centers.sampled == "uniform"
    assert clone(model).centers.sampled == "uniform"


def test_auto_changes_where_the_condition_number_is_large_and_the_residual_small(made, recwarn):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((20_000, 1))
    model = FalkonRegressor(n_centers=100, penalty=1e-10, random_state=4).fit(X, 2 * X[:, 0])
    assert made == ["Preconditioner", "Krill"]
    assert not recwarn.list
    assert model.score(X, 2 * X[:, 0]) > 0.9999


def test_auto_tries_again_after_eight_iterations(made, recwarn):
    """Few iterations do not show yet how slow they are."""
    rng = np.random.default_rng(0)
    X = rng.lognormal(0.0, 1.5, (4000, 6))
    y = np.sin(2 * np.log(X[:, 0])) + np.log(X[:, 1]) + 0.3 * rng.standard_normal(4000)
    model = plain(FalkonRegressor, Gaussian(15.0), n_centers=200, penalty=1e-6, random_state=0).fit(X, y)
    assert made == ["Preconditioner", "Krill"]
    assert [record["passes"] - record["iteration"] for record in model.history_] == [1] * 8 + [3] * 12
    assert not recwarn.list
    exact = clone(model).set_params(preconditioner="krill", max_iter=100).fit(X, y).predict(X)
    assert np.std(model.predict(X) - exact) < 0.05 * np.std(exact)
