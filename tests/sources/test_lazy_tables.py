"""Polars' LazyFrame and pyarrow's Dataset as sources: in batches, with a target, and errors."""

from __future__ import annotations

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon.sources import as_source, lazy_tables
from gyrfalcon.sources.files import is_lazy_table

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
        gyrfalcon.open(table, target="y")
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


def test_what_is_none():
    assert not any(map(is_lazy_table, [X, TABLE, pa.table({"a": [1.0]}), "path", None, [1]]))
