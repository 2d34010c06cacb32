"""What AutoRegressor and AutoClassifier say of their own errors, and what they take."""

from __future__ import annotations

import re
import warnings
from itertools import chain, repeat

import numpy as np
import pandas as pd
import pytest
from short_search import Brief

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor
from gyrfalcon._utils.compute import Compute
from gyrfalcon.fitting import calibration
from gyrfalcon.tables import _auto, budget, encoded_tables, finding, members, numbers
from gyrfalcon.tables.problems import Classification


def waves(n=600, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, np.sin(3 * X[:, 0]) + X[:, -1] ** 2 + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("make", [AutoRegressor, AutoClassifier])
def test_folds_are_judged_by_models_of_the_same_size(make, monkeypatch):
    """A machine that becomes faster or slower between the fits changes nothing about them."""
    fitted = []

    def without_callbacks(model):
        fitted.append((len(model.centers_), model.n_iter_))
        return model.set_params(callbacks=None)

    numbers = chain([100, 50, 25, 120, 60, 30], repeat(80))
    monkeypatch.setattr(members, "EXACT_ROWS", 0)
    monkeypatch.setattr(members, "affordable_centers", lambda *arguments: next(numbers))
    monkeypatch.setattr(members, "without_callbacks", without_callbacks)
    X, y = waves()
    model = make(600, families=("kernel",), random_state=0, callbacks=Brief(1)).fit(
        X, y if make is AutoRegressor else y > 0
    )
    assert len(fitted) == 6 * len(model.models_)  # five folds and all rows
    assert len({number for number, _ in fitted}) == len(model.models_)
    most = max(iterations for _, iterations in fitted[:1])
    assert all(iterations <= most for _, iterations in fitted[1:6])


# ---- intervals outside the training rows -----------------------------------------------------------------------------


def line(n=400, d=1, noise=0.0):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (n, d))
    return X, 3 * X[:, 0] - 1 + noise * rng.standard_normal(n)


def widths(model, X):
    low, high = model.predict_interval(X).T
    return high - low


@pytest.mark.parametrize("d", [1, 30])
def test_intervals_widen_outside_the_training_rows(d):
    X, y = line(d=d, noise=0.0 if d == 1 else 0.1)
    model = AutoRegressor(600, random_state=0, callbacks=Brief(3)).fit(X, y)
    rows = np.full((5, d), 0.5)
    rows[:, 0] = [0.5, -0.2, 1.2, 2.0, 5.0]
    inside, *outside = widths(model, rows)
    assert min(outside) > (50 if d == 1 else 3) * inside
    assert outside[1] < outside[2] < outside[3]
    ends = model.predict_interval(rows)
    truth = 3 * rows[:, 0] - 1
    assert (ends[1:3, 0] < truth[1:3]).all()
    assert (truth[1:3] < ends[1:3, 1]).all()


@pytest.mark.parametrize(("d", "noise"), [(1, 0.0), (5, 0.3), (30, 0.3)])
def test_intervals_among_the_training_rows_keep_their_width_and_coverage(d, noise):
    X, y = line(1400, d, noise)
    model = AutoRegressor(600, random_state=0, callbacks=Brief(3)).fit(X[:400], y[:400])
    low, high = model.predict_interval(X[400:], coverage=0.9).T
    # four standard errors of 400 residuals and 1,000 rows
    assert np.mean((low <= y[400:]) & (y[400:] <= high)) > 0.9 - 4 * np.sqrt(0.09 * (1 / 400 + 1 / 1000))
    plain = 2 * model.residuals_[int(np.ceil(0.9 * (len(model.residuals_) + 1))) - 1]
    assert np.median(high - low) < 1.01 * plain
    # widths may follow the errors, and grow towards the ends, but intervals are not much wider on average
    assert np.mean(high - low) < 1.25 * plain


def test_intervals_widen_in_a_gap():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 1, 150), rng.uniform(3, 4, 150)])
    model = AutoRegressor(600, random_state=0, callbacks=Brief(3)).fit(x[:, None], np.sin(x))
    inside, gap = widths(model, [[0.5], [2.0]])
    assert gap > 20 * inside


