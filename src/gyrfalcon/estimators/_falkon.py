"""What the FALKON estimators share: everything but the meaning of y."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from .._memory import available_memory, format_bytes, parse_memory
from ..callbacks import CallbackList, NoImprovement
from ..centers import Centers, as_centers
from ..display import progress_callback
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operator import KernelOperator
from ..persistence import SaveMixin
from ..preconditioner import Preconditioner
from ..solvers.cg import conjugate_gradient
from ..sources import ArrayRows, Rows

Array = NDArray[Any]

_LARGEST_DEFAULT = 10_000
# Residuals at which more iterations change nothing that can be seen in predictions of that precision
_TOLERANCES = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-10}


@dataclass
class Problem:
    """What a fit is about, once y is numbers.

    Attributes
    ----------
    rows, targets : the training rows, and their targets of shape (n, k)
    weight : sample weights with mean 1, or None
    validation : rows and what `error` is given, or None
    error : function of predictions of the validation rows that gives one number
    """

    rows: Rows
    targets: Array
    weight: Array | None
    validation: Rows | None = None
    error: Callable[[Array], float] | None = None


PARAMETERS = """Parameters
    ----------
    kernel : Kernel, str or callable
        A kernel of `gyrfalcon.kernels`, its name, or any function k(A, B) that gives the matrix of kernel values.
    n_centers : int or None
        Number of Nyström centers M, at most n. More is more accurate; time is proportional to M for each pass, memory
        to M^2. None is 5 sqrt(n), at least 256 and at most 10,000.
    penalty : float
        The papers' lambda, on the mean squared error; not negative.
    centers : "uniform", array of shape (M, n_features), or selector
        How centers are chosen: drawn uniformly from the rows, given, or by an object of `gyrfalcon.centers`.
    max_iter : int
        Most iterations of conjugate gradient. Ten to twenty are enough where the preconditioner is good.
    tol : float or None
        Stop when the preconditioned residual falls below `tol` times the right-hand side's norm; a
        `ConvergenceWarning` says if it did not. None stops where more would not be seen (1e-6 in float32, 1e-10 in
        float64), and never warns.
    dtype : "auto", "float32" or "float64"
        Precision of the kernel and the factors. "auto" follows X.
    memory_budget : "auto", int or str
        If the n x M kernel matrix fits beside the factors it is kept, and iterations run at memory speed. Bytes, a
        string such as "4GB", or "auto" for half of what is available. 0 never keeps it.
    n_jobs : int or None
        Threads; None is every core.
    random_state : int, RandomState or None
        Seed of the centers and of the validation split.
    warm_start : bool
        Start from the last fit's solution, with its centers.
    early_stopping : bool
        Stop when the validation error has not fallen for `n_iter_no_change` iterations, and keep the best solution.
        The validation set is the one given to `fit`, or a random part of the rows.
    validation_fraction : float
        Share of the rows held out by `early_stopping` where `fit` is given no validation set.
    n_iter_no_change : int
        Patience of `early_stopping`.
    callbacks : callable, Callback, list of them, or None
        Called with the record of each iteration; one that returns True stops the fit. See `gyrfalcon.callbacks`.
    verbose : int
        1 shows a progress bar, 2 also a line for each iteration."""

Class = TypeVar("Class", bound=type)


def documented(parameters: str) -> Callable[[Class], Class]:
    """Put the shared parameters where a class's docstring says {parameters}."""

    def decorate(cls: Class) -> Class:
        cls.__doc__ = (cls.__doc__ or "").replace("{parameters}", parameters)
        return cls

    return decorate


