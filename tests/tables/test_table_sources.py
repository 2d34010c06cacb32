"""Tables in files, LazyFrames and Dask dataframes are learnt as the pandas DataFrame with the same values is."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from short_search import BRIEF, Brief

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor, FalkonRegressor, TableEncoder
from gyrfalcon.cli.main import main
from gyrfalcon.sources import scratch
from gyrfalcon.sources.tables import TableFiles
from gyrfalcon.tables import encoded_tables, inputs

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
dd = pytest.importorskip("dask.dataframe")
feather = pytest.importorskip("pyarrow.feather")
ds = pytest.importorskip("pyarrow.dataset")

N = 160
FEATURES = ["x", "city", "count", "day", "member", "who", "kind", "empty"]
SOURCES = ["CSV", "Parquet", "Arrow", "LazyFrame", "pyarrow Dataset"]


def frame(n=N, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "x": rng.standard_normal(n),
            "city": rng.choice(["Genova", "Roma", "Torino"], n),
            "count": rng.integers(0, 9, n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D"),
            "member": rng.choice([True, False], n),
            "who": [f"id {i % 40}" for i in range(n)],  # more levels than have columns of their own
            "kind": pd.Categorical(rng.choice(["b", "a"], n), categories=["b", "a"]),
            "empty": np.full(n, np.nan),
        }
    )
    table.loc[::7, "x"] = np.nan
    table.loc[::11, "city"] = None
    y = np.sin(2 * table["x"].fillna(0)) + (table["city"] == "Roma")
    return table.assign(y=y, w=rng.uniform(0.5, 1, n), label=np.where(y > 0.3, "high", "low"))


@pytest.fixture(params=SOURCES)
def opened(request, tmp_path):
    """A function that opens the table, which is in two files where it is in files."""
    table = frame()
    for number, part in enumerate((table[:100], table[100:])):
        if request.param == "CSV":
            part.to_csv(tmp_path / f"{number}.csv", index=False)
        elif request.param == "Arrow":
            feather.write_feather(pa.Table.from_pandas(part, preserve_index=False), tmp_path / f"{number}.feather")
        else:
            part.to_parquet(tmp_path / f"{number}.parquet", index=False)
    path = tmp_path
    if request.param == "LazyFrame":
        path = pl.from_pandas(table).lazy()
    elif request.param == "pyarrow Dataset":
        path = ds.dataset(tmp_path)
    return lambda **options: gyrfalcon.open(path, **{"features": FEATURES} | options)


def as_read(table, opened):
    """The DataFrame with the values that the source has: CSV files do not tell categories from text."""
    return table.assign(kind=table["kind"].astype(str)) if "CSV" in repr(opened()) else table


def test_the_encoder_gives_the_same_bits(opened):
    table = as_read(frame(), opened)
    X, y = table[FEATURES], table["y"]
    data = opened(target="y", weight="w")
    found, expected = TableEncoder(random_state=0), TableEncoder(random_state=0)
    assert_array_equal(found.fit_transform(data), expected.fit_transform(X, y))
    assert found.kinds_.tolist() == expected.kinds_.tolist()
    assert_array_equal(found.transform(data), expected.transform(X))
    assert_array_equal(found.transform(opened().X), expected.transform(X))
    assert_array_equal(found.fit(opened().X, y).transform(X), expected.fit(X, y).transform(X))
    assert_array_equal(found.fit(opened()).transform(data), expected.fit(X).transform(X))


def test_the_encoder_gives_the_same_bits_for_dask():
    X, y = frame()[FEATURES], frame()["y"]
    lazy = dd.from_pandas(X, npartitions=3)
    found, expected = TableEncoder(random_state=0), TableEncoder(random_state=0)
    assert_array_equal(found.fit_transform(lazy, y), expected.fit_transform(X, y))
    assert_array_equal(found.transform(lazy), expected.transform(X))


def test_the_encoder_of_numbers(opened):
    """Columns of numbers and truth values alone, with gaps and without."""
    table, names = frame(), ["x", "count", "member"]
    data, X = opened(features=names, target="y"), table[names]
    assert_array_equal(TableEncoder().fit_transform(data), TableEncoder().fit_transform(X, table["y"]))
    assert_array_equal(
        TableEncoder().fit_transform(data.subset(np.arange(5, 50))),
        TableEncoder().fit_transform(X[5:50], table["y"][5:50]),
    )


def test_the_same_model_as_of_the_table(opened):
    table = as_read(frame(), opened)
    model = AutoRegressor(families=("kernel",), random_state=0, **BRIEF)
    expected = model.fit(table[FEATURES], table["y"], table["w"]).predict(table[FEATURES])
    data = opened(target="y", weight="w")
    model.fit(data)
    assert list(model.feature_names_in_) == FEATURES
    assert_array_equal(model.predict(table[FEATURES]), expected)
    assert_array_equal(model.predict(data), expected)
    assert_array_equal(model.predict(opened().X), expected)
    assert_array_equal(model.predict_interval(data), model.predict_interval(table[FEATURES]))
    assert model.score(data) == model.score(table[FEATURES], table["y"], table["w"])


def test_labels_that_are_text(opened):
    table = as_read(frame(), opened)
    model = AutoClassifier(families=("kernel",), random_state=0, **BRIEF)
    expected = model.fit(table[FEATURES], table["label"]).predict_proba(table[FEATURES])
    data = opened(target="label")
    assert_array_equal(model.fit(data).predict_proba(data), expected)
    assert model.classes_.tolist() == ["high", "low"]
    assert model.score(data) == np.mean(model.predict(data) == table["label"])


def test_validation_rows_parts_and_chosen_rows(opened):
    table = as_read(frame(), opened)
    X, y = table[FEATURES], table["y"].to_numpy()
    data = opened(target="y")
    train, test = data.split(random_state=0)
    chosen = data.take([7, 3, 150])
    assert_array_equal(chosen.y, y[[7, 3, 150]])
    model = AutoRegressor(families=("kernel",), random_state=0, **BRIEF).fit(train, X_val=test)
    assert_array_equal(model.predict(chosen), model.predict(X.iloc[[7, 3, 150]]))
    kept = np.setdiff1d(np.arange(N), test._chosen)
    other = AutoRegressor(families=("kernel",), random_state=0, **BRIEF)
    other.fit(X.iloc[kept], y[kept], X_val=X.iloc[test._chosen], y_val=y[test._chosen])
    assert_array_equal(model.predict(X), other.predict(X))


def test_dask_dataframes():
    table = frame()
    X, y, w = table[FEATURES], table["y"], table["w"]
    lazy = dd.from_pandas(table, npartitions=3)
    model = AutoRegressor(families=("kernel",), random_state=0, **BRIEF)
    expected = model.fit(X, y, w).predict(X)
    model.fit(lazy[FEATURES], lazy["y"], lazy["w"])
    predictions = model.predict(lazy[FEATURES])
    assert type(predictions).__module__.startswith("dask")
    assert_array_equal(predictions.compute(), expected)
    assert_array_equal(model.predict_interval(lazy[FEATURES]), model.predict_interval(X))
    assert model.score(lazy[FEATURES], lazy["y"]) == model.score(X, y)
    labels = AutoClassifier(families=("kernel",), random_state=0, **BRIEF).fit(lazy[FEATURES], lazy["label"])
    assert set(labels.predict(lazy[FEATURES]).compute()) <= {"high", "low"}


def test_a_lazy_frame_itself():
    table = pl.from_pandas(frame()[FEATURES])
    model = AutoRegressor(families=("kernel",), random_state=0, **BRIEF).fit(table.lazy(), frame()["y"])
    assert_array_equal(model.predict(table.lazy()), model.predict(table))


def test_rows_and_targets_of_a_query_without_an_order():
    table = pl.from_pandas(frame())
    query = table.lazy().map_batches(lambda rows: rows.sample(fraction=1.0, shuffle=True))
    data = gyrfalcon.open(query, target="y", features=FEATURES)
    for _ in range(2):
        rows, y = data.table(), data.y
        again = dict(zip(zip(table["x"], table["who"], table["day"], strict=True), table["y"], strict=True))
        keys = zip(*(rows.column(name).to_pylist() for name in ("x", "who", "day")), strict=True)
        assert [again[key] for key in keys] == y.tolist()
    numbers = gyrfalcon.open(query, target="y", features=["count", "member"])
    with pytest.raises(OSError, match=r"the LazyFrame gave other rows when it was read again.*sort"):
        TableEncoder().fit(numbers)


def test_numbers_alone_are_read_in_blocks_and_may_have_gaps(opened):
    table, names = frame(), ["x", "count"]
    data = opened(features=names, target="y")
    assert data.X.is_numeric()
    model = AutoRegressor(families=("kernel",), random_state=0, **BRIEF).fit(data)
    assert_array_equal(model.predict(data), model.predict(table[names]))
    with pytest.raises(ValueError, match=r"column 'x' has no value in row 0|contains NaN"):
        FalkonRegressor(n_centers=10).fit(data)


def test_other_estimators_refuse_text_when_they_read_it(opened):
    data = opened(target="y", weight="w")
    assert "features, target" in repr(data)  # without a type of numbers
    for use in (FalkonRegressor(n_centers=10).fit, lambda data: next(data.X.blocks(5)), lambda data: data.X.moments()):
        with pytest.raises(
            ValueError, match=r"features must be numbers, and these columns are not: 'city'.*TableEncode"
        ):
            use(data)
    FalkonRegressor(n_centers=10).fit(opened(target="y", features=["count", "member"]))


@pytest.mark.parametrize("given", [pl.from_pandas(frame()), frame(), [frame()], pa.table({"a": [1.0]}), np.eye(3)])
def test_a_table_in_memory_is_not_printed_by_the_error_of_open(given):
    with pytest.raises(TypeError, match=r"must be a path or a list of paths.*model\.fit\(table, y\)") as error:
        gyrfalcon.open(given)
    kind = type(given[0] if isinstance(given, list) else given)
    assert f"<{kind.__module__.partition('.')[0]}.{kind.__name__}>" in str(error.value)
    assert len(str(error.value)) < 300


# ---- CSV files, whose columns have no types --------------------------------------------------------------------------


def test_codes_with_zeros_are_text(tmp_path):
    rows = pd.DataFrame({"code": [f"{i % 12 * 37:05d}" for i in range(N)], "x": np.arange(N), "y": frame()["y"]})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    data = gyrfalcon.open(tmp_path / "rows.csv", target="y")
    assert not data.X.is_numeric()
    assert data.X.take(np.array([1]))[0].tolist() == [37, 1]  # as numbers, for who wants them
    model = AutoRegressor(families=("kernel",), random_state=0, **BRIEF).fit(data)
    assert model.encoders_[0].kinds_.tolist() == ["category", "number"]
    few = rows[rows["code"].isin(["00111"])].assign(code="111")  # which looks like a number
    few.to_csv(tmp_path / "few.csv", index=False)
    found = model.predict(gyrfalcon.open(tmp_path / "few.csv", target="y"))
    assert_array_equal(found, model.predict(few[["code", "x"]]))


def test_line_breaks_within_quotes(tmp_path):
    text = ["one\nline", "two"] * 300_000  # more than is parsed at once
    rows = pd.DataFrame({"text": text, "x": np.arange(600_000)})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    data = gyrfalcon.open(tmp_path / "rows.csv", target="x")
    assert data.n_rows == 600_000
    assert_array_equal(data.y, rows["x"])
    assert data.table().column("text").to_pylist() == text


def test_a_column_without_values_in_one_file(tmp_path):
    (tmp_path / "a.csv").write_text("a,city,y\n1,,1\n2,,2\n")
    (tmp_path / "b.csv").write_text("a,city,y\n3,Roma,3\n")
    data = gyrfalcon.open(tmp_path, target="y")
    assert data.table().to_pydict() == {"a": [1, 2, 3], "city": [None, None, "Roma"]}
    with pytest.raises(ValueError, match=r"column 'city' is string, and double in .*a\.csv"):
        next(data.X.blocks(2))


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_a_table_larger_than_memory(opened, monkeypatch):
    for module in ("tables", "table_reader"):
        monkeypatch.setattr(f"gyrfalcon.sources.{module}.available_memory", lambda: 1000)
    data = opened(target="y")
    for read in (data.table, lambda: TableEncoder().fit(data), lambda: AutoRegressor().fit(data)):
        with pytest.raises(MemoryError, match=r"the table takes about .* in memory, and 1 kB are available"):
            read()


def test_a_dask_dataframe_larger_than_memory(monkeypatch):
    monkeypatch.setattr("gyrfalcon.sources.dask.available_memory", lambda: 3_000)
    seen = []
    lazy = dd.from_pandas(frame()[FEATURES], npartitions=8)
    lazy = lazy.map_partitions(lambda part: seen.append(len(part)) or part, meta=lazy._meta)
    with pytest.raises(MemoryError, match="the Dask dataframe: the table takes about"):
        TableEncoder().fit(lazy)
    assert len(seen) < 4  # and not all partitions


def test_a_label_too_long_for_an_array_of_labels(tmp_path, monkeypatch):
    monkeypatch.setattr("gyrfalcon.tables.targets.available_memory", lambda: 10_000)
    pd.DataFrame({"x": range(9), "y": ["a", "b" * 1000, *"aaaabbb"]}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(MemoryError, match="y with labels of up to 1,000 characters"):
        AutoClassifier().fit(gyrfalcon.open(tmp_path / "rows.parquet", target="y"))


# ---- the command line ------------------------------------------------------------------------------------------------


def test_the_command_line_reads_what_python_reads(tmp_path, monkeypatch):
    """The model of the command predicts for opened files what the command predicts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    table = frame()[["x", "city", "day", "y"]]
    table[:100].to_csv("rows/0.csv", index=False)
    table[100:].to_csv("rows/1.csv", index=False)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert main(["fit", "rows", "--target", "y", "--time-budget", "1", "-q", "-o", "m.gyr"]) == 0
        out.truncate(0)
        assert main(["predict", "m.gyr", "rows", "-q", "-o", "p.npy"]) == 0
    model = gyrfalcon.load("m.gyr")
    assert model.encoders_[0].kinds_.tolist() == ["number", "category", "date"]
    assert_array_equal(np.load("p.npy"), model.predict(gyrfalcon.open("rows", target="y")))
    assert gyrfalcon.write_predictions(model, gyrfalcon.open("rows", target="y"), "q.npy") == N
    assert_array_equal(np.load("q.npy"), np.load("p.npy"))


