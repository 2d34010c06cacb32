"""Exact kernel ridge regression by conjugate gradient: penalties and folds as columns of the same passes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._utils.memory import format_bytes, limit_of, parse_memory, require
from .._utils.statistics import deviations
from .._utils.threads import effective_n_jobs, single_threaded_blas
from ..kernels import Kernel
from ..operators import KernelOperator, block_rows
from ..preconditioners import NystromPreconditioner
from ..preconditioners.nystrom import GATHERED
from ..solvers.kernel_cg import KernelIterate, KernelSystems, kernel_cg
from .convergence import warn_if_unsettled
from .data import FitData, root_mean_square
from .folds import fold_numbers, folds_among
from .kernel import validation_watch
from .penalties import validation_errors
from .ridge import least_penalty
from .session import Session

Array = NDArray[Any]

# Root mean square by which fitted values may be off, in standard deviations of y. In float32 rounding alone is some
# 1e-5 to 1e-4 of them where penalty n is 0.01.
TOLERANCES = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-6}
MAX_ITER = 100

_VECTORS = 12  # arrays of shape (n, columns) in float64 that conjugate gradient holds at once


def _n_centers(n: int) -> int:
    """Return the number of rows from which the preconditioner of n rows is made."""
    return min(max(1_000, math.isqrt(25 * n)), 10_000)


class PcgParameters(Protocol):
    """An estimator with the parameters of this method."""

    n_centers: int | None
    penalties: ArrayLike | None
    choose_by: str | None
    cv: Any
    max_iter: int | None
    tol: float | None
    memory_budget: int | float | str
    n_jobs: int | None


@dataclass(frozen=True)
class PcgSolution:
    """What was found.

    Attributes
    ----------
    coef : array of shape (n, k)
    penalty : float
    operator : k(rows, rows)
    cv_predictions : array of shape (n, k) of predictions by models that have not seen the row, or None
    """

    coef: Array
    penalty: float
    operator: KernelOperator
    cv_predictions: Array | None


@dataclass
class _CheckedIterate(KernelIterate):
    """An iterate with the error of cross-validation of each penalty."""

    cv_errors: list[float] = field(default_factory=list)

    @property
    def details(self) -> dict[str, Any]:
        checked = {"cv_errors": self.cv_errors} if self.cv_errors else {}
        return super().details | {"n_columns": self.n_active} | checked


def criterion_of(model: PcgParameters, has_validation: bool, *, calibrates: bool = False) -> str | None:
    """Return what chooses among penalties, and None if there is nothing to choose nor to predict nor to calibrate."""
    if model.choose_by in ("gcv", "loo", "evidence"):
        raise ValueError(
            f'choose_by={model.choose_by!r} needs the n x n matrix that method="pcg" does without: choose by "cv" or '
            '"validation"'
        )
    if model.choose_by is None and (calibrates or model.penalties is not None):
        return "validation" if has_validation else "cv"
    return model.choose_by


def solve(
    model: PcgParameters,
    data: FitData,
    points: Array,
    kernel: Kernel,
    y: Array,
    scale: Array,
    penalties: ArrayLike,
    session: Session,
    labels: Array | None = None,
) -> PcgSolution:
    """Solve for every penalty, and choose one.

    Parameters
    ----------
    model : estimator
    data : FitData
    points : array of shape (n, d)
        The rows.
    kernel : Kernel
        With what depends on the data worked out.
    y : array of shape (n, k)
        Targets, divided by `scale`.
    scale : array of shape (k,)
    penalties : float, or array of shape (P,)
    session : Session
    labels : array of shape (n,), optional
        Of a classifier, the number of each row's class: folds are stratified by it.
    """
    y = y.astype(np.float64)
    n, k = y.shape
    criterion = criterion_of(model, data.validation is not None, calibrates=labels is not None)
    penalties = np.array(penalties, dtype=np.float64, ndmin=1)
    fold, P = _folds(model.cv, data, labels, session) if criterion == "cv" else None, len(penalties)
    n_folds = 0 if fold is None else int(fold.max()) + 1
    M = min(n, _n_centers(n) if model.n_centers is None else int(model.n_centers))
    budget = _check_memory(model, points, M, n_folds, P, k)
    max_iter = MAX_ITER if model.max_iter is None else model.max_iter
    with single_threaded_blas():  # threads of its own would decide the last bits, and spin beside ours
        centers = points[np.sort(session.random_state.choice(n, M, replace=False))]
        few = KernelOperator(kernel, data.rows, centers, n_jobs=model.n_jobs, memory_budget=budget)
        budget -= few.kept_bytes
        operator = KernelOperator(kernel, data.rows, points, n_jobs=model.n_jobs, memory_budget=budget)
        tol = TOLERANCES[operator.dtype] if model.tol is None else float(model.tol)
        systems = _systems(y, data.weight, fold, np.maximum(penalties, least_penalty(operator)))
        guess = NystromPreconditioner(few, systems.mu.min(), weight=data.weight, fold=fold, n_jobs=model.n_jobs)
        iterates = kernel_cg(operator, systems, guess, max_iter=max_iter, tol=tol)
        solution = session.run(
            (_checked(iterate, systems, scale) for iterate in iterates),
            data,
            kind=_CheckedIterate,
            max_iter=max_iter,
            watch=validation_watch(data, operator, n_jobs=model.n_jobs, budget=budget) if P == 1 else None,
            scale=np.tile(scale, P),
            n_centers=n,
        )
        last, alpha = solution.last, solution.coef.reshape(n, P, k)
        errors = np.array(last.cv_errors or np.zeros(P))
        if data.validation is not None and P > 1:
            validated = validation_errors(data, operator, alpha.transpose(0, 2, 1), model.n_jobs)
            session.history[-1]["validation_errors"] = validated.tolist()
            errors = validated if criterion == "validation" else errors
    # of equally good ones the one with the largest penalty
    best = max(np.flatnonzero(errors == errors.min()).tolist(), key=lambda i: penalties[i])
    single = operator.dtype == np.float32
    if not solution.stopped:
        warn_if_unsettled(
            last,
            tol=model.tol,
            reached=tol,
            steps="iterations",
            remedy=f"raise max_iter={max_iter}, the penalty or n_centers={M}"
            if last.iteration == max_iter
            else "rounding allows no less, so raise the penalty or tol"
            + (', or use dtype="float64"' if single else ""),
        )
    predictions = None
    if fold is not None:
        found = _held_out(last.values, systems)[:, best] * scale
        precision = np.promote_types(operator.dtype, data.outputs)
        predictions = (found if data.offset is None else found + data.offset).astype(precision)
    return PcgSolution(np.ascontiguousarray(alpha[:, best]), float(penalties[best]), operator, predictions)


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


def _checked(iterate: KernelIterate, systems: KernelSystems, scale: Array) -> _CheckedIterate:
    """Return the iterate with the errors of cross-validation, and with the coefficients of all rows alone."""
    n_whole = int((systems.left_out == -1).sum())
    errors = []
    if systems.fold is not None:
        held, y = _held_out(iterate.values, systems) * scale, systems.targets * scale
        errors = [root_mean_square(y, systems.weight, held[:, i]) for i in range(held.shape[1])]
    fields = {name: value for name, value in vars(iterate).items() if name != "_coef"}
    return _CheckedIterate(**fields, cv_errors=errors, _coef=lambda: iterate.coef()[:, :n_whole])


def _check_memory(model: PcgParameters, points: Array, M: int, n_folds: int, P: int, k: int) -> int:
    """Raise MemoryError if the fit does not fit, and return the bytes left for keeping kernel matrices."""
    n, width = points.shape
    columns = (n_folds + 1) * P * k
    itemsize, n_threads = points.dtype.itemsize, effective_n_jobs(model.n_jobs)
    needs = {
        f"vectors of {columns} columns": n * columns * (_VECTORS * 8 + 4 * itemsize),
        f"factors of {M} centers": 8 * M * M * ((n_folds + 1) * (P + 2) + 4),
        "blocks at work": (2 * n_threads + 1) * block_rows(n, n, width) * (width + columns) * itemsize
        + (2 * min(n, GATHERED) + block_rows(n, M, width)) * M * (8 + itemsize),
        "the rows": 3 * points.nbytes,
    }
    total, limit = sum(needs.values()), limit_of(model.memory_budget)
    parts = ", ".join(f"{format_bytes(size)} for {what}" for what, size in needs.items() if size > total // 50)
    require(
        model.memory_budget,
        total,
        f'method="pcg" takes {format_bytes(total)} for {n} rows ({parts})',
        "give fewer penalties, folds or n_centers, or use an estimator of FALKON",
        limit=limit,
    )
    return max(0, parse_memory(model.memory_budget) - total)
