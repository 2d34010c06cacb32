"""Targets as columns of numbers, whose means in each level of a category are its encoding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

Array = NDArray[Any]


def target_columns(y: Any, target_type: str) -> tuple[Array, list[str]]:
    """Return standardised targets or indicators of classes, of shape (n, n_targets), and what to call each.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, n_targets)
        Several columns are several numbers to predict.
    target_type : {"auto", "continuous", "binary", "multiclass"}
    """
    given = _numbers_if_they_are(np.asarray(y))
    given = given.reshape(-1) if given.ndim == 2 and given.shape[1] == 1 else given
    if given.ndim == 1 and (target_type in ("binary", "multiclass") or (target_type == "auto" and _is_classes(given))):
        missing = np.array([value is None or value != value for value in given.tolist()], dtype=np.bool_)
        _refuse(missing, given)
        classes, codes = np.unique(given, return_inverse=True)
        if target_type == "binary" and len(classes) > 2:
            raise ValueError(f'y has {len(classes)} classes, and target_type="binary" means two: use "multiclass"')
        indicators = (codes.reshape(-1, 1) == np.arange(len(classes))).astype(np.float64)
        return (indicators[:, 1:], [""]) if len(classes) == 2 else (indicators, [f", {name}" for name in classes])
    numbers = given.astype(np.float64).reshape(len(given), -1)
    _refuse(np.any(~np.isfinite(numbers), axis=1), given)
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


def _is_classes(y: Array) -> bool:
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        return False
    return y.dtype.kind in "OUSb" or type_of_target(y) == "binary" or (y.dtype.kind in "iu" and _has_few_values(y))


def _has_few_values(y: Array) -> bool:
    """Whether integers are more likely classes than counts: each is there again and again."""
    return type_of_target(y) == "multiclass" and len(np.unique(y)) <= min(100, len(y) // 10)


def _refuse(wrong: Array, y: Array) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"y holds {y[row]} in row {row}: leave out rows whose target is not known")
