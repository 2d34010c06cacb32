"""Baselines on random features against dense solves in float64, and the rates of the stochastic ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.exceptions import ConvergenceWarning

from gyrfalcon import ExactRegressor
from gyrfalcon.baselines import (
    AdmmRegressor,
    DoublyStochasticRegressor,
    EnsembleRegressor,
    FeatureSelectionRegressor,
    RandomFeaturesRegressor,
    SketchedRegressor,
    SvrgRegressor,
)
from gyrfalcon.kernels import ArcCosine, Gaussian
from gyrfalcon.solvers.sketched import random_sketch

KERNEL = Gaussian(1.5)
weighted = pytest.mark.parametrize("weighted", [False, True])
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def data(n=200, k=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(n)
    return X, y if k is None else np.stack([y, 3 * X[:, 1]], axis=1)


def weights(n=200):
    return np.random.default_rng(5).uniform(0.5, 2, size=n)


def dense(features, X, y, penalty, weight=None):
    """Values of ridge regression on features, in float64."""
    F = features.astype(np.float64)(X.astype(np.float64))
    w = np.ones(len(X)) if weight is None else weight / weight.mean()
    G = F.T @ (w[:, None] * F) + penalty * len(X) * np.eye(F.shape[1])
    return F @ np.linalg.solve(G, F.T @ (w.reshape(-1, *[1] * (y.ndim - 1)) * y))


# ---- methods that converge to ridge regression on the features -------------------------------------------------------

ITERATIVE = {
    "svrg": (SvrgRegressor, {"sketch_size": 25, "batch_size": 20, "max_iter": 200}),
    "svrg, whole sketch": (SvrgRegressor, {"sketch_size": 100, "max_iter": 200}),
    "admm": (AdmmRegressor, {"max_iter": 1000, "tol": 1e-9}),
    "admm, blocks": (AdmmRegressor, {"n_partitions": 3, "block_size": 20, "max_iter": 1000, "tol": 1e-9}),
}


@weighted
@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("method", ITERATIVE)
def test_the_fixed_point_is_the_dense_solution(method, k, weighted):
    X, y = data(k=k)
    w = weights() if weighted else None
    cls, parameters = ITERATIVE[method]
    model = plain(cls, KERNEL, n_components=40, penalty=1e-2, random_state=0, **parameters)
    model.fit(X, y, sample_weight=w)
    assert_allclose(model.predict(X), dense(model.feature_map_, X, y, 1e-2, w), atol=1e-6)
    assert model.history_[-1]["converged"]
    assert model.history_[-1]["passes"] >= model.n_iter_


@pytest.mark.parametrize("method", ["svrg", "admm, blocks"])
def test_float32(method):
    X, y = data()
    cls, parameters = ITERATIVE[method]
    model = plain(cls, KERNEL, n_components=40, penalty=1e-3, random_state=0, **{**parameters, "tol": None})
    narrow = X.astype(np.float32)
    values = model.fit(narrow, y.astype(np.float32)).predict(narrow)
    assert values.dtype == np.float32
    # the residual, 1e-6, and rounding of products, multiplied by at most the largest eigenvalue over the penalty, 1e3
    assert_allclose(values, dense(model.feature_map_, X, y, 1e-3), atol=2e-3)


def test_a_larger_sketch_takes_fewer_epochs():
    X, y = data(400)
    options = {"n_components": 60, "batch_size": 20, "max_iter": 300, "tol": 1e-5, "penalty": 1e-3, "random_state": 0}
    few, many = (plain(SvrgRegressor, KERNEL, sketch_size=q, **options).fit(X, y).n_iter_ for q in (10, 50))
    assert many < 0.5 * few


def test_any_rho_has_the_same_solution():
    X, y = data()
    found = [
        plain(AdmmRegressor, KERNEL, n_components=30, penalty=1e-2, rho=rho, max_iter=5000, tol=1e-10, random_state=0)
        .fit(X, y)
        .predict(X)
        for rho in (0.3, 3.0)
    ]
    assert_allclose(found[0], found[1], atol=1e-6)


@pytest.mark.parametrize("size", [1e9, 1e15])
def test_admm_with_features_beside_which_one_is_lost_in_rounding(size):
    X, y = data()
    X, y = size * X[:20], y[:20]  # the rank of Z'Z is 20, of 100: Z'Z + I is positive by I alone
    model = plain(AdmmRegressor, ArcCosine(), n_components=100, penalty=1e-3, random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(("cls", "options"), [(SvrgRegressor, {"sketch_size": 2}), (AdmmRegressor, {"rho": 2.0})])
def test_too_few_iterations_warn_if_a_tolerance_was_given(cls, options):
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="raise max_iter=2"):
        plain(cls, KERNEL, n_components=40, max_iter=2, tol=1e-8, random_state=0, **options).fit(X, y)


# ---- doubly stochastic gradients -------------------------------------------------------------------------------------


def test_the_error_of_doubly_stochastic_gradients_falls_with_the_steps():
    """The squared distance from kernel ridge regression is O(1 / steps): 16 times the steps, a sixteenth of it."""
    X, y = data(300)
    exact = plain(ExactRegressor, KERNEL, penalty=0.02).fit(X, y).predict(X)
    errors = []
    for steps in (20, 320):
        models = [
            plain(
                DoublyStochasticRegressor, KERNEL, n_components=4 * steps, block_size=4, batch_size=30, penalty=0.02,
                random_state=seed,
            ).fit(X, y)
            for seed in range(4)
        ]  # fmt: skip
        assert {model.n_iter_ for model in models} == {steps}
        errors.append(np.mean([(model.predict(X) - exact) ** 2 for model in models]))
    assert errors[1] < errors[0] / 6
    assert errors[1] < 0.05 * np.mean(exact**2)


def test_one_step_is_the_gradient():
    X, y = data(50)
    w = weights(50)
    model = plain(DoublyStochasticRegressor, KERNEL, n_components=8, block_size=8, batch_size=50, step=0.5, penalty=0.1)
    model.fit(X, y, sample_weight=w)
    F = model.feature_map_(X)
    assert_allclose(model.feature_coef_, 0.5 * F.T @ (w / w.mean() * y) / 50, atol=1e-12)


def test_steps_that_are_too_long():
    X, y = data()
    model = plain(DoublyStochasticRegressor, KERNEL, step=1e6, random_state=0)
    with pytest.raises(FloatingPointError, match=r"diverges with step=1e\+06: choose a shorter one"):
        model.fit(X, y)


# ---- selected features -----------------------------------------------------------------------------------------------


@weighted
@pytest.mark.parametrize("kernel", [KERNEL, ArcCosine() + 0.5 * Gaussian(1.0)], ids=repr)
def test_selected_features_are_solved_for_on_all_rows(kernel, weighted):
    X, y = data(k=2)
    w = weights() if weighted else None
    model = plain(FeatureSelectionRegressor, kernel, n_components=40, n_rounds=4, penalty=1e-3, random_state=0)
    model.fit(X, y, sample_weight=w)
    assert len(model.feature_map_) == 40
    assert [record["kept"] for record in model.history_] == [0, 10, 20, 30]
    assert_allclose(model.predict(X), dense(model.feature_map_, X, y, 1e-3, w), atol=1e-6)


def test_selection_beats_as_many_features_without_it():
    """In six dimensions, y depends on one of them: features of frequencies along it are worth keeping."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 6))
    y = np.sin(2 * X[:, 0])
    errors = {
        rounds: np.mean(
            [
                np.mean(np.square(model.fit(X[:1000], y[:1000]).predict(X[1000:]) - y[1000:]))
                for model in (
                    plain(FeatureSelectionRegressor, Gaussian(2.0), n_components=60, n_rounds=rounds, random_state=seed)
                    for seed in range(3)
                )
            ]
        )
        for rounds in (1, 10)
    }
    assert errors[10] < 0.8 * errors[1]


