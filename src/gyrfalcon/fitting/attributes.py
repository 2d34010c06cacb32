"""The attributes that fitted estimators share: the values that model files may hold, and their descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from .._utils.checks import Rule, boolean, integer, not_negative, one_of
from .._utils.docstrings import Entry

# Numbers of a record of history_ that this package reads, such as its plots
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


# Attributes with the same meaning wherever they occur: their types, words and rules.
ATTRIBUTES: Mapping[str, Entry] = {
    "rows.dual_coef_": Entry("array of shape (n,) or (n, n_outputs)", "Coefficients of the training rows."),
    "classes.dual_coef_": Entry(
        "array of shape (n,) for two classes, else (n, n_classes)", "Coefficients of the training rows."
    ),
    "rows.centers_": Entry(
        "array of shape (n, n_features_in_)",
        "The training rows: all rows except those held out for validation and those of weight 0.",
    ),
    "penalties.n_iter_": Entry("int", "Number of iterations, or number of penalties tried."),
    "n_iter_": Entry("int", "Number of iterations.", integer(0)),
    "classes.offset_": Entry(
        "float for two classes, else array of shape (n_classes,)",
        "{offset_}",
    ),
    "classes.output_dtype_": Entry('{"float32", "float64"}', "Precision of the values of f."),
    "features.feature_map_": Entry("FeatureMap", "The weights of the features."),
    "features.n_iter_": Entry("int", 'Number of epochs; 1 for "direct".'),
    "kernel_": Entry("Kernel", "The kernel, with the parameters that depend on the data resolved."),
    "n_features_in_": Entry("int", "Number of features.", integer(1)),
    "feature_names_in_": Entry("array of str", "Names of the features, if X has names that are all strings.", _strings),
    "offset_": Entry(
        "float, or array of shape (n_outputs,)",
        "Constants that are added to the sum of kernel functions; 0 without `fit_intercept`.",
    ),
    "output_dtype_": Entry(
        '{"float32", "float64"}',
        "Precision of predictions: float64 if `offset_` is too large for float32 to represent the variation of y.",
        one_of("float32", "float64"),
    ),
    "mean_ scale_": Entry(
        "array of shape (n_features_in_,), or None",
        "Means and standard deviations by which features were scaled; None if they were not scaled.",
    ),
    "noise_variance_": Entry(
        "float, or array of shape (n_outputs,)",
        "With `uncertainty=True`, the variance of y around f, for a row of average weight.",
    ),
    "posterior_ spread_ conformity_": Entry(
        "objects",
        "With `uncertainty=True`, what standard deviations and intervals are computed from.",
    ),
    "running_sums_": Entry(
        "RunningSums",
        "With `incremental=True`, sums over the rows, to which later rows are added: about 2 M^2 numbers.",
    ),
    "n_samples_seen_": Entry(
        "int",
        "With `incremental=True`, the number of rows that were learned and not removed again.",
    ),
    "trees_": Entry(
        "list of LocalExpansion",
        "The functions of the trees: `tree`, and the coefficients of rows and pivots.",
    ),
    "global_centers_ global_coef_": Entry(
        "arrays of shape (M, n_features_in_) and (M, n_outputs), or None",
        "Centers and coefficients of the global part; None if there is none.",
    ),
    "neighborhoods_": Entry(
        "Neighborhoods or None",
        "With a positive `n_neighbors`, `targets` and `noise` of the training rows, from which predictions follow.",
    ),
    "leaf_size_ rank_": Entry("int", "The sizes that were used."),
    "trees.n_iter_": Entry("int", "Number of trees."),
    "calibration_": Entry(
        "Calibration",
        "The map from values of least squares to probabilities: `slope`, `log_slope`, `bend`, `bias` and `eps`.",
    ),
    "classes_": Entry("array of shape (n_classes,)", "The classes, sorted.", _classes),
    "penalty_": Entry("float", "The penalty that was used or chosen.", not_negative()),
    "centers_": Entry("array of shape (M, n_features_in_)", "The centers."),
    "dual_coef_": Entry("array of shape (M,) or (M, n_outputs)", "Coefficients of the centers."),
    "history_": Entry("list of dict", "", _history),
    "tuning_history_": Entry("list of dict", "", _history),
    "growth_": Entry(
        "list of dict",
        """With `n_centers="auto"`, a record for each number of centers that was tried: `n_centers`, `validation_loss`
        (the criterion: the root mean squared error of the targets, or the mean of another loss), `validation_error` (as
        in `history_`), `n_iter`, `passes`, `seconds`, and `stopped`, which is None except in the last record, where it
        is the reason why no more centers were tried: "error" (the loss fell too little), "rows" (every row is a
        center), "limit" (50,000 centers), "memory" or "callback". The model with the smallest loss is kept, and
        `history_` belongs to its fit.""",
        _history,
    ),
    "n_components_": Entry("int", "", integer(0)),
    "target_names_": Entry("list of str", "", _strings),
    "one_column_": Entry("bool", "", boolean),
}
_RULES: Mapping[str, Rule] = {name: entry.rule for name, entry in ATTRIBUTES.items() if entry.rule is not None}


def check_attributes(known: Mapping[str, Any]) -> None:
    """Raise ValueError if an attribute from a model file has a value that no fit gives it.

    Attributes that are missing are not reported: each estimator checks for those it needs.
    """
    for name in _RULES.keys() & known.keys():
        _RULES[name](name, known[name])
    if "feature_names_in_" in known and len(known["feature_names_in_"]) != known.get("n_features_in_"):
        raise ValueError(f"there are {len(known['feature_names_in_'])} feature_names_in_, and not one for each feature")
