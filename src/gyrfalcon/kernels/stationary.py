"""Kernels of the distance between rows: Gaussian, Laplacian, Matern, RationalQuadratic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import clone

from .._utils import sparse
from .._utils.checks import integer, number, numbers, positive
from .._utils.ranges import power_of_two
from .._utils.registry import register
from .base import Array, Evaluate, Geometry, Kernel, ProductTerm, Slope, total_variance
from .features import FeatureMap, directions

LengthScale = float | ArrayLike | Literal["scale"]

_LENGTH_SCALE = numbers(
    lambda x: 0 < x < np.inf, 'positive and finite: a number, one for each feature, or "scale"', scalar=True
)
_NORM = integer(1, 2, words="2 (euclidean) or 1 (sum of absolute differences)")
_NU = number(lambda nu: nu in (0.5, 1.5, 2.5), "0.5, 1.5 or 2.5")


class Stationary(Kernel):
    """Kernels with a length scale.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Stationary
    >>> class Cauchy(Stationary):
    ...     def __init__(self, length_scale="scale"):
    ...         self.length_scale = length_scale
    ...
    ...     def profile(self, s):
    ...         return 1.0 / (1.0 + s)
    >>> Cauchy(2.0)(np.array([[0.0]]), np.array([[2.0], [4.0]]))
    array([[0.5, 0.2]])
    """

    length_scale: LengthScale
    # What stands for the length scale in other libraries, and its value here.
    other_names: ClassVar[Mapping[str, str]] = dict.fromkeys(("sigma", "lengthscale", "bandwidth"), "length_scale={}")

    def __new__(cls, *args: Any, **named: Any) -> Self:
        # before Python refuses the name without saying which one is meant
        for name in set(named) & set(cls.other_names):
            remedy = cls.other_names[name].format(name)
            raise TypeError(f"{cls.__name__} has no parameter {name!r}: use {remedy}")
        return super().__new__(cls)

    def resolve(self, X: Array) -> Kernel:
        kernel: Stationary = clone(self)
        scale = self.length_scale
        if isinstance(scale, str) and scale == "scale":
            kernel.length_scale = self._half_distance(X)
            return kernel
        _LENGTH_SCALE("length_scale", scale)
        values = np.asarray(scale)
        if values.ndim == 1 and len(values) != X.shape[1]:
            raise ValueError(f"length_scale has {len(values)} values for {X.shape[1]} features: give one for each")
        return kernel

    def _half_distance(self, X: Array) -> float:
        """Compute half the typical distance between rows, in the norm that the kernel is a function of."""
        total, unit = total_variance(X)
        return unit * float(np.sqrt(total / 2))

    @property
    def has_given_scale(self) -> bool:
        return not isinstance(self.length_scale, str)

    @property
    def has_common_scale(self) -> bool:
        return np.ndim(self.length_scale) == 0

    def scaling(self, n_features: int) -> Array:
        if isinstance(self.length_scale, str):
            raise ValueError(f"length_scale={self.length_scale!r} has no value yet: call resolve(X) first")
        return np.broadcast_to(1.0 / np.asarray(self.length_scale, dtype=np.float64), (n_features,))

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        return {"length_scale": self.scaling(np.size(self.length_scale))}

    def derivative(self) -> Kernel:
        """Return the kernel psi = -2 phi' for the profile phi; a subclass with another `profile` must override it."""
        raise NotImplementedError(f"{type(self).__name__} has no gradients: it does not define derivative")

    def slopes(self, n_features: int) -> list[Slope]:
        # s = |w (x - z)|^2, so that the gradient is phi'(s) 2 w^2 (x - z)
        scaling = self.scaling(n_features)
        return [Slope(self.derivative(), np.square(scaling))]

    def log_parameters(self, n_features: int) -> Array:
        return np.log(1.0 / self.scaling(n_features))

    def with_log_parameters(self, theta: Array, n_features: int) -> Kernel:
        kernel: Stationary = clone(self)
        kernel.length_scale = np.exp(theta)
        return kernel

    def parameter_gradient(self, A: Array, B: Array, P: Array, evaluate: Evaluate) -> Array:
        # dk / dlog(length_scale_j) is factor_j psi(x, z) (x_j - z_j)^2, or |x_j - z_j| in the 1-norm
        total = np.zeros(A.shape[1])
        for slope in self.slopes(A.shape[1]):
            T = P * evaluate(slope.psi, A, B)
            if slope.signs:
                sums = np.array([np.vdot(T, np.abs(a[:, None] - b)) for a, b in zip(A.T, B.T, strict=True)])
            else:
                # from a common origin, so that squares lose few digits
                origin = B.mean(axis=0)
                x, z = A - origin, B - origin
                sums = T.sum(axis=1) @ np.square(x) - 2 * np.einsum("ij,ij->j", x, T @ z) + T.sum(axis=0) @ np.square(z)
            total += slope.factor * sums
        return total

    def in_units(self, units: Array) -> Kernel:
        kernel: Stationary = clone(self)
        kernel.length_scale = units / self.scaling(len(units))
        return kernel

    def inverse_widths(self, n: int, random_state: np.random.RandomState) -> Array:
        """Draw `n` values of 1 / sigma from the law that makes the kernel a mixture of exp(-s / (2 sigma^2))."""
        raise NotImplementedError(f"{type(self).__name__} has no random features: it does not define inverse_widths")

    def _frequencies(self, n: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool) -> Array:
        sizes = np.sqrt(random_state.chisquare(n_features, n)) * self.inverse_widths(n, random_state)
        return sizes[:, None] * directions(n, n_features, random_state, orthogonal)

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        # Frequencies of a mixture are those of a Gaussian drawn from it (Rahimi, Recht 2007). Orthogonal ones are used
        # twice, in a cosine and a sine (Yu et al. 2016), which cancels the noise of the phase.
        n = -(-n_components // 2) if orthogonal else n_components
        weights = self._frequencies(n, n_features, random_state, orthogonal)
        offset = random_state.uniform(0, 2 * np.pi, n)
        if orthogonal:
            weights = np.concatenate([weights, weights])[:n_components]
            offset = np.concatenate([offset, offset - np.pi / 2])[:n_components]
        return FeatureMap.layer("cos", weights * self.scaling(n_features), offset, np.sqrt(2 / n_components))


@register
class Gaussian(Stationary):
    """Gaussian kernel, exp(-|x - z|^2 / (2 length_scale^2)).

    Parameters
    ----------
    length_scale : float, array of one per feature, or "scale"
        The distance over which functions change (sigma in the papers), in the units of the features, which estimators
        then do not standardise (``scale="auto"``). A shorter length scale allows more detail, a longer one gives
        smoother functions. "scale" is half the root mean squared distance between centers, sqrt(sum of variances / 2),
        as with ``gamma="scale"`` of scikit-learn. With one number for each feature, a large number removes the
        influence of its feature.

    Examples
    --------
    >>> from gyrfalcon.kernels import Gaussian
    >>> Gaussian(length_scale=2.0)([[0.0]], [[2.0]]).round(4)
    array([[0.6065]])
    """

    other_names = {**Stationary.other_names, "gamma": "length_scale=1 / sqrt(2 * gamma)"}

    def __init__(self, length_scale: LengthScale = "scale") -> None:
        self.length_scale = length_scale

    def profile(self, s: Array) -> Array:
        return np.exp(-0.5 * s)

    def derivative(self) -> Kernel:
        return self

    def product_terms(self, n_features: int) -> list[ProductTerm] | None:
        return [ProductTerm(1.0, 0.5 * np.square(self.scaling(n_features)), np.zeros(n_features))]

    def inverse_widths(self, n: int, random_state: np.random.RandomState) -> Array:
        return np.ones(n)


@register
class Laplacian(Stationary):
    """Laplacian kernel, exp(-|x - z| / length_scale), with the euclidean norm or the 1-norm.

    With the euclidean norm it is the same as ``Matern(nu=0.5)``. With the 1-norm, exp(-sum_j |x_j - z_j| /
    length_scale_j), it is a product of one-dimensional kernels, and scikit-learn's `laplacian_kernel`.

    Parameters
    ----------
    length_scale : float, array of one per feature, or "scale"
        As for `Gaussian`. With the 1-norm "scale" is half the mean distance between centers in that norm.
    norm : {2, 1}
        2 is the euclidean norm; 1 the sum of absolute differences, in which many small differences count as much as a
        large one.

    Examples
    --------
    >>> from gyrfalcon.kernels import Laplacian
    >>> Laplacian(length_scale=2.0)([[0.0, 0.0]], [[3.0, 4.0]]).round(4)
    array([[0.0821]])
    >>> Laplacian(length_scale=2.0, norm=1)([[0.0, 0.0]], [[3.0, 4.0]]).round(4)
    array([[0.0302]])
    """

    smooth = False
    other_names = {**Stationary.other_names, "gamma": "length_scale=1 / gamma, with norm=1 for scikit-learn's kernel"}

    def __init__(self, length_scale: LengthScale = "scale", norm: int = 2) -> None:
        self.length_scale = length_scale
        self.norm = norm

    @property
    def geometry(self) -> Geometry:  # type: ignore[override]
        return "manhattan" if self.norm == 1 else "distance"

    def resolve(self, X: Array) -> Kernel:
        _NORM("norm", self.norm)
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        return np.exp(-s) if self.norm == 1 else np.exp(-np.sqrt(s))

    def derivative(self) -> Kernel:
        return LaplacianSlope(self.length_scale)

    def slopes(self, n_features: int) -> list[Slope]:
        if self.norm == 2:
            return super().slopes(n_features)
        return [Slope(self, self.scaling(n_features), signs=True)]

    def product_terms(self, n_features: int) -> list[ProductTerm] | None:
        if self.norm == 2:
            return None
        return [ProductTerm(1.0, np.zeros(n_features), np.array(self.scaling(n_features)))]

    def _half_distance(self, X: Array) -> float:
        return 0.5 * mean_absolute_difference(X) if self.norm == 1 else super()._half_distance(X)

    def inverse_widths(self, n: int, random_state: np.random.RandomState) -> Array:
        return 1 / np.sqrt(random_state.chisquare(1, n))  # frequencies are multivariate Cauchy

    def _frequencies(self, n: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool) -> Array:
        if self.norm == 2:
            return super()._frequencies(n, n_features, random_state, orthogonal)
        if orthogonal:
            raise ValueError(
                "Laplacian(norm=1) has no orthogonal random features, since the law of its frequencies is not the same "
                "in all directions: use orthogonal=False, or norm=2"
            )
        return random_state.standard_cauchy((n, n_features))  # one for each factor of the product


class LaplacianSlope(Stationary):
    """exp(-r) / r with r = |x - z| / length_scale: the slope of the Laplacian, which has none where x = z.

    It is 0 where r^2 is below 8 eps (|x|^2 + |z|^2), in units of the length scale and with the precision eps of the
    rows. The gradient is a difference of two sums, of psi and of psi z, with a rounding error of eps |x| / r, which is
    then below sqrt(eps / 8) for rows that are not at a center.
    """

    smooth = False

    def __init__(self, length_scale: float | ArrayLike) -> None:
        self.length_scale = length_scale

    def profile(self, s: Array) -> Array:
        r = np.sqrt(s)
        return np.divide(np.exp(-r), r, out=np.zeros_like(r), where=r > 0)

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        A, B = np.asarray(A), np.asarray(B)
        eps = np.finfo(np.result_type(A, np.float32)).eps
        scale = self.scaling(A.shape[1])
        A, B = A * scale, B * scale
        s = cdist(A, B, "sqeuclidean")
        near = s < 8 * eps * (np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1))
        s[near] = 0.0
        return self.profile(s)


