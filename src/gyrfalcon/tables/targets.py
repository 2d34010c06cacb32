"""Targets of tables: y as numbers, read from text if need be, or as labels; and as columns that encode categories."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, _num_samples, column_or_1d

from .._utils.memory import available_memory, require_memory
from ..fitting.rows import computed
from ..fitting.targets import (
    are_labels,
    check_lengths,
    check_outputs,
    indicators,
    mixed_labels,
    require_both,
    require_classes,
    require_known_classes,
    require_numbers,
    require_one_label,
    require_y,
    sortable_labels,
)
from ..fitting.weights import Counted
from .columns import Column, from_text
from .forms import NumberForm, number_form

Array = NDArray[Any]

_FEW_CLASSES = 10  # number of classes that any number of rows may have


# ---- of a fit --------------------------------------------------------------------------------------------------------


def regression_targets(
    X: Any, y: Any, X_val: Any, y_val: Any, counted: Counted, owner: str
) -> tuple[Array, NumberForm | None]:
    """Return y as numbers of shape (n,) or (n, k), those of y_val last, and how they were written if y is text.

    Rows without a weight, which are not in `counted`, are left out. `owner` is the name of the estimator, for messages.
    """
    given = _given_targets(X, y, X_val, y_val, owner)
    form = form_of(given[0][2], counted)
    parts = []
    for name, n_rows, values in given:
        refuse_missing(values, name)
        part = _check_y(in_form(values, form, name), multi_output=True, y_numeric=True, estimator=owner)
        require_numbers(part, name, "AutoClassifier")
        check_lengths(n_rows, part, name)
        parts.append((counted.among(part) if name == "y" else part).astype(np.float64))
    check_outputs(parts[-1], parts[0])
    return np.concatenate([part.reshape(len(part), *parts[0].shape[1:]) for part in parts]), form


def classification_targets(
    X: Any, y: Any, X_val: Any, y_val: Any, counted: Counted, owner: str
) -> tuple[Array, Array, Array]:
    """Return the labels, those of y_val last, the classes, and the number of each label's class; see above."""
    require_one_label(y, owner)
    parts = []
    for name, n_rows, values in _given_targets(X, y, X_val, y_val, owner):
        values = mixed_labels(values)
        refuse_missing(values, name)
        # as an array, since scikit-learn makes float64 of nullable booleans and integers of pandas
        part = column_or_1d(np.asarray(values), warn=True)
        check_lengths(n_rows, part, name)
        part = sortable_labels(counted.among(part) if name == "y" else part, name)
        if part.dtype == object:  # each entry of an array of text takes as much memory as the longest label
            longest = max(map(len, part.tolist()))
            require_memory(
                f"{name} with labels of up to {longest:,} characters", 4 * longest * len(part), available_memory()
            )
            part = part.astype(str)
        check_classification_targets(part)
        parts.append(part)
    classes = np.unique(parts[0])
    require_classes(classes)
    if len(classes) > max(_FEW_CLASSES, len(parts[0]) // 2):  # numbers, names or ids, from which nothing is learnt
        raise ValueError(
            f"y has {len(classes):,} classes in {len(parts[0]):,} rows, such as {parts[0][0].item()!r}: most would be "
            "seen once only. Use AutoRegressor if they are numbers, or merge rare classes until there are two rows of "
            "each on average"
        )
    require_known_classes(parts[-1], classes)
    together = np.concatenate(parts)
    return together, classes, np.searchsorted(classes, together)


def row_weights(counted: Counted, total: int) -> Array | None:
    """Return a weight of mean 1 for each row that has one; `total` includes validation rows, whose weight is 1."""
    if counted.weight is None:
        return None
    weight = counted.weight / counted.weight.mean()
    return np.concatenate([weight, np.ones(total - len(weight))])


def _given_targets(X: Any, y: Any, X_val: Any, y_val: Any, owner: str) -> list[tuple[str, int, Any]]:
    """Return the name, the number of rows and the values of y, and of y_val if it is given."""
    require_y(y, owner)
    require_both(X_val, y_val)
    given = [("y", X, y)] if X_val is None else [("y", X, y), ("y_val", X_val, y_val)]
    for name, rows, _ in given:
        if _num_samples(rows) == 0:
            raise ValueError(
                "Found array with 0 sample(s) (shape=(0, ...)) while a minimum of 1 is required: "
                f"{name.replace('y', 'X', 1)} has no rows"
            )
    return [(name, int(_num_samples(rows)), computed(values)) for name, rows, values in given]


def refuse_missing(y: Any, name: str = "y") -> None:
    """Raise ValueError that names the first row whose target is missing or infinite."""
    values = np.asarray(y)
    if values.dtype.kind == "f":
        wrong = ~np.isfinite(values)
    elif values.dtype == object:
        wrong = np.array([_is_missing(value) for value in values.ravel()], dtype=bool).reshape(values.shape)
    else:
        return
    if wrong.any():
        row = int(np.argwhere(wrong)[0][0])
        value = values[row] if values.ndim == 1 else values[row].tolist()
        raise ValueError(
            f"Input {name} contains NaN or infinity: row {row} has {value}, from which nothing can be learnt. Remove "
            "such rows from both X and y"
        )


def _is_missing(value: Any) -> bool:
    """Whether a value is None, pandas.NA (which cannot be compared), or unlike itself, as NaN and NaT are."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


# ---- text of numbers -------------------------------------------------------------------------------------------------


def form_of(y: Any, counted: Counted | None = None) -> NumberForm | None:
    """Find how the numbers of a target are written in the rows that have a weight; None if it is no text of numbers."""
    text = _text(y)
    if text is None or (counted is not None and counted.n_given != len(text.values)):
        return None
    values = text.values if counted is None else counted.among(text.values)
    return number_form(text.levels, np.bincount(values, minlength=len(text.levels)))


def in_form(y: Any, form: NumberForm | None, name: str = "y") -> Any:
    """Read a target that is text written in a form; return any other target as it is."""
    text = None if form is None else _text(y)
    if form is None or text is None:
        return y
    numbers = [form.read(level) for level in text.levels]
    values = np.array([math.nan if number is None else number for number in numbers])[text.values]
    if np.isnan(values).any():
        row = int(np.argmax(np.isnan(values)))
        raise ValueError(
            f"row {row} of {name} holds {text.levels[text.values[row]]!r}, and others are numbers like {str(form)!r}: "
            "correct it, or remove the row from both X and y"
        )
    return values


def _text(y: Any) -> Column | None:
    """Return a target of strings as a column of text; None for any other."""
    if type(y).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
        y = np.asarray(y)
    if not isinstance(y, np.ndarray | list | tuple):
        return None
    values = np.asarray(y)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1 or values.dtype.kind not in "OU":
        return None
    items = values.tolist()
    return from_text(items) if items and all(isinstance(item, str) for item in items) else None


# ---- of encodings ----------------------------------------------------------------------------------------------------


def target_columns(y: Any, target_type: str) -> tuple[Array, list[str]]:
    """Return standardised targets or indicators of classes, of shape (n, n_targets), and a name for each.

    Their means in each level of a category encode it. Several columns of y are several numbers to predict.
    """
    given = _numbers_if_they_are(np.asarray(y))
    given = given.reshape(-1) if given.ndim == 2 and given.shape[1] == 1 else given
    refuse_missing(given)
    if given.ndim == 1 and (target_type in ("binary", "multiclass") or (target_type == "auto" and are_labels(given))):
        classes, codes = np.unique(given, return_inverse=True)
        if target_type == "binary" and len(classes) > 2:
            raise ValueError(f'y has {len(classes)} classes, and target_type="binary" means two: use "multiclass"')
        columns = indicators(codes.reshape(-1), len(classes))
        return (columns[:, 1:], [""]) if len(classes) == 2 else (columns, [f", {name}" for name in classes])
    numbers = given.astype(np.float64).reshape(len(given), -1)
    deviation = numbers.std(axis=0)
    standard = (numbers - numbers.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return standard, [""] if given.ndim == 1 else [f", {at}" for at in range(numbers.shape[1])]


def _numbers_if_they_are(y: Array) -> Array:
    """Return objects as integers or floats if all of them are."""
    if y.dtype.kind != "O" or any(isinstance(value, str) for value in y.reshape(-1).tolist()):
        return y
    try:
        numbers = y.astype(np.float64)
    except (TypeError, ValueError):
        return y
    is_whole = bool(np.isfinite(numbers).all()) and bool((np.abs(numbers) < 2**53).all())
    return numbers.astype(np.int64) if is_whole and (numbers == np.round(numbers)).all() else numbers
