"""Fits on a Dask cluster of processes that reads Parquet: a worker that stops answering."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress

import numpy as np
import pytest

dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

import pandas as pd  # noqa: E402

from gyrfalcon import FalkonRegressor  # noqa: E402
from gyrfalcon.sources import DaskRows  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
COLUMNS = ["a", "b", "c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six Parquet files."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("parts")
    for part in range(6):
        X = rng.standard_normal((1_500, 3))
        frame = pd.DataFrame(X, columns=COLUMNS).assign(y=np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2])
        frame.to_parquet(folder / f"{part}.parquet")
    return folder


def fit(folder, client, **more):
    data = dd.read_parquet(folder)
    rows = DaskRows(data[COLUMNS], client=client)
    settings = {"n_centers": 80, "penalty": 1e-6, "max_iter": 6, "tol": 0, "preconditioner": "falkon"}
    return FalkonRegressor(**settings, random_state=0, **more).fit(rows, client.compute(data["y"]).result())


@contextmanager
def cluster():
    """A scheduler and two workers in processes of their own, which may be killed; yield the client and the pids."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    host, port = address.split(":")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s"}
    begin = [sys.executable, "-m", "dask", "scheduler", "--host", host, "--port", port, "--no-dashboard"]
    work = [sys.executable, "-m", "dask", "worker", address, "--nthreads", "1", "--no-nanny"]
    processes = [subprocess.Popen(begin, env=environment, **quiet)]
    try:
        processes += [subprocess.Popen([*work, "--no-dashboard"], env=environment, **quiet) for _ in range(2)]
        with distributed.Client(address, set_as_default=False, timeout=120) as client:
            client.wait_for_workers(2, timeout=120)
            yield client, processes
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                process.kill()  # also one that is stopped
            process.wait()


def test_a_worker_stops_during_a_fit(folder):
    with cluster() as (client, _):
        expected = fit(folder, client).dual_coef_
    with cluster() as (client, processes):
        stopped = []

        def at_the_second(record):
            if record["iteration"] == 2:
                os.kill(processes[1].pid, signal.SIGSTOP)
                stopped.append(True)

        model = fit(folder, client, callbacks=[at_the_second])
        assert stopped
        assert len(client.scheduler_info()["workers"]) == 1
    np.testing.assert_array_equal(model.dual_coef_, expected)
