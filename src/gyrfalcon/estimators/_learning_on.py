"""Learning on: how regressors with centers take in further rows, and forget rows, without starting over."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..fitting.data import FitData
from ..fitting.learning_on import (
    FORGETTING_FACTOR,
    MOST_NEW_CENTERS,
    Batch,
    Scaling,
    add_centers,
    begin_sums,
    forget,
    learn,
    read_batch,
)
from ..fitting.rows import labelled
from ..fitting.targets import root_mean_square
from ..operators import Operator, make_operator
from ..solvers.running_sums import RunningSums
from ._estimator import unchanged_on_failure
from ._posterior import PosteriorRegressor

_NOT_KEPT = "this {} was fitted without incremental=True, and cannot learn on or forget: fit it again with it"


def keep_sums(model: PosteriorRegressor, operator: Operator, data: FitData, penalty: float, given: Any) -> None:
    """Set what later batches are added to, at the end of a fit to X, y and weights, which are `given`."""
    model.running_sums_ = begin_sums(operator, data, penalty, labelled(*given)[2])
    model.n_samples_seen_ = len(data.targets)


def can_learn_on(model: PosteriorRegressor) -> bool:
    """Whether a model can take in rows; otherwise raise AttributeError, as scikit-learn's `available_if` expects."""
    if model._is_fitted and "running_sums_" not in vars(model):
        raise AttributeError(_NOT_KEPT.format(type(model).__name__))
    return True


def check_steps(forgetting_factor: float, max_new_centers: int) -> None:
    """Raise ValueError for arguments of `partial_fit` that are out of range."""
    FORGETTING_FACTOR("forgetting_factor", forgetting_factor)
    MOST_NEW_CENTERS("max_new_centers", max_new_centers)


def learn_batch(
    model: PosteriorRegressor, X: Any, y: Any, sample_weight: Any, forgetting_factor: float, max_new_centers: int
) -> None:
    """Take in a batch of rows, and record the error that the model made on them before."""
    check_steps(forgetting_factor, max_new_centers)
    with unchanged_on_failure(model):
        batch = _read(model, X, y, sample_weight)
        operator, sums = _operator(model, batch), model.running_sums_
        coef = np.asarray(model.dual_coef_, dtype=np.float64).reshape(operator.shape[1], -1)
        foretold = operator.matmat(coef) + np.atleast_1d(model.offset_)
        record = {
            "iteration": model.n_iter_ + 1,
            "rows": len(batch.targets),
            "error_before": root_mean_square(batch.targets, batch.weight, foretold),
            "new_centers": 0,
        }
        added = add_centers(sums, model.centers_, operator, max_new_centers)
        if added is not None:
            sums, centers = added
            record["new_centers"] = centers.shape[0] - model.centers_.shape[0]
            model._set_centers(model.kernel_, centers)
            operator = _operator(model, batch)
        _set_sums(model, learn(sums, operator, batch, forgetting_factor))
        model.n_samples_seen_ += len(batch.targets)
        model.n_iter_ += 1
        model.history_ = [*model.history_, record]


def forget_batch(model: PosteriorRegressor, X: Any, y: Any, sample_weight: Any) -> None:
    """Take away a batch of rows that was learnt before."""
    with unchanged_on_failure(model):
        batch = _read(model, X, y, sample_weight)
        _set_sums(model, forget(model.running_sums_, _operator(model, batch), batch))
        model.n_samples_seen_ -= len(batch.targets)


def _set_sums(model: PosteriorRegressor, sums: RunningSums) -> None:
    """Set the sums and the solution that follows from them."""
    coef, offset = sums.solution(model.fit_intercept)
    flat = np.ndim(model.offset_) == 0
    model.running_sums_ = sums
    model.dual_coef_ = coef[:, 0] if flat else coef
    model.offset_ = float(offset[0]) if flat else offset


def _read(model: PosteriorRegressor, X: Any, y: Any, sample_weight: Any) -> Batch:
    """Return a batch of rows as the kernel of a fitted model sees them."""
    check_is_fitted(model)
    if "running_sums_" not in vars(model):
        raise ValueError(_NOT_KEPT.format(type(model).__name__))
    scaling = Scaling(model.mean_, model.scale_, model.centers_.dtype)
    return read_batch(model._reading, model._features, scaling, np.size(model.offset_), X, y, sample_weight)


def _operator(model: PosteriorRegressor, batch: Batch) -> Operator:
    # the blocks of K are used two or three times, and kept if they fit
    return make_operator(
        model.kernel_,
        batch.rows,
        model.centers_,
        n_jobs=model.n_jobs,
        memory_budget=model.memory_budget,
        device=model.device,
    )
