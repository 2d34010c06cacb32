"""The matrix of random features, F = scale * activation(X W' + offset), as an operator.

Its entries are functions of a row of X and a row of W, so that `KernelOperator` multiplies it like k(rows, centers).
The norm of a function F alpha is |alpha|.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..kernels import CallableKernel
from ..kernels.features import FeatureMap
from ..sources import Rows
from .base import Operator
from .dense import KernelOperator
from .device import DeviceOperator

__all__ = ["DeviceFeatureOperator", "FeatureOperator", "feature_operator"]


class FeatureOperator(KernelOperator):
    """The matrix F of random features, whose columns are orthonormal functions. See `feature_operator`."""

    def centers_gram(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """Return the identity: the Gram matrix of the features, in the place of the centers'."""
        return _identity(self, dtype)


class DeviceFeatureOperator(DeviceOperator):
    """The matrix F of random features on devices."""

    def centers_gram(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """Return the identity, as `FeatureOperator.centers_gram` does."""
        return _identity(self, dtype)


def _identity(operator: Operator, dtype: DTypeLike | None) -> NDArray[Any]:
    return np.eye(operator.shape[1], dtype=operator.dtype if dtype is None else dtype, order="F")


def feature_operator(
    features: FeatureMap,
    rows: Rows | ArrayLike,
    *,
    n_jobs: int | None = None,
    memory_budget: int | float | str = 0,
    device: Any = None,
) -> Operator:
    """Make the matrix F of the features of all rows, of shape (n, M), as an operator.

    Parameters
    ----------
    features : FeatureMap
    rows : array of shape (n, d), or a source
    n_jobs, memory_budget
        As for `KernelOperator`.
    device
        As for `make_operator`. Activations that are functions of arrays are computed on the host.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators import feature_operator
    >>> X = np.random.default_rng(0).standard_normal((1000, 3))
    >>> F = feature_operator(Gaussian(1.0).random_features(50, 3, np.random.RandomState(0)), X)
    >>> F.shape, F.matmat(np.ones(50)).shape
    ((1000, 50), (1000,))
    """
    kernel, weights = CallableKernel(features), features.weights
    if device is None:
        return FeatureOperator(kernel, rows, weights, n_jobs=n_jobs, memory_budget=memory_budget)
    return DeviceFeatureOperator(kernel, rows, weights, device=device, n_jobs=n_jobs, memory_budget=memory_budget)
