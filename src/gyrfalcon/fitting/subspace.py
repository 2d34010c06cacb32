"""Choose centers, and with them the functions that a Nyström method learns from.

`choose_subspace` is a few steps, each a function of few values: the memory plan (`Plan`), the penalty (`as_penalty`),
the centers (`choose_centers`), the precision (`in_suitable_precision`), the operator (`choose_operator`), and targets
of moderate size (`moderate_targets`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.ranges import power_of_two
from ..backends import check_centers
from ..centers import Given, GivenScores, Selection, as_centers
from ..kernels import Kernel, KernelFunction, as_kernel
from ..operators import Operator, make_operator
from ..operators.keeping import FEW_PASSES
from ..sources import Rows
from ..sources.columns import Column
from ..sources.scaling import Standardize
from ..storage.checkpoints import Beginning, CheckpointError, decode_selection, encode_selection
from .auto_penalty import as_penalty
from .data import FitData
from .kernel import fitted_kernel
from .plan import Needs, Plan
from .precision import in_suitable_precision

Array = NDArray[Any]

# Default number of centers. Measured on sets of 6,500 to 800,000 rows (docs/choosing_parameters.md): up to 2,000
# centers cost seconds, and lower the error by up to a quarter; beyond, time goes on growing with M, and most errors do
# not fall
_DEFAULT = 2_000
_LARGEST_DEFAULT = 10_000
AUTO = "auto"  # a number of centers that grows, see `gyrfalcon.fitting.growth`
_FIRST = 1_000  # with which it begins
_MODERATE = 2.0**20  # largest size of targets, and inverse of the smallest, with which nothing overflows


@dataclass(frozen=True)
class CenterSettings:
    """The kernel and the centers of a method on centers.

    `n_centers` is None for `default_n_centers` or "auto" for a number that grows, and `centers` is anything that
    `as_centers` accepts. `shuffled` is whether chosen centers come in random order, so that the first of them are as
    good a choice as any others.
    """

    kernel: Kernel | str | KernelFunction
    n_centers: int | str | None = None
    centers: Any = "uniform"
    shuffled: bool = False

    def wanted(self, n: int) -> int:
        """Return the requested number of centers for n rows, or the first of those that "auto" tries."""
        selector = as_centers(self.centers)
        if isinstance(selector, Given):
            return int((*np.shape(selector.points), 1)[0])  # other shapes are refused later
        if self.n_centers == AUTO:
            return min(n, _FIRST)
        return int(self.n_centers) if self.n_centers is not None else default_n_centers(n)


def default_n_centers(n: int) -> int:
    """Return the number of centers for n rows, which grows with sqrt(n) as in Theorem 3 of the FALKON paper."""
    return min(n, max(_DEFAULT, math.isqrt(4 * n)), _LARGEST_DEFAULT)


@dataclass(frozen=True)
class ChosenCenters:
    """Centers with the sample weights there, and the parameters that chose them.

    A warm start keeps the centers while the parameters `n_centers` and `centers` are the same.
    """

    selection: Selection
    weight: Array | None
    n_centers: int | str | None
    centers: Any

    def suit(self, settings: CenterSettings, n_features: int) -> bool:
        """Whether the settings ask for the same centers."""
        same = self.centers is settings.centers or (isinstance(self.centers, str) and self.centers == settings.centers)
        known = self.selection.points.shape[1]
        return bool(same and self.n_centers == settings.n_centers and known == n_features)

    def at(self, points: Any) -> ChosenCenters:
        """Return the same choice with other points, such as the same ones in another precision."""
        return replace(self, selection=replace(self.selection, points=points))


@dataclass(frozen=True)
class WarmStart:
    """The last fit's centers and coefficients, from which a fit starts."""

    chosen: ChosenCenters
    coef: Array

    @classmethod
    def of(cls, chosen: ChosenCenters | None, centers: Any, coef: Array, settings: CenterSettings) -> WarmStart:
        """Start from a fitted model; `chosen` is None for one from a file, for which it is unknown."""
        known = chosen or ChosenCenters(Selection(centers), None, settings.n_centers, settings.centers)
        return cls(known, coef)

    @property
    def points(self) -> Any:
        """The centers."""
        return self.chosen.selection.points

    def coef_at(self, centers: Any, k: int) -> Array | None:
        """Return the coefficients, of shape (M, k), if they belong to these centers and to k targets, else None."""
        M = centers.shape[0]
        return self.coef.reshape(M, k) if same_points(centers, self.points) and self.coef.size == M * k else None


