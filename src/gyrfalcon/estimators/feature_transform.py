"""Random features: M random functions of a row stand for a kernel, and linear methods on them for kernel methods.

A kernel says how its features are drawn (`Kernel.random_features`), and what comes out is a `FeatureMap`. The matrix F
of the features of n rows is tall, as k(rows, centers) is, so the same operator runs it: `feature_operator`. What is
particular to it is that functions F alpha have the norm |alpha|: the centers' Gram matrix is the identity.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.ranges import check_kernel_scale
from .._utils.registry import register
from .._utils.threads import effective_n_jobs, share
from ..kernels import Kernel, as_kernel
from ..kernels.features import FeatureMap
from ..operators import KernelOperator, feature_operator
from ..preconditioners import Halfway, Identity
from ..sources import ArrayRows, Rows
from ..storage.models import SaveMixin

__all__ = ["FeatureCoordinates", "RandomFeatures", "normal_equations", "solve_ridge"]

Array = NDArray[Any]
Vectors = NDArray[np.float64]

_SAMPLE = 10_000
_PANELS = 8  # of the columns of F, so that there are enough products of two of them to share among threads


def sample_of(rows: Rows, random_state: np.random.RandomState, weight: Array | None = None) -> NDArray[np.intp]:
    """Indices of rows to work out a kernel's length scale from: those of weight not 0, at most 10,000 of them."""
    candidates = np.arange(rows.shape[0]) if weight is None else np.flatnonzero(weight)
    if len(candidates) > _SAMPLE:
        candidates = np.sort(random_state.choice(candidates, _SAMPLE, replace=False))
    return candidates


class FeatureCoordinates(Identity):
    """Coordinates for solvers, B = I / sqrt(n), where the Gram matrix is the identity and need not be stored.

    Parameters
    ----------
    n, M : int
        Rows and features.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.estimators.feature_transform import FeatureCoordinates
    >>> FeatureCoordinates(4, 2).apply(np.array([1.0, 2.0]))
    array([0.5, 1. ])
    """

    def __init__(self, n: int, M: int) -> None:
        self.n, self.M, self.rank = n, M, M

    def backward(self, s: NDArray[Any], halfway: Halfway, penalty: float) -> Vectors:
        (alpha,) = halfway
        return self.apply_transpose(s + penalty * self.n * alpha)


# ---- accumulated least squares ---------------------------------------------------------------------------------------


