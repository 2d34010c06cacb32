"""What the operator needs of rows, wherever they live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Rows(Protocol):
    """A tall matrix that can be read in blocks, again and again.

    A new source is one class with these four members; ``tests/contracts/test_sources.py`` is what it must pass.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64: what the blocks are made of."""
        ...

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """The rows in order, `size` at a time and the rest last, each block C-contiguous. May be called many times."""
        ...

    def take(self, indices: NDArray[np.intp]) -> NDArray[Any]:
        """The rows at `indices`, in that order."""
        ...
