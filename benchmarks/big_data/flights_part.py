"""flights (3,000,000 rows of 9 features): a whole fit from Parquet, with scaled features, M = 2,000.

A tenth of the rows is held out. There is little to learn in these data: they are here for their size.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from _common import in_subprocess
from files_part import Row, work_folder

M, ITERATIONS = 2_000, 10

FIT = """
import json, sys, time
from _common import peak
import numpy as np
import gyrfalcon
from gyrfalcon.kernels import Gaussian

folder, centers, iterations = sys.argv[1:]
began = time.perf_counter()
train = gyrfalcon.open(folder + "/train", target="delay")
test = gyrfalcon.open(folder + "/test", target="delay")
mean = float(train.y.mean(dtype=np.float64))
model = gyrfalcon.FalkonRegressor(
    kernel=Gaussian(3.0), n_centers=int(centers), penalty=1e-7, max_iter=int(iterations), tol=0, scale=True,
    memory_budget="1GB", dtype="float32", random_state=0,
).fit(train.X, train.y - mean)
whole = time.perf_counter() - began
first, last = model.history_[0], model.history_[-1]
began = time.perf_counter()
count = gyrfalcon.write_predictions(model, test, folder + "/predictions.npy")
predicting = time.perf_counter() - began
error = np.load(folder + "/predictions.npy") + mean - test.y
print(json.dumps({
    "rows": train.n_rows, "whole": whole, "peak": peak(), "passes": last["passes"],
    "pass": (last["seconds"] - first["seconds"]) / (last["passes"] - first["passes"]),
    "rmse": float(np.sqrt(np.mean(np.square(error, dtype=np.float64)))),
    "deviation": float(np.std(test.y, dtype=np.float64)),
    "predicted": count, "predicting": predicting,
}))
"""


def write(folder: Path, X: np.ndarray, y: np.ndarray, names: list[str], files: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    for number in range(files):
        part = slice(len(X) * number // files, len(X) * (number + 1) // files)
        table = pa.table([*X[part].T, y[part]], names=[*names, "delay"])
        parquet.write_table(table, folder / f"part-{number:02d}.parquet", row_group_size=1 << 18)


def run(*, small: bool, data: Path) -> list[Row]:
    with np.load(data / "flights_3m.npz") as archive:
        X, y, names = archive["X"], archive["y"], archive["columns"].tolist()
    n = 300_000 if small else len(X)
    order = np.random.default_rng(0).permutation(len(X))[:n]
    train, test = np.sort(order[n // 10 :]), np.sort(order[: n // 10])
    with work_folder() as work:
        write(Path(work) / "train", X[train], y[train], names, 4)
        write(Path(work) / "test", X[test], y[test], names, 1)
        del X, y
        found = in_subprocess(FIT, work, M, ITERATIONS)
    print(f"flights: {found}", file=sys.stderr)
    what = f"flights, {found['rows']:,} rows from Parquet, M = {M:,}"
    speed = f"{found['rows'] * M / found['pass'] / 1e9:.2f} billion kernel entries/s"
    error = f"{found['rmse']:.2f} ({found['deviation']:.2f})"
    return [
        (f"{what}: whole fit", f"{found['whole']:.1f} s, {found['passes']} passes", "", None),
        ("... time of a pass", f"{found['pass']:.2f} s, {speed}", "", None),
        ("... peak memory with memory_budget='1GB'", f"{found['peak'] / 1e9:.2f} GB", "", None),
        (f"... RMSE on {found['predicted']:,} held-out rows (their deviation)", error, "", None),
        ("... predictions of those written to a file", f"{found['predicting']:.2f} s", "", None),
    ]


if __name__ == "__main__":
    for row in run(small="--small" in sys.argv, data=Path(sys.argv[1])):
        print(row)
