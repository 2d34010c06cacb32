"""The bars of the foundation, printed by one command: python benchmarks/foundation.py

Fused kernel products against a bare GEMM and a NumPy chain, whole fits against scikit-learn's Nystroem + Ridge, memory,
growth in n, prediction. All contenders of a table run in the same process, in turns, best of several; what matters is
the ratios. `--only sandwich fit` runs some of the sections, `--quick` smaller sizes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from _common import best_of, in_subprocess, table
from threadpoolctl import threadpool_limits

import gyrfalcon
from gyrfalcon import FalkonRegressor, KernelOperator
from gyrfalcon.kernels import (
    ArcCosine,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)

THREADS = 2
WIDTH = 6.0
EQUAL = 0.001  # errors within 0.1% count as equal: a third of what another draw of centers changes
KERNELS: dict[str, Kernel] = {
    "Gaussian": Gaussian(),
    "Laplacian": Laplacian(),
    "1-norm Laplacian": Laplacian(norm=1),
    "Matern 1/2": Matern(nu=0.5),
    "Matern 3/2": Matern(nu=1.5),
    "Matern 5/2": Matern(nu=2.5),
    "RationalQuadratic": RationalQuadratic(alpha=0.7),
    "Linear": Linear(),
    "Polynomial": Polynomial(),
    "Sigmoid": Sigmoid(),
    "ArcCosine 0": ArcCosine(0),
    "ArcCosine 1": ArcCosine(1),
}


def regression(n: int, d: int = 18, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noisy correlated features of six hidden variables, as in most tables, and a noisy function of those; float32."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((n, 6), dtype=np.float32)
    mixing = rng.standard_normal((6, d)).astype(np.float32) / np.sqrt(6, dtype=np.float32)
    X = np.tanh(hidden @ mixing) + 0.3 * rng.standard_normal((n, d), dtype=np.float32)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.sin(2 * hidden[:, 0]) + hidden[:, 1] * hidden[:, 2] + np.abs(hidden[:, 5])
    return X, y - y.mean() + rng.standard_normal(n, dtype=np.float32)


def on_threads(run: Callable[[int, int], object], n: int) -> Callable[[], None]:
    """`run(start, stop)` over eight parts of the rows, on the same threads for every contender."""
    edges = np.linspace(0, n, 9).astype(int)

    def all_parts() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(run, edges[:-1], edges[1:]))

    return all_parts


def bare_gemm(X: np.ndarray, centers: np.ndarray, block: int) -> Callable[[], None]:
    """X centers' in blocks of rows: nothing but the matrix product, written to a buffer that stays in cache."""
    transposed = np.ascontiguousarray(centers.T)

    def run(start: int, stop: int) -> None:
        buffer = np.empty((block, len(centers)), dtype=X.dtype)
        for i in range(start, stop, block):
            j = min(i + block, stop)
            np.matmul(X[i:j], transposed, out=buffer[: j - i])

    return on_threads(run, len(X))


def numpy_chain(X: np.ndarray, centers: np.ndarray, v: np.ndarray, scale: float, block: int) -> Callable[[], None]:
    """The same sandwich as a chain of NumPy calls in place, on blocks that stay in cache."""
    A, B = X / scale, np.ascontiguousarray((centers / scale).T)
    a, b = 0.5 * np.square(A).sum(axis=1), 0.5 * np.square(B).sum(axis=0)

    def run(start: int, stop: int) -> np.ndarray:
        total = np.zeros(len(v))
        K = np.empty((block, len(v)), dtype=X.dtype)
        for i in range(start, stop, block):
            j = min(i + block, stop)
            k = K[: j - i]
            np.matmul(A[i:j], B, out=k)
            k -= a[i:j, None]
            k -= b
            np.exp(k, out=k)
            total += (k @ v) @ k
        return total

    return on_threads(run, len(X))


