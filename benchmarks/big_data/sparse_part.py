"""Sparse rows beside SciPy: the linear kernel on very wide rows, the Gaussian kernel and a whole fit on IMDb reviews.

Wide rows are random: n = 100,000, d = 5,000,000, 100 numbers a row, M = 2,000 centers. The job is what a fit does: make
what is needed, then 20 products K'(K v). SciPy does it in two ways: with K = X C' kept as a sparse matrix, which it is
for random columns alone (of words nearly every pair has some in common), and by association, C (X'(X (C'v))).

IMDb (imdb_unigram.npz in the data folder): 25,000 reviews as tf-idf of 27,271 words, y the rating 1..10. One product
with the Gaussian kernel, beside SciPy's dot products with NumPy's exp in blocks; then fits beside scikit-learn's Ridge
on the same features.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import Ridge

sys.path.append(str(Path(__file__).resolve().parents[1]))
from _common import best_of, in_subprocess

from gyrfalcon import FalkonRegressor, KernelOperator
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.operators import make_operator
from gyrfalcon.sources import as_rows

Row = tuple[str, str, str, bool | None]
PRODUCTS, ROUNDS = 20, 3

MEMORY = """
import json, sys
from pathlib import Path
from _common import peak, resident
sys.path.insert(0, sys.argv[1])
from sparse_part import wide_rows
import numpy as np
from gyrfalcon.kernels import Linear
from gyrfalcon.operators import make_operator
from gyrfalcon.sources import as_rows

