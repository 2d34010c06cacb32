"""Polars' LazyFrame and pyarrow's Dataset as sources: in batches, with a target, and errors."""

from __future__ import annotations

import itertools
import pickle
import weakref

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon import AutoRegressor, ConformalRegressor, FalkonClassifier, FalkonRegressor
from gyrfalcon.sources import as_source, lazy_tables
from gyrfalcon.sources.files import is_lazy_table
from gyrfalcon.sources.rereading import RowsChangedError

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1_000, 2))
TABLE = pl.DataFrame(
    {
        "a": X[:, 0],
        "b": X[:, 1].astype(np.float32),
        "y": np.sin(X[:, 0]),
        "kind": np.where(X[:, 1] > 0, "up", "down"),
        "w": RNG.uniform(size=len(X)),
    }
)


@pytest.fixture(params=["LazyFrame", "scanned file", "Dataset"])
def table(request, tmp_path):
    if request.param == "LazyFrame":
        return TABLE.lazy()
    TABLE.write_parquet(tmp_path / "rows.parquet", row_group_size=300)
    if request.param == "scanned file":
        return pl.scan_parquet(tmp_path / "rows.parquet").filter(pl.col("a") > -100)
    return ds.dataset(tmp_path / "rows.parquet")


def test_parts(table):
    data = gyrfalcon.open(table, target="y", features=["b", "a"], weight="w")
    assert data.X.shape == (1_000, 2)
    assert data.feature_names == ["b", "a"]
    assert data.files == []
    assert "1,000 rows of 2 features in float64, target 'y', weight 'w'; a " in repr(data)
    assert np.array_equal(data.y, TABLE["y"])
    assert np.array_equal(data.weight, TABLE["w"])
    values = TABLE.select("b", "a").to_numpy().astype(np.float64)
    assert np.array_equal(np.vstack(list(data.X.blocks(64))), values)
    assert np.array_equal(data.X.take(np.array([999, 3, 3])), values[[999, 3, 3]])
    assert data.X.fingerprint() == gyrfalcon.open(table, target="y", features=["b", "a"]).X.fingerprint()
    assert list(gyrfalcon.open(table, target="kind", features=["a"]).y) == TABLE["kind"].to_list()


def test_fits_are_those_of_the_array(table):
    data = gyrfalcon.open(table, target="y", features=["a", "b"], weight="w")
    model = FalkonRegressor(n_centers=30, random_state=0)
    values = TABLE.select("a", "b").to_numpy().astype(np.float64)
    expected = model.fit(values, TABLE["y"].to_numpy(), TABLE["w"].to_numpy()).predict(values)
    assert np.array_equal(model.fit(data).predict(data), expected)
    labels = gyrfalcon.open(table, target="kind", features=["a", "b"])
    assert FalkonClassifier(n_centers=30, random_state=0).fit(labels).score(labels) > 0.95


def test_rows_alone(table):
    """`fit` and `predict` take the table itself where all of its columns are features."""
    rows = table.select(["a", "b"]) if isinstance(table, pl.LazyFrame) else table.replace_schema(table.schema)
    model = FalkonRegressor(n_centers=30, random_state=0)
    if not isinstance(table, pl.LazyFrame):
        with pytest.raises(ValueError, match="features must be numbers, and these columns are not: 'kind'"):
            model.fit(rows, TABLE["y"].to_numpy())
        return
    model.fit(rows, TABLE["y"].to_numpy())
    assert list(model.feature_names_in_) == ["a", "b"]
    assert np.array_equal(model.predict(rows), model.predict(as_source(rows)))


def test_batches_are_small(table, monkeypatch):
    monkeypatch.setattr(lazy_tables, "_batch_rows", lambda columns: 100)
    (reader,) = gyrfalcon.open(table, target="y", features=["a", "b"]).X.readers
    sizes = [batch.num_rows for _, batch in reader.batches(["a", "b"], None)]
    assert sum(sizes) == 1_000
    assert max(sizes) <= 100


