"""Search on samples of the rows: a small one first, then a larger one with what the first has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .budget import EXACT_ROWS, MOST_SEARCHED, searched_rows
from .encoded_tables import QUANTILE, EncodedTable
from .screening import SearchSample
from .search import Candidate, Search, View
from .training import Run, TrainingData
from .validation import SampleRows

Array = NDArray[Any]

_ROWS_A_SECOND = 150  # rows of the first sample per second of the budget
_LARGER = 8 / 3  # rows of the second sample relative to the first
_FEWEST_ROWS = 300  # fewest rows of the first sample
_SAMPLE_ROWS = 3 * MOST_SEARCHED // 8  # most rows of the first sample
_LISTED = 6  # candidates of the first search that the second one tries, before earlier rounds of these
SEARCH_SHARE, REFINE_SHARE = 0.27, 0.4  # shares of the budget at which the first and the second search end
# Of large tables both samples grow as the root of the time beyond some seconds, up to a factor: a fit of a sample takes
# time in proportion to the square of its rows
_GROWTH_SECONDS, _MOST_GROWTH = 60.0, 2.5
# Smaller ridges are lost in the rounding of float32, or take conjugate gradient more iterations than there is time for:
# with 20,000 rows 60 for a ridge of 0.01 and 25 for 0.1. The second is the least penalty of up to `EXACT_ROWS` rows, a
# ridge per row; with more rows the ridge stays as it is, and the penalty falls.
_LEAST_RIDGE, _LEAST_PENALTY = 0.004, 2.5e-6


@dataclass(frozen=True, eq=False)
class Found:
    """What a search has found.

    finalists : the best candidate of each encoding, kernel, kind of metric and target, the best first
    sample : the rows by which they were compared
    refined : whether `sample` is the larger sample
    rows : the rows of the smaller sample
    views : the rows of `sample` in each encoding
    """

    finalists: tuple[Candidate, ...]
    sample: SearchSample
    refined: bool
    rows: Array
    views: list[View]

    @property
    def best(self) -> Candidate:
        """The candidate with the least error."""
        return self.finalists[0]


class SearchInterrupted(KeyboardInterrupt):
    """Ctrl-C has ended a search that had found something."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self.found = found


@dataclass(frozen=True, eq=False)
class Searches:
    """A search on a sample (`rows`), and one on a larger sample, which is None if there are too few rows for that."""

    rows: Array
    first: Search
    second: Search | None

    def run(self) -> Found:
        """Compare candidates. Ctrl-C raises SearchInterrupted once there is a candidate."""
        try:
            self.first.run()
            if self.second is not None and self.second.budget.left > 0:
                self.second.refine(self.first.shortlist(_LISTED))
        except KeyboardInterrupt:
            if not self.first.candidates:
                raise
            raise SearchInterrupted(self._found()) from None
        return self._found()

    def _found(self) -> Found:
        refined = self.second is not None and len(self.second.candidates) > 0
        last = self.second if refined and self.second is not None else self.first
        return Found(tuple(last.finalists), last.sample, refined, self.rows, last.views)


def draw_samples(data: TrainingData, run: Run) -> tuple[SampleRows, SampleRows | None]:
    """Draw the rows of both searches."""
    counted = np.ones(len(data.problem.codes), dtype=bool) if data.weight is None else data.weight > 0
    growth = sample_growth(len(data.folds.train), run.budget.seconds)
    most = searched_rows(run.compute.memory_budget, int(growth * MOST_SEARCHED))
    size = min(most, int(np.clip(_ROWS_A_SECOND * run.budget.seconds, _FEWEST_ROWS, growth * _SAMPLE_ROWS)))
    return data.folds.draw((size, min(most, int(_LARGER * size))), counted, run.random_state)


def sample_growth(n: int, seconds: float) -> float:
    """Return how many times the usual rows the samples of n rows have; 1 up to `EXACT_ROWS`."""
    return 1.0 if n <= EXACT_ROWS else float(np.clip(np.sqrt(seconds / _GROWTH_SECONDS), 1.0, _MOST_GROWTH))


def least_ridge(n: int) -> float:
    """Return the least ridge of a fit of n rows: the penalty times n."""
    return max(_LEAST_RIDGE, _LEAST_PENALTY * min(n, EXACT_ROWS))


def make_searches(
    data: TrainingData, encodings: tuple[EncodedTable, ...], samples: tuple[SampleRows, SampleRows | None], run: Run
) -> Searches:
    """Return the searches on two samples."""
    first, second = samples
    one = _search(data, encodings, first, SEARCH_SHARE, second is None, "search", run)
    if second is None:
        return Searches(first.indices, one, None)
    return Searches(first.indices, one, _search(data, encodings, second, REFINE_SHARE, True, "larger sample", run))


def _search(
    data: TrainingData,
    encodings: tuple[EncodedTable, ...],
    rows: SampleRows,
    until: float,
    mixes: bool,
    stage: str,
    run: Run,
) -> Search:
    """Return a search on a sample that ends at a share of the budget, and leaves time for the smallest fit."""
    targets = data.problem.sample_targets(rows.indices, run.random_state)
    views: list[View] = []
    for encoding in encodings:
        X = encoding.take(rows.indices)
        same = encoding.name == QUANTILE and X.shape[1] == views[0].X.shape[1]
        views.append(View(encoding.name, X, 0 if same else None))

    def tell(candidate: Candidate) -> None:
        penalty = candidate.mu / len(candidate.coefs[0])
        run.record(stage, encodings[candidate.view].name, candidate, penalty, candidate.error, candidate.seconds)

    seconds = run.budget.seconds
    least = data.least_seconds(encodings[0].X.shape[1])
    return Search(
        views,
        SearchSample(targets, rows.splits, data.weight_of(rows.indices)),
        data.problem.targets,
        run.search_budget.until(min(until * seconds, max(seconds - least, 0.0))),
        run.random_state,
        run.compute,
        tell,
        least_ridge(len(data.folds.train)),
        mixes,
    )
