"""Which rows the search and the final fits learn from, and which rows judge them."""

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

ALWAYS, NEVER = -1, -2  # fold numbers of rows that are always learnt from, and of rows that the search leaves alone

_HELD_ROWS, _HELD_SHARE, _MOST_HELD = 10_000, 25, 40_000  # most rows that are held out of a large table: n / 25 of many
_FRESH_ROWS = 1_000  # with this many held-out rows, half of them judge the search, and half the later fits
_MORE = 1.5  # a second sample has at least this many times the rows of the first
_TOTAL = 1.35  # most that the fits of several splits may cost together, in fits of the given size


@dataclass(frozen=True)
class Split:
    """Positions in a sample of the rows that are learnt from and of those that are held out."""

    train: Array
    held: Array


@dataclass(frozen=True)
class SampleRows:
    """The rows of a sample, in order, and its splits."""

    indices: Array
    splits: tuple[Split, ...]


@dataclass(frozen=True)
class FoldPlan:
    """The fold of each row, and the rows of the final fits.

    fold : index of each row's fold, or `ALWAYS` or `NEVER`
    train : rows that the final fits learn from
    judged : rows that judge the final fits, and are held out of all of them; None if each row is held out by one fold
    from_user : whether the user says which rows are judged together, by groups or by a splitter
    """

    fold: NDArray[np.intp]
    n_folds: int
    train: Array
    judged: Array | None
    from_user: bool = False

    @property
    def in_turn(self) -> bool:
        """Whether each row is held out by one of several folds."""
        return self.judged is None and self.n_folds > 1

    def divide_again(self, stratify: Array | None, seed: int) -> Array:
        """Divide the rows into as many other folds; return the fold of each row.

        This is for folds that the user has not chosen, of which each is held out in turn.
        """
        fold, n = np.empty_like(self.fold), len(self.fold)
        for number, (_, held) in enumerate(_splits(self.n_folds, n, np.zeros(n), None, stratify, seed)):
            fold[held] = number
        return fold

    def draw(
        self, sizes: tuple[int, int], counted: Array, random_state: np.random.RandomState
    ) -> tuple[SampleRows, SampleRows | None]:
        """Draw a sample for the search, and a larger one for later fits, judged by rows that are not in the first.

        `sizes` are the most rows that each of them learns from; two thirds as many are held out. `counted` tells which
        rows have a weight. If the table is small, the first sample holds out several folds in turn, so that enough rows
        judge; then each split learns from fewer rows. The second is None if there are too few rows for it, or not many
        more to learn from.
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
        times = min(self.n_folds, -(-(2 * first // 3) * self.n_folds // max(n, 1)))
        room = n * (self.n_folds - 1) // self.n_folds
        again = 2 * times < self.n_folds and min(second, room) >= _MORE * first
        spare = self.n_folds - times if again else self.n_folds  # folds from this on are kept for the second

        def rows(held: int, below: int) -> tuple[Array, Array]:
            train = (self.fold != held) & (self.fold < below) & counted
            return np.flatnonzero(train), np.flatnonzero((self.fold == held) & counted)

        one = _draw([rows(fold, spare) for fold in range(times)], first, random_state)
        if not again:
            return one, None
        every = self.n_folds
        return one, _draw([rows(fold, every) for fold in range(spare, every)], second, random_state)


def _draw(splits: list[tuple[Array, Array]], size: int, random_state: np.random.RandomState) -> SampleRows:
    """Draw a sample from the rows that each split could learn from and hold out."""
    times = len(splits)
    size_each = int(size * np.sqrt(min(1.0, _TOTAL / times)))
    held_each = max(1, -(-(2 * size // 3) // times))
    parts = [
        (np.sort(random_state.permutation(train)[:size_each]), np.sort(random_state.permutation(held)[:held_each]))
        for train, held in splits
    ]
    parts = [(train, held) for train, held in parts if len(train) and len(held)]
    if not parts:
        raise ValueError("all rows that have a weight are learnt from, or all are held out: both kinds are needed")
    indices = np.unique(np.concatenate([rows for part in parts for rows in part]))
    return SampleRows(
        indices,
        tuple(Split(np.searchsorted(indices, train), np.searchsorted(indices, held)) for train, held in parts),
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


def plan_folds(
    cv: Any,
    n: int,
    n_validation: int,
    y: Array,
    groups: Any,
    stratify: Array | None,
    largest: int,
    random_state: np.random.RandomState,
) -> FoldPlan:
    """Assign rows to folds.

    cv : number of folds, a splitter of scikit-learn, or the index of each row's fold; a splitter whose splits are not a
        partition of the rows, such as `TimeSeriesSplit`, is used for its last split alone
    n, n_validation : numbers of rows, and of validation rows that follow them
    groups : rows of a group are in the same fold
    stratify : classes
    largest : number of rows above which some rows are held out of all fits, instead of each by its fold
    """
    rows = np.arange(n)
    from_user = groups is not None or not isinstance(cv, Integral)
    if n_validation:
        fold = np.concatenate([np.full(n, ALWAYS), np.zeros(n_validation)]).astype(np.intp)
        return FoldPlan(fold, 1, rows, n + np.arange(n_validation), from_user)
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
        return FoldPlan(fold, 1, rows, None if n <= largest else np.empty(0, dtype=np.intp), from_user)
    if n > largest:
        held = np.flatnonzero(fold == 0)[: min(max(_HELD_ROWS, n // _HELD_SHARE), _MOST_HELD)]
        fold = np.full(n, ALWAYS, dtype=np.intp)
        fold[held] = 0
        return FoldPlan(fold, 1, np.flatnonzero(fold == ALWAYS), held, from_user)
    return FoldPlan(fold, len(splits), rows, None, from_user)


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
