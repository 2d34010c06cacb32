"""Nyström methods without FALKON's preconditioner: the direct solve, plain iterations, and NYTRO.

All choose among the functions sum_j alpha_j k(x, center_j). What varies is the solver, and the coordinates it works in:
alpha itself (the slow curves of Figure 1 of the FALKON paper), or, for NYTRO, those in which the centers' functions are
orthonormal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import integer, one_of, optional, positive
from .._utils.registry import register
from .._utils.threads import single_threaded_blas
from ..preconditioners import Coordinates, Identity, Whitening
from ..solvers import (
    Iterate,
    NystromPath,
    conjugate_gradient,
    gradient_descent,
    largest_eigenvalue,
    stochastic_gradient,
)
from ._base import TOLERANCES, Problem, warn_if_unsettled
from ._choices import (
    CHOICE_RULES,
    CHOICE_WORDS,
    STOPPING_WORDS,
    ChoosesPenalty,
    StopsEarly,
    safe_step,
    stable_step,
)
from ._nystrom import NystromEstimator, Subspace
from ._parameters import HasResources, HasValidation, documented, parameters
from .regression import Regression

Array = NDArray[Any]

_STEP = optional(optional(positive('None, "auto" or a finite number greater than 0')), "auto")

_ITERATION_WORDS = {
    "max_iter": """int
        Most iterations; epochs, with `solver="sgd"`.""",
    "batch_size": """int
        Rows of a step of `solver="sgd"`.""",
}


@parameters
class HasIterations:
    """How long to iterate, and by which steps."""

    max_iter: int = 500
    step: float | str | None = None
    batch_size: int = 256


class IteratesOnCenters(HasIterations, NystromEstimator):
    """Runs one of three iterations in given coordinates."""

    solver: str

    @property
    def _random_access(self) -> bool:
        return self.solver == "sgd"

    def _iterates(
        self,
        solver: str,
        coordinates: Coordinates,
        space: Subspace,
        problem: Problem,
        random_state: np.random.RandomState,
        *,
        penalty: float,
        step: Any,
        tol: float,
    ) -> Iterator[Iterate]:
        system = (space.operator, space.targets, coordinates, penalty)
        if solver == "cg":
            return conjugate_gradient(*system, max_iter=self.max_iter, tol=tol, weight=problem.weight)
        if solver == "gd":
            return gradient_descent(*system, step=step, max_iter=self.max_iter, tol=tol, weight=problem.weight)
        return stochastic_gradient(
            *system,
            step=step,
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            random_state=random_state,
            weight=problem.weight,
        )


@parameters
class HasNystromSolver:
    """Direct, or one of the iterations."""

    solver: str = "direct"


@parameters
class HasTolerance:
    """When an iteration has converged."""

    tol: float | None = None


@register
@documented(
    **CHOICE_WORDS,
    **_ITERATION_WORDS,
    solver="""{"direct", "gd", "cg", "sgd"}
        One factorisation; or gradient descent, conjugate gradient or mini-batch gradient descent without
        preconditioner, which take many iterations and are here to be compared with.""",
    tol="""float or None
        Stop "gd" and "cg" when the residual falls below `tol` times the right-hand side's norm; a `ConvergenceWarning`
        says if it did not. None stops where more would not be seen (1e-6 in float32, 1e-10 in float64); 0 is for
        `max_iter` iterations. Either warns only if predictions of "cg" would still move by 5% of y's deviation.""",
    step="""float, "auto" or None
        Length of the steps of "gd" and "sgd". None and "auto" are 1 / the largest eigenvalue, estimated from ten
        passes, or from a few mini-batches.""",
    dtype=""""auto", "float32" or "float64"
        Precision of the kernel; "auto" follows X. "direct" factors in float64.""",
)
@parameters
class NystromRegressor(
    Regression,
    HasResources,
    HasValidation,
    HasTolerance,
    IteratesOnCenters,
    ChoosesPenalty,
    HasNystromSolver,
    NystromEstimator,
):
    """Nyström kernel ridge regression, solved directly for a whole list of penalties, or by plain iterations.

    Minimises mean((y - f(x))^2) + penalty |f|^2 over functions f(x) = sum_j coef_j k(x, center_j), as `FalkonRegressor`
    does. `solver="direct"` takes n M^2 time, and then has the solutions of all `penalties`, their degrees of
    freedom, and the errors by which to choose among them [1]_.

    {parameters}

    Attributes
    ----------
    centers_ : array of shape (M, n_features_in_)
        The centers.
    coef_ : array of shape (M,) or (M, n_outputs)
        Coefficients of the centers.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    penalty_ : float
        The penalty that was used or chosen.
    n_iter_ : int
        Iterations done, or penalties tried.
    history_ : list of dict
        With "direct", for each penalty: `penalty`, `df` (degrees of freedom), and `validation_error`, `gcv_error` or
        `loo_error`, all in the units of y. Otherwise, for each iteration, what `FalkonRegressor` has.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    FalkonRegressor : The same problem in some 20 passes over the rows, for many centers.
    NytroRegressor : The number of iterations instead of a penalty.

    Notes
    -----
    Where validation rows are held out of X to choose a penalty, the fit is to the others. Leave-one-out keeps centers
    and kernel as they are, and takes a second pass; generalised cross-validation takes none. Memory is some 5 M^2
    numbers, beside what `memory_budget` allows.

    References
    ----------
    .. [1] Rudi, Camoriano, Rosasco, "Less is More: Nyström Computational Regularization", NeurIPS 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import NystromRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(2000)
    >>> model = NystromRegressor(n_centers=100, penalties=np.logspace(-10, 0, 11), random_state=0).fit(X, y)
    >>> bool(1e-7 < model.penalty_ < 1e-2)
    True
    >>> len(model.history_)
    11
    """

    own_rules: ClassVar[Any] = {
        **CHOICE_RULES,
        "solver": one_of("direct", "gd", "cg", "sgd"),
        "step": _STEP,
        "batch_size": integer(1),
    }

    @property
    def _holds_out(self) -> bool:
        return super()._holds_out if self.solver == "direct" else self.early_stopping

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.solver != "direct" and self.penalties is not None:
            raise ValueError(f'penalties are for solver="direct": solver={self.solver!r} has one penalty')

    def _solve(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        if self.solver == "direct":
            self._solve_directly(problem, random_state)
            return
        space = self._subspace(problem, random_state, warm)
        tol = TOLERANCES[problem.rows.dtype] if self.tol is None else float(self.tol)
        step = "auto" if self.step is None else self.step
        gram = space.operator.centers_gram(space.factors)
        n, M = space.operator.shape
        last, stopped = self._follow(
            self._iterates(
                self.solver,
                Identity(gram, n, tile_dtype=space.operator.dtype),
                space,
                problem,
                random_state,
                penalty=float(self.penalty),
                step=step,
                tol=tol,
            ),
            problem,
            {"penalty_": float(self.penalty), **space.attributes},
            info={"max_iter": self.max_iter, "max_passes": self.max_iter + (self.solver == "cg"), "n_centers": M},
            watch=self._watch(problem, space.operator, space.budget),
            scale=space.scale,
        )
        if self.solver != "sgd" and not stopped:
            warn_if_unsettled(
                last,
                space.targets,
                problem.weight,
                tol=self.tol,
                reached=tol,
                steps="iterations",
                remedy=f'raise max_iter={self.max_iter}, the penalty or tol, or use solver="direct" or FalkonRegressor',
                stacklevel=3,
            )

    def _solve_directly(self, problem: Problem, random_state: np.random.RandomState) -> None:
        # the factor of K_MM, F'F, its eigenvectors and room to make them, all in float64
        buffers = 5 * 8 // problem.rows.dtype.itemsize
        space = self._subspace(problem, random_state, False, buffers=buffers)
        operator, n = space.operator, space.operator.shape[0]
        whitening = Whitening(operator.centers_gram(np.float64), n, tile_dtype=operator.dtype)
        self._choose_penalty(
            lambda: NystromPath(operator, space.targets, whitening, problem.weight),
            problem,
            operator,
            space.attributes,
            penalties=self.penalty if self.penalties is None else self.penalties,
            least=whitening.least_penalty,
            scale=space.scale,
        )


@parameters
class HasNytroSolver:
    """One of the iterations."""

    solver: str = "gd"


@register
@documented(
    **_ITERATION_WORDS,
    **STOPPING_WORDS,
    solver="""{"gd", "cg", "sgd"}
        Gradient descent, which is the paper's; conjugate gradient, whose path is shorter; or mini-batch gradient
        descent.""",
)
@parameters
class NytroRegressor(Regression, HasResources, StopsEarly, IteratesOnCenters, HasNytroSolver, NystromEstimator):
    """NYTRO: Nyström centers, and early stopping instead of a penalty.

    Gradient descent for mean((y - f(x))^2) over functions f(x) = sum_j coef_j k(x, center_j), in coordinates in which
    these are orthonormal: beta <- beta - (gamma/n) R'K'(K R beta - y), coef = R beta, R R' = K_MM^+ [1]_. t iterations
    of step gamma are about as smooth as a penalty of 1/(gamma t), so the path over iterations is the path over
    penalties, and validation rows say where to stop. When most of y is noise, that is after a few iterations.

    {parameters}

    Attributes
    ----------
    centers_ : array of shape (M, n_features_in_)
        The centers.
    coef_ : array of shape (M,) or (M, n_outputs)
        Coefficients of the centers.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    n_iter_ : int
        Iterations done.
    history_ : list of dict
        For each iteration: `iteration`, `residual`, `passes`, `seconds`, `converged`, and `validation_error` where
        there are validation rows.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    NystromRegressor : A penalty instead.
    FalkonRegressor : A penalty, and as few iterations for any of them.

    Notes
    -----
    Rows held out for validation are not used otherwise. n M t + M^3 time for t iterations; M^2 numbers of
    memory, beside what `memory_budget` allows for K.

    References
    ----------
    .. [1] Angles, Camoriano, Rudi, Rosasco, "NYTRO: When Subsampling Meets Early Stopping", AISTATS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import NytroRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(2 * X[:, 0]) + rng.standard_normal(2000)
    >>> model = NytroRegressor(n_centers=100, random_state=0).fit(X, y)
    >>> bool(np.abs(model.predict(X) - np.sin(2 * X[:, 0])).mean() < 0.2)
    True
    """

    own_rules: ClassVar[Any] = {
        **CHOICE_RULES,
        "solver": one_of("gd", "cg", "sgd"),
        "step": _STEP,
        "batch_size": integer(1),
    }

    @single_threaded_blas()  # threads of its own would decide the last bits
    def _solve(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        space = self._subspace(problem, random_state, warm)
        operator, (n, M) = space.operator, space.operator.shape
        whitening = Whitening(operator.centers_gram(space.factors), n, tile_dtype=operator.dtype)
        step: Any = self.step
        if self.solver == "gd":
            step = stable_step(
                step,
                operator.kernel,
                problem.rows,
                lambda: largest_eigenvalue(operator, whitening, 0.0, problem.weight),
            )
        elif step is None:
            # the largest eigenvalue of a mini-batch is bounded by its rows' w k(x, x)
            step = safe_step(operator.kernel, problem.rows, problem.weight)
        self._follow(
            self._iterates(self.solver, whitening, space, problem, random_state, penalty=0.0, step=step, tol=0.0),
            problem,
            space.attributes,
            info={"max_iter": self.max_iter, "max_passes": self.max_iter + (self.solver == "cg"), "n_centers": M},
            watch=self._watch(problem, operator, space.budget),
            scale=space.scale,
        )
