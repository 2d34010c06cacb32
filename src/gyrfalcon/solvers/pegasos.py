"""Pegasos: stochastic subgradients of the support vector machine (Shalev-Shwartz, Singer, Srebro, Cotter, 2011).

In the Nyström features phi of the rows, with f = w'phi and |f| = |w|, the objective is

    penalty / 2 |w|^2 + mean(weight max(0, 1 - y f(x))).

Step t has the length 1 / (penalty t), on a batch I of rows:

    w <- (1 - 1/t) w + 1 / (penalty t) mean_I(weight y phi(x) where y f(x) < 1),

after which w may be projected onto the ball of radius 1 / sqrt(penalty), which contains the solution. The excess of the
objective falls like 1 / (penalty t), up to a logarithm, whatever the number of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators import Operator
from ..preconditioners import Whitening
from .base import Iterate, coefficients

__all__ = ["pegasos"]


def pegasos(
    operator: Operator,
    y: NDArray[Any],
    whitening: Whitening,
    penalty: float,
    *,
    batch_size: int,
    max_iter: int,
    projection: bool,
    average: bool,
    random_state: np.random.RandomState,
    weight: NDArray[Any] | None = None,
) -> Iterator[Iterate]:
    """Run `max_iter` epochs; each visits all rows once, in mini-batches and in a new order.

    operator : K, of shape (n, M), whose rows can be taken in any order
    y : array of shape (n, k) of -1 and +1; columns are problems of their own
    projection : whether w is projected after each step
    average : whether coefficients are the mean over all steps, instead of those after the last

    Yields an iterate for each epoch; its residual is the largest objective of the columns, as a mean over the batches
    before their steps. f = 0 has an objective of 1.
    """
    began, n, k = time.perf_counter(), *y.shape
    root_n, radius = np.sqrt(n), 1 / np.sqrt(penalty)
    w, mean, t = np.zeros((whitening.rank, k)), np.zeros((whitening.rank, k)), 0
    for epoch in range(1, max_iter + 1):
        order, objective, length = random_state.permutation(n), np.zeros(k), 0.0
        for start in range(0, n, batch_size):
            batch = np.sort(order[start : start + batch_size])
            signs, share = y[batch], np.ones((len(batch), 1)) if weight is None else weight[batch, None]
            f = np.empty((len(batch), k), dtype=operator.dtype)
            points = operator.on(operator.rows.take(batch))
            pull = points.sandwich(whitening.apply(root_n * w), partial(_violations, signs, share), KV=f)
            loss = (share * np.maximum(0, 1 - signs * f)).sum(axis=0, dtype=np.float64)
            objective += loss / n + penalty / 2 * np.square(w).sum(axis=0) * len(batch) / n
            t += 1
            length = 1 / (penalty * t)
            w = (1 - 1 / t) * w + length * root_n * whitening.apply_transpose(pull) / len(batch)
            if projection:
                w = w * np.minimum(1, radius / np.maximum(np.linalg.norm(w, axis=0), radius))
            mean = mean + (w - mean) / t
        yield Iterate(
            iteration=epoch,
            residual=float(objective.max(initial=0.0)),
            residuals=objective,
            seconds=time.perf_counter() - began,
            passes=epoch,
            converged=False,
            step=np.full(k, length),
            ratio=np.zeros(k),
            _coef=partial(coefficients, whitening, root_n * (mean if average else w), (whitening.M, k)),
        )


def _violations(y: NDArray[Any], weight: NDArray[Any], rows: slice, f: NDArray[Any]) -> NDArray[Any]:
    """Return weight y where y f < 1, and 0 elsewhere."""
    return np.where(y[rows] * f < 1, weight[rows] * y[rows], 0).astype(f.dtype)
