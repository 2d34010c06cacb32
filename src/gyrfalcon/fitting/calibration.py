"""Probabilities of classes from values of least squares, by a few numbers learnt from rows that were held out.

Least squares on targets +1 and -1 estimate 2 P(class | x) - 1, but shrunk by the penalty and not bound to [-1, 1]. With
p = (1 + f) / 2 of each class, and q = clip(p, eps, 1),

    scores S_k = a p_k + c log q_k + d (log q_k - q_k) + b_k,     probabilities = softmax(S).

c = 1 alone leaves values that are probabilities as they are, and a alone is Platt's scaling. d is steepest for small p,
which undoes shrinking towards the mean: with values that were shrunk to 0.8 of theirs it halves the log-loss in excess
of the truth's.
No slope is negative and every term grows with p, so the order of two classes' values is kept, and with it the area
under the ROC curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from .._utils.registry import register
from .._utils.threads import single_threaded_blas
from .._utils.words import shown

Array = NDArray[Any]
Vectors = NDArray[np.float64]

EPS = (0.005, 0.02, 0.05)
_BIAS_PENALTY = 1e-4
_ABSENT_ROWS = 0.5  # weight of a class without rows, in rows of mean weight, as chosen by Krichevsky and Trofimov
_SLOPE_DEVIATION = 10.0  # standard deviation of the Gaussian prior of the slopes
# The smallest slope separates values whose logarithms are clipped, the largest keeps probabilities of separable rows
# from 0 and 1
_SLOPES = (1e-2, 40.0)
MOST_VALUES = 400_000  # maximum number of rows times classes to fit to, if each class has a row
_BOUNDS = [_SLOPES, (0.0, 10.0), (0.0, 10.0)]


@register
@dataclass(frozen=True)
class Calibration:
    """A map from decision values of least squares to probabilities of classes; no slope is negative.

    slope : a, the factor of p = (1 + f) / 2
    log_slope : c, the factor of log q, where q is p clipped to [eps, 1]
    bend : d, the factor of log q - q
    bias : b, a number for each class
    eps : the smallest q

    >>> Calibration(0.0, 1.0, 0.0, bias=(0.0, 0.0), eps=0.01).probabilities(np.array([-0.5, 0.8]))
    array([[0.75, 0.25],
           [0.1 , 0.9 ]])
    """

    slope: float
    log_slope: float
    bend: float
    bias: tuple[float, ...]
    eps: float

    def __post_init__(self) -> None:
        slopes = (self.slope, self.log_slope, self.bend)
        if not isinstance(self.bias, tuple) or not all(isinstance(x, Real) for x in (*slopes, *self.bias, self.eps)):
            raise ValueError("slopes, eps and the numbers of the tuple bias must be numbers")
        if not (np.isfinite([*slopes, *self.bias]).all() and min(slopes) >= 0 and 0 < self.eps < 1):
            raise ValueError(f"{self!r} is no calibration: slopes are finite and not negative, eps between 0 and 1")
        if len(self.bias) < 2:
            raise ValueError(f"bias={shown(self.bias)} must have a number for each of at least two classes")

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return what a model file holds."""
        return dict(vars(self))

    def probabilities(self, values: Array) -> Vectors:
        """Return the probabilities of the classes, of shape (n, n_classes); each row sums to one.

        `values` has shape (n,) or (n, 1) for two classes, else (n, n_classes).
        """
        return np.exp(self.log_probabilities(values))

    def log_probabilities(self, values: Array) -> Vectors:
        """Return the logarithms of `probabilities`, finite even where one of these rounds to zero."""
        scores = np.tensordot([self.slope, self.log_slope, self.bend], _features(values, len(self.bias), self.eps), 1)
        found: Vectors = log_softmax(scores + np.array(self.bias), axis=1)
        return found

    def scores(self, values: Array) -> Vectors:
        """Return log P of each class, or the log-odds of the second of two classes, of shape (n,)."""
        logs = self.log_probabilities(values)
        return logs[:, 1] - logs[:, 0] if len(self.bias) == 2 else logs


