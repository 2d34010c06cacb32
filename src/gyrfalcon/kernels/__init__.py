"""Kernels: a few fields and a profile.

A kernel says what it is a function of (its `geometry`) and gives that function, its `profile`, in NumPy:

========== ================================================================ ==========================================
geometry   the profile's argument                                           kernels
========== ================================================================ ==========================================
distance   s = sum_j ((x_j - z_j) / length_scale_j)^2                       Gaussian, Laplacian, Matern, ...
manhattan  s = sum_j |x_j - z_j| / length_scale_j                           Laplacian(norm=1)
dot        s = x.z                                                          Linear, Polynomial, Sigmoid
angle      s = 1 - cos(angle between x and z), times (|x||z|)^norm_power    ArcCosine
========== ================================================================ ==========================================

Subclass `Kernel` with ten lines and it works on every source and backend; the named kernels also have a native profile,
which the native backend finds by their type. Kernels add and multiply: ``Gaussian(2.0) + 0.1 * Linear()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone

from .._utils import sparse
from .._utils.ranges import power_of_two
from .._utils.registry import register
from .features import FeatureMap, directions

__all__ = [
    "ArcCosine",
    "CallableKernel",
    "Constant",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Sigmoid",
    "Sum",
]

Array = NDArray[np.floating[Any]]
KernelFunction = Callable[[Array, Array], ArrayLike]
LengthScale = float | ArrayLike | Literal["scale"]


# A term that is so few times the rounding of a larger one is lost: R2 of Linear() + 1.0 is -24 at twice
_LOST = 10.0


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(f"{name}={value!r} must be a positive finite number")
    return float(value)


def _finite(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
        raise ValueError(f"{name}={value!r} must be a finite number")
    return float(value)


def _total_variance(X: Any) -> tuple[float, float]:
    """Sum of the features' variances in a unit, and the unit, so that no square overflows; 1 where nothing varies."""
    if not sp.issparse(X):
        X = np.asarray(X, dtype=np.float64)
    unit = power_of_two(X.data if sp.issparse(X) else X)
    total = sparse.total_variance(X / unit) if sp.issparse(X) else float(np.var(X / unit, axis=0).sum())
    return (total, unit) if total > 0 else (1.0, 1.0)


