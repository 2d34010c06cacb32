"""The final fits of all families: gradient-boosted trees beside kernel models, on the same folds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import limit_of
from .blending import greedy_weights
from .boosted import Boosted
from .boosting import SETTINGS, Boosting, Fold, TreeCandidate
from .members import LEAST_SHARE, Member, ModelFits
from .transforms import Target

Array = NDArray[Any]

FAMILIES = ("kernel", "trees")
STAGE = "all rows, trees"

_FIRST_SHARE = 0.4  # share of the time left for the first trees, which kernel models follow
_LAST_SHARE = 0.9  # the same for later ones
_FEW_OUTPUTS = 8  # with more outputs, kernel models have precedence: there is a tree for each output
_MOST_CLASSES = 50  # with more classes, a tree for each class takes too long
_FEWEST_ROWS = 60  # with fewer rows, trees of several leaves have nothing to learn from
_MEMORY_SHARE = 0.2  # share of memory that rows for trees may take: scikit-learn copies them as float64
_FALL = 1e-3  # fits end when the last `_PATIENCE` of them have lowered the error of the blend by less than this share
_PATIENCE = 2


@dataclass(frozen=True, eq=False)
class FamilyFits:
    """Fits of all families to all rows."""

    kernels: ModelFits
    families: tuple[str, ...]

    def members(self, fitted: tuple[Member, ...] = ()) -> Iterator[tuple[str, Member]]:
        """Fit trees, the kernel models that the blend of the sample needs, then other trees; yield stages and members.

        The members of an earlier run, in `fitted`, are not fitted again.
        """
        candidates = self._candidates()
        first = [] if self.kernels.data.problem.n_outputs > _FEW_OUTPUTS else candidates[:1]
        if first and not _has(first[0], fitted):
            for member in self._trees(first[0], _FIRST_SHARE * self._left):
                fitted = (*fitted, member)
                yield STAGE, member
        for stage, member in self.kernels.members(tuple(one for one in fitted if not is_trees(one))):
            fitted = (*fitted, member)
            yield stage, member
        for candidate in candidates[len(first) :]:
            if not self._goes_on(fitted):
                return
            for member in [] if _has(candidate, fitted) else self._trees(candidate, _LAST_SHARE * self._left):
                fitted = (*fitted, member)
                yield STAGE, member

    def _candidates(self) -> list[TreeCandidate]:
        """Return what trees may learn, the most promising first; none if they cannot be judged, or take too long."""
        data = self.kernels.data
        judged = data.folds.in_turn or (data.folds.judged is not None and len(data.folds.judged) > 0)
        n_classes = data.problem.n_outputs
        possible = judged and n_classes <= _MOST_CLASSES and data.problem.learns_all_rows
        if "trees" not in self.families or not possible or len(data.folds.train) < _FEWEST_ROWS:
            return []
        best = self.kernels.found.best.target
        others = [target for target in data.problem.targets if target.name != best.name]
        targets: list[Target] = [best, *others]
        first, *rest = (TreeCandidate(0, best, settings) for settings in SETTINGS)
        return [first, *(TreeCandidate(0, target, SETTINGS[0]) for target in targets[1:]), *rest]

    @property
    def _left(self) -> float:
        return self.kernels.time_left

    def _goes_on(self, fitted: tuple[Member, ...]) -> bool:
        """Whether there is time for other trees, and the last ones have lowered the error of the blend."""
        run = self.kernels.run
        if run.search_budget.cancelled or self._left < LEAST_SHARE * run.budget.seconds:
            return False
        later = [one for one in fitted if is_trees(one)][1:]
        if len(later) < _PATIENCE:
            return True
        return self._error(fitted) < (1 - _FALL) * self._error(fitted[:-_PATIENCE])

    def _error(self, members: tuple[Member, ...]) -> float:
        """Return the error of the blend of members, on the rows that judge all of them."""
        data = self.kernels.data
        known = [one for one in members if one.judged is not None]
        rows = reduce(np.intersect1d, [one.judged for one in known])
        values = [one.values[np.isin(one.judged, rows)] for one in known]
        weights = greedy_weights(values, data.problem.codes[rows], data.weight_of(rows))
        return data.error(np.tensordot(weights, np.stack(values), 1), rows)

    # ---- one model ---------------------------------------------------------------------------------------------------

    def _trees(self, candidate: TreeCandidate, seconds: float) -> Iterator[Member]:
        """Fit trees on each fold; none if there is no time, or no fold that has all classes."""
        began = time.perf_counter()
        fits = self.kernels
        data, problem, encoding = fits.data, fits.data.problem, fits.encodings[candidate.view]
        folds = self._folds(encoding.X.shape[1])
        if not folds:
            return
        rows = np.unique(np.concatenate([part for fold in folds for part in (fold.train, fold.held)]))
        inside = [Fold(np.searchsorted(rows, fold.train), np.searchsorted(rows, fold.held)) for fold in folds]
        y, n_classes = problem.tree_targets(candidate.target)
        seed = int(fits.run.random_state.randint(2**31 - 1))
        boosting = Boosting(
            encoding.take(rows),
            y[rows],
            data.weight_of(rows),
            n_classes,
            candidate.settings,
            fits.run.compute,
            seed,
        )
        boosts = boosting.fit(inside, seconds)
        if boosts is None:
            return
        trees, offset, scores = boosts
        judged = np.concatenate([fold.held for fold in folds[: len(scores)]])
        order = np.argsort(judged)
        values = problem.tree_codes(np.concatenate(scores), candidate.target)
        model = problem.tree_model(trees, offset, candidate.target, encoding.X.shape[1])
        took = time.perf_counter() - began
        yield Member(encoding, model, candidate, False, judged[order], values[order], took)

    def _folds(self, width: int) -> list[Fold]:
        """Return the folds by which trees are judged; large tables have one, with as many rows as fit in memory."""
        folds, compute = self.kernels.data.folds, self.kernels.run.compute
        most = int(_MEMORY_SHARE * limit_of(compute.memory_budget) / (8 * max(width, 1)))
        if folds.judged is not None:
            train = folds.train[:: -(-len(folds.train) // max(1, most))]
            return [Fold(train, folds.judged)] if self.kernels.data.problem.has_all_classes(train) else []
        if len(folds.train) > most:
            return []
        return [Fold(np.setdiff1d(folds.train, held), held) for held in self.kernels.held_folds()]


def is_trees(member: Member) -> bool:
    """Whether a member is a model of trees."""
    return isinstance(member.model, Boosted)


def _has(candidate: TreeCandidate, members: tuple[Member, ...]) -> bool:
    return any(isinstance(one.candidate, TreeCandidate) and one.candidate.key == candidate.key for one in members)


def check_families(name: str, value: Any) -> None:
    """Require a tuple or list of distinct families with "kernel" among them."""
    known = isinstance(value, tuple | list) and all(isinstance(one, str) and one in FAMILIES for one in value)
    if not known or len(set(value)) < len(value) or "kernel" not in value:
        raise ValueError(f'{name}={value!r} must be {FAMILIES} or a part of it with "kernel"')
