"""Table 1 of the FALKON paper, measured: how time, kernel evaluations and memory grow with n.

    python benchmarks/papers/falkon_table1.py [--quick] [--only METHOD ...]

Each method runs with lambda, M and t as the theory sets them for optimal rates, constants aside: lambda = 1/sqrt(n); M
= 10 sqrt(n) centers or features; parts of 10 sqrt(n) rows; sqrt(n) iterations of gradient descent, n^(1/4) of the
nu-method (the paper's row "KRR + iterative"); log(n)/2 + 5 of FALKON; 3 epochs of EigenPro and of SGD (EigenPro without
a preconditioner, and mini-batches on Nyström centers); 5 of block coordinate descent, with blocks of 500 (Tu et al.
2016; not in the paper's table: the exponents are those of n M for a
fixed number of epochs, which it would have to be). FALKON, EigenPro and block descent compute K anew on each pass, the
other iterations keep it. FALKON has its own preconditioner at every size, features are as they are made (deviation 1),
and there is no intercept. Every size runs in a process of its own, where peak memory starts from nothing; kernel
evaluations are counted by a wrapper around the back end. An exponent is the slope of the last three sizes in
logarithms; of memory, beyond what the input and the libraries take. Logarithms, which the table leaves out, add about
0.1 to exponents at these sizes; fixed costs take away.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from _data import in_subprocess, options, table

# per method: the paper's row and its exponents of time, kernel evaluations and memory; the sizes measured
METHODS: dict[str, tuple[str, tuple[float, float, float], list[int]]] = {
    "exact": ("KRR, direct", (3, 2, 2), [2_000, 4_000, 8_000]),
    "early_stopping": ("KRR, gradient descent", (2.5, 2, 2), [4_000, 8_000, 16_000]),
    "nu": ("KRR, accelerated gradient (nu-method)", (2.25, 2, 2), [4_000, 8_000, 16_000]),
    "sgd": ("KRR, SGD", (2, 2, 1), [8_000, 16_000, 32_000]),
    "eigenpro": ("KRR, preconditioned SGD (EigenPro)", (2, 2, 1), [8_000, 16_000, 32_000]),
    "divide": ("divide and conquer", (2, 1.5, 1), [8_000, 16_000, 32_000, 64_000]),
    "nystrom": ("Nyström, direct", (2, 1.5, 1), [8_000, 16_000, 32_000, 64_000]),
    "features": ("random features, direct", (2, 1.5, 1), [8_000, 16_000, 32_000, 64_000]),
    "nytro": ("Nyström, gradient descent (NYTRO)", (2, 1.5, 1), [8_000, 16_000, 32_000]),
    "nystrom_sgd": ("Nyström, SGD", (2, 1.5, 1), [8_000, 16_000, 32_000]),
    "bcd": ("Nyström, block coordinate descent", (1.5, 1.5, 1), [8_000, 16_000, 32_000, 64_000]),
    "falkon": ("FALKON", (1.5, 1.5, 1), [8_000, 32_000, 128_000, 256_000]),
}
WIDTH = 4.0


def make(method: str, n: int) -> Any:
    from gyrfalcon import FalkonRegressor
    from gyrfalcon.estimators import (
        DivideAndConquerRegressor,
        EigenProRegressor,
        ExactRegressor,
        NystromRegressor,
        NytroRegressor,
        RandomFeaturesRegressor,
    )
    from gyrfalcon.kernels import Gaussian

    root = math.isqrt(n)
    kernel, penalty, M = Gaussian(WIDTH), 1 / math.sqrt(n), min(n, 10 * root)
    shared: dict[str, Any] = {"kernel": kernel, "scale": False, "fit_intercept": False, "random_state": 0}
    iterations = round(0.5 * math.log(n) + 5)
    descent: dict[str, Any] = {"max_iter": root, "early_stopping": False}
    makers = {
        "exact": lambda: ExactRegressor(penalty=penalty, **shared),
        "early_stopping": lambda: ExactRegressor(method="early_stopping", **descent, **shared),
        "nu": lambda: ExactRegressor(method="nu", max_iter=math.isqrt(root) + 1, early_stopping=False, **shared),
        "sgd": lambda: EigenProRegressor(n_components=0, max_iter=3, tol=0.0, **shared),
        "eigenpro": lambda: EigenProRegressor(max_iter=3, tol=0.0, **shared),
        "divide": lambda: DivideAndConquerRegressor(n_partitions=max(1, n // M), penalty=penalty, **shared),
        "nystrom": lambda: NystromRegressor(n_centers=M, penalty=penalty, memory_budget=0, **shared),
        "features": lambda: RandomFeaturesRegressor(n_components=M, penalty=penalty, **shared),
        "bcd": lambda: NystromRegressor(
            n_centers=M, penalty=penalty, solver="bcd", block_size=500, max_iter=5, tol=0.0, memory_budget=0, **shared
        ),
        "nystrom_sgd": lambda: NystromRegressor(
            n_centers=M, penalty=penalty, solver="sgd", max_iter=3, memory_budget=0, **shared
        ),
        "nytro": lambda: NytroRegressor(n_centers=M, **descent, **shared),
        "falkon": lambda: FalkonRegressor(
            n_centers=M,
            penalty=penalty,
            preconditioner="falkon",
            max_iter=iterations,
            tol=0.0,
            memory_budget=0,
            **shared,
        ),
    }
    return makers[method]()


def problem(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten features, a smooth function of four of them, noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 10), dtype=np.float32)
    y = np.sin(X[:, 0]) + np.tanh(X[:, 1]) * X[:, 2] + 0.5 * np.abs(X[:, 3])
    return X, y - y.mean() + 0.3 * rng.standard_normal(n, dtype=np.float32)


class Counting:
    """Tiles that count the kernel values they make."""

    total = 0

    def __init__(self, tiles: Any) -> None:
        self._tiles = tiles

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._tiles, name)
        if name not in ("fill", "matmat", "rmatmat", "sandwich"):
            return method

        def counted(rows: np.ndarray, *arguments: Any) -> Any:
            Counting.total += len(rows) * self._tiles.n_centers  # threads may lose a count in a thousand, no more
            return method(rows, *arguments)

        return counted


def measure(method: str, n: int) -> dict[str, float]:
    """Seconds, kernel evaluations, peak bytes beyond those before the fit, and the error on new rows."""
    import time

    from _common import peak, resident

    import gyrfalcon.backends

    test = 5_000
    X, y = problem(n + test)
    X_test, y_test, X, y = X[n:], y[n:], X[:n].copy(), y[:n].copy()
    make(method, 500).fit(X[:500], y[:500])  # libraries and threads are there
    before = resident()
    start = time.perf_counter()
    model = make(method, n).fit(X, y)
    seconds = time.perf_counter() - start
    memory = peak() - before
    error = float(np.sqrt(np.mean(np.square(model.predict(X_test) - y_test))))
    start = time.perf_counter()
    model.predict(X_test)
    predict = time.perf_counter() - start
    prepare = gyrfalcon.backends.prepare
    gyrfalcon.backends.prepare = lambda *arguments, **named: Counting(prepare(*arguments, **named))  # type: ignore
    start = time.perf_counter()
    make(method, n).fit(X, y)
    seconds = min(seconds, time.perf_counter() - start)
    # features are not kernel values: as many as a pass over the rows makes
    evaluations = float(n * len(model.feature_coef_) if method == "features" else Counting.total)
    return {"seconds": seconds, "evaluations": evaluations, "memory": memory, "error": error, "predict": predict}


def slope(sizes: list[int], values: list[float]) -> float:
    return float(np.polyfit(np.log(sizes[-3:]), np.log(np.maximum(values[-3:], 1e-9)), 1)[0])


CODE = "import json, sys; sys.path.insert(0, sys.argv[1]); import falkon_table1 as t; "
CODE += "print(json.dumps(t.measure(sys.argv[2], int(sys.argv[3]))))"


def main() -> None:
    given = options(__doc__ or "", only=list(METHODS))
    from pathlib import Path

    here = str(Path(__file__).resolve().parent)
    growth, details = [], []
    for method, (name, theory, sizes) in METHODS.items():
        if given.only and method not in given.only:
            continue
        if given.quick:
            sizes = [n // 4 for n in sizes[:3]]
        print(f"{name} ...", file=sys.stderr)
        runs = [in_subprocess(CODE, here, method, n) for n in sizes]
        row: list[Any] = [name]
        for key, exponent in zip(("seconds", "evaluations", "memory"), theory, strict=True):
            row += [f"{exponent:g}", f"{slope(sizes, [run[key] for run in runs]):.2f}"]
        growth.append(row)
        for n, run in zip(sizes, runs, strict=True):
            first = name if n == sizes[0] else ""
            memory, error = f"{run['memory'] / 1e6:.0f}", f"{run['error']:.4f}"
            details.append(
                [first, f"{n:,}", run["seconds"], f"{run['evaluations']:.2g}", memory, error, run["predict"]]
            )
    table(
        "exponents of n",
        ["method", "time: theory", "measured", "kernel evaluations: theory", "measured", "memory: theory", "measured"],
        growth,
    )
    table(
        "what was measured",
        ["method", "n", "seconds", "kernel evaluations", "MB", "test RMSE", "seconds to predict 5,000 rows"],
        details,
    )


if __name__ == "__main__":
    main()
