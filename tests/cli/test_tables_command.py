"""The commands on tables as people have them: text, dates, gaps and hostile names, in real files and processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import gyrfalcon
from gyrfalcon._utils.version import package_version
from gyrfalcon.cli.main import main

HOSTILE = "<script>alert(\"x\")</script> & 'more'"
BUDGET = ["--time-budget", "1"]
VOID = {"meta", "circle", "line", "polyline", "rect", "br"}


def houses(n: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    area = random.uniform(30, 200, n).round()
    city = random.choice(["Genova", "Roma", "007"], n)
    days = random.integers(0, 20_000, n)
    price = area * (1 + (city == "Roma")) + 20 * (days > 10_000) + random.normal(0, 5, n)
    frame = pd.DataFrame(
        {
            "area": area,
            "city": city,
            "built": (pd.Timestamp("1960-01-01") + pd.to_timedelta(days, unit="D")).strftime("%Y-%m-%d"),
            HOSTILE: random.normal(size=n),
            "price": price,
            "dear": np.where(price > 150, "yes", "no"),
        }
    )
    frame.loc[::17, "area"] = np.nan
    frame.loc[::19, "city"] = None
    return frame


def command(folder, *arguments: str, code: int = 0) -> tuple[str, str]:
    """Run a command in this process, which is faster; give what it printed and its messages."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            found = main(list(arguments))
        except SystemExit as error:
            found = error.code
    assert found == code, err.getvalue()
    return out.getvalue(), err.getvalue()


