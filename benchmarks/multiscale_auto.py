"""AutoRegressor and AutoClassifier with 60 s and 300 s on tables of 10^5 to 2.4 million rows, beside boosted trees.

Every table is split 80/20 with a seed. LightGBM (5,000 trees) and CatBoost (1,000) stop early by a tenth of the rows of
training. Errors are RMSE in standard deviations of y, and log-loss for classes. Each cell runs in its own process.

Bars: with 300 s better than LightGBM on at least three tables of five, never more than 3% worse, and at least 85% of
the time used; never more than 1.2 times the budget. `--files` gives `fit` Parquet files in place of a table in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _common import peak, table

from tables import THREADS, as_codes, predicted

Cell = dict[str, Any]

FOLDERS = {
    "bng_pw_linear": "tables_more",
    "bng_breast_tumor": "tables_more",
    "sleep": "tables",
    "kddcup": "tables_more",
    "flights_3m": None,
}
PEERS = ("lightgbm", "catboost")
QUICK_ROWS, QUICK_BUDGETS = 80_000, [10.0]
BUDGETS = [60.0, 300.0]
FEW = 10  # rows of a class with fewer rows all remain in training


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--time-budget", type=float, nargs="*", help=f"seconds; {BUDGETS} by default")
    parser.add_argument("--tables", nargs="*", default=list(FOLDERS), help="names; those of the bars by default")
    parser.add_argument("--methods", nargs="*", default=["auto", *PEERS], choices=["auto", *PEERS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", action="store_true", help="the automatic estimators read Parquet files")


# ---- the tables ------------------------------------------------------------------------------------------------------


def load(data: Path, name: str, quick: bool) -> tuple[Any, Any, str]:
    """Return a table, its target and "regression" or "classification"."""
    import pandas as pd

    if name == "flights_3m":
        with np.load(data / "flights_3m.npz") as archive:
            X, y = pd.DataFrame(archive["X"], columns=archive["columns"].tolist()), archive["y"].astype(np.float64)
        task = "regression"
    else:
        folder = data / (FOLDERS.get(name) or "tables")
        facts = json.loads((folder / "tables.json").read_text())[name]
        X, task = pd.read_parquet(folder / f"{name}.parquet"), facts["task"]
        y = X.pop(facts["target"])
        y = y.astype(str).to_numpy() if task == "classification" else y.to_numpy(dtype=np.float64)
    if quick and len(y) > QUICK_ROWS:
        some = np.sort(np.random.default_rng(0).permutation(len(y))[:QUICK_ROWS])
        X, y = X.iloc[some], y[some]
    return X, y, task


def divide(X: Any, y: Any, task: str, share: float, seed: int) -> tuple[Any, Any, Any, Any]:
    """Return training rows, held-out rows and their targets; rows of rare classes are all training rows."""
    order = np.random.default_rng(seed).permutation(len(y))
    held = np.zeros(len(y), dtype=bool)
    held[order[: int(share * len(y))]] = True
    if task == "classification":
        _, classes, counts = np.unique(y, return_inverse=True, return_counts=True)
        held &= counts[classes] >= FEW
        lost = np.setdiff1d(classes, classes[~held])
        held &= ~np.isin(classes, lost)
    return X.iloc[~held], X.iloc[held], y[~held], y[held]


# ---- the contenders --------------------------------------------------------------------------------------------------


def lightgbm(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping

    X, T = as_codes(X, X), as_codes(T, X)
    kind = LGBMClassifier if task == "classification" else LGBMRegressor
    fit_X, val_X, fit_y, val_y = divide(X, y, task, 0.1, seed)
    model = kind(n_estimators=5000, learning_rate=0.05, n_jobs=THREADS, random_state=seed, verbose=-1)
    model.fit(fit_X, fit_y, eval_set=[(val_X, val_y)], callbacks=[early_stopping(100, verbose=False)])
    return predicted(model, T, task)


def catboost(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    import pandas as pd
    from catboost import CatBoostClassifier, CatBoostRegressor

    X, T = as_codes(X, X), as_codes(T, X)
    named = [column for column in X if isinstance(X[column].dtype, pd.CategoricalDtype)]
    for column in named:
        for rows in (X, T):
            rows[column] = rows[column].astype(object).where(rows[column].notna(), "missing").astype(str)
    kind = CatBoostClassifier if task == "classification" else CatBoostRegressor
    model = kind(random_seed=seed, verbose=False, thread_count=THREADS, allow_writing_files=False)
    fit_X, val_X, fit_y, val_y = divide(X, y, task, 0.1, seed)
    model.fit(fit_X, fit_y, cat_features=named, eval_set=(val_X, val_y), early_stopping_rounds=100)
    return predicted(model, T, task)


def automatic(X: Any, y: Any, task: str, seed: int, seconds: float) -> Any:
    from gyrfalcon import AutoClassifier, AutoRegressor

    kind = AutoClassifier if task == "classification" else AutoRegressor
    return kind(time_budget=seconds, random_state=seed, n_jobs=THREADS).fit(X, y)


def from_files(X: Any, y: Any, folder: Path) -> Any:
    """Write the rows as Parquet files and open them."""
    import pyarrow as pa
    from pyarrow import parquet

    import gyrfalcon

    whole = pa.Table.from_pandas(X.assign(**{"the target": y}), preserve_index=False)
    for number in range(4):
        start, stop = len(y) * number // 4, len(y) * (number + 1) // 4
        parquet.write_table(whole.slice(start, stop - start), folder / f"part-{number}.parquet", row_group_size=1 << 18)
    return gyrfalcon.open(folder, target="the target")


# ---- one cell, in a process of its own -------------------------------------------------------------------------------


def run_cell(data: Path, quick: bool, name: str, method: str, seconds: float, seed: int, files: bool) -> Cell:
    X, y, task = load(data, name, quick)
    X, T, y, truth = divide(X, y, task, 0.2, seed)
    warnings.simplefilter("ignore")
    cell: Cell = {"table": name, "method": method, "task": task, "rows": len(y), "budget": seconds}
    with tempfile.TemporaryDirectory() as folder:
        given = from_files(X, y, Path(folder)) if files and method == "auto" else None
        began, cpu = time.perf_counter(), time.process_time()
        if method == "auto":
            model = automatic(*((given, None) if given is not None else (X, y)), task, seed, seconds)
            cell["seconds"] = time.perf_counter() - began
            out = predicted(model, T, task)
            cell["models"] = described(model)
        else:
            out = {"lightgbm": lightgbm, "catboost": catboost}[method](X, y, T, task, seed)
            cell["seconds"] = time.perf_counter() - began
    cell.update(cpu_seconds=time.process_time() - cpu, peak=peak(), **errors(out, truth, y, task))
    return cell


def described(model: Any) -> str:
    """Return the weight and the class of each model of a blend, and of kernel models centers, kernel and penalty."""
    parts = []
    for weight, one in zip(model.weights_, model.models_, strict=True):
        facts = vars(one)
        text = f"{weight:.2f} {type(one).__name__}"
        if "kernel_" in facts:
            text += f" {type(one.kernel_).__name__} M={len(one.centers_):,} {one.penalty_:.1e}"
        parts.append(text)
    return "; ".join(parts)


def errors(out: np.ndarray, truth: Any, y: Any, task: str) -> dict[str, float]:
    from sklearn.metrics import log_loss

    if task == "regression":
        return {"error": float(np.sqrt(np.mean((out - truth) ** 2)) / y.std())}
    classes = np.unique(y)
    wrong = float(np.mean(classes[out.argmax(axis=1)] != truth))
    return {"error": float(log_loss(truth, out, labels=classes)), "wrong": wrong}


# ---- all of them -----------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> bool:
    budgets = options.time_budget or (QUICK_BUDGETS if options.quick else BUDGETS)
    missing = [name for name in PEERS if name in options.methods and find_spec(name) is None]
    for name in missing:
        print(f"{name} is left out: its package is not installed", flush=True)
    methods = [name for name in options.methods if name not in missing]
    cells: list[Cell] = []
    for name in options.tables:
        for method in methods:
            for seconds in budgets if method == "auto" else [0.0]:
                cell = in_process(options, name, method, seconds)
                cells += [] if cell is None else [cell]
    return report(cells, options.tables, max(budgets))


def in_process(options: argparse.Namespace, name: str, method: str, seconds: float) -> Cell | None:
    """Run a cell in a new process, print it and return it; None if it failed."""
    given = [str(options.data), options.quick, name, method, seconds, options.seed, options.files]
    environment = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(THREADS))}
    ran = subprocess.run(
        [sys.executable, __file__, json.dumps(given)], capture_output=True, text=True, env=environment, check=False
    )
    if ran.returncode:
        print(f"{name} {method} {seconds:g} failed: {ran.stderr[-2000:]}", flush=True)
        return None
    cell: Cell = json.loads(ran.stdout.strip().splitlines()[-1])
    print(line(cell), flush=True)
    return cell


def line(cell: Cell) -> str:
    label = f"auto {cell['budget']:g} s" if cell["method"] == "auto" else cell["method"]
    text = f"{cell['table']:<18} {cell['rows']:>9,} {label:<11} error {cell['error']:.4f}"
    text += f" wrong {cell['wrong']:.4f}" if "wrong" in cell else " " * 13
    text += f" {cell['seconds']:7.1f} s, processor {cell['cpu_seconds']:7.1f} s, {cell['peak'] / 1e9:5.1f} GB"
    if cell["method"] == "auto":
        text += f", {cell['seconds'] / cell['budget']:.0%} of the budget: {cell['models']}"
    return text


def report(cells: Sequence[Cell], names: Sequence[str], longest: float) -> bool:
    """Print errors beside those of LightGBM, and whether the bars are met."""
    found = {(cell["table"], cell["method"], cell["budget"]): cell for cell in cells}
    rows, ratios = [], []
    for cell in (one for one in cells if one["method"] == "auto"):
        peers = [found.get((cell["table"], peer, 0.0)) for peer in PEERS]
        beside = [cell["error"] / peer["error"] if peer else float("nan") for peer in peers]
        share = cell["seconds"] / cell["budget"]
        rows.append([cell["table"], cell["rows"], f"{cell['budget']:g} s", cell["error"], *beside, share])
        if cell["budget"] == longest:
            ratios.append((beside[0], share))
    header = ["table", "rows", "budget", "error", *(f"/ {peer}" for peer in PEERS), "share of the budget"]
    table("the automatic estimators beside boosted trees: ratios of errors", header, rows)
    known = [ratio for ratio, _ in ratios if np.isfinite(ratio)]
    better = sum(ratio < 1 for ratio in known)
    bars = {
        f"{longest:g} s: better than LightGBM on {better} of {len(known)}": better >= 0.6 * len(known),
        f"{longest:g} s: worst ratio to LightGBM {max(known, default=0.0):.3f}": max(known, default=0.0) <= 1.03,
        f"most of a budget used: {max((row[-1] for row in rows), default=0.0):.0%}": all(
            row[-1] <= 1.2 for row in rows
        ),
        f"least of {longest:g} s used: {min((s for _, s in ratios), default=1.0):.0%}": all(
            s >= 0.85 for _, s in ratios
        ),
    }
    for text, met in bars.items():
        print(f"{text}: {'met' if met else 'NOT met'}", flush=True)
    return all(bars.values())


if __name__ == "__main__":
    data, *rest = json.loads(sys.argv[1])
    print(json.dumps(run_cell(Path(data), *rest)))
