"""Partial dependence and individual conditional expectations of a fitted function, by the expansion itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch
from sklearn.utils.validation import _num_samples

from .._utils.checks import integer, one_of
from ..fitting.explained import Explained
from ..operators.shapley import split_factors
from ._column_groups import group_columns
from .shapley import explained_function, is_exact

Array = NDArray[Any]

_BLOCK = 1 << 22  # largest number of kernel entries, or of predictions of other models, at once


def partial_dependence(
    model: Any,
    X: Any,
    columns: Any,
    *,
    grid_resolution: int = 50,
    kind: str = "average",
) -> Bunch:
    """Compute how predictions depend on one or two columns, with the other columns as they are in the rows of X.

    For kernels that are products over the columns (see `shapley_values`) each term is a factor of the chosen columns
    times one of all others, so that n rows and g values take n + g evaluations of the kernel and not n g. Other models
    predict n g rows. The result is what scikit-learn's `partial_dependence` returns, and `PartialDependenceDisplay`
    draws it.

    Parameters
    ----------
    model : fitted estimator
        As for `shapley_values`: the function is `predict` of a regressor, before the inverse link of its loss, or
        `decision_function` of a classifier.
    X : table or array of shape (n, n_features)
        Rows to average over.
    columns : int, str, or a pair of these
    grid_resolution : int, default=50
        Largest number of values of each column. They are values that occur in X, at evenly spaced quantiles, or all of
        them if there are no more. Columns of text have all their values, and missing values are left out.
    kind : {"average", "individual", "both"}, default="average"
        "average" is the partial dependence; "individual" has a curve for each row (ICE).

    Returns
    -------
    Bunch
        `grid_values` : list of arrays, one for each column. `average` : array of shape (n_outputs, g) or
        (n_outputs, g, h). `individual` : array of shape (n_outputs, n, g) or (n_outputs, n, g, h).

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import ExactRegressor, partial_dependence
    >>> X = np.random.default_rng(0).standard_normal((300, 3))
    >>> model = ExactRegressor("gaussian", random_state=0).fit(X, np.sin(X[:, 0]) + X[:, 1])
    >>> found = partial_dependence(model, X, 0, grid_resolution=20)
    >>> found.average.shape, found.grid_values[0].shape
    ((1, 20), (20,))
    """
    integer(2)("grid_resolution", grid_resolution)
    one_of("average", "individual", "both")("kind", kind)
    explained = explained_function(model)
    n = int(_num_samples(X))
    if n == 0:
        raise ValueError("X has no rows: give at least one")
    chosen = _chosen(columns, explained)
    data = explained.stack(X, X).data[:n]
    places = [_grid(data[:, column], grid_resolution, column) for column in chosen]
    at = np.array(list(product(*places)), dtype=np.int64)  # a row of X for each column and point of the grid
    curves = _by_expansion if is_exact(explained) else _by_predictions
    average, individual = curves(explained, X, chosen, at, kind != "average")
    shape = [len(place) for place in places]
    found: dict[str, Any] = {"grid_values": [_values(data[place, j]) for j, place in zip(chosen, places, strict=True)]}
    if kind != "individual":
        found["average"] = average.T.reshape(-1, *shape)
    if individual is not None:
        found["individual"] = np.moveaxis(individual, 2, 0).reshape(-1, n, *shape)
    return Bunch(**found)


def _chosen(columns: Any, explained: Explained) -> list[int]:
    """Return the numbers of one or two columns."""
    given = [columns] if isinstance(columns, str) or not isinstance(columns, Sequence | np.ndarray) else list(columns)
    if not 1 <= len(given) <= 2:
        raise ValueError(f"columns={columns!r} must be a column or a pair of columns")
    found = []
    for column in given:
        number_of, names = group_columns({"chosen": [column]}, explained.n_features, explained.names)
        found.append(int(np.flatnonzero(number_of == names.index("chosen"))[0]))
    if len(set(found)) < len(found):
        raise ValueError(f"columns={columns!r} names a column twice: give two different ones")
    return found


def _grid(values: Array, resolution: int, column: int) -> Array:
    """Return rows that have the values of a grid: all values of text, or evenly spaced quantiles of numbers."""
    if values.dtype == object:
        known = np.flatnonzero([value is not None and value == value for value in values])
        distinct, first = np.unique([str(value) for value in values[known]], return_index=True)
        is_text = any(isinstance(value, str | bool | np.bool_) for value in values[known])
        order = first if is_text else first[np.argsort(values[known][first])]
    else:
        known, is_text = np.flatnonzero(~np.isnan(values.astype(np.float64))), False
        distinct, order = np.unique(values[known], return_index=True)
    if not len(known):
        raise ValueError(f"column {column} of X has no value: give rows that have one")
    if not is_text and len(distinct) > resolution:
        ranked = np.argsort(values[known], kind="stable")
        ranks = np.unique(np.linspace(0, len(known) - 1, resolution).round().astype(int))
        steps = ranked[ranks]
        _, unique = np.unique(values[known][steps], return_index=True)
        order = steps[unique]
    return np.asarray(known[order])


def _values(values: Array) -> Array:
    """Return values of a grid as numbers, if they are numbers."""
    if all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in values.tolist()):
        return values.astype(np.float64)
    return values


def _by_expansion(explained: Explained, X: Any, chosen: list[int], at: Array, each: bool) -> tuple[Array, Any]:
    """Return averages of shape (g, k) and curves of shape (n, g, k) by factors of kernels."""
    assert explained.parts is not None
    average = np.tile(explained.offset, (len(at), 1))
    individual: Any = 0.0
    for part in explained.parts:
        rows, expansion = part.rows(X), part.expansion
        points = np.zeros((len(at), rows.shape[1]))
        for j, column in enumerate(chosen):
            mine = part.origin == column
            points[:, mine] = rows[np.ix_(at[:, j], mine)]
        is_chosen = np.isin(part.origin, chosen)
        coef, step = np.asarray(expansion.coef, dtype=np.float64), max(1, _BLOCK // len(expansion.coef))
        grid = split_factors(expansion, points, is_chosen)
        curves = []
        for start in range(0, len(rows), step):
            found: Any = 0.0
            for (constant, z, _), (_, _, rest) in zip(
                grid, split_factors(expansion, rows[start : start + step], is_chosen), strict=True
            ):
                average += constant * z @ (coef * rest.sum(axis=0)[:, None]) / len(rows)
                if each:
                    found = found + constant * np.stack([(rest * c) @ z.T for c in coef.T], axis=2)
            curves.append(found)
        if each:
            individual = individual + np.concatenate(curves)
    return average, individual + explained.offset if each else None


def _by_predictions(explained: Explained, X: Any, chosen: list[int], at: Array, each: bool) -> tuple[Array, Any]:
    """Return the same by predictions for rows whose chosen columns are replaced."""
    rows, n = explained.stack(X, X), int(_num_samples(X))
    average, curves = [], []
    step = max(1, _BLOCK // (n * explained.n_features))
    for start in range(0, len(at), step):
        points = at[start : start + step]
        mixed = np.tile(np.arange(n)[None, :, None], (len(points), 1, explained.n_features))
        for j, column in enumerate(chosen):
            mixed[:, :, column] = points[:, j, None]
        values = explained.values(rows.mix(mixed.reshape(-1, explained.n_features))).reshape(len(points), n, -1)
        average.append(values.mean(axis=1))
        if each:
            curves.append(np.swapaxes(values, 0, 1))
    return np.concatenate(average), np.concatenate(curves, axis=1) if each else None
