"""Importances by permutation of held-out rows."""

import numpy as np
import pandas as pd
import pytest
from short_search import Brief
from sklearn.inspection import permutation_importance

from gyrfalcon import AutoClassifier, AutoRegressor, load
from gyrfalcon._utils.compute import Compute
from gyrfalcon.tables.boosting import SETTINGS
from gyrfalcon.tables.finding import Found
from gyrfalcon.tables.importances import _Family, _groups, _linear_predictors, _tree_predictors
from gyrfalcon.tables.plain_candidates import LINEAR, PlainCandidate
from gyrfalcon.tables.screening import SearchSample
from gyrfalcon.tables.search import View
from gyrfalcon.tables.transforms import Target
from gyrfalcon.tables.validation import Split


def houses(n):
    """A table whose y depends most on `size`, and not at all on `street`, which has 60 levels, and on `lottery`."""
    random_state = np.random.RandomState(0)
    table = pd.DataFrame(
        {
            "lottery": random_state.standard_normal(n),
            "street": random_state.choice([f"street {i}" for i in range(60)], n),
            "size": random_state.uniform(size=n),
            "age": random_state.uniform(size=n),
        }
    )
    y = 3 * np.sin(4 * table["size"]) + table["age"] + 0.7 * random_state.standard_normal(n)
    return table, y.to_numpy()


@pytest.mark.parametrize("families", [("kernel",), ("kernel", "trees", "linear")])
def test_noise_of_many_levels_has_no_importance(families, tmp_path):
    table, y = houses(900)
    model = AutoRegressor(time_budget=60, families=families, random_state=0, callbacks=Brief(10)).fit(
        table[:400], y[:400]
    )
    shares = dict(zip(table.columns, model.feature_importances_, strict=True))
    assert max(shares["lottery"], shares["street"]) < 0.02
    assert max(shares, key=shares.get) == "size"
    assert model.feature_importances_.sum() == pytest.approx(1)
    # the shares agree with scikit-learn's, of rows that the model has never seen
    slow = permutation_importance(model, table[400:], y[400:], n_repeats=3, random_state=0).importances_mean
    np.testing.assert_allclose(model.feature_importances_, slow / slow.sum(), atol=0.1)
    assert model.feature_slopes_.sum() == pytest.approx(1)
    model.save(tmp_path / "model.gyr")
    loaded = load(tmp_path / "model.gyr")
    np.testing.assert_array_equal(loaded.feature_importances_, model.feature_importances_)
    np.testing.assert_array_equal(loaded.feature_slopes_, model.feature_slopes_)


def test_classes():
    table, y = houses(600)
    labels = np.where(y > 2.5, "dear", "cheap")
    model = AutoClassifier(time_budget=60, random_state=0, callbacks=Brief(10)).fit(table, labels)
    assert model.feature_importances_.argmax() == 2
    assert model.feature_importances_[:2].max() < 0.05


def test_nothing_to_learn():
    """Shares are numbers between 0 and 1 also if no column says anything about y."""
    random_state = np.random.RandomState(0)
    X, y = random_state.standard_normal((80, 3)), random_state.standard_normal(80)
    shares = AutoRegressor(time_budget=60, random_state=0, callbacks=Brief()).fit(X, y).feature_importances_
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1) or (shares == 0).all()


def test_groups_of_many_columns():
    by_slope = np.array([0.1, 0.5, 0.0, 0.3, 0.06, 0.04])
    assert [group.tolist() for group in _groups(by_slope, 6)] == [[1], [3], [0], [4], [5], [2]]
    assert [group.tolist() for group in _groups(by_slope, 4)] == [[1], [3], [0, 4], [5, 2]]


@pytest.fixture
def linear():
    """Split models that are known: y is the sum of twice the first column and the third."""
    random_state = np.random.RandomState(0)
    X = random_state.standard_normal((1_000, 3))
    y = (2 * X[:, :1] + X[:, 2:]) / np.sqrt(5)
    splits = (Split(np.arange(500), np.arange(500, 1_000)), Split(np.arange(500, 1_000), np.arange(500)))
    weight = random_state.uniform(0.5, 1.5, 1_000)
    return X, Found((), SearchSample(y, splits, weight / weight.mean()), False, np.arange(1_000), [View("robust", X)])


def test_increases_are_those_of_the_formula(linear):
    """For independent columns, shuffling one of them adds twice the variance of its term: 8 / 5 and 2 / 5 here."""
    X, found = linear
    predictors = [lambda rows: (2 * rows[:, :1] + rows[:, 2:]) / np.sqrt(5)] * 2
    family = _Family(found, X, found.sample.splits, predictors, np.array([[0, 1, 2]] * 2), 1.0, 3, 10_000)
    before = X.copy()
    increases = family.increases([np.array([0]), np.array([1]), np.array([2]), np.array([0, 2])])
    np.testing.assert_array_equal(X, before)
    # each mean of 1,000 squares has a standard error of about sqrt(2 / 1,000) of itself
    np.testing.assert_allclose(increases, [1.6, 0, 0.4, 2.0], rtol=0.15)
    assert increases[1] == 0


def test_trees_and_linear_models_of_splits(linear):
    X, found = linear
    trees = PlainCandidate(0, Target(), SETTINGS[0])
    plain = PlainCandidate(0, Target(), LINEAR)
    models = {
        0.3: _tree_predictors(trees, SETTINGS[0], X, found, 60.0, Compute(1)),
        1e-4: _linear_predictors(plain, X, found, 60.0),
    }
    for most, predictors in models.items():
        for predictor, split in zip(predictors, found.sample.splits, strict=True):
            error = np.square(predictor(X[split.held]) - found.sample.targets[split.held]).mean()
            assert error < most
    assert _tree_predictors(trees, SETTINGS[0], X, found, 0.1, Compute(1)) is None
    assert _linear_predictors(plain, X, found, 1e-9) is None
