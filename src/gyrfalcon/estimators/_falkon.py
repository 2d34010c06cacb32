"""What the FALKON estimators share: everything but the meaning of y."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from ..centers import Centers, Given, Selection, as_centers
from ..display import progress_callback
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operator import KernelOperator
from ..persistence import SaveMixin
from ..preconditioner import Preconditioner
from ..solvers.cg import conjugate_gradient
from ..sources import ArrayRows, Rows

Array = NDArray[Any]

_LARGEST_DEFAULT = 10_000
# Up to here factors in float64 cost little (18 MB, some hundredths of a second), and make float32 fits of smooth
# kernels more accurate
_LARGEST_FLOAT64_FACTORS = 1_500
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
    flat : whether coefficients and predictions of one column have no second axis
    attributes : what the fitted estimator has beside the solution
    """

    rows: Rows
    targets: Array
    weight: Array | None
    validation: Rows | None = None
    error: Callable[[Array], float] | None = None
    flat: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)


PARAMETERS = """Parameters
    ----------
    kernel : Kernel, str or callable
        A kernel of `gyrfalcon.kernels`, its name, or any function k(A, B) that gives the matrix of kernel values.
    n_centers : int or None
        Number of Nyström centers M, at most n. More is more accurate; time is proportional to M for each pass, memory
        to M^2. None is 5 sqrt(n), at least 1,000 and at most 10,000.
    penalty : float
        The papers' lambda, on the mean squared error; not negative. What is below an eighth of the precision of the
        kernel (1.5e-8 in float32, 3e-17 in float64, times the mean of k(x, x)) cannot be told from rounding, and counts
        as that.
    centers : "uniform", array of shape (M, n_features), or selector
        How centers are chosen: drawn uniformly from the rows, given, or by an object of `gyrfalcon.centers`.
    max_iter : int
        Most iterations of conjugate gradient. Ten to twenty are enough where the preconditioner is good.
    tol : float or None
        Stop when the preconditioned residual falls below `tol` times the right-hand side's norm; a
        `ConvergenceWarning` says if it did not. None stops where more would not be seen (1e-6 in float32, 1e-10 in
        float64), and never warns. 0 is for `max_iter` iterations, and never warns either.
    dtype : "auto", "float32" or "float64"
        Precision of the kernel; "auto" follows X. The factors are in float64 up to 1,500 centers, beyond that in the
        kernel's precision.
    memory_budget : "auto", int or str
        If the n x M kernel matrix fits beside the factors it is kept, and iterations run at memory speed. Bytes, a
        string such as "4GB", or "auto" for half of what is available. 0 never keeps it.
    n_jobs : int or None
        Threads; None is every core.
    random_state : int, RandomState or None
        Seed of the centers and of the validation split.
    warm_start : bool
        Start from the last fit's solution, with its centers unless `n_centers` or `centers` has changed since.
    early_stopping : bool
        Stop when the validation error has not fallen for `n_iter_no_change` iterations, and keep the best solution.
        The validation set is the one given to `fit`, or a random part of the rows, whose weights then count there too.
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

    kernel_: Kernel
    centers_: Array
    coef_: Array
    n_iter_: int
    history_: list[dict[str, Any]]
    n_features_in_: int
    _chosen_as: tuple[int | None, Any]
    _weights_of_centers: tuple[Array | None, int | None, Array | None]

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

    # ---- input -------------------------------------------------------------------------------------------------------

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
            dtype: np.dtype[Any] | None = None if self.dtype is None else np.dtype(self.dtype)
        except TypeError:
            dtype = None
        if dtype is None or dtype not in (np.float32, np.float64):
            raise ValueError(f'dtype={self.dtype!r} must be "auto", "float32" or "float64"')
        return dtype

    def _tile_dtype(self, X: Array) -> np.dtype[Any]:
        if not (isinstance(self.dtype, str) and self.dtype == "auto"):
            return self._named_dtype()
        return np.dtype(np.float32 if X.dtype == np.float32 else np.float64)

    def _rows(self, X: Array, dtype: np.dtype[Any], name: str = "X") -> ArrayRows:
        if dtype == np.float32 and X.dtype != np.float32 and X.size:
            largest = max(-float(X.min()), float(X.max()))
            if largest > float(np.finfo(np.float32).max):
                raise ValueError(f'{name} holds {largest:.3g}, too large for float32: rescale or use dtype="float64"')
        return ArrayRows(X, dtype)

    def _check_weight(self, sample_weight: ArrayLike | None, X: Array) -> Array | None:
        if sample_weight is None:
            return None
        weight: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.max() > 0:
            raise ValueError("sample_weight is zero for every row: at least one row must count")
        weight = weight / weight.max()  # so that no sum of them overflows
        return weight

    def _check_validation(self, X_val: Any, y_val: Any) -> Array | None:
        if (X_val is None) != (y_val is None):
            missing = "y_val" if y_val is None else "X_val"
            raise ValueError(f"X_val and y_val go together: {missing} is missing")
        if X_val is None:
            return None
        checked: Array = validate_data(self, X_val, reset=False, dtype=[np.float64, np.float32])
        return checked

    def _split(
        self, indices: Array, stratify: Array | None, random_state: np.random.RandomState
    ) -> tuple[Array, Array]:
        """Which of the rows `indices` to train on, and which to hold out for early stopping."""
        from sklearn.model_selection import train_test_split

        n = len(indices)
        held_out = max(1, round(self.validation_fraction * n))
        if held_out >= n:
            raise ValueError(f"early_stopping=True needs rows to hold out, and X has {n}: give X_val and y_val")
        if stratify is not None:
            stratify = stratify[indices]
            counts = np.unique(stratify, return_counts=True)[1]
            if counts.min() < 2 or len(counts) > min(held_out, n - held_out):
                stratify = None  # too few of a class to share out
        train, held = train_test_split(indices, test_size=held_out, random_state=random_state, stratify=stratify)
        return np.sort(train), np.sort(held)

    # ---- the fit -----------------------------------------------------------------------------------------------------

    def _problem(
        self,
        X: Array,
        targets: Array,
        weight: Array | None,
        held: Array | None,
        held_targets: Array | None,
        error: Callable[[Array, Array | None, Array], float],
        stratify: Array | None,
        random_state: np.random.RandomState,
    ) -> Problem:
        """Rows and targets for training, and for validation if there is any: given, or held out by early stopping."""
        dtype = self._tile_dtype(X)
        rows = self._rows(X, dtype)
        validation, held_weight = None, None
        if held is not None:
            validation = self._rows(held, dtype, "X_val")
        elif self.early_stopping:
            counting = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
            train, test = self._split(counting, stratify, random_state)
            rows, validation = rows.subset(train), rows.subset(test)
            targets, held_targets = targets[train], targets[test]
            if weight is not None:
                weight, held_weight = weight[train], weight[test]
        if weight is not None:
            weight = weight / weight.mean()
        problem = Problem(rows, targets, weight, validation)
        if validation is not None and held_targets is not None:
            problem.error = partial(error, held_targets, held_weight)
        return problem

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave the estimator as it was if the fit inside fails or is interrupted."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _fit(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        began = time.perf_counter()
        rows, (n, k) = problem.rows, problem.targets.shape
        weight = problem.weight
        selection, center_weight = self._choose_centers(rows, weight, random_state, warm)
        points = selection.points
        M = len(points)
        available = available_memory()
        factors = np.dtype(np.float64) if M <= _LARGEST_FLOAT64_FACTORS and available >= 8 * M * M else rows.dtype
        gram_bytes = M * M * factors.itemsize
        if gram_bytes > available:
            raise MemoryError(
                f"the {M} x {M} factors of {M} centers take {format_bytes(gram_bytes)} and {format_bytes(available)} "
                f"are available: n_centers={math.isqrt(available // rows.dtype.itemsize)} would fit"
            )
        budget = max(0, parse_memory(self.memory_budget) - gram_bytes)
        operator = KernelOperator(
            as_kernel(self.kernel).resolve(points if center_weight is None else _spread(points, center_weight)),
            rows,
            points,
            n_jobs=self.n_jobs,
            memory_budget=budget,
        )
        scale = _powers_of_two(problem.targets)
        targets = problem.targets if (scale == 1).all() else problem.targets / scale
        targets = targets.astype(rows.dtype, copy=False)
        start = None
        if warm and np.array_equal(points, self.centers_) and self.coef_.size == M * k:
            start = self.coef_.reshape(M, k) / scale
        tol = _TOLERANCES[rows.dtype] if self.tol is None else float(self.tol)
        watch = None if problem.validation is None else self._watch(problem, operator, budget)
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        progress = filter(None, [progress_callback(self.verbose)])
        callbacks = CallbackList([*progress, *CallbackList(self.callbacks).callbacks])
        info = {"max_iter": self.max_iter, "n_rows": n, "n_centers": M, "n_targets": k}
        history: list[dict[str, Any]] = []
        best: Array | None = None
        stop = False
        with callbacks.fitting(self, info):
            preconditioner = Preconditioner(
                operator.centers_gram(factors),
                self.penalty,
                n,
                D=selection.D,
                center_weight=center_weight,
                n_draws=selection.n_draws,
                tile_dtype=rows.dtype,
            )
            for iterate in conjugate_gradient(
                operator,
                targets,
                preconditioner,
                self.penalty,
                max_iter=self.max_iter,
                tol=tol,
                weight=weight,
                start=start,
            ):
                record: dict[str, Any] = {
                    "iteration": iterate.iteration,
                    "residual": iterate.residual,
                    "passes": iterate.passes,
                    "converged": iterate.converged,
                }
                if watch is not None:
                    coef = iterate.coef() * scale
                    record["validation_error"] = watch(coef)
                    if patience is not None:
                        stop = patience.update(record["validation_error"], iterate.iteration)
                        best = coef if patience.improved else best
                record["seconds"] = time.perf_counter() - began
                history.append(record)
                stop = callbacks.on_iteration(record) or stop
                if stop:
                    break
            coef = iterate.coef() * scale if best is None else best
            # predictions are made in the precision of the tiles, where a number may not fit that fits in float64
            if not np.abs(coef).max() <= float(np.finfo(rows.dtype).max):
                raise FloatingPointError(
                    f"the coefficients are not finite in {rows.dtype}: scale X and y to moderate numbers, use "
                    f'dtype="float64", or a larger penalty than {self.penalty!r}'
                )
            self.kernel_ = operator.kernel
            self.centers_ = operator.centers
            self.coef_ = coef[:, 0] if problem.flat else coef
            self.n_iter_ = iterate.iteration
            self.history_ = history
            self._chosen_as = (self.n_centers, self.centers)
            self._weights_of_centers = (selection.D, selection.n_draws, center_weight)
            for name, value in problem.attributes.items():
                setattr(self, name, value)
        if self.tol and not iterate.converged and not stop:
            warnings.warn(
                f"the residual is {iterate.residual:.1e} after {iterate.iteration} iterations, above tol={tol:g}: "
                f"raise max_iter={self.max_iter}, the penalty or tol",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _choose_centers(
        self, rows: Rows, weight: Array | None, random_state: np.random.RandomState, warm: bool
    ) -> tuple[Selection, Array | None]:
        """The centers, and the sample weights there."""
        selector = as_centers(self.centers)
        # Coefficients mean little at other points, so a warm start draws no new ones while the same are asked for.
        if warm and not isinstance(selector, Given) and self._asks_for_same_centers(rows.shape[1]):
            D, n_draws, center_weight = getattr(self, "_weights_of_centers", (None, None, None))
            selection = Selection(self.centers_.astype(rows.dtype), D=D, n_draws=n_draws)
            return selection, None if weight is None else center_weight
        wanted = self.n_centers if self.n_centers is not None else default_n_centers(rows.shape[0])
        candidates = None if weight is None or weight.all() else np.flatnonzero(weight)
        selection = selector.select(rows, int(wanted), candidates, random_state)
        center_weight = None
        if weight is not None and selection.indices is not None:
            center_weight = weight[selection.indices]
        return selection, center_weight

    def _asks_for_same_centers(self, n_features: int) -> bool:
        n_centers, centers = getattr(self, "_chosen_as", (self.n_centers, self.centers))
        same = centers is self.centers or (isinstance(centers, str) and centers == self.centers)
        return same and n_centers == self.n_centers and self.centers_.shape[1] == n_features

    def _watch(self, problem: Problem, operator: KernelOperator, budget: int) -> Callable[[Array], float]:
        """The validation error of coefficients; its kernel matrix is kept if the budget has room for it as well."""
        assert problem.validation is not None
        assert problem.error is not None
        if operator.keeps:
            budget -= math.prod(operator.shape) * operator.dtype.itemsize
        validation = KernelOperator(
            operator.kernel, problem.validation, operator.centers, n_jobs=self.n_jobs, memory_budget=budget
        )
        error = problem.error
        return lambda coef: error(validation.matmat(coef))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def _check_loaded(self) -> None:
        """What a model file must satisfy beyond being well formed."""
        if not isinstance(self.kernel_, Kernel):
            raise ValueError("kernel_ is not a kernel")
        if self.centers_.ndim != 2 or self.centers_.dtype not in (np.float32, np.float64):
            raise ValueError("centers_ is not a matrix of floats")
        if self.coef_.ndim not in (1, 2) or len(self.coef_) != len(self.centers_) or self.coef_.dtype.kind != "f":
            raise ValueError(f"coef_ of shape {self.coef_.shape} does not fit centers_ of shape {self.centers_.shape}")
        if self.n_features_in_ != self.centers_.shape[1]:
            raise ValueError(f"n_features_in_={self.n_features_in_}, but centers_ has shape {self.centers_.shape}")
        if not (np.isfinite(self.centers_).all() and np.isfinite(self.coef_).all()):
            raise ValueError("centers_ or coef_ holds NaN or infinity")
        self.kernel_.resolve(self.centers_)

    def _predict(self, X: Any) -> Array:
        """K coef for new rows, of shape (n,) or (n, k), as coef_."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        rows = self._rows(X, self.centers_.dtype)
        operator = KernelOperator(self.kernel_, rows, self.centers_, n_jobs=self.n_jobs, memory_budget=0)
        return operator.matmat(self.coef_)


def default_n_centers(n: int) -> int:
    """Centers for n rows: a few times sqrt(n), as Theorem 3 of the FALKON paper asks for, up to logarithms."""
    return min(n, max(1_000, math.isqrt(25 * n)), _LARGEST_DEFAULT)


def _spread(points: Array, weight: Array) -> Array:
    """Two rows with the mean and the variance of weighted points, for what a kernel works out from the data."""
    share = weight / weight.sum()
    mean = share @ points.astype(np.float64)
    deviation = np.sqrt(share @ np.square(points - mean))
    return np.stack([mean - deviation, mean + deviation])


def _powers_of_two(targets: Array) -> Array:
    """What to divide each column by so that its largest number is near 1, without a change in any bit of a mantissa."""
    largest = np.maximum(targets.max(axis=0), -targets.min(axis=0)).astype(np.float64)
    powers: Array = np.ldexp(1.0, np.frexp(largest)[1] - 1)
    return powers
