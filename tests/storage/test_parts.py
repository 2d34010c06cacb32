"""Predictions in parts: processes that are killed, intervals, tables that are read block by block."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import gyrfalcon
from gyrfalcon import ConformalRegressor, FalkonRegressor, write_predictions
from gyrfalcon.storage import parts, predictions

N = 5_500
X = np.random.default_rng(0).standard_normal((N, 3))

RUN = """
import os, signal, sys
import gyrfalcon
from gyrfalcon.storage import parts, predictions

folder, name, killed_after = sys.argv[1], sys.argv[2], int(sys.argv[3])
predictions.PART_ROWS, predictions._BLOCK_BYTES = 1_000, 500 * 24
predictions._LEAST_ROWS = 1
add, count = parts.Parts.add, 0

def counted(self, *given):
    global count
    if count == killed_after:
        os.kill(os.getpid(), signal.SIGKILL)
    add(self, *given)
    count += 1

parts.Parts.add = counted
model = gyrfalcon.load(os.path.join(folder, "model.gyr"))
data = gyrfalcon.open(os.path.join(folder, "rows"))
print(gyrfalcon.write_predictions(model, data, os.path.join(folder, name), resume=True), count)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows in two files, whose row groups are no multiples of parts, and a model."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "rows").mkdir()
    table = pa.table({name: X[:, j] for j, name in enumerate("abc")})
    parquet.write_table(table.slice(0, 2_300), folder / "rows" / "a.parquet", row_group_size=300)
    parquet.write_table(table.slice(2_300), folder / "rows" / "b.parquet", row_group_size=700)
    model = FalkonRegressor(n_centers=50, random_state=0)
    model.fit(gyrfalcon.open(folder / "rows").X, np.sin(X[:, 0]) + X[:, 1])
    model.save(folder / "model.gyr")
    return folder


@pytest.fixture
def small(monkeypatch):
    """Parts of 1,000 rows, and blocks of 500."""
    monkeypatch.setattr(predictions, "PART_ROWS", 1_000)
    monkeypatch.setattr(predictions, "_BLOCK_BYTES", 500 * 24)
    monkeypatch.setattr(predictions, "_LEAST_ROWS", 1)


def run(folder, name, killed_after):
    command = [sys.executable, "-c", RUN, str(folder), name, str(killed_after)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_killed_process_is_continued_with_the_same_bits(folder):
    """Twice killed, then continued with the parts that are there; the file is that of one run, and is there at once."""
    assert run(folder, "killed.parquet", 2).returncode == -signal.SIGKILL
    assert run(folder, "killed.parquet", 1).returncode == -signal.SIGKILL
    assert not (folder / "killed.parquet").exists()
    assert parts.Parts(str(folder / "killed.parquet"), {}).count() == 3
    done = run(folder, "killed.parquet", 9)
    assert done.stdout.split() == [str(N), "3"], done.stderr
    assert run(folder, "whole.parquet", 9).stdout.split() == [str(N), "6"]
    assert (folder / "killed.parquet").read_bytes() == (folder / "whole.parquet").read_bytes()
    model = gyrfalcon.load(folder / "model.gyr")
    found = parquet.read_table(folder / "killed.parquet")
    assert found.column_names == ["prediction"]
    np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-12)
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npy"])
def test_every_format_is_that_of_one_run(folder, tmp_path, suffix, small, monkeypatch):
    model, data = gyrfalcon.load(folder / "model.gyr"), gyrfalcon.open(folder / "rows")
    expected = tmp_path / f"expected{suffix}"
    write_predictions(model, data, expected)
    path, add = tmp_path / f"found{suffix}", parts.Parts.add

    def failing(self, number, *given):
        if number == 3:
            raise OSError("the disk is full")
        add(self, number, *given)

    monkeypatch.setattr(parts.Parts, "add", failing)
    with pytest.raises(OSError, match="the disk is full"):
        write_predictions(model, data, path, resume=True)
    monkeypatch.setattr(parts.Parts, "add", add)
    assert write_predictions(model, data, path, resume=True) == N
    if suffix == ".parquet":
        assert parquet.read_table(path).equals(parquet.read_table(expected))
    else:
        assert path.read_bytes() == expected.read_bytes()
    assert sorted(os.listdir(tmp_path)) == sorted([expected.name, path.name])


