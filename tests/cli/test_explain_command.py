"""``gyrfalcon explain``: the file it writes, for models of numbers and of tables."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor, FalkonRegressor, shapley_values
from gyrfalcon.cli.main import main
from tables.short_search import Brief

rng = np.random.default_rng(0)


def frame(n=120):
    table = pd.DataFrame({"area": rng.uniform(30, 200, n).round(), "age": rng.uniform(0, 50, n).round(1)})
    return table.assign(city=rng.choice(["Roma", "Genova"], n))


def explained(model, table, folder, *options):
    gyrfalcon.save(model, folder / "model.gyr")
    table.to_csv(folder / "rows.csv", index=False)
    names = [str(folder / name) for name in ("model.gyr", "rows.csv", "why.csv")]
    code = main(["explain", *names[:2], "-o", names[2], "--quiet", *options])
    assert code == 0
    return pd.read_csv(folder / "why.csv")


def test_numbers(tmp_path, capsys):
    table = frame()[["area", "age"]]
    y = table["area"] - table["age"]
    model = FalkonRegressor("gaussian", dtype="float64", random_state=0).fit(table, y)
    found = explained(model, table[:30], tmp_path, "--json", "--background", "10")
    assert list(found) == ["prediction", "base_value", "area", "age"]
    np.testing.assert_allclose(found["prediction"], model.predict(table[:30]), atol=1e-8)
    chosen = np.linspace(0, 29, 10).astype(int)
    expected = shapley_values(model, table[:30], table.iloc[chosen]).values
    np.testing.assert_allclose(found[["area", "age"]], expected, atol=1e-8)
    told = json.loads(capsys.readouterr().out)
    assert told["exact"] is True
    assert told["rows"] == 30


def test_tables(tmp_path):
    table = frame()
    y = table["area"] * (1 + (table["city"] == "Roma"))
    model = AutoRegressor(time_budget=30, families=("kernel",), callbacks=Brief(), random_state=0).fit(table, y)
    found = explained(model, table[:20], tmp_path)
    assert list(found) == ["prediction", "base_value", "area", "age", "city"]
    np.testing.assert_allclose(found.iloc[:, 1:].sum(axis=1), found["prediction"], atol=1e-8)


def test_classes(tmp_path):
    table = frame()
    labels = np.array(["low", "mid", "high"])[np.digitize(table["area"], [80, 140])]
    model = AutoClassifier(time_budget=30, families=("kernel",), callbacks=Brief(), random_state=0).fit(table, labels)
    found = explained(model, table[:5], tmp_path)
    expected = model.decision_function(table[:5])
    np.testing.assert_allclose(found[[f"prediction [{one}]" for one in model.classes_]], expected, atol=1e-6)


@pytest.mark.parametrize("wrong", [["-o", "why.txt"], ["-o", "why.csv", "--background", "0"]])
def test_errors(wrong, tmp_path, capsys):
    assert main(["explain", str(tmp_path / "model.gyr"), "rows.csv", *wrong]) != 0
    assert "must" in capsys.readouterr().err
