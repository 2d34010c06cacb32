"""Predictions written block by block are those of `predict`, and nothing that was there before is ever damaged."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from pyarrow import parquet
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputRegressor

import gyrfalcon
from gyrfalcon import FalkonClassifier, FalkonRegressor, write_predictions

N = 3000
X = np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32)
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1]])
LABELS = np.array(["no", "perhaps", "yes"])[np.digitize(X[:, 0], [-0.5, 0.5])]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("gyrfalcon.storage.predictions._BLOCK_BYTES", 0)  # then a block has 1024 rows


@pytest.fixture(scope="module")
def regressor():
    return FalkonRegressor(n_centers=50, random_state=0).fit(X, Y[:, 0])


@pytest.fixture(scope="module")
def classifier():
    return FalkonClassifier(n_centers=50, random_state=0).fit(X, LABELS)


@pytest.fixture
def data(tmp_path):
    for number in range(3):
        part = X[number * 1000 : (number + 1) * 1000]
        table = pa.table({name: part[:, j] for j, name in enumerate("abc")})
        parquet.write_table(table, tmp_path / f"part{number}.parquet", row_group_size=300)
    return gyrfalcon.open(tmp_path / "part*.parquet")


def read(path):
    if path.suffix == ".npy":
        return np.load(path)
    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    return frame.to_numpy()[:, 0] if list(frame) == ["prediction"] else frame.to_numpy()


every_format = pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npy"])


@every_format
def test_numbers(tmp_path, suffix, regressor, data):
    path = tmp_path / f"out{suffix}"
    expected = regressor.predict(X)
    for rows in (X, data, data.X):
        assert write_predictions(regressor, rows, path) == N
        found = read(path)
        np.testing.assert_array_equal(found.astype(np.float32), expected)
        path.unlink()


@every_format
def test_several_outputs(tmp_path, suffix, data):
    path = tmp_path / f"out{suffix}"
    model = FalkonRegressor(n_centers=50, random_state=0).fit(X, Y)
    write_predictions(model, data, path)
    np.testing.assert_array_equal(read(path).astype(np.float32), model.predict(X))
    if suffix == ".parquet":
        assert parquet.read_schema(path).names == ["prediction_0", "prediction_1"]


@every_format
def test_labels_and_probabilities(tmp_path, suffix, data):
    path = tmp_path / f"out{suffix}"
    model = LogisticRegression().fit(X, LABELS)  # any estimator will do
    write_predictions(model, data, path)
    np.testing.assert_array_equal(read(path), model.predict(X))
    write_predictions(model, data, path, method="predict_proba")
    # BLAS adds in another order for other numbers of rows
    np.testing.assert_allclose(read(path), model.predict_proba(X), rtol=1e-5)
    if suffix != ".npy":
        frame = pd.read_parquet(path) if suffix == ".parquet" else pd.read_csv(path)
        assert list(frame) == ["probability_no", "probability_perhaps", "probability_yes"]


def test_decisions_of_a_gyrfalcon_classifier(tmp_path, classifier, data):
    write_predictions(classifier, data, tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), classifier.predict(X))
    write_predictions(classifier, data, tmp_path / "out.npy", method="decision_function")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), classifier.decision_function(X))


def test_any_kind_of_rows(tmp_path):
    frame = pd.DataFrame(X, columns=list("abc"))
    model = LinearRegression().fit(frame, Y[:, 0])
    expected = model.predict(frame)
    write_predictions(model, frame, tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-4, atol=1e-6)
    model = LinearRegression().fit(X, Y[:, 0])
    for rows in (X.tolist(), scipy.sparse.csr_array(X), scipy.sparse.csc_array(X), np.asfortranarray(X)):
        assert write_predictions(model, rows, tmp_path / "out.npy") == N
        np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-4, atol=1e-6)


def test_names_of_features_are_checked_and_nobody_is_warned(tmp_path, data, recwarn):
    model = FalkonRegressor(n_centers=20, random_state=0).fit(data.X, Y[:, 0])
    write_predictions(model, data, tmp_path / "out.npy")
    assert not recwarn.list
    other = gyrfalcon.open(data.files, features=["b", "a", "c"])
    with pytest.raises(ValueError, match=r"'b', 'a', 'c'.*fitted with \['a', 'b', 'c'\].*features=list"):
        write_predictions(model, other, tmp_path / "out.npy")


def test_only_blocks_are_held(tmp_path, monkeypatch, data):
    seen = []

    class Model:
        def predict(self, block):
            seen.append(block.shape)
            return block[:, 0]

    write_predictions(Model(), data, tmp_path / "out.npy")
    assert seen == [(1024, 3), (1024, 3), (952, 3)]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), X[:, 0])


# ---- what goes wrong -------------------------------------------------------------------------------------------------


class Fails:
    """A model that fails at its second block."""

    def __init__(self, error):
        self.error = error
        self.count = 0

    def predict(self, block):
        self.count += 1
        if self.count == 2:
            raise self.error
        return block[:, 0]


@every_format
@pytest.mark.parametrize("error", [RuntimeError("half way"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_failure_leaves_the_old_file(tmp_path, suffix, error, data):
    path = tmp_path / f"out{suffix}"
    path.write_text("what was there")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(type(error)):
        write_predictions(Fails(error), data, path)
    assert path.read_text() == "what was there"
    assert sorted(os.listdir(tmp_path)) == before
    assert not any(thread.name == "gyrfalcon-read" for thread in threading.enumerate())


FULL = """
import resource, signal, sys
import numpy as np
import gyrfalcon
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # then the system refuses to write more to a file

