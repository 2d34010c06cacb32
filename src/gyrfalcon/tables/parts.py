"""What a run is made of: its settings, encoded tables, fitted members and when a fit has had enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..callbacks import Callback, Record
from ..fitting.calibration import Calibration
from .clock import Clock
from .encoder import TableEncoder
from .inputs import mixed
from .mixing import Mixing
from .search import Candidate
from .transforms import Target

Array = NDArray[Any]

# a fit ends when the error of cross-validation has not fallen by a thousandth in the last two iterations
_FALL, _STEADY, _FIRST_ITERATIONS = 1e-3, 2, 5


@dataclass
class Encoding:
    """An encoder and what it made of the rows.

    Attributes
    ----------
    name : what `candidates_` calls it
    encoder : TableEncoder
    X : array of shape (n, d), or rows
    held : array of shape (n_val, d), validation rows that were given
    """

    name: str
    encoder: TableEncoder
    X: Any
    held: Array

    def take(self, indices: Array) -> Array:
        """Return rows in memory; those of validation follow the others."""
        n = self.X.shape[0]
        inside, beyond = indices[indices < n], indices[indices >= n] - n
        rows = self.X[inside] if isinstance(self.X, np.ndarray) else self.X.take(inside)
        return np.ascontiguousarray(np.concatenate([rows, self.held[beyond]]) if len(beyond) else rows)

    def mixed(self, matrix: Array | None) -> Encoding:
        """Return the same with rows multiplied by a matrix; itself if there is none."""
        if matrix is None:
            return self
        mixing = Mixing(matrix)
        held = mixing.transform(self.held) if len(self.held) else self.held
        return Encoding(self.name, self.encoder, mixed(self.X, mixing), held)

    def rows(self, indices: Array) -> Any:
        """Return rows for a fit."""
        if len(indices) == self.X.shape[0]:
            return self.X
        return self.X[indices] if isinstance(self.X, np.ndarray) else self.X.subset(indices)


@dataclass
class Member:
    """A fitted model of the blend.

    Attributes
    ----------
    encoder : TableEncoder
    model : estimator
    candidate : what the search says of it
    few : whether it has few centers
    judged, values : arrays of shape (m,) and (m, k)
        Rows that it can be judged by, and predictions of them by a model that has not seen them; None if there are none
    seconds : float
    """

    encoder: TableEncoder
    model: Any
    candidate: Candidate
    few: bool
    judged: Any
    values: Any
    seconds: float

    @property
    def target(self) -> Target:
        """What the model has learnt."""
        return self.candidate.target

    @property
    def mixing(self) -> Mixing | None:
        """What the encoder's rows are multiplied with before the model sees them."""
        matrix = self.candidate.mixing
        return None if matrix is None else Mixing(matrix)


@dataclass
class Learnt:
    """What was learnt.

    Attributes
    ----------
    members : list of Member
    weights : array of shape (len(members),)
    values : array of shape (m, k)
        What the blend says of rows that it has not seen, see `Blend`.
    calibrations : list of Calibration
        Of each member; none for numbers.
    judged : array of shape (m,)
        The positions of these rows among the targets.
    importances : array of shape (n_columns,)
        Of the columns of the table.
    """

    members: list[Member]
    weights: Array
    values: Array
    calibrations: list[Calibration]
    judged: Array
    importances: Array


@dataclass
class Surroundings:
    """Some training rows.

    Attributes
    ----------
    rows : array of shape (m,)
        Their positions among the targets.
    table : table with m rows
    encoder : TableEncoder
        One of numbers as they are, so that those outside the range of training differ from those inside.
    values : array of shape (m, k)
        What the blend says of them, as columns like `Problem.codes`.
    """

    rows: Array
    table: Any
    encoder: TableEncoder
    values: Array


@dataclass
class Settings:
    """What the user decides.

    Attributes
    ----------
    clock : Clock
    n_jobs : int or None
    memory_budget : as everywhere
    random_state : RandomState
    told : function that is told of each step, and says whether to stop
    given_folds : whether the user says which rows are judged together, by groups or a splitter
    say : function that shows a line of text to users who asked for it
    """

    clock: Clock
    n_jobs: int | None
    memory_budget: int | float | str
    random_state: np.random.RandomState
    told: Callable[[Record], bool]
    given_folds: bool = False
    say: Callable[[str], None] = lambda text: None


class Enough(Callback):
    """Ends a fit at a deadline, after some iterations, or when errors of cross-validation no longer fall.

    Parameters
    ----------
    deadline : float
        A time of `time.perf_counter`.
    least : int
        Iterations that there are in any case: a solver that has hardly begun predicts worse than a small sample.
    most : int or None
        Iterations after which a fit ends.
    """

    def __init__(self, deadline: float = np.inf, least: int = 1, most: int | None = None) -> None:
        self.deadline = deadline
        self.least = least
        self.most = most
        self.errors: list[float] = []

    def on_iteration(self, record: Record) -> bool:
        if record["iteration"] == self.most:
            return True
        if time.perf_counter() > self.deadline and record["iteration"] >= self.least:
            return True
        self.errors.append(min(record.get("cv_errors") or [0.0]))
        steady = self.errors[-_STEADY - 1 :]
        return record["iteration"] >= _FIRST_ITERATIONS and steady[-1] > 0 and max(steady) < (1 + _FALL) * min(steady)
