"""What killed writers leave behind: the next one removes it, and never what a living one works on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon._utils.atomic import replacing

WRITER = """
import os, signal, sys
import numpy as np
from safetensors.numpy import save_file
from gyrfalcon._utils.atomic import replacing

with replacing(sys.argv[1]) as partial:
    with open(partial, "w") as file:
        file.write("half")
        file.flush()
        if sys.argv[2] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        # a writer that puts another file in the place of the one it was given, as safetensors does
        save_file({"a": np.zeros(3)}, partial)
        print("writing", flush=True)
        sys.stdin.read()
"""


def writer(path, how):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), how],
        env=os.environ | {"PYTHONPATH": str(Path(gyrfalcon.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def partials(folder):
    return [name for name in os.listdir(folder) if name.endswith(".partial")]


def write(path, text="new"):
    with replacing(path) as partial:
        Path(partial).write_text(text)


def test_what_a_killed_process_leaves_is_removed_by_the_next_one(tmp_path):
    path = tmp_path / "model"
    path.write_text("old")
    for _ in range(2):
        with writer(path, "die") as process:
            assert process.wait(100) == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(partials(tmp_path)) == 1  # that of the first was removed by the second
    write(tmp_path / "another")
    assert len(partials(tmp_path)) == 1
    write(path)
    assert path.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["another", "model"]


def test_what_a_living_process_writes_is_left_alone(tmp_path):
    path = tmp_path / "model"
    with writer(path, "wait") as process:
        assert process.stdout.readline() == b"writing\n"
        (partial,) = partials(tmp_path)
        os.utime(tmp_path / partial, (0, 0))  # however old it looks
        os.utime(tmp_path / partial / "contents", (0, 0))
        os.utime(tmp_path / partial / "lock", (0, 0))
        write(path)
        assert partials(tmp_path) == [partial]
        process.communicate(timeout=100)
    assert process.returncode == 0
    assert os.listdir(tmp_path) == ["model"]
    assert path.read_bytes() != b"new"


def test_what_other_machines_leave_is_removed_when_it_is_old(tmp_path, monkeypatch):
    path = tmp_path / "model"
    monkeypatch.setattr("platform.node", lambda: "elsewhere.example")
    with writer(path, "die") as process:
        process.wait(100)
    (partial,) = partials(tmp_path)
    here = re.fullmatch(r"\.model\.(.*)\.[0-9a-f]{16}\.partial", partial)[1]
    assert here != "elsewhere-example"
    write(path)
    assert partials(tmp_path) == [partial]
    for name in (".", "contents", "lock"):
        os.utime(tmp_path / partial / name, (0, 0))
    write(path)
    assert os.listdir(tmp_path) == ["model"]


def test_folders_of_others_that_look_alike(tmp_path):
    """A name that ends so is no proof, and links are not followed."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    (tmp_path / ".model.link.partial").symlink_to("precious")
    (tmp_path / ".model.file.partial").write_text("kept")
    write(tmp_path / "model")
    assert (tmp_path / "precious" / "file").read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == [".model.file.partial", ".model.link.partial", "model", "precious"]


@pytest.mark.parametrize("suffix", ["csv", "npy", "parquet"])
def test_writers_of_predictions_leave_nothing(tmp_path, suffix):
    X = np.linspace(0, 1, 50)[:, None]
    model = gyrfalcon.FalkonRegressor(n_centers=5, random_state=0).fit(X, X[:, 0])
    gyrfalcon.write_predictions(model, X, tmp_path / f"out.{suffix}")
    assert os.listdir(tmp_path) == [f"out.{suffix}"]
