"""The factors of FALKON's preconditioner beside a bare product: python benchmarks/factors.py [--centers 10000]

K_MM, T = chol(K_MM), T T' and A = chol(T T' / M + lambda I), each as a fit does it, and between them BLAS's product of
square matrices, whose time is scaled to as many operations, in the same precision and with as many threads. Each size
runs in a process of its own, whose peak memory is counted in buffers of M x M; what is measured runs twice, so that
memory has been touched before.
"""

from __future__ import annotations

import argparse

from _common import in_subprocess, table

SLOWER = 1.5
SIDE = 4_000

RUN = """
import json, sys, time
import numpy as np
from threadpoolctl import threadpool_limits
from _common import peak, resident
from gyrfalcon import KernelOperator
from gyrfalcon.preconditioners import Preconditioner
from gyrfalcon.preconditioners.factors import copy_to_lower, set_diagonal
from gyrfalcon._utils.linalg import cholesky, square_lower

M, dtype, threads, rounds, side = int(sys.argv[1]), np.dtype(sys.argv[2]), *map(int, sys.argv[3:])
X = np.random.default_rng(0).standard_normal((M, 18)).astype(dtype)
K = KernelOperator("gaussian", X, X, memory_budget=0, n_jobs=threads)
flops = {"K_MM": 2 * 18 * M * M, "chol(K_MM)": M**3 / 3, "T T'": M**3 / 3, "chol(T T' / M)": M**3 / 3}
A, B = np.random.default_rng(1).standard_normal((2, side, side)).astype(dtype)
C = np.empty_like(A)
np.matmul(A, B, out=C)
before = resident()
best = {name: float("inf") for name in [*flops, "gemm", "preconditioner"]}

def timed(name, run):
    began = time.perf_counter()
    out = run()
    best[name] = min(best[name], time.perf_counter() - began)
    return out

def gemm():
    with threadpool_limits(threads, "blas"):
        np.matmul(A, B, out=C)

for _ in range(rounds):
    gram = timed("K_MM", K.centers_gram)
    set_diagonal(gram, gram.diagonal() + M * np.finfo(dtype).eps)
    timed("gemm", gemm)
    assert timed("chol(K_MM)", lambda: cholesky(gram, lower=False, n_threads=threads))
    timed("gemm", gemm)
    def square():
        copy_to_lower(gram, np.ones(M, dtype))
        square_lower(gram, n_threads=threads)

    timed("T T'", square)
    timed("gemm", gemm)
    set_diagonal(gram, gram.diagonal() + 1)
    assert timed("chol(T T' / M)", lambda: cholesky(gram, lower=True, n_threads=threads))
    del gram
    timed("preconditioner", lambda: Preconditioner(K.centers_gram(), 1e-6, 50 * M, n_jobs=threads))
print(json.dumps({"best": best, "flops": flops, "extra": (peak() - before) / (M * M * dtype.itemsize)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--centers", type=int, nargs="+", default=[10_000])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"], choices=["float32", "float64"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    for M in options.centers:
        for dtype in options.dtypes:
            found = in_subprocess(RUN, M, dtype, options.threads, options.rounds, SIDE)
            best, flops = found["best"], found["flops"]
            rate = 2 * SIDE**3 / best["gemm"]
            steps = sum(best[name] for name in flops)
            bound = {name: flops[name] / rate for name in flops}
            rows = [
                # K_MM is bound by its exponentials, not by its products
                [name, best[name], bound[name], best[name] / bound[name], best[name] <= SLOWER * bound[name]]
                for name in flops
                if name != "K_MM"
            ]
            rows.insert(0, ["K_MM", best["K_MM"], "", "", ""])
            rows.append(
                ["Preconditioner, with K_MM", best["preconditioner"], steps, best["preconditioner"] / steps, ""]
            )
            table(
                f"factors: M = {M:,}, {dtype}, {options.threads} threads; product: {rate / 1e9:.0f} GFLOP/s; "
                f"peak memory {found['extra']:.2f} buffers",
                ["", "seconds", "bound", "ratio", f"<= {SLOWER}"],
                rows,
            )


if __name__ == "__main__":
    main()
