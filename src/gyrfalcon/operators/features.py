"""The matrix of random features, F = scale * activation(X W' + offset), as an operator.

F is tall as k(rows, centers) is, and its entries are a function of a row and a row of W as those are of a row and a
center, so that `KernelOperator` runs it. What is particular to it is that functions F alpha have the norm |alpha|:
whoever solves with it takes the identity for the Gram matrix of the centers.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from ..kernels import CallableKernel
from ..kernels.features import FeatureMap
from ..sources import Rows
from .dense import KernelOperator

__all__ = ["feature_operator"]


def feature_operator(
    features: FeatureMap, rows: Rows | ArrayLike, *, n_jobs: int | None = None, memory_budget: int | float | str = 0
) -> KernelOperator:
    """Make the matrix F of the features of all rows, of shape (n, M), as an operator.

    Parameters
    ----------
    features : FeatureMap
    rows : array of shape (n, d), or a source
    n_jobs, memory_budget
        As for `KernelOperator`.

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
    return KernelOperator(CallableKernel(features), rows, features.weights, n_jobs=n_jobs, memory_budget=memory_budget)
