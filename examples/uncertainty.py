"""Standard deviations and intervals
=================================

Compute standard deviations of predictions, samples of functions, intervals for
y with a given coverage, and sets of classes.

Run it with ``python examples/uncertainty.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from gyrfalcon import (
    ConformalClassifier,
    ConformalRegressor,
    FalkonClassifier,
    FalkonRegressor,
    NystromRegressor,
)

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
random = np.random.default_rng(0)
X = random.uniform(-3, 3, size=(rows, 2))
y = np.sin(2 * X[:, 0]) + 0.1 * (
    1 + (X[:, 1] > 0) * 4
) * random.standard_normal(rows)
half = rows // 2

# %%
# The penalty is chosen by the evidence, which takes no additional time.
# `uncertainty=True` makes standard deviations and samples available.

model = NystromRegressor(
    n_centers=200,
    penalties=np.logspace(-9, -1, 17),
    choose_by="evidence",
    uncertainty=True,
    random_state=0,
).fit(X[:half], y[:half])
for point in ([0.0, 0.0], [3.0, 3.0], [6.0, 6.0]):
    mean, std = model.predict([point], return_std=True)
    print(
        f"f{tuple(point)} is {mean[0]:.2f} +- {std[0]:.2f}; the noise of y "
        f"is {np.sqrt(model.noise_variance_):.2f}"
    )
print(
    "three functions at two points:",
    model.sample_y([[0.0, 0.0], [6.0, 6.0]], n_samples=3).round(2).tolist(),
)


# %%
# Intervals for y from leave-one-out errors, for which no row is held out, and
# from held-out rows, for any regressor.


def report(name, ends):
    inside = np.mean((ends[:, 0] <= y[half:]) & (y[half:] <= ends[:, 1]))
    print(
        f"{name}: {inside:.1%} of y inside, mean width "
        f"{np.mean(ends[:, 1] - ends[:, 0]):.2f}"
    )


falkon = FalkonRegressor(n_centers=200, uncertainty=True, random_state=0).fit(
    X[:half], y[:half]
)
report("leave-one-out     ", falkon.predict_interval(X[half:], coverage=0.9))

for method in ("constant", "quantiles"):
    around = ConformalRegressor(method=method, random_state=0).fit(
        X[:half], y[:half]
    )
    report(
        f"held out, {method:8s}",
        around.predict_interval(X[half:], coverage=0.9),
    )

# %%
# Sets of classes that contain the right class with a probability of 90%.

X, y = make_moons(rows, noise=0.4, random_state=0)
sets = ConformalClassifier(
    FalkonClassifier(loss="logistic", n_centers=100, random_state=0),
    random_state=0,
)
chosen = sets.fit(X[:half], y[:half]).predict_set(X[half:], coverage=0.9)
inside = chosen[np.arange(len(chosen)), y[half:]].mean()
print(
    f"classes: {inside:.1%} of the sets contain the right class, and "
    f"{np.mean(chosen.all(axis=1)):.1%} contain both"
)

# %%
# Predictions along a line that leaves the training rows. The standard
# deviation of f increases outside of them.

line = np.linspace(-6, 6, 200)
mean, std = model.predict(np.c_[line, np.zeros(200)], return_std=True)
figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
panel.axvspan(-3, 3, color="grey", alpha=0.15, label="where the rows are")
panel.fill_between(
    line,
    mean - 2 * std,
    mean + 2 * std,
    alpha=0.3,
    label="two deviations of f",
)
panel.plot(line, mean, label="prediction")
panel.plot(
    line, np.sin(2 * line), color="black", linestyle="--", label="truth"
)
panel.set(xlabel="the first feature", ylabel="f")
panel.legend(loc="lower right")
plt.show()
