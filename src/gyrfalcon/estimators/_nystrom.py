"""What the Nyström estimators share: M centers stand for n rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._memory import available_memory, format_bytes, parse_memory
from ..centers import Given, Selection, as_centers
from ..kernels import as_kernel
from ..operator import KernelOperator
from ..sources import Rows
from ._base import KernelExpansion, Problem, powers_of_two, resolved
from ._parameters import HasCenters

Array = NDArray[Any]

_LARGEST_DEFAULT = 10_000
# Up to here factors in float64 cost little (18 MB, some hundredths of a second), and make float32 fits of smooth
# kernels more accurate
_LARGEST_FLOAT64_FACTORS = 1_500


@dataclass
class Subspace:
    """The functions a Nyström method chooses from, and the numbers it needs for that.

    Attributes
    ----------
    operator : k(rows, centers)
    selection : the centers
    center_weight : sample weights at the centers, or None
    factors : precision of M x M factors
    budget : bytes left for keeping kernel matrices
    targets, scale : targets divided by a scale that brings them near 1
    start : the last fit's coefficients of the same centers for these targets, if that is where to start
    """

    operator: KernelOperator
    selection: Selection
    center_weight: Array | None
    factors: np.dtype[Any]
    budget: int
    targets: Array
    scale: Array
    start: Array | None

    @property
    def attributes(self) -> dict[str, Any]:
        """What the fitted estimator is to have."""
        return {"kernel_": self.operator.kernel, "centers_": self.operator.centers}


class NystromEstimator(HasCenters, KernelExpansion):
    """Learns functions of chosen centers."""

    _chosen_as: tuple[int | None, Any]
    _weights_of_centers: tuple[Selection, Array | None]

    def _subspace(
        self, problem: Problem, random_state: np.random.RandomState, warm: bool, *, buffers: int = 1
    ) -> Subspace:
        """Choose the centers and make the operator, if `buffers` M x M factors fit in memory."""
        rows, k = problem.rows, problem.targets.shape[1]
        selection, center_weight = self._choose_centers(rows, problem.weight, random_state, warm)
        points = selection.points
        M = len(points)
        available = available_memory()
        small = M <= _LARGEST_FLOAT64_FACTORS and available >= buffers * 8 * M * M
        factors = np.dtype(np.float64) if small else rows.dtype
        factor_bytes = buffers * M * M * factors.itemsize
        if factor_bytes > available:
            fits = math.isqrt(available // (buffers * rows.dtype.itemsize))
            raise MemoryError(
                f"the {M} x {M} factors of {M} centers take {format_bytes(factor_bytes)} and {format_bytes(available)} "
                f"are available: n_centers={fits} would fit"
            )
        budget = max(0, parse_memory(self.memory_budget) - factor_bytes)
        operator = KernelOperator(
            resolved(self.kernel, points, center_weight),
            rows,
            points,
            n_jobs=self.n_jobs,
            memory_budget=budget,
        )
        scale = powers_of_two(problem.targets)
        targets = problem.targets if (scale == 1).all() else problem.targets / scale
        start = None
        if warm and np.array_equal(points, self.centers_) and self.coef_.size == M * k:
            start = self.coef_.reshape(M, k) / scale
        self._chosen_as = (self.n_centers, self.centers)
        self._weights_of_centers = (replace(selection, points=operator.centers, indices=None), center_weight)
        targets = targets.astype(rows.dtype, copy=False)
        return Subspace(operator, selection, center_weight, factors, budget, targets, scale, start)

    def _choose_centers(
        self, rows: Rows, weight: Array | None, random_state: np.random.RandomState, warm: bool
    ) -> tuple[Selection, Array | None]:
        """The centers, and the sample weights there."""
        selector = as_centers(self.centers)
        # Coefficients mean little at other points, so a warm start draws no new ones while the same are asked for.
        if warm and not isinstance(selector, Given) and self._asks_for_same_centers(rows.shape[1]):
            last, center_weight = getattr(self, "_weights_of_centers", (Selection(self.centers_), None))
            return replace(last, points=self.centers_.astype(rows.dtype)), None if weight is None else center_weight
        wanted = self.n_centers if self.n_centers is not None else default_n_centers(rows.shape[0])
        candidates = None if weight is None or weight.all() else np.flatnonzero(weight)
        selection = selector.select(
            rows,
            int(wanted),
            kernel=as_kernel(self.kernel),
            penalty=getattr(self, "penalty", 0.0),
            candidates=candidates,
            random_state=random_state,
            n_jobs=self.n_jobs,
        )
        center_weight = None
        if weight is not None and selection.indices is not None:
            center_weight = weight[selection.indices]
        return selection, center_weight

    def _asks_for_same_centers(self, n_features: int) -> bool:
        n_centers, centers = getattr(self, "_chosen_as", (self.n_centers, self.centers))
        same = centers is self.centers or (isinstance(centers, str) and centers == self.centers)
        return same and n_centers == self.n_centers and self.centers_.shape[1] == n_features


def default_n_centers(n: int) -> int:
    """Centers for n rows: a few times sqrt(n), as Theorem 3 of the FALKON paper asks for, up to logarithms."""
    return min(n, max(1_000, math.isqrt(25 * n)), _LARGEST_DEFAULT)