X, C = wide_rows(*map(int, sys.argv[2:]))
stored = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
before = resident()
operator = make_operator(Linear(), as_rows(X), C)
operator.sandwich(np.ones(C.shape[0], dtype=np.float32))
operator.centers_gram()
print(json.dumps({"stored": stored, "more": peak() - before}))
"""


def wide_rows(n: int, d: int, per_row: int, M: int) -> tuple[Any, Any]:
    """Rows with numbers in random columns, and every n/M-th of them as centers."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, d, (n, per_row), dtype=np.int32)
    columns.sort(axis=1)
    starts = np.arange(0, n * per_row + 1, per_row, dtype=np.int32)
    numbers = rng.standard_normal(n * per_row, dtype=np.float32)
    X = sp.csr_array((numbers, columns.ravel(), starts), shape=(n, d))
    X.sum_duplicates()
    return X, X[:: n // M][:M]


def repeated(product: Callable[[Any], Any], v: Any, times: int) -> Any:
    for _ in range(times):
        w = product(v)
        v = (w / np.linalg.norm(w)).astype(np.float32)
    return v


def linear(small: bool) -> list[Row]:
    n, d, per_row, M = (20_000, 5_000_000, 100, 2_000) if small else (100_000, 5_000_000, 100, 2_000)
    print(f"sparse: making {n:,} rows of {d:,} columns", file=sys.stderr)
    X, C = wide_rows(n, d, per_row, M)
    v = np.random.default_rng(1).standard_normal(M).astype(np.float32)
    rows = as_rows(X)

    def native(n_jobs: int | None = None) -> Any:
        return repeated(make_operator(Linear(), rows, C, n_jobs=n_jobs).sandwich, v, PRODUCTS)

    def kept() -> Any:
        K = X @ C.T.tocsr()
        transposed = K.T.tocsr()
        return repeated(lambda v: transposed @ (K @ v), v, PRODUCTS)

    def associative() -> Any:
        transposed = C.T.tocsr()
        return repeated(lambda v: C @ (X.T @ (X @ (transposed @ v))), v, PRODUCTS)

    contenders = {"native": native, "one thread": lambda: native(1), "kept": kept, "associative": associative}
    off = max(float(np.abs(run() - native()).max()) for run in (kept, associative))
    print(f"sparse: results agree to {off:.1e}; timing", file=sys.stderr)
    seconds = best_of(contenders, ROUNDS)
    operator = make_operator(Linear(), rows, C)
    unkept = KernelOperator(Linear(), X, C, memory_budget=0)
    transposed = C.T.tocsr()
    K = X @ transposed
    pair = K.T.tocsr(), K
    one = best_of(
        {
            "native": lambda: operator.sandwich(v),
            "unkept": lambda: unkept.sandwich(v),
            "associative": lambda: C @ (X.T @ (X @ (transposed @ v))),
            "kept": lambda: pair[0] @ (pair[1] @ v),
        },
        2 * ROUNDS,
    )
    memory = in_subprocess(MEMORY, Path(__file__).resolve().parent, n, d, per_row, M)
    job = f"linear, {n:,} x {d:,}, {per_row} a row, M = {M:,}: {PRODUCTS} products"
    gram = M * M * 4
    return [
        (
            f"{job}, beside C (X'(X (C'v))) in SciPy",
            f"{seconds['native']:.2f} s and {seconds['associative']:.2f} s "
            f"({seconds['associative'] / seconds['native']:.1f}x; one thread {seconds['one thread']:.2f} s)",
            "not slower",
            seconds["native"] <= seconds["associative"],
        ),
        (
            f"{job}, beside a sparse K = X C' in SciPy",
            f"{seconds['native']:.2f} s and {seconds['kept']:.2f} s ({seconds['kept'] / seconds['native']:.1f}x)",
            "not slower",
            None if small else seconds["native"] <= seconds["kept"],  # of few rows the centers are most of the work
        ),
        (
            "... one product, all made before: ours, ours from all of X; SciPy by association, with its sparse K",
            f"{1e3 * one['native']:.1f}, {1e3 * one['unkept']:.1f}; {1e3 * one['associative']:.1f}, "
            f"{1e3 * one['kept']:.1f} ms",
            "",
            None,
        ),
        (
            "... memory beyond the rows: operator, product and K_MM",
            f"{memory['more'] / 1e6:.0f} MB (rows {memory['stored'] / 1e6:.0f} MB, K_MM {gram / 1e6:.0f} MB)",
            "nnz + M^2",
            memory["more"] <= memory["stored"] + 2 * gram,
        ),
    ]


def reviews(data: Path, small: bool) -> tuple[Any, Any, Any, Any]:
    with np.load(data / "imdb_unigram.npz") as file:
        X, X_test = (
            sp.csr_array(
                (file[f"{key}_data"], file[f"{key}_indices"], file[f"{key}_indptr"]), shape=tuple(file[f"{key}_shape"])
            ).astype(np.float32)
            for key in ("X", "X_test")
        )
        y, y_test = file["y"].astype(np.float64), file["y_test"].astype(np.float64)
    if small:  # in the file reviews are sorted
        X, y, X_test, y_test = X[::5], y[::5], X_test[::5], y_test[::5]
    weights = TfidfTransformer(sublinear_tf=True)
    X, X_test = sp.csr_array(weights.fit_transform(X)), sp.csr_array(weights.transform(X_test))
    return X.astype(np.float32), y, X_test.astype(np.float32), y_test


def gaussian(X: Any) -> list[Row]:
    M = 2_000
    C = X[:: X.shape[0] // M][:M]
    v = np.random.default_rng(1).standard_normal(M).astype(np.float32)
    operator = KernelOperator(Gaussian(1.0), X, C, memory_budget=0)
    transposed = C.T.tocsr()
    norms, norms_c = (np.asarray(A.multiply(A).sum(axis=1)).ravel() for A in (X, C))

    def scipy_and_numpy() -> Any:
        total = np.zeros(M)
        for start in range(0, X.shape[0], 1000):
            K = (X[start : start + 1000] @ transposed).toarray()
            K -= 0.5 * norms[start : start + 1000, None]
            K -= 0.5 * norms_c
            np.exp(K, out=K)
            total += K.T @ (K @ v)
        return total

    exact = scipy_and_numpy()
    off = np.abs(operator.sandwich(v) - exact).max() / np.abs(exact).max()
    print(f"sparse: products with the Gaussian kernel agree to {off:.1e}", file=sys.stderr)
    seconds = best_of({"ours": lambda: operator.sandwich(v), "scipy": scipy_and_numpy}, ROUNDS)
    return [
        (
            f"Gaussian, reviews {X.shape[0]:,} x {X.shape[1]:,}, M = {M:,}: K'(K v), SciPy's dots and NumPy's exp",
            f"{seconds['ours']:.2f} s and {seconds['scipy']:.2f} s ({seconds['scipy'] / seconds['ours']:.1f}x)",
            "",
            None,
        )
    ]


def fits(X: Any, y: Any, X_test: Any, y_test: Any, small: bool) -> list[Row]:
    mean = y.mean()

    def fitted(model: Any) -> tuple[float, float]:
        began = time.perf_counter()
        model.fit(X, y - mean)
        seconds = time.perf_counter() - began
        return float(np.sqrt(np.mean(np.square(model.predict(X_test) + mean - y_test)))), seconds

    M = 1_000 if small else 5_000
    common = {"n_centers": M, "max_iter": 15, "random_state": 0}
    models = {
        "Ridge(alpha=2)": Ridge(alpha=2.0, solver="sparse_cg", fit_intercept=False),
        f"FalkonRegressor, Gaussian(1.0), M = {M:,}": FalkonRegressor(Gaussian(1.0), penalty=1e-5, **common),
        f"FalkonRegressor, Linear, M = {M:,}": FalkonRegressor("linear", penalty=1e-4, **common),
    }
    rows: list[Row] = []
    for name, model in models.items():
        print(f"sparse: fitting {name}", file=sys.stderr)
        error, seconds = fitted(model)
        rows.append((f"ratings of {X.shape[0]:,} reviews: {name}", f"RMSE {error:.3f}, {seconds:.1f} s", "", None))
    return rows


def run(*, small: bool, data: Path) -> list[Row]:
    X, y, X_test, y_test = reviews(data, small)
    return [*linear(small), *gaussian(X), *fits(X, y, X_test, y_test, small)]
