"""What all estimators share: the checks of their input, the stream of a solver's iterates, predictions, model files."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import Rule
from .._utils.ranges import check_range, power_of_two
from ..callbacks import CallbackList, NoImprovement
from ..callbacks.progress import progress_callback
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operators.dense import KernelOperator, make_operator
from ..solvers import Iterate
from ..sources import Rows, is_sparse, mapped, subset
from ..storage.checkpoints import Journal, Progress
from ..storage.models import SaveMixin
from ._input import TakesRows
from ._parameters import HasKernel, check_parameters

Array = NDArray[Any]


_UNSETTLED = 0.05  # of the targets' standard deviation

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

    rows: Rows
    targets: Array
    weight: Array | None
    validation: Rows | None = None
    error: Callable[[Array], float] | None = None
    flat: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)


class Estimator(HasKernel, SaveMixin, TakesRows):
    """A fit is: check the input and make a `Problem` of it (`Regression`, `Classification`), then `_solve` it.

    Every estimator also has the parameters of `HasResources`; `own_rules` are the rules of those that it alone has.
    """

    own_rules: ClassVar[Mapping[str, Rule]] = {}
    _journal: Journal | None = None  # of an estimator with checkpoints, during its fit
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

    def _check_loaded(self) -> None:
        """Raise ValueError if attributes that come from a model file do not fit together."""

    # ---- input -------------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_parameters(self.get_params(deep=False), self.own_rules)

    @property
    def _holds_out(self) -> bool:
        """Whether a part of the rows is to be held out for validation where `fit` is given no other rows for it."""
        return bool(getattr(self, "early_stopping", False))

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
        rows: Rows,
        targets: Array,
        weight: Array | None,
        validation: Rows | None,
        held_targets: Array | None,
        error: Callable[[Array, Array | None, Array], float],
        stratify: Array | None,
        random_state: np.random.RandomState,
    ) -> Problem:
        """Rows and targets for training, and for validation if there is any: given, or held out."""
        dtype, held_weight = self._tile_dtype(rows), None
        check_range(targets, dtype, "y")  # which predictions could not be
        if validation is None and self._holds_out:
            counting = np.arange(rows.shape[0]) if weight is None else np.flatnonzero(weight)
            train, test = self._split(counting, stratify, random_state)
            rows, validation = subset(rows, train), subset(rows, test)
            targets, held_targets = targets[train], targets[test]
            if weight is not None:
                weight, held_weight = weight[train], weight[test]
        self._learn_scale(rows, weight)
        rows = self._prepared(rows, dtype)
        validation = None if validation is None else self._prepared(validation, dtype)
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
        kind: type[Iterate] = Iterate,
    ) -> tuple[Iterate, bool]:
        """Run a solver to its end, or until a callback or the validation error stops it, and keep the solution.

        Parameters
        ----------
        iterates : the solver's iterates, made as they are asked for
        attributes : what to set beside coef_, n_iter_, history_ and the problem's own attributes
        info : what callbacks are told at the start beside the sizes of the problem
        watch : the validation error of coefficients, or None
        scale : what coefficients are to be multiplied with
        kind : class of the iterates

        Returns
        -------
        the last iterate, and whether the solver was stopped before its end
        """
        journal, patience = self._journal, self._patience()
        before = None if journal is None else journal.progress
        best, history = (None, []) if before is None else (before.best, before.history)
        if before is not None and patience is not None:
            patience.resume(before.patience or {})
        stop = False

        def progress(**end: Any) -> Progress:
            waiting = None if patience is None else patience.state()
            return Progress(iterate.state(), iterate.numbers(), history, best, waiting, **end)

        with recording(self, problem, history, **(info or {})) as note:
            if before is not None and before.is_over(getattr(self, "max_iter", 0)):
                assert before.coef is not None
                self._keep(before.coef, problem, attributes)
                return kind.again(before.last), patience is not None and patience.exhausted
            for iterate in iterates:
                if before is not None:  # the one that is resumed, which is on record
                    before = None
                    stop = patience is not None and patience.exhausted
                    if stop:
                        break
                    continue
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
                if journal is not None and journal.due:
                    journal.keep(progress())
            coef = iterate.coef() * scale if best is None else best
            self._keep(coef, problem, attributes)
            if journal is not None:
                enough = iterate.converged or (patience is not None and patience.exhausted)
                # what a callback has stopped can go on: its next answer may be another
                may_go_on = not enough and (stop or iterate.iteration >= getattr(self, "max_iter", 0))
                journal.keep(progress(coef=coef, may_go_on=may_go_on))
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
    centers_: Any

    def _watch(self, problem: Problem, operator: KernelOperator, budget: int) -> Callable[[Array], float] | None:
        """The validation error of coefficients; its kernel matrix is kept if the budget has room for it as well."""
        if problem.validation is None or problem.error is None:
            return None
        budget -= operator.kept_bytes
        validation = make_operator(
            operator.kernel, problem.validation, operator.centers, n_jobs=self.n_jobs, memory_budget=max(0, budget)
        )
        error = problem.error
        return lambda coef: error(validation.matmat(coef))

    def _predict(self, X: Any) -> Array:
        check_is_fitted(self)  # before centers_ is asked for
        rows = self._new_rows(X, self.centers_.dtype)
        if scipy.sparse.issparse(self.centers_) and not is_sparse(rows):
            rows = mapped(rows, scipy.sparse.csr_array, rows.dtype)
        operator = make_operator(self.kernel_, rows, self.centers_, n_jobs=self.n_jobs, memory_budget=0)
        return operator.matmat(self.coef_)

    def _check_loaded(self) -> None:
        """What a model file must satisfy beyond being well formed."""
        if not isinstance(self.dtype, str | type | np.dtype):
            raise ValueError(f"dtype={self.dtype!r} is no type of numbers")
        if not isinstance(self.kernel_, Kernel):
            raise ValueError("kernel_ is not a kernel")
        if self.centers_.ndim != 2 or self.centers_.dtype not in (np.float32, np.float64):
            raise ValueError("centers_ is not a matrix of floats")
        M = self.centers_.shape[0]
        if self.coef_.ndim not in (1, 2) or len(self.coef_) != M or self.coef_.dtype.kind != "f":
            raise ValueError(f"coef_ of shape {self.coef_.shape} does not fit centers_ of shape {self.centers_.shape}")
        if self.n_features_in_ != self.centers_.shape[1]:
            raise ValueError(f"n_features_in_={self.n_features_in_}, but centers_ has shape {self.centers_.shape}")
        for name in ("mean_", "scale_"):
            value = getattr(self, name, None)
            if value is not None and np.shape(value) != (self.n_features_in_,):
                raise ValueError(f"{name} has shape {np.shape(value)}, and there are {self.n_features_in_} features")
        numbers = self.centers_.data if scipy.sparse.issparse(self.centers_) else self.centers_
        if not (np.isfinite(numbers).all() and np.isfinite(self.coef_).all()):
            raise ValueError("centers_ or coef_ holds NaN or infinity")
        self.kernel_.resolve(self.centers_)


@contextmanager
def recording(
    estimator: Estimator, problem: Problem, history: list[dict[str, Any]] | None = None, **info: Any
) -> Iterator[Callable[[dict[str, Any]], bool]]:
    """Around a fit: gives a function that shows a record to the callbacks and says whether one of them asks to stop.

    What was recorded ends up in `history_`, after the records of `history`, if the fit is one that is resumed. `info`
    is what callbacks are told at the start beside the sizes.
    """
    history = [] if history is None else history
    began = time.perf_counter() - (history[-1]["seconds"] if history else 0.0)
    n, k = problem.targets.shape
    progress = filter(None, [progress_callback(estimator.verbose)])
    callbacks = CallbackList([*progress, *CallbackList(estimator.callbacks).callbacks])

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


def warn_if_unsettled(
    last: Iterate,
    targets: Array,
    weight: Array | None,
    *,
    tol: float | None,
    reached: float,
    steps: str,
    remedy: str,
    stacklevel: int,
) -> None:
    """Warn of a solver that `max_iter` has ended too soon.

    That is where predictions would still move by more than a twentieth of the targets' standard deviation, whatever
    was asked for, or where the user's `tol` was not `reached`. A twentieth costs up to 0.0025 of R^2.
    """
    if last.converged:
        return
    off = last.error / deviation(targets, weight) if last.error.size else np.zeros(1)
    if off.max() > _UNSETTLED:
        words = f"predictions are still off by about {off.max():.2g} standard deviations of y"
        words += f" after {last.iteration} {steps}"
    elif tol:
        words = f"the residual is {last.residual:.1e} after {last.iteration} {steps}, above tol={reached:g}"
    else:
        return
    warnings.warn(f"{words}: {remedy}", ConvergenceWarning, stacklevel=stacklevel + 1)


def deviation(targets: Array, weight: Array | None) -> Array:
    """Return the standard deviation of each column, or a hundredth of its mean where it is constant; never 0."""
    mean = np.average(targets, axis=0, weights=weight)
    squares = np.average(np.square(targets - mean, dtype=np.float64), axis=0, weights=weight)
    found, size = np.sqrt(squares), np.abs(mean)
    return np.maximum(np.where(found > 1e-6 * size, found, 1e-2 * size), np.finfo(np.float64).tiny)


def resolved(kernel: Kernel | str | KernelFunction, points: Array, weight: Array | None, dtype: Any = None) -> Kernel:
    """The kernel, with what depends on the data worked out from weighted points as from repeated ones.

    If its values are computed in `dtype`, no term of it may be lost there.
    """
    found = as_kernel(kernel).resolve(points if weight is None else _spread(points, weight))
    if dtype is not None:
        found.check_terms(points, dtype)
    return found


def _spread(points: Any, weight: Array) -> Any:
    """Two rows with the mean and the variance of weighted points, for what a kernel works out from the data."""
    share = weight / weight.sum()
    if scipy.sparse.issparse(points):
        columns, at = np.unique(points.indices, return_inverse=True)
        each = np.repeat(share, np.diff(points.indptr))
        unit = power_of_two(points.data)  # for the sake of squares
        values = points.data.astype(np.float64) / unit
        mean = np.bincount(at, each * values, minlength=len(columns))
        variance = np.bincount(at, each * np.square(values), minlength=len(columns)) - mean**2
        deviation = np.sqrt(np.maximum(variance, 0.0))
        data = unit * np.concatenate([mean - deviation, mean + deviation])
        starts = np.arange(3) * len(columns)
        return scipy.sparse.csr_array((data, np.tile(columns, 2), starts), shape=(2, points.shape[1]))
    unit = power_of_two(points)  # for the sake of squares
    mean = share @ (points / unit).astype(np.float64)
    deviation = np.sqrt(share @ np.square(points / unit - mean))
    return unit * np.stack([mean - deviation, mean + deviation])
