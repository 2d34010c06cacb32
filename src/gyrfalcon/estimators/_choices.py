"""How much to regularise: the choice among penalties that one factorisation serves, and of a stopping time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._utils.checks import Rule, number, numbers, one_of, optional
from .._utils.ranges import check_kernel_scale
from ..callbacks import NoImprovement
from ..kernels import Kernel
from ..operators.dense import KernelOperator, make_operator
from ..solvers import NystromPath
from ..sources import Rows
from ._base import Estimator, KernelExpansion, Problem, recording
from ._parameters import HasPenalty, parameters

Array = NDArray[Any]

_PREDICTIONS = 1 << 25  # entries of the validation rows' predictions by several penalties that are held at a time


CHOICE_RULES: Mapping[str, Rule] = {
    "penalties": optional(
        numbers(lambda x: 0 <= x < np.inf, "None or a list of at least one finite number, none negative")
    ),
    "choose_by": one_of(None, "validation", "gcv", "loo"),
    "min_decrease": number(lambda x: 0 <= x < 1, "a number of at least 0 and less than 1"),
}

CHOICE_WORDS = {
    "penalty": """float
        The papers' lambda, on the mean squared error; not negative. Not used where `penalties` are given.""",
    "penalties": """array of shape (P,), or None
        Penalties to choose among: one factorisation serves them all.""",
    "choose_by": """{"validation", "gcv", "loo"} or None
        Which error chooses among `penalties`: that of the validation rows (given to `fit`, or held out of X), that of
        generalised cross-validation, or the leave-one-out error. None is "validation" if `fit` is given validation
        rows, else "loo".""",
}

STOPPING_WORDS = {
    "early_stopping": """bool
        Whether the validation error chooses the stopping time; otherwise there are `max_iter` iterations. Validation
        rows are those given to `fit`, or a random part of X.""",
    "min_decrease": """float
        Stop at the first iteration at which the validation error falls by less than this, relative to what it was.""",
    "n_iter_no_change": """int
        Stop only after this many such iterations in a row; the papers' rule has 1. The best solution is kept.""",
    "step": """float, "auto" or None
        Length gamma of the steps of gradient descent. None is the papers' 1 / max k(x, x), which is stable for every
        data set; "auto" is 1 / the largest eigenvalue, estimated in ten passes, which is longer.""",
}


@parameters
class HasPenalties(HasPenalty):
    """A penalty, or several to choose among."""

    penalties: ArrayLike | None = None
    choose_by: str | None = None


@parameters
class HasStoppingTime:
    """When to stop, where the number of iterations is what makes the solution smooth."""

    early_stopping: bool = True
    validation_fraction: float = 0.2
    n_iter_no_change: int = 1
    min_decrease: float = 1e-4


class StopsEarly(HasStoppingTime, Estimator):
    """Stops by the NYTRO paper's rule: at the first iteration with too small a relative decrease of the error."""

    def _patience(self) -> NoImprovement | None:
        return NoImprovement(self.n_iter_no_change, self.min_decrease) if self.early_stopping else None

    def _split(
        self, indices: Array, stratify: Array | None, random_state: np.random.RandomState
    ) -> tuple[Array, Array]:
        if len(indices) < 2:
            raise ValueError(
                f"there are no rows to hold out for validation, with n_samples={len(indices)}: give X_val and y_val, "
                "or do without (early_stopping=False)"
            )
        return super()._split(indices, stratify, random_state)


