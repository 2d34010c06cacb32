"""Exact kernel ridge regression without its matrix: python benchmarks/exact_solvers.py --data FOLDER [--rows 20000]

Preconditioned conjugate gradient (`method="pcg"`, with the Nyström preconditioner of its default and of 3,000 centers,
and that of two scales) and block coordinate descent (`method="askotch"`) on the same rows, with the same kernel and
penalty, without room to keep the kernel matrix. Each runs to the error that fitted values may have by default, and at
most `--sweeps` iterations; with `--all` it runs all of them. The kernel's width is `--width` times the root of the
number of features. `to 1%` is the first iteration from which the test error stays within 1% of the least at the end of
all methods, and "after 2" to "after 20" are test errors after these iterations; `setup` is the time until the first
iteration, and `cpu s` that of the whole fit, in processor seconds. FOLDER holds kin40k.npz and protein_raw.npz, with
arrays X and y, and tables_more/bng_pw_linear.parquet and bng_breast_tumor.parquet. Each fit runs in a
process of its own, and `memory` is its peak beyond the rows.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from _common import in_subprocess, table

RUN = """
import json, sys, time, warnings
import numpy as np
from _common import peak, resident
from gyrfalcon import ExactRegressor
from gyrfalcon.kernels import Gaussian, Laplacian

folder, name, kernel, n, mu, parameters, sweeps, width, tol = sys.argv[1:]
n, clock = int(n), []
if name.startswith("bng_"):
    import pandas
    table = pandas.read_parquet(f"{folder}/tables_more/{name}.parquet")
    y = table.pop("target").to_numpy()
    X = table.apply(pandas.to_numeric).to_numpy(dtype=float)
else:
    stored = np.load(f"{folder}/{name}.npz")
    X, y = stored["X"], stored["y"].ravel()
order = np.random.RandomState(0).permutation(len(X))
train, test = order[4_000 : 4_000 + n], order[:4_000]
center, spread, level = X[train].mean(axis=0), X[train].std(axis=0), y[train].std()
X = ((X - center) / spread).astype(np.float32)
y = ((y - y[train].mean()) / level).astype(np.float32)
n = len(train)
width = float(width) * np.sqrt(X.shape[1])
model = ExactRegressor(
    Gaussian(width) if kernel == "gaussian" else Laplacian(width),
    **json.loads(parameters), penalty=float(mu) / n, max_iter=int(sweeps), memory_budget=0, dtype="float32",
    scale=False, random_state=0, fit_intercept=True, tol=json.loads(tol),
    callbacks=lambda record: clock.append(time.process_time()),
)
before, began, wall = resident(), time.process_time(), time.perf_counter()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    model.fit(X[train], y[train], None, X[test], y[test])
cpu = time.process_time() - began
errors = [record["validation_error"] for record in model.history_]
each = (clock[-1] - clock[0]) / max(1, len(clock) - 1)
print(json.dumps({
    "rows": n, "errors": errors, "passes": model.history_[-1]["passes"], "converged": model.history_[-1]["converged"],
    "cpu": cpu, "setup": clock[0] - began - each, "wall": time.perf_counter() - wall,
    "memory": (peak() - before) / 2**20,
}))
"""

CASES = [
    ("kin40k", "gaussian", 20_000),
    ("kin40k", "gaussian", 32_000),
    ("kin40k", "laplacian", 36_000),
    ("protein_raw", "laplacian", 20_000),
    ("protein_raw", "laplacian", 36_000),
    ("protein_raw", "laplacian", 40_000),
    ("bng_pw_linear", "laplacian", 100_000),
    ("bng_breast_tumor", "laplacian", 100_000),
]

METHODS: dict[str, dict[str, Any]] = {
    "pcg, nystrom": {"method": "pcg", "preconditioner": "nystrom"},
    "pcg, nystrom, M = 3,000": {"method": "pcg", "preconditioner": "nystrom", "n_centers": 3_000},
    "pcg, hierarchical": {"method": "pcg", "preconditioner": "hierarchical"},
    "askotch": {"method": "askotch"},
}
SHOWN = (2, 4, 8, 12, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the data sets")
    parser.add_argument("--rows", type=int, nargs="+", default=[], help="only cases with these numbers of rows")
    parser.add_argument("--sets", nargs="+", default=[], help="only these data sets")
    parser.add_argument("--width", type=float, default=0.5**0.5, help="of the kernel, times the root of the features")
    parser.add_argument("--all", action="store_true", help="run all iterations: no tolerance")
    parser.add_argument("--mu", type=float, nargs="+", default=[0.1], help="penalty times rows")
    parser.add_argument("--sweeps", type=int, default=60)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    for name, kernel, n in CASES:
        if (options.rows and n not in options.rows) or (options.sets and name not in options.sets):
            continue
        for mu in options.mu:
            given = (options.sweeps, options.width, "0.0" if options.all else "null")
            found = {
                method: in_subprocess(RUN, options.data, name, kernel, n, mu, json.dumps(METHODS[method]), *given)
                for method in options.methods
            }
            limit = 1.01 * min(one["errors"][-1] for one in found.values())
            rows = []
            for method, one in found.items():
                above = [i + 1 for i, error in enumerate(one["errors"]) if error > limit]
                near = 1 + max(above, default=0)
                rows.append(
                    [
                        method,
                        *(one["errors"][min(count, len(one["errors"])) - 1] for count in SHOWN),
                        one["errors"][-1],
                        "never" if near > len(one["errors"]) else str(near),
                        str(len(one["errors"])),
                        f"{one['passes']:.0f}",
                        one["converged"],
                        one["setup"],
                        one["cpu"],
                        one["cpu"] / one["passes"],
                        f"{one['memory']:.0f} MB",
                    ]
                )
            header = ["", *(f"after {count}" for count in SHOWN), "test error", "to 1%", "iterations", "passes"]
            header += ["converged", "setup", "cpu s", "cpu s a pass", "memory"]
            table(f"{name}, {kernel}, n = {n:,}, penalty n = {mu:g}", header, rows)


if __name__ == "__main__":
    main()
