"""Parts of opened data: `split`, `subset` and `take`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.model_selection import train_test_split

import gyrfalcon
from gyrfalcon import FalkonRegressor
from gyrfalcon.sources import ArrayRows
from gyrfalcon.testing import check_rows

N = 200


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((N, 3)), columns=["a", "b", "c"])
    return table.assign(y=np.arange(N, dtype=float), w=1.0 + np.arange(N) % 3)


@pytest.fixture(params=["parquet", "csv", "lazy"])
def data(request, table, tmp_path):
    path = tmp_path / "rows.csv"
    table.to_csv(path, index=False)
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
        path = tmp_path / "rows.parquet"
        table.to_parquet(path)
    elif request.param == "lazy":
        path = pytest.importorskip("polars").scan_csv(path)
    return gyrfalcon.open(path, target="y", weight="w")


def same(part, table, rows):
    assert_array_equal(np.vstack(list(part.X.blocks(33))), table.loc[rows, ["a", "b", "c"]])
    assert_array_equal(part.y, table.loc[rows, "y"])
    assert_array_equal(part.weight, table.loc[rows, "w"])
    assert part.feature_names == part.X.feature_names == ["a", "b", "c"]
    assert part.n_rows == part.X.shape[0] == len(rows)


@pytest.mark.parametrize("options", [{}, {"test_size": 0.5}, {"test_size": 7}, {"shuffle": False}], ids=repr)
def test_split_has_the_rows_of_scikit_learn(data, table, options):
    seed = {} if options.get("shuffle") is False else {"random_state": 3}
    expected = train_test_split(np.arange(N), **{"test_size": 0.25, **options}, **seed)
    for part, rows in zip(data.split(**options, **seed), expected, strict=True):
        same(part, table, np.sort(rows))


def test_rows_stay_in_the_files(data):
    train, test = data.split(random_state=0)
    assert not isinstance(train.X, ArrayRows)
    assert not train.X.in_memory
    assert repr(train).startswith("<Dataset: 150 rows of 3 features in float64, target 'y', weight 'w'; ")
    check_rows(test.X)


def test_parts_of_parts(data, table):
    train, _ = data.split(shuffle=False, test_size=0.5)
    _, second = train.split(shuffle=False, test_size=10)
    same(second, table, np.arange(90, 100))
    same(second.take([3, 0, 3]), table, [93, 90, 93])
    same(second.take([3, 0, 3]).subset([0, 2]), table, [93, 93])
    same(data.subset([1, 5]), table, [1, 5])
    assert second.take([1]).X.in_memory


def test_parts_are_learnt_from_and_judged_by(data, table):
    train, test = data.split(random_state=0)
    model = FalkonRegressor(n_centers=20, penalty=1e-3, random_state=0).fit(train)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    rows = table.loc[train.y.astype(int)]
    expected = FalkonRegressor(n_centers=20, penalty=1e-3, random_state=0)
    expected.fit(rows[["a", "b", "c"]], rows["y"], sample_weight=rows["w"])
    np.testing.assert_allclose(model.predict(test), expected.predict(table.loc[test.y.astype(int), ["a", "b", "c"]]))
    assert np.isfinite(model.score(test))


def test_without_target_and_weight(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(12.0).reshape(6, 2))
    train, test = gyrfalcon.open(tmp_path / "rows.npy").split(test_size=2, random_state=0)
    assert train.y is test.weight is None
    assert len(train.X.take(np.arange(4))) == 4


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda data: data.split(test_size=1.5), ValueError, r"test_size.* Got 1\.5"),
        (lambda data: data.subset([3, 1]), ValueError, "indices must increase: sort them, or .*take"),
        (lambda data: data.subset([]), ValueError, "at least one"),
        (lambda data: data.take([0.5]), ValueError, "integers"),
        (lambda data: data.take([0, N]), IndexError, f"from 0 to {N}, and rows from 0 to {N - 1}"),
        (lambda data: train_test_split(data), TypeError, r"data\.split\(test_size=0\.25\)"),
        (lambda data: train_test_split(data.X, data.y), TypeError, r"gyrfalcon\.open\(\.\.\.\)\.split\(\)"),
    ],
    ids=["size", "order", "none", "fractions", "beyond", "train_test_split", "train_test_split of rows"],
)
def test_what_is_refused(call, error, message, tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((N, 2)))
    with pytest.raises(error, match=message):
        call(gyrfalcon.open(tmp_path / "rows.npy", target=-1))