class ChoosesPenalty(HasPenalties, KernelExpansion):
    """Solves for all penalties at once, and keeps the best."""

    penalty_: float

    @property
    def _holds_out(self) -> bool:
        return self.penalties is not None and self.choose_by == "validation"

    def _choose_penalty(
        self,
        make_path: Callable[[], NystromPath],
        problem: Problem,
        operator: KernelOperator,
        attributes: Mapping[str, Any],
        *,
        penalties: ArrayLike,
        least: float,
        scale: Array,
    ) -> None:
        """Set the solution of the penalty with the least error.

        Parameters
        ----------
        make_path : makes the solutions of all penalties
        operator : k(rows, centers)
        attributes : what to set beside the solution
        penalties : the penalties; there is nothing to choose if it is a number
        least : the smallest penalty that means something; smaller ones count as that
        scale : what coefficients are to be multiplied with
        """
        criterion = None
        if np.ndim(penalties):
            criterion = self.choose_by or ("loo" if problem.validation is None else "validation")
        penalties = np.array(penalties, dtype=np.float64, ndmin=1)
        with recording(self, problem, n_centers=operator.shape[1]) as note:
            path = make_path()
            counted = np.maximum(penalties, least)
            alpha = path.coefficients(counted) * scale[:, None]
            columns = {"penalty": penalties, "df": path.degrees_of_freedom(counted)}
            if problem.validation is not None:
                columns["validation_error"] = self._validation_errors(problem, operator, alpha)
            if criterion == "gcv":
                columns["gcv_error"] = _root_mean(path.gcv(counted), scale)
            elif criterion == "loo":
                columns["loo_error"] = _root_mean(path.leave_one_out(counted), scale)
            best = 0
            if criterion is not None:
                error = columns[f"{criterion}_error"]
                # of equally good ones (or if no error is finite) the one with the largest penalty
                best = max(np.flatnonzero(error == error.min()).tolist(), key=lambda i: penalties[i])
            for i in range(len(penalties)):
                record = {name: float(column[i]) for name, column in columns.items()}
                note({"iteration": i + 1, "passes": max(1, operator.passes), **record})
            self._keep(alpha[:, :, best], problem, attributes)
            self.penalty_ = float(penalties[best])

    def _validation_errors(self, problem: Problem, operator: KernelOperator, alpha: Array) -> Array:
        """The validation error of each of the P solutions `alpha`, of shape (M, k, P)."""
        assert problem.validation is not None
        assert problem.error is not None
        validation = make_operator(
            operator.kernel, problem.validation, operator.centers, n_jobs=self.n_jobs, memory_budget=0
        )
        M, k, P = alpha.shape
        errors = np.empty(P)
        size = max(1, _PREDICTIONS // (validation.shape[0] * k))
        for i in range(0, P, size):
            part = alpha[:, :, i : i + size]
            predictions = validation.matmat(part.reshape(M, -1)).reshape(-1, *part.shape[1:])
            errors[i : i + size] = [problem.error(predictions[:, :, j]) for j in range(part.shape[2])]
        return errors


def safe_step(kernel: Kernel, rows: Rows, weight: Array | None = None) -> float:
    """The papers' step, 1 / max k(x, x), or 1 / max w k(x, x) with sample weights."""
    largest, start = 0.0, 0
    for block in rows.blocks(1 << 16):
        diagonal = kernel.diag(block)
        if weight is not None:
            diagonal = diagonal * weight[start : start + block.shape[0]]
        largest = max(largest, float(diagonal.max()))
        start += block.shape[0]
    check_kernel_scale(largest, rows.dtype, kernel=kernel)
    return 1 / largest if largest > 0 else 1.0


def stable_step(step: Any, kernel: Kernel, rows: Rows, largest_eigenvalue: Callable[[], float]) -> Any:
    """`step`, or the papers' where it is None, if gradient descent is stable with it.

    The solver notices when the residual grows, but early stopping may end it sooner, with what a bad step made.
    """
    safe = safe_step(kernel, rows)
    if step is None or step == "auto":
        return step or safe
    if step > 2 * safe and step * (largest := largest_eigenvalue()) > 2:
        raise FloatingPointError(
            f"gradient descent diverges with step={step:g}, where the largest stable step is about {2 / largest:.3g}: "
            'choose a shorter one, None or "auto"'
        )
    return step


def _root_mean(squares: Array, scale: Array) -> Array:
    """Roots of the means over outputs, for targets that were divided by `scale`; no square overflows."""
    roots = np.sqrt(squares) * scale
    finite = roots[np.isfinite(roots)]
    largest = float(finite.max(initial=0.0)) or 1.0
    out: Array = largest * np.sqrt(np.square(roots / largest).mean(axis=1))
    return out
