"""Gradient-boosted trees as arrays, and as members of a blend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from short_search import Brief
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor
from gyrfalcon._utils.compute import Compute
from gyrfalcon.tables.boosted import Boosted, BoostedClassifier, BoostedRegressor, arrays_of
from gyrfalcon.tables.boosting import Boosting, Fold, TreeSettings
from gyrfalcon.tables.tree_arrays import TreeArrays, joined
from gyrfalcon.tables.validation import plan_folds


def walk(trees: TreeArrays, x, n_outputs):
    """Follow each tree node by node."""
    out = np.zeros(n_outputs)
    for root, output in zip(trees.root, trees.output, strict=True):
        node = root
        while trees.left[node] >= 0:
            value = x[trees.feature[node]]
            left = trees.missing_left[node] if np.isnan(value) else value <= trees.threshold[node]
            node = trees.left[node] if left else trees.right[node]
        out[output] += trees.value[node]
    return out


@pytest.fixture(autouse=True)
def one_thread():
    """Let scikit-learn grow trees by one thread: on a busy machine, threads of few rows wait for each other."""
    with threadpool_limits(limits=1, user_api="openmp"):
        yield


@pytest.fixture(scope="module")
def numbers():
    X, y = make_friedman1(400, noise=0.5, random_state=0)
    X[::7, 1] = np.nan
    return X, y


def test_arrays_of_a_regressor_predict_as_scikit_learn(numbers):
    X, y = numbers
    fitted = HistGradientBoostingRegressor(max_iter=30).fit(X, y)
    ours = BoostedRegressor().fit(X, y)
    trees = arrays_of(fitted, 30)
    found = fitted._baseline_prediction[0, 0] + trees.sums(X, 1)[:, 0]
    np.testing.assert_allclose(found, fitted.predict(X), rtol=1e-12)
    np.testing.assert_allclose(ours.predict(X), HistGradientBoostingRegressor().fit(X, y).predict(X), rtol=1e-12)
    np.testing.assert_allclose(trees.sums(X[:20], 1), [walk(trees, x, 1) for x in X[:20]], rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_arrays_of_a_classifier_predict_as_scikit_learn(n_classes):
    X, y = make_classification(300, 6, n_informative=4, n_classes=n_classes, random_state=0)
    ours, theirs = BoostedClassifier().fit(X, y), HistGradientBoostingClassifier().fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(np.exp(ours.predict_log_proba(X)), theirs.predict_proba(X), rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_average_of_joined_trees(numbers):
    X, y = numbers
    one, two = (arrays_of(HistGradientBoostingRegressor(max_iter=m).fit(X, y), m) for m in (3, 5))
    both = joined([one, two], 0.5)
    np.testing.assert_allclose(both.sums(X, 1), (one.sums(X, 1) + two.sums(X, 1)) / 2, rtol=1e-12)
    both.check(X.shape[1], 1)


def test_importances_are_of_the_columns_that_matter(numbers):
    X, y = numbers
    shares = BoostedRegressor().fit(X, y).importances_
    assert shares.sum() == pytest.approx(1.0)
    assert set(np.argsort(shares)[-5:]) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("name", "place", "value", "words"),
    [
        ("feature", 0, 10, "between 0 and 9"),
        ("left", 0, 0, "come after"),
        ("right", 0, 10**6, "come after"),
        ("left", 0, -1, "two or none"),
        ("root", 0, -1, "between 0"),
        ("output", 0, 1, "between 0 and 0"),
        ("value", 0, np.nan, "NaN"),
    ],
)
def test_damaged_trees_are_refused(numbers, name, place, value, words):
    X, y = numbers
    trees = arrays_of(HistGradientBoostingRegressor(max_iter=2).fit(X, y), 2)
    array = vars(trees)[name].copy()
    array[place] = value
    with pytest.raises(ValueError, match=words):
        replace(trees, **{name: array}).check(10, 1)


def test_deep_trees_are_refused():
    n = 2 * 1_500 + 1  # a chain: the left child of each inner node is a leaf
    inner = np.arange(n) % 2 == 0
    inner[-1] = False
    number = np.arange(n)
    trees = TreeArrays(
        feature=np.zeros(n, np.int32),
        threshold=np.zeros(n),
        left=np.where(inner, number + 1, -1).astype(np.int32),
        right=np.where(inner, number + 2, -1).astype(np.int32),
        missing_left=np.zeros(n, bool),
        value=np.zeros(n),
        root=np.zeros(1, np.int32),
        output=np.zeros(1, np.int32),
    )
    with pytest.raises(ValueError, match="levels"):
        trees.check(1, 1)


def test_held_out_rows_are_predicted_by_trees_of_other_folds():
    X, y = make_friedman1(300, random_state=0)
    X, y = np.round(10 * X), (y - y.mean()) / y.std()  # few values: bins do not depend on the rows of a fold
    weight = np.random.RandomState(0).uniform(0.5, 2.0, 300)
    fold = np.arange(300) % 3
    folds = [Fold(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    boosting = Boosting(X, y[:, None], weight, 0, TreeSettings("all columns"), Compute(1), seed=3)
    boosts = boosting.fit(folds, seconds=1e6)
    iterations = len(boosts.trees.root) // 3
    for one, scores in zip(folds, boosts.scores, strict=True):
        direct = HistGradientBoostingRegressor(
            learning_rate=0.03, max_iter=iterations, l2_regularization=1.0, early_stopping=False
        ).fit(X[one.train], y[one.train], weight[one.train])
        # a fold may have stopped a few trees before the longest; a fit of the held-out rows differs far more
        difference = scores[:, 0] - direct.predict(X[one.held])
        assert np.sqrt(np.mean(difference**2)) < 0.03
        seen = scores[:, 0] - direct.fit(X, y, weight).predict(X[one.held])
        assert np.sqrt(np.mean(seen**2)) > 0.1
    error = np.mean([np.mean((s[:, 0] - y[f.held]) ** 2) for f, s in zip(folds, boosts.scores, strict=True)])
    assert error < 0.3


def test_trees_are_left_out_if_there_is_no_time_for_a_few_of_each_fold():
    X, y = make_friedman1(300, random_state=0)
    fold = np.arange(300) % 3
    folds = [Fold(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    boosting = Boosting(X, y[:, None], None, 0, TreeSettings("all columns"), Compute(1), seed=3)
    assert boosting.fit(folds, seconds=0.5 * boosting.least_seconds(folds)) is None
    few = boosting.fit_few(folds, rate=0.3, iterations=4)
    assert len(few.trees.root) == 12
    one = boosting.fit_few(folds[:1], rate=0.3, iterations=4)  # a single fold is fitted twice
    assert len(one.trees.root) == 8
    np.testing.assert_allclose(one.scores[0], one.offset + one.trees.sums(X[folds[0].held], 1), rtol=1e-12)


def test_a_single_fold_has_as_many_rows_as_there_is_time_for():
    X = np.random.RandomState(0).randn(4_000, 3)
    y = (np.arange(4_000) % 5).astype(np.float64)
    y[17] = 5.0  # the only row of its class
    folds = [Fold(np.arange(3_000), np.arange(3_000, 4_000))]
    boosting = Boosting(X, y, None, 6, TreeSettings("all columns"), Compute(1), seed=3)
    least = boosting.least_seconds(folds)
    assert boosting.in_time(folds, 100 * least) is folds
    (fold,) = boosting.in_time(folds, least)
    assert 900 < len(fold.train) < 1_100
    assert set(y[fold.train]) == set(range(6))
    assert np.isin(fold.train, folds[0].train).all()
    np.testing.assert_array_equal(fold.held, folds[0].held)
    several = [*folds, Fold(np.arange(1_000, 4_000), np.arange(1_000))]
    assert boosting.in_time(several, least) is several  # which judge all rows


BOTH = ("kernel", "trees")


def thresholds(n=600):
    """A target of a threshold and combinations, which trees learn easily and a smooth kernel does not."""
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(n, 8))
    return X, 3.0 * (X[:, 0] > 0.37) * (X[:, 1] < 0.61) + (X[:, 2] > 0.5) + 0.05 * rng.standard_normal(n)


def test_a_blend_with_trees_is_saved_and_loaded(tmp_path):
    X, y = thresholds()
    model = AutoRegressor(time_budget=600, families=BOTH, random_state=0, callbacks=Brief()).fit(X[:400], y[:400])
    assert any(isinstance(one, BoostedRegressor) for one in model.models_)
    assert any(record["kernel"].startswith("trees") for record in model.candidates_)
    assert model.score(X[400:], y[400:]) > 0.9
    assert set(np.argsort(model.feature_importances_)[-3:]) == {0, 1, 2}
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    for one in model.estimators_:
        assert one.predict(X[:3]).shape == (3,)


def test_kernels_alone():
    X, y = thresholds()
    model = AutoRegressor(time_budget=60, families=("kernel",), random_state=0, callbacks=Brief()).fit(X, y)
    assert not any(isinstance(one, Boosted) for one in model.models_)


@pytest.mark.parametrize("families", [("trees",), ("kernel", "forest"), "kernel", ("kernel", "kernel"), ()])
def test_unknown_families_are_refused(families):
    X, y = thresholds(100)
    with pytest.raises(ValueError, match="families"):
        AutoRegressor(families=families).fit(X, y)


def test_classes_weights_groups_and_validation_rows_reach_the_trees(tmp_path):
    X, y = thresholds()
    labels = np.array(["a", "b", "c"])[np.digitize(y, [0.5, 2.5])]
    weight = np.random.RandomState(1).uniform(0.5, 2.0, len(X))
    model = AutoClassifier(time_budget=600, families=BOTH, random_state=0, callbacks=Brief())
    model.fit(X[:400], labels[:400], sample_weight=weight[:400], groups=np.arange(400) // 4)
    assert any(isinstance(one, BoostedClassifier) for one in model.models_)
    assert model.score(X[400:], labels[400:]) > 0.9
    model.save(tmp_path / "model.gyr")
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "model.gyr").predict_proba(X), model.predict_proba(X))
    model.fit(X[:400], labels[:400], X_val=X[400:500], y_val=labels[400:500])
    assert any(record["stage"] == "all rows, trees" for record in model.candidates_)
    assert model.score(X[500:], labels[500:]) > 0.9


def test_several_outputs():
    X, y = thresholds()
    Y = np.column_stack([y, -100.0 * y + X[:, 4]])
    model = AutoRegressor(time_budget=600, families=BOTH, random_state=0, callbacks=Brief()).fit(X[:400], Y[:400])
    assert any(isinstance(one, BoostedRegressor) for one in model.models_)
    assert model.score(X[400:], Y[400:]) > 0.9


def test_trees_of_the_blend_are_fitted_again_with_other_folds():
    X, y = thresholds(150)
    parameters = {"time_budget": 100_000, "families": BOTH, "random_state": 0}
    stages = [one for one in AutoRegressor(**parameters).fit(X, y).candidates_ if one["stage"] == "all rows, trees"]
    names = [one["kernel"] for one in stages]
    again = [name for name in names if name.endswith(", other folds")]
    assert again
    assert names[-len(again) :] == again  # after all others
    for name in again:
        assert name.removesuffix(", other folds") in names
    given = AutoRegressor(cv=np.arange(150) % 5, **parameters).fit(X, y).candidates_
    assert not any(one["kernel"].endswith(", other folds") for one in given)


@pytest.mark.parametrize("classes", [False, True])
def test_other_folds_divide_all_rows_in_another_way(classes):
    labels = (np.arange(103) < 20).astype(int)
    plan = plan_folds(
        5, 103, 0, labels.astype(float), None, labels if classes else None, 1_000, np.random.RandomState(0)
    )
    fold = plan.divide_again(labels if classes else None, seed=3)
    assert (fold != plan.fold).mean() > 0.5
    assert sorted(np.bincount(fold)) == [20, 20, 21, 21, 21]
    if classes:
        assert np.bincount(fold[labels == 1]).tolist() == [4] * 5
