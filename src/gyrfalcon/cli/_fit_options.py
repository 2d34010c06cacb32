"""The options of ``gyrfalcon fit``: the parameters of the estimators, with their defaults.

Values are checked as they are parsed, so that a wrong one is reported before any file is read.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any

from .. import centers, kernels, losses
from .._utils.checks import Rule, integer, not_negative, number, optional, positive
from .._utils.memory import parse_memory
from ..estimators import FalkonRegressor
from ..storage.checkpoints import Checkpoint
from ..storage.values import Encoder
from ..tables import AutoRegressor
from ._docstrings import first_sentences, parameter_descriptions
from ._expressions import read_object
from ._shared import add_csv_arguments, add_data_argument, add_features_argument, add_talk_arguments

EXAMPLES = """\
examples:
  gyrfalcon fit houses.csv --target price --holdout 0.2 -o houses.gyr
  gyrfalcon fit mail.parquet --target spam --time-budget 300 -o spam.gyr
  gyrfalcon fit "flights/2024-*.parquet" --target delay --features hour,distance,carrier_id \\
      --method falkon --centers 2000 --penalty 1e-7 --memory-budget 4GB --checkpoint flights.state -o flights.gyr
  gyrfalcon fit rows.npy --target -1 --method falkon --kernel "gaussian(length_scale=2) + 0.1 * linear" -o rows.gyr
"""

# Options that one method has and the other has not.
OF_AUTO = ("time_budget", "holdout")
OF_FALKON = (
    "kernel",
    "length_scale",
    "nu",
    "degree",
    "n_centers",
    "centers",
    "penalty",
    "loss",
    "quantiles",
    "fit_intercept",
    "scale",
    "max_iter",
    "tol",
    "preconditioner",
    "early_stopping",
    "validation_fraction",
    "n_iter_no_change",
    "dtype",
    "checkpoint",
    "checkpoint_every",
)

KERNELS: dict[str, Callable[..., Any]] = {
    **kernels.NAMES,
    **kernels.ALIASES,
    "constant": kernels.Constant,
    # the class names, so that what `gyrfalcon inspect` prints can be typed
    **{cls.__name__: cls for cls in (*kernels.NAMES.values(), kernels.Constant)},
}
LOSSES: dict[str, Callable[..., Any]] = {
    **losses.NAMES,
    **{cls.__name__: cls for cls in losses.NAMES.values()},
}


_fraction = number(lambda x: 0 < x < 1, "between 0 and 1, both excluded")
_DESCRIPTIONS = parameter_descriptions(FalkonRegressor)


def default_of(name: str) -> Any:
    """Return the default of a parameter of `FalkonRegressor`."""
    return inspect.signature(FalkonRegressor).parameters[name].default


def _description(name: str, sentences: int) -> str:
    """Return the first sentences of a parameter's documentation, as argparse takes them."""
    return first_sentences(_DESCRIPTIONS[name], sentences).replace("%", "%%")


