"""Fits of the hierarchically compositional kernel: sizes from n and memory, trees, and the choice of a penalty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import integer, one_of, optional
from .._utils.compute import Compute
from .._utils.memory import format_bytes, limit_of
from .._utils.ranges import check_kernel_scale
from .._utils.sampling import draw
from ..hierarchy import Factors, Hierarchy, LocalExpansion, LocalPosterior, factorise, make_hierarchy
from ..kernels import Kernel
from ..operators import KernelOperator
from ..operators.base import locate_non_finite
from ..preconditioners import Preconditioner
from ..solvers import conjugate_gradient
from ..sources import Rows, as_rows
from ..sources.scratch import has_room, temporary_file
from ..storage.checkpoints import Beginning
from .conformal import MOST_SCORES, Conformity
from .forest import Forest, GlobalPart, Tried, decode, encode
from .plan import check_memory
from .ridge import EveryRow
from .session import Session, finite

Array = NDArray[Any]

LEAF_SIZE = 512  # default of `leaf_size`
_RANK_SHARE = 4  # the default of `rank` is leaf_size over this: more pivots cost more than they gain, see below
# Centers of the global part, unless the user says. On kin40k, protein_raw, house_16h and fried (Laplacian, leaves of
# 600, 4 trees) the hierarchical model of its residuals was better than that of y, and than pivots at the same cost
_GLOBAL_CENTERS, _GLOBAL_SHARE = 2_500, 16  # at most n over the latter, so that no row decides its own prediction
# Of conjugate gradient; what is left is in the residuals. With 20 iterations errors on these four were the same to 0.1%
_GLOBAL_ITERATIONS, _GLOBAL_TOLERANCE = 10, 1e-3
_PREDICTED = 1 << 17  # rows that are predicted at once: a leaf is prepared once for all of its rows
# Noise below this share of k(x, x) is lost in the rounding of B, whose pivots have a ridge of 1e-8
_LEAST_NOISE = 1e-10

RULES = {
    "n_centers": optional(integer(0)),
    "choose_by": one_of(None, "validation", "loo", "evidence"),
}


def _default_rank(leaf_size: int) -> int:
    return max(1, leaf_size // _RANK_SHARE)


class HierarchySettings(NamedTuple):
    """The parameters of an estimator that decide how trees are made and what is computed with them.

    with_left_out : whether predictions of rows by models that have not seen them are needed in any case
    uncertainty : whether to keep what deviations are computed from
    """

    leaf_size: int | None
    rank: int | None
    n_trees: int
    split: str
    n_centers: int | None = None
    choose_by: str | None = None
    with_left_out: bool = False
    uncertainty: bool = False

    def global_centers(self, n: int) -> int:
        """Return the number of centers of the global part."""
        if self.n_centers is not None:
            return min(n, self.n_centers)
        probabilistic = self.uncertainty or self.choose_by == "evidence"
        is_exact = self.sizes(n)[0] >= n
        return 0 if probabilistic or is_exact else min(_GLOBAL_CENTERS, n // _GLOBAL_SHARE)

    def check(self) -> None:
        """Raise ValueError if a global part is asked for beside something that it does not have."""
        if not self.n_centers:
            return
        for name, asked in (
            ("uncertainty=True", self.uncertainty),
            ('choose_by="evidence"', self.choose_by == "evidence"),
        ):
            if asked:
                raise ValueError(f"n_centers={self.n_centers!r} has no probabilities for {name}: use n_centers=0")

    def sizes(self, n: int) -> tuple[int, int]:
        """Return the number of rows of a leaf and of pivots."""
        leaf_size = min(n, LEAF_SIZE if self.leaf_size is None else self.leaf_size)
        rank = _default_rank(leaf_size) if self.rank is None else min(self.rank, leaf_size)
        return leaf_size, rank


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
    """

    trees: list[LocalExpansion]
    smooth: GlobalPart | None
    penalty: float
    sizes: tuple[int, int]
    left_out: Array | None
    validation: Array | None
    uncertainty: HierarchicalUncertainty | None


