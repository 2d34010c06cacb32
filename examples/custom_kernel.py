"""A kernel of your own
====================

Define a kernel of your own in three ways: by combining kernels, as a function,
or as a class.

Run it with ``python examples/custom_kernel.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import FalkonRegressor
from gyrfalcon.kernels import Gaussian, Kernel, Linear

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
random = np.random.default_rng(0)
X = random.uniform(-3, 3, size=(rows, 2))
y = 0.5 * X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * random.standard_normal(rows)

# %%
# 1. Sums, products and scalings of the named kernels. A constant is an
# intercept.
combined = Gaussian(length_scale=1.0) + 0.1 * Linear() + 1.0


# %%
# 2. Any function of two arrays of rows that gives the matrix of kernel values.
def periodic(A, B):
    difference = np.sin(1.5 * (A[:, 1, None] - B[None, :, 1]))
    return np.exp(-2 * difference**2) + A[:, :1] @ B[:, :1].T


# %%
# 3. A class: its fields, and its profile. This one is a function of the
# squared distance s of rows divided by `length_scale`; it is cloned and
# searched over like any kernel, and runs by blocks on all cores.
class Cauchy(Kernel):
    geometry = "distance"

    def __init__(self, length_scale=1.0):
        self.length_scale = length_scale

    def scaling(self, n_features):
        return np.full(n_features, 1.0 / self.length_scale)

    def profile(self, s):
        return 1.0 / (1.0 + s)


# %%
# All three are fitted in the same way.

test = X[: rows // 4]
models = {}
for name, kernel in {
    "combined": combined,
    "a function": periodic,
    "a class": Cauchy(length_scale=0.5),
}.items():
    model = FalkonRegressor(kernel, n_centers=200, random_state=0).fit(
        X[rows // 4 :], y[rows // 4 :]
    )
    models[name] = model
    print(
        f"{name}: R2 on the test rows {model.score(test, y[: rows // 4]):.3f}"
    )

# %%
# What they learned along the second feature, where the first is 0: the truth
# is sin(3 x).

line = np.column_stack([np.zeros(300), np.linspace(-4, 4, 300)])
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.plot(
    line[:, 1],
    np.sin(3 * line[:, 1]),
    color="gray",
    linewidth=4,
    alpha=0.4,
    label="truth",
)
for name, model in models.items():
    ax.plot(line[:, 1], model.predict(line), label=name)
ax.axvspan(-3, 3, alpha=0.1)
ax.set(
    xlabel="second feature (training rows in the shaded part)",
    ylabel="prediction",
)
ax.legend()
plt.show()
