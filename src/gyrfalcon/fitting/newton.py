"""Newton's method with FALKON's preconditioner (Marteau-Ferey, Bach, Rudi 2019), for losses that are not squared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .._utils.compute import Compute
from ..solvers.newton import NewtonIterate, newton
from ..sources.columns import Column
from .convergence import NEWTON_TOLERANCE, UNSETTLED, warn_if_newton_unsettled
from .data import FitData
from .falkon import FalkonSettings, begin, preconditioner_of
from .kernel import validation_watch
from .plan import Needs
from .session import Session, Solution
from .subspace import Subspace, WarmStart, passes_of

_PASSES = 4  # expected number of passes of a Newton step, with its steps of conjugate gradient
_ROW_VECTORS = 6  # f, K d, K p, what the loss knows of f, and room to make them


def solve(
    settings: FalkonSettings,
    data: FitData,
    compute: Compute,
    session: Session,
    warm: WarmStart | None = None,
) -> tuple[Subspace, Solution[Any]]:
    """Minimise a loss other than the squared one; the parameters are those of `falkon.solve`."""
    path, max_iter = settings.penalty_path, settings.max_iter
    if path is not None and len(path) >= max_iter:
        raise ValueError(
            f"penalty_path has {len(path)} penalties, one for a Newton step each, and max_iter="
            f"{max_iter}: no step is left for the penalty itself"
        )
    needs = Needs(
        row_vectors=_ROW_VECTORS,
        passes=_PASSES * passes_of(max_iter),
        penalty=settings.penalty,
        resolves_penalty=True,
    )
    space = begin(settings, needs, data, compute, session, warm)
    data = space.data
    tol = _tolerance(settings)
    # in units in which the penalty can be told from rounding
    unit = data.loss.unit(data.targets, data.weight)
    solution = session.run(
        _steps(settings, space, unit, tol, session.resume),
        data,
        kind=NewtonIterate,
        max_iter=max_iter,
        watch=validation_watch(data, space.operator, compute, space.budget),
        scale=unit,
        n_centers=space.operator.shape[1],
    )
    return space, solution


def warn(settings: FalkonSettings, data: FitData, solution: Solution[Any]) -> None:
    """Warn of a solution that `max_iter` has stopped too early."""
    if not solution.stopped:
        warn_if_newton_unsettled(
            solution.last,
            tol=settings.tol,
            reached=_tolerance(settings),
            max_iter=settings.max_iter,
            has_stages=len(data.loss.stages()) > 1,
        )


def _tolerance(settings: FalkonSettings) -> float:
    return NEWTON_TOLERANCE if settings.tol is None else float(settings.tol)


def _steps(
    settings: FalkonSettings, space: Subspace, unit: float, tol: float, resume: dict[str, Any] | None
) -> Iterator[NewtonIterate]:
    data, loss = space.data, space.data.loss
    preconditioner = preconditioner_of(space, None, as_published=settings.as_published)
    if resume is not None:
        space.operator.fill()
    targets = data.targets
    if unit != 1:
        targets = targets.over(np.array(unit)) if isinstance(targets, Column) else targets / unit
    for iterate in newton(
        space.operator,
        targets.astype(data.rows.dtype, copy=False),
        loss.in_units(unit),
        preconditioner,
        space.penalty * loss.penalty_unit(data.targets, data.weight) * unit,
        max_iter=settings.max_iter,
        tol=tol,
        close=UNSETTLED if settings.tol is None else math.inf,
        weight=data.weight,
        start=None if space.start is None else space.start * (space.scale / unit),
        offset=None if data.offset is None else data.offset / unit,
        center_rows=space.selection.indices,
        path=None if settings.penalty_path is None else [unit * penalty for penalty in settings.penalty_path],
        cg_steps=settings.cg_steps,
        resume=resume,
    ):
        yield replace(
            iterate,
            penalty=iterate.penalty / unit,
            objective=iterate.objective * unit,
            decrement=iterate.decrement * math.sqrt(unit),
            error=iterate.error * unit,
            signal=iterate.signal * unit,
            preconditioner=settings.of_centers,
            _state=iterate.state,
        )
