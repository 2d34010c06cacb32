"""What the Nyström estimators share: M centers stand for n rows."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.threads import effective_n_jobs
from ..centers import Given, Selection, as_centers
from ..kernels import Kernel, as_kernel
from ..operators.dense import KernelOperator, as_points, make_operator
from ..sources import Rows, buffer_bytes, converted, is_sparse, runs_elsewhere
from ..sources.scaling import Standardize
from ._base import KernelExpansion, Problem, powers_of_two, resolved
from ._parameters import HasCenters
from ._plan import Plan

Array = NDArray[Any]

_LARGEST_DEFAULT = 10_000
# A term of the kernel that is so many times the rounding of another is known to 0.1%. Fits show what is lost: R2 of
# Linear() + 1.0 was 0.987 instead of 0.990 where the constant is 20 times that, and with targets of mean 100 and
# deviation 1 R2 of a polynomial was -4,000 at 100
_BLURRED = 1000.0
_EPS = float(np.finfo(np.float32).eps)


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
    spare : bytes left beside all that, and beside a kernel matrix that is kept
    targets, scale : targets divided by a scale that brings them near 1
    start : the last fit's coefficients of the same centers for these targets, if that is where to start
    """

    operator: KernelOperator
    selection: Selection
    center_weight: Array | None
    factors: np.dtype[Any]
    budget: int
    spare: int
    targets: Array
    scale: Array
    start: Array | None

    @property
    def attributes(self) -> dict[str, Any]:
        """What the fitted estimator is to have."""
        return {"kernel_": self.operator.kernel, "centers_": self.operator.centers}


