"""The final fits of large tables: models as large as time and memory allow, then more of them while the error falls.

Each candidate that the blend of the sample needs is fitted with every row as a center if there is time, otherwise by
FALKON with as many centers as there is time for, and the best one also by trees of cells. The time that is left is used
for larger models of the candidates that count most in the blend, for other draws of the centers, and for further
candidates. The same rows, held out of all fits, judge every model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import BudgetError, limit_of
from .blending import greedy_weights
from .budget import (
    EXACT_ROWS,
    LEAST_CENTERS,
    affordable_trees,
    falkon_seconds,
    fewer_centers,
    large_exact_seconds,
    most_centers,
)
from .encoded_tables import EncodedTable
from .finding import Found
from .members import LEAST_SECONDS, LEAST_SHARE, MAX_ITER, SPREAD, TOLERANCE, Member, ModelFits, without_callbacks
from .problems import EXACT, HIERARCHICAL
from .search import Candidate
from .training import Run, TrainingData

Array = NDArray[Any]

_SHARE = 0.4  # share of the time left for a fit that others follow
_EVERY_ROW_SHARE = 0.8  # the same for the first one, if every row is a center
_LAST_SHARE = 0.95  # share of the time left for a fit that no other follows, since estimates are rough
_GROWTH = 1.3  # a model that replaces another one has at least this many times its centers
_FALL = (
    2e-4  # the fits end when the last `_PATIENCE` of them have lowered the error of the blend by less than this share
)
_PATIENCE = 2
_MOST_MEMBERS = 12
_READ_SHARE = 8  # rows of files are read into memory if they take at most this part of it


class FitKind(NamedTuple):
    """What is fitted; only the size may differ between models of a kind.

    few : whether it minimises the loss of fits with few centers; see `Problem.has_likelihood`
    trees : whether it is a hierarchical model
    """

    candidate: Candidate
    few: bool
    trees: bool = False

    def among(self, members: tuple[Member, ...]) -> list[Member]:
        """Return the members of this kind."""
        return [one for one in members if _kind_of(one).key == self.key]

    @property
    def key(self) -> tuple[int, bool, bool]:
        """What tells kinds apart: candidates hold arrays, which cannot be compared."""
        return id(self.candidate), self.few, self.trees


class Plan(NamedTuple):
    """A model that there is time for.

    size : number of centers, or of rows if each of them is a center, or of the rows of a leaf
    every_row : whether it is an exact fit
    n_penalties : number of penalties that held-out rows choose among in an exact fit
    n_trees : number of trees of a hierarchical model
    """

    kind: FitKind
    size: int
    every_row: bool = False
    n_penalties: int = 1
    n_trees: int = 0


@dataclass(frozen=True, eq=False)
class LargeFits(ModelFits):
    """Fits of models to the rows of a large table."""

    def members(self, fitted: tuple[Member, ...] = ()) -> Iterator[tuple[str, Member]]:
        """Fit the candidates that the blend of the sample needs, then larger ones and more; yield stages and members.

        The members of an earlier run, in `fitted`, are not fitted again.
        """
        refused: set[Any] = set()  # keys of the kinds for which there is no memory
        while not fitted or self._goes_on(fitted):
            plan = self._first_fits(fitted, refused) or self._further_fits(fitted, refused)
            if plan is None:
                return
            try:
                member = self._fit_plan(plan)
            except BudgetError:
                refused.add(plan.kind.key)
                if not fitted and len(refused) == len(self._kinds()):
                    raise
                continue
            fitted = (*fitted, member)
            every = len(member.model.centers_) == len(self.data.folds.train)
            yield "all rows" if every else "all rows, few centers", member

    def _goes_on(self, fitted: tuple[Member, ...]) -> bool:
        """Whether there is time for another fit, and the last ones have lowered the error of the blend."""
        stopped = self.run.search_budget.cancelled
        if stopped or self.time_left < LEAST_SHARE * self.run.budget.seconds or len(fitted) >= _MOST_MEMBERS:
            return False
        before = fitted[:-_PATIENCE]
        if len(before) < len(self._kinds()) or not self._can_judge:
            return True
        return self._blend_error(fitted) < (1 - _FALL) * self._blend_error(before)

    # ---- what is fitted next -----------------------------------------------------------------------------------------

    def _kinds(self) -> list[FitKind]:
        """Return what is fitted first: the candidates that the blend of the sample needs, and trees of the best one."""
        kinds = [FitKind(candidate, few) for candidate, few in self._wanted()]
        return [kinds[0], FitKind(kinds[0].candidate, False, True), *kinds[1:]] if self._can_judge else kinds

    def _first_fits(self, fitted: tuple[Member, ...], refused: set[Any]) -> Plan | None:
        """Return the next of the first fits, None if there is time or memory for none."""
        kinds, n = self._kinds(), len(self.data.folds.train)
        for place, kind in enumerate(kinds):
            if kind.key in refused or kind.among(fitted) or (kind.trees and _has_exact(kind.candidate, fitted)):
                continue
            left = max(LEAST_SECONDS, self.time_left)
            share = _LAST_SHARE if place == len(kinds) - 1 else _SHARE
            plan = self._plan(kind, share * left, 0 if fitted else _EVERY_ROW_SHARE * left)
            if plan is not None:
                return plan
            if not fitted:
                return Plan(kind, min(LEAST_CENTERS, n))
        return None

    def _further_fits(self, fitted: tuple[Member, ...], refused: set[Any]) -> Plan | None:
        """Return a larger model of a kind that is fitted, another draw of its centers, or another candidate."""
        if not self._can_judge:
            return None
        seconds = _LAST_SHARE * self.time_left
        order = [fitted[i] for i in np.argsort(-self._blend_weights(fitted), kind="stable")]
        kinds = list({kind.key: kind for kind in map(_kind_of, order)}.values())  # the largest weight first
        again: list[Plan] = []
        for kind in kinds:
            if kind.key in refused or _has_exact(kind.candidate, tuple(kind.among(fitted))):
                continue
            largest = max(_size(one) for one in kind.among(fitted))
            plan = self._plan(kind, seconds)
            if plan is not None and plan.size >= _GROWTH * largest:
                return plan
            again += [plan] if plan is not None and _GROWTH * plan.size >= largest else []
        others = [one for one in self.found.finalists if not any(member.candidate is one for member in fitted)]
        if not again and others:
            return self._plan(FitKind(others[0], False), seconds)
        return again[0] if again else None

    def _plan(self, kind: FitKind, seconds: float, every_row_seconds: float = 0.0) -> Plan | None:
        """Return the largest model of a kind that takes at most this time, None if there is none."""
        problem, compute = self.data.problem, self.run.compute
        X, kernel = self._rows(kind.candidate), kind.candidate.kernel
        n = X.shape[0]
        in_memory = isinstance(X, np.ndarray)
        if kind.trees:
            trees = affordable_trees(n, seconds, compute) if in_memory else None
            return None if trees is None else Plan(kind, trees[1], n_trees=trees[0])
        if not kind.few and in_memory and self._can_judge:
            every_row = large_exact_seconds(kernel, X, compute)
            for n_penalties in (len(SPREAD), 1) if problem.chooses_penalties else (1,):
                if every_row(n_penalties * problem.n_outputs) < max(seconds, every_row_seconds):
                    return Plan(kind, n, every_row=True, n_penalties=n_penalties)
        newton = problem.newton_cost if kind.few else None
        estimate = falkon_seconds(kernel, X, problem.n_outputs, newton, compute)
        M = most_centers(estimate, seconds, n, compute)
        return None if M is None else Plan(kind, M)

    def _blend_weights(self, members: tuple[Member, ...]) -> Array:
        judged = members[0].judged
        return greedy_weights(
            [one.values for one in members], self.data.problem.codes[judged], self.data.weight_of(judged)
        )

    def _blend_error(self, members: tuple[Member, ...]) -> float:
        values = np.tensordot(self._blend_weights(members), np.stack([one.values for one in members]), 1)
        return self.data.error(values, members[0].judged)

    @property
    def _held(self) -> Array:
        """The rows that judge all models; none if a splitter of the user has left none."""
        judged = self.data.folds.judged
        return np.empty(0, dtype=np.intp) if judged is None else judged

    @property
    def _can_judge(self) -> bool:
        return len(self._held) > 0

    # ---- one model ---------------------------------------------------------------------------------------------------

    def _encoding(self, candidate: Candidate) -> EncodedTable:
        return self.encodings[candidate.view].under(candidate.mixing)

    def _rows(self, candidate: Candidate) -> Any:
        """Return the training rows, in memory if they take little of it: files would be encoded in every pass."""
        X = self._encoding(candidate).rows(self.data.folds.train)
        n, d = X.shape
        small = 4 * n * d * _READ_SHARE < limit_of(self.run.compute.memory_budget)
        return X if isinstance(X, np.ndarray) or not small else X.take(np.arange(n))

    def _fit_plan(self, plan: Plan) -> Member:
        """Fit a model, with fewer centers if there is no memory for them."""
        began = time.perf_counter()
        candidate, problem = plan.kind.candidate, self.data.problem
        X = self._rows(candidate)
        if plan.every_row:
            model = self._fit_every_row(plan, X)
        else:
            model = self._fit_trees(plan, X) if plan.kind.trees else self._fit_with_centers(plan, X)
        judged, values = None, None
        if self._can_judge:
            judged = self._held
            raw = problem.raw_predictions(model, self._encoding(candidate).take(judged))
            values = problem.as_codes(raw, candidate.target)
        seconds = time.perf_counter() - began
        return Member(self.encodings[candidate.view], model, candidate, plan.kind.few, judged, values, seconds)

    def _fit_every_row(self, plan: Plan, X: Array) -> Any:
        """Fit with every row as a center; held-out rows choose the penalty, or calibrate probabilities."""
        penalty = self._penalty(plan)
        model = self.data.problem.exact(
            plan.kind.candidate.kernel,
            penalty=penalty,
            penalties=penalty * SPREAD if plan.n_penalties > 1 else None,
            choose_by="validation",
            tol=TOLERANCE,
            max_iter=MAX_ITER,
            **self._device_parameters(self._deadline(plan.size, self.time_left)),
        )
        return self._fit_judged(model, plan, X)

    def _fit_trees(self, plan: Plan, X: Array) -> Any:
        model = self.data.problem.hierarchical(
            plan.kind.candidate.kernel,
            penalty=self._penalty(plan),
            leaf_size=plan.size,
            n_trees=plan.n_trees,
            choose_by="validation",
            **self._parameters(self._deadline(len(X), self.time_left)),
        )
        return self._fit_judged(model, plan, X)

    def _fit_judged(self, model: Any, plan: Plan, X: Array) -> Any:
        """Fit with held-out rows for validation."""
        candidate, train = plan.kind.candidate, self.data.folds.train
        X_val = self._encoding(candidate).take(self._held)
        y_val = self.data.problem.model_targets(candidate.target)[self._held]
        self._fit(model, X, train, candidate, (None,), X_val=X_val, y_val=y_val)
        return without_callbacks(model)

    def _fit_with_centers(self, plan: Plan, X: Any) -> Any:
        candidate, problem, train = plan.kind.candidate, self.data.problem, self.data.folds.train
        make = problem.falkon if plan.kind.few else problem.falkon_squares
        stop = self._deadline(len(train), max(LEAST_SECONDS, self.time_left))
        model = make(candidate.kernel, self._penalty(plan), **self._device_parameters(stop))
        self._fit(model, X, train, candidate, fewer_centers(plan.size))
        return without_callbacks(model)

    def _penalty(self, plan: Plan) -> float:
        return plan.kind.candidate.mu / len(self.data.folds.train)


def model_fits(data: TrainingData, encodings: tuple[EncodedTable, ...], found: Found, run: Run) -> ModelFits:
    """Return the final fits that suit the size of the table."""
    large = len(data.folds.train) > EXACT_ROWS and not data.folds.in_turn
    return (LargeFits if large else ModelFits)(data, encodings, found, run)


def _kind_of(member: Member) -> FitKind:
    assert isinstance(member.candidate, Candidate)  # trees of gradient boosting are fitted elsewhere
    return FitKind(member.candidate, member.few, isinstance(member.model, HIERARCHICAL))


def _has_exact(candidate: Candidate, members: tuple[Member, ...]) -> bool:
    """Whether a candidate has an exact fit, of which no larger one and no other draw exists."""
    return any(one.candidate is candidate and isinstance(one.model, EXACT) for one in members)


def _size(member: Member) -> int:
    """Return the size of a model in the units of `Plan.size`."""
    return int(member.model.leaf_size_) if isinstance(member.model, HIERARCHICAL) else len(member.model.centers_)
