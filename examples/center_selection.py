"""Which rows become centers
=========================

Compare six ways to choose centers. In these data, most of the variation of y
is in a few rare clusters.

Run it with ``python examples/center_selection.py [rows]``.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import FalkonRegressor
from gyrfalcon.centers import (
    Bless,
    GivenScores,
    KMeansPlusPlus,
    LeverageScores,
    RPCholesky,
    Uniform,
)
from gyrfalcon.centers.leverage import effective_dimension
from gyrfalcon.kernels import Gaussian


def make_rare_clusters(n, seed, k=20, share=0.001):
    """Make a large cluster at the origin and k small ones elsewhere.

    Each of the small clusters has a fraction `share` of the rows.
    """
    rng = np.random.default_rng(seed)
    cluster = rng.choice(k + 1, n, p=[1 - k * share, *[share] * k])
    middle = np.random.default_rng(99).uniform(-20, 20, size=(k + 1, 3))
    middle[0] = 0
    X = (
        middle[cluster]
        + rng.standard_normal((n, 3))
        * np.where(cluster == 0, 0.5, 1.0)[:, None]
    )
    y = (
        np.sin(2 * X[:, 0])
        + (cluster > 0) * (3 + np.cos(X[:, 1]))
        + 0.1 * rng.standard_normal(n)
    )
    return X, y


# %%
# The effective dimension is the number of centers that are needed. It
# increases as the penalty decreases.

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
X, y = make_rare_clusters(rows, seed=0)
X_test, y_test = make_rare_clusters(20_000, seed=1)
kernel, penalty, n_centers = Gaussian(length_scale=1.5), 1e-6, 200

print(
    f"{rows:,} rows, {n_centers} centers; the noise alone has a mean squared "
    "error of 0.01"
)
for large in (1e-2, 1e-4, penalty):
    d_eff = effective_dimension(X, kernel, large, random_state=0)
    print(f"effective dimension at penalty {large:g}: {d_eff:.0f}")

# %%
# Fit a model with each kind of centers. `GivenScores` draws rows in proportion
# to scores of your own: here, to the squared distance from the origin.

own_scores = np.sum(X**2, axis=1)
chosen = {}
for centers in [
    Uniform(),
    LeverageScores(),
    Bless(),
    RPCholesky(),
    KMeansPlusPlus(),
    GivenScores(own_scores),
]:
    name = type(centers).__name__
    began = time.perf_counter()
    model = FalkonRegressor(
        kernel,
        n_centers=n_centers,
        penalty=penalty,
        centers=centers,
        random_state=0,
    ).fit(X, y)
    seconds = time.perf_counter() - began
    chosen[name] = (
        model.centers_
        if model.mean_ is None
        else model.centers_ * model.scale_ + model.mean_
    )
    error = np.mean((model.predict(X_test) - y_test) ** 2)
    rare = np.mean(np.abs(model.centers_).max(axis=1) > 3)
    print(
        f"{name:15} test error {error:.3f}, {rare:4.0%} of the centers in "
        f"rare clusters, {seconds:.1f} s"
    )

# %%
# The first two features of the rows (grey) and of the centers (red). Uniform
# centers miss the rare clusters.

figure, panels = plt.subplots(
    1, 2, figsize=(8, 4), layout="constrained", sharex=True, sharey=True
)
for panel, name in zip(panels, ("Uniform", "RPCholesky"), strict=True):
    panel.scatter(*X[:5000, :2].T, s=2, color="lightgrey")
    panel.scatter(*chosen[name][:, :2].T, s=12, color="C3")
    panel.set_title(name)
plt.show()
