"""Fits of the hierarchically compositional kernel: trees, and the choice of a penalty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import integer, one_of, optional
from .._utils.compute import Compute
from .._utils.memory import limit_of
from .._utils.ranges import check_kernel_scale
from .._utils.sampling import draw
from ..hierarchy import (
    Factors,
    Hierarchy,
    LocalExpansion,
    LocalPosterior,
    Neighborhoods,
    factorise,
    factorise_on_workers,
    make_hierarchy,
    make_stored_hierarchy,
    pieces,
)
from ..kernels import Kernel
from ..operators import make_operator
from ..preconditioners import Preconditioner
from ..solvers import conjugate_gradient
from ..sources import DaskRows, Rows, as_rows
from ..sources.rows_file import RowsFile
from ..storage.checkpoints import Beginning
from .conformal import MOST_SCORES, Conformity
from .forest import Forest, GlobalPart, Tried, decode, encode
from .ridge import EveryRow
from .session import Session, finite
from .tree_rows import HierarchySettings, check_sizes, checked_blocks, rows_at_once

Array = NDArray[Any]

# Of conjugate gradient; what is left is in the residuals. With 20 iterations errors on these four were the same to 0.1%
_GLOBAL_ITERATIONS, _GLOBAL_TOLERANCE = 10, 1e-3
_KEPT_SHARE = 4  # of the memory, for the kernel matrix of the global part beside rows in a file
# Noise below this share of k(x, x) is lost in the rounding of B, whose pivots have a ridge of 1e-8
_LEAST_NOISE = 1e-10

RULES = {
    "n_centers": optional(integer(0)),
    "choose_by": one_of(None, "validation", "loo", "evidence"),
}


@dataclass(frozen=True, eq=False)
class HierarchicalUncertainty:
    """What deviations and intervals are computed from.

    posteriors : one for each tree
    noise : penalty n / weight of each row
    prior_deviation, noise_deviation : of each output
    """

    posteriors: list[LocalPosterior]
    noise: Array
    prior_deviation: Array
    noise_deviation: Array
    conformity: Conformity


@dataclass(frozen=True, eq=False)
class HierarchicalSolution:
    """The functions of the trees, whose mean is the prediction, together with the global part.

    left_out : predictions of the rows by models that have not seen them, without the offset; None if not computed
    validation : the same of validation rows; None if there are none
    neighborhoods : what predicts in place of the trees, if `n_neighbors` is positive
    """

    trees: list[LocalExpansion]
    smooth: GlobalPart | None
    penalty: float
    sizes: tuple[int, int]
    left_out: Array | None
    validation: Array | None
    uncertainty: HierarchicalUncertainty | None
    neighborhoods: Neighborhoods | None


def solve(settings: HierarchySettings, problem: EveryRow, compute: Compute, session: Session) -> HierarchicalSolution:
    """Solve for every tree and penalty, and choose the penalty."""
    data, n = problem.data, len(problem.points)
    leaf_size, rank = settings.sizes(n)
    penalties = np.array(problem.penalties, dtype=np.float64, ndmin=1)
    on_disk = check_sizes(settings, problem, len(penalties), compute)
    criterion = settings.choose_by or ("loo" if data.validation is None else "validation")
    chooses = len(penalties) > 1
    with_diagonal = settings.with_left_out or settings.uncertainty or (chooses and criterion == "loo")
    noises = _noises(problem, penalties)
    session.identify(data, {}, settings.n_trees)
    session.begin(_beginning)
    resumed = session.resumed(lambda state: decode(state, problem, rank, len(penalties)))
    session.start(data, max_passes=settings.n_trees, n_trees=settings.n_trees, leaf_size=leaf_size, rank=rank)
    seeds = session.random_state.randint(2**31, size=settings.n_trees + 1)
    if resumed is None:
        smooth = _global_part(settings.global_centers(n), problem, penalties, compute, int(seeds[-1]))
        resumed = Forest(smooth, [], [[] for _ in penalties])
    smooth, hierarchies, tried = forest = resumed
    if smooth is not None:
        problem = replace(problem, targets=problem.targets - smooth.fitted)
    solver: Callable[..., Factors] = partial(factorise, allocate=RowsFile if on_disk else np.empty)
    if isinstance(data.rows, DaskRows):
        solver = partial(factorise_on_workers, rows=data.rows)
    for tree in range(len(hierarchies), settings.n_trees):
        hierarchy = _hierarchy(settings, problem, compute, int(seeds[tree]))
        hierarchies.append(_without_file(hierarchy, problem))
        share = 1 / (len(penalties) * hierarchy.tree.n_leaves)  # of a leaf in the work for the tree
        for number, (noise, found) in enumerate(zip(noises, tried, strict=True)):
            before = tree + number / len(penalties)
            factors = solver(
                hierarchy,
                problem.targets,
                noise,
                n_threads=compute.n_threads,
                with_diagonal=with_diagonal,
                with_covariances=settings.uncertainty,
                tell=_counting(session, before, share),
            )
            found.append(_judged(hierarchy, factors, problem, smooth, compute))
        record = {"iteration": tree + 1, "passes": tree + 1, "n_leaves": hierarchy.tree.n_leaves}
        stop = session.record(record | _errors(problem, penalties, tried))
        session.keep(lambda: encode(forest), is_last=stop or tree + 1 == settings.n_trees)
        if stop:
            break
    best = _best(session.history[-1], criterion) if chooses else 0
    return _solution(problem, hierarchies, tried[best], noises[best], float(penalties[best]), settings, smooth)


def _hierarchy(settings: HierarchySettings, problem: EveryRow, compute: Compute, seed: int) -> Hierarchy:
    """Grow a tree over rows in memory, or in a file: both have the same bits."""
    leaf_size, rank = settings.sizes(len(problem.points))
    kernel, stored, split = problem.kernel, problem.stored, settings.split
    if stored is None:
        return make_hierarchy(kernel, problem.points, leaf_size=leaf_size, rank=rank, split=split, seed=seed)
    most = rows_at_once(stored, compute)
    return make_stored_hierarchy(kernel, stored, leaf_size=leaf_size, rank=rank, split=split, seed=seed, most=most)


def _without_file(hierarchy: Hierarchy, problem: EveryRow) -> Hierarchy:
    """Return the hierarchy with all rows in their own order, so that no file of a finished tree is kept."""
    return Hierarchy(problem.kernel, problem.points, hierarchy.tree, hierarchy.order, hierarchy.pivots)


def _counting(session: Session, before: float, share: float) -> Callable[[int], None]:
    """Return the function that tells the session of finished leaves, each a share of a pass."""
    return lambda leaves: session.progress(before + share * leaves)


def _beginning(random_state: dict[str, Any]) -> Beginning:
    """Return what a checkpoint keeps of the start: all else follows from the random numbers."""
    return Beginning(random_state, {}, 0, 0, "", "float64", 0.0)


def _global_part(M: int, problem: EveryRow, penalties: Array, compute: Compute, seed: int) -> GlobalPart | None:
    """Fit M centers by FALKON, with the middle one of the penalties."""
    if M == 0:
        return None
    data, n, dtype = problem.data, len(problem.points), problem.points.dtype
    rows = as_rows(problem.points) if problem.stored is None else problem.stored
    if isinstance(data.rows, DaskRows):
        rows = data.rows
    centers = rows.take(draw(n, M, np.random.RandomState(seed)))
    penalty = float(np.sort(penalties)[len(penalties) // 2])
    budget = compute.memory_budget if problem.stored is None else limit_of(compute.memory_budget) // _KEPT_SHARE
    operator = make_operator(problem.kernel, rows, centers, n_jobs=compute.n_jobs, memory_budget=budget)
    gram = operator.centers_gram(dtype)
    B = Preconditioner(gram, penalty, n, tile_dtype=dtype, n_jobs=compute.n_jobs)
    *_, last = conjugate_gradient(
        operator,
        problem.targets,
        B,
        penalty,
        max_iter=_GLOBAL_ITERATIONS,
        tol=_GLOBAL_TOLERANCE,
        weight=data.weight,
    )
    coef = last.coef().reshape(M, -1)
    held = None if data.validation is None else operator.on(data.validation.rows).matmat(coef)
    return GlobalPart(centers, coef, operator.matmat(coef), held)


def predictions(trees: Sequence[LocalExpansion], kernel: Kernel, centers: Array, rows: Rows, n_threads: int) -> Array:
    """Return the mean of the trees' functions at rows, of shape (n, k)."""
    out = np.empty((rows.shape[0], trees[0].coef.shape[1]), dtype=centers.dtype)
    for at, X in checked_blocks(rows):
        total = np.zeros((len(X), out.shape[1]))
        for tree in trees:
            total += tree.predict(kernel, centers, X, n_threads)
        out[at] = total / len(trees)
    return out


