"""How many centers kernel PCA and kernel k-means need: MNIST, against M.

    python benchmarks/papers/unsupervised_centers.py [--data DIR] [--quick] [--plot]

- Kernel PCA (Sterge, Sriperumbudur, Rosasco, Rudi 2020): the reconstruction error of 50 components, the share of the
  rows' variance in feature space that they leave. With sqrt(n) centers times a logarithm it should be that of exact
  kernel PCA.
- Kernel k-means (Calandriello, Rosasco 2018): the cost of 10 clusters with what the centers miss of the rows, and the
  normalised mutual information with the digits. As many centers should be enough here.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from _data import load, options, save_figure, split, table
from sklearn.metrics import normalized_mutual_info_score

from gyrfalcon import KernelKMeans, KernelPCA
from gyrfalcon.kernels import Gaussian

KERNEL = Gaussian(7.0)


def measure(X: np.ndarray, y: np.ndarray, M: int, seed: int) -> tuple[list[float], list[float]]:
    """What 50 components leave of the variance, the cost of ten clusters a row, their NMI; seconds of both."""
    common: dict[str, Any] = {"kernel": KERNEL, "n_centers": M, "scale": False, "random_state": seed}
    start = time.perf_counter()
    pca = KernelPCA(n_components=min(50, M), **common).fit(X)
    middle = time.perf_counter()
    clusters = KernelKMeans(10, n_init=5, **common).fit(X)
    seconds = [middle - start, time.perf_counter() - middle]
    left, cost = 1 - float(pca.explained_variance_ratio_.sum()), clusters.inertia_ / len(X)
    return [left, cost, normalized_mutual_info_score(y, clusters.labels_)], seconds


def main() -> None:
    arguments = options(__doc__ or "")
    warnings.simplefilter("ignore")
    arrays = load(arguments.data, "mnist")
    if arrays is None:
        return
    data = split(arrays, n_rows=5_000 if arguments.quick else None)
    X = data.X / np.float32(255)
    sizes = [100, 300, 1_000] if arguments.quick else [30, 100, 250, 500, 1_000, 2_000]
    seeds = range(1 if arguments.quick else 3)
    rows = []
    for M in sizes:
        found, seconds = zip(*(measure(X, data.y, M, seed) for seed in seeds), strict=True)
        rows.append([M, *map(float, np.mean(found, axis=0)), *map(float, np.mean(seconds, axis=0))])
    table(
        f"MNIST, n = {len(X):,}, Gaussian(7), means of {len(seeds)} draws of centers",
        ["M", "error of 50 components", "k-means cost a row", "NMI", "seconds (PCA)", "seconds (k-means)"],
        [[row[0], *(f"{value:.4f}" for value in row[1:4]), *row[4:]] for row in rows],
    )
    if arguments.plot:
        plot(np.array(rows))


def plot(found: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
    for ax, column, name in zip(axes, (1, 2, 3), ("error of 50 components", "cost a row", "NMI"), strict=True):
        ax.plot(found[:, 0], found[:, column], "o-", color="#3b7fb5")
        ax.set(xlabel="centers M", ylabel=name, xscale="log")
        ax.spines[["top", "right"]].set_visible(False)
    save_figure(figure, "papers_unsupervised.png")


if __name__ == "__main__":
    main()
