"""Iterations without a preconditioner, on the functions of chosen centers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..operators import make_operator
from ..preconditioners import Coordinates
from ..solvers import Iterate, block_descent, conjugate_gradient, gradient_descent, stochastic_gradient
from .subspace import Subspace


def descend_by_blocks(space: Subspace, block_size: int | None, *, max_iter: int, tol: float) -> Iterator[Iterate]:
    """Run block coordinate descent on the coefficients of the centers."""
    whole, M, n_jobs = space.operator, space.operator.shape[1], space.compute.n_jobs
    device = space.compute.device
    bounds = block_bounds(M, block_size)
    # K is kept by all blocks or by none
    budget = space.budget // len(bounds) if whole.keeps else 0
    blocks = [
        make_operator(
            whole.kernel, whole.rows, whole.centers[start:stop], n_jobs=n_jobs, memory_budget=budget, device=device
        )
        for start, stop in bounds
    ]
    gram = whole.centers_gram(space.factors)
    return block_descent(
        blocks,
        space.targets,
        gram,
        space.penalty,
        max_iter=max_iter,
        tol=tol,
        weight=space.data.weight,
        n_jobs=n_jobs,
    )


def block_bounds(M: int, block_size: int | None) -> list[tuple[int, int]]:
    """Return where blocks of M coefficients begin and end; by default a block has a tenth of them, at least 100."""
    size = max(100, -(-M // 10)) if block_size is None else int(block_size)
    return [(start, min(start + size, M)) for start in range(0, M, size)]


def iterate_on_centers(
    solver: str,
    space: Subspace,
    coordinates: Coordinates,
    random_state: np.random.RandomState,
    *,
    penalty: float,
    step: Any,
    batch_size: int,
    max_iter: int,
    tol: float,
) -> Iterator[Iterate]:
    """Run conjugate gradient ("cg"), gradient descent ("gd") or mini-batch gradient descent ("sgd")."""
    system = (space.operator, space.targets, coordinates, penalty)
    weight = space.data.weight
    if solver == "cg":
        return conjugate_gradient(*system, max_iter=max_iter, tol=tol, weight=weight)
    if solver == "gd":
        return gradient_descent(*system, step=step, max_iter=max_iter, tol=tol, weight=weight)
    return stochastic_gradient(
        *system, step=step, batch_size=batch_size, max_iter=max_iter, random_state=random_state, weight=weight
    )
