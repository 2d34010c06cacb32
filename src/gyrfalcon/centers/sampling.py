"""Pools of rows, draws in proportion to weights, and the weights D of centers that were not drawn independently."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.checks import integer
from .._utils.memory import available_memory
from .leverage import Array, Indices, Scoring

ROUNDING = 1e-12  # relative to k(x, x): rounding error of the squared distance between a row and its duplicate

_POOL = 20_000


def pool_size(max_rows: Any, M: int, n: int, numbers_a_row: int = 0) -> int:
    """Return the size of the pool: `max_rows`, or a default that fits the memory with `numbers_a_row` float64 each."""
    if max_rows is not None:
        integer(1)("max_rows", max_rows)
        return min(n, max(int(max_rows), M))  # with fewer rows than centers there would be nothing to choose
    size = max(_POOL, 20 * M)
    if numbers_a_row:
        size = max(2 * M, min(size, available_memory() // (4 * 8 * numbers_a_row)))
    return min(n, size)


def draw(random: np.random.RandomState, weights: Array, size: int) -> Indices:
    """Draw `size` indices independently, in proportion to `weights`."""
    edges = np.cumsum(weights)
    return np.searchsorted(edges, random.random_sample(size) * edges[-1], side="right")


def weights_by_share(nearest: Indices, M: int) -> Array:
    """Compute D with D_jj^2 = M times the share of rows whose nearest center is j; every center is its own nearest."""
    counts = np.maximum(np.bincount(nearest, minlength=M), 1)
    return np.sqrt(M * counts / counts.sum())


def voronoi_weights(scoring: Scoring, pool: Any, chosen: Indices) -> Array:
    """Compute D from the share of the pool that is nearest to each center in feature space."""
    centers = pool[chosen]
    half = scoring.kernel.diag(centers) / 2
    operator = scoring.operator(centers).on(pool)
    nearest = np.concatenate([np.argmax(K - half, axis=1) for _, K in operator.blocks()])
    return weights_by_share(nearest, len(chosen))
