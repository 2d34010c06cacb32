"""Dask: two workers of one thread beside the fit in this process with two threads, on the same rows; a worker killed.

Time is of whole fits, centers and factors included, best of several that take turns; the rows are already on the
workers, as those of the other fit are in memory. K is not kept by either, as it would not be at this size.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from gyrfalcon import FalkonRegressor
from gyrfalcon.kernels import Gaussian
from gyrfalcon.operators import make_operator
from gyrfalcon.sources import DaskRows

Row = tuple[str, str, str, bool | None]
PARTITIONS = 8


def make(n: int, d: int = 18) -> tuple[np.ndarray, np.ndarray]:
    """Rows and a smooth function of a few features with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(n, dtype=np.float32)
    return X, y.astype(np.float32)


def say(text: str) -> None:
    print(f"  dask: {text}", file=sys.stderr, flush=True)


def run(*, small: bool, data: Path) -> list[Row]:
    import dask.array as da
    import distributed

    n, M, rounds = (200_000, 1_000, 2) if small else (2_000_000, 2_000, 3)
    X, y = make(n)
    X_test = make(10_000)[0][::-1].copy()
    seconds: dict[str, list[float]] = {"memory": [], "dask": [], "killed": []}
    models: dict[str, Any] = {}

    def fit(name: str, rows: Any, callbacks: list[Any] | None = None) -> None:
        model = FalkonRegressor(
            Gaussian(4.0),
            n_centers=M,
            penalty=1e-6,
            max_iter=15,
            tol=0,
            n_jobs=2,
            memory_budget="300MB",  # too little for K, so that every pass makes it anew
            random_state=0,
            callbacks=callbacks,
        )
        began = time.perf_counter()
        models[name] = model.fit(rows, y)
        seconds[name].append(time.perf_counter() - began)
        say(f"{name}: {seconds[name][-1]:.1f} s")

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs="CRITICAL"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        chunk = -(-n // PARTITIONS)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # from which lost rows are made again
            lazy = da.from_array(X, chunks=(chunk, X.shape[1])).persist()
            distributed.wait(lazy)
        rows = DaskRows(lazy, client=client)
        make_operator(Gaussian(4.0), rows, X[:10]).matmat(np.ones(10))  # workers import the library
        for _ in range(rounds):
            fit("memory", X)
            fit("dask", rows)
        overhead = _latency(rows)

        def kill_one(record: dict[str, Any]) -> None:
            if record["iteration"] == 5:
                pid = next(iter(client.run(os.getpid).values()))
                say(f"killing worker {pid}")
                os.kill(pid, signal.SIGKILL)

        fit("killed", rows, [kill_one])

    f = {name: model.predict(X_test) for name, model in models.items()}
    size = float(np.abs(f["memory"]).max())
    ratio = min(seconds["dask"]) / min(seconds["memory"])
    apart = float(np.abs(f["dask"] - f["memory"]).max()) / size
    apart_killed = float(np.abs(f["killed"] - f["memory"]).max()) / size
    label = f"n = {n:,}, M = {M:,}, {PARTITIONS} partitions"
    return [
        (f"{label}: in this process, 2 threads", f"{min(seconds['memory']):.1f} s", "", None),
        (f"{label}: 2 workers of 1 thread", f"{min(seconds['dask']):.1f} s", "", None),
        ("whole fit, Dask / in this process", f"{ratio:.2f}", "<= 1.35", ratio <= 1.35),
        ("predictions, largest difference over largest", f"{apart:.1e}", "<= 1e-6", apart <= 1e-6),
        ("a pass of next to no work", f"{1e3 * overhead:.0f} ms", "", None),
        ("one worker killed in iteration 5: whole fit", f"{seconds['killed'][0]:.1f} s", "", None),
        ("... and its predictions", f"{apart_killed:.1e}", "<= 1e-6", apart_killed <= 1e-6),
    ]


def _latency(rows: DaskRows) -> float:
    """Seconds of a pass over a few rows of each partition: what Dask itself costs."""
    few = rows.subset(np.concatenate([np.arange(at.start, at.start + 96) for at in rows.slices]))
    operator = make_operator(Gaussian(4.0), few, few.take(np.arange(10)))
    times = []
    for _ in range(12):
        began = time.perf_counter()
        operator.sandwich(np.ones(10))
        times.append(time.perf_counter() - began)
    return float(np.median(times[2:]))
