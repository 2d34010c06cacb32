"""A stream that changes
=====================

Batches of a sensor's rows arrive in a file. A model learns what is new, keeps
itself in a checkpoint, and tells when the relation has changed.

Run it with ``python examples/stream.py``.
"""

import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import gyrfalcon
from gyrfalcon import NystromRegressor, learn_stream
from gyrfalcon.callbacks import DriftMonitor

rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())
log = folder / "log.csv"
log.write_text("a,b,y\n")


def add(day):
    """Write 300 rows; from day 30 on the sensor reads 1 more."""
    X = rng.uniform(-3, 3, size=(300, 2))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + (day >= 30) + 0.1 * rng.standard_normal(300)
    with log.open("a") as file:
        np.savetxt(file, np.c_[X, y], delimiter=",")


# %%
# Each day the file is opened again, and the rows that were added since
# yesterday are learned. The checkpoint has the model in its folder, so that
# the script could end here each day, and be started again tomorrow.

model = NystromRegressor(n_centers=100, penalty=1e-4, incremental=True, random_state=0)
monitor = DriftMonitor()
factor = 1.0
alarms = []
for day in range(50):
    add(day)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the monitor's warning, which is printed below
        learn_stream(
            model,
            gyrfalcon.open(log, target="y"),
            forgetting_factor=factor,
            checkpoint=folder / "checkpoint",
            callbacks=monitor,
        )
    factor = 1.0
    if len(monitor.drifted) > len(alarms):
        alarms = list(monitor.drifted)
        print(f"day {day}: the errors have risen; what was learned before counts little from now on")
        factor = 0.05

# %%
# `history_` has the error on each batch before it was learned. The noise alone
# has the standard deviation 0.1.

errors = [record["error_before"] for record in model.history_ if "error_before" in record]
print(
    f"error before the change {np.mean(errors[15:29]):.2f}, at it {errors[29]:.2f}, at last {np.mean(errors[-5:]):.2f}"
)
plt.plot(np.arange(1, 50), errors)
plt.axhline(0.1, color="gray", linestyle=":", label="noise")
plt.xlabel("day")
plt.ylabel("error before it is learned")
plt.legend()
plt.show()
