"""``gyrfalcon report``: a page that shows how good a model is on rows it has not seen, and what it has learnt."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from .._utils.atomic import replacing
from .._utils.terminal import printable
from .._utils.version import package_version
from .._utils.words import plural
from ..losses import Quantile
from ._advice import of_labels, of_model, of_numbers
from ._closer_look import dependence, intervals_by_fifths, worst_rows
from ._data import known_target, no_choice_of_features, rows_for
from ._explained import about_predictions
from ._metrics import NAMES, codes_of, in_words, measure
from ._page import advice, cards, number, page, paragraph, section, table, text
from ._sections import about_labels, about_model, about_numbers
from ._shared import (
    add_model_arguments,
    add_talk_arguments,
    add_target_argument,
    check_output,
    load_model,
    print_json,
    say,
    watched,
)
from .main import UsageError

Array = NDArray[Any]

EXAMPLES = """\
examples:
  gyrfalcon report houses.gyr test_houses.csv
  gyrfalcon report spam.gyr test_mail.parquet -o spam.html

The rows should be others than those of training: errors on rows that were learnt from say little.
"""

_MOST_OUTPUTS = 4  # most targets that have charts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon report``."""
    parser.usage = "%(prog)s MODEL DATA [DATA ...] [options]"
    parser.epilog = EXAMPLES
    add_model_arguments(parser)
    add_target_argument(parser)
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html", help="the page to write")
    parser.add_argument("--n-jobs", metavar="N", type=int, help="threads (not given: as when the model was fitted)")
    add_talk_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write a page about a model and return the exit code."""
    if not arguments.output.lower().endswith((".html", ".htm")):
        raise UsageError(f"--output {arguments.output} must end in .html: a report is a page for a browser")
    model = load_model(arguments.model, arguments.n_jobs)
    target = arguments.target or [str(name) for name in vars(model).get("target_names_", [])]
    if not target:
        raise UsageError(f"{arguments.model} does not contain the name of its target: give it with --target")
    data = rows_for(model, arguments, target)
    check_output(arguments.output, arguments.model, *data.files)
    n, y = data.X.shape[0], known_target(model, data)
    say(f"Predicting {', '.join(target)} for {plural(n, 'row')} ...", arguments)
    with no_choice_of_features(), watched(data.X, "Predicting", arguments) as X:
        metrics = measure(model, X, y)
        found = _labels(model, X, y, metrics) if is_classifier(model) else _numbers(model, X, y, target, metrics)
    headline, charts, words = found
    with no_choice_of_features():
        reasons = about_predictions(model, data.X)
        charts.append(dependence(model, data.X))
    words = [*words, *of_model(model, n)]
    told = advice(words) if words else paragraph("Nothing stands out.")
    written = page(
        f"{', '.join(target)}: report of {os.path.basename(arguments.model)}",
        [
            f"<h1>How well “{text(', '.join(target))}” is predicted</h1>",
            paragraph(
                f"{type(model).__name__} in {os.path.basename(arguments.model)}, on {plural(n, 'row')} of "
                f"{', '.join(os.path.basename(path) for path in arguments.data)}. {time.strftime('%Y-%m-%d %H:%M')}, "
                f"gyrfalcon {package_version()}.",
                soft=True,
            ),
            headline,
            section("Advice", told),
            *charts,
            *reasons,
            *about_model(model),
        ],
    )
    with replacing(arguments.output) as partial, open(partial, "w", encoding="utf-8") as file:
        file.write(written)
    if arguments.json:
        print_json({"output": arguments.output, "rows": n, "metrics": metrics, "advice": words})
    else:
        summary = ", ".join(f"{name} {value}" for name, value in in_words(metrics))
        print(printable(f"{arguments.output} written: {summary} on {plural(n, 'row')}"))
    return 0


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _numbers(
    model: Any, X: Any, y: Array, target: list[str], metrics: dict[str, Any]
) -> tuple[str, list[str], list[str]]:
    """Return headline, charts and advice of a model of numbers."""
    if isinstance(vars(model).get("loss_"), Quantile):
        levels = [(f"{row['level']:g}", row["share_below"], row["pinball_loss"]) for row in metrics["quantiles"]]
        return table(["quantile", "share of targets below", "pinball loss"], levels), [], []
    predictions = np.asarray(model.predict(X), dtype=np.float64)
    predictions, columns = predictions.reshape(len(y), -1), y.astype(np.float64).reshape(len(y), -1)
    spread, distance = columns.std(axis=0).mean(), np.abs(columns - columns.mean(axis=0)).mean()
    boxes = [
        ("R2", number(metrics["r2"]), "share of the variance that is explained; a constant: 0"),
        ("RMSE", number(metrics["rmse"]), f"root mean squared error; a constant: {number(float(spread))}"),
        ("MAE", number(metrics["mae"]), f"mean absolute error; a constant: {number(float(distance))}"),
    ]
    ends = _interval(model, X)
    inside = None if ends is None else (ends[:, 0] <= columns) & (columns <= ends[:, 1])
    if ends is not None and inside is not None:
        width = number(float((ends[:, 1] - ends[:, 0]).mean()))
        boxes.append(("90% intervals", f"{inside.mean():.1%}", f"of the rows are inside; their width is {width}"))
    charts: list[str] = []
    words: list[str] = []
    for k, name in enumerate(target[:_MOST_OUTPUTS]):
        half = None if ends is None else float(np.median(ends[:, 1, k] - ends[:, 0, k]) / 2)
        charts.append(about_numbers(columns[:, k], predictions[:, k], name, half, several=len(target) > 1))
        if ends is not None:
            charts.append(intervals_by_fifths(columns[:, k], ends[:, :, k], predictions[:, k]))
        share = None if inside is None else float(inside[:, k].mean())
        words += of_numbers(model, columns[:, k], predictions[:, k], share, name)
    errors = (columns - predictions)[:, 0]
    charts.append(worst_rows(model, X, columns[:, 0].tolist(), predictions[:, 0].tolist(), np.abs(errors), "error"))
    return cards(boxes), charts, words


def _interval(model: Any, X: Any) -> Array | None:
    """Return lower and upper ends of shape (n, 2, n_outputs), if the model has intervals."""
    from ..tables import AutoRegressor

    if not isinstance(model, AutoRegressor):
        return None
    ends = model.predict_interval(X, 0.9)
    return ends.reshape(len(ends), 2, -1)


# ---- labels ----------------------------------------------------------------------------------------------------------


def _labels(model: Any, X: Any, y: Array, metrics: dict[str, Any]) -> tuple[str, list[str], list[str]]:
    """Return headline, charts and advice of a model of labels."""
    codes = codes_of(y, model.classes_)
    probable = hasattr(model, "predict_proba")  # which scikit-learn's classifiers have or lack by their parameters
    probabilities = np.asarray(model.predict_proba(X)) if probable else None
    predicted = codes_of(np.asarray(model.predict(X)), model.classes_)
    shares = np.bincount(codes[codes >= 0], minlength=len(model.classes_)) / len(codes)
    present = shares[shares > 0]
    remarks = {
        "accuracy": f"share of rows with the right label; a constant: {shares.max():.4g}",
        "log_loss": f"less is better; a constant: {-float((present * np.log(present)).sum()):.4g}",
        "auc": "area under the ROC curve; a constant: 0.5",
    }
    boxes = [(NAMES[name], number(metrics[name]), remarks[name]) for name in remarks if name in metrics]
    charts = about_labels(model.classes_, codes, probabilities, predicted)
    if probabilities is not None:
        # labels that the model does not know have a probability of 0
        missed = 1.0 - np.where(codes < 0, 0.0, probabilities[np.arange(len(codes)), codes])
        said = [str(label) for label in model.classes_[predicted]]
        charts.append(worst_rows(model, X, [str(label) for label in y], said, missed, "1 - P(true label)"))
    return cards(boxes), charts, list(of_labels(model, y, codes, probabilities, predicted))
