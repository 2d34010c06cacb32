"""Random features
===============

Use random features in a pipeline and as an estimator. The test error decreases
with their number.

Run it with ``python examples/random_features.py [rows]``.
"""

import sys
import time
from collections import defaultdict

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gyrfalcon import FalkonRegressor, RandomFeatures
from gyrfalcon.cli.demo import make_arm
from gyrfalcon.estimators import RandomFeaturesRegressor
from gyrfalcon.kernels import ArcCosine

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
X, y = make_arm(rows)
X_train, X_test, y_train, y_test = train_test_split(
    X.astype(np.float32), y, random_state=0
)
mean = y_train.mean()

# The features are computed block by block, and never stored as a whole.
scores = defaultdict(list)
for M in (100, 300, 900):
    models = {
        "random features": RandomFeaturesRegressor(
            n_components=M, random_state=0
        ),
        "orthogonal random features": RandomFeaturesRegressor(
            n_components=M, orthogonal=True, random_state=0
        ),
        "ReLU features": RandomFeaturesRegressor(
            ArcCosine(), n_components=M, random_state=0
        ),
        "Nyström centers (FALKON)": FalkonRegressor(
            n_centers=M, random_state=0
        ),
    }
    for name, model in models.items():
        start = time.perf_counter()
        pipeline = make_pipeline(StandardScaler(), model).fit(
            X_train, y_train - mean
        )
        seconds = time.perf_counter() - start
        scores[name].append(pipeline.score(X_test, y_test - mean))
        print(f"M = {M}, {name}: R2 {scores[name][-1]:.3f}, {seconds:.1f} s")

# the same features before any linear method of scikit-learn
linear = make_pipeline(
    StandardScaler(),
    RandomFeatures(n_components=300, random_state=0),
    Ridge(alpha=1e-3),
)
print(
    "RandomFeatures before Ridge: R2 "
    f"{linear.fit(X_train, y_train).score(X_test, y_test):.3f}"
)

# %%
# For the same accuracy, fewer Nyström centers than random features are needed.

figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
for name in models:
    panel.plot([100, 300, 900], scores[name], marker="o", label=name)
panel.set(xlabel="M", ylabel="R2 on the test rows", xscale="log")
panel.legend()
plt.show()
