"""The papers' comparisons on data at hand: all methods, two losses, a linear kernel, and what makes FALKON fast.

    python benchmarks/papers/comparison.py [--data DIR] [--quick] [--only methods airline yelp ablation]

- methods: as Table 2 of the FALKON paper compares them, time, test RMSE and memory of every method on kin40k and
  protein_raw (10,000 rows each), the faster of two runs in processes of their own, with one kernel and one penalty;
  methods with centers or features have M = 1,000 of them, and none is tuned.
- airline: FALKON beside LogFALKON on flights, late or not, as AIRLINE-CLS of Falkon 2.0.
- yelp: a linear kernel on sparse binary features, as YELP: the ratings of imdb.
- ablation: as Table 1 of Falkon 2.0, on a CPU: NumPy in float64, float32, products that write no K, K kept, and fewer
  passes; each is faster than the one before by the factor beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _data import Data, in_subprocess, load, options, rmse, split, standardise, table

from gyrfalcon import FalkonClassifier, FalkonRegressor, HierarchicalRegressor
from gyrfalcon.baselines import (
    AdmmRegressor,
    DivideAndConquerRegressor,
    DoublyStochasticRegressor,
    EigenProRegressor,
    EnsembleRegressor,
    ExactRegressor,
    FeatureSelectionRegressor,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesRegressor,
    SketchedRegressor,
    SvrgRegressor,
)
from gyrfalcon.kernels import Gaussian, Polynomial

SETS = {"kin40k": (3.0, 1e-7), "protein_raw": (1.0, 1e-6)}  # width and penalty of Figure 1
REPEATS = 2  # runs of each method; the faster one counts
# the names of the FALKON paper's Tables 1 and 2, and SGD on random features
METHODS: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "FALKON": lambda basis, ridge: FalkonRegressor(preconditioner="paper", tol=0.0, **basis, **ridge),
    "basic FALKON": lambda basis, ridge: FalkonRegressor(solver="gd", max_iter=50, tol=0.0, **basis, **ridge),
    "Nyström": lambda basis, ridge: NystromRegressor(**basis, **ridge),
    "BCD Nyström": lambda basis, ridge: NystromRegressor(solver="bcd", max_iter=10, **basis, **ridge),
    "NYTRO": lambda basis, ridge: NytroRegressor(step="auto", max_iter=100, early_stopping=False, **basis),
    "Rand. Feat.": lambda basis, ridge: RandomFeaturesRegressor(**_features(basis), **ridge),
    "BCD R. F.": lambda basis, ridge: RandomFeaturesRegressor(solver="bcd", max_iter=10, **_features(basis), **ridge),
    "R. F., SGD": lambda basis, ridge: RandomFeaturesRegressor(solver="sgd", **_features(basis), **ridge),
    "R. F., averaged SGD": lambda basis, ridge: RandomFeaturesRegressor(
        solver="sgd", power_t=0.5, average=True, **_features(basis), **ridge
    ),
    "Prec. KRR, random features": lambda basis, ridge: ExactRegressor(
        method="pcg", preconditioner="random_features", **basis, **ridge
    ),
    "Prec. KRR, Nyström": lambda basis, ridge: ExactRegressor(method="pcg", **basis, **ridge),
    "D&C": lambda basis, ridge: DivideAndConquerRegressor(n_partitions=16, **_rows(basis), **ridge),
    "EigenPro": lambda basis, ridge: EigenProRegressor(max_iter=5, **_rows(basis)),
    "Hierarchical": lambda basis, ridge: HierarchicalRegressor(**_rows(basis), **ridge),
    "ADMM R. F.": lambda basis, ridge: AdmmRegressor(max_iter=100, **_features(basis), **ridge),
    "preconditioned SVRG": lambda basis, ridge: SvrgRegressor(max_iter=10, **_features(basis), **ridge),
    "doubly stochastic": lambda basis, ridge: DoublyStochasticRegressor(**_features(basis), **ridge),
    "sketches": lambda basis, ridge: SketchedRegressor(sketch_size=basis["n_centers"] // 4, **_rows(basis), **ridge),
    "Sparse Kernels": lambda basis, ridge: FeatureSelectionRegressor(**_features(basis), **ridge),
    "Ensemble": lambda basis, ridge: EnsembleRegressor(n_estimators=4, **_features(basis), **ridge),
}
CODE = """
import json
sys.path.insert(0, sys.argv[1])
from comparison import fitted
print(json.dumps(fitted(*sys.argv[2:5], int(sys.argv[5]))))
"""
ABLATION = """
import json, os
sys.path.insert(0, sys.argv[1])
os.environ["GYRFALCON_BACKEND"] = sys.argv[2]
from comparison import ablated
print(json.dumps(ablated(*sys.argv[3:6], *map(int, sys.argv[6:]))))
"""
# what changes, then backend, dtype and whether K is kept and the preconditioner may read more than the centers
STEPS = [
    ("NumPy, float64", "reference", "float64", "plain"),
    ("float32", "reference", "float32", "plain"),
    ("fused products", "auto", "float32", "plain"),
    ("K kept", "auto", "float32", "kept"),
    ("fewer passes", "auto", "float32", "fewer"),
]


def _rows(basis: dict[str, Any]) -> dict[str, Any]:
    """Methods of which every row is a center."""
    return {name: value for name, value in basis.items() if name != "n_centers"}


def _features(basis: dict[str, Any]) -> dict[str, Any]:
    return {**_rows(basis), "n_components": basis["n_centers"]}


def make(method: str, name: str, M: int) -> Any:
    """A method with the settings that all share, and everything that a default could change."""
    width, penalty = SETS[name]
    basis = {"kernel": Gaussian(width), "n_centers": M, "scale": False, "fit_intercept": False, "random_state": 0}
    return METHODS[method](basis, {"penalty": penalty})


def fitted(method: str, name: str, folder: str, rows: int) -> list[float]:
    """Seconds, test RMSE, and megabytes beyond the data."""
    import warnings

    from _common import peak, resident

    warnings.simplefilter("ignore")
    arrays = load(Path(folder), name, np.float64)
    assert arrays is not None
    data = standardise(split(arrays, n_rows=rows), targets=True)
    model = make(method, name, rows // 10)
    before, start = resident(), time.perf_counter()
    model.fit(data.X, data.y)
    seconds = time.perf_counter() - start
    return [seconds, rmse(model.predict(data.X_test), data.y_test), (peak() - before) / 1e6]


def methods(folder: Path, quick: bool) -> None:
    found = {name: load(folder, name) for name in SETS}
    n = 1_000 if quick else 10_000
    rows = []
    here = str(Path(__file__).resolve().parent)
    for method in METHODS:
        row: list[Any] = [method]
        for name in SETS:
            if found[name] is not None:
                runs = [in_subprocess(CODE, here, method, name, folder, n) for _ in range(REPEATS)]
                seconds, error, memory = min(runs)
                row += [f"{seconds:.2f}", f"{error:.4f}", f"{memory:.0f}"]
        rows.append(row)
    columns = [f"{name}: {what}" for name in SETS if found[name] is not None for what in ("s", "test RMSE", "MB")]
    table(f"Every method, one kernel and penalty: n = {n:,}, M = {n // 10:,}", ["method", *columns], rows)


def late(folder: Path, rows: int) -> Data | None:
    """Flights, standardised, and whether each was late: y > 0."""
    arrays = load(folder, "flights_3m")
    if arrays is None:
        return None
    data = standardise(split(arrays, test=1 / 30, n_rows=rows))
    return Data(data.X, data.y > 0, data.X_test, data.y_test > 0)


def classifiers(M: int) -> dict[str, Any]:
    """FALKON and LogFALKON with AIRLINE-CLS's width; a penalty for fewer rows and centers."""
    shared: dict[str, Any] = {
        "kernel": Gaussian(0.9), "n_centers": M, "penalty": 1e-6, "scale": False, "fit_intercept": False,
        "random_state": 0,
    }  # fmt: skip
    return {
        "FALKON": FalkonClassifier(preconditioner="paper", tol=0.0, **shared),
        "LogFALKON": FalkonClassifier(loss="logistic", **shared),
    }