def sandwich(quick: bool) -> None:
    M, rounds = (2_000, 3) if quick else (4_000, 9)
    limits = {8: (1.75, 4.0), 18: (1.5, 3.0), 90: (1.1, 2.0), 784: (1.1, 1.1)}
    rows = []
    for d, (most, least) in limits.items():
        n = {8: 60_000, 18: 60_000, 90: 30_000, 784: 8_000}[d] // (4 if quick else 1)
        X, _ = regression(n, d)
        centers, v = X[:M].copy(), np.random.default_rng(1).standard_normal(M).astype(np.float32)
        kernel = Gaussian().resolve(centers)
        K = KernelOperator(kernel, X, centers, n_jobs=THREADS, memory_budget=0)
        contenders: dict[str, Callable[[], object]] = {"fused": lambda K=K, v=v: K.sandwich(v)}
        for block in (32, 64, 128, 256, 512):
            contenders[f"gemm {block}"] = bare_gemm(X, centers, block)
            contenders[f"numpy {block}"] = numpy_chain(X, centers, v, kernel.length_scale, block)
        with threadpool_limits(1):
            seconds = best_of(contenders, rounds)
        gemm = min(s for name, s in seconds.items() if name.startswith("gemm"))
        chain = min(s for name, s in seconds.items() if name.startswith("numpy"))
        ratio, speedup = seconds["fused"] / gemm, chain / seconds["fused"]
        rate = n * M / seconds["fused"] / 1e9
        rows.append([d, f"{rate:.2f}", ratio, f"<= {most}", ratio <= most, speedup, f">= {least}", speedup >= least])
    header = ["d", "10^9 entries/s", "time / bare GEMM", "bar", "met", "NumPy chain / time", "bar", "met"]
    table(
        f"sandwich, Gaussian, float32, M = {M:,}, {THREADS} threads; GEMM and NumPy at their best block", header, rows
    )


def kernels(quick: bool) -> None:
    M, rounds = 4_000, 3 if quick else 7
    rows = []
    for d in (8, 18, 90):
        n = (40_000 if d < 90 else 20_000) // (4 if quick else 1)
        X, _ = regression(n, d)
        v = np.random.default_rng(1).standard_normal(M).astype(np.float32)
        operators = {
            name: KernelOperator(kernel, X, X[:M], n_jobs=THREADS, memory_budget=0) for name, kernel in KERNELS.items()
        }
        seconds = best_of({name: (lambda K=K, v=v: K.sandwich(v)) for name, K in operators.items()}, rounds)
        for name in KERNELS:
            most = 1.7 if name.startswith(("Laplacian", "Matern")) else 2.5
            ratio = seconds[name] / seconds["Gaussian"]
            rows.append([d, name, ratio, f"<= {most}", ratio <= most])
    table("sandwich of the other kernels, float32", ["d", "kernel", "time / Gaussian's", "bar", "met"], rows)


def fit(quick: bool) -> None:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    n, M, penalty = (50_000 if quick else 200_000), 2_000, 1e-6
    X, y = regression(n + 50_000)
    X_test, y_test, X, y = X[n:], y[n:], X[:n], y[:n]
    # the same rows are centers for all: those that Nystroem draws
    nystroem = Nystroem(gamma=0.5 / WIDTH**2, n_components=M, random_state=0)
    centers = X[nystroem_rows(n, M)]
    # which are uniform draws, though given: so the preconditioner is the one for those
    common = {"penalty": penalty, "centers": centers, "preconditioner": "falkon", "scale": False, "random_state": 0}
    models = {
        "K not kept, 10 iterations": FalkonRegressor(Gaussian(WIDTH), max_iter=10, memory_budget=0, **common),
        "K kept, 10 iterations": FalkonRegressor(Gaussian(WIDTH), max_iter=10, memory_budget="4GB", **common),
        "K kept, 20 iterations": FalkonRegressor(Gaussian(WIDTH), max_iter=20, memory_budget="4GB", **common),
        "Nystroem + Ridge": make_pipeline(nystroem, Ridge(alpha=penalty * n)),
    }
    bars = {"K not kept, 10 iterations": 8, "K kept, 10 iterations": 20}
    best = dict.fromkeys(models, float("inf"))
    error = {}
    for _ in range(2):
        for name, model in models.items():
            for _ in range(2):  # the second finds memory that the first has touched
                start = time.perf_counter()
                model.fit(X, y)
                best[name] = min(best[name], time.perf_counter() - start)
            error[name] = float(np.sqrt(np.mean(np.square(model.predict(X_test) - y_test, dtype=np.float64))))
    rows = []
    for name in models:
        faster = best["Nystroem + Ridge"] / best[name]
        worse = error[name] / error["Nystroem + Ridge"] - 1
        met = (faster >= bars[name] and worse <= EQUAL) if name in bars else ""
        bar = f">= {bars[name]} at equal error" if name in bars else ""
        rows.append([name, best[name], f"{error[name]:.4f}", f"{100 * worse:+.2f}%", faster, bar, met])
    header = ["model", "seconds", "test RMSE", "beside the peer's", "times faster", "bar", "met"]
    table(f"whole fit, n = {n:,}, d = 18, M = {M:,}, float32; equal error is within {100 * EQUAL:g}%", header, rows)


