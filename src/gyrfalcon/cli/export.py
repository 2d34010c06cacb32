"""``gyrfalcon export``: a model file as an ONNX graph, for programs without Python."""

from __future__ import annotations

import argparse
import os

from .._utils.memory import format_bytes
from ..estimators.onnx_export import to_onnx
from ._shared import check_output, load_model, print_table
from .main import UsageError

EXAMPLES = """\
examples:
  gyrfalcon export houses.gyr -o houses.onnx
  gyrfalcon export houses.gyr -o houses.onnx --dtype float32
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon export``."""
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="a file written by gyrfalcon fit --method falkon, or by save")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the .onnx file to write")
    parser.add_argument(
        "--dtype", choices=["float32", "float64"], help="type of the rows and of the arithmetic; the model's by default"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the graph and return the exit code."""
    check_output(arguments.output, arguments.model)
    try:
        to_onnx(load_model(arguments.model), arguments.output, dtype=arguments.dtype)
    except TypeError as error:  # a model that has no graph
        raise UsageError(str(error)) from error
    print_table([("written", f"{arguments.output} ({format_bytes(os.path.getsize(arguments.output))})")])
    return 0
