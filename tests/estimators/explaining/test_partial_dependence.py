"""Partial dependence: against scikit-learn's, and against predictions for replaced columns."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.inspection

from gyrfalcon import AutoRegressor, ExactRegressor, FalkonClassifier, FalkonRegressor, partial_dependence
from gyrfalcon.kernels import Gaussian, Laplacian, Matern
from tables.short_search import Brief

KERNELS = [Gaussian([1.0, 2.0, 3.0]) + 0.5 * Laplacian(2.0, norm=1), Matern(2.0)]


def data(n=120, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, 3))
    return X, np.sin(X[:, 0]) * X[:, 1] + X[:, 2]


def replaced(model, X, columns, points):
    """Predictions of shape (n, g) by rows whose columns are replaced."""
    found = []
    for point in points:
        rows = X.copy()
        rows[:, columns] = point
        found.append(model.predict(rows))
    return np.stack(found, axis=1)


@pytest.mark.parametrize("kernel", KERNELS, ids=["products", "matern"])
def test_curves_are_predictions_for_replaced_columns(kernel):
    X, y = data()
    model = FalkonRegressor(kernel, dtype="float64", random_state=0).fit(X, y)
    found = partial_dependence(model, X, 1, grid_resolution=7, kind="both")
    (grid,) = found.grid_values
    assert grid[[0, -1]].tolist() == [X[:, 1].min(), X[:, 1].max()]
    expected = replaced(model, X, [1], grid[:, None])
    np.testing.assert_allclose(found.individual[0], expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.average[0], expected.mean(axis=0), rtol=0, atol=1e-8)
    pair = partial_dependence(model, X, (2, 0), grid_resolution=4, kind="both")
    first, second = pair.grid_values
    points = np.array([(a, b) for a in first for b in second])
    expected = replaced(model, X, [2, 0], points)
    assert pair.average.shape == (1, 4, 4)
    np.testing.assert_allclose(pair.individual.reshape(120, 16), expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(pair.average.ravel(), expected.mean(axis=0), rtol=0, atol=1e-8)


def test_blocks_of_rows_give_the_same(monkeypatch):
    X, y = data()
    model = FalkonRegressor("gaussian", n_centers=50, dtype="float64", random_state=0).fit(X, y)
    whole = partial_dependence(model, X, 0, kind="both")
    monkeypatch.setattr("gyrfalcon.estimators.partial_dependence._BLOCK", 700)
    parts = partial_dependence(model, X, 0, kind="both")
    np.testing.assert_allclose(parts.average, whole.average, rtol=0, atol=1e-9)
    np.testing.assert_allclose(parts.individual, whole.individual, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=["products", "matern"])
def test_scikit_learn_computes_and_draws_the_same(kernel):
    pytest.importorskip("matplotlib").use("Agg")
    X, y = data()
    model = ExactRegressor(kernel, dtype="float64", random_state=0).fit(X, y)
    drawn = sklearn.inspection.PartialDependenceDisplay.from_estimator(model, X, [0, (0, 1)], grid_resolution=5)
    assert len(drawn.pd_results) == 2
    ours = partial_dependence(model, X, 0, grid_resolution=12, kind="both")
    theirs = sklearn.inspection.partial_dependence(
        model, X, [0], custom_values={0: ours.grid_values[0]}, kind="both", method="brute"
    )
    np.testing.assert_allclose(ours.average, theirs["average"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(ours.individual, theirs["individual"], rtol=0, atol=1e-8)
    display = sklearn.inspection.PartialDependenceDisplay(
        [ours], features=[(0,)], feature_names=["a", "b", "c"], target_idx=0, deciles={0: np.quantile(X[:, 0], [0.1])}
    )
    display.plot()


def test_classes_and_outputs():
    X, y = data()
    model = FalkonClassifier("gaussian", dtype="float64", random_state=0).fit(X, np.digitize(y, [-1, 1]))
    found = partial_dependence(model, X, 0, grid_resolution=5)
    assert found.average.shape == (3, 5)
    rows = X.copy()
    rows[:, 0] = found.grid_values[0][2]
    np.testing.assert_allclose(found.average[:, 2], model.decision_function(rows).mean(axis=0), rtol=0, atol=1e-8)


def test_tables():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(
        {
            "size": np.where(rng.random(200) < 0.1, np.nan, rng.standard_normal(200)),
            "kind": rng.choice(["red", "green", "blue"], 200),
            "day": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(rng.integers(0, 300, 200), unit="D"),
        }
    )
    y = table["size"].fillna(1.0).to_numpy() + 2.0 * (table["kind"] == "red").to_numpy()
    model = AutoRegressor(time_budget=30, families=("kernel",), callbacks=Brief(), random_state=0).fit(table, y)
    kinds = partial_dependence(model, table, "kind")
    assert kinds.grid_values[0].tolist() == ["blue", "green", "red"]
    assert kinds.average[0, 2] > kinds.average[0, :2].max() + 1
    sizes = partial_dependence(model, table, "size", grid_resolution=9)
    assert sizes.grid_values[0].dtype == float
    assert (np.diff(sizes.grid_values[0]) > 0).all()
    assert sizes.average[0, -1] > sizes.average[0, 0] + 1
    days = partial_dependence(model, table, "day", grid_resolution=6)
    assert days.average.shape == (1, 6)
    drawn = sklearn.inspection.partial_dependence(model, table, ["size"], grid_resolution=4)
    assert drawn["average"].shape == (1, 4)


def test_errors():
    X, y = data(60)
    model = FalkonRegressor("gaussian", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="'x9' is not a column"):
        partial_dependence(model, X, "x9")
    with pytest.raises(ValueError, match="names a column twice"):
        partial_dependence(model, X, (1, 1))
    with pytest.raises(ValueError, match="a pair of columns"):
        partial_dependence(model, X, (0, 1, 2))
    with pytest.raises(ValueError, match="no rows"):
        partial_dependence(model, X[:0], 0)
    with pytest.raises(ValueError, match="grid_resolution=1"):
        partial_dependence(model, X, 0, grid_resolution=1)
    with pytest.raises(ValueError, match="kind='mean'"):
        partial_dependence(model, X, 0, kind="mean")
