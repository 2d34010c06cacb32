"""Tuning by gradients: length scales, the penalty and centers that minimise a smooth objective, by L-BFGS."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ..kernels import Kernel
from ..solvers.objectives import Slopes, TuningProblem, slopes_of, validation_slopes

Array = NDArray[Any]
Watch = Callable[[dict[str, Any]], bool]

_FARTHEST = np.log(1e4)  # how far the logarithm of a parameter may move
_FARTHEST_MU = np.log(1e6)


@dataclass(frozen=True)
class TuningSettings:
    """objective; whether centers are tuned; the largest number of iterations of L-BFGS."""

    objective: str
    of_centers: bool
    max_iter: int


@dataclass(frozen=True)
class Tuned:
    """The best parameters found so far: kernel, mu = penalty * n, centers, the objective; records of all iterations."""

    kernel: Kernel
    mu: float
    centers: Array
    value: float
    history: list[dict[str, Any]]


def tune_on(
    problem: TuningProblem, held: TuningProblem | None, start: Tuned, settings: TuningSettings, watch: Watch
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
    """
    d, M = problem.X.shape[1], len(start.centers)
    theta, unit = start.kernel.log_parameters(d), problem.X.std(axis=0) + 1e-300
    p, size = len(theta), max(1.0, float(len(problem.X)))
    history, began = list(start.history), time.perf_counter()
    evaluations, latest = 0, {}

    def at(x: Array) -> tuple[Kernel, float, Array]:
        centers = x[p + 1 :].reshape(M, d) * unit if settings.of_centers else start.centers
        return start.kernel.with_log_parameters(x[:p], d), float(np.exp(x[p])), centers

    def evaluate(x: Array) -> tuple[float, Array]:
        nonlocal evaluations
        evaluations += 1
        kernel, mu, centers = at(x)
        slopes = _slopes(settings, kernel, centers, mu, problem, held)
        moved = [] if slopes.centers is None else [(slopes.centers * unit).ravel()]
        gradient = np.concatenate([slopes.theta, [slopes.log_mu], *moved])
        latest[x.tobytes()] = slopes.value
        # divided by n, so that steps and tolerances do not depend on the number of rows
        scale = 1.0 if settings.objective == "validation" else size
        return slopes.value / scale, gradient / scale

    def each(x: Array) -> None:
        record = {
            "iteration": len(history) + 1,
            "rows": len(problem.X),
            "objective": latest.get(x.tobytes(), np.nan),
            "penalty": float(np.exp(x[p])) / size,
            "residual": None,
            "passes": evaluations,
            "seconds": time.perf_counter() - began,
        }
        history.append(record)
        latest.clear()
        if watch(record):
            raise StopIteration

    first = [(start.centers / unit).ravel()] if settings.of_centers else []
    x0 = np.concatenate([theta, [np.log(start.mu)], *first])
    reach = np.full(len(x0), np.inf)
    reach[:p], reach[p] = _FARTHEST, _FARTHEST_MU
    found = minimize(
        evaluate,
        x0,
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([x0 - reach, x0 + reach], axis=1),
        callback=each,
        options={"maxiter": settings.max_iter, "ftol": 1e-7, "gtol": 1e-6},
    )
    kernel, mu, centers = at(found.x)
    scale = 1.0 if settings.objective == "validation" else size
    return Tuned(kernel, mu, centers, float(found.fun) * scale, history)


def _slopes(
    settings: TuningSettings, kernel: Kernel, Z: Array, mu: float, problem: TuningProblem, held: TuningProblem | None
) -> Slopes:
    if settings.objective == "validation":
        assert held is not None
        return validation_slopes(kernel, Z, mu, problem, held, of_centers=settings.of_centers)
    return slopes_of(settings.objective, kernel, Z, mu, problem, of_centers=settings.of_centers)
