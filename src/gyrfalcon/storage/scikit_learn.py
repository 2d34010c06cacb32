"""The estimators of scikit-learn that model files may hold, and what of them is kept.

A file names one of this list, and nothing else of scikit-learn can be named. What such an estimator has learnt is not
only in its public attributes, so that the private ones it predicts by are listed as well. They differ between versions
of scikit-learn: a file says which one wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
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

from .._utils.checks import integer

__all__ = ["PREFIX", "VERSION", "Known", "check_known", "is_kept", "known_of", "named", "names"]

PREFIX = "sklearn."  # of names in files
VERSION: str = sklearn.__version__

_MOST_DEGREES = 100
_OUTPUT = "_sklearn_output_config"  # what set_output asked for


@dataclass(frozen=True)
class Known:
    """An estimator that files may hold.

    Attributes
    ----------
    cls : type
    private : names of attributes that it predicts by, beside the public ones that end in an underscore
    features : names of attributes whose last axis has a number for each feature
    parts : names of parameters and attributes that are lists of named steps
    """

    cls: type
    private: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


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
        Known(OneHotEncoder, ("_infrequent_enabled", "_drop_idx_after_grouping", "_n_features_outs")),
        Known(OrdinalEncoder, ("_infrequent_enabled", "_missing_indices")),
        Known(PCA, ("_fit_svd_solver",), ("mean_", "components_")),
        Known(TruncatedSVD, features=("components_",)),
        Known(PolynomialFeatures, ("_min_degree", "_max_degree", "_n_out_full")),
        Known(VarianceThreshold, features=("variances_",)),
        Known(Normalizer),
        Known(Binarizer),
        Known(FunctionTransformer),
    )
}  # fmt: skip


def known_of(cls: type) -> Known | None:
    """Return what is kept of a class of scikit-learn, or None for one that files may not hold."""
    known = _KNOWN.get(cls.__name__)
    return known if known is not None and known.cls is cls else None


def named(name: Any) -> Known | None:
    """Return the class that a file names, or None."""
    return _KNOWN.get(name.removeprefix(PREFIX)) if isinstance(name, str) and name.startswith(PREFIX) else None


def is_kept(known: Known, attribute: str) -> bool:
    """Whether a private attribute is kept."""
    return attribute in known.private or attribute == _OUTPUT


def names() -> list[str]:
    """List the classes that files may hold."""
    return sorted(_KNOWN)


def check_known(estimator: Any, known: Known) -> None:
    """Raise ValueError if an estimator that comes from a file has values that no fit gives it.

    Parameters
    ----------
    estimator : estimator
    known : Known
    """
    estimator._validate_params()
    state = vars(estimator)
    for name in known.parts:
        _check_parts(name, state.get(name, []))
    n = state.get("n_features_in_")
    if n is not None and not (type(n) is int and n >= 1):
        raise ValueError(f"n_features_in_={n!r} must be an integer of at least 1")
    for name in known.features:
        value = state.get(name)
        if value is not None and not (isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim):
            raise ValueError(f"{name} must be an array of floats")
        if value is not None and value.shape[-1] != n:
            raise ValueError(f"{name} has shape {value.shape}, and there are {n} features")
    if isinstance(estimator, OneHotEncoder | OrdinalEncoder):
        _check_categories(estimator, n)
    if isinstance(estimator, PolynomialFeatures):
        integer(0, _MOST_DEGREES)("the degree", state.get("_max_degree"))
        integer(0, _MOST_DEGREES)("the least degree", state.get("_min_degree"))
    output = state.get(_OUTPUT, {})
    if not isinstance(output, dict) or not all(isinstance(word, str) for item in output.items() for word in item):
        raise ValueError(f"{_OUTPUT} must be a dict of words")


def _check_categories(encoder: Any, n: Any) -> None:
    """Require categories in order, and as many columns as they make: compiled code follows these numbers."""
    state = vars(encoder)
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
    if not isinstance(encoder, OneHotEncoder):
        return
    dropped, after = state.get("drop_idx_"), state.get("_drop_idx_after_grouping")
    if (dropped is None) != (after is None) or (dropped is None) != (encoder.drop is None):
        raise ValueError("drop_idx_ does not fit drop")
    widths = [len(one) for one in categories]
    if dropped is not None:
        if not (
            isinstance(dropped, np.ndarray) and isinstance(after, np.ndarray) and dropped.shape == (n,) == after.shape
        ):
            raise ValueError(f"drop_idx_ must have {n} entries")
        for i, (place, other) in enumerate(zip(dropped.tolist(), after.tolist(), strict=True)):
            if place != other or not (place is None or (type(place) is int and 0 <= place < widths[i])):
                raise ValueError(f"drop_idx_ has {place!r} for a feature of {widths[i]} categories")
        widths = [width - (place is not None) for width, place in zip(widths, dropped.tolist(), strict=True)]
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
