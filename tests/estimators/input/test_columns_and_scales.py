"""Columns that are no numbers are refused by name, and features of unlike sizes get a warning with the remedy."""

from __future__ import annotations

import datetime
import warnings

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon import FalkonRegressor
from gyrfalcon.kernels import Gaussian, Linear

N = 40
Y = np.arange(float(N))
DAYS = np.datetime64("2024-01-01") + np.arange(N)
TEXT = ["Genova", "Torino"] * (N // 2)


def pandas(**columns):
    return pytest.importorskip("pandas").DataFrame({"a": Y, **columns})


def polars(**columns):
    return pytest.importorskip("polars").DataFrame({"a": Y, **columns})


@pytest.mark.parametrize("table", [pandas, polars])
def test_text_names_its_column_and_a_value(table):
    X = table(city=TEXT)
    with pytest.raises(ValueError, match="column 'city' holds text such as 'Genova': begin a pipeline with gyrfalcon"):
        FalkonRegressor().fit(X, Y)
    model = FalkonRegressor(n_centers=5).fit(table(city=Y), Y)
    with pytest.raises(ValueError, match="column 'city' holds text such as 'Genova'"):
        model.predict(X)


def test_categories_and_arrays_of_text():
    with pytest.raises(ValueError, match="column 'city' holds text such as 'Genova'"):
        FalkonRegressor().fit(pandas(city=pytest.importorskip("pandas").Categorical(TEXT)), Y)
    for X in (np.array([TEXT, TEXT]).T, np.array([Y.tolist(), TEXT], dtype=object).T):
        with pytest.raises(ValueError, match=r"column \d holds text such as 'Genova'"):
            FalkonRegressor().fit(X, Y)
    numbers = np.array([[str(value), value] for value in Y], dtype=object)  # which scikit-learn reads
    assert FalkonRegressor(n_centers=5).fit(numbers, Y).n_features_in_ == 2


@pytest.mark.parametrize("table", [pandas, polars])
@pytest.mark.parametrize("times", [DAYS.astype("M8[us]"), DAYS.astype("M8[us]") - DAYS.astype("M8[us]")[0]])
def test_times_are_not_read_as_numbers(table, times):
    with pytest.raises(ValueError, match=r"column 't' holds times such as .* make features of it"):
        FalkonRegressor().fit(table(t=times), Y)


def test_times_in_arrays_and_files(tmp_path):
    with pytest.raises(ValueError, match="column 0 holds times such as '2024-01-01'"):
        FalkonRegressor().fit(DAYS[:, None], Y)
    objects = np.array([[datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), 1.0]] * N, dtype=object)
    with pytest.raises(ValueError, match="column 0 holds times"):
        FalkonRegressor().fit(objects, Y)
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"t": DAYS.astype("M8[us]"), "y": Y}), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"not: 't' \(timestamp.*of times, make features such as the year"):
        FalkonRegressor().fit(gyrfalcon.open(tmp_path / "rows.parquet", target="y"))


# ---- scales ----------------------------------------------------------------------------------------------------------


def unlike():
    return np.random.default_rng(0).standard_normal((N, 3)) * [1.0, 1e4, 3.0]


def test_unlike_scales_warn_where_features_are_not_scaled():
    model = FalkonRegressor(scale=False, penalty=1e-3)
    with pytest.warns(UserWarning, match="column number 1 varies by .* and column number 0 by .*: use scale=True"):
        model.fit(unlike(), Y)
    frame = pytest.importorskip("pandas").DataFrame(unlike(), columns=["size", "price", "age"])
    with pytest.warns(UserWarning, match="column 'price' varies by .* and column 'size' by"):
        model.fit(frame, Y)


def test_no_warning_where_scales_do_not_matter():
    one_hot = np.column_stack([unlike()[:, 1], np.arange(N) % 2, np.arange(N) == 3])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        FalkonRegressor(penalty=1e-3).fit(unlike(), Y)
        FalkonRegressor(Gaussian([1.0, 1e4, 3.0]), scale=False, penalty=1e-3).fit(unlike(), Y)
        FalkonRegressor(scale=False, penalty=1e-3).fit(one_hot, Y)
        FalkonRegressor(scale=False, penalty=1e-3).fit(unlike() / [1, 1e3, 1], Y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FalkonRegressor(Linear(), scale=False, penalty=1e-3).fit(unlike(), Y)
    assert not [found for found in caught if "orders of magnitude" in str(found.message)]


# ---- names -----------------------------------------------------------------------------------------------------------


def test_a_misspelt_loss_has_a_suggestion():
    with pytest.raises(ValueError, match=r"loss='quantil' must be one of .*; did you mean 'quantile'\?"):
        FalkonRegressor(loss="quantil").fit(unlike(), Y)
    with pytest.raises(ValueError, match=r"gyrfalcon.losses.Loss$"):
        FalkonRegressor(loss="zzz").fit(unlike(), Y)
