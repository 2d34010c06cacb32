"""A fit of AutoRegressor or AutoClassifier that was killed goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from short_search import Brief

from gyrfalcon import AutoClassifier, AutoRegressor, CheckpointError

SCRIPT = """
import os, signal, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_auto_checkpoint import data, model

def killed(record):
    if record["stage"] == "all rows":
        os.kill(os.getpid(), signal.SIGKILL)
    return record["iteration"] >= 3

model(sys.argv[3], sys.argv[2]).set_params(callbacks=killed).fit(*data(sys.argv[3]))
"""


def data(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    return X, X[:, 0] if kind == "regressor" else X[:, 0] > 0


def model(kind, folder=None):
    cls = AutoRegressor if kind == "regressor" else AutoClassifier
    # the bits of trees depend on how busy the machine is
    return cls(random_state=0, callbacks=Brief(3), checkpoint=folder, families=("kernel",))


def output(fitted, X):
    return fitted.predict(X) if isinstance(fitted, AutoRegressor) else fitted.predict_proba(X)


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_a_killed_fit_goes_on(kind, tmp_path):
    X, y = data(kind)
    here = str(Path(__file__).parent)
    ended = subprocess.run([sys.executable, "-c", SCRIPT, here, str(tmp_path / "folder"), kind], check=False)
    assert ended.returncode == -signal.SIGKILL
    stages = []
    resumed = model(kind, tmp_path / "folder")
    resumed.set_params(callbacks=lambda record: stages.append(record["stage"])).fit(X, y)
    assert stages
    assert set(stages) == {"all rows"}  # the search was not repeated
    assert [record["stage"] for record in resumed.candidates_][:3] == ["search"] * 3


def test_models_that_were_fitted_before_the_end_are_kept(tmp_path):
    script = SCRIPT.replace("all rows", "never").replace(
        "model(sys.argv", "from gyrfalcon.tables.members import ModelFits\n"
        "fit_candidate, done = ModelFits._fit_candidate, []\n"
        "def killed_later(self, *given, **named):\n"
        "    if done: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    done.append(1); return fit_candidate(self, *given, **named)\n"
        "ModelFits._fit_candidate = killed_later\nmodel(sys.argv",
    ).replace('>= 3', '>= 300')  # fmt: skip
    X, y = data("classifier")
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path / "folder"), "classifier"]
    ended = subprocess.run(command, check=False)
    assert ended.returncode == -signal.SIGKILL
    stages = []
    resumed = model("classifier", tmp_path / "folder")
    resumed.set_params(callbacks=lambda record: stages.append(record["stage"])).fit(X, y)
    fitted = [record for record in resumed.candidates_ if record["stage"].startswith("all rows")]
    assert len(stages) == len(fitted) - 1  # the first was there already


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_a_fit_that_is_over_is_not_repeated(kind, tmp_path):
    X, y = data(kind)
    expected = output(model(kind).fit(X, y), X)
    first = model(kind, tmp_path / "folder").fit(X, y)
    stages = []
    again = model(kind, tmp_path / "folder").set_params(callbacks=lambda record: stages.append(record)).fit(X, y)
    assert not stages
    np.testing.assert_array_equal(output(first, X), expected)
    np.testing.assert_array_equal(output(again, X), expected)
    assert again.candidates_ == first.candidates_
    assert not [name for name in os.listdir(tmp_path / "folder") if name not in ("lock", "checkpoint.safetensors")]


def test_another_fit_is_refused(tmp_path):
    X, y = data("regressor")
    model("regressor", tmp_path).fit(X, y)
    with pytest.raises(CheckpointError, match="X was"):
        model("regressor", tmp_path).fit(X + 1, y)
    with pytest.raises(CheckpointError, match="y was"):
        model("regressor", tmp_path).fit(X, 2 * y)
    with pytest.raises(CheckpointError, match="time_budget was 60 and is 7"):
        model("regressor", tmp_path).set_params(time_budget=7).fit(X, y)
    with pytest.raises(CheckpointError, match="estimator was"):
        model("classifier", tmp_path).fit(X, y > 0)
