"""The search: which encoding, kernel, metric, length scale and penalty suit a sample of the rows.

The metric is a scale for each column, learnt from the gradient of a fit: columns along which the learnt function
changes much are stretched, others shrink (Radhakrishnan et al., Science 2024); or a matrix, if y depends on few
combinations of the columns. Every candidate is an exact fit of the sample, some tenths of a second each, and is judged
by rows from whose targets neither its coefficients nor its metric were learnt: with several splits, each has a metric
of its own. A metric judged by rows it was learnt from looks better the more it follows their noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..estimators._metric_rounds import root_metric, under
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
_FULL_COLUMNS = 64  # whose pairs a matrix has a number for
_RIDGE_WORTH = 1e-3  # of the error, that a ridge twice as large is worth
_CLOSE_TO_MIX = 1.15  # a matrix can gain more than other choices
_REFINED = 4  # candidates whose metric is learnt on more rows
_EARLIER = 2  # candidates of which an earlier round is looked at again, too
_FULL_STARTS = 2  # candidates from which a matrix is learnt


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


class Kind(NamedTuple):
    """The encoding, the kernel and the target of a candidate."""

    view: int
    family: Family
    target: Target


@dataclass(frozen=True)
class Candidate:
    """What was tried, and how well it did.

    Attributes
    ----------
    view : position of the encoding
    family : Family
    target : Target
    round : how often the metric was learnt
    metric : array of shape (d,) or (d, d)
        What columns or rows are multiplied with: the mean of those of the splits.
    metrics : list of such arrays, one for each split
    lengths : list of float, the length scale of each split
    factor : float, their unit is half the typical distance
    mu : the ridge: the penalty times the number of rows
    error : root mean squared error of rows that were held out, in deviations of y
    seconds : float
    predictions : array of shape (n, k)
        Of rows that were held out.
    coefs : list of arrays of shape (m, k), one for each split
    """

    view: int
    family: Family
    target: Target
    round: int
    metric: Array
    metrics: list[Array]
    lengths: list[float]
    factor: float
    mu: float
    error: float
    seconds: float
    predictions: Array
    coefs: list[Array]

    @property
    def kind(self) -> Kind:
        """What does not change when its metric is learnt again."""
        return Kind(self.view, self.family, self.target)

    @property
    def kernel(self) -> Kernel:
        """The kernel, with a length scale for each column; if the metric is a matrix, of rows multiplied with it."""
        return self.family.kernel(_scales(self.metric), float(np.mean(self.lengths)))

    @property
    def mixing(self) -> Array | None:
        """What rows are multiplied with, None if nothing."""
        return self.metric if self.metric.ndim == 2 else None


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
    mixes : bool
        Whether `run` tries matrices, too.

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
        mixes: bool = True,
    ) -> None:
        self.views = views
        self.sample = sample
        self.targets = targets
        self.clock = clock
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.told = told
        self.least_ridge = least_ridge
        self.mixes = mixes
        self.candidates: list[Candidate] = []

    def run(self) -> None:
        """Try what is worth most first."""
        with suppress(OutOfTimeError):
            self._run()

    def refine(self, found: list[Candidate]) -> None:
        """Try again what a search has found on fewer rows, and learn their metrics anew."""
        with suppress(OutOfTimeError):
            again = [self._again(candidate) for candidate in found]
            for candidate in sorted(again, key=_rank)[:_REFINED]:
                self._rounds(candidate, explore=False)
            self._mix()
            self._explore(self.best.view, self.best.family, self.best, self.best.target)

    @property
    def finalists(self) -> list[Candidate]:
        """The best candidate of each encoding, kernel, kind of metric and target, the best first."""
        best: dict[Any, Candidate] = {}
        for candidate in self.candidates:
            key = (candidate.view, candidate.family.name, candidate.metric.ndim, candidate.target.name)
            if key not in best or _rank(candidate) < _rank(best[key]):
                best[key] = candidate
        return sorted(best.values(), key=_rank)

    def shortlist(self, most: int) -> list[Candidate]:
        """Return what is worth another look: the best finalists, and of the first ones an earlier round too.

        With each round columns that matter little on few rows count less, in the metric and so in all that is learnt
        under it. On more rows they may be worth something.
        """
        first, *others = self.finalists  # the best is worth it, also where its error is 0
        close = [first, *(one for one in others if one.error < _CLOSE * first.error)][:most]
        for late in close[:_EARLIER]:
            alike = [one for one in self.candidates if one.kind[1:] == late.kind[1:]]  # of any encoding
            earlier = [one for one in alike if one.round < late.round and one.error < _CLOSE * late.error]
            close += [min(earlier, key=_rank)] if earlier else []
        return close

    def _run(self) -> None:
        # what is learnt in the place of y matters more than all else where y is skewed
        tries = [self._rounds(self._explore(0, LAPLACIAN_1, None, target)) for target in self.targets]
        rough = {0: min(tries, key=_rank)}
        smooth = {0: self._rounds(self._explore(0, MATERN, rough[0]))}
        for view in range(1, len(self.views)):
            known = self.views[view].like
            first = self._explore(view, LAPLACIAN_1, None if known is None else rough[known], rough[0].target)
            rough[view] = self._rounds(first)
            if rough[view].error < _CLOSE * self.best.error or first.error < _CLOSE * rough[0].error:
                start = rough[view] if known is None else smooth[known]
                smooth[view] = self._rounds(self._explore(view, MATERN, start))
        found = self.best
        for target in self.targets:
            if target is found.target:
                continue
            for family in (found.family, MATERN if found.family is LAPLACIAN_1 else LAPLACIAN_1):
                start = min(self._of(found.view, family), key=_rank, default=found)
                if self._explore(found.view, family, start, target).error > _CLOSE * found.error:
                    break
        best = self.best
        for family in (LAPLACIAN, GAUSSIAN):
            start = min(self._of(best.view, MATERN), key=_rank, default=best)
            self._explore(best.view, family, start, best.target)
        if self.mixes:
            self._mix()

    @property
    def best(self) -> Candidate:
        """The candidate with the least error so far."""
        return min(self.candidates, key=_rank)

    def _of(self, view: int, family: Family) -> Iterable[Candidate]:
        return (one for one in self.candidates if one.view == view and one.family is family)

    def _again(self, candidate: Candidate) -> Candidate:
        """Try a candidate of another search."""
        metrics = [candidate.metric] * len(self.sample.splits)
        return self._try(candidate.kind, candidate.round, metrics, candidate.factor, candidate.mu * _NEAR)

    def _explore(self, view: int, family: Family, start: Candidate | None, target: Target | None = None) -> Candidate:
        """Try length scales, twice or half of the best one as long as that helps."""
        d, times = self.views[view].X.shape[1], len(self.sample.splits)
        metrics = [np.ones(d)] * times if start is None else start.metrics
        ridges = _RIDGES if start is None else start.mu * _NEAR
        same = start is not None and start.family is family
        factors = [start.factor] if same and start is not None else list(family.factors)
        target = (self.targets[0] if start is None else start.target) if target is None else target
        return self._line(Kind(view, family, target), 0 if start is None else start.round, metrics, factors, ridges)

    def _line(self, kind: Kind, number: int, metrics: list[Array], factors: list[float], ridges: Array) -> Candidate:
        tried: dict[float, Candidate] = {}
        while factors:
            factor = factors.pop(0)
            tried[factor] = self._try(kind, number, metrics, factor, ridges)
            best = min(tried.values(), key=_rank)
            ridges = best.mu * _NEAR if len(tried) > 1 else ridges
            if not factors and len(tried) < _MOST_FACTORS:
                near = (best.factor / 2, best.factor * 2)
                factors = [c for c in near if c not in tried and _FEWEST <= c <= _MOST][:1]
        return best

    def _rounds(self, best: Candidate, explore: bool = True) -> Candidate:
        """Learn the metric again and again, as long as that helps; `explore` says whether to try other lengths too."""
        last = best
        for _ in range(_ROUNDS):
            metrics = self._learn(last, full=last.metric.ndim == 2)
            attempt = (last.kind, last.round + 1, metrics)
            found = (
                self._line(*attempt, [last.factor], last.mu * _NEAR)
                if explore
                else self._try(*attempt, last.factor, last.mu * _NEAR)
            )
            gained = found.error < _GAIN * best.error
            best = min(best, found, key=_rank)
            if not gained:
                break
            last = found
        return best

    def _mix(self) -> None:
        """Learn a matrix from the best smooth candidates: one round, since further ones follow noise."""
        smooth = [
            one
            for one in self.finalists
            if one.family is not LAPLACIAN_1 and one.metric.ndim == 1 and len(one.metric) <= _FULL_COLUMNS
        ]
        for candidate in [one for one in smooth if one.error < _CLOSE_TO_MIX * self.best.error][:_FULL_STARTS]:
            metrics = self._learn(candidate, full=True)
            self._try(candidate.kind, candidate.round + 1, metrics, candidate.factor, candidate.mu * _NEAR)

    def _learn(self, candidate: Candidate, full: bool) -> list[Array]:
        """Return a metric for each split, from the gradient of its fit at rows that it holds out.

        It is the root of the mean squared derivatives, relative to the largest.
        """
        rows = self._mixed(candidate.view, candidate.metrics)
        metrics = []
        for split, old, length, coef, Z in zip(
            self.sample.splits, candidate.metrics, candidate.lengths, candidate.coefs, rows, strict=True
        ):
            some = split.held[: int(np.clip(_SIGNS / (len(split.learnt) * Z.shape[1]), 50, 1000))]
            kernel = candidate.family.kernel(_scales(old), length)
            squares = mean_square_gradient(kernel, Z[some], Z[split.learnt], coef, full=full, n_jobs=self.n_jobs)
            squares = old @ squares @ old if old.ndim == 2 else squares
            known = np.isfinite(squares).all() and squares.any()
            same = np.diag(old) if full and old.ndim == 1 else old  # the same scales as a matrix, as other splits have
            metrics.append(root_metric(squares, _FLOOR) if known else same)
        return metrics

    def _mixed(self, view: int, metrics: list[Array]) -> list[Array]:
        """Return the sample's rows for each split, multiplied with its metric if that is a matrix."""
        X = self.views[view].X
        return [X if metric.ndim == 1 else under(metric, X) for metric in metrics]

    def _try(self, kind: Kind, number: int, metrics: list[Array], factor: float, ridges: Array) -> Candidate:
        if self.candidates and self.clock.left <= 0:
            raise OutOfTimeError
        began = time.perf_counter()
        view, family, target = kind
        own = replace(self.sample, targets=target.learnt(self.sample.targets))
        rows = self._mixed(view, metrics)
        lengths = [family.typical(Z, _scales(metric)) * factor for Z, metric in zip(rows, metrics, strict=True)]
        kernels = [family.kernel(_scales(metric), length) for metric, length in zip(metrics, lengths, strict=True)]
        ridges = np.unique(np.maximum(ridges, self.least_ridge))
        screened = screen(kernels, rows, own, ridges, random_state=self.random_state, n_jobs=self.n_jobs)
        predictions = target.restored(screened.predictions)
        candidate = Candidate(
            view=view,
            family=family,
            target=target,
            round=number,
            metric=np.mean(metrics, axis=0),
            metrics=metrics,
            lengths=lengths,
            factor=factor,
            mu=screened.mu,
            error=float(np.sqrt(squared_error(predictions, self.sample))),
            seconds=time.perf_counter() - began,
            predictions=predictions,
            coefs=screened.coefs,
        )
        self.candidates.append(candidate)
        self.told(candidate)
        return candidate


def _rank(candidate: Candidate) -> float:
    """Return the error, a little more for small ridges: of two that err alike, the other takes fewer iterations."""
    return candidate.error * (1 - _RIDGE_WORTH * float(np.log2(candidate.mu)))


def _scales(metric: Array) -> Array:
    """Return the scales that a kernel has: of a matrix, by which rows are multiplied before, ones."""
    return metric if metric.ndim == 1 else np.ones(len(metric))
