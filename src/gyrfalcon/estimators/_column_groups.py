"""Groups of columns that are explained together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def group_columns(groups: Any, n_features: int, names: list[str] | None) -> tuple[Array, list[str]]:
    """Return the number of each column's group, and the names of the groups, in the order of their first columns.

    Parameters
    ----------
    groups : mapping of names to columns, or None
        Columns are numbers or names; those in no group are explained alone.
    n_features : int
    names : list of str or None

    >>> group_columns({"place": ["x", "y"]}, 3, ["x", "t", "y"])
    (array([0, 1, 0]), ['place', 't'])
    """
    labels = [f"x{j}" for j in range(n_features)] if names is None else names
    owner: list[str | None] = [None] * n_features
    for name, columns in _members(groups):
        for column in columns:
            j = _position(column, labels)
            if owner[j] is not None:
                raise ValueError(f"groups: column {labels[j]!r} is in the groups {owner[j]!r} and {name!r}: choose one")
            owner[j] = name
    numbers: dict[tuple[bool, str], int] = {}
    keys = [(False, label) if mine is None else (True, mine) for label, mine in zip(labels, owner, strict=True)]
    found = [numbers.setdefault(key, len(numbers)) for key in keys]
    return np.array(found, dtype=np.int64), [name for _, name in numbers]


def _members(groups: Any) -> list[tuple[str, list[Any]]]:
    if groups is None:
        return []
    if not isinstance(groups, Mapping):
        raise TypeError(f"groups={groups!r} must be a mapping of names to lists of columns, or None")
    for name, columns in groups.items():
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise TypeError(f"groups: {name!r} has {columns!r}: give a list of columns")
    return [(str(name), list(columns)) for name, columns in groups.items()]


def _position(column: Any, labels: list[str]) -> int:
    if isinstance(column, str) and column in labels:
        return labels.index(column)
    if isinstance(column, int | np.integer) and 0 <= column < len(labels):
        return int(column)
    raise ValueError(f"groups: {column!r} is not a column: use a name, or a number from 0 to {len(labels) - 1}")
