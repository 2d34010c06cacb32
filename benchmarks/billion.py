"""Fits from files of very many rows: python benchmarks/billion.py [--part fit memory killed speed] [--rows 1e6 1e7 1e8]

Writes 9 float32 features and a target in the manner of taxi rides (skewed, heavy tails, much noise) into
GYRFALCON_BENCH_DIR or a temporary folder, in parts that all sizes share: 40 bytes for each row, and as many again of
columns of y, labels and weights as a fit needs. All fits have a process of their own.

  fit     FalkonRegressor with M centers and a memory budget: seconds, passes, readings (bytes that the process has read
          over the size of the files), peak memory, the error for 100,000 rows that were not learnt (the noise alone has
          a standard deviation of 0.5), the exponent of the power law through the times, and the growth of the memory.
          All sizes have the same centers, since the error depends on them: centers drawn with six seeds from 10^6 rows
          gave 0.566 to 0.576. `--centers 1000 2000 4000` has a number for each size
  memory  peak memory of every estimator that reads such files block by block, with 100 centers or features
  killed  the fit with a checkpoint, killed (SIGKILL) in the middle and started again, beside one that is not
  speed   a pass over files beside one over the same rows in memory, with 9 and 20 features; --rows up to what fits

Files are removed unless --keep or GYRFALCON_BENCH_DIR is given.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _common import in_subprocess, table

BLOCK, PART = 1_000_000, 10_000_000  # rows that are drawn at once, and rows of a file
FEATURES, NOISE = 9, 0.5

FIT = """
import json, sys, time
import numpy as np
from _common import peak
import gyrfalcon
from gyrfalcon.centers import Given
from billion import bytes_read, opened, rides

folder, n, format, centers, budget, checkpoint = sys.argv[1:7]
small = np.random.default_rng(0).standard_normal((20_000, 9), dtype=np.float32)
gyrfalcon.FalkonRegressor(n_centers=100, random_state=0).fit(small, small[:, 0])
# rows of the same law that are not learnt, in the units of the features
points = rides(int(centers), 1_000_000)[0]
start, processors, read = time.perf_counter(), time.process_time(), bytes_read()
data = opened(folder, int(n), format)
model = gyrfalcon.FalkonRegressor(
    centers=Given(points, sampled="uniform"), penalty=1e-7, memory_budget=budget, random_state=0,
    checkpoint=gyrfalcon.Checkpoint(checkpoint, every=2) if checkpoint else None,
).fit(data)
seconds, processors = time.perf_counter() - start, time.process_time() - processors
held, read = peak(), (bytes_read() - read) / (40 * data.n_rows)
X, y = rides(100_000, -1)
error = float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
print(json.dumps({"seconds": seconds, "processors": processors, "peak": held, "error": error, "readings": read,
                  "passes": model.history_[-1]["passes"], "n": data.n_rows, "coef": model.dual_coef_.tobytes().hex()}))
"""

MEMORY = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
from _common import peak
from billion import MODELS, opened

folder, n, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
target, weight, make = MODELS[name]
began, processors = time.perf_counter(), time.process_time()
make(opened(folder, n, "npy", target, weight))
print(json.dumps({"peak": peak(), "seconds": time.perf_counter() - began,
                  "processors": time.process_time() - processors}))
"""

SPEED = """
import json, sys, time
import numpy as np
import gyrfalcon
from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian

path, M = sys.argv[1], int(sys.argv[2])
rows = gyrfalcon.open(path).X
X = np.load(path)
kernels = {"files": KernelOperator(Gaussian(3.0), rows, X[:M], memory_budget=0),
           "memory": KernelOperator(Gaussian(3.0), X, X[:M], memory_budget=0)}
v, best = np.ones(M), dict.fromkeys(kernels, float("inf"))
for _ in range(6):
    for name, K in kernels.items():
        began = time.perf_counter()
        K.sandwich(v)
        best[name] = min(best[name], time.perf_counter() - began)
print(json.dumps(best))
"""


