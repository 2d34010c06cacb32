"""Doubly stochastic functional gradients (Dai, Xie, He, Liang, Raj, Balcan, Song, 2014).

Each step t draws a batch of rows and a block of new random features phi of the kernel, which give an estimate of the
functional gradient without bias from both. The function so far shrinks, and the new features get coefficients:

    f <- (1 - gamma_t penalty) f + gamma_t mean_I(w (y - f(x)) phi(x)) phi,     gamma_t = gamma / (1 + gamma penalty t).

No coefficient of old features changes but by the factor, so that each block of features is used once for the rows of
its own step, and again for f at the rows of all later steps. T steps with M features and m rows take time T M m.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators import Operator
from .base import Iterate, Vectors

__all__ = ["doubly_stochastic"]


def doubly_stochastic(
    operator: Operator,
    blocks: Sequence[Operator],
    y: NDArray[Any],
    penalty: float,
    *,
    step: float,
    batch_size: int,
    n_records: int,
    random_state: np.random.RandomState,
    weight: NDArray[Any] | None = None,
) -> Iterator[Iterate]:
    """Take one step for each block of features.

    operator : all features of all rows, whose rows can be taken in any order
    blocks : the same in blocks of columns; those of one block, with the factor sqrt(number of features / those of the
        block), are features of the kernel too
    step : gamma
    n_records : number of iterates, each after about the same number of steps

    Yields iterates; the residual is the root mean square of y - f(x) of the rows as they were visited, relative to that
    of y.
    """
    began, Y = time.perf_counter(), y.reshape(len(y), -1).astype(np.float64)
    (n, k), T = Y.shape, len(blocks)
    ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
    alpha, order, at = np.zeros((ends[-1], k)), random_state.permutation(n), 0
    squares, right = np.zeros(k), np.zeros(k)
    records = set((np.arange(1, n_records + 1) * T // n_records).tolist())
    for t, block in enumerate(blocks):
        if at >= n:
            order, at = random_state.permutation(n), 0
        batch = np.sort(order[at : at + batch_size])
        at += batch_size
        points = operator.rows.take(batch)
        f = operator.on(points).matmat(alpha)  # coefficients of later blocks are 0
        w = np.ones((len(batch), 1)) if weight is None else weight[batch, None].astype(np.float64)
        rest = w * (Y[batch] - f)
        gamma = step / (1 + step * penalty * t)
        share = ends[-1] / (ends[t + 1] - ends[t])
        alpha[: ends[t]] *= 1 - gamma * penalty
        alpha[ends[t] : ends[t + 1]] = gamma * share * block.on(points).rmatmat(rest) / len(batch)
        squares += (w * np.square(Y[batch] - f)).sum(axis=0)
        right += (w * np.square(Y[batch])).sum(axis=0)
        if t + 1 in records:
            residuals = np.sqrt(squares / np.maximum(right, np.finfo(np.float64).tiny))
            if not (residuals < 1e3).all():
                raise FloatingPointError(f"gradient descent diverges with step={step:g}: choose a shorter one")
            squares, right = np.zeros(k), np.zeros(k)
            yield Iterate(
                iteration=t + 1,
                residual=float(residuals.max(initial=0.0)),
                residuals=residuals,
                seconds=time.perf_counter() - began,
                passes=(t + 1) * batch_size / n,
                converged=False,
                step=np.full(k, gamma),
                ratio=np.zeros(k),
                _coef=partial(_shaped, alpha.copy(), y),
            )


def _shaped(alpha: Vectors, y: NDArray[Any]) -> Vectors:
    return alpha.reshape(len(alpha), *y.shape[1:])
