"""Folds of the rows, for cross-validation within one fit."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.words import shown
from .weights import Counted

Array = NDArray[Any]


def check_cv(name: str, value: Any) -> None:
    """Require a number of folds of at least 2, or another value that `fold_numbers` checks."""
    if isinstance(value, bool | str) or value is None or (isinstance(value, Integral) and value < 2):
        raise ValueError(
            f"{name}={shown(value)} must be an integer of at least 2, a splitter of scikit-learn, or an array with the "
            "number of each row's fold"
        )


def fold_numbers(
    cv: Any, y: Array, random_state: np.random.RandomState, *, stratified: bool = False
) -> NDArray[np.intp]:
    """Return the number of each row's fold, from 0.

    `cv` is a number of folds, to which rows are assigned at random; a splitter of scikit-learn, or an iterable of its
    splits; or an array with any integer for each row's fold. With `stratified`, y holds class numbers, and each of a
    given number of folds gets the same proportions of the classes.

    >>> fold_numbers([7, 3, 7, 5], np.zeros(4), np.random.RandomState(0))
    array([2, 0, 2, 1])
    """
    n = len(y)
    if isinstance(cv, Integral):
        if int(cv) > n:
            raise ValueError(f"cv={cv} folds are more than there are rows, n_samples={n}: choose fewer")
        order = random_state.permutation(n)
        if not stratified:
            return np.asarray(order % int(cv), dtype=np.intp)
        fold = np.empty(n, dtype=np.intp)
        fold[np.lexsort((order, y))] = np.arange(n) % int(cv)
        return fold
    given = given_numbers(cv)
    if given is None:
        return _of_splits(cv, y)
    if given.shape != (n,):
        raise _wrong_length(given, n)
    names, numbers = np.unique(given, return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            "cv has only one fold of rows with positive weight, so that none are left to learn from: give at least two"
        )
    return numbers.astype(np.intp)


def folds_among(cv: Any, counted: Counted) -> Any:
    """Return `cv`, which refers to the rows that were given, for those of them that have a weight.

    Arrays of fold numbers and lists of splits refer to rows; a number of folds or a splitter works with any rows.
    """
    if counted.positions is None or isinstance(cv, Integral):
        return cv
    given = given_numbers(cv)
    if given is not None:
        if given.shape != (counted.n_given,):
            raise _wrong_length(given, counted.n_given)
        return counted.among(given)
    if not isinstance(cv, Iterable):
        return cv
    place = np.full(counted.n_given, -1)
    place[counted.positions] = np.arange(len(counted.positions))
    among = [[place[part][place[part] >= 0] for part in split] for split in cv]
    return [(train, test) for train, test in among if len(test)]


def _wrong_length(given: Array, n: int) -> ValueError:
    return ValueError(f"cv has shape {given.shape}, but numbers of folds are one for each row, {n}")


def given_numbers(cv: Any) -> Array | None:
    """Return the numbers of folds if `cv` is an array of integers, else None."""
    try:
        given = np.asarray(cv)
    except ValueError:  # splits of different lengths
        return None
    if given.ndim == 1 and given.dtype.kind in "bfUS":
        raise ValueError(f"cv is an array of {given.dtype}: numbers of folds are integers, use astype(int)")
    return given if given.dtype.kind in "iu" and given.ndim == 1 else None


def _splits(cv: Any, y: Array) -> Iterator[list[NDArray[np.intp]]]:
    """Yield the row numbers that each split learns from and holds out."""
    from sklearn.model_selection import check_cv as as_splitter

    n, splitter = len(y), as_splitter(cv)
    wrong = f"each split of cv={reprlib.repr(cv)} must be two arrays of row numbers from 0 to {n - 1}"
    try:
        splits = [[np.asarray(part) for part in split] for split in splitter.split(np.zeros((n, 1)), y)]
    except (TypeError, ValueError) as error:
        if splitter is cv:  # it says what it needs
            raise
        raise ValueError(wrong) from error
    for split in splits:
        for part in split:
            whole = part.ndim == 1 and (part.dtype.kind in "iu" or not part.size)
            if not whole or (part.size and not 0 <= part.min() <= part.max() < n):
                raise ValueError(wrong)
        yield [part.astype(np.intp) for part in split]


def _of_splits(cv: Any, y: Array) -> NDArray[np.intp]:
    n = len(y)
    fold, times = np.zeros(n, dtype=np.intp), np.zeros(n, dtype=np.intp)
    for number, (train, test) in enumerate(_splits(cv, y)):
        fold[test] = number
        np.add.at(times, test, 1)
        if len(train) + len(test) != n or len(np.union1d(train, test)) != n:
            raise ValueError(
                f"cv={cv!r} gives a split of {len(train)} and {len(test)} of {n} rows: every fold must be "
                "predicted from all other rows, as with KFold"
            )
    if not (times == 1).all():
        row = int(np.flatnonzero(times != 1)[0])
        raise ValueError(
            f"cv={cv!r} holds out row {row} {times[row]} times: every row must be in one fold, as with KFold"
        )
    return fold
