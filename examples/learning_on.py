"""Update a model with new rows
============================

Rows arrive in batches, and the relation between X and y changes slowly.
Compare a model that is never updated with one that learns every batch, and
with one that also forgets old rows.

Run it with ``python examples/learning_on.py``.
"""

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import NystromRegressor

rng = np.random.default_rng(0)
batches = 60


def batch(when):
    """Return 500 rows; the phase of the sine moves on with time."""
    X = rng.uniform(-3, 3, size=(500, 2))
    y = np.sin(2 * X[:, 0] + 0.05 * when) + 0.5 * X[:, 1]
    return X, y + 0.1 * rng.standard_normal(500)


# %%
# All three models start with the same batch. `partial_fit` records the error
# on each batch before it is learned.

X, y = batch(0)
names = ["stays", "learns on", "learns on and forgets"]
models = [
    NystromRegressor(n_centers=200, penalty=1e-4, random_state=0).partial_fit(
        X, y
    )
    for _ in names
]
errors = np.empty((batches, 3))
for when in range(1, batches + 1):
    X, y = batch(when)
    for j, model in enumerate(models):
        errors[when - 1, j] = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    models[1].partial_fit(X, y)
    models[2].partial_fit(X, y, forgetting_factor=0.7)

for name, error in zip(names, errors[-1], strict=True):
    print(f"{name}: error {error:.2f} on the last batch")

# %%
# The noise alone has the standard deviation 0.1.

plt.plot(np.arange(1, batches + 1), errors, label=names)
plt.axhline(0.1, color="gray", linestyle=":", label="noise")
plt.xlabel("batch")
plt.ylabel("error before it is learned")
plt.legend()
plt.show()
