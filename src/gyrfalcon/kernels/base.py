"""The contract of kernels: what a subclass of `Kernel` defines, and the defaults for everything else.

A kernel says what it is a function of (its `geometry`) and gives that function, its `profile`, in NumPy:

========== ================================================================ ==========================================
geometry   the profile's argument                                           kernels
========== ================================================================ ==========================================
distance   s = sum_j ((x_j - z_j) / length_scale_j)^2                       Gaussian, Laplacian, Matern, ...
manhattan  s = sum_j |x_j - z_j| / length_scale_j                           Laplacian(norm=1)
dot        s = x.z                                                          Linear, Polynomial, Sigmoid
angle      s = 1 - cos(angle between x and z), times (|x||z|)^norm_power    ArcCosine
========== ================================================================ ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone

from .._utils import sparse
from .._utils.ranges import power_of_two
from .._utils.words import shown
from .features import FeatureMap

if TYPE_CHECKING:
    from .composite import Product, Sum

Array = NDArray[np.floating[Any]]
KernelFunction = Callable[[Array, Array], ArrayLike]
Evaluate = Callable[["Kernel", Array, Array], Array]
Geometry = Literal["distance", "manhattan", "dot", "angle"]

# A term smaller than this many times the rounding of a larger one is lost: at 2, R2 of Linear() + 1.0 was -24.
_LOST = 10.0


class Slope(NamedTuple):
    """A part of the gradient of a kernel with respect to x: -factor_j psi(x, z) d_j, for each feature j.

    Attributes
    ----------
    psi : Kernel
    factor : array of shape (n_features,)
    signs : bool
        Whether d_j is the sign of x_j - z_j, as for kernels of the 1-norm, or that difference itself.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> (slope,) = Gaussian(2.0).slopes(3)
    >>> slope.factor, slope.signs
    (array([0.25, 0.25, 0.25]), False)
    """

    psi: Kernel
    factor: Array
    signs: bool = False


class ProductTerm(NamedTuple):
    """A product over the features: constant * prod_j exp(-squares_j (x_j - z_j)^2 - sizes_j |x_j - z_j|).

    Attributes
    ----------
    constant : float
    squares, sizes : array of shape (n_features,)

    Examples
    --------
    >>> from gyrfalcon.kernels import Gaussian
    >>> (term,) = (3.0 * Gaussian(0.5)).product_terms(2)
    >>> term.constant, term.squares, term.sizes
    (3.0, array([2., 2.]), array([0., 0.]))
    """

    constant: float
    squares: Array
    sizes: Array

    def times(self, other: ProductTerm) -> ProductTerm:
        """Return the product of two terms."""
        return ProductTerm(self.constant * other.constant, self.squares + other.squares, self.sizes + other.sizes)


class Kernel(BaseEstimator):  # type: ignore[misc]
    """Base class of all kernels.

    A subclass defines its parameters, `geometry` and `profile`; ten lines are enough for every source and backend. The
    native backend finds a faster profile by the kernel's type, where there is one. Kernels can be added and multiplied:
    ``Gaussian(2.0) + 0.1 * Linear()``.

    Attributes
    ----------
    geometry : {"distance", "manhattan", "dot", "angle"}
        What the profile is a function of.
    smooth : bool
        Whether the profile is differentiable where x = z. Where it is not (Laplacian), rounding errors of small
        distances matter, and backends sum squared differences, which is slower.
    norm_power : int
        Power of the norms |x||z| that multiply the profile; for the geometry "angle".

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Kernel
    >>> class Cauchy(Kernel):
    ...     geometry = "distance"
    ...
    ...     def profile(self, s):
    ...         return 1.0 / (1.0 + s)
    >>> Cauchy()(np.array([[0.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 2.0]]))
    array([[0.5, 0.2]])
    """

    geometry: Geometry = "distance"
    smooth: ClassVar[bool] = True
    norm_power: int = 0

    def profile(self, s: Array) -> Array:
        """Evaluate the kernel as a function of `s`; see `geometry`."""
        raise NotImplementedError(f"{type(self).__name__} must define profile(s)")

    def resolve(self, X: Array) -> Kernel:
        """Return a copy with checked parameters, in which "scale" is replaced by its value for the rows `X`."""
        return clone(self)

    @property
    def has_given_scale(self) -> bool:
        """Whether the kernel has a number in the units of the features: ``scale="auto"`` then leaves rows as they are.

        A formula of one's own is in these units, whatever its parameters; `Stationary` kernels have such a number if
        their length scale is given, sums and products if one of their parts has.

        Examples
        --------
        >>> from gyrfalcon.kernels import Gaussian, Linear
        >>> Gaussian(2.0).has_given_scale, Gaussian().has_given_scale, (Gaussian(2.0) + Linear()).has_given_scale
        (True, False, True)
        """
        return True

    @property
    def has_common_scale(self) -> bool:
        """Whether one length scale serves all features, so that large features drown small ones."""
        return False

    def scaling(self, n_features: int) -> Array:
        """Return the factor of each feature, applied before anything else; broadcast a factor common to all."""
        return np.broadcast_to(1.0, (n_features,))

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        """Return the numbers that a backend stores in the precision `info`, by the parameter they derive from."""
        return {}

    @property
    def factor(self) -> float:
        """Product of the constants that multiply the kernel."""
        return 1.0

    def check_precision(self, dtype: DTypeLike) -> None:
        """Raise ValueError if a parameter of the resolved kernel, or a number made of it, leaves the range of `dtype`.

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
            # profiles multiply these by small factors, hence the margin of 8
            if not ((size == 0) | ((size >= info.tiny) & (size <= info.max / 8))).all():
                value = self.get_params(deep=False).get(name, numbers)
                remedy = "" if info.dtype == np.float64 else 'dtype="float64", or '
                raise ValueError(
                    f"{type(self).__name__}: {name}={shown(value)} leaves the range of {info.dtype}: use "
                    f"{remedy}another value and features that are scaled to it"
                )

    def term_sizes(self, X: Array) -> tuple[float, float]:
        """Return the sizes at `X` of the smallest and the largest term whose sum the resolved kernel is."""
        size = float(np.mean(np.abs(self.diag(X))))
        return size, size

    def check_terms(self, X: Array, dtype: DTypeLike) -> None:
        """Raise ValueError if in `dtype`, at `X`, a term of the kernel is lost to the rounding of a larger one.

        Examples
        --------
        >>> import numpy as np
        >>> from gyrfalcon.kernels import Linear
        >>> (Linear() + 1.0).check_terms(np.full((2, 1), 1e4), np.float32)
        Traceback (most recent call last):
        ValueError: Linear() + 1.0 is a sum of terms of about 1 and 1e+08: in float32 the smaller ...
        """
        least, most = self.term_sizes(X)
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
        """Draw random features of the resolved kernel: the expectation of their inner products is the kernel.

        Parameters
        ----------
        n_components : int
            Number of random features; the error falls like 1 / sqrt(n_components). Kernels of lower rank return fewer.
        n_features : int
            Number of features of a row.
        random_state : RandomState
        orthogonal : bool
            Whether weights are orthogonal in groups of `n_features`, which lowers the variance.

        Returns
        -------
        FeatureMap
        """
        raise ValueError(
            f"{type(self).__name__} has no random features: use Gaussian, Laplacian, Matern, RationalQuadratic, "
            "ArcCosine, Linear, RandomLayer, sums of these, and their products with a constant"
        )

    def slopes(self, n_features: int) -> list[Slope]:
        """Return the parts of the gradient with respect to x of the resolved kernel, which are kernels times x - z.

        `gyrfalcon.operators.gradients` makes gradients of sums of kernels of them.

        Examples
        --------
        >>> from gyrfalcon.kernels import Gaussian
        >>> Gaussian(0.5).slopes(2)
        [Slope(psi=Gaussian(length_scale=0.5), factor=array([4., 4.]), signs=False)]
        """
        raise ValueError(
            f"{type(self).__name__} has no slopes, of which gradients are made: use Gaussian, Laplacian, Matern, "
            "RationalQuadratic, or sums and products of these and of constants"
        )

    def product_terms(self, n_features: int) -> list[ProductTerm] | None:
        """Return the products over the features whose sum the resolved kernel is; None if it is no such sum.

        Shapley values of expansions of such kernels are exact (`gyrfalcon.shapley_values`). A subclass with another
        `profile` than a kernel that has terms must override it.

        Examples
        --------
        >>> from gyrfalcon.kernels import Gaussian, Laplacian, Matern
        >>> len((Gaussian(1.0) + 2.0 * Laplacian(1.0, norm=1)).product_terms(3))
        2
        >>> Matern(1.0).product_terms(3) is None
        True
        """
        return None

    def log_parameters(self, n_features: int) -> Array:
        """Return the logarithms of the parameters that gradients can tune, of shape (p,); of a resolved kernel.

        Kernels without such parameters have p = 0. A kernel that overrides it also overrides the three methods below.

        Examples
        --------
        >>> from gyrfalcon.kernels import Gaussian
        >>> Gaussian(1.0).log_parameters(2)
        array([0., 0.])
        """
        return np.zeros(0)

    def with_log_parameters(self, theta: Array, n_features: int) -> Kernel:
        """Return the kernel with other parameters; `theta` is as `log_parameters` returns it."""
        return self

    def parameter_gradient(self, A: Array, B: Array, P: Array, evaluate: Evaluate) -> Array:
        """Compute sum_ij P_ij dk(a_i, b_j)/dtheta, of shape (p,); `evaluate(kernel, A, B)` returns a kernel matrix."""
        return np.zeros(0)

    def parameter_gradient_of_diag(self, X: Array, weights: Array) -> Array:
        """Compute sum_i weights_i dk(x_i, x_i)/dtheta, of shape (p,)."""
        return np.zeros(len(self.log_parameters(X.shape[1])))

    def in_units(self, units: Array) -> Kernel:
        """Return the resolved kernel of features that are `units` times as large, with the same values.

        Examples
        --------
        >>> import numpy as np
        >>> from gyrfalcon.kernels import Gaussian
        >>> Gaussian(2.0).in_units(np.array([1.0, 10.0])).length_scale
        array([ 2., 20.])
        """
        raise ValueError(
            f"{type(self).__name__} has no length scales to convert to the units of the features: standardise the "
            "features first, and use kernels with length scales that are given"
        )

    def diag(self, X: Array) -> Array:
        """Compute k(x, x) for each row of `X`; infinite where it overflows."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._diag(X)

    def constant_diag(self) -> float | None:
        """Return k(x, x) of the resolved kernel if it is one number for all x, so that no rows need be read for it.

        None if it depends on x, or if that is not known. It is a number for every kernel of distances whose `diag` is
        this class's.

        Examples
        --------
        >>> from gyrfalcon.kernels import Gaussian, Linear
        >>> (2.0 * Gaussian(1.0)).constant_diag(), (Gaussian(1.0) + Linear()).constant_diag()
        (2.0, None)
        """
        own = type(self).diag is not Kernel.diag or type(self)._diag is not Kernel._diag
        if own or self.geometry not in ("distance", "manhattan"):
            return None
        with np.errstate(all="ignore"):
            return float(self.profile(np.zeros(1))[0])

    def _diag(self, X: Array) -> Array:
        constant = self.constant_diag()
        if constant is not None:
            return np.full(X.shape[0], constant)
        if sp.issparse(X):
            squares = sparse.row_squares(sparse.scaled(X, self.scaling(X.shape[1])))
        else:
            X = np.asarray(X, dtype=np.float64) * self.scaling(X.shape[1])
            squares = np.einsum("ij,ij->i", X, X)
        if self.geometry == "dot":
            return self.profile(squares)
        return self.profile(np.zeros_like(squares)) * squares**self.norm_power

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        """Compute the dense matrix k(A, B) in float64, by the definition: every fast path is tested against it.

        `A` and `B` are both arrays or both CSR matrices, which are not made dense.
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
        K = self.profile(0.5 * cdist(_unit_rows(A), _unit_rows(B), "sqeuclidean"))
        norms = np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1))
        return K * norms**self.norm_power

    def _sparse_call(self, A: Any, B: Any) -> Array:
        require_both_sparse(A, B)
        scale = self.scaling(A.shape[1])
        A, B = sparse.scaled(A, scale), sparse.scaled(B, scale)
        if self.geometry == "dot":
            return self.profile((A @ B.T).toarray())
        if self.geometry == "distance":
            return self.profile(sparse.squared_distances(A, B))
        if self.geometry == "manhattan":
            return self.profile(sparse.absolute_distances(A, B))
        norms_a, norms_b = np.sqrt(sparse.row_squares(A)), np.sqrt(sparse.row_squares(B))
        K = self.profile(0.5 * sparse.squared_chords(_sparse_unit_rows(A, norms_a), _sparse_unit_rows(B, norms_b)))
        return K * np.outer(norms_a, norms_b) ** self.norm_power

    # Sums and products are kernels themselves, so that their module imports this one.

    def __add__(self, other: Any) -> Sum:
        from .composite import Sum

        return Sum.of(self, other)

    def __radd__(self, other: Any) -> Sum:
        from .composite import Sum

        return Sum.of(other, self)

    def __mul__(self, other: Any) -> Product:
        from .composite import Product

        return Product.of(self, other)

    def __rmul__(self, other: Any) -> Product:
        from .composite import Product

        return Product.of(other, self)


