"""Constants, sums and products of kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike

from .._utils.checks import not_negative
from .._utils.registry import register
from .._utils.words import a
from .base import Array, Evaluate, Kernel, ProductTerm, Slope
from .callable import CallableKernel
from .dot_product import Linear
from .features import FeatureMap

_VALUE = not_negative("a finite number, not negative: otherwise the kernel is not positive definite")


@register
class Constant(Kernel):
    """Constant kernel: an intercept in a sum, a factor in a product.

    Parameters
    ----------
    value : float
        Not negative.

    Examples
    --------
    >>> from gyrfalcon.kernels import Constant
    >>> Constant(2.0)([[1.0]], [[5.0], [6.0]])
    array([[2., 2.]])
    """

    geometry = "dot"
    has_given_scale = False

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def resolve(self, X: Array) -> Kernel:
        _VALUE("value", self.value)
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        return np.full_like(s, self.value)

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        return {"value": self.value}

    def constant_diag(self) -> float | None:
        return float(self.value)

    @property
    def factor(self) -> float:
        return float(self.value)

    def slopes(self, n_features: int) -> list[Slope]:
        return []

    def product_terms(self, n_features: int) -> list[ProductTerm] | None:
        return [ProductTerm(float(self.value), np.zeros(n_features), np.zeros(n_features))]

    def log_parameters(self, n_features: int) -> Array:
        return np.log([float(self.value)]) if self.value > 0 else np.zeros(0)  # 0 stays 0

    def with_log_parameters(self, theta: Array, n_features: int) -> Kernel:
        return Constant(float(np.exp(theta[0]))) if len(theta) else self

    def parameter_gradient(self, A: Array, B: Array, P: Array, evaluate: Evaluate) -> Array:
        return self.parameter_gradient_of_diag(A, P)

    def parameter_gradient_of_diag(self, X: Array, weights: Array) -> Array:
        return np.array([self.value * weights.sum()]) if self.value > 0 else np.zeros(0)

    def in_units(self, units: Array) -> Kernel:
        return self

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        return FeatureMap.layer("identity", np.zeros((1, n_features)), 1.0, np.sqrt(self.value))

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        sizes = [X.shape[0] if sp.issparse(X) else len(np.asarray(X)) for X in (A, B)]  # type: ignore[union-attr]
        return np.full(sizes, float(self.value))


class Pair(Kernel):
    """Two kernels combined entry by entry, by `combine`."""

    combine: ClassVar[Callable[..., Array]]
    sign: ClassVar[str]
    rank: ClassVar[int]  # the sign of a higher one binds closer

    def __init__(self, k1: Kernel, k2: Kernel) -> None:
        self.k1 = k1
        self.k2 = k2

    @classmethod
    def of(cls, first: Any, second: Any) -> Self:
        """Combine two kernels, either of which may be a number or a function instead."""
        return cls(_operand(first), _operand(second))

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # as it is written; the time of scikit-learn's doubles with each kernel that is added
        operands: list[str] = []
        pair: Kernel = self
        while type(pair) is type(self):  # a + b + c is (a + b) + c: no recursion, so that sums may be long
            operands.append(_written(pair.k2, self.rank + 1))
            first, second, pair = pair.k1, pair.k2, pair.k1
            if len(operands) > sys.getrecursionlimit():
                raise RecursionError(f"{a(type(self).__name__)} that is a part of itself cannot be printed")
        numbers = isinstance(first, Constant) and isinstance(second, Constant)  # which Python would combine by itself
        operands.append(repr(first) if numbers else _written(first, self.rank))
        text = f" {self.sign} ".join(reversed(operands))
        half = N_CHAR_MAX // 2
        return text if len(text) <= N_CHAR_MAX else f"{text[:half]}...{text[-half:]}"

    def resolve(self, X: Array) -> Kernel:
        self._check_parts()
        return type(self)(self.k1.resolve(X), self.k2.resolve(X))

    @property
    def has_given_scale(self) -> bool:
        self._check_parts()
        return self.k1.has_given_scale or self.k2.has_given_scale

    @property
    def has_common_scale(self) -> bool:
        return self.k1.has_common_scale or self.k2.has_common_scale

    def check_precision(self, dtype: DTypeLike) -> None:
        self._check_parts()
        super().check_precision(dtype)
        self.k1.check_precision(dtype)
        self.k2.check_precision(dtype)

    def _check_parts(self) -> None:
        for name, part in (("k1", self.k1), ("k2", self.k2)):
            if not isinstance(part, Kernel):
                raise ValueError(f"{name}={part!r} of {a(type(self).__name__)} must be a kernel")

    def diag(self, X: Array) -> Array:
        return type(self).combine(self.k1.diag(X), self.k2.diag(X))

    def log_parameters(self, n_features: int) -> Array:
        return np.concatenate([self.k1.log_parameters(n_features), self.k2.log_parameters(n_features)])

    def with_log_parameters(self, theta: Array, n_features: int) -> Kernel:
        p = len(self.k1.log_parameters(n_features))
        first = self.k1.with_log_parameters(theta[:p], n_features)
        return type(self)(first, self.k2.with_log_parameters(theta[p:], n_features))

    def in_units(self, units: Array) -> Kernel:
        return type(self)(self.k1.in_units(units), self.k2.in_units(units))

    def constant_diag(self) -> float | None:
        first, second = self.k1.constant_diag(), self.k2.constant_diag()
        return None if first is None or second is None else float(type(self).combine(first, second))

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        return type(self).combine(self.k1(A, B), self.k2(A, B))


def _written(kernel: Kernel, rank: int) -> str:
    """Return a kernel as an operand of a sign of this rank; a constant as a number."""
    if isinstance(kernel, Constant):
        return repr(kernel.value)
    return f"({kernel!r})" if isinstance(kernel, Pair) and kernel.rank < rank else repr(kernel)


def _operand(other: Any) -> Kernel:
    if isinstance(other, Kernel):
        return other
    if isinstance(other, Real) and not isinstance(other, bool):
        return Constant(float(other))
    if callable(other):
        return CallableKernel(other)
    raise TypeError(f"cannot combine a kernel with {other!r}: give a kernel, a number or a callable")


@register
class Sum(Pair):
    """Sum of two kernels, k1 + k2, as made by ``k1 + k2``.

    Parameters
    ----------
    k1, k2 : Kernel

    Examples
    --------
    >>> from gyrfalcon.kernels import Linear
    >>> Linear() + 1.0
    Linear() + 1.0
    >>> (Linear() + 1.0)([[2.0]], [[3.0]])
    array([[7.]])
    """

    combine = np.add
    sign, rank = "+", 0

    def term_sizes(self, X: Array) -> tuple[float, float]:
        (least, most), (other_least, other_most) = self.k1.term_sizes(X), self.k2.term_sizes(X)
        present = [size for size in (least, other_least) if size > 0]  # a term of zeros cannot be lost
        return min(present, default=0.0), max(most, other_most)

    def parameter_gradient(self, A: Array, B: Array, P: Array, evaluate: Evaluate) -> Array:
        return np.concatenate([k.parameter_gradient(A, B, P, evaluate) for k in (self.k1, self.k2)])

    def parameter_gradient_of_diag(self, X: Array, weights: Array) -> Array:
        return np.concatenate([k.parameter_gradient_of_diag(X, weights) for k in (self.k1, self.k2)])

    def slopes(self, n_features: int) -> list[Slope]:
        return self.k1.slopes(n_features) + self.k2.slopes(n_features)

    def product_terms(self, n_features: int) -> list[ProductTerm] | None:
        first, second = self.k1.product_terms(n_features), self.k2.product_terms(n_features)
        return None if first is None or second is None else first + second

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        if n_components < 2:
            raise ValueError(f"n_components={n_components} must be at least 2 for a sum: its parts share them")
        args = (n_features, random_state, orthogonal)
        first = self.k1.random_features(n_components // 2, *args)
        second = self.k2.random_features(n_components - len(first), *args)
        if len(first) + len(second) < n_components:  # a part of low rank, such as an intercept, needs no half
            first = self.k1.random_features(n_components - len(second), *args)
        return first + second


@register
class Product(Pair):
    """Product of two kernels, k1 * k2, as made by ``k1 * k2`` or ``2.0 * k``.

    Parameters
    ----------
    k1, k2 : Kernel

    Examples
    --------
    >>> from gyrfalcon.kernels import Linear
    >>> (2.0 * Linear())([[2.0]], [[3.0]])
    array([[12.]])
    """

    combine = np.multiply
    sign, rank = "*", 2

    def term_sizes(self, X: Array) -> tuple[float, float]:
        first, second = self.k1.term_sizes(X), self.k2.term_sizes(X)
        return first[0] * second[0], first[1] * second[1]

    def parameter_gradient(self, A: Array, B: Array, P: Array, evaluate: Evaluate) -> Array:
        pairs = ((self.k1, self.k2), (self.k2, self.k1))
        return np.concatenate([k.parameter_gradient(A, B, P * evaluate(other, A, B), evaluate) for k, other in pairs])

    def parameter_gradient_of_diag(self, X: Array, weights: Array) -> Array:
        pairs = ((self.k1, self.k2), (self.k2, self.k1))
        return np.concatenate([k.parameter_gradient_of_diag(X, weights * other.diag(X)) for k, other in pairs])

    def slopes(self, n_features: int) -> list[Slope]:
        return [
            part._replace(psi=Product(part.psi, other))
            for one, other in ((self.k1, self.k2), (self.k2, self.k1))
            for part in one.slopes(n_features)
        ]

    def product_terms(self, n_features: int) -> list[ProductTerm] | None:
        first, second = self.k1.product_terms(n_features), self.k2.product_terms(n_features)
        if first is None or second is None:
            return None
        return [one.times(other) for one in first for other in second]

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        return {"factor": self.factor}

    @property
    def factor(self) -> float:
        first, second = self.k1.factor, self.k2.factor
        # 0 only if one of the factors is, so that `check_precision` sees a product that underflows
        return max(first * second, 5e-324) if first and second else 0.0

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        constant, other = (self.k1, self.k2) if isinstance(self.k1, Constant) else (self.k2, self.k1)
        if not isinstance(constant, Constant):
            return super().random_features(n_components, n_features, random_state, orthogonal)
        return other.random_features(n_components, n_features, random_state, orthogonal).times(np.sqrt(constant.value))


def linear_form(kernel: Kernel) -> tuple[float, float] | None:
    """Return (a, c) if the kernel is a x.z + c, else None.

    Types are compared exactly, since a subclass may have another profile or scaling.

    Examples
    --------
    >>> from gyrfalcon.kernels import Gaussian, Linear, linear_form
    >>> linear_form(2.0 * Linear() + 1.0), linear_form(Linear() * Gaussian(1.0))
    ((2.0, 1.0), None)
    """
    if type(kernel) is Linear:
        return 1.0, 0.0
    if type(kernel) is Constant:
        return 0.0, float(kernel.value)
    if type(kernel) not in (Sum, Product):
        return None
    first, second = linear_form(kernel.k1), linear_form(kernel.k2)
    if first is None or second is None:
        return None
    if type(kernel) is Sum:
        return first[0] + second[0], first[1] + second[1]
    if first[0] != 0 and second[0] != 0:
        return None
    return first[0] * second[1] + second[0] * first[1], first[1] * second[1]
