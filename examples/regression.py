"""Regression
=============

Regression in a pipeline: scale the features, learn, compare with a linear model.

Run it with ``python examples/regression.py [rows]``.
"""

import sys

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

for name, model in {"linear": make_pipeline(StandardScaler(), Ridge()), "FALKON": falkon}.items():
    print(f"{name}: R2 on the test rows {model.fit(X_train, y_train).score(X_test, y_test):.3f}")