def airline(folder: Path, quick: bool) -> None:
    data = late(folder, 5_000 if quick else 200_000)
    if data is None:
        return
    rows = []
    M = 200 if quick else 2_000
    for name, model in classifiers(M).items():
        start = time.perf_counter()
        model.fit(data.X, data.y)
        seconds = time.perf_counter() - start
        rows.append([name, f"{100 * (1 - model.score(data.X_test, data.y_test)):.2f}%", seconds])
    table(f"Flights, late or not: n = {len(data.y):,}, M = {M:,}", ["method", "c-err", "seconds"], rows)


def linear(M: int, penalty: float) -> FalkonRegressor:
    """FALKON with YELP's kernel, x.z / 31.4^2 + 1, and its 35 iterations."""
    kernel = Polynomial(1, gamma=1 / 31.4**2, coef0=1.0)
    return FalkonRegressor(
        kernel, n_centers=M, penalty=penalty, scale=False, fit_intercept=False, preconditioner="paper", max_iter=35,
        tol=0.0, random_state=0,
    )  # fmt: skip


def yelp(folder: Path, quick: bool) -> None:
    arrays = load(folder, "imdb_unigram")
    if arrays is None:
        return
    data = split(arrays, n_rows=2_000 if quick else None)
    X, X_test = (part.astype(bool).astype(np.float32) for part in (data.X, data.X_test))  # whether a word is there
    rows = []
    for M in (300,) if quick else (1_000, 3_000):
        model = linear(M, 1e-4)
        start = time.perf_counter()
        model.fit(X, data.y)
        seconds = time.perf_counter() - start
        rows.append([f"{M:,}", f"{rmse(model.predict(X_test), data.y_test):.3f}", seconds])
    title = f"imdb, ratings 1 to 10, deviation {data.y_test.std():.2f}: n = {X.shape[0]:,}, d = {X.shape[1]:,}, linear"
    table(title, ["M", "test RMSE", "seconds"], rows)


