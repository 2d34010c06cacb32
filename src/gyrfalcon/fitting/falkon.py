"""FALKON (Rudi, Carratino, Rosasco 2017) for any number of targets: which preconditioner, and when to change it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import boolean, integer, not_negative
from .._utils.compute import Compute
from .._utils.statistics import total
from ..centers import Given, as_centers
from ..preconditioners import Coordinates, Krill, Preconditioner, Sampled
from ..solvers import Iterate, RowSample, conjugate_gradient, gradient_descent, two_level_cg
from ..solvers.base import recall
from ..solvers.two_level import ENOUGH, is_poor
from ..storage.checkpoints import WARM
from .convergence import tolerance, warn_if_unsettled
from .data import FitData
from .kernel import validation_watch
from .plan import Needs
from .row_sample import SAMPLED_PASSES, draw_sample, factors_pay, sample_bytes, sampling_pays
from .session import Session, Solution
from .subspace import CenterSettings, Subspace, WarmStart, choose_subspace, passes_of

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

_CHOOSE = ', or use preconditioner="auto"'
_CENTER = "; fit_intercept=True helps where the mean of y is large"

# What a checkpoint holds in addition to the state of conjugate gradient
_RESUMED = {"done": integer(0), "passes_done": not_negative(), "sketched": boolean}


@dataclass(frozen=True)
class FalkonSettings:
    """The parameters of FALKON.

    penalty : lambda in the papers, or "auto"
    preconditioner : "auto", "falkon", "paper", "krill" or "sample"
    max_iter : maximum number of iterations, or of Newton steps
    tol : residual at which iterations stop; None for the smallest that matters in the precision of the rows
    penalty_path : penalties of the first Newton steps, or None
    cg_steps : conjugate gradient steps in each Newton step, or None
    solver : "cg", or "gd" for gradient descent, the paper's basic algorithm
    step : length of the steps of gradient descent, or None for one over the largest eigenvalue
    """

    centers: CenterSettings
    penalty: float | str
    preconditioner: str
    max_iter: int
    tol: float | None
    penalty_path: Sequence[float] | None = None
    cg_steps: int | Sequence[int] | None = None
    solver: str = "cg"
    step: float | str | None = None

    @property
    def as_published(self) -> bool:
        """Whether FALKON's preconditioner is the paper's to the letter; for gradient descent that is the default."""
        return self.preconditioner == "paper" or (self.solver == "gd" and self.preconditioner == "auto")

    @property
    def of_centers(self) -> str:
        """Name of the preconditioner that is made from the centers alone."""
        return "paper" if self.as_published else "falkon"


def solve(
    settings: FalkonSettings,
    data: FitData,
    compute: Compute,
    session: Session,
    warm: WarmStart | None = None,
    *,
    buffers: int = 1,
) -> tuple[Subspace, Solution[Any]]:
    """Solve the linear system of the squared loss, for any number of targets.

    `buffers` is the number of M x M matrices in float64 that must fit in memory after the solve.
    """
    own = 4 if settings.preconditioner == "krill" else 1
    needs = Needs(
        buffers=own if buffers <= 1 else max(own, buffers * 8 // data.rows.dtype.itemsize),
        passes=SAMPLED_PASSES if _expects_few_passes(settings, data) else passes_of(settings.max_iter),
        penalty=settings.penalty,
        resolves_penalty=True,
    )
    space = begin(settings, needs, data, compute, session, warm)
    session.remember_sums(space.operator)
    tol = tolerance(settings.tol, space.data.rows.dtype)
    descends = settings.solver == "gd"
    solution = session.run(
        _descent(settings, space, tol) if descends else _iterates(settings, space, tol, session.resume),
        space.data,
        kind=Iterate,
        max_iter=settings.max_iter,
        watch=validation_watch(space.data, space.operator, compute, space.budget),
        scale=space.scale,
        n_centers=space.operator.shape[1],
    )
    return space, solution


def warn(settings: FalkonSettings, data: FitData, solution: Solution[Any]) -> None:
    """Warn of a solution that `max_iter` has stopped too early; `data` are those in the precision of the solve."""
    if not solution.stopped:
        warn_if_unsettled(
            solution.last,
            tol=settings.tol,
            reached=tolerance(settings.tol, data.rows.dtype),
            steps="iterations",
            remedy=f"raise max_iter={settings.max_iter}, n_centers or the penalty"
            + ("" if settings.preconditioner in ("auto", "krill") or settings.solver == "gd" else _CHOOSE)
            + ("" if data.offset is not None else _CENTER),
        )


def begin(
    settings: FalkonSettings,
    needs: Needs,
    data: FitData,
    compute: Compute,
    session: Session,
    warm: WarmStart | None,
) -> Subspace:
    """Choose the subspace, or take over that of a checkpoint, which must be one of this fit."""
    coef, points = (None, None) if warm is None else (warm.coef, warm.points)
    session.identify(data, {WARM: coef, "their centers": points}, settings.max_iter)
    space = choose_subspace(
        settings.centers, needs, data, compute, session.random_state, begun=session.beginning, warm=warm
    )
    session.begin(space.beginning)
    return space


def _expects_few_passes(settings: FalkonSettings, data: FitData) -> bool:
    """Whether a sample of the rows will precondition conjugate gradient, and predictions decide when it ends."""
    rows = data.rows
    if settings.preconditioner not in ("auto", "sample") or settings.tol is not None:
        return False
    if settings.solver == "gd":
        return False
    selector = as_centers(settings.centers.centers)
    drawn = not isinstance(selector, Given) or selector.sampled is not None
    return drawn and sampling_pays(rows, settings.centers.wanted(rows.shape[0])) and not _are_uneven(data.weight)


def _iterates(
    settings: FalkonSettings, space: Subspace, tol: float, resume: dict[str, Any] | None
) -> Iterator[Iterate]:
    """Iterate with the preconditioner of FALKON, with a sample of the rows if that pays off, or with KRILL.

    KRILL is used if it is requested, or if the preconditioner of FALKON turns out to be weak.
    """
    poor = not space.selection.sampled or _are_uneven(space.data.weight)
    sketched = settings.preconditioner == "krill" or (poor and _may_sketch(settings, space))
    go_on = _GoOn(0, 0, space.start)
    if resume is not None:
        done, passes, sketched = recall(resume, _RESUMED)
        go_on = _GoOn(done, passes, space.start)
        if sketched and settings.preconditioner == "auto":
            _may_sketch(settings, space)  # an error if there is no longer room for it
        if done or not sketched:  # else the sketch fills K, as in the first run
            space.operator.fill()
    if not sketched:
        first = _sampled_iterates if _may_sample(settings, space) else _falkon_iterates
        weak = yield from first(settings, space, tol, resume)
        if weak is None:
            return
        go_on, resume = weak, None
    # one sketch is as good as another, and given centers should give the same model each time
    krill = Krill(
        space.operator,
        _gram(space),
        space.penalty,
        weight=space.data.weight,
        random_state=0,
        n_jobs=space.compute.n_jobs,
        devices=space.compute.devices,
    )
    passes = go_on.passes + (resume is None)  # the sketch
    max_iter = settings.max_iter - go_on.done
    for iterate in _conjugate_gradient(space, krill, max_iter, tol, go_on.start, resume):
        yield _after(iterate, "krill", go_on.done, passes)


@dataclass(frozen=True)
class _GoOn:
    """Where KRILL's preconditioner continues: iterations and passes already made, and coefficients or None."""

    done: int
    passes: float
    start: Array | None


