"""Tuning by gradients: what is found, in which units, and for which models."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import gyrfalcon
from gyrfalcon import (
    Checkpoint,
    CheckpointError,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    KernelPCA,
    NystromRegressor,
    tune,
)
from gyrfalcon.kernels import Gaussian, Linear, Matern, RationalQuadratic


def data(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("objective", ["evidence", "complexity", "validation"])
def test_features_that_do_not_matter_get_long_scales(objective):
    X, y = data()
    T, u = data(seed=1)
    plain = NystromRegressor(Gaussian(1.0), n_centers=60, penalty=1e-3, random_state=0).fit(X, y)
    model = tune(plain, X, y, objective=objective, random_state=0)
    scales = model.kernel_.length_scale
    assert scales[2] > 5 * scales[0]
    assert model.score(T, u) > plain.score(T, u)
    values = [record["objective"] for record in model.tuning_history_]
    assert values[-1] < values[0]
    assert [record["iteration"] for record in model.tuning_history_] == list(range(1, len(values) + 1))


def test_the_noise_is_found_by_the_evidence():
    X, y = data()
    model = tune(NystromRegressor(n_centers=100, uncertainty=True, random_state=0), X, y, random_state=0)
    assert 0.08 < np.sqrt(model.noise_variance_) < 0.12  # 0.1 is true


def test_all_rows_have_the_last_word():
    X, y = data()
    model = tune(NystromRegressor(n_centers=40), X, y, sample_size=200, max_iter=20, max_iter_all=4, random_state=0)
    rows = [record["rows"] for record in model.tuning_history_]
    assert rows[0] == 200
    assert rows[-1] == 600
    few = tune(NystromRegressor(n_centers=40), X, y, sample_size=200, max_iter=5, max_iter_all=0, random_state=0)
    assert {record["rows"] for record in few.tuning_history_} == {200}


def test_length_scales_are_in_the_units_of_the_features():
    X, y = data()
    units = np.array([1000.0, 1.0, 0.01])
    settings = {"max_iter": 4, "random_state": 0}  # few, so that rounding is not amplified
    a = tune(NystromRegressor(n_centers=60, random_state=0), X, y, **settings)
    b = tune(NystromRegressor(n_centers=60, random_state=0), X * units, y, **settings)
    assert_allclose(b.kernel.length_scale, a.kernel.length_scale * units, rtol=1e-5)
    assert_allclose(b.predict(X * units), a.predict(X), rtol=1e-4, atol=1e-4)


def test_centers_can_be_tuned():
    X, y = data()
    fixed = tune(NystromRegressor(n_centers=12), X, y, random_state=0)
    moved = tune(NystromRegressor(n_centers=12), X, y, tune_centers=True, max_iter=80, random_state=0)
    assert moved.tuning_history_[-1]["objective"] < fixed.tuning_history_[-1]["objective"]
    assert moved.centers_.shape == (12, 3)


@pytest.mark.parametrize(
    "kernel", [RationalQuadratic(2.0, alpha=0.5), 0.5 * Gaussian(1.0) + Matern(3.0, nu=2.5)], ids=repr
)
def test_other_parameters_are_tuned(kernel):
    X, y = data()
    model = tune(FalkonRegressor(kernel, n_centers=60, random_state=0), X, y, max_iter=10, random_state=0)
    before = kernel.with_log_parameters(kernel.log_parameters(3), 3)
    assert repr(model.kernel) != repr(before)
    assert model.score(X, y) > 0.9


def test_weights_count():
    X, y = data()
    w = np.ones(600)
    w[300:] = 0
    spoiled = y.copy()
    spoiled[300:] = 100
    a = tune(NystromRegressor(n_centers=30, random_state=0), X, spoiled, sample_weight=w, random_state=0, max_iter=8)
    assert a.score(X[300:], y[300:]) > 0.8


def test_classes_and_exact_models(tmp_path):
    X, y = data()
    labels = np.where(y > 0, "up", "down")
    model = tune(FalkonClassifier(n_centers=60, random_state=0), X, labels, max_iter=10, random_state=0)
    assert model.score(X, labels) > 0.9
    model.save(tmp_path / "model.gyr")
    assert gyrfalcon.load(tmp_path / "model.gyr").tuning_history_ == model.tuning_history_
    exact = tune(ExactRegressor(random_state=0), X, y, max_iter=10, random_state=0)
    assert exact.score(X, y) > 0.9


def test_callbacks_stop_the_search():
    X, y = data()
    seen = []

    def watch(record):
        seen.append(record["iteration"])
        return len(seen) == 3

    model = tune(NystromRegressor(n_centers=30), X, y, callbacks=watch, random_state=0)
    assert seen == [1, 2, 3]
    assert len(model.tuning_history_) == 3


def test_a_stop_in_the_sample_is_a_stop():
    X, y = data()
    model = tune(
        NystromRegressor(n_centers=20), X, y, sample_size=100, callbacks=lambda r: r["iteration"] == 2, random_state=0
    )
    assert {record["rows"] for record in model.tuning_history_} == {100}


def test_kernels_take_turns():
    X, y = data()
    rough = np.sign(X[:, 0]) + 0.1 * y
    kernels = [Matern(nu=2.5), Matern(nu=0.5), Gaussian()]
    settings = {"max_iter": 15, "random_state": 0}
    model = tune(NystromRegressor(n_centers=60), X, rough, kernels=kernels, **settings)
    alone = [tune(NystromRegressor(kernel, n_centers=60), X, rough, **settings) for kernel in kernels]
    values = [one.tuning_history_[-1]["objective"] for one in alone]
    best = int(np.argmin(values))
    assert type(model.kernel) is type(kernels[best])
    assert_allclose(model.kernel.length_scale, alone[best].kernel.length_scale, rtol=1e-6)
    with pytest.raises(ValueError, match="kernels is empty"):
        tune(NystromRegressor(), X, y, kernels=[])


@pytest.mark.parametrize("tune_centers", [True, False])
def test_an_interrupted_search_goes_on(tmp_path, tune_centers):
    X, y = data()
    settings = {"tune_centers": tune_centers, "sample_size": 200, "max_iter": 6, "max_iter_all": 5, "random_state": 0}

    def run(folder, callbacks=None):
        checkpoint = None if folder is None else Checkpoint(tmp_path / folder, every=0)
        return tune(NystromRegressor(n_centers=20), X, y, checkpoint=checkpoint, callbacks=callbacks, **settings)

    whole = run(None)
    for at in (3, 8):  # in the sample, and in all rows

        def interrupt(record, at=at):
            if record["iteration"] == at + 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(f"at{at}", interrupt)
        found = run(f"at{at}")
        assert [record["iteration"] for record in found.tuning_history_][: at + 1] == list(range(1, at + 2))
        if tune_centers:  # Adam draws the same rows and goes on with the same parameters
            assert_array_equal(found.centers_, whole.centers_)
        else:  # L-BFGS begins anew, and goes down from there
            values = [record["objective"] for record in found.tuning_history_ if record["rows"] == 600]
            assert values[-1] < values[0]
        again = run(f"at{at}", lambda record: pytest.fail("nothing is left to do"))
        assert np.array_equal(again.kernel.length_scale, found.kernel.length_scale)


KILLED = """
import os, signal, sys

