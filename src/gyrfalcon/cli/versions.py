"""``gyrfalcon versions``: the versions and the machine, for reports of problems."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon versions``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the versions and return the exit code."""
    from ..backends.versions import show_versions, versions

    if arguments.json:
        print(json.dumps(versions(), indent=2))
    else:
        show_versions()
    return 0
