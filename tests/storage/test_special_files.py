"""Devices, named pipes, sockets and links that lead nowhere are refused by whatever writes files, and stay."""

from __future__ import annotations

import os
import socket
import stat
import sys

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon._utils.atomic import replacing
from gyrfalcon.cli.main import main

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no such files")

X = np.random.default_rng(0).standard_normal((60, 2))
MODEL = gyrfalcon.FalkonRegressor(n_centers=10, random_state=0).fit(X, X[:, 0])


def make_pipe(path):
    os.mkfifo(path)


def make_device(path):
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("devices are made by root alone")


def make_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # addresses of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(path.name)
    finally:
        os.chdir(here)


def make_link_to_pipe(path):
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def make_dangling_link(path):
    path.symlink_to("nothing")


KINDS = {
    make_pipe: "it is a named pipe",
    make_device: "it is a device",
    make_socket: "it is a socket",
    make_link_to_pipe: "it is a named pipe",
    make_dangling_link: "it is a link to 'nothing', which does not exist: remove the link",
}
WRITERS = {
    "a.gyr": MODEL.save,
    "b.gyr": lambda path: gyrfalcon.save(MODEL, path),
    "c.csv": lambda path: gyrfalcon.write_predictions(MODEL, X, path),
    "d.npy": lambda path: gyrfalcon.write_predictions(MODEL, X, path),
    "e.parquet": lambda path: gyrfalcon.write_predictions(MODEL, X, path),
    "f.onnx": lambda path: gyrfalcon.to_onnx(MODEL, path),
}


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_writers_refuse_what_is_no_regular_file(tmp_path, make):
    for name, write in WRITERS.items():
        path = tmp_path / name / name
        path.parent.mkdir()
        make(path)
        before = os.lstat(path)
        with pytest.raises(OSError, match=f"cannot write to .*: {KINDS[make]}"):
            write(path)
        assert os.lstat(path).st_ino == before.st_ino
        assert not [name for name in os.listdir(path.parent) if name.endswith(".partial")]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_commands_refuse_it_before_they_work(tmp_path, make, capsys):
    np.save(tmp_path / "rows.npy", np.column_stack([X, X[:, 0]]))
    MODEL.save(tmp_path / "model.gyr")
    rows, model = str(tmp_path / "rows.npy"), str(tmp_path / "model.gyr")
    commands = {
        "new.gyr": ["fit", rows, "--target", "2", "--method", "falkon"],
        "out.csv": ["predict", model, rows],
        "out.onnx": ["export", model],
        "out.html": ["report", model, rows, "--target", "2"],
        "out.png": ["demo", "--rows", "1000"],
    }
    for name, words in commands.items():
        path = tmp_path / name.replace(".", "_") / name
        path.parent.mkdir()
        make(path)
        features = ["--features", "0,1"] if words[0] in ("predict", "report") else []
        assert main([*words, *features, "--output", str(path)]) == 1
        assert KINDS[make] in capsys.readouterr().err
        assert not stat.S_ISREG(os.lstat(path).st_mode)


@pytest.mark.parametrize("make", [make_pipe, make_dangling_link], ids=lambda make: make.__name__)
def test_checkpoints_refuse_it(tmp_path, make):
    model = gyrfalcon.FalkonRegressor(n_centers=10, max_iter=2, random_state=0)
    make(tmp_path / "folder")
    with pytest.raises(OSError, match="it exists and is not a folder"):
        model.set_params(checkpoint=tmp_path / "folder").fit(X, X[:, 0])
    for name in ("lock", "checkpoint.safetensors"):
        folder = tmp_path / name
        folder.mkdir()
        make(folder / name)
        with pytest.raises((OSError, ValueError), match=r"regular file|named pipe|no such file|does not exist"):
            model.set_params(checkpoint=folder).fit(X, X[:, 0])
        assert not stat.S_ISREG(os.lstat(folder / name).st_mode)


def test_a_pipe_that_appears_while_the_file_is_written(tmp_path):
    path = tmp_path / "file"

    def write():
        with replacing(path) as partial, open(partial, "w") as file:
            file.write("new")
            os.mkfifo(path)

    with pytest.raises(FileExistsError, match="it is a named pipe"):
        write()
    assert stat.S_ISFIFO(os.stat(path).st_mode)
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_to_a_file_stays_and_the_file_is_replaced(tmp_path):
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    with replacing(tmp_path / "link") as partial, open(partial, "w") as file:
        file.write("new")
    assert os.readlink(tmp_path / "link") == "there"
    assert (tmp_path / "there").read_text() == "new"
