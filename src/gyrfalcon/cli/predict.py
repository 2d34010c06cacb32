"""``gyrfalcon predict``: the predictions of a model for the rows of files."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import sys
import time
from functools import partial
from typing import Any

from sklearn.base import is_classifier

from .._utils.terminal import printable
from .._utils.words import a, plural
from ..sources import Rows
from ..sources.files import Dataset
from ..storage.parts import PART_ROWS, remove_parts
from ..storage.predictions import WRITERS, Predictions, WithInterval, write, write_csv, write_in_parts
from ..tables._auto import AutoEstimator
from ..tables.inputs import text_columns
from ._data import no_choice_of_features, rows_for
from ._shared import (
    add_model_arguments,
    add_talk_arguments,
    check_output,
    load_model,
    print_json,
    say,
    seconds,
    watched,
)
from .main import UsageError

__all__ = ["add_arguments", "run"]

EXAMPLES = """\
examples:
  gyrfalcon predict houses.gyr new_houses.csv
  gyrfalcon predict houses.gyr new_houses.csv -o prices.parquet
  gyrfalcon predict houses.gyr new_houses.csv --interval 0.9
  gyrfalcon predict spam.gyr mail.parquet --proba | head
"""

_BLOCK_ROWS = 16_384  # rows of a block for standard output: at most about a second between blocks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon predict``."""
    parser.usage = "%(prog)s MODEL DATA [DATA ...] [options]"
    parser.epilog = EXAMPLES
    add_model_arguments(parser)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--proba",
        dest="method",
        action="store_const",
        const="predict_proba",
        help="probabilities of all labels instead of the likeliest, from a model fitted with --method auto, or with "
        "--loss logistic",
    )
    kind.add_argument(
        "--decision",
        dest="method",
        action="store_const",
        const="decision_function",
        help="a classifier's decision function: one value, positive for the second label, or one for each label",
    )
    kind.add_argument(
        "--interval",
        metavar="P",
        type=_coverage,
        help="also the lower and the upper end of an interval that holds the true value with this probability, such as "
        "0.9, from a model of numbers fitted with --method auto, or any other with intervals",
    )
    parser.set_defaults(method="predict")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write: a name that ends in .parquet, .csv or .npy. Not given: as CSV to standard output",
    )
    parser.add_argument(
        "--restart",
        action="store_true",
        help="begin again, and remove what an earlier run that was killed has left; not given: continue with it",
    )
    parser.add_argument("--n-jobs", metavar="N", type=int, help="threads (not given: as when the model was fitted)")
    add_talk_arguments(parser)


def _coverage(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number between 0 and 1, both excluded, such as 0.9")
    return value


class _Terminal(io.StringIO):
    """Standard output where a person reads it: labels cannot control the terminal. Programs get them as they are."""

    def write(self, text: str) -> int:
        return sys.stdout.write(printable(text, keep="\n"))


def run(arguments: argparse.Namespace) -> int:
    """Predict, print or write the predictions, and return the exit code."""
    if arguments.json and arguments.output is None:
        raise UsageError("--json says what was written, and needs --output")
    if arguments.output is not None and not arguments.output.lower().endswith(tuple(WRITERS)):
        raise UsageError(f"--output {arguments.output} must end in {', '.join(WRITERS)}: the formats of predictions")
    model = load_model(arguments.model, arguments.n_jobs)
    _check_method(model, arguments)
    data = rows_for(model, arguments, in_blocks=True)
    automatic = isinstance(model, AutoEstimator)
    tables: dict[str, Any] = {"tables": automatic, "as_text": text_columns(model.encoders_[0]) if automatic else ()}
    if arguments.interval is not None:
        model = WithInterval(model, arguments.interval)
    if arguments.output is None:
        with (
            no_choice_of_features(),
            Predictions(model, data.X, arguments.method, block_rows=_BLOCK_ROWS, **tables) as predictions,
        ):
            write_csv(_Terminal() if sys.stdout.isatty() else sys.stdout, predictions)
        return 0
    check_output(arguments.output, arguments.model, *data.files)
    for path in arguments.data:
        if os.path.isdir(path) and os.path.realpath(arguments.output).startswith(os.path.realpath(path) + os.sep):
            raise UsageError(
                f"--output {arguments.output} is in a folder of data, and would be read as data the next time"
            )
    n, d = data.X.shape
    say(f"Predicting for {plural(n, 'row')} of {plural(d, 'feature')} ...", arguments)
    began = time.perf_counter()
    if arguments.restart:
        remove_parts(arguments.output)
    size = data.file_bytes if isinstance(data, Dataset) else 0
    with no_choice_of_features(), watched(data.X, "Predicting", arguments, size) as X:
        if isinstance(X, Rows) and n > PART_ROWS:
            identify = partial(_identity, arguments)
            written = write_in_parts(model, X, arguments.output, arguments.method, identify, **tables)
        else:
            with Predictions(model, X, arguments.method, **tables) as predictions:
                written = write(predictions, arguments.output)
    took = time.perf_counter() - began
    if arguments.json:
        print_json({"output": arguments.output, "method": arguments.method, "rows": written, "seconds": took})
    else:
        print(printable(f"{written:,} predictions written to {arguments.output} in {seconds(took)}"))
    return 0


def _identity(arguments: argparse.Namespace) -> str:
    """Tell the model of the arguments from others, by the contents of its file."""
    with open(arguments.model, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return f"{digest}, with intervals of {arguments.interval}"


def _check_method(model: Any, arguments: argparse.Namespace) -> None:
    if arguments.interval is not None and not hasattr(model, "predict_interval"):
        raise UsageError(
            f"--interval: {arguments.model} is {a(type(model).__name__)}, which has no intervals: they come from "
            "models of numbers, such as --method auto fits"
        )
    if hasattr(model, arguments.method):  # which scikit-learn's classifiers have or lack by their parameters
        return
    if arguments.method == "predict_proba" and is_classifier(model):
        raise UsageError(
            f"--proba: {arguments.model} has no probabilities; fit it with --loss logistic, or ask for --decision"
        )
    option = "--proba" if arguments.method == "predict_proba" else "--decision"
    raise UsageError(f"{option}: {arguments.model} predicts numbers and not labels")
