"""Choose centers, and with them the functions that a Nyström method learns from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .._utils.ranges import power_of_two
from .._utils.threads import effective_n_jobs
from ..backends import check_centers
from ..centers import Centers, Given, Selection, as_centers
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operators import Operator, make_operator
from ..operators.keeping import FEW_PASSES
from ..sources import Rows
from ..sources.scaling import Standardize
from ..storage.checkpoints import WARM, Beginning, CheckpointError, decode_selection, encode_selection
from .auto_penalty import as_penalty
from .data import FitData
from .kernel import fitted_kernel
from .plan import Plan
from .precision import in_suitable_precision
from .session import Session

Array = NDArray[Any]

# Measured on sets of 6,500 to 800,000 rows (docs/choosing_parameters.md): up to 2,000 centers cost seconds, and bring
# up to a quarter of the error; beyond, time goes on growing with M, and most errors do not fall
_DEFAULT = 2_000
_NEWTON_PASSES = 4  # of a Newton step, with its steps of conjugate gradient
_LARGEST_DEFAULT = 10_000
_MODERATE = 2.0**20  # size of targets, or its inverse, with which nothing overflows


class CenterParameters(Protocol):
    """An estimator, as far as it says which centers it wants and what they may cost."""

    @property
    def kernel(self) -> Kernel | str | KernelFunction:
        """The kernel."""
        ...

    @property
    def n_centers(self) -> int | None:
        """How many centers."""
        ...

    @property
    def centers(self) -> Any:
        """How they are chosen."""
        ...

    @property
    def dtype(self) -> Any:
        """Precision of the kernel, or "auto"."""
        ...

    @property
    def memory_budget(self) -> int | float | str:
        """Bytes that the fit may take."""
        ...

    @property
    def n_jobs(self) -> int | None:
        """Threads."""
        ...


@dataclass(frozen=True)
class ChosenCenters:
    """Centers, and how they were asked for: a warm start draws no others while the same are asked for.

    Attributes
    ----------
    selection : the centers
    weight : sample weights at the centers, or None
    n_centers, centers : the parameters by which they were chosen
    """

    selection: Selection
    weight: Array | None
    n_centers: int | None
    centers: Any

    def suit(self, model: CenterParameters, n_features: int) -> bool:
        """Whether `model` asks for the same centers."""
        same = self.centers is model.centers or (isinstance(self.centers, str) and self.centers == model.centers)
        known = self.selection.points.shape[1]
        return bool(same and self.n_centers == model.n_centers and known == n_features)


@dataclass(frozen=True)
class WarmStart:
    """The last fit's centers and coefficients, from which a fit starts."""

    chosen: ChosenCenters
    coef: Array


@dataclass(frozen=True)
class Subspace:
    """The functions that a Nyström method learns from, and the numbers that it needs for that.

    Attributes
    ----------
    data : what is learnt from, in the precision that was chosen
    operator : k(rows, centers)
    chosen : the centers, and the sample weights there
    factors : precision of M x M factors
    budget : bytes left for keeping kernel matrices
    spare : bytes left beside all that, and beside a kernel matrix that is kept
    spare_at_first : the same when the fit was first started
    penalty : the penalty asked for, or the one that was chosen
    targets, scale : targets, divided by a scale that brings them near 1 where they are very large or small
    start : the coefficients to start from for these targets, or None
    """

    data: FitData
    operator: Operator
    chosen: ChosenCenters
    factors: np.dtype[Any]
    budget: int
    spare: int
    spare_at_first: int
    penalty: float
    targets: Array
    scale: Array
    start: Array | None

    @property
    def selection(self) -> Selection:
        """The centers."""
        return self.chosen.selection

    @property
    def remembered(self) -> ChosenCenters:
        """The centers for a later warm start, whose rows may be others."""
        return replace(self.chosen, selection=replace(self.selection, points=self.operator.centers, indices=None))

    def beginning(self, random_state: dict[str, Any]) -> Beginning:
        """Return what a checkpoint keeps of the start of a fit; `random_state` is that before anything was drawn."""
        return Beginning(
            random_state,
            encode_selection(self.selection, self.chosen.weight),
            self.budget,
            self.spare,
            self.operator.arithmetic,
            self.factors.name,
            self.penalty,
        )

    def has_room(self, needed: int, memory_budget: int | float | str) -> bool:
        """Whether there are so many bytes beside what is planned; for a resumed fit, whether the first start had them.

        What the first start decided must not change, so a resumed fit that has less raises an error.
        """
        had = needed <= self.spare_at_first
        if had and needed > self.spare:
            raise CheckpointError(
                f"the fit began with room for {needed:,} bytes of factors of another preconditioner, which it needs "
                f"now, and there are {max(0, self.spare):,}: raise memory_budget={memory_budget!r}, or delete "
                "the checkpoint folder to start afresh"
            )
        return had


