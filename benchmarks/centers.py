"""The bars of center selection, printed by one command: python benchmarks/centers.py

BLESS at growing n, accelerated against plain RPCholesky, and test error against the number of centers on data with rare
clusters. `--only bless rpcholesky error` runs some of the sections, `--quick` smaller sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from _common import best_of, table

from gyrfalcon import FalkonRegressor, KernelOperator
from gyrfalcon.centers import Bless, RPCholesky, as_centers
from gyrfalcon.kernels import Gaussian


def rare_clusters(n: int, seed: int, k: int = 20, share: float = 0.001) -> tuple[np.ndarray, np.ndarray]:
    """A crowd around the origin and k clusters elsewhere, with a share of the rows each and most of the signal."""
    rng = np.random.default_rng(seed)
    cluster = rng.choice(k + 1, n, p=[1 - k * share, *[share] * k])
    middle = np.random.default_rng(99).uniform(-20, 20, size=(k + 1, 3))
    middle[0] = 0
    X = middle[cluster] + rng.standard_normal((n, 3)) * np.where(cluster == 0, 0.5, 1.0)[:, None]
    y = np.sin(2 * X[:, 0]) + (cluster > 0) * (3 + np.cos(X[:, 1])) + 0.1 * rng.standard_normal(n)
    return X, y


class Evaluations:
    """Counts kernel values while it is entered, by way of the two verbs that selection uses."""

    def __enter__(self) -> Evaluations:
        self.count = 0
        self.saved = KernelOperator.blocks, KernelOperator.centers_gram
        blocks, gram = self.saved

        def counted_blocks(operator: KernelOperator) -> Iterator[Any]:
            self.count += operator.shape[0] * operator.shape[1]
            return blocks(operator)

        def counted_gram(operator: KernelOperator, *arguments: Any) -> np.ndarray:
            self.count += len(operator.centers) ** 2
            return gram(operator, *arguments)

        KernelOperator.blocks, KernelOperator.centers_gram = counted_blocks, counted_gram  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        KernelOperator.blocks, KernelOperator.centers_gram = self.saved  # type: ignore[method-assign]


def bless(quick: bool) -> None:
    M, penalty, kernel = (100 if quick else 300), 1e-5, Gaussian(1.5)
    sizes = [10_000, 100_000, 1_000_000]
    data = {n: rare_clusters(n, seed=0)[0] for n in sizes}

    def run(n: int) -> Any:
        return Bless().select(data[n], M, kernel=kernel, penalty=penalty, random_state=0)

    seconds = best_of({str(n): lambda n=n: run(n) for n in sizes}, rounds=1 if quick else 3)
    rows = []
    for n in sizes:
        with Evaluations() as evaluations:
            run(n)
        rows.append([f"{n:,}", seconds[str(n)], f"{evaluations.count:,}", f"{evaluations.count / n:.3g}"])
    table(f"BLESS, {M} centers, penalty {penalty:g}", ["n", "seconds", "kernel values", "kernel values / n"], rows)


def rpcholesky(quick: bool) -> None:
    n, M = (5_000, 300) if quick else (20_000, 1_000)
    X = np.random.default_rng(0).standard_normal((n, 10))
    contenders = {
        name: lambda selector=selector: selector.select(X, M, kernel=Gaussian(3.0), penalty=1e-6, random_state=0)
        for name, selector in {"plain": RPCholesky(accelerated=False), "accelerated": RPCholesky()}.items()
    }
    seconds = best_of(contenders, rounds=1 if quick else 2)
    rows = [[name, seconds[name], seconds["plain"] / seconds[name]] for name in contenders]
    table(f"RPCholesky, n = {n:,}, M = {M:,}", ["variant", "seconds", "times as fast as plain"], rows)


def error(quick: bool) -> None:
    n, seeds = (5_000, 1) if quick else (20_000, 3)
    (X, y), (X_test, y_test) = rare_clusters(n, seed=0), rare_clusters(20_000, seed=1)
    names = ["uniform", "leverage", "bless", "rpcholesky", "kmeans++"]
    rows = []
    for M in [50, 100, 200] if quick else [50, 100, 200, 400, 800]:
        row: list[Any] = [M]
        for name in names:
            errors = []
            for seed in range(seeds):
                model = FalkonRegressor(
                    Gaussian(1.5), n_centers=M, penalty=1e-6, centers=as_centers(name), scale=False, random_state=seed
                ).fit(X, y)
                errors.append(np.mean((model.predict(X_test) - y_test) ** 2))
            row.append(float(np.mean(errors)))
        rows.append(row)
    table(f"Test error with 20 rare clusters, n = {n:,} (noise: 0.01)", ["M", *names], rows)


SECTIONS = {"bless": bless, "rpcholesky": rpcholesky, "error": error}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    for name in arguments.only:
        SECTIONS[name](arguments.quick)
