"""Search on a sample, fit all rows
================================

Search for the length scale and the penalty on a sample of the rows, and then
fit all rows with more centers.

Run it with ``python examples/grid_search.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from gyrfalcon import FalkonRegressor
from gyrfalcon.cli.demo import make_arm
from gyrfalcon.kernels import Gaussian

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
X, y = make_arm(rows)
X_test, y_test = make_arm(10_000, seed=1)
mean = y.mean()

# %%
# The search uses at most 20,000 rows and few centers. The best values are
# nearly the same for more of them.

sample = np.random.default_rng(0).choice(
    rows, size=min(rows, 20_000), replace=False
)
search = GridSearchCV(
    FalkonRegressor(
        Gaussian(),
        scale=True,
        n_centers=min(300, len(sample) // 4),
        random_state=0,
    ),
    {"kernel__length_scale": [1.0, 2.0, 4.0], "penalty": [1e-7, 1e-6, 1e-5]},
    cv=3,
    scoring="neg_root_mean_squared_error",
    refit=False,
)
search.fit(X[sample], y[sample] - mean)
print("best:", search.best_params_, f"error {-search.best_score_:.4f}")

# %%
# Fit all rows with the best values.

model = clone(search.estimator).set_params(
    **search.best_params_, n_centers=min(1000, rows // 4)
)
model.fit(X, y - mean)
error = np.sqrt(np.mean((model.predict(X_test) + mean - y_test) ** 2))
print(
    f"{rows:,} rows, {len(model.centers_):,} centers: test error {error:.4f}"
)

# %%
# The errors of the search. Dark cells are better.

results = search.cv_results_
errors = -results["mean_test_score"].reshape(3, 3)
figure, panel = plt.subplots(figsize=(5, 4), layout="constrained")
panel.imshow(np.log(errors), cmap="viridis")
for (row, column), value in np.ndenumerate(errors):
    dark = np.log(value) < (np.log(errors.min()) + np.log(errors.max())) / 2
    panel.text(
        column,
        row,
        f"{value:.3f}",
        ha="center",
        va="center",
        color="white" if dark else "black",
    )
panel.set(
    xticks=range(3), xticklabels=["1e-7", "1e-6", "1e-5"], xlabel="penalty"
)
panel.set(
    yticks=range(3),
    yticklabels=["1", "2", "4"],
    ylabel="length scale",
    title="error",
)
plt.show()
