"""Calibration of least-squares values: known probabilities are found again, and no data make it fail."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime
from scipy.special import softmax
from scipy.stats import rankdata
from sklearn.metrics import log_loss

from gyrfalcon.fitting.calibration import Calibration, _features, _objective, fit_calibration, with_absent_classes

N = 20_000


def simulated(k, seed=0):
    """Probabilities of k classes, and classes drawn from them."""
    rng = np.random.default_rng(seed)
    p = softmax(1.5 * rng.standard_normal((N, k)), axis=1)
    codes = (rng.uniform(size=(N, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return p, codes


def as_values(p):
    return 2 * p[:, 1] - 1 if p.shape[1] == 2 else 2 * p - 1


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("shrink", [1.0, 0.8])
def test_known_probabilities_are_found(k, shrink):
    p, codes = simulated(k)
    values = as_values(shrink * p + (1 - shrink) * p.mean(axis=0))
    found = fit_calibration(values[: N // 2], codes[: N // 2], k).probabilities(values[N // 2 :])
    true, late = p[N // 2 :], codes[N // 2 :]
    assert log_loss(late, found, labels=range(k)) < 1.01 * log_loss(late, true, labels=range(k))


@pytest.mark.parametrize("k", [2, 4])
def test_its_own_scores_are_found(k):
    p, _ = simulated(k)
    truth = Calibration(3.0, 0.7, 0.5, tuple(np.linspace(-0.5, 0.5, k).tolist()), 0.02)
    q = truth.probabilities(as_values(p))
    codes = (np.random.default_rng(1).uniform(size=(N, 1)) > q.cumsum(axis=1)[:, :-1]).sum(axis=1)
    found = fit_calibration(as_values(p), codes, k).probabilities(as_values(p))
    # k + 3 numbers learnt from N rows: errors of probabilities are some sqrt((k + 3) / N)
    assert np.abs(found - q).mean() < 2 * np.sqrt((k + 3) / N)


@pytest.mark.parametrize("k", [2, 5])
def test_the_gradient(k):
    p, codes = (a[:200] for a in simulated(k))
    w = np.random.default_rng(2).uniform(size=200)
    arguments = (_features(as_values(p), k, 0.02), codes, w / w.sum())
    theta = np.random.default_rng(3).uniform(0.5, 2.0, size=k + 3)
    numeric = approx_fprime(theta, lambda t: _objective(t, *arguments)[0])
    assert_allclose(_objective(theta, *arguments)[1], numeric, atol=1e-6)


def test_the_order_of_two_classes_is_kept():
    rng = np.random.default_rng(0)
    values = rng.normal(0, 0.8, size=3000)  # many beyond -1 and 1
    for labels in (values > 0.3, values < 0.3, rng.uniform(size=3000) < 0.5, np.abs(values) > 0.5):
        calibration = fit_calibration(values, labels.astype(int), 2)
        log_odds = np.diff(calibration.log_probabilities(values), axis=1)[:, 0]
        assert_array_equal(rankdata(log_odds), rankdata(values))


def test_weights_are_repetitions():
    p, codes = (a[:300] for a in simulated(3))
    w = np.random.default_rng(4).integers(1, 4, size=300)
    weighted = fit_calibration(as_values(p), codes, 3, w)
    repeated = fit_calibration(np.repeat(as_values(p), w, axis=0), np.repeat(codes, w), 3)
    # but for the number of rows, which decides how much is known about slopes beforehand
    assert_allclose(weighted.probabilities(as_values(p)), repeated.probabilities(as_values(p)), atol=1e-3)
    only = np.arange(300) < 200
    assert_allclose(
        fit_calibration(as_values(p), codes, 3, only.astype(float)).probabilities(as_values(p)),
        fit_calibration(as_values(p)[only], codes[only], 3).probabilities(as_values(p)),
        atol=1e-3,
    )


@pytest.mark.parametrize(
    ("values", "codes", "k"),
    [
        (np.array([-1.0, -0.5, 0.2, 0.7, 1.0]), np.array([0, 0, 1, 1, 1]), 2),  # separable
        (np.array([0.1]), np.array([1]), 2),
        (np.zeros(6), np.array([0, 1, 0, 1, 1, 1]), 2),
        (np.full((6, 3), -1 / 3), np.array([0, 1, 0, 1, 1, 1]), 3),  # constant, and no row of the last class
        (np.eye(4)[[0, 1, 2, 3, 0]] * 2 - 1, np.array([0, 1, 2, 3, 0]), 4),
        (np.array([-1e6, 1e6, 3.0]), np.array([0, 1, 1]), 2),
        (np.array([-1e6, 1e6, 3.0]), np.array([1, 0, 1]), 2),
    ],
    ids=range(7),
)
def test_probabilities_are_always_finite(values, codes, k):
    calibration = fit_calibration(values, codes, k)
    for f in (values, 10 * values, values.astype(np.float32)):
        p = calibration.probabilities(f)
        assert p.shape == (len(f), k)
        assert np.isfinite(calibration.log_probabilities(f)).all()
        assert_allclose(p.sum(axis=1), 1.0)
    assert max(calibration.slope, calibration.log_slope, calibration.bend) <= 40


def test_constant_values_give_the_shares_of_the_classes():
    codes = np.arange(1000) % 10 // 7  # 70% and 30%
    p = fit_calibration(np.zeros(1000), codes, 2).probabilities(np.zeros(1))
    assert_allclose(p, [[0.7, 0.3]], atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 4])
def test_a_class_without_rows_keeps_half_a_row(k, weighted):
    n = 400
    rng = np.random.default_rng(0)
    codes = rng.integers(k - 1, size=n)
    p = rng.dirichlet(np.ones(k), size=n) if k > 2 else np.full((n, 2), [0.99, 0.01])
    weight = rng.uniform(1.0, 3.0, size=n) if weighted else None
    if weighted:
        codes, weight = np.append(codes, k - 1), np.append(weight, 0.0)  # a row that does not count is none
        p = np.vstack([p, p[:1]])
    found = np.average(
        fit_calibration(as_values(p), codes, k, weight).probabilities(as_values(p)), axis=0, weights=weight
    )
    # what keeps biases finite draws a rare class towards the others
    assert 0.4 / n < found[-1] < 2.0 / n
    scaled = None if weight is None else 1e3 * weight
    again = fit_calibration(as_values(p), codes, k, scaled).probabilities(as_values(p))
    assert_allclose(np.average(again, axis=0, weights=weight), found, rtol=1e-4)


def test_a_class_without_rows_is_found_where_it_is_plain():
    codes = np.arange(300) % 3
    values = 1.9 * np.eye(3)[codes] - 0.95 + np.random.default_rng(0).normal(0, 0.05, size=(300, 3))
    p = fit_calibration(values[codes < 2], codes[codes < 2], 3).probabilities(values)
    assert_array_equal(p.argmax(axis=1), codes)


def test_rows_of_every_class_stay_as_they_are():
    values, codes, weight = np.zeros(4), np.array([0, 1, 1, 0]), np.array([1.0, 0.0, 2.0, 1.0])
    for given in (None, weight):
        found = with_absent_classes(values, codes, 2, given)
        assert all(one is other for one, other in zip(found, (values, codes, given), strict=True))


@pytest.mark.parametrize(
    "wrong",
    [{"slope": -1.0}, {"bend": -1.0}, {"log_slope": np.nan}, {"eps": 0.0}, {"bias": (0.0,)}, {"bias": (0.0, np.inf)}],
    ids=repr,
)
def test_numbers_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match=r"calibration|bias"):
        Calibration(**{"slope": 1.0, "log_slope": 1.0, "bend": 0.0, "bias": (0.0, 0.0), "eps": 0.01, **wrong})