def solve(settings: HierarchySettings, problem: EveryRow, compute: Compute, session: Session) -> HierarchicalSolution:
    """Solve for every tree and penalty, and choose the penalty."""
    data, X = problem.data, problem.points
    n = len(X)
    leaf_size, rank = settings.sizes(n)
    penalties = np.array(problem.penalties, dtype=np.float64, ndmin=1)
    on_disk = check_sizes(settings, X, problem.targets.shape[1], len(penalties), compute)
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
    for tree in range(len(hierarchies), settings.n_trees):
        seed = int(seeds[tree])
        hierarchy = make_hierarchy(problem.kernel, X, leaf_size=leaf_size, rank=rank, split=settings.split, seed=seed)
        hierarchies.append(hierarchy)
        share = 1 / (len(penalties) * hierarchy.tree.n_leaves)  # of a leaf in the work for the tree
        for number, (noise, found) in enumerate(zip(noises, tried, strict=True)):
            before = tree + number / len(penalties)
            factors = factorise(
                hierarchy,
                problem.targets,
                noise,
                n_threads=compute.n_threads,
                with_diagonal=with_diagonal,
                with_covariances=settings.uncertainty,
                allocate=_in_file if on_disk else np.empty,
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
    data, X = problem.data, problem.points
    centers = X[draw(len(X), M, np.random.RandomState(seed))]
    penalty = float(np.sort(penalties)[len(penalties) // 2])
    operator = KernelOperator(
        problem.kernel, as_rows(X), centers, n_jobs=compute.n_jobs, memory_budget=compute.memory_budget
    )
    gram = operator.centers_gram(X.dtype)
    B = Preconditioner(gram, penalty, len(X), tile_dtype=X.dtype, n_jobs=compute.n_jobs)
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


def check_sizes(settings: HierarchySettings, X: Array, k: int, n_penalties: int, compute: Compute) -> bool:
    """Return whether the factors must be in a temporary file; raise MemoryError if all else does not fit in memory."""
    (n, d), limit = X.shape, limit_of(compute.memory_budget)
    M = settings.global_centers(n)

    def needs(leaf_size: int, rank: int) -> dict[str, int]:
        leaves = -(-n // leaf_size) * 4 // 3
        inner = 0 if leaf_size >= n else leaves
        kept = settings.n_trees * n_penalties
        return {
            "the factors": 8 * (n * rank if inner else 0) + 8 * 2 * inner * rank * rank,
            "coefficients": 8 * kept * k * (n + inner * rank) + 8 * n * settings.n_trees,
            "deviations": 8 * settings.n_trees * inner * rank * rank if settings.uncertainty else 0,
            "the global part": 8 * M * (3 * M + k) + 8 * n * k * (M > 0),
            "blocks at work": 8 * compute.n_threads * leaf_size * (3 * leaf_size + 4 * rank + d),
        }

    def remedy(limit: int) -> str:
        leaf_size = settings.sizes(n)[0]
        while leaf_size > 8:
            leaf_size //= 2
            rank = _default_rank(leaf_size)
            if sum(needs(leaf_size, rank).values()) <= limit:
                return f"leaf_size={leaf_size} with rank={rank} would fit"
        return "no size fits, so raise memory_budget"

    leaf_size, rank = settings.sizes(n)
    words = f"{n} rows in leaves of {leaf_size} with {rank} pivots take"
    wanted = needs(leaf_size, rank)
    on_disk = sum(wanted.values()) > limit and has_room(wanted["the factors"])
    if on_disk:
        wanted["the factors"] = 0
    check_memory(compute.memory_budget, wanted, words, remedy, limit=limit)
    return on_disk


def _in_file(shape: tuple[int, ...]) -> Array:
    """Return an array in a temporary file, which is gone when the array is."""
    size = 8 * math.prod(shape)
    file = temporary_file(size)
    if file is None:
        raise MemoryError(f"the disk of temporary files has no room for {format_bytes(size)}: choose smaller leaves")
    file.truncate(size)
    return np.memmap(file, dtype=np.float64, shape=shape)


def predictions(trees: Sequence[LocalExpansion], kernel: Kernel, centers: Array, rows: Rows, n_threads: int) -> Array:
    """Return the mean of the trees' functions at rows, of shape (n, k)."""
    out = np.empty((rows.shape[0], trees[0].coef.shape[1]), dtype=centers.dtype)
    for at, X in checked_blocks(rows):
        total = np.zeros((len(X), out.shape[1]))
        for tree in trees:
            total += tree.predict(kernel, centers, X, n_threads)
        out[at] = total / len(trees)
    return out


def checked_blocks(rows: Rows) -> Iterator[tuple[slice, Array]]:
    """Yield large blocks of finite rows, and where they are; raise ValueError for the first row that is not finite."""
    start = 0
    for block in rows.blocks(_PREDICTED):
        X = np.ascontiguousarray(block)
        if not np.isfinite(X).all():
            where = locate_non_finite(start, X, rows.feature_names)
            raise ValueError(f"{where}: remove or impute NaN and infinity")
        yield slice(start, start + len(X)), X
        start += len(X)


def _noises(problem: EveryRow, penalties: Array) -> list[Array]:
    """Return penalty n / weight of each row, for each penalty, not below what rounding leaves."""
    n, weight = len(problem.points), problem.data.weight
    size = float(np.maximum(problem.kernel.diag(problem.points), 0.0).mean())
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
    sizes = settings.sizes(len(problem.points))
    return HierarchicalSolution(trees, smooth, penalty, sizes, left_out, validation, uncertainty)


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
