"""Pegasos against the paper's steps and against the minimum of the same problem, in dense features."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from scipy.optimize import minimize

from gyrfalcon.baselines import PegasosClassifier
from gyrfalcon.kernels import Gaussian

KERNEL, PENALTY = Gaussian(1.0), 0.02


def data(n=240, n_classes=2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    values = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.standard_normal(n)
    return X, np.digitize(values, np.quantile(values, np.linspace(0, 1, n_classes + 1)[1:-1]))


def weights(n=240):
    return np.random.default_rng(5).uniform(0.2, 3, size=n)


def features(model, X):
    """Features F of the rows with F F' = K K_MM^-1 K', and f's coordinates in them, of shape (M, k)."""
    Z = model.centers_
    root = np.linalg.cholesky(KERNEL(Z, Z)).T
    return np.linalg.solve(root.T, KERNEL(X, Z).T).T, root @ model.dual_coef_.reshape(len(Z), -1)


def objective(F, w, y, weight):
    slack = np.maximum(0, 1 - y * (F @ w))
    return PENALTY / 2 * w @ w + np.average(slack, weights=weight)


def least(F, y, weight):
    """The minimum by the dual: max mean(a) - |F'(a y)|^2 / (2 penalty n^2) for 0 <= a <= weight, which is its value."""
    n, G = len(y), y[:, None] * F

    def dual(a):
        v = G.T @ a / n
        return v @ v / (2 * PENALTY) - a.mean(), (G @ v / PENALTY - 1) / n

    found = minimize(
        dual, np.zeros(n), jac=True, bounds=[(0, c) for c in weight], method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-14, "gtol": 1e-9},
    )  # fmt: skip
    return -found.fun


def model(**options):
    return plain(PegasosClassifier, KERNEL, n_centers=30, penalty=PENALTY, random_state=0, **options)


def excess(y, weight, seeds=range(4), **options):
    """Mean excess of the objective over the minimum, for one class against the rest."""
    X, labels = data()
    found = []
    for seed in seeds:
        fitted = model(**options).set_params(random_state=seed).fit(X, labels, sample_weight=weight)
        F, w = features(fitted, X)
        normalised = np.ones(len(X)) if weight is None else weight / weight.mean()
        found.append(objective(F, w[:, 0], y, normalised) - least(F, y, normalised))
    return np.mean(found)


weighted = pytest.mark.parametrize("weight", [None, weights()], ids=["plain", "weighted"])


@weighted
@pytest.mark.parametrize("options", [{}, {"average": True}, {"projection": False}], ids=str)
def test_the_excess_falls_like_one_over_the_steps(options, weight):
    """The rate of the paper without its logarithm: 16 times the steps, at most a sixteenth of the excess."""
    y = 2.0 * data()[1] - 1
    few, many = (excess(y, weight, max_iter=epochs, batch_size=8, **options) for epochs in (4, 64))
    assert 0 <= many <= few / 16
    assert few < 0.02  # of an objective that is 1 for f = 0


@weighted
@pytest.mark.parametrize("average", [False, True])
def test_each_step_is_the_papers(average, weight):
    """Figure 1 of the paper in dense features, with batches of all rows, so that no order matters."""
    X, labels = data()
    fitted = model(average=average, batch_size=len(X), max_iter=5).fit(X, labels, sample_weight=weight)
    F, w = features(fitted, X)
    y, c = 2.0 * labels - 1, np.ones(len(X)) if weight is None else weight / weight.mean()
    expected, steps = np.zeros(F.shape[1]), []
    for t in range(1, 6):
        value = objective(F, expected, y, c)
        violated = y * (F @ expected) < 1
        expected = (1 - 1 / t) * expected + (violated * c * y) @ F / (PENALTY * t * len(y))
        expected = expected * min(1, 1 / np.sqrt(PENALTY) / np.linalg.norm(expected))
        steps.append(expected)
    # rounding of float64 times the condition number of K_MM, up to 1e8
    assert_allclose(w[:, 0], np.mean(steps, axis=0) if average else expected, atol=1e-6)
    assert fitted.history_[-1]["residual"] == pytest.approx(value, rel=1e-6)


def test_classes_are_learnt_one_against_the_rest():
    X, labels = data(n_classes=3)
    fitted = model(max_iter=3).fit(X, labels)
    values = fitted.decision_function(X)
    assert values.shape == (len(X), 3)
    assert_array_equal(fitted.predict(X), values.argmax(axis=1))
    for label in range(3):
        one = model(max_iter=3).fit(X, labels == label).decision_function(X)
        assert_allclose(values[:, label], one, atol=1e-9)


def test_functions_stay_in_the_ball():
    X, labels = data()
    sizes = []
    for projection in (True, False):
        fitted = model(projection=projection, max_iter=1, batch_size=len(X)).fit(X, labels)
        sizes.append(np.linalg.norm(features(fitted, X)[1]) * np.sqrt(PENALTY))
    assert sizes[0] == pytest.approx(1)
    assert sizes[1] > 1.5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"penalty": 0.0}, "penalty=0.0 must be a finite number greater than 0"),
        ({"penalty": "auto"}, "penalty='auto' must be a finite number greater than 0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"projection": "yes"}, "projection='yes' must be True or False"),
        ({"average": 2}, "average=2"),
        ({"max_iter": 0}, "max_iter=0"),
    ],
    ids=str,
)
def test_bad_parameters(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model().set_params(**wrong).fit(*data())