class NystromEstimator(HasCenters, KernelExpansion):
    """Learns functions of chosen centers."""

    takes_sparse = True

    _chosen_as: tuple[int | None, Any]
    _weights_of_centers: tuple[Selection, Array | None]

    def _subspace(
        self,
        problem: Problem,
        random_state: np.random.RandomState,
        warm: bool,
        *,
        buffers: int = 1,
        row_vectors: int = 2,
        penalty: float = np.inf,
    ) -> Subspace:
        """Choose the centers and make the operator, if it all fits in memory; see `Plan` for the numbers.

        With dtype="auto" float32 rows become float64 where float32 would lose a term of the kernel beside another, or
        the smallest `penalty` beside the kernel: `problem` is changed.
        """
        rows, k = problem.rows, problem.targets.shape[1]
        elsewhere = runs_elsewhere(rows)  # where the budget is each worker's
        plan = Plan(
            n=rows.shape[0],
            width=0 if is_sparse(rows) else rows.shape[1],
            k=k,
            itemsize=rows.dtype.itemsize,
            buffers=buffers,
            row_vectors=row_vectors,
            n_threads=effective_n_jobs(self.n_jobs),
            buffered=0 if elsewhere else buffer_bytes(rows),
            budget=self.memory_budget,
        )
        plan.check(min(self._wanted(rows.shape[0]), rows.shape[0]))
        selection, center_weight = self._choose_centers(rows, problem.weight, random_state, warm)
        points = selection.points
        M = points.shape[0]
        kernel = resolved(self.kernel, points, center_weight)
        follows = isinstance(self.dtype, str) and self.dtype == "auto"
        if rows.dtype == np.float32 and follows and _needs_float64(kernel, points, penalty):
            rows = problem.rows = converted(rows, np.float64)
            if problem.validation is not None:
                problem.validation = converted(problem.validation, np.float64)
            points = points.astype(np.float64)
            selection, plan = replace(selection, points=points), replace(plan, itemsize=8)
        elif rows.dtype == np.float32 and penalty < _EPS / 8 * _size(kernel, points):
            warnings.warn(
                f"float32 cannot tell penalty={penalty:g} from rounding, so a larger one is used: raise it, or use "
                'dtype="float64"',
                ConvergenceWarning,
                stacklevel=6,
            )
        kernel.check_terms(points, rows.dtype)
        plan.check(M)
        budget = plan.left(M)
        operator = self._operator(kernel, rows, points, self.memory_budget if elsewhere else budget)
        spare = plan.spare(M) - operator.kept_bytes
        scale = powers_of_two(problem.targets)
        targets = problem.targets if (scale == 1).all() else problem.targets / scale
        start = None
        if warm and same_points(points, self.centers_) and self.coef_.size == M * k:
            start = self.coef_.reshape(M, k) / scale
        self._chosen_as = (self.n_centers, self.centers)
        self._weights_of_centers = (replace(selection, points=operator.centers, indices=None), center_weight)
        targets = targets.astype(rows.dtype, copy=False)
        return Subspace(operator, selection, center_weight, plan.factors(M), budget, spare, targets, scale, start)

    def _choose_centers(
        self, rows: Rows, weight: Array | None, random_state: np.random.RandomState, warm: bool
    ) -> tuple[Selection, Array | None]:
        """The centers, and the sample weights there."""
        selector = as_centers(self.centers)
        # Coefficients mean little at other points, so a warm start draws no new ones while the same are asked for.
        if warm and not isinstance(selector, Given) and self._asks_for_same_centers(rows.shape[1]):
            last, center_weight = getattr(self, "_weights_of_centers", (Selection(self.centers_), None))
            sparse = is_sparse(rows)
            known = self.centers_.toarray() if scipy.sparse.issparse(self.centers_) and not sparse else self.centers_
            points = as_points(known, rows.dtype, sparse=sparse)
            return replace(last, points=points), None if weight is None else center_weight
        if isinstance(selector, Given) and hasattr(self, "scale_"):
            selector = self._scaled(selector)
        candidates = None if weight is None or weight.all() else np.flatnonzero(weight)
        selection = selector.select(
            rows,
            self._wanted(rows.shape[0]),
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

    def _operator(self, kernel: Kernel, rows: Rows, centers: Any, budget: int | float | str) -> KernelOperator:
        return make_operator(kernel, rows, centers, n_jobs=self.n_jobs, memory_budget=budget)

    def _wanted(self, n: int) -> int:
        """How many centers are asked for."""
        selector = as_centers(self.centers)
        if isinstance(selector, Given):
            return int((*np.shape(selector.points), 1)[0])  # what is no matrix will be refused for that
        return int(self.n_centers) if self.n_centers is not None else default_n_centers(n)

    def _scaled(self, given: Given) -> Given:
        """Given points are in the units of X."""
        points: Any = given.points if scipy.sparse.issparse(given.points) else np.asarray(given.points)
        if points.ndim != 2 or points.shape[1] != self.n_features_in_:
            return given  # and will be refused for that
        return Given(Standardize(self.mean_, self.scale_, np.float64)(points))

    def _asks_for_same_centers(self, n_features: int) -> bool:
        n_centers, centers = getattr(self, "_chosen_as", (self.n_centers, self.centers))
        same = centers is self.centers or (isinstance(centers, str) and centers == self.centers)
        return same and n_centers == self.n_centers and self.centers_.shape[1] == n_features


def _size(kernel: Kernel, points: Any) -> float:
    """k(x, x), or 1 where it differs between points: functions of the linear kernel are as large as its values."""
    diagonal = kernel.diag(points)
    return float(diagonal[0]) if np.ptp(diagonal) == 0 else 1.0


def _needs_float64(kernel: Kernel, points: Any, penalty: float) -> bool:
    """Whether float32 would lose what the user asks for.

    The least penalty that float32 can tell from rounding is an eighth of eps k(x, x), and predictions of smooth kernels
    suffer before.
    """
    least, most = kernel.span(points)
    return penalty < 0.5 * _EPS * _size(kernel, points) or 0 < least < _BLURRED * _EPS * most


def same_points(a: Any, b: Any) -> bool:
    """Whether two sets of centers, dense or CSR, are the same."""
    if scipy.sparse.issparse(a) or scipy.sparse.issparse(b):
        return bool(a.shape == b.shape and (scipy.sparse.csr_array(a) != scipy.sparse.csr_array(b)).nnz == 0)
    return np.array_equal(a, b)


def default_n_centers(n: int) -> int:
    """Centers for n rows: a few times sqrt(n), as Theorem 3 of the FALKON paper asks for, up to logarithms."""
    return min(n, max(1_000, math.isqrt(25 * n)), _LARGEST_DEFAULT)
