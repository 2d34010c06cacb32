"""``gyrfalcon complete``: what makes a shell complete commands and options, made by shtab."""

from __future__ import annotations

import argparse

from .main import COMMANDS, make_parser

EXAMPLES = """\
examples:
  gyrfalcon complete bash > ~/.local/share/bash-completion/completions/gyrfalcon
  gyrfalcon complete zsh > "${fpath[1]}/_gyrfalcon"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon complete``."""
    parser.epilog = EXAMPLES
    parser.add_argument("shell", metavar="SHELL", choices=["bash", "zsh", "tcsh"], help="bash, zsh or tcsh")


def run(arguments: argparse.Namespace) -> int:
    """Print the script and return the exit code."""
    try:
        import shtab
    except ImportError as error:
        raise ImportError("completion is made by shtab: pip install shtab") from error
    parser = make_parser([command.name for command in COMMANDS], all_arguments=True)
    print(shtab.complete(parser, shell=arguments.shell))
    return 0
