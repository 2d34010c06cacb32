"""Quantiles, outliers, counts
===========================

Use the quantile loss for intervals, the Huber loss for data with outliers, and
the Poisson loss for counts.

Run it with ``python examples/quantiles.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import FalkonRegressor

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
random = np.random.default_rng(0)
X = random.uniform(-3, 3, size=(rows, 1))
signal, noise = np.sin(2 * X[:, 0]), 0.2 + 0.1 * (X[:, 0] + 3)
common = {"n_centers": 100, "penalty": 1e-5, "random_state": 0}

# %%
# Fit three quantiles at once. They never cross, and the interval between the
# first and the last is wide where y is noisy.

y = signal + noise * random.standard_normal(rows)
model = FalkonRegressor(
    loss="quantile", quantiles=[0.05, 0.5, 0.95], **common
).fit(X, y)
low, median, high = model.predict(X).T
print(
    f"quantiles: {np.mean((low <= y) & (y <= high)):.1%} of the rows lie in "
    "the interval from 5% to 95%"
)
for x in (-2.0, 2.0):
    (a, b, c), truth = model.predict([[x]])[0], 1.645 * (0.2 + 0.1 * (x + 3))
    print(
        f"  at x = {x:g} it is {b:.2f} - {b - a:.2f} + {c - b:.2f}; the true "
        f"interval is +- {truth:.2f}"
    )

# %%
# Every twentieth value is wrong. The Huber loss is hardly affected by it.

broken = np.where(np.arange(rows) % 20 == 0, y + 50, y)
for loss in ("squared", "huber"):
    model = FalkonRegressor(loss=loss, **common).fit(X, broken)
    error = np.sqrt(np.mean((model.predict(X) - signal) ** 2))
    print(f"5% outliers, loss={loss!r}: off by {error:.2f}")

# %%
# For counts, predictions are means, which are always positive.

counts = random.poisson(np.exp(1 + signal))
model = FalkonRegressor(loss="poisson", **common).fit(X, counts)
error = np.mean(np.abs(model.predict(X) / np.exp(1 + signal) - 1))
print(
    f"counts: mean error {error:.1%}, the smallest prediction is "
    f"{model.predict(X).min():.2f}"
)

# %%
# The interval is wide where y is noisy.

grid = np.linspace(-3, 3, 200)[:, None]
model = FalkonRegressor(
    loss="quantile", quantiles=[0.05, 0.5, 0.95], **common
).fit(X, y)
low, median, high = model.predict(grid).T
figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
panel.scatter(
    X[:2000, 0], y[:2000], s=4, color="grey", alpha=0.5, label="rows"
)
panel.fill_between(grid[:, 0], low, high, alpha=0.3, label="5% to 95%")
panel.plot(grid[:, 0], median, label="median")
panel.set(xlabel="x", ylabel="y")
panel.legend()
plt.show()
