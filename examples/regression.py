"""Regression
==========

Fit a regressor in a pipeline, after scaling the features, and compare it with
a linear model.

Run it with ``python examples/regression.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gyrfalcon import FalkonRegressor
from gyrfalcon.cli.demo import make_arm

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
X, y = make_arm(rows)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

falkon = FalkonRegressor(n_centers=min(1000, rows // 4), random_state=0)
models = {"linear": make_pipeline(StandardScaler(), Ridge()), "FALKON": falkon}
for name, model in models.items():
    print(
        f"{name}: R2 on the test rows "
        f"{model.fit(X_train, y_train).score(X_test, y_test):.3f}"
    )

# %%
# Predictions against true values. Good predictions are close to the diagonal.

figure, panels = plt.subplots(
    1, 2, figsize=(8, 4), sharex=True, sharey=True, layout="constrained"
)
for panel, (name, model) in zip(panels, models.items(), strict=True):
    panel.hexbin(
        y_test,
        model.predict(X_test),
        gridsize=40,
        mincnt=1,
        cmap="viridis",
        bins="log",
    )
    panel.axline((y_test.mean(), y_test.mean()), slope=1, color="C1")
    panel.set(
        title=f"{name}: R2 {model.score(X_test, y_test):.3f}", xlabel="y"
    )
panels[0].set_ylabel("prediction")
plt.show()
