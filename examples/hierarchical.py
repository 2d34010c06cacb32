"""Every row a center
==================

A function with fine detail everywhere requires centers everywhere. This
example compares the test error and the time of FALKON with 500 centers, of
trees of cells, whose time is proportional to the number of rows, and of exact
kernel ridge regression.

Run it with ``python examples/hierarchical.py [rows]``.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import ExactRegressor, FalkonRegressor, HierarchicalRegressor
from gyrfalcon.kernels import Laplacian

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 6_000
rng = np.random.default_rng(0)
X = rng.uniform(0, 1, size=(rows, 2))
y = sum(
    np.sin(2**k * (X[:, 0] + 3 * X[:, 1])) * np.cos(2**k * X[:, 1]) / k
    for k in range(1, 5)
)
y = y + 0.05 * rng.standard_normal(rows)
half = rows // 2

# %%
# All methods use the same kernel and the same penalty.

shared = {"kernel": Laplacian(0.5), "penalty": 1e-5, "random_state": 0}
methods = {
    "FALKON, 500 centers": FalkonRegressor(n_centers=min(500, half), **shared),
    "one tree": HierarchicalRegressor(leaf_size=200, n_trees=1, **shared),
    "four trees": HierarchicalRegressor(leaf_size=200, n_trees=4, **shared),
    "exact": ExactRegressor(**shared),
}
for name, model in methods.items():
    start = time.perf_counter()
    model.fit(X[:half], y[:half])
    seconds = time.perf_counter() - start
    error = np.sqrt(np.mean(np.square(model.predict(X[half:]) - y[half:])))
    print(f"{name:20} test error {error:.4f} after {seconds:.2f} s")

# %%
# Errors on the test rows, in the plane of the two features. With few centers,
# the fine detail of the function is missed.

figure, axes = plt.subplots(
    1, 3, figsize=(11, 3.6), sharex=True, sharey=True, layout="constrained"
)
for ax, name in zip(
    axes, ("FALKON, 500 centers", "four trees", "exact"), strict=True
):
    errors = np.abs(methods[name].predict(X[half:]) - y[half:])
    points = ax.scatter(
        *X[half:].T, c=errors, s=4, vmin=0, vmax=0.3, cmap="magma_r"
    )
    ax.set_title(f"{name}: {np.sqrt(np.mean(errors**2)):.3f}")
figure.colorbar(points, ax=axes, label="error")
plt.show()
