"""Shapley values: against the sum over all subsets of columns, and what they must add up to."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from gyrfalcon import (
    AutoClassifier,
    AutoRegressor,
    EigenProRegressor,
    ExactClassifier,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalRegressor,
    KernelPCA,
    NystromRegressor,
    RandomFeaturesRegressor,
    shapley_interactions,
    shapley_values,
)
from gyrfalcon.kernels import Gaussian, Laplacian, Matern
from gyrfalcon.operators.shapley import Expansion, expansion_shapley_values
from gyrfalcon.sources import ArrayRows
from tables.short_search import Brief

ARD = [0.7, 1.5, 0.9, 2.0, 1.1, 0.8]
PRODUCTS = {
    "gaussian": Gaussian(1.3),
    "gaussian by column": Gaussian(ARD),
    "laplacian": Laplacian(2.0, norm=1),
    "sum": Gaussian(1.3) + 0.5 * Laplacian(ARD, norm=1) + 2.0,
    "product": (Gaussian(1.3) + 1.0) * Laplacian(3.0, norm=1),
}


def enumerated(value, n_groups):
    """Shapley values of a game: value(subset) has shape (n, k)."""
    games = {
        subset: value(list(subset)) for size in range(n_groups + 1) for subset in combinations(range(n_groups), size)
    }
    values = np.zeros((*next(iter(games.values())).shape, n_groups))
    for subset, worth in games.items():
        for g in set(range(n_groups)) - set(subset):
            gain = games[tuple(sorted((*subset, g)))] - worth
            values[..., g] += gain / (n_groups * comb(n_groups - 1, len(subset)))
    return np.moveaxis(values, -1, 1)


def averaged(function, X, background, groups):
    """The game in which columns that are absent are those of background rows, on average."""

    def value(subset):
        known = np.isin(groups, subset)
        return np.mean([function(np.where(known, X, row)) for row in background], axis=0)

    return value


def problem(d, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) for shape in [(4, d), (3, d), (37, d), (37, 2)])


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("kernel", PRODUCTS.values(), ids=PRODUCTS.keys())
def test_exact_values_are_those_of_enumeration(kernel, backend, monkeypatch):
    monkeypatch.setenv("GYRFALCON_BACKEND", backend)
    X, background, centers, coef = problem(6)
    groups = np.arange(6)
    values, base = expansion_shapley_values(Expansion(kernel, centers, coef), X, background, groups)
    expected = enumerated(averaged(lambda rows: kernel(rows, centers) @ coef, X, background, groups), 6)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(base, (kernel(background, centers) @ coef).mean(axis=0), rtol=0, atol=1e-10)


def test_ten_columns_and_groups_of_columns():
    X, background, centers, coef = problem(10, seed=1)
    kernel = Gaussian(2.0)
    for groups in (np.arange(10), np.array([0, 1, 0, 2, 1, 0, 3, 3, 2, 1])):
        values, _ = expansion_shapley_values(Expansion(kernel, centers, coef), X, background, groups)
        value = averaged(lambda rows: kernel(rows, centers) @ coef, X, background, groups)
        np.testing.assert_allclose(values, enumerated(value, groups.max() + 1), rtol=0, atol=1e-10)


def test_without_background_an_absent_column_has_the_factor_one():
    X, _, centers, coef = problem(5, seed=2)
    kernel = Gaussian(1.5)

    def value(subset):
        return kernel(X[:, subset], centers[:, subset]) @ coef if subset else np.tile(coef.sum(axis=0), (len(X), 1))

    values, base = expansion_shapley_values(Expansion(kernel, centers, coef), X, None, np.arange(5))
    np.testing.assert_allclose(values, enumerated(value, 5), rtol=0, atol=1e-10)
    np.testing.assert_allclose(base, coef.sum(axis=0), rtol=0, atol=1e-12)


def test_threads_do_not_change_the_bits(monkeypatch):
    X, background, centers, coef = problem(7, seed=3)
    X = np.tile(X, (30, 1))
    found = [
        expansion_shapley_values(Expansion(Gaussian(1.0), centers, coef), X, background, np.arange(7), n_jobs)[0]
        for n_jobs in (1, 2, 3)
    ]
    assert all(np.array_equal(one, found[0]) for one in found)


def data(n=150, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * [1.0, 10.0, 0.1, 1.0] + 3.0
    return X, np.sin(X[:, 0]) + 0.1 * X[:, 1] + 5.0


EXACT = [
    FalkonRegressor("gaussian", dtype="float64", random_state=0),
    FalkonRegressor(Laplacian(norm=1) + 1.0, n_centers=40, dtype="float64", random_state=0),
    NystromRegressor("gaussian", n_centers=30, dtype="float64", random_state=0),
    ExactRegressor("gaussian", dtype="float64", random_state=0),
    EigenProRegressor("gaussian", dtype="float64", random_state=0),
]


@pytest.mark.parametrize("model", EXACT, ids=lambda model: type(model).__name__)
def test_values_add_up_to_the_prediction_and_are_those_of_enumeration(model):
    X, y = data()
    model.fit(X, y)
    why = shapley_values(model, X[:5], background=X[10:13])
    assert why.exact
    assert why.standard_errors is None
    np.testing.assert_allclose(why.base_values, model.predict(X[10:13]).mean(), rtol=0, atol=1e-8)
    np.testing.assert_allclose(why.values.sum(axis=1) + why.base_values, model.predict(X[:5]), rtol=0, atol=1e-8)
    value = averaged(lambda rows: model.predict(rows)[:, None], X[:5], X[10:13], np.arange(4))
    np.testing.assert_allclose(why.values, enumerated(value, 4)[..., 0], rtol=0, atol=1e-8)
    alone = shapley_values(model, X[:5])
    np.testing.assert_allclose(alone.values.sum(axis=1) + alone.base_values, model.predict(X[:5]), rtol=0, atol=1e-6)


def test_many_columns_several_outputs_and_float32():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 60))
    model = FalkonRegressor("gaussian", random_state=0).fit(X.astype(np.float32), np.c_[X[:, 0], X[:, 1]])
    why = shapley_values(model, X[:6], background=X[:20])
    assert why.values.shape == (6, 60, 2)
    assert why.base_values.shape == (6, 2)
    # predictions are rounded to float32, of terms that are larger than their sum
    np.testing.assert_allclose(why.values.sum(axis=1) + why.base_values, model.predict(X[:6]), rtol=0, atol=1e-4)
    wide = FalkonRegressor("gaussian", dtype="float64", random_state=0).fit(X, X[:, 0])
    why = shapley_values(wide, X[:6], background=X[:20])
    difference = wide.predict(X[:6]) - wide.predict(X[:20]).mean()
    np.testing.assert_allclose(why.values.sum(axis=1), difference, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [FalkonClassifier, ExactClassifier])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers(kind, n_classes):
    X, y = data()
    labels = np.array(["a", "b", "c"])[np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))]
    model = kind("gaussian", dtype="float64", random_state=0).fit(X, labels)
    why = shapley_values(model, X[:5], background=X[10:13])
    function = model.decision_function if kind is FalkonClassifier else model.uncalibrated
    assert why.exact
    assert why.values.shape == ((5, 4) if n_classes == 2 else (5, 4, 3))
    np.testing.assert_allclose(why.values.sum(axis=1) + why.base_values, function(X[:5]), rtol=0, atol=1e-8)


def test_a_link_is_left_out():
    X, y = data()
    model = FalkonRegressor("gaussian", loss="poisson", dtype="float64", random_state=0).fit(X, np.exp(y - 5))
    why = shapley_values(model, X[:5], background=X[10:13])
    np.testing.assert_allclose(np.exp(why.values.sum(axis=1) + why.base_values), model.predict(X[:5]), rtol=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        FalkonRegressor(Matern(), dtype="float64", random_state=0),
        RandomFeaturesRegressor("gaussian", dtype="float64", random_state=0),
        HierarchicalRegressor("gaussian", dtype="float64", leaf_size=32, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_other_models_are_sampled(model):
    X, y = data()
    model.fit(X, y)
    background = X[10:14]
    why = shapley_values(model, X[:5], background, n_permutations=80, random_state=0)
    assert not why.exact
    np.testing.assert_allclose(why.values.sum(axis=1) + why.base_values, model.predict(X[:5]), rtol=0, atol=1e-10)
    value = averaged(lambda rows: model.predict(rows)[:, None], X[:5], background, np.arange(4))
    far = np.abs(why.values - enumerated(value, 4)[..., 0]) / (why.standard_errors + 1e-9)
    assert far.max() < 5  # of 20 values with 39 degrees of freedom: a chance below 1 in 1,000
    assert np.median(far) > 0.05  # the errors are not far too large, either
    alone = shapley_values(model, ArrayRows(X[:5]), random_state=0)  # the background is that of the rows themselves
    np.testing.assert_allclose(alone.base_values, model.predict(X[:5]).mean(), rtol=0, atol=1e-10)


def test_names_groups_and_data():
    pandas = pytest.importorskip("pandas")
    X, y = data()
    table = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    model = FalkonRegressor("gaussian", dtype="float64", random_state=0).fit(table, y)
    whole, why = shapley_values(model, table[:3]), shapley_values(model, table[:3], groups={"bd": ["d", 1]})
    assert whole.feature_names == ["a", "b", "c", "d"]
    assert np.array_equal(whole.data, X[:3])
    assert why.feature_names == ["a", "bd", "c"]
    assert np.isnan(why.data[:, 1]).all()
    np.testing.assert_allclose(why.values.sum(axis=1), whole.values.sum(axis=1), rtol=0, atol=1e-6)


def test_errors():
    X, y = data(n=60)
    model = FalkonRegressor("gaussian", random_state=0).fit(X, y)
    with pytest.raises(TypeError, match="mapping of names"):
        shapley_values(model, X, groups=[[0, 1]])
    with pytest.raises(ValueError, match="'x9' is not a column"):
        shapley_values(model, X, groups={"g": ["x9"]})
    with pytest.raises(ValueError, match="is in the groups 'g' and 'h'"):
        shapley_values(model, X, groups={"g": [0], "h": [0]})
    with pytest.raises(ValueError, match="no rows"):
        shapley_values(model, X, background=X[:0])
    with pytest.raises(ValueError, match="NaN"):
        shapley_values(model, np.where(np.arange(4) == 1, np.nan, X))
    with pytest.raises(ValueError, match="3 features"):
        shapley_values(model, X, background=X[:, :3])
    with pytest.raises(ValueError, match="n_permutations=2"):
        shapley_values(model, X, n_permutations=2)
    with pytest.raises(TypeError, match="no predictions to explain"):
        shapley_values(KernelPCA(2).fit(X), X)
    with pytest.raises(TypeError, match="gyrfalcon"):
        shapley_values("model", X)


def mixed_table(n=300):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.standard_normal(n)),
            "kind": rng.choice(["red", "green", "blue"], n),
            "day": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(rng.integers(0, 300, n), unit="D"),
            "noise": rng.standard_normal(n),
        }
    )
    return table, table["size"].fillna(1.0).to_numpy() + 2.0 * (table["kind"] == "red").to_numpy()


def test_tables_are_explained_by_their_own_columns():
    table, y = mixed_table()
    model = AutoRegressor(time_budget=30, families=("kernel",), callbacks=Brief(), random_state=0).fit(table, y)
    background = table[100:120].reset_index(drop=True)
    why = shapley_values(model, table[:8], background, random_state=0)
    assert why.feature_names == ["size", "kind", "day", "noise"]
    assert why.data[0, 1] == table["kind"][0]
    near = np.abs(model.predict(table[:8]) - np.mean([*model.range_])) < 0.3 * np.ptp(model.range_)  # not limited
    np.testing.assert_allclose(
        (why.values.sum(axis=1) + why.base_values)[near], model.predict(table[:8])[near], rtol=0, atol=1e-3
    )
    sizes = np.abs(why.values).mean(axis=0)
    assert sizes[1] > 3 * sizes[3]


def test_classes_of_tables_are_sampled():
    table, y = mixed_table(200)
    model = AutoClassifier(time_budget=30, families=("kernel",), callbacks=Brief(), random_state=0).fit(
        table, np.where(y > 1, "high", "low")
    )
    why = shapley_values(model, table[:4], table[100:110], n_permutations=8, random_state=0)
    assert not why.exact
    expected = model.decision_function(table[:4])
    np.testing.assert_allclose(why.values.sum(axis=1) + why.base_values, expected, rtol=0, atol=1e-8)


def test_columns_of_other_kinds_are_refused():
    table, y = mixed_table(200)
    model = AutoClassifier(time_budget=30, families=("kernel",), callbacks=Brief(), random_state=0).fit(
        table, np.where(y > 1, "high", "low")
    )
    with pytest.raises(ValueError, match="'kind' is of kind 'text' in X and 'number' in background"):
        shapley_values(model, table[:4], table[:4].assign(kind=1.0))
    alone = shapley_values(model, table[:4], table[4:8].assign(kind=None), n_permutations=4, random_state=0)
    assert alone.values.shape == (4, 4)


def test_plots_of_shap_take_the_result():
    shap = pytest.importorskip("shap")
    import matplotlib.pyplot

    matplotlib.use("Agg")
    X, y = data()
    model = FalkonRegressor("gaussian", random_state=0).fit(X, y)
    why = shapley_values(model, X[:20], X[:10])
    explanation = shap.Explanation(why.values, why.base_values, why.data, feature_names=why.feature_names)
    for plot, shown in [
        (shap.plots.beeswarm, explanation),
        (shap.plots.bar, explanation),
        (shap.plots.heatmap, explanation),
        (shap.plots.violin, explanation),
        (shap.plots.scatter, explanation[:, 0]),
        (shap.plots.waterfall, explanation[0]),
    ]:
        plot(shown, show=False)
        matplotlib.pyplot.close("all")
    assert explanation[0].base_values == why.base_values[0]
    pairs = shapley_interactions(model, X[:20], X[:10])
    shap.summary_plot(pairs.values, why.data, feature_names=why.feature_names, show=False)
    matplotlib.pyplot.close("all")


def test_shap_computes_the_same():
    shap = pytest.importorskip("shap")
    X, y = data()
    model = FalkonRegressor("gaussian", dtype="float64", random_state=0).fit(X, y)
    explainer = shap.explainers.Exact(model.predict, shap.maskers.Independent(X[10:20], max_samples=10))
    why = shapley_values(model, X[:5], X[10:20])
    np.testing.assert_allclose(why.values, explainer(X[:5]).values, rtol=0, atol=1e-8)
