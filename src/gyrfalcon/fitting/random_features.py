"""Least squares on random features: the other way of not storing a kernel matrix."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import integer, one_of, optional
from .._utils.compute import Compute
from .._utils.memory import parse_memory
from .._utils.ranges import power_of_two
from .._utils.sampling import sample_rows
from ..kernels import Kernel, KernelFunction
from ..kernels.features import FeatureMap
from ..operators import feature_operator
from ..preconditioners import FeatureCoordinates
from ..solvers import Iterate, block_descent, normal_equations, solve_ridge, stochastic_gradient
from ..sources.columns import Column
from .convergence import tolerance, warn_if_unsettled
from .data import FitData
from .descent import block_bounds
from .kernel import fitted_kernel
from .parameters import STEP
from .plan import check_memory
from .session import Session, Solution

Array = NDArray[Any]

_SMALLEST_BATCH = 256  # least number of rows of a mini-batch where the user gives none
_WORTH_THREADS = 1 << 20  # least number of features of a batch, over all its rows, for which threads pay off

RULES = {
    "n_components": integer(1),
    "solver": one_of("direct", "sgd", "bcd"),
    "step": STEP,
    "batch_size": optional(integer(1)),
    "block_size": optional(integer(1)),
}


@dataclass(frozen=True)
class FeatureSettings:
    """The parameters of least squares on random features.

    solver : "direct", "sgd" or "bcd"
    max_iter : number of epochs of "sgd", or of sweeps of "bcd"
    step, batch_size : step length of "sgd", and number of rows in a mini-batch or None
    power_t, average : how fast steps become shorter, and whether coefficients are averaged over them
    block_size : number of coefficients in a block of "bcd", or None
    """

    solver: str
    max_iter: int
    step: float | str | None
    power_t: float
    average: bool
    batch_size: int | None
    block_size: int | None


@dataclass(frozen=True)
class FeatureProblem:
    """Ridge regression on drawn features.

    kernel, features : the kernel, and the features that were drawn from it
    targets, scale : targets divided by powers of two that bring them near 1, and these powers
    """

    penalty: float
    kernel: Kernel
    features: FeatureMap
    data: FitData
    targets: Array
    scale: Array
    compute: Compute

    def draw(self, n_components: int, random_state: np.random.RandomState) -> FeatureMap:
        """Return further features of the kernel."""
        rows = self.data.rows
        return self.kernel.random_features(n_components, rows.shape[1], random_state).astype(rows.dtype)

    @property
    def validation_error(self) -> Callable[[FeatureMap, Array], float] | None:
        """The function that gives the validation error of features and coefficients; None without validation rows."""
        data, n_jobs, device = self.data, self.compute.n_jobs, self.compute.device
        if data.validation is None:
            return None
        rows = data.validation.rows
        return lambda features, coef: data.validation_error(
            feature_operator(features, rows, n_jobs=n_jobs, device=device).matmat(coef)
        )

    def run(self, iterates: Iterator[Iterate], session: Session, max_iter: int) -> Solution[Iterate]:
        """Run a solver for the coefficients of the features, with the validation error of each iterate."""
        return session.run(
            iterates,
            self.data,
            kind=Iterate,
            max_iter=max_iter,
            watch=_validation_watch(self),
            scale=self.scale,
            n_components=len(self.features),
        )


def feature_problem(
    kernel: Kernel | str | KernelFunction,
    n_components: int,
    penalty: float,
    data: FitData,
    compute: Compute,
    random_state: np.random.RandomState,
    *,
    orthogonal: bool = False,
) -> FeatureProblem:
    """Resolve the kernel, and draw its features."""
    rows, weight = data.rows, data.weight
    sample = sample_rows(rows.shape[0], random_state, weight)
    found = fitted_kernel(kernel, data, rows.take(sample), None if weight is None else weight[sample])
    found.check_precision(rows.dtype)
    features = found.random_features(n_components, rows.shape[1], random_state, orthogonal).astype(rows.dtype)
    scale = power_of_two(data.targets, axis=0)
    targets: Any = data.targets
    targets = targets.over(scale) if isinstance(targets, Column) else targets / scale
    targets = targets.astype(rows.dtype, copy=False)
    return FeatureProblem(penalty, found, features, data, targets, scale, compute)


def batch_rows(batch_size: int | None, n: int) -> int:
    """Return the number of rows of a mini-batch: the one that is given, or sqrt(n) and at least 256."""
    return max(_SMALLEST_BATCH, math.isqrt(n)) if batch_size is None else int(batch_size)


def solve(settings: FeatureSettings, problem: FeatureProblem, session: Session) -> Solution[Iterate]:
    """Learn the coefficients of the features."""
    rows = problem.data.rows
    if settings.solver == "direct":
        iterates, epochs = _direct(problem), 1
    elif settings.solver == "bcd":
        iterates, epochs = _bcd(problem, settings.block_size, settings.max_iter), settings.max_iter
    else:
        iterates, epochs = _sgd(problem, settings, session.random_state), settings.max_iter
    solution = problem.run(iterates, session, epochs)
    if settings.solver == "bcd" and not solution.stopped:
        warn_if_unsettled(
            solution.last,
            tol=None,
            reached=tolerance(None, rows.dtype),
            steps="sweeps",
            remedy=f'raise max_iter={settings.max_iter}, block_size or the penalty, or use solver="direct"',
        )
    return solution


def _direct(problem: FeatureProblem) -> Iterator[Iterate]:
    """Add up the normal equations in one pass, and solve them."""
    began = time.perf_counter()
    coef, k = ridge_on_features(problem, problem.features, ', or solver="sgd"'), problem.targets.shape[1]
    yield Iterate(
        iteration=1,
        residual=0.0,
        residuals=np.zeros(k),
        seconds=time.perf_counter() - began,
        passes=1,
        converged=True,
        step=np.zeros(k),
        ratio=np.zeros(k),
        _coef=lambda: coef,
    )


def ridge_on_features(
    problem: FeatureProblem, features: FeatureMap, remedy: str = "", at: Array | None = None
) -> Array:
    """Return the coefficients of some features of all rows, or of those at increasing positions `at`.

    remedy : the end of the message if the normal equations do not fit in memory
    """
    data, n_jobs, M = problem.data, problem.compute.n_jobs, len(features)
    rows, targets, weight = data.rows, problem.targets, data.weight
    if at is not None:
        rows, targets, weight = rows.subset(at), targets[at], None if weight is None else weight[at]
    check_memory(
        problem.compute.memory_budget,
        {"normal equations": 8 * M * M},
        f"the {M} x {M} normal equations take",
        lambda limit: f"n_components={math.isqrt(limit // 8)} would fit{remedy}",
    )
    operator = feature_operator(features, rows, n_jobs=n_jobs, device=problem.compute.device)
    G, c = normal_equations(operator, targets, weight, n_jobs=n_jobs)
    return solve_ridge(G, c, problem.penalty * rows.shape[0])


def _bcd(problem: FeatureProblem, block_size: int | None, max_iter: int) -> Iterator[Iterate]:
    """Solve for blocks of coefficients in turn."""
    data, n_jobs = problem.data, problem.compute.n_jobs
    bounds = block_bounds(len(problem.features), block_size)
    check_memory(
        problem.compute.memory_budget,
        {"factors": 8 * sum((stop - start) ** 2 for start, stop in bounds)},
        f"the factors of {len(bounds)} blocks take",
        f'a block_size of less than {bounds[0][1]} takes less, or solver="sgd"',
    )
    device = problem.compute.device
    return block_descent(
        [feature_operator(problem.features.columns(*at), data.rows, n_jobs=n_jobs, device=device) for at in bounds],
        problem.targets,
        None,
        problem.penalty,
        max_iter=max_iter,
        tol=tolerance(None, data.rows.dtype),
        weight=data.weight,
        n_jobs=n_jobs,
    )


def _sgd(problem: FeatureProblem, settings: FeatureSettings, random_state: np.random.RandomState) -> Iterator[Iterate]:
    """Pass over the rows in mini-batches."""
    data, n, M = problem.data, problem.data.rows.shape[0], len(problem.features)
    batch_size = batch_rows(settings.batch_size, n)
    # a small batch is done before a second thread has started
    n_jobs = 1 if batch_size * M < _WORTH_THREADS else problem.compute.n_jobs
    step: Any = settings.step
    return stochastic_gradient(
        feature_operator(problem.features, data.rows, n_jobs=n_jobs, device=problem.compute.device),
        problem.targets,
        FeatureCoordinates(n, M),
        problem.penalty,
        step=step,
        batch_size=batch_size,
        max_iter=settings.max_iter,
        power=float(settings.power_t),
        average=bool(settings.average),
        random_state=random_state,
        weight=data.weight,
    )


def _validation_watch(problem: FeatureProblem) -> Callable[[Array], float] | None:
    """Return the function that gives the validation error of coefficients, or None without validation rows."""
    data, compute = problem.data, problem.compute
    if data.validation is None:
        return None
    budget = parse_memory(compute.memory_budget)
    operator = feature_operator(
        problem.features, data.validation.rows, n_jobs=compute.n_jobs, memory_budget=budget, device=compute.device
    )
    return lambda coef: data.validation_error(operator.matmat(coef))


def check_loaded_map(kernel: Any, features: Any, n_features: int) -> None:
    """Raise ValueError if a kernel and its features that come from a model file do not fit together."""
    if not isinstance(kernel, Kernel) or not isinstance(features, FeatureMap):
        raise ValueError("kernel_ is not a kernel, or feature_map_ is not a FeatureMap")
    features.check(n_features)


def check_loaded_features(kernel: Any, features: Any, coef: Array, n_features: int) -> None:
    """Raise ValueError if features and their coefficients that come from a model file do not fit together."""
    check_loaded_map(kernel, features, n_features)
    if coef.ndim not in (1, 2) or len(coef) != len(features) or coef.dtype.kind != "f":
        raise ValueError(f"feature_coef_ of shape {coef.shape} does not fit {features!r}")
    if not np.isfinite(coef).all():
        raise ValueError("feature_coef_ holds NaN or infinity")
