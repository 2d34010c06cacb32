"""The kernel two-sample test: whether two sets of rows come from the same distribution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _get_feature_names

from .._utils.checks import boolean, integer, optional
from .._utils.memory import limit_of
from .._utils.words import shown
from ..fitting.kernel import resolved_kernel
from ..fitting.plan import check_memory
from ..fitting.rows import is_scaled, scaled
from ..fitting.scales import warn_of_unlike_scales
from ..fitting.subspace import default_n_centers
from ..kernels import Kernel, KernelFunction
from ..operators import Operator, make_operator
from ..preconditioners import Whitening
from ..sources import Rows, as_rows, has_metric
from ..sources.blocks import stack
from ..sources.scratch import Scratch

__all__ = ["MMDTest", "mmd_test"]

Array = NDArray[Any]

_MOST_COLUMNS = 128  # largest number of columns of a pass: more are not faster
_SHARE = 4  # the columns may take the available memory divided by this


@dataclass(frozen=True)
class MMDTest:
    """The outcome of `mmd_test`, which unpacks into `statistic` and `pvalue` as the results of `scipy.stats` do.

    Attributes
    ----------
    statistic : float
        MMD^2, the squared distance of the two means in feature space, on the span of the centers.
    pvalue : float
        Share of permutations, including the observed one, whose statistic is at least as large.
    permutations : array of shape (n_permutations,)
        Statistics of random permutations.
    kernel : Kernel
        The kernel, with the parameters that depend on the data resolved.
    centers : array of shape (M, n_features)
        The centers, in the units of the kernel.
    coef : array of shape (M,)
        Coefficients of the witness function.
    mean, scale : array of shape (n_features,), or None
        Means and standard deviations by which features were standardised.
    n_features : int
        Number of features of the rows.
    feature_names : list of str, or None
        Names of the features, if X or Y has names.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import mmd_test
    >>> rng = np.random.default_rng(0)
    >>> mmd_test(rng.standard_normal((50, 2)), rng.standard_normal((50, 2)) + 1.0, random_state=0).pvalue
    0.001996007984031936
    """

    statistic: float
    pvalue: float
    permutations: Array = field(repr=False)
    kernel: Kernel = field(repr=False)
    centers: Any = field(repr=False)
    coef: Array = field(repr=False)
    mean: Array | None = field(repr=False)
    scale: Array | None = field(repr=False)
    n_features: int = field(repr=False)
    feature_names: list[str] | None = field(repr=False)

    @property
    def p_value(self) -> float:
        """Another name of `pvalue`."""
        return self.pvalue

    def __iter__(self) -> Iterator[float]:
        return iter((self.statistic, self.pvalue))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> float:
        return (self.statistic, self.pvalue)[index]

    def witness(self, rows: Any) -> Array:
        """Return the witness function: positive where X has more rows than Y, negative where it has fewer.

        Parameters
        ----------
        rows : array, sparse matrix, source or Dask collection of shape (n, n_features)
            With the features of the test in the same order, if they have names.

        Returns
        -------
        array of shape (n,)
        """
        given = as_rows(rows)
        if given.shape[1] != self.n_features:
            raise ValueError(
                f"the rows have {given.shape[1]} features, but the test was made with {self.n_features}: give the same"
            )
        _check_names("the rows", _names(rows, given), "the test", self.feature_names)
        seen = scaled(given, self.mean, self.scale, self.centers.dtype)
        if scipy.sparse.issparse(self.centers) and not seen.is_sparse:
            seen = seen.map(scipy.sparse.csr_array, seen.dtype)
        return make_operator(self.kernel, seen, self.centers, memory_budget=0).matmat(self.coef)


def mmd_test(
    X: Any,
    Y: Any,
    kernel: Kernel | str | KernelFunction = "gaussian",
    *,
    n_permutations: int = 500,
    n_centers: int | None = None,
    scale: bool | str = "auto",
    memory_budget: int | float | str = "auto",
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> MMDTest:
    """Test whether two sets of rows come from the same distribution, by the distance of their means in feature space.

    It computes the maximum mean discrepancy [1]_ on Nyström centers, which are drawn from both sets together, and its
    distribution under random permutations of the rows, which share the same passes. If both sets come from the same
    distribution, a p-value of at most a occurs with a probability of at most a, for any number of rows and centers.

    Parameters
    ----------
    X, Y : array, table, sparse matrix, source or Dask collection of shape (n, n_features) and (m, n_features)
        If both have names of features, these must be the same in the same order.
    kernel : Kernel, str or callable
        Parameters given as "scale" are computed from the centers.
    n_permutations : int
        The least p-value is 1 / (n_permutations + 1).
    n_centers : int or None
        Number of Nyström centers M. None is 5 sqrt(n + m), at least 1,000 and at most 10,000.
    scale : bool or "auto"
        Whether to standardise features, by the means and standard deviations of both sets together. "auto" does so
        for dense rows, unless the kernel is given with a length scale, which is in the units of X and Y, or the rows
        come from `LearnedMetric` or `TableEncoder`.
    memory_budget : "auto", int or str
        Memory that the test may use in addition to X and Y, in bytes or as a string such as "4GB".
    n_jobs : int or None
        Number of threads; None uses every core.
    random_state : int, RandomState or None
        Seed of the centers and of the permutations.

    Returns
    -------
    MMDTest

    References
    ----------
    .. [1] Gretton, Borgwardt, Rasch, Schölkopf, Smola, "A Kernel Two-Sample Test", JMLR 13, 2012.

    Examples
    --------
    Two distributions with the same mean and variance:

    >>> import numpy as np
    >>> from gyrfalcon import mmd_test
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.standard_normal((400, 1)), rng.laplace(scale=0.5**0.5, size=(400, 1))
    >>> test = mmd_test(X, Y, "gaussian", random_state=0)
    >>> test.pvalue < 0.05
    True
    >>> statistic, pvalue = test  # as of scipy.stats
    >>> bool(test.witness([[0.0]]) < 0)  # Y has more rows there
    True
    """
    integer(1)("n_permutations", n_permutations)
    optional(integer(1))("n_centers", n_centers)
    optional(boolean, "auto")("scale", scale)
    generator = check_random_state(random_state)
    with closing(Scratch()) as scratch:
        sets, names = _both(X, Y, scratch)
        standardised = is_scaled(scale, kernel, sparse=sets[0].is_sparse, metric=has_metric(X) and has_metric(Y))
        return _tested(sets, names, kernel, n_permutations, n_centers, standardised, memory_budget, n_jobs, generator)


def _tested(
    given: list[Rows],
    names: list[str] | None,
    kernel: Kernel | str | KernelFunction,
    n_permutations: int,
    n_centers: int | None,
    standardised: bool,
    memory_budget: int | float | str,
    n_jobs: int | None,
    generator: np.random.RandomState,
) -> MMDTest:
    """Make the test with rows that fit together; the rest is as for `mmd_test`."""
    sets, mean, deviation = _standardised(given, names, standardised)
    n, m = sets[0].shape[0], sets[1].shape[0]
    centers = _centers(sets, default_n_centers(n + m) if n_centers is None else int(n_centers), generator)
    resolved = resolved_kernel(kernel, centers, None, sets[0].dtype)
    if deviation is None:
        warn_of_unlike_scales(resolved, centers, names)
    M, limit = centers.shape[0], limit_of(memory_budget)
    check_memory(
        memory_budget, {"factors": 2 * 8 * M * M}, f"the factors of {M} centers take", "lower n_centers", limit=limit
    )
    columns = int(np.clip(limit // _SHARE // (sets[0].dtype.itemsize * (n + m)), 1, _MOST_COLUMNS))
    columns = min(columns, n_permutations + 1)
    budget = limit // 2 if memory_budget != 0 and n_permutations >= columns else 0
    means = _means(sets, resolved, centers, budget, n_jobs)
    dtype = sets[0].dtype
    total = means.sums(np.ones((n + m, 1), dtype=dtype))
    observed = np.zeros((n + m, 1), dtype=dtype)
    observed[:n] = 1
    difference = means.differences(observed, total)
    statistic = float(np.square(difference).sum())
    permuted: list[Array] = []
    for start in range(0, n_permutations, columns):
        chosen = np.zeros((n + m, min(columns, n_permutations - start)), dtype=dtype)
        for j in range(chosen.shape[1]):
            chosen[generator.permutation(n + m)[:n], j] = 1
        permuted.append(np.square(means.differences(chosen, total)).sum(axis=0))
    permutations = np.concatenate(permuted)
    # statistics that differ by rounding are equal, as for a permutation that changes nothing
    rounding = 100 * float(np.finfo(dtype).eps) * (statistic + float(permutations.mean()))
    larger = int((permutations >= statistic - rounding).sum())
    return MMDTest(
        statistic=statistic,
        pvalue=(1 + larger) / (1 + n_permutations),
        permutations=permutations,
        kernel=resolved,
        centers=means.operators[0].centers,
        coef=(means.whitening.apply(difference) * np.sqrt(n + m))[:, 0],
        mean=mean,
        scale=deviation,
        n_features=given[0].shape[1],
        feature_names=names,
    )


@dataclass(frozen=True)
class _Means:
    """Means of rows in feature space: k(rows, centers) of both sets, and the coordinates of the features."""

    operators: list[Operator]
    whitening: Whitening

    def sums(self, chosen: Array) -> Array:
        """Return the sums of k(row, centers) over the rows that are chosen, a column for each choice."""
        n = self.operators[0].shape[0]
        return self.operators[0].rmatmat(chosen[:n]) + self.operators[1].rmatmat(chosen[n:])

    def differences(self, chosen: Array, total: Array) -> Array:
        """Return the means of the rows that are chosen less those of the others, in coordinates of the features."""
        n, m = (operator.shape[0] for operator in self.operators)
        of_chosen = self.sums(chosen)
        return self.whitening.apply_transpose(of_chosen / n - (total - of_chosen) / m) * np.sqrt(n + m)


def _means(sets: list[Rows], kernel: Kernel, centers: Any, budget: int, n_jobs: int | None) -> _Means:
    """Make the operators of both sets, which keep their matrices as far as `budget` bytes have room."""
    operators = []
    for rows in sets:
        operators.append(make_operator(kernel, rows, centers, n_jobs=n_jobs, memory_budget=budget))
        budget = max(0, budget - operators[-1].kept_bytes)
    gram = operators[0].centers_gram(np.float64)
    n = sets[0].shape[0] + sets[1].shape[0]
    return _Means(operators, Whitening(gram, n, tile_dtype=sets[0].dtype, n_jobs=n_jobs))


def _both(X: Any, Y: Any, scratch: Scratch) -> tuple[list[Rows], list[str] | None]:
    """Return both sets, which are read from text once, and the names of their features if one of them has names."""
    sets = [as_rows(X), as_rows(Y)]
    for name, rows in zip("XY", sets, strict=True):
        if rows.shape[0] == 0:
            raise ValueError(f"{name} has no rows: at least one is needed")
    if sets[0].shape[1] != sets[1].shape[1]:
        raise ValueError(f"X has {sets[0].shape[1]} features and Y {sets[1].shape[1]}: they must have the same")
    if sets[0].is_sparse != sets[1].is_sparse:
        raise TypeError("one of X and Y is sparse and the other is not: give both sparse, or both dense")
    names, others = _names(X, sets[0]), _names(Y, sets[1])
    _check_names("Y", others, "X", names)
    return [scratch.rows(rows) for rows in sets], others if names is None else names


def _names(given: Any, rows: Rows) -> list[str] | None:
    """Return the names of features, of a source or a table."""
    names = _get_feature_names(given) if rows.feature_names is None else rows.feature_names
    return None if names is None else list(names)


def _check_names(name: str, names: list[str] | None, other: str, known: list[str] | None) -> None:
    """Refuse other features, or the same in another order, where both have names."""
    if names is None or known is None or names == known:
        return
    at = next(i for i, (a, b) in enumerate(zip(names, known, strict=True)) if a != b)
    raise ValueError(
        f"feature {at} of {name} is {shown(names[at])}, but {other} has {shown(known[at])} there: "
        "give the same features in the same order"
    )


def _standardised(
    sets: list[Rows], names: list[str] | None, standardised: bool
) -> tuple[list[Rows], Array | None, Array | None]:
    """Return both sets as the kernel sees them, and what they were standardised with."""
    dtype = np.result_type(sets[0].dtype, sets[1].dtype)
    mean, deviation = None, None
    if standardised:
        mean, deviation = (sets[0].moments() + sets[1].moments()).mean_and_scale(names)
    return [scaled(rows, mean, deviation, dtype) for rows in sets], mean, deviation


def _centers(sets: list[Rows], M: int, random_state: np.random.RandomState) -> Any:
    """Draw centers from both sets together, whichever set a row is from."""
    n, m = sets[0].shape[0], sets[1].shape[0]
    drawn = np.sort(random_state.choice(n + m, min(M, n + m), replace=False))
    parts = [drawn[drawn < n], drawn[drawn >= n] - n]
    return stack([rows.take(part) for rows, part in zip(sets, parts, strict=True) if len(part)])
