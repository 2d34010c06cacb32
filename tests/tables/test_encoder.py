"""`TableEncoder`: what becomes of each kind of column, from every library, and what is refused."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, rankdata
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import TargetEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon import TableEncoder

METHODS = ["robust", "standard", "quantile"]


@parametrize_with_checks(
    [TableEncoder(), TableEncoder("quantile", integers="both"), TableEncoder("standard", integers="categories")]
)
def test_sklearn_checks(estimator, check):
    check(estimator)


def names(encoder):
    return encoder.get_feature_names_out().tolist()


def clipped(x):
    return x / np.sqrt(1 + (x / 3) ** 2)


def column(values, name="a"):
    return pd.DataFrame({name: values})


N = 400
RNG = np.random.default_rng(0)
START = datetime.datetime(2023, 1, 1)
CITIES = [None if at % 17 == 0 else ["Genova", "Roma", "Torino"][at % 3] for at in range(N)]
COLUMNS = {
    "age": [None if at % 10 == 0 else float(at % 70) for at in range(N)],
    "income": np.exp(3 * RNG.normal(size=N)).tolist(),
    "rooms": [at % 6 for at in range(N)],
    "member": [at % 5 == 0 for at in range(N)],
    "city": CITIES,
    "shop": [f"shop {at % 80}" for at in range(N)],
    "when": [None if at == 3 else START + datetime.timedelta(hours=7 * at) for at in range(N)],
    "day": [(START + datetime.timedelta(days=at)).date() for at in range(N)],
    "wait": [datetime.timedelta(minutes=at % 90) for at in range(N)],
    "constant": ["x"] * N,
    "nothing": [None] * N,
    "figure": [f"{at / 8}" for at in range(N)],
}
Y = RNG.normal(size=N) + np.arange(N) % 80


def objects():
    array = np.empty((N, len(COLUMNS)), dtype=object)
    for at, values in enumerate(COLUMNS.values()):
        array[:, at] = values
    return array


TABLES = {
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas of objects": lambda: pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in COLUMNS.items()}),
    "pandas, its own types": lambda: pd.DataFrame(COLUMNS).convert_dtypes(),
    "pandas, of pyarrow": lambda: pa.table(COLUMNS).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "pyarrow": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
    "array": objects,
    "lists": lambda: [list(row) for row in zip(*COLUMNS.values(), strict=True)],
}


@pytest.fixture(scope="module")
def expected():
    encoder = TableEncoder(random_state=0)
    return encoder, encoder.fit_transform(TABLES["polars"](), Y)


@pytest.mark.parametrize("table", TABLES)
def test_every_library_gives_the_same(table, expected):
    reference, values = expected
    X = TABLES[table]()
    encoder = TableEncoder(random_state=0)
    np.testing.assert_allclose(encoder.fit_transform(X, Y), values, rtol=1e-12, atol=1e-12)
    assert encoder.kinds_.tolist() == reference.kinds_.tolist()
    np.testing.assert_allclose(encoder.transform(X), reference.transform(TABLES["polars"]()), rtol=1e-12, atol=1e-12)
    if table not in ("array", "lists"):
        assert encoder.feature_names_in_.tolist() == list(COLUMNS)
        np.testing.assert_array_equal(reference.transform(X), reference.transform(TABLES["polars"]()))


def test_kinds_names_and_origin(expected):
    encoder, values = expected
    assert dict(zip(COLUMNS, encoder.kinds_, strict=True)) == {
        "age": "number",
        "income": "number",
        "rooms": "number",
        "member": "boolean",
        "city": "category",
        "shop": "category",
        "when": "date",
        "day": "date",
        "wait": "number",
        "constant": "dropped",
        "nothing": "dropped",
        "figure": "number",
    }
    assert names(encoder) == [
        "age",
        "age missing",
        "income",
        "rooms",
        "member=True",
        "city=Genova",
        "city=Roma",
        "city=Torino",
        "city missing",
        "shop (target)",
        "when",
        "when missing",
        *(
            f"when ({part}, {wave})"
            for part in ("time of day", "day of week", "day of year")
            for wave in ("sin", "cos")
        ),
        "day",
        *(f"day ({part}, {wave})" for part in ("day of week", "day of year") for wave in ("sin", "cos")),
        "wait",
        "figure",
    ]
    assert values.shape == (N, len(names(encoder)))
    listed = list(COLUMNS)
    assert all(name.startswith(listed[at]) for name, at in zip(names(encoder), encoder.feature_origin_, strict=True))
    assert np.isfinite(values).all()
    assert encoder.n_features_in_ == len(COLUMNS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("table", ["pandas", "lists"])
def test_model_files(tmp_path, method, table):
    X = TABLES[table]()
    encoder = TableEncoder(method, integers="both", random_state=0).fit(X, Y)
    encoder.save(tmp_path / "encoder.gyr")
    loaded = gyrfalcon.load(tmp_path / "encoder.gyr")
    np.testing.assert_array_equal(loaded.transform(X), encoder.transform(X))
    assert names(loaded) == names(encoder)
    assert loaded.kinds_.tolist() == encoder.kinds_.tolist()


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_robust_scaling_is_the_formula():
    x = RNG.normal(size=500) ** 3
    x[:20] = np.nan
    values = TableEncoder().fit_transform(column(x))
    quarters = np.nanquantile(x, [0.25, 0.5, 0.75])
    z = clipped((np.where(np.isnan(x), quarters[1], x) - quarters[1]) / (quarters[2] - quarters[0]))
    np.testing.assert_allclose(values, np.column_stack([z, np.isnan(x)]), rtol=1e-12, atol=1e-12)
    assert np.abs(values).max() <= 3


def test_standard_scaling_is_the_formula():
    x = RNG.normal(size=500) ** 3
    np.testing.assert_allclose(TableEncoder("standard").fit_transform(column(x))[:, 0], (x - x.mean()) / x.std())


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_quantiles_are_normal_whatever_the_unit(scale):
    x = RNG.permutation(np.exp(2 * norm.ppf(np.arange(1, 501) / 501)))
    values = TableEncoder("quantile").fit_transform(column(scale * x))[:, 0]
    np.testing.assert_allclose(np.abs(values).max(), 3)
    inside = np.abs(values) < 2.5
    np.testing.assert_allclose(values[inside], norm.ppf((rankdata(x) - 1) / 499)[inside], atol=1e-6)


def test_quantiles_of_ties_are_their_average_ranks():
    x = np.round(3 * RNG.normal(size=(700, 2)))
    values = TableEncoder("quantile").fit_transform(x)
    with np.errstate(divide="ignore"):
        expected = np.clip(norm.ppf((rankdata(x, axis=0) - 1) / 699), -3, 3)
    inside = (x > x.min(axis=0)) & (x < x.max(axis=0))
    np.testing.assert_allclose(values[inside], expected[inside], atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_scales_do_not_matter(method):
    x = RNG.normal(size=200)
    once = TableEncoder(method).fit_transform(column(x))
    np.testing.assert_allclose(TableEncoder(method).fit_transform(column(1e12 * x + 3)), once, atol=1e-9)


def test_a_column_that_is_mostly_one_number_keeps_its_others():
    x = np.zeros(1000)
    x[:3] = [5, 6, 7]
    values = TableEncoder().fit_transform(column(x))[:, 0]
    assert len(np.unique(values)) == 4
    x[:200] = RNG.normal(size=200)
    np.testing.assert_allclose(
        np.diff(np.quantile(TableEncoder().fit_transform(column(x))[:, 0], [0.05, 0.95])), 2.44, rtol=0.2
    )


@pytest.mark.parametrize("method", METHODS)
def test_numbers_at_the_ends_of_the_range(method):
    for x in ([1e308, -1e308, np.inf, 5e-324, np.nan, -np.inf], [5e-324, 1e-323, 0, 0, 0], [1e300, 1, 2, 3, 4]):
        values = TableEncoder(method, dtype="float32").fit_transform(column(x))
        assert values.dtype == np.float32
        assert np.isfinite(values).all()


def test_infinities_are_the_ends_of_training():
    encoder = TableEncoder().fit(column([1.0, 2, 3, 8, -np.inf]))
    values = encoder.transform(column([np.inf, 8, -np.inf, 1]))[:, 0]
    assert values[0] == values[1]
    assert values[2] == values[3]


def test_a_missing_number_that_training_had_not_is_the_median():
    encoder = TableEncoder().fit(column([1.0, 2, 9]))
    assert names(encoder) == ["a"]
    np.testing.assert_array_equal(encoder.transform(column([np.nan, 2.0]))[:, 0], [0, 0])


@pytest.mark.parametrize("training", [np.nan, None, 3.0, "x", True, START, "2024-05-01", "7"], ids=str)
@pytest.mark.parametrize("later", ["text", 5.0, True, START, None], ids=str)
def test_what_is_dropped_may_hold_anything_later(training, later):
    X = pd.DataFrame({"a": np.arange(20.0), "b": pd.Series([training] * 20)})
    encoder = TableEncoder(integers="both").fit(X)
    assert encoder.kinds_.tolist() == ["number", "dropped"]
    np.testing.assert_array_equal(encoder.transform(X.assign(b=later)), encoder.transform(X))
    with pytest.raises(ValueError, match="'a'"):
        encoder.transform(X.assign(a="text"))


def test_constants_are_dropped_but_not_what_their_gaps_tell():
    encoder = TableEncoder().fit(pd.DataFrame({"a": [1, 1, None], "b": [2, 2, 2], "c": [None] * 3, "d": [1, 2, 3]}))
    assert names(encoder) == ["a missing", "d"]
    assert encoder.kinds_.tolist() == ["number", "dropped", "dropped", "number"]
    assert encoder.feature_origin_.tolist() == [0, 3]
    with pytest.raises(ValueError, match="now missing: 'b'"):
        encoder.transform(pd.DataFrame({"a": [1], "c": [None], "d": [1]}))


def test_whole_numbers_can_be_categories_too():
    X = pd.DataFrame({"month": [1.0, 2, 3, None] * 10, "two": [0, 1] * 20, "many": np.arange(40)})
    encoder = TableEncoder(integers="both")
    values = encoder.fit_transform(X)
    assert names(encoder) == ["month", "month missing", "month=1", "month=2", "month=3", "two", "many"]
    np.testing.assert_allclose(values[:4, 2:5], np.vstack([np.eye(3), np.zeros(3)]) / np.sqrt(2))
    np.testing.assert_array_equal(encoder.transform(X.assign(month=7.0))[:, 2:5], 0)


def test_whole_numbers_can_be_categories_alone():
    X = pd.DataFrame({"month": [1.0, 2, 3, None] * 10, "two": [0, 1] * 20, "many": np.arange(40)})
    encoder = TableEncoder(integers="categories")
    values = encoder.fit_transform(X)
    assert names(encoder) == ["month=1", "month=2", "month=3", "month missing", "two", "many"]
    assert encoder.kinds_.tolist() == ["number"] * 3
    np.testing.assert_allclose(values[:4, :4], np.eye(4) / np.sqrt(2))
    np.testing.assert_array_equal(encoder.transform(X.assign(month=7.0))[:, :4], 0)
    np.testing.assert_array_equal(encoder.beyond(X.assign(month=7.0))[:, 0], 1)
    with pytest.raises(ValueError, match="'month' holds 'May', which is not a number"):
        encoder.transform(X.assign(month="May"))
    text = X.assign(month=["1.0", "2.0", "3.0", ""] * 10)  # written as text, and later as numbers
    encoder.fit(text)
    np.testing.assert_array_equal(encoder.transform(X), encoder.transform(text))
    np.testing.assert_array_equal(encoder.transform(X), values)


def test_an_encoding_of_categories_alone_is_saved(tmp_path):
    X = np.random.default_rng(0).integers(0, 4, (60, 3)).astype(float)
    encoder = TableEncoder(integers="categories").fit(X)
    gyrfalcon.save(encoder, tmp_path / "encoder.gyr")
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "encoder.gyr").transform(X), encoder.transform(X))


# ---- strings ---------------------------------------------------------------------------------------------------------


def test_strings_that_are_numbers():
    text = [f"{at}.5" for at in range(98)] + ["?", ""]
    encoder = TableEncoder().fit(column(text))
    assert names(encoder) == ["a", "a missing"]
    np.testing.assert_array_equal(encoder.transform(column(["what", " ", None]))[:, 1], 1)  # as training had "?"
    same = TableEncoder().fit_transform(column([float(x) for x in text[:98]] + [np.nan] * 2))
    np.testing.assert_array_equal(encoder.transform(column(text)), same)
    assert TableEncoder().fit(column(text[:90] + ["?"] * 10)).kinds_ == ["category"]
    assert TableEncoder().fit(column(pd.Categorical(["1", "2", "3"]))).kinds_ == ["category"]


def test_a_string_where_training_had_numbers_is_named():
    encoder = TableEncoder().fit(column([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(encoder.transform(column(["2", "", "1.0"])), encoder.transform(column([2, None, 1])))
    with pytest.raises(ValueError, match="row 1 of column 'a' holds 'oops', which is not a number"):
        encoder.transform(column(["1", "oops", "3"]))
    with pytest.raises(ValueError, match="row 0 of column 'x0' holds '2020-01-01', which is a date"):
        TableEncoder().fit([[1], [2]]).transform([[datetime.date(2020, 1, 1)]])


# ---- categories ------------------------------------------------------------------------------------------------------


def test_levels_have_distance_one():
    X = column(["a", "b", "c", None] * 5)
    encoder = TableEncoder()
    values = encoder.fit_transform(X)
    assert names(encoder) == ["a=a", "a=b", "a=c", "a missing"]
    np.testing.assert_allclose(values[:4], np.eye(4) / np.sqrt(2))
    np.testing.assert_array_equal(encoder.transform(column(["unseen"])), np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("levels", "name"), [(["x", "y"], "a=y"), ([False, True], "a=True"), ([None, "y"], "a missing")]
)
def test_two_levels_share_a_column(levels, name):
    encoder = TableEncoder()
    values = encoder.fit_transform(column(levels * 5))
    assert names(encoder) == [name]
    assert sorted(set(values[:, 0])) == [-0.5, 0.5]
    if name != "a=True":
        np.testing.assert_array_equal(encoder.transform(column(["unseen"])), [[0]])


def test_booleans_may_come_as_numbers():
    encoder = TableEncoder().fit(column([True, False]))
    np.testing.assert_array_equal(encoder.transform(column([1, 0]))[:, 0], [0.5, -0.5])
    assert names(TableEncoder().fit(column([True, False, None]))) == ["a=False", "a=True", "a missing"]


def test_rare_levels_share_a_column():
    X = column(["a"] * 300 + ["b"] * 200 + ["c", "d", "d", "e"])
    encoder = TableEncoder().fit(X)
    assert names(encoder) == ["a=a", "a=b", "a (rare)"]
    np.testing.assert_array_equal(encoder.transform(column(["c"])), encoder.transform(column(["e"])))
    assert names(TableEncoder(min_frequency=1).fit(X)) == ["a=a", "a=b", "a=c", "a=d", "a=e"]
    assert names(TableEncoder().fit(column(["a"] * 300 + ["b"] * 200 + ["c"]))) == ["a=a", "a=b", "a=c"]


def many_levels(n=600, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.minimum(rng.geometric(0.03, size=n), 60)
    return codes, column([f"level {code}" for code in codes])


def standardised(values):
    return (values - values.mean()) / values.std()


def test_many_levels_are_encoded_by_the_target_and_the_frequency():
    codes, X = many_levels()
    counts = np.bincount(codes)
    y = np.sin(codes) + RNG.normal(size=len(codes))
    encoder = TableEncoder(random_state=0).fit(X, y)
    assert names(encoder) == ["a (target)", "a (frequency)"]
    slow = TargetEncoder(target_type="continuous").fit(codes.reshape(-1, 1), standardised(y))
    means = np.where(counts[codes] > 1, slow.transform(codes.reshape(-1, 1))[:, 0], 0.0)
    expected = np.column_stack([standardised(means), standardised(np.log(counts[codes]))])
    np.testing.assert_allclose(encoder.transform(X), clipped(expected), atol=1e-10)
    unseen = encoder.transform(column(["unseen", None]))
    np.testing.assert_allclose(unseen[:, 0], clipped(-means.mean() / means.std()), atol=1e-10)
    assert (unseen[:, 1] <= encoder.transform(X)[:, 1].min()).all()


def test_the_own_target_has_no_part_in_training():
    codes, X = many_levels()
    y = np.sin(codes) + RNG.normal(size=len(codes))
    encoder = TableEncoder(random_state=0)
    held_out = encoder.fit_transform(X, y)
    slow = np.empty(len(y))
    folds = KFold(5, shuffle=True, random_state=np.random.RandomState(0).randint(2**31 - 1))
    for others, own in folds.split(codes):
        part = TargetEncoder(target_type="continuous").fit(codes[others, None], standardised(y)[others])
        slow[own] = part.transform(codes[own, None])[:, 0]
    assert np.corrcoef(held_out[:, 0], slow)[0, 1] > 0.99  # up to the clip
    np.testing.assert_array_equal(held_out[:, 1], encoder.transform(X)[:, 1])
    noise = RNG.normal(size=len(y))
    leaky = TableEncoder(random_state=0).fit(X, noise).transform(X)[:, 0]
    held_out = TableEncoder(random_state=0).fit_transform(X, noise)[:, 0]
    assert np.corrcoef(leaky, noise)[0, 1] > 0.15
    assert np.corrcoef(held_out, noise)[0, 1] < 0.15
    np.testing.assert_array_equal(held_out, TableEncoder(random_state=0).fit_transform(X, noise)[:, 0])


@pytest.mark.parametrize(
    ("y", "target_type", "outputs"),
    [
        (lambda codes: codes % 2 == 0, "auto", ["(target)"]),
        (lambda codes: np.where(codes % 2, "no", "yes"), "auto", ["(target)"]),
        (lambda codes: codes % 3, "auto", ["(target, 0)", "(target, 1)", "(target, 2)"]),
        (lambda codes: codes % 3, "continuous", ["(target)"]),
        (lambda codes: codes % 2, "binary", ["(target)"]),
        (lambda codes: codes % 3 / 2, "multiclass", ["(target, 0.0)", "(target, 0.5)", "(target, 1.0)"]),
        (lambda codes: codes * 1.5, "auto", ["(target)"]),
        (lambda codes: np.arange(len(codes)) % 21, "auto", ["(target)"]),  # as the command line has it
        (lambda codes: np.column_stack([codes, codes**2]), "auto", ["(target, 0)", "(target, 1)"]),
        (lambda codes: np.ones(len(codes)), "auto", []),
    ],
)
def test_kinds_of_targets(y, target_type, outputs):
    codes, X = many_levels()
    encoder = TableEncoder(target_type=target_type, random_state=0)
    values = encoder.fit_transform(X, y(codes))
    assert names(encoder) == [f"a {output}" for output in [*outputs, "(frequency)"]]
    assert np.isfinite(values).all()


def test_a_class_of_one_row():
    codes, X = many_levels()
    y = np.where(np.arange(len(codes)) == 7, "once", np.where(codes % 2, "a", "b"))
    assert np.isfinite(TableEncoder(random_state=0).fit_transform(X, y)).all()


@pytest.mark.parametrize(
    ("y", "target_type", "words"),
    [
        (lambda y: np.where(np.arange(len(y)) == 7, np.nan, y), "auto", "row 7 has nan"),
        (lambda y: np.where(np.arange(len(y)) == 7, None, y.astype(str)), "auto", "row 7 has None"),
        (lambda y: y[:-1], "auto", "inconsistent numbers of samples"),
        (lambda y: y % 3, "binary", "3 classes"),
    ],
)
def test_targets_that_are_refused(y, target_type, words):
    codes, X = many_levels()
    with pytest.raises(ValueError, match=words):
        TableEncoder(target_type=target_type).fit(X, y(codes.astype(float)))


def test_without_a_target_the_most_frequent_levels_have_columns():
    codes, X = many_levels()
    encoder = TableEncoder(max_onehot=5).fit(X)
    common = np.argsort(-np.bincount(codes), kind="stable")[:5]
    assert set(names(encoder)) == {*(f"a=level {code}" for code in common), "a (frequency)"}
    np.testing.assert_array_equal(encoder.transform(column(["unseen"]))[0, :5], 0)


def test_ten_thousand_levels_and_five_thousand_columns():
    levels = column([f"{at % 10_000} and a word" for at in range(20_000)])
    assert TableEncoder().fit_transform(levels, np.arange(20_000) % 10_000 / 1.0).shape == (20_000, 1)
    assert TableEncoder().fit_transform(RNG.normal(size=(50, 5000))).shape == (50, 5000)
    assert TableEncoder().fit_transform(column([f"row {at}" for at in range(99)]), np.arange(99.0)).shape == (99, 0)


# ---- dates -----------------------------------------------------------------------------------------------------------


def test_dates_are_elapsed_time_and_circles():
    when = pd.date_range("2021-01-01 00:00", periods=500, freq="31h")
    encoder = TableEncoder()
    values = encoder.fit_transform(column(when))
    angles = [
        (when - when.normalize()) / pd.Timedelta(days=1),
        when.day_of_week / 7,
        (when.day_of_year - 1) / 366,
    ]
    circles = [wave(2 * np.pi * np.asarray(angle)) for angle in angles for wave in (np.sin, np.cos)]
    np.testing.assert_allclose(values[:, 1:], np.column_stack(circles), atol=1e-9)
    hours = np.arange(500.0) * 31
    np.testing.assert_allclose(values[:, 0], TableEncoder().fit_transform(column(hours))[:, 0], atol=1e-9)
    np.testing.assert_array_equal(encoder.transform(column([pd.NaT])), np.zeros((1, 7)))


def test_parts_that_are_the_same_in_all_rows_are_dropped():
    years = column([datetime.date(year, 1, 1) for year in range(1990, 2020)])
    encoder = TableEncoder().fit(years)
    assert names(encoder) == ["a", "a (day of week, sin)", "a (day of week, cos)"]


def test_dates_of_a_zone_count_by_its_clock():
    naive = pd.date_range("2021-03-01 09:00", periods=90, freq="25h")
    expected = TableEncoder().fit_transform(column(naive))
    zoned = naive.tz_localize("Europe/Rome", nonexistent="shift_forward", ambiguous=True)
    utc = naive.tz_localize("UTC").to_pydatetime().tolist()
    expected_zoned = TableEncoder().fit_transform(column(zoned.tz_localize(None)))
    for table in (column(zoned), pl.DataFrame(column(zoned)), pa.Table.from_pandas(column(zoned))):
        np.testing.assert_allclose(TableEncoder().fit_transform(table), expected_zoned, atol=1e-12)
    for table in (
        column(utc),
        column(pd.Series(utc, dtype=object)),
        [[one] for one in utc],
        column(naive.to_period("h")),
    ):
        np.testing.assert_allclose(TableEncoder().fit_transform(table), expected, atol=1e-12)


def test_strings_that_are_dates():
    days = pd.date_range("2021-01-01", periods=50)
    encoder = TableEncoder()
    values = encoder.fit_transform(column(days.strftime("%Y-%m-%d")))
    assert encoder.kinds_ == ["date"]
    np.testing.assert_array_equal(values, TableEncoder().fit_transform(column(days)))
    np.testing.assert_array_equal(
        encoder.transform(column(["2021-01-01", "yesterday"])), encoder.transform(column([days[0], pd.NaT]))
    )
    with pytest.raises(ValueError, match="row 1 of column 'a' holds 'yesterday', which is not a date"):
        TableEncoder().fit(column(days)).transform(column(["2021-01-01", "yesterday"]))
    with pytest.raises(ValueError, match="row 0 of column 'a' holds '5', which is not a date"):
        encoder.transform(column([5]))


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_columns_are_found_by_name():
    X = TABLES["pandas"]()
    encoder = TableEncoder(random_state=0).fit(X, Y)
    np.testing.assert_array_equal(encoder.transform(X[X.columns[::-1]]), encoder.transform(X))
    with pytest.raises(ValueError, match="now missing: 'city'"):
        encoder.transform(X.drop(columns="city"))
    with pytest.raises(ValueError, match="unseen at fit time: 'more'"):
        encoder.transform(X.assign(more=1))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(encoder.transform(objects()), encoder.transform(X))
    with pytest.raises(ValueError, match="X has 3 features, but TableEncoder is expecting 12"):
        encoder.transform(objects()[:, :3])
    with pytest.raises(ValueError, match="2 columns named 'a'"):
        TableEncoder().fit(pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]))


def test_masked_values_are_missing():
    x = np.ma.masked_array([[1.0], [2], [1e9], [4]], mask=[[0], [0], [1], [0]])
    np.testing.assert_array_equal(
        TableEncoder().fit_transform(x), TableEncoder().fit_transform([[1], [2], [None], [4]])
    )


def test_times_are_seconds():
    times = column([datetime.time(at) for at in range(24)])
    for table in (times, pl.DataFrame(times), pa.Table.from_pandas(times)):
        np.testing.assert_allclose(TableEncoder().fit_transform(table), TableEncoder().fit_transform(column(range(24))))


def test_sparse_matrices():
    dense = RNG.poisson(0.5, size=(50, 4)).astype(float)
    np.testing.assert_array_equal(
        TableEncoder().fit_transform(scipy.sparse.csr_array(dense)), TableEncoder().fit_transform(dense)
    )
    with pytest.raises(ValueError, match=r"takes 7\.5 GiB in full"):
        TableEncoder().fit(scipy.sparse.csr_array((10_000, 100_000)))


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (pd.Series([1, 2]), ValueError, "to_frame"),
        (pd.DataFrame({"a": [1j]}), ValueError, "Complex"),
        (pd.DataFrame({"a": []}), ValueError, "0 sample"),
        (pa.table({}), ValueError, "0 feature"),
        (pd.DataFrame({"a": [1], 2: [2]}), TypeError, "string names"),
        ([[1, 2], [3]], ValueError, "inhomogeneous"),
    ],
)
def test_tables_that_are_refused(X, error, words):
    with pytest.raises(error, match=words):
        TableEncoder().fit(X)


@pytest.mark.parametrize(
    "wrong",
    [{"numbers": "x"}, {"integers": 1}, {"max_onehot": 1}, {"min_frequency": 0}, {"target_type": "x"}, {"dtype": int}],
    ids=repr,
)
def test_parameters_are_checked(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        TableEncoder(**wrong).fit([[1], [2]])


def test_a_failed_fit_leaves_the_encoder_as_it_was():
    encoder = TableEncoder().fit(TABLES["pandas"](), Y)
    with pytest.raises(ValueError, match="Complex"):
        encoder.fit(pd.DataFrame({"a": [1j]}))
    assert encoder.transform(TABLES["pandas"]()).shape[0] == N
    assert "feature_names_in_" not in vars(encoder.fit([[1], [2]]))


def test_in_a_pipeline():
    model = make_pipeline(TableEncoder(random_state=0), gyrfalcon.FalkonRegressor(penalty=1e-4, random_state=0))
    X = TABLES["polars"]()
    assert model.fit(X, Y - Y.mean()).score(X, Y - Y.mean()) > 0.9
    assert list(TableEncoder().set_output(transform="pandas").fit_transform(X, Y).columns)[:2] == ["age", "age missing"]


def test_a_changed_model_file_is_refused(tmp_path, expected):
    encoder = TableEncoder().fit(TABLES["pandas"](), Y)
    encoder.places_ = encoder.places_ + 1
    encoder.save(tmp_path / "encoder.gyr")
    with pytest.raises(gyrfalcon.ModelFileError, match="inconsistent"):
        gyrfalcon.load(tmp_path / "encoder.gyr")


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.binary(max_size=3),
    st.just(pd.NA),
    st.just(pd.NaT),
    st.decimals(),
)


def odd_table(data, kinds):
    n = data.draw(st.integers(1, 12))
    table = np.empty((n, len(kinds)), dtype=object)
    for at in range(n):
        table[at] = [data.draw(kind) for kind in kinds]
    return table


def test_durations_as_objects_are_seconds():
    durations = [np.timedelta64(at, "s") for at in range(9)]
    missing = [np.timedelta64("NaT", "s"), None]
    seconds = np.array([[float(at)] for at in range(9)] + [[np.nan]] * 2)
    given = np.array([[one] for one in durations + missing], dtype=object)
    np.testing.assert_array_equal(TableEncoder().fit_transform(given), TableEncoder().fit_transform(seconds))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_odd_tables(data):
    """Any objects in any mixture give finite numbers; those that training had not may be refused with their place."""
    some = st.sampled_from([CELLS, st.floats(), st.text(max_size=2), st.datetimes()])
    kinds = data.draw(st.lists(some, min_size=1, max_size=3))
    table, other = odd_table(data, kinds), odd_table(data, [CELLS] * len(kinds))
    encoder = TableEncoder(data.draw(st.sampled_from(METHODS)), max_onehot=data.draw(st.integers(2, 5)), random_state=0)
    values = encoder.fit_transform(table, np.arange(len(table)) * 1.0)
    assert values.shape == (len(table), len(encoder.get_feature_names_out()))
    assert np.isfinite(values).all()
    assert np.isfinite(encoder.transform(table[::-1])).all()
    message = ""
    try:
        values = encoder.transform(other)
    except ValueError as error:
        message = str(error)
    assert np.isfinite(values).all()
    assert not message or ("row" in message and "column" in message)


# ---- folds that are given ----------------------------------------------------------------------------------------


def grouped(n_groups=40, each=5):
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(n_groups), each)
    table = pd.DataFrame({"user": [f"u{number}" for number in group]})
    return table, rng.standard_normal(n_groups)[group], group


def test_rows_of_a_fold_have_no_part_in_their_own_encoding():
    table, y, group = grouped()
    encoder = TableEncoder(target_type="continuous", random_state=0)
    own = encoder.fit_transform(table, y, fold=group % 4)
    (column,) = [at for at, name in enumerate(encoder.get_feature_names_out()) if "target" in name]
    # a user's rows are all in one fold, so that nothing is known of it: near the mean of the others
    assert np.abs(np.corrcoef(own[:, column], y)[0, 1]) < 0.5
    assert len(np.unique(own[:, column].round(6))) == 4
    at_random = encoder.fit_transform(table, y)
    assert np.corrcoef(at_random[:, column], y)[0, 1] > 0.9


def test_rows_that_judge_have_no_part_in_the_encoding_of_others():
    table, y, group = grouped()
    fold = np.where(group < 20, -1 - np.arange(len(y)) % 5, 0)
    encoder = TableEncoder(target_type="continuous", random_state=0)
    moved = np.where(group < 20, y, y + 100.0)
    (column,) = [at for at, name in enumerate(encoder.fit(table, y).get_feature_names_out()) if "target" in name]
    first, second = (encoder.fit_transform(table, targets, fold=fold)[group < 20, column] for targets in (y, moved))
    # but for the scale of the column, which all rows decide
    assert np.corrcoef(first, second)[0, 1] > 0.99
