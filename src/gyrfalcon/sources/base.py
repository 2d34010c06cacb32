"""What the operator needs of rows, wherever they live, and what a source may offer beyond that.

A source is any object with the four members of `Rows`. What else it can do well it may say by further members, which
are all optional and met through the functions here, each with a default that works for every source:

================= ==================================================== ==============================================
member            what it is                                           where it is missing
================= ==================================================== ==============================================
subset(indices)   the rows at increasing indices, as a source          the stream is filtered
map(f, dtype)     f(block) for every block, as a source                f is applied as blocks are read
fingerprint()     a string that changes when the contents do           a hash of all blocks
feature_names     names of the features, or None                       None
buffer_bytes      memory held while the rows are read                  0
make_operator     an operator of the source's own                      `gyrfalcon.KernelOperator`
elsewhere         whether that one runs where the rows are             False
moments(weight)   means and squares of the features, for `scale=True`  one pass over the blocks
================= ==================================================== ==============================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike, NDArray

Block = Any  # a C-contiguous array, or CSR; an alias because scipy's sparse classes share no useful base
Indices = NDArray[np.intp]

_HASHED_ROWS = 8_192


@runtime_checkable
class Rows(Protocol):
    """A tall matrix that can be read in blocks, again and again.

    A new source is one class with these four members; `gyrfalcon.testing.check_rows` is what it must pass.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64: what the blocks are made of."""
        ...

    def blocks(self, size: int) -> Iterator[Block]:
        """The rows in order, `size` at a time and the rest last. May be called many times.

        Each block is a C-contiguous array, or each is a scipy.sparse CSR matrix.
        """
        ...

    def take(self, indices: Indices) -> Block:
        """The rows at `indices`, in that order; the same kind of matrix as a block."""
        ...


def is_sparse(rows: Rows) -> bool:
    """Whether blocks are CSR: no rows at all tell."""
    return bool(scipy.sparse.issparse(rows.take(np.empty(0, dtype=np.intp))))


def stack(blocks: list[Block]) -> Block:
    """Blocks as one."""
    if len(blocks) == 1:
        return blocks[0]
    if scipy.sparse.issparse(blocks[0]):
        return scipy.sparse.vstack(blocks, format="csr")
    return np.concatenate(blocks)


def reblocked(pieces: Iterable[Block], size: int) -> Iterator[Block]:
    """Pieces of any length as blocks of `size` rows, the rest last."""
    waiting: list[Block] = []
    count = 0
    for piece in pieces:
        start, length = 0, piece.shape[0]
        while count + length - start >= size:
            stop = start + size - count
            yield stack([*waiting, piece[start:stop]])
            waiting, count, start = [], 0, stop
        if start < length:
            waiting.append(piece[start:])
            count += length - start
    if waiting:
        yield stack(waiting)


def subset(rows: Rows, indices: Indices) -> Rows:
    """The rows at increasing `indices`, as a source."""
    offered: Callable[[Indices], Rows] | None = getattr(rows, "subset", None)
    return SubsetRows(rows, indices) if offered is None else offered(indices)


def mapped(rows: Rows, function: Callable[[Block], Block], dtype: DTypeLike) -> Rows:
    """`function` of every block, which is another block with as many rows and columns, of the type `dtype`."""
    offered: Callable[..., Rows] | None = getattr(rows, "map", None)
    return MappedRows(rows, function, dtype) if offered is None else offered(function, dtype)


def converted(rows: Rows, dtype: DTypeLike) -> Rows:
    """The rows in another precision; themselves if it is theirs."""
    return rows if rows.dtype == dtype else mapped(rows, Converted(dtype), dtype)


def fingerprint(rows: Rows) -> str:
    """A string that is another one if the contents have changed."""
    offered: Callable[[], str] | None = getattr(rows, "fingerprint", None)
    if offered is not None:
        return offered()
    digest = hashlib.blake2b(repr((rows.shape, np.dtype(rows.dtype).str)).encode(), digest_size=16)
    for block in rows.blocks(_HASHED_ROWS):
        parts = [block]
        if scipy.sparse.issparse(block):  # whatever the type of its indices
            parts = [block.indptr.astype(np.int64), block.indices.astype(np.int64), block.data]
        for part in parts:
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def feature_names(rows: Rows) -> list[str] | None:
    """Names of the features, where the source knows them."""
    return getattr(rows, "feature_names", None)


def buffer_bytes(rows: Rows) -> int:
    """What the source itself holds in memory while it is read."""
    return int(getattr(rows, "buffer_bytes", 0))


def runs_elsewhere(rows: Rows) -> bool:
    """Whether products run where the rows are, and not in this process."""
    return bool(getattr(rows, "elsewhere", False))


class Wrapper:
    """Rows made of other rows: what they are called and what they hold is the same."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    @property
    def feature_names(self) -> list[str] | None:
        return feature_names(self.rows)

    @property
    def buffer_bytes(self) -> int:
        return buffer_bytes(self.rows)


class SubsetRows(Wrapper):
    """Some of a source's rows: the stream is read whole, and the others are left out.

    Parameters
    ----------
    rows : source
    indices : array of int
        Increasing.
    """

    def __init__(self, rows: Rows, indices: Indices) -> None:
        super().__init__(rows)
        self.indices = indices
        self.dtype = rows.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indices), self.rows.shape[1]

    def blocks(self, size: int) -> Iterator[Block]:
        return reblocked(self._pieces(size), size)

    def _pieces(self, size: int) -> Iterator[Block]:
        start = 0
        for block in self.rows.blocks(size):
            stop = start + block.shape[0]
            first, last = np.searchsorted(self.indices, (start, stop))
            if first < last:
                yield block[self.indices[first:last] - start]
            start = stop

    def take(self, indices: Indices) -> Block:
        return self.rows.take(self.indices[indices])

    def fingerprint(self) -> str:
        chosen = hashlib.blake2b(np.ascontiguousarray(self.indices).data, digest_size=8).hexdigest()
        return f"{fingerprint(self.rows)}, {len(self.indices)} of them ({chosen})"


class MappedRows(Wrapper):
    """A function of every block of a source, applied as it is read.

    Parameters
    ----------
    rows : source
    function : callable
        Of a block; gives one of the same shape, and depends on each row alone.
    dtype : float32 or float64
        Of what it gives.
    """

    def __init__(self, rows: Rows, function: Callable[[Block], Block], dtype: DTypeLike) -> None:
        super().__init__(rows)
        self.function = function
        self.dtype = np.dtype(cast(Any, dtype))

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    def blocks(self, size: int) -> Iterator[Block]:
        return (self.function(block) for block in self.rows.blocks(size))

    def take(self, indices: Indices) -> Block:
        return self.function(self.rows.take(indices))

    def subset(self, indices: Indices) -> Rows:
        return MappedRows(subset(self.rows, indices), self.function, self.dtype)

    def fingerprint(self) -> str:
        return f"{fingerprint(self.rows)} {self.function!r}"


class Converted:
    """A block in another precision."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(cast(Any, dtype))

    def __call__(self, block: Block) -> Block:
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as that
            return block.astype(self.dtype)

    def __repr__(self) -> str:
        return f"Converted({self.dtype.name})"
