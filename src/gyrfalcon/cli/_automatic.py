"""What an `AutoRegressor` or `AutoClassifier` tells about itself."""

from __future__ import annotations

import numpy as np

from .._utils.words import plural
from ..tables import AutoClassifier, AutoRegressor
from ..tables._auto import AutoEstimator
from ..tables.boosted import Boosted
from ..tables.linear import Linear


def importances(model: AutoEstimator) -> list[tuple[str, float]]:
    """Return columns and their shares of importance, the largest first."""
    known = vars(model).get("feature_names_in_")
    names = [f"column {i}" for i in range(model.n_features_in_)] if known is None else [str(name) for name in known]
    order = np.argsort(-model.feature_importances_, kind="stable")
    return [(names[i], float(model.feature_importances_[i])) for i in order]


def cross_validated(model: AutoEstimator) -> dict[str, float]:
    """Return the errors of predictions for rows that were held out in the search."""
    if isinstance(model, AutoClassifier):
        return dict(model.cv_scores_)
    assert isinstance(model, AutoRegressor)
    return {"rmse": float(np.mean(model.residuals_**2)) ** 0.5, "mae": float(np.mean(model.residuals_))}


def members(model: AutoEstimator) -> list[str]:
    """Describe the models of the blend, in the order of `weights_`."""
    found = []
    for encoder, fitted, target in zip(model.encoders_, model.models_, model.targets_, strict=True):
        of = "" if target == "y" else f" of {target}"
        how = f"numbers={encoder.numbers!r}" + (", integers='both'" if encoder.integers == "both" else "")
        if isinstance(fitted, Boosted):
            found.append(f"gradient boosting{of}, {plural(len(fitted.trees_.root), 'tree')}, TableEncoder({how})")
            continue
        if isinstance(fitted, Linear):
            found.append(f"linear{of}, TableEncoder({how})")
            continue
        kernel, centers = type(fitted.kernel_).__name__, fitted.centers_.shape[0]
        found.append(f"{type(fitted).__name__}{of}, {kernel} kernel, {plural(centers, 'center')}, TableEncoder({how})")
    return found