def process(folder, *arguments: str, code: int = 0) -> tuple[str, str]:
    """Run a command in a process of its own; give what it printed and its messages."""
    done = subprocess.run(
        [sys.executable, "-m", "gyrfalcon", *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables, a model of numbers from CSV and one of labels from Parquet, each fitted once."""
    folder = tmp_path_factory.mktemp("tables")
    houses(250, 0).to_csv(folder / "train.csv", index=False)
    houses(250, 0).to_parquet(folder / "train.parquet")
    houses(120, 1).to_csv(folder / "test.csv", index=False)
    features = ["area", "city", "built", HOSTILE]
    process(
        folder, "fit", "train.csv", "--target", "price", "--features", ",".join(features), *BUDGET, "-o", "price.gyr"
    )
    out, err = process(
        folder, "fit", "train.parquet", "--target", "dear", "--features", ",".join(features), *BUDGET, "--holdout",
        "0.2", "-o", "dear.gyr", "--json",
    )  # fmt: skip
    assert "Classification: the target 'dear' is text" in err
    (folder / "dear.json").write_text(out)
    return folder


def test_the_model_is_what_save_writes(folder):
    model = gyrfalcon.load(folder / "price.gyr")
    assert type(model).__name__ == "AutoRegressor"
    assert list(model.feature_names_in_) == ["area", "city", "built", HOSTILE]
    assert model.encoders_[0].kinds_.tolist() == ["number", "category", "date", "number"]
    test = houses(120, 1)
    assert model.score(test[list(model.feature_names_in_)], test["price"]) > 0.5


def test_holdout_beside_a_linear_model_and_a_constant(folder):
    told = json.loads((folder / "dear.json").read_text())
    assert (told["task"], told["rows"], told["held_out"], told["on"]) == ("classification", 200, 50, "held out")
    assert set(told["metrics"]) == set(told["linear"]) == set(told["constant"]) == {"accuracy", "log_loss", "auc"}
    assert told["metrics"]["log_loss"] < told["constant"]["log_loss"]
    assert sum(told["importances"].values()) == pytest.approx(1)


def test_cross_validation_of_labels_is_in_accuracy_and_log_loss(folder):
    """Not relative to a constant's error, which no user could compare with anything."""
    options = ("--target", "dear", "--features", "area", *BUDGET, "-o", "plain.gyr")
    out, _ = command(folder, "fit", "train.csv", *options)
    scores = gyrfalcon.load(folder / "plain.gyr").cv_scores_
    shown = f"accuracy {scores['accuracy']:.5g}, log-loss {scores['log_loss']:.5g}"
    assert f"in cross-validation  {shown}" in out
    out, _ = command(folder, "inspect", "plain.gyr")
    assert f"; in cross-validation {shown}" in out
    told = json.loads(command(folder, "evaluate", "plain.gyr", "test.csv", "--json")[0])
    assert abs(told["accuracy"] - scores["accuracy"]) < 0.15  # three deviations of both shares
    assert abs(told["log_loss"] - scores["log_loss"]) < 0.3


def test_predictions_with_intervals(folder):
    out, _ = command(folder, "predict", "price.gyr", "test.csv", "--interval", "0.9")
    (folder / "out.csv").write_text(out)
    found, test = pd.read_csv(folder / "out.csv"), houses(120, 1)
    model = gyrfalcon.load(folder / "price.gyr")
    assert list(found.columns) == ["prediction", "lower", "upper"]
    X = test[list(model.feature_names_in_)]
    np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-4)
    np.testing.assert_allclose(found[["lower", "upper"]], model.predict_interval(X, 0.9), rtol=1e-3, atol=0.1)


def test_probabilities_are_named_by_class(folder):
    command(folder, "predict", "dear.gyr", "test.csv", "--proba", "-o", "proba.parquet")
    found = pd.read_parquet(folder / "proba.parquet")
    assert list(found.columns) == ["probability_no", "probability_yes"]
    np.testing.assert_allclose(found.sum(axis=1), 1)
    _, err = command(folder, "predict", "dear.gyr", "test.csv", "--interval", "0.9", code=2)
    assert "is an AutoClassifier" in err
    assert "--interval" in err


def test_text_that_looks_like_numbers_stays_text(folder):
    """A file whose cities are all 007 has a column of whole numbers, if nothing says otherwise."""
    rows = houses(120, 1)
    rows = rows[rows["city"] == "007"]
    rows.to_csv(folder / "bond.csv", index=False)
    out, _ = command(folder, "predict", "price.gyr", "bond.csv")
    model = gyrfalcon.load(folder / "price.gyr")
    expected = model.predict(rows[list(model.feature_names_in_)])
    np.testing.assert_allclose([float(line) for line in out.split()[1:]], expected, rtol=1e-4)


def test_evaluate_and_inspect(folder):
    told = json.loads(command(folder, "evaluate", "price.gyr", "test.csv", "--json", "-q")[0])
    assert told["rows"] == 120
    assert told["r2"] > 0.5
    assert "of the blend" in command(folder, "inspect", "price.gyr")[0]
    shares = json.loads(command(folder, "inspect", "dear.gyr", "--json")[0])["importances"]
    assert set(shares) == {"area", "city", "built", HOSTILE}


def test_a_missing_column_is_named(folder):
    houses(20, 2).drop(columns="city").to_csv(folder / "lacking.csv", index=False)
    for words in (["predict"], ["evaluate"], ["report"]):
        _, err = command(folder, *words, "price.gyr", "lacking.csv", code=1)
        assert "lacking.csv has no column 'city'" in err


def test_a_missing_target_says_the_row(folder):
    rows = houses(30, 3)
    rows.loc[[7, 9], "price"] = np.nan
    rows.to_csv(folder / "gaps.csv", index=False)
    _, err = command(folder, "fit", "gaps.csv", "--target", "price", "-o", "x.gyr", code=1)
    assert (
        "gaps.csv: column 'price' has no value in row 7 (counted from 0), line 9 of the file: remove such rows" in err
    )
    assert not (folder / "x.gyr").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--centers", "50"], "--centers is an option of --method falkon"),
        (["--no-scale"], "--no-scale is an option of --method falkon"),
        (["--method", "falkon", "--holdout", "0.2"], "--holdout is an option of --method auto"),
        (["--method", "falkon", "--time-budget", "5"], "--time-budget is an option of --method auto"),
        (["--holdout", "1.5"], "holdout=1.5"),
        (["--time-budget", "0"], "time_budget=0.0"),
        (["--holdout", "0.2", "--validation", "test.csv"], "choose one"),
    ],
)
def test_options_of_the_other_method_are_refused(folder, options, words):
    _, err = command(folder, "fit", "train.csv", "--target", "price", "-o", "x.gyr", *options, code=2)
    assert words in err


def test_a_file_larger_than_memory(folder):
    with open(folder / "huge.csv", "w") as file:
        file.write("a,b\n1,2\n3,4\n")
        file.write("\n" * (1 << 22))
    os.truncate(folder / "huge.csv", 1 << 42)  # takes no room on the disk
    _, err = command(folder, "fit", "huge.csv", "--target", "b", "-o", "x.gyr", code=1)
    assert "--method falkon" in err
    assert "memory" in err
    os.remove(folder / "huge.csv")