def test_intervals_widen_for_new_categories_dates_and_gaps(tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    days, effects = rng.integers(0, 700, n), rng.standard_normal(40)
    table = pd.DataFrame(
        {
            "city": rng.choice(["Genova", "Roma", "Torino"], n),
            "street": [f"via {at}" for at in rng.integers(40, size=n)],
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D"),
            "size": rng.standard_normal(n),
        }
    )
    streets = effects[table["street"].str[4:].astype(int)]
    y = 3.0 * (table["city"] == "Roma") + streets + days / 300 + table["size"] + 0.1 * rng.standard_normal(n)
    model = AutoRegressor(600, random_state=0, callbacks=Brief(3)).fit(table, y)
    row = table.iloc[[0]]
    news = {"city": "Bari", "street": "via Prè", "day": pd.Timestamp("2024-01-01"), "size": np.nan}
    rows = pd.concat([row, *(row.assign(**{name: value}) for name, value in news.items())])
    rows = pd.concat([rows, row.assign(day=pd.Timestamp("2030-01-01"))])
    inside, *outside = widths(model, rows)
    assert min(outside) > 1.2 * inside
    assert outside[-1] > outside[2]
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        gyrfalcon.load(tmp_path / "model").predict_interval(rows), model.predict_interval(rows)
    )


@pytest.mark.filterwarnings("ignore:column 'name'")
def test_levels_that_occur_once_are_no_news():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.standard_normal(300), "name": [f"name {at}" for at in range(300)]})
    model = AutoRegressor(600, random_state=0, callbacks=Brief(2)).fit(table, np.sin(table["x"]))
    inside, new = widths(model, table.iloc[[0, 0]].assign(name=["name 0", "another"]))
    assert inside == new


@pytest.mark.parametrize(
    ("name", "forge"),
    [
        ("slopes_", lambda value: -value - 1),
        ("slopes_", lambda value: np.append(value, 1.0)),
        ("weights_", lambda value: value * np.nan),
        ("weights_", lambda value: value[:-1]),
        ("points_", lambda value: value[:, :-1]),
        ("predictions_", lambda value: value[1:]),
        ("radius_", lambda value: -1.0),
        ("encoder_", lambda value: None),
    ],
)
def test_a_forged_reach_is_refused(name, forge, tmp_path):
    X, y = waves(60)
    model = AutoRegressor(600, random_state=0, callbacks=Brief(1)).fit(X, y)
    setattr(model.reach_, name, forge(getattr(model.reach_, name)))
    gyrfalcon.save(model, tmp_path / "model")
    with pytest.raises(gyrfalcon.ModelFileError):
        gyrfalcon.load(tmp_path / "model")


def test_intervals_of_several_outputs_and_of_rows_from_files(tmp_path):
    X, y = waves(200)
    model = AutoRegressor(600, random_state=0, callbacks=Brief(1)).fit(X, np.column_stack([y, -2 * y]))
    rows = np.vstack([X[:5], 10 * X[:5]])
    ends = model.predict_interval(rows)
    assert ends.shape == (10, 2, 2)
    assert (np.diff(ends[5:], axis=1) > np.diff(ends[:5], axis=1)).all()
    np.save(tmp_path / "rows.npy", rows)
    np.testing.assert_allclose(model.predict_interval(gyrfalcon.open(tmp_path / "rows.npy")), ends, rtol=1e-6)


# ---- time, classes and columns ---------------------------------------------------------------------------------------


