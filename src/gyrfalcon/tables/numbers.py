"""Columns of numbers: scaling, missing values, infinities and outliers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator

from .._utils.checks import array
from .._utils.registry import register

Array = NDArray[Any]

_LARGEST = 1e280  # bound of numbers, so that sums and differences are finite
_CLIP = 3.0  # bound of scaled numbers
_QUANTILES = 1000  # largest number of quantiles that are kept
_MANY = 100_000  # largest number of rows from which quantiles are computed
_FAR = 1e30  # bound of outputs, which float32 can represent
# Two quantiles, and the distance between them in units of the interquartile range, for a normal distribution
_RANGES = ((0.25, 0.75, 1.0), (0.05, 0.95, 2.4387), (0.01, 0.99, 3.4490))
_DEVIATION = 1.3490  # interquartile range of a normal distribution, in standard deviations


@register
class NumberColumns(BaseEstimator):  # type: ignore[misc]
    """Scale numbers to about unit size, and add 0/1 columns that tell where values are missing.

    method : see `numbers` of `TableEncoder`
    random_state : seed of the sample from which quantiles are computed in tables of more than 100,000 rows
    low_, high_ : smallest and largest finite number of each column, which replace infinities
    median_ : medians, which replace missing values
    center_, scale_ : subtrahends and divisors
    varies_ : whether each column has at least two different numbers
    indicates_ : whether some values of each column are missing and others are not
    quantiles_ : quantiles of the scaled columns that vary, for the method "quantile"
    """

    low_: Array
    high_: Array
    median_: Array
    center_: Array
    scale_: Array
    varies_: Array
    indicates_: Array
    quantiles_: Array

    def __init__(self, method: str = "robust", random_state: int = 0) -> None:
        self.method = method
        self.random_state = random_state

    def fit(self, values: Array) -> NumberColumns:
        """Learn scales from numbers of shape (n, n_columns), where NaN is missing."""
        finite = np.isfinite(values)
        self.low_ = np.where(finite, values, np.inf).min(axis=0, initial=np.inf)
        self.high_ = np.where(finite, values, -np.inf).max(axis=0, initial=-np.inf)
        empty = ~finite.any(axis=0)
        self.low_ = np.clip(np.where(empty, 0.0, self.low_), -_LARGEST, _LARGEST)
        self.high_ = np.clip(np.where(empty, 0.0, self.high_), -_LARGEST, _LARGEST)
        missing: Array = np.isnan(values)
        self.varies_ = self.high_ > self.low_
        self.indicates_ = np.any(missing, axis=0) & ~np.all(missing, axis=0)

        d = values.shape[1]
        self.median_, self.center_, self.scale_ = self.low_.copy(), self.low_.copy(), np.ones(d)
        self.quantiles_ = np.empty((0, 0))
        varying = np.clip(values[:, self.varies_], self.low_[self.varies_], self.high_[self.varies_])
        if varying.shape[1]:
            self._fit_scales(varying)
        return self

    def _fit_scales(self, varying: Array) -> None:
        levels = sorted({0.5, *(level for low, high, _ in _RANGES for level in (low, high))})
        found = dict(zip(levels, _quantiles(varying, levels, self.random_state), strict=True))
        low, high = self.low_[self.varies_], self.high_[self.varies_]
        span = high - low
        unit = (varying - low) / span  # whose squares are finite
        self.median_[self.varies_] = found[0.5]
        if self.method == "standard":
            self.center_[self.varies_] = low + span * np.nanmean(unit, axis=0)
            self.scale_[self.varies_] = span * np.nanstd(unit, axis=0)
        else:
            scale = _DEVIATION * span * np.nanstd(unit, axis=0)
            for first, last, width in reversed(_RANGES):
                distance = found[last] - found[first]
                scale = np.where(distance > 0, distance / width, scale)
            self.center_[self.varies_] = found[0.5]
            self.scale_[self.varies_] = scale
        self.scale_ = np.where(self.scale_ > 0, self.scale_, 1.0)  # the standard deviation of denormal numbers may be 0
        if self.method == "quantile":
            shares = np.linspace(0, 1, min(_QUANTILES, len(varying)))
            # numbers of the column, so that a frequent number is exactly equal to several quantiles
            self.quantiles_ = _quantiles(self._scaled(varying), shares.tolist(), self.random_state, "nearest")

    def transform(self, values: Array) -> Array:
        """Return the columns that vary, scaled, and then those that tell where values are missing."""
        bounded = np.where(np.isposinf(values), self.high_, np.where(np.isneginf(values), self.low_, values))
        missing = np.isnan(bounded)
        filled = np.clip(np.where(missing, self.median_, bounded), -_LARGEST, _LARGEST)[:, self.varies_]
        scaled = self._scaled(filled)
        if self.method == "quantile" and filled.shape[1]:
            scaled = _normal(scaled, self.quantiles_)
        elif self.method == "robust":
            scaled = smoothly_clipped(scaled)
        return np.hstack([scaled, missing[:, self.indicates_]])

    def beyond(self, values: Array) -> Array:
        """Return how far numbers are outside the range of training, in units of the scale.

        It is 0 for infinities, and 1 for missing values of columns that had none in training.
        """
        known = np.clip(np.where(np.isfinite(values), values, self.median_), -_LARGEST, _LARGEST)
        with np.errstate(over="ignore"):
            outside = np.maximum(np.maximum(known - self.high_, self.low_ - known), 0.0) / self.scale_
        news = np.isnan(values) & self.varies_ & ~self.indicates_
        return np.where(news, 1.0, np.minimum(outside, _FAR))

    def _check_loaded(self) -> None:
        d = self.low_.shape[0]
        for name in ("low_", "high_", "median_", "center_", "scale_"):
            array((d,))(name, vars(self)[name])
        for name in ("varies_", "indicates_"):
            array((d,), np.bool_)(name, vars(self)[name])
        array((None, int(self.varies_.sum()) if self.method == "quantile" else 0))("quantiles_", self.quantiles_)

    def _scaled(self, varying: Array) -> Array:
        with np.errstate(over="ignore"):
            scaled = (varying - self.center_[self.varies_]) / self.scale_[self.varies_]
        return np.clip(scaled, -_FAR, _FAR)


def smoothly_clipped(values: Array) -> Array:
    """Return x / sqrt(1 + (x / 3)^2), which is close to x for small x and bounded by 3."""
    return values / np.hypot(1.0, values / _CLIP)


def _normal(values: Array, quantiles: Array) -> Array:
    """Return normal quantiles, clipped at 3; like scikit-learn's `QuantileTransformer`, but faster.

    A frequent number, which is equal to several quantiles, gets their mean.
    """
    shares = np.linspace(0, 1, len(quantiles))
    levels = np.empty_like(values)
    for at, (column, known) in enumerate(zip(values.T, quantiles.T, strict=True)):
        last, first = np.interp(column, known, shares), -np.interp(-column, -known[::-1], -shares[::-1])
        levels[:, at] = (first + last) / 2
    return ndtri(np.clip(levels, ndtr(-_CLIP), ndtr(_CLIP)))


def _quantiles(values: Array, levels: Sequence[float], seed: int, method: str = "linear") -> Array:
    """Compute quantiles: of all columns without missing values at once, then of each other column."""
    result = np.empty((len(levels), values.shape[1]))
    missing = np.isnan(values).any(axis=0)
    rng = np.random.RandomState(seed)
    for group in (np.flatnonzero(~missing), *np.flatnonzero(missing).reshape(-1, 1)):
        known = values[:, group]
        known = known[~np.isnan(known).any(axis=1)]
        if len(known) > _MANY:
            known = known[rng.randint(len(known), size=_MANY)]
        result[:, group] = _of_sorted(np.sort(known, axis=0), levels, method)
    return result


def _of_sorted(values: Array, levels: Sequence[float], method: str) -> Array:
    """Return quantiles of sorted columns, a hundred times faster than `np.quantile`, which sorts them again."""
    place = np.asarray(levels) * (len(values) - 1)
    if method == "nearest":
        return np.asarray(values[np.around(place).astype(np.intp)])
    low = np.floor(place).astype(np.intp)
    share = (place - low).reshape(-1, *[1] * (values.ndim - 1))
    first, last = values[low], values[np.minimum(low + 1, len(values) - 1)]
    return np.asarray(np.where(share < 0.5, first + (last - first) * share, last - (last - first) * (1 - share)))
