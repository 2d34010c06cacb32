"""Coverage and width of intervals for y on real data, over random splits: python benchmarks/uncertainty.py --data DIR

For each set and split, intervals of the coverage asked for from the same training rows: with a constant width, in
proportion to the deviation and by quantiles, all from rows that are held out; and from leave-one-out errors, without
holding out any. `--rows` and `--centers` choose the size, `--sets` the data, `--only` the methods.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from _common import table

from gyrfalcon import ConformalRegressor, FalkonRegressor

ROOT = Path(__file__).resolve().parents[1]
SETS = ("kin40k", "california_housing", "protein_raw")
METHODS = ("constant", "deviation", "quantiles", "leave-one-out")


def load(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    path = folder / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"{path} is missing: give the folder that has {', '.join(SETS)} as .npz with --data DIR")
    archive = np.load(path, allow_pickle=False)
    X, y = ([archive[key] for key in (one, f"{one}_test") if key in archive.files] for one in ("X", "y"))
    return np.concatenate(X).astype(np.float32), np.concatenate(y).astype(np.float64).ravel()


def model_of(method: str, n_centers: int, coverage: float, seed: int) -> Any:
    common: dict[str, Any] = {"n_centers": n_centers, "random_state": seed}
    if method == "leave-one-out":
        return FalkonRegressor(uncertainty=True, **common)
    levels = [(1 - coverage) / 2, 0.5, (1 + coverage) / 2]
    inner = {
        "constant": FalkonRegressor(**common),
        "deviation": FalkonRegressor(uncertainty=True, **common),
        "quantiles": FalkonRegressor(loss="quantile", quantiles=levels, **common),
    }[method]
    return ConformalRegressor(inner, method=method, random_state=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the .npz files")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="names of .npz files in that folder")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--rows", type=int, default=10_000, help="training rows; 5,000 others at most are judged")
    parser.add_argument("--centers", type=int, default=500)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    for name in arguments.sets:
        X, y = load(arguments.data, name)
        found: dict[str, list[tuple[float, float, float]]] = {method: [] for method in arguments.only}
        for seed in range(arguments.splits):
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = order[: arguments.rows], order[arguments.rows :][:5_000]
            for method in arguments.only:
                start = time.perf_counter()
                model = model_of(method, arguments.centers, arguments.coverage, seed).fit(X[train], y[train])
                low, high = model.predict_interval(X[test], arguments.coverage).T
                inside = float(np.mean((low <= y[test]) & (y[test] <= high)))
                found[method].append((inside, float(np.mean(high - low)), time.perf_counter() - start))
        rows = []
        for method, records in found.items():
            inside, width, seconds = np.array(records).T
            first = np.array(found[arguments.only[0]])[:, 1].mean()
            covered = f"{inside.mean():.1%} ({inside.min():.1%} to {inside.max():.1%})"
            rows.append([method, covered, width.mean(), f"{width.mean() / first:.3f}", seconds.mean()])
        title = f"{name}: {arguments.rows:,} rows, {arguments.centers:,} centers, {arguments.splits} splits"
        header = ["method", f"y inside (asked: {arguments.coverage:.0%})", "mean width", "of the first", "seconds"]
        table(title, header, rows)


if __name__ == "__main__":
    main()