def _parsed(name: str, parse: Callable[[str], Any], rule: Rule | None = None) -> Callable[[str], Any]:
    """Return a function that parses a text as the value of a parameter, and checks it by a rule."""

    def convert(text: str) -> Any:
        try:
            value = parse(text)
            if rule is not None:
                rule(name, value)
        except (ValueError, TypeError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return value

    return convert


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _integer(text: str) -> int:
    try:
        return int(text.replace(",", ""))
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _numbers(text: str) -> float | list[float]:
    values = [_number(item) for item in text.split(",")]
    return values if len(values) > 1 else values[0]


def _penalty(text: str) -> float | str:
    return text if text == "auto" else _number(text)


def _length_scale(text: str) -> Any:
    return text if text == "scale" else _numbers(text)


def _seed(text: str) -> int | None:
    if text.lower() == "none":
        return None
    value = _integer(text)
    if not 0 <= value < 2**32:
        raise ValueError(f"{text} must be at least 0 and less than 2**32, or none")
    return value


def _budget(text: str) -> str:
    parse_memory(text)
    return text


def _kernel(text: str) -> Any:
    if text in kernels.NAMES:
        return text
    kernel = read_object(text, KERNELS, sums=True)
    try:
        Encoder("the kernel").value(kernel, "params.kernel", 1)
    except TypeError as error:  # now, and not after the fit
        raise ValueError(f"{text[:30]!r}... is nested too deeply for a model file: use fewer parentheses") from error
    return kernel


def _loss(text: str) -> Any:
    return text if losses.loss_name(text) in losses.NAMES else read_object(text, LOSSES)


def _centers(text: str) -> Any:
    if text in centers.NAMES:
        return text
    if text.replace(",", "").lstrip("-").isdigit():
        count = _integer(text)
        integer(1)("n_centers", count)
        return count
    raise ValueError(f"{text!r} must be a number, or one of {', '.join(centers.NAMES)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon fit``."""
    parser.usage = "%(prog)s TRAIN [TRAIN ...] --target NAME -o MODEL [options]"
    parser.epilog = EXAMPLES
    add_data_argument(parser, "TRAIN")
    data = parser.add_argument_group("data")
    data.add_argument(
        "--target",
        metavar="NAME",
        action="append",
        required=True,
        help="the column to learn; more than once for several columns of numbers. HDF5 and zarr: an array's name; "
        ".npy: a column's number (-1 is the last), or another .npy file",
    )
    add_features_argument(data, "by default all columns but the target and the weight")
    data.add_argument("--weight", metavar="NAME", help="the column with the weights of the rows")
    add_csv_arguments(data)
    data.add_argument(
        "--validation", metavar="FILE", help="held-out rows in the format of TRAIN, for the validation error"
    )
    data.add_argument(
        "--task",
        choices=["auto", "regression", "classification"],
        default="auto",
        help="whether the target is numbers or labels; auto looks at the target and reports its choice",
    )

    data.add_argument("--class-weight", choices=["balanced"], help="balanced: rare labels count as much as common ones")

    search = parser.add_argument_group("method")
    search.add_argument(
        "--method",
        choices=["auto", "falkon"],
        default="auto",
        help="auto: find a model of the table as it is, with text, dates and gaps, in memory. falkon: one kernel model "
        "of numbers, by the options below, from files of any size",
    )
    search.add_argument(
        "--time-budget",
        metavar="SECONDS",
        type=_parsed("time_budget", _number, positive("a finite number of seconds greater than 0")),
        default=inspect.signature(AutoRegressor).parameters["time_budget"].default,
        help="seconds that --method auto may take; small tables take less",
    )
    search.add_argument(
        "--holdout",
        metavar="X",
        type=_parsed("holdout", _number, _fraction),
        help="share of the rows, taken at random, that --method auto does not learn from; errors on them are printed "
        "beside those of a linear model and of a constant",
    )
    search.add_argument(
        "--random-state",
        metavar="SEED",
        type=_parsed("random_state", _seed),
        default=0,
        help="seed of the random generator, so that the same command gives the same model; none: another each time",
    )

    model = parser.add_argument_group("model of --method falkon")
    model.add_argument(
        "--kernel",
        type=_parsed("kernel", _kernel),
        default=default_of("kernel"),
        help=f"the similarity of two rows: {', '.join(kernels.NAMES)}; or quoted, with parameters, sums and products: "
        '"matern(nu=2.5, length_scale=1.5) + 0.1 * linear"',
    )
    model.add_argument(
        "--length-scale",
        metavar="X",
        type=_parsed("length_scale", _length_scale),
        help="the kernel's length scale: the distance over which rows are similar, in the units of the data, or with "
        "--scale in standard deviations. One number, or one a feature: 1,2.5,0.3. Not given: found from the data",
    )
    model.add_argument("--nu", metavar="X", type=_parsed("nu", _number), help="smoothness of the matern kernel")
    model.add_argument(
        "--degree", metavar="N", type=_parsed("degree", _integer), help="degree of the polynomial kernel"
    )
    model.add_argument(
        "--n-centers",
        metavar="M",
        type=_parsed("n_centers", _integer, integer(1)),
        help=_description("n_centers", 2) + ". Not given: 2,000, or 2 sqrt(n) beyond a million rows, at most 10,000",
    )
    model.add_argument(
        "--centers",
        metavar="M|HOW",
        type=_parsed("centers", _centers),
        action="append",
        help=f"a number is the same as --n-centers; a name says how centers are chosen: {', '.join(centers.NAMES)}. "
        f"Both may be given: --centers 2000 --centers leverage (not given: {default_of('centers')})",
    )
    model.add_argument(
        "--penalty",
        metavar="X",
        type=_parsed("penalty", _penalty, optional(not_negative(), "auto")),
        default=default_of("penalty"),
        help="weight of smoothness against the error on the rows; the papers' lambda, on the mean squared error. auto: "
        "chosen on a sample of the rows",
    )
    model.add_argument(
        "--loss",
        type=_parsed("loss", _loss),
        default=default_of("loss"),
        help=f"what is minimised: {', '.join(losses.NAMES)}. squared is the fastest; logistic gives probabilities of "
        "labels; huber does not mind outliers; quantile learns --quantiles; poisson learns counts",
    )
    model.add_argument(
        "--quantiles",
        metavar="Q",
        type=_parsed("quantiles", _numbers),
        help="levels for --loss quantile: 0.05,0.5,0.95",
    )
    model.add_argument(
        "--fit-intercept",
        action=argparse.BooleanOptionalAction,
        default=default_of("fit_intercept"),
        help=_description("fit_intercept", 1),
    )
    model.add_argument(
        "--scale",
        action=argparse.BooleanOptionalAction,
        default=default_of("scale"),
        help=_description("scale", 1) + "; auto: where no length scale is given",
    )

    solver = parser.add_argument_group("solver of --method falkon")
    solver.add_argument(
        "--max-iter",
        metavar="N",
        type=_parsed("max_iter", _integer, integer(1)),
        default=default_of("max_iter"),
        help=_description("max_iter", 1),
    )
    solver.add_argument(
        "--tol",
        metavar="X",
        type=_parsed("tol", _number, not_negative()),
        help="stop when the relative residual is below X. Not given: when more iterations would not change predictions",
    )
    solver.add_argument(
        "--preconditioner",
        choices=["auto", "falkon", "sample", "krill"],
        default=default_of("preconditioner"),
        help="the preconditioner of conjugate gradient; auto is nearly always right",
    )
    solver.add_argument(
        "--early-stopping",
        action="store_true",
        help="stop when the validation error no longer decreases, and keep the best solution. The error is that of "
        "--validation, or of a random part of the rows",
    )
    solver.add_argument(
        "--validation-fraction",
        metavar="X",
        type=_parsed("validation_fraction", _number, _fraction),
        default=default_of("validation_fraction"),
        help="share of the rows that --early-stopping holds out if --validation is not given",
    )
    solver.add_argument(
        "--n-iter-no-change",
        metavar="N",
        type=_parsed("n_iter_no_change", _integer, integer(1)),
        default=default_of("n_iter_no_change"),
        help="iterations without improvement after which --early-stopping stops",
    )

    resources = parser.add_argument_group("resources")
    resources.add_argument(
        "--dtype",
        choices=["auto", "float32", "float64"],
        default=default_of("dtype"),
        help="precision of the kernel of --method falkon; auto follows the data: float32 if all features are stored "
        "so, else float64",
    )
    resources.add_argument(
        "--memory-budget",
        metavar="SIZE",
        type=_parsed("memory_budget", _budget),
        default=default_of("memory_budget"),
        help="limit for the memory of the fit beside the target, such as 4GB. If the kernel matrix fits as well it is "
        "kept, which is faster. auto: what is available; 0: likewise, but the matrix is never kept",
    )
    resources.add_argument("--n-jobs", metavar="N", type=_parsed("n_jobs", _integer), help="threads (not given: all)")
    resources.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="a folder for the state of a fit by --method falkon. If it is killed, the same command resumes from "
        "there, to the same model. Delete the folder when done, or to start afresh",
    )
    resources.add_argument(
        "--checkpoint-every",
        metavar="SECONDS",
        type=_parsed("checkpoint_every", _number),
        default=Checkpoint("x").every,
        help="minimum time between two writes of the state; 0 writes after each iteration",
    )

    output = parser.add_argument_group("output")
    output.add_argument(
        "-o", "--output", metavar="MODEL", required=True, help="the model file to write, such as model.gyr"
    )
    add_talk_arguments(output)
    output.add_argument("-v", "--verbose", action="store_true", help="print a line for each iteration or candidate")
