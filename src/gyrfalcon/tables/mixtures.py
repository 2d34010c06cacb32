"""Tables whose columns are taken from different rows, by which explanations replace single values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fitting.explained import Mixable
from .columns import Column
from .reading import Table, read_table

Array = NDArray[Any]


def stack_tables(X: Any, background: Any, owner: str) -> Mixable:
    """Return the rows of two tables with the same columns, whose columns can be mixed; `owner` is for errors."""
    first, second = read_table(X, owner), read_table(background, owner)
    if len(first.columns) != len(second.columns) or first.names != second.names:
        raise ValueError(
            f"X has the columns {first.labels} and background {second.labels}: give the same columns in the same order"
        )
    pairs = zip(first.columns, second.columns, first.labels, strict=True)
    columns = [_joined(one, other, label) for one, other, label in pairs]

    def mix(chosen: Array) -> Table:
        taken = [column.take(chosen[:, j]) for j, column in enumerate(columns)]
        return Table(taken, first.names, len(chosen))

    data = np.empty((first.n_rows + second.n_rows, len(columns)), dtype=object)
    for j, column in enumerate(columns):
        data[:, j] = _readable(column)
    return Mixable(mix, data)


def _joined(first: Column, second: Column, label: str) -> Column:
    """Return the values of a column of two tables."""
    if first.missing.all() and not second.missing.all():
        first = _empty(second, len(first.values))
    elif second.missing.all() and not first.missing.all():
        second = _empty(first, len(second.values))
    if first.is_text and second.is_text:
        levels = list(dict.fromkeys([*first.levels, *second.levels]))
        place = {level: code for code, level in enumerate(levels)}
        codes = [np.array([*(place[level] for level in one.levels), -1])[one.values] for one in (first, second)]
        return replace(first, values=np.concatenate(codes), levels=levels)
    if (first.kind, first.zone) != (second.kind, second.zone):
        raise ValueError(
            f"column {label!r} is of kind {first.kind!r} in X and {second.kind!r} in background: "
            "give both the same types"
        )
    return replace(first, values=np.concatenate([first.values, second.values]))


def _empty(like: Column, n: int) -> Column:
    """Return a column without values, which is of the kind of another."""
    return replace(like, values=np.full(n, -1 if like.is_text else np.nan).astype(like.values.dtype))


def _readable(column: Column) -> Array:
    """Return the values of a column as people read them."""
    if column.is_text:
        return np.array([*column.levels, None], dtype=object)[column.values]
    if column.kind == "date":
        whole = np.where(column.missing, 0, column.values).astype("int64").astype("datetime64[s]")
        dates: Array = whole.astype(object)
        dates[column.missing] = None
        return dates
    return np.asarray(column.values, dtype=object)
