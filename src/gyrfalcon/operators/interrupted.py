"""Passes that go on where a killed process left them: sums over the first rows, under the name of what is added up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Sums(Protocol):
    """Sums over rows that outlive the process, such as those in the folder of a checkpoint.

    A name stands for a verb and the vectors that K is multiplied with, but not for the rows, targets and weights, which
    must be the same ones whenever the same sums are used.
    """

    def found(self, name: str) -> tuple[int, Array] | None:
        """Return how many rows were added and their sum, which the caller may change, or None."""

    def add(self, name: str, rows: int, total: Array, *, is_last: bool) -> None:
        """Note the sum of the first `rows` rows, and write it if it is time. The caller goes on to change `total`."""


def name_of(verb: str, parts: Iterable[Array | None]) -> str:
    """Return a name for a verb and arrays, which differs if one of their bits does."""
    digest = hashlib.blake2b(verb.encode(), digest_size=16)
    for part in parts:
        if part is not None:
            digest.update(f" {part.dtype} {part.shape} ".encode())
            digest.update(np.ascontiguousarray(part).data.cast("B") if part.size else b"")
    return digest.hexdigest()


class Pass:
    """The sum over the blocks of one pass: where it begins, and what is told to `sums`.

    Parameters
    ----------
    sums : Sums or None
        None for a pass that is not remembered.
    name : str
    n : int
        Number of rows.
    block_size : int
        Rows of a block: sums end there.
    shape : tuple of int
        Of the sum.
    """

    def __init__(self, sums: Sums | None, name: str, n: int, block_size: int, shape: tuple[int, int]) -> None:
        self._sums, self._name, self._n = sums, name, n
        self.start, self.total = 0, np.zeros(shape)
        known = None if sums is None else sums.found(name)
        if known is not None:
            rows, total = known
            if total.shape == shape and (rows == n or (0 < rows < n and rows % block_size == 0)):
                self.start, self.total = rows, total

    @property
    def is_over(self) -> bool:
        """Whether all rows were added before."""
        return 0 < self._n == self.start

    def add(self, at: slice, product: Array) -> None:
        """Add the product of the next block."""
        self.total += product
        if self._sums is not None:
            self._sums.add(self._name, at.stop, self.total, is_last=at.stop == self._n)
