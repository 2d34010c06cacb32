"""Shapley values of any function, estimated by sampling permutations of the columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fitting.explained import Mixable

Array = NDArray[Any]
Vectors = NDArray[np.float64]

_BATCH = 1 << 15  # mixed rows that are predicted at once


def sampled_shapley_values(
    function: Callable[[Any], Vectors],
    rows: Mixable,
    n: int,
    groups: Array,
    n_pairs: int,
    random_state: np.random.RandomState,
) -> tuple[Vectors, Vectors, Vectors]:
    """Estimate Shapley values, their standard errors, and the mean of the function over the background.

    A permutation of the groups and a background row give one value for each group: the change of the function as the
    groups of the background row are replaced one after the other by those of the row. Each permutation is also used in
    reverse (Mitchell, Cooper, Frank and Holmes, 2022), which cancels much of the noise. What the sampled background
    rows differ from all of them by is shared among the groups in proportion to the squares of their standard errors.

    Parameters
    ----------
    function : callable
        Returns values of shape (n, k) for mixed rows.
    rows : Mixable
        The rows, followed by those of the background.
    n : int
        Number of rows to explain.
    groups : array of int of shape (n_features,)
    n_pairs : int
        Number of permutations that are used in both directions, at least 2.
    random_state : RandomState

    Returns
    -------
    values : array of shape (n, n_groups, k)
    errors : array of shape (n, n_groups, k)
    base : array of shape (k,)
    """
    d, total = len(groups), len(rows.data)
    all_rows = np.repeat(np.arange(total)[:, None], d, axis=1)
    ends = function(rows.mix(all_rows))
    base, k, n_groups = ends[n:].mean(axis=0), ends.shape[1], int(groups.max()) + 1
    values, errors = np.empty((n, n_groups, k)), np.empty((n, n_groups, k))
    step = max(1, _BATCH // (2 * n_pairs * (n_groups + 1)))
    for start in range(0, n, step):
        block = np.arange(start, min(start + step, n))
        order = np.stack([random_state.permutation(n_groups) for _ in range(len(block) * n_pairs)])
        order = np.concatenate([order, order[:, ::-1]])  # the second half is the first in reverse
        others = n + np.concatenate([_draw(total - n, n_pairs, random_state) for _ in block])
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(n_groups)[None], axis=1)
        # column j of state s is that of the row if its group is among the first s of the permutation
        present = place[:, None, groups] < np.arange(n_groups + 1)[None, :, None]
        mine = np.tile(np.repeat(block, n_pairs), 2)
        chosen = np.where(present, mine[:, None, None], np.tile(others, 2)[:, None, None])
        f = function(rows.mix(chosen.reshape(-1, d))).reshape(len(order), n_groups + 1, k)
        gains = np.take_along_axis(np.diff(f, axis=1), place[:, :, None], axis=1)
        pairs = gains.reshape(2, len(block), n_pairs, n_groups, k).mean(axis=0)
        values[block] = pairs.mean(axis=1)
        errors[block] = pairs.std(axis=1, ddof=1) / np.sqrt(n_pairs)
    return values + _shares(errors) * (ends[:n] - base - values.sum(axis=1))[:, None], errors, base


def _draw(m: int, count: int, random_state: np.random.RandomState) -> Array:
    """Draw rows of the background, each of them equally often up to one."""
    rounds = [random_state.permutation(m) for _ in range(-(-count // m))]
    return np.concatenate(rounds)[:count]


def _shares(errors: Vectors) -> Vectors:
    """Return the share of each group in the sum of the squared standard errors; equal shares if that is 0."""
    squares = np.square(errors)
    total = squares.sum(axis=1, keepdims=True)
    return np.divide(squares, total, out=np.full_like(squares, 1 / squares.shape[1]), where=total > 0)
