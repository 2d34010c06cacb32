"""``gyrfalcon predict``, ``evaluate`` and ``inspect``: what Python says of the same model, to the last digit."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

import gyrfalcon
from gyrfalcon import (
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
    RandomFeaturesClassifier,
)
from gyrfalcon.cli._shared import CountedRows
from gyrfalcon.cli.main import main
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.testing import check_rows

N = 500


def make(n: int = N, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    X = random.uniform(-2, 2, (n, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * random.standard_normal(n)
    frame = pd.DataFrame({"note": np.arange(n).astype(str), "b": X[:, 1], "y": y, "a": X[:, 0]})
    return frame.assign(
        label=np.where(y > 1, "high", "low"),
        kind=np.array(["x", "y", "z"])[np.digitize(y, [0.5, 1.5])],
        w=random.uniform(0.5, 2, n),
    )


@pytest.fixture(autouse=True)
def new(tmp_path, monkeypatch) -> pd.DataFrame:
    """Rows that no model has seen, also as a file."""
    monkeypatch.chdir(tmp_path)
    frame = make(seed=1)
    frame.to_parquet("new.parquet")
    return frame


def fitted(target: str | list[str], cls=FalkonRegressor, **parameters):
    """A model, also as a file as gyrfalcon fit writes it."""
    train = make()
    names = [target] if isinstance(target, str) else target
    options = {"n_centers": 40, "random_state": 0} | parameters
    model = cls(**options).fit(train[["a", "b"]], train[target])
    model.target_names_ = np.array(names, dtype=object)
    model.save("model.gyr")
    return model


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    return code, *capsys.readouterr()


def evaluated(capsys, *arguments: str) -> dict:
    code, out, err = run(capsys, "evaluate", "model.gyr", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


# ---- predict ---------------------------------------------------------------------------------------------------------


def test_predictions_on_standard_output(capsys, new):
    model = fitted("y")
    code, out, err = run(capsys, "predict", "model.gyr", "new.parquet")
    assert (code, err) == (0, "")
    # columns are found by name: they are in another order here, between others
    printed = pd.read_csv(io.StringIO(out), float_precision="round_trip")
    assert list(printed.columns) == ["prediction"]
    np.testing.assert_array_equal(printed["prediction"], model.predict(new[["a", "b"]]))


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.npy"])
def test_predictions_in_a_file(capsys, new, name):
    model = fitted("y")
    code, out, _ = run(capsys, "predict", "model.gyr", "new.parquet", "-o", name)
    assert code == 0
    assert out.startswith(f"{N} predictions written to {name}")
    if name.endswith(".npy"):
        values = np.load(name)
    elif name.endswith(".csv"):
        values = pd.read_csv(name, float_precision="round_trip")["prediction"].to_numpy()
    else:
        values = pd.read_parquet(name)["prediction"].to_numpy()
    np.testing.assert_array_equal(values, model.predict(new[["a", "b"]]))


def test_labels_probabilities_and_decisions(capsys, new):
    model = fitted("kind", FalkonClassifier, loss="logistic")
    X = new[["a", "b"]]
    _, out, _ = run(capsys, "predict", "model.gyr", "new.parquet")
    assert out.splitlines()[1:] == model.predict(X).tolist()
    _, out, _ = run(capsys, "predict", "model.gyr", "new.parquet", "--proba")
    printed = pd.read_csv(io.StringIO(out), float_precision="round_trip")
    assert list(printed.columns) == ["probability_x", "probability_y", "probability_z"]
    np.testing.assert_array_equal(printed.to_numpy(), model.predict_proba(X))
    assert run(capsys, "predict", "model.gyr", "new.parquet", "--decision", "-o", "out.npy")[0] == 0
    np.testing.assert_array_equal(np.load("out.npy"), model.decision_function(X))


def test_json_of_predictions(capsys):
    fitted("y")
    code, out, err = run(capsys, "predict", "model.gyr", "new.parquet", "-o", "out.npy", "--json", "-q")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["output"], report["method"], report["rows"]) == ("out.npy", "predict", N)


def test_predictions_from_files_without_names(capsys, new):
    model = fitted("y")
    expected = model.predict(new[["a", "b"]])
    np.save("new.npy", new[["a", "b"]].to_numpy())
    assert run(capsys, "predict", "model.gyr", "new.npy", "-o", "out.npy")[0] == 0
    np.testing.assert_array_equal(np.load("out.npy"), expected)
    np.save("new.npy", new[["y", "a", "b"]].to_numpy())
    code, _, err = run(capsys, "predict", "model.gyr", "new.npy", "-o", "out.npy")
    assert code == 1
    assert "gives 3 features" in err
    assert "--features" in err
    assert run(capsys, "predict", "model.gyr", "new.npy", "-o", "out.npy", "--features", "1,2", "--n-jobs", "1")[0] == 0
    np.testing.assert_array_equal(np.load("out.npy"), expected)


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["nowhere.gyr", "new.parquet"], 1, "nowhere.gyr"),
        (["new.parquet", "new.parquet"], 1, "new.parquet"),
        (["model.gyr", "nowhere.csv"], 1, "nowhere.csv does not exist"),
        (["model.gyr", "part.parquet"], 1, "no column 'b' for features"),
        (["model.gyr", "new.parquet", "--proba"], 2, "predicts numbers and not labels"),
        (["model.gyr", "new.parquet", "--decision"], 2, "predicts numbers and not labels"),
        (["model.gyr", "new.parquet", "--json"], 2, "--output"),
        (["model.gyr", "new.parquet", "--features", "b,a"], 2, "fitted to a, b, in that order"),
        (["model.gyr", "new.parquet", "--features", "a"], 2, "fitted to a, b, in that order"),
        (["model.gyr", "new.parquet", "-o", "new.parquet"], 2, "--output new.parquet"),
        (["model.gyr", "new.parquet", "-o", "model.gyr"], 2, "--output model.gyr"),
        (["model.gyr", "new.parquet", "-o", "out.json"], 2, "--output out.json must end in .parquet"),
        (["model.gyr", "new.parquet", "-o", "no/out.csv"], 1, "--output no/out.csv"),
    ],
)
def test_wrong_predictions(capsys, new, arguments, code, named):
    fitted("y")
    new[["a", "y"]].to_parquet("part.parquet")
    before = {name: Path(name).read_bytes() for name in os.listdir()}
    got, out, err = run(capsys, "predict", *arguments, "-q")
    assert (got, out) == (code, "")
    (line,) = err.splitlines()
    assert named in line
    assert {name: Path(name).read_bytes() for name in os.listdir()} == before


def test_predictions_do_not_go_among_the_data(capsys, new):
    fitted("y")
    os.mkdir("parts")
    new.to_parquet("parts/0.parquet")
    code, _, err = run(capsys, "predict", "model.gyr", "parts", "-o", "parts/out.parquet")
    assert code == 2
    assert "folder of data" in err
    assert os.listdir("parts") == ["0.parquet"]
    assert run(capsys, "predict", "model.gyr", "parts", "-o", "parts.parquet")[0] == 0


def test_no_probabilities_from_the_squared_loss(capsys):
    fitted("label", FalkonClassifier)
    code, _, err = run(capsys, "predict", "model.gyr", "new.parquet", "--proba")
    assert code == 2
    assert "--loss logistic" in err


def test_bars_where_somebody_looks(capsys, monkeypatch, new):
    model = fitted("y")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    code, _, err = run(capsys, "predict", "model.gyr", "new.parquet", "-o", "out.npy")
    assert code == 0
    assert "/500 [" in err
    np.testing.assert_array_equal(np.load("out.npy"), model.predict(new[["a", "b"]]))
    code, out, err = run(capsys, "evaluate", "model.gyr", "new.parquet", "--json")
    assert "Predicting:" in err
    assert json.loads(out)["r2"] == pytest.approx(model.score(new[["a", "b"]], new["y"]), rel=1e-12)
    assert run(capsys, "evaluate", "model.gyr", "new.parquet", "--quiet")[2] == ""


def test_a_bar_counts_rows_as_they_are_read(new):
    class Bar:
        count = initial = 0
        text = ""

        @property
        def n(self):
            return self.count

        def update(self, n):
            self.count += n

        def set_postfix_str(self, text, refresh):
            self.text = text

    rows = gyrfalcon.open("new.parquet", features=["a", "b"]).X
    counted = CountedRows(rows, Bar())
    check_rows(counted)
    counted.bar.count = 0
    counts = [counted.bar.count for _ in counted.blocks(200)]
    assert counts == [0, 200, 400]  # a block counts when the next one is asked for
    assert counted.bar.count == N
    assert counted.feature_names == ["a", "b"]
    assert counted.bar.text == ""
    continued = CountedRows(rows, Bar(), file_bytes=4 * 10**9)
    assert [continued.bar.count for _ in continued.blocks_from(200, 400)] == [400]
    assert (continued.bar.initial, continued.bar.count, continued.bar.text) == (400, N, "4.00 of 4.00 GB")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell")
@pytest.mark.slow
def test_head_is_enough(new):
    fitted("y")
    pd.concat([new] * 400).to_parquet("new.parquet")
    package = str(Path(gyrfalcon.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    command = f'"{sys.executable}" -m gyrfalcon predict model.gyr new.parquet | head -n 2'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.stdout.splitlines()[0] == "prediction"
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""


# ---- evaluate --------------------------------------------------------------------------------------------------------


def test_numbers(capsys, new):
    model = fitted("y")
    p = model.predict(new[["a", "b"]])
    report = evaluated(capsys, "new.parquet")  # which column is the target is known from the fit
    assert report["target"] == ["y"]
    assert report["rows"] == N
    assert report["rmse"] == pytest.approx(np.sqrt(np.mean((p - new["y"]) ** 2)), rel=1e-12)
    assert report["mae"] == pytest.approx(np.mean(np.abs(p - new["y"])), rel=1e-12)
    assert report["r2"] == pytest.approx(model.score(new[["a", "b"]], new["y"]), rel=1e-12)
    weighted = evaluated(capsys, "new.parquet", "--target", "y", "--weight", "w")
    assert weighted["rmse"] == pytest.approx(np.sqrt(np.average((p - new["y"]) ** 2, weights=new["w"])), rel=1e-12)


def test_for_people(capsys, new):
    model = fitted("y")
    code, out, _ = run(capsys, "evaluate", "model.gyr", "new.parquet")
    rmse = np.sqrt(np.mean((model.predict(new[["a", "b"]]) - new["y"]) ** 2))
    assert code == 0
    assert [line.split() for line in out.splitlines()][:2] == [["rows", "500"], ["RMSE", f"{rmse:.5g}"]]


def test_several_targets(capsys, new):
    model = fitted(["y", "w"])
    report = evaluated(capsys, "new.parquet")
    assert report["r2"] == pytest.approx(model.score(new[["a", "b"]], new[["y", "w"]]), rel=1e-12)
    code, _, err = run(capsys, "evaluate", "model.gyr", "new.parquet", "--target", "y")
    assert code == 1
    assert "predicts 2 targets" in err


def test_quantiles(capsys, new):
    model = fitted("y", loss="quantile", quantiles=[0.1, 0.9])
    p = model.predict(new[["a", "b"]])
    for j, row in enumerate(evaluated(capsys, "new.parquet")["quantiles"]):
        level = [0.1, 0.9][j]
        assert row["level"] == level
        pinball = metrics.mean_pinball_loss(new["y"], p[:, j], alpha=level)
        assert row["pinball_loss"] == pytest.approx(pinball, rel=1e-12)
        assert row["share_below"] == np.mean(new["y"] <= p[:, j])
    assert "quantile 0.9" in run(capsys, "evaluate", "model.gyr", "new.parquet")[1]


@pytest.mark.parametrize("target", ["label", "kind"])
def test_labels_with_probabilities(capsys, new, target):
    model = fitted(target, FalkonClassifier, loss="logistic")
    P = model.predict_proba(new[["a", "b"]])
    report = evaluated(capsys, "new.parquet")
    assert report["accuracy"] == model.score(new[["a", "b"]], new[target])
    assert report["log_loss"] == pytest.approx(metrics.log_loss(new[target], P), rel=1e-9)
    auc = metrics.roc_auc_score(new[target], P[:, 1] if target == "label" else P, multi_class="ovr")
    # probabilities that round to the same number are ties, and their logarithms are not
    assert report["auc"] == pytest.approx(auc, abs=1e-3)


def test_labels_without_probabilities(capsys, new):
    model = fitted("label", FalkonClassifier)
    report = evaluated(capsys, "new.parquet")
    assert report["accuracy"] == model.score(new[["a", "b"]], new["label"])
    auc = metrics.roc_auc_score(new["label"] == model.classes_[1], model.decision_function(new[["a", "b"]]))
    assert report["auc"] == pytest.approx(auc, abs=1e-12)
    assert "log_loss" not in report
    model = fitted("kind", FalkonClassifier)
    assert evaluated(capsys, "new.parquet")["accuracy"] == model.score(new[["a", "b"]], new["kind"])


def test_labels_that_the_model_does_not_know(capsys, new):
    model = fitted("kind", FalkonClassifier, loss="logistic")
    some = np.where(np.arange(N) < 50, "other", new["kind"])
    new.assign(kind=some).to_parquet("new.parquet")
    report = evaluated(capsys, "new.parquet")
    assert report["accuracy"] == np.mean(model.predict(new[["a", "b"]]) == some)
    assert report["log_loss"] is None
    assert report["auc"] is None
    assert "log-loss  undefined" in run(capsys, "evaluate", "model.gyr", "new.parquet")[1]
    new.assign(kind=np.arange(N) % 3).to_parquet("new.parquet")
    code, _, err = run(capsys, "evaluate", "model.gyr", "new.parquet")
    assert code == 1
    assert "none that the model knows" in err


def test_one_label_has_no_ranking(capsys, new):
    fitted("label", FalkonClassifier)
    new[new["label"] == "high"].to_parquet("new.parquet")
    assert evaluated(capsys, "new.parquet")["auc"] is None


def test_a_target_that_is_not_known(capsys):
    train = make()
    FalkonRegressor(n_centers=20).fit(train[["a", "b"]], train["y"]).save("model.gyr")
    code, _, err = run(capsys, "evaluate", "model.gyr", "new.parquet")
    assert code == 2
    assert "--target" in err
    code, _, err = run(capsys, "evaluate", "model.gyr", "new.parquet", "--target", "price")
    assert code == 1
    assert "no column 'price'" in err
    code, _, err = run(capsys, "evaluate", "model.gyr", "new.parquet", "--target", "label")
    assert code == 1
    assert "--target" in err


def test_one_row(capsys, new):
    fitted("y")
    new[:1].to_parquet("new.parquet")
    report = evaluated(capsys, "new.parquet")
    assert report["r2"] is None
    assert report["rmse"] == report["mae"]


def test_fit_evaluate_predict_without_names(capsys, new):
    np.save("train.npy", make()[["a", "b", "y"]].to_numpy())
    np.save("new.npy", new[["a", "b", "y"]].to_numpy())
    code, _, err = run(
        capsys, "fit", "--method", "falkon", "train.npy", "--target", "-1", "--centers", "40", "-o", "model.gyr"
    )
    assert code == 0, err
    model = gyrfalcon.load("model.gyr")
    p = model.predict(new[["a", "b"]].to_numpy())
    assert evaluated(capsys, "new.npy")["rmse"] == pytest.approx(np.sqrt(np.mean((p - new["y"]) ** 2)), rel=1e-12)


# ---- inspect ---------------------------------------------------------------------------------------------------------


def test_inspect(capsys):
    model = fitted("y", kernel=Gaussian(1.5) + Linear(), scale=True, penalty=1e-4)
    code, out, _ = run(capsys, "inspect", "model.gyr", "--json")
    assert code == 0
    report = json.loads(out)
    expected = {
        "class": "FalkonRegressor",
        "target": ["y"],
        "classes": None,
        "n_features": 2,
        "features": ["a", "b"],
        "n_centers": 40,
        "dtype": "float64",
        "penalty": 1e-4,
        "scaled": True,
        "n_iter": model.n_iter_,
        "bytes": os.path.getsize("model.gyr"),
    }
    assert expected.items() <= report.items()
    gaussian, linear = {"name": "Gaussian", "length_scale": 1.5}, {"name": "Linear"}
    assert report["kernel"] == {"name": "Sum", "k1": gaussian, "k2": linear}
    assert report["parameters"]["random_state"] == 0
    code, out, _ = run(capsys, "inspect", "model.gyr")
    assert code == 0
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert lines["centers"].strip() == "40 x 2 in float64"
    assert lines["features"].strip() == "2: a, b, scaled to mean 0 and deviation 1"
    assert lines["kernel"].strip() == "Gaussian(length_scale=1.5) + Linear()"


def test_what_inspect_prints_of_a_kernel_can_be_typed(capsys):
    fitted("y", kernel=Gaussian([1.5, 2.0]) * (2.0 + Linear()))
    text = next(line for line in run(capsys, "inspect", "model.gyr")[1].splitlines() if line.startswith("kernel"))
    make().to_parquet("train.parquet")
    options = ["--target", "y", "--features", "a,b", "--centers", "40", "--kernel", text.removeprefix("kernel").strip()]
    code, _, err = run(capsys, "fit", "--method", "falkon", "train.parquet", *options, "-o", "again.gyr")
    assert code == 0, err
    np.testing.assert_array_equal(gyrfalcon.load("again.gyr").dual_coef_, gyrfalcon.load("model.gyr").dual_coef_)


def test_inspect_labels_and_losses(capsys):
    fitted("kind", FalkonClassifier, loss="logistic", kernel=Gaussian([1.0, 2.0]))
    report = json.loads(run(capsys, "inspect", "model.gyr", "--json")[1])
    assert report["classes"] == ["x", "y", "z"]
    assert report["loss"] == {"name": "Softmax"}
    assert report["kernel"]["length_scale"] == [1.0, 2.0]
    assert "x, y, z" in run(capsys, "inspect", "model.gyr")[1]


@pytest.mark.parametrize(
    ("cls", "target"),
    [
        (ExactRegressor, "y"),
        (HierarchicalRegressor, "y"),
        (HierarchicalClassifier, "kind"),
        (RandomFeaturesClassifier, "kind"),
    ],
)
def test_models_of_other_kinds(capsys, new, cls, target):
    train = make()
    model = cls(random_state=0).fit(train[["a", "b"]], train[target])
    model.save("model.gyr")
    code, out, _ = run(capsys, "inspect", "model.gyr", "--json")
    assert code == 0
    assert json.loads(out)["class"] == cls.__name__
    assert run(capsys, "inspect", "model.gyr")[0] == 0
    report = evaluated(capsys, "new.parquet", "--target", target)
    score = model.score(new[["a", "b"]], new[target])
    assert report["r2" if target == "y" else "accuracy"] == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize("damage", ["cut", "text", "missing"])
def test_inspect_of_what_is_no_model(capsys, damage):
    fitted("y")
    if damage == "cut":
        Path("model.gyr").write_bytes(Path("model.gyr").read_bytes()[:-20])
    elif damage == "text":
        Path("model.gyr").write_text("import os")
    else:
        os.unlink("model.gyr")
    for command in (["inspect", "model.gyr"], ["evaluate", "model.gyr", "new.parquet"]):
        code, out, err = run(capsys, *command)
        assert (code, out) == (1, "")
        assert err.startswith("gyrfalcon: error: cannot load 'model.gyr': ")
        assert ("there is no such file" if damage == "missing" else "it is not a model file") in err
        assert len(err.splitlines()) == 1
