"""Rows of weight 0 are as if they were not there for AutoRegressor and AutoClassifier, whatever they hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from short_search import Brief
from sklearn.model_selection import KFold, TimeSeriesSplit

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor

N = 150


def regressor(**parameters):
    return AutoRegressor(callbacks=Brief(2), random_state=0, **{"families": ("kernel",), **parameters})


def classifier(**parameters):
    return AutoClassifier(callbacks=Brief(2), random_state=0, **{"families": ("kernel",), **parameters})


def tables():
    """Return a table with garbage in some rows, which these are, and the table without them."""
    rng = np.random.default_rng(0)
    clean = pd.DataFrame(
        {
            "x": rng.standard_normal(N),
            "city": pd.Categorical(rng.choice(["Genova", "Roma", "Torino"], N)),
            "street": rng.choice([f"{number} Via Garibaldi" for number in range(30)], N),
            "count": rng.integers(0, 9, N),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, N), "D"),
        }
    )
    garbage = rng.uniform(size=N) < 0.4
    other = pd.DataFrame(
        {
            "x": rng.choice([1e30, -999.0], N),
            "city": "unknown",
            "street": [f"row {number}" for number in range(N)],
            "count": rng.integers(-999, 10**9, N),
            "day": pd.Timestamp("1900-01-01"),
        }
    )
    spoilt = clean.astype({"city": object})
    spoilt[garbage] = other[garbage]
    spoilt = spoilt.astype({"city": "category", "count": int})
    return spoilt, garbage, clean[~garbage].reset_index(drop=True)


def targets(make, X, garbage, placeholder):
    y = np.sin(2 * np.where(garbage, 0.0, X["x"])) + (X["city"] == "Roma").to_numpy()
    if make is regressor:
        return np.where(garbage, placeholder, y)
    return np.where(garbage, str(placeholder), np.where(y > 0.5, "high", "low"))


def assert_same(found, without, X):
    assert_array_equal(found.predict(X), without.predict(X))
    assert_array_equal(found.feature_importances_, without.feature_importances_)
    if isinstance(found, AutoRegressor):
        for name in ("residuals_", "range_", "shift_", "unit_"):
            assert_array_equal(getattr(found, name), getattr(without, name), err_msg=name)
        assert_array_equal(found.predict_interval(X), without.predict_interval(X))
    else:
        assert_array_equal(found.classes_, without.classes_)
        assert_array_equal(found.predict_proba(X), without.predict_proba(X))


@pytest.mark.parametrize("equal", [True, False], ids=["0 and 1", "unequal"])
@pytest.mark.parametrize("placeholder", [-999.0, 1e30])
@pytest.mark.parametrize("make", [regressor, classifier])
def test_garbage(make, placeholder, equal):
    X, garbage, clean = tables()
    y = targets(make, X, garbage, placeholder)
    w = np.where(garbage, 0.0, 1.0 if equal else np.random.default_rng(1).uniform(0.5, 2.0, N))
    without = make().fit(clean, y[~garbage], sample_weight=None if equal else w[~garbage])
    assert_same(make().fit(X, y, sample_weight=w), without, clean)


def test_half_of_the_rows_have_no_target():
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    y, unknown = X[:, 0] + X[:, 1], np.arange(300) % 2 == 0
    for placeholder in (-999.0, 1e30):
        model = regressor().fit(X, np.where(unknown, placeholder, y), sample_weight=~unknown)
        assert model.score(X[unknown], y[unknown]) > 0.99
        assert np.isfinite(model.residuals_).all()
        assert np.diff(model.predict_interval(X, coverage=0.9)).max() < 0.5


@pytest.mark.parametrize("make", [regressor, classifier])
@pytest.mark.parametrize("kind", ["numbers", "splits", "splitter", "last split", "groups", "validation rows"])
def test_folds_and_groups(make, kind):
    X, garbage, clean = tables()
    y = targets(make, X, garbage, -999.0)
    fold = np.where(garbage, 77, np.arange(N) % 4)
    splits = [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(4)]
    among = fold[~garbage]
    of_clean = [(np.flatnonzero(among != number), np.flatnonzero(among == number)) for number in range(4)]
    held = {"X_val": clean[:40], "y_val": y[~garbage][:40]}
    cases = {
        "numbers": (fold, among, {}, {}),
        "splits": (splits, of_clean, {}, {}),
        "splitter": (KFold(3), KFold(3), {}, {}),
        "last split": (TimeSeriesSplit(3), TimeSeriesSplit(3), {}, {}),
        "groups": (4, 4, {"groups": fold}, {"groups": among}),
        "validation rows": (5, 5, held, held),
    }
    cv, cv_clean, more, more_clean = cases[kind]
    found = make(cv=cv).fit(X, y, sample_weight=~garbage, **more)
    assert_same(found, make(cv=cv_clean).fit(clean, y[~garbage], **more_clean), clean)


@pytest.mark.parametrize("kind", ["array", "list", "masked", "coo", "polars", "pyarrow", "dask", "file"])
def test_kinds_of_tables(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 2))
    y = X[:, 0] - X[:, 1]
    garbage = np.arange(N) % 3 == 0
    X[garbage], y[garbage] = 1e30, -999.0
    found = regressor().fit(as_kind(kind, X, tmp_path), y, sample_weight=~garbage)
    without = regressor().fit(as_kind(kind, X[~garbage], tmp_path), y[~garbage])
    assert_allclose(found.residuals_, without.residuals_, rtol=1e-6, atol=1e-6)
    more = as_kind(kind, X[~garbage], tmp_path)
    assert_allclose(found.predict(more), without.predict(more), rtol=1e-6, atol=1e-6)


def as_kind(kind, X, folder):
    columns = {"a": X[:, 0], "b": X[:, 1]}
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    if kind == "pyarrow":
        return pytest.importorskip("pyarrow").table(columns)
    if kind == "dask":
        return pytest.importorskip("dask.array").from_array(X, chunks=(40, 2))
    if kind == "file":
        path = folder / f"{len(X)}.npy"
        np.save(path, X)
        return gyrfalcon.open(path).X
    return {"array": X, "list": X.tolist(), "masked": np.ma.masked_greater(X, 1e40), "coo": scipy.sparse.coo_array(X)}[
        kind
    ]


def test_a_class_of_weight_zero_is_not_learnt():
    X = np.random.default_rng(0).standard_normal((200, 2))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    model = classifier(class_weight={0: 1.0, 1: 1.0, 2: 0.0}).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert np.isfinite([record["error"] for record in model.candidates_]).all()
    assert not (model.predict(X) == 2).any()


def test_labels_that_numpy_would_merge():
    X, y = np.arange(40.0)[:, None], [1, "1"] * 20
    for labels in (y, np.array(y, dtype=object), pd.Series(y)):
        with pytest.raises(ValueError, match="labels of types int, str: they must be all strings or all numbers"):
            classifier().fit(X, labels)
