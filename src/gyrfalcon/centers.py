"""Who may be a center.

A selector chooses the M points that stand for all rows. It gives a `Selection`: the points, where they came from, and
the weights D that the preconditioner needs so that K_MM D^2 K_MM / M estimates K'K / n (Definition 2 of the FALKON
paper's appendix).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .sources import Rows

__all__ = ["Centers", "Given", "Selection", "Uniform", "as_centers"]


@dataclass(frozen=True)
class Selection:
    """Chosen centers.

    Attributes
    ----------
    points : array of shape (M, d)
    indices : array of shape (M,), or None
        The rows they are; None if they are not rows.
    D : array of shape (M,), or None
        Sampling weights; None is 1 for each, right for uniform sampling.
    n_draws : int, or None
        How many were drawn, where duplicates among them were merged; None is M.
    """

    points: NDArray[Any]
    indices: NDArray[np.intp] | None = None
    D: NDArray[np.float64] | None = None
    n_draws: int | None = None


class Centers(Protocol):
    """What chooses centers."""

    def select(
        self, rows: Rows, n_centers: int, candidates: NDArray[np.intp] | None, random_state: np.random.RandomState
    ) -> Selection:
        """Choose `n_centers` centers among the rows `candidates` (None: all rows)."""
        ...


class Uniform:
    """Rows drawn uniformly without replacement, in the order of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.centers import Uniform
    >>> from gyrfalcon.sources import ArrayRows
    >>> rows = ArrayRows(np.arange(10.0)[:, None])
    >>> Uniform().select(rows, 3, None, np.random.RandomState(0)).indices
    array([2, 4, 8])
    """

    def select(
        self, rows: Rows, n_centers: int, candidates: NDArray[np.intp] | None, random_state: np.random.RandomState
    ) -> Selection:
        n = rows.shape[0] if candidates is None else len(candidates)
        # reading rows in their order is kind to files, and keeps the bits when all rows are chosen
        chosen = np.sort(random_state.choice(n, size=min(n_centers, n), replace=False))
        indices = chosen if candidates is None else candidates[chosen]
        return Selection(rows.take(indices), indices)


class Given:
    """Points the user gives."""

    def __init__(self, points: NDArray[Any]) -> None:
        self.points = points

    def select(
        self, rows: Rows, n_centers: int, candidates: NDArray[np.intp] | None, random_state: np.random.RandomState
    ) -> Selection:
        points = np.asarray(self.points)
        if points.ndim != 2 or points.dtype.kind not in "fiu" or len(points) == 0:
            raise ValueError(
                "centers must be a 2-D array of numbers with at least one row, not one of shape "
                f"{points.shape} and type {points.dtype}"
            )
        if points.shape[1] != rows.shape[1]:
            raise ValueError(f"centers have {points.shape[1]} features, X has {rows.shape[1]}")
        if not np.isfinite(points).all():
            raise ValueError("centers contain NaN or infinity")
        return Selection(np.array(points, dtype=rows.dtype, order="C"))


def as_centers(centers: str | ArrayLike | Centers) -> Centers:
    """The selector meant by a name, an array of points, or a selector."""
    if isinstance(centers, str):
        if centers != "uniform":
            raise ValueError(f'centers={centers!r} is not known: use "uniform", an array of points, or a selector')
        return Uniform()
    # tables of polars and pyarrow have a `select` too, which chooses columns
    if hasattr(centers, "select") and not isinstance(centers, type) and not hasattr(centers, "__array__"):
        return cast(Centers, centers)
    return Given(np.asarray(centers))
