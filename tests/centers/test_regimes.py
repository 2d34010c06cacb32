"""N_infinity, d~, the theorems' numbers of centers, and NYTRO's signal-to-noise ratio and regimes, written out."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import (
    centers_needed,
    d_tilde,
    effective_dimension,
    n_infinity,
    regime,
    signal_to_noise,
    suggest,
    suggest_nytro,
)
from gyrfalcon.centers.regimes import regime_curves
from gyrfalcon.kernels import Gaussian, Linear

KERNEL = Gaussian(1.0)


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((200, 2)) * [1.0, 2.0]


@pytest.mark.parametrize("penalty", [1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_largest_scores(X, penalty, dtype):
    X = X.astype(dtype)
    K = KERNEL(X.astype(float), X.astype(float))
    scores = np.diag(K @ np.linalg.inv(K + penalty * 200 * np.eye(200)))
    expected = 200 * scores.max()
    assert d_tilde(X, KERNEL, penalty) == pytest.approx(expected, rel=1e-6)
    assert n_infinity(X, KERNEL, penalty) == pytest.approx(expected, rel=1e-6)
    assert n_infinity(X, KERNEL, penalty, points=X) == pytest.approx(expected, rel=1e-6)
    assert effective_dimension(X, KERNEL, penalty, method="exact") <= expected <= 1 / penalty
    assert d_tilde(X, KERNEL, penalty, method="pilot", n_pilot=200) == pytest.approx(expected, rel=1e-6)


def test_other_points(X):
    """<K_x, (C + lambda)^-1 K_x> with C of the rows, by the features of a kernel of two features; and far from them."""
    points, penalty = np.array([[0.5, -1.0], [3.0, 2.0]]), 1e-2
    C = X.T @ X / 200
    expected = np.einsum("ij,ij->i", points @ np.linalg.inv(C + penalty * np.eye(2)), points).max()
    assert n_infinity(X, Linear(), penalty, points=points) == pytest.approx(expected, rel=1e-6)
    # nothing is known there: the bound k(x, x) / lambda, which is more than n here
    assert n_infinity(X, KERNEL, 1e-4, points=[[99.0, 99.0]]) == pytest.approx(1e4)
    assert 0 < n_infinity(X, KERNEL, 1e-2, method="bless", random_state=0) <= 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"penalty": 0.0}, "penalty=0.0"),
        ({"penalty": 1e-2, "method": "some"}, "method='some'"),
        ({"penalty": 1e-2, "points": np.zeros((0, 2))}, "points have shape \\(0, 2\\)"),
        ({"penalty": 1e-2, "points": np.zeros((3, 1))}, "the 2 features of X"),
    ],
)
def test_errors_of_n_infinity(X, arguments, message):
    with pytest.raises(ValueError, match=message):
        n_infinity(X, KERNEL, **arguments)


@pytest.mark.parametrize("kappa", [1.0, 2.0])
@pytest.mark.parametrize("penalty", [1e-1, 1e-4])
def test_centers_needed(penalty, kappa):
    delta, q = 0.1, 1.5
    log = math.log(8 * kappa**2 / (penalty * delta))
    given = {"kappa": kappa, "delta": delta}
    bound = kappa**2 / penalty
    assert centers_needed(penalty, theorem=2, **given) == math.ceil(5 * (1 + 14 * bound) * log)
    for theorem, factor in ((4, 215), (5, 220)):
        assert centers_needed(penalty, theorem=theorem, **given) == math.ceil(70 * (1 + bound) * log)
        assert centers_needed(penalty, theorem=theorem, n_infinity=20.0, **given) == math.ceil(70 * 21 * log)
        drawn = {"theorem": theorem, "sampling": "leverage", "q": q, **given}
        assert centers_needed(penalty, **drawn) == math.ceil(factor * (2 + q**2 * bound) * log)
        found = centers_needed(penalty, effective_dimension=9.0, **drawn)
        assert found == math.ceil(factor * (2 + q**2 * 9) * log)


def test_conditions_are_checked():
    enough = {"n": 10**9, "n_infinity": 10.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        centers_needed(1e-3, theorem=2, n=10**9)
        centers_needed(1e-3, theorem=5, **enough)
        centers_needed(1e-3, theorem=4, sampling="leverage", n=10**9, effective_dimension=10.0)
        centers_needed(1e-3)  # without n there is nothing to check
    least = math.ceil(405 * math.log(12 / 0.05))
    with pytest.warns(
        UserWarning, match=f"Theorem 4 does not apply: n=1,000 is too small, it holds from {least:,} rows on"
    ):
        centers_needed(0.5, sampling="leverage", n=1000)
    with pytest.warns(UserWarning, match="n=100,000 is too small for penalty=0.0001, the least penalty is 0.0026"):
        centers_needed(1e-4, sampling="leverage", n=100_000)
    least = math.ceil(1655 + 223 * math.log(24 / 0.05))
    with pytest.warns(
        UserWarning, match=f"Theorem 5 .* holds from {least:,} rows on; n=500 is too small for penalty=0.01"
    ):
        centers_needed(1e-2, theorem=5, n=500)
    with pytest.warns(UserWarning, match="it asks for .* centers, and there are 5,000 rows. Far fewer"):
        centers_needed(1e-2, theorem=2, n=5000)
    with pytest.warns(UserWarning, match="exceeds kappa\\^2 = 1"):
        centers_needed(2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"penalty": 0}, "penalty=0"),
        ({"theorem": 3}, "theorem=3 must be 2, 4 or 5"),
        ({"theorem": 2, "sampling": "leverage"}, "Theorem 2 is for uniform centers"),
        ({"sampling": "some"}, "sampling='some'"),
        ({"n_infinity": -1.0}, "n_infinity=-1.0"),
        ({"n": 2}, "n=2"),
        ({"kappa": 0.5}, "kappa=0.5"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"q": 0.5}, "q=0.5"),
    ],
)
def test_errors_of_centers_needed(arguments, message):
    with pytest.raises(ValueError, match=message):
        centers_needed(**{"penalty": 1e-2, **arguments})


def test_suggest_says_from_where_its_theorem_holds():
    """Appendix E: (82 kappa^2 log(373 kappa^2 / sqrt(delta)))^2, (102 kappa^2 s/(s-1) log(912/delta))^(s/(s-1))."""
    expected = math.ceil((82 * math.log(373 / math.sqrt(0.05))) ** 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert suggest(expected).least_n == expected
    with pytest.warns(UserWarning, match=f"Theorem 3 holds from n = {expected:,} on, and n={expected - 1}"):
        suggest(expected - 1)
    s = 2.5
    expected = math.ceil((102 * 4 * s / (s - 1) * math.log(912 / 0.05)) ** (s / (s - 1)))
    with pytest.warns(UserWarning, match="Theorem 5 holds from"):
        assert suggest(1000, source=0.75, kappa=2.0).least_n == expected


def test_signal_to_noise(X):
    coef = np.random.default_rng(1).standard_normal(5)
    mean = KERNEL(X, X[:5]) @ coef
    expected = coef @ KERNEL(X[:5], X[:5]) @ coef / 0.3
    assert signal_to_noise(X, mean, KERNEL, 0.3) == pytest.approx(expected, rel=1e-4)
    assert signal_to_noise(X, X @ [3.0, 4.0], Linear(), 0.5) == pytest.approx(50)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sigma2", [1e-3, 0.4, 10.0])
def test_the_risk_of_theorem_2(X, sigma2, seed):
    """The expected risk of kernel ridge regression is at most sigma^2 d_eff / n, at 1 / (n SNR)."""
    K = KERNEL(X, X)
    mean = KERNEL(X, X[:5]) @ np.random.default_rng(seed).standard_normal(5)
    snr = signal_to_noise(X, mean, KERNEL, sigma2)
    found = suggest_nytro(200, snr)
    assert found.penalty == 1 / snr
    assert found.proven_penalty == pytest.approx(1 / (200 * snr))

    def risk_and_bound(penalty):
        H = K @ np.linalg.inv(K + penalty * 200 * np.eye(200))
        risk = np.mean((H @ mean - mean) ** 2) + sigma2 * np.sum(H**2) / 200
        return risk, sigma2 * np.trace(H) / 200

    risk, bound = risk_and_bound(found.proven_penalty)
    assert risk <= bound * (1 + 1e-6)
    assert bound <= sigma2
    if sigma2 > 0.1:  # as printed it does not hold
        risk, bound = risk_and_bound(found.penalty)
        assert risk > bound


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mean": np.zeros(3)}, "mean must hold 200 finite numbers"),
        ({"mean": np.full(200, np.nan)}, "mean must hold 200 finite"),
        ({"noise_variance": 0.0}, "noise_variance=0.0"),
    ],
)
def test_errors_of_signal_to_noise(X, arguments, message):
    given = {"mean": np.ones(200), "kernel": KERNEL, "noise_variance": 1.0, **arguments}
    with pytest.raises(ValueError, match=message):
        signal_to_noise(X, **given)


def test_regimes():
    """Figure 1: c1 = n / |log(n SNR)| and c2 = SNR / |log(SNR)|; around SNR = 1 only NKRLS and KRLS are left."""
    n = 10_000
    snr = np.array([1e-2, 10.0, 1e5])
    c1, c2 = regime_curves(n, snr)
    assert_allclose(c1, [n / math.log(100), n / math.log(1e5), n / math.log(1e9)])
    assert_allclose(c2, [0.01 / math.log(100), 10 / math.log(10), 1e5 / math.log(1e5)])
    assert regime_curves(n, 1.0)[1] == math.inf
    assert regime_curves(n, 1 / n)[0] == math.inf
    assert regime(n, 100, 0.01) == "NYTRO"
    assert regime(n, 5_000, 0.01) == "Early Stopping"
    assert regime(n, 3, 10.0) == "NKRLS"
    assert regime(n, 5, 10.0) == "NYTRO"
    assert regime(n, 100, 1.0) == "NKRLS"
    assert regime(n, 9_000, 1.0) == "KRLS"
    # the operations of NYTRO and NKRLS, n d~ SNR log(n SNR) and n (d~ log(n SNR))^2, cross near c2 (section 3.3)
    for ratio in (1e2, 1e4):
        crossing = ratio / math.log(n * ratio)
        assert 0.3 < crossing / regime_curves(n, ratio)[1] < 1


def test_suggest_nytro():
    found = suggest_nytro(10_000, snr=50.0, dimension=30.0, kappa=2.0, delta=0.1)
    assert found.penalty == 0.02
    assert found.n_iter == 200
    assert found.n_centers == math.ceil(30 * math.log(10_000 * 50))
    assert found.theorem_n_centers == math.ceil((32 * 30 / 0.1 + 2) * math.log(4 * 1e8 / (0.1 * 0.02)))
    assert found.regime == regime(10_000, 30.0, 50.0)
    assert suggest_nytro(100, snr=50.0).n_centers == 100
    assert suggest_nytro(100, snr=1e-6).n_iter == 1


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (regime, {"n": 2, "dimension": 1.0, "snr": 1.0}, "n=2"),
        (regime, {"n": 100, "dimension": 0.0, "snr": 1.0}, "dimension=0.0"),
        (regime, {"n": 100, "dimension": 1.0, "snr": -1.0}, "snr=-1.0"),
        (regime_curves, {"n": 100, "snr": [1.0, 0.0]}, "snr must be positive"),
        (suggest_nytro, {"n": 100, "snr": 0.0}, "snr=0.0"),
        (suggest_nytro, {"n": 100, "snr": 1.0, "delta": 1.0}, "delta=1.0"),
        (suggest_nytro, {"n": 100, "snr": 1.0, "kappa": 0.0}, "=0.0"),
    ],
)
def test_errors_of_regimes(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(**arguments)