def nystroem_rows(n: int, M: int) -> np.ndarray:
    """The rows that `Nystroem(n_components=M, random_state=0)` draws from n."""
    return np.random.RandomState(0).permutation(n)[:M]


def growth(quick: bool) -> None:
    sizes = (50_000, 100_000, 200_000) if quick else (100_000, 400_000, 1_600_000)
    rows = []
    first = None
    for n in sizes:
        X, y = regression(n)
        model = FalkonRegressor(Gaussian(WIDTH), n_centers=2_000, max_iter=10, memory_budget=0, random_state=0)
        seconds = best_of({"fit": lambda X=X, y=y, model=model: model.fit(X, y)}, 3)["fit"]
        first = first or seconds / n
        ratio = seconds / n / first
        rows.append([f"{n:,}", seconds, seconds / n * 1e6, ratio, "<= 1.1", ratio <= 1.1])
    header = ["n", "seconds", "µs a row", "beside the first", "bar (linear)", "met"]
    table("growth in n, M = 2,000, 10 iterations, K not kept", header, rows)


_FIT_MEMORY = """
import json, sys
import numpy as np
from _common import peak, resident
from foundation import regression
from gyrfalcon import FalkonRegressor
from gyrfalcon.kernels import Gaussian
X, y = regression(int(sys.argv[1]))
FalkonRegressor(n_centers=10).fit(X[:100], y[:100])
before = resident()
FalkonRegressor(Gaussian(6.0), n_centers=2000, max_iter=10, memory_budget=0, random_state=0).fit(X, y)
print(json.dumps({"extra": max(0, peak() - before), "input": X.nbytes + y.nbytes}))
"""

_FACTOR_MEMORY = """
import json, sys, time
import numpy as np
from _common import peak, resident
from gyrfalcon import KernelOperator
from gyrfalcon.preconditioners import Preconditioner
M = int(sys.argv[1])
X = np.random.default_rng(0).standard_normal((M, 18)).astype(np.float32)
K = KernelOperator("gaussian", X, X, memory_budget=0)
before = resident()
start = time.perf_counter()
B = Preconditioner(K.centers_gram(), 1e-6, M)
print(json.dumps({"extra": peak() - before, "buffer": 4 * M * M, "seconds": time.perf_counter() - start}))
"""


def memory(quick: bool) -> None:
    n = 50_000 if quick else 200_000
    used = in_subprocess(_FIT_MEMORY, n)
    extra = used["extra"] / 1e6
    M = 5_000 if quick else 20_000
    factors = in_subprocess(_FACTOR_MEMORY, M)
    share = factors["extra"] / factors["buffer"]
    table(
        "peak memory",
        ["what", "bytes", "bar", "met"],
        [
            [f"fit, n = {n:,}, K not kept: beyond the input", f"{extra:.0f} MB", "<= 400 MB", extra <= 400],
            [
                f"factors of M = {M:,}, float32: beyond {factors['buffer'] / 1e9:.1f} GB ({factors['seconds']:.0f} s)",
                f"{100 * (share - 1):+.1f}%",
                "<= +25%",
                share <= 1.25,
            ],
        ],
    )


def prediction(quick: bool) -> None:
    n = 200_000 if quick else 1_000_000
    X, y = regression(n)
    model = FalkonRegressor(Gaussian(WIDTH), n_centers=2_000, max_iter=2, random_state=0).fit(X[:20_000], y[:20_000])
    K = KernelOperator(model.kernel_, X, model.centers_, memory_budget=0)
    seconds = best_of({"predict": lambda: model.predict(X), "matmat": lambda: K.matmat(model.dual_coef_)}, 5)
    table(
        f"prediction of {n:,} rows, M = 2,000",
        ["", "seconds", "rows/s", "time / matmat's", "bar", "met"],
        [
            [name, s, f"{n / s:,.0f}", s / seconds["matmat"], "<= 1.1", s <= 1.1 * seconds["matmat"]]
            for name, s in seconds.items()
        ],
    )


SECTIONS = {
    "sandwich": sandwich,
    "kernels": kernels,
    "fit": fit,
    "growth": growth,
    "memory": memory,
    "prediction": prediction,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    arguments = parser.parse_args()
    gyrfalcon.show_versions()
    for name in arguments.only:
        SECTIONS[name](arguments.quick)


if __name__ == "__main__":
    main()
