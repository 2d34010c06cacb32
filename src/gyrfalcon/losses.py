"""Losses of predictions f for targets y: a value, two derivatives and an inverse link.

`value`, `gradient` and `hessian` are functions of y and f, arrays of shape (n, k), entry by entry. Newton's method
(`gyrfalcon.solvers.newton`) needs nothing else, so a subclass of `Loss` with these three methods works in
`FalkonRegressor` (numbers) and in `FalkonClassifier` (y of +1 and -1; with more than two classes, one column for each).
All losses here are convex, not negative, and they and their derivatives overflow only where the exact result does.

============ =============================== ============================= ==============
loss         y                               value                         prediction
============ =============================== ============================= ==============
`Squared`    numbers                         (f - y)^2 / 2                 f
`Huber`      numbers                         same, linear beyond delta     f
`Quantile`   numbers                         pinball, smoothed             f, sorted
`Poisson`    counts, not negative            half the deviance             exp(f)
`Logistic`   -1 or +1                        log(1 + exp(-y f))            P(y = +1)
`Softmax`    probabilities of k classes      -sum_c y_c log p_c            p = softmax(f)
============ =============================== ============================= ==============
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, xlogy
from sklearn.base import BaseEstimator, clone

from ._utils.checks import numbers
from ._utils.portable import beside, library, sorted_rows, special
from ._utils.ranges import power_of_two
from ._utils.registry import register
from ._utils.statistics import means, quantiles, robust_deviation, shares
from ._utils.words import hint, listed

__all__ = ["Huber", "Logistic", "Loss", "Poisson", "Quantile", "Softmax", "Squared", "as_loss"]

Array = NDArray[Any]
Width = float | ArrayLike | Literal["scale"]

_POSITIVE = numbers(
    lambda x: 0 < x < np.inf, 'positive and finite: a number, one for each column, or "scale"', scalar=True
)
_LEVEL = numbers(lambda x: 0 < x < 1, "a number between 0 and 1, both excluded, or a list of such numbers", scalar=True)


class Curvature(NamedTuple):
    """Second derivatives at a fixed f, to be multiplied with many T: ``function(T, *rows of the arrays)``.

    `portable` says whether the function is arithmetic for arrays and tensors alike, see `gyrfalcon.operators.Rowwise`.
    """

    function: Callable[..., Array]
    arrays: tuple[Array, ...]
    portable: bool = False


class Loss(BaseEstimator):  # type: ignore[misc]
    """Base class of all losses.

    A subclass defines `value`, `gradient` and `hessian`, and overrides the defaults that do not suit it.

    Attributes
    ----------
    coupled : bool
        Whether second derivatives across columns of f are not zero. Such a loss also defines `curvature`.
    probabilities : bool
        Whether `inverse_link` returns probabilities of classes.
    portable : bool
        Whether `gradient` and `inverse_link` accept PyTorch's tensors as well as arrays, so that they can run on a
        device. A loss of your own may set ``portable = True``.

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

    @property
    def portable(self) -> bool:
        # not losses derived from them, which may define these methods with NumPy
        return type(self) in NAMES.values() or type(self) is Softmax

    def value(self, y: Array, f: Array) -> Array:
        """Compute the loss, which is not negative, of shape (n, k), or (n, 1) if columns are coupled."""
        raise NotImplementedError(f"{type(self).__name__} must define value(y, f)")

    def gradient(self, y: Array, f: Array) -> Array:
        """Compute first derivatives with respect to f, of shape (n, k)."""
        raise NotImplementedError(f"{type(self).__name__} must define gradient(y, f)")

    def hessian(self, y: Array, f: Array) -> Array:
        """Compute second derivatives of shape (n, k), not negative; if columns are coupled, each row's diagonal."""
        raise NotImplementedError(f"{type(self).__name__} must define hessian(y, f)")

    def curvature(self, y: Array, f: Array, T: Array) -> Array:
        """Multiply each row's second derivatives by that row of T, of shape (n, k)."""
        return self.hessian(y, f) * T

    def curvature_at(self, y: Array, f: Array) -> Curvature:
        """Return `curvature` at a fixed f, for many T: a function of T, and the arrays whose rows it takes after T."""
        if self.coupled:
            return Curvature(self._coupled_curvature, (y, f))
        return Curvature(operator.mul, (self.hessian(y, f),), portable=True)

    def _coupled_curvature(self, T: Array, y: Array, f: Array) -> Array:
        return self.curvature(y, f, T)

    def inverse_link(self, f: Array) -> Array:
        """Convert f to the scale of y."""
        return f

    def check(self, y: Array, name: str = "y") -> None:
        """Raise ValueError if a target is outside the domain of the loss."""

    def resolve(self, y: Array, weight: Array | None = None) -> Loss:
        """Return a copy with checked parameters, in which "scale" is replaced by its value for y, of shape (n, k)."""
        return clone(self)

    def stages(self) -> Sequence[Loss]:
        """Return the losses to minimise in turn, each from the solution of the one before; the last is this one."""
        return [self]

    def penalty_unit(self, y: Array, weight: Array | None = None) -> float:
        """Return the factor of the penalty that makes the solution independent of the unit of y."""
        return 1.0

    def unit(self, y: Array, weight: Array | None = None) -> float:
        """Return a power of two near the size of y if the loss is proportional to the unit of y and f, else 1."""
        return 1.0

    def in_units(self, unit: float) -> Loss:
        """Return this loss for y and f that are divided by `unit`."""
        return self

    def offset(self, y: Array, weight: Array | None = None) -> Array:
        """Return the offset of f, of shape (k,): the best constants, or 0."""
        return np.zeros(y.shape[1])


@register
class Squared(Loss):
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
class Logistic(Loss):
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
        share = shares((y + 1) / 2, weight)
        return np.log(share) - np.log1p(-share)

    def check(self, y: Array, name: str = "y") -> None:
        wrong = np.abs(y) != 1
        if wrong.any():
            raise ValueError(
                f"{name} holds {y[wrong][0]:g}: the logistic loss needs targets of -1 and +1, one for each class"
            )


@register
class Softmax(Loss):
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
class Huber(Loss):
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
class Quantile(Loss):
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
class Poisson(Loss):
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
        if (y < 0).any():
            raise ValueError(f"{name} holds {y.min():g}: the Poisson loss needs counts, which are not negative")

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
# scikit-learn's names of losses, and the names here
ALIASES = {"squared_error": "squared", "absolute_error": "quantile", "log_loss": "logistic"}


def loss_name(loss: Any) -> str | None:
    """Return the name in `NAMES` of a loss given by name, scikit-learn's names included, or None for an object."""
    return ALIASES.get(loss, loss) if isinstance(loss, str) else None


def as_loss(loss: Loss | str) -> Loss:
    """Convert a name or a loss to a loss.

    Parameters
    ----------
    loss : Loss or {"squared", "logistic", "huber", "quantile", "poisson"}
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


def _width(name: str, value: Width, factor: float, y: Array, weight: Array | None) -> Any:
    """Return a checked width in the units of y; "scale" is `factor` times a robust standard deviation of y."""
    if isinstance(value, str) and value == "scale":
        return factor * robust_deviation(y, weight)
    _POSITIVE(name, value)
    given = np.asarray(value)
    return given.astype(np.float64) if given.ndim else float(given)
