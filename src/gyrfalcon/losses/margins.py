"""Losses of margins y f, which make a classifier a support vector machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit, log_expit

from .._utils.checks import number
from .._utils.portable import library, special
from .._utils.registry import register
from .._utils.statistics import means
from .base import Array, Loss, PortableLoss

_SMOOTHING = number(lambda x: 0 < x < np.inf, "a positive, finite number")


def check_signs(y: Array, name: str, loss: str) -> None:
    """Raise ValueError if a target is neither -1 nor +1."""
    wrong = np.abs(y) != 1
    if wrong.any():
        raise ValueError(
            f"{name} holds {y[wrong][0]:g}: the {loss} loss needs targets of -1 and +1, one for each class"
        )


class _Margin(PortableLoss):
    """A loss of margins; `offset` is the mean of y, the best constant of the squared hinge.

    The best constant of the hinge itself is the more frequent sign, which jumps where both are equally frequent.
    """

    sharp = True

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        return means(y, weight)


@register
class SquaredHinge(_Margin):
    """Squared hinge loss, max(0, 1 - y f)^2 for y of -1 and +1: a support vector machine with squared slacks.

    The gradient is continuous, and only rows with y f <= 1 have a second derivative: Newton's method solves least
    squares on these rows, the support vectors, until they no longer change.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import SquaredHinge
    >>> SquaredHinge().value(np.array([[1.0], [-1.0], [1.0]]), np.array([[0.5], [1.0], [2.0]])).round(3).tolist()
    [[0.25], [4.0], [0.0]]
    """

    def value(self, y: Array, f: Array) -> Array:
        return np.square(np.maximum(1 - y * f, 0))

    def gradient(self, y: Array, f: Array) -> Array:
        slack = 1 - y * f
        return -2 * y * library(slack).clip(slack, 0, None)

    def hessian(self, y: Array, f: Array) -> Array:
        return 2 * (y * f <= 1).astype(f.dtype)

    def check(self, y: Array, name: str = "y") -> None:
        check_signs(y, name, "squared hinge")


@register
class Hinge(_Margin):
    """Smoothed hinge loss, s log(1 + exp((1 - y f) / s)) for y of -1 and +1: a support vector machine.

    Without the smoothing s it is max(0, 1 - y f), which has no second derivative. The smoothed loss exceeds it by
    at most s log 2, at the margin y f = 1. Therefore mean(max(0, 1 - y f)) + penalty / 2 |f|^2 of the solution exceeds
    its least value by at most s log 2 (0.014 for the default; 0.001 was typical where the least value was 0.2 to 0.6).

    Parameters
    ----------
    smoothing : float, default=0.02
        s, in units of the margin. Smaller values are more accurate and take more iterations.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import Hinge
    >>> Hinge().value(np.array([[1.0], [-1.0], [1.0]]), np.array([[0.5], [1.0], [1.0]])).round(3).tolist()
    [[0.5], [2.0], [0.014]]
    """

    def __init__(self, smoothing: float = 0.02) -> None:
        self.smoothing = smoothing

    def resolve(self, y: Array, weight: Array | None = None) -> Hinge:
        _SMOOTHING("smoothing", self.smoothing)
        return Hinge(float(self.smoothing))

    def stages(self) -> Sequence[Loss]:
        # with little smoothing few rows have curvature, and Newton's steps would be short
        return [Hinge(factor * self.smoothing) for factor in (9, 3, 1)]

    def value(self, y: Array, f: Array) -> Array:
        return -self.smoothing * log_expit((y * f - 1) / self.smoothing)

    def gradient(self, y: Array, f: Array) -> Array:
        return -y * special(f).expit((1 - y * f) / self.smoothing)

    def hessian(self, y: Array, f: Array) -> Array:
        slack = (1 - y * f) / self.smoothing
        return expit(slack) * expit(-slack) / self.smoothing

    def check(self, y: Array, name: str = "y") -> None:
        check_signs(y, name, "hinge")
