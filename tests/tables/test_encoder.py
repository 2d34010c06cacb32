"""`TableEncoder`: what becomes of each kind of column, from every library, and what is refused."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon import TableEncoder

METHODS = ["robust", "standard", "quantile"]


@parametrize_with_checks([TableEncoder(), TableEncoder("quantile", integers="both"), TableEncoder("standard")])
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
