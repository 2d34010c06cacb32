"""Multiplication of rows by a matrix, as a step of a pipeline."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array

from .._utils.registry import register

Array = NDArray[Any]


@register
class Mixing(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Multiplies rows by a given matrix: a metric found by the search, under which y depends on few directions.

    Parameters
    ----------
    matrix : array of shape (n_features, n_out)

    See Also
    --------
    gyrfalcon.LearnedMetric : learns such a matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.tables import Mixing
    >>> Mixing(np.array([[1.0, 1.0], [1.0, -1.0]])).fit_transform([[2.0, 1.0]])
    array([[3., 1.]])
    """

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check that X has as many columns as the matrix has rows; nothing is learnt.

        Parameters
        ----------
        X : array of shape (n, n_features)
        y : ignored

        Returns
        -------
        self
        """
        self.transform(X)
        return self

    def transform(self, X: Any) -> Array:
        """Return X times the matrix, in the precision of X.

        Parameters
        ----------
        X : array of shape (n, n_features)

        Returns
        -------
        array of shape (n, n_out)
        """
        rows = check_array(X, dtype=[np.float64, np.float32])
        matrix = np.asarray(self.matrix)
        if matrix.ndim != 2 or matrix.shape[0] != rows.shape[1]:
            raise ValueError(f"X has {rows.shape[1]} columns, and the matrix has shape {matrix.shape}")
        return np.asarray(rows @ matrix.astype(rows.dtype))

    def __sklearn_is_fitted__(self) -> bool:
        return True
