"""Tuning by gradients: length scales, the penalty and centers that minimise a smooth objective.

A few parameters are found by L-BFGS. With the centers there are thousands, for which Adam gains more in each
evaluation, and can evaluate the objective on other rows in each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ..kernels import Kernel
from ..solvers.objectives import Slopes, TuningProblem, slopes_of, validation_slopes

Array = NDArray[Any]
Watch = Callable[[dict[str, Any]], bool]
Keep = Callable[["Tuned", int], None]

_FARTHEST = np.log(1e4)  # how far the logarithm of a parameter may move
_FARTHEST_MU = np.log(1e6)
_RATE = 0.1  # of Adam, in logarithms of parameters and in standard deviations of features
_DECAYS = (0.7, 0.99)  # of Adam's moments: short, since there are few steps (kin40k, protein_raw)


@dataclass(frozen=True)
class TuningSettings:
    """How the objective is minimised.

    objective : "evidence", "complexity" or "validation"
    of_centers : whether centers are tuned, by Adam
    max_iter : largest number of iterations
    batch : rows that each step of Adam draws; None is all
    before, after : iterations of the stages before and after this one; in the second half of all iterations, Adam takes
        shorter and shorter steps
    seed : from which rows are drawn
    """

    objective: str
    of_centers: bool
    max_iter: int
    batch: int | None = None
    before: int = 0
    after: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Tuned:
    """The parameters found so far.

    kernel, mu, centers : parameters; mu = penalty * n
    value : the objective
    history : records of all iterations
    moments : first and second moments of Adam, or None
    steps : iterations of Adam that these are of
    is_stopped : whether a callback has stopped the search
    found : the logarithms that the parameters of the kernel and mu were computed from, with which a search goes on:
        logarithms of the parameters differ from them by rounding. None before the first iteration
    """

    kernel: Kernel
    mu: float
    centers: Array
    value: float
    history: list[dict[str, Any]]
    moments: Array | None = None
    steps: int = 0
    is_stopped: bool = False
    found: Array | None = None

    def logarithms(self) -> Array:
        """Return the logarithms of the parameters of the kernel, followed by that of mu."""
        if self.found is not None:
            return self.found
        return np.append(self.kernel.log_parameters(self.centers.shape[1]), np.log(self.mu))


class _Search:
    """An objective as a function of one vector: logarithms of parameters and of mu, and centers, standardised."""

    def __init__(
        self, problem: TuningProblem, held: TuningProblem | None, start: Tuned, settings: TuningSettings, watch: Watch
    ) -> None:
        self.problem, self.held, self.start, self.settings, self.watch = problem, held, start, settings, watch
        self.d, self.M = problem.X.shape[1], len(start.centers)
        self.unit = problem.X.std(axis=0) + 1e-300
        self.p = len(start.logarithms()) - 1
        self.x0 = self.vector(start)
        self.reach = np.full(len(self.x0), np.inf)
        self.reach[: self.p], self.reach[self.p] = _FARTHEST, _FARTHEST_MU
        self.history, self.began, self.evaluations = list(start.history), time.perf_counter(), 0

    def vector(self, tuned: Tuned) -> Array:
        """Return the vector of parameters that were found."""
        moved = [(tuned.centers / self.unit).ravel()] if self.settings.of_centers else []
        return np.concatenate([tuned.logarithms(), *moved])

    def at(self, x: Array) -> tuple[Kernel, float, Array]:
        """Return kernel, mu and centers."""
        moved = self.settings.of_centers
        centers = x[self.p + 1 :].reshape(self.M, self.d) * self.unit if moved else self.start.centers
        return self.start.kernel.with_log_parameters(x[: self.p], self.d), float(np.exp(x[self.p])), centers

    def evaluate(self, x: Array, problem: TuningProblem) -> tuple[float, Array]:
        """Return the objective and its gradient, divided by n so that steps do not depend on the number of rows."""
        self.evaluations += 1
        kernel, mu, centers = self.at(x)
        slopes = self._slopes(kernel, centers, mu, problem)
        moved = [] if slopes.centers is None else [(slopes.centers * self.unit).ravel()]
        gradient = np.concatenate([slopes.theta, [slopes.log_mu], *moved])
        scale = self.scale(problem)
        return slopes.value / scale, gradient / scale

    def scale(self, problem: TuningProblem) -> float:
        """Return how many rows the objective is a sum over."""
        return 1.0 if self.settings.objective == "validation" else max(1.0, float(len(problem.X)))

    def _slopes(self, kernel: Kernel, Z: Array, mu: float, problem: TuningProblem) -> Slopes:
        of_centers, objective = self.settings.of_centers, self.settings.objective
        if objective == "validation":
            assert self.held is not None
            return validation_slopes(kernel, Z, mu, problem, self.held, of_centers=of_centers)
        return slopes_of(objective, kernel, Z, mu, problem, of_centers=of_centers, fast=of_centers)

    def record(self, x: Array, value: float, problem: TuningProblem) -> bool:
        """Note an iteration, and return whether a callback wants to stop."""
        record = {
            "iteration": len(self.history) + 1,
            "rows": len(problem.X),
            "objective": value * self.scale(problem),
            "penalty": float(np.exp(x[self.p])) / max(1.0, float(len(problem.X))),
            "residual": None,
            "passes": self.evaluations,
            "seconds": time.perf_counter() - self.began,
        }
        self.history.append(record)
        return self.watch(record)

    def tuned(self, x: Array, value: float, moments: Array | None = None, steps: int = 0) -> Tuned:
        """Return the parameters of a vector."""
        kernel, mu, centers = self.at(x)
        value, history = value * self.scale(self.problem), list(self.history)
        return Tuned(kernel, mu, centers, value, history, moments, steps, found=x[: self.p + 1].copy())


def tune_on(
    problem: TuningProblem,
    held: TuningProblem | None,
    start: Tuned,
    settings: TuningSettings,
    watch: Watch,
    keep: Keep = lambda tuned, done: None,
    done: int = 0,
) -> Tuned:
    """Minimise the objective on a problem.

    Parameters
    ----------
    problem : TuningProblem
    held : TuningProblem, optional
        Held-out rows, for the objective "validation".
    start : Tuned
        Where to begin; its history is continued.
    settings : TuningSettings
    watch : callable
        Is shown the record of each iteration, and stops the search if it returns True.
    keep : callable
        Is given the parameters after each iteration and the number of iterations of this call.
    done : int
        Iterations of this call that were made before.
    """
    search = _Search(problem, held, start, settings, watch)
    if settings.max_iter <= done:
        return start
    return (_adam if settings.of_centers else _lbfgs)(search, keep, done)


def _lbfgs(search: _Search, keep: Keep, done: int) -> Tuned:
    latest: dict[bytes, float] = {}
    is_stopped = False

    def evaluate(x: Array) -> tuple[float, Array]:
        value, gradient = search.evaluate(x, search.problem)
        latest[x.tobytes()] = value
        return value, gradient

    def each(x: Array) -> None:
        nonlocal done, is_stopped
        value = latest.get(x.tobytes(), np.nan)
        latest.clear()
        done += 1
        is_stopped = search.record(x, value, search.problem)
        keep(search.tuned(x, value), done)
        if is_stopped:
            raise StopIteration

    found = minimize(
        evaluate,
        search.x0,
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([search.x0 - search.reach, search.x0 + search.reach], axis=1),
        callback=each,
        options={"maxiter": search.settings.max_iter - done, "ftol": 1e-7, "gtol": 1e-6},
    )
    return replace(search.tuned(found.x, float(found.fun)), is_stopped=is_stopped)


def _adam(search: _Search, keep: Keep, done: int) -> Tuned:
    settings, x = search.settings, search.x0.copy()
    low, high = search.x0 - search.reach, search.x0 + search.reach
    moments = np.zeros((2, len(x))) if search.start.moments is None else search.start.moments.copy()
    tuned, n = search.start, len(search.problem.X)
    for step in range(done, settings.max_iter):
        total = tuned.steps + 1
        problem = search.problem
        if settings.batch is not None and settings.batch < n:
            # other rows in each step, by its number, so that a search that was interrupted draws the same
            drawn = np.random.RandomState((settings.seed + total) % 2**32).permutation(n)[: settings.batch]
            problem = search.problem.subset(np.sort(drawn))
        value, gradient = search.evaluate(x, problem)
        for moment, decay, power in zip(moments, _DECAYS, (1, 2), strict=True):
            moment *= decay
            moment += (1 - decay) * gradient**power
        first, second = (moment / (1 - decay**total) for moment, decay in zip(moments, _DECAYS, strict=True))
        left = 1 - (settings.before + step + 1) / (settings.before + settings.max_iter + settings.after + 1)
        x = np.clip(x - _RATE * min(1.0, 2 * left) * first / (np.sqrt(second) + 1e-8), low, high)
        is_stopped = search.record(x, value, problem)
        tuned = replace(search.tuned(x, value, moments.copy(), total), is_stopped=is_stopped)
        keep(tuned, step + 1)
        x = search.vector(tuned)  # as a search that was interrupted here begins, to the last bit
        if is_stopped:
            break
    return tuned