# ---- the report ------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Tags that close in the order in which they open; links and scripts are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("href", "src", "xlink:href", "action")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("model", ["price.gyr", "dear.gyr"])
def test_the_report_is_one_sound_page(folder, model):
    process(folder, "report", model, "test.csv", "-o", "report.html")
    text = (folder / "report.html").read_text()
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert page.addresses == []
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "script" not in page.tags
    words = " ".join(page.words)
    for said in ("The largest errors", "How predictions depend on columns", f"gyrfalcon {package_version()}"):
        assert said in words
    assert ("Coverage of the intervals" in words) == (model == "price.gyr")
    assert "<script" not in text
    assert HOSTILE in page.words  # as the name of a column, to be read
    words = " ".join(page.words)
    for title in ("Advice", "Why predictions differ", "Which columns matter", "What was tried", "What predicts"):
        assert title in words
    assert ("90% intervals" if model == "price.gyr" else "Calibration") in words
    assert [name for name in os.listdir(folder) if "report" in name] == ["report.html"]


def test_the_report_of_a_falkon_model(folder):
    for task, target in (("regression", "area"), ("classification", "dear")):
        rows = houses(250, 0).fillna({"area": 100.0})
        rows.to_csv(folder / "full.csv", index=False)
        command(
            folder, "fit", "full.csv", "--method", "falkon", "--target", target, "--features", "price",
            "--centers", "20", "--task", task, "-o", "falkon.gyr",
        )  # fmt: skip
        out, _ = command(folder, "report", "falkon.gyr", "full.csv", "-o", "falkon.html", "--json")
        assert json.loads(out)["rows"] == 250
        page = Page()
        page.feed((folder / "falkon.html").read_text())
        assert page.open == []
        assert "How it was fitted" in page.words
        assert "Why predictions differ" in page.words
        assert any("Shapley values of 60 rows" in words for words in page.words)
        assert any(words.startswith("highest, row ") for words in page.words)


def test_advice_about_unknown_labels_and_a_leak(folder):
    rows = houses(60, 5)
    rows.loc[:3, "dear"] = "perhaps"
    rows.to_csv(folder / "odd.csv", index=False)
    told = json.loads(command(folder, "report", "dear.gyr", "odd.csv", "-o", "odd.html", "--json")[0])
    assert any("perhaps" in words for words in told["advice"])
    assert any("only 60 rows:" in words for words in told["advice"])
    _, err = command(folder, "report", "dear.gyr", "odd.csv", "-o", "odd.csv", code=2)
    assert "must end in .html" in err


# ---- how CSV files are written ---------------------------------------------------------------------------------------


