"""FALKON (Rudi, Carratino, Rosasco 2017) for any number of targets; Newton's method for losses that are not squared."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import boolean, integer, not_negative
from .._utils.devices import resolve_devices
from .._utils.sampling import draw, draw_by_weight
from ..centers import Given, as_centers
from ..operators import make_operator
from ..operators.keeping import Halving
from ..preconditioners import Krill, Preconditioner
from ..solvers import Iterate, RowSample, conjugate_gradient, two_level_cg
from ..solvers.base import recall
from ..solvers.newton import NewtonIterate, newton
from ..solvers.two_level import ENOUGH, is_poor
from ..sources import Rows, TensorRows, as_rows
from .convergence import (
    NEWTON_TOLERANCE,
    UNSETTLED,
    tolerance,
    warn_if_newton_unsettled,
    warn_if_unsettled,
    warn_of_lost_penalty,
)
from .data import FitData
from .kernel import validation_watch
from .session import Session, Solution
from .subspace import CenterParameters, Subspace, WarmStart, choose_subspace, wanted_centers

Array = NDArray[Any]

# Iterations after which FALKON's preconditioner is judged. Where a few rows far from the others decide much, uniform
# centers miss them. After 4 iterations that can be seen: the condition number is 42 to 91 and the residual 0.6 to 2
# (cpusmall with penalties 1e-9 and 6e-7), where otherwise they are 2 to 17 and at most 0.5 (more than a hundred
# problems, penalties 1e-3 to 1e-8). Condition numbers of thousands may come with small residuals (a linear function of
# one feature), and fitted values of targets whose mean is many times their deviation are off by tens of deviations,
# others' by 0.1 to 0.6. After 8 iterations fits that 20 leave off by 5% and more have condition numbers from 25 on, and
# are off by 0.15 to 0.4
_TRIALS = (4, 8)

# Rows over the effective number of them, (sum w)^2 / sum w^2. It is 14 for weights over twelve orders of magnitude,
# where FALKON's preconditioner left condition numbers of thousands.
_UNEVEN = 10.0

# Rows of the sample that preconditions conjugate gradient on all of them. An iteration lowers the error by a factor of
# about the root of centers over rows of the sample, and costs a pass and some parts of one: where n is 46, 100 and 500
# times M, twelve rows for each center took the least time, and more where they are few of all rows
_ROWS_A_CENTER, _FEWEST_A_CENTER = 12, 6
_LEAST_SHARE, _LARGEST_SHARE = 32, 8
# Operations of a pass from which it takes so long that fewer are worth another solver: those of 30 million entries with
# 18 features. An entry has one for each feature, and some more. With 1.3e9 (36,000 rows, 8 features, M = 1,500) a fit
# takes 0.8 of its time with FALKON's preconditioner alone, with 3e8 (16,500 rows, M = 800) 1.5 of it
_WORTH_SAMPLING = 1_000_000_000
_PROFILE_COST, _SPARSE_COST = 16, 34
_SAMPLED_PASSES, _PASSES_OF_SAMPLE = 4, 24  # that there are as a rule

_CHOOSE = ', or use preconditioner="auto"'
_CENTER = "; fit_intercept=True helps where the mean of y is large"

# What a checkpoint has beside the state of conjugate gradient
_RESUMED = {"done": integer(0), "passes_done": not_negative(), "sketched": boolean}


class FalkonParameters(CenterParameters, Protocol):
    """An estimator with FALKON's parameters."""

    @property
    def device(self) -> Any:
        """Where products with K are computed."""
        ...

    @property
    def precision(self) -> str | None:
        """What they are computed in there, if it is not that of the rows."""
        ...

    @property
    def penalty(self) -> float | str:
        """The papers' lambda, or "auto"."""
        ...

    @property
    def preconditioner(self) -> str:
        """Which one."""
        ...

    @property
    def max_iter(self) -> int:
        """Most iterations."""
        ...

    @property
    def tol(self) -> float | None:
        """When to stop."""
        ...

    @property
    def penalty_path(self) -> Sequence[float] | None:
        """Penalties of the first Newton steps."""
        ...

    @property
    def cg_steps(self) -> int | Sequence[int] | None:
        """Steps of conjugate gradient in each Newton step."""
        ...


def solve(
    model: FalkonParameters, data: FitData, session: Session, warm: WarmStart | None, *, buffers: int = 1
) -> tuple[Subspace, Solution[Any]]:
    """Learn from `data`: one linear system for the squared loss, Newton's method for others.

    There is room for so many M x M `buffers` in float64 afterwards, if there is one linear system.
    """
    if data.is_least_squares:
        return _solve_least_squares(model, data, session, warm, buffers)
    return _solve_newton(model, data, session, warm)


