"""Sections of a report: charts of errors, what matters, what was tried."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.memory import format_bytes
from .._utils.words import plural
from ..tables._auto import AutoEstimator
from ._automatic import importances, members
from ._charts import Chart, span, thinned
from ._expressions import written
from ._page import bars, charts, figure, folded, matrix, paragraph, section, table
from ._shared import seconds

Array = NDArray[Any]

_BINS = 10
_MOST_LABELS = 12
_SHOWN_CANDIDATES = 10


# ---- errors ----------------------------------------------------------------------------------------------------------


def about_numbers(y: Array, predictions: Array, name: str, half_width: float | None, several: bool) -> str:
    """Return charts of predictions against true values, and of errors.

    `half_width` is half the median width of intervals of 90%, or None; `several` says whether there are other targets.
    """
    shown_y, shown = thinned(y, predictions)
    both = span(shown_y, shown)
    first = Chart(both, both, f"predicted {name}", f"true {name}")
    first.curve(np.array(both), np.array(both), "guide")
    first.points(shown, shown_y)
    errors = shown_y - shown
    second = Chart(
        span(shown), span(errors, np.array([-(half_width or 0), half_width or 0])), f"predicted {name}", "error"
    )
    if half_width is not None:
        second.band(-half_width, half_width)
    second.curve(np.array(second.x), np.zeros(2), "guide")
    second.points(shown, errors)
    some = "" if len(shown) == len(y) else f" {len(shown):,} of {plural(len(y), 'row')}, at random."
    inside = "" if half_width is None else " The band has the median width of the 90% intervals."
    return section(
        f"Errors of {name}" if several else "Errors",
        charts(
            figure(
                "Predicted and true",
                first.svg("scatter plot of true against predicted values"),
                f"A perfect model has all points on the line.{some}",
            ),
            figure(
                "Errors along the prediction",
                second.svg("scatter plot of errors against predicted values"),
                f"True minus predicted. A pattern shows that the model can be improved.{inside}",
            ),
        ),
    )


def about_labels(classes: Array, codes: Array, probabilities: Array | None, predicted: Array) -> list[str]:
    """Return the calibration of probabilities, and which labels are taken for which.

    `codes` and `predicted` are the numbers of the true and the predicted labels, -1 for labels that the model does not
    know.
    """
    parts = []
    if probabilities is not None:
        parts.append(section("Calibration of the probabilities", _calibration(classes, codes, probabilities)))
    counts = np.bincount(codes[codes >= 0], minlength=len(classes))
    chosen = np.sort(np.argsort(-counts, kind="stable")[:_MOST_LABELS])
    number = np.full(len(classes) + 1, -1)
    number[chosen] = np.arange(len(chosen))
    true, said = number[codes], number[predicted]
    kept = (true >= 0) & (said >= 0)
    found = np.zeros((len(chosen), len(chosen)), dtype=int)
    np.add.at(found, (true[kept], said[kept]), 1)
    words = "Rows are the true labels, columns the predicted ones; the shade is the share of the row."
    if len(chosen) < len(classes):
        words += f" The {len(chosen)} most frequent of {len(classes)} labels."
    shown = matrix([str(label) for label in classes[chosen]], found.tolist())
    return [*parts, section("Which labels are confused", shown, paragraph(words, soft=True))]


def _calibration(classes: Array, codes: Array, probabilities: Array) -> str:
    if len(classes) == 2:
        said, true = probabilities[:, 1], codes == 1
        name, outcome = f"predicted probability of {classes[1]}", f"share of {classes[1]}"
    else:
        said, true = probabilities.max(axis=1), probabilities.argmax(axis=1) == codes
        name, outcome = "predicted probability of the likeliest label", "share that is right"
    order = np.argsort(said, kind="stable")
    groups = [group for group in np.array_split(order, min(_BINS, max(1, len(said) // 10))) if len(group)]
    x, share = np.array([said[group].mean() for group in groups]), np.array([true[group].mean() for group in groups])
    error = np.array([2 * np.sqrt(max(p * (1 - p), 1 / len(g)) / len(g)) for p, g in zip(share, groups, strict=True)])
    chart = Chart((-0.02, 1.02), (-0.02, 1.02), name, outcome)
    chart.curve(np.array([0, 1]), np.array([0, 1]), "guide")
    for place, middle, half in zip(x, share, error, strict=True):
        chart.curve(np.array([place, place]), np.clip([middle - half, middle + half], 0, 1), "curve")
    chart.curve(x, share)
    chart.points(x, share, "solid", 4)
    drawn = chart.svg("calibration curve")
    spread = Chart((-0.02, 1.02), (0, 1), name, "share of rows")
    heights, edges = np.histogram(said, bins=20, range=(0, 1))
    shares = heights / max(1, heights.sum())
    spread.y = (0.0, float(shares.max()) * 1.08 or 1.0)
    steps = np.repeat(edges, 2)[1:-1]
    spread.curve(steps, np.repeat(shares, 2))
    return charts(
        figure(
            "Calibration",
            drawn,
            "Groups of rows with similar probabilities. On the line, predicted probabilities are equal to observed "
            "shares. Vertical lines are twice the standard error.",
        ),
        figure("How sure the model is", spread.svg("histogram of probabilities"), "Probabilities of these rows."),
    )


# ---- what was learnt -------------------------------------------------------------------------------------------------


def about_model(model: Any) -> list[str]:
    """Return a description of the model itself."""
    return _about_search(model) if isinstance(model, AutoEstimator) else [_about_fit(model)]


def _about_search(model: AutoEstimator) -> list[str]:
    shares = importances(model)
    records = model.candidates_
    known = [record for record in records if record["error"] == record["error"]]
    ordered = sorted(known, key=lambda record: float(record["error"]))
    ordered += [record for record in records if record["error"] != record["error"]]
    rows = [
        [
            record["stage"],
            record["encoding"],
            record["kernel"],
            record["target"],
            int(record["round"]),
            record["metric"],
            record["length_scale"],
            record["penalty"],
            record["error"],
            record["seconds"],
        ]
        for record in ordered
    ]
    names = ["stage", "columns", "kernel", "target", "round", "metric", "length scale", "penalty", "error", "seconds"]
    rest = rows[_SHOWN_CANDIDATES:]
    total = sum(record["seconds"] for record in records)
    weighted = sorted(zip(model.weights_, members(model), model.models_, strict=True), key=lambda one: -one[0])
    blend: list[list[str | float | int | None]] = [
        [f"{weight:.0%}", words, int(vars(fitted).get("n_iter_", 0))] for weight, words, fitted in weighted
    ]
    return [
        section(
            "Which columns matter",
            bars(shares),
            paragraph(
                "The increase of the error on held-out rows when the values of a column are shuffled, as shares. A "
                "column without a bar does not improve predictions. Columns with the same information share their "
                "importance. Importance does not show causes.",
                soft=True,
            ),
        ),
        section(
            "What was tried",
            paragraph(
                f"{plural(len(records), 'candidate')} in {seconds(total)}, of a time budget of {model.time_budget:g} "
                "s. Errors are those of rows that were held out in training, relative to the error of a constant."
            ),
            _search_chart(known) if len(known) > 2 else "",
            table(names, rows[:_SHOWN_CANDIDATES]),
            folded(f"{len(rest)} more", table(names, rest)) if rest else "",
        ),
        section(
            "What predicts",
            paragraph("The average of these models, by their weights."),
            table(["weight", "model", "iterations"], blend),
        ),
    ]


def _search_chart(records: list[dict[str, Any]]) -> str:
    place = np.array([record["iteration"] for record in records], dtype=np.float64)
    errors = np.array([record["error"] for record in records], dtype=np.float64)
    last = np.array([record["stage"].startswith("all rows") for record in records])
    height = min(float(errors.max()), 2.5 * float(np.median(errors)))  # one that is far off hides all others
    chart = Chart((0.5, place.max() + 0.5), span(np.minimum(errors, height)), "candidate", "error", whole=True)
    chart.curve(place, np.minimum.accumulate(np.minimum(errors, height)))
    chart.points(place[~last], np.minimum(errors, height)[~last], "solid", 3.5)
    chart.points(place[last], np.minimum(errors, height)[last], "second", 4.5)
    drawn = chart.svg("errors of candidates in the order in which they were tried")
    words = "Points are candidates, on samples of the rows; the line is the smallest error so far."
    if last.any():
        words += " Points of the other colour are fits of all rows."
    return figure("The error along the search", drawn, words, alone=True)


def _about_fit(model: Any) -> str:
    learnt = vars(model)  # the attributes that the file holds; estimators differ in which they have
    history = learnt.get("history_") or []
    facts: list[list[str | float | int | None]] = []
    if "kernel_" in learnt:
        facts.append(["kernel", written(model.kernel_)])
    if "centers_" in learnt:
        size = format_bytes(model.centers_.nbytes)
        facts.append(["centers", f"{model.centers_.shape[0]:,} of {plural(model.n_features_in_, 'feature')} ({size})"])
    if "penalty_" in learnt:
        facts.append(["penalty", f"{float(model.penalty_):.4g}"])
    if history:
        facts.append(["iterations", str(len(history))])
        facts.append(["time", seconds(float(history[-1].get("seconds", 0.0)))])
    drawn = [_history_chart(history, key, words) for key, words in _CURVES.items()]
    shown = charts(*(one for one in drawn if one)) if any(drawn) else ""
    return section("How it was fitted", table(["", ""], facts) if facts else "", shown)


_CURVES = {
    "residual": ("The residual", "residual", "Relative residual of the linear system, by iteration."),
    "validation_error": ("The validation error", "error", "Error on rows that were held out, by iteration."),
    "objective": ("The objective", "objective", "What is minimised, by iteration."),
}


def _history_chart(history: list[dict[str, Any]], key: str, words: tuple[str, str, str]) -> str:
    pairs = [(i + 1, record[key]) for i, record in enumerate(history) if record.get(key) is not None]
    x, values = np.array([i for i, _ in pairs], dtype=np.float64), np.array([v for _, v in pairs], dtype=np.float64)
    if len(values) < 2 or not (values > 0).all():
        return ""
    y = np.log10(values)
    chart = Chart((x[0] - 0.3, x[-1] + 0.3), span(y), "iteration", words[1], log=True, whole=True)
    chart.curve(x, y)
    chart.points(x, y, "solid", 3)
    return figure(words[0], chart.svg(words[2]), words[2])