def blobs(n, k, seed=0):
    """Rows of k classes, each of which has one row at least."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    return 4 * rng.standard_normal((k, 3))[y] + 0.3 * rng.standard_normal((n, 3)), y


def test_more_classes_than_there_is_time_for_are_refused():
    X, y = blobs(6000, 3000)
    with pytest.raises(ValueError, match=r"time_budget=5 is too little for 3,000 classes of 6,000 rows") as caught:
        AutoClassifier(time_budget=5).fit(X, y)
    named = float(re.search(r"Use time_budget=(\d+)", str(caught.value))[1])
    _auto.refuse_slow_classes(6000, 3000, named)
    with pytest.raises(ValueError, match="too little"):
        _auto.refuse_slow_classes(6000, 3000, named / 1.3)
    _auto.refuse_slow_classes(3000, 500, 3.0)
    _auto.refuse_slow_classes(10**6, 100, 0.01)  # a warning says what it takes


@pytest.mark.parametrize("labels", [np.arange(200), [f"name {at}" for at in range(200)], np.arange(200) // 1.5 // 1])
def test_targets_of_nearly_as_many_classes_as_rows_are_refused(labels):
    X = np.random.default_rng(0).standard_normal((200, 2))
    with pytest.raises(ValueError, match=r"classes in 200 rows, such as .*seen once only.*AutoRegressor"):
        AutoClassifier(time_budget=600).fit(X, labels)


def test_a_budget_below_the_smallest_fit_is_said():
    X, y = waves(300)
    with pytest.warns(UserWarning, match=r"time_budget=0\.01 is less than the smallest search and fit of 300 rows"):
        AutoRegressor(time_budget=0.01, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AutoRegressor(time_budget=2, random_state=0, callbacks=Brief(1)).fit(X, y)


def test_the_least_time_grows_with_rows_classes_and_columns():
    least = budget.least_seconds
    assert least(1000, 1, 5) < least(10_000, 1, 5) < least(10_000, 100, 5) < least(10_000, 1000, 5)
    assert least(2000, 1, 5) < least(2000, 1, 3000)


def test_costs_of_many_columns_are_measured_with_few(monkeypatch):
    """A product with as many columns as a fit of 1,500 classes has would take as long as the fit."""
    widths = []

    class Counting(budget.KernelOperator):
        def matmat(self, V):
            widths.append(V.shape[1])
            return super().matmat(V)

    monkeypatch.setattr(budget, "KernelOperator", Counting)
    X = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    seconds = budget.exact_seconds(gyrfalcon.kernels.Gaussian(), X, Compute())
    assert seconds(9000) > seconds(900) > 0
    assert max(widths) <= 100


def test_what_there_is_no_time_for_is_left_out(monkeypatch):
    """Neither other encodings, nor a larger sample, nor a second kind of model is begun when the time is over."""
    monkeypatch.setattr(encoded_tables, "_ENCODE_SHARE", 0.0)
    monkeypatch.setattr(finding, "REFINE_SHARE", 0.0)
    monkeypatch.setattr(finding, "_SAMPLE_ROWS", 100)
    monkeypatch.setattr(members, "affordable_centers", lambda *arguments: None)
    X, y = waves(1000)
    model = AutoClassifier(600, families=("kernel",), random_state=0, callbacks=Brief(60)).fit(X, y > 0)
    assert {record["encoding"] for record in model.candidates_} == {"robust"}
    assert {record["stage"] for record in model.candidates_} == {"search", "all rows"}


def test_many_classes_are_judged_by_few_folds_where_time_is_short(monkeypatch):
    folds = []
    exact = Classification.exact

    def recorded(self, kernel, **parameters):
        folds.append(len(np.unique(parameters["cv"])))
        return exact(self, kernel, **parameters)

    monkeypatch.setattr(Classification, "exact", recorded)
    monkeypatch.setattr(members, "exact_seconds", lambda *arguments: lambda columns: np.inf)
    X, y = blobs(400, 40)
    AutoClassifier(600, families=("kernel",), random_state=0, callbacks=Brief(1)).fit(X, y)
    assert folds[0] == 2


def test_a_sample_without_all_classes_is_completed(monkeypatch):
    """The sample is fitted alone where the time has ended the last fits early; rare classes are not in it."""
    monkeypatch.setattr(finding, "_SAMPLE_ROWS", 60)
    monkeypatch.setattr(members.ModelFits, "_are_cut_short", lambda self, fitted: True)
    X, y = blobs(400, 60)
    model = AutoClassifier(600, random_state=0, callbacks=Brief(1)).fit(X, y)
    assert "sample alone" in {record["stage"] for record in model.candidates_}
    assert model.predict_proba(X).shape == (400, 60)


def test_categories_of_many_levels_beside_many_classes():
    """Each class would have a column of its own for such a category, by as many fits of an encoder."""
    rng = np.random.default_rng(0)
    y = rng.integers(40, size=400)
    table = pd.DataFrame({"street": [f"via {at}" for at in (y + rng.integers(2, size=400))], "x": rng.random(400)})
    model = AutoClassifier(600, random_state=0, callbacks=Brief(1)).fit(table, y)
    assert len(model.encoders_[0].feature_origin_) < 15
    assert model.score(table, y) > 0.3


def test_calibration_of_many_rows_and_classes_keeps_the_shares_of_classes(monkeypatch):
    rng = np.random.default_rng(0)
    n, k = 3000, 30
    codes = np.concatenate([np.arange(k), np.minimum(rng.geometric(0.2, n - k) - 1, k - 1)])
    values = rng.normal(size=(n, k)) * 0.3 - 0.8
    values[np.arange(n), codes] += 1.0
    whole = calibration.fit_calibration(values, codes, k)
    monkeypatch.setattr(calibration, "MOST_VALUES", 600 * k)
    _, labels, weight = calibration._some_of_each(values, codes, None, k)
    assert len(labels) == 600
    np.testing.assert_allclose(np.bincount(labels, weights=weight, minlength=k), np.bincount(codes, minlength=k))
    some = calibration.fit_calibration(values, codes, k)
    difference = np.abs(some.probabilities(values) - whole.probabilities(values))
    assert difference.mean() < 0.02


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_quantiles_of_sorted_columns_are_those_of_numpy(n, method):
    values = np.sort(np.random.default_rng(0).standard_normal((n, 3)), axis=0)
    levels = [0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0]
    expected = np.quantile(values, levels, axis=0, method=method)
    np.testing.assert_allclose(numbers._of_sorted(values, levels, method), expected, rtol=1e-14, atol=1e-15)
