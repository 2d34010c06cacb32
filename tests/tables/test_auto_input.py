"""What is not as it should be gets a right answer or a clear error, from AutoRegressor and AutoClassifier alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from short_search import Brief

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor, TableEncoder
from gyrfalcon.tables import reading

KERNELS = ("kernel",)  # the learning rate of trees, and so their bits, depends on how busy the machine is


def regressor(most=2, families=KERNELS, **parameters):
    return AutoRegressor(callbacks=Brief(most), random_state=0, families=families, **parameters)


def classifier(most=2, families=KERNELS, **parameters):
    return AutoClassifier(callbacks=Brief(most), random_state=0, families=families, **parameters)


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.standard_normal(n),
            "city": rng.choice(["Genova", "Roma", "Torino"], n),
            "count": rng.integers(0, 9, n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D"),
            "member": rng.choice([True, False], n),
        }
    )
    y = np.sin(2 * frame["x"]) + (frame["city"] == "Roma") + 0.1 * rng.standard_normal(n)
    return frame, y.to_numpy()


BOTH = pytest.mark.parametrize("make", [regressor, classifier])


def target_of(make, y):
    return y if make is regressor else np.where(y > np.median(y), "high", "low")


def output(model, X):
    """Predictions that can be compared in detail."""
    return model.predict(X) if isinstance(model, AutoRegressor) else model.predict_proba(X)


# ---- columns ---------------------------------------------------------------------------------------------------------


@BOTH
def test_a_table_is_read_once_for_all_encodings(make, monkeypatch):
    lengths = []

    def counted(frame):
        lengths.append(len(frame))
        return from_pandas(frame)

    from_pandas = reading._READERS["pandas"]
    monkeypatch.setitem(reading._READERS, "pandas", counted)
    X, y = table(150)
    y = target_of(make, y)
    model = make(most=12).fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])
    assert sorted(lengths) == [50, 100]
    model.encoders_ = [TableEncoder(how).fit(X, y) for how in ("robust", "quantile")]
    model.models_, model.mixings_ = model.models_[:1] * 2, [None, None]
    lengths.clear()
    model._encoded(X)
    assert lengths == [150]


def test_an_error_in_a_long_table_names_the_row():
    X, y = table()
    model = regressor().fit(X[["x", "count"]], y)
    long = pd.DataFrame({"x": np.zeros(70_000), "count": 1}).astype({"x": object})
    long.loc[69_999, "x"] = "far"
    with pytest.raises(ValueError, match="row 69999 of column 'x' holds 'far'"):
        model.predict(long)


@BOTH
def test_a_column_without_values_is_left_out(make):
    X, y = table()
    y = target_of(make, y)
    model = make().fit(X.assign(empty=np.nan, nothing=None), y)
    assert model.feature_importances_[[5, 6]].tolist() == [0, 0]
    expected = output(make().fit(X, y), X)
    np.testing.assert_array_equal(output(model, X.assign(empty=np.nan, nothing=None)), expected)
    np.testing.assert_array_equal(output(model, X.assign(empty="text", nothing=3.0)), expected)


@BOTH
def test_categories_that_training_had_not(make):
    X, y = table()
    model = make().fit(X, target_of(make, y))
    assert np.isfinite(output(model, X.assign(city="Milano"))).all()


@BOTH
def test_many_categories(make):
    n = 1000
    rng = np.random.default_rng(0)
    level = np.arange(n) % 250
    X = pd.DataFrame({"who": [f"id {i}" for i in level], "x": rng.standard_normal(n)})
    y = (level % 7) + X["x"].to_numpy()
    model = make(1).fit(X, target_of(make, y))
    assert len(model.encoders_[0].feature_origin_) <= 4
    assert model.score(X, target_of(make, y)) > 0.8


def test_ten_thousand_categories():
    rng = np.random.default_rng(0)
    level = rng.permutation(np.arange(12_000) % 10_000)
    X = pd.DataFrame({"who": [f"id {i}" for i in level], "x": rng.standard_normal(len(level))})
    y = X["x"].to_numpy() + 0.01 * rng.standard_normal(len(level))
    model = regressor(1).fit(X, y)
    assert len(model.encoders_[0].feature_origin_) <= 4
    assert model.score(X, y) > 0.8
    assert np.isfinite(output(model, X.assign(who="nobody"))).all()


@BOTH
def test_columns_are_found_by_name(make):
    X, y = table()
    model = make().fit(X, target_of(make, y))
    np.testing.assert_array_equal(output(model, X[X.columns[::-1]]), output(model, X))
    with pytest.raises(ValueError, match=r"feature names should match(.|\n)*city"):
        model.predict(X.drop(columns="city"))
    with pytest.raises(ValueError, match="expecting 5 features"):
        model.predict(np.zeros((3, 4)))


@BOTH
def test_text_where_training_had_numbers(make):
    X, y = table()
    model = make().fit(X, target_of(make, y))
    wrong = X.assign(x=X["x"].astype(object))
    wrong.loc[wrong.index[17], "x"] = "many"
    with pytest.raises(ValueError, match=r"'x'.*17.*many|row 17.*'x'.*many"):
        model.predict(wrong)


@BOTH
def test_all_rows_equal(make):
    _, y = table()
    with pytest.raises(ValueError, match="every column of X is constant"):
        make().fit(np.ones((len(y), 3)), target_of(make, y))


@BOTH
def test_many_columns(make):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5000))
    model = make().fit(X, target_of(make, X[:, 0]))
    assert len(model.feature_importances_) == 5000


# ---- kinds of tables -------------------------------------------------------------------------------------------------


@BOTH
def test_every_library_gives_the_same_predictions(make):
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    X, y = table()
    y = target_of(make, y)
    expected = output(make().fit(X, y), X)
    for other in (pl.from_pandas(X), pa.Table.from_pandas(X)):
        np.testing.assert_allclose(output(make().fit(other, y), other), expected, rtol=1e-6, atol=1e-6)


@BOTH
def test_arrays_lists_and_sparse_matrices(make):
    X, y = table()
    X, y = X[["x", "count"]].astype(float), target_of(make, y)
    expected = output(make().fit(X, y), X)
    rows = X.to_numpy()
    for other in (rows, np.asfortranarray(rows), rows.tolist(), scipy.sparse.csr_array(rows), rows.astype(object)):
        np.testing.assert_array_equal(output(make().fit(other, y), other), expected)


# ---- few rows --------------------------------------------------------------------------------------------------------


@BOTH
def test_one_row(make):
    with pytest.raises(ValueError, match=r"n_samples=1|one class"):
        make().fit([[1.0, 2.0]], [1.0] if make is regressor else ["a"])


@pytest.mark.parametrize("n", [2, 3, 5, 20])
def test_few_rows(n):
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, 3))
    model = regressor(99, time_budget=1).fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(model.predict_interval(X)).all()
    labels = np.arange(n) % 2 == 0
    proba = classifier(99, time_budget=1).fit(X, labels).predict_proba(X)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1)


def test_three_rows_of_two_classes():
    X = np.arange(12.0).reshape(3, 4)
    X[1] = [5, 1, 0, 2]
    model = classifier().fit(X, ["a", "b", "b"])
    assert set(model.predict(X)) <= {"a", "b"}


@pytest.mark.parametrize("row", [7, 11, 30])
def test_one_row_of_a_class(row):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.where(X[:, 0] > 0, 2, 1)
    y[row] = 0
    model = classifier().fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(X).shape == (60, 3)
    assert model.score(X, y) > 0.9


def test_a_class_of_one_row_keeps_its_share():
    X = np.random.default_rng(0).standard_normal((400, 3))
    t = np.zeros(400)
    t[3] = 1
    share = classifier(99, time_budget=2).fit(X, t).predict_proba(X)[:, 1].mean()
    assert 0.2 / 400 < share < 5 / 400


def test_classes_that_validation_rows_have_not():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 3)), rng.integers(5, size=300)
    model = classifier(time_budget=2).fit(X, y, X_val=X[:100], y_val=y[:100] % 3)
    assert model.predict_proba(X).mean(axis=0).min() > 0.2 / 100


@pytest.mark.parametrize("budget", [0.1, 1])
@BOTH
def test_short_budgets(make, budget):
    X, y = table()
    model = make(10**6, time_budget=budget).fit(X, target_of(make, y))
    assert np.isfinite(output(model, X)).all()


@BOTH
@pytest.mark.parametrize("wrong", [0, -1, np.inf, "1", None])
def test_budgets_that_are_none(make, wrong):
    X, y = table()
    with pytest.raises((ValueError, TypeError), match="time_budget"):
        make(time_budget=wrong).fit(X, target_of(make, y))


# ---- targets ---------------------------------------------------------------------------------------------------------


@BOTH
def test_missing_targets(make):
    X, y = table()
    y = target_of(make, y).astype(object)
    y[31] = None if make is classifier else np.nan
    with pytest.raises(ValueError, match=r"Input y contains NaN.*row 31"):
        make().fit(X, y)


@BOTH
@pytest.mark.parametrize("kind", ["boolean", "string", "Int64", "object"])
def test_targets_that_are_missing_by_pandas(make, kind):
    X, y = table()
    labels = pd.Series(y > 0).astype(object) if kind != "string" else pd.Series(np.where(y > 0, "yes", "no"))
    labels = labels.astype(kind)
    labels[31] = pd.NA
    with pytest.raises(ValueError, match=r"Input y contains NaN.*row 31"):
        make().fit(X, labels)


def test_infinite_targets():
    X, y = table()
    y = y.copy()
    y[5] = np.inf
    with pytest.raises(ValueError, match="row 5 has inf"):
        regressor().fit(X, y)


def test_text_targets_of_regression():
    X, y = table()
    with pytest.raises(ValueError):
        regressor().fit(X, target_of(classifier, y))


@BOTH
def test_targets_of_another_length(make):
    X, y = table()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        make().fit(X, target_of(make, y)[:-1])


def test_constant_target():
    X, _ = table()
    model = regressor().fit(X, np.full(len(X), 3.25))
    np.testing.assert_allclose(model.predict(X), 3.25)
    np.testing.assert_allclose(model.predict_interval(X), 3.25)
    with pytest.raises(ValueError, match="one class"):
        classifier().fit(X, np.full(len(X), "a"))


@pytest.mark.parametrize("factor", [1e-300, 1e-30, 1e30, 1e300])
def test_targets_of_any_magnitude(factor):
    X, y = table()
    expected = regressor().fit(X, y).predict(X) * factor
    found = regressor().fit(X, y * factor).predict(X)
    np.testing.assert_allclose(found / factor, expected / factor, atol=1e-2 * y.std())


def test_targets_far_from_zero():
    X, y = table()
    expected = regressor().fit(X, y).predict(X)
    np.testing.assert_allclose(regressor().fit(X, y + 1e9).predict(X) - 1e9, expected, atol=1e-2 * y.std())


def test_several_outputs():
    X, y = table()
    Y = np.stack([y, -1000 * y, np.arange(len(y))], axis=1)
    model = regressor().fit(X, Y)
    assert model.predict(X).shape == Y.shape
    assert model.predict_interval(X).shape == (len(y), 2, 3)
    assert regressor().fit(X, y[:, None]).predict(X).shape == (len(y), 1)
    np.testing.assert_allclose(model.predict(X)[:, 1], -1000 * model.predict(X)[:, 0], rtol=0.01, atol=10)


@pytest.mark.parametrize("kind", ["integers", "strings", "booleans", "objects", "categories", "floats", "nullable"])
def test_labels_of_every_kind(kind):
    X, y = table()
    codes = (y > 0).astype(int)
    labels = {
        "integers": codes * 7 - 3,
        "strings": np.array(["no", "yes, please"])[codes],
        "booleans": codes == 1,
        "objects": np.array(["no", "yes"], dtype=object)[codes],
        "categories": pd.Series(np.array(["no", "yes"])[codes]).astype("category"),
        "floats": codes + 0.0,
        "nullable": pd.Series(codes == 1).astype("boolean"),
    }[kind]
    model = classifier().fit(X, labels)
    assert model.classes_.dtype.kind == np.unique(np.asarray(labels).tolist()).dtype.kind
    predictions = model.predict(X)
    assert predictions.dtype == model.classes_.dtype
    assert np.mean(predictions == np.asarray(labels)) > 0.9
    assert model.decision_function(X).shape == (len(y),)
    np.testing.assert_array_equal(model.predict_proba(X).argmax(axis=1), np.searchsorted(model.classes_, predictions))


# ---- weights, groups, folds ------------------------------------------------------------------------------------------


@BOTH
def test_rows_of_weight_zero_do_not_count(make):
    X, y = table()
    weight = np.ones(len(y))
    weight[::3] = 0
    other = y.copy()
    other[::3] = 1000 if make is regressor else y[::3][::-1]
    model = make().fit(X, target_of(make, y), sample_weight=weight)
    assert np.isfinite(output(model, X)).all()
    if make is regressor:
        spoilt = make().fit(X, other, sample_weight=weight)
        kept = weight > 0
        assert np.corrcoef(spoilt.predict(X[kept]), y[kept])[0, 1] > 0.9


@BOTH
def test_weights_matter(make):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 1))
    second = np.arange(200) % 2 == 1
    y = second.astype(float) if make is regressor else np.where(second, "b", "a")
    weight = np.where(second, 9.0, 1.0)
    model = make().fit(X, y, sample_weight=weight)
    level = output(model, X) if make is regressor else output(model, X)[:, 1]
    assert abs(np.mean(level) - 0.9) < 0.05  # 9 / (9 + 1)


@BOTH
def test_one_row_with_a_weight(make):
    X, y = table(30)
    weight = np.zeros(30)
    weight[3] = 1.0
    with pytest.raises(ValueError, match=r"rows that have a weight|class|different"):
        make().fit(X, target_of(make, y), sample_weight=weight)


@BOTH
def test_weights_that_are_none(make):
    X, y = table()
    y = target_of(make, y)
    with pytest.raises(ValueError, match=r"non-zero number|zero for every row"):
        make().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        make().fit(X, y, sample_weight=np.full(len(y), -1.0))
    with pytest.raises(ValueError, match="shape"):
        make().fit(X, y, sample_weight=np.ones(3))


@pytest.mark.parametrize("given", ["all rows", "validation rows"])
def test_balanced_classes(given):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = rng.uniform(size=300) < 0.1
    held = {} if given == "all rows" else {"X_val": X[200:], "y_val": y[200:]}
    n = 300 if given == "all rows" else 200
    plain = classifier().fit(X[:n], y[:n], **held).predict_proba(X)[:, 1].mean()
    balanced = classifier(class_weight="balanced").fit(X[:n], y[:n], **held).predict_proba(X)[:, 1].mean()
    assert plain < 0.2
    assert abs(balanced - 0.5) < 0.15


@BOTH
def test_groups_are_held_out_together(make):
    from sklearn.model_selection import GroupKFold

    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 5)
    # rows of a group are alike, and say nothing about other groups
    X = np.repeat(rng.standard_normal((30, 3)), 5, axis=0) + 0.01 * rng.standard_normal((150, 3))
    y = np.repeat(rng.standard_normal(30), 5)
    y = target_of(make, y)
    alone = make().fit(X, y)
    together = make().fit(X, y, groups=groups)
    split = make(cv=GroupKFold(5)).fit(X, y, groups=groups)
    assert min(record["error"] for record in alone.candidates_) < 0.7
    assert min(record["error"] for record in together.candidates_) > 0.85
    assert min(record["error"] for record in split.candidates_) > 0.85
    with pytest.raises(ValueError, match="groups"):
        make(cv=GroupKFold(5)).fit(X, y)
    with pytest.raises(ValueError, match="groups"):
        make().fit(X, y, groups=groups[:7])


@BOTH
def test_folds_in_time(make):
    from sklearn.model_selection import TimeSeriesSplit

    X, y = table()
    model = make(cv=TimeSeriesSplit(4)).fit(X, target_of(make, y))
    assert model.score(X, target_of(make, y)) > 0.5


@BOTH
def test_splitters_and_their_splits(make):
    from sklearn.model_selection import KFold, StratifiedKFold

    X, y = table()
    y = target_of(make, y)
    splitter = KFold(3, shuffle=True, random_state=0) if make is regressor else StratifiedKFold(3)
    one, two = make(cv=splitter).fit(X, y), make(cv=list(splitter.split(X, y))).fit(X, y)
    np.testing.assert_array_equal(output(one, X), output(two, X))
    with pytest.raises(ValueError, match="cv="):
        make(cv=1).fit(X, y)


@BOTH
def test_numbers_of_folds(make, tmp_path):
    from sklearn.model_selection import PredefinedSplit

    X, y = table()
    y, fold = target_of(make, y), np.arange(len(y)) % 4
    expected = output(make(cv=PredefinedSplit(fold)).fit(X, y), X)
    model = make(cv=10 * fold.astype(np.int32) - 3, checkpoint=tmp_path / "folder").fit(X, y)
    np.testing.assert_array_equal(output(model, X), expected)
    model.save(tmp_path / "model.gyr")
    np.testing.assert_array_equal(output(gyrfalcon.load(tmp_path / "model.gyr"), X), expected)
    np.testing.assert_array_equal(output(make(cv=fold.tolist()).fit(X, y, groups=fold), X), expected)
    for wrong, message in ((fold[:-1], "shape"), (0 * fold, "one fold"), (1.5 * fold, "float64")):
        with pytest.raises(ValueError, match=message):
            make(cv=wrong).fit(X, y)
    with pytest.raises(ValueError, match="rows 0 and 1 of group"):
        make(cv=fold).fit(X, y, groups=np.zeros(len(y)))


@BOTH
def test_one_group(make):
    X, y = table()
    with pytest.raises(ValueError, match=r"groups has one group, .*'a'.* at least two"):
        make().fit(X, target_of(make, y), groups=["a"] * len(y))


@BOTH
def test_validation_rows(make):
    X, y = table(200)
    y = target_of(make, y)
    model = make().fit(X[:120], y[:120], X_val=X[120:], y_val=y[120:])
    assert model.score(X, y) > 0.6
    with pytest.raises(ValueError, match="y_val is missing"):
        make().fit(X, y, X_val=X)
    with pytest.raises(ValueError, match="feature names should match"):
        make().fit(X, y, X_val=X.rename(columns={"x": "z"}), y_val=y)
    if make is classifier:
        with pytest.raises(ValueError, match="other"):
            make().fit(X, y, X_val=X[:1], y_val=["other"])
