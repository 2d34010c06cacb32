"""The part `hierarchical` of multiscale.py: HierarchicalRegressor beside exact fits and FALKON on four data sets.

One kernel, the Laplacian of width 0.5 sqrt(d) for standardised columns, and one path of penalties for all; every method
chooses its penalty by the same held-out rows. Times are those of one fit with the penalty that was chosen, best of
several, the methods in turn, and of predicting 1,000 rows once. Exact fits with few passes over the kernel matrix stand
beside them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _common import best_of
from numpy.typing import NDArray

from gyrfalcon import ExactRegressor, FalkonRegressor, HierarchicalRegressor
from gyrfalcon.kernels import Laplacian

Array = NDArray[Any]

SETS = ("kin40k", "protein_raw", "house_16h", "fried")
TIMED = "protein_raw"  # the data set on which the time must be at most FALKON's
MUS = np.array([1.0, 0.3, 0.1, 0.03, 0.01])  # penalty times n
PASSES = 12  # of exact fits that are stopped early
NEIGHBORS = 512  # from which predictions are computed
MOST_ERROR = 1.03  # of the exact fit's


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS, help="of the part hierarchical")
    parser.add_argument("--mus", nargs="*", type=float, default=MUS.tolist(), help="penalties times n to choose from")


def run(options: argparse.Namespace) -> bool:
    met = True
    for name in options.sets:
        data = read(options.data, name)
        if data is None:
            print(f"{name}: not in {options.data}", flush=True)
            continue
        met &= compare(name, *data, mus=np.array(options.mus), quick=options.quick)
    return met


def read(folder: Path, name: str) -> tuple[Array, Array] | None:
    """Return columns and targets, both standardised."""
    archive = folder / f"{name}.npz"
    tables = [folder / part / f"{name}.parquet" for part in ("tables", "tables_more")]
    if archive.exists():
        stored = np.load(archive)
        parts = [[stored[key] for key in (one, f"{one}_test") if key in stored] for one in ("X", "y")]
        X, y = (np.concatenate(part).astype(np.float64) for part in parts)
    elif found := [path for path in tables if path.exists()]:
        import pandas as pd

        table = pd.read_parquet(found[0])
        y = table.pop("target").to_numpy(dtype=np.float64)
        X = table.apply(pd.to_numeric).to_numpy(dtype=np.float64)
    else:
        return None
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.ravel(y)
    return X.astype(np.float32), ((y - y.mean()) / y.std()).astype(np.float32)


def compare(name: str, X: Array, y: Array, *, mus: Array, quick: bool) -> bool:
    """Print errors and times of all methods for one data set, and return whether the bars are met."""
    order = np.random.default_rng(0).permutation(len(X))
    if quick:
        order = order[:4_000]
    test, held, train = np.split(order, [len(order) // 10, len(order) // 5])
    n, d = len(train), X.shape[1]
    kernel = Laplacian(0.5 * d**0.5)
    M = 500 if quick else 5_000
    rows, held_out = (X[train], y[train]), (X[held], y[held])
    methods: dict[str, Callable[[float], Any]] = {
        f"FALKON, M = {M:,}": lambda mu: FalkonRegressor(
            kernel, n_centers=M, penalty=mu / n, scale=False, random_state=0
        ),
        "hierarchical": lambda mu: HierarchicalRegressor(kernel, penalty=mu / n, scale=False, random_state=0),
        f"hierarchical, M = {M:,}, leaves of 1,024": lambda mu: HierarchicalRegressor(
            kernel, n_centers=M, leaf_size=1024, rank=128, penalty=mu / n, scale=False, random_state=0
        ),
        f"hierarchical, M = {M:,}, {NEIGHBORS} neighbors": lambda mu: HierarchicalRegressor(
            kernel, n_centers=M, n_trees=1, n_neighbors=NEIGHBORS, penalty=mu / n, scale=False, random_state=0
        ),
        f"exact, {PASSES} passes": lambda mu: ExactRegressor(
            kernel, method="pcg", preconditioner="nystrom", max_iter=PASSES, penalty=mu / n, scale=False, random_state=0
        ),
    }
    exact = ExactRegressor(kernel, method="pcg", penalties=mus / n, tol=1e-3, scale=False, random_state=0)
    exact.fit(*rows, X_val=held_out[0], y_val=held_out[1])
    errors = {"exact": rmse(exact, X[test], y[test])}
    chosen = {}
    for label, make in methods.items():
        fitted = [make(mu).fit(*rows) for mu in mus]
        best = int(np.argmin([rmse(model, *held_out) for model in fitted]))
        chosen[label], errors[label] = make(mus[best]), rmse(fitted[best], X[test], y[test])
    fits = {label: partial(model.fit, *rows) for label, model in chosen.items()}
    seconds = best_of(fits, 1 if quick else 3)
    predicting = best_of({label: partial(model.predict, X[test[:1_000]]) for label, model in chosen.items()}, 1)
    print(f"\n{name}: {n:,} rows, {d} columns, Laplacian of width {0.5 * d**0.5:.2f}")
    for label, error in errors.items():
        ratio = error / errors["exact"]
        took = (
            f"fit {seconds[label]:6.2f} s, predicting 1,000 rows {predicting[label]:.2f} s" if label in seconds else ""
        )
        print(f"    {label:<42} error {error:.4f}, {ratio:.3f} of exact {took}", flush=True)
    falkon, default, large, near, _ = methods
    best_error = min(errors[default], errors[large], errors[near])
    accurate = best_error <= MOST_ERROR * errors["exact"] and best_error < errors[falkon]
    in_time = name != TIMED or seconds[default] <= seconds[falkon]
    print(f"    bars: error {'met' if accurate else 'missed'}, time {'met' if in_time else 'missed'}", flush=True)
    return accurate and in_time


def rmse(model: Any, X: Array, y: Array) -> float:
    return float(np.sqrt(np.mean(np.square(model.predict(X) - y))))
