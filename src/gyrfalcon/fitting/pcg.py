"""Exact kernel ridge regression by conjugate gradient: penalties and folds as columns of the same passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.memory import parse_memory
from .._utils.statistics import deviations
from .._utils.threads import single_threaded_blas
from ..operators import Operator, block_rows
from ..solvers import Iterate
from ..solvers.kernel_cg import KernelIterate, KernelSystems, kernel_cg
from .convergence import warn_if_unsettled
from .data import FitData
from .exact_preconditioner import Guess, low_rank, make_guess, plan_guess
from .folds import fold_numbers, folds_among
from .kernel import validation_watch
from .penalties import validation_errors
from .plan import check_memory
from .ridge import EveryRow, least_penalty
from .session import Session
from .targets import root_mean_square

Array = NDArray[Any]

# Root mean square by which fitted values may be off, in standard deviations of y. In float32 rounding alone is some
# 1e-5 to 1e-4 of them where penalty n is 0.01.
TOLERANCES = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-6}
MAX_ITER = 100

_VECTORS = 12  # arrays of shape (n, columns) in float64 that conjugate gradient holds at once


@dataclass(frozen=True)
class PcgSettings:
    """The parameters of conjugate gradient on all rows.

    n_centers, preconditioner : what the preconditioner is made from, and its name; see `plan_guess`
    choose_by : what chooses among penalties: "cv", "validation" or None
    cv : folds, see `fold_numbers`
    max_iter : maximum number of iterations, or None for `MAX_ITER`
    tol : error of fitted values at which iterations stop, or None for `TOLERANCES`
    """

    n_centers: int | None
    preconditioner: str
    choose_by: str | None
    cv: Any
    max_iter: int | None
    tol: float | None

    def criterion(self, *, chooses: bool, has_validation: bool) -> str | None:
        """Return what chooses among penalties, or None if there is nothing to choose, to predict or to calibrate.

        `chooses` is whether there are several penalties, or probabilities to calibrate.
        """
        if self.choose_by in ("gcv", "loo", "evidence"):
            raise ValueError(
                f'choose_by={self.choose_by!r} needs the n x n matrix that method="pcg" does without: choose by "cv" '
                'or "validation"'
            )
        if self.choose_by is None and chooses:
            return "validation" if has_validation else "cv"
        return self.choose_by


@dataclass(frozen=True)
class PcgSolution:
    """The solution for the chosen penalty; `operator` is k(rows, rows).

    `cv_predictions` are predictions of each row by a model that has not seen it, of shape (n, k), or None.
    """

    coef: Array
    penalty: float
    operator: Operator
    cv_predictions: Array | None


@dataclass
class _CheckedIterate(KernelIterate):
    """An iterate with the error of cross-validation of each penalty."""

    cv_errors: list[float] = field(default_factory=list)

    @property
    def details(self) -> dict[str, Any]:
        checked = {"cv_errors": self.cv_errors} if self.cv_errors else {}
        return super().details | {"n_columns": self.n_active} | checked


def solve(
    settings: PcgSettings, problem: EveryRow, compute: Compute, session: Session, labels: Array | None = None
) -> PcgSolution:
    """Solve for every penalty, and choose one; folds of a classifier are stratified by `labels`, its class numbers."""
    data, scale, y = problem.data, problem.scale, problem.targets.astype(np.float64)
    penalties = np.array(problem.penalties, dtype=np.float64, ndmin=1)
    (n, k), P = y.shape, len(penalties)
    criterion = settings.criterion(
        chooses=labels is not None or problem.penalty is None, has_validation=data.validation is not None
    )
    fold = _folds(settings.cv, data, labels, session) if criterion == "cv" else None
    guess, budget = _plan(settings, problem.points, penalties, 0 if fold is None else int(fold.max()) + 1, k, compute)
    max_iter = MAX_ITER if settings.max_iter is None else settings.max_iter
    with single_threaded_blas():  # its threads would change the last bits, and spin beside ours
        few = low_rank(guess, problem, session.random_state, compute, budget)
        budget -= 0 if few is None else few.kept_bytes
        operator = problem.operator(problem.points, compute, budget)
        tol = TOLERANCES[operator.dtype] if settings.tol is None else float(settings.tol)
        systems = _systems(y, data.weight, fold, np.maximum(penalties, least_penalty(operator)))
        left = budget - operator.kept_bytes
        inverse = make_guess(guess, few, problem, systems, session.random_state, compute, left)
        iterates = kernel_cg(operator, systems, inverse, max_iter=max_iter, tol=tol)
        solution = session.run(
            (_checked(iterate, systems, scale) for iterate in iterates),
            data,
            kind=_CheckedIterate,
            max_iter=max_iter,
            watch=validation_watch(data, operator, compute, budget) if P == 1 else None,
            scale=np.tile(scale, P),
            n_centers=n,
        )
        alpha = solution.coef.reshape(n, P, k)
        errors = np.array(solution.last.cv_errors or np.zeros(P))
        if data.validation is not None and P > 1:
            validated = validation_errors(data, operator, alpha.transpose(0, 2, 1), compute)
            session.history[-1]["validation_errors"] = validated.tolist()
            errors = validated if criterion == "validation" else errors
    # the largest of equally good penalties
    best = max(np.flatnonzero(errors == errors.min()).tolist(), key=lambda i: penalties[i])
    if not solution.stopped:
        warn_if_unsettled(
            solution.last,
            tol=settings.tol,
            reached=tol,
            steps="iterations",
            remedy=remedy_of(solution.last, max_iter, guess.M, operator.dtype),
        )
    predictions = None if fold is None else _cv_predictions(solution.last, systems, best, problem)
    return PcgSolution(np.ascontiguousarray(alpha[:, best]), float(penalties[best]), operator, predictions)


def remedy_of(last: Iterate, max_iter: int, M: int, dtype: np.dtype[Any]) -> str:
    """Say what may help a solver that has not converged."""
    if last.iteration == max_iter:
        return f"raise max_iter={max_iter}, the penalty or n_centers={M}"
    more = ', or use dtype="float64"' if dtype == np.float32 else ""
    return f"rounding allows no less, so raise the penalty or tol{more}"


def _folds(cv: Any, data: FitData, labels: Array | None, session: Session) -> NDArray[np.intp]:
    """Return the fold of each row."""
    y = data.targets[:, 0] if data.flat else data.targets
    among = cv if data.counted is None else folds_among(cv, data.counted)
    return fold_numbers(among, y if labels is None else labels, session.random_state, stratified=labels is not None)


def _systems(y: Array, weight: Array | None, fold: NDArray[np.intp] | None, penalties: Array) -> KernelSystems:
    """Make a column for each output of each penalty, of all rows and then without each fold."""
    k, P = y.shape[1], len(penalties)
    w = np.ones(len(y)) if weight is None else weight.astype(np.float64)
    n_folds = 0 if fold is None else int(fold.max()) + 1
    # a fit of the other rows alone would have weights of mean 1 among them
    totals = [w.sum()] if fold is None else [w.sum(), *(w.sum() - np.bincount(fold, weights=w))]
    spread = [deviations(y, weight)]
    for f in range(n_folds):
        rest = fold != f
        spread.append(deviations(y[rest], w[rest]))
    return KernelSystems(
        targets=y,
        output=np.tile(np.arange(k), (n_folds + 1) * P),
        mu=np.repeat(np.outer(totals, penalties).ravel(), k),
        left_out=np.repeat(np.arange(-1, n_folds), P * k),
        size=np.concatenate([np.tile(np.sqrt(total) * each, P) for total, each in zip(totals, spread, strict=True)]),
        fold=fold,
        weight=weight,
    )


def _held_out(values: Array, systems: KernelSystems) -> Array:
    """Return the values of each row in the columns that have left it out, of shape (n, P, k)."""
    assert systems.fold is not None
    n, k = systems.targets.shape
    n_folds = int(systems.fold.max()) + 1
    by_fold = values.reshape(n, n_folds + 1, -1, k)
    held: Array = by_fold[np.arange(n), systems.fold + 1]
    return held


def _cv_predictions(last: KernelIterate, systems: KernelSystems, best: int, problem: EveryRow) -> Array:
    """Return the predictions of each row, for the penalty that was chosen, by the model that has not seen the row."""
    data = problem.data
    found = _held_out(last.values, systems)[:, best] * problem.scale
    precision = np.promote_types(data.rows.dtype, data.outputs)
    return (found if data.offset is None else found + data.offset).astype(precision)


def _checked(iterate: KernelIterate, systems: KernelSystems, scale: Array) -> _CheckedIterate:
    """Return the iterate with the errors of cross-validation, and with the coefficients of all rows alone."""
    n_whole = int((systems.left_out == -1).sum())
    errors = []
    if systems.fold is not None:
        held, y = _held_out(iterate.values, systems) * scale, systems.targets * scale
        errors = [root_mean_square(y, systems.weight, held[:, i]) for i in range(held.shape[1])]
    fields = {name: value for name, value in vars(iterate).items() if name != "_coef"}
    return _CheckedIterate(**fields, cv_errors=errors, _coef=lambda: iterate.coef()[:, :n_whole])


def _plan(
    settings: PcgSettings, points: Array, penalties: Array, n_folds: int, k: int, compute: Compute
) -> tuple[Guess, int]:
    """Plan the preconditioner, and return the bytes left for keeping kernel matrices; MemoryError if nothing fits."""
    n, width = points.shape
    columns, itemsize = (n_folds + 1) * len(penalties) * k, points.dtype.itemsize
    needs = {
        f"vectors of {columns} columns": n * columns * (_VECTORS * 8 + 4 * itemsize),
        "blocks at work": (2 * compute.n_threads + 1) * block_rows(n, n, width) * (width + columns) * itemsize,
        "the rows": 3 * points.nbytes,
    }
    mu, held = np.maximum(penalties, np.finfo(np.float64).tiny) * n, sum(needs.values())
    guess = plan_guess(settings.preconditioner, settings.n_centers, points, mu, n_folds, compute, held)
    total = check_memory(
        compute.memory_budget,
        needs | guess.needs,
        f'method="pcg" with {n} rows takes',
        "give fewer penalties, folds or n_centers, or use an estimator of FALKON",
    )
    return guess, max(0, parse_memory(compute.memory_budget) - total)
