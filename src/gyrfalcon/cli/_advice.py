"""Plain words about a model and its errors on rows that it has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.words import listed, plural, shown
from ..tables import AutoRegressor
from ..tables._auto import AutoEstimator
from ..tables.finding import SEARCH_SHARE
from ..tables.scored import ScoreModel
from ._automatic import importances

Array = NDArray[Any]

_FEW_ROWS = 500  # rows of training below which more rows are the best advice
_FEW_JUDGED = 100  # number of test rows below which metrics are rough
_DOMINATES = 0.8  # share of importance of one column that is suspicious
_NEARLY_ALL = 0.85  # share of the time budget: candidates that would take longer than the rest are not begun
_COVERAGE = 0.9  # coverage of the intervals that are judged
_PERFECT = (
    "The predictions are almost perfect, which is rare. Is there a column that is computed from the target, or is "
    "known only after it? Are these rows also in the training data?"
)


def of_numbers(model: Any, y: Array, predictions: Array, coverage: float | None, target: str) -> Iterator[str]:
    """Yield advice about one column of numbers; `coverage` is the share of rows inside intervals of 90%, or None."""
    n = len(y)
    errors = y - predictions
    spread = float(np.sqrt(np.mean(errors**2)))
    yield from _of_fit(spread, float(y.std()), target)
    bias = float(errors.mean())
    if n >= 30 and abs(bias) > max(3 * spread / n**0.5, 0.1 * spread):
        way = "low" if bias > 0 else "high"
        yield (
            f"Predictions are too {way} by {abs(bias):.4g} on average: the distribution of these rows differs from "
            "the training rows, for example because they are later."
        )
    sizes = np.abs(errors)
    if n >= 50 and sizes.std() > 0 and predictions.std() > 0 and np.corrcoef(sizes, predictions)[0, 1] > 0.35:
        follows = isinstance(model, AutoRegressor) and any(spread is not None for spread in model.spreads_)
        widths = (
            " Intervals follow them."
            if follows
            else " Intervals have the same width for all rows that resemble training rows: too wide for small "
            "predictions and too narrow for large ones."
        )
        yield f"Errors grow with the prediction.{widths} The logarithm of the target may be the better target."
    if coverage is not None and coverage < _COVERAGE - 3 * (_COVERAGE * (1 - _COVERAGE) / n) ** 0.5 - 0.01:
        yield (
            f"Only {coverage:.0%} of these rows are inside their 90% intervals. Intervals assume that rows are "
            "distributed like the training rows: are these rows from another time or source?"
        )
    if isinstance(model, AutoRegressor):
        yield from _beside_training(model, y, spread)


def _of_fit(spread: float, deviation: float, target: str) -> Iterator[str]:
    """Yield advice about predictions that explain almost nothing or almost everything."""
    r2 = 1 - spread**2 / deviation**2 if deviation > 0 else 0.0
    if r2 < 0.05:
        yield (
            f"The model is hardly better than a constant. The columns may contain little information about {target}, "
            "or "
            "these rows may differ from the training rows."
        )
    elif r2 > 0.999:
        yield _PERFECT


def _beside_training(model: AutoRegressor, y: Array, spread: float) -> Iterator[str]:
    """Yield advice about rows that are unlike those of training."""
    known = float(np.sqrt(np.mean(model.residuals_**2)))
    if model.range_.shape[1] == 1 and len(y) >= 50 and spread > 1.3 * known:
        yield (
            f"The error here ({spread:.4g}) is larger than in cross-validation ({known:.4g}). If rows belong "
            "together, such as those of a person or a day, validate by groups or by time in Python (groups=, cv=)."
        )
    low, high = model.range_.min(axis=1)[0], model.range_.max(axis=1)[1]
    outside = int(((y < low) | (y > high)).sum())
    if outside:
        yield (
            f"Targets outside the range of training, {low:.4g} to {high:.4g}, which predictions never leave: "
            f"{plural(outside, 'row')}."
        )


def of_labels(model: Any, y: Array, codes: Array, probabilities: Array | None, predicted: Array) -> Iterator[str]:
    """Yield advice about labels; `codes` and `predicted` are their numbers, -1 for labels unknown to the model."""
    classes = [str(label) for label in model.classes_]
    unknown = sorted({str(label) for label in y[codes < 0]})
    if unknown:
        yield (
            "These labels did not occur in the training rows, so that the model cannot predict them: "
            f"{listed(unknown, 8, plain=True)}, in "
            f"{plural(int((codes < 0).sum()), 'row')}."
        )
    counts = np.bincount(codes[codes >= 0], minlength=len(classes))
    absent = [name for name, count in zip(classes, counts, strict=True) if not count]
    if absent:
        names = listed(absent, 8, plain=True)
        yield f"No row here has the label {names}: how well it is recognised is not known, and the AUC is undefined."
    rare = [name for name, count in zip(classes, counts, strict=True) if 0 < count < 10]
    if rare:
        yield f"Fewer than 10 rows here have the label {listed(rare, 8, plain=True)}: their figures are not accurate."
    right = float(np.mean(predicted == codes))
    majority = float(counts.max() / len(codes))
    if right > 0.999 and len(codes) >= 50:
        yield _PERFECT
    elif right <= majority + 0.005:
        yield (
            f"Predicting {shown(classes[int(counts.argmax())])} for all rows would be right as often ({majority:.1%}). "
            "Judge by the AUC and the log-loss. If rare labels matter, fit with --class-weight balanced, or use a "
            "threshold of your own for their probability."
        )
    if probabilities is not None and len(codes) >= _FEW_JUDGED:
        sure = float(probabilities.max(axis=1).mean())
        doubt = 3 * (right * (1 - right) / len(codes)) ** 0.5 + 0.02
        if abs(sure - right) > doubt:
            way = "too sure" if sure > right else "too cautious"
            yield f"Probabilities are {way}: right in {right:.0%} of rows, where the model expects {sure:.0%}."


def of_model(model: Any, n: int) -> Iterator[str]:
    """Yield advice about what was learnt, and about the number of rows that it is judged by."""
    if n < _FEW_JUDGED:
        yield f"The figures are based on only {plural(n, 'row')}: those of other rows may be quite different."
    if isinstance(model, AutoEstimator):
        yield from _of_search(model)
        return
    history = vars(model).get("history_") or [{}]
    if history[-1].get("converged") is False and history[-1].get("residual", 0.0) > 1e-3:
        yield (
            "The fit ended before it converged: try a larger --max-iter, or a larger --penalty. That may or may not "
            "improve predictions."
        )


def _of_search(model: AutoEstimator) -> Iterator[str]:
    rows = max((one.centers_.shape[0] for one in model.models_ if not isinstance(one, ScoreModel)), default=_FEW_ROWS)
    if rows < _FEW_ROWS:
        yield f"The model was trained on about {plural(rows, 'row')}: more rows would improve it most."
    (first, share), *rest = importances(model)
    if rest and share > _DOMINATES:
        yield (
            f"The column {first!r} alone has {share:.0%} of the importance. If it is known only after the target, or "
            "computed from it, leave it out with --features, because it is not available for predictions."
        )
    seconds = sum(record["seconds"] for record in model.candidates_)
    searched = sum(record["seconds"] for record in model.candidates_ if record["stage"] == "search")
    if seconds > _NEARLY_ALL * model.time_budget:
        yield (
            f"The time budget ended the search after {plural(len(model.candidates_), 'candidate')}: with more than "
            f"{model.time_budget:g} seconds (--time-budget) it may find a better model."
        )
    elif searched > _NEARLY_ALL * SEARCH_SHARE * model.time_budget:
        yield (
            f"The search on samples ended with its share of the time budget, {searched:.3g} of {model.time_budget:g} "
            "s: with a larger --time-budget, more candidates are tried."
        )
    known = vars(model).get("feature_names_in_")
    dropped = model.encoders_[0].kinds_ == "dropped"
    if known is not None and dropped.any():
        yield f"Columns with one value only were not used: {listed(known[dropped], 8, plain=True)}."
