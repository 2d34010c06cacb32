"""The preconditioner of conjugate gradient on all rows: which one, how large, and how it is made.

What they cost in processor seconds, measured with AVX-512 for n = 100,000 rows of about 10 features in float32. Other
numbers of rows and centers M were not measured; by the operations, a pass grows like n^2 and a setup like n M^2.

    a pass over the entries of K   2.4 s for one column, 3.4 s for three
    setup of "nystrom"             6.4 s for M = 1,581 and three penalties
    setup of "hierarchical"        12 s for M = 1,000 and one penalty, 44 s for M = 1,581 and three
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.memory import limit_of
from ..hierarchy import HierarchicalPreconditioner, shared_shifts
from ..hierarchy.preconditioner import GATHERED as GATHERED_LEAVES
from ..operators import Operator, block_rows, feature_operator
from ..preconditioners import NystromPreconditioner
from ..preconditioners.nystrom import GATHERED
from ..solvers.kernel_cg import InverseGuess, KernelSystems
from .ridge import EveryRow

Array = NDArray[Any]

PRECONDITIONERS = ("auto", "nystrom", "random_features", "hierarchical")
TWO_SCALES = 60_000  # rows from which "auto" is "hierarchical": its setup then takes the time of some four passes

_LEAF_SIZES = (1_000, 500, 250)  # the largest for which there is memory


class Guess(NamedTuple):
    """A preconditioner that is planned.

    kind : one of `PRECONDITIONERS`, not "auto"
    M : number of rows, or of features, that it is made from
    leaf_size : most rows of a leaf, of "hierarchical"
    needs : bytes, by purpose
    """

    kind: str
    M: int
    leaf_size: int
    needs: dict[str, int]


def _default_size(kind: str, n: int) -> int:
    """Return the number of rows, or of features, from which the preconditioner of n rows is made."""
    # The setup, which takes n M^2 operations, is to take the time of about three passes
    return min(max(1_000, math.isqrt((10 if kind == "hierarchical" else 25) * n)), 10_000)


def plan_guess(
    kind: str, n_centers: int | None, points: Array, mu: Array, n_folds: int, compute: Compute, held: int
) -> Guess:
    """Choose a preconditioner and its sizes.

    kind : one of `PRECONDITIONERS`
    n_centers : as the estimator was given it
    mu : of each penalty
    held : bytes that the fit needs otherwise
    """
    n = len(points)

    def size(kind: str) -> int:
        return min(n, _default_size(kind, n) if n_centers is None else int(n_centers))

    limit = limit_of(compute.memory_budget)
    # a device makes the other one as fast as it makes passes, and this one is made on the processor
    if kind == "hierarchical" or (kind == "auto" and n >= TWO_SCALES and compute.device is None):
        M = size("hierarchical")
        for leaf_size in _LEAF_SIZES:
            needs = _leaf_bytes(points, M, min(n, leaf_size), n_folds, len(shared_shifts(mu)), compute.n_threads)
            if (kind == "hierarchical" and leaf_size == _LEAF_SIZES[-1]) or sum(needs.values()) + held <= limit:
                return Guess("hierarchical", M, leaf_size, needs)
    kind = "nystrom" if kind == "auto" else kind
    M = size(kind)
    return Guess(kind, M, 0, _low_rank_bytes(points, M, n_folds, len(mu)))


def _low_rank_bytes(points: Array, M: int, n_folds: int, P: int) -> dict[str, int]:
    n, width = points.shape
    blocks = (2 * min(n, GATHERED) + block_rows(n, M, width)) * M * (8 + points.dtype.itemsize)
    return {f"factors of {M} centers": 8 * M * M * ((n_folds + 1) * (P + 2) + 4), "blocks of centers": blocks}


def _leaf_bytes(points: Array, M: int, leaf_size: int, n_folds: int, P: int, n_threads: int) -> dict[str, int]:
    n, width = points.shape
    folds = 8 // n_folds if n_folds else 0
    gathered = min(n, GATHERED_LEAVES + leaf_size) * M * P * (2 if n_folds else 1)
    return {
        f"factors of leaves of {leaf_size} rows": P * n * leaf_size * (points.dtype.itemsize + folds),
        f"factors of {M} pivots": 8 * M * M * (2 * P * (n_folds + 1) + 3),
        "leaves at work": 8 * (2 * gathered + n_threads * leaf_size * (6 * leaf_size + 5 * M + width)),
        "rows in float64": 8 * n * width,
    }


def low_rank(
    guess: Guess, problem: EveryRow, random_state: np.random.RandomState, compute: Compute, budget: int
) -> Operator | None:
    """Return K_nM of M random rows, or M random features of all rows; None if the preconditioner needs neither."""
    rows, kernel, points = problem.data.rows, problem.kernel, problem.points
    if guess.kind == "hierarchical":
        return None
    if guess.kind == "random_features":
        features = kernel.random_features(guess.M, points.shape[1], random_state).astype(rows.dtype)
        return feature_operator(features, rows, n_jobs=compute.n_jobs, memory_budget=budget, device=compute.device)
    centers = points[np.sort(random_state.choice(len(points), guess.M, replace=False))]
    return problem.operator(centers, compute, budget)


def make_guess(
    guess: Guess,
    few: Operator | None,
    problem: EveryRow,
    systems: KernelSystems,
    random_state: np.random.RandomState,
    compute: Compute,
    budget: int,
) -> InverseGuess:
    """Compute the preconditioner; `few` is what `low_rank` returned, and `budget` bytes are for keeping k(rows, P)."""
    if few is not None:
        return NystromPreconditioner(
            few, systems.mu.min(), weight=systems.weight, fold=systems.fold, n_jobs=compute.n_jobs
        )
    return HierarchicalPreconditioner(
        problem.kernel,
        problem.points,
        shared_shifts(systems.mu[systems.left_out == -1]),
        n_pivots=guess.M,
        leaf_size=guess.leaf_size,
        seed=int(random_state.randint(2**31)),
        weight=systems.weight,
        fold=systems.fold,
        dtype=problem.points.dtype,
        n_jobs=compute.n_jobs,
        memory_budget=max(0, budget),
    )
