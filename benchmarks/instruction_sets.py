"""AVX-512 beside AVX2, on a processor that has both: python benchmarks/instruction_sets.py [--columns 1 10] [--all]

Products K'(K v) of dense rows on one thread, for every native profile, both precisions, narrow and wide rows, and few
and many centers: with the instruction set that the library chooses for the shape, and with each one forced. Contenders
take turns; seconds are the best of several, of more where the choice looks slow. It prints the shapes in which the
choice is more than 5% slower than a forced one, and how many there are.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import table

from gyrfalcon import _core, kernels
from gyrfalcon.backends import prepare

KERNELS: dict[str, Callable[[float], Any]] = {
    "Gaussian": lambda s: kernels.Gaussian(s),
    "Gaussian, far": lambda s: kernels.Gaussian(s / 8.3),  # squared differences
    "Laplacian": lambda s: kernels.Laplacian(s),
    "Laplacian, 1-norm": lambda s: kernels.Laplacian(s * s, norm=1),
    "Matern 3/2": lambda s: kernels.Matern(s, nu=1.5),
    "Matern 5/2": lambda s: kernels.Matern(s, nu=2.5),
    "RationalQuadratic": lambda s: kernels.RationalQuadratic(s, alpha=2.0),
    "Linear": lambda s: kernels.Linear(),
    "Polynomial": lambda s: kernels.Polynomial(degree=3, gamma=1 / s**2, coef0=1.0),
    "Sigmoid": lambda s: kernels.Sigmoid(gamma=1 / s**2, coef0=0.0),
    "ArcCosine 0": lambda s: kernels.ArcCosine(degree=0),
    "ArcCosine 1": lambda s: kernels.ArcCosine(degree=1),
}
SETS = ["chosen", "avx512", "avx2"]
SLOWER = 1.05


def prepared(name: str, kernel: Any, centers: np.ndarray) -> Any:
    """Make the tiles of the instruction set `name`, or of the one that is chosen."""
    os.environ.pop("GYRFALCON_ISA", None)
    if name != "chosen":
        os.environ["GYRFALCON_ISA"] = name
    try:
        return prepare(kernel, centers, "native")
    finally:
        os.environ.pop("GYRFALCON_ISA", None)


def measure(kernel: Any, n: int, d: int, M: int, dtype: Any, k: int, rounds: int) -> tuple[str, dict[str, float]]:
    """Return the set that is chosen, and the best seconds of it and of each."""
    rng = np.random.default_rng(0)
    X, centers = (rng.standard_normal((rows, d)).astype(dtype) for rows in (n, M))
    V = rng.standard_normal((M, k)).astype(dtype)
    tiles = {name: prepared(name, kernel, centers) for name in SETS}
    chosen = tiles["chosen"].isa
    best = dict.fromkeys(SETS[1:], np.inf)
    for _ in range(rounds + 1):
        for name in best:
            began = time.perf_counter()
            tiles[name].sandwich(X, V, None)
            best[name] = min(best[name], time.perf_counter() - began)
    return chosen, {"chosen": best[chosen], **best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--columns", type=int, nargs="*", default=[1])
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS), choices=list(KERNELS))
    parser.add_argument("--features", type=int, nargs="*", default=[8, 18, 90, 784])
    parser.add_argument("--centers", type=int, nargs="*", default=[8, 2000])
    parser.add_argument("--all", action="store_true", help="print every shape, not only those where the choice is slow")
    options = parser.parse_args()
    if not {"avx512", "avx2"} <= set(_core.instruction_sets()):
        raise SystemExit(f"this processor has {', '.join(_core.instruction_sets())}: nothing to compare")
    rows, count, wrong = [], 0, 0
    for k in options.columns:
        for name in options.kernels:
            for dtype in (np.float32, np.float64):
                for d in options.features:
                    for M in options.centers:
                        n = int(np.clip(2e7 / (M * (10 + d)), 200, 100_000))  # some milliseconds
                        for rounds in (options.rounds, 8 * options.rounds):  # what looks slow is measured again
                            chosen, seconds = measure(KERNELS[name](np.sqrt(d)), n, d, M, dtype, k, rounds)
                            ratio = seconds["avx512"] / seconds["avx2"]
                            lost = seconds["chosen"] / min(seconds.values())
                            if lost <= SLOWER:
                                break
                        count += 1
                        wrong += lost > SLOWER
                        if options.all or lost > SLOWER:
                            rows.append([name, np.dtype(dtype).name, d, M, k, chosen, ratio, lost])
    table(
        f"{wrong} of {count} shapes more than 5% slower than they need be",
        ["kernel", "precision", "d", "M", "columns", "chosen", "AVX-512 / AVX2", "chosen / best"],
        rows,
    )


if __name__ == "__main__":
    main()
