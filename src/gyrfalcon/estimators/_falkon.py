"""FALKON (Rudi, Carratino, Rosasco 2017) for any number of targets; Newton's method for losses that are not squared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import one_of
from .._utils.threads import single_threaded_blas
from ..losses import Squared
from ..preconditioners import Krill, Preconditioner
from ..solvers import Iterate, conjugate_gradient
from ..storage.checkpoints import Checkpoint
from ._base import TOLERANCES, Problem, deviation, warn_if_unsettled
from ._checkpointed import fill
from ._newton import NEWTON_RULES, NewtonSolver
from ._nystrom import Subspace
from ._parameters import HasCenters, HasPenalty, HasResources, HasValidation, parameters

Array = NDArray[Any]

# Where a few rows far from the others decide much, uniform centers miss them. After 4 iterations that can be seen: the
# condition number is 42 to 91 and the residual 0.6 to 2 (cpusmall with penalties 1e-9 and 6e-7), where otherwise they
# are 2 to 11 and at most 0.2 (cpusmall with 1e-5 and nine problems on other data, penalties 1e-3 to 1e-8). Targets
# whose mean is many times their deviation have residuals that are small beside the mean alone; after 4 iterations their
# fitted values are off by tens of deviations, others' by 0.1 to 0.6.
_TRIAL = 4

# Rows over the effective number of them, (sum w)^2 / sum w^2. It is 14 for weights over twelve orders of magnitude,
# where FALKON's preconditioner left condition numbers of thousands.
_UNEVEN = 10.0


@parameters
class HasFalkon(HasPenalty, HasCenters):
    """The parameters of FALKON's solver."""

    preconditioner: str = "auto"
    max_iter: int = 20
    tol: float | None = None
    warm_start: bool = False
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None


@parameters
class FalkonBase(HasResources, HasValidation, HasFalkon, NewtonSolver):
    """Everything of the FALKON estimators but the meaning of y."""

    own_rules: ClassVar = {"preconditioner": one_of("auto", "falkon", "krill"), **NEWTON_RULES}

    @single_threaded_blas()  # threads of its own would decide the last bits, and spin beside ours
    def _solve(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        if type(problem.attributes.get("loss_", Squared())) is not Squared:
            return self._solve_newton(problem, random_state, warm)
        buffers = 4 if self.preconditioner == "krill" else 1
        space = self._subspace(problem, random_state, warm, buffers=buffers, penalty=self.penalty)
        tol = TOLERANCES[problem.rows.dtype] if self.tol is None else float(self.tol)
        last, stopped = self._follow(
            self._iterates(space, problem, tol),
            problem,
            space.attributes,
            info={"max_iter": self.max_iter, "n_centers": space.operator.shape[1]},
            watch=self._watch(problem, space.operator, space.budget),
            scale=space.scale,
        )
        if not stopped:
            warn_if_unsettled(
                last,
                space.targets,
                problem.weight,
                tol=self.tol,
                reached=tol,
                steps="iterations",
                remedy=f"raise max_iter={self.max_iter} or the penalty; subtract the mean of y if it is large",
                stacklevel=4,
            )

    def _iterates(self, space: Subspace, problem: Problem, tol: float) -> Iterator[Iterate]:
        poor = not space.selection.sampled or _are_uneven(problem.weight)
        sketched = self.preconditioner == "krill" or (poor and self._may_sketch(space))
        solve = partial(
            conjugate_gradient, space.operator, space.targets, penalty=self.penalty, tol=tol, weight=problem.weight
        )
        done, passes, start = 0, 0, space.start
        spread = deviation(space.targets, problem.weight)
        resume = self._resumed_state()
        if resume is not None:
            done, passes, sketched = resume["done"], resume["passes_done"], resume["sketched"]
            if sketched:
                self._may_sketch(space)  # an error if there is no longer room for it
            if done or not sketched:  # else the sketch fills K, as it did
                fill(space.operator)
        if not sketched:
            falkon = self._falkon(space, problem)
            for iterate in solve(coordinates=falkon, max_iter=self.max_iter, start=start, resume=resume):
                yield _after(iterate, 0, 0, sketched=False)
                trial = iterate.iteration == _TRIAL < self.max_iter
                if trial and _is_weak(iterate, spread) and self._may_sketch(space):
                    done, passes, start, resume = _TRIAL, iterate.passes, iterate.coef(), None
                    break
            else:
                return
        # one sketch is as good as another, and given centers should give the same model each time
        gram = space.operator.centers_gram(space.factors)
        krill = Krill(space.operator, gram, self.penalty, weight=problem.weight, random_state=0, n_jobs=self.n_jobs)
        passes += resume is None  # the sketch
        for iterate in solve(coordinates=krill, max_iter=self.max_iter - done, start=start, resume=resume):
            yield _after(iterate, done, passes, sketched=True)

    def _may_sketch(self, space: Subspace) -> bool:
        """Whether KRILL may take the place of FALKON's preconditioner."""
        more = 3 * space.operator.shape[1] ** 2 * space.factors.itemsize  # factors beside the one that is planned
        return self.preconditioner == "auto" and self._has_room(space, more)

    def _falkon(self, space: Subspace, problem: Problem) -> Preconditioner:
        return Preconditioner(
            space.operator.centers_gram(space.factors),
            self.penalty,
            problem.rows.shape[0],
            D=space.selection.D,
            center_weight=space.center_weight,
            n_draws=space.selection.n_draws,
            tile_dtype=problem.rows.dtype,
            n_jobs=self.n_jobs,
        )


def _after(iterate: Iterate, done: int, passes: int, *, sketched: bool) -> Iterate:
    """An iterate of a solver that was begun after others had done some iterations and passes."""
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


def _is_weak(iterate: Iterate, spread: Array) -> bool:
    """Whether FALKON's preconditioner does not suit the rows."""
    far = bool((iterate.error > spread).any())
    return far or (iterate.residual > 0.35 and iterate.condition_number > 20)
