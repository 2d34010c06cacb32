"""Text that is numbers or dates, time zones, and what users are told of their columns."""

from __future__ import annotations

import datetime
import re
import warnings
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import gyrfalcon
from gyrfalcon import AutoRegressor, FalkonRegressor, TableEncoder
from gyrfalcon.storage import ModelFileError
from gyrfalcon.tables.dates import wall_clock
from gyrfalcon.tables.forms import DateForm, NumberForm

RNG = np.random.default_rng(0)
VALUES = np.round(RNG.normal(size=200) * 3000, 2)
DAYS = pd.date_range("2020-01-01", periods=200, freq="37h")


def column(values):
    return pd.DataFrame({"a": values})


def european(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


NUMBERS = {
    "plain": "{:.2f}".format,
    "thousands": "{:,.2f}".format,
    "euros after": "{:,.2f} €".format,
    "dollars before": lambda value: f"{'-' if value < 0 else ''}${abs(value):,.2f}",
    "dollars, then the minus": "${:,.2f}".format,
    "code of a currency": "EUR {:,.2f}".format,
    "percent": "{:.2f}%".format,
    "decimal comma": lambda value: f"{value:.2f}".replace(".", ","),
    "European": european,
    "European, euros": lambda value: f"{european(value)} €",
    "French": lambda value: f"{value:,.2f}".translate(str.maketrans(",.", "\u202f,")) + "\u00a0€",
    "Swiss": lambda value: f"CHF {value:,.2f}".replace(",", "’"),
    "accounting": lambda value: f"{value:,.2f}" if value >= 0 else f"({-value:,.2f})",
    "accounting, dollars": lambda value: f"${value:,.2f}" if value >= 0 else f"(${-value:,.2f})",
    "Unicode minus": lambda value: f"{value:.2f}".replace("-", "\u2212"),
    "exponents": "{:.8e}".format,
}


@pytest.mark.parametrize("form", NUMBERS)
@pytest.mark.parametrize(
    "library", [column, lambda text: pl.DataFrame({"a": text}), lambda text: pa.table({"a": text})]
)
def test_text_that_is_numbers(form, library, tmp_path):
    text = [NUMBERS[form](value) for value in VALUES]
    encoder = TableEncoder().fit(library(text))
    assert encoder.kinds_.tolist() == ["number"]
    expected = TableEncoder().fit(column(VALUES)).transform(column(VALUES))
    np.testing.assert_allclose(encoder.transform(library(text)), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(encoder.transform(column(VALUES)), expected, rtol=1e-12, atol=1e-12)
    encoder.save(tmp_path / "encoder.gyr")
    loaded = gyrfalcon.load(tmp_path / "encoder.gyr")
    np.testing.assert_array_equal(loaded.transform(library(text[:9])), encoder.transform(library(text[:9])))


def test_what_cannot_be_read_is_missing_later_too():
    text = [f"{european(value)} €" for value in VALUES]
    encoder = TableEncoder().fit(column([*text, "on request", "N/A", "", None]))
    assert encoder.forms_ == [encoder.forms_[0]]
    assert repr(encoder.forms_[0]) == "NumberForm(decimal=',', sign='€', thousands='.')"
    later = encoder.transform(column(["1.234,50 €", "1234,5", "12,000.00", "1 $", "oops", "NA"]))
    same = encoder.transform(column([1234.5, 1234.5, np.nan, np.nan, np.nan, np.nan]))
    np.testing.assert_array_equal(later, same)
    assert TableEncoder().fit(column([*text, *["ask us"] * 30])).kinds_.tolist() != ["number"]


def test_the_whole_column_decides_what_a_comma_is():
    read = {"1,234": 1234.0, "12,5": 12.5, "1234,567": 1234.567, "0,123": 0.123}
    thousands = TableEncoder().fit(column([f"{at},234" for at in range(1, 100)]))
    assert thousands.forms_[0].read("1,234") == 1234
    for other, value in list(read.items())[1:]:
        form = TableEncoder().fit(column([*(f"{at},234" for at in range(1, 10)), *[other] * 2])).forms_[0]
        assert form.read("1,234") == 1.234
        assert form.read(other) == value
    points = TableEncoder().fit(column([f"{at}.234" for at in range(1, 100)])).forms_[0]
    assert points.read("1.234") == 1.234
    points = TableEncoder().fit(column([*(f"{at}.234" for at in range(1, 100)), "1.234.567"])).forms_[0]
    assert points.read("1.234") == 1234


DATES = {
    "day first": "%d/%m/%Y",
    "month first": "%m/%d/%Y",
    "day first, points": "%d.%m.%Y",
    "day first, short years": "%d.%m.%y",
    "hyphens": "%d-%m-%Y",
    "year first": "%Y/%m/%d",
    "ISO": "%Y-%m-%d",
    "day first, with time": "%d/%m/%Y %H:%M",
    "month first, half days": "%m/%d/%Y %I:%M:%S %p",
    "ISO with time": "%Y-%m-%dT%H:%M:%S",
}


@pytest.mark.parametrize("form", DATES)
def test_text_that_is_dates(form, tmp_path):
    text = list(DAYS.strftime(DATES[form]))
    exact = DAYS if "%H" in DATES[form] or "%I" in DATES[form] else DAYS.normalize()
    encoder = TableEncoder()
    values = encoder.fit_transform(column([*text, "soon"]))
    assert encoder.kinds_.tolist() == ["date"]
    expected = TableEncoder().fit(column([*exact, pd.NaT]))
    np.testing.assert_allclose(values, expected.transform(column([*exact, pd.NaT])), atol=1e-9)
    encoder.save(tmp_path / "encoder.gyr")
    # the first row alone could be read otherwise, and is read as training was
    later = gyrfalcon.load(tmp_path / "encoder.gyr").transform(column([text[8], "no date"]))
    np.testing.assert_allclose(later, expected.transform(column([exact[8], pd.NaT])), atol=1e-9)


def test_days_that_could_be_months_are_days_and_this_is_said():
    text = [f"0{day}/0{month}/2020" for day in range(1, 10) for month in range(1, 10)]
    with pytest.warns(
        UserWarning, match=r"'a' is read as dates like 01/02/2020, in which .* day is assumed to come first"
    ):
        encoder = TableEncoder().fit(column(text))
    assert encoder.forms_[0].order == "day first"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TableEncoder().fit(column([*text, "12/31/2020"])).forms_[0].order == "month first"


@pytest.mark.parametrize(
    "text",
    [
        [f"{at * 7 % 90:05d}" for at in range(200)],
        [f"{10_000 + at % 50}" for at in range(190)] + ["01234"] * 2,
        [f"ID{at % 40}" for at in range(200)],
        [f"{at % 5}.{at % 7}.{at % 3}" for at in range(200)],
        [f"10.{at % 7}.{at % 30:02d}" for at in range(200)],
        [f"+39 010 {at % 40 + 1000000}" for at in range(200)],
        [f"+39010{at % 40 * 37 + 100}" for at in range(200)],
        [f"(555) {at % 40 + 100}-4567" for at in range(200)],
        [f"{at % 40 * 98_765 + 3_401_234_567}" for at in range(200)],
        [f"{at % 40 + 600} 345 678" for at in range(200)],
        [f"{at % 90 + 100}-{at % 9 + 10}-6789" for at in range(200)],
        [f"{at % 40}_{at % 3}" for at in range(200)],
        [f"{at % 40 + 10**17}" for at in range(200)],
        [f"192.168.{at % 40}.{at % 7}" for at in range(200)],
        ["€ 5" if at % 2 else "$ 5" for at in range(200)],
    ],
    ids=lambda text: text[-1],
)
def test_codes_stay_categories(text):
    encoder = TableEncoder().fit(column(text * 2))  # a level that is there once has no column
    assert encoder.kinds_.tolist() == ["category"]
    assert encoder.forms_ == [None]


def test_forms_of_a_file_are_checked(tmp_path):
    for wrong in (
        lambda: NumberForm(";"),
        lambda: NumberForm(sign="parsecs"),
        lambda: DateForm("stardate"),
        lambda: DateForm("day first", zoned=True),
    ):
        with pytest.raises(ValueError, match=r"must be|separators|time zone"):
            wrong()
    X = pd.DataFrame({"a": ["1,5", "2,5", "7,0"] * 9, "b": DAYS[:27].tz_localize("Europe/Rome")})
    for damage in (
        lambda encoder: encoder.forms_.pop(),
        lambda encoder: encoder.forms_.__setitem__(0, DateForm()),
        lambda encoder: encoder.zones_.__setitem__(1, "Mars/Olympus"),
    ):
        encoder = TableEncoder().fit(X)
        damage(encoder)
        encoder.save(tmp_path / "encoder.gyr")
        with pytest.raises(ModelFileError, match="inconsistent TableEncoder"):
            gyrfalcon.load(tmp_path / "encoder.gyr")


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_a_target_of_text(tmp_path):
    x = RNG.normal(size=(200, 1))
    y = 2000 + 900 * np.sin(x[:, 0])
    text = [f"{european(value)} €" for value in y]
    model = AutoRegressor(time_budget=1, random_state=0).fit(x[:150], text[:150])
    assert model.predict(x[150:]) == pytest.approx(y[150:], rel=0.1)
    model.save(tmp_path / "model.gyr")
    model = gyrfalcon.load(tmp_path / "model.gyr")
    assert model.score(x[150:], text[150:]) > 0.9
    assert model.score(x[150:], np.array(text[150:])) == pytest.approx(model.score(x[150:], y[150:]), abs=1e-4)
    with pytest.raises(ValueError, match=r"row 3 of y holds 'ask us', and others are numbers like '1.234,5 €'"):
        AutoRegressor(time_budget=1).fit(x, [*text[:3], "ask us", *text[4:]])
    with pytest.raises(ValueError, match=r"not numbers|could not convert"):
        AutoRegressor(time_budget=1).fit(x, ["Genova", "Roma"] * 100)


# ---- time zones ------------------------------------------------------------------------------------------------------

MOMENTS = pd.date_range("2021-01-01", periods=400, freq="31h", tz="Europe/Rome")
LIBRARIES = {
    "pandas": column,
    "pandas of pyarrow": lambda moments: column(
        pd.Series(moments).astype(pd.ArrowDtype(pa.timestamp("us", str(moments.tz))))
    ),
    "polars": lambda moments: pl.DataFrame(column(moments)),
    "pyarrow": lambda moments: pa.Table.from_pandas(column(moments)),
    "objects": lambda moments: column(pd.Series(moments.to_pydatetime().tolist(), dtype=object)),
    "lists": lambda moments: [[one] for one in moments.to_pydatetime().tolist()],
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.filterwarnings("ignore:X (has|does not have)")
def test_instants_are_converted_to_the_zone_of_training(library, zone, tmp_path):
    make = LIBRARIES[library]
    encoder = TableEncoder().fit(make(MOMENTS))
    assert encoder.zones_ == ["Europe/Rome"]
    expected = TableEncoder().fit_transform(column(MOMENTS.tz_localize(None)))
    np.testing.assert_allclose(encoder.transform(make(MOMENTS)), expected, atol=1e-9)
    encoder.save(tmp_path / "encoder.gyr")
    for fitted in (encoder, gyrfalcon.load(tmp_path / "encoder.gyr")):
        np.testing.assert_allclose(fitted.transform(make(MOMENTS.tz_convert(zone))), expected, atol=1e-9)


def test_dates_with_and_without_a_zone_are_not_mixed():
    naive = MOMENTS.tz_localize(None)
    zoned = TableEncoder().fit(column(MOMENTS))
    for table in (column(naive), column(naive.strftime("%Y-%m-%dT%H:%M:%S")), column(naive.date)):
        with pytest.raises(ValueError, match=r"'a' holds dates without a time zone.*'Europe/Rome'.*tz_localize"):
            zoned.transform(table)
    plain = TableEncoder().fit(column(naive))
    for table in (column(MOMENTS), column([moment.isoformat() for moment in MOMENTS])):
        with pytest.raises(
            ValueError, match=r"'a' holds dates in a time zone .*training had dates without.*tz_convert"
        ):
            plain.transform(table)
    with pytest.raises(ValueError, match="with and without a time zone"):
        TableEncoder().fit([[MOMENTS[0].to_pydatetime()], [naive[0].to_pydatetime()]])
    assert not zoned.transform(column([pd.NaT, pd.NaT])).any()


def test_text_with_offsets_is_instants():
    text = [moment.tz_convert("+02:00").isoformat() for moment in MOMENTS]
    encoder = TableEncoder().fit(column(text))
    assert encoder.zones_ == ["+02:00"]
    expected = encoder.transform(column(text))
    np.testing.assert_allclose(encoder.transform(column(MOMENTS)), expected, atol=1e-9)
    np.testing.assert_allclose(encoder.transform(column([m.isoformat() for m in MOMENTS])), expected, atol=1e-9)
    assert TableEncoder().fit(column([moment.isoformat() for moment in MOMENTS])).zones_ == ["UTC"]
    with pytest.raises(ValueError, match="without a time zone"):
        encoder.transform(column(list(MOMENTS.tz_localize(None).strftime("%Y-%m-%dT%H:%M:%S"))))


def test_wall_clocks_are_those_of_datetime():
    seconds = RNG.uniform(-1e9, 4e9, 500)
    for name in ("Europe/Rome", "Asia/Kathmandu", "-03:30", "UTC"):
        place = datetime.timezone(-datetime.timedelta(hours=3.5)) if name[0] == "-" else ZoneInfo(name)
        start = datetime.datetime(1970, 1, 1)
        clock = [
            (datetime.datetime.fromtimestamp(one, place).replace(tzinfo=None) - start).total_seconds()
            for one in seconds
        ]
        np.testing.assert_allclose(wall_clock(seconds, name), clock, atol=1e-5)
    assert np.isnan(wall_clock(np.array([np.nan, 1e18]), "Europe/Rome")).tolist() == [True, False]


# ---- what users are told ---------------------------------------------------------------------------------------------


def test_columns_of_which_nothing_is_learnt_are_warned_of():
    X = pd.DataFrame({"a": VALUES, "same": 1, "name": [f"p{at}" for at in range(200)], "few": ["x", "y"] * 100})
    with pytest.warns(UserWarning, match="dropped") as caught:
        encoder = TableEncoder().fit(X)
    said = [str(one.message) for one in caught]
    assert len(said) == 2
    assert "column 'name' is text with more levels than half of the 200 rows" in said[0]
    assert "column 'same' is dropped" in said[1]
    assert encoder.kinds_.tolist() == ["number", "dropped", "dropped", "category"]
    with pytest.warns(UserWarning, match="dropped") as caught:
        AutoRegressor(time_budget=0.5, random_state=0).fit(X, VALUES)
    assert [str(one.message) for one in caught if one.category is UserWarning] == said  # once for three encodings
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder().fit(X[["a", "few"]])


def test_verbose_says_what_columns_were_taken_for(capfd):
    X = pd.DataFrame(
        {"a": [f"{european(value)} €" for value in VALUES], "day": DAYS.strftime("%d/%m/%Y"), "few": ["x", "y"] * 100}
    )
    AutoRegressor(time_budget=0.5, random_state=0, verbose=1).fit(X, VALUES)
    err = capfd.readouterr().err
    line = next(line for line in re.split("[\r\n]", err) if "columns: " in line)
    assert "columns: 1 number, 1 category, 1 date" in line
    assert "'a' is text read as numbers like '1.234,5 €'" in line
    assert "'day' is text read as dates, the day first" in line


def test_kinds_are_plain_strings():
    encoder = TableEncoder().fit(column(VALUES))
    assert repr(dict(zip(encoder.feature_names_in_, encoder.kinds_, strict=True))) == "{'a': 'number'}"


# ---- booleans --------------------------------------------------------------------------------------------------------


def test_booleans_may_come_as_words():
    encoder = TableEncoder().fit(column([True, False]))
    for yes, no in (("yes", "no"), ("Y", "N"), ("TRUE", "false"), ("1", "0"), ("on", "OFF"), ("t", "f"), (1.0, 0.0)):
        np.testing.assert_array_equal(encoder.transform(column([yes, no, None]))[:, 0], [0.5, -0.5, 0])
    for wrong in ("maybe", 2.0, DAYS[0]):
        with pytest.raises(ValueError, match=r"row 1 of column 'a' holds .*, which is neither true nor false"):
            encoder.transform(column([None, wrong]))


# ---- estimators of numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"a": ["x", "y"] * 20}),
        pd.DataFrame({"a": DAYS[:40]}),
        pl.DataFrame({"a": ["x", "y"] * 20}),
        pa.table({"a": ["x", "y"] * 20}),
        [["x"], ["y"]] * 20,
        np.array([["x"], ["y"]] * 20),
    ],
    ids=["pandas", "dates", "polars", "pyarrow", "lists", "array"],
)
def test_estimators_of_numbers_name_those_of_tables(X):
    with pytest.raises(ValueError, match="TableEncoder, or use AutoRegressor or AutoClassifier"):
        FalkonRegressor().fit(X, np.arange(40.0))


def test_thousands_of_named_columns_are_found_in_linear_time():
    class Counted(str):
        """A name that counts how often it is hashed."""

        hashed = 0
        __slots__ = ()

        def __hash__(self):
            Counted.hashed += 1
            return super().__hash__()

    d = 500
    X = pd.DataFrame(np.eye(3, d) + np.arange(d), columns=[f"c{at}" for at in range(d)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder = TableEncoder().fit(X)
    encoder.feature_names_in_ = np.array([Counted(name) for name in encoder.feature_names_in_], dtype=object)
    encoder.transform(X)
    assert 0 < Counted.hashed <= 10 * d
