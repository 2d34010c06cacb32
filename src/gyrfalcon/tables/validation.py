"""Which rows a search and the last fits learn from, and on which they are judged."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.words import shown
from ..fitting.folds import fold_numbers, given_numbers
from ..fitting.weights import Counted

Array = NDArray[Any]

ALWAYS, NEVER = -1, -2  # numbers of folds: rows that are always learnt from, and rows that the search leaves alone

_HELD_ROWS = 10_000
_FRESH_ROWS = 1_000  # that were held out, from which half can judge the search and half what follows it
_MORE = 1.5  # times as many rows are worth a second look
_TOTAL = 1.35  # fits of a given size, that several splits may cost together


@dataclass(frozen=True)
class Split:
    """Positions of rows in a sample.

    Attributes
    ----------
    learnt, held : arrays of int
    """

    learnt: Array
    held: Array


@dataclass(frozen=True)
class Drawn:
    """A sample.

    Attributes
    ----------
    indices : array of int
        Its rows, in order.
    splits : tuple of Split
    """

    indices: Array
    splits: tuple[Split, ...]


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

    def draw(
        self, sizes: tuple[int, int], counted: Array, random_state: np.random.RandomState
    ) -> tuple[Drawn, Drawn | None]:
        """Draw rows for the search, and others for what follows it, which are judged by rows of their own.

        Parameters
        ----------
        sizes : tuple of int
            How many rows each is to learn from at most; two thirds as many are held out.
        counted : array of bool of shape (n,)
            Which rows have a weight.
        random_state : RandomState

        Returns
        -------
        first : Drawn
            Of small tables several folds are held out in turn, so that enough rows judge; each time fewer are learnt
            from.
        second : Drawn or None
            Its held rows are not in the first at all. None if there are too few rows for that, or not many more to
            learn from.
        """
        first, second = sizes
        if self.n_folds == 1:
            always = np.flatnonzero((self.fold == ALWAYS) & counted)
            held = random_state.permutation(np.flatnonzero((self.fold == 0) & counted))
            again = len(held) >= _FRESH_ROWS and min(second, len(always)) >= _MORE * first
            halves = np.array_split(held, 2) if again else [held]
            drawn = [
                _draw([(always, half)], size, random_state) for size, half in zip((first, second), halves, strict=False)
            ]
            return drawn[0], drawn[1] if again else None
        n = int(((self.fold >= 0) & counted).sum())
        times = min(self.n_folds, -(-_held(first) * self.n_folds // max(n, 1)))
        room = n * (self.n_folds - 1) // self.n_folds
        again = 2 * times < self.n_folds and min(second, room) >= _MORE * first
        spare = self.n_folds - times if again else self.n_folds  # folds from this on are kept for the second

        def rows(held: int, below: int) -> tuple[Array, Array]:
            learnt = (self.fold != held) & (self.fold < below) & counted
            return np.flatnonzero(learnt), np.flatnonzero((self.fold == held) & counted)

        one = _draw([rows(fold, spare) for fold in range(times)], first, random_state)
        if not again:
            return one, None
        every = self.n_folds
        return one, _draw([rows(fold, every) for fold in range(spare, every)], second, random_state)


def _held(size: int) -> int:
    """Return how many rows judge a fit of so many."""
    return 2 * size // 3


def _draw(splits: list[tuple[Array, Array]], size: int, random_state: np.random.RandomState) -> Drawn:
    """Draw from what each split could learn from and hold out."""
    times = len(splits)
    size_each = int(size * np.sqrt(min(1.0, _TOTAL / times)))
    held_each = max(1, -(-_held(size) // times))
    parts = [
        (np.sort(random_state.permutation(learnt)[:size_each]), np.sort(random_state.permutation(held)[:held_each]))
        for learnt, held in splits
    ]
    parts = [(learnt, held) for learnt, held in parts if len(learnt) and len(held)]
    if not parts:
        raise ValueError("all rows that have a weight are learnt from, or all are held out: both kinds are needed")
    indices = np.unique(np.concatenate([rows for part in parts for rows in part]))
    return Drawn(
        indices,
        tuple(Split(np.searchsorted(indices, learnt), np.searchsorted(indices, held)) for learnt, held in parts),
    )


def groups_among(groups: Any, counted: Counted) -> Array | None:
    """Return the groups of the rows that have a weight, if there are groups."""
    if groups is None:
        return None
    groups = np.asarray(groups)
    if len(groups) != counted.n_given:
        raise ValueError(
            f"groups has {len(groups)} entries and X has {counted.n_given} rows: one for each row is needed"
        )
    return counted.among(groups)


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
    cv : int, splitter or array of int of shape (n,)
        Number of folds, a splitter of scikit-learn, or the number of each row's fold. Of a splitter whose splits are no
        partition of the rows, such as `TimeSeriesSplit`, the last split counts.
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
    if n_validation:
        fold = np.concatenate([np.full(n, ALWAYS), np.zeros(n_validation)]).astype(np.intp)
        return Plan(fold, 1, rows, n + np.arange(n_validation))
    if n < 2:
        raise ValueError(
            f"there are too few rows that have a weight to hold out some for validation, with n_samples={n}: at least "
            "two are needed"
        )
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

    if given_numbers(cv) is not None:
        fold = fold_numbers(cv, y[:n], np.random.RandomState(seed))
        if groups is not None:
            _refuse_parted(fold, groups)
        return [(np.flatnonzero(fold != held), np.flatnonzero(fold == held)) for held in range(fold.max() + 1)]
    if isinstance(cv, Integral):
        number = min(int(cv), n)
        if groups is not None:
            found = np.unique(groups)
            if len(found) < 2:
                raise ValueError(
                    f"groups has one group, {shown(found[0])}, and rows of a group are held out together, which leaves "
                    "none to learn from: at least two groups are needed, or leave groups out"
                )
            splitter: Any = GroupKFold(min(number, len(found)))
        elif stratify is not None and np.unique(stratify, return_counts=True)[1].min() >= number:
            splitter = StratifiedKFold(number, shuffle=True, random_state=seed)
        else:
            splitter = KFold(number, shuffle=True, random_state=seed)
    else:
        splitter = check_cv(cv)
    labels = y if stratify is None else stratify
    return list(splitter.split(np.zeros((n, 1)), labels[:n], groups))


def _refuse_parted(fold: Array, groups: Array) -> None:
    """Raise ValueError that names the first row whose group has rows in another fold."""
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    parted = fold != fold[first][group]
    if parted.any():
        row = int(np.argmax(parted))
        raise ValueError(
            f"cv puts rows {int(first[group[row]])} and {row} of group {shown(groups[row])} into different folds: rows "
            "of a group are held out together. Give the group one fold, or leave groups out"
        )