class FalkonBase(SaveMixin, BaseEstimator):  # type: ignore[misc]
    """FALKON (Rudi, Carratino, Rosasco 2017) for the squared loss and any number of targets."""

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | None = None,
        penalty: float = 1e-6,
        centers: str | ArrayLike | Centers = "uniform",
        max_iter: int = 20,
        tol: float | None = None,
        dtype: Any = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        callbacks: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_centers = n_centers
        self.penalty = penalty
        self.centers = centers
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.callbacks = callbacks
        self.verbose = verbose

    # ---- input --------------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        def integer(name: str, least: int) -> None:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise ValueError(f"{name}={value!r} must be an integer of at least {least}")

        def number(name: str, holds: Callable[[float], bool], words: str) -> None:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not holds(float(value)):
                raise ValueError(f"{name}={value!r} must be {words}")

        if self.n_centers is not None:
            integer("n_centers", 1)
        integer("max_iter", 1)
        integer("n_iter_no_change", 1)
        number("penalty", lambda x: 0 <= x < math.inf, "a finite number, not negative")
        number("validation_fraction", lambda x: 0 < x < 1, "between 0 and 1, both excluded")
        if self.tol is not None:
            number("tol", lambda x: 0 <= x < math.inf, "None or a finite number, not negative")
        if not (isinstance(self.dtype, str) and self.dtype == "auto"):
            self._named_dtype()

    def _named_dtype(self) -> np.dtype[Any]:
        try:
            dtype = np.dtype(self.dtype)
        except TypeError:
            dtype = np.dtype(object)
        if dtype not in (np.float32, np.float64):
            raise ValueError(f'dtype={self.dtype!r} must be "auto", "float32" or "float64"')
        return dtype

    def _tile_dtype(self, X: Array) -> np.dtype[Any]:
        if not (isinstance(self.dtype, str) and self.dtype == "auto"):
            return self._named_dtype()
        return np.dtype(np.float32) if X.dtype == np.float32 else np.dtype(np.float64)

    def _check_weight(self, sample_weight: ArrayLike | None, X: Array) -> Array | None:
        if sample_weight is None:
            return None
        weight: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.sum() > 0:
            raise ValueError("sample_weight is zero for every row: at least one row must count")
        return weight

    def _check_validation(self, X_val: Any, y_val: Any) -> Array | None:
        if (X_val is None) != (y_val is None):
            missing = "y_val" if y_val is None else "X_val"
            raise ValueError(f"X_val and y_val go together: {missing} is missing")
        if X_val is None:
            return None
        checked: Array = validate_data(self, X_val, reset=False, dtype=[np.float64, np.float32])
        if len(checked) != len(y_val):
            raise ValueError(f"X_val has {len(checked)} rows and y_val has {len(y_val)}")
        return checked

    def _split(self, n: int, stratify: Array | None, random_state: np.random.RandomState) -> tuple[Array, Array]:
        """Indices of training and validation rows, for early stopping without a validation set."""
        from sklearn.model_selection import train_test_split

        held_out = max(1, round(self.validation_fraction * n))
        if held_out >= n:
            raise ValueError(f"early_stopping=True needs rows to hold out, and X has {n}: give X_val and y_val")
        if stratify is not None:
            counts = np.unique(stratify, return_counts=True)[1]
            if counts.min() < 2 or len(counts) > min(held_out, n - held_out):
                stratify = None  # too few of a class to share out
        train, held = train_test_split(np.arange(n), test_size=held_out, random_state=random_state, stratify=stratify)
        return np.sort(train), np.sort(held)

    # ---- the fit ------------------------------------------------------------------------------------------------------

    def _problem(
        self,
        X: Array,
        targets: Array,
        weight: Array | None,
        held: Array | None,
        held_targets: Array | None,
        error: Callable[[Array, Array], float],
        stratify: Array | None,
        random_state: np.random.RandomState,
    ) -> Problem:
        """Rows and targets for training, and for validation if there is any: given, or held out by early stopping."""
        dtype = self._tile_dtype(X)
        targets = targets.reshape(len(targets), -1)
        rows = ArrayRows(X, dtype)
        if held is not None and held_targets is not None:
            validation, held_targets = ArrayRows(held, dtype), held_targets.reshape(len(held), -1)
        elif self.early_stopping:
            train, test = self._split(len(X), stratify, random_state)
            rows, validation, held_targets = rows.subset(train), rows.subset(test), targets[test]
            targets, weight = targets[train], None if weight is None else weight[train]
            if weight is not None and not weight.sum() > 0:
                raise ValueError("no row that counts is left for training: give X_val and y_val, or other weights")
        else:
            validation = None
        if weight is not None:
            weight = weight / weight.mean()
        if validation is None or held_targets is None:
            return Problem(rows, targets, weight)
        return Problem(rows, targets, weight, validation, partial(error, held_targets))

    def _fit(
        self, problem: Problem, random_state: np.random.RandomState, warm_start: bool | None = None
    ) -> None:
        began = time.perf_counter()
        rows, (n, k) = problem.rows, problem.targets.shape
        warm = self.warm_start if warm_start is None else warm_start
        warm = warm and hasattr(self, "coef_") and self.centers_.shape[1] == rows.shape[1]
        wanted = self.n_centers if self.n_centers is not None else default_n_centers(n)
        # A warm start means little with other centers, so it keeps those it has, unless their number was changed.
        if warm and self.n_centers is not None and len(self.centers_) != min(self.n_centers, n):
            warm = False
        weight = problem.weight
        center_weight = D = None
        if warm:
            points = np.ascontiguousarray(self.centers_, dtype=rows.dtype)
        else:
            candidates = None if weight is None or weight.all() else np.flatnonzero(weight)
            selection = as_centers(self.centers).select(rows, int(wanted), candidates, random_state)
            points, D = selection.points, selection.D
            if weight is not None and selection.indices is not None:
                center_weight = weight[selection.indices]
        M = len(points)
        gram_bytes = M * M * rows.dtype.itemsize
        if gram_bytes > available_memory():
            fits = math.isqrt(available_memory() // rows.dtype.itemsize)
            raise MemoryError(
                f"the {M} x {M} factors of {M} centers take {format_bytes(gram_bytes)} and "
                f"{format_bytes(available_memory())} are available: n_centers={fits} would fit"
            )
        operator = KernelOperator(
            as_kernel(self.kernel).resolve(points),
            rows,
            points,
            n_jobs=self.n_jobs,
            memory_budget=max(0, parse_memory(self.memory_budget) - gram_bytes),
        )
        start = None
        if warm:
            start = np.asarray(self.coef_, dtype=np.float64).reshape(M, -1)
            start = start if start.shape == (M, k) else None
        tol = _TOLERANCES[rows.dtype] if self.tol is None else float(self.tol)
        watch = None if problem.validation is None else self._watch(problem, operator)
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        callbacks = CallbackList([*filter(None, [progress_callback(self.verbose)]), *CallbackList(self.callbacks).callbacks])
        info = {"max_iter": self.max_iter, "n_rows": n, "n_centers": M, "n_targets": k}
        history: list[dict[str, Any]] = []
        coef = np.zeros((M, k))
        best: Array | None = None
        with callbacks.fitting(self, info):
            preconditioner = Preconditioner(
                operator.centers_gram(), self.penalty, n, D=D, center_weight=center_weight
            )
            for iterate in conjugate_gradient(
                operator, problem.targets, preconditioner, self.penalty,
                max_iter=self.max_iter, tol=tol, weight=weight, start=start,
            ):
                record: dict[str, Any] = {
                    "iteration": iterate.iteration,
                    "residual": iterate.residual,
                    "passes": iterate.passes,
                    "converged": iterate.converged,
                }
                stop = False
                if watch is not None:
                    coef = iterate.coef()
                    record["validation_error"] = watch(coef)
                    if patience is not None:
                        stop = patience.update(record["validation_error"], iterate.iteration)
                        best = coef if patience.improved else best
                record["seconds"] = time.perf_counter() - began
                history.append(record)
                if callbacks.on_iteration(record) or stop:
                    break
            coef = iterate.coef() if best is None else best
            if not np.isfinite(coef).all():
                raise FloatingPointError(
                    "the solution is not finite: scale X and y to moderate numbers, use dtype='float64', or a larger "
                    f"penalty than {self.penalty!r}"
                )
        if self.tol is not None and not iterate.converged and iterate.iteration == self.max_iter:
            warnings.warn(
                f"the residual is {iterate.residual:.1e} after max_iter={self.max_iter} iterations, above tol={tol:g}: "
                "raise max_iter, the penalty or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.kernel_ = operator.kernel
        self.centers_ = operator.centers
        self.coef_ = coef
        self.n_iter_ = iterate.iteration
        self.history_ = history

    def _watch(self, problem: Problem, operator: KernelOperator) -> Callable[[Array], float]:
        """The validation error of coefficients; its kernel matrix is kept if small beside the training rows'."""
        assert problem.validation is not None and problem.error is not None
        budget = parse_memory(self.memory_budget) // 4 if not operator.keeps else "auto"
        validation = KernelOperator(
            operator.kernel, problem.validation, operator.centers, n_jobs=self.n_jobs, memory_budget=budget
        )
        error = problem.error
        return lambda coef: error(validation.matmat(coef))

    def _check_loaded(self) -> None:
        """What a model file must satisfy beyond being well formed."""
        if not isinstance(self.kernel_, Kernel):
            raise ValueError("kernel_ is not a kernel")
        if self.centers_.ndim != 2 or self.centers_.dtype not in (np.float32, np.float64):
            raise ValueError("centers_ is not a matrix of floats")
        if self.coef_.ndim not in (1, 2) or len(self.coef_) != len(self.centers_) or self.coef_.dtype.kind != "f":
            raise ValueError(f"coef_ of shape {self.coef_.shape} does not fit centers_ of shape {self.centers_.shape}")
        if self.n_features_in_ != self.centers_.shape[1]:
            raise ValueError(f"n_features_in_={self.n_features_in_} does not fit centers_ of shape {self.centers_.shape}")
        self.kernel_.resolve(self.centers_)

    def _predict(self, X: Any) -> Array:
        """K coef for new rows, of shape (n,) or (n, k), as coef_."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        rows = ArrayRows(X, self.centers_.dtype)
        operator = KernelOperator(self.kernel_, rows, self.centers_, n_jobs=self.n_jobs, memory_budget=0)
        return operator.matmat(self.coef_)


def default_n_centers(n: int) -> int:
    """Centers for n rows: a few times sqrt(n), the number that Theorem 3 of the FALKON paper asks for up to logarithms."""
    return min(n, max(256, math.isqrt(25 * n)), _LARGEST_DEFAULT)
