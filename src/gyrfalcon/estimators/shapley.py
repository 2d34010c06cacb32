"""Shapley values of predictions: exact for expansions of product kernels, sampled for other models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples

from .._utils.checks import integer
from .._utils.words import a
from ..fitting.explained import Explained
from ..operators.shapley import expansion_interactions, expansion_shapley_values
from ._column_groups import group_columns
from ._estimator import Estimator
from ._permutations import sampled_shapley_values

Array = NDArray[Any]

_BACKGROUND = 100  # rows of X that are the background of a sampled explanation, if none is given


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """Shapley values of predictions, as `shapley_values` returns them.

    ``shap.Explanation(e.values, e.base_values, e.data, feature_names=e.feature_names)`` is what the plots of the
    package shap take.

    Attributes
    ----------
    values : array of shape (n, n_groups) or (n, n_groups, n_outputs)
        The part of the prediction of each row that is due to each column, or group of columns.
    base_values : array of shape (n,) or (n, n_outputs)
        The values of a row and this number add up to the prediction.
    data : array of shape (n, n_groups)
        The values of the columns; NaN for groups of several columns.
    feature_names : list of str
    exact : bool
        Whether the values are exact, or sampled.
    standard_errors : array of the shape of `values`, or None
        Standard errors of sampled values; None if they are exact.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor, shapley_values
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> model = FalkonRegressor("gaussian", random_state=0).fit(X, X[:, 0])
    >>> shapley_values(model, X[:5], background=X).values.shape
    (5, 3)
    """

    values: Array
    base_values: Array
    data: Array
    feature_names: list[str]
    exact: bool
    standard_errors: Array | None = None


def shapley_values(
    model: Any,
    X: Any,
    background: Any = None,
    groups: Any = None,
    *,
    n_permutations: int = 20,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> ShapleyValues:
    """Attribute predictions to the columns of X by their Shapley values.

    The value of a column is the change of the prediction when its value becomes known, averaged over all orders in
    which the columns can become known. The values of a row and its base value add up to the prediction.

    They are exact for sums of Gaussian kernels, 1-norm Laplacians, constants and their products, with one length scale
    or one for each column, in `FalkonRegressor`, `FalkonClassifier`, `NystromRegressor`, `ExactRegressor` and all other
    estimators whose function is a sum over centers, and for blends of these in `AutoRegressor` without a logarithm of
    y. Values of other models are estimated by sampling permutations, with standard errors. The attribute `exact` of
    the result is False in this case.

    Parameters
    ----------
    model : fitted estimator
        The function that is explained is `predict` of a regressor, before the inverse link of its loss if there is one,
        or `decision_function` of a classifier, before the calibration of its probabilities. For `AutoRegressor` exact
        values are those before predictions are limited to the range of y.
    X : table or array of shape (n, n_features)
        Rows whose predictions are explained.
    background : table or array of shape (m, n_features), optional
        Rows that an absent column is averaged over, such as 100 training rows; the base value is the mean of their
        predictions. By default, exact values remove the factor of an absent column from the kernel instead, as if it
        were equal to that of each center, which is m times as fast; sampled values use up to 100 rows of X.
    groups : mapping of names to lists of columns, optional
        Columns that become known together. Columns in no group are explained alone. The columns that `AutoRegressor`
        and `AutoClassifier` make of one column of a table always belong together.
    n_permutations : int
        Number of permutations for each row if values are sampled, at least 4; half of them are the others in reverse.
        A row takes ``n_permutations * (n_groups + 1)`` predictions.
    random_state : int, RandomState or None
        Seed of sampled permutations.
    n_jobs : int or None
        Threads; None is every core. Exact values have the same bits for any number.

    Returns
    -------
    ShapleyValues

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import ExactRegressor, shapley_values
    >>> X = np.random.default_rng(0).standard_normal((300, 3))
    >>> model = ExactRegressor("gaussian", random_state=0).fit(X, 2 * X[:, 0] - X[:, 1])
    >>> why = shapley_values(model, X[:4], background=X[:100])
    >>> np.allclose(why.values.sum(axis=1) + why.base_values, model.predict(X[:4]))
    True
    """
    integer(4, words="an integer of at least 4")("n_permutations", n_permutations)
    explained = explained_function(model)
    number_of, names = group_columns(groups, explained.n_features, explained.names)
    n, errors = _checked_rows(X, background), None
    if is_exact(explained):
        values, base = _exact(explained, X, background, number_of, n_jobs)
        data = explained.stack(X, X).data[:n]
    else:
        rng = check_random_state(random_state)
        rows = explained.stack(X, X if background is None else background)
        if background is None:
            rows = rows.subset(np.r_[np.arange(n), rng.permutation(n)[:_BACKGROUND]])
        values, errors, base = sampled_shapley_values(explained.values, rows, n, number_of, n_permutations // 2, rng)
        data = rows.data[:n]
    base_values = np.tile(base, (n, 1))
    if explained.one_column:
        values, base_values = values[:, :, 0], base_values[:, 0]
        errors = None if errors is None else errors[:, :, 0]
    return ShapleyValues(values, base_values, _shown(data, number_of), names, errors is None, errors)


def shapley_interactions(
    model: Any, X: Any, background: Any = None, groups: Any = None, *, n_jobs: int | None = None
) -> ShapleyValues:
    """Attribute predictions to pairs of columns: how much of a column's Shapley value is due to the value of another.

    Entry (i, j) of the values of a row is half the interaction of the columns i and j: the change of the Shapley value
    of one when the other becomes known. What is left on the diagonal is due to the column alone, so that the entries of
    a row of the matrix add up to the Shapley value of its column. This is the form that `shap` gives to interactions.

    Parameters
    ----------
    model : fitted estimator
        With exact Shapley values, as described for `shapley_values`.
    X, background, groups, n_jobs
        As for `shapley_values`. The time is about 2 n_columns times that of Shapley values.

    Returns
    -------
    ShapleyValues
        Its `values` have the shape (n, n_groups, n_groups) or (n, n_groups, n_groups, n_outputs).

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import ExactRegressor, shapley_interactions
    >>> X = np.random.default_rng(0).standard_normal((300, 3))
    >>> model = ExactRegressor("gaussian", random_state=0).fit(X, X[:, 0] * X[:, 1])
    >>> sizes = np.abs(shapley_interactions(model, X[:20], background=X[:100]).values).mean(axis=0)
    >>> bool(sizes[0, 1] > 5 * sizes[0, 2])
    True
    """
    explained = explained_function(model)
    if not is_exact(explained):
        raise ValueError(
            "interactions are computed for functions with exact Shapley values only: those of Gaussian kernels and "
            "1-norm Laplacians, their sums and products; shapley_values samples those of other models"
        )
    number_of, names = group_columns(groups, explained.n_features, explained.names)
    n = _checked_rows(X, background)
    values, base = _exact(explained, X, background, number_of, n_jobs, pairs=True)
    base_values = np.tile(base, (n, 1))
    if explained.one_column:
        values, base_values = values[..., 0], base_values[:, 0]
    return ShapleyValues(values, base_values, _shown(explained.stack(X, X).data[:n], number_of), names, True)


def explained_function(model: Any) -> Explained:
    """Return the function of a fitted estimator."""
    if not isinstance(model, Estimator):
        raise TypeError(f"model is {a(type(model).__name__)}: give a fitted estimator of gyrfalcon")
    return model._explained()


def is_exact(explained: Explained) -> bool:
    """Whether the function is a sum of expansions of kernels that are products over the columns."""
    return explained.parts is not None and all(part.expansion.product_terms is not None for part in explained.parts)


def _checked_rows(X: Any, background: Any) -> int:
    """Return the number of rows of X; raise ValueError if X or the background has none."""
    n = int(_num_samples(X))
    if n == 0 or (background is not None and int(_num_samples(background)) == 0):
        raise ValueError("X or background has no rows: give at least one of each")
    return n


def _exact(
    explained: Explained, X: Any, background: Any, number_of: Array, n_jobs: int | None, pairs: bool = False
) -> tuple[Array, Array]:
    """Return the sum of the exact values of all parts, of columns or of pairs, and the base value."""
    assert explained.parts is not None
    values: Any = 0.0
    base = explained.offset.copy()
    n_groups = int(number_of.max()) + 1
    for part in explained.parts:
        groups = number_of[part.origin]
        used, groups = np.unique(groups, return_inverse=True)  # a part need not use all columns
        others = None if background is None else part.rows(background)
        if pairs:
            between, mine, start = expansion_interactions(part.expansion, part.rows(X), others, groups, n_jobs)
            placed = np.zeros((len(mine), n_groups, n_groups, mine.shape[2]))
            placed[:, used[:, None], used] = between / 2
            placed[:, used, used] = mine - between.sum(axis=2) / 2
        else:
            mine, start = expansion_shapley_values(part.expansion, part.rows(X), others, groups, n_jobs)
            placed = np.zeros((len(mine), n_groups, mine.shape[2]))
            placed[:, used] = mine
        values, base = values + placed, base + start
    return values, base


def _shown(data: Array, number_of: Array) -> Array:
    """Return the values of groups of one column, and NaN for larger groups."""
    columns = [np.flatnonzero(number_of == number) for number in range(int(number_of.max()) + 1)]
    shown = [data[:, at[0]] if len(at) == 1 else np.full(len(data), np.nan) for at in columns]
    return np.stack(shown, axis=1)
