"""The papers' methods side by side
================================

Compare the methods of the FALKON and NYTRO papers on the same data: test
error, time, and the parameters that were chosen on validation rows.

Run it with ``python examples/baselines.py [rows]``.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import FalkonRegressor
from gyrfalcon.baselines import (
    AdmmRegressor,
    DivideAndConquerRegressor,
    DoublyStochasticRegressor,
    EigenProRegressor,
    EnsembleRegressor,
    ExactRegressor,
    FeatureSelectionRegressor,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesRegressor,
    SketchedRegressor,
    SvrgRegressor,
)
from gyrfalcon.cli.demo import make_arm

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
X, y = make_arm(rows)
(X, X_val, X_test), (y, y_val, y_test) = (
    np.split(part, [rows // 2, 3 * rows // 4]) for part in (X, y - y.mean())
)

# %%
# All methods use the same rows, and the same number of centers or of random
# features.

penalties = np.logspace(-7, 0, 15)
few = {"n_centers": min(500, len(X) // 4), "random_state": 0}
features = {
    "n_components": few["n_centers"],
    "penalty": 1e-6,
    "random_state": 0,
}
methods = {
    "KRLS, one penalty": ExactRegressor(penalty=1e-6),
    "KRLS, 15 penalties": ExactRegressor(penalties=penalties),
    "KOLS": ExactRegressor(method="least_squares"),
    "early stopping": ExactRegressor(
        method="early_stopping", step="auto", max_iter=100
    ),
    "divide and conquer": DivideAndConquerRegressor(
        n_partitions=4, penalty=1e-6, random_state=0
    ),
    "Prec. KRR": ExactRegressor(
        method="pcg",
        preconditioner="random_features",
        penalty=1e-5,
        random_state=0,
    ),
    "EigenPro": EigenProRegressor(max_iter=5, random_state=0),
    "randomized sketch": SketchedRegressor(penalty=1e-6, random_state=0),
    "random features": RandomFeaturesRegressor(**features),
    "SVRG": SvrgRegressor(max_iter=10, **features),
    "ADMM": AdmmRegressor(max_iter=20, **features),
    "doubly stochastic": DoublyStochasticRegressor(**features),
    "selected features": FeatureSelectionRegressor(**features),
    "ensemble": EnsembleRegressor(n_estimators=5, **features),
    "NKRLS, 15 penalties": NystromRegressor(penalties=penalties, **few),
    "NYTRO, gd": NytroRegressor(step="auto", max_iter=200, **few),
    "NYTRO, cg": NytroRegressor(
        solver="cg", max_iter=200, n_iter_no_change=3, **few
    ),
    "NYTRO, sgd": NytroRegressor(solver="sgd", max_iter=20, **few),
    "Nyström gd": NystromRegressor(solver="gd", max_iter=20, **few),
    "Nyström sgd": NystromRegressor(solver="sgd", max_iter=20, **few),
    "Nyström cg": NystromRegressor(solver="cg", max_iter=20, **few),
    "FALKON": FalkonRegressor(max_iter=20, **few),
}

# %%
# Methods that choose a penalty or a number of iterations do so by the error on
# the validation rows.

results = {}
print(f"{len(X)} rows, {few['n_centers']} centers\n")
print(f"{'method':20} {'test error':>10} {'seconds':>8}  chosen")
for name, model in methods.items():
    began = time.perf_counter()
    model.fit(X, y, X_val=X_val, y_val=y_val)
    seconds = time.perf_counter() - began
    error = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
    results[name] = seconds, error
    chosen = ""
    if getattr(model, "penalties", None) is not None:
        chosen = f"penalty {model.penalty_:.0e}"
    elif (
        getattr(model, "early_stopping", False)
        and getattr(model, "method", "early_stopping") == "early_stopping"
    ):
        chosen = f"{model.n_iter_} iterations"
    print(f"{name:20} {error:10.4f} {seconds:8.2f}  {chosen}")

# %%
# Test errors, in increasing order, with the seconds of each fit.

names = sorted(results, key=lambda name: -results[name][1])
figure, ax = plt.subplots(figsize=(8, 6), layout="constrained")
colors = ["C1" if name == "FALKON" else "C0" for name in names]
bars = ax.barh(names, [results[name][1] for name in names], color=colors)
ax.bar_label(
    bars,
    [f"{results[name][0]:.2f} s" for name in names],
    padding=3,
    fontsize=8,
)
ax.set(xlabel="test error", xlim=(0, 0.6))
plt.show()
