"""Columns of numbers: missing values, infinities, wild scales and outliers."""

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

_LARGEST = 1e280  # sums and differences of such numbers are finite
_CLIP = 3.0
_QUANTILES = 1000
_MANY = 100_000  # rows that quantiles are computed from
_FAR = 1e30  # the largest output, which float32 has too
# Ranges between quantiles in units of that between quartiles, for normal numbers
_RANGES = ((0.25, 0.75, 1.0), (0.05, 0.95, 2.4387), (0.01, 0.99, 3.4490))
_DEVIATION = 1.3490  # the range between quartiles in standard deviations


@register
class NumberColumns(BaseEstimator):  # type: ignore[misc]
    """Numbers of about unit size, with 0/1 columns that say where values were missing.

    Parameters
    ----------
    method : {"robust", "standard", "quantile"}
        See `numbers` of `TableEncoder`.
    random_state : int
        Seed of the rows that quantiles are computed from, where there are more than 100,000.

    Attributes
    ----------
    low_, high_ : array of shape (n_columns,)
        Least and largest finite number, which stand for infinities.
    median_ : array of shape (n_columns,)
        What stands for missing values.
    center_, scale_ : array of shape (n_columns,)
        What is subtracted, and what is divided by.
    varies_ : array of bool of shape (n_columns,)
        Whether the column has two numbers; else only its missing values can tell anything.
    indicates_ : array of bool of shape (n_columns,)
        Whether some values were missing and others not.
    quantiles_ : array of shape (n_quantiles, n_varying)
        Of the scaled columns, for the method "quantile".
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
        """Learn scales.

        Parameters
        ----------
        values : array of shape (n, n_columns)
            NaN is missing.
        """
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
        unit = (varying - low) / span  # squares of which are finite
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
        self.scale_ = np.where(self.scale_ > 0, self.scale_, 1.0)  # the deviation of denormal numbers may be 0
        if self.method == "quantile":
            shares = np.linspace(0, 1, min(_QUANTILES, len(varying)))
            # numbers of the column itself, so that those that are there often are quantiles of several shares exactly
            self.quantiles_ = _quantiles(self._scaled(varying), shares.tolist(), self.random_state, "nearest")

    def transform(self, values: Array) -> Array:
        """Return the columns that vary, and then those that say where values are missing."""
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
        """Return how far numbers are outside those of training, in units of the scale; 1 for the first missing ones.

        Parameters
        ----------
        values : array of shape (n, n_columns)

        Returns
        -------
        array of shape (n, n_columns), zero for infinities, which stand for the least and the largest number
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
    """Return x / sqrt(1 + (x / 3)^2), which is near x for small x and never beyond 3."""
    return values / np.hypot(1.0, values / _CLIP)


def _normal(values: Array, quantiles: Array) -> Array:
    """Return normal quantiles, clipped at 3; like scikit-learn's `QuantileTransformer`, but faster.

    A number that is several quantiles, since it was there often, has their middle.
    """
    shares = np.linspace(0, 1, len(quantiles))
    levels = np.empty_like(values)
    for at, (column, known) in enumerate(zip(values.T, quantiles.T, strict=True)):
        last, first = np.interp(column, known, shares), -np.interp(-column, -known[::-1], -shares[::-1])
        levels[:, at] = (first + last) / 2
    return ndtri(np.clip(levels, ndtr(-_CLIP), ndtr(_CLIP)))


def _quantiles(values: Array, levels: Sequence[float], seed: int, method: str = "linear") -> Array:
    """Compute quantiles of columns with missing values: of all columns without any at once, then of each other one."""
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
    """Return quantiles of sorted columns; `np.quantile` would sort them again, which takes a hundred times as long."""
    place = np.asarray(levels) * (len(values) - 1)
    if method == "nearest":
        return np.asarray(values[np.around(place).astype(np.intp)])
    low = np.floor(place).astype(np.intp)
    share = (place - low).reshape(-1, *[1] * (values.ndim - 1))
    first, last = values[low], values[np.minimum(low + 1, len(values) - 1)]
    return np.asarray(np.where(share < 0.5, first + (last - first) * share, last - (last - first) * (1 - share)))