def test_one_round_is_no_selection():
    X, y = data()
    options = {"n_components": 30, "penalty": 1e-3, "random_state": 0}
    model = plain(FeatureSelectionRegressor, KERNEL, n_rounds=1, **options).fit(X, y)
    assert_array_equal(model.predict(X), plain(RandomFeaturesRegressor, KERNEL, **options).fit(X, y).predict(X))


# ---- ensembles -------------------------------------------------------------------------------------------------------


@weighted
def test_an_ensemble_is_the_average_of_its_members(weighted):
    X, y = data(k=2)
    w = weights() if weighted else None
    model = plain(EnsembleRegressor, KERNEL, n_components=15, n_estimators=4, penalty=1e-3, random_state=0)
    model.fit(X, y, sample_weight=w)
    assert len(model.feature_map_) == 60
    members = [model.feature_map_.columns(15 * i, 15 * (i + 1)) for i in range(4)]
    average = np.mean([dense(member, X, y, 1e-3, w) for member in members], axis=0)
    assert_allclose(model.predict(X), average, atol=1e-6)


def test_one_member_is_ridge_regression_on_features():
    X, y = data()
    options = {"n_components": 30, "penalty": 1e-3, "random_state": 0}
    model = plain(EnsembleRegressor, KERNEL, n_estimators=1, **options).fit(X, y)
    assert_array_equal(model.predict(X), plain(RandomFeaturesRegressor, KERNEL, **options).fit(X, y).predict(X))


