"""A search on a sample, and last fits of all rows with what it found, within a time budget."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.memory import BudgetError
from .._utils.warnings import warn
from ..callbacks import Record
from ..estimators._metric_rounds import under
from ..kernels import Kernel
from ..operators import mean_square_gradient
from .blending import greedy_weights
from .clock import Clock
from .costs import (
    ENCODED_ROWS,
    LEAST_CENTERS,
    LEAST_FOLDS,
    MOST_SEARCHED,
    QUICK_ROWS,
    affordable_centers,
    exact_seconds,
    fewer_centers,
    least_seconds,
    searched_rows,
)
from .encoder import TableEncoder
from .encoding import EncoderSettings, encode_table
from .inputs import Inputs
from .notes import columns_in_words, warn_of_columns
from .parts import Encoding, Enough, Learnt, Member, Settings, Surroundings
from .problems import Problem
from .reach import reach_rows
from .reading import read_table, recognised_table
from .screening import Sample
from .search import Candidate, OutOfTimeError, Search, View
from .transforms import Target
from .validation import Drawn, Plan

Array = NDArray[Any]

# how a table can be encoded; of "quantile" the columns are those of "robust", in the same order
_ENCODINGS = (
    {"numbers": "robust", "integers": "numbers"},
    {"numbers": "quantile", "integers": "numbers"},
    {"numbers": "robust", "integers": "both"},
)
_ENCODE_SHARE = 0.1  # of the budget: when the first encoding takes more, the others are left out
_ROWS_A_SECOND = 150  # of the sample, for each second of the budget
_LARGER = 8 / 3  # times as many are looked at again
_SAMPLE_ROWS = 3 * MOST_SEARCHED // 8
_LISTED = 6  # candidates, or some more
SEARCH_SHARE, _REFINE_SHARE = 0.3, 0.45  # of the budget, when they end
_GRADIENT = 3e8  # rows x centers x columns of the gradient that importances are from
EXACT_ROWS = 60_000  # beyond that every row as a center takes too long, whatever the machine
_MANY_OUTPUTS = 30  # classes whose fits take longer than all else: with fewer folds and iterations, where time is short
_MEMBERS = 6
_OVERLAP = 0.6  # error of codes above which classes overlap, and the logistic loss tells more than the squared one
_LEAST_WEIGHT = 0.05  # of a candidate in the blend, below which it is not fitted to all rows
_RESERVE = 0.04  # of the budget, for what comes after the last fit
_MAX_ITER, _LEAST_ITERATIONS, _FEWEST_ITERATIONS = 40, 5, 2  # the least of a fit of few rows, and of many outputs
_CUT_SHORT = 1.2  # times the error that the sample had: a last fit with more had no time to converge
_FIRST_SHARE = 0.65  # of the time left, for a fit that others may follow
_LEAST_SHARE = 0.08  # of the budget, for a fit that follows others
_TOLERANCE = 3e-3
# Smaller ones are lost in the rounding of float32, or take conjugate gradient more iterations than there is time for:
# with 20,000 rows 60 for a ridge of 0.01 and 25 for 0.1
_LEAST_RIDGE, _LEAST_PENALTY = 0.004, 2.5e-6
_PRECONDITIONERS = (500, 250, 100)  # centers of an exact fit's preconditioner, where memory allows no more
_SPREAD = np.array([1 / 3, 1.0, 3.0])  # penalties of a last fit, relative to that of the search


class Learning:
    """One run: `search`, then `fit_all`, then `result`. What it has found so far survives an interruption.

    Parameters
    ----------
    inputs : Inputs
        The table.
    X_val : table, or None
        Validation rows; their targets follow those of the table.
    problem : Problem
    plan : Plan
    weight : array of shape (n + n_val,), or None
    settings : Settings
    """

    def __init__(
        self, inputs: Inputs, X_val: Any, problem: Problem, plan: Plan, weight: Array | None, settings: Settings
    ) -> None:
        self.inputs = inputs
        self.X_val = X_val
        self.problem = problem
        self.plan = plan
        self.weight = weight
        self.settings = settings
        self.encodings: list[Encoding] = []
        self.members: list[Member] = []
        self.records: list[Record] = []
        self.indices: Array = np.empty(0, dtype=np.intp)  # of the sample
        self.finder: Search | None = None
        self.refiner: Search | None = None  # on more rows, with what the finder has found
        self.stopped = False

    # ---- the search --------------------------------------------------------------------------------------------------

    def search(self, found: Callable[[Learning], None] | None = None) -> None:
        """Encode the table and compare candidates on samples; `found` sets what an earlier search came to."""
        clock, random_state = self.settings.clock, self.settings.random_state
        counted = np.ones(len(self.problem.codes), dtype=bool) if self.weight is None else self.weight > 0
        most = searched_rows(self.settings.memory_budget)
        size = min(most, int(np.clip(_ROWS_A_SECOND * clock.budget, 300, _SAMPLE_ROWS)))
        larger = min(most, int(_LARGER * size))
        first, second = self.plan.draw((size, larger), counted, random_state)
        self.indices = first.indices
        self._encode(int(random_state.randint(2**31 - 1)), _ENCODE_SHARE * clock.budget if found is None else np.inf)
        self._warn_of_time()
        self.finder = self._finder(first, SEARCH_SHARE, mixes=second is None)
        self.refiner = None if second is None else self._finder(second, _REFINE_SHARE, mixes=True)
        if found is not None:
            found(self)
            return
        self.finder.run()
        if self.refiner is not None and not self.stopped and self.refiner.clock.left > 0:
            self.refiner.refine(self.finder.shortlist(_LISTED))

    @property
    def found(self) -> Search:
        """The search whose candidates count: the last one that has any."""
        assert self.finder is not None
        return self.refiner if self.refiner is not None and self.refiner.candidates else self.finder

    def _finder(self, drawn: Drawn, until: float, mixes: bool) -> Search:
        """Return a search on a sample, that ends at a share of the budget."""
        clock, random_state = self.settings.clock, self.settings.random_state
        sample = Sample(self.problem.screened(drawn.indices, random_state), drawn.splits, self._weight(drawn.indices))
        views: list[View] = []
        for encoding in self.encodings:
            X = encoding.take(drawn.indices)
            same = encoding.name == "quantile" and X.shape[1] == views[0].X.shape[1]
            views.append(View(encoding.name, X, 0 if same else None))
        return Search(
            views,
            sample,
            self.problem.transforms,
            Clock(min(until * clock.budget, max(clock.budget - self._least, 0.0)), began=clock.began),
            random_state,
            self.settings.n_jobs,
            self._tell_candidate,
            max(_LEAST_RIDGE, _LEAST_PENALTY * len(self.plan.learnt)),
            mixes,
        )

    def _weight(self, indices: Array) -> Array | None:
        """Return weights of mean 1."""
        return None if self.weight is None else self.weight[indices] / self.weight[indices].mean()

    def _warn_of_time(self) -> None:
        """Say what a fit takes at least, if that is more than the budget."""
        budget, least = self.settings.clock.budget, self._least
        if budget < least:
            n, d = self.inputs.n_rows, self.encodings[0].X.shape[1]
            warn(
                f"time_budget={budget:g} is less than the smallest search and fit of {n:,} rows and {d:,} encoded "
                f"columns take, about {least:.2g} s: raise it to that",
                UserWarning,
            )

    @property
    def _least(self) -> float:
        """Seconds that the smallest search and fit take."""
        return least_seconds(self.inputs.n_rows, self.problem.codes.shape[1], self.encodings[0].X.shape[1])

    def _encode(self, seed: int, share: float) -> None:
        """Encode the table in as many ways as a share of the time allows, and at least in one."""
        n = self.inputs.n_rows
        every = n <= ENCODED_ROWS
        rows = np.arange(n)
        if not every:
            rows = np.sort(self.settings.random_state.choice(n, ENCODED_ROWS, replace=False))
        table = recognised_table(self.inputs.take(rows), TableEncoder.__name__)  # once for all encodings
        X_val = None if self.X_val is None else read_table(self.X_val, TableEncoder.__name__)
        y, target_type = self.problem.encoded(rows)
        fold = self._folds_of_encoding(rows) if self.settings.given_folds else None
        for parameters in _ENCODINGS:
            if self.encodings and self.settings.clock.used > share:
                break
            settings = EncoderSettings(
                parameters["numbers"],
                parameters["integers"],
                target_type=target_type,
                dtype="float32",
                random_state=seed,
            )
            encoded = encode_table(table, settings, y, fold)
            encoder, X = TableEncoder.of(settings, encoded.encoding), encoded.X
            if X.shape[1] == 0:
                raise ValueError(f"every column of X is constant or missing in its {n} rows: there is nothing to learn")
            name = parameters["numbers"] if parameters["integers"] == "numbers" else "integers as categories"
            if name not in ("robust", "quantile") and X.shape[1] == self.encodings[0].X.shape[1]:
                continue  # there are no such integers
            held = np.empty((0, X.shape[1]), np.float32) if X_val is None else encoder.transform(X_val)
            self.encodings.append(Encoding(name, encoder, X if every else self.inputs.encoded(encoder), held))
        kinds = self.encodings[0].encoder.kinds_
        warn_of_columns(table, kinds)
        self.settings.say(columns_in_words(table, kinds))
        if self.problem.form is not None:
            self.settings.say(f"y is text read as numbers like {str(self.problem.form)!r}")

    def _folds_of_encoding(self, rows: Array) -> Array:
        """Return numbers of folds, so that rows which are judged together have no part in each other's encodings."""
        fold = self.plan.fold[rows].copy()
        always = np.flatnonzero(fold < 0)
        fold[always] = -1 - self.settings.random_state.randint(5, size=len(always))
        return np.asarray(fold)

    def _tell_candidate(self, candidate: Candidate) -> None:
        stage = "search" if self.found is self.finder else "larger sample"
        n = len(candidate.coefs[0])
        self._tell(stage, candidate, candidate.mu / n, candidate.error, candidate.seconds)

    def _tell(self, stage: str, candidate: Candidate, penalty: float, error: float, seconds: float) -> None:
        record: Record = {
            "iteration": len(self.records) + 1,
            "stage": stage,
            "encoding": self.encodings[candidate.view].name,
            "kernel": candidate.family.name,
            "target": candidate.target.name,
            "round": candidate.round,
            "metric": "scales" if candidate.mixing is None else "matrix",
            "length_scale": candidate.factor,
            "penalty": penalty,
            "error": error,
            "seconds": seconds,
        }
        self.records.append(record)
        if self.settings.told(record):
            self.stopped = True
            for search in (self.finder, self.refiner):
                if search is not None:
                    search.clock.budget = 0.0

    # ---- the last fits -----------------------------------------------------------------------------------------------

    def fit_all(self, fitted: Callable[[], None]) -> None:
        """Fit all rows with the candidates that the blend of the sample asks for, the most important first.

        Parameters
        ----------
        fitted : function that is called after each of them
        """
        finalists, sample = self.found.finalists, self.found.sample
        held = sample.held
        weights = greedy_weights(
            [candidate.predictions[held] for candidate in finalists],
            sample.targets[held],
            None if sample.weight is None else sample.weight[held],
        )
        order = [int(i) for i in np.argsort(-weights, kind="stable") if weights[i] >= _LEAST_WEIGHT][:_MEMBERS]
        fits = [(finalists[number], False) for number in order]
        judgeable = not self._in_turn or len(self._held_folds()) > 0
        if self.problem.has_likelihood and judgeable:
            fits.insert(1 if fits[0][0].error > _OVERLAP else len(fits), (fits[0][0], True))
        for place, (candidate, few) in enumerate(fits):
            # of a fit that is resumed, or that had no time for more centers
            if any(member.candidate is candidate and (member.few or not few) for member in self.members):
                continue
            if self.members and (self.stopped or self._left() < _LEAST_SHARE * self.settings.clock.budget):
                break
            try:
                self._fit_one(candidate, few, last=place == len(fits) - 1)
            except (BudgetError, OutOfTimeError):
                if not self.members:
                    raise
                continue
            fitted()
        if self._in_turn and self._is_cut_short():
            with suppress(BudgetError):
                self.fit_sample()
                fitted()

    def _is_cut_short(self) -> bool:
        """Whether time has ended the last fits so early that the sample alone tells more."""
        errors = [self._error(one.values, one.judged) for one in self.members if one.judged is not None]
        return bool(errors) and min(errors) > _CUT_SHORT * self.found.best.error

    def _left(self) -> float:
        clock = self.settings.clock
        return clock.left - _RESERVE * clock.budget

    def _fit_one(self, candidate: Candidate, few: bool, last: bool) -> None:
        """Fit all rows, with every row as a center unless `few` are asked for or time asks for few."""
        began = time.perf_counter()
        left = max(0.5, self._left())
        share = left if last else _FIRST_SHARE * left
        encoding, learnt = self.encodings[candidate.view].mixed(candidate.mixing), self.plan.learnt
        X, n = encoding.rows(learnt), len(learnt)
        in_turn = self._in_turn
        # one exact fit is better than several with few centers, so the first may take all the time that is left
        shares = (share,) if self.members else (share, left)
        exact = None if few or n > EXACT_ROWS else self._columns(candidate.kernel, X, shares)
        judged: Any = self.plan.judged
        values: Any = None
        model: Any = None
        if exact is not None:
            n_penalties, folds, time_for_it = exact
            fold = self._merged_folds(folds) if in_turn else None
            ridges = _SPREAD if n_penalties > 1 and fold is not None else np.ones(1)
            with suppress(BudgetError):  # few centers take less memory
                model, values = self._fit_exact(candidate, X, learnt, fold, ridges, time_for_it)
            if values is not None:  # there are none of the rows of a class of weight 0
                counts = np.isfinite(values).all(axis=1)
                judged, values = learnt[counts], values[counts]
        has_few = model is None
        if has_few:
            model, judged, values = self._fit_few(candidate, encoding, X, share)
        if values is None and judged is not None and len(judged):
            values = self.problem.values(model, candidate.target, encoding.take(judged))
        if values is None:
            judged = None
        seconds = time.perf_counter() - began
        self.members.append(Member(encoding.encoder, model, candidate, has_few, judged, values, seconds))
        error = float("nan") if judged is None else self._error(values, judged)
        stage = "all rows, few centers" if has_few else "all rows"
        self._tell(stage, candidate, float(model.penalty_), error, seconds)

    @property
    def _has_many(self) -> bool:
        """Whether fits of many outputs take longer than all else."""
        return self.problem.codes.shape[1] > _MANY_OUTPUTS

    @property
    def _in_turn(self) -> bool:
        """Whether each row is held out by one of several folds."""
        return self.plan.judged is None and self.plan.n_folds > 1

    def _held_folds(self) -> list[Array]:
        """Return the rows of each fold without which every class is still there."""
        folds = []
        for number in range(self.plan.n_folds):
            judged = np.flatnonzero(self.plan.fold == number)
            rest = np.setdiff1d(self.plan.learnt, judged)
            if self.problem.is_whole(rest if self.weight is None else rest[self.weight[rest] > 0]):
                folds.append(judged)
        return folds

    def _fit_few(self, candidate: Candidate, encoding: Encoding, X: Any, share: float) -> tuple[Any, Any, Any]:
        """Fit with few centers; return the model, the rows that judge it and, if folds are held out, their predictions.

        The fits without a fold have as many centers and iterations as that of all rows, however busy the machine is:
        errors of smaller models would say nothing of this one.
        """
        in_turn = self._in_turn
        share = share / 2 if in_turn else share
        most = affordable_centers(
            candidate.kernel, X, self.problem.codes.shape[1], self.problem.falkon_cost, share, self.settings
        )
        if most is None and self.members:
            raise OutOfTimeError
        for M in fewer_centers(min(LEAST_CENTERS, len(self.plan.learnt)) if most is None else most):
            try:
                until = self._until(len(self.plan.learnt), share)
                model = self._fit_falkon(candidate, X, self.plan.learnt, M, until)
                held = self._out_of_fold(candidate, encoding, M, model.n_iter_, share) if in_turn else None
            except BudgetError as error:
                refused = error
                continue
            return model, *(held or (self.plan.judged, None))
        raise refused

    def _out_of_fold(
        self, candidate: Candidate, encoding: Encoding, M: int, iterations: int, share: float
    ) -> tuple[Any, Any]:
        """Learn without a fold, with M centers, and predict it, for as many folds as there is time for.

        A blend and probabilities that few rows decide on are overconfident, so small tables are judged by all folds.
        """
        began = time.perf_counter()
        judged: list[Array] = []
        values: list[Array] = []
        for held in self._held_folds():
            used = time.perf_counter() - began
            if judged and used * (len(judged) + 1) / len(judged) > share:
                break
            rest = np.setdiff1d(self.plan.learnt, held)
            model = self._fit_falkon(candidate, encoding.rows(rest), rest, M, Enough(most=iterations))
            values.append(self.problem.values(model, candidate.target, encoding.take(held)))
            judged.append(held)
        if not judged:
            return None, None
        rows = np.concatenate(judged)
        order = np.argsort(rows)
        return rows[order], np.concatenate(values)[order]

    def _error(self, values: Any, judged: Array) -> float:
        """Return the root mean squared error, relative to that of the mean."""
        codes = self.problem.codes[judged]
        weight = self._weight(judged)
        spread = np.average((codes - np.average(codes, axis=0, weights=weight)) ** 2, axis=0, weights=weight).sum()
        return float(np.sqrt(np.average((values - codes) ** 2, axis=0, weights=weight).sum() / (spread or 1.0)))

    def _fit_exact(
        self, candidate: Candidate, X: Any, rows: Array, fold: Array | None, ridges: Array, share: float
    ) -> tuple[Any, Array | None]:
        """Fit with every row as a center; return the model, and its predictions of rows out of fold."""
        n, target = len(rows), candidate.target
        choice = {"cv": min(5, n)} if fold is None else {"choose_by": "cv", "cv": fold}
        model = self.problem.exact(
            candidate.kernel,
            penalties=candidate.mu / n * ridges if fold is not None else None,
            penalty=candidate.mu / n,
            tol=_TOLERANCE,
            max_iter=_MAX_ITER,
            **choice,
            **self._common(self._until(n, share)),
        )
        self._fit(model, X, rows, target, _PRECONDITIONERS[1:] if self._has_many else [None, *_PRECONDITIONERS])
        values = None
        if fold is not None:
            values = self.problem.held_out(model, target)
            del model.cv_predictions_
        return plain(model), values

    def _fit(self, model: Any, X: Any, rows: Array, target: Target, n_centers: Sequence[int | None]) -> None:
        """Fit with the first of these numbers of centers for which there is memory."""
        weight = self._weight(rows)
        if weight is not None:  # a class of weight 0 has it by the estimator's class_weight, and remains a class
            weight = np.where(weight > 0, weight, 1.0)
        with warnings.catch_warnings():  # how good a member is, rows that were held out say
            warnings.simplefilter("ignore", ConvergenceWarning)
            # scikit-learn's doubt about few rows of many classes: a sample has fewer than the table
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            for M in n_centers:
                try:
                    model.set_params(n_centers=M).fit(X, self.problem.learnt(target)[rows], sample_weight=weight)
                    return
                except BudgetError as error:
                    refused = error
        raise refused

    def _fit_falkon(self, candidate: Candidate, X: Any, rows: Array, M: int, until: Enough) -> Any:
        model = self.problem.falkon(candidate.kernel, candidate.mu / len(rows), **self._common(until))
        self._fit(model, X, rows, candidate.target, [min(M, len(rows))])
        return plain(model)

    def _common(self, until: Enough) -> dict[str, Any]:
        """Return the parameters that every last fit has."""
        settings = self.settings
        return {
            "dtype": "float32",
            "memory_budget": settings.memory_budget,
            "n_jobs": settings.n_jobs,
            "random_state": int(settings.random_state.randint(2**31 - 1)),
            "callbacks": until,
        }

    def _until(self, n: int, share: float) -> Enough:
        """Return what ends a fit of n rows after a share of the time."""
        least = _FEWEST_ITERATIONS if self._has_many else _LEAST_ITERATIONS
        return Enough(time.perf_counter() + share, least if n <= QUICK_ROWS else 1)

    def _columns(self, kernel: Kernel, X: Any, shares: tuple[float, ...]) -> tuple[int, int, float] | None:
        """Return how many penalties and folds an exact fit has time for, and the first share of it that is enough.

        None if there is no such share; few rows take the first in any case.
        """
        outputs = self.problem.codes.shape[1]
        points = X if isinstance(X, np.ndarray) else X.take(np.arange(X.shape[0]))
        seconds = exact_seconds(kernel, points, self.settings)
        choices = [(1, 5), (1, 3), (1, 0)] if self.found is self.refiner else [(3, 5), (1, 5), (1, 3), (1, 0)]
        if self._in_turn:
            choices.remove((1, 0))  # it could not be judged
            choices += [(1, LEAST_FOLDS)] if self._has_many else []
        for share in shares:
            for n_penalties, folds in choices:
                if seconds(n_penalties * (folds + 1) * outputs) < share:
                    return n_penalties, folds, share
            if len(points) <= QUICK_ROWS:
                return *choices[-1], share
        return None

    def _merged_folds(self, most: int) -> Array | None:
        """Return the fold of each row, with as many folds as there is time for."""
        if most == 0:
            return None
        return np.asarray(self.plan.fold % most if self.plan.n_folds > most else self.plan.fold)

    # ---- the result --------------------------------------------------------------------------------------------------

    def fit_sample(self) -> None:
        """Fit the sample alone, with the best candidate: what there is when there is no time for more."""
        candidate = self.found.best
        began = time.perf_counter()
        rows, model, values = self._of_sample(candidate)
        encoder, seconds = self.encodings[candidate.view].encoder, time.perf_counter() - began
        self.members.append(Member(encoder, model, candidate, False, rows, values, seconds))
        self._tell("sample alone", candidate, float(model.penalty_), self._error(values, rows), seconds)

    def has_best_so_far(self) -> bool:
        """Make do with what an interrupted run has found, of which nobody is told; return whether there is anything."""
        self.settings = replace(self.settings, told=lambda record: False)
        if self.finder is None or not self.finder.candidates:
            return False
        if not self.members:
            self.fit_sample()
        return True

    def _of_sample(self, candidate: Candidate) -> tuple[Array, Any, Array]:
        """Fit the sample, and a row of each class that it lacks; return its rows, the model and predictions of them."""
        rows = self.problem.completed(self.indices, self.plan.learnt)
        X = self.encodings[candidate.view].mixed(candidate.mixing).take(rows)
        fold = np.arange(len(rows)) % min(5, len(rows))
        model, values = self._fit_exact(candidate, X, rows, fold, np.ones(1), share=np.inf)
        assert values is not None
        return rows, model, values

    def result(self) -> Learnt:
        """Blend the members that can be judged."""
        judgeable = [member for member in self.members if member.judged is not None]
        if judgeable:
            judged = reduce(np.intersect1d, [member.judged for member in judgeable])
            values = [member.values[np.isin(member.judged, judged)] for member in judgeable]
        else:  # no rows are left to judge by
            judgeable = self.members
            samples = [self._of_sample(member.candidate) for member in judgeable]
            judged, values = samples[0][0], [values for _, _, values in samples]
        blend = self.problem.blend(values, judged, self._weight(judged))
        kept = np.flatnonzero(blend.weights)
        members, weights = [judgeable[i] for i in kept], blend.weights[kept]
        calibrations = [blend.calibrations[i] for i in kept if blend.calibrations]
        return Learnt(members, weights, blend.values, calibrations, judged, self._importances(members, weights))

    def surroundings(self, learnt: Learnt) -> Surroundings:
        """Return some training rows, and what the blend says of them."""
        first = self.encodings[0]
        rows = self.plan.learnt[reach_rows(len(self.plan.learnt), first.X.shape[1])]
        values: Any = 0.0
        for member, weight in zip(learnt.members, learnt.weights, strict=True):
            candidate = member.candidate
            X = self.encodings[candidate.view].mixed(candidate.mixing).take(rows)
            values = values + weight * self.problem.values(member.model, candidate.target, X)
        return Surroundings(rows, self.inputs.take(rows), first.encoder, values)

    def _importances(self, members: list[Member], weights: Array) -> Array:
        """Return how much the blend changes with each column of the table, in shares of all."""
        total = 0.0
        for member, weight in zip(members, weights, strict=True):
            candidate, model = member.candidate, member.model
            X = self.encodings[candidate.view].take(self.indices)
            matrix = candidate.mixing
            Z = X if matrix is None else under(matrix, X)
            some = Z[: int(np.clip(_GRADIENT / model.centers_.size, 50, 500))]
            squares = mean_square_gradient(
                model.kernel_,
                some,
                model.centers_,
                model.dual_coef_,
                full=matrix is not None,
                n_jobs=self.settings.n_jobs,
            )
            squares = squares if matrix is None else np.diag(matrix @ squares @ matrix)
            moves = np.sqrt(squares) * X.std(axis=0)
            origin = member.encoder.feature_origin_
            each = np.sqrt(np.bincount(origin, weights=moves**2, minlength=member.encoder.n_features_in_))
            total = total + weight * each / (each.sum() or 1.0)
        out = np.asarray(total)
        return out / (out.sum() or 1.0)


def plain(model: Any) -> Any:
    """Return a fitted model without what only its fit needed."""
    return model.set_params(callbacks=None, **({"cv": 5} if "cv" in model.get_params() else {}))
