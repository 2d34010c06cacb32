"""Warnings that point at the user's line, however deep inside the package they come from."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What calls or wraps methods of this package on the user's behalf
_WRAPPERS = {"contextlib", "importlib", "joblib", "sklearn"}


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning that names the line of the user's code which called this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not _is_the_users(frame):
        frame = frame.f_back
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        message, category, frame.f_code.co_filename, frame.f_lineno, module=names.get("__name__"), registry=registry
    )


def _is_the_users(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return not frame.f_code.co_filename.startswith(_PACKAGE) and module.partition(".")[0] not in _WRAPPERS
