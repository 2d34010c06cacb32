"""Kernel least squares with every row as a center: exactly, and exactly on parts that are averaged.

What the papers compare with: (K + lambda n I) alpha = y (KRLS), its limit without a penalty (KOLS), gradient descent
that stops early, and the average of solutions of parts of the data (Zhang, Duchi, Wainwright 2013).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import integer, one_of, optional, positive
from .._utils.memory import format_bytes, limit_of, parse_memory, require
from .._utils.ranges import check_kernel_scale
from .._utils.registry import register
from ..operators.dense import KernelOperator
from ..solvers import ExactPath, exact_ridge, kernel_descent
from ..solvers.lanczos import lanczos
from ..sources import subset
from ._base import KernelExpansion, Problem, powers_of_two, recording, resolved
from ._choices import (
    CHOICE_RULES,
    CHOICE_WORDS,
    STOPPING_WORDS,
    ChoosesPenalty,
    StopsEarly,
    stable_step,
)
from ._parameters import HasPenalty, HasResources, documented, parameters
from .regression import Regression

Array = NDArray[Any]

_FALKON = "FalkonRegressor, which does without them,"
_LARGEST_PART = 2_000  # rows: 32 MB, and a tenth of a second


@parameters
class HasMethod:
    """What is solved, and how gradient descent does it."""

    method: str = "ridge"


@parameters
class HasSteps:
    """Gradient descent on all rows."""

    max_iter: int = 500
    step: float | str | None = None


@register
@documented(
    **CHOICE_WORDS,
    **STOPPING_WORDS,
    method="""{"ridge", "least_squares", "early_stopping"}
        Kernel ridge regression; the function of least norm among those with the least squared error, without a penalty;
        or gradient descent on the squared error, whose stopping time takes the place of a penalty.""",
    max_iter="""int
        Most iterations of `method="early_stopping"`.""",
    memory_budget=""""auto", int or str
        If the n x n kernel matrix fits, `method="early_stopping"` keeps it, and iterations run at memory speed. Bytes,
        a string such as "4GB", or "auto" for half of what is available. The other methods cannot do without it.""",
    dtype=""""auto", "float32" or "float64"
        Precision of predictions and of gradient descent; "auto" follows X. Systems are solved in float64.""",
)
@parameters
class ExactRegressor(Regression, HasResources, StopsEarly, HasSteps, ChoosesPenalty, HasMethod):
    """Exact kernel least squares, for as many rows as n^2 numbers fit into memory.

    The other estimators' yardstick. `method="ridge"` minimises mean((y - f(x))^2) + penalty |f|^2 over all functions of
    the kernel's space: (K + penalty n I) coef = y. "least_squares" is the same without a penalty, and
    "early_stopping" gradient descent with as many steps as the validation error asks for [1]_.

    {parameters}

    Attributes
    ----------
    centers_ : array of shape (n, n_features_in_)
        The training rows: all but those held out for validation and those of weight 0.
    coef_ : array of shape (n,) or (n, n_outputs)
        Their coefficients.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    penalty_ : float
        The penalty that was used or chosen; not with `method="early_stopping"`.
    n_iter_ : int
        Iterations done, or penalties tried.
    history_ : list of dict
        For each penalty `penalty`, `df` (degrees of freedom; not for a single one), and `validation_error`, `gcv_error`
        or `loo_error`, all in the units of y; for each iteration of "early_stopping" what `FalkonRegressor` has.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    FalkonRegressor : As accurate with enough centers, for millions of rows.
    NystromRegressor : The same with few centers, solved directly.

    Notes
    -----
    One penalty takes n^3 / 3 multiplications and n^2 numbers, by Cholesky's factorisation; a list of any length about
    9 n^3 and 3 n^2, by an eigendecomposition. Gradient descent takes n^2 for each iteration, and no memory
    that it does not find.

    References
    ----------
    .. [1] Yao, Rosasco, Caponnetto, "On Early Stopping in Gradient Descent Learning", Constructive Approximation 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import ExactRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(300, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = ExactRegressor(penalties=[1e-8, 1e-4, 1.0]).fit(X, y)
    >>> model.penalty_
    1e-08
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    own_rules: ClassVar[Any] = {
        **CHOICE_RULES,
        "method": one_of("ridge", "least_squares", "early_stopping"),
        "step": optional(optional(positive('None, "auto" or a finite number greater than 0')), "auto"),
    }

    @property
    def _holds_out(self) -> bool:
        if self.method == "early_stopping":
            return self.early_stopping
        return self.method == "ridge" and super()._holds_out

    def _solve(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        problem = _counting(problem)
        n, budget = problem.rows.shape[0], parse_memory(self.memory_budget)
        points = problem.rows.take(np.arange(n))
        operator = KernelOperator(
            resolved(self.kernel, points, problem.weight, points.dtype),
            problem.rows,
            points,
            n_jobs=self.n_jobs,
            memory_budget=budget if self.method == "early_stopping" else 0,
        )
        attributes = {"kernel_": operator.kernel, "centers_": operator.centers}
        scale = powers_of_two(problem.targets)
        y, weight = problem.targets / scale, problem.weight
        if self.method == "early_stopping":
            self.__dict__.pop("penalty_", None)  # of an earlier fit by another method
            root = np.ones(n) if weight is None else np.sqrt(weight)
            step = stable_step(
                self.step,
                operator.kernel,
                problem.rows,
                lambda: lanczos(lambda v: root * operator.matmat(root * v) / n, n, 10)[1],
            )
            self._follow(
                kernel_descent(operator, y, step=step, max_iter=self.max_iter, weight=weight),
                problem,
                attributes,
                info={"max_iter": self.max_iter, "max_passes": max(1, self.max_iter - 1), "n_centers": n},
                watch=self._watch(problem, operator, budget),
                scale=scale,
            )
        elif self.method == "ridge" and self.penalties is None:
            with recording(self, problem, max_passes=1, n_centers=n) as note:
                alpha = _ridge(operator, y, self.penalty, weight, _FALKON) * scale
                record = {"iteration": 1, "passes": 1, "penalty": float(self.penalty)}
                if problem.validation is not None:
                    record["validation_error"] = self._validation_errors(problem, operator, alpha[:, :, None])[0]
                note(record)
                self._keep(alpha, problem, {"penalty_": float(self.penalty), **attributes})
        else:
            _check_memory(n, 3)
            ridge, least = self.method == "ridge", _least_penalty(operator)
            penalties: Any = self.penalties if ridge else 0.0
            self._choose_penalty(
                # without a penalty, what it could not be told from is left out
                lambda: ExactPath(operator.centers_gram(np.float64), y, weight, floor=0.0 if ridge else n * least),
                problem,
                operator,
                attributes,
                penalties=penalties,
                least=least if ridge else 0.0,
                scale=scale,
            )


@parameters
class HasPartitions:
    """Into how many parts the rows are split."""

    n_partitions: int | None = None


@register
@documented(
    n_partitions="""int or None
        Number of parts, at most n. None makes parts of at most 2,000 rows.""",
    memory_budget=""""auto", int or str
        Not used: a part's kernel matrix is all that is kept, (n / n_partitions)^2 numbers.""",
    dtype=""""auto", "float32" or "float64"
        Precision of predictions; "auto" follows X. Systems are solved in float64.""",
)
@parameters
class DivideAndConquerRegressor(Regression, HasResources, HasPenalty, HasPartitions, KernelExpansion):
    """The average of exact kernel ridge regressions on random parts of the rows.

    Each part is solved with the penalty that would be right for all rows, so its solution follows the noise more than
    it should on its own; the average evens that out [1]_. n rows in m parts take n^3 / m^2 time and n^2 / m^2 memory.
    Predictions take all n rows, as those of exact kernel ridge regression do.

    {parameters}

    Attributes
    ----------
    centers_ : array of shape (n, n_features_in_)
        The training rows, part after part, without those of weight 0.
    coef_ : array of shape (n,) or (n, n_outputs)
        Their coefficients: those of the parts, divided by the number of parts.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    n_iter_ : int
        Parts solved; fewer than there are if a callback asked to stop, and then the average of those.
    history_ : list of dict
        For each part: `iteration`, `rows`, `seconds`, and the `validation_error` of the average so far.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    FalkonRegressor : Cheaper for the same accuracy, and in its predictions.
    ExactRegressor : All rows at once.

    Notes
    -----
    With a penalty that is right for n rows, Zhang, Duchi and Wainwright show the optimal rate while m does not grow too
    fast: like n^(1/3) or less for smooth kernels.

    References
    ----------
    .. [1] Zhang, Duchi, Wainwright, "Divide and Conquer Kernel Ridge Regression", COLT 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import DivideAndConquerRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = DivideAndConquerRegressor(n_partitions=5, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    own_rules: ClassVar[Any] = {"n_partitions": optional(integer(1))}

    def _solve(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        problem = _counting(problem)
        n = problem.rows.shape[0]
        m = -(-n // _LARGEST_PART) if self.n_partitions is None else int(self.n_partitions)
        if m > n:
            raise ValueError(f"n_partitions={m} must be at most the number of rows that count, {n}")
        order = random_state.permutation(n)
        points = problem.rows.take(order)
        weight = None if problem.weight is None else problem.weight[order]
        kernel = resolved(self.kernel, points, weight, points.dtype)
        scale = powers_of_two(problem.targets)
        y = (problem.targets / scale)[order]
        weight = None if problem.weight is None else problem.weight[order]
        alpha = np.zeros_like(y)
        predictions: Array | float = 0.0
        done = end = 0
        with recording(self, problem, max_passes=m, n_partitions=m) as note:
            for part in np.array_split(np.arange(n), m):
                at = slice(part[0], part[-1] + 1)
                operator = KernelOperator(kernel, points[at], points[at], n_jobs=self.n_jobs, memory_budget=0)
                part_weight = None if weight is None else _mean_one(weight[at])
                alpha[at] = _ridge(operator, y[at], self.penalty, part_weight, "more n_partitions")
                done, end = done + 1, at.stop
                record: dict[str, Any] = {"iteration": done, "passes": done, "rows": len(part)}
                if problem.validation is not None and problem.error is not None:
                    predictions = predictions + operator.on(problem.validation).matmat(alpha[at] * scale)
                    record["validation_error"] = problem.error(np.asarray(predictions) / done)
                if note(record):
                    break
            self._keep(alpha[:end] / done * scale, problem, {"kernel_": kernel, "centers_": points[:end]})


def _counting(problem: Problem) -> Problem:
    """The problem without rows of weight 0, which would be centers with the coefficient 0."""
    if problem.weight is None or problem.weight.all():
        return problem
    counting = np.flatnonzero(problem.weight)
    rows = subset(problem.rows, counting)
    weight = _mean_one(problem.weight[counting])
    return Problem(
        rows, problem.targets[counting], weight, problem.validation, problem.error, problem.flat, problem.attributes
    )


def _mean_one(weight: Array) -> Array:
    return np.asarray(weight / weight.mean())


def _least_penalty(operator: KernelOperator, dtype: Any = None) -> float:
    """The smallest penalty that means something at a precision: by default that in which predictions are made."""
    mean = float(np.maximum(operator.kernel.diag(operator.centers), 0.0).mean())
    check_kernel_scale(mean, operator.dtype, power=1, kernel=operator.kernel)
    return mean * float(np.finfo(operator.dtype if dtype is None else dtype).eps) / 8


def _ridge(operator: KernelOperator, y: Array, penalty: float, weight: Array | None, remedy: str) -> Array:
    """Kernel ridge regression's coefficients; `operator` is k(rows, rows)."""
    n = operator.shape[0]
    penalty = max(float(penalty), _least_penalty(operator))
    # below this, Cholesky's factorisation divides by rounding errors where K is singular
    safe = penalty > 8 * n * _least_penalty(operator, np.float64)
    _check_memory(n, 1 if safe else 3, remedy)
    gram = operator.centers_gram(np.float64)
    if safe:
        return exact_ridge(gram, y, penalty, weight, overwrite_gram=True)
    return ExactPath(gram, y, weight).coefficients(penalty)


def _check_memory(n: int, matrices: int, remedy: str = _FALKON) -> None:
    size = matrices * 8 * n * n
    fits = math.isqrt(limit_of("auto") // (8 * matrices))
    what = "a matrix" if matrices == 1 else f"{matrices} matrices"
    require(
        "auto",
        size,
        f"{what} of {n} x {n} numbers: {format_bytes(size)}",
        f"{fits} rows would fit; use {remedy} or fewer rows",
    )
