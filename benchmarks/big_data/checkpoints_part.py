"""Fits that are killed at 200 points and started again; and what a checkpoint costs.

The kill points are those of tests/estimators/checkpoints/killed_fits.py, of which the tests sample a few: conjugate
gradient with early stopping, the change to KRILL's preconditioner on the way, and Newton's method, each killed with
SIGKILL at random moments and at every step of writing a file. The cost is that of whole fits, in turn and best of
several, with a checkpoint every 30 seconds (so at the start and at the end) and after each iteration, beside one
without.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from _common import best_of

import gyrfalcon
from gyrfalcon import FalkonRegressor
from gyrfalcon.kernels import Gaussian
from gyrfalcon.storage.checkpoints import Checkpoint

SCRIPT = Path(__file__).resolve().parents[2] / "tests" / "estimators" / "checkpoints" / "killed_fits.py"
POINTS = {"cg": 67, "switch": 67, "logistic": 66}
COST = 1.05

Row = tuple[str, str, str, bool | None]


def run(*, small: bool, data: Path) -> list[Row]:
    """The rows of the report."""
    return [*kill_points(small), *costs(small)]


def kill_points(small: bool) -> list[Row]:
    rows: list[Row] = []
    total = good = 0
    for case, points in POINTS.items():
        results = killed(case, points // 10 + (case != "logistic") if small else points)[1:]
        same = sum(result["ended"] == 0 and result["same"] for result in results)
        died = sum(-9 in result["killed"] for result in results)
        print(f"{case}: {len(results)} points, {same} with the same result", file=sys.stderr)
        rows.append(
            (f"kill points, {case}", f"{same} of {len(results)} the same, {died} died", "all", same == len(results))
        )
        total, good = total + len(results), good + same
    rows.append(("kill points", f"{good} of {total}: same bits, same history", f"{total} of {total}", good == total))
    return rows


def killed(case: str, points: int) -> list[dict[str, Any]]:
    """What came of fits that were killed."""
    paths = os.pathsep.join([str(Path(gyrfalcon.__file__).parents[1]), str(SCRIPT.parents[1])])
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), case, str(points), folder],
            env=os.environ | {"PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def costs(small: bool) -> list[Row]:
    n, M = (40_000, 500) if small else (200_000, 1_500)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 20), dtype=np.float32)
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n, dtype=np.float32)
    sizes: dict[str, int] = {}

    def fit(name: str, every: float | None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None if every is None else Checkpoint(folder, every)
            FalkonRegressor(Gaussian(4.0), n_centers=M, tol=0, random_state=0, checkpoint=checkpoint).fit(X, y)
            sizes[name] = sum(path.stat().st_size for path in Path(folder).iterdir())

    intervals = {"none": None, "every 30 s": 30.0, "each iteration": 0.0}
    best = best_of({name: lambda name=name, every=every: fit(name, every) for name, every in intervals.items()}, 3)
    rows: list[Row] = [(f"fit without checkpoint, n = {n}, M = {M}", f"{best['none']:.2f} s", "", None)]
    for name, bar in (("every 30 s", None if small else COST), ("each iteration", None)):
        ratio = best[name] / best["none"]
        print(f"{name}: {ratio:.3f} x", file=sys.stderr)
        what = f"{ratio:.3f} x, {sizes[name] / 1e3:.0f} kB"
        rows.append((f"with checkpoint {name}", what, "" if bar is None else f"{bar} x", bar and ratio <= bar))
    return rows
