"""Which rows a search and the last fits learn from, and on which they are judged."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ALWAYS, NEVER = -1, -2  # numbers of folds: rows that are always learnt from, and rows that the search leaves alone

_HELD_ROWS = 10_000


@dataclass(frozen=True)
class Plan:
    """Folds and rows.

    Attributes
    ----------
    fold : array of shape (n,)
        Number of each row's fold, or `ALWAYS` or `NEVER`.
    n_folds : int
    learnt : array of int
        Rows of the last fits.
    judged : array of int, or None
        Rows that the last fits have not seen and are judged by. None if each row is held out by one of the folds.
    """

    fold: NDArray[np.intp]
    n_folds: int
    learnt: Array
    judged: Array | None

    def sample(self, size: int, counted: Array, random_state: np.random.RandomState) -> Array:
        """Draw rows for the search, in order: at most `size`, of which a third is held out if others never are.

        Parameters
        ----------
        size : int
        counted : array of bool of shape (n,)
            Which rows have a weight.
        random_state : RandomState
        """
        held = np.flatnonzero((self.fold >= 0) & counted)
        always = np.flatnonzero((self.fold == ALWAYS) & counted)
        n_held = size if not len(always) else max(1, size // 3)
        drawn = [random_state.permutation(held)[:n_held], random_state.permutation(always)[:size]]
        return np.sort(np.concatenate(drawn))

    def folds(self, indices: Array) -> NDArray[np.intp]:
        """Return the folds of rows, in which `n_folds` stands for rows that are never held out."""
        fold = self.fold[indices]
        return np.where(fold < 0, self.n_folds, fold).astype(np.intp)


def make_plan(
    cv: Any,
    n: int,
    n_validation: int,
    y: Array,
    groups: Any,
    stratify: Array | None,
    largest: int,
    random_state: np.random.RandomState,
) -> Plan:
    """Decide on folds.

    Parameters
    ----------
    cv : int or splitter
        Number of folds, or a splitter of scikit-learn. Of one whose splits are no partition of the rows, such as
        `TimeSeriesSplit`, the last split counts.
    n, n_validation : int
        Numbers of rows, and of validation rows that follow them.
    y : array of shape (n + n_validation, ...)
    groups : array of shape (n,), or None
        Rows of a group are in the same fold.
    stratify : array of shape (n + n_validation,), or None
        Classes.
    largest : int
        Number of rows above which rows are held out once, instead of each in its turn.
    random_state : RandomState
    """
    rows = np.arange(n)
    if groups is not None and len(groups) != n:
        raise ValueError(f"groups has {len(groups)} entries and X has {n} rows: one for each row is needed")
    if n_validation:
        fold = np.concatenate([np.full(n, ALWAYS), np.zeros(n_validation)]).astype(np.intp)
        return Plan(fold, 1, rows, n + np.arange(n_validation))
    if n < 2:
        raise ValueError(f"there are no rows to hold out for validation, with n_samples={n}: at least two are needed")
    seed = int(random_state.randint(2**31 - 1))
    splits = _splits(cv, n, y, groups, stratify, seed)
    fold, times = np.full(n, ALWAYS, dtype=np.intp), np.zeros(n, dtype=np.intp)
    partition = True
    for number, (train, test) in enumerate(splits):
        fold[test] = number
        times[test] += 1
        partition = partition and len(train) + len(test) == n
    if not (partition and (times == 1).all()):
        train, test = splits[-1]
        fold = np.full(n, NEVER, dtype=np.intp)
        fold[train], fold[test] = ALWAYS, 0
        return Plan(fold, 1, rows, None if n <= largest else np.empty(0, dtype=np.intp))
    if n > largest:
        held = np.flatnonzero(fold == 0)[:_HELD_ROWS]
        fold = np.full(n, ALWAYS, dtype=np.intp)
        fold[held] = 0
        return Plan(fold, 1, np.flatnonzero(fold == ALWAYS), held)
    return Plan(fold, len(splits), rows, None)


def _splits(cv: Any, n: int, y: Array, groups: Any, stratify: Array | None, seed: int) -> list[tuple[Array, Array]]:
    from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, check_cv

    if isinstance(cv, Integral):
        number = min(int(cv), n)
        if groups is not None:
            splitter: Any = GroupKFold(min(number, len(np.unique(groups))))
        elif stratify is not None and np.unique(stratify, return_counts=True)[1].min() >= number:
            splitter = StratifiedKFold(number, shuffle=True, random_state=seed)
        else:
            splitter = KFold(number, shuffle=True, random_state=seed)
    else:
        splitter = check_cv(cv)
    labels = y if stratify is None else stratify
    return list(splitter.split(np.zeros((n, 1)), labels[:n], groups))
