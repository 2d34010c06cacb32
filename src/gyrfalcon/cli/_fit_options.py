"""The options of ``gyrfalcon fit``: the parameters of the estimators, with their defaults.

Values are checked as they are parsed, so that a wrong one is reported before any file is read.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import centers, kernels
from .._utils.checks import Rule, integer, not_negative, number, optional, positive
from .._utils.memory import parse_memory
from ..estimators import FalkonRegressor
from ..fitting.parameters import CENTERS_OR_AUTO
from ..losses import named
from ..storage.checkpoints import Checkpoint
from ..storage.values import Encoder
from ..tables import AutoRegressor
from ._expressions import read_object
from ._shared import CSV_OPTIONS, TALK_OPTIONS, Option, data_option, features_option

EXAMPLES = """\
examples:
  gyrfalcon fit houses.csv --target price --holdout 0.2 -o houses.gyr
  gyrfalcon fit mail.parquet --target spam --time-budget 300 -o spam.gyr
  gyrfalcon fit "flights/2024-*.parquet" --target delay --features hour,distance,carrier_id \\
      --method falkon --centers 2000 --penalty 1e-7 --memory-budget 4GB --checkpoint flights.state -o flights.gyr
  gyrfalcon fit rows.npy --target -1 --method falkon --kernel "gaussian(length_scale=2) + 0.1 * linear" -o rows.gyr
"""

KERNELS: dict[str, Callable[..., Any]] = {
    **kernels.NAMES,
    **kernels.ALIASES,
    "constant": kernels.Constant,
    # the class names, so that what `gyrfalcon inspect` prints can be typed
    **{cls.__name__: cls for cls in (*kernels.NAMES.values(), kernels.Constant)},
}
LOSSES: dict[str, Callable[..., Any]] = {
    **named.NAMES,
    **{cls.__name__: cls for cls in named.NAMES.values()},
}


def parameter_descriptions(cls: type) -> dict[str, str]:
    """Return the description of each parameter in the numpydoc docstring of a class, in one line, without its type."""
    lines = (inspect.getdoc(cls) or "").splitlines()
    descriptions: dict[str, str] = {}
    if "Parameters" not in lines:
        return descriptions
    names: list[str] = []
    for line in lines[lines.index("Parameters") + 2 :]:
        if line.startswith("---"):  # the line before was the title of the next section
            for name in names:
                del descriptions[name]
            break
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.partition(" : ")[0].split(",")]
            descriptions.update(dict.fromkeys(names, ""))
        else:
            for name in names:
                descriptions[name] = " ".join([*descriptions[name].split(), *line.split()])
    return descriptions


def first_sentences(text: str, count: int) -> str:
    """Return the first sentences of a description as an option's help: no capital, no full stop, no markup."""
    words = ". ".join(text.replace("`", "").split(". ")[:count]).rstrip(".")
    return words[:1].lower() + words[1:]


_fraction = number(lambda x: 0 < x < 1, "between 0 and 1, both excluded")
_DESCRIPTIONS = parameter_descriptions(FalkonRegressor)


def default_of(name: str) -> Any:
    """Return the default of a parameter of `FalkonRegressor`."""
    return inspect.signature(FalkonRegressor).parameters[name].default


def _description(name: str, sentences: int) -> str:
    """Return the first sentences of a parameter's documentation, as argparse takes them."""
    return first_sentences(_DESCRIPTIONS[name], sentences).replace("%", "%%")


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


def _centers(text: str) -> Any:
    if text in centers.NAMES:
        return text
    if text.replace(",", "").lstrip("-").isdigit():
        count = _integer(text)
        integer(1)("n_centers", count)
        return count
    raise ValueError(f"{text!r} must be a number, or one of {', '.join(centers.NAMES)}")


def _of_falkon(
    flags: str,
    help: str,
    metavar: str | None = None,
    parse: Callable[[str], Any] | None = None,
    rule: Rule | None = None,
    **more: Any,
) -> Option:
    """Return an option of --method falkon alone; its default is that of the parameter of `FalkonRegressor`."""
    option = Option(flags, help, metavar, parse, rule, more, "falkon")
    if option.name not in inspect.signature(FalkonRegressor).parameters or "default" in more:
        return option
    return replace(option, more={"default": default_of(option.name), **more})


