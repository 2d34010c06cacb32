"""The section of a report that tells which columns predictions are due to, by Shapley values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from .._utils.words import plural
from ..estimators._estimator import Estimator
from ..estimators.shapley import ShapleyValues, shapley_values
from ..sources import as_rows
from ..tables._auto import AutoEstimator
from ..tables.inputs import as_inputs
from ._page import bars, number, paragraph, section, table

Array = NDArray[Any]

_ROWS = 60  # most rows of a report that are explained
_BACKGROUND = 40
_PERMUTATIONS = 8
_PREDICTIONS = 20_000  # most rows that are predicted for sampled values
_STEPS = 5  # columns that the table names for each row


def rows_at(model: Any, X: Any, chosen: Array) -> Any:
    """Return some rows as a source without names, which need not be compared with those of the model."""
    return as_inputs(X).take(chosen) if isinstance(model, AutoEstimator) else as_rows(X.take(chosen))


def evenly(n: int, most: int) -> Array:
    """Return the numbers of at most `most` of n rows, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def about_predictions(model: Any, X: Any) -> list[str]:
    """Return the mean sizes of Shapley values of some rows, and the largest values of three of them."""
    if not isinstance(model, Estimator):
        return []
    n, d = X.shape
    some = evenly(n, max(3, min(_ROWS, _PREDICTIONS // (_PERMUTATIONS * (d + 1)))))
    try:
        why = shapley_values(
            model,
            rows_at(model, X, some),
            rows_at(model, X, evenly(n, _BACKGROUND)),
            n_permutations=_PERMUTATIONS,
            random_state=0,
        )
    except TypeError:  # estimators around others have no function of their own to explain
        return []
    values = why.values.reshape(len(some), len(why.feature_names), -1)
    sizes = np.abs(values).mean(axis=(0, 2))
    shares = sizes / (sizes.sum() or 1.0)
    order = np.argsort(-sizes, kind="stable")
    what = "the decision function" if is_classifier(model) else "the prediction"
    how = "exact" if why.exact else f"estimated by {_PERMUTATIONS} permutations of the columns for each row"
    words = (
        f"The mean size of the part of {what} that is due to each column, as shares: Shapley values of "
        f"{plural(len(some), 'row')}, {how}."
    )
    return [
        section(
            "Why predictions differ",
            bars([(why.feature_names[j], float(shares[j])) for j in order]),
            paragraph(words, soft=True),
            *([] if why.values.ndim == 3 else [_examples(why, some)]),
        )
    ]


def _examples(why: ShapleyValues, numbers: Array) -> str:
    """Return a table of the rows with the lowest, the middle and the highest prediction."""
    predictions = why.values.sum(axis=1) + why.base_values
    ranked = np.argsort(predictions, kind="stable")
    rows: list[list[str | float | int | None]] = []
    for words, i in zip(("lowest", "middle", "highest"), ranked[[0, len(ranked) // 2, -1]], strict=True):
        largest = np.argsort(-np.abs(why.values[i]), kind="stable")[:_STEPS]
        steps = [f"{why.feature_names[j]} = {_shown(why.data[i, j])}: {_signed(why.values[i, j])}" for j in largest]
        rows.append([f"{words}, row {numbers[i] + 1:,}", float(predictions[i]), "; ".join(steps)])
    base = number(float(why.base_values[0]))
    return table(["", "prediction", f"largest steps from the mean prediction, {base}"], rows)


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "") + number(float(value), 3)


def _shown(value: Any) -> str:
    """Return the value of a column as people read it."""
    if isinstance(value, float | np.floating):
        return "missing" if np.isnan(value) else number(float(value))
    return "missing" if value is None else str(value)
