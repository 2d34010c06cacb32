"""What all estimators share: the checks of their input, the stream of a solver's iterates, predictions, model files."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..callbacks import CallbackList, NoImprovement
from ..display import progress_callback
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operator import KernelOperator
from ..persistence import SaveMixin
from ..solvers import Iterate
from ..sources import ArrayRows, Rows
from ._parameters import HasKernel, Rule, check_parameters

Array = NDArray[Any]


# Residuals at which more iterations change nothing that can be seen in predictions of that precision
TOLERANCES = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-10}


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

    rows: ArrayRows
    targets: Array
    weight: Array | None
    validation: Rows | None = None
    error: Callable[[Array], float] | None = None
    flat: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)


class Estimator(HasKernel, SaveMixin, BaseEstimator):  # type: ignore[misc]
    """A fit is: check the input and make a `Problem` of it (`Regression`, `Classification`), then `_solve` it.

    Every estimator also has the parameters of `HasResources`; `own_rules` are the rules of those that it alone has.
    """

    own_rules: ClassVar[Mapping[str, Rule]] = {}
    dtype: Any
    memory_budget: int | float | str
    n_jobs: int | None
    random_state: int | np.random.RandomState | None
    callbacks: Any
    verbose: int

    coef_: Array
    n_iter_: int
    history_: list[dict[str, Any]]
    n_features_in_: int

    def _solve(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        """Set the attributes of the solution; `warm` if the last one is to be started from."""
        raise NotImplementedError

    def _predict(self, X: Any) -> Array:
        """Values of the learnt functions for new rows, of shape (n,) or (n, k)."""
        raise NotImplementedError

    # ---- input -------------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_parameters(self.get_params(deep=False), self.own_rules)

    @property
    def _holds_out(self) -> bool:
        """Whether a part of the rows is to be held out for validation where `fit` is given no other rows for it."""
        return bool(getattr(self, "early_stopping", False))

    def _tile_dtype(self, X: Array) -> np.dtype[Any]:
        if isinstance(self.dtype, str) and self.dtype == "auto":
            return np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        return np.dtype(self.dtype)

    def _rows(self, X: Array, dtype: np.dtype[Any], name: str = "X") -> ArrayRows:
        if dtype == np.float32 and X.dtype != np.float32 and X.size:
            largest = max(-float(X.min()), float(X.max()))
            if largest > float(np.finfo(np.float32).max):
                raise ValueError(f'{name} holds {largest:.3g}, too large for float32: rescale or use dtype="float64"')
        return ArrayRows(X, dtype)

    def _new_rows(self, X: Any, dtype: np.dtype[Any]) -> ArrayRows:
        """Rows to predict for."""
        return self._rows(validate_data(self, X, reset=False, dtype=[np.float64, np.float32]), dtype)

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
        """Which of the rows `indices` to train on, and which to hold out for validation."""
        from sklearn.model_selection import train_test_split

        n = len(indices)
        held_out = max(1, round(getattr(self, "validation_fraction", 0.1) * n))
        if held_out >= n:
            raise ValueError(f"there must be rows to hold out for validation, and X has {n}: give X_val and y_val")
        if stratify is not None:
            stratify = stratify[indices]
            counts = np.unique(stratify, return_counts=True)[1]
            if counts.min() < 2 or len(counts) > min(held_out, n - held_out):
                stratify = None  # too few of a class to share out
        train, held = train_test_split(indices, test_size=held_out, random_state=random_state, stratify=stratify)
        return np.sort(train), np.sort(held)

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
        """Rows and targets for training, and for validation if there is any: given, or held out."""
        dtype = self._tile_dtype(X)
        rows = self._rows(X, dtype)
        validation, held_weight = None, None
        if held is not None:
            validation = self._rows(held, dtype, "X_val")
        elif self._holds_out:
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

    # ---- the fit -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave the estimator as it was if the fit inside fails or is interrupted."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _patience(self) -> NoImprovement | None:
        """The rule by which the validation error stops the fit."""
        return NoImprovement(getattr(self, "n_iter_no_change", 5)) if getattr(self, "early_stopping", False) else None

    def _follow(
        self,
        iterates: Iterable[Iterate],
        problem: Problem,
        attributes: Mapping[str, Any],
        *,
        info: Mapping[str, Any] | None = None,
        watch: Callable[[Array], float] | None = None,
        scale: Array | float = 1.0,
    ) -> tuple[Iterate, bool]:
        """Run a solver to its end, or until a callback or the validation error stops it, and keep the solution.

        Parameters
        ----------
        iterates : the solver's iterates, made as they are asked for
        attributes : what to set beside coef_, n_iter_, history_ and the problem's own attributes
        info : what callbacks are told at the start beside the sizes of the problem
        watch : the validation error of coefficients, or None
        scale : what coefficients are to be multiplied with

        Returns
        -------
        the last iterate, and whether the solver was stopped before its end
        """
        patience = self._patience()
        best: Array | None = None
        stop = False
        with recording(self, problem, **(info or {})) as note:
            for iterate in iterates:
                record = _record(iterate)
                if watch is not None:
                    coef = iterate.coef() * scale
                    record["validation_error"] = watch(coef)
                    if patience is not None:
                        stop = patience.update(record["validation_error"], iterate.iteration)
                        best = coef if patience.improved else best
                stop = note(record) or stop
                if stop:
                    break
            self._keep(iterate.coef() * scale if best is None else best, problem, attributes)
        return iterate, stop

    def _keep(self, coef: Array, problem: Problem, attributes: Mapping[str, Any]) -> None:
        """Set the solution's attributes, if it is one."""
        dtype = problem.rows.dtype
        # predictions are made in the precision of the tiles, where a number may not fit that fits in float64
        if not np.abs(coef).max() <= float(np.finfo(dtype).max):
            raise FloatingPointError(
                f"the coefficients are not finite in {dtype}: scale X and y to moderate numbers, use "
                f'dtype="float64", or a larger penalty than {getattr(self, "penalty", 0.0)!r}'
            )
        self.coef_ = coef[:, 0] if problem.flat else coef
        for name, value in {**attributes, **problem.attributes}.items():
            setattr(self, name, value)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