class Model:
    def predict(self, block):
        return block[:, 0]

X = np.random.default_rng(0).standard_normal((50_000, 2))
for path in sys.argv[1:]:
    try:
        gyrfalcon.write_predictions(Model(), X, path)
    except OSError as error:
        print(error)
"""


def test_a_full_disk_leaves_the_old_file(tmp_path):
    paths = [tmp_path / f"out{suffix}" for suffix in (".parquet", ".csv", ".npy")]
    for path in paths:
        path.write_text("what was there")
    done = subprocess.run([sys.executable, "-c", FULL, *map(str, paths)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for path, line in zip(paths, lines, strict=True):
        assert "File too large" in line
        assert str(path) in line
        assert path.read_text() == "what was there"
    assert sorted(os.listdir(tmp_path)) == sorted(path.name for path in paths)


def test_a_file_that_changes_meanwhile(tmp_path, regressor, data):
    os.utime(data.files[1], ns=(1, 1))
    with pytest.raises(OSError, match=r"part1\.parquet has changed"):
        write_predictions(regressor, data, tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


def test_bad_requests(tmp_path, regressor):
    with pytest.raises(ValueError, match=r"path='.*out.txt' must end in \.parquet, \.csv, \.npy"):
        write_predictions(regressor, X, tmp_path / "out.txt")
    with pytest.raises(ValueError, match="FalkonRegressor has no method 'predict_proba'"):
        write_predictions(regressor, X, tmp_path / "out.npy", method="predict_proba")
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        write_predictions(regressor, X, tmp_path / "nowhere" / "out.npy")
    with pytest.raises(ValueError, match="X has no rows"):
        write_predictions(regressor, X[:0], tmp_path / "out.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        write_predictions(regressor, X, tmp_path / "folder.npy")

    class Texts:
        def predict(self, block):
            return np.array(["a"] * len(block), dtype=object)

    with pytest.raises(ValueError, match="text of unknown length"):
        write_predictions(Texts(), X, tmp_path / "out.npy")

    class Wrong:
        def predict(self, block):
            return np.ones(3)

    with pytest.raises(ValueError, match=r"predict gave an array of shape \(3,\) for 1024 rows"):
        write_predictions(Wrong(), X, tmp_path / "out.npy")
    assert os.listdir(tmp_path) == ["folder.npy"]


def test_several_outputs_of_scikit_learn(tmp_path):
    model = MultiOutputRegressor(LinearRegression()).fit(X, Y)
    write_predictions(model, X, tmp_path / "out.csv")
    np.testing.assert_allclose(read(tmp_path / "out.csv"), model.predict(X), rtol=1e-4, atol=1e-5)
