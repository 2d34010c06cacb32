"""Sections of a report about single rows and columns: the largest errors, intervals by fifths, partial dependence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from ..tables._auto import AutoEstimator
from ..tables.columns import Column, as_text
from ..tables.encoder import TableEncoder
from ..tables.inputs import as_inputs
from ..tables.reading import Table, read_table
from ._automatic import importances
from ._charts import Chart, span
from ._page import charts, figure, paragraph, section, table

Array = NDArray[Any]
Cell = str | float | int | None

_WORST = 8  # rows that are shown
_VALUES = 5  # columns that are shown of each of them, the most important ones
_PARTS = 5  # groups of rows for which intervals are counted
_FEWEST = 50  # rows below which these groups are too small
_CURVES = 3  # columns that have a curve
_GRID = 20  # values of a column at which predictions are averaged
_AVERAGED = 200  # rows over which they are averaged


def worst_rows(model: Any, X: Any, true: Sequence[Cell], said: Sequence[Cell], badness: Array, measure: str) -> str:
    """Return the rows with the largest errors, with the values of the columns that matter most.

    `badness` is a number for each row, the larger the worse, which `measure` names.
    """
    order = np.argsort(-badness, kind="stable")[:_WORST]
    names, values = _values(model, X, order)
    rows = [
        [int(row) + 1, true[row], said[row], float(badness[row]), *cells]
        for row, cells in zip(order, values, strict=True)
    ]
    return section(
        "The largest errors",
        table(["row", "true", "predicted", measure, *names], rows),
        paragraph(
            "Rows are counted from 1. Check whether their values are right, and whether another column could explain "
            "them.",
            soft=True,
        ),
    )


def _values(model: Any, X: Any, rows: Array) -> tuple[list[str], list[list[Cell]]]:
    """Return the columns that matter most, and their values in rows; none if the model does not say which matter."""
    if not isinstance(model, AutoEstimator):
        return [], [[] for _ in rows]
    taken = _table(X, rows)
    chosen = [place for place, _ in _most_important(model)[:_VALUES]]
    return [taken.labels[place] for place in chosen], [
        [_cell(taken.columns[place], row) for place in chosen] for row in range(len(rows))
    ]


def _cell(column: Column, row: int) -> Cell:
    if column.missing[row]:
        return "–"
    if column.kind == "number":
        return float(column.values[row])
    text = as_text(column)
    return text.levels[int(text.values[row])]


def intervals_by_fifths(y: Array, ends: Array, predictions: Array) -> str:
    """Return how many rows are inside their intervals, for rows with small to large predictions.

    `ends` are the lower and the upper ends of intervals of 90%, of shape (n, 2).
    """
    if len(y) < _FEWEST:
        return ""
    parts = np.array_split(np.argsort(predictions, kind="stable"), _PARTS)
    inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
    rows: list[list[Cell]] = [
        [
            f"{predictions[part].min():.4g} to {predictions[part].max():.4g}",
            len(part),
            f"{inside[part].mean():.1%}",
            float((ends[part, 1] - ends[part, 0]).mean()),
        ]
        for part in parts
    ]
    return section(
        "Coverage of the intervals",
        table(["prediction", "rows", "inside", "mean width"], rows),
        paragraph(
            "Each line is a fifth of the rows, by prediction. About 90% should be inside in each of them.",
            soft=True,
        ),
    )


def dependence(model: Any, X: Any) -> str:
    """Return curves of the average prediction along the columns that matter most."""
    if not isinstance(model, AutoEstimator):
        return ""
    n = X.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(n, _AVERAGED)).astype(np.int64))
    taken = _table(X, rows)
    drawn = [
        _curve(model, taken, place) for place, share in _most_important(model)[:_CURVES] if share > 0 and len(rows) > 1
    ]
    return section(
        "How predictions depend on columns",
        charts(*(one for one in drawn if one)) if any(drawn) else "",
        paragraph(
            f"The average prediction for {len(rows):,} rows if all of them had this value of the column, with the "
            "other "
            "columns unchanged (partial dependence).",
            soft=True,
        )
        if any(drawn)
        else "",
    )


def _curve(model: AutoEstimator, taken: Table, place: int) -> str:
    """Return the chart of one column; nothing if it has one value only."""
    column, name = taken.columns[place], taken.labels[place]
    known = column.values[~column.missing]
    if column.is_text:
        codes, counts = np.unique(known, return_counts=True)
        grid = codes[np.argsort(-counts, kind="stable")][:_GRID]
    else:
        grid = np.unique(np.quantile(known, np.linspace(0.02, 0.98, _GRID), method="nearest")) if len(known) else known
    if len(grid) < 2:
        return ""
    means, outcome = _averages(model, taken, place, grid)
    if column.is_text or column.kind == "boolean":
        text = as_text(replace(column, values=grid))
        return _levels_chart(name, [text.levels[int(code)] for code in text.values], means, outcome)
    x = grid if column.kind == "number" else (grid - grid[0]) / 86_400
    label = name if column.kind == "number" else f"{name}: days after {_cell(replace(column, values=grid), 0)}"
    chart = Chart(span(x), span(means), label, outcome)
    chart.curve(x, means)
    chart.points(x, means, "solid", 3)
    return figure(name, chart.svg(f"average prediction along {name}"), f"From {x[0]:.4g} to {x[-1]:.4g}.")


def _levels_chart(name: str, levels: list[str], means: Array, outcome: str) -> str:
    """Return the averages of a column of text, the largest first."""
    order = np.argsort(-means, kind="stable")
    rows: list[list[Cell]] = [[levels[place], float(means[place])] for place in order]
    return figure(name, table([name, outcome], rows), "The most frequent values.")


def _averages(model: Any, taken: Table, place: int, grid: Array) -> tuple[Array, str]:
    """Return the average prediction with each value of a column, and what it is an average of."""
    classes = is_classifier(model)
    outcome = f"probability of {model.classes_[-1]}" if classes else "average prediction"
    means = []
    for value in grid:
        column = replace(taken.columns[place], values=np.full(taken.n_rows, value))
        rows = replace(taken, columns=[*taken.columns[:place], column, *taken.columns[place + 1 :]])
        found = np.asarray(model.predict_proba(rows)[:, -1] if classes else model.predict(rows), dtype=np.float64)
        means.append(found.reshape(len(rows.columns[0].values), -1)[:, 0].mean())
    return np.array(means), outcome


def _most_important(model: AutoEstimator) -> list[tuple[int, float]]:
    """Return the places of columns and their importances, the largest first."""
    order = np.argsort(-model.feature_importances_, kind="stable")
    return [(int(place), share) for place, (_, share) in zip(order, importances(model), strict=True)]


def _table(X: Any, rows: Array) -> Table:
    return read_table(as_inputs(X).take(rows), TableEncoder.__name__)
