"""The targets that `fit` is given, of the rows that have a weight: numbers without gaps, or labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, _num_samples, column_or_1d

from ..fitting.rows import computed
from ..fitting.targets import mixed_labels, require_classes, require_one_label, sortable_labels
from ..fitting.weights import Counted, count
from .columns import Column, from_text
from .forms import NumberForm, number_form

Array = NDArray[Any]

_FEW_CLASSES = 10  # that any number of rows may have


def counted_rows(X: Any, sample_weight: Any) -> Counted:
    """Return which rows of a table or a source have a weight."""
    return count(computed(sample_weight), int(_num_samples(X)))


def numbers(
    estimator: Any, X: Any, y: Any, X_val: Any, y_val: Any, counted: Counted, form: NumberForm | None = None
) -> Array:
    """Return y of the rows that count, followed by y_val if it is given, as numbers of shape (n,) or (n, k).

    Text is read by the form.
    """
    parts = []
    for name, rows, given in _pairs(estimator, X, y, X_val, y_val):
        _refuse_gaps(given, name)
        given = in_form(given, form, name)
        part = _check_y(given, multi_output=True, y_numeric=True, estimator=estimator)
        if part.dtype.kind not in "fiub":
            raise ValueError(f"{name} of type {part.dtype} is not numbers: AutoClassifier learns labels")
        part = part[:, 0] if part.ndim == 2 and part.shape[1] == 1 and name == "y_val" else part
        _check_length(rows, part, name)
        parts.append((counted.among(part) if name == "y" else part).astype(np.float64))
    if len(parts) == 2 and parts[0].shape[1:] != parts[1].shape[1:]:
        raise ValueError(f"y_val has shape {parts[1].shape} and y has shape {parts[0].shape}: outputs must agree")
    return np.concatenate(parts)


def form_of(y: Any, counted: Counted | None = None) -> NumberForm | None:
    """Find how the numbers of a target are written in the rows that count; None if it is no text of numbers."""
    text = _text(y)
    if text is None or (counted is not None and counted.n_given != len(text.values)):
        return None
    values = text.values if counted is None else counted.among(text.values)
    return number_form(text.levels, np.bincount(values, minlength=len(text.levels)))


def in_form(y: Any, form: NumberForm | None, name: str = "y") -> Any:
    """Read a target that is written in a form; return any other as it is."""
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


def labels(estimator: Any, X: Any, y: Any, X_val: Any, y_val: Any, counted: Counted) -> tuple[Array, Array, Array]:
    """Return labels of the rows that count, those of y_val last, the classes, and the number of each label's class."""
    require_one_label(y, type(estimator).__name__)
    parts = []
    for name, rows, given in _pairs(estimator, X, y, X_val, y_val):
        given = mixed_labels(given)
        _refuse_gaps(given, name)
        # as an array, since scikit-learn makes float64 of the booleans and integers of pandas that could be missing
        part = column_or_1d(np.asarray(given), warn=True)
        _check_length(rows, part, name)
        part = sortable_labels(counted.among(part) if name == "y" else part, name)
        part = part.astype(str) if part.dtype == object else part
        check_classification_targets(part)
        parts.append(part)
    classes = np.unique(parts[0])
    require_classes(classes)
    _refuse_many_classes(parts[0], len(classes))
    unseen = sorted(set(parts[-1].tolist()) - set(classes.tolist()), key=str)
    if unseen:
        raise ValueError(f"y_val has classes that y has not: {unseen}")
    together = np.concatenate(parts)
    return together, classes, np.searchsorted(classes, together)


def _refuse_many_classes(y: Array, n_classes: int) -> None:
    """Raise ValueError if most classes are those of one row: numbers, names or ids, from which nothing is learnt."""
    if n_classes > max(_FEW_CLASSES, len(y) // 2):
        raise ValueError(
            f"y has {n_classes:,} classes in {len(y):,} rows, such as {y[0].item()!r}: most would be seen once only. "
            "Use AutoRegressor if they are numbers, or merge rare classes until there are two rows of each on average"
        )


def weights(counted: Counted, total: int) -> Array | None:
    """Return a weight of mean 1 for each row that counts; `total` counts validation rows as well, which have 1."""
    if counted.weight is None:
        return None
    weight = counted.weight / counted.weight.mean()
    return np.concatenate([weight, np.ones(total - len(weight))])


def _pairs(estimator: Any, X: Any, y: Any, X_val: Any, y_val: Any) -> list[tuple[str, Any, Any]]:
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: what is to be learnt?"
        )
    if (X_val is None) != (y_val is None):
        missing = "y_val" if y_val is None else "X_val"
        raise ValueError(f"X_val and y_val go together: {missing} is missing")
    pairs = [("y", X, computed(y))]
    return pairs if X_val is None else [*pairs, ("y_val", X_val, computed(y_val))]


def _check_length(X: Any, y: Array, name: str) -> None:
    n = int(_num_samples(X))
    if n == 0:
        raise ValueError(
            f"Found array with 0 sample(s) (shape=({n}, ...)) while a minimum of 1 is required: "
            f"{name.replace('y', 'X', 1)} has no rows"
        )
    if n != len(y):
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[n, len(y)]} of {name.replace('y', 'X', 1)} "
            f"and {name}"
        )


def _refuse_gaps(y: Any, name: str) -> None:
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
    """Whether a value is None, pandas.NA, or unlike itself, as NaN and NaT are; of pandas.NA one cannot ask that."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)
