"""Models that learn on: python benchmarks/learning_on.py --data DIR

Part "batches": 100 batches of rows by `partial_fit` beside one fit with the same centers, half of them forgotten beside
a fit to the other half, and the time of a batch of 1,000 rows with 1,000 centers.
Part "months": bike_sharing by month (DIR/tables): the error on each next month of a model that learns on, one that is
fitted again each month to all months so far, and one that stays as it was after the first three months.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from _common import table

from gyrfalcon import NystromRegressor
from gyrfalcon.kernels import Gaussian, Matern

FIRST = 3  # months that all models begin with


def batches(n: int, n_centers: int) -> list[list[str]]:
    """Compare batches with one fit; return rows of a table."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 9))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)
    kernel, size = Gaussian(3.0), n // 100
    model = NystromRegressor(kernel, centers=X[:n_centers], penalty=1e-6)
    for start in range(0, n, size):
        model.partial_fit(X[start : start + size], y[start : start + size])
    whole = NystromRegressor(kernel, centers=X[:n_centers], penalty=1e-6).fit(X, y)
    rows = [
        ["100 batches against one fit, largest difference", f"{np.abs(model.predict(X) - whole.predict(X)).max():.1e}"]
    ]
    half = n // 2
    model.forget(X[half:], y[half:])
    kept = NystromRegressor(kernel, centers=X[:n_centers], penalty=1e-6).fit(X[:half], y[:half])
    rows.append(["half forgotten against never learnt", f"{np.abs(model.predict(X) - kept.predict(X)).max():.1e}"])
    times = []
    for _ in range(7):
        start_time = time.perf_counter()
        model.partial_fit(X[:1000], y[:1000])
        times.append(time.perf_counter() - start_time)
    rows.append([f"1,000 rows, {n_centers} centers, best of 7", f"{1000 * min(times):.0f} ms"])
    return rows


def months(folder: Path) -> list[list[str]]:
    """Learn bike_sharing month by month; return rows of a table."""
    import pandas as pd

    frame = pd.read_parquet(folder / "tables" / "bike_sharing.parquet")
    month = (frame["dteday"].dt.year * 12 + frame["dteday"].dt.month).to_numpy()
    y = np.log1p(frame["cnt"].to_numpy(dtype=np.float64))
    hour, day = 2 * np.pi * frame["hr"] / 24, 2 * np.pi * frame["dteday"].dt.day_of_year / 365.25
    circles = [2 * turn(angle) for angle in (hour, 2 * hour, day) for turn in (np.sin, np.cos)]
    weather = [4 * frame[name] for name in ("temp", "atemp", "hum", "windspeed")]
    X = np.column_stack([*circles, *weather, 2 * frame["workingday"], 0.5 * frame["weathersit"]]).astype(np.float64)
    order = np.unique(month)
    begin = np.isin(month, order[:FIRST])

    def fresh() -> NystromRegressor:
        return NystromRegressor(Matern(4.0, nu=1.5), n_centers=1000, penalty=1e-5, random_state=0)

    stays, learns = fresh().fit(X[begin], y[begin]), fresh().partial_fit(X[begin], y[begin])
    fades = fresh().partial_fit(X[begin], y[begin])
    errors: dict[str, list[float]] = {name: [] for name in ("stays", "learns on", "learns on, factor 0.7", "refitted")}
    for k, now in enumerate(order[FIRST:], start=FIRST):
        rows, past = month == now, np.isin(month, order[:k])
        refitted = fresh().fit(X[past], y[past])
        for name, model in zip(errors, (stays, learns, fades, refitted), strict=True):
            errors[name].append(float(np.sqrt(np.mean((model.predict(X[rows]) - y[rows]) ** 2))))
        learns.partial_fit(X[rows], y[rows], max_new_centers=100)
        fades.partial_fit(X[rows], y[rows], forgetting_factor=0.7, max_new_centers=100)
    return [[name, f"{np.mean(found):.3f}", f"{found[-1]:.3f}"] for name, found in errors.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    options = parser.parse_args()
    n, n_centers = (10_000, 200) if options.quick else (100_000, 1000)
    table(f"{n:,} rows x 9, {n_centers:,} centers", ["", "result"], batches(n, n_centers))
    if (options.data / "tables" / "bike_sharing.parquet").exists():
        header = ["model", "mean of 21 months", "last month"]
        table("bike_sharing: RMSE of log(1 + count) on the next month", header, months(options.data))
    else:
        print(f"{options.data / 'tables' / 'bike_sharing.parquet'} is missing: the months are left out")


if __name__ == "__main__":
    main()
