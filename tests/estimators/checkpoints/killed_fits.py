"""Fits in child processes that are killed with SIGKILL; a script, so that it forks before BLAS has any threads.

python killed_fits.py CASE POINTS FOLDER: kills a fit at as many points, each time in a folder of its own, starts it
again, and prints as JSON what came of it. Every other point is a random moment, and the rest are steps of writing a
file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import safetensors.numpy
import sklearn.model_selection  # noqa: F401 (what a fit imports when it needs it is imported once, before the forks)
from plain import plain

from gyrfalcon import FalkonClassifier, FalkonRegressor, HierarchicalRegressor
from gyrfalcon.kernels import Gaussian
from gyrfalcon.storage.checkpoints import Checkpoint, identify


def rare_rows(n=1500):
    """Uniform centers miss the rows far out, so that "auto" goes over to KRILL after 4 iterations."""
    rng = np.random.default_rng(0)
    X = np.vstack([0.3 * rng.standard_normal((n - n // 50, 2)), 4 * rng.standard_normal((n // 50, 2))])
    return X, np.sin(2 * X[:, 0]) + np.cos(X[:, 1])


def cg():
    X, y = rare_rows()
    model = plain(FalkonRegressor, n_centers=100, penalty=1e-7, random_state=0, early_stopping=True, n_iter_no_change=4)
    return model, (X.astype(np.float32), np.stack([y, y**2], axis=1))


def switch():
    return plain(FalkonRegressor, Gaussian(1.0), n_centers=200, penalty=1e-6, random_state=0), rare_rows()


def logistic():
    X, y = rare_rows()
    model = plain(FalkonClassifier, n_centers=100, penalty=1e-6, loss="logistic", tol=0, max_iter=6, random_state=0)
    return model, (X, np.digitize(y, [0.5, 1.2]))


def trees():
    return HierarchicalRegressor(Gaussian(1.0), leaf_size=100, penalty=1e-4, n_trees=5, random_state=0), rare_rows()


CASES = {"cg": cg, "switch": switch, "logistic": logistic, "trees": trees}
# Where a process kills itself while it writes a checkpoint
STEPS = [
    ("save_file", "halfway"),
    ("os.replace", "before"),
    ("os.replace", "after"),
    ("save_file", "before"),
    ("os.fsync", "before"),
    ("save_file", "after"),
    ("os.fsync", "after"),
]


def kill_myself(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def sabotage(function, when, which):
    """Make the process kill itself at one of the calls of a function."""
    owner, name = (safetensors.numpy, function) if function == "save_file" else (os, function.removeprefix("os."))
    real, calls = getattr(owner, name), [0]

    def counted(*args, **kwargs):
        calls[0] += 1
        if calls[0] == which and when == "before":
            kill_myself()
        result = real(*args, **kwargs)
        if calls[0] == which:
            if when == "halfway":  # as the file is when only a part of it has been written
                os.truncate(args[1], os.path.getsize(args[1]) // 2)
            kill_myself()
        return result

    setattr(owner, name, counted)


def fit(case, folder, out):
    warnings.simplefilter("ignore")
    model, data = CASES[case]()
    if folder is not None:
        model.set_params(checkpoint=Checkpoint(folder, every=0))
    model.fit(*data)
    history = [{name: value for name, value in record.items() if name != "seconds"} for record in model.history_]
    coef = np.stack([tree.coef for tree in model.trees_]) if case == "trees" else model.dual_coef_
    result = {"coef": coef.tobytes().hex(), "history": history, "n_iter": model.n_iter_}
    Path(out).write_text(json.dumps(result))


def run(case, folder, out, *, delay=None, step=None):
    """Fit in a child; give how it ended."""
    child = os.fork()
    if child == 0:
        try:
            if step is not None:
                sabotage(*step)
            fit(case, folder, out)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(case, n_points, where):
    identify("FalkonRegressor", {}, {})  # imports the native tiles
    where = Path(where)
    whole = where / "whole.json"
    assert run(case, None, whole) == 0
    began = time.perf_counter()
    assert run(case, where / "never killed", where / "never killed.json") == 0
    seconds = time.perf_counter() - began
    rng = np.random.default_rng(len(case))
    n_writes = json.loads(whole.read_text())["n_iter"] + 2  # also after the centers, and at the end
    results = [{"point": "none", "killed": [], "ended": 0, "same": same(whole, where / "never killed.json")}]
    for number in range(n_points):
        if number % 2:
            point = {"delay": float(rng.uniform(0, seconds))}
        else:
            point = {"step": (*STEPS[number // 2 % len(STEPS)], int(rng.integers(1, n_writes)))}
        folder, out = where / f"folder{number}", where / f"{number}.json"
        killed = [run(case, folder, out, **point)]
        if number % 3 == 0:  # and once more on the way
            killed.append(run(case, folder, out, step=("os.replace", "after", 2)))
        ended = run(case, folder, out)
        files = sorted(path.name for path in folder.iterdir())
        shutil.rmtree(folder)
        results.append(
            {"point": str(point), "killed": killed, "ended": ended, "same": same(whole, out), "files": files}
        )
    print(json.dumps(results))


def same(one, two):
    return two.exists() and one.read_text() == two.read_text()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
