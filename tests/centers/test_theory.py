"""`suggest` against Theorems 3 and 5 of the FALKON paper, written out."""

import dataclasses
import math

import pytest

from gyrfalcon import FalkonRegressor
from gyrfalcon.centers.theory import Suggestion, suggest


@pytest.mark.parametrize("n", [3, 1000, 10**6, 10**9])
@pytest.mark.parametrize("kappa", [1.0, 3.0])
def test_theorem_3(n, kappa):
    """lambda = n^-1/2, M >= 75 sqrt(n) log(48 kappa^2 n / delta), t >= log(n)/2 + 5 + 2 log(a + 3 kappa)."""
    s = suggest(n, kappa=kappa, target_range=10.0, delta=0.1)
    assert s.theorem == 3
    assert math.isclose(s.penalty, n**-0.5)
    assert s.theorem_n_centers == math.ceil(75 * math.sqrt(n) * math.log(48 * kappa**2 * n / 0.1))
    assert s.n_iter == math.ceil(0.5 * math.log(n) + 5 + 2 * math.log(10 + 3 * kappa))
    assert s.rate == -0.5
    assert 1 <= s.n_centers <= n


@pytest.mark.parametrize(("gamma", "r"), [(0.5, 0.5), (1.0, 1.0), (0.25, 0.75)])
@pytest.mark.parametrize("kappa", [1.0, 2.0])
def test_theorem_5(gamma, r, kappa):
    n, delta, q = 10**6, 0.01, 1.5
    penalty = n ** (-1 / (2 * r + gamma))
    log = math.log(8 * kappa**2 / (penalty * delta))
    t = math.ceil(math.log(n) + 5 + 2 * math.log(2 + 3 * kappa**2))
    known = {"capacity": gamma, "source": r, "kappa": kappa, "delta": delta}

    uniform = suggest(n, **known)
    assert uniform.theorem == 5
    assert math.isclose(uniform.penalty, penalty)
    assert uniform.n_iter == t
    assert uniform.theorem_n_centers == math.ceil(70 * (1 + kappa**2 / penalty) * log)
    assert uniform.n_centers == min(n, math.ceil((1 + kappa**2 / penalty) * log))
    assert math.isclose(uniform.rate, -2 * r / (2 * r + gamma))

    leverage = suggest(n, sampling="leverage", q=q, **known)
    dimension = kappa**2 * penalty**-gamma
    assert leverage.theorem_n_centers == math.ceil(220 * (2 + q**2 * dimension) * log)
    assert leverage.n_centers == min(n, math.ceil((2 + q**2 * dimension) * log))
    assert leverage.n_iter == t

    measured = suggest(n, sampling="leverage", effective_dimension=40.0, **known)
    assert measured.theorem_n_centers == math.ceil(220 * 42 * log)
    # uniform centers: the theorem needs the largest score, practice the dimension
    measured = suggest(n, effective_dimension=40.0, **known)
    assert measured.theorem_n_centers == uniform.theorem_n_centers
    assert measured.n_centers == math.ceil(41 * log)


def test_leverage_scores_under_no_assumptions_are_theorem_5():
    s = suggest(10**4, sampling="leverage")
    assert (s.theorem, s.sampling) == (5, "leverage")
    assert math.isclose(s.penalty, 0.01)


def test_what_is_known_helps():
    plain, small, smooth = suggest(10**6), suggest(10**6, capacity=0.3), suggest(10**6, source=1.0)
    assert small.rate < plain.rate
    assert smooth.rate < plain.rate
    # a smooth function needs less of the kernel's space, so fewer centers
    assert smooth.penalty > plain.penalty
    assert smooth.n_centers < plain.n_centers
    assert suggest(10**6, capacity=0.3, sampling="leverage").n_centers < plain.n_centers


def test_params_are_an_estimators():
    s = suggest(1000)
    assert s.params() == {"penalty": s.penalty, "n_centers": s.n_centers, "max_iter": s.n_iter}
    estimator = FalkonRegressor(**s.params())
    assert estimator.get_params()["max_iter"] == s.n_iter
    assert FalkonRegressor(**suggest(1000, sampling="leverage").params()).centers == "leverage"
    with pytest.raises(dataclasses.FrozenInstanceError):
        s.penalty = 1.0
    assert isinstance(s, Suggestion)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("n", 10.5),
        ("n", True),
        ("n", "many"),
        ("capacity", 0.0),
        ("capacity", 1.1),
        ("capacity", float("nan")),
        ("source", 0.4),
        ("source", 2),
        ("source", None),
        ("kappa", 0.5),
        ("kappa", float("inf")),
        ("target_range", 0),
        ("target_range", True),
        ("delta", 0.0),
        ("delta", 1.5),
        ("effective_dimension", -3),
        ("effective_dimension", "large"),
        ("sampling", "random"),
        ("q", 0.5),
    ],
)
def test_bad_values_are_named(name, value):
    arguments = {"n": 1000} | {name: value}
    with pytest.raises(ValueError, match=f"^{name}={value!r} must be"):
        suggest(**arguments)
