"""``gyrfalcon fit``: learn a model from files and write it to a file."""

from __future__ import annotations

import argparse

from . import _fit_auto, _fit_falkon
from ._fit_options import OF_AUTO, OF_FALKON, add_arguments
from ._shared import check_output, looks_like_data
from .main import UsageError

__all__ = ["add_arguments", "run"]

_METHODS = {"auto": _fit_auto.run, "falkon": _fit_falkon.run}


def run(arguments: argparse.Namespace) -> int:
    """Fit a model, save it, print a report and return the exit code."""
    if arguments.quiet and arguments.verbose:
        raise UsageError("--quiet and --verbose: choose one")
    if looks_like_data(arguments.output):
        raise UsageError(f"--output {arguments.output} has the name of a data file: models are named like model.gyr")
    other, foreign = ("falkon", OF_FALKON) if arguments.method == "auto" else ("auto", OF_AUTO)
    for name in foreign:
        value = vars(arguments)[name]
        if value != arguments.parser.get_default(name):
            option = ("--no-" if value is False else "--") + name.replace("_", "-")
            raise UsageError(
                f"{option} is an option of --method {other}, and the method is {arguments.method}: leave out {option}, "
                f"or add --method {other}"
            )
    check_output(arguments.output)
    return _METHODS[arguments.method](arguments)
