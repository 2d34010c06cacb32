"""Growth of time and memory with the number of rows: python benchmarks/growth.py [--rows 1e5 3e5 1e6 3e6 1e7]

Fits from Parquet of 20 features with the same number of centers and of iterations, K not kept. Each runs in a process
of its own, in turns; the files are in the page cache, and a small fit goes before the clock starts. Prints the
exponent of the power law through the best times, by the clock and of the processors, and peak memory: short targets
are in memory, those from 2 million rows on and the rows are not. The files are made here, in GYRFALCON_BENCH_DIR or a
temporary folder, and removed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent / "big_data"))
from _common import in_subprocess, table
from files_part import make_folder, work_folder

CENTERS, ITERATIONS = 1_000, 5
EXPONENT = 1.02
# What a fit may hold of each row: y, and y less its mean. And blocks that are read ahead, which small files do not fill
BYTES_A_ROW, ABOVE = 8, 80_000_000

FIT = """
import json, sys, time
import numpy as np
from _common import peak
import gyrfalcon
from gyrfalcon.kernels import Gaussian

folder, centers, iterations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
settings = dict(
    kernel=Gaussian(4.0), n_centers=centers, penalty=1e-7, preconditioner="falkon", max_iter=iterations, tol=0,
    memory_budget=0, random_state=0,
)
X = np.random.default_rng(0).standard_normal((20_000, 20), dtype=np.float32)
gyrfalcon.FalkonRegressor(**settings).fit(X, X[:, 0])
began, before = time.perf_counter(), time.process_time()
data = gyrfalcon.open(folder, target="y")
model = gyrfalcon.FalkonRegressor(**settings).fit(data.X, data.y)
print(json.dumps({
    "seconds": time.perf_counter() - began, "processor": time.process_time() - before,
    "peak": peak(), "passes": model.history_[-1]["passes"],
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 3e5, 1e6, 3e6, 1e7])
    parser.add_argument("--rounds", type=int, default=3, help="of up to a million rows; larger fits run twice at most")
    options = parser.parse_args()
    sizes = sorted(int(n) for n in options.rows)
    best = dict.fromkeys(sizes, float("inf"))
    processor = dict.fromkeys(sizes, float("inf"))
    peaks = dict.fromkeys(sizes, 0)
    with work_folder() as work:
        for n in sizes:
            make_folder(Path(work) / str(n), n)
        for number in range(options.rounds):
            for n in sizes:
                if number < (options.rounds if n <= 10**6 else min(options.rounds, 2)):
                    found = in_subprocess(FIT, Path(work) / str(n), CENTERS, ITERATIONS)
                    best[n] = min(best[n], found["seconds"])
                    processor[n] = min(processor[n], found["processor"])
                    peaks[n] = max(peaks[n], found["peak"])
    first = peaks[sizes[0]]
    table(
        f"growth from Parquet: d = 20, M = {CENTERS:,}, {ITERATIONS} iterations ({found['passes']} passes), K not kept",
        ["n", "seconds", "µs a row", "of processor time", "peak memory, MB", "y, MB", "flat"],
        [
            [
                f"{n:,}",
                best[n],
                1e6 * best[n] / n,
                1e6 * processor[n] / n,
                f"{peaks[n] / 1e6:.0f}",
                f"{4e-6 * n:.1f}",
                flat,
            ]
            for n in sizes
            for flat in [peaks[n] <= first + BYTES_A_ROW * n + ABOVE]
        ],
    )
    if len(sizes) > 1:
        rows = []
        for name, times in (("seconds", best), ("processor time", processor)):
            exponent = float(np.polyfit(np.log(sizes), np.log([times[n] for n in sizes]), 1)[0])
            rows.append([name, f"{exponent:.3f}", f"<= {EXPONENT}", exponent <= EXPONENT])
        table("the power law", ["of", "exponent", "bar", "met"], rows)


if __name__ == "__main__":
    main()
