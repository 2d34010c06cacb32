"""The losses that have a name, and how to find them by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, xlogy

from .._utils.checks import Rule, numbers
from .._utils.portable import beside, library, sorted_rows, special
from .._utils.ranges import power_of_two
from .._utils.registry import register
from .._utils.statistics import average, means, quantiles, robust_deviation, shares
from .._utils.words import hint, listed
from .base import Array, Curvature, Loss, PortableLoss
from .margins import Hinge, SquaredHinge, check_signs

Width = float | ArrayLike | Literal["scale"]

_POSITIVE = numbers(
    lambda x: 0 < x < np.inf, 'positive and finite: a number, one for each column, or "scale"', scalar=True
)
_NOT_NEGATIVE = numbers(
    lambda x: 0 <= x < np.inf, 'not negative and finite: a number, one for each column, or "scale"', scalar=True
)
_LEVEL = numbers(lambda x: 0 < x < 1, "a number between 0 and 1, both excluded, or a list of such numbers", scalar=True)


@register
class Squared(PortableLoss):
    """Squared loss, (f - y)^2 / 2.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import Squared
    >>> Squared().value(np.array([[1.0], [3.0]]), np.array([[0.0], [0.0]])).round(3).tolist()
    [[0.5], [4.5]]
    """

    def value(self, y: Array, f: Array) -> Array:
        return 0.5 * np.square(f - y)

    def gradient(self, y: Array, f: Array) -> Array:
        return f - y

    def hessian(self, y: Array, f: Array) -> Array:
        return np.ones_like(f)

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        return means(y, weight)


@register
class Logistic(PortableLoss):
    """Logistic loss, log(1 + exp(-y f)) for y of -1 and +1: negative log-likelihood of two classes with log-odds f.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import Logistic
    >>> Logistic().value(np.array([[1.0], [-1.0]]), np.array([[0.0], [2.0]])).round(3).tolist()
    [[0.693], [2.127]]
    """

    probabilities = True

    def value(self, y: Array, f: Array) -> Array:
        return -log_expit(y * f)

    def gradient(self, y: Array, f: Array) -> Array:
        return -y * special(f).expit(-y * f)

    def hessian(self, y: Array, f: Array) -> Array:
        return expit(f) * expit(-f)  # 1 - expit(f) would lose its digits

    def inverse_link(self, f: Array) -> Array:
        p: Array = special(f).expit(f)
        return p

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        share = np.clip((means(y, weight) + 1) / 2, least := 0.5 / len(y), 1 - least)
        return np.log(share) - np.log1p(-share)

    def check(self, y: Array, name: str = "y") -> None:
        check_signs(y, name, "logistic")


@register
class Softmax(PortableLoss):
    """Softmax loss, -sum_c y_c log p_c with p = softmax(f): negative log-likelihood of k classes.

    A row of y holds the probabilities of the classes: usually 1 for the true one and 0 for the others. Columns of f are
    coupled.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import Softmax
    >>> Softmax().value(np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 0.0, 0.0]])).round(3).tolist()
    [[1.099]]
    """

    coupled = True
    probabilities = True

    def value(self, y: Array, f: Array) -> Array:
        below = f - f.max(axis=1, keepdims=True)
        return (y * (np.log(np.exp(below).sum(axis=1, keepdims=True)) - below)).sum(axis=1, keepdims=True)

    def gradient(self, y: Array, f: Array) -> Array:
        return self.inverse_link(f) - y

    def hessian(self, y: Array, f: Array) -> Array:
        p = self.inverse_link(f)
        return p * (1 - p)

    def curvature(self, y: Array, f: Array, T: Array) -> Array:
        return _softmax_curvature(T, self.inverse_link(f))

    def curvature_at(self, y: Array, f: Array) -> Curvature:
        return Curvature(_softmax_curvature, (self.inverse_link(f),), portable=True)

    def inverse_link(self, f: Array) -> Array:
        p: Array = special(f).softmax(f, 1)
        return p

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        return np.log(shares(y, weight))

    def check(self, y: Array, name: str = "y") -> None:
        if y.shape[1] < 2:
            raise ValueError(f"{name} has shape {y.shape}: the softmax loss needs a column for each class")
        if (y < 0).any() or (np.abs(y.sum(axis=1) - 1) > 1e-5).any():
            raise ValueError(f"each row of {name} must hold the probabilities of the classes, which sum to one")


@register
class Huber(PortableLoss):
    """Huber loss, (f - y)^2 / 2 up to |f - y| = delta and linear beyond: least squares that is robust to outliers.

    The gradient is continuous. Where the second derivative jumps, it is that of the quadratic part.

    Parameters
    ----------
    delta : float, array of shape (k,), or "scale"
        Where the loss becomes linear. "scale" is 1.35 times a robust standard deviation of y (its median absolute
        deviation from the median, divided by 0.674), so that only outliers are treated differently from least squares.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import Huber
    >>> Huber(delta=1.0).value(np.array([[0.0], [0.0]]), np.array([[0.5], [3.0]])).round(3).tolist()
    [[0.125], [2.5]]
    """

    def __init__(self, delta: Width = "scale") -> None:
        self.delta = delta

    def resolve(self, y: Array, weight: Array | None = None) -> Huber:
        return Huber(_width("delta", self.delta, 1.35, y, weight))

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        return quantiles(y, 0.5, weight)

    def value(self, y: Array, f: Array) -> Array:
        size = np.abs(f - y)
        inside = np.minimum(size, self.delta)
        return inside * (size - 0.5 * inside)

    def gradient(self, y: Array, f: Array) -> Array:
        delta = beside(self.delta, f)
        residual = f - y
        return library(residual).clip(residual, -delta, delta)

    def hessian(self, y: Array, f: Array) -> Array:
        return (np.abs(f - y) <= self.delta).astype(f.dtype)


@register
class SquaredEpsilonInsensitive(PortableLoss):
    """Squared epsilon-insensitive loss, max(0, |f - y| - epsilon)^2: support vector regression with squared slacks.

    Errors of up to epsilon cost nothing. The gradient is continuous, and only rows with larger errors have a second
    derivative.

    Parameters
    ----------
    epsilon : float, array of shape (k,), or "scale"
        Size of the errors that cost nothing. "scale" is 0.1 times a robust standard deviation of y.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import SquaredEpsilonInsensitive
    >>> loss = SquaredEpsilonInsensitive(epsilon=0.5)
    >>> loss.value(np.array([[0.0], [0.0]]), np.array([[0.4], [-2.0]])).round(3).tolist()
    [[0.0], [2.25]]
    """

    sharp = True

    def __init__(self, epsilon: Width = "scale") -> None:
        self.epsilon = epsilon

    def resolve(self, y: Array, weight: Array | None = None) -> SquaredEpsilonInsensitive:
        return SquaredEpsilonInsensitive(_width("epsilon", self.epsilon, 0.1, y, weight, _NOT_NEGATIVE))

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        return means(y, weight)

    def value(self, y: Array, f: Array) -> Array:
        return np.square(np.maximum(np.abs(f - y) - beside(self.epsilon, f), 0))

    def gradient(self, y: Array, f: Array) -> Array:
        epsilon = beside(self.epsilon, f)
        residual = f - y
        return 2 * (residual - library(residual).clip(residual, -epsilon, epsilon))

    def hessian(self, y: Array, f: Array) -> Array:
        return 2 * (np.abs(f - y) >= beside(self.epsilon, f)).astype(f.dtype)


@register
class Quantile(PortableLoss):
    """Smoothed pinball loss of quantiles, level r + s log(1 + exp(-r / s)) with r = y - f.

    Without the smoothing s it is level r for r > 0 and (level - 1) r otherwise, whose minimiser is the quantile of that
    level but which has no second derivative. The smoothed loss exceeds it by at most s log 2, and its minimiser is the
    quantile of y + s e, with e from the logistic distribution (standard deviation 1.8): smoothing widens the
    distribution of y by that much. The loss is of degree 1 in y and the penalty |f|^2 of degree 2, so the penalty is
    divided by a robust standard deviation of y: the solution does not depend on the unit of y.

    Parameters
    ----------
    level : float or array of shape (k,)
        Levels between 0 and 1: one for all columns, or one for each.
    smoothing : float, array of shape (k,), or "scale"
        s, in units of y. "scale" is 0.03 times a robust standard deviation of y: if that is at most five times the
        standard deviation of the noise, intervals are at most 4% too wide. For less noise choose at most a tenth of its
        standard deviation. Smaller values are more accurate and take more iterations.
    ordered : bool
        Whether columns are quantiles of the same y: predictions are then sorted in the order of the levels, so that
        they never cross.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import Quantile
    >>> Quantile(level=0.9, smoothing=0.01).value(np.array([[1.0], [-1.0]]), np.array([[0.0], [0.0]])).round(3).tolist()
    [[0.9], [0.1]]
    """

    def __init__(self, level: float | ArrayLike = 0.5, smoothing: Width = "scale", ordered: bool = False) -> None:
        self.level = level
        self.smoothing = smoothing
        self.ordered = ordered

    def resolve(self, y: Array, weight: Array | None = None) -> Quantile:
        _LEVEL("level", self.level)
        level = np.asarray(self.level, dtype=np.float64)
        if level.ndim and len(level) != y.shape[1]:
            raise ValueError(f"there are {len(level)} levels for {y.shape[1]} columns: give one, or one for each")
        smoothing = _width("smoothing", self.smoothing, 0.03, y, weight)
        return Quantile(level if level.ndim else float(level), smoothing, self.ordered)

    def stages(self) -> Sequence[Loss]:
        # with little smoothing few rows have curvature, and Newton's steps would be short
        smoothing = np.asarray(self.smoothing)
        return [Quantile(self.level, factor * smoothing, self.ordered) for factor in (9, 3, 1)]

    def penalty_unit(self, y: Array, weight: Array | None = None) -> float:
        return 1 / float(np.mean(robust_deviation(y, weight)))

    def unit(self, y: Array, weight: Array | None = None) -> float:
        return power_of_two(np.asarray(robust_deviation(y, weight)).mean())

    def in_units(self, unit: float) -> Quantile:
        return Quantile(self.level, np.asarray(self.smoothing) / unit, self.ordered)

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        return quantiles(y, self.level, weight)

    def value(self, y: Array, f: Array) -> Array:
        r = y - f
        return np.asarray(self.level, dtype=f.dtype) * r - self.smoothing * log_expit(r / self.smoothing)

    def gradient(self, y: Array, f: Array) -> Array:
        return special(f).expit((f - y) / beside(self.smoothing, f)) - beside(self.level, f)

    def hessian(self, y: Array, f: Array) -> Array:
        r = (y - f) / self.smoothing
        return expit(r) * expit(-r) / self.smoothing

    def inverse_link(self, f: Array) -> Array:
        level = np.asarray(self.level)
        if not self.ordered or level.ndim == 0 or len(level) == 1:
            return f
        ordered = library(f).empty_like(f)
        ordered[:, np.argsort(level, kind="stable")] = sorted_rows(f)
        return ordered


@register
class Poisson(PortableLoss):
    """Poisson loss, exp(f) - y f minus its minimum: half the deviance of counts y with mean exp(f).

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import Poisson
    >>> Poisson().value(np.array([[1.0], [2.0]]), np.array([[0.0], [0.0]])).round(3).tolist()
    [[0.0], [0.386]]
    """

    def value(self, y: Array, f: Array) -> Array:
        with np.errstate(over="ignore"):  # line searches reject an infinite loss
            return np.exp(f) - y * f + (xlogy(y, y) - y)

    def gradient(self, y: Array, f: Array) -> Array:
        return self.inverse_link(f) - y

    def hessian(self, y: Array, f: Array) -> Array:
        return self.inverse_link(f)

    def inverse_link(self, f: Array) -> Array:
        with np.errstate(over="ignore"):
            mean: Array = library(f).exp(f)
            return mean

    def check(self, y: Array, name: str = "y") -> None:
        if y.min() < 0:
            raise ValueError(f"{name} holds {y.min():g}: the Poisson loss needs counts, which are not negative")

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        mean = average(y, weight)
        return np.log(np.where(mean > 0, mean, 1.0))


_OF_BOTH: dict[str, type[Loss]] = {"squared": Squared}
OF_LABELS: dict[str, type[Loss]] = {"logistic": Logistic, "squared_hinge": SquaredHinge, "hinge": Hinge}
OF_NUMBERS: dict[str, type[Loss]] = {
    "huber": Huber,
    "quantile": Quantile,
    "poisson": Poisson,
    "squared_epsilon_insensitive": SquaredEpsilonInsensitive,
}
NAMES = {**_OF_BOTH, **OF_LABELS, **OF_NUMBERS}
# scikit-learn's names of losses, and the names here
ALIASES = {"squared_error": "squared", "absolute_error": "quantile", "log_loss": "logistic"}


def loss_name(loss: Any) -> str | None:
    """Return the name in `NAMES` of a loss given by name, scikit-learn's names included, or None for an object."""
    return ALIASES.get(loss, loss) if isinstance(loss, str) else None


