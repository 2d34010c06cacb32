"""Products with several columns beside the bare matrix products they are made of: python benchmarks/columns.py

A sandwich K'(K V) with k columns consists of three matrix products for each block of rows: the cross product X C',
which becomes K, then K V, and K'U. They are run alone by BLAS, in float32, into buffers that stay in cache, at their
best block size, with no exponential, no sums in float64 and no weights; where K is kept, the last two alone, on the
stored K. Both contenders run on the same number of threads, in turns, best of several. `--columns 10 144 --features 18
784` are the defaults.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from _common import best_of, table
from foundation import on_threads, regression
from threadpoolctl import threadpool_limits

import gyrfalcon
from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian
from gyrfalcon.operators import mean_square_gradient

M = 2_000
BLOCKS = (64, 128, 256, 512)
MOST = 1.3


def bare(X: np.ndarray, centers: np.ndarray, V: np.ndarray, block: int, K: np.ndarray | None) -> Callable[[], None]:
    """X centers', K V and K'U of each block; without the first where `K` is given."""
    transposed = np.ascontiguousarray(centers.T)

    def run(start: int, stop: int) -> None:
        buffer = np.empty((block, len(centers)), dtype=X.dtype)
        right = np.empty((block, V.shape[1]), dtype=X.dtype)
        left = np.empty(V.shape, dtype=X.dtype)
        for i in range(start, stop, block):
            j = min(i + block, stop)
            entries = np.matmul(X[i:j], transposed, out=buffer[: j - i]) if K is None else K[i:j]
            np.matmul(entries, V, out=right[: j - i])
            np.matmul(entries.T, right[: j - i], out=left)

    return on_threads(run, len(X))


def several(columns: list[int], features: list[int], rounds: int) -> None:
    rows = []
    for d in features:
        n = 16_000 if d < 100 else 8_000
        X, _ = regression(n, d)
        X *= np.float32(0.1)  # so that products of products, which a bound does not scale, stay finite
        centers = X[:M].copy()
        kernel = Gaussian(0.1 * np.sqrt(d))
        made = KernelOperator(kernel, X, centers, n_jobs=2, memory_budget=0)
        kept = KernelOperator(kernel, X, centers, n_jobs=2, memory_budget="1GB")
        K = np.concatenate([block for _, block in kept.blocks()])
        for k in columns:
            V = np.random.default_rng(1).standard_normal((M, k)).astype(np.float32) / M
            contenders: dict[str, Callable[[], object]] = {
                "made": lambda V=V, made=made: made.sandwich(V),
                "kept": lambda V=V, kept=kept: kept.sandwich(V),
            }
            for block in BLOCKS:
                contenders[f"bare made {block}"] = bare(X, centers, V, block, None)
                contenders[f"bare kept {block}"] = bare(X, centers, V, block, K)
            with threadpool_limits(1):
                seconds = best_of(contenders, rounds)
            for name in ("made", "kept"):
                bound = min(s for other, s in seconds.items() if other.startswith(f"bare {name}"))
                ratio = seconds[name] / bound
                rows.append([d, k, f"K {name}", 1e3 * seconds[name], 1e3 * bound, ratio, f"<= {MOST}", ratio <= MOST])
    header = ["d", "columns", "", "sandwich, ms", "its GEMMs, ms", "ratio", "bar", "met"]
    table(f"sandwich with several columns, Gaussian, float32, M = {M:,}, 2 threads", header, rows)


def gradient(features: list[int], rounds: int) -> None:
    """The gradient of an expansion, a product with d + 1 columns, beside X C' and K V of that width."""
    rows = []
    for d in features:
        n = 8_000 if d < 100 else 4_000
        X, _ = regression(n, d)
        centers = X[:M].copy()
        coef = np.random.default_rng(1).standard_normal(M).astype(np.float32)
        V = np.hstack([coef[:, None], coef[:, None] * centers])
        contenders: dict[str, Callable[[], object]] = {
            "gradient": lambda X=X, c=centers, a=coef: mean_square_gradient(Gaussian(5.0), X, c, a, n_jobs=2)
        }
        for block in BLOCKS:
            contenders[f"bare {block}"] = bare_right(X, centers, V, block)
        with threadpool_limits(1):
            seconds = best_of(contenders, rounds)
        bound = min(s for name, s in seconds.items() if name != "gradient")
        rows.append([d, 1e3 * seconds["gradient"], 1e3 * bound, seconds["gradient"] / bound])
    table("mean square of the gradient", ["d", "gradient, ms", "its GEMMs, ms", "ratio"], rows)


def bare_right(X: np.ndarray, centers: np.ndarray, V: np.ndarray, block: int) -> Callable[[], None]:
    """X centers' and K V of each block."""
    transposed = np.ascontiguousarray(centers.T)

    def run(start: int, stop: int) -> None:
        buffer = np.empty((block, len(centers)), dtype=X.dtype)
        right = np.empty((block, V.shape[1]), dtype=X.dtype)
        for i in range(start, stop, block):
            j = min(i + block, stop)
            np.matmul(X[i:j], transposed, out=buffer[: j - i])
            np.matmul(buffer[: j - i], V, out=right[: j - i])

    return on_threads(run, len(X))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", nargs="+", type=int, default=[10, 144])
    parser.add_argument("--features", nargs="+", type=int, default=[18, 784])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    gyrfalcon.show_versions()
    several(arguments.columns, arguments.features, arguments.rounds)
    gradient(arguments.features, arguments.rounds)


if __name__ == "__main__":
    main()
