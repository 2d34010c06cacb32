"""The final fits of large tables: models as large as time and memory allow, then more of them while the error falls.

Each candidate that the blend of the sample needs is fitted with every row as a center if there is time, otherwise by
FALKON with as many centers as there is time for. The time that is left is used for larger models of the candidates that
count most in the blend, for other draws of the centers, and for further candidates. The same rows, held out of all
fits, judge every model.
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
from .budget import EXACT_ROWS, LEAST_CENTERS, falkon_seconds, fewer_centers, large_exact_seconds, most_centers
from .encoded_tables import EncodedTable
from .finding import Found
from .members import LEAST_SECONDS, LEAST_SHARE, MAX_ITER, SPREAD, TOLERANCE, Member, ModelFits, without_callbacks
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


class Plan(NamedTuple):
    """A model that there is time for.

    few : whether it minimises the loss of fits with few centers; see `Problem.has_likelihood`
    n_centers : number of centers, or of rows if each of them is a center
    n_penalties : number of penalties that held-out rows choose among, if every row is a center
    """

    candidate: Candidate
    few: bool
    n_centers: int
    n_penalties: int
    every_row: bool


@dataclass(frozen=True, eq=False)
class LargeFits(ModelFits):
    """Fits of models to the rows of a large table."""

    def members(self, fitted: tuple[Member, ...] = ()) -> Iterator[tuple[str, Member]]:
        """Fit the candidates that the blend of the sample needs, then larger ones and more; yield stages and members.

        The members of an earlier run, in `fitted`, are not fitted again.
        """
        refused: set[tuple[int, bool]] = set()  # there is no memory for them
        while not fitted or self._goes_on(fitted):
            plan = self._first_fits(fitted, refused) or self._further_fits(fitted, refused)
            if plan is None:
                return
            try:
                member = self._fit_plan(plan)
            except BudgetError:
                refused.add((id(plan.candidate), plan.few))
                if not fitted and len(refused) == len(self._wanted()):
                    raise
                continue
            fitted = (*fitted, member)
            every = len(member.model.centers_) == len(self.data.folds.train)
            yield "all rows" if every else "all rows, few centers", member

    def _goes_on(self, fitted: tuple[Member, ...]) -> bool:
        """Whether there is time for another fit, and the last ones have lowered the error of the blend."""
        stopped = self.run.search_budget.cancelled
        if stopped or self._left() < LEAST_SHARE * self.run.budget.seconds or len(fitted) >= _MOST_MEMBERS:
            return False
        before = fitted[:-_PATIENCE]
        if len(before) < len(self._wanted()) or not self._can_judge:
            return True
        return self._blend_error(fitted) < (1 - _FALL) * self._blend_error(before)

    # ---- what is fitted next -----------------------------------------------------------------------------------------

    def _first_fits(self, fitted: tuple[Member, ...], refused: set[tuple[int, bool]]) -> Plan | None:
        """Return the next candidate that the blend of the sample needs, None if there is time or memory for none."""
        wanted = self._wanted()
        for place, (candidate, few) in enumerate(wanted):
            if (id(candidate), few) in refused or _of(candidate, few, fitted):
                continue
            left = max(LEAST_SECONDS, self._left())
            share = _LAST_SHARE if place == len(wanted) - 1 else _SHARE
            plan = self._plan(candidate, few, share * left, 0 if fitted else _EVERY_ROW_SHARE * left)
            if plan is None and not fitted:
                return Plan(candidate, few, min(LEAST_CENTERS, len(self.data.folds.train)), 1, False)
            if plan is not None:
                return plan
        return None

    def _further_fits(self, fitted: tuple[Member, ...], refused: set[tuple[int, bool]]) -> Plan | None:
        """Return a larger model of a candidate that is fitted, another draw of its centers, or another candidate."""
        if not self._can_judge:
            return None
        seconds, n = _LAST_SHARE * self._left(), len(self.data.folds.train)
        weights = self._blend_weights(fitted)
        order = [fitted[i] for i in np.argsort(-weights, kind="stable")]
        kinds = {(id(one.candidate), one.few): one for one in reversed(order)}  # the one with the largest weight
        again: list[Plan] = []
        for member in reversed(kinds.values()):
            candidate, few = member.candidate, member.few
            largest = max(len(one.model.centers_) for one in _of(candidate, few, fitted))
            if largest == n or (id(candidate), few) in refused:
                continue
            plan = self._plan(candidate, few, seconds)
            if plan is not None and plan.n_centers >= _GROWTH * largest:
                return plan
            again += [plan] if plan is not None and _GROWTH * plan.n_centers >= largest else []
        others = [one for one in self.found.finalists if not any(member.candidate is one for member in fitted)]
        if not again and others:
            return self._plan(others[0], False, seconds)
        return again[0] if again else None

    def _plan(self, candidate: Candidate, few: bool, seconds: float, every_row_seconds: float = 0.0) -> Plan | None:
        """Return the largest model of a candidate that takes at most this time, None if there is none."""
        problem, compute = self.data.problem, self.run.compute
        X = self._rows(candidate)
        n = X.shape[0]
        if not few and isinstance(X, np.ndarray) and self._can_judge:
            every_row = large_exact_seconds(candidate.kernel, X, compute)
            for n_penalties in (len(SPREAD), 1) if problem.chooses_penalties else (1,):
                if every_row(n_penalties * problem.n_outputs) < max(seconds, every_row_seconds):
                    return Plan(candidate, few, n, n_penalties, True)
        newton = problem.newton_cost if few else None
        estimate = falkon_seconds(candidate.kernel, X, problem.n_outputs, newton, compute)
        M = most_centers(estimate, seconds, n, compute)
        return None if M is None else Plan(candidate, few, M, 1, False)

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
        candidate, problem = plan.candidate, self.data.problem
        X = self._rows(candidate)
        model = self._fit_every_row(plan, X) if plan.every_row else self._fit_with_centers(plan, X)
        judged, values = None, None
        if self._can_judge:
            judged = self._held
            raw = problem.raw_predictions(model, self._encoding(candidate).take(judged))
            values = problem.as_codes(raw, candidate.target)
        seconds = time.perf_counter() - began
        return Member(self.encodings[candidate.view], model, candidate, plan.few, judged, values, seconds)

    def _fit_every_row(self, plan: Plan, X: Array) -> Any:
        """Fit with every row as a center; held-out rows choose the penalty, or calibrate probabilities."""
        candidate, problem, folds = plan.candidate, self.data.problem, self.data.folds
        penalty = candidate.mu / len(folds.train)
        model = problem.exact(
            candidate.kernel,
            penalty=penalty,
            penalties=penalty * SPREAD if plan.n_penalties > 1 else None,
            choose_by="validation",
            tol=TOLERANCE,
            max_iter=MAX_ITER,
            **self._parameters(self._deadline(plan.n_centers, self._left())),
        )
        X_val = self._encoding(candidate).take(self._held)
        y_val = problem.model_targets(candidate.target)[self._held]
        self._fit(model, X, folds.train, candidate, (None,), X_val=X_val, y_val=y_val)
        return without_callbacks(model)

    def _fit_with_centers(self, plan: Plan, X: Any) -> Any:
        candidate, problem, train = plan.candidate, self.data.problem, self.data.folds.train
        make = problem.falkon if plan.few else problem.falkon_squares
        stop = self._deadline(len(train), max(LEAST_SECONDS, self._left()))
        model = make(candidate.kernel, candidate.mu / len(train), **self._parameters(stop))
        self._fit(model, X, train, candidate, fewer_centers(plan.n_centers))
        return without_callbacks(model)


def model_fits(data: TrainingData, encodings: tuple[EncodedTable, ...], found: Found, run: Run) -> ModelFits:
    """Return the final fits that suit the size of the table."""
    large = len(data.folds.train) > EXACT_ROWS and not data.folds.in_turn
    return (LargeFits if large else ModelFits)(data, encodings, found, run)


def _of(candidate: Candidate, few: bool, members: tuple[Member, ...]) -> list[Member]:
    """Return the members of a candidate."""
    return [one for one in members if one.candidate is candidate and one.few == few]
