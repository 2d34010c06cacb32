"""Intervals and sets by rows that are held out, around models of this library and of others."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon import (
    ConformalClassifier,
    ConformalRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
)
from gyrfalcon.estimators.conformal_classifier import _scores
from gyrfalcon.fitting.conformal import Conformity, hold_out
from gyrfalcon.sources import as_rows

pytestmark = pytest.mark.filterwarnings("error")

HELD = "a row of weight 2 is held out as one, and two rows one by one"
FAILING = {f"check_sample_weight_equivalence_on_{kind}_data": HELD for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [
        ConformalRegressor(LinearRegression()),
        ConformalClassifier(FalkonClassifier(loss="logistic", n_centers=20, random_state=0)),
    ],
    expected_failed_checks=lambda estimator: FAILING,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def noisy(n, seed=0, k=None):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 1))
    y = np.sin(2 * X[:, 0]) + np.where(X[:, 0] > 0, 0.6, 0.1) * rng.standard_normal(n)
    return X, y if k is None else np.stack([y, 10 * y + 3], axis=1)


def small(**parameters):
    return FalkonRegressor(n_centers=50, penalty=1e-5, random_state=0, **parameters)


MODELS = {
    "constant": small(),
    "deviation": small(uncertainty=True),
    "quantiles": small(loss="quantile", quantiles=[0.1, 0.9]),
}


# ---- quantiles of scores ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 9, 10, 19, 20, 57])
@pytest.mark.parametrize("coverage", [0.05, 0.5, 0.8, 0.9, 0.95])
def test_the_quantile_is_the_one_of_the_theorem(m, coverage):
    """Of m + 1 exchangeable scores, the last is among the ceil((m + 1) coverage) least so often."""
    scores = np.random.default_rng(0).permutation(np.arange(1.0, m + 1))[:, None]
    rank = int(np.ceil(round((m + 1) * coverage, 9)))
    weighted = Conformity.of(scores, np.full(m, 3.0))
    if rank > m:
        with pytest.raises(ValueError, match=f"and there are {m}"):
            Conformity.of(scores).quantile(coverage)
        with pytest.raises(ValueError, match=f"and there are {m}"):
            weighted.quantile(coverage)
    else:
        assert Conformity.of(scores).quantile(coverage) == rank
        assert weighted.quantile(coverage) == rank


def test_weights_are_repeated_rows_but_for_the_new_one():
    rng = np.random.default_rng(0)
    scores, w = rng.uniform(size=(200, 2)), rng.integers(1, 4, size=200)
    repeated = Conformity.of(np.repeat(scores, w, axis=0)).quantile(0.8)
    assert_allclose(Conformity.of(scores, w.astype(float)).quantile(0.8), repeated, atol=0.02)


def test_infinite_scores():
    scores = np.concatenate([np.ones(50), np.full(50, np.inf)])[:, None]
    assert Conformity.of(scores).quantile(0.4) == 1
    with pytest.raises(ValueError, match="raise the penalty"):
        Conformity.of(scores).quantile(0.9)


@pytest.mark.parametrize(
    ("scores", "weights", "words"),
    [
        (np.array([[2.0], [1.0]]), None, "sorted"),
        (np.empty((0, 1)), None, "none"),
        (np.ones(3), None, "shape"),
        (np.array([[np.nan], [1.0]]), None, "sorted"),
        (np.ones((3, 1)), np.ones((2, 1)), "weights"),
        (np.ones((3, 1)), np.zeros((3, 1)), "not positive"),
    ],
)
def test_wrong_scores(scores, weights, words):
    with pytest.raises(ValueError, match=words):
        Conformity(scores, weights)


# ---- regression ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", MODELS)
def test_intervals_cover(method):
    X, y = noisy(5000)
    n = 2000
    model = ConformalRegressor(MODELS[method], method=method, random_state=0).fit(X[:n], y[:n])
    for coverage in (0.5, 0.9):
        ends = model.predict_interval(X[n:], coverage)
        assert ends.shape == (3000, 2)
        assert (ends[:, 0] <= ends[:, 1]).all()
        inside = np.mean((ends[:, 0] <= y[n:]) & (y[n:] <= ends[:, 1]))
        # 400 rows judge and 3,000 are judged
        assert abs(inside - coverage) < 3.5 * np.sqrt(coverage * (1 - coverage) * (1 / 400 + 1 / 3000))
    wide = np.diff(model.predict_interval(X[n:]), axis=1)[:, 0]
    right, left = wide[X[n:, 0] > 0.5].mean(), wide[X[n:, 0] < -0.5].mean()
    if method == "constant":
        assert_allclose(wide, wide[0])
    elif method == "quantiles":
        assert right > 3 * left


def test_validation_rows_take_the_place_of_held_out_ones():
    X, y = noisy(600)
    model = ConformalRegressor(small(), random_state=0).fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:])
    alone = small().fit(X[:400], y[:400])
    assert_array_equal(model.predict(X), alone.predict(X))
    errors = np.sort(np.abs(y[400:] - alone.predict(X[400:])))
    low, high = model.predict_interval(X[:5], 0.9).T
    assert_allclose(high - low, 2 * errors[int(np.ceil(201 * 0.9)) - 1])
    with pytest.raises(ValueError, match="y_val is missing"):
        ConformalRegressor(small()).fit(X, y, X_val=X)


def test_several_outputs_weights_and_sources(tmp_path):
    X, y = noisy(500, k=2)
    w = np.random.default_rng(1).integers(0, 3, size=500)
    model = ConformalRegressor(MODELS["deviation"], method="deviation", random_state=0).fit(X, y, sample_weight=w)
    ends = model.predict_interval(X)
    assert ends.shape == (500, 2, 2)
    assert_allclose(ends[:, :, 1], 10 * ends[:, :, 0] + 3, atol=1e-3)
    streamed = ConformalRegressor(MODELS["deviation"], method="deviation", random_state=0)
    assert_array_equal(streamed.fit(as_rows(X), y, sample_weight=w).predict_interval(as_rows(X)), ends)
    model.save(tmp_path / "model.gyr")
    assert_array_equal(gyrfalcon.load(tmp_path / "model.gyr").predict_interval(X), ends)


def test_models_of_others():
    X, y = noisy(400)
    for inner, method in [
        (LinearRegression(), "constant"),
        (BayesianRidge(), "deviation"),
        (GaussianProcessRegressor(alpha=0.1, normalize_y=True), "deviation"),
    ]:
        model = ConformalRegressor(inner, method=method, random_state=0).fit(X[:200], y[:200])
        low, high = model.predict_interval(X[200:]).T
        assert 0.8 < np.mean((low <= y[200:]) & (y[200:] <= high)) < 0.99


def test_quantiles_that_are_too_far_apart_do_not_cross():
    X, y = noisy(500)
    wide = small(loss="quantile", quantiles=[0.02, 0.5, 0.98])
    model = ConformalRegressor(wide, method="quantiles", random_state=0).fit(X, y)
    ends = model.predict_interval(X, 0.05)
    assert (ends[:, 0] <= ends[:, 1]).all()
    assert_array_equal(model.predict(X), model.estimator_.predict(X)[:, 1])


@pytest.mark.parametrize("method", MODELS)
def test_a_method_of_intervals_that_is_set_after_fit_waits_for_the_next_fit(method, tmp_path):
    X, y = noisy(300)
    model = ConformalRegressor(MODELS[method], method=method, random_state=0).fit(X, y)
    ends, predictions = model.predict_interval(X), model.predict(X)
    for other in MODELS:
        model.set_params(method=other)
        model.save(tmp_path / "model.gyr")
        for one in (model, gyrfalcon.load(tmp_path / "model.gyr")):
            assert one.method_ == method
            assert_array_equal(one.predict_interval(X), ends)
            assert_array_equal(one.predict(X), predictions)
    with pytest.raises(ValueError, match="method='narrow'"):
        model.set_params(method="narrow").fit(X, y)
    assert model.method_ == method
    model.method_ = "narrow"
    model.save(tmp_path / "model.gyr")
    with pytest.raises(gyrfalcon.ModelFileError, match="method_='narrow'"):
        gyrfalcon.load(tmp_path / "model.gyr")


class NeverFitted(LinearRegression):
    def fit(self, X, y, sample_weight=None):
        raise AssertionError("it is refused before")


class NeverFittedClassifier(LinearSVC):
    fit = NeverFitted.fit


def test_models_without_deviations_or_probabilities_are_refused_before_they_are_fitted():
    X, y = noisy(50)
    with pytest.raises(ValueError, match=r"takes return_std .*, and NeverFitted is none: use .* method=\"constant\""):
        ConformalRegressor(NeverFitted(), method="deviation").fit(X, y)
    with pytest.raises(ValueError, match=r"NeverFittedClassifier.* has no predict_proba.*CalibratedClassifierCV"):
        ConformalClassifier(NeverFittedClassifier()).fit(X, y > 0)
    with pytest.raises(ValueError, match=r"has no predict_proba.*FalkonClassifier\(loss=\"logistic\"\)"):
        ConformalClassifier(FalkonClassifier()).fit(X, y > 0)
    # a pipeline hands return_std on
    piped = ConformalRegressor(make_pipeline(StandardScaler(), BayesianRidge()), method="deviation").fit(X, y)
    assert piped.predict_interval(X).shape == (50, 2)
    with pytest.raises(ValueError, match=r"use FalkonRegressor\(uncertainty=True"):
        ConformalRegressor(make_pipeline(StandardScaler(), small()), method="deviation").fit(X, y)


def test_around_trees():
    X, y = noisy(600)
    model = HierarchicalRegressor(penalty=1e-3, leaf_size=100, uncertainty=True, random_state=0)
    deviation = ConformalRegressor(model, method="deviation", random_state=0).fit(X[:400], y[:400])
    low, high = deviation.predict_interval(X[400:]).T
    # four deviations of the share among 100 rows that judge and 200 that are judged
    assert abs(np.mean((low <= y[400:]) & (y[400:] <= high)) - 0.9) < 4 * np.sqrt(0.09 * (1 / 100 + 1 / 200))
    std, noise = deviation.estimator_.predict(X[400:], return_std=True)[1], deviation.estimator_.noise_variance_
    times = (high - low) / np.sqrt(std**2 + noise)
    assert_allclose(times, times[0], rtol=1e-9)
    sets = ConformalClassifier(HierarchicalClassifier(penalty=1e-3, leaf_size=100, random_state=0), random_state=0)
    found = sets.fit(X[:400], y[:400] > 0).predict_set(X[400:])
    assert np.mean(found[np.arange(200), (y[400:] > 0).astype(int)]) > 0.8


def test_deviations_of_a_model_in_a_pipeline_are_those_of_y_too():
    X, y = noisy(400)
    inner = small(uncertainty=True, scale=False)
    expected = ConformalRegressor(inner, method="deviation", random_state=0).fit(X, y).predict_interval(X)
    step = FunctionTransformer()
    for wrapped in (make_pipeline(step, inner), make_pipeline(step, make_pipeline(step, inner))):
        model = ConformalRegressor(wrapped, method="deviation", random_state=0).fit(X, y)
        assert_array_equal(model.predict_interval(X), expected)
    # a frozen model is not fitted again
    alone = small(uncertainty=True, scale=False).fit(X[:200], y[:200])
    frozen = ConformalRegressor(FrozenEstimator(alone), method="deviation", random_state=0).fit(X[200:], y[200:])
    low, high = frozen.predict_interval(X).T
    std = np.sqrt(alone.predict(X, return_std=True)[1] ** 2 + alone.noise_variance_)
    assert_allclose((high - low) / std, (high - low)[0] / std[0])


class OneValue(LinearRegression):
    def predict(self, X, **ignored):
        return super().predict(X)


def test_wrappers_that_return_no_pair_are_refused():
    X, y = noisy(50)
    for wrapped in (
        TransformedTargetRegressor(NeverFitted()),
        make_pipeline(StandardScaler(), TransformedTargetRegressor(NeverFitted())),
    ):
        with pytest.raises(ValueError, match="returns a pair of mean and deviation, and TransformedTargetRegressor is"):
            ConformalRegressor(wrapped, method="deviation").fit(X, y)
    model = ConformalRegressor(OneValue(), method="deviation")
    with pytest.raises(ValueError, match="returns a pair of mean and deviation, and OneValue is none"):
        model.fit(X, y)
    assert not vars(model).keys() & {"estimator_", "conformity_"}


@pytest.mark.parametrize("conformal", [ConformalRegressor, ConformalClassifier])
def test_what_is_no_model_is_refused(conformal):
    X, y = noisy(50)
    with pytest.raises(ValueError, match="estimator=5 must be None or a model with fit, predict and get_params"):
        conformal(5).fit(X, y > 0)
    with pytest.raises(ValueError, match=r"estimator=StandardScaler\(\) must be None or a model with fit, predict"):
        conformal(StandardScaler()).fit(X, y > 0)
    with pytest.raises(
        ValueError, match=r"estimator=BayesianRidge is a class: give a model, such as BayesianRidge\(\)"
    ):
        conformal(BayesianRidge).fit(X, y > 0)


def test_what_regressors_refuse():
    X, y = noisy(50)
    with pytest.raises(ValueError, match="method='narrow'"):
        ConformalRegressor(method="narrow").fit(X, y)
    with pytest.raises(ValueError, match=r"FalkonRegressor\(uncertainty=True"):
        ConformalRegressor(small(), method="deviation").fit(X, y)
    with pytest.raises(ValueError, match=r"HierarchicalRegressor\(uncertainty=True"):
        ConformalRegressor(HierarchicalRegressor(), method="deviation").fit(X, y)
    with pytest.raises(ValueError, match="at least two quantiles"):
        ConformalRegressor(small(), method="quantiles").fit(X, y)
    with pytest.raises(ValueError, match="validation_fraction=1"):
        ConformalRegressor(small(), validation_fraction=1.0).fit(X, y)
    with pytest.raises(ValueError, match="no rows to hold out for validation, with n_samples=1"):
        ConformalRegressor(small()).fit(X[:1], y[:1])
    model = ConformalRegressor(small(), validation_fraction=0.1).fit(X, y)
    with pytest.raises(ValueError, match="at least 9 held-out rows, and there are 5"):
        model.predict_interval(X)
    for coverage in (0, 1):
        with pytest.raises(ValueError, match="coverage="):
            model.predict_interval(X, coverage)


# ---- classification --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize("inner", ["falkon", "forest"])
def test_sets_cover(method, inner):
    X, codes = make_classification(
        4000, 6, n_informative=4, n_classes=4, n_clusters_per_class=1, class_sep=0.7, flip_y=0.1, random_state=0
    )
    y = np.array(["a", "b", "c", "d"])[codes]
    models = {
        "falkon": FalkonClassifier(loss="logistic", n_centers=50, penalty=1e-4, random_state=0),
        "forest": RandomForestClassifier(20, random_state=0),
    }
    model = ConformalClassifier(models[inner], method=method, random_state=0).fit(X[:2000], y[:2000])
    assert_array_equal(model.classes_, ["a", "b", "c", "d"])
    sizes = []
    for coverage in (0.7, 0.9, 0.97):
        sets = model.predict_set(X[2000:], coverage)
        assert sets.shape == (2000, 4)
        inside = sets[np.arange(2000), codes[2000:]].mean()
        spread = 3.5 * np.sqrt(coverage * (1 - coverage) * (1 / 400 + 1 / 2000))
        # ties of the forest's probabilities, and classes that are always in, only make sets larger
        assert inside > coverage - spread
        if method == "lac" and inner == "falkon":
            assert inside < coverage + spread
        sizes.append(sets.sum(axis=1).mean())
    assert sizes == sorted(sizes)
    if method == "aps":
        assert model.predict_set(X[2000:], 0.7).any(axis=1).all()
    assert model.score(X[2000:], y[2000:]) > 0.6


def test_scores_of_sets():
    p = np.array([[0.6, 0.1, 0.3]])
    assert_allclose(_scores(p, "lac"), [[0.4, 0.9, 0.7]])
    assert_allclose(_scores(p, "aps"), [[0.0, 0.9, 0.6]])


def test_a_method_that_is_set_after_fit_waits_for_the_next_fit():
    X, y = load_iris(return_X_y=True)
    model = ConformalClassifier(FalkonClassifier(loss="logistic", n_centers=20, random_state=0), random_state=0).fit(
        X, y
    )
    sets = model.predict_set(X)
    assert_array_equal(model.set_params(method="aps").predict_set(X), sets)
    assert model.method_ == "lac"
    assert model.fit(X, y).method_ == "aps"
    assert not np.array_equal(model.predict_set(X), sets)


def test_saved_classifiers(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = ConformalClassifier(random_state=0).fit(X, y)
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    assert_array_equal(loaded.predict_set(X), model.predict_set(X))
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    model.conformity_ = "much"
    model.save(tmp_path / "model.gyr")
    with pytest.raises(gyrfalcon.ModelFileError, match="conformity_"):
        gyrfalcon.load(tmp_path / "model.gyr")


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_a_class_of_one_row_is_learnt_whatever_the_seed(method):
    X, y = load_iris(return_X_y=True)
    y[7] = 3
    inner, inside, judged = GaussianNB(var_smoothing=1e-3), [], 0
    for seed in range(40):
        model = ConformalClassifier(inner, method=method, random_state=seed).fit(X, y)
        assert_array_equal(model.classes_, [0, 1, 2, 3])
        assert model.conformity_.scores.shape == (30, 1)
        sets = model.predict_set(X, 0.9)
        inside.append(sets[np.arange(150), y].mean())
        if model.conformity_.scores[-1, 0] == 1:  # the row judges, as one that no model would have foreseen
            judged += 1
            assert sets.sum(axis=1).mean() < 2
            assert model.predict_set(X, 0.96).all()
    assert judged > 3
    assert np.mean(inside) > 0.88


def test_rows_that_judge_and_are_learnt_are_as_few_as_can_be():
    X, y = np.arange(50.0)[:, None], np.repeat(np.arange(10), 5)
    y[:3] = [10, 10, 11]
    weight = np.ones(50)
    weight[1] = 0  # learnt or not, it does not say anything
    for seed in range(30):
        learnt, judges = hold_out(X, y, weight, None, None, 0.5, np.random.RandomState(seed), every_class=True)
        seen = [set(np.asarray(part.X)[:, 0].astype(int)) for part in (learnt, judges)]
        both = seen[0] & seen[1]
        assert both == set(np.asarray(judges.X)[judges.biased, 0].astype(int))
        only_learnt = seen[0] - both - {1}
        assert set(y[list(only_learnt)]).isdisjoint(y[list(both)])
        assert set(y[list(only_learnt | both)]) == set(range(12))
        assert len(set(y[list(both)])) == len(both)
        assert len(judges.y) == 24


def test_a_class_that_only_judges_is_refused():
    X, y = load_iris(return_X_y=True)
    few = y != 2
    with pytest.raises(ValueError, match=r"has not learned: \[2\]"):
        ConformalClassifier(random_state=0).fit(X[few], y[few], X_val=X, y_val=y)
    with pytest.raises(ValueError, match="method='thr'"):
        ConformalClassifier(method="thr").fit(X, y)
