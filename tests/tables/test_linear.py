"""Linear models as members of a blend."""

from __future__ import annotations

import numpy as np
import pytest
from short_search import Brief
from sklearn.linear_model import LogisticRegression, Ridge

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor
from gyrfalcon.tables.boosting import Fold
from gyrfalcon.tables.linear import Linear, LinearClassifier, LinearFits, LinearRegressor


def folds(n, k=3):
    fold = np.arange(n) % k
    return [Fold(np.flatnonzero(fold != held), np.flatnonzero(fold == held)) for held in range(k)]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6))
    return X, X @ rng.standard_normal((6, 2)) + 0.3 * rng.standard_normal((300, 2)) + 5, rng.uniform(0.5, 2, 300)


def test_ridge_of_folds_equals_scikit_learn(rows):
    X, Y, weight = rows
    found = LinearFits(X, Y, weight, 0).fit(folds(300), np.inf)
    each = []
    for alpha in np.logspace(-3, 5, 17):
        models = [Ridge(alpha=alpha).fit(X[f.train], Y[f.train], weight[f.train]) for f in folds(300)]
        held = [
            weight[f.held, None] * (m.predict(X[f.held]) - Y[f.held]) ** 2
            for m, f in zip(models, folds(300), strict=True)
        ]
        each.append((sum(one.sum() for one in held), alpha, models))
    models = min(each, key=lambda one: one[0])[2]
    np.testing.assert_allclose(found.coef, np.mean([m.coef_.T for m in models], axis=0), rtol=1e-8)
    np.testing.assert_allclose(found.offset, np.mean([m.intercept_ for m in models], axis=0), rtol=1e-8)
    for scores, model, fold in zip(found.scores, models, folds(300), strict=True):
        np.testing.assert_allclose(scores, model.predict(X[fold.held]), rtol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_logistic_regression_of_folds_equals_scikit_learn(rows, n_classes):
    X, Y, weight = rows
    labels = np.digitize(Y[:, 0], np.quantile(Y[:, 0], np.arange(1, n_classes) / n_classes))
    found = LinearFits(X, labels, weight, n_classes).fit(folds(300), np.inf)
    first = folds(300)[0]
    near = [
        np.abs(LogisticRegression(C=C).fit(X[first.train], labels[first.train], weight[first.train]).decision_function(
            X[first.held]
        ).reshape(len(first.held), -1) - found.scores[0]).max()
        for C in (0.003, 0.05, 1.0)
    ]  # fmt: skip
    assert min(near) < 1e-8
    assert found.coef.shape == (6, 1 if n_classes == 2 else n_classes)


def test_no_time_or_many_columns_give_nothing(rows):
    X, Y, _ = rows
    assert LinearFits(X, Y, None, 0).fit(folds(300), 1e-9) is None
    assert LinearFits(np.zeros((20, 1001)), np.zeros((20, 1)), None, 0).fit(folds(20), np.inf) is None


def test_a_linear_function_is_learnt_by_the_linear_model(rows, tmp_path):
    X, Y, _ = rows
    model = AutoRegressor(600, families=("kernel", "linear"), random_state=0, callbacks=Brief(2)).fit(X, Y[:, 0])
    linear = [weight for one, weight in zip(model.models_, model.weights_, strict=True) if isinstance(one, Linear)]
    assert sum(linear) > 0.5
    assert any(one["stage"] == "all rows, linear" and one["kernel"] == "linear" for one in model.candidates_)
    gyrfalcon.save(model, tmp_path / "model.gyr")
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "model.gyr").predict(X), model.predict(X))


def test_classes_reach_the_linear_model(rows):
    X, Y, weight = rows
    labels = np.where(Y[:, 0] > 5, "high", "low")
    model = AutoClassifier(600, families=("linear", "kernel"), random_state=0, callbacks=Brief(2))
    model.fit(X, labels, sample_weight=weight)
    assert any(isinstance(one, LinearClassifier) for one in model.models_)
    assert model.score(X, labels) > 0.9


def test_a_model_file_with_other_shapes_is_refused(rows, tmp_path):
    X, Y, _ = rows
    model = LinearRegressor().fit(X, Y)
    gyrfalcon.save(model, tmp_path / "model.gyr")
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "model.gyr").predict(X), model.predict(X))
    model.coef_ = model.coef_[:-1]
    gyrfalcon.save(model, tmp_path / "wrong.gyr")
    with pytest.raises(ValueError, match="coef_"):
        gyrfalcon.load(tmp_path / "wrong.gyr")