def _falkon(data: Any, **more: Any) -> Any:
    import gyrfalcon

    return gyrfalcon.FalkonRegressor(**FEW, **more).fit(data)


def _classifier(data: Any, **more: Any) -> Any:
    import gyrfalcon

    return gyrfalcon.FalkonClassifier(**FEW, **more).fit(data)


def _named(name: str, *fields: str, **more: Any) -> Callable[[Any], Any]:
    def fit(data: Any) -> Any:
        import gyrfalcon

        common = {key: value for key, value in FEW.items() if key not in fields}
        return getattr(gyrfalcon, name)(**common, **more).fit(data if name not in WITHOUT_Y else data.X)

    return fit


FEW: dict[str, Any] = {"n_centers": 100, "penalty": 1e-6, "memory_budget": "200MB", "random_state": 0}
WITHOUT_Y = ("KernelPCA", "KernelKMeans", "NoveltyDetector")
# Name: the column to learn, that of weights, and the fit
MODELS: dict[str, tuple[str | None, str | None, Callable[[Any], Any]]] = {
    "FalkonRegressor": ("y", None, _falkon),
    "FalkonRegressor, weights": ("y", "weight", _falkon),
    'FalkonRegressor, loss="huber"': ("y", None, partial(_falkon, loss="huber", max_iter=3)),
    "FalkonRegressor, early_stopping": ("y", None, partial(_falkon, early_stopping=True)),
    "FalkonRegressor, uncertainty": ("y", None, partial(_falkon, uncertainty=True)),
    "FalkonRegressor, fit and score": ("y", None, lambda data: _falkon(data).score(data)),
    "FalkonClassifier": ("labels", None, _classifier),
    'FalkonClassifier, loss="logistic"': ("labels", None, partial(_classifier, loss="logistic", max_iter=3)),
    "NystromRegressor": ("y", None, _named("NystromRegressor")),
    "RandomFeaturesRegressor": ("y", None, _named("RandomFeaturesRegressor", "n_centers", n_components=100)),
    "RandomFeaturesClassifier": ("labels", None, _named("RandomFeaturesClassifier", "n_centers", n_components=100)),
    "KernelPCA": (None, None, _named("KernelPCA", "penalty", n_components=4)),
    "KernelKMeans": (None, None, _named("KernelKMeans", "penalty", n_clusters=4, n_init=1, max_iter=3)),
    "NoveltyDetector": (None, None, _named("NoveltyDetector", "penalty")),
}


