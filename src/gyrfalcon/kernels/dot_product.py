"""Kernels of the dot product or of the angle between rows: Linear, Polynomial, Sigmoid, ArcCosine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from .._utils.checks import integer, number, optional, positive
from .._utils.registry import register
from .base import Array, Kernel, total_variance
from .features import FeatureMap, directions, normal_weights

_GAMMA = optional(positive('a finite number greater than 0, or "scale"'), instead="scale")
_COEF0 = number(lambda x: bool(np.isfinite(x)), "a finite number")
_POWER = integer(1, 1023)
_UNIT_POWER = number(lambda degree: degree in (0, 1), "0 or 1")


@register
class Linear(Kernel):
    """Linear kernel, x.z: a linear model without intercept; ``Linear() + 1.0`` has one.

    Examples
    --------
    >>> from gyrfalcon.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    geometry = "dot"
    has_given_scale = False

    def profile(self, s: Array) -> Array:
        return s

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        # A sketch X S / sqrt(M). Random signs have less variance than normal numbers (Achlioptas 2003), and M = d
        # orthogonal directions are exact.
        if orthogonal:
            weights = np.sqrt(n_features) * directions(n_components, n_features, random_state, orthogonal=True)
        else:
            weights = random_state.choice([-1.0, 1.0], (n_components, n_features))
        return FeatureMap.layer("identity", weights, 0.0, 1 / np.sqrt(n_components))


class Affine(Kernel):
    """Kernels that are functions of gamma x.z + coef0."""

    geometry = "dot"
    gamma: float | Literal["scale"]
    coef0: float

    def resolve(self, X: Array) -> Kernel:
        kernel: Affine = clone(self)
        _COEF0("coef0", self.coef0)
        _GAMMA("gamma", self.gamma)
        if isinstance(self.gamma, str):
            total, unit = total_variance(X)
            kernel.gamma = 1.0 / total / unit / unit
            if not np.finfo(np.float64).tiny <= kernel.gamma < np.inf:
                raise ValueError(
                    f'gamma="scale" is 1 / {unit * np.sqrt(total):.3g}^2, from the variances of the features, '
                    "which is too small or too large a number: rescale the features"
                )
        return kernel

    @property
    def has_given_scale(self) -> bool:
        return not isinstance(self.gamma, str)

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        return {"gamma": self.gamma, "coef0": self.coef0}

    def _affine(self, s: Array) -> Array:
        if isinstance(self.gamma, str):
            raise ValueError(f"gamma={self.gamma!r} has no value yet: call resolve(X) first")
        return self.gamma * s + self.coef0


@register
class Polynomial(Affine):
    """Polynomial kernel, (gamma x.z + coef0)^degree.

    Parameters
    ----------
    degree : int
        From 1 to 1023.
    gamma : float or "scale"
        In the units of the features, which estimators then do not standardise (``scale="auto"``). "scale" is 1 / (sum
        of the features' variances), from the centers.
    coef0 : float
        Larger values give lower degrees more weight.

    Examples
    --------
    >>> from gyrfalcon.kernels import Polynomial
    >>> Polynomial(degree=2, gamma=1.0, coef0=1.0)([[1.0]], [[2.0]])
    array([[9.]])
    """

    def __init__(self, degree: int = 3, gamma: float | Literal["scale"] = "scale", coef0: float = 1.0) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0

    def resolve(self, X: Array) -> Kernel:
        _POWER("degree", self.degree)
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        return self._affine(s) ** int(self.degree)

    def term_sizes(self, X: Array) -> tuple[float, float]:
        # Small features make terms of high degree small beside the others; losing those does no harm.
        s, c, p = float(type(self)(1, self.gamma, 0.0).diag(X).mean()), abs(float(self.coef0)), int(self.degree)
        with np.errstate(over="ignore"):
            constant, linear, highest = np.array([c, p * s, s]) ** [p, 1, p] * [1.0, np.float64(c) ** (p - 1), 1.0]
        present = [float(term) for term in (constant, linear) if term > 0]
        return min(present, default=float(highest)), max(float(constant), float(highest))


@register
class Sigmoid(Affine):
    """Sigmoid kernel, tanh(gamma x.z + coef0).

    It is not positive definite: directions of negative curvature are left out of the solution.

    Parameters
    ----------
    gamma : float or "scale"
        As for `Polynomial`.
    coef0 : float
        Offset.

    Examples
    --------
    >>> from gyrfalcon.kernels import Sigmoid
    >>> Sigmoid(gamma=0.5, coef0=0.0)([[1.0]], [[2.0]]).round(4)
    array([[0.7616]])
    """

    def __init__(self, gamma: float | Literal["scale"] = "scale", coef0: float = 0.0) -> None:
        self.gamma = gamma
        self.coef0 = coef0

    def profile(self, s: Array) -> Array:
        return np.tanh(self._affine(s))


@register
class ArcCosine(Kernel):
    """Arc-cosine kernel (Cho and Saul 2009): an infinitely wide layer of step (degree 0) or ReLU (degree 1) units.

    With theta the angle between x and z: degree 0 is 1 - theta / pi; degree 1 is
    |x||z| (sin theta + (pi - theta) cos theta) / pi.

    Parameters
    ----------
    degree : {0, 1}
        Power of the units: 0 for steps, 1 for ReLU.

    Examples
    --------
    >>> from gyrfalcon.kernels import ArcCosine
    >>> ArcCosine(degree=0)([[1.0, 0.0]], [[0.0, 2.0]])
    array([[0.5]])
    """

    geometry = "angle"
    smooth = False
    has_given_scale = False

    def __init__(self, degree: int = 1) -> None:
        self.degree = degree

    @property
    def norm_power(self) -> int:  # type: ignore[override]
        return self.degree

    def resolve(self, X: Array) -> Kernel:
        _UNIT_POWER("degree", self.degree)
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        # s = 1 - cos theta = 2 sin^2(theta / 2): accurate for small angles, where arccos(1 - s) is not
        theta = 2 * np.arcsin(np.sqrt(np.clip(s / 2, 0.0, 1.0)))
        if self.degree == 0:
            return 1 - theta / np.pi
        return (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / np.pi

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        weights = normal_weights(n_components, n_features, random_state, orthogonal)
        # a tiny random sign decides for the zero row alone, which is orthogonal to all others
        offset = np.finfo(np.float32).tiny * random_state.choice([-1.0, 1.0], n_components)
        activation = "step" if self.degree == 0 else "relu"
        return FeatureMap.layer(activation, weights, offset, np.sqrt(2 / n_components))
