"""A sample of the rows that preconditions conjugate gradient on all of them: how many, and when it pays off.

Where n is several times M^2, the sample's normal equations are factored (`gyrfalcon.preconditioners.Sampled`), which
takes no longer than the passes over all rows that it saves; a fit is then done after two or three passes. Where M is
larger, some steps of conjugate gradient solve the sample's problem.
"""

from __future__ import annotations

import numpy as np

from .._utils.sampling import draw, draw_by_weight
from .._utils.statistics import total
from ..operators import make_operator
from ..operators.keeping import Halving
from ..solvers import RowSample
from ..sources import Rows, TensorRows, as_rows
from .subspace import Subspace, passes_of

# Number of rows for each center, wanted and least, of the sample that preconditions conjugate gradient on all rows. An
# iteration lowers the error by a factor of about the root of centers over rows of it, and costs a pass and some parts
# of one: where n was 46, 100 and 500 times M, twelve rows for each took the least time, and more where they are few
_ROWS_A_CENTER, _FEWEST_A_CENTER = 12, 6
_LEAST_SHARE, _LARGEST_SHARE = 32, 8  # the sample has at least n / 32 rows, and n / 8 before rows for each center count
_LARGEST_SAMPLE = 1 << 19  # rows of a sample of many more rows, unless there are many centers: it is in memory
# Number of operations of a pass from which a sample pays off. With 1.3e9 (36,000 rows, 8 features, M = 1,500) a fit
# took 0.8 of its time with FALKON's preconditioner alone, with 3e8 (16,500 rows, M = 800) 1.5 of it
_WORTH_SAMPLING = 1_000_000_000
# Operations of an entry of K: those of its profile, added to one for each feature, and all of them for sparse rows
_PROFILE_COST, _SPARSE_COST = 16, 34
# Least and largest number of rows for each center of a sample whose normal equations are factored, and the time of the
# factors, in passes, for which rows are added. With n = 10^6, M = 1,000 and heavy tails, 12, 31, 62 and 125 rows for
# each center took 10, 2, 2 and 2 passes over all rows, and 6.1, 3.7, 5.9 and 10.3 processor seconds
_FACTORED_A_CENTER, _MOST_A_CENTER, _FACTORING = 32, 512, 0.75
# Time of one of the 2 s M^2 operations of the factors, in float64, over that of one of an entry of K, in float32
_FACTOR_COST = 2.0
_DEFAULT_ITERATIONS = 20  # default `max_iter` of the estimators
# Typical number of passes over all rows, by steps on a sample and by its factors, and over the sample
SAMPLED_PASSES, _FACTORED_PASSES, _PASSES_OF_SAMPLE = 4, 3, 24


def sampling_pays(rows: Rows, M: int) -> bool:
    """Whether sampling rows for the preconditioner is likely to pay off."""
    n = rows.shape[0]
    return n * M * entry_cost(rows) >= _WORTH_SAMPLING and n >= 4 * _FEWEST_A_CENTER * M


def entry_cost(rows: Rows) -> int:
    """Return the number of operations of an entry of K."""
    return _SPARSE_COST if rows.is_sparse else rows.shape[1] + _PROFILE_COST


def expected_passes(rows: Rows, M: int) -> float:
    """Return the typical number of passes over all rows of a fit with uniform centers and default iterations."""
    if not sampling_pays(rows, M):
        return passes_of(_DEFAULT_ITERATIONS)
    return min(_factored_passes(rows, M), _stepped_passes(rows, M))


def factors_pay(rows: Rows, M: int) -> bool:
    """Whether factors of the normal equations of a sample take less time than steps of conjugate gradient on it."""
    enough = rows.shape[0] >= 4 * _FACTORED_A_CENTER * M
    return enough and _factored_passes(rows, M) <= _stepped_passes(rows, M)


def _factored_passes(rows: Rows, M: int) -> float:
    """Return the expected time of a fit with factors, in passes over all rows."""
    return _FACTORED_PASSES + _factoring(rows, M, _FACTORED_A_CENTER * M)


def _stepped_passes(rows: Rows, M: int) -> float:
    """Return the expected time of a fit with steps on a sample, in passes over all rows."""
    return SAMPLED_PASSES + _PASSES_OF_SAMPLE * _stepped_rows(rows.shape[0], M) / rows.shape[0]


def _factoring(rows: Rows, M: int, s: int) -> float:
    """Return the time of the factors of s rows, in passes over all rows."""
    return _FACTOR_COST * 2 * s * M / (rows.shape[0] * entry_cost(rows))


def sample_rows(rows: Rows, M: int) -> int:
    """Return the number of rows of the sample."""
    n = rows.shape[0]
    if not factors_pay(rows, M):
        return _stepped_rows(n, M)
    affordable = int(_FACTORING / _factoring(rows, M, 1))
    return min(n // 4, max(_FACTORED_A_CENTER * M, min(affordable, _LARGEST_SAMPLE, _MOST_A_CENTER * M)))


def _stepped_rows(n: int, M: int) -> int:
    """Return the number of rows of a sample on which steps of conjugate gradient are made."""
    wanted = max(min(n // _LEAST_SHARE, _LARGEST_SAMPLE), min(_ROWS_A_CENTER * M, n // _LARGEST_SHARE))
    return min(n, max(wanted, _FEWEST_A_CENTER * M))


def sample_bytes(space: Subspace) -> int:
    """Memory of the sample's rows and targets."""
    (_, M), rows = space.operator.shape, space.data.rows
    width = space.operator.centers.nnz // M if rows.is_sparse else rows.shape[1]
    return int(sample_rows(rows, M) * (2 * width * (1 + rows.is_sparse) + space.targets.shape[1]) * rows.dtype.itemsize)


def draw_sample(space: Subspace, *, kept: bool, halved: bool) -> RowSample:
    """Draw some rows into memory, or on a device if they are there.

    `kept` is whether their kernel matrix may be kept, and `halved` whether it may be so in half precision: a
    preconditioner need not be exact.
    """
    operator, weight = space.operator, space.data.weight
    n, M = operator.shape
    # one sample is as good as another, and given centers should give the same model each time
    size, random_state = sample_rows(space.data.rows, M), np.random.RandomState(0)
    if weight is None:
        drawn = draw(n, size, random_state)
        own = np.ones(size)
    else:
        drawn, own = draw_by_weight(weight, size, random_state)
    rows = operator.rows
    rows = rows.subset(drawn) if isinstance(rows, TensorRows) else as_rows(rows.take(drawn))
    budget = max(0, space.budget - operator.kept_bytes - sample_bytes(space)) if kept else 0
    counted = _PASSES_OF_SAMPLE if space.compute.memory_budget == "auto" else None
    halving = Halving(budget, _PASSES_OF_SAMPLE) if kept and halved else None
    few = make_operator(
        operator.kernel,
        rows,
        operator.centers,
        n_jobs=space.compute.n_jobs,
        memory_budget=budget,
        passes=counted,
        halving=halving,
        device=space.compute.device,
    )
    own *= (n if weight is None else total(weight)) / own.sum()
    return RowSample(few, space.targets[drawn], own.astype(operator.dtype))
