"""AutoRegressor and AutoClassifier in use: model files, interruptions, rows from elsewhere, scikit-learn's tools."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from short_search import Brief
from sklearn.base import clone
from test_auto_input import BOTH, classifier, output, regressor, table, target_of

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor
from gyrfalcon.tables import members


@BOTH
def test_files_and_pickles_predict_the_same(make, tmp_path):
    X, y = table()
    model = make(40).fit(X, target_of(make, y))
    expected = output(model, X)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(output(gyrfalcon.load(tmp_path / "model"), X), expected)
    np.testing.assert_array_equal(output(pickle.loads(pickle.dumps(model)), X), expected)
    assert repr(clone(model).get_params()) == repr(model.get_params())


@BOTH
def test_the_same_seed_gives_the_same_model(make):
    X, y = table()
    y = target_of(make, y)
    np.testing.assert_array_equal(output(make(4).fit(X, y), X), output(make(4).fit(X, y), X))


@BOTH
def test_models_of_the_blend_are_pipelines(make):
    X, y = table()
    model = make(6).fit(X, target_of(make, y))
    for pipeline in model.estimators_:
        assert pipeline.score(X, target_of(make, y)) > 0.5
    assert model.best_estimator_.predict(X).shape == (len(X),)


def direction(n=500):
    """Rows whose y depends on one direction that is no column's."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 6))
    return X, np.sin(2 * X @ np.ones(6) / np.sqrt(6)) + 0.1 * rng.standard_normal(n)


@BOTH
def test_a_metric_that_is_a_matrix(make, tmp_path):
    X, y = direction()
    y = target_of(make, y)
    model = make(200, time_budget=100_000).fit(X[:400], y[:400])
    mixed = [mixing for mixing in model.mixings_ if mixing is not None]
    assert mixed
    assert mixed[0].matrix.shape == (6, 6)
    assert "metric" in model.best_estimator_.named_steps
    assert model.score(X[400:], y[400:]) > 0.85
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert model.feature_importances_.max() < 0.3  # all six matter alike
    expected = output(model, X)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(output(gyrfalcon.load(tmp_path / "model"), X), expected)
    np.save(tmp_path / "X.npy", X)
    np.testing.assert_allclose(output(model, gyrfalcon.open(tmp_path / "X.npy", target=None).X), expected, rtol=1e-5)


def test_a_matrix_for_rows_from_a_file(tmp_path):
    X, y = direction()
    np.save(tmp_path / "X.npy", X)
    model = regressor(200, time_budget=100_000).fit(gyrfalcon.open(tmp_path / "X.npy", target=None).X, y)
    assert any(mixing is not None for mixing in model.mixings_)
    assert model.score(X, y) > 0.9


def test_a_matrix_that_does_not_fit():
    from gyrfalcon.tables import Mixing

    with pytest.raises(ValueError, match=r"X has 3 columns, and the matrix has shape \(2, 2\)"):
        Mixing(np.eye(2)).fit(np.zeros((4, 3)))


