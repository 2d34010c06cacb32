"""Least squares on random features: the other way of not storing a kernel matrix."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import integer, one_of, optional
from .._utils.memory import format_bytes, parse_memory, require
from .._utils.ranges import power_of_two
from .._utils.sampling import sample_rows
from ..kernels import Kernel, KernelFunction
from ..kernels.features import FeatureMap
from ..operators import feature_operator
from ..preconditioners import FeatureCoordinates
from ..solvers import Iterate, block_descent, normal_equations, solve_ridge, stochastic_gradient
from .convergence import tolerance, warn_if_unsettled
from .data import FitData
from .descent import block_bounds
from .kernel import fitted_kernel
from .parameters import STEP
from .session import Session, Solution

Array = NDArray[Any]

_SMALLEST_BATCH = 256
_WORTH_THREADS = 1 << 20  # features of a batch

RULES = {
    "n_components": integer(1),
    "solver": one_of("direct", "sgd", "bcd"),
    "step": STEP,
    "batch_size": optional(integer(1)),
    "block_size": optional(integer(1)),
}


class FeatureParameters(Protocol):
    """An estimator on random features."""

    @property
    def kernel(self) -> Kernel | str | KernelFunction:
        """The kernel that the features stand for."""
        ...

    @property
    def n_components(self) -> int:
        """Number of features."""
        ...

    @property
    def orthogonal(self) -> bool:
        """Whether weights are orthogonal."""
        ...

    @property
    def solver(self) -> str:
        """ "direct", "sgd" or "bcd"."""
        ...

    @property
    def step(self) -> float | str:
        """Length of the steps of "sgd"."""
        ...

    @property
    def batch_size(self) -> int | None:
        """Rows of a mini-batch of "sgd"."""
        ...

    @property
    def block_size(self) -> int | None:
        """Coefficients of a block of "bcd"."""
        ...

    @property
    def max_iter(self) -> int:
        """Epochs of "sgd", sweeps of "bcd"."""
        ...

    @property
    def memory_budget(self) -> int | float | str:
        """Bytes that the fit may take."""
        ...

    @property
    def n_jobs(self) -> int | None:
        """Threads."""
        ...


def solve(
    model: FeatureParameters, penalty: float, data: FitData, session: Session
) -> tuple[Kernel, FeatureMap, Solution[Iterate]]:
    """Draw features, and learn their coefficients."""
    rows, weight = data.rows, data.weight
    sample = sample_rows(rows.shape[0], session.random_state, weight)
    kernel = fitted_kernel(model, data, rows.take(sample), None if weight is None else weight[sample])
    kernel.check_precision(rows.dtype)
    features = kernel.random_features(
        int(model.n_components), rows.shape[1], session.random_state, model.orthogonal
    ).astype(rows.dtype)
    scale = power_of_two(data.targets, axis=0)
    targets = (data.targets / scale).astype(rows.dtype, copy=False)
    if model.solver == "direct":
        iterates, epochs = _direct(model, penalty, features, data, targets), 1
    elif model.solver == "bcd":
        iterates, epochs = _bcd(model, penalty, features, data, targets), model.max_iter
    else:
        iterates, epochs = _sgd(model, penalty, features, data, targets, session.random_state), model.max_iter
    solution = session.run(
        iterates,
        data,
        kind=Iterate,
        max_iter=epochs,
        watch=_validation_watch(model, features, data),
        scale=scale,
        n_components=len(features),
    )
    if model.solver == "bcd" and not solution.stopped:
        warn_if_unsettled(
            solution.last,
            tol=None,
            reached=tolerance(None, rows.dtype),
            steps="sweeps",
            remedy=f'raise max_iter={model.max_iter}, block_size or the penalty, or use solver="direct"',
        )
    return kernel, features, solution


def _direct(
    model: FeatureParameters, penalty: float, features: FeatureMap, data: FitData, targets: Array
) -> Iterator[Iterate]:
    """Add up the normal equations in one pass, and solve them."""
    began = time.perf_counter()
    n, M, k = data.rows.shape[0], len(features), targets.shape[1]
    size = 8 * M * M
    what = f"the {M} x {M} normal equations take {format_bytes(size)}"
    require(
        model.memory_budget,
        size,
        what,
        lambda limit: f'n_components={math.isqrt(limit // 8)} would fit, or solver="sgd"',
    )
    operator = feature_operator(features, data.rows, n_jobs=model.n_jobs)
    G, c = normal_equations(operator, targets, data.weight, n_jobs=model.n_jobs)
    coef = solve_ridge(G, c, penalty * n)
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


def _bcd(
    model: FeatureParameters, penalty: float, features: FeatureMap, data: FitData, targets: Array
) -> Iterator[Iterate]:
    """Solve for blocks of coefficients in turn."""
    bounds = block_bounds(len(features), model.block_size)
    size = 8 * sum((stop - start) ** 2 for start, stop in bounds)
    what = f"the factors of {len(bounds)} blocks take {format_bytes(size)}"
    require(model.memory_budget, size, what, f'a block_size of less than {bounds[0][1]} takes less, or solver="sgd"')
    return block_descent(
        [feature_operator(features.columns(*at), data.rows, n_jobs=model.n_jobs) for at in bounds],
        targets,
        None,
        penalty,
        max_iter=model.max_iter,
        tol=tolerance(None, data.rows.dtype),
        weight=data.weight,
        n_jobs=model.n_jobs,
    )


def _sgd(
    model: FeatureParameters,
    penalty: float,
    features: FeatureMap,
    data: FitData,
    targets: Array,
    random_state: np.random.RandomState,
) -> Iterator[Iterate]:
    """Pass over the rows in mini-batches."""
    n, M = data.rows.shape[0], len(features)
    batch_size = max(_SMALLEST_BATCH, math.isqrt(n)) if model.batch_size is None else int(model.batch_size)
    # a small batch is done before a second thread has started
    n_jobs = 1 if batch_size * M < _WORTH_THREADS else model.n_jobs
    step: Any = model.step
    return stochastic_gradient(
        feature_operator(features, data.rows, n_jobs=n_jobs),
        targets,
        FeatureCoordinates(n, M),
        penalty,
        step=step,
        batch_size=batch_size,
        max_iter=model.max_iter,
        random_state=random_state,
        weight=data.weight,
    )


def _validation_watch(model: FeatureParameters, features: FeatureMap, data: FitData) -> Callable[[Array], float] | None:
    """Return the function that gives the validation error of coefficients, or None without validation rows."""
    if data.validation is None:
        return None
    budget = parse_memory(model.memory_budget)
    operator = feature_operator(features, data.validation.rows, n_jobs=model.n_jobs, memory_budget=budget)
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