def cities(n: int = 120) -> pd.DataFrame:
    random = np.random.default_rng(3)
    city = random.choice(["Málaga", "Köln", "Genova"], n)
    frame = pd.DataFrame({"città": city, "size": random.uniform(1, 5000, n).round(2)})
    return frame.assign(code=[f"{at % 12 * 37:05d}" for at in range(n)], price=frame["size"] + 2000 * (city == "Köln"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings_in_every_command(tmp_path, encoding):
    cities().to_csv(tmp_path / "rows.csv", index=False, encoding=encoding)
    options = ["--encoding", "latin-1"] if encoding == "latin-1" else []
    command(tmp_path, "fit", "rows.csv", "--target", "price", *BUDGET, "-q", "-o", "m.gyr", *options)
    model = gyrfalcon.load(tmp_path / "m.gyr")
    assert model.encoders_[0].categories_[0].levels_ == ["Genova", "Köln", "Málaga"]
    assert model.encoders_[0].kinds_.tolist() == ["category", "number", "category"]  # codes keep their zeros
    out, _ = command(tmp_path, "evaluate", "m.gyr", "rows.csv", "--json", *options)
    assert json.loads(out)["r2"] > 0.9
    command(tmp_path, "predict", "m.gyr", "rows.csv", "-q", *options)
    command(tmp_path, "report", "m.gyr", "rows.csv", "-q", *options)
    if options:
        for words in (
            ("fit", "rows.csv", "--target", "price", "-o", "n.gyr"),
            ("fit", "rows.csv", "--target", "price", "--features", "size", "--method", "falkon", "-o", "n.gyr"),
            ("predict", "m.gyr", "rows.csv"),
            ("evaluate", "m.gyr", "rows.csv"),
            ("report", "m.gyr", "rows.csv"),
        ):
            _, err = command(tmp_path, *words, code=1)
            assert "rows.csv is not text in UTF-8: see line 1." in err
            assert "--encoding latin-1" in err


@pytest.mark.parametrize("method", ["auto", "falkon"])
def test_the_european_export(tmp_path, method):
    frame = cities() if method == "auto" else cities()[["size", "price"]]
    text = frame.assign(
        **{
            name: [f"{value:,.2f}".translate(str.maketrans(",.", ".,")) for value in frame[name]]
            for name in ("size", "price")
        }
    )
    text.to_csv(tmp_path / "rows.csv", index=False, sep=";", encoding="utf-8-sig", lineterminator="\r\n")
    options = [] if method == "auto" else ["--thousands", "."]
    found = BUDGET if method == "auto" else ["--method", "falkon", "--penalty", "1e-6"]
    command(tmp_path, "fit", "rows.csv", "--target", "price", *found, "-q", "-o", "m.gyr", *options)
    errors = []
    frame.to_csv(tmp_path / "plain.csv", index=False)
    for name, given in (("rows.csv", options), ("plain.csv", [])):
        out, _ = command(tmp_path, "evaluate", "m.gyr", name, "--json", *given)
        errors.append(json.loads(out)["rmse"])
    assert errors[0] == pytest.approx(errors[1], rel=1e-9)
    command(tmp_path, "report", "m.gyr", "rows.csv", "-q", *options)


def test_a_target_of_text_is_numbers_if_it_looks_so(tmp_path):
    frame = cities()
    frame["price"] = [f"$ {value:,.2f}" for value in frame["price"]]
    frame.to_parquet(tmp_path / "rows.parquet")
    _, err = command(tmp_path, "fit", "rows.parquet", "--target", "price", *BUDGET, "-o", "m.gyr")
    assert "The target 'price' is text, and read as numbers like '1,234.5 $'." in err
    out, _ = command(tmp_path, "evaluate", "m.gyr", "rows.parquet", "--json")
    assert json.loads(out)["r2"] > 0.9
    frame["price"] = [f"{at % 3}" for at in range(len(frame))]  # few different values are labels
    frame.to_parquet(tmp_path / "rows.parquet")
    _, err = command(tmp_path, "fit", "rows.parquet", "--target", "price", *BUDGET, "-o", "m.gyr")
    assert "Classification: the target 'price' is text." in err


def test_time_zones_of_files(tmp_path):
    moments = pd.date_range("2021-01-01", periods=300, freq="5h", tz="Europe/Rome")
    hours = np.cos(2 * np.pi * moments.hour / 24)
    frame = pd.DataFrame({"when": moments, "y": hours})
    frame.to_parquet(tmp_path / "rome.parquet")
    frame.assign(when=moments.tz_convert("Asia/Tokyo")).to_parquet(tmp_path / "tokyo.parquet")
    frame.assign(when=moments.tz_convert("UTC")).to_csv(tmp_path / "utc.csv", index=False)
    frame.assign(when=moments.tz_localize(None)).to_parquet(tmp_path / "naive.parquet")
    command(tmp_path, "fit", "rome.parquet", "--target", "y", *BUDGET, "-q", "-o", "m.gyr")
    found = [
        json.loads(command(tmp_path, "evaluate", "m.gyr", name, "--json")[0])["r2"]
        for name in ("rome.parquet", "tokyo.parquet", "utc.csv")
    ]
    assert found[0] > 0.9
    assert found == pytest.approx([found[0]] * 3, abs=1e-6)
    _, err = command(tmp_path, "evaluate", "m.gyr", "naive.parquet", code=1)
    assert "column 'when' holds dates without a time zone" in err


def test_options_of_csv_files_are_checked(tmp_path):
    cities().to_parquet(tmp_path / "rows.parquet")
    cities().to_csv(tmp_path / "rows.csv", index=False)
    for words, said in (
        (["rows.parquet", "--encoding", "latin-1"], "--encoding latin-1 is for CSV files"),
        (["rows.csv", "--encoding", "klingon"], "--encoding klingon is not known"),
        (["rows.csv", "--decimal", "x"], "--decimal x must be"),
        (["rows.csv", "--thousands", "x"], "--thousands x must be one of"),
    ):
        _, err = command(tmp_path, "fit", *words, "--target", "price", "-o", "m.gyr", code=2)
        assert said in err