def leave_parts(model, data, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(predictions, "StoredPredictions", None)  # what comes after the last part fails
        with pytest.raises(TypeError):
            write_predictions(model, data, path, resume=True)


def test_parts_of_other_predictions_are_refused(folder, tmp_path, small, monkeypatch):
    model, data, path = gyrfalcon.load(folder / "model.gyr"), gyrfalcon.open(folder / "rows"), tmp_path / "o.parquet"
    leave_parts(model, data, path, monkeypatch)
    other = gyrfalcon.load(folder / "model.gyr")
    other.dual_coef_ = other.dual_coef_ * 2
    with pytest.raises(ValueError, match=r"\.o\.parquet\.parts has parts of other predictions.*the model was"):
        write_predictions(other, data, path, resume=True)
    one = gyrfalcon.open(folder / "rows" / "b.parquet")
    with pytest.raises(ValueError, match=r"the rows was 2 files .* and is 1 file of"):
        write_predictions(model, one, path, resume=True)
    damaged = tmp_path / ".o.parquet.parts" / "000002.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"000002\.parquet cannot be read .*: remove it, and run once more"):
        write_predictions(model, data, path, resume=True)
    damaged.unlink()
    assert write_predictions(model, data, path, resume=True) == N
    np.testing.assert_allclose(parquet.read_table(path)["prediction"], model.predict(X), rtol=1e-12)


def test_one_process_at_a_time(folder, tmp_path, small):
    model, data, path = gyrfalcon.load(folder / "model.gyr"), gyrfalcon.open(folder / "rows"), tmp_path / "o.parquet"
    with (
        parts.Parts(str(path), {}).opened(),
        pytest.raises(FileExistsError, match="another process is writing predictions to"),
    ):
        write_predictions(model, data, path, resume=True)
    with pytest.raises(ValueError, match="resume=True is for rows of a source"):
        write_predictions(model, X, path, resume=True)
    (tmp_path / ".o.parquet.parts" / "identity.json").write_text("{")
    with pytest.raises(ValueError, match=r"identity\.json is damaged"):
        write_predictions(model, data, path, resume=True)


def test_intervals(folder, tmp_path, small):
    y = np.sin(X[:, 0]) + X[:, 1]
    model = ConformalRegressor(FalkonRegressor(n_centers=50, random_state=0), random_state=0).fit(X, y)
    for resume in (False, True):
        path = tmp_path / "intervals.parquet"
        assert write_predictions(model, gyrfalcon.open(folder / "rows"), path, coverage=0.8, resume=resume) == N
        found = parquet.read_table(path)
        assert found.column_names == ["prediction", "lower", "upper"]
        np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-10)
        ends = np.column_stack([found["lower"], found["upper"]])
        np.testing.assert_allclose(ends, model.predict_interval(X, 0.8), rtol=1e-10)
    with pytest.raises(ValueError, match=r"coverage=0.8 is for the intervals of predict, not of score"):
        write_predictions(model, X, path, coverage=0.8, method="score")
    with pytest.raises(ValueError, match=r"_Lengths has no predict_interval"):
        write_predictions(_Lengths(), X, path, coverage=0.8)


class _Lengths:
    """A model of tables, which counts the rows that it is given at once."""

    def __init__(self):
        self.seen = []

    def predict(self, X):
        self.seen.append((len(X), str(X.schema.field("city").type)))
        return np.array([len(city) for city in X["city"].to_pylist()]) + X["area"].to_numpy()


@pytest.mark.parametrize("resume", [False, True])
def test_tables_are_read_block_by_block(tmp_path, small, resume):
    """With the types of all files: texts of Parquet are no dictionaries, and whole numbers may be of other widths."""
    (tmp_path / "rows").mkdir()
    city = ["Rome", "Genova", "Milan"] * 1_000
    for number, kind in enumerate(("int32", "int64")):
        table = pa.table({"city": city, "area": pa.array(np.arange(3_000), kind)})
        parquet.write_table(table, tmp_path / "rows" / f"{number}.parquet", row_group_size=1_700)
    model, path = _Lengths(), tmp_path / "o.npy"
    assert write_predictions(model, gyrfalcon.open(tmp_path / "rows"), path, resume=resume) == 6_000
    expected = np.tile([len(name) for name in city], 2) + np.tile(np.arange(3_000), 2)
    np.testing.assert_array_equal(np.load(path), expected)
    assert set(model.seen) == {(750, "string")}


def test_the_command_continues(folder, tmp_path, monkeypatch, capsys, small):
    from gyrfalcon.cli import predict
    from gyrfalcon.cli.main import main

    monkeypatch.setattr(predict, "PART_ROWS", 1_000)
    command = ["predict", str(folder / "model.gyr"), str(folder / "rows"), "-o", str(tmp_path / "o.parquet"), "--json"]
    with monkeypatch.context() as patch:
        patch.setattr(predictions, "StoredPredictions", None)
        with pytest.raises(TypeError):
            main(command)
    assert main([*command, "--proba"]) != 0  # a model of numbers
    capsys.readouterr()
    assert main([*command, "--n-jobs", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == N
    leave = tmp_path / ".o.parquet.parts"
    leave.mkdir()
    (leave / "identity.json").write_text('{"the model": "another"}')
    assert main(command) != 0
    assert "--restart" in capsys.readouterr().err
    assert main([*command, "--restart"]) == 0
    assert not leave.exists()
