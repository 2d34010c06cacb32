"""Exact kernel ridge regression by accelerated block coordinate descent, in the manner of ASkotch."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.memory import parse_memory
from .._utils.statistics import deviations
from .._utils.threads import single_threaded_blas
from ..operators import KernelOperator, block_rows
from ..solvers import Iterate, askotch
from .convergence import warn_if_unsettled
from .kernel import validation_watch
from .pcg import MAX_ITER, TOLERANCES, remedy_of
from .plan import check_memory
from .ridge import EveryRow, least_penalty
from .session import Session

Array = NDArray[Any]

_PROFILE_COST = 16  # operations of an entry of K, in addition to one for each feature
_VECTORS = 12  # arrays of shape (n, k) in float64 that block descent holds at once


class AskotchSettings(NamedTuple):
    """The parameters of block descent on all rows.

    block_size : number of rows in a block; None for as many as are solved for in the time that their columns of K take
    max_iter : maximum number of sweeps, or None for `MAX_ITER`
    tol : error of fitted values at which sweeps stop, or None for `TOLERANCES`
    """

    block_size: int | None
    max_iter: int | None
    tol: float | None


def solve(settings: AskotchSettings, problem: EveryRow, compute: Compute, session: Session) -> Array:
    """Return the coefficients of all rows, for the one penalty of the problem."""
    data, penalty = problem.data, problem.penalty
    assert penalty is not None
    (n, d), k = problem.points.shape, problem.targets.shape[1]
    wanted = math.isqrt(n * (d + _PROFILE_COST)) if settings.block_size is None else int(settings.block_size)
    block, max_iter = min(n, wanted), MAX_ITER if settings.max_iter is None else settings.max_iter
    left = _check_memory(compute, problem.points, block, k)
    operator = KernelOperator(problem.kernel, data.rows, problem.points, n_jobs=compute.n_jobs, memory_budget=0)
    tol = TOLERANCES[operator.dtype] if settings.tol is None else float(settings.tol)
    y = problem.targets.astype(np.float64)
    with single_threaded_blas():  # its threads would change the last bits, and spin beside ours
        solution = session.run(
            askotch(
                operator,
                y,
                n * max(penalty, least_penalty(operator)),
                math.sqrt(n) * deviations(y, data.weight),
                block_size=block,
                max_iter=max_iter,
                tol=tol,
                weight=data.weight,
                random_state=session.random_state,
                n_jobs=compute.n_jobs,
            ),
            data,
            kind=Iterate,
            max_iter=max_iter,
            watch=validation_watch(data, operator, compute, left),
            scale=problem.scale,
            n_centers=n,
        )
    if not solution.stopped:
        remedy = remedy_of(solution.last, max_iter, block, operator.dtype)
        warn_if_unsettled(solution.last, tol=settings.tol, reached=tol, steps="sweeps", remedy=remedy)
    return solution.coef


def _check_memory(compute: Compute, points: Array, block: int, k: int) -> int:
    """Raise MemoryError if the fit does not fit, and return the bytes left for the kernel matrix of validation rows."""
    n, width = points.shape
    needs = {
        "vectors": 8 * _VECTORS * n * k,
        f"blocks of {block} rows": 2 * 8 * block * block,
        "blocks at work": (2 * compute.n_threads + 1) * block_rows(n, block, width) * (width + k) * points.itemsize,
        "the rows": 3 * points.nbytes,
    }
    what = f'method="askotch" with {n} rows takes'
    total = check_memory(compute.memory_budget, needs, what, "lower n_centers, or use an estimator of FALKON")
    return max(0, parse_memory(compute.memory_budget) - total)