def choose_subspace(
    model: CenterParameters,
    data: FitData,
    session: Session,
    *,
    penalty: float | str = 0.0,
    resolves_penalty: bool = False,
    buffers: int = 1,
    row_vectors: int = 2,
    columns: int | None = None,
    held: Callable[[int], int] = lambda M: 0,
    warm: WarmStart | None = None,
    max_iter: int = 0,
    passes: int | None = None,
    device: Any = None,
    precision: str | None = None,
) -> Subspace:
    """Choose the penalty if it is "auto", and the centers, and make the operator, if it all fits in memory.

    With dtype="auto" float32 rows become float64 where float32 would lose a term of the kernel beside another, the
    penalty beside the kernel, or part of f; see `gyrfalcon.fitting.precision`.

    Parameters
    ----------
    model : estimator
    data : FitData
    session : Session
        Of which the centers are drawn, or taken if it resumes a fit.
    penalty : float or "auto"
        By which selectors that depend on one choose, too.
    resolves_penalty : bool
        Whether the solution is the one of the penalty, which the kernel's precision then has to resolve.
    buffers, row_vectors : int
        What the solver holds in memory; see `Plan`.
    columns : int, optional
        Columns that a pass multiplies, if they are not those of the targets.
    held : function
        Of the number of centers, that gives further bytes which the solver holds.
    warm : WarmStart, optional
        Where to start from.
    max_iter : int
        Most iterations of the solver.
    passes : int, optional
        Most passes over the rows, by which it is decided whether a large K is worth its memory where the user leaves
        that open. By default one for each iteration, or several for each Newton step.
    device : None, str, torch.device or list of these
        Where products with K are computed.
    precision : {None, "tf32"}
        As for `DeviceOperator`.
    """
    start = {WARM: None if warm is None else warm.coef, "their centers": None if warm is None else _points_of(warm)}
    session.identify(data, start, max_iter)
    space = _subspace(
        model,
        data,
        session.random_state,
        session.beginning,
        penalty=penalty,
        resolves_penalty=resolves_penalty,
        buffers=buffers,
        row_vectors=row_vectors,
        columns=columns,
        held=held,
        warm=warm,
        passes=passes or passes_of(max_iter) * (1 if data.is_least_squares else _NEWTON_PASSES),
        device=device,
        precision=precision,
    )
    session.begin(space.beginning)
    return space


def passes_of(max_iter: int) -> int:
    """Return how many passes so many iterations make, by which it is decided whether K is kept.

    Few iterations count as some: whether a small K is kept, which changes last bits, must not depend on `max_iter`.
    """
    return max(max_iter, FEW_PASSES) + 1 if max_iter else 1


def _subspace(
    model: CenterParameters,
    data: FitData,
    random_state: np.random.RandomState,
    begun: Beginning | None,
    *,
    penalty: float | str,
    resolves_penalty: bool,
    buffers: int,
    row_vectors: int,
    columns: int | None,
    held: Callable[[int], int],
    warm: WarmStart | None,
    passes: int,
    device: Any,
    precision: str | None,
) -> Subspace:
    """Choose the subspace, or the one that a fit which is resumed had `begun` with."""
    rows, k = data.rows, data.targets.shape[1]
    elsewhere = rows.runs_elsewhere  # where the budget is each worker's
    plan = Plan(
        n=rows.shape[0],
        width=0 if rows.is_sparse else rows.shape[1],
        k=k if columns is None else columns,
        itemsize=rows.dtype.itemsize,
        buffers=buffers,
        row_vectors=row_vectors,
        n_threads=effective_n_jobs(model.n_jobs),
        buffered=0 if elsewhere else rows.buffer_bytes,
        budget=model.memory_budget,
        held=held,
    )
    plan.check(min(wanted_centers(model, rows.shape[0]), rows.shape[0]))
    if begun is not None:
        found, (selection, center_weight) = begun.penalty, decode_selection(begun.selection, rows)
    else:
        found = as_penalty(penalty, model, data, random_state)
        selection, center_weight = _choose_centers(model, data, random_state, found, warm)
    points = selection.points
    M = points.shape[0]
    kernel = fitted_kernel(model, data, points, center_weight, warns=begun is None)
    data = in_suitable_precision(data, model.dtype, kernel, points, found if resolves_penalty else None)
    if data.rows.dtype != rows.dtype:
        rows = data.rows
        points = points.astype(rows.dtype)
        selection, plan = replace(selection, points=points), replace(plan, itemsize=rows.dtype.itemsize)
    kernel.check_terms(points, rows.dtype)
    plan.check(M)
    budget = plan.left(M)
    budget_of_K = model.memory_budget if elsewhere else budget
    operator = _operator(model, kernel, rows, points, budget_of_K, begun, passes, device, precision)
    spare = plan.spare(M) - operator.kept_bytes
    scale = power_of_two(data.targets, axis=0)
    if (scale >= 1 / _MODERATE).all() and (scale <= _MODERATE).all():
        scale = np.ones_like(scale)  # a fit would have the same bits, and a copy of y more
    targets = _divided(data.targets, scale, rows.dtype)
    start = None
    if warm is not None and same_points(operator.centers, _points_of(warm)) and warm.coef.size == M * k:
        start = warm.coef.reshape(M, k) / scale
    return Subspace(
        data=data,
        operator=operator,
        chosen=ChosenCenters(selection, center_weight, model.n_centers, model.centers),
        factors=plan.factors(M) if begun is None else np.dtype(begun.factors),
        budget=budget if begun is None else begun.budget,
        spare=spare,
        spare_at_first=spare if begun is None else begun.spare,
        penalty=found,
        targets=targets,
        scale=scale,
        start=start,
    )


