"""Centers that do not depend on the kernel: rows drawn uniformly, and points given by the user."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from .._utils.checks import integer, one_of, optional
from .._utils.registry import register
from .._utils.sampling import draw
from ..backends import check_centers
from ..sources import Rows, as_rows
from .base import AnyKernel, Selection
from .leverage import Indices, RandomState

_N_CENTERS = integer(1)


@register
class Uniform(BaseEstimator):  # type: ignore[misc]
    """Rows drawn uniformly without replacement, in the order of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.centers import Uniform
    >>> Uniform().select(np.arange(10.0)[:, None], 3, random_state=0).indices
    array([2, 4, 8])
    """

    def select(
        self,
        rows: Rows | ArrayLike,
        n_centers: int,
        *,
        kernel: AnyKernel | None = None,
        penalty: float = 0.0,
        candidates: Indices | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> Selection:
        """Choose centers; see `Centers.select`."""
        rows = as_rows(rows)
        n = rows.shape[0] if candidates is None else len(candidates)
        _N_CENTERS("n_centers", n_centers)
        # files are read faster in order, and results are the same bits as with all rows if all are chosen
        chosen = draw(n, min(int(n_centers), n), check_random_state(random_state))
        indices = chosen if candidates is None else candidates[chosen]
        return Selection(rows.take(indices), indices)


@register
class Given(BaseEstimator):  # type: ignore[misc]
    """Points given by the user.

    Parameters
    ----------
    points : array or sparse matrix of shape (M, d)
    sampled : "uniform" or None
        How the points were drawn from the rows: "uniform" if each row was as likely as any other, so that FALKON's
        preconditioner suits them. None if that is not known, and a preconditioner that looks at the rows is safer.

    Examples
    --------
    >>> from gyrfalcon.centers import Given
    >>> Given([[0.0], [1.0]]).select([[3.0], [4.0], [5.0]], 2).points
    array([[0.],
           [1.]])
    """

    def __init__(self, points: ArrayLike, sampled: str | None = None) -> None:
        self.points = points
        self.sampled = sampled

    def select(
        self,
        rows: Rows | ArrayLike,
        n_centers: int,
        *,
        kernel: AnyKernel | None = None,
        penalty: float = 0.0,
        candidates: Indices | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> Selection:
        """Return the points; see `Centers.select`. Only `rows` is used."""
        optional(one_of("uniform"))("sampled", self.sampled)
        rows = as_rows(rows)
        points: Any = self.points if scipy.sparse.issparse(self.points) else np.asarray(self.points)
        if points.ndim != 2 or points.dtype.kind not in "fiu" or points.shape[0] == 0:
            raise ValueError(
                "centers must be a 2-D array of numbers with at least one row, not one of shape "
                f"{points.shape} and type {points.dtype}"
            )
        if points.shape[1] != rows.shape[1]:
            raise ValueError(f"centers have {points.shape[1]} features, X has {rows.shape[1]}: give as many")
        centers = check_centers(points, rows.dtype, sparse=rows.is_sparse).copy()
        return Selection(centers, sampled=self.sampled is not None)
