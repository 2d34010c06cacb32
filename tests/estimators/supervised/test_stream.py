"""learn_stream: the same model as by single batches, from iterators and from files that grow, also after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import gyrfalcon
from gyrfalcon import Checkpoint, CheckpointError, FalkonRegressor, KernelPCA, NystromRegressor, learn_stream
from gyrfalcon.kernels import Gaussian


def data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def batches(X, y, size=100):
    for start in range(0, len(X), size):
        yield X[start : start + size], y[start : start + size]


def fresh(**parameters):
    return NystromRegressor(Gaussian(1.0), n_centers=30, penalty=1e-5, incremental=True, random_state=0, **parameters)


def test_a_stream_is_learnt_as_its_batches():
    X, y = data()
    expected = fresh()
    for batch in batches(X, y):
        expected.partial_fit(*batch, forgetting_factor=0.9, max_new_centers=3)
    seen = []
    model = learn_stream(
        fresh(), batches(X, y), forgetting_factor=0.9, max_new_centers=3, callbacks=lambda record: seen.append(record)
    )
    assert_array_equal(model.predict(X), expected.predict(X))
    assert model.centers_.shape[0] > 30
    assert [record["rows"] for record in seen] == [100] * 3
    assert all(record["error_before"] > 0 for record in seen)
    assert (model.stream_["batches"], model.stream_["rows"]) == (4, 400)
    learn_stream(model, batches(*data(seed=1)))  # another stream is another one
    assert model.n_samples_seen_ == 800


def test_falkon_learns_weighted_batches():
    X, y = data()
    w = np.random.default_rng(1).uniform(0.5, 2, 400)
    parts = [slice(start, start + 100) for start in range(0, 400, 100)]
    model = FalkonRegressor(Gaussian(1.0), n_centers=30, penalty=1e-5, incremental=True, random_state=0)
    expected = clone(model).fit(X[:100], y[:100], w[:100])
    for at in parts[1:]:
        expected.update(X[at], y[at], w[at])
    learn_stream(model, ((X[at], y[at], w[at]) for at in parts))
    assert_array_equal(model.predict(X), expected.predict(X))


def test_a_callback_stops():
    X, y = data()
    model = learn_stream(fresh(), batches(X, y), callbacks=lambda record: True)
    assert model.stream_["batches"] == 2  # the first has no record


@pytest.mark.parametrize("kind", ["csv", "folder"])
def test_files_that_grow(tmp_path, kind):
    X, y = data()

    def add(start, stop):
        lines = "".join(f"{a!r},{b!r},{c!r}\n" for a, b, c in np.c_[X, y][start:stop].tolist())
        if kind == "csv":
            path = tmp_path / "log.csv"
            with path.open("a") as file:
                file.write(("" if start else "a,b,y\n") + lines)
            return path
        (tmp_path / f"part{start:05d}.csv").write_text("a,b,y\n" + lines)
        return tmp_path

    model = fresh()
    learn_stream(model, gyrfalcon.open(add(0, 150), target="y"), batch_size=100)
    assert model.stream_["batches"] == 2
    learn_stream(model, gyrfalcon.open(add(150, 300), target="y"))
    learn_stream(model, gyrfalcon.open(add(150, 300) if kind == "folder" else tmp_path / "log.csv", target="y"))
    assert model.n_samples_seen_ == 300  # nothing was new
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    where = add(300, 400)
    learn_stream(loaded, gyrfalcon.open(tmp_path / "part*.csv" if kind == "folder" else where, target="y"))
    assert loaded.n_samples_seen_ == 400
    fixed = clone(model).set_params(centers=model.centers_, n_centers=None)
    table = gyrfalcon.open(tmp_path / "part*.csv" if kind == "folder" else where, target="y")
    assert_allclose(loaded.predict(table.X), fixed.fit(table).predict(table.X), rtol=1e-7)


def test_files_that_were_changed_are_refused(tmp_path):
    X, y = data()

    def opened(name, rows):
        np.savetxt(tmp_path / name, rows, delimiter=",", header="a,b,y", comments="", fmt="%.17g")
        return gyrfalcon.open(tmp_path / name, target="y")

    model = learn_stream(fresh(), opened("a.csv", np.c_[X, y]))
    with pytest.raises(ValueError, match="rows were removed"):
        learn_stream(model, opened("fewer.csv", np.c_[X, y][:300]))
    with pytest.raises(ValueError, match="does not begin with"):
        learn_stream(model, opened("others.csv", np.c_[X, -y]))


KILLED = """
import os, signal, sys
import numpy as np
from gyrfalcon import Checkpoint, NystromRegressor, learn_stream
from gyrfalcon.kernels import Gaussian

