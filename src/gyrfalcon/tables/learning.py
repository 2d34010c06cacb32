"""One run: encodings of the table, what a search found, fitted members, and their blend, each a value.

encodings  the table as arrays, in several ways     encoded_tables.py
found      the best candidates on samples           finding.py, search.py, screening.py
members    models of all rows                       members.py, large.py
learnt     the blend of these                       here
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.warnings import warn
from ..callbacks import Record
from ..fitting.calibration import Calibration
from .encoded_tables import EncodedTable, encode_tables
from .families import FamilyFits
from .finding import Found, Searches, SearchInterrupted, draw_samples, make_searches
from .importances import importances, slopes
from .large import model_fits
from .members import Member, ModelFits
from .search import Candidate
from .training import Run, TrainingData

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class LearningProgress:
    """The state of a run, from which it can be continued.

    beginning, random_state : states of the random generator, at the beginning of the run and now
    used : seconds of the budget
    done : whether all members are fitted
    stopped : whether a callback has ended the search
    """

    beginning: dict[str, Any]
    random_state: dict[str, Any]
    used: float
    done: bool
    stopped: bool
    records: list[Record]
    found: Found
    members: tuple[Member, ...]


@dataclass(frozen=True, eq=False)
class Learnt:
    """The blend, and its parts.

    members : those with a positive weight
    values : predictions of the blend for rows that its models were not fitted to, of shape (m, k); see `Blend`
    calibrations : one for each member; empty for numbers
    judged : the positions of the rows of `values`
    importances, slopes : those of the columns of the table; see importances.py
    records : those of all candidates and final fits
    encoding : the first one, in which numbers outside the range of training differ from those inside
    """

    members: list[Member]
    weights: Array
    values: Array
    calibrations: list[Calibration]
    judged: Array
    importances: Array
    slopes: Array
    records: list[Record]
    data: TrainingData
    encoding: EncodedTable

    def predict_codes(self, rows: Array) -> Array:
        """Return the predictions of the blend for training rows, as columns like `Problem.codes`."""
        values: Any = 0.0
        for member, weight in zip(self.members, self.weights, strict=True):
            X = member.encoding.under(member.candidate.mixing).take(rows)
            raw = self.data.problem.raw_predictions(member.model, X)
            values = values + weight * self.data.problem.as_codes(raw, member.candidate.target)
        return np.asarray(values)


class LearningInterrupted(KeyboardInterrupt):
    """Ctrl-C has ended a run that had found something: `learnt` is the best of it."""

    def __init__(self, learnt: Learnt) -> None:
        super().__init__()
        self.learnt = learnt


def learn(
    data: TrainingData,
    run: Run,
    restore: Callable[[TrainingData, tuple[EncodedTable, ...], Searches], LearningProgress] | None = None,
    keep: Callable[[LearningProgress], None] = lambda progress: None,
) -> Learnt:
    """Encode the table, search, fit the best candidates to all rows, and blend them.

    `restore` returns the progress of an earlier run, from which this one continues; `keep` is called with the progress
    after the search and after each final fit. Ctrl-C raises LearningInterrupted once there is a candidate.
    """
    samples = draw_samples(data, run)
    encodings = encode_tables(data, run, resumed=restore is not None)
    _warn_of_time(data, encodings[0], run)
    searches = make_searches(data, encodings, samples, run)
    found: Found | None = None
    members: tuple[Member, ...] = ()
    done = False
    try:
        if restore is None:
            found = searches.run()
            keep(_progress(run, found))
        else:
            earlier = restore(data, encodings, searches)
            found, members, done = earlier.found, earlier.members, earlier.done
            run = _continued(run, earlier)
        fits = model_fits(data, encodings, found, run)
        if not done:
            for stage, member in FamilyFits(fits, run.families).members(members):
                members = (*members, member)
                fits.record(stage, member)
                keep(_progress(run, found, members))
            keep(_progress(run, found, members, done=True))
        return _blend(fits, members)
    except KeyboardInterrupt as interrupt:
        found = interrupt.found if isinstance(interrupt, SearchInterrupted) else found
        if found is None:
            raise
        # callbacks are not called for the work that ends the run
        fits = model_fits(data, encodings, found, replace(run, tell=lambda record: False))
        if not members:
            stage, member = fits.sample_member()
            members = (member,)
            fits.record(stage, member)
        raise LearningInterrupted(_blend(fits, members)) from interrupt


def _progress(run: Run, found: Found, members: tuple[Member, ...] = (), done: bool = False) -> LearningProgress:
    return LearningProgress(
        run.beginning,
        dict(run.random_state.get_state(legacy=False)),
        run.budget.used,
        done,
        run.search_budget.cancelled,
        run.records,
        found,
        members,
    )


def _continued(run: Run, earlier: LearningProgress) -> Run:
    """Return the run with the random generator and the records of an earlier one."""
    random_state = np.random.RandomState()
    random_state.set_state(earlier.random_state)
    if earlier.stopped:
        run.search_budget.cancel()
    return replace(run, random_state=random_state, records=[*earlier.records])


def _warn_of_time(data: TrainingData, encoding: EncodedTable, run: Run) -> None:
    """Warn if the smallest search and fit take longer than the budget."""
    n, d = data.inputs.n_rows, encoding.X.shape[1]
    least = data.least_seconds(d) + encoding.seconds
    if run.budget.seconds < least:
        warn(
            f"time_budget={run.budget.seconds:g} is less than the smallest search and fit of {n:,} rows and {d:,} "
            f"encoded columns take, about {least:.2g} s: raise it to that",
            UserWarning,
        )


# ---- the blend -------------------------------------------------------------------------------------------------------


def _blend(fits: ModelFits, members: tuple[Member, ...]) -> Learnt:
    """Blend the members that can be judged."""
    data = fits.data
    judgeable = [member for member in members if member.judged is not None]
    if judgeable:
        judged = reduce(np.intersect1d, [member.judged for member in judgeable])
        values = [member.values[np.isin(member.judged, judged)] for member in judgeable]
    else:  # no rows are left to judge by
        judgeable = list(members)
        samples = [fits.fit_sample(_kernel_candidate(member)) for member in judgeable]
        judged, values = samples[0][0], [values for _, _, values in samples]
    blend = data.problem.blend(values, judged, data.weight_of(judged))
    kept = np.flatnonzero(blend.weights)
    blended, weights = [judgeable[i] for i in kept], blend.weights[kept]
    run, n_columns = fits.run, fits.encodings[0].encoder.n_features_in_
    by_slope = slopes(fits.found, blended, weights, n_columns, run.compute)
    return Learnt(
        blended,
        weights,
        blend.values,
        [blend.calibrations[i] for i in kept if blend.calibrations],
        judged,
        importances(fits.found, fits.encodings, blended, weights, by_slope, run.budget.seconds, run.compute),
        by_slope,
        fits.run.records,
        data,
        fits.encodings[0],
    )


def _kernel_candidate(member: Member) -> Candidate:
    """Return the candidate of a kernel model: trees without rows to judge them are not fitted."""
    assert isinstance(member.candidate, Candidate)
    return member.candidate