def _divided(targets: Array, scale: Array, dtype: np.dtype[Any]) -> Array:
    """Divide the columns of y, rounding once, without a copy of all in float64."""
    if (scale == 1).all():
        return targets.astype(dtype, copy=False)
    out = np.empty(targets.shape, dtype=dtype)
    return np.divide(targets, scale, out=out, casting="same_kind")


def _points_of(warm: WarmStart) -> Any:
    return warm.chosen.selection.points


def _choose_centers(
    model: CenterParameters, data: FitData, random_state: np.random.RandomState, penalty: float, warm: WarmStart | None
) -> tuple[Selection, Array | None]:
    """Return the centers, and the sample weights there."""
    rows, weight = data.rows, data.weight
    selector = as_centers(model.centers)
    # Coefficients mean little at other points, so a warm start draws no new ones while the same are asked for.
    if warm is not None and not isinstance(selector, Given) and warm.chosen.suit(model, rows.shape[1]):
        known, sparse = _points_of(warm), rows.is_sparse
        if scipy.sparse.issparse(known) and not sparse:
            known = known.toarray()
        points = check_centers(known, rows.dtype, sparse=sparse)
        return replace(warm.chosen.selection, points=points), None if weight is None else warm.chosen.weight
    if isinstance(selector, Given) and data.scale is not None:
        selector = _scaled(selector, data)
    candidates = None if weight is None or weight.all() else np.flatnonzero(weight)
    selection = selector.select(
        rows,
        wanted_centers(model, rows.shape[0]),
        kernel=as_kernel(model.kernel),
        penalty=penalty,
        candidates=candidates,
        random_state=random_state,
        n_jobs=model.n_jobs,
    )
    center_weight = None
    if weight is not None and selection.indices is not None:
        center_weight = weight[selection.indices]
    return selection, center_weight


def wanted_centers(model: CenterParameters, n: int) -> int:
    """Return how many centers are asked for."""
    selector: Centers = as_centers(model.centers)
    if isinstance(selector, Given):
        return int((*np.shape(selector.points), 1)[0])  # what is no matrix will be refused for that
    return int(model.n_centers) if model.n_centers is not None else default_n_centers(n)


def default_n_centers(n: int) -> int:
    """Return the number of centers for n rows, which grows with sqrt(n) as in Theorem 3 of the FALKON paper."""
    return min(n, max(_DEFAULT, math.isqrt(4 * n)), _LARGEST_DEFAULT)


def _scaled(given: Given, data: FitData) -> Given:
    """Return given points, which are in the units of X, in the units of the rows."""
    points: Any = given.points if scipy.sparse.issparse(given.points) else np.asarray(given.points)
    if points.ndim != 2 or points.shape[1] != data.rows.shape[1] or points.dtype.kind not in "fiu":
        return given  # and will be refused for that
    if scipy.sparse.issparse(points):
        points = points.tocsr()
    assert data.scale is not None
    return Given(Standardize(data.mean, data.scale, np.float64)(points), given.sampled)


def _operator(
    model: CenterParameters,
    kernel: Kernel,
    rows: Rows,
    centers: Any,
    budget: int | float | str,
    begun: Beginning | None,
    passes: int,
    device: Any,
    precision: str | None,
) -> Operator:
    """Make the operator; what it keeps decides the last bits of products, so a resumed fit keeps what it did before."""
    # bytes that are given may be used, but to fill K takes longer than few passes gain by it
    counted = passes if model.memory_budget == "auto" or passes <= FEW_PASSES else None
    if begun is not None:
        counted = None  # max_iter may have grown, and with it what is worth keeping
        if begun.arithmetic == "made again":
            budget = 0
        elif not rows.runs_elsewhere:
            budget = min(begun.budget, int(budget))
    operator = make_operator(
        kernel,
        rows,
        centers,
        n_jobs=model.n_jobs,
        memory_budget=budget,
        passes=counted,
        device=device,
        precision=precision,
    )
    if begun is not None and operator.arithmetic != begun.arithmetic:
        raise CheckpointError(
            f"the fit began with a kernel matrix of shape {operator.shape} that is {begun.arithmetic}, and now it "
            f"would be {operator.arithmetic}, for want of memory or on another device: raise "
            f"memory_budget={model.memory_budget!r}, use the same device, or delete the checkpoint folder to start "
            "afresh"
        )
    return operator


def same_points(a: Any, b: Any) -> bool:
    """Whether two sets of centers, dense or CSR, are the same."""
    if scipy.sparse.issparse(a) or scipy.sparse.issparse(b):
        return bool(a.shape == b.shape and (scipy.sparse.csr_array(a) != scipy.sparse.csr_array(b)).nnz == 0)
    return np.array_equal(a, b)