import numpy as np
from gyrfalcon import NystromRegressor, tune
from gyrfalcon.kernels import Gaussian, Matern
from gyrfalcon.storage.checkpoints import Checkpoint

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(400, 3))
y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(400)

def search(folder, at, tune_centers):
    def kill(record):
        if record["iteration"] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    model = tune(
        NystromRegressor(n_centers=30), X, y, kernels=[Matern(nu=0.5), Gaussian(), Matern(nu=2.5)], sample_size=200,
        tune_centers=tune_centers, max_iter=4, max_iter_all=2, random_state=0, callbacks=kill,
        checkpoint=Checkpoint(folder, every=0),
    )
    iterations = [record["iteration"] for record in model.tuning_history_]
    np.savez(f"{folder}.npz", kernel=repr(type(model.kernel)), scales=model.kernel.length_scale, iterations=iterations)

# each search in a process of its own, forked by one that has imported everything and has no threads
for folder, at, tune_centers in eval(sys.argv[1]):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            search(folder, at, tune_centers)
            code = 0
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("tune_centers", [True, False])
def test_a_killed_search_with_several_kernels_goes_on_with_all(tmp_path, tune_centers):
    kill_at = [3, 6, 10, 0]  # in the first, the second and the third kernel, and in none
    searches = [(str(tmp_path / "whole"), 0, tune_centers)]
    searches += [(str(tmp_path / "killed"), at, tune_centers) for at in kill_at]
    command = [sys.executable, "-c", KILLED, repr(searches)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert list(map(int, done.stdout.split())) == [0, *3 * [-signal.SIGKILL], 0], done.stderr
    whole, found = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "killed"))
    assert found["kernel"] == whole["kernel"]
    assert list(found["iterations"]) == list(range(1, len(found["iterations"]) + 1))
    if tune_centers:  # Adam goes on: 4 iterations for each kernel, 2 on all rows
        assert len(found["iterations"]) == 14
        assert_array_equal(found["scales"], whole["scales"])
    else:
        assert "Gaussian" in str(found["kernel"])  # smooth, and not the first of the list


def test_checkpoints_of_other_searches_and_damaged_ones(tmp_path):
    X, y = data()
    settings = {"checkpoint": Checkpoint(tmp_path, every=0), "max_iter": 3, "random_state": 0}
    tune(NystromRegressor(n_centers=20), X, y, **settings)
    with pytest.raises(CheckpointError, match="objective differ"):
        tune(NystromRegressor(n_centers=20), X, y, objective="complexity", **settings)
    with pytest.raises(CheckpointError, match="y differ"):
        tune(NystromRegressor(n_centers=20), X, -y, **settings)
    (tmp_path / "tuning.npz").write_bytes(b"no archive")
    with pytest.raises(CheckpointError, match="is damaged"):
        tune(NystromRegressor(n_centers=20), X, y, **settings)


def test_errors_say_what_to_do():
    X, y = data(60)
    with pytest.raises(ValueError, match="no parameters that gradients can tune"):
        tune(NystromRegressor(Linear(), scale=False), X, y)
    with pytest.raises(ValueError, match="has no parameter penalty"):
        tune(KernelPCA(), X, y)
    with pytest.raises(TypeError, match="estimator of this library"):
        tune("falkon", X, y)
    with pytest.raises(ValueError, match="no parameter centers"):
        tune(ExactRegressor(), X, y, tune_centers=True)
    with pytest.raises(ValueError, match="objective='loss'"):
        tune(NystromRegressor(), X, y, objective="loss")
    with pytest.raises(MemoryError, match="max_iter_all=0"):
        tune(NystromRegressor(n_centers=50, memory_budget="10kB"), X, y)
