"""What AutoRegressor and AutoClassifier say of their own errors, and what they take."""

from __future__ import annotations

from itertools import chain, repeat

import numpy as np
import pandas as pd
import pytest
from short_search import Brief

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor
from gyrfalcon.tables import learning


def waves(n=600, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, np.sin(3 * X[:, 0]) + X[:, -1] ** 2 + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("make", [AutoRegressor, AutoClassifier])
def test_folds_are_judged_by_models_of_the_same_size(make, monkeypatch):
    """A machine that becomes faster or slower between the fits changes nothing about them."""
    fitted = []

    def plain(model):
        fitted.append((len(model.centers_), model.n_iter_))
        return model.set_params(callbacks=None)

    numbers = chain([100, 50, 25, 120, 60, 30], repeat(80))
    monkeypatch.setattr(learning, "EXACT_ROWS", 0)
    monkeypatch.setattr(learning, "affordable_centers", lambda *arguments: next(numbers))
    monkeypatch.setattr(learning, "plain", plain)
    X, y = waves()
    model = make(600, random_state=0, callbacks=Brief(1)).fit(X, y if make is AutoRegressor else y > 0)
    assert len(fitted) == 6 * len(model.models_)  # five folds and all rows
    assert len({number for number, _ in fitted}) == len(model.models_)
    most = max(iterations for _, iterations in fitted[:1])
    assert all(iterations <= most for _, iterations in fitted[1:6])


# ---- intervals outside the training rows -----------------------------------------------------------------------------


def line(n=400, d=1, noise=0.0):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (n, d))
    return X, 3 * X[:, 0] + noise * rng.standard_normal(n)


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
    truth = 3 * rows[:, 0]
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
    assert np.mean(high - low > 1.5 * plain) < 0.03


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
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "model").predict_interval(rows), model.predict_interval(rows))


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
