"""Check targets: their type, their length, and whether rows can be held out for validation.

Estimators, conformal predictions and tables use the same rules and messages. Weights are checked by `weights.count`.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_y

from .._utils.words import shown
from ..losses import Loss

Array = NDArray[Any]
Error = Callable[[Array, Array | None, Array], float]

MOST_LABELS = 20  # most different integers that are taken for labels
_FIRST_ROWS = 100_000  # rows whose values are counted first, since sorting all of a long target takes seconds


# ---- what every fit requires -----------------------------------------------------------------------------------------


def check_y(y: Any, n_rows: int, owner: str, **checks: bool) -> Array:
    """Return y as an array without NaN or infinity, if it has an entry for each row.

    `owner` is the name of the estimator, for messages; `checks` are passed to scikit-learn's checks of y.
    """
    require_y(y, owner)
    checked: Array = _check_y(y, estimator=owner, **checks)
    check_lengths(n_rows, checked)
    return checked


def require_y(y: Any, owner: str) -> None:
    """Raise ValueError if y is None; `owner` is the name of the estimator."""
    if y is None:
        raise ValueError(
            f"{owner} requires y to be passed, but the target y is None: give what is to be learnt, such as "
            "open(path, target=...).y"
        )


def require_both(X_val: Any, y_val: Any) -> None:
    """Raise ValueError if one of X_val and y_val is given without the other."""
    if (X_val is None) != (y_val is None):
        missing = "y_val" if y_val is None else "X_val"
        raise ValueError(f"X_val and y_val go together: {missing} is missing")


def check_lengths(n_rows: int, y: Array, name: str = "y") -> None:
    """Raise ValueError unless y, or the target that `name` names, has an entry for each row."""
    if n_rows != len(y):
        raise ValueError(
            f"{name.replace('y', 'X', 1)} has {n_rows} rows and {name} has {len(y)}: inconsistent numbers of samples"
        )


def held_out(n: int, share: float, remedy: str) -> int:
    """Return how many of n rows are held out for validation: at least one, and not all of them.

    `remedy` is the message's advice if there are too few rows.
    """
    size = max(1, round(share * n))
    if size >= n:
        raise ValueError(
            f"there are no rows to hold out for validation, with n_samples={n}: give X_val and y_val, or {remedy}"
        )
    return size


# ---- numbers ---------------------------------------------------------------------------------------------------------


def require_numbers(y: Array, name: str, classifier: str) -> None:
    """Raise ValueError unless y is numbers; `classifier` is the estimator that learns labels."""
    if y.dtype.kind not in "fiub":
        raise ValueError(f"{name} of type {y.dtype} is not numbers: {classifier} learns labels")


def check_outputs(y_val: Array, y: Array) -> None:
    """Raise ValueError unless y_val has as many columns as y."""
    if np.size(y_val[:1]) != np.size(y[:1]):
        raise ValueError(f"y_val has shape {y_val.shape} and y has shape {y.shape}: outputs must agree")


def number_columns(y: Array, copies: int | None = None, name: str = "y") -> Array:
    """Return numbers as float columns of shape (n, k); with `copies`, as that many copies of the only column."""
    require_numbers(y, name, "FalkonClassifier")
    columns = y.astype(y.dtype if y.dtype == np.float32 else np.float64, copy=False).reshape(len(y), -1)
    if copies is None:
        return columns
    if columns.shape[1] != 1:
        raise ValueError(
            f"{name} has {columns.shape[1]} columns: several quantiles can be predicted only if y is one column, so "
            "fit one model for each"
        )
    return np.repeat(columns, copies, axis=1)


def root_mean_square(targets: Array, weight: Array | None, predictions: Array) -> float:
    """Return the root of the mean squared error over rows and columns."""
    errors = predictions - targets.astype(np.float64)
    largest = float(np.abs(errors).max())
    if not 0 < largest < np.inf:
        return largest
    return largest * float(np.sqrt(np.average(np.square(errors / largest).mean(axis=1), weights=weight)))


def mean_loss(loss: Loss, targets: Array, weight: Array | None, f: Array) -> float:
    """Return the mean of a loss over rows and columns."""
    return float(np.average(row_losses(loss, targets, f), weights=weight))


def row_losses(loss: Loss, targets: Array, f: Array) -> Array:
    """Return the loss of each row, the mean over columns, in float64."""
    with np.errstate(over="ignore"):
        values: Array = loss.value(targets.astype(np.float64), f.astype(np.float64)).mean(axis=1)
    return values


# ---- labels ----------------------------------------------------------------------------------------------------------


def few_values(y: Array) -> Array | None:
    """Return the different values of y, or None if there are more than `MOST_LABELS`."""
    if len(np.unique(y[:_FIRST_ROWS])) > MOST_LABELS:
        return None
    values = np.unique(y)
    return values if len(values) <= MOST_LABELS else None


def are_labels(y: Array) -> bool:
    """Whether the values of a target look like labels rather than numbers.

    Text, booleans and other objects are labels, and so are at most `MOST_LABELS` different integers, unless each of
    them occurs once.
    """
    if y.ndim != 1 or y.dtype.kind == "f":
        return False
    if y.dtype.kind not in "iu":
        return True
    values = few_values(y)
    return values is not None and len(values) < len(y)


def require_one_label(y: Any, owner: str) -> None:
    """Raise ValueError if y has several columns, each of which needs a classifier; `owner` is the estimator's name."""
    try:
        shape = tuple(y.shape)  # of a Dask array, too
    except AttributeError:
        shape = np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"y should be a 1d array, got an array of shape {shape} instead: {owner} learns one label for each row. "
            "For "
            f"several labels use sklearn.multioutput.MultiOutputClassifier({owner}(...)), or for a matrix of 0 "
            f"and 1 sklearn.multiclass.OneVsRestClassifier({owner}(...)); if the columns are one-hot classes, give "
            "y.argmax(axis=1)"
        )


