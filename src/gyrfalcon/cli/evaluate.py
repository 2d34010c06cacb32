"""``gyrfalcon evaluate``: the error of a model on rows whose target is known."""

from __future__ import annotations

import argparse
import time

from .._utils.words import plural
from ._data import known_target, no_choice_of_features, rows_for
from ._metrics import in_words, measure
from ._shared import (
    add_model_arguments,
    add_talk_arguments,
    add_target_argument,
    load_model,
    print_json,
    print_table,
    say,
    watched,
)
from .main import UsageError

EXAMPLES = """\
examples:
  gyrfalcon evaluate houses.gyr test_houses.csv
  gyrfalcon evaluate spam.gyr test_mail.parquet --target spam --json

Numbers are judged by RMSE (root mean squared error), MAE (mean absolute error) and R2 (share of the variance that is
explained); labels by accuracy, AUC, and the log-loss if there are probabilities; quantiles by the pinball loss and the
share of targets below.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon evaluate``."""
    parser.usage = "%(prog)s MODEL DATA [DATA ...] [options]"
    parser.epilog = EXAMPLES
    add_model_arguments(parser)
    add_target_argument(parser)
    parser.add_argument("--weight", metavar="NAME", help="the column with the weights of the rows")
    parser.add_argument("--n-jobs", metavar="N", type=int, help="threads (not given: as when the model was fitted)")
    add_talk_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the metrics of a model on rows and return the exit code."""
    model = load_model(arguments.model, arguments.n_jobs)
    target = arguments.target or [str(name) for name in vars(model).get("target_names_", [])]
    if not target:
        raise UsageError(f"{arguments.model} does not contain the name of its target: give it with --target")
    data = rows_for(model, arguments, target, arguments.weight)
    n, d = data.X.shape
    say(f"Predicting {', '.join(target)} for {plural(n, 'row')} of {plural(d, 'feature')} ...", arguments)
    began = time.perf_counter()
    with no_choice_of_features(), watched(data.X, "Predicting", arguments) as X:
        metrics = measure(model, X, known_target(model, data), data.weight)
    took = time.perf_counter() - began
    if arguments.json:
        print_json({"model": arguments.model, "target": target, "rows": n, **metrics, "seconds": took})
    else:
        print_table([("rows", f"{n:,}"), *in_words(metrics)])
    return 0
