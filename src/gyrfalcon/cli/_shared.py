"""What the commands share: arguments, models, progress, and how results are printed."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from .._utils.atomic import check_replaceable
from .._utils.checks import Rule
from .._utils.terminal import printable
from ..callbacks.progress import bar_class
from ..sources import Rows
from ..sources.base import DerivedRows
from ..sources.blocks import Block, Indices
from ..sources.paths import SUFFIXES
from ..storage.models import ModelFileError, load
from .main import UsageError

# ---- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """An option of a command, or an argument without a flag.

    flags : flags as they are typed, separated by spaces; the long form comes last
    metavar : placeholder for the value in the help
    parse : returns the value of a text, or raises ValueError or TypeError
    rule : checks the value, see `gyrfalcon._utils.checks`
    more : other keywords of `argparse.ArgumentParser.add_argument`
    method : the only method of ``gyrfalcon fit`` that has it
    """

    flags: str
    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    rule: Rule | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    method: str | None = None

    @property
    def name(self) -> str:
        """The attribute of the parsed arguments."""
        return self.flags.split()[-1].lstrip("-").replace("-", "_")

    def add_to(self, parser: Any) -> None:
        """Add it to a parser or to a group of a parser."""
        given = {"metavar": self.metavar, "type": None if self.parse is None else self.value}
        given = {name: value for name, value in given.items() if value is not None}  # flags without a value have none
        parser.add_argument(*self.flags.split(), help=self.help, **given, **self.more)

    def value(self, text: str) -> Any:
        """Return the value of a text."""
        assert self.parse is not None
        try:
            value = self.parse(text)
            if self.rule is not None:
                self.rule(self.name, value)
        except (ValueError, TypeError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return value


def data_option(name: str) -> Option:
    """Return the argument that names the files to read."""
    words = "a file, a folder, a pattern in quotes, or several files: Parquet, CSV, Arrow, HDF5, zarr or .npy"
    return Option(name.lower(), words, name, more={"nargs": "+"})


def features_option(default: str) -> Option:
    """Return the option that names the feature columns."""
    return Option(
        "--features",
        f"columns to learn from (.npy: their numbers; HDF5 and zarr: the name of the array of rows); {default}",
        "A,B,C",
        lambda text: [name.strip() for name in text.split(",") if name.strip()],
        more={"action": "extend"},
    )


CSV_OPTIONS = (
    Option(
        "--delimiter",
        'separator of the columns of CSV files, such as ";" in quotes, or tab (not given: a comma, unless the first '
        "line contains only semicolons, tabs or bars)",
        "C",
        lambda text: "\t" if text in ("tab", r"\t") else text,
    ),
    Option(
        "--encoding",
        "encoding of CSV files, such as latin-1 or cp1252 (not given: UTF-8, or UTF-16 with its mark)",
        "NAME",
    ),
    Option(
        "--decimal",
        'decimal point of CSV files, "." or "," (not given: a comma if columns are not separated by commas, and more '
        "of them are numbers with it)",
        "C",
    ),
    Option(
        "--thousands",
        'separator of groups of three digits in CSV files, such as "." or "," (not given: none)',
        "C",
    ),
)
TALK_OPTIONS = (
    Option("--json", "print the result as one JSON object, for programs", more={"action": "store_true"}),
    Option("-q --quiet", "no progress and no messages, only the result", more={"action": "store_true"}),
)
_MODEL_ARGUMENTS = (
    Option("model", "a file written by gyrfalcon fit, or by save in Python", "MODEL"),
    data_option("DATA"),
    features_option("by default those the model was fitted to; other columns of the data are ignored"),
    *CSV_OPTIONS,
)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model file, and the rows to use it on."""
    for option in _MODEL_ARGUMENTS:
        option.add_to(parser)


