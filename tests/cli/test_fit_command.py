"""``gyrfalcon fit``: the same model as by the Python API, from every kind of file, and clear words where it cannot."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gyrfalcon
from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon.cli.main import main
from gyrfalcon.kernels import Constant, Gaussian, Laplacian, Linear, Matern, Polynomial
from gyrfalcon.storage.checkpoints import Checkpoint

# five Newton steps are few, in the command as in Python
pytestmark = pytest.mark.filterwarnings("ignore:5 Newton steps were not enough")

FIT = ("fit", "--method", "falkon")
N = 400
SMALL = ["--features", "a,b", "--centers", "30", "--max-iter", "5"]


def make(n: int = N, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    X = random.uniform(-2, 2, (n, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.05 * random.standard_normal(n)
    return pd.DataFrame(
        {
            "a": X[:, 0],
            "b": X[:, 1],
            "y": y,
            "z": X[:, 0] - y,
            "label": np.where(y > 1, "high", "low"),
            "yes": y > 1,
            "kind": np.digitize(y, [0, 1]),
            "count": random.poisson(np.exp(X[:, 0])),
            "w": random.uniform(0.5, 2, n),
        }
    )


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    frame = make()
    frame.to_parquet("train.parquet")
    return frame


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    return code, *capsys.readouterr()


def fit(capsys, *arguments: str):
    """Fit, and give the model that was written and the messages."""
    code, _, err = run(capsys, *FIT, *arguments, "-o", "model.gyr")
    assert code == 0, err
    return gyrfalcon.load("model.gyr"), err


def same(model, expected) -> None:
    assert type(model) is type(expected)
    np.testing.assert_array_equal(model.centers_, expected.centers_)
    np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)


def X_of(frame):
    return frame[["a", "b"]].to_numpy()


# ---- files -----------------------------------------------------------------------------------------------------------


def test_parquet_as_in_python(capsys, table):
    model, _ = fit(capsys, "train.parquet", "--target", "y", *SMALL)
    data = gyrfalcon.open("train.parquet", target="y", features=["a", "b"])
    expected = FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(data.X, data.y)
    same(model, expected)
    same(model, FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table["y"]))
    assert list(model.feature_names_in_) == ["a", "b"]
    assert list(model.target_names_) == ["y"]


def test_csv(capsys, table):
    table.to_csv("train.csv", index=False)
    model, _ = fit(capsys, "train.csv", "--target", "y", *SMALL)
    same(model, FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table["y"]))


def test_npy_with_the_target_in_a_column(capsys, table):
    np.save("train.npy", table[["a", "b", "y"]].to_numpy())
    expected = FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table["y"])
    options = ["--centers", "30", "--max-iter", "5"]
    same(fit(capsys, "train.npy", "--target", "-1", *options)[0], expected)
    same(fit(capsys, "train.npy", "--target", "2", "--features", "0,1", *options)[0], expected)
    np.save("X.npy", X_of(table))
    np.save("y.npy", table["y"].to_numpy())
    same(fit(capsys, "X.npy", "--target", "y.npy", *options)[0], expected)


def test_hdf5(capsys, table):
    h5py = pytest.importorskip("h5py")
    with h5py.File("train.h5", "w") as file:
        file["rows"], file["y"] = X_of(table), table["y"].to_numpy()
    options = ["--features", "rows", "--centers", "30", "--max-iter", "5"]
    model, _ = fit(capsys, "train.h5", "--target", "y", *options)
    same(model, FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table["y"]))


def test_folder_pattern_and_several_files(capsys, table):
    os.mkdir("parts")
    table[:150].to_parquet("parts/0.parquet")
    table[150:].to_parquet("parts/1.parquet")
    expected = FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table["y"])
    for data in (["parts"], ["parts/*.parquet"], ["parts/0.parquet", "parts/1.parquet"]):
        same(fit(capsys, *data, "--target", "y", *SMALL)[0], expected)


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--kernel", "laplacian"], {"kernel": "laplacian"}),
        (["--kernel", "laplacian", "--length-scale", "1.5"], {"kernel": Laplacian(1.5)}),
        (["--kernel", "laplacian(norm=1)"], {"kernel": Laplacian(norm=1)}),
        (["--kernel", "laplacian(norm=1)", "--length-scale", "1.5"], {"kernel": Laplacian(1.5, norm=1)}),
        (["--kernel", "0.5 * laplacian(2.0, norm=1) + linear"], {"kernel": 0.5 * Laplacian(2.0, norm=1) + Linear()}),
        (["--length-scale", "1,2.5"], {"kernel": Gaussian([1.0, 2.5])}),
        (["--kernel", "matern", "--nu", "2.5"], {"kernel": Matern(nu=2.5)}),
        (["--kernel", "Matern(nu=2.5, length_scale=2)"], {"kernel": Matern(2, nu=2.5)}),
        (["--kernel", "poly", "--degree", "2"], {"kernel": Polynomial(degree=2)}),
        (["--kernel", "gaussian(2.0) + 0.5 * linear"], {"kernel": Gaussian(2.0) + 0.5 * Linear()}),
        (["--kernel", "gaussian + constant(0.1)"], {"kernel": Gaussian() + Constant(0.1)}),
        (["--penalty", "1e-3", "--scale"], {"penalty": 1e-3, "scale": True}),
        (["--centers", "kmeans++"], {"centers": "kmeans++"}),
        (["--dtype", "float32", "--n-jobs", "1"], {"dtype": "float32", "n_jobs": 1}),
        (["--preconditioner", "krill", "--memory-budget", "0"], {"preconditioner": "krill", "memory_budget": "0"}),
        (["--random-state", "7"], {"random_state": 7}),
        (["--loss", "huber"], {"loss": "huber"}),
        (["--early-stopping", "--validation-fraction", "0.2"], {"early_stopping": True, "validation_fraction": 0.2}),
        (
            ["--loss", "quantile", "--quantiles", "0.1,0.9"],
            {"loss": "quantile", "quantiles": [0.1, 0.9]},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_are_the_parameters(capsys, table, options, parameters):
    model, _ = fit(capsys, "train.parquet", "--target", "y", *SMALL, *options)
    expected = FalkonRegressor(**({"n_centers": 30, "max_iter": 5, "random_state": 0} | parameters))
    same(model, expected.fit(X_of(table), table["y"]))


def test_n_centers_has_two_names(capsys):
    first, _ = fit(capsys, "train.parquet", "--target", "y", "--features", "a,b", "--n-centers", "1,0")
    second, _ = fit(capsys, "train.parquet", "--target", "y", "--features", "a,b", "--centers", "10")
    same(first, second)
    assert len(first.centers_) == 10


def test_weights(capsys, table):
    model, _ = fit(capsys, "train.parquet", "--target", "y", "--weight", "w", *SMALL)
    expected = FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table["y"], table["w"])
    same(model, expected)


def test_several_targets(capsys, table):
    model, _ = fit(capsys, "train.parquet", "--target", "y", "--target", "z", *SMALL)
    same(model, FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table[["y", "z"]]))
    assert list(model.target_names_) == ["y", "z"]


def test_validation_rows(capsys, table):
    new = make(seed=1)
    new[["y", "w", "b", "a"]].to_csv("new.csv", index=False)
    model, _ = fit(capsys, "train.parquet", "--target", "y", *SMALL, "--validation", "new.csv", "--early-stopping")
    expected = FalkonRegressor(n_centers=30, max_iter=5, random_state=0, early_stopping=True)
    expected.fit(X_of(table), table["y"], X_val=X_of(new), y_val=new["y"])
    same(model, expected)
    assert [r["validation_error"] for r in model.history_] == [r["validation_error"] for r in expected.history_]


@pytest.mark.parametrize("validation", [False, True])
def test_automatic_number_of_centers(capsys, table, validation, monkeypatch):
    monkeypatch.setattr("gyrfalcon.fitting.subspace._FIRST", 20)
    new = make(seed=1)
    new.to_parquet("new.parquet")
    rows = ["--validation", "new.parquet"] if validation else ["--validation-fraction", "0.3"]
    options = ["--features", "a,b", "--n-centers", "auto", "--max-iter", "5", "-o", "model.gyr", *rows]
    code, out, err = run(capsys, *FIT, "train.parquet", "--target", "y", *options)
    assert code == 0, err
    model = gyrfalcon.load("model.gyr")
    expected = FalkonRegressor(n_centers="auto", validation_fraction=0.3, max_iter=5, random_state=0)
    held = {"X_val": X_of(new), "y_val": new["y"]} if validation else {}
    same(model, expected.fit(X_of(table), table["y"], **held))
    assert [record["n_centers"] for record in model.growth_] == [record["n_centers"] for record in expected.growth_]
    assert len(model.growth_) > 1
    assert ("on validation rows" if validation else "on held out rows") in out


def test_the_same_command_gives_the_same_model(capsys):
    command = ["train.parquet", "--target", "y", *SMALL]
    same(fit(capsys, *command)[0], fit(capsys, *command)[0])
    drawn = {fit(capsys, *command, "--random-state", "none")[0].centers_[0, 0] for _ in range(5)}
    assert len(drawn) > 1


# ---- numbers or labels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "cls", "said"),
    [
        ("y", FalkonRegressor, "Regression: the target 'y' is numbers."),
        ("label", FalkonClassifier, "Classification: the target 'label' is text."),
        ("yes", FalkonClassifier, "Classification: the target 'yes' is true or false."),
        ("kind", FalkonClassifier, "3 different whole numbers"),
    ],
)
def test_the_target_decides_the_task(capsys, table, target, cls, said):
    model, err = fit(capsys, "train.parquet", "--target", target, *SMALL)
    same(model, cls(n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table[target]))
    assert said in err


def test_whole_numbers_in_floats_are_numbers_with_a_hint(capsys, table):
    table.assign(kind=table["kind"].astype(float)).to_parquet("train.parquet")
    model, err = fit(capsys, "train.parquet", "--target", "kind", *SMALL)
    assert isinstance(model, FalkonRegressor)
    assert "--task classification" in err
    model, err = fit(capsys, "train.parquet", "--target", "kind", *SMALL, "--task", "classification")
    assert list(model.classes_) == [0.0, 1.0, 2.0]


def test_many_whole_numbers_are_numbers(capsys, table):
    table.assign(big=np.arange(N) % 50).to_parquet("train.parquet")
    assert isinstance(fit(capsys, "train.parquet", "--target", "big", *SMALL)[0], FalkonRegressor)


def test_the_loss_decides_the_task(capsys, table):
    model, _ = fit(capsys, "train.parquet", "--target", "kind", "--loss", "logistic", *SMALL)
    same(
        model, FalkonClassifier(loss="logistic", n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table.kind)
    )
    model, _ = fit(capsys, "train.parquet", "--target", "count", "--loss", "poisson", *SMALL)
    same(
        model,
        FalkonRegressor(loss="poisson", n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table["count"]),
    )


def test_class_weight(capsys, table):
    model, _ = fit(capsys, "train.parquet", "--target", "label", "--class-weight", "balanced", *SMALL)
    expected = FalkonClassifier(class_weight="balanced", n_centers=30, max_iter=5, random_state=0)
    same(model, expected.fit(X_of(table), table["label"]))


# ---- what is said ----------------------------------------------------------------------------------------------------


def test_summary(capsys, table):
    code, out, err = run(capsys, *FIT, "train.parquet", "--target", "y", *SMALL, "-o", "model.gyr")
    assert code == 0
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert lines["rows"].strip() == "400 of 2 features"
    assert lines["centers"].strip() == "30"
    assert lines["written"].strip().startswith("model.gyr (")
    rmse = np.sqrt(np.mean((gyrfalcon.load("model.gyr").predict(table[["a", "b"]]) - table["y"]) ** 2))
    assert f"RMSE {rmse:.5g}" in lines["on training rows"]
    assert "400 rows" in err


def test_json_and_quiet(capsys, table):
    enough = [*SMALL, "--max-iter", "20"]
    code, out, err = run(capsys, *FIT, "train.parquet", "--target", "y", *enough, "-o", "model.gyr", "--json", "-q")
    assert (code, err) == (0, "")
    report = json.loads(out)
    model = gyrfalcon.load("model.gyr")
    expected = {
        "rows": 400,
        "features": 2,
        "n_centers": 30,
        "n_iter": model.n_iter_,
        "target": ["y"],
        "task": "regression",
    }
    assert expected.items() <= report.items()
    assert report["kernel"] == {"name": "Gaussian", "length_scale": model.kernel_.length_scale}
    assert report["bytes"] == os.path.getsize("model.gyr")
    assert report["metrics"]["on"] == "training"
    assert report["metrics"]["r2"] == pytest.approx(model.score(table[["a", "b"]], table["y"]), abs=1e-12)


def test_json_of_an_early_stopped_fit(capsys):
    arguments = ["train.parquet", "--target", "y", *SMALL, "-o", "model.gyr", "--json", "--early-stopping"]
    code, out, _ = run(capsys, *FIT, *arguments)
    best = min(record["validation_error"] for record in gyrfalcon.load("model.gyr").history_)
    assert code == 0
    assert json.loads(out)["metrics"] == {"on": "held out", "validation_error": best}


def test_features_of_different_sizes_are_mentioned(capsys, table):
    table.assign(b=1000 * table["b"]).to_parquet("train.parquet")
    _, err = fit(capsys, "train.parquet", "--target", "y", *SMALL, "--no-scale")
    assert "column 'b' varies by" in err
    assert "varies by" not in fit(capsys, "train.parquet", "--target", "y", *SMALL)[1]


def test_a_target_far_from_zero(capsys, table):
    table.assign(y=table["y"] + 1e5).to_parquet("train.parquet")
    command = ["train.parquet", "--target", "y", *SMALL]
    model, _ = fit(capsys, *command)
    assert model.offset_ == pytest.approx(table["y"].mean() + 1e5)
    assert fit(capsys, *command, "--no-fit-intercept")[0].offset_ == 0


def test_a_warning_is_one_line(capsys):
    _, err = fit(capsys, "train.parquet", "--target", "y", *SMALL, "--max-iter", "12", "--tol", "1e-15", "-q")
    (line,) = err.splitlines()
    assert line.startswith("gyrfalcon: warning: the residual is")


def test_verbose_has_a_line_for_each_iteration(capsys, caplog):
    with caplog.at_level(logging.INFO, "gyrfalcon"):  # where logging is set up, as here, lines go there
        fit(capsys, "train.parquet", "--target", "y", *SMALL, "--verbose")
    assert [line.partition(":")[0] for line in caplog.messages] == [f"iteration {i}" for i in range(1, 6)]


# ---- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--penalty", "-1"], "penalty=-1.0"),
        (["--penalty", "small"], "'small'"),
        (["--max-iter", "0"], "max_iter=0"),
        (["--n-centers", "0"], "n_centers=0"),
        (["--n-centers", "many"], "'many'"),
        (["--centers", "-5"], "n_centers=-5"),
        (["--centers", "nearest"], "'nearest'"),
        (["--kernel", "gausian"], "'gausian'"),
        (["--kernel", "gaussian(sigma=1)"], "length_scale"),
        (["--kernel", "__import__('os').getpid()"], "not understood"),
        (["--kernel", "gaussian(length_scale=print(1))"], "not understood"),
        (["--kernel", "gaussian(**{})"], "not understood"),
        (["--kernel", "3"], "not understood"),
        (["--kernel", "gaussian("], "not understood"),
        (["--kernel", "g" * 5000], "characters"),
        (["--kernel", "9" * 900 + " * linear"], "holds a number of 900 digits"),
        (["--kernel", f"polynomial(degree={'9' * 900})"], "holds a number of 900 digits"),
        (["--kernel", f"gaussian(length_scale=[1, -{'9' * 900}])"], "holds a number of 900 digits"),
        (["--kernel", "linear + (" * 60 + "linear" + ")" * 60], "nested too deeply for a model file"),
        (["--loss", "hing"], "'hing'"),
        (["--memory-budget", "plenty"], "plenty"),
        (["--random-state", "-1"], "2**32"),
        (["--validation-fraction", "2"], "validation_fraction=2.0"),
    ],
)
def test_a_wrong_option_is_found_before_anything_is_read(capsys, options, named):
    with pytest.raises(SystemExit) as stop:
        main([*FIT, "nowhere.parquet", "--target", "y", "-o", "model.gyr", *options])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert options[0] in err
    assert named in err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--centers", "5", "--n-centers", "6"], "--centers"),
        (["--centers", "5", "--n-centers", "auto"], "not 5, auto"),
        (["--centers", "bless", "--centers", "uniform"], "--centers"),
        (["--kernel", "linear", "--length-scale", "1"], "Linear has no length_scale"),
        (["--kernel", "gaussian + linear", "--nu", "1"], "Sum has no nu"),
        (["--loss", "logistic", "--task", "regression"], "--loss logistic is for labels"),
        (["--loss", "huber", "--task", "classification"], "--loss huber is for numbers"),
        (["--quiet", "--verbose"], "choose one"),
        (["--output", "train.parquet"], "--output train.parquet"),
        (["--output", "other.csv"], "data file"),
        (["--class-weight", "balanced"], "--class-weight is for classification"),
        (["--task", "classification", "--quantiles", "0.5"], "--quantiles is for regression"),
        (["--task", "classification", "--target", "z"], "--target"),
        (["--checkpoint", "state", "--checkpoint-every", "-1"], "--checkpoint state"),
        (["--checkpoint", ""], "--checkpoint"),
    ],
)
def test_options_that_do_not_go_together(capsys, options, named):
    before = Path("train.parquet").read_bytes()
    code, out, err = run(capsys, *FIT, "train.parquet", "--target", "y", "-o", "model.gyr", *SMALL[:2], *options)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("gyrfalcon: error: ")
    assert named in err.splitlines()[-1]
    assert os.listdir() == ["train.parquet"]
    assert Path("train.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nowhere.parquet", "--target", "y"], "nowhere.parquet does not exist"),
        (["train.parquet", "--target", "price"], "no column 'price' for target"),
        (["train.parquet", "--target", "y", "--features", "a,q"], "no column 'q'"),
        (["train.parquet", "--target", "y"], "--features a,b,z,yes,kind,count,w"),
        (["train.parquet", "--target", "y", *SMALL, "--weight", "v"], "no column 'v' for weight"),
        (["train.parquet", "--target", "y", *SMALL, "-o", "no/where/model.gyr"], "--output no/where/model.gyr"),
        (["train.parquet", "--target", "y", *SMALL, "-o", "."], "is a folder"),
        (["train.parquet", "--target", "label", *SMALL, "--task", "regression"], "leave out --task regression"),
        (["train.parquet", "--target", "label", *SMALL, "--loss", "huber"], "leave out --loss huber"),
        (
            ["train.parquet", "--target", "y", *SMALL, "--loss", "logistic"],
            "leave out --loss logistic to learn numbers",
        ),
        (["train.parquet", "--target", "y", *SMALL, "--task", "classification"], "leave out --task classification"),
        (["train.parquet", "--target", "y", *SMALL, "--validation", "none.csv"], "none.csv does not exist"),
        (["train.parquet", "--target", "y", *SMALL, "--length-scale", "1,2,3"], "length_scale"),
        (["train.parquet", "--target", "y", *SMALL, "--memory-budget", "1kB"], "memory_budget='1kB'"),
        (["train.parquet", "--target", "y", *SMALL, "--checkpoint", "train.parquet"], "train.parquet"),
    ],
)
def test_an_error_is_one_line_that_names_it(capsys, arguments, named):
    code, out, err = run(capsys, *FIT, "-o", "model.gyr", *arguments, "-q")
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("gyrfalcon: error: ")
    assert named in line
    assert os.listdir() == ["train.parquet"]


@pytest.mark.parametrize("kernel", ["+".join(["linear"] * 110), "1*" * 200 + "linear", "+".join(["rbf"] * 250)])
def test_a_long_kernel_is_fitted_and_saved(capsys, kernel):
    code, _, err = run(
        capsys, *FIT, "train.parquet", "--target", "y", "-o", "model.gyr", *SMALL, "--kernel", kernel,
        "--checkpoint", "state", "-q",
    )  # fmt: skip
    assert code == 0, err
    assert gyrfalcon.load("model.gyr").kernel_.k2 is not None


def test_whole_numbers_that_overflow_together(capsys):
    kernel = f"{'9' * 200} * {'9' * 200} * linear"
    code, _, err = run(capsys, *FIT, "train.parquet", "--target", "y", "-o", "model.gyr", *SMALL, "--kernel", kernel)
    assert code == 1
    assert "value=inf must be a finite number" in err.splitlines()[-1]


def test_an_unknown_kernel_is_told_its_closest(capsys):
    with pytest.raises(SystemExit):
        main([*FIT, "train.parquet", "--target", "y", "-o", "model.gyr", "--kernel", "gausian + 1"])
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert "'gausian' is not known: did you mean gaussian?" in line
    assert "matern" in line
    assert "Matern" not in line  # each is listed once


def test_names_are_separated_by_commas(capsys):
    with pytest.raises(SystemExit) as stop:
        main([*FIT, "train.parquet", "--target", "y", "-o", "model.gyr", "--features", "a", "b"])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("usage: gyrfalcon fit TRAIN")
    assert "names are separated by commas, as in --features a,b\n" in err


@pytest.mark.parametrize(("separator", "typed"), [(";", '";"'), ("\t", "tab"), ("|", '"|"')])
def test_separators(capsys, table, separator, typed):
    table.to_csv("train.csv", index=False, sep=separator)
    for options in ([], ["--delimiter", typed.strip('"')]):
        model, _ = fit(capsys, "train.csv", "--target", "y", *SMALL, "--validation", "train.csv", *options)
        same(model, FalkonRegressor(n_centers=30, max_iter=5, random_state=0).fit(X_of(table), table["y"]))
        assert run(capsys, "evaluate", "model.gyr", "train.csv", *options)[0] == 0
        assert run(capsys, "predict", "model.gyr", "train.csv", *options)[0] == 0
    code, _, err = run(capsys, *FIT, "train.parquet", "--target", "y", "-o", "model.gyr", *options)
    assert code == 1
    assert "is for CSV files" in err


def test_a_missing_value(capsys, table):
    table.loc[7, "b"] = np.nan
    table.loc[9, "y"] = np.nan
    table.to_csv("train.csv", index=False)
    code, _, err = run(capsys, *FIT, "train.csv", "--target", "z", "--features", "a,b", "-o", "model.gyr", "-q")
    assert code == 1
    assert "column 'b' has no value in row 7 (counted from 0), line 9 of the file: remove such rows" in err
    assert "--features" in err
    code, _, err = run(capsys, *FIT, "train.csv", "--target", "y", "--features", "a", "-o", "model.gyr", "-q")
    assert code == 1
    assert "column 'y' has no value in row 9 (counted from 0), line 11" in err
    assert "--features" not in err  # which cannot help
    fit(capsys, "train.parquet", "--target", "y", *SMALL)
    for command in (["predict"], ["predict", "-o", "out.csv"], ["evaluate", "--target", "z"]):
        code, _, err = run(capsys, command[0], "model.gyr", "train.csv", *command[1:])
        assert code == 1
        assert "column 'b' has no value in row 7" in err
        assert err.endswith("remove such rows or fill them in\n")


def test_row_numbers_are_no_feature(capsys, table):
    table[["a", "b", "y"]].to_csv("train.csv")
    _, err = fit(capsys, "train.csv", "--target", "y", *SMALL[2:])
    assert "gyrfalcon: warning: " in err
    assert "index=False, or choose the columns with --features A,B,...\n" in err
    assert "warning" not in fit(capsys, "train.csv", "--target", "y", *SMALL, "--max-iter", "20")[1]


def test_columns_of_npy_have_no_names(capsys, table):
    np.save("train.npy", X_of(table))
    code, _, err = run(capsys, *FIT, "train.npy", "--target", "1", "--features", "a", "-o", "model.gyr")
    assert code == 2
    assert "--features a" in err
    for option in (["--target", "y"], ["--target", "1", "--weight", "w"]):
        code, _, err = run(capsys, *FIT, "train.npy", *option, "-o", "model.gyr")
        assert code == 2
        assert f"{option[-2]} {option[-1]}" in err
    code, _, err = run(capsys, *FIT, "train.npy", "--target", "y.npy", "-o", "model.gyr")
    assert code == 1
    assert "y.npy" in err


def test_a_model_that_was_there_is_kept_when_the_fit_fails(capsys, table):
    fit(capsys, "train.parquet", "--target", "y", *SMALL)
    before = Path("model.gyr").read_bytes()
    table.assign(b=np.where(np.arange(N) == 300, np.inf, table["b"])).to_parquet("train.parquet")
    code, _, err = run(capsys, *FIT, "train.parquet", "--target", "y", *SMALL, "-o", "model.gyr")
    assert code == 1
    assert "inf" in err.lower()
    assert Path("model.gyr").read_bytes() == before


# ---- processes -------------------------------------------------------------------------------------------------------

LONG = ["--target", "y", "--features", "a,b", "--centers", "300", "--max-iter", "60", "--tol", "0"]


def start(*arguments: str, **options) -> subprocess.Popen:
    package = str(Path(gyrfalcon.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen([sys.executable, "-m", "gyrfalcon", *arguments], env=environment, **options)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_leaves_no_file():
    make(20_000).to_parquet("many.parquet")
    process = start(
        *FIT, "many.parquet", *LONG, "--max-iter", "100000", "--memory-budget", "0", "-v", "-o", "model.gyr"
    )
    assert process.stderr is not None
    assert any("iteration 3:" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert err.strip().splitlines()[-1] == "gyrfalcon: interrupted"
    assert sorted(os.listdir()) == ["many.parquet", "train.parquet"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.slow
def test_a_killed_fit_goes_on_from_its_checkpoint(capsys):
    make(20_000).to_parquet("many.parquet")
    command = [*FIT, "many.parquet", *LONG, "-o", "model.gyr", "--checkpoint", "state", "--checkpoint-every", "0"]
    process = start(*command, "--memory-budget", "0", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state, deadline = Path("state/checkpoint.safetensors"), time.monotonic() + 60
    while not state.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert state.exists()
    assert not Path("model.gyr").exists()
    code, _, err = run(capsys, *command, "--memory-budget", "0")
    assert code == 0, err
    assert "Going on from iteration " in err
    data = gyrfalcon.open("many.parquet", target="y", features=["a", "b"])
    expected = FalkonRegressor(n_centers=300, max_iter=60, tol=0.0, memory_budget="0", random_state=0)
    same(gyrfalcon.load("model.gyr"), expected.fit(data.X, data.y))
    code, _, err = run(capsys, *command, "--penalty", "1e-3")
    assert code == 1
    assert "penalty" in err
    assert "Going on" not in err  # it did not


def test_a_fit_says_from_which_iteration_it_goes_on(capsys):
    command = ["train.parquet", "--target", "y", *SMALL, "--tol", "0", "--checkpoint", "state"]
    assert "Going on" not in fit(capsys, *command)[1]
    _, err = fit(capsys, *command, "--max-iter", "8")
    assert "Going on from iteration 5, with the checkpoint in state ...\n" in err
    assert gyrfalcon.load("model.gyr").n_iter_ == 8
    assert "Going on" not in fit(capsys, *command, "--max-iter", "9", "--quiet")[1]


def test_the_interval_of_checkpoints_is_the_apis():
    assert Checkpoint("x").every == 30.0


@pytest.mark.skipif(sys.platform == "win32", reason="terminals")
def test_a_bar_where_somebody_looks():
    import pty
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    try:
        process = start(*FIT, "train.parquet", "--target", "y", *SMALL, "-o", "model.gyr", stderr=theirs)
        seen = b""
        os.close(theirs)
        try:
            while part := os.read(ours, 1 << 16):
                seen += part
        except OSError:  # the other end has been closed
            pass
        process.communicate(timeout=60)
    finally:
        os.close(ours)
    assert process.returncode == 0
    assert b"FalkonRegressor: 100%" in seen
