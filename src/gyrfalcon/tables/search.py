"""The search: which encoding, kernel, metric, length scale and penalty suit a sample of the rows.

The metric is a scale for each column, learnt from the gradient of a fit: columns along which the learnt function
changes much are stretched, others shrink (Radhakrishnan et al., Science 2024). Every candidate is an exact fit of the
sample whose error is cross-validated, about a third of a second each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Kernel
from ..operators import mean_square_gradient
from .clock import Clock
from .families import GAUSSIAN, LAPLACIAN, LAPLACIAN_1, MATERN, Family
from .screening import Sample, screen, squared_error
from .transforms import Target

Array = NDArray[Any]

_RIDGES = np.array([0.01, 0.06, 0.35, 2.0, 12.0])
_NEAR = np.array([0.2, 1.0, 5.0])  # ridges of later candidates, relative to that of the candidate before
_FEWEST, _MOST = 1 / 16, 64.0  # factors of the typical distance
_MOST_FACTORS = 5
_ROUNDS = 3
_FLOOR = 1e-3  # of a scale: no column is lost for good
_GAIN = 0.995  # a round whose error is not lower than this times the last one's is the last
_CLOSE = 1.05  # candidates that are worse than this times the best are not followed
_SIGNS = 3e8  # rows x centers x columns of a gradient


@dataclass(frozen=True)
class View:
    """One encoding of the sample.

    Attributes
    ----------
    name : what `candidates_` calls it
    X : array of shape (n, d)
    like : the position of another view with the same columns in the same order, whose metric is a good start, or None
    """

    name: str
    X: Array
    like: int | None = None


@dataclass(frozen=True)
class Candidate:
    """What was tried, and how well it did.

    Attributes
    ----------
    view : position of the encoding
    family : Family
    target : Target
    round : how often the metric was learnt
    scales : array of shape (d,)
    length, factor : the length scale, and the same in units of half the typical distance
    mu : the ridge: the penalty times the number of rows
    error : root mean squared error of cross-validation, in deviations of y
    seconds : float
    predictions, coef : arrays of shape (n, k)
    """

    view: int
    family: Family
    target: Target
    round: int
    scales: Array
    length: float
    factor: float
    mu: float
    error: float
    seconds: float
    predictions: Array
    coef: Array

    @property
    def kernel(self) -> Kernel:
        """The kernel, with a length scale for each column."""
        return self.family.kernel(self.scales, self.length)


class OutOfTimeError(Exception):
    """The search has used its share of the time."""


class Search:
    """Candidates, one after another, until there is nothing more to try or no time left.

    Parameters
    ----------
    views : list of View
    sample : Sample
        With targets in deviations of y, or class codes.
    targets : list of Target
        Ways to learn them; the first is y itself.
    clock : Clock
        Of the search.
    random_state : RandomState
    n_jobs : int or None
    told : function that is told of each candidate
    least_ridge : float
        Smaller ones count as that.

    Attributes
    ----------
    candidates : list of Candidate
        All that were tried, in their order.
    """

    def __init__(
        self,
        views: list[View],
        sample: Sample,
        targets: list[Target],
        clock: Clock,
        random_state: np.random.RandomState,
        n_jobs: int | None,
        told: Callable[[Candidate], None],
        least_ridge: float = 0.004,
    ) -> None:
        self.views = views
        self.sample = sample
        self.targets = targets
        self.clock = clock
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.told = told
        self.least_ridge = least_ridge
        self.candidates: list[Candidate] = []

    def run(self) -> None:
        """Try what is worth most first."""
        with suppress(OutOfTimeError):
            self._run()

    @property
    def finalists(self) -> list[Candidate]:
        """The best candidate of each encoding, kernel and target, the best first."""
        best: dict[Any, Candidate] = {}
        for candidate in self.candidates:
            key = (candidate.view, candidate.family.name, candidate.target.name)
            if key not in best or candidate.error < best[key].error:
                best[key] = candidate
        return sorted(best.values(), key=lambda candidate: candidate.error)

    def _run(self) -> None:
        rough = {0: self._rounds(self._explore(0, LAPLACIAN_1, None))}
        smooth = {0: self._rounds(self._explore(0, MATERN, rough[0]))}
        for view in range(1, len(self.views)):
            known = self.views[view].like
            first = self._explore(view, LAPLACIAN_1, None if known is None else rough[known])
            rough[view] = self._rounds(first)
            if rough[view].error < _CLOSE * self.best.error or first.error < _CLOSE * rough[0].error:
                start = rough[view] if known is None else smooth[known]
                smooth[view] = self._rounds(self._explore(view, MATERN, start))
        plain = self.best
        for target in self.targets[1:]:
            for family in (plain.family, MATERN if plain.family is LAPLACIAN_1 else LAPLACIAN_1):
                start = min(self._of(plain.view, family), key=lambda candidate: candidate.error, default=plain)
                found = self._explore(plain.view, family, start, target)
                if found.error > _CLOSE * plain.error:
                    break
        best = self.best
        for family in (LAPLACIAN, GAUSSIAN):
            start = min(self._of(best.view, MATERN), key=lambda candidate: candidate.error, default=best)
            self._explore(best.view, family, start, best.target)

    @property
    def best(self) -> Candidate:
        """The candidate with the least error so far."""
        return min(self.candidates, key=lambda candidate: candidate.error)

    def _of(self, view: int, family: Family) -> Iterable[Candidate]:
        return (one for one in self.candidates if one.view == view and one.family is family)

    def _explore(self, view: int, family: Family, start: Candidate | None, target: Target | None = None) -> Candidate:
        """Try length scales, twice or half of the best one as long as that helps."""
        X = self.views[view].X
        scales = np.ones(X.shape[1]) if start is None else start.scales
        ridges = _RIDGES if start is None else start.mu * _NEAR
        same = start is not None and start.family is family
        factors = [start.factor] if same and start is not None else list(family.factors)
        target = (self.targets[0] if start is None else start.target) if target is None else target
        number = 0 if start is None else start.round
        return self._line(view, family, target, number, scales, factors, ridges)

    def _line(
        self,
        view: int,
        family: Family,
        target: Target,
        number: int,
        scales: Array,
        factors: list[float],
        ridges: Array,
    ) -> Candidate:
        typical = family.typical(self.views[view].X, scales)
        tried: dict[float, Candidate] = {}
        while factors:
            factor = factors.pop(0)
            tried[factor] = self._try(view, family, target, number, scales, typical * factor, factor, ridges)
            best = min(tried.values(), key=lambda candidate: candidate.error)
            ridges = best.mu * _NEAR if len(tried) > 1 else ridges
            if not factors and len(tried) < _MOST_FACTORS:
                near = (best.factor / 2, best.factor * 2)
                factors = [c for c in near if c not in tried and _FEWEST <= c <= _MOST][:1]
        return best

    def _rounds(self, best: Candidate) -> Candidate:
        """Learn the metric again and again, as long as that helps."""
        last = best
        for _ in range(_ROUNDS):
            scales = self._metric(last)
            found = self._line(
                last.view, last.family, last.target, last.round + 1, scales, [last.factor], last.mu * _NEAR
            )
            gained = found.error < _GAIN * best.error
            best = min(best, found, key=lambda candidate: candidate.error)
            if not gained:
                break
            last = found
        return best

    def _metric(self, candidate: Candidate) -> Array:
        """Return a scale for each column: the root of the mean squared derivative, relative to the largest."""
        X = self.views[candidate.view].X
        n, d = X.shape
        some = self.random_state.permutation(n)[: int(np.clip(_SIGNS / (n * d), 50, 1000))]
        squares = mean_square_gradient(candidate.kernel, X[some], X, candidate.coef, n_jobs=self.n_jobs)
        largest = float(squares.max())
        if not 0 < largest < np.inf:
            return np.asarray(candidate.scales)
        return np.asarray(np.maximum(np.sqrt(squares / largest), _FLOOR))

    def _try(
        self,
        view: int,
        family: Family,
        target: Target,
        number: int,
        scales: Array,
        length: float,
        factor: float,
        ridges: Array,
    ) -> Candidate:
        if self.candidates and self.clock.left <= 0:
            raise OutOfTimeError
        began = time.perf_counter()
        own = replace(self.sample, targets=target.learnt(self.sample.targets))
        X = self.views[view].X
        ridges = np.unique(np.maximum(ridges, self.least_ridge))
        screened = screen(
            family.kernel(scales, length), X, own, ridges, random_state=self.random_state, n_jobs=self.n_jobs
        )
        predictions = target.restored(screened.predictions)
        candidate = Candidate(
            view=view,
            family=family,
            target=target,
            round=number,
            scales=scales,
            length=length,
            factor=factor,
            mu=screened.mu,
            error=float(np.sqrt(squared_error(predictions, self.sample))),
            seconds=time.perf_counter() - began,
            predictions=predictions,
            coef=screened.coef,
        )
        self.candidates.append(candidate)
        self.told(candidate)
        return candidate
