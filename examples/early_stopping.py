"""Early stopping
==============

Stop a fit when the validation error no longer decreases, print each iteration,
limit the time, and plot the convergence.

Run it with ``python examples/early_stopping.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt

from gyrfalcon import FalkonRegressor
from gyrfalcon.callbacks import TimeLimit
from gyrfalcon.cli.demo import make_arm
from gyrfalcon.plots import ConvergenceDisplay

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
X, y = make_arm(rows)
y = y - y.mean()


def watch(record):
    residual, error = record["residual"], record["validation_error"]
    print(
        f"iteration {record['iteration']}: residual {residual:.1e}, "
        f"validation error {error:.4f}"
    )


model = FalkonRegressor(
    n_centers=min(1000, rows // 4),
    max_iter=100,
    early_stopping=True,
    n_iter_no_change=3,
    callbacks=[watch, TimeLimit(60)],
    random_state=0,
).fit(X, y)
best = min(model.history_, key=lambda record: record["validation_error"])
print(
    f"{model.n_iter_} iterations; the solution of iteration "
    f"{best['iteration']} is kept"
)

# %%
# The residual and the validation error of each iteration.

ConvergenceDisplay.from_estimator(model)
plt.show()