def neighborhood_predictions(
    neighborhoods: Neighborhoods, cells: LocalExpansion, kernel: Kernel, centers: Array, rows: Rows, n_threads: int
) -> Array:
    """Return the values at rows that follow from their neighbors, of shape (n, k)."""
    parts = [neighborhoods.predict(kernel, centers, cells, X, n_threads) for _, X in checked_blocks(rows)]
    return np.concatenate([np.empty((0, neighborhoods.targets.shape[1]), dtype=centers.dtype), *parts])


def _noises(problem: EveryRow, penalties: Array) -> list[Array]:
    """Return penalty n / weight of each row, for each penalty, not below what rounding leaves."""
    n, weight = len(problem.points), problem.data.weight
    parts = (problem.kernel.diag(problem.points[at]) for at in pieces(*problem.points.shape))
    size = sum(float(np.maximum(part, 0.0).sum()) for part in parts) / n
    check_kernel_scale(size, problem.points.dtype, power=1, kernel=problem.kernel)
    shares = np.ones(n) if weight is None else 1.0 / np.asarray(weight, dtype=np.float64)
    return [np.maximum(penalty * n * shares, _LEAST_NOISE * size) for penalty in penalties]


def _judged(
    hierarchy: Hierarchy, factors: Factors, problem: EveryRow, smooth: GlobalPart | None, compute: Compute
) -> Tried:
    """Predict what judges a penalty: rows that are left out, validation rows, and the evidence of the targets."""
    data, order = problem.data, hierarchy.order
    left_out = None
    if factors.inverse_diagonal is not None:
        left_out = np.empty_like(factors.coef)
        left_out[order] = problem.targets[order] - factors.coef / factors.inverse_diagonal[:, None]
    validation = None
    if data.validation is not None:
        tree = _expansion(hierarchy, factors, np.ones(factors.coef.shape[1]))
        validation = predictions([tree], problem.kernel, problem.points, data.validation.rows, compute.n_threads)
        if smooth is not None:
            validation = validation + smooth.validation
    n = len(order)
    squares = np.maximum((problem.targets[order] * factors.coef).sum(axis=0), np.finfo(np.float64).tiny)
    # -2 log of the probability of the targets, for the amplitude that makes it largest
    each = n * np.log(2 * math.pi * squares / n) + n + factors.log_det
    return Tried(factors, left_out, validation, float(-each.sum() / 2 - n * np.log(problem.scale).sum()))