def normal_equations(
    operator: KernelOperator, y: NDArray[Any], weight: NDArray[Any] | None = None, *, n_jobs: int | None = None
) -> tuple[Vectors, Vectors]:
    """F'WF and F'Wy in one pass: O(M^2) memory, whatever the number of rows.

    Blocks are converted to float64 before they are multiplied, so that F'WF is positive to that precision, and are
    added in their order. A block's product is shared out by columns, not by rows, so that the threads need no
    matrices of their own. The bits of the result do not depend on their number.

    Parameters
    ----------
    operator : KernelOperator
        F, of shape (n, M).
    y : array of shape (n, k)
    weight : array of shape (n,), optional
        The diagonal of W, not negative.
    n_jobs : int or None

    Returns
    -------
    G : array of shape (M, M), symmetric
    c : array of shape (M, k)
    """
    M, k = operator.shape[1], y.shape[1]
    G, c = np.zeros((M, M)), np.zeros((M, k))
    size = min(512, max(64, -(-M // _PANELS)))
    panels = [slice(start, min(start + size, M)) for start in range(0, M, size)]
    pairs = [(panels[i], panels[j]) for i in range(len(panels)) for j in range(i, len(panels))]
    n_threads = effective_n_jobs(n_jobs)
    for at, block in operator.blocks():
        F, Y = block.astype(np.float64, copy=weight is not None), y[at].astype(np.float64)
        if weight is not None:
            root = np.sqrt(weight[at].astype(np.float64))[:, None]
            F *= root
            Y *= root

        def add(pair: tuple[slice, slice], F: Vectors = F, Y: Vectors = Y) -> None:
            left, right = pair
            with np.errstate(over="ignore", invalid="ignore"):  # found below
                G[left, right] += F[:, left].T @ F[:, right]
                if left is right:
                    c[left] += F[:, left].T @ Y

        share(add, pairs, n_threads)
    squares = float(G.trace()) / operator.shape[0]  # of a row's features: k(x, x), on average
    check_kernel_scale(squares if squares or not c.any() else 5e-324, np.float64, power=1)
    for left, right in pairs:
        G[right, left] = G[left, right].T
    return G, c


def solve_ridge(G: Vectors, c: Vectors, ridge: float) -> Vectors:
    """(G + ridge I)^-1 c for a positive semidefinite G, which is overwritten; the shortest solution if G is singular.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.estimators.feature_transform import solve_ridge
    >>> solve_ridge(np.diag([3.0, 0.0]), np.array([[2.0], [0.0]]), 1.0)
    array([[0.5],
           [0. ]])
    >>> solve_ridge(np.ones((2, 2)), np.array([[2.0], [2.0]]), 0.0).round(12)
    array([[1.],
           [1.]])
    """
    M = len(G)
    diagonal = G.diagonal().copy()
    noise = M * np.finfo(np.float64).eps * diagonal.max(initial=0.0)
    G.flat[:: M + 1] = diagonal + ridge
    try:
        # LAPACK is given columns and writes one triangle; the other still has G if the factor is no good
        factor = cho_factor(G.T, lower=True, overwrite_a=True, check_finite=False)
        if np.square(factor[0].diagonal()).min() > noise:
            solution: Vectors = cho_solve(factor, c, check_finite=False)
            return solution
    except LinAlgError:
        pass
    G.flat[:: M + 1] = diagonal
    values, vectors = eigh(G.T, lower=False, overwrite_a=True, check_finite=False)
    kept = values > max(noise, np.finfo(np.float64).tiny)
    values, vectors = values[kept], vectors[:, kept]
    return vectors @ ((vectors.T @ c) / (values + ridge)[:, None])


# ---- the transformer -------------------------------------------------------------------------------------------------


@register
class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SaveMixin, BaseEstimator):  # type: ignore[misc]
    """Random features of a kernel, as a step of a pipeline before any linear method.

    Inner products of the features are the kernel on average, with an error that falls like 1 / sqrt(n_components):
    cosines of random frequencies for `Gaussian`, `Laplacian`, `Matern` and `RationalQuadratic` [1]_, ReLU and step
    units for `ArcCosine`, random projections for `Linear`; the columns of both for sums of kernels.

    Parameters
    ----------
    kernel : Kernel or str
        A kernel of `gyrfalcon.kernels` or its name. A length scale "scale" is worked out from the rows, at most
        10,000 of them.
    n_components : int
        Number of features M.
    orthogonal : bool
        Weights that are orthogonal in groups of `n_features_in_`, and frequencies used by a cosine and a sine each
        [2]_: less variance of the kernel at the same cost.
    dtype : "auto", "float32" or "float64"
        Of the features; "auto" follows X.
    n_jobs : int or None
        Threads; None is every core.
    random_state : int, RandomState or None
        Seed of the weights.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    feature_map_ : FeatureMap
        The weights.
    n_features_in_ : int
        Number of features of X.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    RandomFeaturesRegressor : Least squares on such features, which never makes all of them at once.

    References
    ----------
    .. [1] Rahimi, Recht, "Random Features for Large-Scale Kernel Machines", NeurIPS 2007.
    .. [2] Yu, Suresh, Choromanski, Holtmann-Rice, Kumar, "Orthogonal Random Features", NeurIPS 2016.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from gyrfalcon import RandomFeatures
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = make_pipeline(RandomFeatures(n_components=200, random_state=0), LogisticRegression(C=100.0))
    >>> bool(model.fit(X, y).score(X, y) > 0.99)
    True
    """

    kernel_: Kernel
    feature_map_: FeatureMap
    n_features_in_: int

    def __init__(
        self,
        kernel: Kernel | str = "gaussian",
        n_components: int = 1000,
        *,
        orthogonal: bool = False,
        dtype: Any = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.orthogonal = orthogonal
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RandomFeatures:
        """Draw the weights.

        Parameters
        ----------
        X : array or table of shape (n, n_features)
            Its number of features is used, and its spread where the kernel has the length scale "scale".
        y : ignored

        Returns
        -------
        self
        """
        n_components = self.n_components
        if isinstance(n_components, bool) or not isinstance(n_components, Integral) or n_components < 1:
            raise ValueError(f"n_components={n_components!r} must be an integer of at least 1")
        rows = self._rows(validate_data(self, X, dtype=[np.float64, np.float32]))
        random_state = check_random_state(self.random_state)
        kernel = as_kernel(self.kernel).resolve(rows.take(sample_of(rows, random_state)))
        kernel.check_precision(rows.dtype)
        self.feature_map_ = kernel.random_features(int(n_components), rows.shape[1], random_state, self.orthogonal)
        self.kernel_ = kernel
        return self

    def transform(self, X: Any) -> Array:
        """The features of rows.

        Parameters
        ----------
        X : array or table of shape (n, n_features)

        Returns
        -------
        array of shape (n, n_components)
        """
        check_is_fitted(self)
        rows = self._rows(validate_data(self, X, reset=False, dtype=[np.float64, np.float32]))
        operator = feature_operator(self.feature_map_, rows, n_jobs=self.n_jobs)
        out = np.empty(operator.shape, dtype=operator.dtype)
        for at, F in operator.blocks():
            out[at] = F
        return out

    def _rows(self, X: Array) -> ArrayRows:
        if isinstance(self.dtype, str) and self.dtype == "auto":
            return ArrayRows(X, X.dtype)
        try:
            return ArrayRows(X, np.dtype(self.dtype))
        except (TypeError, ValueError) as error:
            raise ValueError(f'dtype={self.dtype!r} must be "auto", "float32" or "float64"') from error

    @property
    def _n_features_out(self) -> int:
        return len(self.feature_map_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "feature_map_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_loaded(self) -> None:
        if not isinstance(self.kernel_, Kernel) or not isinstance(self.feature_map_, FeatureMap):
            raise ValueError("kernel_ is not a kernel, or feature_map_ is no FeatureMap")
        self.feature_map_.check(self.n_features_in_)
