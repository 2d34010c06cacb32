"""Block splitting ADMM for ridge regression on features (Parikh, Boyd, 2014; Avron, Sindhwani, 2014).

Rows are split into parts i and features into blocks j, so that each block Z_ij of F is small. The problem

    minimise sum_i w (y_i - o_i)^2 / 2 + penalty n sum_j |x_j|^2 / 2   with   o_i = sum_j Z_ij x_j

is split into copies x_ij and o_ij = Z_ij x_ij for each block. An iteration solves three easy problems, which need no
other block, and averages the copies:

    the loss       (w y + rho (o - o~)) / (w + rho)
    the penalty    rho (x - x~) / (penalty n + rho)
    the graph      the nearest (x_ij, o_ij) with o_ij = Z_ij x_ij, by a factorisation of Z_ij'Z_ij + I that is kept

The names with a tilde are the scaled dual variables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ..operators import Operator
from .base import Iterate, Vectors, sizes
from .features import normal_equations

__all__ = ["block_admm"]


def block_admm(
    blocks: Sequence[Sequence[Operator]],
    y: NDArray[Any],
    penalty: float,
    *,
    rho: float = 1.0,
    max_iter: int,
    tol: float = 0.0,
    weight: NDArray[Any] | None = None,
    n_jobs: int | None = None,
) -> Iterator[Iterate]:
    """Run ADMM towards ``(F'WF + penalty n I) alpha = F'W y``, in two passes for each iteration and one before.

    blocks : Z_ij, a list for each part of the rows, in their order, of the operators of its blocks of features
    rho : weight of the copies' distances beside the objective; it sets how fast ADMM converges, and not to what

    Yields an iterate for each iteration; its residual is the largest of the copies' distance from their average and
    the average's last change, relative to its norm, and of the distance between o and the sum of the blocks' values,
    relative to the norm of y.
    """
    began, Y = time.perf_counter(), y.reshape(len(y), -1).astype(np.float64)
    (n, k), P, B = Y.shape, len(blocks), len(blocks[0])
    W = np.ones((n, 1)) if weight is None else np.asarray(weight, dtype=np.float64)[:, None]
    rows = _slices([part[0].shape[0] for part in blocks])
    columns = _slices([block.shape[1] for block in blocks[0]])
    M = columns[-1].stop
    factors = [[_factor(block, n_jobs) for block in part] for part in blocks]
    x, x_dual, copies_dual = np.zeros((M, k)), np.zeros((M, k)), np.zeros((P, M, k))
    o, o_dual, outputs = np.zeros((n, k)), np.zeros((n, k)), np.zeros((B, n, k))
    for iteration in range(1, max_iter + 1):
        o_half = (W * Y + rho * (o - o_dual)) / (W + rho)
        x_half = rho * (x - x_dual) / (penalty * n + rho)
        copies = np.empty((P, M, k))
        for i, part in enumerate(blocks):
            for j, Z in enumerate(part):
                at, of = rows[i], columns[j]
                right = x[of] - copies_dual[i, of] + Z.rmatmat(outputs[j, at] + o_dual[at])
                copies[i, of] = cho_solve(factors[i][j], right, check_finite=False)
                outputs[j, at] = Z.matmat(copies[i, of])
        before, x = x, (x_half + copies.sum(axis=0)) / (P + 1)
        excess = (o_half - outputs.sum(axis=0)) / (B + 1)
        outputs, o = outputs + excess, o_half - excess
        x_dual, o_dual, copies_dual = x_dual + x_half - x, o_dual + excess, copies_dual + copies - x
        scale = np.maximum(np.linalg.norm(x, axis=0), np.finfo(np.float64).tiny)
        apart = np.sqrt(np.square(copies - x).sum(axis=(0, 1)) / P)
        residuals = np.maximum(apart, np.linalg.norm(x - before, axis=0)) / scale
        residuals = np.maximum(residuals, (B + 1) * np.linalg.norm(excess, axis=0) / sizes(Y))
        yield Iterate.measured(
            iteration,
            residuals,
            tol,
            seconds=time.perf_counter() - began,
            passes=2 * iteration + 1,
            step=np.full(k, rho),
            ratio=np.zeros(k),
            _coef=partial(x.reshape, (M, *y.shape[1:])),
        )
        if (residuals <= tol).all():
            return


def _factor(block: Operator, n_jobs: int | None) -> tuple[Vectors, bool]:
    """Return Cholesky's factor of Z'Z + I, with more than I where I would be lost in the rounding of large features."""
    gram, _ = normal_equations(block, np.empty((block.shape[0], 0)), n_jobs=n_jobs)
    gram.flat[:: len(gram) + 1] += max(1.0, len(gram) * np.finfo(np.float64).eps * gram.trace())
    factor: tuple[Vectors, bool] = cho_factor(gram, overwrite_a=True, check_finite=False)
    return factor


def _slices(lengths: Sequence[int]) -> list[slice]:
    ends = np.cumsum([0, *lengths]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]