def _mean_absolute_differences(X: Any) -> float:
    """The mean distance between rows in the 1-norm, whatever the features' size; 1 where rows do not vary at all."""
    if not sp.issparse(X):
        X = np.asarray(X, dtype=np.float64)
    unit = power_of_two(X.data if sp.issparse(X) else X)
    if sp.issparse(X):
        total = sparse.mean_absolute_differences(X / unit)
    else:
        # in order, x_i is the larger of i pairs and the smaller of n - 1 - i; from the median, for offsets' sake
        ordered = np.sort(X / unit, axis=0)
        n = len(ordered)
        total = 2 * float(((2 * np.arange(n) + 1 - n) @ (ordered - ordered[n // 2])).sum()) / n**2
    return unit * total if total > 0 else 1.0


Geometry = Literal["distance", "manhattan", "dot", "angle"]


class Kernel(BaseEstimator):  # type: ignore[misc]
    """Base of all kernels. See the module's first lines for what a subclass gives.

    Attributes
    ----------
    geometry : {"distance", "manhattan", "dot", "angle"}
        What the profile is a function of.
    smooth : bool
        Whether the profile is differentiable where x = z. Where it is not (Laplacian), rounding of small distances
        matters, and backends take the slower route of summing squared differences.
    """

    geometry: Geometry = "distance"
    smooth: ClassVar[bool] = True
    norm_power: int = 0

    def profile(self, s: Array) -> Array:
        """The kernel as a function of `s`; see `geometry`."""
        raise NotImplementedError(f"{type(self).__name__} must define profile(s)")

    def resolve(self, X: Array) -> Kernel:
        """A copy with its parameters checked and those that depend on the data worked out from the rows `X`."""
        return clone(self)

    def scaling(self, n_features: int) -> Array:
        """What each feature is multiplied by before anything else; one number for all is best broadcast."""
        return np.broadcast_to(1.0, (n_features,))

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        """Numbers that a backend holds in the precision `info` describes, by the parameter that they are made of."""
        return {}

    @property
    def factor(self) -> float:
        """The product of the constants that the kernel is multiplied with."""
        return 1.0

    def check_precision(self, dtype: DTypeLike) -> None:
        """Raise ValueError if a parameter of the resolved kernel, or what is made of it, leaves the range of `dtype`.

        Examples
        --------
        >>> from gyrfalcon.kernels import Gaussian
        >>> Gaussian(1e-39).check_precision("float64")
        >>> Gaussian(1e-39).check_precision("float32")
        Traceback (most recent call last):
        ValueError: Gaussian: length_scale=1e-39 leaves the range of float32: use dtype="float64", or another value...
        """
        info = np.finfo(np.dtype(dtype))
        with np.errstate(all="ignore"):
            constants = self.constants(info)
        for name, numbers in constants.items():
            size = np.abs(np.asarray(numbers, dtype=np.float64))
            # profiles multiply with a few units
            if not ((size == 0) | ((size >= info.tiny) & (size <= info.max / 8))).all():
                value = self.get_params(deep=False).get(name, numbers)
                remedy = "" if info.dtype == np.float64 else 'dtype="float64", or '
                raise ValueError(
                    f"{type(self).__name__}: {name}={value!r} leaves the range of {info.dtype}: use {remedy}another "
                    "value and features that are scaled to it"
                )

    def span(self, X: Array) -> tuple[float, float]:
        """Sizes of the smallest and the largest term that values of the resolved kernel are sums of, at points `X`."""
        size = float(np.mean(np.abs(self.diag(X))))
        return size, size

    def check_terms(self, X: Array, dtype: DTypeLike) -> None:
        """Raise ValueError if a term of the kernel is lost beside another in `dtype`, at points `X`.

        Examples
        --------
        >>> import numpy as np
        >>> from gyrfalcon.kernels import Linear
        >>> (Linear() + 1.0).check_terms(np.full((2, 1), 1e4), np.float32)
        Traceback (most recent call last):
        ValueError: Sum(k1=Linear(), k2=Constant()) is a sum of terms of about 1 and 1e+08: in float32 the smaller ...
        """
        least, most = self.span(X)
        info = np.finfo(np.dtype(dtype))
        if 0 < least < _LOST * float(info.eps) * most < np.inf:
            wider = "" if info.dtype == np.float64 else ', or use dtype="float64"'
            raise ValueError(
                f"{self!r} is a sum of terms of about {least:.2g} and {most:.2g}: in {info.dtype} the smaller would be "
                f"lost beside the larger; rescale the features (scale=True does) or change the parameters{wider}"
            )

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        """Random features whose inner products are the kernel on average; for a resolved kernel.

        Parameters
        ----------
        n_components : int
            How many; the error falls like 1 / sqrt(n_components). Kernels with fewer of them give fewer.
        n_features : int
            Features of a row.
        random_state : RandomState
        orthogonal : bool
            Whether weights are orthogonal in groups of `n_features`, which lowers the variance.
        """
        raise ValueError(
            f"{type(self).__name__} has no random features: use Gaussian, Laplacian, Matern, RationalQuadratic, "
            "ArcCosine, Linear, sums of these, and their products with a constant"
        )

    def diag(self, X: Array) -> Array:
        """k(x, x) for each row of `X`; infinite where it overflows."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._diag(X)

    def _diag(self, X: Array) -> Array:
        zeros = np.zeros(X.shape[0])
        if self.geometry in ("distance", "manhattan"):
            return self.profile(zeros)
        if sp.issparse(X):
            squares = sparse.row_squares(sparse.scaled(X, self.scaling(X.shape[1])))
        else:
            X = np.asarray(X, dtype=np.float64) * self.scaling(X.shape[1])
            squares = np.einsum("ij,ij->i", X, X)
        if self.geometry == "dot":
            return self.profile(squares)
        return self.profile(zeros) * squares**self.norm_power

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        """The dense matrix k(A, B), in float64, by the plainest route: what every fast path is checked against.

        `A` and `B` are arrays, or both CSR: then nothing but the result is dense.
        """
        if sp.issparse(A) or sp.issparse(B):
            return self._sparse_call(A, B)
        A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
        scale = self.scaling(A.shape[1])
        A, B = A * scale, B * scale
        if self.geometry == "dot":
            return self.profile(A @ B.T)
        if self.geometry == "distance":
            return self.profile(cdist(A, B, "sqeuclidean"))
        if self.geometry == "manhattan":
            return self.profile(cdist(A, B, "cityblock"))
        K = self.profile(0.5 * cdist(_directions(A), _directions(B), "sqeuclidean"))
        norms = np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1))
        return K * norms**self.norm_power

    def _sparse_call(self, A: Any, B: Any) -> Array:
        _both_sparse(A, B)
        scale = self.scaling(A.shape[1])
        A, B = sparse.scaled(A, scale), sparse.scaled(B, scale)
        if self.geometry == "dot":
            return self.profile((A @ B.T).toarray())
        if self.geometry == "distance":
            return self.profile(sparse.squared_distances(A, B))
        if self.geometry == "manhattan":
            return self.profile(sparse.absolute_distances(A, B))
        norms_a, norms_b = np.sqrt(sparse.row_squares(A)), np.sqrt(sparse.row_squares(B))
        K = self.profile(0.5 * sparse.squared_chords(_sparse_directions(A, norms_a), _sparse_directions(B, norms_b)))
        return K * np.outer(norms_a, norms_b) ** self.norm_power

    def __add__(self, other: Any) -> Sum:
        return Sum(self, _operand(other))

    def __radd__(self, other: Any) -> Sum:
        return Sum(_operand(other), self)

    def __mul__(self, other: Any) -> Product:
        return Product(self, _operand(other))

    def __rmul__(self, other: Any) -> Product:
        return Product(_operand(other), self)


def _directions(X: Array) -> Array:
    """Rows at unit length; the zero vector gets an axis of its own, orthogonal to all else."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    zero = norms == 0
    return np.hstack([X / np.where(zero, 1.0, norms), zero.astype(X.dtype)])


def _sparse_directions(X: Any, norms: Array) -> Any:
    data = X.data / np.repeat(np.where(norms == 0, 1.0, norms), np.diff(X.indptr))
    unit = sp.csr_array((data, X.indices, X.indptr), shape=X.shape)
    return sp.csr_array(sp.hstack([unit, sp.csr_array((norms == 0).astype(np.float64)[:, None])]))


def _both_sparse(A: Any, B: Any) -> None:
    if not (sp.issparse(A) and sp.issparse(B)):
        raise TypeError("one of A and B is sparse and the other is not: give both sparse, or both dense")


def _operand(other: Any) -> Kernel:
    if isinstance(other, Kernel):
        return other
    if isinstance(other, Real) and not isinstance(other, bool):
        return Constant(float(other))
    if callable(other):
        return CallableKernel(other)
    raise TypeError(f"cannot combine a kernel with {other!r}: give a kernel, a number or a callable")


class Stationary(Kernel):
    """Kernels with a length scale."""

    length_scale: LengthScale

    def resolve(self, X: Array) -> Kernel:
        kernel: Stationary = clone(self)
        scale = self.length_scale
        if isinstance(scale, str):
            if scale != "scale":
                raise ValueError(f'length_scale={scale!r} must be "scale", a positive number, or one for each feature')
            kernel.length_scale = self._half_distance(X)
            return kernel
        values = np.asarray(scale)
        if values.dtype.kind not in "fiu" or values.ndim > 1 or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"length_scale={scale!r} must be positive and finite: a number, or one for each feature")
        if values.ndim == 1 and len(values) != X.shape[1]:
            raise ValueError(f"length_scale has {len(values)} values for {X.shape[1]} features: give one for each")
        return kernel

    def _half_distance(self, X: Array) -> float:
        """Half of how far rows are from each other on average, in the norm that the kernel is a function of."""
        total, unit = _total_variance(X)
        return unit * float(np.sqrt(total / 2))

    def scaling(self, n_features: int) -> Array:
        if isinstance(self.length_scale, str):
            raise ValueError(f"length_scale={self.length_scale!r} is not worked out yet: call resolve(X) first")
        return np.broadcast_to(1.0 / np.asarray(self.length_scale, dtype=np.float64), (n_features,))

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        return {"length_scale": self.scaling(np.size(self.length_scale))}

    def inverse_widths(self, n: int, random_state: np.random.RandomState) -> Array:
        """`n` draws of 1 / sigma from the law that makes the kernel a mixture of Gaussians exp(-s / (2 sigma^2))."""
        raise NotImplementedError(f"{type(self).__name__} has no random features: it does not define inverse_widths")

    def _frequencies(self, n: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool) -> Array:
        sizes = np.sqrt(random_state.chisquare(n_features, n)) * self.inverse_widths(n, random_state)
        return sizes[:, None] * directions(n, n_features, random_state, orthogonal)

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        # Rahimi and Recht 2007: frequencies of a Gaussian are Gaussian; of a mixture, those of one drawn from it.
        # Orthogonal ones are used twice, by a cosine and a sine (Yu et al. 2016): the noise of the phase cancels, which
        # would hide what orthogonality gains.
        n = -(-n_components // 2) if orthogonal else n_components
        weights = self._frequencies(n, n_features, random_state, orthogonal)
        offset = random_state.uniform(0, 2 * np.pi, n)
        if orthogonal:
            weights = np.concatenate([weights, weights])[:n_components]
            offset = np.concatenate([offset, offset - np.pi / 2])[:n_components]
        return FeatureMap.layer("cos", weights * self.scaling(n_features), offset, np.sqrt(2 / n_components))


@register
class Gaussian(Stationary):
    """exp(-|x - z|^2 / (2 length_scale^2)).

    Parameters
    ----------
    length_scale : float, array of one per feature, or "scale"
        The papers' sigma. "scale" is half the root mean squared distance between rows, sqrt(sum of variances / 2),
        worked out from the centers: scikit-learn's ``gamma="scale"`` in other words. One number for each feature makes
        the kernel anisotropic: large numbers switch a feature off.

    Examples
    --------
    >>> from gyrfalcon.kernels import Gaussian
    >>> Gaussian(length_scale=2.0)([[0.0]], [[2.0]]).round(4)
    array([[0.6065]])
    """

    def __init__(self, length_scale: LengthScale = "scale") -> None:
        self.length_scale = length_scale

    def profile(self, s: Array) -> Array:
        return np.exp(-0.5 * s)

    def inverse_widths(self, n: int, random_state: np.random.RandomState) -> Array:
        return np.ones(n)


@register
class Laplacian(Stationary):
    """exp(-|x - z| / length_scale), with the euclidean norm or the 1-norm.

    With the euclidean norm it is the same as ``Matern(nu=0.5)``. With the 1-norm, exp(-sum_j |x_j - z_j| /
    length_scale_j), it is a product of one-dimensional kernels, and scikit-learn's `laplacian_kernel`.

    Parameters
    ----------
    length_scale : float, array of one per feature, or "scale"
        As for `Gaussian`. With the 1-norm "scale" is half the mean distance between rows in that norm.
    norm : {2, 1}
        Euclidean, or the sum of absolute differences, in which many small differences count as much as a large one.

    Examples
    --------
    >>> from gyrfalcon.kernels import Laplacian
    >>> Laplacian(length_scale=2.0)([[0.0, 0.0]], [[3.0, 4.0]]).round(4)
    array([[0.0821]])
    >>> Laplacian(length_scale=2.0, norm=1)([[0.0, 0.0]], [[3.0, 4.0]]).round(4)
    array([[0.0302]])
    """

    smooth = False

    def __init__(self, length_scale: LengthScale = "scale", norm: int = 2) -> None:
        self.length_scale = length_scale
        self.norm = norm

    @property
    def geometry(self) -> Geometry:  # type: ignore[override]
        return "manhattan" if self.norm == 1 else "distance"

    def resolve(self, X: Array) -> Kernel:
        if isinstance(self.norm, bool) or not isinstance(self.norm, Integral) or self.norm not in (1, 2):
            raise ValueError(f"norm={self.norm!r} must be 2 (euclidean) or 1 (sum of absolute differences)")
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        return np.exp(-s) if self.norm == 1 else np.exp(-np.sqrt(s))

    def _half_distance(self, X: Array) -> float:
        return 0.5 * _mean_absolute_differences(X) if self.norm == 1 else super()._half_distance(X)

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
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu={self.nu!r} must be 0.5, 1.5 or 2.5")
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        a = np.sqrt(2 * self.nu * s)
        if self.nu == 0.5:
            return np.exp(-a)
        if self.nu == 1.5:
            return (1 + a) * np.exp(-a)
        return (1 + a + a * a / 3) * np.exp(-a)

    def inverse_widths(self, n: int, random_state: np.random.RandomState) -> Array:
        degrees = 2 * self.nu  # frequencies are multivariate t
        return np.sqrt(degrees / random_state.chisquare(degrees, n))


@register
class RationalQuadratic(Stationary):
    """(1 + |x - z|^2 / (2 alpha length_scale^2))^-alpha: a mixture of Gaussians of many widths.

    Parameters
    ----------
    length_scale : float, array of one per feature, or "scale"
        As for `Gaussian`.
    alpha : float
        Small alpha mixes widely; large alpha approaches the Gaussian.

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
        _positive("alpha", self.alpha)
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        # the power as it is written loses eps * alpha where alpha is large
        return np.exp(-self.alpha * np.log1p(s / (2 * self.alpha)))

    def inverse_widths(self, n: int, random_state: np.random.RandomState) -> Array:
        return np.sqrt(random_state.gamma(self.alpha, 1 / self.alpha, n))

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        # s / (2 alpha) must keep its digits
        return {**super().constants(info), "alpha": (self.alpha, float(info.eps) / np.float64(self.alpha))}


@register
class Linear(Kernel):
    """x.z: a linear model without intercept. Add a constant for one: ``Linear() + 1.0``.

    Examples
    --------
    >>> from gyrfalcon.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    geometry = "dot"

    def profile(self, s: Array) -> Array:
        return s

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        # A sketch X S / sqrt(M). Signs vary less than normal numbers (Achlioptas 2003), and M = d orthogonal directions
        # lose nothing.
        if orthogonal:
            weights = np.sqrt(n_features) * directions(n_components, n_features, random_state, orthogonal=True)
        else:
            weights = random_state.choice([-1.0, 1.0], (n_components, n_features))
        return FeatureMap.layer("identity", weights, 0.0, 1 / np.sqrt(n_components))


class _Affine(Kernel):
    """Kernels of gamma x.z + coef0."""

    geometry = "dot"
    gamma: float | Literal["scale"]
    coef0: float

    def resolve(self, X: Array) -> Kernel:
        kernel: _Affine = clone(self)
        _finite("coef0", self.coef0)
        if isinstance(self.gamma, str):
            if self.gamma != "scale":
                raise ValueError(f'gamma={self.gamma!r} must be "scale" or a positive number')
            total, unit = _total_variance(X)
            kernel.gamma = 1.0 / total / unit / unit
            if not np.finfo(np.float64).tiny <= kernel.gamma < np.inf:
                raise ValueError(
                    f'gamma="scale" is 1 / {unit * np.sqrt(total):.3g}^2, from the variances of the features, '
                    "which is too small or too large a number: rescale the features"
                )
        else:
            _positive("gamma", self.gamma)
        return kernel

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        return {"gamma": self.gamma, "coef0": self.coef0}

    def _affine(self, s: Array) -> Array:
        if isinstance(self.gamma, str):
            raise ValueError(f"gamma={self.gamma!r} is not worked out yet: call resolve(X) first")
        return self.gamma * s + self.coef0


@register
class Polynomial(_Affine):
    """(gamma x.z + coef0)^degree.

    Parameters
    ----------
    degree : int
        At least 1.
    gamma : float or "scale"
        "scale" is 1 / (sum of the features' variances), from the centers.
    coef0 : float
        Larger values give the lower degrees more weight.

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
        if isinstance(self.degree, bool) or not isinstance(self.degree, Integral) or not 1 <= self.degree < 1024:
            raise ValueError(f"degree={self.degree!r} must be an integer of at least 1")
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        return self._affine(s) ** int(self.degree)

    def span(self, X: Array) -> tuple[float, float]:
        # Terms of high degree are small beside the others for small features, and are not missed.
        s, c, p = float(type(self)(1, self.gamma, 0.0).diag(X).mean()), abs(float(self.coef0)), int(self.degree)
        with np.errstate(over="ignore"):
            constant, linear, highest = np.array([c, p * s, s]) ** [p, 1, p] * [1.0, np.float64(c) ** (p - 1), 1.0]
        present = [float(term) for term in (constant, linear) if term > 0]
        return min(present, default=float(highest)), max(float(constant), float(highest))


@register
class Sigmoid(_Affine):
    """tanh(gamma x.z + coef0). Not positive definite: directions of negative curvature are left out of the solution.

    Parameters
    ----------
    gamma : float or "scale"
        "scale" is 1 / (sum of the features' variances), from the centers.
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
    """Arc-cosine kernel of Cho and Saul (2009): an infinitely wide layer of step (degree 0) or ReLU (degree 1) units.

    With theta the angle between x and z: degree 0 is 1 - theta / pi; degree 1 is
    |x||z| (sin theta + (pi - theta) cos theta) / pi.

    Parameters
    ----------
    degree : {0, 1}
        Order of the unit's power.

    Examples
    --------
    >>> from gyrfalcon.kernels import ArcCosine
    >>> ArcCosine(degree=0)([[1.0, 0.0]], [[0.0, 2.0]])
    array([[0.5]])
    """

    geometry = "angle"
    smooth = False

    def __init__(self, degree: int = 1) -> None:
        self.degree = degree

    @property
    def norm_power(self) -> int:  # type: ignore[override]
        return self.degree

    def resolve(self, X: Array) -> Kernel:
        if self.degree not in (0, 1) or isinstance(self.degree, bool):
            raise ValueError(f"degree={self.degree!r} must be 0 or 1")
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        # s = 1 - cos theta = 2 sin^2(theta / 2): accurate for small angles, where arccos(1 - s) is not
        half = np.arcsin(np.sqrt(np.clip(s / 2, 0.0, 1.0)))
        theta = 2 * half
        if self.degree == 0:
            return 1 - theta / np.pi
        return (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / np.pi

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        weights = directions(n_components, n_features, random_state, orthogonal)
        weights *= np.sqrt(random_state.chisquare(n_features, n_components))[:, None]
        # too small to be seen but in the row of zeros, whose direction is an axis of its own: see _directions
        offset = np.finfo(np.float32).tiny * random_state.choice([-1.0, 1.0], n_components)
        activation = "step" if self.degree == 0 else "relu"
        return FeatureMap.layer(activation, weights, offset, np.sqrt(2 / n_components))


@register
class Constant(Kernel):
    """The same value everywhere: an intercept in a sum, a scaling in a product.

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

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def resolve(self, X: Array) -> Kernel:
        if _finite("value", self.value) < 0:
            raise ValueError(f"value={self.value!r} must not be negative: the kernel would not be positive definite")
        return super().resolve(X)

    def profile(self, s: Array) -> Array:
        return np.full_like(s, self.value)

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        return {"value": self.value}

    @property
    def factor(self) -> float:
        return float(self.value)

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        return FeatureMap.layer("identity", np.zeros((1, n_features)), 1.0, np.sqrt(self.value))

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        return np.full((_length(A), _length(B)), float(self.value))


def _length(X: Any) -> int:
    return int(X.shape[0]) if sp.issparse(X) else len(np.asarray(X))


class _Pair(Kernel):
    """Two kernels combined entry by entry."""

    combine: ClassVar[Callable[..., Array]]

    def __init__(self, k1: Kernel, k2: Kernel) -> None:
        self.k1 = k1
        self.k2 = k2

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # scikit-learn's takes twice as long for each kernel more
        text = f"{type(self).__name__}(k1={self.k1!r}, k2={self.k2!r})"
        half = N_CHAR_MAX // 2
        return text if len(text) <= N_CHAR_MAX else f"{text[:half]}...{text[-half:]}"

    def resolve(self, X: Array) -> Kernel:
        return type(self)(self.k1.resolve(X), self.k2.resolve(X))

    def check_precision(self, dtype: DTypeLike) -> None:
        super().check_precision(dtype)
        self.k1.check_precision(dtype)
        self.k2.check_precision(dtype)

    def diag(self, X: Array) -> Array:
        return type(self).combine(self.k1.diag(X), self.k2.diag(X))

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        return type(self).combine(self.k1(A, B), self.k2(A, B))


@register
class Sum(_Pair):
    """k1 + k2, as made by ``k1 + k2``.

    Examples
    --------
    >>> from gyrfalcon.kernels import Linear
    >>> (Linear() + 1.0)([[2.0]], [[3.0]])
    array([[7.]])
    """

    combine = np.add

    def span(self, X: Array) -> tuple[float, float]:
        (least, most), (other_least, other_most) = self.k1.span(X), self.k2.span(X)
        present = [size for size in (least, other_least) if size > 0]  # a term of zeros is not there
        return min(present, default=0.0), max(most, other_most)

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        if n_components < 2:
            raise ValueError(f"n_components={n_components} must be at least 2 for a sum: its parts share them")
        args = (n_features, random_state, orthogonal)
        first = self.k1.random_features(n_components // 2, *args)
        second = self.k2.random_features(n_components - len(first), *args)
        if len(first) + len(second) < n_components:  # an intercept needs no half
            first = self.k1.random_features(n_components - len(second), *args)
        return first + second


@register
class Product(_Pair):
    """k1 * k2, as made by ``k1 * k2`` or ``2.0 * k``.

    Examples
    --------
    >>> from gyrfalcon.kernels import Linear
    >>> (2.0 * Linear())([[2.0]], [[3.0]])
    array([[12.]])
    """

    combine = np.multiply

    def span(self, X: Array) -> tuple[float, float]:
        first, second = self.k1.span(X), self.k2.span(X)
        return first[0] * second[0], first[1] * second[1]

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        return {"factor": self.factor}

    @property
    def factor(self) -> float:
        first, second = self.k1.factor, self.k2.factor
        # 0 only if one of them is: what underflows must not look like it
        return max(first * second, 5e-324) if first and second else 0.0

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        constant, other = (self.k1, self.k2) if isinstance(self.k1, Constant) else (self.k2, self.k1)
        if not isinstance(constant, Constant):
            return super().random_features(n_components, n_features, random_state, orthogonal)
        return other.random_features(n_components, n_features, random_state, orthogonal).times(np.sqrt(constant.value))


class CallableKernel(Kernel):
    """Any Python function k(A, B) that gives the matrix of kernel values, len(A) x len(B).

    Parameters
    ----------
    function : callable
        Called with two 2-D arrays, from several threads at once; with two CSR matrices where the rows are sparse.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import CallableKernel
    >>> CallableKernel(lambda A, B: np.minimum(A, B.T))([[1.0], [3.0]], [[2.0]])
    array([[1.],
           [2.]])
    """

    def __init__(self, function: KernelFunction) -> None:
        self.function = function

    def resolve(self, X: Array) -> Kernel:
        if not callable(self.function):
            raise TypeError(f"function={self.function!r} must be callable as k(A, B)")
        return type(self)(self.function)  # not clone: a function may be an object that should stay the same one

    def diag(self, X: Array) -> Array:
        X = X if sp.issparse(X) else np.asarray(X)
        rows = (X[i : i + 1] for i in range(X.shape[0]))
        return np.array([self(row, row)[0, 0] for row in rows])

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        if sp.issparse(A) or sp.issparse(B):
            K, shape = self._of_sparse(A, B), (_length(A), _length(B))
        else:
            A, B = np.asarray(A), np.asarray(B)
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found where it is used
                K, shape = np.asarray(self.function(A, B)), (len(A), len(B))
        if K.shape != shape:
            raise ValueError(
                f"the kernel function gave an array of shape {K.shape} for {shape[0]} rows and {shape[1]} centers: "
                f"it must give {shape}"
            )
        if K.dtype.kind not in "fiub":
            raise ValueError(f"the kernel function gave an array of type {K.dtype}: it must give real numbers")
        return K

    def _of_sparse(self, A: Any, B: Any) -> Array:
        _both_sparse(A, B)
        try:
            K = self.function(A, B)
        except Exception as error:
            raise ValueError(
                f"the kernel function cannot take sparse rows ({type(error).__name__}: {error}): it is called with two "
                "CSR matrices; use a named kernel, or dense rows"
            ) from error
        return K.toarray() if sp.issparse(K) else np.asarray(K)  # type: ignore[union-attr]


NAMES: dict[str, type[Kernel]] = {
    "gaussian": Gaussian,
    "rbf": Gaussian,
    "laplacian": Laplacian,
    "matern": Matern,
    "rational_quadratic": RationalQuadratic,
    "linear": Linear,
    "polynomial": Polynomial,
    "poly": Polynomial,
    "sigmoid": Sigmoid,
    "arccosine": ArcCosine,
}


def as_kernel(kernel: Kernel | str | KernelFunction) -> Kernel:
    """The kernel meant by a name, a `Kernel` or a callable.

    Examples
    --------
    >>> from gyrfalcon.kernels import as_kernel
    >>> as_kernel("gaussian")
    Gaussian()
    """
    if isinstance(kernel, str):
        if kernel not in NAMES:
            raise ValueError(f"kernel={kernel!r} is not known: use one of {', '.join(sorted(NAMES))}, or an object")
        return NAMES[kernel]()
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel) and not isinstance(kernel, type):
        return CallableKernel(kernel)
    raise TypeError(f"kernel={kernel!r} must be a name, a gyrfalcon.kernels.Kernel or a callable k(A, B)")


def linear_form(kernel: Kernel) -> tuple[float, float] | None:
    """(a, c) if the kernel is a x.z + c.

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