def _errors(problem: EveryRow, penalties: Array, tried: list[list[Tried]]) -> dict[str, Any]:
    """Return the errors of the mean of the trees so far, for each penalty."""
    data = problem.data
    record: dict[str, Any] = {"penalties": penalties.tolist()}
    record["log_evidences"] = [float(np.mean([one.evidence for one in found])) for found in tried]
    if tried[0][0].left_out is not None:
        residuals = [_mean([one.left_out for one in found]) - problem.targets for found in tried]
        record["loo_errors"] = [
            float(np.sqrt(np.mean(np.average(np.square(r * problem.scale), axis=0, weights=data.weight))))
            for r in residuals
        ]
    if data.validation is not None:
        values = [_mean([one.validation for one in found]) * problem.scale for found in tried]
        record["validation_errors"] = [data.validation_error(value) for value in values]
        record["validation_error"] = min(record["validation_errors"])
    return record


def _mean(arrays: Sequence[Array | None]) -> Array:
    return np.mean(np.stack([one for one in arrays if one is not None]), axis=0)


def _best(record: dict[str, Any], criterion: str) -> int:
    """Return the number of the penalty with the least error, or the greatest evidence; of equal ones the largest."""
    name = {"validation": "validation_errors", "loo": "loo_errors", "evidence": "log_evidences"}[criterion]
    errors = np.array(record[name]) * (-1 if criterion == "evidence" else 1)
    return int(max(np.flatnonzero(errors == errors.min()), key=lambda i: record["penalties"][i]))


