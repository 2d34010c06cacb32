"""Weights of an average of predictions, found greedily (Caruana et al. 2004)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def greedy_weights(predictions: list[Array], targets: Array, weight: Array | None = None, steps: int = 40) -> Array:
    """Return weights, not negative and of sum 1, for which the average has a small squared error.

    In each step the average gains the member that lowers its error most; a member can be taken again and again. Few
    weights are positive, and none is large by chance.

    Parameters
    ----------
    predictions : list of arrays of shape (n, k)
    targets : array of shape (n, k)
    weight : array of shape (n,), optional
    steps : int

    Returns
    -------
    array of shape (len(predictions),)

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.tables.blending import greedy_weights
    >>> y = np.array([[1.0], [2.0], [3.0]])
    >>> greedy_weights([y + 1, y - 1, 5 * y], y).tolist()
    [0.5, 0.5, 0.0]
    """
    root = 1.0 if weight is None else np.sqrt(weight)[:, None]
    residuals = np.stack([((member - targets) * root).ravel() for member in predictions])
    products = residuals @ residuals.T  # the error of any average follows from these
    counts = np.zeros(len(predictions))
    sums = np.zeros(len(predictions))  # of the products with all members taken so far
    square = 0.0
    for _ in range(steps):
        best = int(np.argmin(square + 2 * sums + products.diagonal()))
        square += 2 * sums[best] + products[best, best]
        sums += products[best]
        counts[best] += 1
    return np.asarray(counts / steps)