@dataclass(frozen=True)
class Subspace:
    """The functions that a Nyström method learns from, and the values needed to solve for them.

    data : the data, in the precision that was chosen
    operator : k(rows, centers)
    factors : precision of M x M factors
    budget : bytes left for keeping kernel matrices
    spare : bytes left beside the memory plan and a kernel matrix that is kept
    spare_at_first : the same when the fit was first started
    penalty : the given or chosen penalty
    targets, scale : targets, divided by a scale that brings very large or small ones near 1
    start : initial coefficients for these targets, or None
    """

    data: FitData
    compute: Compute
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
        """The centers for a later warm start, which may have other rows."""
        return replace(self.chosen, selection=replace(self.selection, points=self.operator.centers, indices=None))

    def beginning(self, random_state: dict[str, Any]) -> Beginning:
        """Return the start of a fit for its checkpoint; `random_state` is the state before anything was drawn."""
        return Beginning(
            random_state,
            encode_selection(self.selection, self.chosen.weight),
            self.budget,
            self.spare,
            self.operator.arithmetic,
            self.factors.name,
            self.penalty,
        )

    def has_room(self, needed: int) -> bool:
        """Whether `needed` bytes fit beside the memory plan; for a resumed fit, whether they did at its first start.

        Decisions of the first start must not change, so a resumed fit with less memory raises an error.
        """
        had = needed <= self.spare_at_first
        if had and needed > self.spare:
            raise CheckpointError(
                f"the fit began with room for {needed:,} bytes of factors of another preconditioner, which it needs "
                f"now, and there are {max(0, self.spare):,}: raise memory_budget={self.compute.memory_budget!r}, or "
                "delete the checkpoint folder to start afresh"
            )
        return had


def choose_subspace(
    settings: CenterSettings,
    needs: Needs,
    data: FitData,
    compute: Compute,
    random_state: np.random.RandomState,
    *,
    begun: Beginning | None = None,
    warm: WarmStart | None = None,
) -> Subspace:
    """Choose the penalty if it is "auto", and the centers, and make the operator, if all of it fits in memory.

    Unless the user chose the precision, float32 rows become float64 if float32 would lose a term of the kernel beside
    another, the penalty beside the kernel, or part of f; see `gyrfalcon.fitting.precision`. A resumed fit takes over
    `begun`, what was drawn and decided at its first start.
    """
    rows, k = data.rows, data.targets.shape[1]
    if isinstance(data.targets, Column):  # what the solver writes for each row is in files, too
        needs = replace(needs, row_vectors=0)
    plan = Plan(rows, k if needs.columns is None else needs.columns, needs, compute)
    plan.check(min(settings.wanted(rows.shape[0]), rows.shape[0]))
    if begun is None:
        penalty = as_penalty(needs.penalty, settings.kernel, data, random_state, compute)
        chosen = choose_centers(settings, data, penalty, random_state, compute, warm)
    else:
        penalty = begun.penalty
        chosen = ChosenCenters(*decode_selection(begun.selection, rows), settings.n_centers, settings.centers)
    points = chosen.selection.points
    kernel = fitted_kernel(settings.kernel, data, points, chosen.weight, warns=begun is None)
    resolved = penalty if needs.resolves_penalty else None
    data = in_suitable_precision(data, kernel, points, resolved, plan.factors(points.shape[0]))
    if data.rows.dtype != rows.dtype:
        rows, points = data.rows, points.astype(data.rows.dtype)
        chosen, plan = chosen.at(points), replace(plan, rows=rows)
    kernel.check_terms(points, rows.dtype)
    M = points.shape[0]
    plan.check(M)
    budget = plan.left(M)
    operator = choose_operator(kernel, rows, points, compute, budget, needs.passes, begun)
    targets, scale = moderate_targets(data.targets, rows.dtype)
    start = None if warm is None else warm.coef_at(operator.centers, k)
    spare = plan.spare(M) - operator.kept_bytes
    return Subspace(
        data=data,
        compute=compute,
        operator=operator,
        chosen=chosen,
        factors=plan.factors(M) if begun is None else np.dtype(begun.factors),
        budget=budget if begun is None else begun.budget,
        spare=spare,
        spare_at_first=spare if begun is None else begun.spare,
        penalty=penalty,
        targets=targets,
        scale=scale,
        start=None if start is None else start / scale,
    )


def passes_of(max_iter: int) -> int:
    """Return the number of passes of a solver with `max_iter` iterations, by which it is decided whether K is kept.

    Few iterations count as `FEW_PASSES`: keeping a small K changes last bits, and must not depend on `max_iter`.
    """
    return max(max_iter, FEW_PASSES) + 1


