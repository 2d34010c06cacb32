"""Sections of a report about single rows and columns, whose numbers are compared with those computed by hand."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from gyrfalcon import AutoRegressor, FalkonRegressor
from gyrfalcon.cli._closer_look import _GRID, dependence, intervals_by_fifths, worst_rows
from gyrfalcon.cli._page import number


class Brief:
    """A callback that ends the search after two candidates."""

    def on_iteration(self, record):
        return record["iteration"] >= 2


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(0)
    n = 200
    table = pd.DataFrame(
        {
            "noise": random.normal(size=n),
            "size": random.uniform(1, 2, n),
            "city": random.choice(["Genova", "Roma"], n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 100, n), unit="D"),
        }
    )
    table.loc[::23, "city"] = None
    y = 4 * table["size"] + 2 * (table["city"] == "Roma") + 0.02 * (table["day"] - table["day"].min()).dt.days
    model = AutoRegressor(time_budget=60, random_state=0, callbacks=Brief()).fit(table, y)
    return model, table, y.to_numpy()


def cells(html):
    return [re.sub("<[^>]*>", "", row) for row in re.findall("<td.*?</td>", html)]


def test_worst_rows(fitted):
    model, table, y = fitted
    errors = np.zeros(len(y))
    errors[[7, 23, 100]] = [2.0, 3.0, 1.0]
    html = worst_rows(model, table, y.tolist(), (y - errors).tolist(), errors, "error")
    first = cells(html)[: len(cells(html)) // 8]
    assert first[:4] == ["24", number(y[23]), number(y[23] - 3), "3"]
    assert number(table["size"][23]) in first
    assert "–" in first  # the city of row 23 is missing
    few = worst_rows(FalkonRegressor(), table, y[:2].tolist(), y[:2].tolist(), errors[:2], "error")
    assert len(cells(few)) == 8  # two rows of four numbers, and no columns


def test_intervals_by_fifths():
    predictions = np.arange(100.0)
    ends = np.stack([predictions - 1, predictions + 1], axis=1)
    y = predictions + np.where((predictions >= 80) & (predictions % 2 == 0), 5, 0)  # half of the last fifth is outside
    found = cells(intervals_by_fifths(y, ends, predictions))
    assert found[2::4] == ["100.0%"] * 4 + ["50.0%"]
    assert found[1::4] == ["20"] * 5
    assert found[0] == "0 to 19"
    assert intervals_by_fifths(y[:10], ends[:10], predictions[:10]) == ""


def test_dependence(fitted):
    model, table, _ = fitted
    html = dependence(model, table)
    assert html.count("<figure") == 3
    for city in ("Genova", "Roma"):  # the mean of predictions with this city in all rows
        mean = model.predict(table.assign(city=city)).mean()
        assert number(mean) in cells(html)
    assert "noise" not in html
    assert "days after 2024-01-0" in html
    assert html.count("<circle") <= 2 * _GRID
    assert dependence(FalkonRegressor(), table) == ""
    assert dependence(model, table[:1]) == ""
