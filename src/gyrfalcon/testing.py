"""Tests of sources that users write."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from ._utils.words import a
from .sources import Rows, RowsLike, as_rows
from .sources.blocks import stack

__all__ = ["check_rows"]

Array = NDArray[Any]


def check_rows(rows: Rows | RowsLike, expected: ArrayLike | None = None, *, sizes: Sequence[int] | None = None) -> None:
    """Check that an object keeps the contract of `gyrfalcon.sources.Rows`, and raise AssertionError if it does not.

    The rows are held in memory for comparison, so pass a small source: some hundred rows, and a number that is not a
    multiple of the size of your files or pages. pytest is not needed.

    Parameters
    ----------
    rows : Rows, or object with the members shape, dtype, blocks and take
        The source to check.
    expected : array of shape (n, d), optional
        The correct rows. Without it, the source is only compared with itself.
    sizes : sequence of int, optional
        The sizes of blocks to try; by default 1 (for small sources), some in between, n and more than n.

    Raises
    ------
    AssertionError
        With what was requested and what was returned.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.testing import check_rows
    >>> class Squares:
    ...     shape, dtype = (100, 1), np.dtype(np.float32)
    ...     def blocks(self, size):
    ...         for start in range(0, 100, size):
    ...             yield self.take(np.arange(start, min(start + size, 100)))
    ...     def take(self, indices):
    ...         return np.square(indices, dtype=np.float32)[:, None]
    >>> check_rows(Squares(), np.arange(100)[:, None] ** 2)
    """
    n, d = _check_members(rows)
    rows = as_rows(rows)
    known = _whole(rows, max(1, n // 3))
    if expected is not None:
        _require(np.shape(expected) == (n, d), f"shape is {(n, d)}, and {np.shape(expected)} was expected")
        np.testing.assert_array_equal(_dense(known), np.asarray(expected, dtype=rows.dtype), "the rows are not those")
    threads = threading.active_count()
    _check_blocks(rows, known, sizes or sorted({*([1] if n <= 1000 else []), 7, max(1, n // 2), n, n + 1, 3 * n + 5}))
    _check_readers(rows, known)
    _check_take(rows, known)
    _check_options(rows, known)
    left = threading.active_count() - threads
    _require(left <= 0, f"{left} threads are left when all readers are done or closed")


def _require(condition: bool, message: str) -> None:
    """Raise AssertionError unless the condition holds, also with ``python -O``."""
    if not condition:
        raise AssertionError(message)


def _check_members(rows: Any) -> tuple[int, int]:
    for name in ("shape", "dtype", "blocks", "take"):
        _require(hasattr(rows, name), f"it has no member {name!r}")  # the user's object: anything may be missing
    shape = rows.shape
    _require(isinstance(shape, tuple) and len(shape) == 2, f"shape is {shape!r}, not a pair (rows, columns)")
    _require(all(isinstance(size, int | np.integer) for size in shape), f"shape is {shape!r}, not a pair of integers")
    _require(shape[0] > 0, "it has no rows: check one that has")
    _require(shape[1] > 0, "it has no columns: check one that has")
    dtype = np.dtype(rows.dtype)
    _require(dtype in (np.float32, np.float64), f"dtype is {dtype}, not float32 or float64")
    return int(shape[0]), int(shape[1])


def _dense(block: Any) -> Array:
    return block.toarray() if scipy.sparse.issparse(block) else block


def _same(given: Any, known: Any, what: str) -> None:
    np.testing.assert_array_equal(_dense(given), _dense(known), f"{what} are not the rows that blocks gave before")


def _check_block(rows: Rows, block: Any, what: str) -> None:
    """Check the kind, the type and the width of a block."""
    if scipy.sparse.issparse(block):
        _require(block.format == "csr", f"{what} is sparse of format {block.format!r}: only CSR can be used")
    else:
        _require(isinstance(block, np.ndarray), f"{what} is {a(type(block).__name__)}, neither an array nor CSR")
        _require(block.flags.c_contiguous, f"{what} is not C-contiguous: use np.ascontiguousarray")
    _require(block.ndim == 2, f"{what} has {block.ndim} axes: a block has 2, also if it has one row or one column")
    _require(block.dtype == rows.dtype, f"{what} is of type {block.dtype}, where dtype says {rows.dtype}")
    _require(block.shape[1] == rows.shape[1], f"{what} has {block.shape[1]} columns, where shape says {rows.shape[1]}")


def _whole(rows: Rows, size: int) -> Any:
    """Read all rows, and check each block."""
    n = rows.shape[0]
    blocks, given = [], 0
    for block in rows.blocks(size):
        what = f"blocks({size}): the block at row {given}"
        _check_block(rows, block, what)
        _require(given < n, f"{what} comes after all {n} rows")
        want = min(size, n - given)
        _require(block.shape[0] == want, f"{what} has {block.shape[0]} rows instead of {want}")
        # a reader may keep a block while it requests the next, which must not overwrite it
        blocks.append(block)
        given += block.shape[0]
    _require(given == n, f"blocks({size}) gave {given} rows, where shape says {n}")
    return stack(blocks)


def _check_blocks(rows: Rows, known: Any, sizes: Sequence[int]) -> None:
    for size in sizes:
        for time in ("the first time", "the second time"):
            _same(_whole(rows, size), known, f"blocks({size}), {time},")


def _close(reader: Iterator[Any]) -> None:
    close = getattr(reader, "close", None)  # generators have it, other iterators need not
    if close is not None:
        close()


def _check_readers(rows: Rows, known: Any) -> None:
    n = rows.shape[0]
    first, second = max(1, n // 3), max(1, n // 4)
    one, other = iter(rows.blocks(first)), iter(rows.blocks(second))
    _same(next(one), known[:first], "the first block of one reader")
    _same(next(other), known[:second], "the first block of another reader")
    if n > first:
        _same(next(one), known[first : 2 * first], "the second block of one reader, beside another,")
    _close(one)
    if n > second:
        _same(next(other), known[second : 2 * second], "the second block of a reader, after another was closed,")
    _close(other)
    with ThreadPoolExecutor(3) as pool:
        for given in pool.map(lambda size: _whole(rows, size), (first, second, n)):
            _same(given, known, "blocks that three threads read at once")


def _check_take(rows: Rows, known: Any) -> None:
    n = rows.shape[0]
    rng = np.random.default_rng(0)
    for what, indices in {
        "no rows": np.empty(0, dtype=np.intp),
        "the last row": np.array([n - 1]),
        "all rows": np.arange(n),
        "all rows backwards": np.arange(n)[::-1],
        "rows in no order, some of them twice": rng.integers(0, n, min(n, 50) + 3),
        "one row three times": np.zeros(3, dtype=np.intp),
    }.items():
        taken = rows.take(indices)
        _check_block(rows, taken, f"take of {what}")
        kind, blocks = scipy.sparse.issparse(taken), scipy.sparse.issparse(known)
        _require(kind == blocks, f"take of {what} is {'sparse' if kind else 'dense'} and blocks are not")
        _require(taken.shape[0] == len(indices), f"take of {what} has {taken.shape[0]} rows instead of {len(indices)}")
        _same(taken, known[indices], f"take of {what}:")


def _check_options(rows: Rows, known: Any) -> None:
    """Check the members with defaults, which a source may override."""
    n, d = rows.shape
    names = rows.feature_names
    _require(names is None or len(names) == d, f"feature_names has {len(names or [])} names for {d} columns")
    _require(rows.buffer_bytes >= 0, f"buffer_bytes is {rows.buffer_bytes}")
    sparse = scipy.sparse.issparse(known)
    _require(rows.is_sparse == sparse, f"is_sparse is {rows.is_sparse}, and blocks are {'CSR' if sparse else 'dense'}")
    first = rows.fingerprint()
    _require(isinstance(first, str), f"fingerprint() returned {first!r}, not a string")
    _require(first == rows.fingerprint(), "fingerprint() is different the second time, and nothing has changed")
    some = np.arange(n)[1::2]
    if len(some):
        part = rows.subset(some)
        _require(part.shape == (len(some), d), f"subset of {len(some)} rows has shape {part.shape}")
        _same(_whole(part, 5), known[some], "the rows of a subset")
        _same(part.take(np.array([len(some) - 1, 0])), known[some[[-1, 0]]], "take of a subset:")
