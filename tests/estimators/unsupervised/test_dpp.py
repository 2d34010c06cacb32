"""Determinantal point processes: frequencies of samples against determinants, in float64."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon import DPP, sample_dpp
from gyrfalcon.centers import determinantal
from gyrfalcon.centers.determinantal import SpectralDPP, VfxDPP
from gyrfalcon.kernels import Gaussian, Linear, Sigmoid

KERNEL = Gaussian(1.0)
X5 = np.random.default_rng(0).standard_normal((5, 2))


@parametrize_with_checks([DPP()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def p_value(process, draws):
    """The chi-square test of frequencies against the determinants of all subsets, rare ones together."""
    L = process.alpha_ * KERNEL(X5, X5)
    subsets = [c for k in range(6) for c in itertools.combinations(range(5), k) if process.size in (None, k)]
    chances = np.array([np.linalg.det(L[np.ix_(c, c)]) for c in subsets])
    at = {c: i for i, c in enumerate(subsets)}
    counts = np.bincount([at[tuple(chosen)] for chosen in process.sample(draws)], minlength=len(subsets))
    expected = draws * chances / chances.sum()
    common = expected >= 5
    pairs = [(counts[common], expected[common]), (counts[~common].sum(), expected[~common].sum())]
    counts, expected = (np.append(*both) for both in zip(*pairs, strict=True))
    kept = expected > 0
    return chisquare(counts[kept], expected[kept]).pvalue


CASES = [
    pytest.param({"expected_size": 2.0, "n_centers": 2}, id="vfx"),
    pytest.param({"expected_size": 0.3, "n_centers": 1}, id="vfx, one center"),
    pytest.param({"n_centers": 3}, id="vfx, the kernel as it is"),
    pytest.param({"size": 2, "n_centers": 3}, id="vfx, size"),
    pytest.param({"expected_size": 2.0}, id="spectral"),
    pytest.param({"size": 3}, id="spectral, size"),
]


@pytest.mark.parametrize("parameters", CASES)
def test_frequencies_are_determinants(parameters):
    process = DPP(KERNEL, random_state=0, n_jobs=1, **parameters).fit(X5)
    assert isinstance(process._sampler, VfxDPP if "n_centers" in parameters else SpectralDPP)
    assert p_value(process, 1_500) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [CASES[0], CASES[3]])
def test_frequencies_of_many_draws_are_determinants(parameters):
    assert p_value(DPP(KERNEL, random_state=1, n_jobs=1, **parameters).fit(X5), 60_000) > 1e-3


def test_another_rate_would_be_found():
    """The rate of the Poisson distribution is what it is: with a larger one samples are of another process."""
    process = DPP(KERNEL, expected_size=2.0, n_centers=2, random_state=0, n_jobs=1).fit(X5)
    process._sampler._rate *= 1.5
    assert p_value(process, 2_000) < 1e-3


def test_any_q_gives_the_same_process(monkeypatch):
    monkeypatch.setattr(determinantal, "_cheapest_q", lambda s, width: s**2)
    assert p_value(DPP(KERNEL, expected_size=2.0, n_centers=2, random_state=0, n_jobs=1).fit(X5), 1_500) > 1e-3


def crowds(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 3)) ** 3


@pytest.mark.parametrize("n_centers", [60, 400])
def test_sizes_and_marginals_of_many_rows(n_centers):
    X = crowds(400)
    process = DPP(KERNEL, expected_size=8, n_centers=n_centers, random_state=0).fit(X)
    L = process.alpha_ * KERNEL(X, X)
    marginal = L @ np.linalg.inv(np.eye(400) + L)
    size, values = marginal.trace(), np.linalg.eigvalsh(marginal)
    if n_centers == 400:
        assert_allclose(size, 8.0)
    assert size <= process.expected_size_ + 1e-9 <= 1.15 * size
    samples = process.sample(150)
    assert all((np.diff(chosen) > 0).all() for chosen in samples)
    sizes = [len(chosen) for chosen in samples]
    deviation = np.sqrt((values * (1 - values)).sum())
    assert abs(np.mean(sizes) - size) < 4 * deviation / np.sqrt(150)
    # of the tenth of the rows that are chosen most often, an eighth or more of the samples' rows should come
    likely = np.argsort(marginal.diagonal())[-40:]
    share = np.isin(np.concatenate(samples), likely).mean()
    assert abs(share - marginal.diagonal()[likely].sum() / size) < 0.06


@pytest.mark.parametrize(("alpha", "excess"), [(0.1, 1.05), (1.0, 1.15), (10.0, 1.2)])
def test_expected_size_is_an_upper_bound(alpha, excess):
    process = DPP(alpha * KERNEL, n_centers=3, random_state=0).fit(X5)
    values = np.linalg.eigvalsh(alpha * KERNEL(X5, X5))
    truth = (values / (1 + values)).sum()
    assert truth <= process.expected_size_ <= excess * truth
    chosen = DPP(KERNEL, expected_size=2.0, n_centers=3, random_state=0).fit(X5)
    assert_allclose(chosen.expected_size_, 2.0)
    # rows that are alone have what is left out to themselves, and nothing is exaggerated
    alone = DPP(alpha * KERNEL, n_centers=7, random_state=0).fit(100.0 * np.arange(8)[:, None])
    assert_allclose(alone.expected_size_, 8 * alpha / (1 + alpha))


def test_scores_are_those_of_the_dense_formula():
    X = crowds(300)
    process = DPP(KERNEL, expected_size=8, n_centers=60, random_state=0).fit(X)
    sampler, alpha = process._sampler, process.alpha_
    assert_allclose(sampler.expected_size, 8)
    # the scores of any part F F' of the kernel: with all of it they are the marginals
    whole = DPP(KERNEL, expected_size=8, n_centers=299, random_state=0).fit(X)
    L = whole.alpha_ * KERNEL(X, X)
    assert_allclose(whole._sampler._scores, (L @ np.linalg.inv(np.eye(300) + L)).diagonal(), rtol=5e-3)
    assert (sampler._scores <= alpha + 1e-12).all()


def test_diverse():
    X = np.repeat(np.eye(4) * 5, 25, axis=0)  # four places, 25 rows each
    for chosen in DPP(KERNEL, size=4, random_state=0).fit(X).sample(5):
        assert_array_equal(np.sort(chosen // 25), np.arange(4))
    for chosen in DPP(KERNEL, size=4, n_centers=4, random_state=0).fit(X).sample(5):
        assert_array_equal(np.sort(chosen // 25), np.arange(4))


@pytest.mark.parametrize("n_centers", [None, 40])
def test_seeds(n_centers):
    X = crowds(200)
    process = DPP(KERNEL, size=5, n_centers=n_centers, random_state=3).fit(X)
    first, second = process.sample(2)
    assert len(first) == len(second) == 5
    assert (first != second).any()
    again = DPP(KERNEL, size=5, n_centers=n_centers, random_state=3, n_jobs=1).fit(X)
    assert_array_equal(again.sample(), first)
    assert_array_equal(pickle.loads(pickle.dumps(again)).sample(), second)
    assert_array_equal(sample_dpp(X, KERNEL, size=5, n_centers=n_centers, random_state=3), first)
    assert process.sample(0) == []


def test_rows_from_elsewhere(tmp_path):
    X = crowds(150)
    X[np.abs(X) < 0.3] = 0
    expected = sample_dpp(X, KERNEL, size=4, n_centers=30, random_state=0)
    np.save(tmp_path / "X.npy", X)
    for rows in (gyrfalcon.open(tmp_path / "X.npy").X, scipy.sparse.csr_array(X)):
        assert_array_equal(sample_dpp(rows, KERNEL, size=4, n_centers=30, random_state=0), expected)


def test_one_row_and_float32():
    process = DPP(KERNEL, expected_size=0.5, random_state=0).fit([[1.0, 2.0]])
    assert 20 < sum(map(len, process.sample(100))) < 80
    assert_array_equal(DPP(KERNEL, size=1).fit([[1.0, 2.0]]).sample(), [0])
    X = crowds(100).astype(np.float32)
    assert_array_equal(sample_dpp(X, size=3, random_state=0), sample_dpp(X.astype(float), size=3, random_state=0))


def test_all_that_are_independent():
    X = np.random.default_rng(0).standard_normal((50, 3))
    chosen = sample_dpp(X, Linear(), size=3, random_state=0)
    assert np.linalg.matrix_rank(X[chosen]) == 3
    assert len(sample_dpp(X, Linear(), size=3, n_centers=10, random_state=0)) == 3


@pytest.mark.parametrize("n_centers", [None, 10])
@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"size": 4}, "size=4 must be at most 3, the rank of the kernel matrix up to rounding"),
        ({"expected_size": 3}, "expected_size=3 must be less than 3, the rank"),
        ({"expected_size": 7.5}, "expected_size=7.5 must be less than 3, the rank"),
    ],
)
def test_more_than_the_rank(parameters, match, n_centers):
    X = np.random.default_rng(0).standard_normal((50, 3))
    with pytest.raises(ValueError, match=match):
        DPP(Linear(), n_centers=n_centers, **parameters).fit(X)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"size": 5}, "size=5 must be at most 4, the rank"),
        ({"expected_size": 4.5}, "expected_size=4.5 must be less than 4, the rank"),
        ({"expected_size": 60}, "expected_size=60 must be less than 4, the rank"),
    ],
)
def test_more_than_the_rank_with_too_few_centers_to_see_it(parameters, match):
    X = np.repeat(np.random.default_rng(0).standard_normal((4, 3)), 50, axis=0)
    with pytest.raises(ValueError, match=match):
        DPP(KERNEL, n_centers=2, random_state=0, **parameters).fit(X)
    assert [len(chosen) for chosen in DPP(KERNEL, size=4, n_centers=2, random_state=0).fit(X).sample(3)] == [4, 4, 4]


def test_all_rows_with_fewer_centers():
    X = np.random.default_rng(0).standard_normal((300, 3))
    assert_array_equal(DPP(Gaussian(0.1), size=300, n_centers=100, random_state=0).fit(X).sample(), np.arange(300))


@pytest.mark.parametrize("parameters", [{"size": 200, "n_centers": 100}, {"n_centers": 10}])
def test_centers_that_leave_too_much_out_are_found_in_fit(parameters):
    X = np.random.default_rng(0).standard_normal((300, 3))
    with pytest.raises(ValueError, match=r"centers leave too much of the kernel matrix out .*: raise n_centers"):
        DPP(Gaussian(0.1), random_state=0, **parameters).fit(X)


@pytest.mark.parametrize(("n_centers", "alpha"), [(3, 0.1), (3, 1.0), (4, 3.0)])
def test_no_more_proposals_are_accepted_than_fit_foresees(n_centers, alpha, monkeypatch):
    """The share is det(I + L) exp(z - D + q - q e^(s/q)), of which `fit` bounds the determinant."""
    process = DPP(alpha * KERNEL, n_centers=n_centers, random_state=0, n_jobs=1).fit(X5)
    sampler, L = process._sampler, alpha * KERNEL(X5, X5)
    share = np.linalg.det(np.eye(5) + L) * np.exp(sampler._surplus + sampler._q - sampler._rate)
    accepted = np.mean([sampler._propose(process._random)[1] is not None for _ in range(2_000)])
    assert abs(accepted - share) < 4 * np.sqrt(share * (1 - share) / 2_000)
    # at best as many as the bound: a process is refused if that is too few, and never otherwise
    monkeypatch.setattr(determinantal, "_MOST_REJECTIONS", 1)
    monkeypatch.setattr(determinantal, "_HOPELESS", share)
    DPP(alpha * KERNEL, n_centers=n_centers, random_state=0, n_jobs=1).fit(X5)


@pytest.mark.parametrize("n_centers", [None, 40])
def test_a_size_that_is_set_after_fit_waits_for_the_next_fit(n_centers):
    process = DPP(KERNEL, size=5, n_centers=n_centers, random_state=3).fit(crowds(200))
    for size in ("x", 190, None):
        assert len(process.set_params(size=size).sample()) == 5
    process = DPP(KERNEL, expected_size=5, n_centers=n_centers, random_state=3).fit(crowds(200))
    process.set_params(size=190).sample()
    with pytest.raises(ValueError, match="size='x' must be"):
        process.set_params(size="x", expected_size=None).fit(crowds(200))


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"size": 0}, "size=0 must be an integer of at least 1"),
        ({"size": 31}, "size=31 must be at most 30, the number of rows"),
        ({"expected_size": 30, "n_centers": 5}, "expected_size=30 must be less than 30, the number of rows"),
        ({"size": 3, "expected_size": 3}, "exclude each other"),
        ({"expected_size": -1.0}, "expected_size=-1.0 must be None or a finite number"),
        ({"n_centers": 0}, "n_centers=0"),
        ({"kernel": 0.0 * Gaussian(1.0)}, "zero or not positive"),
        ({"kernel": Sigmoid(gamma=1.0, coef0=-0.5)}, "zero or not positive"),
    ],
)
def test_parameters_that_make_no_sense(parameters, match):
    model = DPP(**parameters)
    with pytest.raises(ValueError, match=match):
        model.fit(crowds(30))
    assert not hasattr(model, "alpha_")


@pytest.mark.parametrize("n_centers", [None, 20])
def test_not_finite(n_centers, tmp_path):
    X = crowds(100)
    X[7, 1] = np.nan
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match="NaN"):
        DPP(KERNEL, size=3, n_centers=n_centers).fit(X)
    with pytest.raises(ValueError, match=r"NaN|nan|not finite"):
        DPP(KERNEL, size=3, n_centers=n_centers).fit(gyrfalcon.open(tmp_path / "X.npy").X)


def test_too_many_are_expected(monkeypatch):
    monkeypatch.setattr("gyrfalcon._utils.memory.available_memory", lambda: 10**7)
    with pytest.raises(MemoryError, match="rows are expected in a sample: ask for fewer"):
        DPP(Gaussian(0.01), expected_size=100, n_centers=10).fit(crowds(3_000))


def test_too_many_centers(monkeypatch):
    monkeypatch.setattr("gyrfalcon._utils.memory.available_memory", lambda: 10**6)
    with pytest.raises(MemoryError, match="ask for fewer rows, or for fewer centers"):
        DPP(KERNEL, size=1_000, n_centers=10).fit(crowds(3_000))


def test_proposals_that_are_never_accepted(monkeypatch):
    monkeypatch.setattr(determinantal, "_MOST_REJECTIONS", 20)
    process = DPP(Gaussian(0.5), expected_size=25, n_centers=1, random_state=0).fit(crowds(100))
    with pytest.raises(RuntimeError, match="raise n_centers"):
        process.sample(20)
