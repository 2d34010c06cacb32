"""The command line: ``gyrfalcon COMMAND``, also ``python -m gyrfalcon COMMAND``.

A command is an entry of `COMMANDS`: its name, a sentence, a function that adds its arguments to a parser, and a
function that runs it and gives the exit code. Those that work on files are in `gyrfalcon.cli`. Whatever is heavy
is imported by these functions.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. Results go to standard output; progress, messages and
errors to standard error.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["COMMANDS", "Command", "UsageError", "main"]

# What a user can cause and can read in a line. Anything else is a bug, and its traceback is what we want to see.
_EXPECTED = (OSError, ValueError, MemoryError, ImportError, ArithmeticError)


class UsageError(ValueError):
    """Options that do not go together, as seen by a command that runs; the exit code is 2."""


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Attributes
    ----------
    name : str
        What the user types.
    help : str
        A sentence for the list of commands; it also opens the command's own help.
    add_arguments : function of the command's parser
    run : function of the parsed arguments
        Gives the exit code.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def _in(module: str, name: str, help: str) -> Command:
    """A command whose functions are in a module of the package."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        import_module(module, __package__).add_arguments(parser)

    def run(arguments: argparse.Namespace) -> int:
        return int(import_module(module, __package__).run(arguments))

    return Command(name, help, add_arguments, run)


def _versions_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _versions(arguments: argparse.Namespace) -> int:
    from ..backends.versions import show_versions, versions

    if arguments.json:
        import json

        print(json.dumps(versions(), indent=2))
    else:
        show_versions()
    return 0


COMMANDS: tuple[Command, ...] = (
    _in(".fit", "fit", "Learn a model from the rows of files, and write it to a file."),
    _in(".predict", "predict", "Predict for the rows of files with a model."),
    _in(".evaluate", "evaluate", "Measure how good a model is on rows whose target is known."),
    _in(".inspect", "inspect", "Show what is in a model file."),
    _in(".demo", "demo", "Learn a non-linear function from a million rows, beside two models of scikit-learn."),
    Command(
        "versions",
        "Show the versions of gyrfalcon and what it uses, and the machine as it sees it.",
        _versions_arguments,
        _versions,
    ),
)


EXAMPLES = """\
a first session:
  gyrfalcon fit train.csv --target price --scale -o price.gyr
  gyrfalcon evaluate price.gyr test.csv
  gyrfalcon predict price.gyr new.csv -o predictions.csv

gyrfalcon COMMAND --help tells more about each.
"""


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Examples as they were written, and defaults where there is one to tell."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


def make_parser(commands: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    from .. import __version__

    parser = argparse.ArgumentParser(
        prog="gyrfalcon", description="Kernel learning at scale.", epilog=EXAMPLES, formatter_class=_Help
    )
    parser.add_argument("--version", action="version", version=f"gyrfalcon {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in commands:
        sub = subparsers.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            formatter_class=_Help,
        )
        command.add_arguments(sub)
        sub.add_argument("--traceback", action="store_true", help="show where in the code an error came from")
        sub.set_defaults(run=command.run, parser=sub)
    return parser


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """Run the command line and give its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.
    commands : sequence of Command
        What can be run.
    """
    arguments, unknown = make_parser(commands).parse_known_args(argv)
    if unknown:  # with the usage of the command, which argparse would not show
        arguments.parser.error(_unrecognized(unknown, getattr(arguments, "features", None)))
    try:
        with _warnings_in_a_line(arguments.traceback):
            code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\ngyrfalcon: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader, `head` say, has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except _EXPECTED as error:
        if arguments.traceback:
            raise
        print(f"gyrfalcon: error: {_in_a_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return code


def _unrecognized(words: Sequence[str], features: Sequence[str] | None) -> str:
    if features is not None and not any(word.startswith("-") for word in words):
        names = ",".join([*features, *words])
        return f"unrecognized arguments: {' '.join(words)}: names are separated by commas, as in --features {names}"
    return f"unrecognized arguments: {' '.join(words)}"


def _in_a_line(error: Warning | Exception | str) -> str:
    """A message, with the parameters that it proposes as they are typed here."""
    message = " ".join(str(error).split()) or type(error).__name__
    message = message.replace("features=[...]", "--features A,B,...")
    message = message.replace(r"delimiter='\t'", "--delimiter tab")
    message = re.sub("delimiter='(.)'", r'--delimiter "\1"', message)
    named = r"features=\['([^\]]*)'\]"
    return re.sub(named, lambda found: "--features " + found[1].replace("', '", ","), message)


@contextmanager
def _warnings_in_a_line(traceback: bool) -> Iterator[None]:
    """Warnings without the place in the code that they came from, unless that is wanted."""
    with warnings.catch_warnings():
        if not traceback:

            def show(message: Warning | str, *_: Any, **__: Any) -> None:
                print(f"gyrfalcon: warning: {_in_a_line(message)}", file=sys.stderr)

            warnings.showwarning = show
        yield
