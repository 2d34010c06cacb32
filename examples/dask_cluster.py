"""A Dask cluster
==============

Fit a model to a Dask array on a cluster, and predict lazily.

Run it with ``python examples/dask_cluster.py [rows]``.

The cluster of this example consists of threads of this process. With a real
cluster only the client is different: ``Client("scheduler:8786")``.
"""

import sys

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from gyrfalcon import FalkonRegressor
from gyrfalcon.cli.demo import make_arm


def main(rows: int) -> None:
    X, y = make_arm(rows + 2_000)
    X, X_test, y, y_test = X[:rows], X[rows:], y[:rows], y[rows:]
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster),  # the current client, which fit and compute use
    ):
        lazy_X = da.from_array(X, chunks=(rows // 4, X.shape[1]))
        lazy_y = da.from_array(y, chunks=rows // 4)
        model = FalkonRegressor(
            n_centers=300, penalty=1e-6, max_iter=10, random_state=0
        ).fit(lazy_X, lazy_y)

        predictions = model.predict(
            da.from_array(X_test, chunks=(1_000, X.shape[1]))
        )
        print("predictions:", predictions)
        error = da.sqrt(((predictions - y_test) ** 2).mean()).compute()
        print(f"test error {error:.4f}, a constant has {np.std(y_test):.4f}")

    in_memory = FalkonRegressor(
        n_centers=300, penalty=1e-6, max_iter=10, random_state=0
    ).fit(X, y)
    difference = np.abs(
        in_memory.predict(X_test) - model.predict(X_test)
    ).max()
    print(f"largest difference from the fit in memory: {difference:.1e}")

    _, ax = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
    ax.hexbin(y_test, model.predict(X_test), gridsize=40, mincnt=1, bins="log")
    ax.axline((y_test.mean(), y_test.mean()), slope=1, color="C1")
    ax.set(xlabel="y of new rows", ylabel="prediction by the cluster's fit")
    plt.show()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8_000)
