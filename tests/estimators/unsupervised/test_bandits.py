"""Kernel bandits: their choices against a Gaussian process solved densely, in float64."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon import BBKB, BKB
from gyrfalcon.kernels import Gaussian, Linear, Sigmoid
from gyrfalcon.solvers import arms as solver

KERNEL, NOISE = Gaussian(0.8), 0.2
EVERY = 1e9  # oversampling by which all arms that were played are in the dictionary
EACH = pytest.mark.parametrize("cls", [BKB, BBKB])


@parametrize_with_checks([BKB(), BBKB()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def candidates(n=60, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, size=(n, 2))


def reward(X, arms, rng):
    return np.sin(2 * X[arms, 0]) * np.cos(X[arms, 1]) + NOISE * rng.standard_normal(len(arms))


def gaussian_process(X, arms, y, kernel=KERNEL, noise=NOISE):
    """Posterior mean and deviation of all rows, given rewards of some."""
    K, K_X = kernel(X[arms], X[arms]), kernel(X, X[arms])
    inverse = np.linalg.inv(K + noise**2 * np.eye(len(arms)))
    variance = kernel.diag(X) - np.einsum("ij,jk,ik->i", K_X, inverse, K_X)
    return K_X @ inverse @ y, np.sqrt(np.maximum(variance, 0))


def play(bandit, X, plays, seed=1):
    rng, order, rewards = np.random.default_rng(seed), [], []
    while len(order) < plays:
        arms = bandit.ask()
        y = reward(X, arms, rng)
        bandit.tell(arms, y)
        order.extend(arms.tolist())
        rewards.extend(y)
    return np.array(order), np.array(rewards)


def test_with_every_arm_in_the_dictionary_it_is_gp_ucb():
    X = candidates()
    bandit = BKB(KERNEL, noise=NOISE, norm=1.5, delta=0.1, exploration=0.7, oversampling=EVERY, random_state=0).fit(X)
    rng, arms, y = np.random.default_rng(1), [], []
    for t in range(40):
        if t:
            mean, std = gaussian_process(X, np.array(arms), np.array(y))
            dimension = np.square(std[arms] / NOISE).sum()
        else:
            mean, std, dimension = np.zeros(60), np.ones(60), 0.0
        width = 0.7 * (1.5 + math.sqrt(math.log(max(t, 1)) * dimension + math.log(10)))
        expected = int(np.argmax(mean + width * std))
        assert_array_equal(bandit.ask(), [expected])
        found_mean, found_std = bandit.posterior()
        assert_allclose(found_mean, mean, atol=1e-8)
        assert_allclose(found_std, std, atol=1e-6)
        arms.append(expected)
        y.extend(reward(X, np.array([expected]), rng))
        bandit.tell(expected, y[-1])
    assert bandit.counts_.sum() == 40
    assert bandit.best_ == np.argmax(bandit.posterior()[0])


def test_a_batch_shrinks_variances_as_plays_would():
    X = candidates()
    bandit = BKB(KERNEL, noise=NOISE, oversampling=EVERY, random_state=0).fit(X)
    arms, y = play(bandit, X, 15)
    mean, start = gaussian_process(X, arms, y)
    width = 1.0 + math.sqrt(math.log(15) * np.square(start[arms] / NOISE).sum() + math.log(2))
    expected = []
    for _ in range(12):
        known = np.r_[arms, expected].astype(int)
        std = gaussian_process(X, known, np.zeros(len(known)))[1]
        expected.append(int(np.argmax(mean + width * std)))
    assert_array_equal(bandit.ask(12), expected)
    assert_array_equal(bandit.ask(3), expected[:3])
    assert_array_equal(bandit.ask(1), bandit.ask())


def test_arms_that_do_not_lead_at_first(monkeypatch):
    X = candidates(300)
    bandit = BBKB(KERNEL, noise=NOISE, threshold=50.0, random_state=0).fit(X)
    play(bandit, X, 20)
    expected = bandit.ask()
    assert len(set(expected.tolist())) > 3
    monkeypatch.setattr(solver, "_LEADERS", 1)
    assert_array_equal(bandit.ask(), expected)


def test_batches_grow_and_end_by_their_rule():
    X = candidates(200)
    bandit = BBKB(KERNEL, noise=NOISE, random_state=0).fit(X)
    sizes, rng = [], np.random.default_rng(0)
    while bandit.counts_.sum() < 400:
        arms = bandit.ask()
        variances = np.square(bandit.posterior()[1][arms] / NOISE)
        assert 1 + variances.sum() > 2 or len(arms) == 0
        assert 1 + variances[:-1].sum() <= 2
        sizes.append(len(arms))
        bandit.tell(arms, reward(X, arms, rng))
    assert sizes[0] == 1
    assert np.mean(sizes[-5:]) > 4 * np.mean(sizes[:5])
    assert_array_equal(bandit.ask(2), bandit.ask()[:2])


def test_a_batch_ends_with_an_arm_that_is_known_for_certain():
    bandit = BBKB("linear").fit([[0.0], [1.0]]).tell([1] * 20, [-5.0] * 20)
    assert_array_equal(bandit.ask(), [0])
    assert_array_equal(bandit.ask(5), [0])
    one_by_one = BKB("linear").fit([[0.0], [1.0]]).tell([1] * 20, [-5.0] * 20)
    assert_array_equal(one_by_one.ask(5), [0] * 5)


def test_the_longest_batch():
    bandit = BBKB(KERNEL, noise=NOISE).fit([[0.0], [50.0]])
    bandit.tell(np.repeat([0, 1], 5000), np.repeat([1.0, -1.0], 5000))
    arms = bandit.ask()  # a variance of 1 / 5,000 allows as many plays
    assert_array_equal(arms, np.zeros(1000))
    assert len(bandit.ask(1500)) == 1500


@EACH
def test_small_dictionaries_find_good_arms(cls):
    X = candidates(1_000)
    bandit = cls(KERNEL, noise=NOISE, exploration=0.2, oversampling=2.0, random_state=0).fit(X)
    arms, y = play(bandit, X, 120)
    values = np.sin(2 * X[:, 0]) * np.cos(X[:, 1])
    assert values[bandit.best_] > values.max() - 0.1
    regret = (values.max() - values[arms[60:]]).mean()
    assert regret < 0.4 * (values.max() - values.mean())
    # far fewer than were played, and still the process' posterior
    assert len(bandit.dictionary_) < 0.8 * len(np.unique(arms))
    mean, std = gaussian_process(X, arms, y)
    found_mean, found_std = bandit.posterior()
    assert np.abs(found_mean - mean).max() < 0.3
    assert np.all(found_std > 0.5 * std)


def test_rewards_that_are_too_large():
    bandit = BKB(Linear(), oversampling=EVERY).fit([[1e6], [2e6], [3e6]]).tell(0, 1.0)
    with pytest.raises(ValueError, match="too large to compute with: rescale y"):
        bandit.tell([1, 2], [1e305, 1e305])
    assert bandit.counts_.tolist() == [1, 0, 0]


@EACH
def test_resumed_from_a_file_and_from_a_pickle(cls, tmp_path):
    X = candidates()
    bandit = cls(KERNEL, noise=NOISE, oversampling=1.0, random_state=0).fit(X)
    play(bandit, X, 20)
    bandit.save(tmp_path / "bandit.gyr")
    loaded = [gyrfalcon.load(tmp_path / "bandit.gyr"), pickle.loads(pickle.dumps(bandit))]
    expected = play(bandit, X, 20)
    for other in loaded:
        for found, one in zip(play(other, X, 20), expected, strict=True):
            assert_array_equal(found, one)
        assert_array_equal(other.counts_, bandit.counts_)
        assert_array_equal(other.dictionary_, bandit.dictionary_)
        assert other.best_ == bandit.best_


def test_files_that_do_not_fit_together(tmp_path):
    bandit = BKB(KERNEL, random_state=0).fit(candidates())
    for name, value in [
        ("counts_", np.ones(3, dtype=np.int64)),
        ("dictionary_", np.array([5])),
        ("random_state_", ("MT19937", np.zeros(3, dtype=np.uint32), 0, 0, 0.0)),
    ]:
        broken = pickle.loads(pickle.dumps(bandit))
        setattr(broken, name, value)
        broken.save(tmp_path / "bandit.gyr")
        with pytest.raises(gyrfalcon.ModelFileError, match="inconsistent BKB"):
            gyrfalcon.load(tmp_path / "bandit.gyr")


@EACH
def test_seeds_and_fit_again(cls):
    X = candidates()
    bandit = cls(KERNEL, noise=NOISE, oversampling=0.5, random_state=3).fit(X)
    first = play(bandit, X, 30)[0]
    assert_array_equal(play(bandit.fit(X), X, 30)[0], first)
    assert_array_equal(play(clone(bandit).set_params(n_jobs=1).fit(X), X, 30)[0], first)


def test_told_in_any_order_and_more_than_once():
    X = candidates()
    one = BKB(KERNEL, noise=NOISE, oversampling=EVERY).fit(X).tell([3, 5, 3], [1.0, 2.0, 3.0])
    other = BKB(KERNEL, noise=NOISE, oversampling=EVERY).fit(X).tell(5, 2.0).tell([3], [3.0]).tell(np.uint8(3), 1)
    assert_array_equal(one.counts_, other.counts_)
    assert one.counts_[3] == 2
    for a, b in zip(one.posterior(), other.posterior(), strict=True):
        assert_allclose(a, b, atol=1e-9)
    mean, std = gaussian_process(X, np.array([3, 5, 3]), np.array([1.0, 2.0, 3.0]))
    assert_allclose(one.posterior()[0], mean, atol=1e-9)
    assert_allclose(one.posterior()[1], std, atol=1e-7)
    before = one.ask()
    assert_array_equal(one.tell([], []).ask(), before)


@EACH
def test_told_by_several_threads(cls, tmp_path):
    X = candidates(20)
    bandit = cls(KERNEL, noise=NOISE, oversampling=EVERY, n_jobs=1, random_state=0).fit(X)

    def tell(seed):
        for arm in range(20):
            bandit.tell(arm, float(seed))
            bandit.ask()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(tell, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert_array_equal(bandit.counts_, np.full(20, 8))
    assert_array_equal(bandit.sums_, np.full(20, 28.0))
    bandit.save(tmp_path / "bandit.gyr")
    for other in (pickle.loads(pickle.dumps(bandit)), copy.deepcopy(bandit), gyrfalcon.load(tmp_path / "bandit.gyr")):
        assert_array_equal(other.posterior()[0], bandit.posterior()[0])  # none was kept from before the last reward
        assert_array_equal(other.tell(3, 1.0).counts_[:4], [8, 8, 8, 9])
    assert clone(bandit).fit(X).counts_.sum() == 0


def test_duplicates_low_rank_and_one_arm():
    X = np.repeat(candidates(4), 10, axis=0)
    bandit = BKB(KERNEL, noise=NOISE, oversampling=EVERY).fit(X).tell(np.arange(40), np.arange(40) // 10)
    mean, std = gaussian_process(X, np.arange(40), np.arange(40) // 10)
    assert_allclose(bandit.posterior()[0], mean, atol=1e-6)
    assert_allclose(bandit.posterior()[1], std, atol=1e-6)
    linear = BBKB(Linear(), noise=NOISE).fit(candidates())
    play(linear, candidates(), 50)
    assert np.isfinite(linear.posterior()[1]).all()
    one = BKB(KERNEL).fit([[1.0]])
    assert_array_equal(one.ask(), [0])
    assert one.tell(0, 1.0).best_ == 0


@pytest.mark.parametrize(
    ("arms", "y", "match"),
    [
        ([60], [1.0], r"there is no arm 60: arms are the rows 0 to 59"),
        ([-1], [1.0], "there is no arm -1"),
        ([1.5], [1.0], "row numbers of candidates, not an array of float64"),
        ([[1]], [1.0], "2 axes"),
        ([1, 2], [1.0], r"2 arms were played and y has shape \(1,\)"),
        ([1, 2], [1.0, np.nan], "the reward of arm 2 is nan: leave out plays that failed"),
        ([1], [np.inf], "the reward of arm 1 is inf"),
        ([1], ["good"], "y must be numbers"),
        ([1, 1], [1.7e308, 1.7e308], "rescale y"),
    ],
)
def test_what_cannot_be_told(arms, y, match):
    bandit = BKB(KERNEL).fit(candidates()).tell(1, 0.5)
    with pytest.raises(ValueError, match=match):
        bandit.tell(arms, y)
    assert bandit.counts_.sum() == 1
    assert bandit.sums_[1] == 0.5


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"noise": 0.0}, "noise=0.0 must be a finite number greater than 0"),
        ({"norm": -1}, "norm=-1"),
        ({"delta": 0}, "delta=0 must be"),
        ({"oversampling": math.inf}, "oversampling=inf"),
        ({"exploration": 0}, "exploration=0 must be"),
        ({"threshold": 1.0}, "threshold=1.0 must be a finite number greater than 1"),
        ({"kernel": Sigmoid(gamma=1.0, coef0=-9.0)}, "not positive and finite at the candidates"),
    ],
)
def test_parameters_that_make_no_sense(parameters, match):
    model = BBKB(**parameters)
    with pytest.raises(ValueError, match=match):
        model.fit(candidates())
    assert not hasattr(model, "candidates_")


@EACH
@pytest.mark.parametrize("parameters", [{"noise": 0.5}, {"norm": 9.0}, {"delta": 1e-9}, {"exploration": 0.01}])
def test_parameters_that_are_set_between_plays(cls, parameters):
    X = candidates()
    bandit = cls(KERNEL, noise=NOISE, oversampling=EVERY, random_state=0).fit(X)
    arms, y = play(bandit, X, 20)
    bandit.posterior()  # is kept
    fresh = pickle.loads(pickle.dumps(bandit)).set_params(**parameters)
    bandit.set_params(**parameters)
    assert_array_equal(bandit.ask(8), fresh.ask(8))
    mean, std = gaussian_process(X, arms, y, noise=bandit.noise)
    assert_allclose(bandit.posterior()[0], mean, atol=1e-8)
    assert_allclose(bandit.posterior()[1], std, atol=1e-6)
    assert bandit.best_ == np.argmax(mean)
    bandit.set_params(noise=0.0)
    for use in (bandit.ask, bandit.posterior, lambda: bandit.tell(0, 1.0)):
        with pytest.raises(ValueError, match=r"noise=0\.0 must be"):
            use()


@EACH
def test_too_early(cls):
    with pytest.raises(NotFittedError, match="not fitted"):
        cls().ask()
    with pytest.raises(NotFittedError, match="not fitted"):
        cls().tell(0, 1.0)
    with pytest.raises(NotFittedError, match="play what ask"):
        cls().fit(candidates()).best_  # noqa: B018
    with pytest.raises(ValueError, match="n=0 must be"):
        cls().fit(candidates()).ask(0)
