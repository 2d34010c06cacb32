"""What a fit leaves on a cluster: nothing."""

from __future__ import annotations

import time

import numpy as np
import pytest

import gyrfalcon

distributed = pytest.importorskip("distributed")


def tasks_of(client):
    return client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks])


@pytest.mark.slow
def test_no_task_stays_after_a_fit():
    import dask.array as da

    rng = np.random.default_rng(0)
    X = da.from_array(rng.standard_normal((800, 3)), chunks=(100, 3))
    options = {"n_centers": 30, "max_iter": 5, "random_state": 0}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        for model, y in [
            (gyrfalcon.FalkonRegressor(**options, scale=True), X[:, 0]),
            (gyrfalcon.FalkonClassifier(**options), X[:, 0] > 0),
            (gyrfalcon.FalkonClassifier(**options, loss="logistic"), X[:, 0] > 0),
        ]:
            model.fit(X, y)  # the model is alive below
            for _ in range(100):  # the scheduler hears of it a moment later
                if not tasks_of(client):
                    break
                time.sleep(0.05)
            assert tasks_of(client) == []
            assert not client.futures
