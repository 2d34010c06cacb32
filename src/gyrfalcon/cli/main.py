"""The command line: ``gyrfalcon COMMAND``, also ``python -m gyrfalcon COMMAND``.

A command is an entry of `COMMANDS` and a module of `gyrfalcon.cli` with the same name, which is imported only when the
command is the one that was typed.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted. Results go to standard output; progress, messages and
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
from typing import Any, NoReturn

from .._utils.terminal import printable
from .._utils.words import similar

# Errors that a user can cause, reported in one line. Any other is a bug, and shown with its traceback.
_EXPECTED = (OSError, ValueError, MemoryError, ImportError, ArithmeticError)


class UsageError(ValueError):
    """Raised by a command for options that do not go together; the exit code is 2."""


@dataclass(frozen=True)
class Command:
    """A subcommand: its name, one sentence of help, and functions that add its arguments and run it."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def _from_module(name: str, help: str) -> Command:
    """Return the command whose functions are in the module of its name."""
    module = "." + name.replace("-", "_")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        import_module(module, __package__).add_arguments(parser)

    def run(arguments: argparse.Namespace) -> int:
        return int(import_module(module, __package__).run(arguments))

    return Command(name, help, add_arguments, run)


COMMANDS: tuple[Command, ...] = (
    _from_module("fit", "Fit a model to the rows of files, and write it to a file."),
    _from_module("predict", "Compute the predictions of a model for the rows of files."),
    _from_module("explain", "Attribute the predictions of a model to the columns (Shapley values)."),
    _from_module("evaluate", "Measure how good a model is on rows whose target is known."),
    _from_module("report", "Write a web page about a model: errors on new rows, and what it has learned."),
    _from_module("inspect", "Show the contents of a model file."),
    _from_module("export", "Write a model as an ONNX graph, for programs without Python."),
    _from_module("demo", "Fit a non-linear function to a million rows, and compare with three models of scikit-learn."),
    _from_module("check-device", "Check the results and the speed of a device of PyTorch."),
    _from_module("complete", "Print a script with which the tab key completes commands and options."),
    _from_module("versions", "Show the versions of gyrfalcon and its dependencies, and properties of the machine."),
)


EXAMPLES = """\
a first session:
  gyrfalcon fit train.csv --target price -o price.gyr
  gyrfalcon report price.gyr test.csv -o price.html
  gyrfalcon predict price.gyr new.csv -o predictions.csv

gyrfalcon COMMAND --help shows the options of a command.
"""


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Help with examples as they are written, and with defaults other than None and False."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """A parser that asks whether another command or option was meant."""

    words: Sequence[str] = ()  # of the command line

    def options(self) -> list[str]:
        """Return the long options."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += _did_you_mean([str(value)], [str(choice) for choice in action.choices or ()])
            raise

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):  # one may be there, misspelt
            given = [word for word in self.words if word.startswith("--")]
            # argparse takes the beginning of an option for it
            wrong = [
                word for word in given if not any(name.startswith(word.partition("=")[0]) for name in self.options())
            ]
            if wrong:
                message = f"unrecognized arguments: {' '.join(wrong)}{_did_you_mean(wrong, self.options())}; {message}"
        super().error(printable(message, keep="\n"))


class _Version(argparse.Action):
    """Print the version and exit; it is looked up only here, which takes time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from .._utils.version import package_version

        print(f"gyrfalcon {package_version()}")
        parser.exit()


def make_parser(
    argv: Sequence[str], commands: Sequence[Command] = COMMANDS, *, all_arguments: bool = False
) -> argparse.ArgumentParser:
    """Return a parser in which only the typed command, or each with `all_arguments`, is imported and has arguments."""
    parser = _Parser(
        prog="gyrfalcon",
        description="Accurate models of tables, and kernel learning from millions of rows.",
        epilog=EXAMPLES,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    typed = next((word for word in argv if not word.startswith("-")), None)
    for command in commands:
        sub = subparsers.add_parser(command.name, help=command.help, description=command.help, formatter_class=_Help)
        if all_arguments or command.name == typed:
            sub.words = argv
            command.add_arguments(sub)
            sub.add_argument("--traceback", action="store_true", help="show where in the code an error came from")
            sub.set_defaults(run=command.run, parser=sub)
    return parser


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """Run the command line, that of the process by default, and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    arguments, unknown = make_parser(argv, commands).parse_known_args(argv)
    if unknown:  # with the usage of the command, which argparse would not show
        message = _unrecognized(unknown, vars(arguments).get("features"))
        arguments.parser.error(message + _did_you_mean(unknown, arguments.parser.options()))
    try:
        with _warnings_in_a_line(arguments.traceback):
            code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\ngyrfalcon: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python would report that again when it flushes at exit.
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


def _did_you_mean(words: Sequence[str], known: Sequence[str]) -> str:
    """Return a question about the first word that is nearly a known one, or nothing."""
    for word in words:
        near = similar(word.partition("=")[0], known, 1)
        if near:
            return f" (did you mean {near[0]}?)"
    return ""


def _in_a_line(error: Warning | Exception | str) -> str:
    """Return a message in one line, with parameters of Python written as options."""
    message = " ".join(str(error).split()) or type(error).__name__
    message = message.replace("features=[...]", "--features A,B,...")
    message = message.replace(r"delimiter='\t'", "--delimiter tab")
    message = re.sub("(delimiter|encoding|decimal|thousands)='([^']*)'", _option, message)
    named = r"features=\['([^\]]*)'\]"
    return printable(re.sub(named, lambda found: "--features " + found[1].replace("', '", ","), message))


def _option(found: re.Match[str]) -> str:
    value = found[2] if found[2][:1].isalnum() else f'"{found[2]}"'
    return f"--{found[1]} {value}"


@contextmanager
def _warnings_in_a_line(traceback: bool) -> Iterator[None]:
    """Show warnings in one line without their place in the code, unless tracebacks are wanted."""
    with warnings.catch_warnings():
        if not traceback:

            def show(message: Warning | str, *_: Any, **__: Any) -> None:
                print(f"gyrfalcon: warning: {_in_a_line(message)}", file=sys.stderr)

            warnings.showwarning = show
        yield
