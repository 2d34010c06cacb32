"""The inputs of a search and of the final fits: the data, the time budget, and the records of all candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from ..callbacks import Record
from .budget import Budget, least_seconds
from .inputs import Inputs
from .plain_candidates import PlainCandidate
from .problems import Problem
from .search import Candidate
from .validation import FoldPlan

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The rows, their targets and weights, and which of them judge.

    inputs : the table
    X_val : a Table of validation rows, whose targets and weights follow those of the table; or None
    """

    inputs: Inputs
    X_val: Any
    problem: Problem
    folds: FoldPlan
    weight: Array | None

    def weight_of(self, rows: Array) -> Array | None:
        """Return the weights of rows, scaled to a mean of 1."""
        return None if self.weight is None else self.weight[rows] / self.weight[rows].mean()

    def error(self, values: Array, rows: Array) -> float:
        """Return the root mean squared error of predictions of rows, relative to that of the mean."""
        codes, weight = self.problem.codes[rows], self.weight_of(rows)
        spread = np.average((codes - np.average(codes, axis=0, weights=weight)) ** 2, axis=0, weights=weight).sum()
        return float(np.sqrt(np.average((values - codes) ** 2, axis=0, weights=weight).sum() / (spread or 1.0)))

    def least_seconds(self, n_columns: int) -> float:
        """Estimate the seconds of the smallest search and fit, with a number of encoded columns."""
        return least_seconds(self.inputs.n_rows, self.problem.n_outputs, n_columns)


@dataclass(frozen=True)
class Run:
    """Resources, random numbers and callbacks of a run.

    budget : budget of the whole fit
    search_budget : the part of it that is cancelled when a callback ends the search
    beginning : the state of `random_state` at the beginning of the fit
    families : families of models that are fitted to all rows
    tell : called with the record of each candidate and of each final fit; returns whether to end the search
    say : shows a line of text to users who asked for it
    records : records of all candidates and final fits, in their order
    """

    compute: Compute
    budget: Budget
    search_budget: Budget
    random_state: np.random.RandomState
    beginning: dict[str, Any]
    families: tuple[str, ...]
    tell: Callable[[Record], bool]
    say: Callable[[str], None] = lambda text: None
    records: list[Record] = field(default_factory=list)

    def record(
        self,
        stage: str,
        encoding: str,
        candidate: Candidate | PlainCandidate,
        penalty: float,
        error: float,
        seconds: float,
    ) -> None:
        """Record a candidate or a final fit and tell it; cancel the search if a callback asks for that."""
        record: Record = {
            "iteration": len(self.records) + 1,
            "stage": stage,
            "encoding": encoding,
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
        if self.tell(record):
            self.search_budget.cancel()
