"""Would a float16 cache of K pay where float32 does not fit? CG on the cache, then polished by exact float32 passes.

The cache is K rounded to float16. Making it and its products are charged half of what the float32 cache takes beyond
computing K, as a perfect implementation bound by memory would. So the figures favour float16, and need no native code
for it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian
from gyrfalcon.preconditioners import Preconditioner
from gyrfalcon.solvers import conjugate_gradient

Row = tuple[str, str, str, bool | None]

ITERATIONS = 10
POLISH = (2, 5, 10)


def make_data(n: int, d: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    mix = np.eye(d) + 0.3 * rng.standard_normal((d, d))

    def rows(count: int) -> Any:
        X = rng.standard_normal((count, d)) @ mix
        return (X / np.sqrt(np.square(mix).sum(axis=0))).astype(np.float32)

    X, new = rows(n), rows(20_000)
    y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1] * X[:, 2]) + 0.5 * rng.standard_normal(n)
    return X, y.astype(np.float32)[:, None] / 4, new


def run(*, small: bool, data: Path) -> list[Row]:
    n, d, M = (40_000, 18, 1_000) if small else (200_000, 18, 2_000)
    X, y, new = make_data(n, d)
    centers = X[np.sort(np.random.default_rng(1).choice(n, M, replace=False))]
    kernel = Gaussian(3.0)
    predict = KernelOperator(kernel, new, centers, memory_budget=0).matmat
    rows: list[Row] = []
    for penalty in (1e-4, 1e-6):
        exact = KernelOperator(kernel, X, centers, memory_budget=0)
        kept = KernelOperator(kernel, X, centers, memory_budget=n * M * 4)
        made = Preconditioner(exact.centers_gram(np.float64), penalty, n, tile_dtype=np.float32)
        raised = exact.centers_gram(np.float64)
        raised[np.diag_indices(M)] += 1e-6 * M
        more = Preconditioner(raised, penalty, n, tile_dtype=np.float32)

        def solve(operator: KernelOperator, B: Preconditioner, iterations: int, start: Any = None) -> tuple[Any, float]:
            began = time.perf_counter()
            *_, last = conjugate_gradient(operator, y, B, penalty, max_iter=iterations, tol=0.0, start=start)  # noqa: B023
            return last.coef(), time.perf_counter() - began

        print(f"half: penalty {penalty:g}", file=sys.stderr)
        truth = predict(solve(exact, made, 80)[0])[:, 0]
        spread = truth.std()

        def error(coef: Any) -> float:
            return float(np.sqrt(np.mean(np.square(predict(coef)[:, 0] - truth))) / spread)  # noqa: B023

        plain, plain_seconds = min((solve(exact, made, ITERATIONS) for _ in range(2)), key=lambda pair: pair[1])
        began = time.perf_counter()
        kept.rmatmat(y)  # makes K, in memory that nobody has touched yet
        making = time.perf_counter() - began
        _, kept_seconds = min((solve(kept, made, ITERATIONS) for _ in range(2)), key=lambda pair: pair[1])
        wanted = error(plain)
        a_pass, kept_pass = (seconds / (ITERATIONS + 1) for seconds in (plain_seconds, kept_seconds))
        rows.append(
            (
                f"penalty {penalty:g}: K made again, {ITERATIONS} iterations",
                f"error {wanted:.1e}, {plain_seconds:.2f} s",
                "",
                None,
            )
        )
        rows.append(
            (
                f"penalty {penalty:g}: float32 cache, if it fitted",
                f"{making + kept_seconds - kept_pass:.2f} s",
                "",
                None,
            )
        )
        assert kept._kept is not None
        kept._kept[...] = kept._kept.astype(np.float16)
        for name, B in (("", made), (", jitter 1e-6 M", more)):
            coef, _ = solve(kept, B, ITERATIONS)
            least = a_pass + max(0.0, making - a_pass) / 2 + ITERATIONS * kept_pass / 2
            for polish in (0, *POLISH):
                polished = coef if polish == 0 else solve(exact, made, polish, coef)[0]
                seconds = least + (polish + (polish > 0)) * a_pass
                mine = error(polished)
                what = f"penalty {penalty:g}: float16 cache{name}, {polish} exact iterations after it"
                worth = mine <= 1.05 * wanted and seconds < plain_seconds
                verdict = "as accurate, and faster" if worth else "not worth it"
                rows.append((what, f"error {mine:.1e}, at best {seconds:.2f} s", verdict, None))
    return rows