class KernelExpansion(Estimator):
    """Learns functions sum_j coef_j k(x, center_j)."""

    kernel_: Kernel
    centers_: Array

    def _watch(self, problem: Problem, operator: KernelOperator, budget: int) -> Callable[[Array], float] | None:
        """The validation error of coefficients; its kernel matrix is kept if the budget has room for it as well."""
        if problem.validation is None or problem.error is None:
            return None
        if operator.keeps:
            budget -= math.prod(operator.shape) * operator.dtype.itemsize
        validation = KernelOperator(
            operator.kernel, problem.validation, operator.centers, n_jobs=self.n_jobs, memory_budget=max(0, budget)
        )
        error = problem.error
        return lambda coef: error(validation.matmat(coef))

    def _predict(self, X: Any) -> Array:
        check_is_fitted(self)  # before centers_ is asked for
        rows = self._new_rows(X, self.centers_.dtype)
        operator = KernelOperator(self.kernel_, rows, self.centers_, n_jobs=self.n_jobs, memory_budget=0)
        return operator.matmat(self.coef_)

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


@contextmanager
def recording(estimator: Estimator, problem: Problem, **info: Any) -> Iterator[Callable[[dict[str, Any]], bool]]:
    """Around a fit: gives a function that shows a record to the callbacks and says whether one of them asks to stop.

    What was recorded ends up in `history_`. `info` is what callbacks are told at the start beside the sizes.
    """
    began = time.perf_counter()
    n, k = problem.targets.shape
    progress = filter(None, [progress_callback(estimator.verbose)])
    callbacks = CallbackList([*progress, *CallbackList(estimator.callbacks).callbacks])
    history: list[dict[str, Any]] = []

    def note(record: dict[str, Any]) -> bool:
        record["seconds"] = time.perf_counter() - began
        history.append(record)
        return callbacks.on_iteration(record)

    with callbacks.fitting(estimator, {"n_rows": n, "n_targets": k, **info}):
        yield note
        estimator.n_iter_ = history[-1]["iteration"]
        estimator.history_ = history


def _record(iterate: Iterate) -> dict[str, Any]:
    """What history_ and callbacks have of an iterate."""
    return {
        "iteration": iterate.iteration,
        "residual": iterate.residual,
        "passes": iterate.passes,
        "converged": iterate.converged,
        **iterate.details,
    }


def powers_of_two(targets: Array) -> Array:
    """What to divide each column by so that its largest number is near 1, without a change in any bit of a mantissa."""
    largest = np.maximum(targets.max(axis=0), -targets.min(axis=0)).astype(np.float64)
    powers: Array = np.ldexp(1.0, np.frexp(largest)[1] - 1)
    return powers


def resolved(kernel: Kernel | str | KernelFunction, points: Array, weight: Array | None) -> Kernel:
    """The kernel, with what depends on the data worked out from weighted points as from repeated ones."""
    return as_kernel(kernel).resolve(points if weight is None else _spread(points, weight))


def _spread(points: Array, weight: Array) -> Array:
    """Two rows with the mean and the variance of weighted points, for what a kernel works out from the data."""
    share = weight / weight.sum()
    mean = share @ points.astype(np.float64)
    deviation = np.sqrt(share @ np.square(points - mean))
    return np.stack([mean - deviation, mean + deviation])
