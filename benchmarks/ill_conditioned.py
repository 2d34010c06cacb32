"""Ill-conditioned float32 problems against a dense solve in float64: how many predictions are off, and how many say so.

240 fits: two kernels, length scales from 1/100 to 100 times the data's, penalties from 1e-5 to 1e-12, rows that occur
many times, features a million deviations from zero, sample weights over twelve orders of magnitude. The dense solve
sees the same float32 numbers in float64, with the same centers. A fit is off if the root mean square difference of its
predictions from the dense solve's is more than 1e-2 of y's standard deviation.

    python benchmarks/ill_conditioned.py [--max-iter 20] [--list]
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections import Counter

import numpy as np

from gyrfalcon import FalkonRegressor
from gyrfalcon.kernels import Gaussian, Laplacian

N, M, OFF = 2000, 200, 1e-2

CASES = list(
    itertools.product(
        (Gaussian, Laplacian),
        (1e-2, 1e-1, 1.0, 10.0, 100.0),
        (1e-5, 1e-8, 1e-12),
        (False, True),  # duplicate rows
        (0.0, 1e6),  # offset of the features
        (False, True),  # weights over 1e12
    )
)


def make(duplicates, offset, weighted, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 4))
    if duplicates:
        X = X[rng.integers(N // 10, size=N)]
    X32 = (X + offset).astype(np.float32)
    X = X32.astype(np.float64) - offset
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(N)
    weight = 10.0 ** rng.uniform(-6, 6, N) if weighted else None
    return X32, y, weight


def dense(kernel, X, Z, y, penalty, weight):
    """Ridge regression on orthonormal functions: normal equations would lose half of the digits."""
    K, (values, vectors) = kernel(X, Z), np.linalg.eigh(kernel(Z, Z))
    kept = values > 3e-16 * len(Z) * values[-1]  # 1e-14 moves some predictions by 0.1
    F = K @ vectors[:, kept] / np.sqrt(values[kept])
    root = np.ones(len(X)) if weight is None else np.sqrt(weight / weight.mean())
    ridge = np.sqrt(penalty * len(X)) * np.eye(F.shape[1])
    A, b = np.vstack([root[:, None] * F, ridge]), np.append(root * y, np.zeros(F.shape[1]))
    return F @ np.linalg.lstsq(A, b, rcond=1e-15)[0]


def run(case, **options):
    """Difference from the dense solve, and whether the fit warned."""
    Kernel, factor, penalty, duplicates, offset, weighted = case
    X, y, weight = make(duplicates, offset, weighted)
    kernel = Kernel(factor * np.sqrt(X.shape[1]))
    model = FalkonRegressor(kernel, n_centers=M, penalty=penalty, random_state=0, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = model.fit(X, y, sample_weight=weight).predict(X)
    wide = X.astype(np.float64)
    expected = dense(kernel, wide, model.centers_.astype(np.float64), y, penalty, weight)
    root = 1.0 if weight is None else np.sqrt(weight / weight.mean())
    off = np.sqrt(np.mean(np.square(root * (found - expected)))) / np.std(y)
    return off, len(caught) > 0, model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-iter", type=int, default=20)
    parser.add_argument("--list", action="store_true", help="show every fit that is off")
    options = parser.parse_args()
    count = Counter()
    for case in CASES:
        off, warned, model = run(case, max_iter=options.max_iter)
        kind = "right" if off <= OFF else "off, with a warning" if warned else "off, without a word"
        count[kind] += 1
        count["right, with a warning"] += off <= OFF and warned
        if options.list and off > OFF:
            Kernel, *rest = case
            last = model.history_[-1]
            numbers = f"off {off:.1e} residual {last['residual']:.1e} condition {last['condition_number']:.0f}"
            print(f"{Kernel.__name__:10} {rest} {numbers} {'warned' if warned else ''}")
    print({name: count[name] for name in sorted(count)}, "of", len(CASES))


if __name__ == "__main__":
    main()