def _expansion(hierarchy: Hierarchy, factors: Factors, scale: Array) -> LocalExpansion:
    tree = hierarchy.tree
    pivots = hierarchy.pivots[tree.parents] if len(tree.children) else np.empty((1, 0), dtype=np.int64)
    return LocalExpansion(tree, hierarchy.order, pivots, factors.coef * scale, factors.pivot_coef * scale)


def _solution(
    problem: EveryRow,
    hierarchies: list[Hierarchy],
    found: list[Tried],
    noise: Array,
    penalty: float,
    settings: HierarchySettings,
    smooth: GlobalPart | None,
) -> HierarchicalSolution:
    """Return what was found with the chosen penalty, in the units of y."""
    scale, dtype = problem.scale, problem.points.dtype
    trees = []
    for hierarchy, one in zip(hierarchies, found, strict=True):
        finite(one.factors.coef * scale, dtype)
        trees.append(_expansion(hierarchy, one.factors, scale))
    left_out = None
    if found[0].left_out is not None:
        values = _mean([one.left_out for one in found])
        left_out = (values if smooth is None else values + smooth.fitted) * scale
    if smooth is not None:
        smooth = smooth._replace(coef=finite(smooth.coef * scale, dtype))
    validation = None if found[0].validation is None else _mean([one.validation for one in found]) * scale
    uncertainty = _uncertainty(problem, hierarchies, found, noise) if settings.uncertainty else None
    sizes, neighborhoods = settings.sizes(len(problem.points)), None
    if settings.n_neighbors:
        size = min(settings.n_neighbors, len(problem.points))
        neighborhoods = Neighborhoods(size, problem.targets * scale, noise)
    return HierarchicalSolution(trees, smooth, penalty, sizes, left_out, validation, uncertainty, neighborhoods)


def _uncertainty(
    problem: EveryRow, hierarchies: list[Hierarchy], found: list[Tried], noise: Array
) -> HierarchicalUncertainty:
    """Compute the amplitudes of f and of the noise, and how errors of left-out rows compare with their deviations."""
    n, scale, data = len(noise), problem.scale, problem.data
    amplitudes, variances = [], []
    for hierarchy, one in zip(hierarchies, found, strict=True):
        factors, order = one.factors, hierarchy.order
        assert factors.inverse_diagonal is not None
        amplitude = np.maximum((problem.targets[order] * factors.coef).sum(axis=0) / n, 0.0)
        variance = np.empty_like(factors.coef)
        variance[order] = amplitude / factors.inverse_diagonal[:, None]  # of a left-out target
        amplitudes.append(amplitude)
        variances.append(variance)
    tau = np.sqrt(np.mean(amplitudes, axis=0))
    errors = np.abs(_mean([one.left_out for one in found]) - problem.targets)
    spread = np.sqrt(np.mean(variances, axis=0))
    scores = errors / np.where(spread > 0, spread, 1.0)
    weight = data.weight
    if n > MOST_SCORES:
        some = np.sort(np.random.default_rng(0).choice(n, MOST_SCORES, replace=False))
        scores, weight = scores[some], None if weight is None else weight[some]
    posteriors = [LocalPosterior(one.factors.covariances) for one in found if one.factors.covariances is not None]
    mu = float(noise.min() if data.weight is None else (noise * data.weight).mean())
    return HierarchicalUncertainty(
        posteriors, noise, tau * scale, tau * math.sqrt(mu) * scale, Conformity.of(scores, weight)
    )
