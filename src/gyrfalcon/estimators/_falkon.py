"""FALKON (Rudi, Carratino, Rosasco 2017) for any number of targets; Newton's method for losses that are not squared."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._memory import available_memory
from ..losses import Squared
from ..preconditioner import Coordinates, Krill, Preconditioner
from ..solvers import Iterate, conjugate_gradient
from ._base import Problem
from ._newton import NEWTON_RULES, NewtonSolver
from ._nystrom import Subspace
from ._parameters import HasCenters, HasPenalty, HasResources, HasValidation, one_of, parameters

Array = NDArray[Any]

# Residuals at which more iterations change nothing that can be seen in predictions of that precision
TOLERANCES = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-10}


@parameters
class HasFalkon(HasPenalty, HasCenters):
    """The parameters of FALKON's solver."""

    preconditioner: str = "auto"
    max_iter: int = 20
    tol: float | None = None
    warm_start: bool = False


@parameters
class FalkonBase(HasResources, HasValidation, HasFalkon, NewtonSolver):
    """Everything of the FALKON estimators but the meaning of y."""

    own_rules: ClassVar = {"preconditioner": one_of("auto", "falkon", "krill"), **NEWTON_RULES}

    def _solve(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        if not isinstance(problem.attributes.get("loss_", Squared()), Squared):
            return self._solve_newton(problem, random_state, warm)
        space = self._subspace(problem, random_state, warm, buffers=4 if self.preconditioner == "krill" else 1)
        tol = TOLERANCES[problem.rows.dtype] if self.tol is None else float(self.tol)
        last, stopped = self._follow(
            self._iterates(space, problem, tol),
            problem,
            space.attributes,
            info={"max_iter": self.max_iter, "n_centers": len(space.selection.points)},
            watch=self._watch(problem, space.operator, space.budget),
            scale=space.scale,
        )
        if self.tol and not last.converged and not stopped:
            warnings.warn(
                f"the residual is {last.residual:.1e} after {last.iteration} iterations, above tol={tol:g}: "
                f"raise max_iter={self.max_iter}, the penalty or tol",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _iterates(self, space: Subspace, problem: Problem, tol: float) -> Iterator[Iterate]:
        yield from conjugate_gradient(
            space.operator,
            space.targets,
            self._coordinates(space, problem),
            self.penalty,
            max_iter=self.max_iter,
            tol=tol,
            weight=problem.weight,
            start=space.start,
        )

    def _coordinates(self, space: Subspace, problem: Problem) -> Coordinates:
        """FALKON's preconditioner where the centers were drawn with known probabilities, else KRILL's if it fits."""
        M = len(space.selection.points)
        sketch_bytes = 4 * M * M * space.factors.itemsize
        sketched = self.preconditioner == "krill"
        if self.preconditioner == "auto" and not space.selection.sampled:
            sketched = sketch_bytes <= available_memory() // 2
        gram = space.operator.centers_gram(space.factors)
        if sketched:
            # one sketch is as good as another, and given centers should give the same model each time
            return Krill(space.operator, gram, self.penalty, weight=problem.weight, random_state=0)
        return Preconditioner(
            gram,
            self.penalty,
            problem.rows.shape[0],
            D=space.selection.D,
            center_weight=space.center_weight,
            n_draws=space.selection.n_draws,
            tile_dtype=problem.rows.dtype,
        )
