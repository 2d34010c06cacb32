"""A Parquet folder that is larger than the budget, beside the same rows in an array.

20,000,000 x 20 float32 (1.6 GB), M = 2,000. Each fit runs in a process of its own, in turn and twice; the files are in
the page cache. The folder is made by this script, in GYRFALCON_BENCH_DIR or a temporary folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from _common import in_subprocess

D, M, ITERATIONS = 20, 2_000, 5
BUDGET, ABOVE = "1GB", 300_000_000
ROW_GROUP = 1 << 18
ROUNDS = 2

Row = tuple[str, str, str, bool | None]

FIT = """
import json, sys, time
from _common import peak
import numpy as np
import gyrfalcon
from gyrfalcon.kernels import Gaussian

folder, where, centers, iterations, budget, out = sys.argv[1:]
began = time.perf_counter()
data = gyrfalcon.open(folder, target="y")
X, y = data.X, data.y
if where == "array":
    X = np.empty(data.X.shape, dtype=data.X.dtype)
    start = 0
    for block in data.X.blocks(100_000):
        X[start : start + len(block)] = block
        start += len(block)
    began = time.perf_counter()  # having the array is not the fit
model = gyrfalcon.FalkonRegressor(
    kernel=Gaussian(4.0), n_centers=int(centers), penalty=1e-7, max_iter=int(iterations), tol=0, memory_budget=budget,
    random_state=0,
).fit(X, y)
whole = time.perf_counter() - began
first, last = model.history_[0], model.history_[-1]
np.save(out, model.dual_coef_)
print(json.dumps({
    "whole": whole, "peak": peak(), "passes": last["passes"],
    "pass": (last["seconds"] - first["seconds"]) / (last["passes"] - first["passes"]),
}))
"""


def work_folder() -> Any:
    """Where large files may be: a folder that is removed afterwards."""
    return tempfile.TemporaryDirectory(prefix="gyrfalcon-", dir=os.environ.get("GYRFALCON_BENCH_DIR"))


def rows(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and targets, a row group at a time; the same ones at each call."""
    for number, start in enumerate(range(0, n, ROW_GROUP)):
        rng = np.random.default_rng([5, number])
        X = rng.standard_normal((min(ROW_GROUP, n - start), D), dtype=np.float32)
        y = np.sin(X[:, :3].sum(axis=1)) + 0.5 * X[:, 3] + 0.1 * rng.standard_normal(len(X), dtype=np.float32)
        yield X, y.astype(np.float32)


def make_folder(folder: Path, n: int, files: int = 8) -> None:
    """Write the rows to Parquet; floats that are all different gain nothing from a dictionary."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([*((f"x{j:02d}", pa.float32()) for j in range(D)), ("y", pa.float32())])
    groups = -(-n // ROW_GROUP)
    files = min(files, groups)
    stream = rows(n)
    for number in range(files):
        with parquet.ParquetWriter(folder / f"part-{number:02d}.parquet", schema, use_dictionary=False) as writer:
            for _ in range(groups * number // files, groups * (number + 1) // files):
                X, y = next(stream)
                writer.write_table(pa.table([*X.T, y], schema=schema), row_group_size=ROW_GROUP)
    assert next(stream, None) is None


@contextmanager
def folder_of(n: int) -> Iterator[Path]:
    with work_folder() as work:
        began = time.perf_counter()
        make_folder(Path(work) / "rows", n)
        print(f"files: {n:,} rows written in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        yield Path(work)


def run(*, small: bool, data: Path) -> list[Row]:
    n = 1_000_000 if small else 20_000_000
    best: dict[str, dict[str, float]] = {}
    with folder_of(n) as work:
        for _ in range(ROUNDS):
            for where in ("files", "array"):
                out = work / f"{where}.npy"
                found = in_subprocess(FIT, work / "rows", where, M, ITERATIONS, BUDGET, out)
                print(f"files: {where}: {found}", file=sys.stderr)
                kept = best.setdefault(where, found)
                for key in ("whole", "pass"):
                    kept[key] = min(kept[key], found[key])
                kept["peak"] = max(kept["peak"], found["peak"])
        files, array = (np.load(work / f"{where}.npy") for where in ("files", "array"))
    apart = float(np.linalg.norm(files - array) / np.linalg.norm(array))
    most = 1_000_000_000 + ABOVE
    one, other = best["files"], best["array"]
    whole, single = other["whole"] / one["whole"], other["pass"] / one["pass"]
    what = f"{n:,} x {D} float32 from Parquet, M = {M:,}"
    peaks = [f"{kept['peak'] / 1e9:.2f} GB" for kept in (one, other)]
    wholes = f"{one['whole']:.1f} s / {other['whole']:.1f} s"
    passes = f"{one['pass']:.2f} s / {other['pass']:.2f} s"
    return [
        (f"{what}: peak memory with memory_budget={BUDGET!r}", peaks[0], "<= 1.3 GB", one["peak"] <= most),
        ("... the same fit from an array: peak memory", peaks[1], "", None),
        (f"... whole fit of {one['passes']} passes, files / array", wholes, "", None),
        ("... throughput of the whole fit beside the array's", f"{whole:.1%}", ">= 85%", whole >= 0.85),
        ("... time of a pass, files / array", passes, "", None),
        ("... throughput of a pass beside the array's", f"{single:.1%}", ">= 85%", single >= 0.85),
        ("... coefficients differ from the array's by", f"{apart:.1e}", "<= 1e-5", apart <= 1e-5),
    ]


if __name__ == "__main__":
    for row in run(small="--small" in sys.argv, data=Path()):
        print(row)
