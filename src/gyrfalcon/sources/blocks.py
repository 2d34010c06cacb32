"""Blocks of rows: how they are joined, and how a stream of them is cut into blocks of one size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

Block = Any  # a C-contiguous array, or CSR; an alias because scipy's sparse classes share no useful base
Indices = NDArray[np.intp]


def stack(blocks: list[Block]) -> Block:
    """Concatenate blocks of rows, dense or CSR."""
    if len(blocks) == 1:
        return blocks[0]
    if scipy.sparse.issparse(blocks[0]):
        return scipy.sparse.vstack(blocks, format="csr")
    return np.concatenate(blocks)


def reblock(pieces: Iterable[Block], size: int) -> Iterator[Block]:
    """Cut pieces of any length into blocks of `size` rows; the last block has the rest."""
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
