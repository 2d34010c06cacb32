"""Predictions for Dask collections, which are computed when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from sklearn.utils.validation import check_is_fitted

from ..sources import is_dask


def lazily(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Decorate a method that predicts, so that it returns a Dask array for a Dask collection."""

    @wraps(method)
    def predict(self: Any, X: Any) -> Any:
        if not is_dask(X):
            return method(self, X)
        from ..sources.dask import predict_lazily

        check_is_fitted(self)
        return predict_lazily(self, X, method.__name__)

    return predict