def mean_absolute_difference(X: Any) -> float:
    """Compute the mean distance between rows in the 1-norm; 1 if all rows are equal."""
    if not sp.issparse(X):
        X = np.asarray(X, dtype=np.float64)
    unit = power_of_two(X.data if sp.issparse(X) else X)
    if sp.issparse(X):
        total = sparse.mean_absolute_differences(X / unit)
    else:
        # Sorted, x_i is the larger of i pairs and the smaller of n - 1 - i. Differences from the median lose no digits
        # to a common offset.
        ordered = np.sort(X / unit, axis=0)
        n = len(ordered)
        total = 2 * float(((2 * np.arange(n) + 1 - n) @ (ordered - ordered[n // 2])).sum()) / n**2
    return unit * total if total > 0 else 1.0


@register
class Matern(Stationary):
    """Matern kernel of smoothness nu = 1/2, 3/2 or 5/2.

    With a = sqrt(2 nu) |x - z| / length_scale: exp(-a), (1 + a) exp(-a), (1 + a + a^2 / 3) exp(-a).

    Parameters
    ----------
    length_scale : float, array of one per feature, or "scale"
        As for `Gaussian`.
    nu : {0.5, 1.5, 2.5}
        Smoothness.

    Examples
    --------
    >>> from gyrfalcon.kernels import Matern
    >>> Matern(length_scale=1.0, nu=1.5)([[0.0]], [[1.0]]).round(4)
    array([[0.4834]])
    """

    def __init__(self, length_scale: LengthScale = "scale", nu: float = 1.5) -> None:
        self.length_scale = length_scale
        self.nu = nu

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        return self.nu > 0.5

    def resolve(self, X: Array) -> Kernel:
        _NU("nu", self.nu)
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        a = np.sqrt(2 * self.nu * s)
        if self.nu == 0.5:
            return np.exp(-a)
        if self.nu == 1.5:
            return (1 + a) * np.exp(-a)
        return (1 + a + a * a / 3) * np.exp(-a)

    def derivative(self) -> Kernel:
        if self.nu == 0.5:
            return LaplacianSlope(self.length_scale)
        # 3 exp(-a), and (5 / 3) (1 + a) exp(-a): the next rougher one, as a function of the same a
        lower = self.nu - 1
        rougher = Matern(np.multiply(self.length_scale, np.sqrt(lower / self.nu)), lower)
        return rougher * (3.0 if self.nu == 1.5 else 5 / 3)

    def inverse_widths(self, n: int, random_state: np.random.RandomState) -> Array:
        degrees = 2 * self.nu  # frequencies are multivariate t
        return np.sqrt(degrees / random_state.chisquare(degrees, n))


@register
class RationalQuadratic(Stationary):
    """Rational quadratic kernel, (1 + |x - z|^2 / (2 alpha length_scale^2))^-alpha: a mixture of Gaussians.

    Parameters
    ----------
    length_scale : float, array of one per feature, or "scale"
        As for `Gaussian`.
    alpha : float
        Small values mix Gaussians of very different widths; large ones approach a single Gaussian.

    Examples
    --------
    >>> from gyrfalcon.kernels import RationalQuadratic
    >>> RationalQuadratic(length_scale=1.0, alpha=1.0)([[0.0]], [[2.0]]).round(4)
    array([[0.3333]])
    """

    def __init__(self, length_scale: LengthScale = "scale", alpha: float = 1.0) -> None:
        self.length_scale = length_scale
        self.alpha = alpha

    def resolve(self, X: Array) -> Kernel:
        positive()("alpha", self.alpha)
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        # computed as a power, it would lose eps * alpha for large alpha
        return np.exp(-self.alpha * np.log1p(s / (2 * self.alpha)))

    def log_parameters(self, n_features: int) -> Array:
        return np.append(super().log_parameters(n_features), np.log(self.alpha))

    def with_log_parameters(self, theta: Array, n_features: int) -> Kernel:
        return RationalQuadratic(np.exp(theta[:-1]), float(np.exp(theta[-1])))

    def parameter_gradient(self, A: Array, B: Array, P: Array, evaluate: Evaluate) -> Array:
        K = evaluate(self, A, B)
        u = np.expm1(-np.log(K) / self.alpha)  # s / (2 alpha)
        of_alpha = np.vdot(P, self.alpha * K * (u / (1 + u) - np.log1p(u)))
        return np.append(super().parameter_gradient(A, B, P, evaluate), of_alpha)

    def derivative(self) -> Kernel:
        # (1 + s / (2 alpha))^-(alpha + 1)
        shrink = np.sqrt(self.alpha / (self.alpha + 1))
        return RationalQuadratic(np.multiply(self.length_scale, shrink), self.alpha + 1)

    def inverse_widths(self, n: int, random_state: np.random.RandomState) -> Array:
        return np.sqrt(random_state.gamma(self.alpha, 1 / self.alpha, n))

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        # s / (2 alpha) must keep its digits
        return {**super().constants(info), "alpha": (self.alpha, float(info.eps) / np.float64(self.alpha))}
