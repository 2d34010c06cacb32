"""How a fit with trees is planned: sizes from n and memory, and whether rows are held in memory or in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.memory import limit_of
from .._utils.ranges import power_of_two
from ..kernels import Kernel, KernelFunction
from ..operators.base import locate_non_finite
from ..sources import ArrayRows, DaskRows, Rows
from ..sources.rows_file import RowsFile
from ..sources.scratch import has_room
from .auto_penalty import as_penalty
from .data import FitData
from .kernel import fitted_kernel
from .plan import check_memory
from .precision import in_suitable_precision
from .ridge import EveryRow

Array = NDArray[Any]

LEAF_SIZE = 512  # default of `leaf_size`
_RANK_SHARE = 4  # the default of `rank` is leaf_size over this: more pivots cost more than they gain, see below
# Centers of the global part, unless the user says. On kin40k, protein_raw, house_16h and fried (Laplacian, leaves of
# 600, 4 trees) the hierarchical model of its residuals was better than that of y, and than pivots at the same cost
_GLOBAL_CENTERS, _GLOBAL_SHARE = 2_500, 16  # at most n over the latter, so that no row decides its own prediction
_BLOCK = 1 << 17  # rows of a block: a leaf is prepared once for all of its rows that are predicted
_JUDGED_NUMBERS = 1 << 24  # numbers of the rows from which length scale and precision are found
_HELD_SHARE = 3  # rows of a source are held in memory if they take at most the memory over this
_AT_ONCE_SHARE = 8  # those of a file that are split in memory take at most the memory over this, with copies
_COPIES = 4  # arrays of the size of those rows that are held meanwhile
_INDEX_BYTES = 44  # for each row: its number, place, cell and projection, while a tree over a file is grown


def _default_rank(leaf_size: int) -> int:
    return max(1, leaf_size // _RANK_SHARE)


class HierarchySettings(NamedTuple):
    """The parameters of an estimator that decide how trees are made and what is computed with them.

    with_left_out : whether predictions of rows by models that have not seen them are needed in any case
    uncertainty : whether to keep what deviations are computed from
    n_neighbors : number of rows from which a prediction is computed; 0 if the trees' own functions predict
    """

    leaf_size: int | None
    rank: int | None
    n_trees: int
    split: str
    n_centers: int | None = None
    choose_by: str | None = None
    with_left_out: bool = False
    uncertainty: bool = False
    n_neighbors: int = 0

    def global_centers(self, n: int) -> int:
        """Return the number of centers of the global part."""
        if self.n_centers is not None:
            return min(n, self.n_centers)
        probabilistic = self.uncertainty or self.choose_by == "evidence"
        is_exact = self.sizes(n)[0] >= n
        return 0 if probabilistic or is_exact else min(_GLOBAL_CENTERS, n // _GLOBAL_SHARE)

    def check(self) -> None:
        """Raise ValueError if a global part or neighbors are asked for beside something that they do not have."""
        if self.n_neighbors and self.uncertainty:
            raise ValueError(
                f"n_neighbors={self.n_neighbors!r} has no standard deviations, which uncertainty=True requires: use "
                "n_neighbors=0"
            )
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


def tree_rows(
    kernel: Kernel | str | KernelFunction,
    penalties: Any,
    data: FitData,
    compute: Compute,
    random_state: np.random.RandomState,
) -> EveryRow:
    """Resolve the kernel, the penalty and the precision, and bring all rows into memory or into a temporary file."""
    n, d = data.rows.shape
    in_file = goes_to_file(data.rows, compute)
    points = None if in_file else _in_memory(data.rows)
    sample, weight = points, data.weight
    if n * d > _JUDGED_NUMBERS or points is None:
        some = np.linspace(0, n - 1, min(n, max(1, _JUDGED_NUMBERS // d))).astype(np.intp)
        sample = data.rows.take(some) if points is None else points[some]
        weight = None if data.weight is None else data.weight[some]
    found = fitted_kernel(kernel, data, sample, weight, data.rows.dtype)
    if penalties is not None and np.ndim(penalties) == 0:
        penalties = as_penalty(penalties, kernel, data, random_state, compute)
    data = in_suitable_precision(data, found, sample, penalties if isinstance(penalties, float) else None)
    stored = None
    if points is None:
        stored = RowsFile((n, d), data.rows.dtype)
        for at, X in checked_blocks(data.rows):
            stored[at] = X
        points = stored.mapped()
    points = points.astype(data.rows.dtype, copy=False)
    scale = power_of_two(data.targets, axis=0)
    return EveryRow(data, found, points, data.targets / scale, scale, penalties, stored)


def _in_memory(rows: Rows) -> Array:
    """Read all rows; raise ValueError for the first one of a source that is not finite."""
    points = rows.take(np.arange(rows.shape[0]))
    if not rows.in_memory:
        for _ in checked_blocks(ArrayRows(points, feature_names=rows.feature_names)):
            pass
    return points


def goes_to_file(rows: Rows, compute: Compute) -> bool:
    """Whether rows of a source are too large to be held in memory during a fit."""
    size = rows.shape[0] * rows.shape[1] * rows.dtype.itemsize
    return not rows.in_memory and _HELD_SHARE * size > limit_of(compute.memory_budget)


def rows_at_once(rows: RowsFile, compute: Compute) -> int:
    """Return the number of rows of a file that are split in memory at once."""
    each = _COPIES * rows.shape[1] * max(8, rows.dtype.itemsize)
    return max(1, limit_of(compute.memory_budget) // (_AT_ONCE_SHARE * each))


def checked_blocks(rows: Rows) -> Iterator[tuple[slice, Array]]:
    """Yield large blocks of finite rows, and where they are; raise ValueError for the first row that is not finite."""
    start = 0
    for block in rows.blocks(_BLOCK):
        X = np.ascontiguousarray(block)
        if not np.isfinite(X).all():
            where = locate_non_finite(start, X, rows.feature_names)
            raise ValueError(f"{where}: remove or impute NaN and infinity")
        yield slice(start, start + len(X)), X
        start += len(X)


def check_sizes(settings: HierarchySettings, problem: EveryRow, n_penalties: int, compute: Compute) -> bool:
    """Return whether the factors must be in a temporary file; raise MemoryError if all else does not fit in memory."""
    ((n, d), k), limit = (problem.points.shape, problem.targets.shape[1]), limit_of(compute.memory_budget)
    M = settings.global_centers(n)

    def needs(leaf_size: int, rank: int) -> dict[str, int]:
        leaves = -(-n // leaf_size) * 4 // 3
        inner = 0 if leaf_size >= n else leaves
        kept = settings.n_trees * n_penalties
        return {
            "the factors": 8 * (n * rank if inner else 0) + 8 * 2 * inner * rank * rank,
            "coefficients": 8 * kept * k * (n + inner * rank) + 8 * n * settings.n_trees,
            "deviations": 8 * settings.n_trees * inner * rank * rank if settings.uncertainty else 0,
            "targets of neighbors": 8 * n * (k + 1) if settings.n_neighbors else 0,
            "the global part": 8 * M * (3 * M + k) + 8 * n * k * (M > 0),
            "the index of rows": 0 if problem.stored is None else n * _INDEX_BYTES + limit // _AT_ONCE_SHARE,
            "blocks at work": 8 * compute.n_threads * leaf_size * (3 * leaf_size + 4 * rank + d),
        }

    def remedy(limit: int, purpose: str | None = None) -> str:
        leaf_size = settings.sizes(n)[0]
        while leaf_size > 8:
            leaf_size //= 2
            rank = _default_rank(leaf_size)
            found = needs(leaf_size, rank)
            if (sum(found.values()) if purpose is None else found[purpose]) <= limit:
                return f"leaf_size={leaf_size} with rank={rank} would fit"
        return "no size fits, so raise memory_budget"

    leaf_size, rank = settings.sizes(n)
    words = f"{n} rows in leaves of {leaf_size} with {rank} pivots take"
    wanted = needs(leaf_size, rank)
    rows = problem.data.rows
    if isinstance(rows, DaskRows):  # whose workers hold the factors
        _, room, _ = rows.scheduler.room("auto")
        needed = {"the factors": wanted.pop("the factors")}
        if room:  # Dask's own pool of processes tells none
            advice = remedy(room, "the factors")
            check_memory("auto", needed, f"on the workers, {words}", advice, limit=room)
    on_disk = sum(wanted.values()) > limit and has_room(wanted.get("the factors", 0))
    if on_disk:
        wanted["the factors"] = 0
    check_memory(compute.memory_budget, wanted, words, remedy, limit=limit)
    return on_disk
