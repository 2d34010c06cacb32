"""Signs that a training table is not what its user thinks: ids, the target among the columns, copies of rows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.warnings import warn
from .._utils.words import listed
from .columns import Column
from .reading import Table

Array = NDArray[Any]

_FEWEST = 100  # rows from which suspicions are worth a warning
_ID = re.compile(r"(?:^|[\s_.-])(?:id|uuid|guid|index|rowid|rownum)$|^unnamed: 0$|[a-z]Id$|[a-z]ID$|^ID$", re.ASCII)
_TRIED_ROWS = 4_000  # most rows that are compared with the target, half of which predict the others
_NEARLY_ZERO = 1e-4  # mean squared error, relative to the variance of the target, of a column that is the target itself
_COPIES = 0.02  # share of rows with copies in other folds from which held-out errors are too small
_CONTINUOUS = 0.5  # a column with values for this share of the rows makes copies by chance unlikely


def id_columns(table: Table) -> list[int]:
    """Return the columns with the name of an id that hold a different whole number, or text, in each row.

    There are none without names, in small tables, and if no other column would be left.
    """
    if table.names is None or table.n_rows < _FEWEST:
        return []
    pairs = enumerate(zip(table.names, table.columns, strict=True))
    found = [at for at, (name, column) in pairs if _ID.search(name) or _ID.search(name.lower()) if _is_id(column)]
    return found if len(found) < len(table.columns) else []


def _is_id(column: Column) -> bool:
    values = column.values
    if column.kind not in ("number", "text", "category") or column.missing.any():
        return False
    if column.kind == "number" and not (np.isfinite(values).all() and (values == np.round(values)).all()):
        return False
    return len(np.unique(values)) == len(values)


def without_columns(table: Table, dropped: list[int]) -> Table:
    """Return the table with missing values in some columns, which an encoder drops, whatever they hold later."""
    if not dropped:
        return table
    nothing = Column("number", np.full(table.n_rows, np.nan))
    return replace(table, columns=[nothing if at in dropped else one for at, one in enumerate(table.columns)])


def warn_of_target(table: Table, codes: Array) -> None:
    """Warn of columns that predict the target of held-out rows nearly without an error, each by itself.

    `codes` are the targets of the rows, of shape (n, k).
    """
    if table.n_rows < _FEWEST:
        return
    some = np.random.RandomState(0).permutation(table.n_rows)[:_TRIED_ROWS]
    y = codes[some]
    if not (y.var(axis=0) > 0).all():
        return
    pairs = zip(table.labels, table.columns, strict=True)
    found = [name for name, column in pairs if _error_alone(column.values[some], column.is_text, y) < _NEARLY_ZERO]
    if found:
        several = len(found) > 1
        warn(
            f"column{'s' * several} {listed(found)} {'predict' if several else 'predicts'} y nearly without an error "
            f"on rows that were held out{', each alone' * several}: leave out what is known only together with y, such "
            "as y in other units or a decision that followed from it",
            UserWarning,
        )


def _error_alone(values: Array, is_text: bool, y: Array) -> float:
    """Return the mean squared error of one half of the rows, relative to the variance of y.

    A row has the mean of the rows with the same value in the other half, or of the two nearest numbers, weighted.
    """
    half = len(values) // 2
    present = values >= 0 if is_text else np.isfinite(values)
    known, place = np.unique(values[:half][present[:half]], return_inverse=True)
    if len(known) < 2:
        return np.inf
    x, error = values[half:], 0.0
    for target in y.T:
        mean = float(target[:half].mean())
        means = np.bincount(place, weights=target[:half][present[:half]]) / np.bincount(place)
        at = np.clip(np.searchsorted(known, np.where(present[half:], x, known[0])), 0, len(known) - 1)
        near = means[at] if is_text else np.interp(np.where(present[half:], x, known[0]), known, means)
        met = present[half:] & (known[at] == x) if is_text else present[half:]
        error += float(np.mean((np.where(met, near, mean) - target[half:]) ** 2))
    return error / float(y.var(axis=0).sum())


def warn_of_copies(table: Table, X: Array, codes: Array, fold: Array) -> None:
    """Warn if many rows have copies with the same target in other folds, and chance cannot explain them.

    Copies are expected in tables without a column of many values, for which there is no warning. `fold` is negative for
    rows that are always learnt from.
    """
    n = table.n_rows
    if n < _FEWEST or len(np.unique(fold)) < 2:
        return
    rows = np.ascontiguousarray(np.column_stack([X, codes]).astype(np.float32))
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, row = np.unique(keys, return_index=True, return_inverse=True)
    low, high = np.full(len(first), fold.max()), np.full(len(first), fold.min())
    np.minimum.at(low, row, fold)
    np.maximum.at(high, row, fold)
    share = float(np.mean((low != high)[row]))
    if share < _COPIES or not any(_varies(column, first) for column in table.columns):
        return
    warn(
        f"{share:.0%} of the {n:,} rows are copies of rows in other folds, with the same y: errors on held-out rows "
        "are too small. Remove the copies, or pass groups so that copies are held out together",
        UserWarning,
    )


def _varies(column: Column, rows: Array) -> bool:
    """Return whether a column has a value of its own in many of the rows, none of which is a copy."""
    return not column.is_text and len(np.unique(column.values[rows])) > _CONTINUOUS * len(rows)


def warn_of_two_values(y: Array) -> None:
    """Warn of numbers to learn that have two values."""
    if y.ndim == 1 and len(y) >= _FEWEST and len(np.unique(y)) == 2:
        low, high = np.unique(y).tolist()
        warn(
            f"y has two values, {low:g} and {high:g}: AutoClassifier gives the probabilities of classes",
            UserWarning,
        )
