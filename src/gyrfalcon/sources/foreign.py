"""Sources that users write without deriving from `Rows`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .base import Rows
from .blocks import Block, Indices
from .scaling import Moments


@runtime_checkable
class RowsLike(Protocol):
    """The four members that make any object a source. See `Rows` for what they must do.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.sources import RowsLike
    >>> class Squares:
    ...     shape, dtype = (1_000, 1), np.dtype(np.float32)
    ...
    ...     def blocks(self, size):
    ...         for start in range(0, 1_000, size):
    ...             yield self.take(np.arange(start, min(start + size, 1_000)))
    ...
    ...     def take(self, indices):
    ...         return (indices.astype(np.float32) ** 2)[:, None]
    >>> isinstance(Squares(), RowsLike)
    True
    """

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def blocks(self, size: int) -> Iterator[Block]: ...

    def take(self, indices: Indices) -> Block: ...


class ForeignRows(Rows):
    """A source that does not derive from `Rows`, wrapped.

    These optional members of `Rows` are used if the source has them: feature_names, client, buffer_bytes, subset, map,
    fingerprint and moments.
    """

    def __init__(self, source: RowsLike) -> None:
        self.source = source
        self.shape, self.dtype = source.shape, np.dtype(source.dtype)
        self.feature_names = self._optional("feature_names")
        self.client = self._optional("client")

    def _optional(self, name: str) -> Any:
        return getattr(self.source, name, None)  # the only place where a source is asked what else it can do

    def blocks(self, size: int) -> Iterator[Block]:
        return self.source.blocks(size)

    def take(self, indices: Indices) -> Block:
        return self.source.take(indices)

    @property
    def buffer_bytes(self) -> int:
        return int(self._optional("buffer_bytes") or 0)

    def origin(self, row: int | None = None) -> str:
        return type(self.source).__name__

    def subset(self, indices: Indices) -> Rows:
        own = self._optional("subset")
        return super().subset(indices) if own is None else wrap(own(indices))

    def map(self, function: Callable[[Block], Block], dtype: DTypeLike) -> Rows:
        own = self._optional("map")
        return super().map(function, dtype) if own is None else wrap(own(function, dtype))

    def fingerprint(self) -> str:
        own: Callable[[], str] | None = self._optional("fingerprint")
        return super().fingerprint() if own is None else own()

    def moments(self, weight: NDArray[Any] | None = None) -> Moments:
        own: Callable[..., Moments] | None = self._optional("moments")
        return super().moments(weight) if own is None else own(weight)


def wrap(source: RowsLike) -> Rows:
    """Return the source itself if it derives from `Rows`, else wrap it."""
    return source if isinstance(source, Rows) else ForeignRows(source)
