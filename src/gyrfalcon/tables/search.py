"""The search: which encoding, kernel, metric, length scale and penalty suit a sample of the rows.

The metric is a scale for each column, learnt from the gradient of a fit: columns along which the learnt function
changes much are stretched, others shrink (Radhakrishnan et al., Science 2024); or a matrix, if y depends on few
combinations of the columns. Every candidate is an exact fit of the sample, which takes some tenths of a second, and is
judged by rows from whose targets neither its coefficients nor its metric were learnt: with several splits, each has a
metric of its own. A metric judged by rows it was learnt from looks better the more it follows their noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from ..estimators._metric_rounds import root_metric, under
from ..kernels import Gaussian, Kernel, Laplacian, Matern
from ..operators import mean_square_gradient
from .budget import Budget
from .screening import SearchSample, screen, squared_error
from .transforms import Target

Array = NDArray[Any]

_RIDGES = np.array([0.01, 0.06, 0.35, 2.0, 12.0])  # first ridges to try: penalties times the number of rows
_NEAR = np.array([0.2, 1.0, 5.0])  # ridges of later candidates, relative to that of the candidate before
_FEWEST, _MOST = 1 / 16, 64.0  # range of length scales, in units of half the typical distance
_MOST_FACTORS = 5  # most length scales to try for one metric
_ROUNDS = 3  # most times that a metric is learnt again
_FLOOR = 1e-3  # least scale of a column relative to the largest, so that a column can become important again
_GAIN = 0.995  # learning a metric again ends when the error does not fall below this times the last one
_CLOSE = 1.05  # candidates whose error is more than this times the best are not followed
_SIGNS = 3e8  # most rows x centers x columns of a gradient
_FULL_COLUMNS = 64  # most columns for which a matrix is learnt
_RIDGE_WORTH = 1e-3  # relative increase of the error that is accepted for a ridge twice as large
_CLOSE_TO_MIX = 1.15  # as _CLOSE, for learning a matrix, which can gain more than other choices
_REFINED = 4  # number of candidates whose metric is learnt again on the larger sample
_EARLIER = 2  # number of candidates for which an earlier round is tried on the larger sample, too
_FULL_STARTS = 2  # number of candidates from which a matrix is learnt


@dataclass(frozen=True)
class Family:
    """Kernels that differ in their length scales alone.

    name : the name in `candidates_`
    make : returns the kernel for given length scales
    factors : length scales to begin with, in units of half the typical distance between rows
    """

    name: str
    make: Callable[[Any], Kernel]
    factors: tuple[float, ...]

    def typical(self, X: Array, scales: Array) -> float:
        """Return half the typical distance between rows whose columns are multiplied by `scales`."""
        resolved: Any = self.make("scale").resolve((X * scales).astype(X.dtype, copy=False))
        return float(resolved.length_scale)

    def kernel(self, scales: Array, length: float) -> Kernel:
        """Return the kernel of columns multiplied by `scales` and divided by `length`."""
        return self.make(length / np.asarray(scales, dtype=np.float64))


LAPLACIAN_1 = Family("1-norm Laplacian", lambda length: Laplacian(length, norm=1), (1.0, 2.0))
MATERN = Family("Matern 3/2", lambda length: Matern(length, nu=1.5), (1.0, 2.0))
LAPLACIAN = Family("Laplacian", lambda length: Laplacian(length), (1.0, 2.0))
GAUSSIAN = Family("Gaussian", lambda length: Gaussian(length), (0.5, 1.0))


@dataclass(frozen=True)
class View:
    """One encoding of the sample.

    name : the name in `candidates_`
    like : position of another view with the same columns in the same order, whose metric is a good start
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
    """A combination that was tried, and its error.

    view : the position of the encoding
    round : number of times that the metric was learnt
    metric : scales of the columns, or a matrix by which rows are multiplied: the mean of `metrics`
    metrics, lengths : the metric and the length scale of each split
    factor : the length scale in units of half the typical distance
    mu : the ridge: the penalty times the number of rows
    error : root mean squared error of held-out rows, in standard deviations of y
    predictions, coefs : see `Screened`
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
        """The kernel, with a length scale for each column; for rows multiplied by the metric if that is a matrix."""
        return self.family.kernel(_scales(self.metric), float(np.mean(self.lengths)))

    @property
    def mixing(self) -> Array | None:
        """The matrix by which rows are multiplied, or None."""
        return self.metric if self.metric.ndim == 2 else None


class OutOfTimeError(Exception):
    """The search has used up its budget."""


@dataclass
class Search:
    """Candidates, tried one after another until none is left or there is no time left.

    sample : its targets are standardised y, or class codes
    targets : the ways to learn them; the first is y itself
    tell : called with each candidate
    least_ridge : smaller ridges are replaced by this one
    mixes : whether `run` tries matrices, too
    candidates : all that were tried, in their order
    """

    views: list[View]
    sample: SearchSample
    targets: list[Target]
    budget: Budget
    random_state: np.random.RandomState
    compute: Compute
    tell: Callable[[Candidate], None]
    least_ridge: float = 0.004
    mixes: bool = True
    candidates: list[Candidate] = field(default_factory=list)

    def run(self) -> None:
        """Try candidates, the most promising first, until the budget is used up."""
        with suppress(OutOfTimeError):
            # the choice between y and log y matters most where y is skewed
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
            self._try_other_targets(self.best)
            best = self.best
            for family in (LAPLACIAN, GAUSSIAN):
                self._explore(best.view, family, self._best_of(best.view, MATERN) or best, best.target)
            if self.mixes:
                self._mix()

    def refine(self, found: list[Candidate]) -> None:
        """Try again what a search on fewer rows has found, and learn the metrics of the best anew."""
        with suppress(OutOfTimeError):
            times = len(self.sample.splits)
            again = [self._try(one.kind, one.round, [one.metric] * times, one.factor, one.mu * _NEAR) for one in found]
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
        """Return candidates to try on more rows: the best finalists, and an earlier round of the first of them.

        With each round, columns that matter little on few rows count less in the metric. On more rows they may matter.
        """
        first, *others = self.finalists  # the best is included even if its error is 0
        close = [first, *(one for one in others if one.error < _CLOSE * first.error)][:most]
        for late in close[:_EARLIER]:
            alike = [one for one in self.candidates if one.kind[1:] == late.kind[1:]]  # of any encoding
            earlier = [one for one in alike if one.round < late.round and one.error < _CLOSE * late.error]
            close += [min(earlier, key=_rank)] if earlier else []
        return close

    def _try_other_targets(self, found: Candidate) -> None:
        """Try the other ways to learn y with the encoding and the kernels of the best candidate."""
        for target in self.targets:
            if target is found.target:
                continue
            for family in (found.family, MATERN if found.family is LAPLACIAN_1 else LAPLACIAN_1):
                start = self._best_of(found.view, family) or found
                if self._explore(found.view, family, start, target).error > _CLOSE * found.error:
                    break

    @property
    def best(self) -> Candidate:
        """The candidate with the least error so far."""
        return min(self.candidates, key=_rank)

    def _best_of(self, view: int, family: Family) -> Candidate | None:
        """Return the best candidate of an encoding and a kernel so far, None if there is none."""
        alike = (one for one in self.candidates if one.view == view and one.family is family)
        return min(alike, key=_rank, default=None)

    def _explore(self, view: int, family: Family, start: Candidate | None, target: Target | None = None) -> Candidate:
        """Try an encoding, a kernel and a target with the metric and the ridge of an earlier candidate."""
        d, times = self.views[view].X.shape[1], len(self.sample.splits)
        metrics = [np.ones(d)] * times if start is None else start.metrics
        ridges = _RIDGES if start is None else start.mu * _NEAR
        same = start is not None and start.family is family
        factors = [start.factor] if same and start is not None else list(family.factors)
        target = (self.targets[0] if start is None else start.target) if target is None else target
        return self._line(Kind(view, family, target), 0 if start is None else start.round, metrics, factors, ridges)

    def _line(self, kind: Kind, number: int, metrics: list[Array], factors: list[float], ridges: Array) -> Candidate:
        """Try length scales, then twice or half the best one as long as that lowers the error."""
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
        """Learn the metric again as long as that lowers the error; `explore`: try other length scales each time."""
        last = best
        for _ in range(_ROUNDS):
            metrics = self._learn_metrics(last, full=last.metric.ndim == 2)
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
            metrics = self._learn_metrics(candidate, full=True)
            self._try(candidate.kind, candidate.round + 1, metrics, candidate.factor, candidate.mu * _NEAR)

    def _learn_metrics(self, candidate: Candidate, full: bool) -> list[Array]:
        """Return a metric for each split, from the gradient of its fit at rows that it holds out.

        It is the root of the mean squared derivatives, relative to the largest.
        """
        rows = self._rows_under(candidate.view, candidate.metrics)
        metrics = []
        for split, old, length, coef, Z in zip(
            self.sample.splits, candidate.metrics, candidate.lengths, candidate.coefs, rows, strict=True
        ):
            some = split.held[: int(np.clip(_SIGNS / (len(split.train) * Z.shape[1]), 50, 1000))]
            kernel = candidate.family.kernel(_scales(old), length)
            squares = mean_square_gradient(kernel, Z[some], Z[split.train], coef, full=full, n_jobs=self.compute.n_jobs)
            squares = old @ squares @ old if old.ndim == 2 else squares
            known = np.isfinite(squares).all() and squares.any()
            same = np.diag(old) if full and old.ndim == 1 else old  # a matrix, as the other splits have
            metrics.append(root_metric(squares, _FLOOR) if known else same)
        return metrics

    def _rows_under(self, view: int, metrics: list[Array]) -> list[Array]:
        """Return the sample's rows for each split, multiplied by its metric if that is a matrix."""
        X = self.views[view].X
        return [X if metric.ndim == 1 else under(metric, X) for metric in metrics]

    def _try(self, kind: Kind, number: int, metrics: list[Array], factor: float, ridges: Array) -> Candidate:
        """Fit the sample; raise OutOfTimeError if the budget is used up, unless this is the first candidate."""
        if self.candidates and self.budget.left <= 0:
            raise OutOfTimeError
        began = time.perf_counter()
        view, family, target = kind
        own = replace(self.sample, targets=target.standard_forward(self.sample.targets))
        rows = self._rows_under(view, metrics)
        lengths = [family.typical(Z, _scales(metric)) * factor for Z, metric in zip(rows, metrics, strict=True)]
        kernels = [family.kernel(_scales(metric), length) for metric, length in zip(metrics, lengths, strict=True)]
        ridges = np.unique(np.maximum(ridges, self.least_ridge))
        screened = screen(kernels, rows, own, ridges, random_state=self.random_state, compute=self.compute)
        predictions = target.standard_inverse(screened.predictions)
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
        self.tell(candidate)
        return candidate


def _rank(candidate: Candidate) -> float:
    """Return the error, and a little more for small ridges, which take more iterations."""
    return candidate.error * (1 - _RIDGE_WORTH * float(np.log2(candidate.mu)))


def _scales(metric: Array) -> Array:
    """Return the scales of a kernel's columns: ones if the metric is a matrix, by which rows are multiplied."""
    return metric if metric.ndim == 1 else np.ones(len(metric))
