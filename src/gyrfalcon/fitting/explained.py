"""What an estimator tells of its predictions, so that they can be explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.shapley import Expansion

Array = NDArray[Any]


@dataclass(frozen=True)
class ExpansionPart:
    """An expansion that is a part of a function of a table.

    Attributes
    ----------
    expansion : Expansion
    rows : callable
        Returns the rows of X as the expansion sees them, of shape (n, m), in float64.
    origin : array of int of shape (m,)
        The column of X that each of their columns is made of.
    """

    expansion: Expansion
    rows: Callable[[Any], Array]
    origin: Array


@dataclass(frozen=True)
class Mixable:
    """Rows whose columns can be taken from different rows.

    Attributes
    ----------
    mix : callable
        Returns rows whose column j is taken from the rows ``chosen[:, j]``, for an array of integers `chosen`.
    data : array of shape (n, n_features)
        The values, as people read them.
    """

    mix: Callable[[Array], Any]
    data: Array

    def subset(self, kept: Array) -> Mixable:
        """Return some of the rows."""
        return Mixable(lambda chosen: self.mix(kept[chosen]), self.data[kept])


@dataclass(frozen=True)
class Explained:
    """A fitted function of the columns of X.

    Attributes
    ----------
    function : callable
        Returns the values for rows, of shape (n,) or (n, k).
    n_features : int
    names : list of str or None
    offset : array of shape (k,)
        The constant that the parts do not include.
    one_column : bool
        Whether values have the shape (n,).
    parts : tuple of ExpansionPart, or None
        Expansions whose sum is the function, up to the offset; None if it is no such sum.
    stack : callable
        Makes a `Mixable` of the rows of X followed by those of the background.
    """

    function: Callable[[Any], Array]
    n_features: int
    names: list[str] | None
    offset: Array
    one_column: bool
    parts: tuple[ExpansionPart, ...] | None
    stack: Callable[[Any, Any], Mixable]

    def values(self, rows: Any) -> Array:
        """Return the values for rows as columns, of shape (n, k), in float64."""
        found = np.asarray(self.function(rows), dtype=np.float64)
        return found.reshape(len(found), -1)


def stack_numbers(rows: Array, background: Array) -> Mixable:
    """Return the rows of two matrices, whose columns can be mixed.

    >>> import numpy as np
    >>> stack_numbers(np.array([[1, 2]]), np.array([[3, 4]])).mix(np.array([[0, 1]]))
    array([[1, 4]])
    """
    both = np.concatenate([rows, background])
    columns = np.arange(both.shape[1])
    return Mixable(lambda chosen: both[chosen, columns], both)