# ---- the squared loss ------------------------------------------------------------------------------------------------


def _solve_least_squares(
    model: FalkonParameters, data: FitData, session: Session, warm: WarmStart | None, later: int
) -> tuple[Subspace, Solution[Iterate]]:
    own = 4 if model.preconditioner == "krill" else 1
    space = choose_subspace(
        model,
        data,
        session,
        penalty=model.penalty,
        resolves_penalty=True,
        buffers=own if later <= 1 else max(own, later * 8 // data.rows.dtype.itemsize),
        warm=warm,
        max_iter=model.max_iter,
        device=model.device,
        precision=model.precision,
        passes=_SAMPLED_PASSES if _expects_few_passes(model, data.rows, data.weight) else None,
    )
    tol = tolerance(model.tol, space.data.rows.dtype)
    solution = session.run(
        _iterates(model, space, tol, session.resume),
        space.data,
        kind=Iterate,
        max_iter=model.max_iter,
        watch=validation_watch(
            space.data, space.operator, n_jobs=model.n_jobs, budget=space.budget, device=model.device
        ),
        scale=space.scale,
        n_centers=space.operator.shape[1],
    )
    if not solution.stopped:
        warn_if_unsettled(
            solution.last,
            tol=model.tol,
            reached=tol,
            steps="iterations",
            remedy=f"raise max_iter={model.max_iter}, n_centers or the penalty"
            + ("" if model.preconditioner in ("auto", "krill") else _CHOOSE)
            + ("" if data.offset is not None else _CENTER),
        )
    return space, solution


def _expects_few_passes(model: FalkonParameters, rows: Rows, weight: Array | None) -> bool:
    """Whether a sample of the rows will precondition conjugate gradient, and predictions say when it ends."""
    if model.preconditioner not in ("auto", "sample") or model.tol is not None or rows.runs_elsewhere:
        return False
    selector = as_centers(model.centers)
    drawn = not isinstance(selector, Given) or selector.sampled is not None
    return _are_many(rows, wanted_centers(model, rows.shape[0])) and drawn and not _are_uneven(weight)


def _iterates(model: FalkonParameters, space: Subspace, tol: float, resume: dict[str, Any] | None) -> Iterator[Iterate]:
    """Iterate with FALKON's preconditioner and with a sample of the rows where that pays, or with KRILL's.

    KRILL's is used where it is asked for or where FALKON's turns out weak.
    """
    weight = space.data.weight
    poor = not space.selection.sampled or _are_uneven(weight)
    sketched = model.preconditioner == "krill" or (poor and _may_sketch(model, space))
    solve = partial(conjugate_gradient, space.operator, space.targets, penalty=space.penalty, tol=tol, weight=weight)
    passes: float = 0
    done, start = 0, space.start
    if resume is not None:
        done, passes, sketched = recall(resume, _RESUMED)
        if sketched and model.preconditioner == "auto":
            _may_sketch(model, space)  # an error if there is no longer room for it
        if done or not sketched:  # else the sketch fills K, as it did
            space.operator.fill()
    if not sketched and _may_sample(model, space):
        weak = yield from _sampled_iterates(model, space, tol, resume)
        if weak is None:
            return
        done, passes, sketched, resume = weak.iteration, weak.passes, True, None
    if not sketched:
        falkon = _preconditioner(model, space, space.chosen.weight)
        for iterate in solve(coordinates=falkon, max_iter=model.max_iter, start=start, resume=resume):
            yield _after(iterate, 0, 0, sketched=False)
            trial = iterate.iteration in _TRIALS and iterate.iteration < model.max_iter
            if trial and _is_weak(iterate) and _may_sketch(model, space):
                done, passes, start, resume = iterate.iteration, iterate.passes, iterate.coef(), None
                break
        else:
            return
    # one sketch is as good as another, and given centers should give the same model each time
    krill = Krill(
        space.operator,
        _gram(model, space),
        space.penalty,
        weight=weight,
        random_state=0,
        n_jobs=model.n_jobs,
        devices=resolve_devices(model.device),
    )
    passes += resume is None  # the sketch
    for iterate in solve(coordinates=krill, max_iter=model.max_iter - done, start=start, resume=resume):
        yield _after(iterate, done, passes, sketched=True)


def _sampled_iterates(
    model: FalkonParameters, space: Subspace, tol: float, resume: dict[str, Any] | None
) -> Generator[Iterate, None, Iterate | None]:
    """Iterate with a sample of the rows; return the iterate that shows that KRILL's preconditioner is to go on."""
    falkon = _preconditioner(model, space, space.chosen.weight)
    iterates = two_level_cg(
        space.operator,
        space.targets,
        _sample(model, space),
        falkon,
        space.penalty,
        max_iter=model.max_iter,
        tol=tol,
        enough=ENOUGH if model.tol is None else 0.0,
        weight=space.data.weight,
        start=space.start,
        resume=resume,
    )
    # a warm start may be so near that the first steps on a sample say little of what is left
    tried = 1 if space.start is None else 2
    for iterate in iterates:
        yield _after(iterate, 0, 0, sketched=False)
        trial = iterate.iteration == tried < model.max_iter and not iterate.converged
        if trial and is_poor(iterate) and _may_sketch(model, space):
            return iterate
    return None


def _may_sample(model: FalkonParameters, space: Subspace) -> bool:
    """Whether a sample of the rows is to precondition conjugate gradient on all of them."""
    if model.preconditioner != "auto":
        return model.preconditioner == "sample"
    rows, M = space.data.rows, space.operator.shape[1]
    drawn_here = space.selection.sampled and not rows.runs_elsewhere
    return _are_many(rows, M) and drawn_here and space.has_room(_sample_bytes(space), model.memory_budget)


def _are_many(rows: Rows, M: int) -> bool:
    """Whether there are so many rows for each center, and so much to do in a pass, that a sample pays."""
    n, d = rows.shape
    cost = _SPARSE_COST if rows.is_sparse else d + _PROFILE_COST
    return n * M * cost >= _WORTH_SAMPLING and n >= 4 * _FEWEST_A_CENTER * M


def _sample_rows(n: int, M: int) -> int:
    wanted = max(n // _LEAST_SHARE, min(_ROWS_A_CENTER * M, n // _LARGEST_SHARE))
    return min(n, max(wanted, _FEWEST_A_CENTER * M))


def _sample_bytes(space: Subspace) -> int:
    """Memory of the sample's rows and targets."""
    (n, M), rows = space.operator.shape, space.data.rows
    width = space.operator.centers.nnz // M if rows.is_sparse else rows.shape[1]
    return int(_sample_rows(n, M) * (2 * width * (1 + rows.is_sparse) + space.targets.shape[1]) * rows.dtype.itemsize)


def _sample(model: FalkonParameters, space: Subspace) -> RowSample:
    """Draw some rows into memory, that of a device if they are there."""
    operator, weight = space.operator, space.data.weight
    n, M = operator.shape
    # one sample is as good as another, and given centers should give the same model each time
    size, random_state = _sample_rows(n, M), np.random.RandomState(0)
    if weight is None:
        drawn = draw(n, size, random_state)
        own = np.ones(size)
    else:
        drawn, own = draw_by_weight(weight, size, random_state)
    rows = operator.rows
    rows = rows.subset(drawn) if isinstance(rows, TensorRows) else as_rows(rows.take(drawn))
    budget = max(0, space.budget - operator.kept_bytes - _sample_bytes(space))
    counted = _PASSES_OF_SAMPLE if model.memory_budget == "auto" else None
    # a preconditioner need not be exact: residuals of all rows are. A tolerance may take many iterations, and good ones
    halving = Halving(budget, _PASSES_OF_SAMPLE) if model.tol is None else None
    few = make_operator(
        operator.kernel,
        rows,
        operator.centers,
        n_jobs=model.n_jobs,
        memory_budget=budget,
        passes=counted,
        halving=halving,
        device=model.device,
    )
    total = n if weight is None else float(weight.sum(dtype=np.float64))
    own *= total / own.sum()
    return RowSample(few, space.targets[drawn], own.astype(operator.dtype))


def _may_sketch(model: FalkonParameters, space: Subspace) -> bool:
    """Whether KRILL may take the place of FALKON's preconditioner."""
    more = 3 * space.operator.shape[1] ** 2 * space.factors.itemsize  # factors beside the one that is planned
    return model.preconditioner == "auto" and space.has_room(more, model.memory_budget)


def _preconditioner(model: FalkonParameters, space: Subspace, center_weight: Array | None) -> Preconditioner:
    found = Preconditioner(
        _gram(model, space),
        space.penalty,
        space.data.rows.shape[0],
        D=space.selection.D,
        center_weight=center_weight,
        n_draws=space.selection.n_draws,
        tile_dtype=space.data.rows.dtype,
        n_jobs=model.n_jobs,
        devices=resolve_devices(model.device),
    )
    # float32 was told before; a factor of a few hardly shows
    if 0 < space.penalty < found.least_penalty / 10 and space.data.rows.dtype == np.float64:
        warn_of_lost_penalty(space.penalty, np.float64)
    return found


def _gram(model: FalkonParameters, space: Subspace) -> Array:
    """Return K_MM, Fortran-ordered, for factors; where a device makes them it is computed in float64 and rounded once.

    So T and A do not depend on how a device rounds, and float32 factors cost the accuracy of one rounding.
    """
    operator = space.operator
    if model.device is None or space.factors == np.float64:
        return operator.centers_gram(space.factors)
    centers = operator.centers.astype(np.float64)
    exact = make_operator(operator.kernel, as_rows(centers), centers, n_jobs=model.n_jobs, memory_budget=0)
    gram = np.empty((centers.shape[0], centers.shape[0]), dtype=space.factors)
    with np.errstate(over="ignore"):  # what is infinite is refused where it is factored
        for at, K in exact.blocks():
            gram[at] = K
    return gram.T  # symmetric, so transposing only declares it Fortran-ordered


def _after(iterate: Iterate, done: int, passes: float, *, sketched: bool) -> Iterate:
    """Return an iterate of a solver that was begun after others had done some iterations and passes."""
    return replace(
        iterate,
        iteration=iterate.iteration + done,
        passes=iterate.passes + passes,
        _state=lambda: {**iterate.state(), "done": done, "passes_done": passes, "sketched": sketched},
    )


def _are_uneven(weight: Array | None) -> bool:
    """Whether so few rows have most of the weight that the centers among them tell little of K'WK."""
    if weight is None:
        return False
    wide = weight.astype(np.float64)
    return len(wide) * float(wide @ wide) > _UNEVEN * float(wide.sum()) ** 2


def _is_weak(iterate: Iterate) -> bool:
    """Whether FALKON's preconditioner does not suit the rows, as far as some iterations tell."""
    condition = iterate.condition_number
    if iterate.iteration > _TRIALS[0]:
        return condition > 25 and iterate.relative_error > 0.1
    far = bool((iterate.error > iterate.signal).any())
    return far or condition > 100 or (condition > 20 and iterate.residual > 0.35)


# ---- other losses ----------------------------------------------------------------------------------------------------


def _solve_newton(
    model: FalkonParameters, data: FitData, session: Session, warm: WarmStart | None
) -> tuple[Subspace, Solution[NewtonIterate]]:
    if model.penalty_path is not None and len(model.penalty_path) >= model.max_iter:
        raise ValueError(
            f"penalty_path has {len(model.penalty_path)} penalties, one for a Newton step each, and max_iter="
            f"{model.max_iter}: no step is left for the penalty itself"
        )
    space = choose_subspace(
        model,
        data,
        session,
        penalty=model.penalty,
        resolves_penalty=True,
        row_vectors=6,  # f, K d, K p, what the loss knows of f, and room to make them
        warm=warm,
        max_iter=model.max_iter,
        device=model.device,
        precision=model.precision,
    )
    data = space.data
    tol = NEWTON_TOLERANCE if model.tol is None else float(model.tol)
    # in units in which the penalty can be told from rounding
    unit = data.loss.unit(data.targets, data.weight)
    solution = session.run(
        _newton_steps(model, space, unit, tol, session.resume),
        data,
        kind=NewtonIterate,
        max_iter=model.max_iter,
        watch=validation_watch(data, space.operator, n_jobs=model.n_jobs, budget=space.budget, device=model.device),
        scale=unit,
        n_centers=space.operator.shape[1],
    )
    if not solution.stopped:
        warn_if_newton_unsettled(solution.last, tol=model.tol, reached=tol, max_iter=model.max_iter)
    return space, solution


def _newton_steps(
    model: FalkonParameters, space: Subspace, unit: float, tol: float, resume: dict[str, Any] | None
) -> Iterator[NewtonIterate]:
    data, loss = space.data, space.data.loss
    preconditioner = _preconditioner(model, space, None)
    if resume is not None:
        space.operator.fill()
    targets = data.targets if unit == 1 else data.targets / unit
    for iterate in newton(
        space.operator,
        targets.astype(data.rows.dtype, copy=False),
        loss.in_units(unit),
        preconditioner,
        space.penalty * loss.penalty_unit(data.targets, data.weight) * unit,
        max_iter=model.max_iter,
        tol=tol,
        close=UNSETTLED if model.tol is None else math.inf,
        weight=data.weight,
        start=None if space.start is None else space.start * (space.scale / unit),
        offset=None if data.offset is None else data.offset / unit,
        center_rows=space.selection.indices,
        path=None if model.penalty_path is None else [unit * penalty for penalty in model.penalty_path],
        cg_steps=model.cg_steps,
        resume=resume,
    ):
        yield replace(
            iterate,
            penalty=iterate.penalty / unit,
            objective=iterate.objective * unit,
            decrement=iterate.decrement * math.sqrt(unit),
            error=iterate.error * unit,
            signal=iterate.signal * unit,
            _state=iterate.state,
        )
