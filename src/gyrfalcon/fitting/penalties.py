"""Choose among penalties, or numbers of centers, that one factorisation serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._utils.compute import Compute
from ..operators import Operator, make_operator
from ..solvers import CenterPath, RidgePath
from .data import FitData
from .session import Session, finite

Array = NDArray[Any]

_PREDICTIONS = 1 << 25  # most predictions of validation rows, for several penalties, that are held at a time


def choose_penalty(
    path: RidgePath,
    data: FitData,
    operator: Operator,
    session: Session,
    *,
    penalties: ArrayLike,
    choose_by: str | None,
    least: float,
    scale: Array,
    compute: Compute,
) -> tuple[Array, float]:
    """Return the coefficients with the smallest error or the largest evidence, and their penalty.

    session : receives a record for each penalty
    penalties : a number if there is nothing to choose, or an array of shape (P,)
    choose_by : "validation", "gcv", "loo" or "evidence"; None is "validation" with validation rows, else "loo"
    least : smallest penalty that can be distinguished from rounding; smaller ones are raised to it
    scale : array of shape (k,) by which the coefficients are multiplied
    """
    criterion = None
    if np.ndim(penalties):
        criterion = choose_by or ("loo" if data.validation is None else "validation")
    penalties = np.array(penalties, dtype=np.float64, ndmin=1)
    counted = np.maximum(penalties, least)
    alpha = path.coefficients(counted) * scale[:, None]
    columns = {"penalty": penalties, "df": path.degrees_of_freedom(counted)}
    if data.validation is not None:
        columns["validation_error"] = validation_errors(data, operator, alpha, compute)
    if criterion == "gcv":
        columns["gcv_error"] = _root_mean(path.gcv(counted), scale)
    elif criterion == "loo":
        columns["loo_error"] = _root_mean(path.leave_one_out(counted), scale)
    if counted.min() > 0:  # without a penalty any function is as probable as any other
        columns["log_evidence"] = path.log_evidence(counted).sum(axis=1) - path.n_counted * float(np.log(scale).sum())
    best = 0
    if criterion is not None:
        error = -columns["log_evidence"] if criterion == "evidence" else columns[f"{criterion}_error"]
        # the largest of equally good penalties (or of all, if no error is finite)
        best = max(np.flatnonzero(error == error.min()).tolist(), key=lambda i: penalties[i])
    for i in range(len(penalties)):
        record = {name: float(column[i]) for name, column in columns.items()}
        session.record({"iteration": i + 1, "passes": max(1, operator.passes), **record})
    return finite(alpha[:, :, best], data.rows.dtype), float(penalties[best])


def choose_n_centers(
    path: CenterPath,
    data: FitData,
    operator: Operator,
    session: Session,
    *,
    penalties: ArrayLike,
    sizes: Sequence[int],
    least: float,
    scale: Array,
    compute: Compute,
) -> tuple[Array, float, int]:
    """Return the coefficients with the smallest validation error, their penalty and their number of centers.

    session : receives a record for each penalty and number of centers
    penalties : a number, or an array of numbers to choose from as well
    sizes : increasing numbers of centers to choose from
    least, scale, compute : as for `choose_penalty`
    """
    best: tuple[float, float, int] | None = None
    found = np.empty(0)
    for penalty in np.sort(np.array(penalties, dtype=np.float64, ndmin=1))[::-1]:
        alpha = path.coefficients(max(float(penalty), least), sizes) * scale[:, None]
        for i, error in enumerate(validation_errors(data, operator, alpha, compute)):
            record = {"n_centers": sizes[i], "penalty": float(penalty), "validation_error": float(error)}
            passes = max(1, operator.passes)
            session.record({"iteration": len(session.history) + 1, "passes": passes, **record})
            # of equally good ones the larger penalty, then the fewer centers
            if best is None or error < best[0]:
                best, found = (float(error), float(penalty), sizes[i]), alpha[: sizes[i], :, i]
    assert best is not None
    return finite(found, data.rows.dtype), best[1], best[2]


def validation_errors(data: FitData, operator: Operator, alpha: Array, compute: Compute) -> Array:
    """Return the validation error of each of the P solutions `alpha`, of shape (M, k, P)."""
    assert data.validation is not None
    validation = make_operator(
        operator.kernel,
        data.validation.rows,
        operator.centers,
        n_jobs=compute.n_jobs,
        memory_budget=0,
        device=compute.device,
    )
    M, k, P = alpha.shape
    errors = np.empty(P)
    size = max(1, _PREDICTIONS // (validation.shape[0] * k))
    for i in range(0, P, size):
        part = alpha[:, :, i : i + size]
        predictions = validation.matmat(part.reshape(M, -1)).reshape(-1, *part.shape[1:])
        errors[i : i + size] = [data.validation_error(predictions[:, :, j]) for j in range(part.shape[2])]
    return errors


def _root_mean(squares: Array, scale: Array) -> Array:
    """Return roots of the means over outputs, for targets that were divided by `scale`; no square overflows."""
    roots = np.sqrt(squares) * scale
    finite_roots = roots[np.isfinite(roots)]
    largest = float(finite_roots.max(initial=0.0)) or 1.0
    out: Array = largest * np.sqrt(np.square(roots / largest).mean(axis=1))
    return out