# ---- sketches --------------------------------------------------------------------------------------------------------


@weighted
@pytest.mark.parametrize("sketch", ["gaussian", "orthogonal"])
def test_a_sketch_is_the_least_squares_in_its_span(sketch, weighted):
    X, y = data(k=2)
    w = weights() if weighted else None
    model = plain(SketchedRegressor, KERNEL, sketch=sketch, sketch_size=20, penalty=1e-3, random_state=0)
    model.fit(X, y, sample_weight=w)
    S = random_sketch(sketch, 200, 20, np.random.RandomState(0))
    K, W = KERNEL(X, X), np.diag(np.ones(200) if w is None else w / w.mean())
    theta = np.linalg.solve(S.T @ K @ W @ K @ S + 0.2 * S.T @ K @ S, S.T @ K @ W @ y)
    assert_allclose(model.predict(X), K @ S @ theta, atol=1e-6)
    assert len(model.centers_) == 200


@dtypes
@pytest.mark.parametrize("sketch", ["gaussian", "orthogonal"])
def test_a_sketch_of_every_row_is_exact(sketch, dtype):
    X, y = data()
    model = plain(SketchedRegressor, KERNEL, sketch=sketch, sketch_size=500, penalty=1e-3, random_state=0)
    values = model.fit(X.astype(dtype), y.astype(dtype)).predict(X.astype(dtype))
    exact = plain(ExactRegressor, KERNEL, penalty=1e-3).fit(X, y).predict(X)
    # the system is solved in float64; predictions add up 200 numbers of at most |y| / (penalty n) in float32
    assert_allclose(values, exact, atol=1e-6 if dtype == np.float64 else 1e-3)


# ---- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "wrong", "message"),
    [
        (SvrgRegressor, {"sketch_size": 0}, "sketch_size=0"),
        (SvrgRegressor, {"batch_size": 0}, "batch_size=0"),
        (AdmmRegressor, {"rho": 0.0}, "rho=0.0"),
        (
            AdmmRegressor,
            {"n_partitions": 201},
            "n_partitions=201 must be at most the number of rows with positive weight, 200",
        ),
        (AdmmRegressor, {"memory_budget": "1kB"}, "a smaller block_size or n_partitions takes less"),
        (DoublyStochasticRegressor, {"step": -1.0}, "step=-1.0"),
        (DoublyStochasticRegressor, {"step": "auto"}, "step='auto'"),
        (FeatureSelectionRegressor, {"n_rounds": 0}, "n_rounds=0"),
        (EnsembleRegressor, {"n_estimators": 0}, "n_estimators=0"),
        (EnsembleRegressor, {"n_components": 0}, "n_components=0"),
        (SketchedRegressor, {"sketch": "count"}, "sketch='count'"),
        (SketchedRegressor, {"memory_budget": "1kB"}, "take a smaller sketch_size"),
    ],
)
def test_wrong_parameters(cls, wrong, message):
    X, y = data()
    with pytest.raises((ValueError, MemoryError), match=message):
        plain(cls, KERNEL, **wrong).fit(X, y)
