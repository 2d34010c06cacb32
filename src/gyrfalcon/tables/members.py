"""The final fits: models of all rows with the best candidates of the search, within the rest of the budget."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.memory import BudgetError
from ..callbacks import Callback, Record
from ..kernels import Kernel
from .blending import greedy_weights
from .budget import (
    EXACT_ROWS,
    LEAST_CENTERS,
    LEAST_FOLDS,
    QUICK_ROWS,
    affordable_centers,
    exact_seconds,
    fewer_centers,
)
from .encoded_tables import EncodedTable
from .finding import Found
from .plain_candidates import PlainCandidate
from .scored import ScoreModel
from .search import Candidate, OutOfTimeError
from .training import Run, TrainingData

Array = NDArray[Any]

_MANY_OUTPUTS = 30  # more outputs than this dominate the time of a fit, which then has fewer folds and iterations
_MEMBERS = 6  # most models of a blend
_OVERLAP = 0.6  # error of class codes above which classes overlap, and the logistic loss is fitted early
_LEAST_WEIGHT = 0.05  # candidates with a smaller weight in the blend of the sample are not fitted to all rows
# Share of the budget, and seconds up to another share, that are kept for the steps after the final fits
_RESERVE, _RESERVE_SECONDS, _MOST_RESERVE = 0.04, 0.5, 0.05
MAX_ITER = 40  # iterations of conjugate gradient
_LEAST_ITERATIONS, _FEWEST_ITERATIONS = 5, 2  # fewest iterations of a fit of few rows, and of one with many outputs
_CUT_SHORT = 1.2  # a final fit whose error is this many times that of the sample had no time to converge
_FIRST_SHARE = 0.65  # share of the time left for a fit that others may follow
LEAST_SHARE = 0.08  # share of the budget that must be left to begin another fit
_MARGIN = 1.3  # time that an exact fit may take, relative to its estimate: one that is cut short predicts badly
LEAST_SECONDS = 0.5  # seconds that the first fit may take even if the budget is used up
TOLERANCE = 3e-3  # residual at which a fit has converged
_PRECONDITIONERS = (500, 250, 100)  # centers of an exact fit's preconditioner, if memory allows no more
SPREAD = np.array([1 / 3, 1.0, 3.0])  # penalties of a final fit, relative to that of the search
# A fit has settled when the error of cross-validation has fallen by less than a share in the last iterations; not
# before the first few
_FALL, _STEADY, _FIRST_ITERATIONS = 1e-3, 2, 5


@dataclass(frozen=True, eq=False)
class Member:
    """A fitted model of the blend.

    encoding : not multiplied by the candidate's matrix
    few : whether the model has few centers; of a large table, whether few centers were asked for
    judged : rows that judge the model; None if there are none
    values : predictions of these rows by models that were not fitted to them, as columns like `Problem.codes`
    """

    encoding: EncodedTable
    model: Any
    candidate: Candidate | PlainCandidate
    few: bool
    judged: Any
    values: Any
    seconds: float

    @property
    def penalty(self) -> float:
        """The penalty of a kernel model; 0 for others."""
        return 0.0 if isinstance(self.model, ScoreModel) else float(self.model.penalty_)


@dataclass
class StopEarly(Callback):
    """Ends a fit at a deadline, after some iterations, or when errors of cross-validation no longer fall.

    deadline : a time of `time.perf_counter`
    least : fewest iterations, also after the deadline: a solver that has hardly begun predicts worse than a sample
    most : most iterations
    """

    deadline: float = np.inf
    least: int = 1
    most: int | None = None
    errors: list[float] = field(default_factory=list, init=False)

    def on_iteration(self, record: Record) -> bool:
        if record["iteration"] == self.most:
            return True
        if time.perf_counter() > self.deadline and record["iteration"] >= self.least:
            return True
        self.errors.append(min(record.get("cv_errors") or [0.0]))
        steady = self.errors[-_STEADY - 1 :]
        return record["iteration"] >= _FIRST_ITERATIONS and steady[-1] > 0 and max(steady) < (1 + _FALL) * min(steady)


@dataclass(frozen=True, eq=False)
class ModelFits:
    """Fits of models to all rows."""

    data: TrainingData
    encodings: tuple[EncodedTable, ...]
    found: Found
    run: Run

    # ---- which candidates are fitted ---------------------------------------------------------------------------------

    def members(self, fitted: tuple[Member, ...] = ()) -> Iterator[tuple[str, Member]]:
        """Fit the candidates that the blend of the sample needs, the most important first; yield stages and members.

        The members of an earlier run, in `fitted`, are not fitted again.
        """
        wanted = self._wanted()
        for place, (candidate, few) in enumerate(wanted):
            # an earlier run fitted it, or there was no time for more centers
            if any(member.candidate is candidate and (member.few or not few) for member in fitted):
                continue
            stopped = self.run.search_budget.cancelled
            if fitted and (stopped or self.time_left < LEAST_SHARE * self.run.budget.seconds):
                break
            try:
                member = self._fit_candidate(candidate, few, is_first=not fitted, is_last=place == len(wanted) - 1)
            except (BudgetError, OutOfTimeError):
                if not fitted:
                    raise
                continue
            fitted = (*fitted, member)
            yield "all rows, few centers" if member.few else "all rows", member
        if self.data.folds.in_turn and self._are_cut_short(fitted):
            with suppress(BudgetError):
                yield self.sample_member()

    def record(self, stage: str, member: Member) -> None:
        """Record a member and tell callbacks of it."""
        error = float("nan") if member.judged is None else self.data.error(member.values, member.judged)
        self.run.record(stage, member.encoding.name, member.candidate, member.penalty, error, member.seconds)

    def _wanted(self) -> list[tuple[Candidate, bool]]:
        """Return the candidates to fit, and whether with few centers alone."""
        finalists, sample = self.found.finalists, self.found.sample
        held = sample.held
        weights = greedy_weights(
            [candidate.predictions[held] for candidate in finalists],
            sample.targets[held],
            None if sample.weight is None else sample.weight[held],
        )
        order = [int(i) for i in np.argsort(-weights, kind="stable") if weights[i] >= _LEAST_WEIGHT][:_MEMBERS]
        wanted = [(finalists[number], False) for number in order]
        judgeable = not self.data.folds.in_turn or len(self.held_folds()) > 0
        if self.data.problem.has_likelihood and judgeable:
            best = wanted[0][0]
            wanted.insert(1 if best.error > _OVERLAP else len(wanted), (best, True))
        return wanted

    def _are_cut_short(self, members: Sequence[Member]) -> bool:
        """Whether time has ended the final fits so early that the sample alone predicts better."""
        errors = [self.data.error(one.values, one.judged) for one in members if one.judged is not None]
        return bool(errors) and min(errors) > _CUT_SHORT * self.found.best.error

    @property
    def time_left(self) -> float:
        """Seconds that are left for final fits."""
        seconds = self.run.budget.seconds
        return self.run.budget.left - _RESERVE * seconds - min(_RESERVE_SECONDS, _MOST_RESERVE * seconds)

    # ---- one model ---------------------------------------------------------------------------------------------------

    def sample_member(self) -> tuple[str, Member]:
        """Fit the best candidate to the sample alone, when there is no time for more; return its stage, too."""
        candidate = self.found.best
        began = time.perf_counter()
        rows, model, values = self.fit_sample(candidate)
        seconds = time.perf_counter() - began
        return "sample alone", Member(self.encodings[candidate.view], model, candidate, False, rows, values, seconds)

    def fit_sample(self, candidate: Candidate) -> tuple[Array, Any, Array]:
        """Fit the sample, and a row of each class that it lacks; return its rows, the model and predictions of them."""
        rows = self.data.problem.with_all_classes(self.found.rows, self.data.folds.train)
        X = self.encodings[candidate.view].under(candidate.mixing).take(rows)
        fold = np.arange(len(rows)) % min(5, len(rows))
        model, values = self._fit_exact(candidate, X, rows, fold, np.ones(1), share=np.inf)
        assert values is not None
        return rows, model, values

    def _fit_candidate(self, candidate: Candidate, few: bool, *, is_first: bool, is_last: bool) -> Member:
        """Fit all rows: every row is a center, unless `few` centers are asked for or time or memory is short."""
        began = time.perf_counter()
        left = max(LEAST_SECONDS, self.time_left)
        share = left if is_last else _FIRST_SHARE * left
        encoding = self.encodings[candidate.view].under(candidate.mixing)
        train = self.data.folds.train
        X = encoding.rows(train)
        exact = None
        if not few and len(train) <= EXACT_ROWS:
            # one exact fit is better than several with few centers, so the first may take all the time that is left
            exact = self._fit_all_centers(candidate, X, (share, left) if is_first else (share,))
        model, judged, values = exact or self._fit_few_centers(candidate, encoding, X, share, is_first)
        if values is None and judged is not None and len(judged):
            raw = self.data.problem.raw_predictions(model, encoding.take(judged))
            values = self.data.problem.as_codes(raw, candidate.target)
        return Member(
            self.encodings[candidate.view],
            model,
            candidate,
            exact is None,
            None if values is None else judged,
            values,
            time.perf_counter() - began,
        )

    @property
    def _has_many_outputs(self) -> bool:
        """Whether the number of outputs dominates the time of a fit."""
        return self.data.problem.n_outputs > _MANY_OUTPUTS

    # ---- every row as a center ---------------------------------------------------------------------------------------

    def _fit_all_centers(self, candidate: Candidate, X: Any, shares: tuple[float, ...]) -> tuple[Any, Any, Any] | None:
        """Fit with every row as a center; return the model, rows that judge it and predictions of them.

        None if there is no time or no memory for it. There are no predictions if the rows are held out of all fits.
        """
        affordable = self._affordable_exact_fit(candidate.kernel, X, shares)
        if affordable is None:
            return None
        n_penalties, n_folds, share = affordable
        folds = self.data.folds
        fold = None
        if folds.in_turn and n_folds > 0:
            fold = np.asarray(folds.fold % n_folds if folds.n_folds > n_folds else folds.fold)
        ridges = SPREAD if n_penalties > 1 and fold is not None else np.ones(1)
        try:
            model, values = self._fit_exact(candidate, X, folds.train, fold, ridges, share)
        except BudgetError:  # few centers take less memory
            return None
        if values is None:
            return model, folds.judged, None
        known = np.isfinite(values).all(axis=1)  # rows of a class of weight 0 have no predictions
        return model, folds.train[known], values[known]

    def _affordable_exact_fit(self, kernel: Kernel, X: Any, shares: tuple[float, ...]) -> tuple[int, int, float] | None:
        """Return how many penalties and folds an exact fit has time for, and the first share of it that is enough.

        None if there is no such share; for few rows the first share is always accepted.
        """
        outputs = self.data.problem.n_outputs
        points = X if isinstance(X, np.ndarray) else X.take(np.arange(X.shape[0]))
        seconds = exact_seconds(kernel, points, self.run.compute)
        choices = [(1, 5), (1, 3), (1, 0)] if self.found.refined else [(3, 5), (1, 5), (1, 3), (1, 0)]
        if self.data.folds.in_turn:
            choices.remove((1, 0))  # it could not be judged
            choices += [(1, LEAST_FOLDS)] if self._has_many_outputs else []
        for share in shares:
            for n_penalties, n_folds in choices:
                if _MARGIN * seconds(n_penalties * (n_folds + 1) * outputs) < share:
                    return n_penalties, n_folds, share
            if len(points) <= QUICK_ROWS:
                return *choices[-1], share
        return None

    def _fit_exact(
        self, candidate: Candidate, X: Any, rows: Array, fold: Array | None, ridges: Array, share: float
    ) -> tuple[Any, Array | None]:
        """Fit with every row as a center; return the model, and its predictions of cross-validation."""
        n, problem = len(rows), self.data.problem
        choice = {"cv": min(5, n)} if fold is None else {"choose_by": "cv", "cv": fold}
        model = problem.exact(
            candidate.kernel,
            penalties=candidate.mu / n * ridges if fold is not None else None,
            penalty=candidate.mu / n,
            tol=TOLERANCE,
            max_iter=MAX_ITER,
            **choice,
            **self._device_parameters(self._deadline(n, share)),
        )
        centers = _PRECONDITIONERS[1:] if self._has_many_outputs else (None, *_PRECONDITIONERS)
        self._fit(model, X, rows, candidate, centers)
        values = None
        if fold is not None:
            values = problem.as_codes(np.asarray(model.cv_predictions_), candidate.target)
            del model.cv_predictions_
        return without_callbacks(model), values

    # ---- few centers -------------------------------------------------------------------------------------------------

    def _fit_few_centers(
        self, candidate: Candidate, encoding: EncodedTable, X: Any, share: float, is_first: bool
    ) -> tuple[Any, Any, Any]:
        """Fit with few centers; return the model, rows that judge it and, if folds are held out, predictions of them.

        The fits without a fold have as many centers and iterations as that of all rows, however busy the machine is:
        errors of smaller models would say nothing about this one.
        """
        folds, problem = self.data.folds, self.data.problem
        share = share / 2 if folds.in_turn else share
        most = affordable_centers(candidate.kernel, X, problem.n_outputs, problem.falkon_cost, share, self.run.compute)
        if most is None and not is_first:
            raise OutOfTimeError
        for M in fewer_centers(min(LEAST_CENTERS, len(folds.train)) if most is None else most):
            try:
                model = self._fit_falkon(candidate, X, folds.train, M, self._deadline(len(folds.train), share))
                if not folds.in_turn:
                    return model, folds.judged, None
                return model, *self._out_of_fold(candidate, encoding, M, model.n_iter_, share)
            except BudgetError as error:
                refused = error
        raise refused

    def _out_of_fold(
        self, candidate: Candidate, encoding: EncodedTable, M: int, iterations: int, share: float
    ) -> tuple[Any, Any]:
        """Fit without a fold, with M centers, and predict it, for as many folds as there is time for.

        A blend and probabilities decided by few rows are overconfident, so small tables are judged by all folds.
        """
        began = time.perf_counter()
        judged: list[Array] = []
        values: list[Array] = []
        for held in self.held_folds():
            used = time.perf_counter() - began
            if judged and used * (len(judged) + 1) / len(judged) > share:
                break
            rest = np.setdiff1d(self.data.folds.train, held)
            model = self._fit_falkon(candidate, encoding.rows(rest), rest, M, StopEarly(most=iterations))
            raw = self.data.problem.raw_predictions(model, encoding.take(held))
            values.append(self.data.problem.as_codes(raw, candidate.target))
            judged.append(held)
        if not judged:
            return None, None
        rows = np.concatenate(judged)
        order = np.argsort(rows)
        return rows[order], np.concatenate(values)[order]

    def held_folds(self, fold: Array | None = None) -> list[Array]:
        """Return the rows of each fold without which every class is still there; `fold` are other numbers of folds."""
        folds, weight = self.data.folds, self.data.weight
        held = []
        for number in range(folds.n_folds):
            judged = np.flatnonzero((folds.fold if fold is None else fold) == number)
            rest = np.setdiff1d(folds.train, judged)
            if self.data.problem.has_all_classes(rest if weight is None else rest[weight[rest] > 0]):
                held.append(judged)
        return held

    def _fit_falkon(self, candidate: Candidate, X: Any, rows: Array, M: int, stop: StopEarly) -> Any:
        model = self.data.problem.falkon(candidate.kernel, candidate.mu / len(rows), **self._device_parameters(stop))
        self._fit(model, X, rows, candidate, (min(M, len(rows)),))
        return without_callbacks(model)

    # ---- both --------------------------------------------------------------------------------------------------------

    def _fit(
        self,
        unfitted: Any,
        X: Any,
        rows: Array,
        candidate: Candidate,
        n_centers: Sequence[int | None],
        **validation: Any,
    ) -> None:
        """Fit with the first of these numbers of centers for which there is memory."""
        weight = self.data.weight_of(rows)
        if weight is not None:  # classes of weight 0 are those of the estimator's class_weight, and remain classes
            weight = np.where(weight > 0, weight, 1.0)
        y = self.data.problem.model_targets(candidate.target)[rows]
        with warnings.catch_warnings():  # held-out rows tell how good a model is
            warnings.simplefilter("ignore", ConvergenceWarning)
            # scikit-learn's warning about few rows of many classes: a sample has fewer rows than the table
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            for M in n_centers:
                try:
                    unfitted.set_params(n_centers=M).fit(X, y, sample_weight=weight, **validation)
                    return
                except BudgetError as error:
                    refused = error
        raise refused

    def _parameters(self, stop: StopEarly) -> dict[str, Any]:
        """Return the parameters that all models share; models of trees of cells have no others."""
        return {
            "dtype": "float32",
            "memory_budget": self.run.compute.memory_budget,
            "n_jobs": self.run.compute.n_jobs,
            "random_state": int(self.run.random_state.randint(2**31 - 1)),
            "callbacks": stop,
        }

    def _device_parameters(self, stop: StopEarly) -> dict[str, Any]:
        """Return the parameters of models that devices can compute."""
        return {**self._parameters(stop), "device": self.run.compute.device}

    def _deadline(self, n: int, share: float) -> StopEarly:
        """Return the callback that ends a fit of n rows after a number of seconds."""
        least = _FEWEST_ITERATIONS if self._has_many_outputs else _LEAST_ITERATIONS
        return StopEarly(time.perf_counter() + share, least if n <= QUICK_ROWS else 1)


def without_callbacks(fitted: Any) -> Any:
    """Return a fitted model without what only its fit needed."""
    return fitted.set_params(callbacks=None, **({"cv": 5} if "cv" in fitted.get_params() else {}))