@BOTH
def test_ctrl_c_keeps_the_best_so_far(make):
    script = """
import os, signal, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_auto_input import classifier, regressor, output, table, target_of

make = {"regressor": regressor, "classifier": classifier}[sys.argv[2]]
X, y = table()
def interrupt(record):
    if record["iteration"] == 3:
        os.kill(os.getpid(), signal.SIGINT)

model = make().set_params(callbacks=interrupt)
try:
    model.fit(X, target_of(make, y))
except KeyboardInterrupt:
    print("interrupted", np.isfinite(output(model, X)).all())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent), make.__name__],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["interrupted", "True"], done.stderr


@BOTH
def test_an_interrupted_fit_predicts_with_the_best_so_far(make):
    X, y = table()
    y = target_of(make, y)

    def interrupt(record):
        if record["iteration"] == 3:
            raise KeyboardInterrupt

    model = make().set_params(callbacks=interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.score(X, y) > 0.5


@BOTH
def test_a_callback_ends_the_search(make):
    X, y = table()
    model = make(3).fit(X, target_of(make, y))
    assert [record["stage"] for record in model.candidates_] == ["search"] * 3 + ["all rows"]


@BOTH
def test_sources_and_dask(make, tmp_path, monkeypatch):
    da = pytest.importorskip("dask.array")
    monkeypatch.setattr(members, "EXACT_ROWS", 50)
    X, y = table(200)
    X, y = X[["x", "count"]].astype(float), target_of(make, y)
    path = tmp_path / "table.parquet"
    X.to_parquet(path)
    model = make().fit(gyrfalcon.open(path).X, y)
    assert type(model.models_[0]).__name__.startswith("Falkon")
    assert model.score(gyrfalcon.open(path).X, y) > 0.5
    blocks = da.from_array(X.to_numpy(), chunks=(70, 2))
    model = make().fit(blocks, y)
    lazy = model.predict(blocks)
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), model.predict(X.to_numpy()))


def test_predictions_stay_within_the_training_range():
    X, y = table()
    model = regressor().fit(X, y)
    far = X.assign(x=X["x"] * 100)
    assert model.predict(far).min() >= y.min()
    assert model.predict(far).max() <= y.max()


def test_intervals_hold_what_they_promise():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 2))
    y = np.sin(X[:, 0]) + 0.5 * rng.standard_normal(1200)
    model = regressor(4).fit(X[:300], y[:300])
    for coverage in (0.5, 0.9):
        low, high = model.predict_interval(X[300:], coverage=coverage).T
        # four standard errors of 300 residuals and 900 rows
        error = 4 * np.sqrt(coverage * (1 - coverage) * (1 / 300 + 1 / 900))
        assert abs(np.mean((low <= y[300:]) & (y[300:] <= high)) - coverage) < error
    with pytest.raises(ValueError, match="coverage"):
        model.predict_interval(X, coverage=1)


def test_intervals_stay_on_the_side_of_zero_where_all_targets_are():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 1))
    count = rng.poisson(np.exp(X[:, 0])).astype(float)
    y = np.column_stack([count, -count, count - count.mean()])
    model = regressor().fit(X, y)
    low, high = np.moveaxis(model.predict_interval(X, coverage=0.9), 1, 0)
    assert low[:, 0].min() == 0
    assert high[:, 1].max() == 0
    assert low[:, 2].min() < y[:, 2].min()
    assert ((low <= y) & (y <= high)).mean(axis=0).min() > 0.8
    width, expected = high[:, 0] - model.predict(X)[:, 0], np.exp(X[:, 0])
    assert width[expected > 2].mean() > width[expected < 0.5].mean()  # the noise of counts grows with them


def test_logarithms_of_skewed_targets():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = np.exp(2 * X[:, 0] + 0.1 * rng.standard_normal(300))
    model = AutoRegressor(600, random_state=0, callbacks=Brief(80)).fit(X, y)
    assert "log y" in {record["target"] for record in model.candidates_}
    assert "log y" in model.targets_
    np.testing.assert_allclose(model.best_estimator_.predict(X).clip(y.min(), y.max()), model.predict(X), rtol=0.5)


def test_a_line_tells_how_far_the_search_is(capsys):
    X, y = table()
    regressor(verbose=1).fit(X, y)
    assert "AutoRegressor: " in capsys.readouterr().err


def test_tools_of_scikit_learn():
    from sklearn.ensemble import StackingRegressor
    from sklearn.feature_selection import SelectFromModel
    from sklearn.inspection import partial_dependence, permutation_importance
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV

    X, y = table(80)
    numbers = X[["x", "count"]].astype(float)
    model = regressor().fit(X, y)
    importances = permutation_importance(model, X, y, n_repeats=2, random_state=0).importances_mean
    assert importances.argmax() == 0
    assert partial_dependence(model, numbers.assign(**X.drop(columns=numbers.columns))[X.columns], ["x"])
    assert "x" in SelectFromModel(regressor()).fit(X, y).get_feature_names_out()
    assert GridSearchCV(regressor(), {"time_budget": [1, 2]}, cv=2).fit(X, y).best_score_ > 0
    stacked = StackingRegressor([("auto", regressor()), ("ridge", Ridge())], cv=2).fit(numbers, y)
    assert stacked.score(numbers, y) > 0.3


def test_displays_of_scikit_learn():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from sklearn.calibration import CalibrationDisplay
    from sklearn.inspection import PartialDependenceDisplay
    from sklearn.metrics import ConfusionMatrixDisplay, PredictionErrorDisplay, RocCurveDisplay

    X, y = table(200)
    labels = target_of(classifier, y)
    model = classifier(4).fit(X, labels)
    assert RocCurveDisplay.from_estimator(model, X, labels).roc_auc > 0.8
    CalibrationDisplay.from_estimator(model, X, labels, n_bins=4, pos_label="high")
    assert ConfusionMatrixDisplay.from_estimator(model, X, labels).confusion_matrix.trace() > 150
    fitted = regressor(4).fit(X, y)
    PredictionErrorDisplay.from_estimator(fitted, X, y)
    shown = PartialDependenceDisplay.from_estimator(
        fitted, X.astype({"count": float}), ["x", "city"], categorical_features=["city"]
    )
    average = shown.pd_results[1]["average"][0]
    assert average.argmax() == shown.pd_results[1]["grid_values"][0].tolist().index("Roma")


@pytest.mark.parametrize("seed", [0, 1])
def test_hardly_any_time(seed):
    """However short the time, a solver that has hardly begun is not what is kept."""
    X = np.random.default_rng(seed).normal(size=(2500, 6))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    model = AutoRegressor(time_budget=0.2, random_state=seed).fit(X[:2000], y[:2000])
    assert model.score(X[2000:], y[2000:]) > 0.8


def test_groups_are_not_known_from_their_categories():
    """Errors and intervals are those of groups that nobody has seen."""
    rng = np.random.default_rng(0)
    group, x = np.concatenate([np.repeat(np.arange(60), 8), np.arange(60, 560)]), rng.normal(size=980)
    table, y = pd.DataFrame({"user": [f"u{number}" for number in group], "x": x}), 3 * rng.normal(size=560)[group] + x
    seen, new = group < 60, group >= 60
    model = regressor(6).fit(table[seen], y[seen], groups=group[seen])
    low, high = model.predict_interval(table[new], coverage=0.9).T
    # 60 groups tell their deviation to a tenth: off by twice that, normal intervals of 90% hold 81%
    assert np.mean((low <= y[new]) & (y[new] <= high)) > 0.8


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [AutoRegressor, AutoClassifier])
def test_small_memory_budgets(make):
    X = np.random.default_rng(0).standard_normal((1000, 3))
    y = X[:, 0] if make is AutoRegressor else X[:, 0] > 0
    for budget in ("30MB", "1MB"):
        assert make(memory_budget=budget, callbacks=Brief(2), random_state=0).fit(X, y).score(X, y) > 0.9
    least = (
        rf"{make.__name__} takes at least .* for 1000 rows, and memory_budget='5kB' allows 5 kB: raise memory_budget"
    )
    with pytest.raises(MemoryError, match=least):
        make(memory_budget="5kB", callbacks=Brief(2), random_state=0).fit(X, y)
