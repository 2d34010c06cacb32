"""Estimators take what `gyrfalcon.open` returns as it is: rows, target and weights."""

from __future__ import annotations

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon import (
    AutoClassifier,
    AutoRegressor,
    ConformalClassifier,
    ConformalRegressor,
    EigenProRegressor,
    ExactClassifier,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
    KernelPCA,
    LearnedMetric,
    NystromRegressor,
    RandomFeatures,
    RandomFeaturesRegressor,
)

REGRESSORS = [
    FalkonRegressor(n_centers=20),
    NystromRegressor(n_centers=20),
    HierarchicalRegressor(leaf_size=50),
    RandomFeaturesRegressor(n_components=20),
    ConformalRegressor(FalkonRegressor(n_centers=20, random_state=0)),
]
CLASSIFIERS = [
    FalkonClassifier(n_centers=20),
    ExactClassifier(),
    HierarchicalClassifier(leaf_size=50),
    ConformalClassifier(FalkonClassifier(loss="logistic", n_centers=20, random_state=0)),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    columns = {"a": X[:, 0], "b": X[:, 1], "y": np.sin(X[:, 0]), "label": np.where(X[:, 1] > 0, "up", "down")}
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    parquet.write_table(pa.table({**columns, "w": rng.uniform(size=300)}), path)
    return path


def opened(path, target):
    return gyrfalcon.open(path, target=target, features=["a", "b"], weight="w")


@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=repr)
def test_the_same_as_its_parts(model, path):
    data = opened(path, "label" if "Classifier" in repr(model) else "y")
    model.set_params(random_state=0)
    expected = model.fit(data.X, data.y, data.weight).predict(data.X)
    score = model.score(data.X, data.y, data.weight)
    assert np.array_equal(model.fit(data).predict(data), expected)
    assert model.score(data) == score
    assert list(model.fit(data).predict(data.X)) == list(expected)


def test_what_is_given_counts(path):
    data, model = opened(path, "y"), FalkonRegressor(n_centers=20, random_state=0)
    expected = model.fit(data.X, data.y**2, np.ones(300)).predict(data.X)
    assert np.array_equal(model.fit(data, data.y**2, np.ones(300)).predict(data), expected)
    model.fit(data, X_val=data)
    assert "validation_error" in model.history_[-1]


def test_without_a_target(path):
    data = gyrfalcon.open(path, features=["a", "b"])
    with pytest.raises(ValueError, match=r"X was opened without a target: use open\(path, target=...\)"):
        FalkonRegressor().fit(data)
    assert KernelPCA(n_components=1, n_centers=10, random_state=0).fit(data).transform(data).shape == (300, 1)
    with pytest.raises(ValueError, match="score needs y"):
        FalkonRegressor(n_centers=5, random_state=0).fit(opened(path, "y")).score(np.zeros((2, 2)))


def test_other_estimators(path):
    data = opened(path, "y")
    metric = LearnedMetric(FalkonRegressor(n_centers=20), n_rounds=1, random_state=0).fit(data)
    assert metric.transform(data).shape == (300, 2)
    with pytest.raises(ValueError, match="EigenProRegressor does not accept weights"):
        EigenProRegressor(max_iter=1).fit(data)


@pytest.mark.parametrize(("make", "target"), [(AutoRegressor, "y"), (AutoClassifier, "label")])
def test_automatic_models(make, target, path):
    data, model = opened(path, target), make(time_budget=60, callbacks=lambda record: True, random_state=0)
    expected = model.fit(data.X, data.y, data.weight, X_val=data.X, y_val=data.y).predict(data.X)
    assert np.array_equal(model.fit(data, X_val=data).predict(data), expected)
    assert model.score(data) == model.score(data.X, data.y, data.weight)


def test_random_features(path):
    data, model = opened(path, "y"), RandomFeatures(n_components=10, random_state=0)
    rows = np.concatenate(list(data.X.blocks(300)))
    expected = model.fit(rows).transform(rows)
    np.testing.assert_array_equal(model.fit(data).transform(data), expected)
    assert list(model.feature_names_in_) == ["a", "b"]


def test_lazy_frames(path):
    pl = pytest.importorskip("polars")
    frame, model = (
        pl.scan_parquet(path),
        AutoRegressor(families=("kernel",), callbacks=lambda record: True, random_state=0),
    )
    X, y = frame.select("a", "b"), frame.select("y")
    for each in (model, FalkonRegressor()):
        with pytest.raises(TypeError, match=r"y is a LazyFrame.*use open\(frame, target=...\)"):
            each.fit(X, y)
    data = opened(path, "y")
    expected = model.fit(data.X, data.y).predict(data.X)
    np.testing.assert_array_equal(model.fit(X, data.y).predict(X), expected)


def test_predictions_to_a_file(path, tmp_path):
    data = opened(path, "y")
    model = FalkonRegressor(n_centers=20, random_state=0).fit(data)
    gyrfalcon.write_predictions(model, data, tmp_path / "predictions.npy")
    assert np.array_equal(np.load(tmp_path / "predictions.npy"), model.predict(data.X))