def add_target_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that compare predictions with the truth."""
    parser.add_argument(
        "--target",
        metavar="NAME",
        action="append",
        help="the column with the true values; by default the one that gyrfalcon fit was given",
    )


def add_talk_arguments(parser: Any) -> None:
    """Add the options for how much is printed, and how."""
    for option in TALK_OPTIONS:
        option.add_to(parser)


# ---- models and outputs ----------------------------------------------------------------------------------------------


def load_model(path: str, n_jobs: int | None = None) -> Any:
    """Load a model file, and set the number of threads of the model if it is given."""
    from safetensors import SafetensorError

    try:
        model = load(path)
    except ModelFileError as error:
        if not isinstance(error.__cause__, SafetensorError):
            raise
        raise ModelFileError(
            f"cannot load {path!r}: it is not a model file, as gyrfalcon fit writes them, or it is damaged"
        ) from error
    if n_jobs is not None and "n_jobs" in model.get_params(deep=False):
        model.set_params(n_jobs=n_jobs)
    return model


def check_output(path: str, *inputs: str) -> None:
    """Raise an error if a file cannot be written, before the work that makes its contents."""
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        raise IsADirectoryError(f"--output {path} is a folder: name a file in it")
    check_replaceable(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"--output {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"--output {path}: no permission to write in {folder}")
    for other in inputs:
        if os.path.realpath(path) == os.path.realpath(other):
            raise UsageError(f"--output {path} is a file that is read: give another name")


def looks_like_data(path: str) -> bool:
    """Return whether `gyrfalcon.open` would read a file of this name."""
    return path.lower().endswith(tuple(SUFFIXES))


# ---- progress --------------------------------------------------------------------------------------------------------


def say(message: str, arguments: argparse.Namespace) -> None:
    """Print a message to standard error, unless --quiet is given."""
    if not arguments.quiet:
        print(printable(message), file=sys.stderr, flush=True)


def say_above(message: str, arguments: argparse.Namespace) -> None:
    """Print a message as `say` does, above a progress bar if there is one."""
    if not arguments.quiet and sys.stderr is not None:
        bar_class(notebook=False).write(printable(message), file=sys.stderr)


def shows_progress(arguments: argparse.Namespace) -> bool:
    """Return whether to show progress bars: standard error is a terminal and --quiet is not given."""
    return not arguments.quiet and sys.stderr is not None and sys.stderr.isatty()


class CountedRows(DerivedRows):
    """Rows that advance a progress bar as they are read."""

    def __init__(self, rows: Rows, bar: Any, file_bytes: int = 0) -> None:
        super().__init__(rows)
        self.bar, self.file_bytes = bar, file_bytes

    def blocks(self, size: int) -> Iterator[Block]:
        return self._counted(self.rows.blocks(size), 0)

    def blocks_from(self, size: int, start: int) -> Iterator[Block]:
        return self._counted(self.rows.blocks_from(size, start), start)

    def tables_from(self, size: int, start: int, as_text: Collection[str] = ()) -> Iterator[Any]:
        return self._counted(self.rows.tables_from(size, start, as_text), start)

    def _counted(self, blocks: Iterator[Any], start: int) -> Iterator[Any]:
        if start:  # an earlier run has read these: they do not count in the rate, which tells the time left
            self.bar.initial = start
            self.bar.update(start)
        for block in blocks:
            yield block
            self.bar.update(block.shape[0])
            if self.file_bytes:
                read = self.bar.n / self.shape[0] * self.file_bytes
                self.bar.set_postfix_str(f"{read / 1e9:.2f} of {self.file_bytes / 1e9:.2f} GB", refresh=False)

    def is_numeric(self, as_text: Collection[str] = ()) -> bool:
        return self.rows.is_numeric(as_text)

    def fingerprint(self) -> str:
        return self.rows.fingerprint()

    def take(self, indices: Indices) -> Block:
        return self.rows.take(indices)


@contextmanager
def watched(rows: Any, what: str, arguments: argparse.Namespace, file_bytes: int = 0) -> Iterator[Any]:
    """Yield the rows, with a progress bar if progress is shown and the rows are not a table in memory.

    It shows rows, the bytes of their files if there are any, and the time left.
    """
    if not shows_progress(arguments) or not isinstance(rows, Rows):
        yield rows
        return
    with bar_class(notebook=False)(
        desc=what, total=rows.shape[0], unit=" rows", unit_scale=True, file=sys.stderr, dynamic_ncols=True, leave=False
    ) as bar:
        yield CountedRows(rows, bar, file_bytes)


# ---- results ---------------------------------------------------------------------------------------------------------


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object to standard output."""
    print(json.dumps(plain(values), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """Convert a value to what JSON can hold: NumPy's numbers to Python's, and NaN and infinity to null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def print_table(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and texts in two columns to standard output."""
    shown = [(printable(name), printable(str(text))) for name, text in lines]
    width = max(len(name) for name, _ in shown)
    for name, text in shown:
        print(f"{name.ljust(width)}  {text}")


def listed(items: Sequence[Any], most: int = 10) -> str:
    """Return the first items as text, and their number if there are more."""
    shown = ", ".join(str(item) for item in items[:most])
    return shown if len(items) <= most else f"{shown}, ... ({len(items):,} in all)"


def seconds(value: float) -> str:
    """Return a time as text."""
    if value < 9.995:
        return f"{value:.2f} s"
    if value < 600:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} minutes"


def described(value: Any) -> Any:
    """Return a kernel, a loss or a selector of centers as its name and its parameters; any other value as it is."""
    if not isinstance(value, BaseEstimator):
        return value
    parameters = value.get_params(deep=False).items()
    return {"name": type(value).__name__, **{name: described(item) for name, item in parameters}}
