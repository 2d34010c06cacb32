"""The final fits of all families: linear models and gradient-boosted trees beside kernel models, on the same folds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import limit_of
from .blending import greedy_weights
from .boosted import Boosted
from .boosting import SETTINGS, Boosting, Fold, TreeSettings
from .linear import LinearFits, LinearSettings
from .members import LEAST_SHARE, Member, ModelFits
from .plain_candidates import LINEAR, OTHER_FOLDS, PlainCandidate
from .scored import ScoreModel
from .screening import squared_error
from .transforms import Target

Array = NDArray[Any]

FAMILIES = ("kernel", "trees", "linear")

_LINEAR_SHARE = 0.1  # share of the time left for linear models
# Learning rate and iterations of a trial of trees on the sample of the search, and its share of the time left
_TRIAL_RATE, _TRIAL_ITERATIONS, _TRIAL_SHARE = 0.2, 100, 0.05
# Share of the time left for the first trees, which kernel models follow, by their error on the sample of the search
# relative to that of the best kernel; 0 fits them after kernel models, in the time that is left. The last is for trees
# for which there was no trial
_FIRST_SHARES = ((0.97, 0.6), (1.1, 0.45), (1.5, 0.3), (np.finfo(np.float64).max, 0.0), (np.inf, 0.3))
_LAST_SHARE = 0.9  # the same for later ones
_MOST_CLASSES = 50  # with more classes, a tree for each class takes too long
# Seconds per value in a symmetric tree of 256 leaves, and per column, on one core of an AMD Zen 4 processor. Such trees
# come first if a share of the time left is enough for some iterations: a larger learning rate loses more than they gain
_VALUE_SECONDS, _COLUMN_SECONDS = 5e-9, 1e-4
_SYMMETRIC_SHARE, _SYMMETRIC_ITERATIONS = 0.4, 500
_FEWEST_ROWS = 60  # with fewer rows, trees of several leaves have nothing to learn from
_MEMORY_SHARE = 0.2  # share of memory that rows for trees may take, as float64
_FALL = 1e-3  # fits end when the last `_PATIENCE` of them have lowered the error of the blend by less than this share
_PATIENCE = 4


@dataclass(frozen=True, eq=False)
class FamilyFits:
    """Fits of all families to all rows."""

    kernels: ModelFits
    families: tuple[str, ...]

    def members(self, fitted: tuple[Member, ...] = ()) -> Iterator[tuple[str, Member]]:
        """Fit linear models, trees, the kernel models that the blend of the sample needs, then other trees.

        At last, trees that the blend contains are fitted again with other folds, so that more of them are averaged.
        Yields stages and members. The members of an earlier run, in `fitted`, are not fitted again.
        """
        trees, share = self._trees()
        before = [(one, _LINEAR_SHARE) for one in self._linear()] + [(one, share) for one in trees[:1] if share > 0]
        for candidate, share in before:
            for stage, member in [] if _has(candidate, fitted) else self._fit(candidate, share * self._left):
                fitted = (*fitted, member)
                yield stage, member
        for stage, member in self.kernels.members(tuple(one for one in fitted if not is_plain(one))):
            fitted = (*fitted, member)
            yield stage, member
        for candidate in trees:
            for stage, member in self._fit_another(candidate, fitted):
                fitted = (*fitted, member)
                yield stage, member
        for candidate in self._on_other_folds(fitted):
            for stage, member in self._fit_another(candidate, fitted):
                fitted = (*fitted, member)
                yield stage, member

    def _fit_another(self, candidate: PlainCandidate, fitted: tuple[Member, ...]) -> Iterator[tuple[str, Member]]:
        """Fit trees if they are not fitted yet, and if that is worth its time."""
        if not _has(candidate, fitted) and self._goes_on(candidate, fitted):
            yield from self._fit(candidate, _LAST_SHARE * self._left)

    @property
    def _can_judge(self) -> bool:
        """Whether models without a kernel can be judged, and have enough rows to learn from."""
        data = self.kernels.data
        judged = data.folds.in_turn or (data.folds.judged is not None and len(data.folds.judged) > 0)
        possible = data.problem.n_outputs <= _MOST_CLASSES and data.problem.learns_all_rows
        return judged and possible and len(data.folds.train) >= _FEWEST_ROWS

    @property
    def _targets(self) -> list[Target]:
        """The ways to learn y, that of the best kernel model first."""
        best = self.kernels.found.best.target
        return [best, *(target for target in self.kernels.data.problem.targets if target.name != best.name)]

    def _linear(self) -> list[PlainCandidate]:
        """Return what linear models may learn."""
        if "linear" not in self.families or not self._can_judge:
            return []
        return [PlainCandidate(0, self._targets[0], LINEAR)]

    def _trees(self) -> tuple[list[PlainCandidate], float]:
        """Return what trees may learn, the most promising first, and the share of the time left for the first.

        There are none if they cannot be judged. Trees of the sample of the search tell which target suits them, and how
        they compare with kernels.
        """
        if "trees" not in self.families or not self._can_judge:
            return [], 0.0
        settings = SETTINGS if self._has_time_for_symmetric_trees else (*SETTINGS[1:], SETTINGS[0])
        errors = [self._trial_error(target, settings[0]) for target in self._targets]
        best, *others = [self._targets[i] for i in np.argsort(errors, kind="stable")]
        first, *rest = (PlainCandidate(0, best, one) for one in settings)
        ratio = min(errors) / self.kernels.found.best.error
        share = next(share for most, share in _FIRST_SHARES if ratio <= most)
        return [first, *(PlainCandidate(0, target, settings[0]) for target in others), *rest], share

    @property
    def _has_time_for_symmetric_trees(self) -> bool:
        """Whether there is time for the iterations that symmetric trees need."""
        data, compute = self.kernels.data, self.kernels.run.compute
        each = _VALUE_SECONDS * len(data.folds.train) + _COLUMN_SECONDS
        trees = _SYMMETRIC_ITERATIONS * max(1, data.problem.n_outputs) * -(-data.folds.n_folds // compute.n_threads)
        return trees * self.kernels.encodings[0].X.shape[1] * each < _SYMMETRIC_SHARE * self._left

    def _on_other_folds(self, fitted: tuple[Member, ...]) -> list[PlainCandidate]:
        """Return the trees that the blend contains, the most important first, with other folds.

        There are none if the user has chosen the folds, or if they are not held out in turn.
        """
        folds = self.kernels.data.folds
        if folds.from_user or not folds.in_turn or not any(isinstance(one.model, Boosted) for one in fitted):
            return []
        members, weights, _ = self._blend(fitted)
        blended = [members[i].candidate for i in np.argsort(-weights, kind="stable") if weights[i] > 0]
        return [
            replace(one, settings=others)
            for one in blended
            if isinstance(one, PlainCandidate) and (others := OTHER_FOLDS.get(one.settings.name)) is not None
        ]

    def _trial_error(self, target: Target, settings: TreeSettings) -> float:
        """Return the error of trees of the sample, as that of a candidate; infinite if there is no time."""
        found, compute = self.kernels.found, self.kernels.run.compute
        sample = found.sample
        folds = [Fold(split.train, split.held) for split in sample.splits]
        y = target.standard_forward(sample.targets)
        trial = Boosting(found.views[0].X, y, sample.weight, 0, settings, compute, seed=0)
        seconds = _TRIAL_SHARE * self._left
        if trial.least_seconds(folds) > seconds:
            return np.inf
        boosts = trial.fit_few(folds, _TRIAL_RATE, _TRIAL_ITERATIONS, seconds)
        predictions = np.zeros_like(sample.targets)
        for fold, scores in zip(folds, boosts.scores, strict=True):
            predictions[fold.held] = target.standard_inverse(scores)
        return float(np.sqrt(squared_error(predictions, sample)))

    @property
    def _left(self) -> float:
        return self.kernels.time_left

    def _goes_on(self, candidate: PlainCandidate, fitted: tuple[Member, ...]) -> bool:
        """Whether there is time for trees, and the last ones on the same folds have lowered the error of the blend."""
        run, others = self.kernels.run, candidate.settings.other_folds
        if run.search_budget.cancelled or self._left < LEAST_SHARE * run.budget.seconds:
            return False
        alike = [
            isinstance(one.candidate, PlainCandidate)
            and isinstance(one.model, Boosted)
            and one.candidate.settings.other_folds == others
            for one in fitted
        ]
        if sum(alike) <= _PATIENCE:
            return True
        last = np.flatnonzero(alike)[-_PATIENCE:]
        before = tuple(one for i, one in enumerate(fitted) if i not in last)
        return self._error(fitted) < (1 - _FALL) * self._error(before)

    def _error(self, members: tuple[Member, ...]) -> float:
        """Return the error of the blend of members."""
        return self._blend(members)[2]

    def _blend(self, members: tuple[Member, ...]) -> tuple[list[Member], Array, float]:
        """Blend the members that can be judged, on the rows that judge all of them; return these, weights and error."""
        data = self.kernels.data
        known = [one for one in members if one.judged is not None]
        rows = reduce(np.intersect1d, [one.judged for one in known])
        values = [one.values[np.isin(one.judged, rows)] for one in known]
        weights = greedy_weights(values, data.problem.codes[rows], data.weight_of(rows))
        return known, weights, data.error(np.tensordot(weights, np.stack(values), 1), rows)

    # ---- one model ---------------------------------------------------------------------------------------------------

    def _fit(self, candidate: PlainCandidate, seconds: float) -> Iterator[tuple[str, Member]]:
        """Fit a model on each fold; yield nothing if there is no time, or no fold that has all classes."""
        began = time.perf_counter()
        fits = self.kernels
        problem, encoding = fits.data.problem, fits.encodings[candidate.view]
        settings = candidate.settings
        folds = self._folds(encoding.X.shape[1], settings.other_folds)
        if not folds:
            return
        rows = np.unique(np.concatenate([part for fold in folds for part in (fold.train, fold.held)]))
        inside = [Fold(np.searchsorted(rows, fold.train), np.searchsorted(rows, fold.held)) for fold in folds]
        y, n_classes = problem.score_targets(candidate.target)
        X, weight, target = encoding.take(rows), fits.data.weight_of(rows), candidate.target
        if isinstance(settings, LinearSettings):
            stage, linear = "all rows, linear", LinearFits(X, y[rows], weight, n_classes)
            found = self._fit_linear(linear, target, inside, seconds)
        else:
            seed = int(fits.run.random_state.randint(2**31 - 1))
            stage, trees = "all rows, trees", Boosting(X, y[rows], weight, n_classes, settings, fits.run.compute, seed)
            found = self._fit_trees(trees, target, inside, seconds)
        if found is None:
            return
        model, scores = found
        judged = np.concatenate([fold.held for fold in folds])
        order = np.argsort(judged)
        values = problem.score_codes(np.concatenate(scores), candidate.target)[order]
        yield stage, Member(encoding, model, candidate, False, judged[order], values, time.perf_counter() - began)

    def _fit_linear(
        self, fits: LinearFits, target: Target, folds: list[Fold], seconds: float
    ) -> tuple[ScoreModel, list[Array]] | None:
        """Fit linear models; return their average, and predictions of the rows that folds hold out."""
        found = fits.fit(folds, seconds)
        if found is None:
            return None
        return self.kernels.data.problem.linear_model(found.coef, found.offset, target), found.scores

    def _fit_trees(
        self, fits: Boosting, target: Target, folds: list[Fold], seconds: float
    ) -> tuple[ScoreModel, list[Array]] | None:
        """Fit trees, as `_fit_linear` fits linear models."""
        found = fits.fit(folds, seconds)
        if found is None:
            return None
        width = fits.X.shape[1]
        return self.kernels.data.problem.tree_model(found.trees, found.offset, target, width), found.scores

    def _folds(self, width: int, others: bool) -> list[Fold]:
        """Return the folds by which models are judged, or `others` of the same number.

        Large tables have one, with as many rows as fit in memory.
        """
        folds, compute = self.kernels.data.folds, self.kernels.run.compute
        most = int(_MEMORY_SHARE * limit_of(compute.memory_budget) / (8 * max(width, 1)))
        if folds.judged is not None:
            train = folds.train[:: -(-len(folds.train) // max(1, most))]
            return [Fold(train, folds.judged)] if self.kernels.data.problem.has_all_classes(train) else []
        if len(folds.train) > most:
            return []
        seed = int(self.kernels.run.random_state.randint(2**31 - 1)) if others else 0
        fold = folds.divide_again(self.kernels.data.problem.stratify, seed) if others else None
        return [Fold(np.setdiff1d(folds.train, held), held) for held in self.kernels.held_folds(fold)]


def is_plain(member: Member) -> bool:
    """Whether a member is a model without a kernel."""
    return isinstance(member.model, ScoreModel)


def _has(candidate: PlainCandidate, members: tuple[Member, ...]) -> bool:
    return any(isinstance(one.candidate, PlainCandidate) and one.candidate.key == candidate.key for one in members)


def check_families(name: str, value: Any) -> None:
    """Require a tuple or list of distinct families with "kernel" among them."""
    known = isinstance(value, tuple | list) and all(isinstance(one, str) and one in FAMILIES for one in value)
    if not known or len(set(value)) < len(value) or "kernel" not in value:
        raise ValueError(f'{name}={value!r} must be {FAMILIES} or a part of it with "kernel"')