def _conjugate_gradient(
    space: Subspace,
    coordinates: Coordinates,
    max_iter: int,
    tol: float,
    start: Array | None,
    resume: dict[str, Any] | None,
) -> Iterator[Iterate]:
    return conjugate_gradient(
        space.operator,
        space.targets,
        coordinates,
        space.penalty,
        max_iter=max_iter,
        tol=tol,
        weight=space.data.weight,
        start=start,
        resume=resume,
    )


def _falkon_iterates(
    settings: FalkonSettings, space: Subspace, tol: float, resume: dict[str, Any] | None
) -> Generator[Iterate, None, _GoOn | None]:
    """Iterate with FALKON's preconditioner alone; if it turns out weak, return where KRILL's continues, else None."""
    falkon = preconditioner_of(space, space.chosen.weight, as_published=settings.as_published)
    for iterate in _conjugate_gradient(space, falkon, settings.max_iter, tol, space.start, resume):
        yield _after(iterate, settings.of_centers)
        trial = iterate.iteration in _TRIALS and iterate.iteration < settings.max_iter
        if trial and _is_weak(iterate) and _may_sketch(settings, space):
            return _GoOn(iterate.iteration, iterate.passes, iterate.coef())
    return None


def _sampled_iterates(
    settings: FalkonSettings, space: Subspace, tol: float, resume: dict[str, Any] | None
) -> Generator[Iterate, None, _GoOn | None]:
    """Iterate with a sample of the rows; if that turns out weak, return where KRILL's continues, else None."""
    # residuals of all rows are exact; a tolerance may need many accurate iterations
    factored = _may_factor(space)  # two or three steps on the sample are all that follow
    sample = draw_sample(space, kept=not factored, halved=settings.tol is None)
    if factored:
        found: Coordinates = _sampled_factors(space, sample)
    else:
        found = preconditioner_of(space, space.chosen.weight, as_published=False)
    iterates = two_level_cg(
        space.operator,
        space.targets,
        sample,
        found,
        space.penalty,
        max_iter=settings.max_iter,
        tol=tol,
        enough=ENOUGH if settings.tol is None else 0.0,
        weight=space.data.weight,
        start=space.start,
        resume=resume,
    )
    # after a warm start the first steps on a sample may say little about the remaining error
    tried = 1 if space.start is None else 2
    for iterate in iterates:
        yield _after(iterate, "sample")
        trial = iterate.iteration == tried < settings.max_iter and not iterate.converged
        if trial and is_poor(iterate) and _may_sketch(settings, space):
            return _GoOn(iterate.iteration, iterate.passes, space.start)
    return None


