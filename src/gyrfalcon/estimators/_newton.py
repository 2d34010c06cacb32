"""FALKON for losses other than the squared one: Newton's method in place of one linear system."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.checks import Rule, integer, numbers, optional
from ..losses import Loss
from ..preconditioners import Preconditioner
from ..solvers.newton import NewtonIterate, newton
from ._base import Problem
from ._checkpointed import Checkpointed, fill
from ._nystrom import Subspace
from ._parameters import parameters

Array = NDArray[Any]

# The decrease that the last step predicts, relative to the objective. What remains after that step is less: 0.07% of
# the objective on a9a and 0.09% on MNIST, with a log-loss on test rows 0.1% below and 0.3% above the converged one's.
_TOLERANCE = 5e-3


def _step_counts(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        integer(1)(name, value)
    elif not len(value):
        raise ValueError(f"{name}={value!r} must be None, an integer of at least 1 or a list of them")
    else:
        for count in value:
            integer(1)(name, count)


NEWTON_RULES: dict[str, Rule] = {
    "penalty_path": optional(
        numbers(lambda x: 0 <= x < np.inf, "None or a list of finite numbers, none negative", empty=True)
    ),
    "cg_steps": optional(_step_counts),
}

NEWTON_WORDS = {
    "penalty": """float
        The papers' lambda, not negative: on the mean squared error, or half of it on the mean of another loss (for
        quantiles over a robust standard deviation of y, so that its unit does not matter). What is
        below an eighth of the precision of the kernel (1.5e-8 in float32, 3e-17 in float64, times the mean of k(x, x))
        cannot be told from rounding, and counts as that.""",
    "max_iter": """int
        Most iterations: of conjugate gradient for the squared loss, where ten to twenty are enough if the
        preconditioner is good; Newton steps for other losses, of which most problems need ten to fifteen.""",
    "tol": """float or None
        Squared loss: stop when the preconditioned residual falls below `tol` times the right-hand side's norm. Other
        losses: stop when a Newton step promises to lower the objective by at most `tol` times itself. A
        `ConvergenceWarning` says if that was not reached. None stops where more would not be seen (1e-6 in float32
        and 1e-10 in float64 for the squared loss; 5e-3 for others, which leaves some 0.1% of the objective); 0 is for
        `max_iter` iterations. Either warns only if predictions would still move by a twentieth of y's standard
        deviation, or the objective of another loss by 5e-3 of itself.""",
    "penalty_path": """list of float, or None
        Losses other than the squared one: penalties for the first Newton steps, one step each, before `penalty`. None
        finds them: a tenth of the last, from a large one on, as soon as Newton's method is near enough.""",
    "cg_steps": """int, list of int, or None
        Losses other than the squared one: steps of conjugate gradient in each Newton step; of a list the last number is
        for all that follow. None stops each when its residual has halved.""",
}


@parameters
class HasNewton:
    """The parameters of Newton's method."""

    penalty_path: Sequence[float] | None = None
    cg_steps: int | Sequence[int] | None = None


class NewtonSolver(HasNewton, Checkpointed):
    """Solves problems whose `attributes` have a `loss_`, and an `offset_` if f does not start from 0."""

    penalty: float
    max_iter: int
    tol: float | None

    def _solve_newton(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        loss, offset = problem.attributes["loss_"], problem.attributes.get("offset_")
        if self.penalty_path is not None and len(self.penalty_path) >= self.max_iter:
            raise ValueError(
                f"penalty_path has {len(self.penalty_path)} penalties, one for a Newton step each, and max_iter="
                f"{self.max_iter}: no step is left for the penalty itself"
            )
        # f, K d, K p, what the loss knows of f, and room to make them
        space = self._subspace(problem, random_state, warm, row_vectors=6, penalty=self.penalty)
        tol = _TOLERANCE if self.tol is None else float(self.tol)
        if problem.error is not None and offset is not None:
            of_all = problem.error
            problem.error = lambda f: of_all(f + offset)
        last, stopped = self._follow(
            self._newton_steps(space, problem, loss, offset, tol),
            problem,
            space.attributes,
            info={"max_iter": self.max_iter, "n_centers": space.operator.shape[1]},
            watch=self._watch(problem, space.operator, space.budget),
            scale=loss.unit(problem.targets, problem.weight),
            kind=NewtonIterate,
        )
        assert isinstance(last, NewtonIterate)
        if not last.at_penalty and not stopped:
            warnings.warn(
                f"{last.iteration} Newton steps were not enough to come from penalty={last.penalty:g} down to the one "
                f"asked for: raise max_iter={self.max_iter}",
                ConvergenceWarning,
                stacklevel=5,
            )
        elif not stopped and not last.converged and (self.tol or last.residual > _TOLERANCE):
            warnings.warn(
                f"a Newton step still promises a decrease of {last.residual:.1e} after {last.iteration} steps, above "
                f"tol={tol:g}: raise max_iter={self.max_iter}, the penalty or tol",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _newton_steps(
        self, space: Subspace, problem: Problem, loss: Loss, offset: Array | None, tol: float
    ) -> Iterator[NewtonIterate]:
        preconditioner = Preconditioner(
            space.operator.centers_gram(space.factors),
            self.penalty,
            problem.rows.shape[0],
            D=space.selection.D,
            n_draws=space.selection.n_draws,
            tile_dtype=problem.rows.dtype,
            n_jobs=self.n_jobs,
        )
        resume = self._resumed_state()
        if resume is not None:
            fill(space.operator)
        # in units in which the penalty can be told from rounding
        unit = loss.unit(problem.targets, problem.weight)
        targets = problem.targets if unit == 1 else problem.targets / unit
        for iterate in newton(
            space.operator,
            targets.astype(problem.rows.dtype, copy=False),
            loss.in_units(unit),
            preconditioner,
            self.penalty * loss.penalty_unit(problem.targets, problem.weight) * unit,
            max_iter=self.max_iter,
            tol=tol,
            weight=problem.weight,
            start=None if space.start is None else space.start * (space.scale / unit),
            offset=None if offset is None else offset / unit,
            center_rows=space.selection.indices,
            path=None if self.penalty_path is None else [unit * penalty for penalty in self.penalty_path],
            cg_steps=self.cg_steps,
            resume=resume,
        ):
            yield replace(
                iterate,
                penalty=iterate.penalty / unit,
                objective=iterate.objective * unit,
                decrement=iterate.decrement * math.sqrt(unit),
                _state=iterate.state,
            )


def mean_loss(loss: Loss, targets: Array, weight: Array | None, f: Array) -> float:
    """The validation error of a loss: its mean over rows and columns."""
    with np.errstate(over="ignore"):
        values = loss.value(targets.astype(np.float64), f.astype(np.float64)).mean(axis=1)
    return float(np.average(values, weights=weight))
