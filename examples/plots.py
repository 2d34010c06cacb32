"""Plots of a fit and of a fitted model
====================================

Plot the convergence, a path of penalties, intervals, centers and importances.

Run it with ``python examples/plots.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

from gyrfalcon import FalkonRegressor, LearnedMetric, NystromRegressor
from gyrfalcon.plots import (
    CentersDisplay,
    ConvergenceDisplay,
    ImportanceDisplay,
    IntervalDisplay,
    PenaltyPathDisplay,
)

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
X, y = make_friedman1(
    rows, n_features=8, noise=1.0, random_state=0
)  # three of the eight features do nothing
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

falkon = FalkonRegressor(
    n_centers=300,
    penalty=1e-6,
    early_stopping=True,
    max_iter=40,
    random_state=0,
)
falkon.fit(X_train, y_train)
nystrom = NystromRegressor(
    n_centers=300,
    penalties=np.logspace(-8, 0, 17),
    uncertainty=True,
    random_state=0,
)
nystrom.fit(X_train, y_train)
metric = LearnedMetric(random_state=0).fit(X_train, y_train)

# %%
# Several displays in one figure. A display with several panels divides the
# axes that it is given.

figure, axes = plt.subplots(2, 2, figsize=(13, 9), layout="constrained")
convergence = ConvergenceDisplay.from_estimator(falkon, ax=axes[0, 0])
path = PenaltyPathDisplay.from_estimator(nystrom, ax=axes[0, 1])
intervals = IntervalDisplay.from_estimator(
    nystrom, X_test, y_test, coverage=0.9, ax=axes[1, 0]
)
CentersDisplay.from_estimator(falkon, X_train, ax=axes[1, 1])
plt.show()

# %%
# Without axes, each display makes a figure of its own.

importances = ImportanceDisplay.from_estimator(metric)
plt.show()

print(
    "the least validation error was in iteration "
    f"{convergence.best_iteration} of {falkon.n_iter_}"
)
print(
    f"the penalty {path.chosen:.3g} has the least leave-one-out error, "
    f"{path.errors.min():.3f}"
)
print(
    f"{intervals.observed_coverage:.1%} of {len(y_test):,} test rows are in "
    "their intervals; 90% were asked for"
)
print(
    "features by importance:",
    *(importances.names[i].split()[-1] for i in importances.order),
)