def mixed_labels(y: Any) -> Any:
    """Return a list of strings and other labels as an array of objects, since NumPy would convert all to strings."""
    if not isinstance(y, list | tuple):
        return y
    strings = [isinstance(label, str) for label in y]
    if all(strings) or not any(strings):
        return y
    labels = np.empty(len(y), dtype=object)
    labels[:] = y
    return labels


def sortable_labels(y: Array, name: str) -> Array:
    """Return labels that can be sorted: those that are Python objects must be all strings or all numbers."""
    if y.dtype != object or all(isinstance(label, str) for label in y):
        return y
    if all(isinstance(label, Number | np.bool_) for label in y):
        return np.asarray(y.tolist())
    kinds = sorted({type(label).__name__ for label in y})
    raise ValueError(f"{name} has labels of types {', '.join(kinds)}: they must be all strings or all numbers")


def require_classes(classes: Array) -> None:
    """Raise ValueError unless there are at least two classes."""
    if len(classes) < 2:
        raise ValueError(
            f"y has one class, {shown(classes[0])}, among the rows with positive weight: at least two are needed"
        )


def require_known_classes(y_val: Array, classes: Array) -> None:
    """Raise ValueError if y_val has classes that are not among those of y."""
    unseen = sorted(set(y_val.tolist()) - set(classes.tolist()), key=str)
    if unseen:
        raise ValueError(f"y_val contains classes that y does not contain: {unseen}")


def with_class_weight(class_weight: Any, weight: Array | None, classes: Array, codes: Array) -> Array | None:
    """Return the weights of rows times those of their classes."""
    if class_weight is None:
        return weight
    rows = np.ones(len(codes)) if weight is None else weight
    if isinstance(class_weight, str) and class_weight == "balanced":
        # a row of weight 2 counts as two rows
        totals = np.bincount(codes, weights=rows)
        each = totals.sum() / np.where(totals > 0, totals, np.inf) / len(classes)
    else:
        each = compute_class_weight(class_weight, classes=classes, y=classes[codes])
    if not (np.isfinite(each).all() and (each >= 0).all() and (rows * each[codes]).any()):
        raise ValueError(f"class_weight={shown(class_weight)} must be finite, not negative, and not zero for every row")
    return np.asarray(rows * each[codes])


def signs(codes: Array, n_classes: int) -> Array:
    """Return targets +1 and -1: one column for two classes, else one for each."""
    if n_classes == 2:
        return 2.0 * codes[:, None] - 1.0
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)


def indicators(codes: Array, n_classes: int) -> Array:
    """Return targets 1 and 0: one column for each class."""
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, 0.0)


def class_codes(values: Array) -> Array:
    """Return the class number for each row of decision values, an array or a tensor."""
    values = values.reshape(len(values), -1)
    return (values[:, 0] > 0) * 1 if values.shape[1] == 1 else values.argmax(1)


def share_wrong(targets: Array, weight: Array | None, values: Array) -> float:
    """Return the share of rows whose class is not the one of the largest value."""
    return float(np.average(class_codes(values) != class_codes(targets), weights=weight))
