"""A learned metric
================

Learn from the gradient of a fit which features matter, and scale the features
accordingly, which reduces the error.

Run it with ``python examples/learned_metric.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from gyrfalcon import FalkonRegressor, LearnedMetric
from gyrfalcon.kernels import Gaussian, Laplacian, Matern

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
X, y = make_friedman1(
    rows, n_features=15, noise=0.5, random_state=0
)  # the last ten features do nothing
y -= y.mean()
X_train, X_test, y_train, y_test = train_test_split(
    X.astype(np.float32), y, random_state=0
)


def error(model):
    predictions = model.fit(X_train, y_train).predict(X_test)
    return np.sqrt(np.mean((predictions - y_test) ** 2))


for name, kernel in {
    "Gaussian": Gaussian(),
    "Matern": Matern(),
    "1-norm Laplacian": Laplacian(norm=1),
}.items():
    falkon = FalkonRegressor(kernel, penalty=1e-5, random_state=0)
    pipeline = make_pipeline(LearnedMetric(falkon, random_state=0), falkon)
    print(
        f"{name}: error {error(falkon):.3f}, with a learned metric "
        f"{error(pipeline):.3f} (noise 0.5)"
    )

metric = pipeline[0]
print(
    "importances:", *(f"{share:.3f}" for share in metric.feature_importances_)
)
for record in metric.history_:
    print(
        f"round {record['iteration']}: validation error "
        f"{record['validation_error']:.3f}, {record['seconds']:.1f} s"
    )

# %%
# The first five features matter, the last ten have no effect.

figure, panel = plt.subplots(figsize=(7, 3.5), layout="constrained")
panel.bar(np.arange(15), metric.feature_importances_)
panel.set(
    xlabel="feature",
    ylabel="share of the mean squared gradient",
    xticks=np.arange(15),
)
plt.show()

# %%
# If y depends on a direction that is none of the features, scales of the
# features do not help. A full matrix does.

direction = np.ones(15) / np.sqrt(15)
y_train, y_test = (
    np.sin(4 * (part - 0.5) @ direction) for part in (X_train, X_test)
)
for kind in ("diagonal", "full"):
    falkon = FalkonRegressor(penalty=1e-6, random_state=0)
    learned = LearnedMetric(falkon, kind=kind, random_state=0)
    print(f"{kind} metric: {error(make_pipeline(learned, falkon)):.4f}")
