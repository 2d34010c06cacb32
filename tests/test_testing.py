"""The contract test that users run on sources of their own: a good source passes, and each fault is found."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.sparse

from gyrfalcon.sources import Rows
from gyrfalcon.testing import check_rows

VALUES = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)


class Good:
    shape = VALUES.shape
    dtype = np.dtype(np.float32)

    def blocks(self, size):
        for start in range(0, 50, size):
            yield VALUES[start : start + size].copy()

    def take(self, indices):
        return VALUES[indices]


def test_a_good_source_passes():
    check_rows(Good())
    check_rows(Good(), VALUES)
    check_rows(Good(), VALUES, sizes=[3])


def test_a_source_that_derives_from_rows_passes():
    class Derived(Good, Rows):
        pass

    check_rows(Derived(), VALUES)

    class SaysSparse(Derived):
        is_sparse = True

    with pytest.raises(AssertionError, match="is_sparse is True, and blocks are dense"):
        check_rows(SaysSparse(), VALUES)


def test_a_sparse_source_passes():
    class Sparse(Good):
        X = scipy.sparse.csr_array(np.where(VALUES > 0, VALUES, 0))

        def blocks(self, size):
            for start in range(0, 50, size):
                yield self.X[start : start + size]

        def take(self, indices):
            return self.X[indices]

    check_rows(Sparse(), np.where(VALUES > 0, VALUES, 0))

    class Mixed(Sparse):
        take = Good.take

    with pytest.raises(AssertionError, match="take of no rows is dense and blocks are not"):
        check_rows(Mixed())

    class Columns(Sparse):
        def take(self, indices):
            return self.X[indices].tocsc()

    with pytest.raises(AssertionError, match="format 'csc': only CSR"):
        check_rows(Columns())


class NoTake:
    shape, dtype, blocks = Good.shape, Good.dtype, Good.blocks


class Integers(Good):
    dtype = np.dtype(np.int64)


class ListShape(Good):
    shape = list(VALUES.shape)


class Short(Good):
    shape = (51, 3)


class Long(Good):
    shape = (47, 3)


class Wide(Good):
    shape = (50, 4)


class Double(Good):
    def blocks(self, size):
        return (block.astype(np.float64) for block in super().blocks(size))


class Fortran(Good):
    def blocks(self, size):
        return (np.asfortranarray(block) for block in super().blocks(size))


class Lists(Good):
    def blocks(self, size):
        return (block.tolist() for block in super().blocks(size))


class OwnSize(Good):
    def blocks(self, size):
        return super().blocks(min(size, 10))


class OnlyOnce(Good):
    def __init__(self):
        self.reader = super().blocks(16)

    def blocks(self, size):
        return self.reader


class SameMemory(Good):
    """Writes every block over the one before."""

    def blocks(self, size):
        memory = np.empty((size, 3), dtype=np.float32)
        for block in super().blocks(size):
            memory[: len(block)] = block
            yield memory[: len(block)]


class OneReader(Good):
    """A second reader goes on where the first one is."""

    at = 0

    def blocks(self, size):
        self.at = 0
        while self.at < 50:
            start, self.at = self.at, self.at + size
            yield VALUES[start : start + size]


class Sorted(Good):
    def take(self, indices):
        return VALUES[np.sort(indices)]


class Unique(Good):
    def take(self, indices):
        return VALUES[list(dict.fromkeys(indices.tolist()))]


class Flat(Good):
    def take(self, indices):
        return VALUES[indices[0]] if len(indices) == 1 else VALUES[indices]


class Names(Good):
    feature_names = ["a", "b"]


class Moody(Good):
    count = 0

    def fingerprint(self):
        self.count += 1
        return str(self.count)


class WrongSubset(Good):
    def subset(self, indices):
        return self


class LeavesThreads(Good):
    def __init__(self):
        self.stop = threading.Event()

    def blocks(self, size):
        threading.Thread(target=self.stop.wait, args=(30,), daemon=True).start()
        yield from super().blocks(size)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (NoTake, "it has no member 'take'"),
        (Integers, "dtype is int64, not float32 or float64"),
        (ListShape, r"shape is \[50, 3\], not a pair"),
        (Short, r"the block at row 34 has 16 rows instead of 17"),
        (Long, "the block at row 45 has 5 rows instead of 2"),
        (Wide, "has 3 columns, where shape says 4"),
        (Double, "is of type float64, where dtype says float32"),
        (Fortran, "not C-contiguous"),
        (Lists, "is a list, neither an array nor CSR"),
        (OwnSize, "has 10 rows instead of 16"),
        (OnlyOnce, r"blocks\(1\) gave 0 rows, where shape says 50"),
        (SameMemory, "the rows are not those"),
        (OneReader, "not the rows that blocks gave before"),
        (Sorted, "take of all rows backwards"),
        (Unique, "take of rows in no order, some of them twice has"),
        (Flat, "take of the last row has 1 axes"),
        (Names, "feature_names has 2 names for 3 columns"),
        (Moody, "different the second time"),
        (WrongSubset, "subset of 25 rows has shape"),
        (LeavesThreads, "threads are left"),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_each_fault_is_found(source, message):
    rows = source()
    with pytest.raises(AssertionError, match=message):
        check_rows(rows, VALUES if source not in (Short, Long, Wide) else None)
    if source is LeavesThreads:
        rows.stop.set()


def test_rows_that_are_not_what_was_expected():
    with pytest.raises(AssertionError, match="the rows are not those"):
        check_rows(Good(), VALUES + 1)
    with pytest.raises(AssertionError, match=r"shape is \(50, 3\), and \(49, 3\) was expected"):
        check_rows(Good(), VALUES[1:])