def as_loss(loss: Loss | str) -> Loss:
    """Convert a name or a loss to a loss.

    Parameters
    ----------
    loss : Loss, "squared", "logistic", "squared_hinge", "hinge", "huber", "quantile", "poisson", or \
            "squared_epsilon_insensitive"
        Or one of scikit-learn's names: "squared_error" is "squared", "absolute_error" is "quantile" at the level 0.5
        (the median), and "log_loss" is "logistic".

    Examples
    --------
    >>> from gyrfalcon.losses import as_loss
    >>> as_loss("huber"), as_loss("squared_error")
    (Huber(), Squared())
    """
    if isinstance(loss, Loss):
        return loss
    name = loss_name(loss)
    if name in NAMES:
        return NAMES[name]()
    meant = hint(loss, NAMES) if isinstance(loss, str) else ""
    raise ValueError(f"loss={loss!r} must be one of {listed(NAMES, None)}, or a gyrfalcon.losses.Loss{meant}")


def _softmax_curvature(T: Array, p: Array) -> Array:
    return p * (T - (p * T).sum(1)[:, None])


def _width(name: str, value: Width, factor: float, y: Array, weight: Array | None, rule: Rule = _POSITIVE) -> Any:
    """Return a checked width in the units of y; "scale" is `factor` times a robust standard deviation of y."""
    if isinstance(value, str) and value == "scale":
        return factor * robust_deviation(y, weight)
    rule(name, value)
    given = np.asarray(value)
    return given.astype(np.float64) if given.ndim else float(given)