# ---- tables that stay in their files ---------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch):
    """Let encoders learn from 90 rows; the function lets any table be too large for memory."""
    for module in (encoded_tables, inputs):
        monkeypatch.setattr(module, "ENCODED_ROWS", 90)
    return lambda: monkeypatch.setattr(inputs, "_CELL_BYTES", 1 << 60)


@pytest.fixture(params=["Parquet", "Arrow"])
def in_files(request, tmp_path):
    for number, part in enumerate((frame()[:100], frame()[100:])):
        if request.param == "Arrow":
            feather.write_feather(pa.Table.from_pandas(part, preserve_index=False), tmp_path / f"{number}.feather")
        else:
            part.to_parquet(tmp_path / f"{number}.parquet", index=False, row_group_size=30)
    return lambda **options: gyrfalcon.open(tmp_path, **{"features": FEATURES} | options)


@pytest.fixture
def whole(monkeypatch):
    """The number of tables that were read as a whole."""
    made, read = [], TableFiles.table
    monkeypatch.setattr(TableFiles, "table", lambda self, *a: made.append(1) or read(self, *a))
    return made


def test_some_rows_of_a_table_in_files(in_files, whole):
    rows, indices = in_files().X, np.array([159, 3, 3, 99, 100, 40])
    expected = frame()[FEATURES].iloc[indices].reset_index(drop=True).drop(columns=["kind", "empty"])
    found = rows.table(indices).to_pandas()
    pd.testing.assert_frame_equal(found.drop(columns=["kind", "empty"]), expected, check_dtype=False)
    assert found["kind"].astype(str).tolist() == frame()["kind"].iloc[indices].astype(str).tolist()
    part = rows.subset(np.arange(0, 160, 3))
    tables = list(part.tables_from(20, 20))
    assert [len(table) for table in tables] == [20, 14]
    assert pa.concat_tables(tables).column("x").to_pylist() == part.table().column("x").to_pylist()[20:]
    assert not whole


