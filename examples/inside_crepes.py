"""Inside crepes
=============

Use a kernel regressor in crepes, a library for conformal prediction. crepes
makes intervals wide for rows that are difficult to predict. Here the
difficulty of a row is its standard deviation by the model, which is large
where there are few training rows.

crepes is installed with ``pip install crepes``. Run it with ``python
examples/inside_crepes.py [rows]``.
"""

import sys
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import FalkonRegressor

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
random = np.random.default_rng(0)
X = random.standard_normal((rows, 2))
y = np.sin(4 * X[:, 0]) + 0.1 * random.standard_normal(rows)
third = rows // 3
learnt, judges, new = (
    slice(0, third),
    slice(third, 2 * third),
    slice(2 * third, None),
)
far = np.hypot(*X[new].T) > 2.5


widths = {}


def report(name, low, high):
    widths[name.strip(":")] = high - low
    inside = (low <= y[new]) & (y[new] <= high)
    print(
        f"{name:11s} {inside.mean():.1%} of y inside, "
        f"{inside[far].mean():.1%} where rows are few"
    )


# %%
# Pass the standard deviations of the model to crepes as the difficulty of the
# rows.

model = FalkonRegressor(n_centers=500, uncertainty=True, random_state=0).fit(
    X[learnt], y[learnt]
)


class Deviation:
    """Difficulty of rows, as crepes asks for it."""

    def apply(self, rows):
        return np.sqrt(
            model.predict(rows, return_std=True)[1] ** 2
            + model.noise_variance_
        )


# %%
# With the same width for all rows, intervals are too narrow where there are
# few rows. With the standard deviation they are wider there.

if find_spec("crepes") is None:
    print("crepes is not installed: pip install crepes")
else:
    from crepes import WrapRegressor

    around = WrapRegressor(model)  # a model that is fitted is left as it is
    for name, difficulty in (
        ("one width:", None),
        ("deviation:", Deviation()),
    ):
        around.calibrate(X[judges], y[judges], de=difficulty)
        report(name, *around.predict_int(X[new], confidence=0.9).T)

# %%
# Widths of the intervals against the distance from the middle of the rows.

distance = np.hypot(*X[new].T)
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for name, width in widths.items():
    ax.scatter(distance, width, s=4, label=name)
ax.set(
    xlabel="distance from the middle",
    ylabel="width of the interval",
    title="90% intervals",
)
if widths:
    ax.legend()
plt.show()
