"""The contract of losses: the methods that a subclass of `Loss` defines, and defaults for all others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

Array = NDArray[Any]


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
    sharp : bool
        Whether only some rows have a second derivative, and others as f moves (beyond a margin, near a corner).
        Newton's method then computes its steps and their lengths more accurately.
    probabilities : bool
        Whether `inverse_link` returns probabilities of classes.
    portable : bool
        Whether `gradient` and `inverse_link` accept PyTorch's tensors as well as arrays, so that they can run on a
        device. A loss of your own may set ``portable = True``.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.losses import Loss
    >>> class Exponential(Loss):
    ...     def value(self, y, f):
    ...         return np.exp(-y * f)
    ...     def gradient(self, y, f):
    ...         return -y * np.exp(-y * f)
    ...     def hessian(self, y, f):
    ...         return np.exp(-y * f)
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon import FalkonClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = FalkonClassifier(loss=Exponential(), n_centers=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    coupled: ClassVar[bool] = False
    sharp: ClassVar[bool] = False
    probabilities: ClassVar[bool] = False

    @property
    def portable(self) -> bool:
        return False

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


class PortableLoss(Loss):
    """A loss of this package, whose methods accept tensors; a class derived from one may define them with NumPy."""

    @property
    def portable(self) -> bool:
        return type(self).__module__.startswith(f"{__package__}.")
