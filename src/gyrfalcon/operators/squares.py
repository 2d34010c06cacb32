"""Sums over blocks of K that products with K do not provide, such as F'F of features F = K R.

Solvers give an operator an object that adds blocks on the host (`BlockSums`), and that says what the sums are
(`Squares`). An operator on devices lets each device add its own blocks instead, and only the sums come back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._utils.copies import as_tensor, upload
from .._utils.devices import import_torch

__all__ = ["Basis", "BlockSums", "SquareSums", "Squares"]

Array = NDArray[Any]
Vectors = NDArray[np.float64]
Tensor = Any


class Basis(Protocol):
    """R, of shape (M, r), in F = K R."""

    @property
    def rank(self) -> int:
        """Number of columns r."""

    def features_on(self, device: Any) -> Callable[[Tensor], Tensor]:
        """Return the function that computes F' of a block of K on a device: (b, M) to (r, b), in float64."""


@dataclass(frozen=True)
class Squares:
    """The sums F'WF, for each group of rows, and F'WY, of features F = K R in float64.

    Y : array of shape (n, k)
    weight : diagonal of W, of shape (n,), or None
    basis : R; None for the identity
    group : number of the group of each row, of shape (n,), or None for a single group
    """

    Y: Array
    weight: Array | None = None
    basis: Basis | None = None
    group: Array | None = None

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return 1 if self.group is None else int(self.group.max(initial=0)) + 1

    def rank(self, M: int) -> int:
        """Number of columns of F, for K with M columns."""
        return M if self.basis is None else self.basis.rank

    def nbytes(self, M: int) -> int:
        """Bytes of the sums, of R and of one product of a group's features with themselves."""
        return 8 * self.rank(M) ** 2 * (self.n_groups + 2) + 8 * self.rank(M) * self.Y.shape[1]


class BlockSums(ABC):
    """Sums over blocks of K; see `Operator.add_blocks`."""

    @property
    @abstractmethod
    def squares(self) -> Squares:
        """The sums, for operators whose blocks are not on the host."""

    @abstractmethod
    def add(self, at: slice, K: Array) -> None:
        """Add the rows `at` of K."""

    @abstractmethod
    def put(self, G: Vectors, c: Vectors) -> None:
        """Set the sums: F'WF, symmetric and of shape (groups, r, r), and F'WY, of shape (r, k)."""


class SquareSums:
    """`Squares` of the blocks that one device is given."""

    def __init__(self, squares: Squares, M: int, device: Any) -> None:
        torch = import_torch()
        self._squares, self._device = squares, device
        self._features = _in_float64 if squares.basis is None else squares.basis.features_on(device)
        options = {"dtype": torch.float64, "device": device}
        r = squares.rank(M)
        self._G = torch.zeros((squares.n_groups, r, r), **options)
        self._c = torch.zeros((r, squares.Y.shape[1]), **options)

    def add(self, at: slice, K: Tensor) -> None:
        """Add a block of K."""
        squares = self._squares
        F, Y = self._features(K), self._upload(squares.Y[at])
        if squares.weight is not None:
            root = self._upload(np.sqrt(squares.weight[at], dtype=np.float64))
            F, Y = F * root, Y * root[:, None]
        parts = [(0, F)]
        if squares.group is not None:
            group = squares.group[at]
            members = [(int(f), np.flatnonzero(group == f)) for f in np.unique(group)]
            parts = [(f, F[:, upload(as_tensor(rows), self._device)]) for f, rows in members]
        # everything that takes memory has been made: a block that fails is added again as a whole
        for f, part in parts:
            self._G[f].addmm_(part, part.T)
        self._c.addmm_(F, Y)

    def _upload(self, array: Array) -> Tensor:
        return upload(as_tensor(np.ascontiguousarray(array, dtype=np.float64)), self._device)

    def array(self) -> tuple[Vectors, Vectors]:
        """Return the sums."""
        return np.asarray(self._G.cpu().numpy()), np.asarray(self._c.cpu().numpy())


def _in_float64(K: Tensor) -> Tensor:
    return K.double().T
