"""What a fit learns in the place of y, and how predictions of y come from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_SKEWED = 1.0
_NARROWEST = 1e-3  # logarithms that differ less are as good as y
_WIDEST = 30.0  # exponents beyond this are no predictions


@dataclass(frozen=True)
class Target:
    """y itself.

    Here y is in deviations from its mean.
    """

    name: str = "y"

    def learnt(self, y: Array) -> Array:
        """Return what is learnt of y, with mean 0 and variance 1."""
        return y

    def restored(self, f: Array) -> Array:
        """Return the predictions of y that belong to values of the learnt function."""
        return f

    def from_learnt(self, predictions: Array) -> Array:
        """Return predictions of y in its own units, from those of what was learnt."""
        return predictions


@dataclass(frozen=True)
class LogTarget(Target):
    """The logarithm of a positive y.

    Attributes
    ----------
    mean, deviation : of y
    center, width : of log y
    """

    name: str = "log y"
    mean: float = 0.0
    deviation: float = 1.0
    center: float = 0.0
    width: float = 1.0

    def learnt(self, y: Array) -> Array:
        least = np.finfo(np.float64).eps * (self.mean + self.deviation)  # smaller y have been rounded away, even to 0
        return np.asarray((np.log(np.maximum(y * self.deviation + self.mean, least)) - self.center) / self.width)

    def restored(self, f: Array) -> Array:
        exponents = np.clip(f * self.width, -_WIDEST, _WIDEST) + self.center
        return np.asarray((np.exp(exponents) - self.mean) / self.deviation)

    def from_learnt(self, predictions: Array) -> Array:
        return np.asarray(np.exp(np.clip(predictions - self.center, -_WIDEST, _WIDEST) + self.center))


def moments(y: Array) -> tuple[Any, Any]:
    """Return mean and standard deviation of the columns of y, however large or small its numbers are."""
    largest = np.abs(y).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)
    return (y / unit).mean(axis=0) * unit, (y / unit).std(axis=0) * unit


def targets_of(y: Array) -> list[Target]:
    """Return the ways to learn y: y itself, and its logarithm if y is positive and skewed.

    Parameters
    ----------
    y : array of shape (n,)
    """
    targets = [Target()]
    mean, deviation = moments(y)
    if not (y > 0).all() or not deviation > 0:
        return targets
    if float(np.mean(((y - mean) / deviation) ** 3)) < _SKEWED:
        return targets
    logs = np.log(y)
    if logs.std() < _NARROWEST:
        return targets
    return [
        *targets,
        LogTarget(mean=float(mean), deviation=float(deviation), center=float(logs.mean()), width=float(logs.std())),
    ]
