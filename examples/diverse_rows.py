"""Diverse rows
===============

Which rows should be labelled? A determinantal point process draws rows that are unlike each other.

Rows of rare groups matter as much as others for a test of a model, and uniform samples miss them.

Run it with ``python examples/diverse_rows.py [rows]``.
"""

import sys
import time

import numpy as np

from gyrfalcon import DPP
from gyrfalcon.kernels import Gaussian

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
rng = np.random.default_rng(0)

# 30 groups, the largest a thousand times as frequent as the smallest
share = np.geomspace(1, 1e-3, 30)
group = rng.choice(30, rows, p=share / share.sum())
X = rng.uniform(-10, 10, size=(30, 3))[group] + 0.3 * rng.standard_normal((rows, 3))

began = time.perf_counter()
process = DPP(Gaussian(2.0), expected_size=30, random_state=0).fit(X)
print(f"{rows:,} rows in {len(np.unique(group))} groups: prepared in {time.perf_counter() - began:.1f} s")

began = time.perf_counter()
samples = process.sample(5)
seconds = (time.perf_counter() - began) / 5
found = [len(np.unique(group[chosen])) for chosen in samples]
sizes = [len(chosen) for chosen in samples]
uniform = [len(np.unique(group[rng.choice(rows, size, replace=False)])) for size in sizes]
print(f"samples of {sizes} rows, {seconds:.2f} s each, are of {found} groups; uniform ones of {uniform}")
