"""The values that fitted attributes may have, for estimators that come from a model file."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from .._utils.checks import Rule, boolean, integer, not_negative, one_of

# numbers of a record that others than its own callbacks read
_NUMBERS = ("iteration", "passes", "seconds", "validation_error", "error")


def _history(name: str, value: Any) -> None:
    """Require a list of records, each with names and the numbers that are read of it."""
    if not isinstance(value, list) or not all(isinstance(record, dict) for record in value):
        raise ValueError(f"{name} must be a list of dicts")
    for record in value:
        wrong = [key for key in _NUMBERS if not isinstance(record.get(key, 0.0), Real)]
        if (
            wrong
            or not isinstance(record.get("residual"), Real | None)
            or not all(isinstance(key, str) for key in record)
        ):
            raise ValueError(f"{name} has a record whose names or numbers are something else")


def _strings(name: str, value: Any) -> None:
    """Require a list or an array of one axis of strings."""
    shaped = isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    if not shaped or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{name} must be a list of strings")


def _classes(name: str, value: Any) -> None:
    """Require labels: strings or numbers in an array of one axis."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or not len(value):
        raise ValueError(f"{name} must be an array of one axis with at least one class")


# The rules of attributes that mean the same wherever they occur. An estimator adds those of its own.
_SHARED: Mapping[str, Rule] = {
    "n_features_in_": integer(1),
    "feature_names_in_": _strings,
    "target_names_": _strings,
    "classes_": _classes,
    "history_": _history,
    "n_iter_": integer(0),
    "n_components_": integer(0),
    "penalty_": not_negative(),
    "output_dtype_": one_of("float32", "float64"),
    "one_column_": boolean,
}


def check_attributes(estimator: Any) -> None:
    """Raise ValueError if an attribute from a model file has a value that no fit gives it.

    Parameters
    ----------
    estimator : estimator
        Only attributes that it has are checked: which of them it needs is for the estimator to say.
    """
    known = vars(estimator)
    for name in _SHARED.keys() & known.keys():
        _SHARED[name](name, known[name])
    if "feature_names_in_" in known and len(known["feature_names_in_"]) != known.get("n_features_in_"):
        raise ValueError(f"there are {len(known['feature_names_in_'])} feature_names_in_, and not one for each feature")
