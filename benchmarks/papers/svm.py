"""The row of ThunderSVM in Falkon 2.0 on a CPU: support vector machines on MNIST, beside scikit-learn's SVC.

    python benchmarks/papers/svm.py [--data DIR] [--quick]

Pixels / 255 and Gaussian(5), which is gamma = 0.02, for all. SVC (LIBSVM, one thread) gets 20,000 rows, with C = 1,
its default, and with C = 10. `FalkonClassifier` with the squared hinge and M = 2,000 centers gets the same rows, and
all 60,000, with tol = 0.02: the objective is then within 0.1% of its minimum. Times are of one fit each, in one run:
as they pass, and of the processor. ThunderSVM requires a CUDA device, and was not run.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

from _data import Data, load, options, split, table
from sklearn.svm import SVC

from gyrfalcon import FalkonClassifier
from gyrfalcon.kernels import Gaussian

WIDTH, M, TOL = 5.0, 2_000, 0.02
HEADER = ["method", "n", "seconds", "processor", "part of SVC's time", "of its processor time", "wrong"]


def falkon(penalty: float, loss: str = "squared_hinge", n_centers: int = M) -> FalkonClassifier:
    """The squared hinge, with everything that a default could change."""
    return FalkonClassifier(
        Gaussian(WIDTH),
        n_centers=n_centers,
        penalty=penalty,
        loss=loss,
        scale=False,
        fit_intercept=True,
        preconditioner="falkon",
        max_iter=20,
        tol=TOL,
        random_state=0,
    )


def peer(C: float) -> SVC:
    """SVC at the same width; a cache of 1 GB makes it faster than its default of 200 MB."""
    return SVC(C=C, kernel="rbf", gamma=0.5 / WIDTH**2, cache_size=1_000)


def measured(model: Any, data: Data, n: int) -> tuple[float, float, float]:
    """Seconds of a fit, of the processor too, and the share of wrong classes."""
    wall, processor = time.perf_counter(), time.process_time()
    model.fit(data.X[:n], data.y[:n])
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return wall, processor, 1 - float(model.score(data.X_test, data.y_test))


def mnist(folder: Path, quick: bool) -> list[list[Any]]:
    arrays = load(folder, "mnist")
    if arrays is None:
        return []
    data = split(arrays)
    data = Data(data.X / 255, data.y.astype(int), data.X_test / 255, data.y_test.astype(int))
    few, all_rows, centers = (2_000, 6_000, 300) if quick else (20_000, len(data.X), M)
    runs = [
        ("SVC, C = 10", peer(10.0), few),
        ("SVC, C = 1", peer(1.0), few),
        *((f"squared hinge, penalty = {p:g}", falkon(p, n_centers=centers), few) for p in (1e-5, 1e-6)),
        *((f"squared hinge, penalty = {p:g}", falkon(p, n_centers=centers), all_rows) for p in (1e-5, 5e-6)),
        ("hinge, penalty = 1e-5", falkon(1e-5, "hinge", centers), few),
    ]
    rows: list[list[Any]] = []
    first: tuple[float, float] | None = None
    for name, model, n in runs:
        wall, processor, wrong = measured(model, data, n)
        first = first or (wall, processor)
        parts = [f"{wall / first[0]:.2f}", f"{processor / first[1]:.2f}"]
        rows.append([name, f"{n:,}", f"{wall:.1f}", f"{processor:.1f}", *parts, f"{100 * wrong:.2f}%"])
    return rows


def main() -> None:
    given = options(__doc__ or "")
    warnings.filterwarnings("ignore")  # SVC's about C, and hinge losses' about steps
    rows = mnist(given.data, given.quick)
    if rows:
        table(f"MNIST, Gaussian({WIDTH:g}), M = {M:,}; one fit each", HEADER, rows)


if __name__ == "__main__":
    main()
