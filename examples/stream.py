"""A stream that changes
=====================

New rows of a sensor are added to a file every day. A model learns them, is
saved in a checkpoint, and reports when the relation has changed.

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
    """Write 300 rows. From day 30 on, the sensor's values are larger by 1."""
    X = rng.uniform(-3, 3, size=(300, 2))
    y = (
        np.sin(2 * X[:, 0])
        + 0.5 * X[:, 1]
        + (day >= 30)
        + 0.1 * rng.standard_normal(300)
    )
    with log.open("a") as file:
        np.savetxt(file, np.c_[X, y], delimiter=",")


# %%
# Every day the file is opened again, and the rows that were added since the
# day before are learned. The model is stored in the folder of the checkpoint,
# so that the script could end every day and be started again on the next.

model = NystromRegressor(
    n_centers=100, penalty=1e-4, incremental=True, random_state=0
)
monitor = DriftMonitor()
factor = 1.0
alarms = []
for day in range(50):
    add(day)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the monitor's warning, which is printed below
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
        print(
            f"day {day}: the errors have risen; the weights of earlier rows "
            "are reduced"
        )
        factor = 0.05

# %%
# `history_` contains the error on each batch before it was learned. The noise
# alone has the standard deviation 0.1.

errors = [
    record["error_before"]
    for record in model.history_
    if "error_before" in record
]
print(
    f"error before the change {np.mean(errors[15:29]):.2f}, at it "
    f"{errors[29]:.2f}, at last {np.mean(errors[-5:]):.2f}"
)
plt.plot(np.arange(1, 50), errors)
plt.axhline(0.1, color="gray", linestyle=":", label="noise")
plt.xlabel("day")
plt.ylabel("error before it is learned")
plt.legend()
plt.show()