def fit_calibration(
    values: Array, codes: Array, n_classes: int, weight: Array | None = None, smallest: tuple[float, ...] = EPS
) -> Calibration:
    """Find the calibration with the smallest log-loss on rows that the model has not seen.

    `values` are finite decision values, as for `Calibration.probabilities`, and `codes` the class numbers of the rows,
    from 0. A class without rows keeps the probability of half a row. `smallest` are the values of eps that are tried.
    """
    values, codes, weight = _some_of_each(*with_absent_classes(values, codes, n_classes, weight), n_classes)
    w = np.ones(len(codes)) if weight is None else np.asarray(weight, dtype=np.float64)
    w = w / w.sum()
    best: tuple[float, Calibration] | None = None
    for eps in smallest:
        features = _features(values, n_classes, eps)
        with single_threaded_blas():  # the last bits would depend on its threads
            found = minimize(
                _objective,
                np.concatenate([[1.0, 1.0, 0.0], np.zeros(n_classes)]),
                args=(features, codes, w),
                jac=True,
                method="L-BFGS-B",
                bounds=[*_BOUNDS, *[(None, None)] * n_classes],
            )
        if best is None or found.fun < best[0]:
            slope, log_slope, bend, *bias = found.x.tolist()
            best = float(found.fun), Calibration(slope, log_slope, bend, tuple(bias), eps)
    assert best is not None
    return best[1]


def with_absent_classes(
    values: Array, codes: Array, n_classes: int, weight: Array | None = None
) -> tuple[Array, Array, Array | None]:
    """Add half a row, with the mean of all values, for each class that has no row of positive weight.

    Otherwise the log-loss would be smallest where such a class is impossible, which a few rows cannot show.
    """
    counted = np.bincount(codes, weights=weight, minlength=n_classes)
    absent = np.flatnonzero(counted == 0)
    if not len(absent):
        return values, codes, weight
    w = np.ones(len(codes)) if weight is None else np.asarray(weight, dtype=np.float64)
    values = np.asarray(values, dtype=np.float64)
    mean = np.average(values, axis=0, weights=w)
    return (
        np.concatenate([values, np.repeat(mean[None], len(absent), axis=0)]),
        np.concatenate([codes, absent]),
        np.concatenate([w, np.full(len(absent), _ABSENT_ROWS * w[w > 0].mean())]),
    )


def _some_of_each(
    values: Array, codes: Array, weight: Array | None, n_classes: int
) -> tuple[Array, Array, Array | None]:
    """Return a sample of the rows of every class, weighted to stand for all of them, if there are too many rows."""
    most = max(MOST_VALUES // n_classes, n_classes)
    if len(codes) <= most:
        return values, codes, weight
    shuffled = np.random.RandomState(0).permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    counts = np.bincount(codes, minlength=n_classes)
    rank = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    # the first row of every class, and more rows in proportion to its size
    kept = np.sort(by_class[np.argsort(rank / np.repeat(counts, counts), kind="stable")[:most]])
    w = np.ones(len(codes)) if weight is None else np.asarray(weight, dtype=np.float64)
    of_all, of_kept = (np.bincount(codes[rows], weights=w[rows], minlength=n_classes) for rows in (shuffled, kept))
    factor = np.divide(of_all, of_kept, out=np.zeros(n_classes), where=of_kept > 0)
    return values[kept], codes[kept], w[kept] * factor[codes[kept]]


def _features(values: Array, n_classes: int, eps: float) -> Vectors:
    """Return p, log q and log q - q, of shape (3, n, n_classes)."""
    p = (1.0 + np.asarray(values, dtype=np.float64).reshape(len(values), -1)) / 2
    p = np.hstack([1.0 - p, p]) if n_classes == 2 else p
    q = np.clip(p, eps, 1.0)
    return np.stack([p, np.log(q), np.log(q) - q])


def _objective(theta: Vectors, features: Vectors, codes: Array, w: Vectors) -> tuple[float, Vectors]:
    """Return the log-loss for weights w of sum 1, with penalties of the slopes and biases, and its gradient."""
    slopes, bias, rows = theta[:3], theta[3:], np.arange(len(codes))
    log_p = log_softmax(np.tensordot(slopes, features, 1) + bias, axis=1)
    prior = 1 / (len(codes) * _SLOPE_DEVIATION**2)
    value = -float(w @ log_p[rows, codes]) + _BIAS_PENALTY * float(bias @ bias) + prior / 2 * float(slopes @ slopes)
    error = np.exp(log_p)
    error[rows, codes] -= 1.0
    error *= w[:, None]
    of_slopes = np.tensordot(features, error, 2) + prior * slopes
    return value, np.concatenate([of_slopes, error.sum(axis=0) + 2 * _BIAS_PENALTY * bias])
