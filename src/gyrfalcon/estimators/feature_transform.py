"""Random features of a kernel as a transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import integer
from .._utils.registry import register
from .._utils.sampling import sample_rows
from ..fitting.arguments import described
from ..fitting.attributes import check_attributes
from ..fitting.parameters import check_parameters
from ..fitting.random_features import check_loaded_map
from ..fitting.rows import Reading, classify, more_rows, tile_dtype, training_rows
from ..kernels import Kernel, as_kernel
from ..kernels.features import FeatureMap
from ..operators import feature_operator
from ._estimator import Estimator
from ._lazy import in_kind

Array = NDArray[Any]


@register
@described
class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):  # type: ignore[misc]
    """Random features of a kernel, as a step of a pipeline before any linear method.

    Inner products of the features approximate the kernel, with an error that falls like 1 / sqrt(n_components): the
    features are cosines of random frequencies for `Gaussian`, `Laplacian`, `Matern` and `RationalQuadratic` [1]_, ReLU
    and step units for `ArcCosine`, random projections for `Linear`, units of a neural net for `RandomLayer`, and the
    columns of all terms for sums of kernels.

    Parameters
    ----------
    kernel : Kernel or str, default="gaussian"
        A kernel of `gyrfalcon.kernels` or its name. A length scale "scale" is computed from the rows, at most 10,000 of
        them.
    n_components : int, default=1000
        Number of features M. More features approximate the kernel better.
    orthogonal : bool, default=False
        Whether weights are orthogonal in groups of `n_features_in_`, with a cosine and a sine for each frequency [2]_.
        Orthogonal weights approximate the kernel with less variance at the same cost.
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of the features. "auto" is the precision of X.
    {n_jobs}
    random_state : int, RandomState or None, default=None
        Seed of the weights.

    Attributes
    ----------
    {kernel_}
    feature_map_ : FeatureMap
        The weights.
    {n_features_in_, feature_names_in_}

    See Also
    --------
    RandomFeaturesRegressor : Least squares on such features, which never stores all of them at once.

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
        X : array, table or source of shape (n, n_features)
            The number of features is taken from it, and its spread where the kernel has the length scale "scale".
        y : ignored

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), n_components=integer(1))
        train = training_rows(self._reading, classify(X))
        rows = train.rows.astype(tile_dtype(self.dtype, train.rows))
        random_state = check_random_state(self.random_state)
        kernel = as_kernel(self.kernel).resolve(rows.take(sample_rows(rows.shape[0], random_state)))
        kernel.check_precision(rows.dtype)
        feature_map = kernel.random_features(int(self.n_components), rows.shape[1], random_state, self.orthogonal)
        self._set_features(train.features)
        self.kernel_, self.feature_map_ = kernel, feature_map
        return self

    @in_kind
    def transform(self, X: Any) -> Array:
        """Compute the features of rows.

        Parameters
        ----------
        X : array, table or source of shape (n, n_features)

        Returns
        -------
        array of shape (n, n_components)
        """
        check_is_fitted(self)
        rows = more_rows(self._reading, self._features, X, standardised=False)
        rows = rows.astype(tile_dtype(self.dtype, rows))
        operator = feature_operator(self.feature_map_, rows, n_jobs=self.n_jobs)
        out = np.empty(operator.shape, dtype=operator.dtype)
        for at, F in operator.blocks():
            out[at] = F
        return out

    @property
    def _reading(self) -> Reading:
        """How rows are read: they are not standardised."""
        return Reading(type(self).__name__, self.kernel, self.dtype)

    @property
    def _n_features_out(self) -> int:
        return len(self.feature_map_)

    def __sklearn_is_fitted__(self) -> bool:
        return "feature_map_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_loaded(self) -> None:
        check_attributes(vars(self))
        check_loaded_map(self.kernel_, self.feature_map_, self.n_features_in_)
