"""Which estimators a display is made of: found in a pipeline or a search, fitted, with their rows and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _get_feature_names, check_is_fitted

from .._utils.checks import integer
from ..estimators import FalkonClassifier, FalkonRegressor, KernelKMeans, KernelPCA, NystromRegressor, NytroRegressor
from ..sources import Rows, as_rows, is_dask
from ..tables._auto import AutoEstimator

ON_CENTERS = (FalkonRegressor, FalkonClassifier, NystromRegressor, NytroRegressor, KernelPCA, KernelKMeans)
ON_CENTERS_WORDS = "an estimator with Nyström centers, such as FalkonRegressor or KernelPCA"

_READ_ROWS = 65_536  # rows of a block, where one feature is read from a source
_NAMED = 10  # features that an error names


def find(estimator: Any, kinds: tuple[type, ...], display: type, words: str, X: Any = None) -> tuple[Any, Any]:
    """Return the fitted estimator of one of `kinds`, and X as it is given to that estimator.

    It is the best estimator of a search, the model with the largest weight of an automatic estimator, or the last step
    of these kinds in a pipeline, whose earlier steps transform X. Errors name `display`, and `words` for the kinds.
    """
    if isinstance(estimator, BaseSearchCV):
        check_is_fitted(estimator, "cv_results_")
        if not estimator.refit:
            raise ValueError(
                f"{display.__name__} is drawn from a fitted estimator, and a search with refit=False keeps none: "
                "search "
                "with refit=True, or fit the estimator with its best parameters"
            )
        estimator = estimator.best_estimator_
    whole = type(estimator).__name__
    if isinstance(estimator, AutoEstimator) and not isinstance(estimator, kinds):
        check_is_fitted(estimator)
        estimator = estimator.best_estimator_
    if isinstance(estimator, TransformedTargetRegressor):
        check_is_fitted(estimator)
        estimator = estimator.regressor_
    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    places = [i for i, step in enumerate(steps) if isinstance(step, kinds)]
    if not places:
        got = " and ".join(type(step).__name__ for step in steps)
        of = "" if whole in (got, "Pipeline") else f", of {whole}"
        raise TypeError(f"{display.__name__} is drawn from {words}: got {got}{of}")
    last = places[-1]
    check_is_fitted(steps[last])
    return steps[last], (estimator[:last].transform(X) if last and X is not None else X)


def feature_names(estimator: Any) -> list[str]:
    """Return the names of the features that the estimator was fitted to, or numbers that stand for them."""
    known: NDArray[np.object_] | None = vars(estimator).get("feature_names_in_")
    if known is None:
        return [f"feature {i}" for i in range(estimator.n_features_in_)]
    return [str(name) for name in known]


def number_of(feature: int | str, names: list[str]) -> int:
    """Return the number of a feature that is given by number or by name."""
    if not isinstance(feature, str):
        integer(0, len(names) - 1)("feature", feature)
        return feature
    if feature not in names:
        known = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        raise ValueError(f"feature={feature!r} is not one of the {len(names)} features of the fit: {known}")
    return names.index(feature)


def feature_of(X: Any, feature: int, name: str) -> NDArray[Any]:
    """Return one feature of all rows, from whatever they are given as: by name if they have names, else by number."""
    if isinstance(X, Rows) or is_dask(X):
        parts = [block[:, [feature]] for block in as_rows(X).blocks(_READ_ROWS)]
    else:  # columns of a table can be of different kinds
        columns = _get_feature_names(X)
        if columns is not None and name in columns:  # some estimators take named columns in any order
            feature = list(columns).index(name)
        parts = [_safe_indexing(np.asarray(X) if isinstance(X, list) else X, [feature], axis=1)]
    return np.concatenate([part.toarray() if scipy.sparse.issparse(part) else np.asarray(part) for part in parts])[:, 0]
