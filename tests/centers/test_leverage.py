"""Leverage scores and effective dimension against the formula that defines them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon.centers.leverage import effective_dimension, leverage_scores
from gyrfalcon.kernels import Gaussian, Kernel, Laplacian, Linear, Sigmoid


def clusters(n, seed=0):
    """One crowd and five rare clusters far from it and from each other."""
    rng = np.random.default_rng(seed)
    which = rng.choice(6, n, p=[0.9, 0.05, 0.03, 0.01, 0.005, 0.005])
    means = np.random.default_rng(7).normal(size=(6, 4)) * 6
    return means[which] + rng.normal(size=(n, 4)) * np.where(which == 0, 0.2, 1.0)[:, None]


def by_definition(X, kernel, penalty):
    return of_eigensystem(np.linalg.eigh(kernel(X, X)), penalty)


def of_eigensystem(eigensystem, penalty):
    values, vectors = eigensystem
    values = np.maximum(values, 0.0)
    return (vectors**2) @ (values / (values + penalty * len(values)))


@cache
def known(data):
    """The eigensystem of a kernel matrix of `DATA`."""
    X, kernel = DATA[data]
    return np.linalg.eigh(kernel(X, X))


def factor(scores, exact):
    """q: the largest factor between a score and the exact one."""
    ratio = scores / exact
    return max(ratio.max(), 1 / ratio.min())


class Streamed:
    """A source that is no array."""

    def __init__(self, X):
        self.X, self.shape, self.dtype = X, X.shape, X.dtype

    def blocks(self, size):
        return (np.ascontiguousarray(self.X[start : start + size]) for start in range(0, len(self.X), size))

    def take(self, indices):
        return self.X[indices]


DATA = {
    "clusters": (clusters(700), Gaussian(2.0)),
    "smooth": (np.random.default_rng(1).standard_normal((700, 3)), Gaussian(1.0)),
    "rough": (np.random.default_rng(2).standard_normal((700, 3)), Laplacian(2.0)),
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("penalty", [1.0, 1e-2, 1e-4, 1e-7])
def test_exact_scores_are_the_definition(data, penalty):
    X, kernel = DATA[data]
    expected = of_eigensystem(known(data), penalty)
    assert_allclose(leverage_scores(X, kernel, penalty), expected, rtol=1e-6, atol=1e-8)
    assert effective_dimension(X, kernel, penalty, method="exact") == pytest.approx(expected.sum())


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize(
    ("method", "penalty"),
    [*[("pilot", p) for p in (1e-1, 3e-3)], *[("bless", p) for p in (1e-1, 1e-3, 1e-5)]],
)
def test_approximate_scores_are_within_a_factor_of_two(data, penalty, method):
    X, kernel = DATA[data]
    exact = of_eigensystem(known(data), penalty)
    # a pilot promises nothing below 1 / penalty rows: with 400 of them and a penalty of 1e-3, q is above 2
    n_pilot = 400
    q = [
        factor(leverage_scores(X, kernel, penalty, method=method, n_pilot=n_pilot, random_state=seed), exact)
        for seed in range(4)
    ]
    assert np.median(q) <= 2
    assert np.mean(np.array(q) <= 2) >= 0.75


def test_bless_stays_good_where_a_pilot_would_have_to_be_large():
    X, kernel = clusters(1500), Gaussian(2.0)
    eigensystem = np.linalg.eigh(kernel(X, X))
    for penalty in (1e-4, 1e-6):
        exact = of_eigensystem(eigensystem, penalty)
        q = [factor(leverage_scores(X, kernel, penalty, method="bless", random_state=seed), exact) for seed in range(4)]
        assert np.median(q) <= 2
        assert max(q) < 3


def test_a_pilot_of_all_rows_is_exact():
    X, kernel = DATA["clusters"]
    scores = leverage_scores(X, kernel, 1e-3, method="pilot", n_pilot=10**9, random_state=0)
    assert_allclose(scores, by_definition(X, kernel, 1e-3), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["pilot", "bless"])
def test_effective_dimension_from_a_sample(method):
    X, kernel = clusters(3000), Gaussian(2.0)
    # exactly by the eigenvalues: sum of s / (s + penalty n)
    s = np.maximum(np.linalg.eigvalsh(kernel(X[::2], X[::2])), 0) / 1500
    for penalty in [1e-1, 1e-2, 1e-3]:
        estimate = effective_dimension(X, kernel, penalty, method=method, random_state=3)
        assert estimate == pytest.approx(np.sum(s / (s + penalty)), rel=0.2)


def test_work_of_bless_does_not_grow_with_n(monkeypatch):
    """Counted in rows that are asked for: a source of a billion rows that cannot be read as a whole."""
    taken = []

    class Huge(Streamed):
        shape, dtype = (10**9, 2), np.dtype(np.float64)

        def __init__(self):
            pass

        def blocks(self, size):
            raise AssertionError("nobody may read all rows")

        def take(self, indices):
            taken.append(len(indices))
            return np.stack([np.sin(indices * 0.1), np.cos(indices * 0.73)], axis=1)

    d_eff = np.mean([effective_dimension(Huge(), Gaussian(0.5), 1e-2, random_state=seed) for seed in range(5)])
    assert sum(taken) < 5 * 30_000
    X = Huge().take(np.random.default_rng(0).integers(0, 10**9, 1500))
    assert d_eff == pytest.approx(by_definition(X, Gaussian(0.5), 1e-2).sum(), rel=0.1)


@pytest.mark.parametrize("method", ["pilot", "bless"])
def test_seeds(method):
    X, kernel = DATA["smooth"]

    def run(seed):
        return leverage_scores(X, kernel, 1e-3, method=method, n_pilot=100, random_state=seed)

    assert_array_equal(run(0), run(0))
    assert_array_equal(run(0), run(np.random.RandomState(0)))
    assert (run(0) != run(1)).any()


@pytest.mark.parametrize("method", ["exact", "pilot", "bless"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sources_and_precision(method, dtype):
    X = DATA["clusters"][0].astype(dtype)
    options = {"method": method, "random_state": 0}
    scores = leverage_scores(Streamed(X), Gaussian(2.0), 1e-6, **options)
    assert scores.dtype == np.float64
    assert_array_equal(scores, leverage_scores(X, Gaussian(2.0), 1e-6, **options))
    # float32 rows are scored in float64, as the same numbers in float64 are
    assert_allclose(scores, leverage_scores(X.astype(np.float64), Gaussian(2.0), 1e-6, **options), rtol=1e-10)


@pytest.mark.parametrize("method", ["exact", "pilot", "bless"])
def test_few_and_equal_rows(method):
    assert_allclose(leverage_scores([[3.0]], "gaussian", 1e-2, method=method), [1 / 1.01])
    # n copies of one row share what one direction weighs
    same = leverage_scores(np.ones((50, 2)), Gaussian(1.0), 1e-3, method=method, random_state=0)
    assert_allclose(same, 1 / (50 * 1.001), rtol=0.2)


@pytest.mark.parametrize("method", ["exact", "pilot", "bless"])
def test_rank_deficient(method):
    """A linear kernel of 3 features: at a small penalty d_eff is 3, though the pilot's matrix is singular."""
    X = np.random.default_rng(0).standard_normal((600, 3))
    scores = leverage_scores(X, Linear(), 1e-9, method=method, random_state=0)
    hat = X @ np.linalg.solve(X.T @ X, X.T)
    assert factor(scores, np.diag(hat)) < (1.001 if method == "exact" else 2)


