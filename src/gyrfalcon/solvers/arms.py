"""The posterior of a bandit's arms on a dictionary of some of them, and the arms that BKB and BBKB choose by it.

With the arms S of the dictionary, R R' = K_SS^+ and the features z(x) = R' k_S(x) of an arm, n_a plays and the sum b_a
of the rewards of each arm,

    A = sum n_a z_a z_a' + lambda I = U diag(e + lambda) U',     w = A^-1 sum b_a z_a,
    mean(x) = z'w,     var(x) = (k(x, x) - |z|^2) / lambda + z'A^-1 z = k(x, x) / lambda - |C' k_S(x)|^2,
    C = R U diag(e / (lambda (e + lambda)))^(1/2).

Variances are in units of lambda: that of a Gaussian process with noise lambda is lambda var(x). The first term keeps
them large where the dictionary says nothing. If it holds every arm that was played, both are the process' own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from .._utils.threads import single_threaded_blas
from ..kernels import Kernel
from ..operators import KernelOperator
from ..preconditioners import Whitening

_BLOCK = 1 << 22  # kernel entries held at a time: blocks are large, since there may be one problem for each play
_WORTH_THREADS = 1 << 20  # kernel entries of all arms below which starting threads takes longer than computing them
_LEADERS = 256  # arms with the highest bounds, which are looked at first
_NEGLIGIBLE = 1e-9  # variance, in units of the noise's, below which further plays of an arm tell nothing

Vectors = NDArray[np.float64]
Indices = NDArray[np.intp]


class ArmPosterior:
    """Means and variances of all arms, given plays of some.

    kernel : resolved; `penalty`, lambda, is the variance of the noise if the kernel is the covariance of the prior
    dictionary : indices of the arms that functions are made of; may be empty
    counts, sums : number of plays and sum of the rewards of each arm
    played, played_variances : indices of the arms that were played, and their variances
    dimension : the effective dimension, sum n_a var_a
    """

    def __init__(
        self,
        kernel: Kernel,
        arms: Vectors,
        dictionary: Indices,
        counts: NDArray[np.integer[Any]],
        sums: Vectors,
        penalty: float,
        *,
        n_jobs: int | None = None,
    ) -> None:
        self._kernel, self._arms, self._penalty = kernel, arms, penalty
        self.played: Indices = np.flatnonzero(counts)
        self._operator: KernelOperator | None = None
        self._spread = np.zeros(0)  # e
        if len(dictionary):
            points = arms[dictionary]
            n_jobs = n_jobs if len(points) * len(arms) > _WORTH_THREADS else 1
            self._operator = KernelOperator(kernel, points, points, n_jobs=n_jobs, memory_budget=0)
            self._whitening = Whitening(self._operator.centers_gram(), 1, n_jobs=n_jobs)
            Z = self._features(self.played)
            n = counts[self.played].astype(np.float64)
            with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):  # means are checked
                e, self._U = eigh((Z * n) @ Z.T, overwrite_a=True, check_finite=False)
                self._spread = e = np.maximum(e, 0.0)
                c = (self._U.T @ (Z @ sums[self.played])) / (e + penalty)
                R_U = self._whitening.apply(np.column_stack([self._U @ c, self._U]))
            self._coef, self._C = R_U[:, 0], R_U[:, 1:] * np.sqrt(e / (penalty * (e + penalty)))
        self.played_variances = self._means_and_variances(arms[self.played])[1]
        self.dimension = float(counts[self.played] @ self.played_variances)

    def all_arms(self) -> tuple[Vectors, Vectors]:
        """Return the means and the variances of all arms."""
        return self._means_and_variances(self._arms)

    def projections(self, indices: Indices) -> Vectors:
        """Return C' k_S of some arms, as rows."""
        if self._operator is None:
            return np.zeros((len(indices), 0))
        with single_threaded_blas():
            return np.vstack([K @ self._C for _, K in self._kernel_blocks(self._arms[indices])])

    def prior_covariances(self, indices: Indices, arm: int) -> Vectors:
        """Return k(x, a) / lambda of some arms x and one arm a."""
        points = self._arms[indices]
        with np.errstate(over="ignore"):  # within a kernel, of features that are too large for squares
            K = np.asarray(self._kernel(points, self._arms[arm : arm + 1]), dtype=np.float64)
        return K[:, 0] / self._penalty

    def _features(self, indices: Indices) -> Vectors:
        """Return z of some arms, as columns."""
        blocks = [self._whitening.apply_transpose(K.T) for _, K in self._kernel_blocks(self._arms[indices])]
        return np.hstack([np.zeros((self._whitening.rank, 0)), *blocks])

    def _means_and_variances(self, arms: Vectors) -> tuple[Vectors, Vectors]:
        means = np.zeros(len(arms))
        variances = np.asarray(self._kernel.diag(arms), dtype=np.float64) / self._penalty
        if self._operator is not None and len(arms):
            with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
                for at, K in self._kernel_blocks(arms):
                    means[at] = K @ self._coef
                    H = K @ self._C
                    variances[at] -= np.einsum("ij,ij->i", H, H)
            if not np.isfinite(means).all():
                raise ValueError("the rewards are too large to compute with: rescale y to numbers of the order of 1")
        return means, np.maximum(variances, 0.0)

    def _kernel_blocks(self, arms: Vectors) -> Iterator[tuple[slice, Vectors]]:
        """Yield blocks of k(arms, S)."""
        assert self._operator is not None
        return self._operator.on(arms, block_size=max(96, _BLOCK // self._operator.shape[1])).blocks()


class Batch:
    """Variances of some arms, as they shrink with plays of them whose rewards are not known yet.

    A variance does not depend on rewards. After a play of arm a, that of arm x falls by cov(x, a)^2 / (1 + var(a)),
    with cov(x, a) = k(x, a) / lambda - (C' k_S(x))'(C' k_S(a)) at the start: a Cholesky factorisation, column by
    column. The attribute `variances` holds the current values; the argument, those at the start.
    """

    def __init__(self, posterior: ArmPosterior, arms: Indices, variances: Vectors) -> None:
        self.variances = variances.copy()
        self._posterior, self._arms = posterior, arms
        self._projections = posterior.projections(arms)
        self._columns = np.empty((8, len(arms)))
        self._plays = 0

    def play(self, at: int) -> None:
        """Add a play of the arm at a position."""
        i = self._plays
        if i == len(self._columns):
            self._columns = np.vstack([self._columns, np.empty_like(self._columns)])
        covariances = self._posterior.prior_covariances(self._arms, int(self._arms[at]))
        # with a kernel that is not positive semidefinite columns may grow without bounds: no variance is left then
        with np.errstate(over="ignore", invalid="ignore"):
            covariances -= self._projections @ self._projections[at] + self._columns[:i, at] @ self._columns[:i]
            self._columns[i] = covariances / np.sqrt(1 + self.variances[at])
            self.variances = np.fmax(self.variances - np.square(self._columns[i]), 0.0)
        self._plays += 1


class BoundSettings(NamedTuple):
    """The parameters that a posterior and its bounds depend on."""

    noise: float
    norm: float
    delta: float
    exploration: float


class ConfidenceBounds:
    """Means, variances and confidence bounds of all arms after a number of `plays`, until the next play or batch."""

    def __init__(self, posterior: ArmPosterior, plays: int, settings: BoundSettings) -> None:
        self.means, self.variances = posterior.all_arms()
        self.settings = settings
        root = math.sqrt(math.log(max(plays, 1)) * posterior.dimension - math.log(settings.delta))
        self._posterior = posterior
        self._width = settings.exploration * settings.noise * (settings.norm + root)

    def choose(self, most: int, threshold: float) -> Indices:
        """Choose at most `most` arms, and none after 1 + the sum of their variances exceeds `threshold`.

        A finite threshold also ends the batch with an arm of no variance: its bound stays constant while others fall,
        so that it would be chosen forever. Within a batch means are constant and variances fall, so bounds from its
        start remain valid: only the leaders, the arms with the highest bounds, are considered until one of the others
        may be higher.
        """
        bounds = self.means + self._width * np.sqrt(self.variances)
        if most == 1:
            return np.array([np.argmax(bounds)], dtype=np.intp)
        order = np.argsort(-bounds, kind="stable")
        chosen: list[int] = []  # positions in the order
        total, size = 1.0, _LEADERS
        while True:
            leaders, others = order[:size], bounds[order[size]] if size < len(order) else -math.inf
            batch = Batch(self._posterior, leaders, self.variances[leaders])
            for at in chosen:
                batch.play(at)
            while len(chosen) < most and total <= threshold:
                current = self.means[leaders] + self._width * np.sqrt(batch.variances)
                at = int(np.argmax(current))
                if current[at] < others:
                    break
                chosen.append(at)
                variance = float(self.variances[leaders[at]])
                total += variance if variance > _NEGLIGIBLE else math.inf
                batch.play(at)
            else:
                return order[chosen]
            size *= 2
