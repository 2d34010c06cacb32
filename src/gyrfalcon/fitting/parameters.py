"""The values that the estimators' parameters may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .._utils.checks import (
    Rule,
    boolean,
    float_dtype,
    integer,
    not_negative,
    number,
    numbers,
    one_of,
    optional,
    positive,
)
from .._utils.devices import resolve_devices
from .._utils.memory import parse_memory
from .._utils.threads import effective_n_jobs
from .._utils.words import shown


class Parametrized(Protocol):
    """An estimator."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        ...


def _step_counts(name: str, value: Any) -> None:
    """Require an integer of at least 1, or a list of such integers."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        integer(1)(name, value)
    elif not len(value):
        raise ValueError(f"{name}={shown(value)} must be None, an integer of at least 1 or a list of them")
    else:
        for count in value:
            integer(1)(name, count)


def _memory(name: str, value: Any) -> None:
    """Require a number of bytes."""
    parse_memory(value)


def _devices(name: str, value: Any) -> None:
    """Require devices that are there."""
    resolve_devices(value)


def _threads(name: str, value: Any) -> None:
    """Require a number of threads."""
    effective_n_jobs(value)


STEP = optional(positive('"auto" or a finite number greater than 0'), "auto")
STEP_OR_NONE = optional(optional(positive('None, "auto" or a finite number greater than 0')), "auto")
LEVELS = optional(
    numbers(lambda x: 0 < x < 1, "None, a number between 0 and 1, both excluded, or a list of them", scalar=True)
)

# The rules of parameters that mean the same wherever they occur. An estimator adds those of its own.
_SHARED: Mapping[str, Rule] = {
    "n_centers": optional(integer(1)),
    "penalty": optional(not_negative('"auto" or a finite number, not negative'), "auto"),
    "penalties": optional(
        numbers(lambda x: 0 <= x < np.inf, "None or a list of at least one finite number, none negative")
    ),
    "penalty_path": optional(
        numbers(lambda x: 0 <= x < np.inf, "None or a list of finite numbers, none negative", empty=True)
    ),
    "choose_by": one_of(None, "validation", "gcv", "loo", "evidence"),
    "preconditioner": one_of("auto", "falkon", "krill", "sample"),
    "max_iter": integer(1),
    "tol": optional(not_negative("None or a finite number, not negative")),
    "cg_steps": optional(_step_counts),
    "quantiles": LEVELS,
    "multi_class": one_of("multinomial", "ovr"),
    "validation_fraction": number(lambda x: 0 < x < 1, "between 0 and 1, both excluded"),
    "n_iter_no_change": integer(1),
    "min_decrease": number(lambda x: 0 <= x < 1, "a number of at least 0 and less than 1"),
    "dtype": optional(float_dtype, "auto"),
    "memory_budget": optional(_memory, "auto"),
    "device": _devices,
    "n_jobs": _threads,
    "verbose": integer(0),
    **dict.fromkeys(("early_stopping", "fit_intercept", "orthogonal", "uncertainty", "warm_start"), boolean),
    "scale": optional(boolean, "auto"),
}


def check_parameters(estimator: Parametrized, **own: Rule) -> None:
    """Raise ValueError for the first parameter whose value is not allowed.

    Parameters
    ----------
    estimator : estimator
    **own : rules of the parameters that this estimator alone has, or has with other values
    """
    rules = {**_SHARED, **own}
    for name, value in estimator.get_params(deep=False).items():
        if name in rules:
            rules[name](name, value)
