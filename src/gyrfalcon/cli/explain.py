"""``gyrfalcon explain``: which columns the predictions of a model are due to."""

from __future__ import annotations

import argparse
import csv
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from .._utils.atomic import replacing
from .._utils.terminal import printable
from .._utils.words import a, plural
from ..estimators._estimator import Estimator
from ..estimators.shapley import ShapleyValues, shapley_values
from ._data import no_choice_of_features, rows_for
from ._explained import evenly, rows_at
from ._shared import add_model_arguments, add_talk_arguments, check_output, load_model, print_json, say, seconds
from .main import UsageError

__all__ = ["add_arguments", "run"]

EXAMPLES = """\
examples:
  gyrfalcon explain houses.gyr new_houses.csv -o why.csv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon explain``."""
    parser.usage = "%(prog)s MODEL DATA [DATA ...] -o FILE [options]"
    parser.epilog = EXAMPLES
    add_model_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="the .csv file to write: the prediction of each row, the mean prediction, and the part of each column",
    )
    parser.add_argument(
        "--background",
        metavar="N",
        type=int,
        default=100,
        help="number of rows of the data, evenly spaced, that a column is compared with",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed, where values are sampled")
    parser.add_argument("--n-jobs", metavar="N", type=int, help="threads (not given: as when the model was fitted)")
    add_talk_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain the predictions, write the Shapley values, and return the exit code."""
    if not arguments.output.lower().endswith(".csv"):
        raise UsageError(f"--output {arguments.output} must end in .csv")
    if arguments.background < 1:
        raise UsageError(f"--background {arguments.background} must be at least 1")
    model = load_model(arguments.model, arguments.n_jobs)
    if not isinstance(model, Estimator):
        raise UsageError(f"{arguments.model} is {a(type(model).__name__)}: give a model that gyrfalcon fit has written")
    data = rows_for(model, arguments)
    check_output(arguments.output, arguments.model, *data.files)
    n, d = data.X.shape
    say(f"Explaining {plural(n, 'prediction')} by {plural(d, 'column')} ...", arguments)
    began = time.perf_counter()
    background = rows_at(model, data.X, evenly(n, arguments.background))
    with no_choice_of_features():
        why = shapley_values(model, data.X, background, random_state=arguments.seed, n_jobs=arguments.n_jobs)
    with replacing(arguments.output) as path, open(path, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(_header(why, model))
        lines.writerows(_numbers(why).astype(str).tolist())
    took = time.perf_counter() - began
    if arguments.json:
        print_json({"output": arguments.output, "rows": n, "exact": why.exact, "seconds": took})
    else:
        how = "exact" if why.exact else "sampled"
        print(printable(f"{n:,} explanations ({how}) written to {arguments.output} in {seconds(took)}"))
    return 0


def _header(why: ShapleyValues, model: Any) -> list[str]:
    """Return the names of the columns of the file; outputs follow each other."""
    names = ["prediction", "base_value", *why.feature_names]
    if why.values.ndim == 2:
        return names
    outputs = model.classes_ if is_classifier(model) else range(why.values.shape[2])
    return [f"{name} [{output}]" for output in outputs for name in names]


def _numbers(why: ShapleyValues) -> NDArray[np.float64]:
    """Return what is written: prediction, base value and the part of each column, for one output after another."""
    n = len(why.values)
    values, base = why.values.reshape(n, len(why.feature_names), -1), why.base_values.reshape(n, -1)
    parts = np.concatenate([(base + values.sum(axis=1))[:, None], base[:, None], values], axis=1)
    return np.moveaxis(parts, 1, 2).reshape(n, -1)
