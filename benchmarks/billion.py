"""Fits from files of very many rows: python benchmarks/billion.py [--rows 1e6 1e7 1e8] [--format npy parquet]

Writes 9 float32 features and a target in the manner of taxi rides (skewed, heavy tails, much noise) once for each size
and format into GYRFALCON_BENCH_DIR or a temporary folder, 40 bytes for each row in .npy, and fits FalkonRegressor with
M centers and a memory budget to each, in a process of its own. Prints seconds, passes, readings (bytes that the process
has read over the size of the files), peak memory, the error for 100,000 rows that were not learnt (the noise alone has
a standard deviation of 0.5), the exponent of the power law through the times, and the growth of the memory. All sizes
have the same centers, since the error depends on them: centers drawn with six seeds from 10^6 rows gave 0.566 to 0.576.
`--centers 1000 2000 4000` has a number for each size. Files are removed unless --keep is given.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

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
sys.path.insert(0, sys.argv[4])
from billion import bytes_read, rides

path, centers, budget = sys.argv[1], int(sys.argv[2]), sys.argv[3]
target = path.replace("X.npy", "y.npy") if path.endswith(".npy") else "y"
small = np.random.default_rng(0).standard_normal((20_000, 9), dtype=np.float32)
gyrfalcon.FalkonRegressor(n_centers=100, random_state=0).fit(small, small[:, 0])
# rows of the same law that are not learnt, in the units of the features
points = rides(centers, 1_000_000)[0]
start, processors, read = time.perf_counter(), time.process_time(), bytes_read()
data = gyrfalcon.open(path, target=target)
model = gyrfalcon.FalkonRegressor(
    centers=Given(points, sampled="uniform"), penalty=1e-7, memory_budget=budget, random_state=0
).fit(data)
seconds, processors = time.perf_counter() - start, time.process_time() - processors
held, read = peak(), (bytes_read() - read) / (40 * data.n_rows)
X, y = rides(100_000, -1)
error = float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
print(json.dumps({"seconds": seconds, "processors": processors, "peak": held, "error": error,
                  "readings": read, "passes": model.history_[-1]["passes"], "n": data.n_rows}))
"""


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


def npy_files(folder: Path, n: int) -> tuple[list[str], dict[str, str]]:
    """Write n rows in parts, which all sizes share; return their paths, and those of y, labels and weights."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [npy_part(folder, k, min(PART, n - k * PART)) for k in range(-(-n // PART))]
    columns = {name: folder / f"{name}-{n}.npy" for name in ("y", "labels", "weight")}
    if not all(path.exists() for path in columns.values()):
        types = {"y": np.float32, "labels": np.int8, "weight": np.float32}
        files = {name: open(path, "wb") for name, path in columns.items()}  # noqa: SIM115
        for name, file in files.items():
            header = {"descr": np.dtype(types[name]).str, "fortran_order": False, "shape": (n,)}
            np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            y = np.load(str(part).replace("X-", "y-"))
            y.tofile(files["y"])
            (np.digitize(y, [1.0, 2.0]).astype(np.int8)).tofile(files["labels"])
            (0.5 + np.abs(y)).tofile(files["weight"])
        for file in files.values():
            file.close()
    return [str(part) for part in parts], {name: str(path) for name, path in columns.items()}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--format", nargs="+", default=["npy"], choices=["npy", "parquet"])
    parser.add_argument("--centers", type=int, nargs="+", default=[1_000], help="one number, or one for each size")
    parser.add_argument("--budget", default="500MB", help="memory_budget of the fit")
    parser.add_argument("--keep", action="store_true", help="leave the files there")
    arguments = parser.parse_args()
    sizes = [int(n) for n in arguments.rows]
    centers = arguments.centers * (len(sizes) if len(arguments.centers) == 1 else 1)
    if len(centers) != len(sizes):
        parser.error(f"--centers has {len(centers)} numbers for {len(sizes)} sizes: give one, or one for each")
    given = os.environ.get("GYRFALCON_BENCH_DIR")
    folder = Path(given or tempfile.mkdtemp())
    here = str(Path(__file__).resolve().parent)
    columns = ["n", "M", "seconds", "processors", "passes", "readings"]
    for format in arguments.format:
        found = []
        for n, M in zip(sizes, centers, strict=True):
            path = write(folder, n, format)
            found.append({"M": M, **in_subprocess(FIT, str(path), str(M), arguments.budget, here)})
            print(found[-1], flush=True)
            if not arguments.keep:
                shutil.rmtree(path.parent)
        table(
            f"{format}, memory_budget={arguments.budget}",
            ["rows", "M", "seconds", "processor s", "passes", "readings", "peak MB", "error"],
            [[*(f[name] for name in columns), f["peak"] / 1e6, f"{f['error']:.5f}"] for f in found],
        )
        if len(found) > 1:
            n, seconds = np.array([[f["n"], f["seconds"]] for f in found]).T
            print(f"exponent of the time {np.polyfit(np.log(n), np.log(seconds), 1)[0]:.3f}; ", end="")
            print(f"memory grows by {(found[-1]['peak'] - found[0]['peak']) / 1e6:.0f} MB")
    if not given:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
