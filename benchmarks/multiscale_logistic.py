"""The part `logistic` of multiscale.py: Newton steps for the logistic loss with the factors of trees.

Beside them stands `HierarchicalClassifier`, which fits least squares and calibrates probabilities. Both have the same
kernel and number of trees, and choose the penalty by the log-loss of the same held-out rows. A Newton step solves
(K_hc + penalty n / w) a = z with w = p (1 - p) and z = f + (y - p) / w, one factorisation for each tree. Rows are
the first 12,000 of a random order, since only ratios count.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import log_loss

from gyrfalcon import HierarchicalClassifier
from gyrfalcon.hierarchy import Hierarchy, LocalExpansion, factorise, make_hierarchy
from gyrfalcon.kernels import Laplacian

Array = NDArray[Any]

SETS = ("magic", "ijcnn1")
ROWS, QUICK_ROWS = 12_000, 3_000
TREES = 2
SQUARES = (3.0, 1.0, 0.3, 0.1)  # penalties times n
NEWTON = (0.3, 0.1, 0.03, 0.01, 0.003)
STEPS, SETTLED = 10, 1e-2


def arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> bool:
    for name in SETS:
        data = read(options.data, name)
        if data is None:
            print(f"{name}: not in {options.data}", flush=True)
            continue
        compare(name, *data, QUICK_ROWS if options.quick else ROWS)
    return True  # there is no bar: the figures decide whether a logistic loss is built


def read(folder: Path, name: str) -> tuple[Array, Array] | None:
    """Return columns and classes 0 and 1."""
    archive, table = folder / f"{name}.npz", folder / "tables" / f"{name}.parquet"
    if archive.exists():
        stored = np.load(archive)
        return stored["X"].astype(np.float64), (np.ravel(stored["y"]) > 0).astype(np.int64)
    if not table.exists():
        return None
    import pandas as pd

    frame = pd.read_parquet(table)
    y = frame.pop("target")
    return frame.to_numpy(dtype=np.float64), (y == y.unique()[0]).to_numpy(dtype=np.int64)


def compare(name: str, X: Array, y: Array, rows: int) -> None:
    """Print log-loss, error and processor time of both methods."""
    order = np.random.default_rng(0).permutation(len(X))[:rows]
    X, y = X[order], y[order]
    deviation = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    test, held, train = np.split(np.arange(len(X)), [len(X) // 4, len(X) // 4 + len(X) // 6])
    n, d = len(train), X.shape[1]
    kernel = Laplacian(0.5 * d**0.5)
    print(f"\n{name}: {n:,} rows, {d} columns, {TREES} trees", flush=True)
    began, found = time.process_time(), []
    for mu in SQUARES:
        model = HierarchicalClassifier(kernel, penalty=mu / n, n_trees=TREES, n_centers=0, scale=False, random_state=0)
        model.fit(X[train], y[train], X_val=X[held], y_val=y[held])
        found.append((mu, *(model.predict_proba(X[part])[:, 1] for part in (held, test))))
    report("least squares, calibrated", found, y[held], y[test], time.process_time() - began)
    began, found = time.process_time(), []
    sizes = {"leaf_size": 512, "rank": 128, "split": "axis"}
    trees = [make_hierarchy(kernel, X[train], **sizes, seed=seed) for seed in range(TREES)]
    for mu in NEWTON:
        values = [newton(tree, y[train], mu, [X[held], X[test]]) for tree in trees]
        found.append((mu, *(probability(np.mean(each, axis=0)) for each in zip(*values, strict=True))))
    report("logistic loss, Newton", found, y[held], y[test], time.process_time() - began)


def newton(hierarchy: Hierarchy, y: Array, mu: float, others: list[Array]) -> list[Array]:
    """Return the log-odds of other rows."""
    n, tree = len(y), hierarchy.tree
    offset, f = float(np.log(y.mean() / (1 - y.mean()))), np.zeros(n)
    for _ in range(STEPS):
        p = probability(f + offset)
        w = np.maximum(p * (1 - p), 1e-4)
        z, before = f + (y - p) / w, f
        factors = factorise(hierarchy, z[:, None], mu / w)
        coef = np.empty(n)
        coef[hierarchy.order] = factors.coef[:, 0]
        f = z - mu / w * coef
        if np.abs(f - before).max() < SETTLED:
            break
    expansion = LocalExpansion(tree, hierarchy.order, hierarchy.pivots[tree.parents], factors.coef, factors.pivot_coef)
    return [expansion.predict(hierarchy.kernel, hierarchy.X, X)[:, 0] + offset for X in others]


def probability(log_odds: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -40, 40))))


def report(label: str, found: list[tuple[float, Array, Array]], y_held: Array, y_test: Array, seconds: float) -> None:
    mu, _, p = min(found, key=lambda one: log_loss(y_held, one[1]))
    wrong = np.mean((p > 0.5) != y_test)
    print(
        f"    {label:<26} log-loss {log_loss(y_test, p):.4f}, errors {100 * wrong:.2f}%, penalty n {mu:g}, "
        f"{seconds / len(found):.2f} processor seconds a penalty",
        flush=True,
    )