def test_errors(table):
    with pytest.raises(ValueError, match=r"the (LazyFrame|Dataset) has no column 'z' for target: the columns are \["):
        gyrfalcon.open(table, target="z")
    with pytest.raises(ValueError, match="features must be numbers, and these columns are not: 'kind'"):
        next(gyrfalcon.open(table, target="y").X.blocks(10))
    with pytest.raises(ValueError, match="delimiter=';' is for CSV files"):
        gyrfalcon.open(table, target="y", delimiter=";")
    with pytest.raises(ValueError, match="there are no rows in the table"):
        gyrfalcon.open(pl.LazyFrame({"a": [], "y": []}, schema={"a": pl.Float64, "y": pl.Float64}), target="y")
    holes = pl.LazyFrame({"a": [1.0, None], "y": [1.0, 2.0]})
    with pytest.raises(ValueError, match="the LazyFrame: column 'a' has no value in row 1"):
        FalkonRegressor().fit(gyrfalcon.open(holes, target="y"))


def test_a_query_that_gives_other_rows_each_time():
    count = [5]
    frame = TABLE.lazy().select("a", "y").map_batches(lambda rows: rows.head(count[0]))
    data = gyrfalcon.open(frame, target="y")
    count[0] = 3
    with pytest.raises(ValueError, match="the LazyFrame gave 3 rows where 5 were found"):
        list(data.X.blocks(10))


# ---- queries without an order ----------------------------------------------------------------------------------------


def shuffled(runs=None):
    """A query whose rows come in another order in each run; `runs` counts those that give all rows."""
    seeds = itertools.count()

    def shuffle(rows):
        if runs is not None and len(rows):
            runs.append(rows.columns)
        return rows.sample(fraction=1.0, shuffle=True, seed=next(seeds))

    return TABLE.lazy().map_batches(shuffle)


UNORDERED = {
    "group_by": lambda: TABLE.lazy().group_by("a").agg(pl.col("b", "y", "w", "kind").first()),
    "unique": lambda: TABLE.lazy().unique(),
    "shuffled": shuffled,
}
MODEL = FalkonRegressor(n_centers=100, penalty=1e-6, random_state=0)
ORDERED = TABLE.select("a", "b").to_numpy().astype(np.float64)


@pytest.mark.parametrize("query", UNORDERED.values(), ids=list(UNORDERED))
def test_rows_and_targets_are_of_the_same_run(query):
    data = gyrfalcon.open(query(), target="y", features=["a", "b"], weight="w")
    rows = np.vstack(list(data.X.blocks(64)))
    weights = dict(zip(TABLE["a"], TABLE["w"], strict=True))
    np.testing.assert_array_equal(data.y, [np.sin(a) for a in rows[:, 0]])
    np.testing.assert_array_equal(data.weight, [weights[a] for a in rows[:, 0]])
    np.testing.assert_array_equal(data.X.take(np.array([7, 999, 7])), rows[[7, 999, 7]])
    np.testing.assert_array_equal(np.vstack(list(data.X.blocks(1_000))), rows)
    for given in ((data,), (data.X, data.y, data.weight)):
        assert MODEL.fit(*given).score(ORDERED, TABLE["y"].to_numpy()) > 0.999
    assert MODEL.score(data) > 0.999


@pytest.mark.parametrize("first", ["X", "y"])
def test_a_query_is_run_once(first):
    runs = []
    data = gyrfalcon.open(shuffled(runs), target="y", features=["a", "b"], weight="w")
    runs.clear()  # of its rows' number
    list(data.X.blocks(10)) if first == "X" else data.y
    MODEL.fit(data)
    MODEL.predict(data)
    assert len(runs) == 1


def test_automatic_and_conformal_models_of_a_query_without_an_order():
    data = gyrfalcon.open(shuffled(), target="y", features=["a", "b"])
    y = TABLE["y"].to_numpy()
    automatic = AutoRegressor(time_budget=20, random_state=0, callbacks=lambda record: record["iteration"] == 2)
    assert automatic.fit(data).score(ORDERED, y) > 0.9
    low, high = ConformalRegressor(MODEL).fit(data).predict_interval(data).T
    assert np.mean((low <= data.y) & (data.y <= high)) > 0.8