def rides(n: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw block `number` of the data: places, times, and distances with heavy tails; log of the time with noise."""
    rng = np.random.default_rng([31, number + 1])
    X = rng.standard_normal((n, FEATURES), dtype=np.float32)
    X[:, :4] *= np.where(rng.random((n, 1)) < 0.9, 0.05, 0.5).astype(np.float32)  # places: mostly in the centre
    X[:, 4] = np.exp(0.8 * X[:, 4])  # distance
    X[:, 5] = 24 * rng.random(n, dtype=np.float32)  # hour
    X[:, 6] = rng.integers(0, 7, n)  # day
    X[:, 8] = rng.poisson(1.5, n)  # passengers
    rush = np.exp(-np.square((X[:, 5] - 17) / 3)) * (X[:, 6] < 5)
    away = np.hypot(X[:, 0] - X[:, 2], X[:, 1] - X[:, 3])
    y = np.log1p(X[:, 4]) + 0.6 * rush + 2 * np.tanh(3 * away) + 0.1 * np.sin(4 * X[:, 7])
    return X, (y + NOISE * rng.standard_normal(n)).astype(np.float32)


def bytes_read() -> int:
    """Return the bytes that this process has read from files so far."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


def blocks(first: int, n: int):
    """Draw n rows, from those of block `first` on."""
    for number in range(-(-n // BLOCK)):
        X, y = rides(BLOCK, first + number)
        rows = min(BLOCK, n - number * BLOCK)
        yield X[:rows], y[:rows]


def npy_part(folder: Path, number: int, n: int = PART) -> Path:
    """Write n rows of part `number` and their targets, unless they are there, and return the path of the rows."""
    path = folder / f"X-{number:04d}-{n}.npy"
    if not path.exists():
        target = folder / f"y-{number:04d}-{n}.npy"
        with open(f"{path}.part", "wb") as rows, open(target, "wb") as values:
            for file, shape in ((rows, (n, FEATURES)), (values, (n,))):
                np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for X, y in blocks(number * (PART // BLOCK), n):
                X.tofile(rows)
                y.tofile(values)
        os.replace(f"{path}.part", path)
    return path


def npy_files(folder: Path, n: int, column: str | None = None) -> tuple[list[str], str | None]:
    """Write n rows in parts, which all sizes share; return their paths, and that of a column of all rows, if any."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [npy_part(folder, k, min(PART, n - k * PART)) for k in range(-(-n // PART))]
    if column is None:
        return [str(part) for part in parts], None
    make, dtype = COLUMNS[column]
    path = folder / f"{column}-{n}.npy"
    if not path.exists():
        with open(f"{path}.part", "wb") as file:
            header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (n,)}
            np.lib.format.write_array_header_1_0(file, header)
            for part in parts:
                make(np.load(str(part).replace("X-", "y-"))).astype(dtype).tofile(file)
        os.replace(f"{path}.part", path)
    return [str(part) for part in parts], str(path)


# Columns that are made of y, and their types in the files
COLUMNS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Any]] = {
    "y": (lambda y: y, np.float32),
    "labels": (lambda y: np.digitize(y, [1.0, 2.0]), np.int8),
    "weight": (lambda y: 0.5 + np.abs(y), np.float32),
}


def opened(folder: str, n: int, format: str, target: str | None = "y", weight: str | None = None) -> Any:
    """Open n rows, which are written unless they are there."""
    import gyrfalcon

    if format == "parquet":
        return gyrfalcon.open(parquet_file(Path(folder), n), target=target)
    columns = {name: npy_files(Path(folder), n, name)[1] for name in (target, weight) if name is not None}
    return gyrfalcon.open(npy_files(Path(folder), n)[0], target=columns.get(target), weight=columns.get(weight))


def parquet_file(folder: Path, n: int) -> str:
    """Write n rows with their targets into a Parquet file, unless it is there, and return its path."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    path, writer = folder / f"rides-{n}.parquet", None
    if not path.exists():
        for X, y in blocks(0, n):
            found = pa.table({**{f"x{j}": X[:, j] for j in range(FEATURES)}, "y": y})
            if writer is None:
                writer = parquet.ParquetWriter(
                    f"{path}.part", found.schema, use_dictionary=False, compression="NONE", write_statistics=False
                )
            writer.write_table(found)
        writer.close()
        os.replace(f"{path}.part", path)
    return str(path)


def fits(folder: str, sizes: list[int], centers: list[int], format: str, budget: str) -> None:
    """Print times, memory and errors of fits, the exponent of the time and the growth of the memory."""
    found = []
    for n, M in zip(sizes, centers, strict=True):
        opened(folder, n, format)  # in another process than the fit
        found.append({"M": M, **in_subprocess(FIT, folder, n, format, M, budget, "")})
        print({name: value for name, value in found[-1].items() if name != "coef"}, flush=True)
    columns = ["n", "M", "seconds", "processors", "passes", "readings"]
    table(
        f"{format}, memory_budget={budget}",
        ["rows", "M", "seconds", "processor s", "passes", "readings", "peak MB", "error"],
        [[*(f[name] for name in columns), f["peak"] / 1e6, f"{f['error']:.5f}"] for f in found],
    )
    if len(found) > 1:
        n, seconds = np.array([[f["n"], f["seconds"]] for f in found]).T
        print(f"exponent of the time {np.polyfit(np.log(n), np.log(seconds), 1)[0]:.3f}; ", end="")
        print(f"memory grows by {(found[-1]['peak'] - found[0]['peak']) / 1e6:.0f} MB")


def memory(folder: str, sizes: list[int], only: str) -> None:
    """Print the peak memory of every estimator for every size, in MB, and how much it grows."""
    rows = []
    for name, (target, weight, _) in MODELS.items():
        if only not in name:
            continue
        peaks = []
        for n in sizes:
            opened(folder, n, "npy", target, weight)
            found = in_subprocess(MEMORY, folder, n, name)
            peaks.append(round(found["peak"] / 1e6))
            print(name, n, found, flush=True)
        rows.append([name, *peaks, peaks[-1] - peaks[0]])
    table("peak MB, memory_budget=200MB", ["estimator", *(f"{n:,} rows" for n in sizes), "growth"], rows)


def killed(folder: str, n: int, M: int, budget: str) -> None:
    """Kill a fit when half of its time has passed, start it again, and compare with one that was not killed."""
    opened(folder, n, "npy")
    whole = in_subprocess(FIT, folder, n, "npy", M, budget, "")
    here = str(Path(__file__).resolve().parent)
    with tempfile.TemporaryDirectory() as checkpoint:
        code = f"import sys; sys.path.insert(0, {here!r})\n{FIT}"
        began = time.perf_counter()
        child = subprocess.Popen([sys.executable, "-c", code, folder, str(n), "npy", str(M), budget, checkpoint])
        time.sleep(0.6 * whole["seconds"] + 3)  # and the start of the process
        child.send_signal(signal.SIGKILL)
        ended, first = child.wait(), time.perf_counter() - began
        left = sorted(path.name for path in Path(checkpoint).iterdir())
        again = in_subprocess(FIT, folder, n, "npy", M, budget, checkpoint)
    print(f"whole fit {whole['seconds']:.1f} s ({whole['processors']:.1f} processor s); killed after {first:.1f} s")
    print(f"({ended}), which left {left}; resumed {again['seconds']:.1f} s ({again['processors']:.1f} processor s)")
    print(f"same bits: {whole['coef'] == again['coef']}")


def speed(folder: str, n: int, M: int) -> None:
    """Print the time of a pass over a file and over the same rows in memory."""
    rows = []
    for d in (9, 20):
        path = Path(folder) / f"normal-{n}-{d}.npy"
        if not path.exists():
            np.save(path, np.random.default_rng(0).standard_normal((n, d), dtype=np.float32))
        best = in_subprocess(SPEED, path, M)
        path.unlink()
        rows.append([n, d, M, best["memory"], best["files"], f"{best['memory'] / best['files']:.0%}"])
    table("a pass, best of 6", ["rows", "features", "M", "s in memory", "s from files", "speed of files"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="fit", choices=["fit", "memory", "killed", "speed"])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--format", nargs="+", default=["npy"], choices=["npy", "parquet"])
    parser.add_argument("--centers", type=int, nargs="+", default=[1_000], help="one number, or one for each size")
    parser.add_argument("--budget", default="500MB", help="memory_budget of the fit")
    parser.add_argument("--only", default="", help="estimators whose name has this word")
    parser.add_argument("--keep", action="store_true", help="leave the files there")
    arguments = parser.parse_args()
    sizes = [int(n) for n in arguments.rows]
    centers = arguments.centers * (len(sizes) if len(arguments.centers) == 1 else 1)
    if len(centers) != len(sizes):
        parser.error(f"--centers has {len(centers)} numbers for {len(sizes)} sizes: give one, or one for each")
    given = os.environ.get("GYRFALCON_BENCH_DIR")
    folder = given or tempfile.mkdtemp()
    try:
        if arguments.part == "memory":
            memory(folder, sizes, arguments.only)
        elif arguments.part == "killed":
            killed(folder, sizes[0], centers[0], arguments.budget)
        elif arguments.part == "speed":
            speed(folder, sizes[0], centers[0])
        else:
            for format in arguments.format:
                fits(folder, sizes, centers, format, arguments.budget)
    finally:
        if not (given or arguments.keep):
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