def _descent(settings: FalkonSettings, space: Subspace, tol: float) -> Iterator[Iterate]:
    """Run the paper's basic algorithm, equations (11) and (12): gradient descent on the preconditioned system."""
    falkon = preconditioner_of(space, space.chosen.weight, as_published=settings.as_published)
    step: Any = "auto" if settings.step is None else settings.step
    for iterate in gradient_descent(
        space.operator,
        space.targets,
        falkon,
        space.penalty,
        step=step,
        max_iter=settings.max_iter,
        tol=tol,
        weight=space.data.weight,
        start=space.start,
    ):
        yield replace(iterate, preconditioner=settings.of_centers)


def _may_sample(settings: FalkonSettings, space: Subspace) -> bool:
    """Whether a sample of the rows preconditions conjugate gradient on all of them."""
    if settings.preconditioner != "auto":
        return settings.preconditioner == "sample"
    pays = sampling_pays(space.data.rows, space.operator.shape[1])
    return pays and space.selection.sampled and space.has_room(sample_bytes(space))


def _may_factor(space: Subspace) -> bool:
    """Whether the preconditioner is made of factors of the sample's normal equations."""
    M = space.operator.shape[1]
    more = sample_bytes(space) + M * M * space.factors.itemsize  # a matrix in addition to the planned one
    return factors_pay(space.data.rows, M) and space.has_room(more)


def _sampled_factors(space: Subspace, sample: RowSample) -> Sampled:
    """Make the preconditioner of the sample's normal equations."""
    return Sampled(
        sample.operator,
        sample.weight,
        _gram(space),
        space.penalty,
        space.data.rows.shape[0],
        n_jobs=space.compute.n_jobs,
        devices=space.compute.devices,
    )


def _may_sketch(settings: FalkonSettings, space: Subspace) -> bool:
    """Whether KRILL may take the place of FALKON's preconditioner."""
    more = 3 * space.operator.shape[1] ** 2 * space.factors.itemsize  # factors in addition to the planned one
    return settings.preconditioner == "auto" and space.has_room(more)


def preconditioner_of(space: Subspace, center_weight: Array | None, *, as_published: bool) -> Preconditioner:
    """Make FALKON's preconditioner."""
    return Preconditioner(
        _gram(space),
        space.penalty,
        space.data.rows.shape[0],
        D=space.selection.D,
        center_weight=center_weight,
        n_draws=space.selection.n_draws,
        tile_dtype=space.data.rows.dtype,
        n_jobs=space.compute.n_jobs,
        devices=space.compute.devices,
        as_published=as_published,
    )


def _gram(space: Subspace) -> Array:
    """Return K_MM, Fortran-ordered, for factors; if a device makes them, it is computed in float64 and rounded once.

    Thus T and A do not depend on how a device rounds, and float32 factors lose the accuracy of only one rounding.
    """
    operator = space.operator
    if space.compute.device is None or space.factors == np.float64:
        return operator.centers_gram(space.factors)
    return operator.rounded_gram(space.factors)


def _after(iterate: Iterate, preconditioner: str, done: int = 0, passes: float = 0) -> Iterate:
    """Return an iterate of a solver that was started after others had made some iterations and passes."""
    sketched = preconditioner == "krill"
    return replace(
        iterate,
        iteration=iterate.iteration + done,
        passes=iterate.passes + passes,
        preconditioner=preconditioner,
        _state=lambda: {**iterate.state(), "done": done, "passes_done": passes, "sketched": sketched},
    )


def _are_uneven(weight: Array | None) -> bool:
    """Whether a few rows have most of the weight, so that the centers among them say little about K'WK."""
    if weight is None:
        return False
    return len(weight) * total(weight, np.square) > _UNEVEN * total(weight) ** 2


def _is_weak(iterate: Iterate) -> bool:
    """Whether FALKON's preconditioner does not suit the rows, judged after some iterations."""
    condition = iterate.condition_number
    if iterate.iteration > _TRIALS[0]:
        return condition > 25 and iterate.relative_error > 0.1
    far = bool((iterate.error > iterate.signal).any())
    return far or condition > 100 or (condition > 20 and iterate.residual > 0.35)