def _unit_rows(X: Array) -> Array:
    """Divide rows by their norms, and add a column of 1 for zero rows, which are then orthogonal to all others."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    zero = norms == 0
    return np.hstack([X / np.where(zero, 1.0, norms), zero.astype(X.dtype)])


def _sparse_unit_rows(X: Any, norms: Array) -> Any:
    data = X.data / np.repeat(np.where(norms == 0, 1.0, norms), np.diff(X.indptr))
    unit = sp.csr_array((data, X.indices, X.indptr), shape=X.shape)
    return sp.csr_array(sp.hstack([unit, sp.csr_array((norms == 0).astype(np.float64)[:, None])]))


def require_both_sparse(A: Any, B: Any) -> None:
    """Raise TypeError unless both `A` and `B` are sparse."""
    if not (sp.issparse(A) and sp.issparse(B)):
        raise TypeError("one of A and B is sparse and the other is not: give both sparse, or both dense")


def total_variance(X: Any) -> tuple[float, float]:
    """Compute the sum of the features' variances divided by unit^2, and the unit; both are 1 if no feature varies."""
    if not sp.issparse(X):
        X = np.asarray(X, dtype=np.float64)
    unit = power_of_two(X.data if sp.issparse(X) else X)
    total = sparse.total_variance(X / unit) if sp.issparse(X) else float(np.var(X / unit, axis=0).sum())
    return (total, unit) if total > 0 else (1.0, 1.0)
