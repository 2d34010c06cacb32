"""PyTorch's device "cpu" beside the native backend: python benchmarks/devices.py [--rows N] [--centers M] [--threads T]

One product K'(K v) of the Gaussian kernel, rows of 90 features as MillionSongs has, in turns and best of several. It is
a sanity check of the code for devices: on a CPU the native backend is the one to use.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from _common import best_of, table

from gyrfalcon import KernelOperator
from gyrfalcon.operators import DeviceOperator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--centers", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=None, help="of both (not given: every core)")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    rows = []
    for d in (10, 90):
        for dtype in (np.float32, np.float64):
            X = np.random.default_rng(0).standard_normal((arguments.rows, d), dtype=dtype)
            Z, v = X[: arguments.centers], np.ones(arguments.centers)
            native = KernelOperator("gaussian", X, Z, n_jobs=arguments.threads, memory_budget=0)
            there = DeviceOperator("gaussian", X, Z, device="cpu")
            contenders = {"native": lambda K=native, v=v: K.sandwich(v), "torch": lambda K=there, v=v: K.sandwich(v)}
            seconds = best_of(contenders, arguments.rounds)
            ratio = seconds["torch"] / seconds["native"]
            rows.append([d, np.dtype(dtype).name, seconds["native"], seconds["torch"], ratio])
    title = f"K'(K v), {arguments.rows:,} rows, {arguments.centers:,} centers"
    table(title, ["features", "dtype", "native, s", "torch on the CPU, s", "ratio"], rows)


if __name__ == "__main__":
    main()
