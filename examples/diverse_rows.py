"""Diverse rows
============

Choose rows to label: a determinantal point process draws rows that differ from
each other.

Uniform samples often contain no rows of rare groups, although these are
important for testing a model.

Run it with ``python examples/diverse_rows.py [rows]``.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import DPP
from gyrfalcon.kernels import Gaussian

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
rng = np.random.default_rng(0)

# 30 groups, the largest a thousand times as frequent as the smallest
share = np.geomspace(1, 1e-3, 30)
group = rng.choice(30, rows, p=share / share.sum())
X = rng.uniform(-10, 10, size=(30, 3))[group] + 0.3 * rng.standard_normal(
    (rows, 3)
)

began = time.perf_counter()
process = DPP(Gaussian(2.0), expected_size=30, random_state=0).fit(X)
print(
    f"{rows:,} rows in {len(np.unique(group))} groups: prepared in "
    f"{time.perf_counter() - began:.1f} s"
)

began = time.perf_counter()
samples = process.sample(5)
seconds = (time.perf_counter() - began) / 5
found = [len(np.unique(group[chosen])) for chosen in samples]
sizes = [len(chosen) for chosen in samples]
uniform = [
    len(np.unique(group[rng.choice(rows, size, replace=False)]))
    for size in sizes
]
print(
    f"samples of {sizes} rows, {seconds:.2f} s each, are of {found} groups; "
    f"uniform ones of {uniform}"
)

# %%
# A sample of the process, and a uniform sample of the same size.

figure, panels = plt.subplots(
    1, 2, figsize=(8, 4), layout="constrained", sharex=True, sharey=True
)
drawn = {
    "DPP": samples[0],
    "uniform": rng.choice(rows, sizes[0], replace=False),
}
for panel, (name, chosen) in zip(panels, drawn.items(), strict=True):
    panel.scatter(*X[:, :2].T, s=1, color="lightgrey")
    panel.scatter(*X[chosen, :2].T, s=25, color="C3")
    panel.set_title(f"{name}: {len(np.unique(group[chosen]))} of 30 groups")
plt.show()