def choose_centers(
    settings: CenterSettings,
    data: FitData,
    penalty: float,
    random_state: np.random.RandomState,
    compute: Compute,
    warm: WarmStart | None = None,
) -> ChosenCenters:
    """Choose the centers, and note the sample weights there.

    Coefficients mean little at other points, so a warm start keeps its centers while the settings are the same.
    """
    rows, weight = data.rows, data.weight
    selector = as_centers(settings.centers)
    if warm is not None and not isinstance(selector, Given) and warm.chosen.suit(settings, rows.shape[1]):
        known, sparse = warm.points, rows.is_sparse
        if scipy.sparse.issparse(known) and not sparse:
            known = known.toarray()
        chosen = warm.chosen.at(check_centers(known, rows.dtype, sparse=sparse))
        return chosen if weight is not None else replace(chosen, weight=None)
    if isinstance(selector, Given) and data.scale is not None:
        selector = _scaled(selector, data)
    if isinstance(selector, GivenScores) and data.counted is not None:
        selector = selector.among(data.counted.n_given, data.positions)
    selection = selector.select(
        rows,
        settings.wanted(rows.shape[0]),
        kernel=as_kernel(settings.kernel),
        penalty=penalty,
        candidates=None,
        random_state=random_state,
        n_jobs=compute.n_jobs,
    )
    if settings.shuffled and not isinstance(selector, Given):
        selection = _in_order(selection, random_state.permutation(selection.points.shape[0]))
    center_weight = None
    if weight is not None and selection.indices is not None:
        center_weight = weight[selection.indices]
    return ChosenCenters(selection, center_weight, settings.n_centers, settings.centers)


def _in_order(selection: Selection, order: NDArray[np.intp]) -> Selection:
    """Return the same centers in another order."""
    indices, D = selection.indices, selection.D
    return replace(
        selection,
        points=selection.points[order],
        indices=None if indices is None else indices[order],
        D=None if D is None else D[order],
    )


def _scaled(given: Given, data: FitData) -> Given:
    """Return given points, which are in the units of X, in the units of the rows."""
    points: Any = given.points if scipy.sparse.issparse(given.points) else np.asarray(given.points)
    if points.ndim != 2 or points.shape[1] != data.rows.shape[1] or points.dtype.kind not in "fiu":
        return given  # and will be refused for that
    if scipy.sparse.issparse(points):
        points = points.tocsr()
    assert data.scale is not None
    return Given(Standardize(data.mean, data.scale, np.float64)(points), given.sampled)


def choose_operator(
    kernel: Kernel,
    rows: Rows,
    centers: Any,
    compute: Compute,
    budget: int,
    passes: int,
    begun: Beginning | None = None,
) -> Operator:
    """Make the operator k(rows, centers), which keeps its matrix if that pays off and it fits in `budget` bytes.

    Keeping it changes the last bits of products, so a resumed fit keeps what it kept before.
    """
    # a budget given by the user may be used, but for few passes filling K takes longer than it saves
    counted = passes if compute.memory_budget == "auto" or passes <= FEW_PASSES else None
    # rows that are read elsewhere have a budget for each worker
    room: int | float | str = compute.memory_budget if rows.runs_elsewhere else budget
    if begun is not None:
        counted = None  # max_iter may have grown, and with it the number of passes
        if begun.arithmetic == "made again":
            room = 0
        elif not rows.runs_elsewhere:
            room = min(begun.budget, budget)
    operator = make_operator(
        kernel,
        rows,
        centers,
        n_jobs=compute.n_jobs,
        memory_budget=room,
        passes=counted,
        device=compute.device,
        precision=compute.precision,
    )
    if begun is not None and operator.arithmetic != begun.arithmetic:
        raise CheckpointError(
            f"the fit began with a kernel matrix of shape {operator.shape} that is {begun.arithmetic}, and now it "
            f"would be {operator.arithmetic}, for want of memory or on another device: raise "
            f"memory_budget={compute.memory_budget!r}, use the same device, or delete the checkpoint folder to start "
            "afresh"
        )
    return operator


def moderate_targets(targets: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return the targets in the precision of the rows, and the powers of two by which their columns were divided.

    The powers are 1 unless a column is so large or small that its squares could overflow or vanish.
    """
    scale = power_of_two(targets, axis=0)
    if (scale >= 1 / _MODERATE).all() and (scale <= _MODERATE).all():
        # a division would give the same bits, and take a copy of y
        return targets.astype(dtype, copy=False), np.ones_like(scale)
    if isinstance(targets, Column):
        return targets.over(scale).astype(dtype), scale
    out = np.empty(targets.shape, dtype=dtype)
    return np.divide(targets, scale, out=out, casting="same_kind"), scale


def same_points(a: Any, b: Any) -> bool:
    """Whether two sets of centers, dense or CSR, are the same."""
    if scipy.sparse.issparse(a) or scipy.sparse.issparse(b):
        return bool(a.shape == b.shape and (scipy.sparse.csr_array(a) != scipy.sparse.csr_array(b)).nnz == 0)
    return np.array_equal(a, b)