@pytest.mark.parametrize("weighted", [False, True])
def test_a_table_that_stays_in_files_is_learnt_as_one_in_memory(in_files, large, whole, weighted):
    options = {"weight": "w"} if weighted else {}
    model = AutoRegressor(random_state=0, **BRIEF)
    data = in_files(target="y", **options)
    expected = model.fit(data).predict(frame()[FEATURES])
    assert whole
    whole.clear()
    large()
    model.fit(data)
    assert not whole
    assert_array_equal(model.predict(frame()[FEATURES]), expected)
    assert_array_equal(model.predict(data), expected)
    assert not whole
    in_memory = model.score(frame()[FEATURES], frame()["y"], frame()["w"] if weighted else None)
    assert model.score(data) == pytest.approx(in_memory, rel=1e-12)
    assert list(model.feature_names_in_) == FEATURES


def test_the_time_to_read_files_is_told_before(in_files, large, capsys, monkeypatch):
    large()
    monkeypatch.setattr(encoded_tables, "_encoding_seconds", lambda *a: 3_000.0)
    model = AutoRegressor(time_budget=60, families=("kernel",), callbacks=Brief(2), random_state=0, verbose=1)
    with pytest.warns(UserWarning, match="time_budget=60 is less than the smallest search .* about 3e.03 s"):
        model.fit(in_files(target="y"))
    told = "the 160 rows stay in their files: reading and encoding all of them takes about 3,0"
    assert told in capsys.readouterr().err


