"""The identity of a fit: everything its result depends on, by name, as text that a checkpoint compares."""

from __future__ import annotations

import os
import platform
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import threadpoolctl

from ..._utils.version import package_version
from ..describe import describe
from .parameter import CheckpointError

# name of the coefficients that a warm fit starts from
WARM = "the coefficients to start from"
# Parameters that decide how the work is done or reported, and not the result. The use of memory and the devices do
# decide the last bits, and are kept in the beginning; for `max_iter` see `Journal.check`.
_FREE = ("callbacks", "verbose", "n_jobs", "memory_budget", "checkpoint", "warm_start", "max_iter", "device")


def identify(name: str, parameters: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, str]:
    """Describe everything that the result of a fit depends on: the class `name`, its parameters and the data.

    Raises CheckpointError if a parameter cannot be distinguished from another value.
    """
    described = {}
    for key, value in parameters.items():
        if key not in _FREE:
            try:
                described[key] = describe(value)
            except TypeError as error:
                raise CheckpointError(
                    f"{key}={reprlib.repr(value)} cannot be used with a checkpoint, which could not tell it from "
                    f"another one: {error}. Give a Python function or an object with get_params, or fit without "
                    "checkpoint"
                ) from error
    return {
        "gyrfalcon": package_version(),
        "estimator": name,
        **described,
        **{key: describe(value) for key, value in data.items()},
        **_computer(),
    }


def explain_difference(name: str, was: str, now: str) -> str:
    """Return a sentence about a difference that may come as a surprise, or an empty string."""
    if name == WARM and now != "None":
        return (
            "With warm_start=True a fit starts from the coefficients of the previous one, and so is another fit that "
            "needs another folder. "
        )
    if name == "X" and "last written" in was and "last written" in now:
        return "Files that are rewritten count as other files, even with the same contents: write them once. "
    return ""


def _computer() -> dict[str, str]:
    """Describe the hardware and libraries that decide the last bits of a product or a factor."""
    try:
        from ...backends.native import instruction_set

        native = instruction_set()
    except ImportError:
        native = "none"
    libraries = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    # the process may have loaded others, which are not used here
    own = [library for library in libraries if "numpy" in library["filepath"] or "scipy" in library["filepath"]]
    words = "{internal_api} {version} {architecture}"
    used = [words.format_map({"architecture": "", **library}) for library in own or libraries]
    return {
        "the machine": platform.machine(),
        "the instruction set": os.environ.get("GYRFALCON_BACKEND", "auto") + " " + native,
        "NumPy": np.__version__,
        "SciPy": scipy.__version__,
        "BLAS": ", ".join(sorted(used)),
    }
