"""Iterations without a preconditioner, on the functions of chosen centers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..preconditioners import Coordinates
from ..solvers import Iterate, conjugate_gradient, gradient_descent, stochastic_gradient
from .subspace import Subspace


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
