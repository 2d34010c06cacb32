"""The contract of selectors: `Centers.select` chooses M points and returns a `Selection`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from .._utils.checks import integer, not_negative
from ..kernels import Kernel, KernelFunction
from ..sources import Rows, as_rows
from .leverage import LARGEST_POOL, Array, Indices, RandomState, Scoring

AnyKernel = Kernel | str | KernelFunction


@dataclass(frozen=True)
class Selection:
    """Chosen centers.

    Attributes
    ----------
    points : array of shape (M, d)
    indices : array of shape (M,), or None
        Rows that the centers are; None if they are not rows.
    D : array of shape (M,), or None
        Sampling weights; None for ones, as is right for uniform sampling.
    n_draws : int, or None
        Number of draws before duplicates were merged; None for M.
    sampled : bool
        Whether the points were drawn with known probabilities, so that K_MM D^2 K_MM / n_draws estimates K'K / n. If
        not, the estimate may be poor, and a preconditioner that looks at the rows is safer.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.centers import Selection
    >>> Selection(np.zeros((3, 2)), indices=np.array([4, 1, 7])).points.shape
    (3, 2)
    """

    points: NDArray[Any]
    indices: Indices | None = None
    D: Array | None = None
    n_draws: int | None = None
    sampled: bool = True


@runtime_checkable
class Centers(Protocol):
    """Selector of centers: any object with this method.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.centers import Selection
    >>> from gyrfalcon.sources import as_rows
    >>> class First:
    ...     def select(self, rows, n_centers, **others):
    ...         return Selection(as_rows(rows).take(np.arange(n_centers)), np.arange(n_centers), sampled=False)
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> model = FalkonRegressor(n_centers=20, centers=First(), scale=False).fit(X, X[:, 0])
    >>> bool(np.array_equal(model.centers_, X[:20]))
    True
    """

    def select(
        self,
        rows: Rows | ArrayLike,
        n_centers: int,
        *,
        kernel: AnyKernel,
        penalty: float,
        candidates: Indices | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> Selection:
        """Choose centers.

        Parameters
        ----------
        rows : source, or array of shape (n, d)
        n_centers : int
            M. If there are no more candidates than that, all of them are chosen.
        kernel : Kernel, str or callable
            Parameters given as "scale" are computed from a sample of the rows.
        penalty : float
            lambda of the estimator.
        candidates : array of int, optional
            Rows that may be chosen, as if there were no others; all by default.
        random_state : int, RandomState or None
        n_jobs : int or None
            Number of threads; None for one per core.

        Returns
        -------
        Selection
            At most `n_centers` points; fewer if more would be duplicates.
        """
        ...


class Choice(NamedTuple):
    """Distinct rows, by their places in the pool, with the weights of a `Selection`.

    If `points`, the rows themselves in float64, are given, places are those among the candidates.
    """

    places: Indices
    D: Array
    n_draws: int
    sampled: bool
    points: Any = None


class KernelSelector(BaseEstimator):  # type: ignore[misc]
    """Base class of selectors that evaluate the kernel on the rows; a subclass defines `_choose`."""

    def select(
        self,
        rows: Rows | ArrayLike,
        n_centers: int,
        *,
        kernel: AnyKernel,
        penalty: float,
        candidates: Indices | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> Selection:
        """Choose centers; see `Centers.select`."""
        rows = as_rows(rows)
        candidates = None if candidates is None else np.sort(candidates)
        n = rows.shape[0] if candidates is None else len(candidates)
        integer(1)("n_centers", n_centers)
        not_negative()("penalty", penalty)
        if n <= n_centers:
            indices = np.arange(n) if candidates is None else candidates
            return Selection(rows.take(indices), indices)
        pool = self._pool_size(int(n_centers), n)
        scoring = Scoring(rows, kernel, random_state, n_jobs, candidates, pool)
        places, D, n_draws, sampled, points = self._choose(scoring, int(n_centers), float(penalty))
        if points is None:
            points, places = scoring.pool[places], scoring.positions[places]
        order = np.argsort(places)
        indices = places[order] if candidates is None else candidates[places[order]]
        # these are the rows in float64, so that their own precision gives them back
        return Selection(points[order].astype(rows.dtype), indices, D[order], n_draws, sampled)

    def _pool_size(self, M: int, n: int) -> int:
        """Return how many of n rows are drawn once and held in memory, as the pool of all samples."""
        return LARGEST_POOL

    def _choose(self, scoring: Scoring, M: int, penalty: float) -> Choice:
        """Choose M of the rows of `scoring`, which are more than M."""
        raise NotImplementedError(f"{type(self).__name__} must define _choose(scoring, M, penalty)")