def ablated(dtype: str, mode: str, folder: str, n: int, M: int) -> list[float]:
    """Processor seconds of the fit (of all threads: a busy machine changes them less), passes, and test RMSE."""
    import warnings

    warnings.simplefilter("ignore")
    arrays = load(Path(folder), "flights_3m")
    assert arrays is not None
    data = standardise(split(arrays, test=1 / 30, n_rows=n), targets=True)
    model = FalkonRegressor(
        Gaussian(1.0), n_centers=M, penalty=1e-6, scale=False, fit_intercept=False, random_state=0, dtype=dtype,
        preconditioner="auto" if mode == "fewer" else "paper", tol=None if mode == "fewer" else 0.0,
        memory_budget="auto" if mode != "plain" else n * M * 2,
    )  # fmt: skip
    start = time.process_time()
    model.fit(data.X.astype(dtype), data.y.astype(dtype))
    seconds = time.process_time() - start
    return [seconds, model.history_[-1]["passes"], rmse(model.predict(data.X_test.astype(dtype)), data.y_test)]


def ablation(folder: Path, quick: bool) -> None:
    if load(folder, "flights_3m") is None:
        return
    n, M = (10_000, 500) if quick else (100_000, 1_000)
    here = str(Path(__file__).resolve().parent)
    rows: list[list[Any]] = []
    before = first = None
    for name, backend, dtype, mode in STEPS:
        seconds, passes, error = in_subprocess(ABLATION, here, backend, dtype, mode, folder, n, M)
        first, before = first or seconds, before or seconds
        rows.append([name, seconds, f"{before / seconds:.1f}", f"{first / seconds:.1f}", passes, f"{error:.4f}"])
        before = seconds
    header = ["", "processor seconds", "factor", "in all", "passes", "test RMSE"]
    table(f"What makes it fast, flights: n = {n:,}, M = {M:,}, 20 iterations", header, rows)


def main() -> None:
    parts = {"methods": methods, "airline": airline, "yelp": yelp, "ablation": ablation}
    given = options(__doc__ or "", only=list(parts))
    for name in given.only or parts:
        parts[name](given.data, given.quick)


if __name__ == "__main__":
    main()
