"""Rows without targets, for methods that look at the rows alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..sources.metric import has_metric
from ..sources.scratch import Scratch
from .data import FitData
from .rows import Reader, follows_rows, scaled, standardises, tile_dtype, unlabelled_rows


def unlabelled_data(
    estimator: Reader, X: Any, sample_weight: ArrayLike | None = None, *, scratch: Scratch | None = None
) -> FitData:
    """Check what a `fit` without y is given; the targets have no columns.

    Parameters
    ----------
    estimator : estimator
        Its `n_features_in_` and `feature_names_in_` are set.
    X, sample_weight : as given to `fit`
    scratch : Scratch, optional
        Where rows that are slow to read are kept for later passes.
    """
    rows, counted = unlabelled_rows(estimator, X, scratch, sample_weight)
    weight = counted.weight
    mean, scale = None, None
    if standardises(estimator, X, rows):
        mean, scale = rows.moments(weight).mean_and_scale(rows.feature_names)
    return FitData(
        rows=scaled(rows, mean, scale, tile_dtype(estimator.dtype, rows)),
        targets=np.empty((rows.shape[0], 0)),
        weight=None if weight is None else np.asarray(weight / weight.mean()),
        mean=mean,
        scale=scale,
        counted=counted,
        metric=has_metric(X),
        feature_names=vars(estimator).get("feature_names_in_"),
        dtype_given=not follows_rows(estimator.dtype),
    )