OPTIONS = {
    "data": (
        Option(
            "--target",
            "the column to predict; repeat the option for several columns of numbers. HDF5 and zarr: the name of an "
            "array; .npy: the number of a column (-1 is the last), or another .npy file",
            "NAME",
            more={"action": "append", "required": True},
        ),
        features_option("by default all columns but the target and the weight"),
        Option("--weight", "the column with the weights of the rows", "NAME"),
        *CSV_OPTIONS,
        Option("--validation", "held-out rows in the format of TRAIN, for the validation error", "FILE"),
        Option(
            "--task",
            "whether the target is numbers or labels; auto looks at the target and reports its choice",
            more={"choices": ["auto", "regression", "classification"], "default": "auto"},
        ),
        Option("--class-weight", "balanced: rare labels count as much as common ones", more={"choices": ["balanced"]}),
    ),
    "method": (
        Option(
            "--method",
            "auto: search for a model of the table, which may have text, dates and missing values, in memory. falkon: "
            "one kernel model of numbers, with the options below, from files of any size",
            more={"choices": ["auto", "falkon"], "default": "auto"},
        ),
        Option(
            "--time-budget",
            "seconds that --method auto may take; small tables take less",
            "SECONDS",
            _number,
            positive("a finite number of seconds greater than 0"),
            {"default": inspect.signature(AutoRegressor).parameters["time_budget"].default},
            method="auto",
        ),
        Option(
            "--holdout",
            "fraction of the rows, drawn at random, that --method auto holds out; errors on them are printed, beside "
            "those of a linear model and of a constant",
            "X",
            _number,
            _fraction,
            method="auto",
        ),
        Option(
            "--random-state",
            "seed of the random generator, with which the same command gives the same model; none: a new one each time",
            "SEED",
            _seed,
            more={"default": 0},
        ),
    ),
    "model of --method falkon": (
        _of_falkon(
            "--kernel",
            f"the similarity of two rows: {', '.join(kernels.NAMES)}; or quoted, with parameters, sums and products: "
            '"matern(nu=2.5, length_scale=1.5) + 0.1 * linear"',
            parse=_kernel,
        ),
        _of_falkon(
            "--length-scale",
            "length scale of the kernel: the distance over which rows are similar, in the units of the data, or with "
            "--scale in standard deviations. One number, or one for each feature: 1,2.5,0.3. Not given: computed from "
            "the data",
            "X",
            lambda text: text if text == "scale" else _numbers(text),
        ),
        _of_falkon("--nu", "smoothness of the matern kernel", "X", _number),
        _of_falkon("--degree", "degree of the polynomial kernel", "N", _integer),
        _of_falkon(
            "--n-centers",
            _description("n_centers", 2) + ". Not given: 2,000, or 2 sqrt(n) beyond a million rows, at most 10,000. "
            "auto: doubled, from 1,000 on, while the error of --validation, or of a random part of the rows, falls",
            "M|auto",
            lambda text: text if text == "auto" else _integer(text),
            CENTERS_OR_AUTO,
        ),
        _of_falkon(
            "--centers",
            f"a number is the same as --n-centers; a name says how centers are chosen: {', '.join(centers.NAMES)}. "
            f"Both may be given: --centers 2000 --centers leverage (not given: {default_of('centers')})",
            "M|HOW",
            _centers,
            action="append",
            default=None,
        ),
        _of_falkon(
            "--penalty",
            "strength of the regularisation: a larger penalty makes the model smoother (lambda of the papers). "
            "auto: chosen on a sample of the rows",
            "X",
            lambda text: text if text == "auto" else _number(text),
            optional(not_negative(), "auto"),
        ),
        _of_falkon(
            "--loss",
            f"what is minimised: {', '.join(named.NAMES)}. squared is the fastest; logistic gives probabilities of "
            "labels; squared_hinge and hinge are support vector machines; huber is robust to outliers; quantile "
            "predicts --quantiles; poisson predicts counts",
            parse=lambda text: text if named.loss_name(text) in named.NAMES else read_object(text, LOSSES),
        ),
        _of_falkon("--quantiles", "levels for --loss quantile: 0.05,0.5,0.95", "Q", _numbers),
        _of_falkon("--fit-intercept", _description("fit_intercept", 1), action=argparse.BooleanOptionalAction),
        _of_falkon(
            "--scale",
            _description("scale", 1) + "; auto: where no length scale is given",
            action=argparse.BooleanOptionalAction,
        ),
    ),
    "solver of --method falkon": (
        _of_falkon("--max-iter", _description("max_iter", 1), "N", _integer, integer(1)),
        _of_falkon(
            "--tol",
            "stop when the relative residual is below X. Not given: when more iterations would not change predictions",
            "X",
            _number,
            not_negative(),
        ),
        _of_falkon(
            "--preconditioner",
            "the preconditioner of conjugate gradient; auto is nearly always right",
            choices=["auto", "falkon", "paper", "sample", "krill"],
        ),
        _of_falkon(
            "--early-stopping",
            "stop when the validation error no longer decreases, and keep the best solution. The error is that of "
            "--validation, or of a random part of the rows",
            action="store_true",
        ),
        _of_falkon(
            "--validation-fraction",
            "fraction of the rows that --early-stopping and --n-centers auto hold out if --validation is not given",
            "X",
            _number,
            _fraction,
        ),
        _of_falkon(
            "--n-iter-no-change",
            "iterations without improvement after which --early-stopping stops",
            "N",
            _integer,
            integer(1),
        ),
    ),
    "resources": (
        _of_falkon(
            "--dtype",
            "precision of the kernel of --method falkon. auto: float32 if all features are stored as float32, else "
            "float64",
            choices=["auto", "float32", "float64"],
        ),
        Option(
            "--memory-budget",
            "memory that the fit may use in addition to the target, such as 4GB. If the kernel matrix fits as well, it "
            "is kept, which is faster. auto: the available memory; 0: the same, but the matrix is never kept",
            "SIZE",
            _budget,
            more={"default": default_of("memory_budget")},
        ),
        Option("--n-jobs", "threads (not given: all)", "N", _integer),
        _of_falkon(
            "--checkpoint",
            "a folder for the state of a fit by --method falkon. If it is killed, the same command resumes from there, "
            "to the same model. Delete the folder when done, or to start from the beginning",
            "DIR",
        ),
        _of_falkon(
            "--checkpoint-every",
            "minimum time between two writes of the state; 0 writes after each iteration",
            "SECONDS",
            _number,
            default=Checkpoint("x").every,
        ),
    ),
    "output": (
        Option("-o --output", "the model file to write, such as model.gyr", "MODEL", more={"required": True}),
        *TALK_OPTIONS,
        Option("-v --verbose", "print a line for each iteration or candidate", more={"action": "store_true"}),
    ),
}

# Options that one method has and the other has not.
OF_AUTO, OF_FALKON = (
    tuple(option.name for options in OPTIONS.values() for option in options if option.method == method)
    for method in ("auto", "falkon")
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon fit``."""
    parser.usage = "%(prog)s TRAIN [TRAIN ...] --target NAME -o MODEL [options]"
    parser.epilog = EXAMPLES
    data_option("TRAIN").add_to(parser)
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for option in options:
            option.add_to(group)
