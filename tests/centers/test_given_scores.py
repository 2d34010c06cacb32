"""Centers drawn by scores of the user: Definition 2 and Algorithm 2 of the FALKON paper."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from gyrfalcon import FalkonClassifier, FalkonRegressor, NystromRegressor, load
from gyrfalcon.centers import GivenScores
from gyrfalcon.kernels import Gaussian

X = np.random.default_rng(0).standard_normal((300, 2))
SCORES = np.random.default_rng(1).uniform(0.1, 5.0, 300)


@pytest.mark.parametrize("M", [1, 40, 299])
def test_D_is_that_of_definition_2(M):
    """n p D^2 is the number of times that a center was drawn, and all draws are counted."""
    found = GivenScores(SCORES).select(X, M, random_state=0)
    assert_array_equal(found.points, X[found.indices])
    assert len(np.unique(found.indices)) == M
    counts = 300 * SCORES[found.indices] / SCORES.sum() * found.D**2
    assert_allclose(counts, np.round(counts), rtol=1e-9)
    assert counts.min() > 0.5
    assert round(counts.sum()) == found.n_draws >= M
    assert found.sampled


def test_the_estimate_is_unbiased():
    """K_MM D^2 K_MM / draws estimates K'K / n: at a fixed point, the mean over many draws is that of all rows."""
    k = Gaussian(1.0)(X, np.zeros((1, 2)))[:, 0]
    estimates = []
    for seed in range(400):
        found = GivenScores(SCORES).select(X, 30, random_state=seed)
        estimates.append(np.sum((found.D * k[found.indices]) ** 2) / found.n_draws)
    error = np.std(estimates) / 20
    assert abs(np.mean(estimates) - np.mean(k**2)) < 5 * error + 0.02 * np.mean(k**2)  # draws end at a random time


def test_rows_are_drawn_in_proportion():
    scores = np.where(np.arange(300) < 30, 9.0, 1.0)  # half of all scores
    first = [GivenScores(scores).select(X, 1, random_state=seed).indices[0] < 30 for seed in range(400)]
    assert 0.4 < np.mean(first) < 0.6


def test_zero_is_never_drawn_and_candidates_are_obeyed():
    scores = np.where(np.arange(300) % 2, SCORES, 0.0)
    found = GivenScores(scores).select(X, 50, random_state=0)
    assert (found.indices % 2 == 1).all()
    few = GivenScores(scores).select(X, 50, candidates=np.arange(20), random_state=0)
    assert_array_equal(few.indices, np.arange(1, 20, 2))
    assert_array_equal(few.D, np.ones(10))
    assert few.n_draws == 20


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_scores_need_not_sum_to_one(scale):
    found = GivenScores(SCORES * scale).select(X, 20, random_state=0)
    expected = GivenScores(SCORES).select(X, 20, random_state=0)
    assert_array_equal(found.indices, expected.indices)
    assert_allclose(found.D, expected.D)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (SCORES[:-1], "scores have shape \\(299,\\), and there are 300 rows: give one number for each row of X"),
        (SCORES[:, None], "shape \\(300, 1\\)"),
        (np.where(np.arange(300) == 7, -0.5, 1.0), r"scores\[7\]=-0.5: scores must be finite and not negative, and 1"),
        (np.where(np.arange(300) > 297, np.nan, 1.0), r"scores\[298\]=nan: scores must be finite .* and 2 of 300"),
        (np.where(np.arange(300) == 0, np.inf, 1.0), r"scores\[0\]=inf"),
        (np.zeros(300), "scores are zero for every row"),
        (["many"] * 300, "scores must be an array of numbers"),
    ],
)
def test_errors(scores, message):
    with pytest.raises(ValueError, match=message):
        GivenScores(scores).select(X, 20, random_state=0)
    with pytest.raises(ValueError, match=message):
        FalkonRegressor(centers=GivenScores(scores), n_centers=20).fit(X, X[:, 0])


def test_no_candidate_has_a_score():
    with pytest.raises(ValueError, match="zero for every row"):
        GivenScores(np.eye(300)[0]).select(X, 20, candidates=np.arange(1, 300))


def test_scores_follow_the_rows_of_a_fit():
    """Rows of weight 0 and rows that are held out have scores, too, and are not drawn."""
    scores = np.where(np.arange(300) < 150, SCORES, 1e-12)
    weight = np.where(np.arange(300) % 3, 1.0, 0.0)
    model = FalkonRegressor(Gaussian(1.0), centers=GivenScores(scores), n_centers=40, random_state=0)
    chosen = model.fit(X, X[:, 0], weight).centers_
    indices = [int(np.flatnonzero((center == X).all(axis=1))[0]) for center in chosen]
    assert max(indices) < 150
    assert all(i % 3 for i in indices)
    model.set_params(early_stopping=True, validation_fraction=0.3)
    for given in (None, weight):
        assert (np.isin(clone(model).fit(X, X[:, 0], given).centers_, X[:150])).all()


def test_estimators_take_it(tmp_path):
    y = np.sin(X[:, 0])
    for cls, target in ((FalkonRegressor, y), (NystromRegressor, y), (FalkonClassifier, y > 0)):
        model = cls(centers=GivenScores(SCORES), n_centers=30, random_state=0).fit(X, target)
        assert model.score(X, target) > 0.9
        model.save(tmp_path / "model.gyr")
        again = load(tmp_path / "model.gyr")
        assert_array_equal(again.centers.scores, SCORES)
        assert_array_equal(again.predict(X), model.predict(X))
