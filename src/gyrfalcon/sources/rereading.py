"""Rows that are read again: every reading of a fit must give the rows of the first one.

A fit reads its rows many times, and centers are single rows that are taken between two passes. Where rows differ from
one reading to the next, because a file was written to, a query gives its rows in no fixed order, or a user's source is
random, the model would be learnt from rows and targets that do not belong together. `CheckedRows` keeps 32 bits of each
row when it is first read, and compares them whenever the row is read again, in blocks of any size or by `take`: a hash
where rows have the same bits each time, and a sum that may differ by rounding where a user's source computes them.
Of more than some million rows, one hash for each 4,096 is kept, so that memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .base import DerivedRows, Rows
from .blocks import Block, Indices

Array = NDArray[Any]

_ROUNDING = 1e-5  # largest difference of two sums of a row, relative to the sum of its absolute values
_MANY_ROWS = 1 << 22  # number of rows from which groups of them are compared, and not each
_STRIP_BYTES = 1 << 18  # bytes of rows that are hashed at once, so that they stay in cache


class RowsChangedError(OSError, ValueError):
    """Raised if rows that are read again differ; it is an OSError, as errors of files are, and a ValueError."""


class RowHashes:
    """A hash of 32 bits for each of the `n` rows of a source that was read, whatever the number of features.

    `together` is the number of rows that are compared at once.
    """

    together = 1

    def __init__(self, n: int) -> None:
        self._known = np.zeros(n, dtype=np.uint32)  # 0: not read yet

    def reading(self) -> RowHashes:
        """Begin a reading of rows in order: rows are compared one by one, whatever was read before."""
        return self

    @property
    def nbytes(self) -> int:
        return int(self._known.nbytes)

    def differences(self, at: slice | Indices, block: Block) -> Indices:
        """Keep the hashes of rows that are new; return which rows of the block differ from an earlier reading.

        Readings on several threads need no lock: the worst that can happen is that two first readings of a row are
        compared by the next one.
        """
        found = hash_rows(block)
        known = self._known[at]
        other = known != found
        if not other.any():
            return np.empty(0, dtype=np.intp)
        changed: Indices = np.flatnonzero(other & (known != 0))
        if not len(changed):
            self._known[at] = found
        return changed


class GroupHashes:
    """A hash of 64 bits for each group of 4,096 rows that was read, and one of 32 bits for each row that was taken.

    It has the methods of `RowHashes`, and takes one byte for each 512 rows. Blocks must come in order from the first
    row. A row that is taken after a pass is compared by the next pass.
    """

    together = 4096

    def __init__(self, n: int) -> None:
        self._n = n
        self._known = np.zeros(-(-n // self.together), dtype=np.uint64)  # 0: not read yet
        # numbers and hashes of rows that were taken; one value, so that threads see both or none
        self._taken = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.uint32)
        self._places = _multipliers(np.arange(self.together, dtype=np.uint64)) | np.uint64(1)

    @property
    def nbytes(self) -> int:
        return int(self._known.nbytes + sum(part.nbytes for part in self._taken))

    def reading(self) -> GroupReading:
        """Begin a reading of all rows in order."""
        return GroupReading(self)

    def differences(self, at: Indices, block: Block) -> Indices:
        """Keep the hashes of rows that are taken; return which of them differ from those of an earlier `take`."""
        found = hash_rows(block)
        numbers, hashes = self._taken
        joined, first = np.unique(np.concatenate([numbers, at]), return_index=True)
        values = np.concatenate([hashes, found])[first]
        changed: Indices = np.flatnonzero(values[np.searchsorted(joined, at)] != found)
        if not len(changed):
            self._taken = joined, values
        return changed

    def sums(self, start: int, found: Array) -> tuple[Array, Array]:
        """Return the groups of successive rows from `start` on, and the sum over each of hashes times odd numbers."""
        groups = np.arange(start // self.together, -(-(start + len(found)) // self.together))
        places = np.resize(np.roll(self._places, -(start % self.together)), len(found))
        with np.errstate(over="ignore"):
            edges = np.maximum(groups * self.together - start, 0)
            return groups, np.add.reduceat(found * places, edges, dtype=np.uint64)

    def differing(self, start: int, found: Array) -> Indices:
        """Return which rows of a block from `start` on differ from those that were taken before."""
        numbers, hashes = self._taken
        first, last = np.searchsorted(numbers, (start, start + len(found)))
        at = numbers[first:last] - start
        return np.asarray(at[found[at] != hashes[first:last]])

    def compare(self, group: int, total: np.uint64) -> bool:
        """Keep the hash of a group that is new; return whether it is that of an earlier reading."""
        total = total or np.uint64(1)
        if self._known[group] == 0:
            self._known[group] = total
        return bool(self._known[group] == total)


class GroupReading:
    """One reading in order of all rows of `GroupHashes`; a group may be in two blocks."""

    def __init__(self, hashes: GroupHashes) -> None:
        self._hashes, self._begun = hashes, np.uint64(0)

    def differences(self, at: slice, block: Block) -> Indices:
        """Return the first row of the first group that differs from an earlier reading, or rows that were taken."""
        hashes, size = self._hashes, self._hashes.together
        found = hash_rows(block)
        changed = hashes.differing(at.start, found)
        if len(changed) or not len(found):
            return changed
        groups, totals = hashes.sums(at.start, found)
        with np.errstate(over="ignore"):
            totals[0] += self._begun
        whole = at.stop % size == 0 or at.stop == hashes._n
        self._begun = np.uint64(0) if whole else totals[-1]
        for group, total in zip(groups.tolist(), totals if whole else totals[:-1], strict=False):
            if not hashes.compare(group, total):
                return np.array([max(0, group * size - at.start)], dtype=np.intp)
        return np.empty(0, dtype=np.intp)


class RowSums:
    """A weighted sum for each of the `n` rows of a source that was read, with the same methods as `RowHashes`.

    Sums that differ by rounding are the same, so that a source may compute its rows, for instance by a product whose
    rounding depends on the number of rows. Rows whose sum is not finite are not compared.
    """

    together = 1

    def __init__(self, n: int) -> None:
        self._known = np.full(n, np.nan, dtype=np.float32)  # NaN: not read yet

    def reading(self) -> RowSums:
        """Begin a reading of rows in order: rows are compared one by one, whatever was read before."""
        return self

    @property
    def nbytes(self) -> int:
        return int(self._known.nbytes)

    def differences(self, at: slice | Indices, block: Block) -> Indices:
        """Keep the sums of rows that are new; return which rows of the block differ from an earlier reading."""
        weights = 1.0 + _multipliers(np.arange(block.shape[1], dtype=np.uint64)) / 2.0**64
        with np.errstate(over="ignore", invalid="ignore"):
            found = (block @ weights).astype(np.float32)
            known = self._known[at]
            changed: Indices = np.flatnonzero(np.abs(found - known) > _ROUNDING * (abs(block) @ weights))
        if not len(changed):
            new = np.isnan(known)
            self._known[at] = np.where(new, found, known)
        return changed


AnyHashes = RowHashes | RowSums | GroupHashes


def _new_hashes(rows: Rows) -> AnyHashes:
    n = rows.shape[0]
    if not rows.exact:
        return RowSums(n)
    return RowHashes(n) if n < _MANY_ROWS else GroupHashes(n)


def hash_rows(block: Block) -> Array:
    """Hash every row of a block, an array or CSR of float32 or float64, to 32 bits that are not all zero.

    The row's words of 32 bits are multiplied with one random number of 64 bits for each place and added; the upper half
    of the sum is the hash (multilinear hashing: Lemire and Kaser 2014, "Strongly universal string hashing is fast").
    Two different rows have the same hash with a probability of 2^-32.
    """
    dtype = np.float32 if block.dtype == np.float32 else np.float64
    if scipy.sparse.issparse(block):
        return _upper_half(_sparse_sums(block.tocsr().astype(dtype, copy=False)))
    words = np.ascontiguousarray(block, dtype=dtype).view(np.uint32)
    out = np.empty(len(words), dtype=np.uint32)
    _hash_words(words, _multipliers(np.arange(words.shape[1], dtype=np.uint64)), out)
    return out


def hash_words(words: Array, multipliers: Array, out: Array) -> None:
    """Hash the rows of a matrix of words into `out`; the native core does the same in a third of the time."""
    step = max(1, _STRIP_BYTES // (4 * words.shape[1]))
    for start in range(0, len(words), step):
        at = slice(start, start + step)
        out[at] = _upper_half(words[at].astype(np.uint64) @ multipliers)


try:
    from .. import _core

    _hash_words = _core.hash_rows
except (ImportError, AttributeError):  # no native core, or one of an earlier build
    _hash_words = hash_words


def _upper_half(sums: Array) -> Array:
    hashes: Array = (sums >> np.uint64(32)).astype(np.uint32)
    return np.maximum(hashes, np.uint32(1), out=hashes)


def _sparse_sums(block: Block) -> Array:
    words = block.data.view(np.uint32).reshape(len(block.data), -1).astype(np.uint64)
    each = words.shape[1]
    products = np.zeros(len(words) + 1, dtype=np.uint64)
    for place in range(each):
        products[1:] += words[:, place] * _multipliers(block.indices.astype(np.uint64) * each + place)
    totals = np.cumsum(products, dtype=np.uint64)  # wraps around, and so do the differences
    return np.asarray(totals[block.indptr[1:]] - totals[block.indptr[:-1]])


def _multipliers(places: Array) -> Array:
    """Return a random number for each place: SplitMix64."""
    z = (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


class CheckedRows(DerivedRows):
    """Rows of a source; RowsChangedError is raised for a row that differs from an earlier reading.

    `hashes` are those of an earlier reading, by default of the first reading of each row. If the rows are only some of
    those in `hashes`, `numbers` are their numbers there.
    """

    def __init__(self, rows: Rows, hashes: AnyHashes | None = None, numbers: Indices | None = None) -> None:
        super().__init__(rows)
        self.checked = True
        self._hashes = _new_hashes(rows) if hashes is None else hashes
        self._numbers = numbers

    @property
    def is_sparse(self) -> bool:
        return self.rows.is_sparse

    @property
    def buffer_bytes(self) -> int:
        return self.rows.buffer_bytes + self._hashes.nbytes

    def blocks(self, size: int) -> Iterator[Block]:
        start, n, reading = 0, self.shape[0], self._hashes.reading()
        for block in self.rows.blocks(size):
            stop = start + block.shape[0]
            if stop <= n and block.shape[1] == self.shape[1]:  # whoever reads the rows refuses other blocks
                self._check(reading, slice(start, stop), block)
            yield block
            start = stop
        if start < n:
            raise RowsChangedError(
                f"{self.rows.origin()} gave {start} rows where its shape says {n}: did it change meanwhile? "
                f"{self.rows.remedy}"
            )

    def take(self, indices: Indices) -> Block:
        block = self.rows.take(indices)
        self._check(self._hashes, indices, block)
        return block

    def _check(self, hashes: Any, at: slice | Indices, block: Block) -> None:
        changed = hashes.differences(at if self._numbers is None else self._numbers[at], block)
        if len(changed):
            numbers = np.arange(at.start, at.stop) if isinstance(at, slice) else np.asarray(at)
            first = int(numbers[changed[0]])
            others = f" (nor are {len(changed) - 1} more of {len(numbers)})" if len(changed) > 1 else ""
            which = f"row {first}"
            if self._hashes.together > 1 and isinstance(at, slice):
                which = f"row {first}, or one of the {self._hashes.together} rows around it,"
            raise RowsChangedError(
                f"{which} of {self.rows.origin(first)} is not the one that was read before{others}: rows must be "
                f"the same, in the same order, whenever they are read. {self.rows.remedy}"
            )

    def subset(self, indices: Indices) -> Rows:
        if self._hashes.together > 1:
            return super().subset(indices)  # which reads all rows through this object
        numbers = indices if self._numbers is None else self._numbers[indices]
        return CheckedRows(self.rows.subset(indices), self._hashes, numbers)

    def fingerprint(self) -> str:
        return self.rows.fingerprint()


def checked_rows(rows: Rows) -> Rows:
    """Return rows for which it is an error if a later reading differs from the first one.

    Rows in memory, those on the workers of a cluster, and those that compare themselves are returned as they are.
    """
    return rows if rows.in_memory or rows.runs_elsewhere or rows.checked else CheckedRows(rows)
