"""``gyrfalcon inspect``: the contents of a model file. Nothing in the file is run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from numbers import Real
from typing import Any

from .._utils.memory import format_bytes
from .._utils.words import plural
from ..tables._auto import AutoEstimator
from ._automatic import cross_validated, importances, members
from ._expressions import written
from ._metrics import in_words
from ._shared import described, listed, load_model, plain, print_json, print_table

EXAMPLES = """\
examples:
  gyrfalcon inspect houses.gyr
  gyrfalcon inspect houses.gyr --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gyrfalcon inspect``."""
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="a file written by gyrfalcon fit, or by save in Python")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Print the contents of a model file and return the exit code."""
    model = load_model(arguments.model)
    values = _values(model, arguments.model)
    if arguments.json:
        print_json(values)
    else:
        print_table(_in_words(model, values))
    return 0


def _values(model: Any, path: str) -> dict[str, Any]:
    parameters = model.get_params(deep=False)
    learnt = vars(model)  # the attributes that the file holds; estimators differ in which they have
    history = learnt.get("history_") or [{}]
    centers = learnt.get("centers_")
    errors = [record["validation_error"] for record in history if "validation_error" in record]
    return {
        "model": path,
        "bytes": os.path.getsize(path),
        "gyrfalcon_version": _version(path),
        "class": type(model).__name__,
        "target": plain(learnt.get("target_names_")),
        "classes": plain(learnt.get("classes_")),
        "n_features": learnt.get("n_features_in_"),
        "features": plain(learnt.get("feature_names_in_")),
        "kernel": described(learnt.get("kernel_")),
        "n_centers": None if centers is None else centers.shape[0],
        "dtype": None if centers is None else centers.dtype.name,
        "loss": described(learnt.get("loss_")),
        "penalty": learnt.get("penalty_", parameters.get("penalty")),
        "scaled": learnt.get("scale_") is not None,
        "n_iter": learnt.get("n_iter_"),
        "residual": history[-1].get("residual"),
        "validation_error": min(errors, default=None),
        "fit_seconds": history[-1].get("seconds"),
        **_search(model),
        "parameters": {name: described(value) for name, value in parameters.items()},
    }


def _search(model: Any) -> dict[str, Any]:
    """Return what a search has found."""
    if not isinstance(model, AutoEstimator):
        return {}
    return {
        "candidates": len(model.candidates_),
        "members": [
            {"weight": float(weight), "pipeline": member}
            for weight, member in sorted(zip(model.weights_, members(model), strict=True), reverse=True)
        ],
        "importances": dict(importances(model)),
        "cross_validation": cross_validated(model),
    }


def _version(path: str) -> str:
    """Return the version of gyrfalcon that wrote the file."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return str((file.metadata() or {}).get("gyrfalcon_version", "unknown"))[:40]


def _in_words(model: Any, values: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("file", f"{values['model']} ({format_bytes(values['bytes'])})"), ("model", values["class"])]
    lines += [(name, words(model, values)) for name, key, words in _LINES if values.get(key) is not None]
    if "members" in values:
        lines += [(f"{one['weight']:.0%} of the blend", one["pipeline"]) for one in values["members"]]
        most = list(values["importances"].items())[:10]
        lines.append(("matters most", ", ".join(f"{name} {share:.0%}" for name, share in most)))
    if values["gyrfalcon_version"] != "unknown":  # written by a checkout that was not installed
        lines.append(("written by", f"gyrfalcon {values['gyrfalcon_version']}"))
    return lines


def _features(model: Any, values: dict[str, Any]) -> str:
    names = "" if values["features"] is None else f": {listed(values['features'])}"
    scaled = ", scaled to mean 0 and deviation 1" if values["scaled"] else ""
    return f"{values['n_features']:,}{names}{scaled}"


def _penalty(model: Any, values: dict[str, Any]) -> str:
    known = isinstance(values["penalty"], Real)  # of a model without penalty_ it is the parameter, such as "auto"
    return f"{values['penalty']:g}" if known else str(described(values["penalty"]))


def _iterations(model: Any, values: dict[str, Any]) -> str:
    residual = "" if values["residual"] is None else f", residual {values['residual']:.1e}"
    error = "" if values["validation_error"] is None else f", validation error {values['validation_error']:.5g}"
    return f"{values['n_iter']}{residual}{error}"


def _tried(model: Any, values: dict[str, Any]) -> str:
    errors = ", ".join(f"{name} {text}" for name, text in in_words(values["cross_validation"]))
    return f"{plural(values['candidates'], 'model')}; in cross-validation {errors}"


# What a line is called, the value without which it is left out, and its text.
_LINES: tuple[tuple[str, str, Callable[[Any, dict[str, Any]], str]], ...] = (
    ("target", "target", lambda model, values: listed(values["target"])),
    ("labels", "classes", lambda model, values: listed(values["classes"])),
    ("features", "n_features", _features),
    ("kernel", "kernel", lambda model, values: written(model.kernel_)),
    (
        "centers",
        "n_centers",
        lambda _, values: f"{values['n_centers']:,} x {values['n_features']:,} in {values['dtype']}",
    ),
    ("loss", "loss", lambda model, values: written(model.loss_)),
    ("penalty", "penalty", _penalty),
    ("iterations", "n_iter", _iterations),
    ("tried", "candidates", _tried),
)
