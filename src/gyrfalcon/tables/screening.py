"""Exact fits of a sample of the rows, by whose cross-validated errors kernels and penalties are compared."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve, eigh

from .._utils.threads import single_threaded_blas
from ..kernels import Kernel
from ..operators import KernelOperator
from ..solvers.kernel_cg import KernelIterate, KernelSystems, kernel_cg

Array = NDArray[Any]

# Fitted values are off by a hundredth of the deviation of y at most: less than what candidates differ by.
_TOLERANCE = 1e-2
_MAX_ITER = 25
_FEW_ROWS = 1000  # whose matrices are so small that threads of BLAS wait for each other
_CENTERS = 400  # of the preconditioner
_ROUNDING = 1e-6  # of float32, relative to the largest eigenvalue


@dataclass(frozen=True)
class Sample:
    """Rows on which candidates are compared.

    Attributes
    ----------
    targets : array of shape (n, k), of mean 0 and total variance 1
    fold : array of shape (n,)
        Number of each row's fold; rows of the number `n_folds` are never held out.
    n_folds : int
    weight : array of shape (n,) with mean 1, or None
    """

    targets: Array
    fold: NDArray[np.intp]
    n_folds: int
    weight: Array | None = None

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which rows are held out by some fold."""
        return self.fold < self.n_folds


@dataclass(frozen=True)
class Screened:
    """What cross-validation says of one kernel.

    Attributes
    ----------
    mu : the ridge with the least error: the penalty times the number of rows
    predictions : array of shape (n, k), out of fold
    coef : array of shape (n, k), of all rows
    """

    mu: float
    predictions: Array
    coef: Array


def screen(
    kernel: Kernel, X: Array, sample: Sample, ridges: Array, *, random_state: np.random.RandomState, n_jobs: int | None
) -> Screened:
    """Solve kernel ridge regression without each fold for several ridges at once.

    Parameters
    ----------
    kernel : Kernel
    X : array of shape (n, d)
    sample : Sample
    ridges : array of shape (P,)
        Penalties times the number of rows.
    random_state : RandomState
        By which the centers of the preconditioner are drawn.
    n_jobs : int or None
    """
    with single_threaded_blas() if len(X) <= _FEW_ROWS else nullcontext():
        return _screen(kernel, X, sample, ridges, random_state, n_jobs)


def _screen(
    kernel: Kernel, X: Array, sample: Sample, ridges: Array, random_state: np.random.RandomState, n_jobs: int | None
) -> Screened:
    n, k = sample.targets.shape
    P, folds = len(ridges), sample.n_folds
    total = np.ones(n) if sample.weight is None else sample.weight
    share = [1.0, *(1 - np.bincount(sample.fold, weights=total, minlength=folds)[:folds] / total.sum())]
    spread = np.sqrt(np.average(sample.targets**2, axis=0, weights=total)) * np.sqrt(n) + np.finfo(np.float64).tiny
    systems = KernelSystems(
        targets=sample.targets,
        output=np.tile(np.arange(k), (folds + 1) * P),
        mu=np.repeat(np.outer(share, ridges).ravel(), k),
        left_out=np.repeat(np.arange(-1, folds), P * k),
        size=np.tile(spread, (folds + 1) * P),
        fold=sample.fold,
        weight=sample.weight,
    )
    operator = _Gram(KernelOperator(kernel, X, X, n_jobs=n_jobs, memory_budget=0).centers_gram(np.float32))
    guess = _Guess(operator.K, sample, random_state.choice(n, min(n, _CENTERS), replace=False))
    last: KernelIterate = deque(kernel_cg(operator, systems, guess, max_iter=_MAX_ITER, tol=_TOLERANCE), maxlen=1)[0]
    values = last.values.reshape(n, folds + 1, P, k)
    held = sample.held
    predictions = np.zeros((n, P, k))
    predictions[held] = values[np.flatnonzero(held), sample.fold[held] + 1]
    errors = [squared_error(predictions[:, i], sample) for i in range(P)]
    best = int(np.argmin(errors))
    coef = last.coef().reshape(n, folds + 1, P, k)[:, 0, best]
    return Screened(float(ridges[best]), predictions[:, best], coef)


def squared_error(predictions: Array, sample: Sample) -> float:
    """Return the mean squared error of rows that are held out, relative to the mean square of the targets."""
    held = sample.held
    weight = None if sample.weight is None else sample.weight[held]
    errors = np.square(predictions[held] - sample.targets[held]).sum(axis=1)
    size = np.average(np.square(sample.targets[held]).sum(axis=1), weights=weight)
    return float(np.average(errors, weights=weight) / max(size, np.finfo(np.float64).tiny))


class _Gram:
    """The kernel matrix of a sample, which is small enough to be there."""

    def __init__(self, K: Array) -> None:
        self.K = K
        self.dtype = K.dtype
        self.shape: tuple[int, int] = K.shape
        self.passes = 0

    def matmat(self, V: ArrayLike) -> Array:
        """Compute K V."""
        self.passes += 1
        return np.asarray(self.K @ np.asarray(V, dtype=np.float32))


class _Guess:
    """Woodbury's inverse of F F' + mu I in the place of that of K + mu I, for each fold that is left out.

    The same as `NystromPreconditioner`, with matrices that are there: for samples, a tenth of its time.
    """

    def __init__(self, K: Array, sample: Sample, centers: NDArray[np.intp]) -> None:
        square = K[np.ix_(centers, centers)].astype(np.float64)
        with single_threaded_blas():  # so small that threads would wait for each other
            values, vectors = eigh(square, check_finite=False, driver="evd")
        kept = values > _ROUNDING * values[-1]
        self.F = (K[:, centers] @ (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32)).astype(np.float32)
        if sample.weight is not None:
            self.F *= np.sqrt(sample.weight)[:, None].astype(np.float32)
        self._squares = {
            fold: self.F[sample.fold == fold].astype(np.float64) for fold in np.unique(sample.fold).tolist()
        }
        self._squares = {fold: part.T @ part for fold, part in self._squares.items()}
        self._whole = sum(self._squares.values())
        self._least = _ROUNDING * float(np.trace(self._whole))
        self._factors: dict[tuple[int, float], Any] = {}

    def apply(self, V: Array, shift: Array, left_out: NDArray[np.intp]) -> Array:
        """Return mu (F F' + mu I)^-1 V, up to rounding."""
        Z = (self.F.T @ V.astype(np.float32)).astype(np.float64)
        for fold, mu in sorted(set(zip(left_out.tolist(), shift.tolist(), strict=True))):
            columns = (left_out == fold) & (shift == mu)
            Z[:, columns] = cho_solve(self._factor(fold, mu), Z[:, columns], check_finite=False)
        return np.asarray(V - self.F @ Z.astype(np.float32))

    def _factor(self, fold: int, mu: float) -> Any:
        if (fold, mu) not in self._factors:
            square = self._whole - self._squares[fold] if fold >= 0 else self._whole.copy()
            square[np.diag_indices_from(square)] += max(mu, self._least)
            with single_threaded_blas():  # so small that threads would wait for each other
                self._factors[fold, mu] = cho_factor(square, overwrite_a=True, check_finite=False)
        return self._factors[fold, mu]
