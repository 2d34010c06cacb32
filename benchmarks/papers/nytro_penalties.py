"""Why NKRLS on Ijcnn is not that of the NYTRO paper's Table 2: its errors by penalty, and by how features are scaled.

    python benchmarks/papers/nytro_penalties.py [--data DIR] [--quick] [--only penalties features]

NKRLS by eigendecompositions in float64, for the 100 penalties of the paper: validation RMSE on a fifth of the training
rows, test RMSE, and wrong classes. m = 5,000 centers as in the paper, and m = 2,000 for other preparations of features.
It takes some minutes and 3 GB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from _data import Data, load, options, table
from nytro import EXPERIMENTS, PENALTIES, Trial, prepare
from scipy.linalg import eigh

BLOCK = 4_000  # rows
SHOWN = range(42, 70, 2)  # of PENALTIES


def gaussian(A: np.ndarray, C: np.ndarray, width: float) -> np.ndarray:
    squares = np.square(A).sum(axis=1)[:, None] + np.square(C).sum(axis=1) - 2 * A @ C.T
    return np.exp(-np.maximum(squares, 0) / (2 * width**2))


def coefficients(X: np.ndarray, y: np.ndarray, C: np.ndarray, width: float, penalties: np.ndarray) -> np.ndarray:
    """Solutions of (K'K + penalty n K_MM) alpha = K'y, a column for each penalty; K_MM's null space is left out."""
    values, vectors = eigh(gaussian(C, C, width))
    keep = values > 1e-14 * len(C) * values[-1]
    R = vectors[:, keep] / np.sqrt(values[keep])
    G, b = np.zeros((R.shape[1],) * 2), np.zeros(R.shape[1])
    for at in range(0, len(X), BLOCK):
        F = gaussian(X[at : at + BLOCK], C, width) @ R
        G += F.T @ F
        b += F.T @ y[at : at + BLOCK]
    values, vectors = eigh(G, overwrite_a=True)
    shrunk = (vectors.T @ b)[:, None] / (np.maximum(values, 0)[:, None] + len(X) * penalties)
    return np.asarray(R @ (vectors @ shrunk))


def errors(
    X: np.ndarray, y: np.ndarray, C: np.ndarray, width: float, coef: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """RMSE and the share of wrong signs, for each column of coefficients."""
    squares, wrong = np.zeros(coef.shape[1]), np.zeros(coef.shape[1])
    for at in range(0, len(X), BLOCK):
        f, truth = gaussian(X[at : at + BLOCK], C, width) @ coef, y[at : at + BLOCK, None]
        squares += np.square(f - truth).sum(axis=0)
        wrong += ((f > 0) != (truth > 0)).sum(axis=0)
    return np.sqrt(squares / len(X)), wrong / len(X)


def last_fifth(data: Data) -> Trial:
    """Hold out the last fifth of the rows, which are not in random order."""
    n = round(0.8 * len(data.y))
    return Trial(data.X[:n], data.y[:n], {"X_val": data.X[n:], "y_val": data.y[n:]})


def path(
    data: Data, m: int, width: float, seed: int = 0, in_order: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Validation RMSE, test RMSE and the share of wrong test rows, for each of the paper's penalties."""
    trial = last_fifth(data) if in_order else Trial.draw(data, seed)
    C = trial.X[np.random.default_rng(seed).choice(len(trial.y), m, replace=False)]
    coef = coefficients(trial.X, trial.y, C, width, PENALTIES)
    held = errors(trial.held["X_val"], trial.held["y_val"], C, width, coef)[0]
    return held, *errors(data.X_test, data.y_test, C, width, coef)


def preparations(joint: Data, arrays: dict[str, Any]) -> Iterator[tuple[str, Data]]:
    """The features in other ways than the authors'."""
    X, X_test = arrays["X"], arrays["X_test"]
    low, size, mean, deviation = X.min(axis=0), np.ptp(X, axis=0), X.mean(axis=0), X.std(axis=0)
    made = {
        "in [-1, 1] by training and test rows": (joint.X, joint.X_test),
        "as they are": (X, X_test),
        "in [-1, 1] by training rows": (2 * (X - low) / size - 1, 2 * (X_test - low) / size - 1),
        "in [0, 1] by training and test rows": ((joint.X + 1) / 2, (joint.X_test + 1) / 2),
        "standardised": ((X - mean) / deviation, (X_test - mean) / deviation),
    }
    for name, (train, test) in made.items():
        yield name, Data(train, joint.y[: len(train)], test, joint.y_test)


def by_penalty(data: Data, width: float, m: int) -> None:
    held, test, wrong = path(data, m, width)
    rows = [
        [f"{PENALTIES[i]:.2g}", f"{held[i]:.4f}", f"{test[i]:.4f}", f"{100 * wrong[i]:.2f}%"]
        for i in sorted({*SHOWN, int(held.argmin())})
    ]
    table(f"NKRLS on Ijcnn by penalty, m = {m:,}", ["penalty", "validation RMSE", "test RMSE", "wrong"], rows)


def by_features(data: Data, arrays: dict[str, Any], width: float, m: int) -> None:
    rows = []
    made = [(name, prepared, False) for name, prepared in preparations(data, arrays)]
    for name, prepared, in_order in [*made, ("the first, with the last fifth of the rows held out", data, True)]:
        held, test, _ = path(prepared, m, width, in_order=in_order)
        best = int(held.argmin())
        rows.append([name, f"{PENALTIES[best]:.2g}", f"{test[best]:.4f}", f"{test.min():.4f}"])
    header = ["features", "chosen penalty", "test RMSE", "least test RMSE of all penalties"]
    table(f"NKRLS on Ijcnn by features, m = {m:,}", header, rows)


def main() -> None:
    given = options(__doc__ or "", only=["penalties", "features"])
    experiment = next(experiment for experiment in EXPERIMENTS if experiment.name == "Ijcnn")
    arrays, data = load(given.data, experiment.file, np.float64), prepare(given.data, experiment, given.quick)
    if arrays is None or data is None:
        return
    arrays["X"] = arrays["X"][: len(data.X)]
    m, fewer = (300, 200) if given.quick else (experiment.m, 2_000)
    if "penalties" in (given.only or ["penalties"]):
        by_penalty(data, experiment.width, m)
    if "features" in (given.only or ["features"]):
        by_features(data, arrays, experiment.width, fewer)


if __name__ == "__main__":
    main()
