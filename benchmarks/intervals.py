"""Prediction intervals of AutoRegressor on tables: python benchmarks/intervals.py --data DIR

For each regression table, 90% intervals for the rows that the fit does not see: the share of y inside, the same in each
fifth of the rows by the width of their interval, and the mean width relative to that of intervals with one width, which
the same model gives without its scales of the errors. DIR/tables has tables as parquet files, and tables.json with the
target and the task of each.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path

import numpy as np
from _common import table

from gyrfalcon import AutoRegressor

ROOT = Path(__file__).resolve().parents[1]


def measure(path: Path, target: str, budget: float, seed: int, coverage: float) -> list[str]:
    """Return a row of the table: coverage, coverage of each fifth, relative width and seconds."""
    import pandas as pd

    frame = pd.read_parquet(path).dropna(subset=[target])
    order = np.random.default_rng(seed).permutation(len(frame))
    few = len(frame) // 5
    test, train = frame.iloc[order[:few]], frame.iloc[order[few:]]
    began = time.perf_counter()
    model = AutoRegressor(time_budget=budget, random_state=seed).fit(train.drop(columns=target), train[target])
    seconds = time.perf_counter() - began
    constant = copy.copy(model)
    constant.spreads_ = [None] * len(model.spreads_)
    X, y = test.drop(columns=target), test[target].to_numpy(dtype=np.float64)
    low, high = model.predict_interval(X, coverage).T
    widths = [np.subtract(*one.predict_interval(X, coverage).T[::-1]).mean() for one in (model, constant)]
    inside = (low <= y) & (y <= high)
    by_width = np.argsort(high - low, kind="stable")
    fifths = [inside[part].mean() for part in np.array_split(by_width, 5)]
    learnt = "yes" if model.spreads_[0] is not None else "no"
    shares = " ".join(f"{100 * share:.0f}" for share in fifths)
    return [f"{inside.mean():.1%}", shares, f"{widths[0] / widths[1]:.3f}", learnt, f"{seconds:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--tables", nargs="+", help="names of tables; all regression tables by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--budget", type=float, default=10, help="seconds for a fit")
    parser.add_argument("--coverage", type=float, default=0.9)
    options = parser.parse_args()
    folder = options.data / "tables"
    if not (folder / "tables.json").exists():
        parser.error(f"--data {options.data}: there is no {folder / 'tables.json'}, which describes the tables")
    described = json.loads((folder / "tables.json").read_text())
    names = options.tables or [name for name, one in described.items() if one["task"] == "regression"]
    rows = []
    for name in names:
        for seed in options.seeds:
            path, target = folder / f"{name}.parquet", described[name]["target"]
            rows.append([name, str(seed), *measure(path, target, options.budget, seed, options.coverage)])
            print(*rows[-1], sep="  ", flush=True)
    header = ["table", "seed", "inside", "fifths by width, %", "of constant width", "scale learnt", "seconds"]
    table(f"{options.coverage:.0%} intervals, {options.budget:g} s", header, rows)


if __name__ == "__main__":
    main()
