"""Transforms of y: what models learn in place of y, and how predictions of y are computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_SKEWED = 1.0  # least skewness of y for which its logarithm is tried
_NARROWEST = 1e-3  # standard deviation of log y below which log y is nearly linear in y
_MARGIN = 30.0  # how far a predicted log y may be outside its range in training before it is clipped
_EQUAL = 1e-14  # a standard deviation below this share of the mean is rounding
_FAR = 1e3  # numbers further from zero than this many standard deviations lose digits in float32
_LARGEST = 1e15  # standard deviations beyond this, or below its inverse, have squares that overflow in float32


@dataclass(frozen=True, eq=False)
class Target:
    """y itself, or (y - shift) / unit if float32 could not tell its numbers apart.

    The search works with y in standard deviations from its mean, which `standard_forward` and `standard_inverse` take
    and return; the final fits work with y in its own units.
    """

    name: ClassVar[str] = "y"
    shift: Any = 0.0
    unit: Any = 1.0

    def forward(self, y: Array) -> Array:
        """Return what models learn in place of y."""
        return np.asarray((y.reshape(len(y), -1) - self.shift) / self.unit).reshape(y.shape)

    def inverse(self, predictions: Array) -> Array:
        """Return predictions of y from predictions of what models learn, with a column for each output."""
        return np.asarray(predictions.reshape(len(predictions), -1) * self.unit + self.shift)

    def standard_forward(self, y: Array) -> Array:
        """Return what the search learns, with mean 0 and variance 1, from standardised y."""
        return y

    def standard_inverse(self, predictions: Array) -> Array:
        """Return predictions of standardised y from predictions of what the search learns."""
        return predictions


@dataclass(frozen=True, eq=False)
class LogTarget(Target):
    """The logarithm of a positive y with one output.

    functions : the logarithm and its inverse
    least, most : the range of log y in training
    mean, deviation : mean and standard deviation of y, which are needed by the search alone
    center, width : mean and standard deviation of log y, which are needed by the search alone
    """

    name: ClassVar[str] = "log y"
    functions: ClassVar[tuple[np.ufunc, np.ufunc]] = (np.log, np.exp)
    least: float = 0.0
    most: float = 0.0
    mean: float = 0.0
    deviation: float = 1.0
    center: float = 0.0
    width: float = 1.0

    def forward(self, y: Array) -> Array:
        return np.asarray(self.functions[0](y))

    def inverse(self, predictions: Array) -> Array:
        columns = predictions.reshape(len(predictions), -1)
        return np.asarray(self.functions[1](np.clip(columns, self.least - _MARGIN, self.most + _MARGIN)))

    def standard_forward(self, y: Array) -> Array:
        # y below the rounding of its largest values was rounded, possibly to 0 or less, when y was standardised
        rounding = np.finfo(np.float64).eps * (self.mean + self.deviation)
        return (self.forward(np.maximum(y * self.deviation + self.mean, rounding)) - self.center) / self.width

    def standard_inverse(self, predictions: Array) -> Array:
        return (self.inverse(predictions * self.width + self.center) - self.mean) / self.deviation


def moments(y: Array) -> tuple[Any, Any]:
    """Return mean and standard deviation of the columns of y without overflow; 1 if a column is constant."""
    largest = np.abs(y).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)
    mean, deviation = (y / unit).mean(axis=0) * unit, (y / unit).std(axis=0) * unit
    return mean, np.where(deviation > _EQUAL * np.abs(mean), deviation, 1.0)


def targets_of(y: Array) -> list[Target]:
    """Return the ways to learn y: y itself, and its logarithm if y has one output and is positive and skewed."""
    columns = y.reshape(len(y), -1).astype(np.float64)
    means, deviations = moments(columns)
    plain = (np.abs(means) <= _FAR * deviations) & (deviations > 1 / _LARGEST) & (deviations < _LARGEST)
    targets = [Target(np.where(plain, 0.0, means), np.where(plain, 1.0, deviations))]
    if y.ndim > 1:
        return targets
    mean, deviation = moments(y)
    if not (y > 0).all() or float(np.mean(((y - mean) / deviation) ** 3)) < _SKEWED:
        return targets
    logs = LogTarget().forward(y)
    if logs.std() < _NARROWEST:
        return targets
    known = (logs.min(), logs.max(), mean, deviation, logs.mean(), logs.std())
    names = ("least", "most", "mean", "deviation", "center", "width")
    return [*targets, LogTarget(**{name: float(value) for name, value in zip(names, known, strict=True)})]