@pytest.mark.parametrize("method", ["exact", "pilot"])
def test_a_kernel_that_is_not_positive(method):
    X = np.random.default_rng(0).standard_normal((300, 3))
    scores = leverage_scores(X, Sigmoid(gamma=1.0, coef0=-0.5), 1e-4, method=method, random_state=0)
    assert np.isfinite(scores).all()
    assert scores.min() >= 0
    assert 0 < scores.max() <= 1


class Negative(Kernel):
    geometry = "distance"

    def profile(self, s):
        return -np.exp(-s)


def test_a_kernel_without_any_positive_value():
    with pytest.raises(ValueError, match=r"every leverage score is zero: Negative\(\) is not positive"):
        leverage_scores(np.eye(5), Negative(), 1e-2, method="bless")


def test_memory(monkeypatch):
    monkeypatch.setattr("gyrfalcon._utils.memory.available_memory", lambda: 10**6)
    X = np.zeros((1000, 2))
    with pytest.raises(MemoryError, match=r"a 1000 x 1000 kernel matrix takes 8 MB, and 1 MB are .* method=\"bless\""):
        leverage_scores(X, "gaussian", 1e-2)
    assert effective_dimension(X, "gaussian", 1e-2, random_state=0) == pytest.approx(1 / 1.01, rel=0.1)


@pytest.mark.parametrize("call", [leverage_scores, effective_dimension])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": 0.0}, "penalty=0.0 must be a positive finite number"),
        ({"penalty": -1.0}, "penalty=-1.0"),
        ({"penalty": np.nan}, "penalty=nan"),
        ({"penalty": np.inf}, "penalty=inf"),
        ({"penalty": True}, "penalty=True"),
        ({"penalty": "small"}, "penalty='small'"),
        ({"method": "best"}, "method='best' must be one of 'exact', 'pilot', 'bless'"),
        ({"n_pilot": 0}, "n_pilot=0 must be an integer of at least 1"),
        ({"n_pilot": 1.5}, "n_pilot=1.5"),
        ({"X": np.empty((0, 2))}, "X has no rows"),
        ({"X": np.zeros(3)}, "2-D array"),
        ({"X": np.array([[0.0, np.nan], [1.0, 2.0]])}, "contain NaN or infinity"),
        ({"X": np.array([[0.0, np.nan], [1.0, 2.0]]), "method": "pilot"}, "contain NaN or infinity"),
        ({"kernel": "best"}, "kernel='best' is not known"),
    ],
)
def test_bad_input(call, options, message):
    options = {"X": np.eye(3), "kernel": "gaussian", "penalty": 1e-2} | options
    with pytest.raises(ValueError, match=message):
        call(options.pop("X"), options.pop("kernel"), options.pop("penalty"), **options)
