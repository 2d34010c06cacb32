"""Losses: what it costs to give f where y was right, as a value, two derivatives and an inverse link.

A loss is one small class. `value`, `gradient` and `hessian` are functions of y and f, arrays of shape (n, k), entry by
entry; Newton's method (`gyrfalcon.solvers.newton`) needs nothing else, so a class of your own with these three works
in `FalkonRegressor` (numbers) and in `FalkonClassifier` (y of +1 and -1, one column for each class beyond two). All
losses here are convex, not negative, and finite with their derivatives wherever the answer is.

============ =============================== ============================= ==============
loss         y                               value                         prediction
============ =============================== ============================= ==============
`Squared`    numbers                         (f - y)^2 / 2                 f
`Huber`      numbers                         the same, linear beyond delta f
`Quantile`   numbers                         pinball, smoothed             f, in order
`Poisson`    counts, not negative            half the deviance             exp(f)
`Logistic`   -1 or +1                        log(1 + exp(-y f))            P(y = +1)
`Softmax`    probabilities of k classes      -sum_c y_c log p_c            p = softmax(f)
============ =============================== ============================= ==============
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, softmax, xlogy
from sklearn.base import BaseEstimator, clone

from ._utils.ranges import power_of_two
from ._utils.registry import register

__all__ = ["Huber", "Logistic", "Loss", "Poisson", "Quantile", "Softmax", "Squared", "as_loss"]

Array = NDArray[Any]

# A normal distribution's 75% quantile: a median of absolute deviations over this is its standard deviation.
_QUARTILE = 0.6744897501960817


class Loss(BaseEstimator):  # type: ignore[misc]
    """Base of all losses. A subclass gives `value`, `gradient` and `hessian`, and what else differs from f itself.

    Attributes
    ----------
    coupled : bool
        Whether the columns of f belong together, so that second derivatives across columns are not zero. Such a loss
        also gives `curvature`.
    probabilities : bool
        Whether `inverse_link` gives probabilities of classes.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import Loss
    >>> class SquaredHinge(Loss):
    ...     def value(self, y, f):
    ...         return 0.5 * np.square(np.maximum(1 - y * f, 0))
    ...     def gradient(self, y, f):
    ...         return -y * np.maximum(1 - y * f, 0)
    ...     def hessian(self, y, f):
    ...         return (y * f < 1).astype(f.dtype)
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon import FalkonClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = FalkonClassifier(loss=SquaredHinge(), n_centers=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    coupled: ClassVar[bool] = False
    probabilities: ClassVar[bool] = False

    def value(self, y: Array, f: Array) -> Array:
        """The loss, not negative: of shape (n, k), or (n, 1) where columns are coupled."""
        raise NotImplementedError(f"{type(self).__name__} must define value(y, f)")

    def gradient(self, y: Array, f: Array) -> Array:
        """First derivatives with respect to f, of shape (n, k)."""
        raise NotImplementedError(f"{type(self).__name__} must define gradient(y, f)")

    def hessian(self, y: Array, f: Array) -> Array:
        """Second derivatives, not negative: of shape (n, k); the diagonal of each row's where columns are coupled."""
        raise NotImplementedError(f"{type(self).__name__} must define hessian(y, f)")

    def curvature(self, y: Array, f: Array, T: Array) -> Array:
        """Each row's second derivatives times that row of T, of shape (n, k)."""
        return self.hessian(y, f) * T

    def curvature_at(self, y: Array, f: Array) -> Callable[[slice, Array], Array]:
        """`curvature` at one f that many T are multiplied with: a function of a slice of the rows, and of T there."""
        if self.coupled:
            return lambda rows, T: self.curvature(y[rows], f[rows], T)
        second = self.hessian(y, f)
        return lambda rows, T: second[rows] * T

    def inverse_link(self, f: Array) -> Array:
        """What f says about y, on y's own scale."""
        return f

    def check(self, y: Array, name: str = "y") -> None:
        """Raise ValueError if there is a y that the loss has no answer for."""

    def resolve(self, y: Array, weight: Array | None = None) -> Loss:
        """A copy with its parameters checked and those that depend on the targets y, of shape (n, k), worked out."""
        return clone(self)

    def stages(self) -> Sequence[Loss]:
        """Losses to be minimised one after another, each from where the last one led to; the last is this one."""
        return [self]

    def penalty_unit(self, y: Array, weight: Array | None = None) -> float:
        """What the penalty is multiplied with, so that the unit of y does not matter where it should not."""
        return 1.0

    def unit(self, y: Array, weight: Array | None = None) -> float:
        """A power of two near the size of y, if the loss of y / unit and f / unit is this one over the unit; else 1."""
        return 1.0

    def in_units(self, unit: float) -> Loss:
        """This loss for y and f that were divided by `unit`."""
        return self

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        """Numbers of shape (k,) that f is to be measured from: the best constants, or 0."""
        return np.zeros(y.shape[1])


@register
class Squared(Loss):
    """(f - y)^2 / 2: least squares."""

    def value(self, y: Array, f: Array) -> Array:
        return 0.5 * np.square(f - y)

    def gradient(self, y: Array, f: Array) -> Array:
        return f - y

    def hessian(self, y: Array, f: Array) -> Array:
        return np.ones_like(f)


@register
class Logistic(Loss):
    """log(1 + exp(-y f)) for y of -1 and +1: the negative log-likelihood of two classes with log-odds f."""

    probabilities = True

    def value(self, y: Array, f: Array) -> Array:
        return -log_expit(y * f)

    def gradient(self, y: Array, f: Array) -> Array:
        return -y * expit(-y * f)

    def hessian(self, y: Array, f: Array) -> Array:
        return expit(f) * expit(-f)  # 1 - expit(f) would be 0 too soon

    def inverse_link(self, f: Array) -> Array:
        p: Array = expit(f)
        return p

    def check(self, y: Array, name: str = "y") -> None:
        wrong = np.abs(y) != 1
        if wrong.any():
            raise ValueError(f"{name} holds {y[wrong][0]:g}: the logistic loss is for -1 and +1, one for each class")


@register
class Softmax(Loss):
    """-sum_c y_c log p_c with p = softmax(f): the negative log-likelihood of k classes, whose columns are coupled.

    A row of y holds the probabilities of the classes: usually 1 for the right one and 0 for the others.
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
        return self.curvature_at(y, f)(slice(None), T)

    def curvature_at(self, y: Array, f: Array) -> Callable[[slice, Array], Array]:
        p = self.inverse_link(f)
        return lambda rows, T: p[rows] * (T - np.einsum("ij,ij->i", p[rows], T)[:, None])

    def inverse_link(self, f: Array) -> Array:
        p: Array = softmax(f, axis=1)
        return p

    def check(self, y: Array, name: str = "y") -> None:
        if y.shape[1] < 2:
            raise ValueError(f"{name} has shape {y.shape}: the softmax loss needs a column for each class")
        if (y < 0).any() or (np.abs(y.sum(axis=1) - 1) > 1e-5).any():
            raise ValueError(f"rows of {name} must hold probabilities of the classes, which sum to one")


@register
class Huber(Loss):
    """(f - y)^2 / 2 up to |f - y| = delta, linear beyond: least squares that outliers cannot bend.

    Its gradient is continuous; where its second derivative jumps, the one from inside is taken.

    Parameters
    ----------
    delta : float, array of shape (k,), or "scale"
        Where it turns linear. "scale" is 1.35 times a robust standard deviation of y (its median absolute deviation
        from the median, divided by 0.674): with that, all that is not far out costs as in least squares.
    """

    def __init__(self, delta: float | ArrayLike | Literal["scale"] = "scale") -> None:
        self.delta = delta

    def resolve(self, y: Array, weight: Array | None = None) -> Huber:
        if isinstance(self.delta, str) and self.delta == "scale":
            return Huber(1.35 * _robust_deviation(y, weight))
        return Huber(_positive("delta", self.delta))

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        return _quantiles(y, 0.5, weight)

    def value(self, y: Array, f: Array) -> Array:
        size = np.abs(f - y)
        inside = np.minimum(size, self.delta)
        return inside * (size - 0.5 * inside)

    def gradient(self, y: Array, f: Array) -> Array:
        r = f - y
        return np.sign(r) * np.minimum(np.abs(r), self.delta)

    def hessian(self, y: Array, f: Array) -> Array:
        return (np.abs(f - y) <= self.delta).astype(f.dtype)


@register
class Quantile(Loss):
    """The pinball loss of quantiles, smoothed: level r + s log(1 + exp(-r / s)) with r = y - f.

    Without the smoothing s it is level r for r > 0 and (level - 1) r otherwise, whose best f is the quantile of that
    level but which has no second derivative. The smoothed one is above it by at most s log 2, and its best f is the
    quantile of y + s e, with e from the logistic distribution (standard deviation 1.8): the smoothing widens the
    distribution of y by that much and no more.

    Parameters
    ----------
    level : float or array of shape (k,)
        Levels between 0 and 1: one for all columns, or one for each.
    smoothing : float, array of shape (k,), or "scale"
        s, in units of y. "scale" is 0.03 times a robust standard deviation of y: if that is at most five times the
        noise's, the smoothing widens intervals by at most 4%. For less noise choose a tenth of its standard deviation
        or less. Smaller is more exact, and takes more iterations.
    ordered : bool
        Whether columns are quantiles of one y: predictions are then put in the order of the levels (rearrangement), so
        that they never cross.

    Notes
    -----
    The loss is of the first degree in y and the penalty |f|^2 of the second, so the penalty is divided by a robust
    standard deviation of y: the unit of y does not matter.
    """

    def __init__(
        self,
        level: float | ArrayLike = 0.5,
        smoothing: float | ArrayLike | Literal["scale"] = "scale",
        ordered: bool = False,
    ) -> None:
        self.level = level
        self.smoothing = smoothing
        self.ordered = ordered

    def resolve(self, y: Array, weight: Array | None = None) -> Quantile:
        level = _levels(self.level)
        if level.ndim and len(level) != y.shape[1]:
            raise ValueError(f"there are {len(level)} levels for {y.shape[1]} columns: give one, or one for each")
        given = level if level.ndim else float(level)
        if isinstance(self.smoothing, str) and self.smoothing == "scale":
            return Quantile(given, 0.03 * _robust_deviation(y, weight), self.ordered)
        return Quantile(given, _positive("smoothing", self.smoothing), self.ordered)

    def stages(self) -> Sequence[Loss]:
        # with little smoothing few rows have any curvature, and Newton's steps are short
        smoothing = np.asarray(self.smoothing)
        return [Quantile(self.level, factor * smoothing, self.ordered) for factor in (9, 3, 1)]

    def penalty_unit(self, y: Array, weight: Array | None = None) -> float:
        # the loss is of the first degree in y and the penalty of the second
        return 1 / float(np.mean(_robust_deviation(y, weight)))

    def unit(self, y: Array, weight: Array | None = None) -> float:
        return power_of_two(np.asarray(_robust_deviation(y, weight)).mean())

    def in_units(self, unit: float) -> Quantile:
        return Quantile(self.level, np.asarray(self.smoothing) / unit, self.ordered)

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        return _quantiles(y, self.level, weight)

    def value(self, y: Array, f: Array) -> Array:
        r = y - f
        return self._level(f) * r - self.smoothing * log_expit(r / self.smoothing)

    def gradient(self, y: Array, f: Array) -> Array:
        return expit((f - y) / self.smoothing) - self._level(f)

    def hessian(self, y: Array, f: Array) -> Array:
        r = (y - f) / self.smoothing
        return expit(r) * expit(-r) / self.smoothing

    def inverse_link(self, f: Array) -> Array:
        level = np.asarray(self.level)
        if not self.ordered or level.ndim == 0 or len(level) == 1:
            return f
        ordered = np.empty_like(f)
        ordered[:, np.argsort(level, kind="stable")] = np.sort(f, axis=1)
        return ordered

    def _level(self, f: Array) -> Array:
        return np.asarray(self.level, dtype=f.dtype)


@register
class Poisson(Loss):
    """exp(f) - y f, less its least value: half the deviance of counts y whose mean is exp(f)."""

    def value(self, y: Array, f: Array) -> Array:
        with np.errstate(over="ignore"):  # infinite is what it is, and a line search turns back from there
            return np.exp(f) - y * f + (xlogy(y, y) - y)

    def gradient(self, y: Array, f: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(f) - y

    def hessian(self, y: Array, f: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(f)

    def inverse_link(self, f: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(f)

    def check(self, y: Array, name: str = "y") -> None:
        if (y < 0).any():
            raise ValueError(f"{name} holds {y.min():g}: the Poisson loss is for counts, which are not negative")

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        mean: Array = np.average(y.astype(np.float64), axis=0, weights=weight)
        return np.log(np.where(mean > 0, mean, 1.0))


NAMES: dict[str, type[Loss]] = {
    "squared": Squared,
    "logistic": Logistic,
    "huber": Huber,
    "quantile": Quantile,
    "poisson": Poisson,
}


def as_loss(loss: Loss | str) -> Loss:
    """A loss from itself or from its name.

    Parameters
    ----------
    loss : Loss or {"squared", "logistic", "huber", "quantile", "poisson"}

    Examples
    --------
    >>> from gyrfalcon.losses import as_loss
    >>> as_loss("huber")
    Huber()
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in NAMES:
        return NAMES[loss]()
    raise ValueError(f"loss={loss!r} must be one of {', '.join(map(repr, NAMES))}, or a gyrfalcon.losses.Loss")


def _positive(name: str, value: Any) -> Any:
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "fiu" or numbers.ndim > 1 or not ((numbers > 0) & (numbers < np.inf)).all():
        raise ValueError(f'{name}={value!r} must be "scale" or positive and finite, one number or one for each column')
    return numbers.astype(np.float64) if numbers.ndim else float(numbers)


def _levels(value: Any) -> Array:
    try:
        level = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        level = np.empty(0)
    if level.ndim > 1 or not level.size or not ((level > 0) & (level < 1)).all():
        raise ValueError(f"level={value!r} must be a number between 0 and 1, both excluded, or a list of such numbers")
    return level


def _quantiles(y: Array, level: ArrayLike, weight: Array | None) -> Array:
    """The quantile of each column of y, by one level for all or one for each; a row of weight 2 is two rows."""
    out = np.empty(y.shape[1])
    for j, tau in enumerate(np.broadcast_to(np.asarray(level, dtype=np.float64), out.shape)):
        order = np.argsort(y[:, j], kind="stable")
        share = np.cumsum(np.ones(len(y)) if weight is None else weight[order])
        at = np.searchsorted(share, tau * share[-1] * (1 - 1e-9))  # not the next one because of rounding
        out[j] = y[order[min(at, len(order) - 1)], j]
    return out


def _robust_deviation(y: Array, weight: Array | None) -> Any:
    """Standard deviation of each column's entries that are not far out: a number, or (k,) numbers.

    Where most entries are equal the plain one, and where all are, a thousandth of their size.
    """
    y = y.astype(np.float64)
    distance = np.abs(y - _quantiles(y, 0.5, weight))
    deviation = _quantiles(distance, 0.5, weight) / _QUARTILE
    with np.errstate(over="ignore"):  # such y are refused, with their size
        plain = np.sqrt(np.average(np.square(distance), axis=0, weights=weight))
    for otherwise in (plain, 1e-3 * np.abs(y).max(axis=0)):
        deviation = np.where(deviation > 0, deviation, otherwise)
    deviation = np.where(deviation > 0, deviation, 1e-3)
    return float(deviation[0]) if (deviation == deviation[0]).all() else deviation
