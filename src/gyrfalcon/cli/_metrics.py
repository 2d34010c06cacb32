"""Metrics of predictions, as ``evaluate`` and ``fit`` report them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from .._utils.words import shown
from ..losses import Quantile
from ..sources import Rows

Array = NDArray[Any]

NAMES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R2",
    "accuracy": "accuracy",
    "log_loss": "log-loss",
    "auc": "AUC",
    "validation_error": "error",
}


def measure(model: Any, X: Any, y: Array, weight: Array | None = None) -> dict[str, Any]:
    """Compute the metrics of a model on rows, in one pass over them.

    Regression has ``rmse``, ``mae`` and ``r2`` (for several targets their mean); a model of quantiles has, for each
    level, the pinball loss and the share of targets below it. Classification has ``accuracy``; ``log_loss`` if there
    are probabilities; ``auc`` where it is defined, for more than two classes the mean of one against the rest.
    """
    if is_classifier(model):
        return _classification(model, X, y, weight)
    if isinstance(vars(model).get("loss_"), Quantile):
        return _quantiles(model, X, y, weight)
    from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

    predictions = model.predict(X)
    columns = [1 if values.ndim == 1 else values.shape[1] for values in (predictions, y)]
    if y.dtype.kind not in "fiub":
        raise ValueError("the target is not numeric, and the model predicts numbers: name another column with --target")
    if columns[0] != columns[1]:
        raise ValueError(f"the model predicts {columns[0]} targets, and --target names {columns[1]}")
    y = y.astype(np.float64).reshape(predictions.shape)
    return {
        "rmse": float(root_mean_squared_error(y, predictions, sample_weight=weight)),
        "mae": float(mean_absolute_error(y, predictions, sample_weight=weight)),
        # a single row has no variance
        "r2": float(r2_score(y, predictions, sample_weight=weight)) if len(y) > 1 else None,
    }


def _quantiles(model: Any, X: Rows, y: Array, weight: Array | None) -> dict[str, Any]:
    predictions = model.predict(X)
    columns = predictions.reshape(len(predictions), -1)
    targets = np.broadcast_to(y.astype(np.float64).reshape(len(y), -1), columns.shape)
    levels = np.broadcast_to(model.loss_.level, columns.shape[1:])
    errors = targets - columns
    pinball = np.average(np.maximum(levels * errors, (levels - 1) * errors), axis=0, weights=weight)
    below = np.average(errors <= 0, axis=0, weights=weight)
    return {
        "quantiles": [
            {"level": float(level), "pinball_loss": float(loss), "share_below": float(share)}
            for level, loss, share in zip(levels, pinball, below, strict=True)
        ]
    }


def _classification(model: Any, X: Rows, y: Array, weight: Array | None) -> dict[str, Any]:
    classes = model.classes_
    codes = codes_of(y, classes)
    if (codes < 0).all():
        raise ValueError(
            f"the target has labels such as {shown(y[0])}, and none that the model knows, such as {shown(classes[0])}: "
            "name another column with --target, or write labels as in the training data"
        )
    probable = hasattr(model, "predict_log_proba")  # which scikit-learn's classifiers have or lack by their parameters
    values = model.predict_log_proba(X) if probable else model.decision_function(X)
    if values.ndim == 1:
        values = np.stack([-values, values], axis=1)
    metrics: dict[str, Any] = {"accuracy": float(np.average(values.argmax(axis=1) == codes, weights=weight))}
    if probable:
        # a label that was not in the training data has probability zero, and the loss is infinite
        known = bool((codes >= 0).all())
        at = np.take_along_axis(values, np.maximum(codes, 0)[:, None], axis=1)[:, 0]
        metrics["log_loss"] = -float(np.average(at, weights=weight)) if known else None
    if probable or len(classes) == 2:
        metrics["auc"] = _area(values, codes, weight)
    return metrics


def codes_of(y: Array, classes: Array) -> Array:
    """Return the number of each label's class, -1 for unknown labels."""
    labels, at = np.unique(y, return_inverse=True)
    places = {label: code for code, label in enumerate(classes.tolist())}
    codes: Array = np.array([places.get(label, -1) for label in labels.tolist()], dtype=np.intp)[at]
    return codes


def _area(values: Array, codes: Array, weight: Array | None) -> float | None:
    """Return the area under the ROC curve; None if a class is missing, as then there is nothing to rank."""
    from sklearn.metrics import roc_auc_score

    k = values.shape[1]
    if len(np.unique(codes)) < k or (codes < 0).any():
        return None
    ranks = values[:, 1:] - values[:, :1] if k == 2 else values
    areas = [
        roc_auc_score(codes == code, ranks[:, i], sample_weight=weight)
        for i, code in enumerate([1] if k == 2 else range(k))
    ]
    return float(np.mean(areas))


def in_words(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of metrics as text."""
    if "quantiles" in metrics:
        return [
            (f"quantile {row['level']:g}", f"pinball loss {row['pinball_loss']:.5g}, {row['share_below']:.2%} below")
            for row in metrics["quantiles"]
        ]
    return [
        (words, "undefined here" if metrics[name] is None else f"{metrics[name]:.5g}")
        for name, words in NAMES.items()
        if name in metrics
    ]