@pytest.fixture
def full_disk(monkeypatch):
    monkeypatch.setattr("gyrfalcon.sources.lazy_tables.temporary_file", lambda size: None)
    monkeypatch.setattr("gyrfalcon.sources.scratch.temporary_file", lambda size, folder: None)


REMEDY = r"of the LazyFrame is not the one that was read before.*\.sort\(.*maintain_order=True.*collect\(\)"


@pytest.mark.parametrize("model", [MODEL, AutoRegressor(time_budget=20)], ids=["Falkon", "Auto"])
def test_where_the_disk_has_no_room_other_rows_are_refused(full_disk, model):
    with pytest.raises(RowsChangedError, match=REMEDY):
        model.fit(gyrfalcon.open(shuffled(), target="y", features=["a", "b"]))
    model = FalkonRegressor(n_centers=30, random_state=0)
    values = ORDERED, TABLE["y"].to_numpy()
    data = gyrfalcon.open(TABLE.lazy(), target="y", features=["a", "b"])
    np.testing.assert_array_equal(model.fit(data).dual_coef_, model.fit(*values).dual_coef_)


def test_a_disk_that_fills_up_during_the_run(monkeypatch):
    monkeypatch.setattr("gyrfalcon.sources.lazy_tables.write_block", lambda file, block: False)
    data = gyrfalcon.open(shuffled(), target="y", features=["a", "b"])
    assert len(data.y) == 1_000
    with pytest.raises(RowsChangedError, match=REMEDY):
        list(data.X.blocks(100))


def test_rows_alone_of_a_query_without_an_order(full_disk):
    with pytest.raises(RowsChangedError, match=REMEDY):
        MODEL.fit(shuffled().select("a", "b"), TABLE["y"].to_numpy())


def test_another_process_compares_the_rows():
    data = gyrfalcon.open(TABLE.lazy().select("a", "b", "y"), target="y")
    rows = np.vstack(list(data.X.blocks(100)))
    sent = pickle.loads(pickle.dumps(data.X))
    np.testing.assert_array_equal(np.vstack(list(sent.blocks(64))), rows)
    (reader,) = sent.readers
    sent._run.rows.rows.readers[0].frame = reader.frame.reverse()
    with pytest.raises(RowsChangedError, match=REMEDY):
        sent.take(np.array([0]))


def test_a_run_that_fails_is_started_again():
    data = gyrfalcon.open(TABLE.lazy(), target="y", features=["a", "b"])
    frame, data.X.readers[0].frame = data.X.readers[0].frame, None
    with pytest.raises(ValueError, match="the LazyFrame cannot be read"):
        data.y  # noqa: B018
    data.X.readers[0].frame = frame
    assert len(data.y) == 1_000


def test_files_of_a_dataset_that_change_after_the_target_was_read(tmp_path):
    path = tmp_path / "rows.arrow"
    TABLE.write_ipc(path)
    data = gyrfalcon.open(ds.dataset(path, format="ipc"), target="y", features=["a", "b"])
    assert len(data.y) == 1_000
    TABLE.reverse().write_ipc(path)
    with pytest.raises(RowsChangedError, match=r"row 0 of the Dataset is not the one .* files of the Dataset alone"):
        MODEL.fit(data)


def test_what_is_none():
    assert not any(map(is_lazy_table, [X, TABLE, pa.table({"a": [1.0]}), "path", None, [1]]))


def test_the_file_of_a_run_is_closed_with_the_data():
    """No circle of references keeps it until the garbage is collected."""
    data = gyrfalcon.open(TABLE.lazy(), target="y", features=["a", "b"])
    assert len(data.y) == 1_000
    run = weakref.ref(data.X._run)
    del data
    assert run() is None
