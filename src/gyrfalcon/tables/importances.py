"""Importances of columns: by permutation of held-out rows, and by slopes.

The importance of a column is the increase of the squared error on held-out rows when the values of the column are
shuffled among them (Breiman 2001). Models of the search are used: each of its splits has coefficients and a metric that
were learnt without the rows that it holds out. A column that a model has learnt by heart therefore has an importance of
about 0, where the slope of the model along it may be large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from ..estimators._metric_rounds import under
from ..operators import KernelOperator, mean_square_gradient
from .boosted import Boosted
from .boosting import Boosting, Fold, TreeSettings
from .encoded_tables import EncodedTable
from .finding import Found
from .linear import LinearSettings
from .members import Member
from .plain_candidates import PlainCandidate
from .problems import expansion_of
from .search import Candidate
from .validation import Split

Array = NDArray[Any]
Predictor = Callable[[Array], Array]

_GRADIENT = 3e8  # most rows x centers x columns of the gradients that slopes are computed from
_SHARE = 0.02  # share of the time budget for the predictions of either family, by the two rates below
_RATE = 1e10  # rows x centers x columns of kernel evaluations per second, on two cores of an AMD Zen 4 processor
_MOST_ROWS, _FEWEST_ROWS = 2_000, 200  # most and fewest rows, counting repetitions, that are shuffled for each column
_MOST_REPEATS = 10  # most permutations of the same rows
_FEWEST_GROUPS = 20  # fewest groups of columns that are shuffled together, if there is no time for each column
_TREE_ROWS, _MOST_TREES, _FEWEST_TREES = 3_000, 100, 20  # training rows, and most and fewest iterations of trees
_TREE_SECONDS, _TREE_NUMBER = 1e-3, 1.5e-8  # seconds of an iteration, and in addition per row and column
_TREE_OUTPUTS = 8  # with more outputs, trees are left out
_ERRORS = 1.0  # standard errors that are subtracted from the mean increase of the error


def slopes(found: Found, members: list[Member], weights: Array, n_columns: int, compute: Compute) -> Array:
    """Return how much the blend changes along each column of the table, as shares of the total."""
    total = np.zeros(n_columns)
    for member, weight in zip(members, weights, strict=True):
        encoder, model, matrix = member.encoding.encoder, member.model, member.candidate.mixing
        if isinstance(model, Boosted):
            each = encoder.column_totals(model.importances_)
            total = total + weight * np.sqrt(each) / (np.sqrt(each).sum() or 1.0)
            continue
        expansion = expansion_of(model)
        if expansion is None:
            continue
        centers, coef = expansion
        X = member.encoding.take(found.rows)
        Z = X if matrix is None else under(matrix, X)
        some = Z[: int(np.clip(_GRADIENT / centers.size, 50, 500))]
        squares = mean_square_gradient(
            model.kernel_,
            some,
            centers,
            coef,
            full=matrix is not None,
            n_jobs=compute.n_jobs,
        )
        squares = squares if matrix is None else np.diag(matrix @ squares @ matrix)
        moves = np.sqrt(squares) * X.std(axis=0)
        each = np.sqrt(encoder.column_totals(moves**2))
        total = total + weight * each / (each.sum() or 1.0)
    return np.asarray(total / (total.sum() or 1.0))


def importances(
    found: Found,
    encodings: tuple[EncodedTable, ...],
    members: list[Member],
    weights: Array,
    by_slope: Array,
    seconds: float,
    compute: Compute,
) -> Array:
    """Return the share of each column in the increase of the error by shuffling; 0 for all if none increases it.

    The model with the largest weight of each family stands for it. The work is bounded by counting operations, not by a
    clock, so that it can be repeated: if there is no time for each of many columns, those with small slopes are
    shuffled in groups, whose importance is divided among them in proportion to their slopes. What an encoder makes of a
    pair of columns is shuffled with either of them.

    Parameters
    ----------
    by_slope : array of shape (n_columns,)
        The slopes of the same blend.
    seconds : float
        The time budget of the fit.
    """
    families = []
    for kind in (Candidate, TreeSettings, LinearSettings):
        of_kind = [place for place, member in enumerate(members) if isinstance(_settings(member), kind)]
        if of_kind:
            first = members[max(of_kind, key=lambda place: weights[place])].candidate
            families.append(_family(first, found, encodings, float(weights[of_kind].sum()), seconds, compute))
    known = [family for family in families if family is not None]
    if not known:  # no time for trees: the best kernel of the search
        known = [_kernel_family(found.best, found, encodings, 1.0, seconds, compute)]
    increase = np.zeros(len(by_slope))
    for family in known:
        groups = _groups(by_slope, family.most_groups)
        for group, value in zip(groups, family.increases(groups), strict=True):
            part = by_slope[group]
            increase[group] += family.weight * value * (part / part.sum() if part.sum() > 0 else 1 / len(group))
    return np.asarray(increase / (increase.sum() or 1.0))


def _settings(member: Member) -> Any:
    """Return what tells the family of a member."""
    return member.candidate.settings if isinstance(member.candidate, PlainCandidate) else member.candidate


@dataclass(frozen=True, eq=False)
class _Family:
    """The model of a family for each split of the sample.

    predictors : return predictions of standardised y from encoded rows
    origins : the two columns of the table that each encoded column is made of; the same one twice for most
    most_groups : number of groups of columns that there is time for
    n_rows : number of held-out rows that are shuffled for each of them, counting repetitions
    """

    found: Found
    X: Array
    splits: tuple[Split, ...]
    predictors: list[Predictor]
    origins: Array
    weight: float
    most_groups: int
    n_rows: int

    def increases(self, groups: list[Array]) -> Array:
        """Return the increase of the relative squared error by shuffling each group of columns, at least 0.

        A standard error is subtracted, so that chance alone rarely makes a column important.
        """
        random_state = np.random.RandomState(0)
        held = self._held(random_state)
        sample = self.found.sample
        rows = np.concatenate(held)
        weight = np.ones(len(rows)) if sample.weight is None else sample.weight[rows]
        size = np.average(np.square(sample.targets[rows]).sum(axis=1), weights=weight)
        repeats = int(np.clip(self.n_rows // len(rows), 1, _MOST_REPEATS))
        orders = [[random_state.permutation(len(part)) for part in held] for _ in range(repeats)]
        before = self._errors(held, None, orders[0])
        found = np.zeros(len(groups))
        for number, group in enumerate(groups):
            columns = np.flatnonzero(np.isin(self.origins, group).any(axis=0))
            if not len(columns):
                continue
            change = np.mean([self._errors(held, columns, order) for order in orders], axis=0) - before
            mean = np.average(change, weights=weight)
            deviation = np.sqrt(np.average((change - mean) ** 2, weights=weight) / len(rows))
            found[number] = max(0.0, mean - _ERRORS * deviation)
        return found / max(size, np.finfo(np.float64).tiny)

    def _held(self, random_state: np.random.RandomState) -> list[Array]:
        """Draw the rows of each split that are shuffled."""
        most = max(1, self.n_rows // len(self.splits))
        return [np.sort(random_state.permutation(split.held)[:most]) for split in self.splits]

    def _errors(self, held: list[Array], columns: Array | None, orders: list[Array]) -> Array:
        """Return the squared error of each held-out row, after shuffling columns."""
        parts = []
        for predictor, rows, order in zip(self.predictors, held, orders, strict=True):
            X = self.X[rows]
            if columns is not None:
                X[:, columns] = X[np.ix_(order, columns)]
            parts.append(np.square(predictor(X) - self.found.sample.targets[rows]).sum(axis=1))
        return np.concatenate(parts)


def _family(
    candidate: Candidate | PlainCandidate,
    found: Found,
    encodings: tuple[EncodedTable, ...],
    weight: float,
    seconds: float,
    compute: Compute,
) -> _Family | None:
    """Return the models of a family with its weight in the blend; None if there is no time for it."""
    if isinstance(candidate, Candidate):
        return _kernel_family(candidate, found, encodings, weight, seconds, compute)
    X, origins = found.views[candidate.view].X, encodings[candidate.view].encoder.origins
    if isinstance(candidate.settings, TreeSettings):
        predictors = _tree_predictors(candidate, candidate.settings, X, found, seconds, compute)
    else:
        predictors = _linear_predictors(candidate, X, found, seconds)
    if predictors is None:
        return None
    return _Family(found, X, found.sample.splits, predictors, origins, weight, _MOST_ROWS, _MOST_ROWS // 2)


def _kernel_family(
    candidate: Candidate,
    found: Found,
    encodings: tuple[EncodedTable, ...],
    weight: float,
    seconds: float,
    compute: Compute,
) -> _Family:
    """Return the fits of the search, on as many rows and columns as there is time for."""
    X, encoder, splits = found.views[candidate.view].X, encodings[candidate.view].encoder, found.sample.splits
    rows = _SHARE * seconds * _RATE / (len(splits[0].train) * X.shape[1])
    n_rows = int(np.clip(rows / encoder.n_features_in_, _FEWEST_ROWS, _MOST_ROWS))
    most = max(_FEWEST_GROUPS, int(rows / n_rows))
    predictors = _kernel_predictors(candidate, X, found, compute)
    return _Family(found, X, splits, predictors, encoder.origins, weight, most, n_rows)


def _groups(by_slope: Array, most: int) -> list[Array]:
    """Return the columns one by one; if these are too many, half as many one by one, and the others in groups."""
    order = np.argsort(-by_slope, kind="stable")
    if len(order) <= most:
        return list(order[:, None])
    alone = most // 2
    return [*order[:alone, None], *np.array_split(order[alone:], most - alone)]


def _kernel_predictors(candidate: Candidate, X: Array, found: Found, compute: Compute) -> list[Predictor]:
    """Return the fits of the search, which has one for each split."""

    def predictor(place: int, split: Split) -> Predictor:
        metric, length, coef = candidate.metrics[place], candidate.lengths[place], candidate.coefs[place]
        mixed = metric.ndim == 2
        kernel = candidate.family.kernel(np.ones(len(metric)) if mixed else metric, length)
        centers = under(metric, X)[split.train] if mixed else X[split.train]

        def predict(rows: Array) -> Array:
            Z = under(metric, rows) if mixed else rows
            operator = KernelOperator(kernel, Z, centers, n_jobs=compute.n_jobs, memory_budget=0)
            return candidate.target.standard_inverse(operator.matmat(coef))

        return predict

    return [predictor(place, split) for place, split in enumerate(found.sample.splits)]


def _tree_predictors(
    candidate: PlainCandidate, growth: TreeSettings, X: Array, found: Found, seconds: float, compute: Compute
) -> list[Predictor] | None:
    """Fit trees to the training rows of each split; None if there is no time for it."""
    sample, target = found.sample, candidate.target
    y = target.standard_forward(sample.targets)
    n_outputs, splits = y.shape[1], sample.splits
    each = _TREE_SECONDS + _TREE_NUMBER * min(_TREE_ROWS, len(splits[0].train)) * X.shape[1]
    iterations = min(_MOST_TREES, int(_SHARE * seconds / (each * n_outputs * len(splits))))
    if iterations < _FEWEST_TREES or n_outputs > _TREE_OUTPUTS:
        return None
    boosting = Boosting(X, y, sample.weight, 0, growth, compute, seed=0)

    def predictor(split: Split) -> Predictor:
        rows = split.train[:: -(-len(split.train) // _TREE_ROWS)]
        trees, offset, _ = boosting.fit_few([Fold(rows, split.held)], max(0.1, 5.0 / iterations), iterations)
        return lambda Z: target.standard_inverse(offset + trees.sums(Z, n_outputs))

    return [predictor(split) for split in splits]


def _linear_predictors(candidate: PlainCandidate, X: Array, found: Found, seconds: float) -> list[Predictor] | None:
    """Fit ridge regressions to the training rows of each split; None if there is no time for it."""
    from sklearn.linear_model import Ridge

    sample, target = found.sample, candidate.target
    if sum(len(split.train) for split in sample.splits) * X.shape[1] ** 2 > _SHARE * seconds * _RATE:
        return None
    y = target.standard_forward(sample.targets)

    def predictor(split: Split) -> Predictor:
        weight = None if sample.weight is None else sample.weight[split.train]
        model = Ridge().fit(X[split.train], y[split.train], weight)
        return lambda Z: target.standard_inverse(np.asarray(model.predict(Z)).reshape(len(Z), -1))

    return [predictor(split) for split in sample.splits]
