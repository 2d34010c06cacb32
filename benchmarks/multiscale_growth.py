"""The part `growth` of multiscale.py: time and memory of a hierarchical fit from 10^5 to 3 x 10^6 rows.

Each size is fitted in a process of its own, so that its peak of memory is its own. The memory planned is what `fit`
compares with `memory_budget`, plus the rows. With `--files`, rows are in a file of `--features` columns and do not
fit into `--memory-budget`: the peak is that of the whole process, with Python and the libraries, before the fit and at
its end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

SIZES = (100_000, 300_000, 1_000_000, 3_000_000)
QUICK = (10_000, 30_000)
MOST = 1.05  # the exponent of time in the number of rows

_FIT = """
import json, resource, sys, time
import numpy as np
from gyrfalcon import HierarchicalRegressor
from gyrfalcon.kernels import Laplacian

n = int(sys.argv[1])
rng = np.random.default_rng(0)
X = rng.standard_normal((n, 10), dtype=np.float32)
y = (np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(n, dtype=np.float32)).astype(np.float32)
model = HierarchicalRegressor(
    Laplacian(5.0), n_centers=0, penalty=0.1 / n, leaf_size=512, rank=128, n_trees=1, scale=False, random_state=0
)
model.fit(X[:2_000], y[:2_000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began, used = time.perf_counter(), time.process_time()
model.fit(X, y)
seconds, used = time.perf_counter() - began, time.process_time() - used
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "processor": used, "megabytes": (after - before) / 1000}))
"""

_FIT_FILE = """
import json, resource, sys, tempfile, time
import numpy as np
import gyrfalcon
from gyrfalcon import HierarchicalRegressor
from gyrfalcon.kernels import Laplacian

n, d, budget = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)
with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
    X = np.lib.format.open_memmap(f"{folder}/X.npy", mode="w+", dtype=np.float32, shape=(n, d))
    y = np.empty(n, dtype=np.float32)
    for start in range(0, n, 100_000):
        block = rng.standard_normal((min(100_000, n - start), d), dtype=np.float32)
        noise = rng.standard_normal(len(block), dtype=np.float32)
        X[start : start + len(block)] = block
        y[start : start + len(block)] = np.sin(block[:, 0]) * block[:, 1] + 0.1 * noise
        X.flush()
    del X
    rows = gyrfalcon.open(f"{folder}/X.npy")
    model = HierarchicalRegressor(
        Laplacian(d / 2), n_centers=0, penalty=0.1 / n, n_trees=1, scale=False, memory_budget=budget, random_state=0
    )
    model.fit(rows.take(np.arange(2_000)), y[:2_000])
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1000
    before = peak()
    began, used = time.perf_counter(), time.process_time()
    model.fit(rows, y)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    print(json.dumps({"seconds": seconds, "processor": used, "before": before, "peak": peak()}))
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="*", type=int, default=None, help="rows of the part growth")
    parser.add_argument("--features", type=int, default=40, help="of the files of the part growth")
    parser.add_argument("--memory-budget", default="400MB", help="of fits to these files")


def run(options: argparse.Namespace) -> bool:
    from math import log

    sizes = options.sizes or (QUICK if options.quick else SIZES)
    if options.files:
        return _files(sizes, options.features, options.memory_budget)
    found = []
    print("\n     rows   seconds  processor   memory, a row")
    for n in sizes:
        done = subprocess.run([sys.executable, "-c", _FIT, str(n)], capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)
        found.append((n, result["seconds"]))
        bytes_each = result["megabytes"] * 1e6 / n
        print(f"{n:9,} {result['seconds']:9.2f} {result['processor']:10.2f} {bytes_each:9.0f} bytes", flush=True)
    (first, fast), (last, slow) = found[0], found[-1]
    exponent = log(slow / fast) / log(last / first) if last > first else 1.0
    met = exponent <= MOST
    print(f"time grows like n^{exponent:.3f}: {'met' if met else 'missed'} (at most {MOST})", flush=True)
    return met


def _files(sizes: tuple[int, ...], d: int, budget: str) -> bool:
    """Print the peak of memory of fits to files."""
    print("\n     rows   in the file   seconds  processor   before the fit      peak")
    for n in sizes:
        command = [sys.executable, "-c", _FIT_FILE, str(n), str(d), budget]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)
        print(
            f"{n:9,} {4e-6 * n * d:10.0f} MB {result['seconds']:9.2f} {result['processor']:10.2f}"
            f" {result['before']:13.0f} MB {result['peak']:6.0f} MB",
            flush=True,
        )
    return True
