"""The estimators of scikit-learn that model files may hold, and which of their attributes are kept.

A file names one of this list, and nothing else of scikit-learn can be named. What such an estimator has learnt is not
only in its public attributes, so that the private ones it predicts by are listed as well. They differ between versions
of scikit-learn: a file says which one wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from .._utils.checks import integer, optional

PREFIX = "sklearn."  # of the names of these classes in files
VERSION: str = sklearn.__version__

State = Mapping[str, Any]  # the attributes of an estimator

_MOST_DEGREES = 100  # largest degree of polynomial features that a file may ask for
_OUTPUT = "_sklearn_output_config"  # what set_output asked for


def _check_numbers(name: str, value: Any, n: Any) -> None:
    if not (isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim):
        raise ValueError(f"{name} must be an array of floats")
    if value.shape[-1] != n:
        raise ValueError(f"{name} has shape {value.shape}, and there are {n} features")


def _check_degrees(state: State, n: Any) -> None:
    integer(0, _MOST_DEGREES)("the degree", state.get("_max_degree"))
    integer(0, _MOST_DEGREES)("the least degree", state.get("_min_degree"))


def _check_categories(state: State, n: Any) -> None:
    """Require a list of categories in order for each feature."""
    if state.get("_infrequent_enabled") is not False:
        raise ValueError("an encoder with min_frequency or max_categories cannot be kept: group rare categories before")
    categories = state.get("categories_")
    if not isinstance(categories, list) or len(categories) != n:
        raise ValueError(f"categories_ must be a list of {n} arrays")
    for one in categories:
        if not isinstance(one, np.ndarray) or one.ndim != 1 or not len(one):
            raise ValueError("categories_ must be arrays of one axis, none of them empty")
        numbers = one[:-1] if one.dtype.kind == "f" and np.isnan(one[-1]) else one
        if one.dtype.kind != "O" and not (numbers[:-1] < numbers[1:]).all():
            raise ValueError("categories_ must increase")


def _check_one_hot(state: State, n: Any) -> None:
    """Require categories, and the number of columns that they make: compiled code follows these numbers."""
    _check_categories(state, n)
    widths = [len(one) for one in state["categories_"]]
    dropped, after = state.get("drop_idx_"), state.get("_drop_idx_after_grouping")
    if not (dropped is None) == (after is None) == (state["drop"] is None):
        raise ValueError("drop_idx_ does not fit drop")
    if dropped is not None and after is not None:
        if not all(isinstance(one, np.ndarray) and one.shape == (n,) for one in (dropped, after)):
            raise ValueError(f"drop_idx_ must have {n} entries")
        places = dropped.tolist()
        for place, width in zip(places, widths, strict=True):
            optional(integer(0, width - 1))("drop_idx_", place)
        if places != after.tolist():
            raise ValueError("drop_idx_ is not that of its encoder")
        widths = [width - (place is not None) for width, place in zip(widths, places, strict=True)]
    if state.get("_n_features_outs") != widths:
        raise ValueError(f"an encoder of {widths} columns says that it has {state.get('_n_features_outs')!r}")


def _check_parts(name: str, parts: Any) -> None:
    """Require a list of steps: a name, an estimator or a word such as "passthrough", and columns."""
    if not isinstance(parts, Iterable) or isinstance(parts, str | dict):
        raise ValueError(f"{name} must be a list of steps")
    for part in parts:
        if not (isinstance(part, tuple) and len(part) in (2, 3) and isinstance(part[0], str)):
            raise ValueError(f"{name} has a step that is no pair of a name and an estimator")
        if not isinstance(part[1], BaseEstimator | str | None):
            raise ValueError(f"step {part[0]!r} of {name} is no estimator")


@dataclass(frozen=True)
class Known:
    """An estimator that files may hold."""

    cls: type
    private: tuple[str, ...] = ()  # attributes that predictions need, beside the public ones that end in an underscore
    features: tuple[str, ...] = ()  # attributes whose last axis has a number for each feature
    parts: tuple[str, ...] = ()  # parameters and attributes that are lists of named steps
    check: Callable[[State, Any], None] | None = None  # raises ValueError for attributes that no fit gives


_KNOWN = {
    known.cls.__name__: known
    for known in (
        Known(Pipeline, parts=("steps",)),
        Known(FeatureUnion, parts=("transformer_list",)),
        Known(
            ColumnTransformer,
            ("_columns", "_transformer_to_input_indices", "_remainder", "_n_features", "_name_to_fitted_passthrough"),
            parts=("transformers", "transformers_"),
        ),
        Known(TransformedTargetRegressor, ("_training_dim",)),
        Known(StandardScaler, features=("mean_", "var_", "scale_")),
        Known(MinMaxScaler, features=("min_", "scale_", "data_min_", "data_max_", "data_range_")),
        Known(MaxAbsScaler, features=("max_abs_", "scale_")),
        Known(RobustScaler, features=("center_", "scale_")),
        Known(QuantileTransformer, features=("quantiles_",)),
        Known(PowerTransformer, ("_scaler",), ("lambdas_",)),
        Known(SimpleImputer, ("_fit_dtype", "_fill_dtype")),
        Known(MissingIndicator, ("_precomputed", "_n_features")),
        Known(
            OneHotEncoder, ("_infrequent_enabled", "_drop_idx_after_grouping", "_n_features_outs"), check=_check_one_hot
        ),
        Known(OrdinalEncoder, ("_infrequent_enabled", "_missing_indices"), check=_check_categories),
        Known(PCA, ("_fit_svd_solver",), ("mean_", "components_")),
        Known(TruncatedSVD, features=("components_",)),
        Known(PolynomialFeatures, ("_min_degree", "_max_degree", "_n_out_full"), check=_check_degrees),
        Known(VarianceThreshold, features=("variances_",)),
        Known(Normalizer),
        Known(Binarizer),
        Known(FunctionTransformer),
    )
}  # fmt: skip


def known_of(cls: type) -> Known | None:
    """Return the entry of a class of scikit-learn, or None for one that files may not hold."""
    known = _KNOWN.get(cls.__name__)
    return known if known is not None and known.cls is cls else None


def named(name: Any) -> Known | None:
    """Return the class that a file names, or None."""
    return _KNOWN.get(name.removeprefix(PREFIX)) if isinstance(name, str) and name.startswith(PREFIX) else None


def is_kept(known: Known | None, attribute: str) -> bool:
    """Whether an attribute goes into a file: a public one that ends in an underscore, or a private one of the list."""
    if known is not None and (attribute in known.private or attribute == _OUTPUT):
        return True
    return attribute.isidentifier() and attribute.endswith("_") and not attribute.startswith("_")


def names() -> list[str]:
    """List the classes that files may hold."""
    return sorted(_KNOWN)


def check_known(estimator: Any, known: Known) -> None:
    """Raise ValueError if an estimator that comes from a file has values that no fit gives it."""
    estimator._validate_params()
    state = vars(estimator)
    for name in known.parts:
        _check_parts(name, state.get(name, []))
    n = state.get("n_features_in_")
    optional(integer(1))("n_features_in_", n)
    for name in known.features:
        if state.get(name) is not None:
            _check_numbers(name, state[name], n)
    if known.check is not None:
        known.check(state, n)
    output = state.get(_OUTPUT, {})
    if not isinstance(output, dict) or not all(isinstance(word, str) for item in output.items() for word in item):
        raise ValueError(f"{_OUTPUT} must be a dict of words")
