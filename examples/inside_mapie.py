"""Inside MAPIE
============

Use a kernel regressor in MAPIE, a library for conformal prediction, which
determines the width of intervals from held-out rows, and compare the intervals
with those of Gyrfalcon, which need no held-out rows.

MAPIE is installed with ``pip install mapie``. Run it with ``python
examples/inside_mapie.py [rows]``.
"""

import sys
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import FalkonRegressor

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
random = np.random.default_rng(0)
X = random.uniform(-3, 3, size=(rows, 2))
y = np.sin(2 * X[:, 0]) + 0.2 * random.standard_normal(rows)
third = rows // 3
learnt, judges, new = (
    slice(0, third),
    slice(third, 2 * third),
    slice(2 * third, None),
)


ends_of = {}


def report(name, low, high):
    ends_of[name.strip(":")] = low, high
    inside = np.mean((low <= y[new]) & (y[new] <= high))
    print(
        f"{name:17s} {inside:.1%} of y inside, mean width "
        f"{np.mean(high - low):.3f}"
    )


# %%
# Gyrfalcon's intervals are calibrated by leave-one-out errors, so that all
# rows are used for training.

model = FalkonRegressor(n_centers=200, uncertainty=True, random_state=0)
low, high = (
    model.fit(X[: 2 * third], y[: 2 * third])
    .predict_interval(X[new], coverage=0.9)
    .T
)
report("Gyrfalcon alone:", low, high)

# %%
# MAPIE learns from a third of the rows and calibrates the intervals with
# another third.

if find_spec("mapie") is None:
    print("MAPIE is not installed: pip install mapie")
else:
    from mapie.regression import SplitConformalRegressor

    around = SplitConformalRegressor(
        FalkonRegressor(n_centers=200, random_state=0),
        confidence_level=0.9,
        prefit=False,
    )
    around.fit(X[learnt], y[learnt]).conformalize(X[judges], y[judges])
    _, ends = around.predict_interval(X[new])
    report("inside MAPIE:", ends[:, 0, 0], ends[:, 1, 0])

# %%
# Intervals along the first feature.

order = np.argsort(X[new][:, 0])[::10]
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.scatter(
    X[new][order, 0], y[new][order], s=4, color="gray", label="new rows"
)
for name, (low, high) in ends_of.items():
    ax.fill_between(
        X[new][order, 0], low[order], high[order], alpha=0.4, label=name
    )
ax.set(xlabel="first feature", ylabel="y")
ax.legend()
plt.show()
