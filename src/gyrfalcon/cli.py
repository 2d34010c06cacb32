"""The command line: ``gyrfalcon COMMAND``, also ``python -m gyrfalcon COMMAND``.

A command is an entry of `COMMANDS`: its name, a sentence, a function that adds its arguments to a parser, and a
function that runs it and gives the exit code. Whatever is heavy is imported by the function that runs.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. Results go to standard output; progress, messages and
errors to standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["COMMANDS", "Command", "main"]

# What a user can cause and can read in a line. Anything else is a bug, and its traceback is what we want to see.
_EXPECTED = (OSError, ValueError, MemoryError, ImportError, ArithmeticError)


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


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    from .demo import add_arguments

    add_arguments(parser)


def _demo(arguments: argparse.Namespace) -> int:
    from .demo import run

    return run(arguments)


def _versions_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _versions(arguments: argparse.Namespace) -> int:
    from ._show_versions import show_versions, versions

    if arguments.json:
        import json

        print(json.dumps(versions(), indent=2))
    else:
        show_versions()
    return 0


COMMANDS: tuple[Command, ...] = (
    Command(
        "demo",
        "Learn a non-linear function from a million rows, beside two models of scikit-learn.",
        _demo_arguments,
        _demo,
    ),
    Command(
        "versions",
        "Show the versions of gyrfalcon and what it uses, and the machine as it sees it.",
        _versions_arguments,
        _versions,
    ),
)


def make_parser(commands: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    from . import __version__

    parser = argparse.ArgumentParser(prog="gyrfalcon", description="Kernel learning at scale.")
    parser.add_argument("--version", action="version", version=f"gyrfalcon {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in commands:
        sub = subparsers.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        command.add_arguments(sub)
        sub.add_argument("--traceback", action="store_true", help="show where in the code an error came from")
        sub.set_defaults(run=command.run)
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
    arguments = make_parser(commands).parse_args(argv)
    try:
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
        print(f"gyrfalcon: error: {str(error) or type(error).__name__}", file=sys.stderr)
        return 1
    return code
