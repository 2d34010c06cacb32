"""Whether a target is numbers or labels."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fitting.targets import are_labels, few_values
from ..tables.forms import NumberForm
from ..tables.targets import form_of
from ._shared import say

Array = NDArray[Any]


def target_form(arguments: argparse.Namespace, target: str, y: Array) -> NumberForm | None:
    """Return how a target that is text writes numbers, and say so; None for any other target, and for labels."""
    if arguments.task == "classification" or y.ndim == 2 or y.dtype.kind in "fiub":
        return None
    if arguments.task == "auto" and few_values(y) is not None:
        return None
    form = form_of(y)
    if form is not None:
        say(f"The target {target!r} is text, and read as numbers like {str(form)!r}.", arguments)
    return form


def task_of(arguments: argparse.Namespace, target: str, y: Array, has_categories: bool = False) -> str:
    """Return "regression" or "classification", by the values of the target, and say why."""
    if y.ndim == 2:
        return "regression"
    if has_categories or are_labels(y):
        say(f"Classification: the target {target!r} is {_kind_of_labels(y, has_categories)}.", arguments)
        return "classification"
    values = few_values(y)
    hint = ""
    if values is not None and (values == np.round(values)).all():
        hint = f", though only {len(values)} different ones; if they are labels, add --task classification"
    say(f"Regression: the target {target!r} is numbers{hint}.", arguments)
    return "regression"


def _kind_of_labels(y: Array, has_categories: bool) -> str:
    """Return what makes a target labels, in words."""
    if has_categories or y.dtype.kind not in "iub":
        return "categories" if has_categories else "text"
    if y.dtype.kind == "b":
        return "true or false"
    number = len(np.unique(y))
    return f"{number} different whole numbers; if they are amounts and not labels, add --task regression"