def test_rows_of_weight_0_and_parts_stay_in_files(in_files, large, whole):
    table, weight = frame()[FEATURES], (np.arange(N) % 5 > 0) * 1.0
    large()
    train, _ = in_files(target="label").split(random_state=0)
    model = AutoClassifier(families=("kernel",), random_state=0, **BRIEF).fit(train)
    other = AutoClassifier(families=("kernel",), random_state=0, **BRIEF)
    other.fit(table.iloc[train._chosen], frame()["label"].iloc[train._chosen])
    assert_array_equal(model.predict_proba(table), other.predict_proba(table))
    data = in_files(target="label")
    model.fit(data.X, data.y, weight)
    assert not whole
    other.fit(table[weight > 0], frame()["label"][weight > 0])
    assert_array_equal(model.predict_proba(table), other.predict_proba(table))


def test_without_room_on_the_disk_rows_are_encoded_in_every_pass(in_files, large, monkeypatch):
    large()
    model = AutoRegressor(families=("kernel",), random_state=0, **BRIEF)
    expected = model.fit(in_files(target="y")).predict(frame()[FEATURES])
    monkeypatch.setattr(scratch, "temporary_file", lambda *a: None)
    assert_array_equal(model.fit(in_files(target="y")).predict(frame()[FEATURES]), expected)


def test_a_checkpoint_of_a_table_that_stays_in_files(in_files, large, tmp_path_factory):
    large()
    folder = tmp_path_factory.mktemp("state")
    model = AutoRegressor(families=("kernel",), random_state=0, checkpoint=folder, **BRIEF)
    expected = model.fit(in_files(target="y")).predict(frame()[FEATURES])
    records = model.candidates_
    assert_array_equal(model.fit(in_files(target="y")).predict(frame()[FEATURES]), expected)
    assert model.candidates_ == records  # nothing was computed again


def test_small_tables_and_text_files_are_read_into_memory(in_files, large, tmp_path_factory):
    assert not inputs.stays_in_files(in_files())
    large()
    assert inputs.stays_in_files(in_files())
    assert not inputs.stays_in_files(in_files(features=["x", "count"]))  # numbers are read block by block anyway
    text = tmp_path_factory.mktemp("text") / "t.csv"
    frame().to_csv(text, index=False)
    assert not inputs.stays_in_files(gyrfalcon.open(text, features=FEATURES))
    assert not inputs.stays_in_files(in_files().take(np.arange(150)))
