"""The constructors' parameters, each once: its default, its words in the documentation, and what values it may have.

An estimator is a dataclass of its parameters (a constructor that only stores them is scikit-learn's rule), and inherits
groups of them, so that the same thing has the same name, default and check everywhere.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import ArrayLike

from .._utils.checks import Rule, float_dtype, integer, not_negative, number, optional
from ..centers import Centers
from ..kernels import Kernel, KernelFunction

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def parameters(cls: type[T]) -> type[T]:
    """Make the annotated fields of a class its constructor's parameters, by keyword, after those it inherits."""
    return dataclasses.dataclass(eq=False, repr=False, kw_only=True)(cls)


def documented(**own: str) -> Callable[[type[T]], type[T]]:
    """Put the constructor's parameters where a class's docstring says {parameters}: shared words, or its `own`."""

    def decorate(cls: type[T]) -> type[T]:
        entries = []
        for name in inspect.signature(cls).parameters:
            kind, _, words = (DOCUMENTATION | own)[name].partition("\n")
            entries += [f"{name} : {kind.strip()}", *("    " + line.strip() for line in words.splitlines())]
        section = "\n    ".join(["Parameters", "----------", *entries])
        cls.__doc__ = (cls.__doc__ or "").replace("{parameters}", section)
        return cls

    return decorate


# ---- what values are allowed -----------------------------------------------------------------------------------------


RULES: dict[str, Rule] = {
    "n_centers": optional(integer(1)),
    "penalty": not_negative(),
    "max_iter": integer(1),
    "tol": optional(not_negative("None or a finite number, not negative")),
    "validation_fraction": number(lambda x: 0 < x < 1, "between 0 and 1, both excluded"),
    "n_iter_no_change": integer(1),
    "dtype": optional(float_dtype, "auto"),
}


def check_parameters(values: Mapping[str, Any], own: Mapping[str, Rule]) -> None:
    """Check the values of an estimator's parameters by the rules they share and its own."""
    for name, value in values.items():
        rule = own.get(name) or RULES.get(name)
        if rule is not None:
            rule(name, value)


# ---- the words -------------------------------------------------------------------------------------------------------

DOCUMENTATION: dict[str, str] = {
    "kernel": """Kernel, str or callable
        A kernel of `gyrfalcon.kernels`, its name, or any function k(A, B) that gives the matrix of kernel values.""",
    "n_centers": """int or None
        Number of Nyström centers M, at most n. More is more accurate; time is proportional to M for each pass, memory
        to M^2. None is 5 sqrt(n), at least 1,000 and at most 10,000.""",
    "centers": """"uniform", "leverage", "bless", "rpcholesky", "kmeans++", array of shape (M, n_features), or selector
        How centers are chosen: drawn from the rows in one of the ways of `gyrfalcon.centers`, or given.""",
    "penalty": """float
        The papers' lambda, on the mean squared error; not negative. What is below an eighth of the precision of the
        kernel (1.5e-8 in float32, 3e-17 in float64, times the mean of k(x, x)) cannot be told from rounding, and counts
        as that.""",
    "preconditioner": """"auto", "falkon" or "krill"
        What makes conjugate gradient fast. "falkon" is made from the centers alone, and presumes that they were drawn
        from the rows with known probabilities; "krill" from a sketch of all rows, in one more pass and 2 M^2 more
        numbers, for any centers. "auto" is "krill", if memory allows, for centers that were given or not drawn so, and
        where four iterations show that "falkon" does not suit the rows.""",
    "max_iter": """int
        Most iterations of conjugate gradient. Ten to twenty are enough where the preconditioner is good.""",
    "tol": """float or None
        Stop when the preconditioned residual falls below `tol` times the right-hand side's norm; a
        `ConvergenceWarning` says if it did not. None stops where more would not be seen (1e-6 in float32, 1e-10 in
        float64); 0 is for `max_iter` iterations. Either warns only if predictions would still move by a twentieth of
        y's standard deviation.""",
    "scale": """bool
        Whether every feature is brought to mean 0 and standard deviation 1 as rows are read, which costs one pass and
        no memory; `predict` does the same. Zeros of sparse rows stay zeros: these are divided only.""",
    "dtype": """"auto", "float32" or "float64"
        Precision of the kernel; "auto" follows X, but float64 is taken where float32 would lose the penalty beside the
        kernel's values, or a term of the kernel beside another. The factors are in float64 up to 1,500 centers, beyond
        that in the kernel's precision.""",
    "memory_budget": """"auto", int or str
        What the fit may take beside X and y, in bytes or as "4GB": the factors, the blocks at work, what a file is
        buffered in. If the n x M kernel matrix fits as well it is kept, and iterations run at memory speed. "auto" is
        what is available, half of it for the kernel matrix; 0 is the same, but the matrix is never kept.""",
    "n_jobs": """int or None
        Threads; None is every core.""",
    "random_state": """int, RandomState or None
        Seed of all that is drawn: the centers, the validation split, the order of mini-batches.""",
    "warm_start": """bool
        Start from the last fit's solution, with its centers unless `n_centers` or `centers` has changed since.""",
    "checkpoint": """str, path-like, Checkpoint or None
        A folder for the state of the fit, written every 30 seconds or as a `gyrfalcon.Checkpoint` says. A fit
        that was killed and is started again goes on from there, to the same solution bit for bit. Each fit has a folder
        of its own; delete it to start afresh.""",
    "early_stopping": """bool
        Stop when the validation error has not fallen for `n_iter_no_change` iterations, and keep the best solution. The
        validation set is the one given to `fit`, or a random part of the rows, whose weights then count there too.""",
    "validation_fraction": """float
        Share of the rows that is held out where a validation set is needed and `fit` is given none.""",
    "n_iter_no_change": """int
        Patience of `early_stopping`.""",
    "callbacks": """callable, Callback, list of them, or None
        Called with the record of each iteration; one that returns True stops the fit. See `gyrfalcon.callbacks`.""",
    "verbose": """int
        1 shows a progress bar, 2 also a line for each iteration.""",
    "class_weight": """dict, "balanced" or None
        Weights of the classes: a dict from class to number, or "balanced" for weights inversely proportional to their
        frequencies. Multiplied with `sample_weight`.""",
}


# ---- groups of them; the last among an estimator's bases come first in its signature ---------------------------------


@parameters
class HasKernel:
    """The one that may be given by position."""

    kernel: Kernel | str | KernelFunction = field(default="gaussian", kw_only=False)


@parameters
class HasPenalty:
    """What makes the solution smooth."""

    penalty: float = 1e-6


@parameters
class HasCenters:
    """Which points stand for all rows."""

    n_centers: int | None = None
    centers: str | ArrayLike | Centers = "uniform"


@parameters
class HasValidation:
    """What watches the validation error."""

    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5


@parameters
class HasResources:
    """How the work is done."""

    scale: bool = False
    dtype: Any = "auto"
    memory_budget: int | float | str = "auto"
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    callbacks: Any = None
    verbose: int = 0
