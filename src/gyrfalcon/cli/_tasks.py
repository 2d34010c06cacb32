"""Whether a target is numbers or labels."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tables.forms import NumberForm
from ..tables.given import form_of
from ._shared import say

Array = NDArray[Any]

_MOST_CLASSES = 20  # most distinct integers that are taken for labels


def target_form(arguments: argparse.Namespace, target: str, y: Array) -> NumberForm | None:
    """Find how the numbers of a target are written that is text, and say so; None for any other, and for labels.

    Parameters
    ----------
    arguments, target, y : as for `task_of`
    """
    if arguments.task == "classification" or y.ndim == 2 or y.dtype.kind in "fiub":
        return None
    if arguments.task == "auto" and len(np.unique(y)) <= _MOST_CLASSES:
        return None
    form = form_of(y)
    if form is not None:
        say(f"The target {target!r} is text, and read as numbers like {str(form)!r}.", arguments)
    return form


def task_of(arguments: argparse.Namespace, target: str, y: Array, has_categories: bool = False) -> str:
    """Return "regression" or "classification", by the values of the target, and say why.

    Parameters
    ----------
    arguments : argparse.Namespace
        Of the command, for --quiet.
    target : str
        Name of the target.
    y : array
    has_categories : bool
        Whether the file says that the target is categories.
    """
    if y.ndim == 2:
        return "regression"
    if y.dtype.kind not in "fiub" or has_categories:
        say(f"Classification: the target {target!r} is {'categories' if has_categories else 'text'}.", arguments)
        return "classification"
    if y.dtype.kind == "b":
        say(f"Classification: the target {target!r} is true or false.", arguments)
        return "classification"
    few = len(np.unique(y[:100_000])) <= _MOST_CLASSES and len(different := np.unique(y)) <= _MOST_CLASSES
    if few and len(different) < len(y) and y.dtype.kind in "iu":
        say(
            f"Classification: the target {target!r} is {len(different)} different whole numbers; if they are amounts "
            "and not labels, add --task regression.",
            arguments,
        )
        return "classification"
    hint = ""
    if few and (different == np.round(different)).all():
        hint = f", though only {len(different)} different ones; if they are labels, add --task classification"
    say(f"Regression: the target {target!r} is numbers{hint}.", arguments)
    return "regression"