folder, at, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)
X = rng.standard_normal((800, 2))
y = np.sin(2 * X[:, 0])

def batches():
    for number, start in enumerate(range(0, 800, 100)):
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)
        yield X[start : start + 100], y[start : start + 100]

model = NystromRegressor(Gaussian(1.0), n_centers=30, penalty=1e-5, incremental=True, random_state=0)
learn_stream(model, batches(), checkpoint=Checkpoint(folder, every=0))
np.savez(out, predictions=model.predict(X), iterations=[record["iteration"] for record in model.history_])
"""


def test_a_killed_process_goes_on_where_it_was(tmp_path):
    def run(folder, *kill_at):
        for at in kill_at:
            out = str(tmp_path / f"{folder}.npz")
            child = subprocess.run([sys.executable, "-c", KILLED, tmp_path / folder, str(at), out])
            assert child.returncode == (0 if at < 0 else -signal.SIGKILL)
        return np.load(out)

    whole, found = run("whole", -1), run("killed", 3, 6, -1)
    assert_array_equal(found["predictions"], whole["predictions"])
    assert_array_equal(found["iterations"], whole["iterations"])


def test_an_error_in_the_stream_keeps_what_was_learnt(tmp_path):
    X, y = data()

    def broken():
        yield X[:100], y[:100]
        yield X[100:200], y[100:200]
        raise OSError("the sensor is gone")

    with pytest.raises(OSError, match="sensor"):
        learn_stream(fresh(), broken(), checkpoint=tmp_path)
    model = learn_stream(fresh(), batches(X, y), checkpoint=tmp_path)
    assert model.n_samples_seen_ == 400
    assert_array_equal(model.predict(X), learn_stream(fresh(), batches(X, y)).predict(X))


def test_checkpoints_of_other_models_and_streams_are_refused(tmp_path):
    X, y = data()
    learn_stream(fresh(), batches(X, y), checkpoint=Checkpoint(tmp_path))
    with pytest.raises(CheckpointError, match="use another folder"):
        learn_stream(fresh().set_params(penalty=1e-3), batches(X, y), checkpoint=tmp_path)
    with pytest.raises(ValueError, match="does not begin with"):
        learn_stream(fresh(), batches(X, -y), checkpoint=tmp_path)


def test_wrong_arguments_are_named():
    X, y = data()
    with pytest.raises(ValueError, match="incremental=False"):
        learn_stream(NystromRegressor(), batches(X, y))
    with pytest.raises(TypeError, match="KernelPCA"):
        learn_stream(KernelPCA(), batches(X, y))
    with pytest.raises(TypeError, match="batch 0 is ndarray"):
        learn_stream(fresh(), [X])
    with pytest.raises(ValueError, match="batch_size"):
        learn_stream(fresh(), batches(X, y), batch_size=0)
    with pytest.raises(ValueError, match="forgetting_factor"):
        learn_stream(fresh(), batches(X, y), forgetting_factor=0)
    fitted = fresh().fit(X, y)
    before = fitted.predict(X)
    with pytest.raises(ValueError, match="features"):
        learn_stream(fitted, [(X, y), (X[:, :1], y)])
    assert_allclose(fitted.n_samples_seen_, 800)  # the first batch was learnt, and the second left nothing behind
    assert fitted.stream_["batches"] == 1
    assert not np.array_equal(fitted.predict(X), before)
    assert "stream_" not in vars(fitted.fit(X, y))
