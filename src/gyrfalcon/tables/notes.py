"""The kinds of the columns of a training table in words: a line of text for users who ask, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.warnings import warn
from .._utils.words import listed
from .reading import Table

Array = NDArray[Any]

_FEW = 10  # number of levels that a text column may always have without a warning


def columns_in_words(table: Table, kinds: Array, ids: Sequence[int] = ()) -> str:
    """Return a line with the number of columns of each kind, and how text of the recognised training table was read.

    `ids` are columns that were dropped because they identify rows.
    """
    names = table.labels
    parts = []
    for kind, plural in _PLURALS.items():
        found = np.flatnonzero(kinds == kind)
        if len(found):
            parts.append(f"{len(found)} {plural if len(found) > 1 or kind == 'dropped' else kind}")
    read = [
        f"{name!r} is text {_form(column)}" for name, column in zip(names, table.columns, strict=True) if column.form
    ]
    dropped = [name for at, name in enumerate(names) if kinds[at] == "dropped" and at not in ids]
    ends = [*read[:10], *([f"{len(read) - 10} more are text"] if len(read) > 10 else [])]
    ends += [f"dropped: {listed(dropped)}"] if dropped else []
    ends += [f"dropped as ids of the rows: {listed([names[at] for at in ids])}"] if ids else []
    return f"columns: {', '.join(parts)}{''.join(f'; {end}' for end in ends)}"


def _form(column: Any) -> str:
    if column.kind == "number":
        return f"read as numbers like {str(column.form)!r}"
    zone = f", in {column.zone}" if column.zone else ""
    guess = " (a guess, since no value is over 12)" if column.ambiguous else ""
    return f"read as dates, {column.form}{zone}{guess}"


_PLURALS = {
    "number": "numbers",
    "category": "categories",
    "text": "texts",
    "boolean": "booleans",
    "date": "dates",
    "dropped": "dropped",
}


def warn_of_columns(table: Table, kinds: Array, ids: Sequence[int] = ()) -> None:
    """Warn of columns that are dropped, of text with a level for every other row, and of dates with a guessed order.

    `ids` are columns that were dropped because they identify rows.
    """
    names = table.labels
    known_kinds = zip(names, table.columns, kinds, strict=True)
    pairs = [(name, column) for name, column, kind in known_kinds if column.is_text and kind != "text"]
    n_levels = {name: len(np.unique(column.values[~column.missing])) for name, column in pairs}
    crowded = [name for name, count in n_levels.items() if count > max(_FEW, table.n_rows / 2)]
    if crowded:
        warn(
            f"{_columns(crowded)} text with more levels than half of the {table.n_rows} rows, from which "
            "little or nothing is learnt: leave out names and ids, and convert text that is numbers, dates or several "
            "things in one",
            UserWarning,
        )
    known = {*crowded, *(names[at] for at in ids)}
    if ids:
        owner = "each has" if len(ids) > 1 else "it has"
        warn(
            f"{_columns([names[at] for at in ids])} dropped, since {owner} the name of an id and another value in "
            "every row: leave out such columns, or rename one that is to be used",
            UserWarning,
        )
    dropped = [name for name, kind in zip(names, kinds, strict=True) if kind == "dropped" and name not in known]
    if dropped:
        warn(
            f"{_columns(dropped)} dropped, since all values are the same or missing, or all levels are rare: leave out "
            "such columns, or look why they are so",
            UserWarning,
        )
    guessed = [name for name, column in zip(names, table.columns, strict=True) if column.ambiguous]
    if guessed:
        warn(
            f"{_columns(guessed)} read as dates like 01/02/2020, in which the order of day and month is not clear: the "
            "day is assumed to come first. If it does not, convert them to dates",
            UserWarning,
        )


def _columns(names: list[str]) -> str:
    return f"column {listed(names)} is" if len(names) == 1 else f"columns {listed(names)} are"
