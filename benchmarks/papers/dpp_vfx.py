"""DPP-VFX: the first sample and the next ones against n, on MNIST.

    python benchmarks/papers/dpp_vfx.py [--data DIR] [--quick]

Derezinski, Calandriello, Valko (2019) draw 10 of up to 70,000 digits: the first sample took 19 s and the next 1 s at
n = 70,000 on their machine. Kernel and size here: Gaussian of the pixels / 255 with length scale sqrt(78.4), ten rows
expected. DPPy (`pip install dppy`; version 0.3.3 works) is run beside it up to n = 10,000 where it is installed. Beyond
the paper, a hundred of a million rows of ten features.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _data import in_subprocess, load, options, table

from gyrfalcon import DPP
from gyrfalcon.kernels import Gaussian

MANY = """
import json, time
import numpy as np
from gyrfalcon import DPP
from gyrfalcon.kernels import Gaussian
from _common import peak, resident
n, size = map(int, sys.argv[1:])
X = np.random.default_rng(0).standard_normal((n, 10), dtype=np.float32)
before, began = resident(), time.perf_counter()
process = DPP(Gaussian(2.0), expected_size=size, random_state=0).fit(X)
process.sample()
first, began = time.perf_counter() - began, time.perf_counter()
process.sample(3)
print(json.dumps([first, (time.perf_counter() - began) / 3, (peak() - before) / 1e6]))
"""
SIZE, NEXT, PEERS_NEXT = 10, 10, 3
KERNEL = Gaussian(float(np.sqrt(78.4)))


def ours(X: np.ndarray, **size: Any) -> tuple[float, float, float]:
    """Seconds of the first sample and of a further one, and their mean number of rows."""
    began = time.perf_counter()
    process = DPP(KERNEL, random_state=0, **size).fit(X)
    process.sample()
    first = time.perf_counter() - began
    began = time.perf_counter()
    samples = process.sample(NEXT)
    return first, (time.perf_counter() - began) / NEXT, float(np.mean([len(sample) for sample in samples]))


def peer(X: np.ndarray) -> tuple[float, float] | None:
    """The same for DPPy's k-DPP (alpha-DPP, made of DPP-VFX), or None if it is not installed."""
    try:
        from dppy.finite_dpps import FiniteDPP
    except ImportError:
        return None

    def kernel(A: np.ndarray, B: np.ndarray | None = None) -> np.ndarray:
        A = np.atleast_2d(A)  # single rows come as vectors
        return np.asarray(KERNEL(A, A if B is None else np.atleast_2d(B)))

    random = np.random.RandomState(0)
    process = FiniteDPP("likelihood", L_eval_X_data=(kernel, X))
    seconds = []
    for _ in range(1 + PEERS_NEXT):
        began = time.perf_counter()
        process.sample_exact_k_dpp(SIZE, mode="alpha", random_state=random, verbose=False)
        seconds.append(time.perf_counter() - began)
    return seconds[0], sum(seconds[1:]) / PEERS_NEXT


def many(n: int, size: int) -> None:
    """A hundred of a million rows, in a process of its own that tells its peak."""
    first, following, megabytes = in_subprocess(MANY, n, size)
    header = ["n", "first, s", "next, s", "MB beyond the start"]
    table(f"{size} rows expected, ten features, Gaussian(2)", header, [[f"{n:,}", first, following, megabytes]])


def main() -> None:
    given = options(__doc__ or "")
    arrays = load(given.data, "mnist")
    if arrays is None:
        return
    X = np.concatenate([arrays["X"], arrays["X_test"]]).reshape(-1, 784) / 255
    X = X[np.random.default_rng(0).permutation(len(X))]
    rows = []
    for n in (5_000, 10_000) if given.quick else (10_000, 30_000, 70_000):
        cells: list[Any] = [f"{n:,}"]
        for size in ({"expected_size": SIZE}, {"size": SIZE}):
            first, following, number = ours(X[:n], **size)
            cells += [f"{first:.1f}", f"{following:.2f}", f"{number:.1f}"]
        found = peer(X[:n].astype(np.float64)) if n <= 10_000 else None
        cells += ["-", "-"] if found is None else [f"{found[0]:.1f}", f"{found[1]:.2f}"]
        rows.append(cells)
    header = ["n", "expected size: first", "next", "rows", "size: first", "next", "rows", "DPPy, size: first", "next"]
    table(f"Seconds of a sample of {SIZE} digits", header, rows)
    many(*((50_000, 30) if given.quick else (1_000_000, 100)))


if __name__ == "__main__":
    main()
