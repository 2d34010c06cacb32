"""Support vector machines
=======================

Compare support vector machines with the squared hinge and the hinge loss with
scikit-learn's ``SVC`` and with the stochastic method Pegasos.

Run it with ``python examples/svm.py [rows]``.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from gyrfalcon import FalkonClassifier
from gyrfalcon.baselines import PegasosClassifier
from gyrfalcon.kernels import Gaussian

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
X, y = make_moons(2 * rows, noise=0.3, random_state=0)
X_train, y_train, X_test, y_test = X[:rows], y[:rows], X[rows:], y[rows:]

# %%
# The penalty is 1 / (n C).

C, width = 1.0, 0.5
common = {
    "kernel": Gaussian(width),
    "n_centers": 200,
    "penalty": 1 / (C * rows),
    "random_state": 0,
}
models = {
    "SVC": SVC(C=C, gamma=0.5 / width**2),
    "squared hinge": FalkonClassifier(loss="squared_hinge", **common),
    "hinge": FalkonClassifier(loss="hinge", **common),
    "Pegasos": PegasosClassifier(max_iter=20, **common),
}
for name, model in models.items():
    start = time.perf_counter()
    model.fit(X_train, y_train)
    seconds = time.perf_counter() - start
    inside = np.mean(np.abs(model.decision_function(X_test)) < 1)
    print(
        f"{name}: wrong {1 - model.score(X_test, y_test):.2%}, within the "
        f"margin {inside:.0%}, {seconds:.2f} s"
    )

# %%
# The decision (solid) and the margin (dashed) of each model.

side = np.linspace(-2, 3, 100)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(
    1, 4, figsize=(13, 3.4), sharey=True, layout="constrained"
)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    f = model.decision_function(grid).reshape(100, 100)
    ax.scatter(*X_train[:500].T, c=y_train[:500], s=4, cmap="coolwarm")
    ax.contour(
        side,
        side,
        f,
        levels=[-1, 0, 1],
        colors="black",
        linestyles=["--", "-", "--"],
    )
    ax.set_title(name)
plt.show()
