"""Weights of an average of predictions, found greedily (Caruana et al. 2004)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

Array = NDArray[Any]

_MOST_ROWS, _MOST_VALUES = 10_000, 500_000  # most rows, and rows times classes, by which models of classes are weighted
_TEMPERATURES = (0.3, 3.0)  # range of temperatures


def greedy_weights(predictions: list[Array], targets: Array, weight: Array | None = None, steps: int = 40) -> Array:
    """Return non-negative weights with sum 1 for which the average of predictions has a small squared error.

    Each step adds to the average the member that lowers its error most; a member can be added several times. Few
    weights are positive, and none is large by chance. Predictions and targets have shape (n, k).

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
    products = residuals @ residuals.T  # which determine the error of any average
    square, sums = 0.0, np.zeros(len(predictions))  # products of all members with those taken so far
    counts = np.zeros(len(predictions))
    for _ in range(steps):
        best = int(np.argmin(square + 2 * sums + products.diagonal()))
        square += 2 * sums[best] + products[best, best]
        sums += products[best]
        counts[best] += 1
    return np.asarray(counts / steps)


def greedy_log_weights(logs: list[Array], labels: Array, weight: Array | None = None, steps: int = 40) -> Array:
    """Return non-negative weights with sum 1 for which the average of logarithms has a small log-loss.

    `logs` are logarithms of probabilities, of shape (n, n_classes), and `labels` the index of each row's class.
    Averages of log P rank rows better than averages of P, in which one confident member outweighs several others.
    """
    if len(logs) == 1:
        return np.ones(1)
    some = _some(logs[0], _MOST_ROWS)
    loss = _loss_of(labels[some], None if weight is None else weight[some])
    members = [member[some] for member in logs]
    counts, total = np.zeros(len(members)), np.zeros_like(members[0])
    for step in range(steps):
        best = int(np.argmin([loss((total + member) / (step + 1)) for member in members]))
        total += members[best]
        counts[best] += 1
    return np.asarray(counts / steps)


def best_temperature(logs: Array, labels: Array, weight: Array | None = None) -> float:
    """Return the temperature T that minimises the log-loss of the probabilities softmax(logs / T)."""
    some = _some(logs, len(labels))
    logs, loss = logs[some], _loss_of(labels[some], None if weight is None else weight[some])
    found = minimize_scalar(
        lambda u: loss(logs / np.exp(u)), bounds=np.log(_TEMPERATURES), method="bounded", options={"xatol": 1e-4}
    )
    return float(np.exp(found.x))


def _some(logs: Array, most: int) -> slice:
    """Return a slice of all rows, or of evenly spaced ones if there are many rows or classes."""
    n, k = logs.shape
    return slice(None, None, -(-n // max(1, min(most, max(_MOST_VALUES // k, k)))))


def _loss_of(labels: Array, weight: Array | None) -> Callable[[Array], float]:
    rows = np.arange(len(labels))
    return lambda z: float(np.average(logsumexp(z, axis=1) - z[rows, labels], weights=weight))
