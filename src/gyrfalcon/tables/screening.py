"""Exact fits of a sample of the rows, whose errors on held-out rows compare kernels and penalties."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve, eigh

from .._utils.compute import Compute
from .._utils.threads import ordered_map, single_threaded_blas
from ..kernels import Kernel
from ..operators import KernelOperator
from ..solvers.kernel_cg import KernelIterate, KernelSystems, kernel_cg
from .validation import Split

Array = NDArray[Any]

_TOLERANCE = 1e-2  # residual in standard deviations of y, smaller than the differences between candidates
_MAX_ITER = 25  # iterations of conjugate gradient
_STRIP = 2**22  # numbers of the kernel matrix that a thread multiplies at once
_CENTERS = 400  # rank of the preconditioner
_ROUNDING = 1e-6  # eigenvalues below this share of the largest are rounding of float32


@dataclass(frozen=True)
class SearchSample:
    """The rows on which candidates are compared.

    targets : targets of shape (n, k), with mean 0 and total variance 1
    splits : splits, no two of which hold out the same row
    weight : weights with mean 1
    """

    targets: Array
    splits: tuple[Split, ...]
    weight: Array | None = None

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which rows are held out by some split."""
        mask = np.zeros(len(self.targets), dtype=bool)
        mask[np.concatenate([split.held for split in self.splits])] = True
        return mask


@dataclass(frozen=True)
class Screened:
    """The best fit with one kernel.

    mu : the ridge with the least error: the penalty times the number of rows
    predictions : those of held-out rows, by the split that holds them out, of shape (n, k); 0 for other rows
    coefs : coefficients of the training rows of each split
    """

    mu: float
    predictions: Array
    coefs: list[Array]


def screen(
    kernels: Sequence[Kernel],
    rows: Sequence[Array],
    sample: SearchSample,
    ridges: Array,
    *,
    random_state: np.random.RandomState,
    compute: Compute,
) -> Screened:
    """Solve kernel ridge regression on the training rows of each split, for several ridges, and predict held-out rows.

    There is one kernel and one array of rows for each split: all rows of the sample under that split's metric. Ridges
    are penalties times the number of rows. `random_state` draws the centers of the preconditioner.
    """
    n, k = sample.targets.shape
    P = len(ridges)
    predictions = np.zeros((n, P, k))
    coefs = []
    for kernel, X, split in zip(kernels, rows, sample.splits, strict=True):
        Z, weight = X[split.train], None if sample.weight is None else sample.weight[split.train]
        # threads of NumPy's and of SciPy's BLAS wait for each other: an iteration took 190 ms instead of 2 to 80
        with single_threaded_blas():
            coef = _solve(kernel, Z, sample.targets[split.train], weight, ridges, random_state, compute)
        operator = KernelOperator(kernel, X[split.held], Z, n_jobs=compute.n_jobs, memory_budget=0)
        predictions[split.held] = operator.matmat(coef.reshape(len(Z), -1)).reshape(-1, P, k)
        coefs.append(coef)
    errors = [squared_error(predictions[:, i], sample) for i in range(P)]
    best = int(np.argmin(errors))
    return Screened(float(ridges[best]), predictions[:, best], [coef[:, best] for coef in coefs])


def _solve(
    kernel: Kernel,
    X: Array,
    targets: Array,
    weight: Array | None,
    ridges: Array,
    random_state: np.random.RandomState,
    compute: Compute,
) -> Array:
    """Return the coefficients of each ridge, of shape (n, P, k)."""
    (n, k), P = targets.shape, len(ridges)
    spread = np.sqrt(np.average(targets**2, axis=0, weights=weight)) * np.sqrt(n) + np.finfo(np.float64).tiny
    systems = KernelSystems(
        targets=targets,
        output=np.tile(np.arange(k), P),
        mu=np.repeat(ridges, k),
        left_out=np.full(P * k, -1),
        size=np.tile(spread, P),
        weight=weight,
    )
    K = KernelOperator(kernel, X, X, n_jobs=compute.n_jobs, memory_budget=0).centers_gram(np.float32)
    operator = _Gram(K, K.dtype, (n, n), compute.n_threads)
    preconditioner = _Woodbury(K, weight, random_state.choice(n, min(n, _CENTERS), replace=False))
    iterates = kernel_cg(operator, systems, preconditioner, max_iter=_MAX_ITER, tol=_TOLERANCE)
    last: KernelIterate = deque(iterates, maxlen=1)[0]
    return np.asarray(last.coef()).reshape(n, P, k)


def squared_error(predictions: Array, sample: SearchSample) -> float:
    """Return the mean squared error of held-out rows, relative to the mean square of their targets."""
    held = sample.held
    weight = None if sample.weight is None else sample.weight[held]
    errors = np.square(predictions[held] - sample.targets[held]).sum(axis=1)
    size = np.average(np.square(sample.targets[held]).sum(axis=1), weights=weight)
    return float(np.average(errors, weights=weight) / max(size, np.finfo(np.float64).tiny))


@dataclass
class _Gram:
    """The kernel matrix of a sample, which is small enough to be stored, as an operator."""

    K: Array
    dtype: np.dtype[Any]
    shape: tuple[int, int]
    n_threads: int
    passes: int = 0

    def matmat(self, V: ArrayLike) -> Array:
        """Compute K V."""
        self.passes += 1
        columns = np.asarray(V, dtype=np.float32)
        n = len(self.K)
        size = max(1, _STRIP // n)
        strips = (self.K[start : start + size] for start in range(0, n, size))
        return np.concatenate(list(ordered_map(lambda strip: strip @ columns, strips, self.n_threads)))


class _Woodbury:
    """Preconditioner of K + mu I: the inverse of F F' + mu I by Woodbury's formula.

    The same as `NystromPreconditioner`, for a kernel matrix in memory: for samples it takes a tenth of the time.
    """

    def __init__(self, K: Array, weight: Array | None, centers: NDArray[np.intp]) -> None:
        square = K[np.ix_(centers, centers)].astype(np.float64)
        values, vectors = eigh(square, check_finite=False, driver="evd")
        kept = values > _ROUNDING * values[-1]
        self.F = (K[:, centers] @ (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32)).astype(np.float32)
        if weight is not None:
            self.F *= np.sqrt(weight)[:, None].astype(np.float32)
        exact = self.F.astype(np.float64)
        self._square = exact.T @ exact
        self._least = _ROUNDING * float(np.trace(self._square))
        self._factors: dict[float, Any] = {}

    def apply(self, V: Array, shift: Array, left_out: NDArray[np.intp]) -> Array:
        """Return mu (F F' + mu I)^-1 V, up to rounding."""
        Z = (self.F.T @ V.astype(np.float32)).astype(np.float64)
        for mu in np.unique(shift).tolist():
            if mu not in self._factors:
                square = self._square.copy()
                square[np.diag_indices_from(square)] += max(mu, self._least)
                self._factors[mu] = cho_factor(square, overwrite_a=True, check_finite=False)
            Z[:, shift == mu] = cho_solve(self._factors[mu], Z[:, shift == mu], check_finite=False)
        return np.asarray(V - self.F @ Z.astype(np.float32))
