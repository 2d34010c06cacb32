"""Fits on a Dask cluster of processes that reads Parquet: workers that stop or run out of memory, a lost scheduler."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from threading import Thread

import numpy as np
import pytest

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

import pandas as pd  # noqa: E402

from gyrfalcon import Checkpoint, FalkonRegressor  # noqa: E402
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
def cluster(*, limit=None, patience="60s"):
    """A scheduler and two workers in processes of their own, which may be killed; yield the client and the processes.

    With a `limit`, each worker has a process beside it that begins it anew if it takes more memory. A worker that
    does not answer for longer than `patience` is given up.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    host, port = address.split(":")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": patience}
    begin = [sys.executable, "-m", "dask", "scheduler", "--host", host, "--port", port, "--no-dashboard"]
    memory = ["--no-nanny"] if limit is None else ["--nanny", "--memory-limit", limit]
    work = [sys.executable, "-m", "dask", "worker", address, "--nthreads", "1", *memory]
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
    with cluster(patience="2s") as (client, processes):
        stopped = []

        def at_the_second(record):
            if record["iteration"] == 2:
                os.kill(processes[1].pid, signal.SIGSTOP)
                stopped.append(True)

        model = fit(folder, client, callbacks=[at_the_second])
        assert stopped
        assert len(client.scheduler_info()["workers"]) == 1
    np.testing.assert_array_equal(model.dual_coef_, expected)


def test_the_scheduler_is_lost_and_another_one_goes_on_from_the_checkpoint(folder, tmp_path):
    checkpoint = Checkpoint(tmp_path, every=0)
    # a client tries to find a lost scheduler again for this long
    with dask.config.set({"distributed.comm.timeouts.connect": "3s", "distributed.comm.retry.count": 0}):
        with cluster() as (client, processes):

            def at_the_third(record):
                if record["iteration"] == 3:
                    processes[0].kill()

            with pytest.raises(Exception, match="client"):
                fit(folder, client, callbacks=[at_the_third], checkpoint=checkpoint)
        with cluster() as (client, _):
            seen = []
            model = fit(
                folder, client, callbacks=[lambda record: seen.append(record["iteration"])], checkpoint=checkpoint
            )
            assert seen == [4, 5, 6]
            np.testing.assert_array_equal(model.dual_coef_, fit(folder, client).dual_coef_)


def test_a_worker_that_reaches_its_memory_limit_is_begun_anew(folder):
    with cluster(limit="800MB") as (client, _):
        expected = fit(folder, client).dual_coef_
        first, second = client.run(os.getpid).items()
        threads = []

        def take_memory():  # sent to the worker as it is, since it cannot import this file
            held = b"x" * (1 << 30)
            time.sleep(60)
            return len(held)

        def until_killed():
            with suppress(Exception):
                client.run(take_memory, workers=[first[0]])

        def at_the_second(record):
            if record["iteration"] == 2:
                threads.append(Thread(target=until_killed, daemon=True))
                threads[0].start()
                deadline = time.monotonic() + 30
                while first[0] in client.scheduler_info()["workers"]:  # until it is killed
                    assert time.monotonic() < deadline
                    time.sleep(0.1)

        model = fit(folder, client, callbacks=[at_the_second])
        np.testing.assert_array_equal(model.dual_coef_, expected)
        client.wait_for_workers(2, timeout=30)
        pids = list(client.run(os.getpid).values())
        assert second[1] in pids
        assert first[1] not in pids
