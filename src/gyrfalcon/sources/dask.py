"""Rows of a Dask array or dataframe, which stay on the workers of a cluster, in files or in memory."""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.memory import available_memory, require_memory
from .._utils.words import a
from ._schedulers import STREAMED_AT_ONCE, Scheduler, find_scheduler
from .base import Rows
from .blocks import Block, Indices, reblock, stack
from .memory import REMEDY
from .scaling import Moments

Array = NDArray[Any]
Kind = Literal["array", "sparse", "frame"]


class DaskRows(Rows):
    """The rows of a Dask array or dataframe.

    Products with a kernel run on the partitions, one task each, wherever Dask runs tasks: pass this, or the collection
    itself, to `fit`. Two to four partitions for each thread of the cluster keep all of them busy.

    Parameters
    ----------
    X : dask.array.Array of shape (n, d), or dask.dataframe.DataFrame
        An array may be chunked in any way; chunks over columns are joined. Chunks may also be scipy.sparse CSR
        matrices. A dataframe must have numeric columns. Partitions of unknown length are counted at once.
    client : distributed.Client, optional
        Runs the tasks. By default what Dask would use: the client made last, or the scheduler of `dask.config`.

    Attributes
    ----------
    lengths, ends : arrays of int
        Number of rows of each partition, and their cumulative sum. Empty partitions are left out.

    Examples
    --------
    >>> import dask.array as da
    >>> from gyrfalcon.sources import DaskRows
    >>> rows = DaskRows(da.arange(12, chunks=6).reshape(6, 2))
    >>> rows.shape, rows.lengths.tolist()
    ((6, 2), [3, 3])
    >>> rows.take([5, 0])
    array([[10., 11.],
           [ 0.,  1.]])
    """

    runs_elsewhere = True

    def __init__(self, X: Any, *, client: Any = None) -> None:
        partitions = find_partitions(X)
        from dask.base import tokenize  # after the check that Dask is installed

        self.client = client
        self._collection = X  # keeps what is persisted alive
        self._sparse = partitions.kind == "sparse"
        if partitions.kind == "frame":
            names = list(X.columns)
            self.feature_names = names if all(isinstance(name, str) for name in names) else None
        narrow = partitions.dtype.kind == "f" and partitions.dtype.itemsize <= 4
        self.dtype = np.dtype(np.float32 if narrow else np.float64)
        self._token = tokenize(X)
        tasks, lengths = partitions.tasks, partitions.lengths
        counted: Sequence[int] = lengths if partitions.lengths_known else find_scheduler(client).run(lengths)
        to_block = PartitionToBlock(self.dtype, partitions.n_features, partitions.kind)
        self._set(_apply(to_block, tasks, range(len(tasks)), counted), counted, partitions.n_features)

    def _set(self, parts: Sequence[Any], lengths: Sequence[int] | Array, columns: int) -> None:
        counts = np.asarray(lengths, dtype=np.intp)
        self._parts = [part for part, count in zip(parts, counts, strict=True) if count]
        self.lengths = counts[counts > 0]
        self.ends = np.cumsum(self.lengths)
        self.shape = (int(counts.sum()), columns)
        self._nbytes: int | None = None

    def _like(self, parts: Sequence[Any], lengths: Array, token: str, dtype: DTypeLike | None = None) -> DaskRows:
        other: DaskRows = object.__new__(DaskRows)
        other._collection = self._collection
        other.client, other.feature_names, other._sparse = self.client, self.feature_names, self._sparse
        other.dtype = self.dtype if dtype is None else np.dtype(dtype)
        other._token = hashlib.blake2b(f"{self._token} {token}".encode(), digest_size=16).hexdigest()
        other._set(parts, lengths, self.shape[1])
        return other

    @property
    def is_sparse(self) -> bool:
        return self._sparse

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler that runs the tasks now."""
        return find_scheduler(self.client)

    @property
    def parts(self) -> list[Any]:
        """The non-empty partitions, as `dask.delayed` objects that compute blocks."""
        return self._parts

    @property
    def slices(self) -> list[slice]:
        """The rows of each partition."""
        return [slice(int(end - count), int(end)) for end, count in zip(self.ends, self.lengths, strict=True)]

    @property
    def nbytes(self) -> int:
        """Size of all rows in bytes; computed on the workers if they are sparse."""
        if not self.is_sparse:
            return self.shape[0] * self.shape[1] * self.dtype.itemsize
        if self._nbytes is None:
            self._nbytes = sum(self.scheduler.run(_apply(_bytes_of, self.parts)))
        return self._nbytes

    @property
    def buffer_bytes(self) -> int:
        """Size of the partitions that are fetched at once by `blocks`."""
        return STREAMED_AT_ONCE * (self.nbytes // max(1, self.shape[0])) * int(self.lengths.max(initial=0))

    def blocks(self, size: int) -> Iterator[Block]:
        """Iterate over the rows, fetched a few partitions at a time."""
        return reblock(self.scheduler.stream(self.parts), size)

    def take(self, indices: ArrayLike) -> Block:
        """Return the rows at `indices`, with one task for each partition that has some of them."""
        wanted = np.asarray(indices, dtype=np.intp)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < self.shape[0]):
            raise IndexError(
                f"rows {wanted.min()} to {wanted.max()} were requested, and there are {self.shape[0]} rows"
            )
        if not wanted.size:
            empty = (0, self.shape[1])
            return scipy.sparse.csr_array(empty, dtype=self.dtype) if self.is_sparse else np.empty(empty, self.dtype)
        unique, back = np.unique(wanted, return_inverse=True)
        found = self.scheduler.run(self._picked(unique)[0])
        if self.is_sparse:
            return scipy.sparse.vstack(found, format="csr")[back]
        return np.concatenate(found)[back]

    def subset(self, indices: Indices) -> DaskRows:
        """Return the rows at increasing `indices`, which stay in their partitions."""
        parts, counts = self._picked(indices)
        token = hashlib.blake2b(np.ascontiguousarray(indices, dtype=np.int64).tobytes(), digest_size=16).hexdigest()
        return self._like(parts, counts, token)

    def _picked(self, indices: Indices) -> tuple[list[Any], Array]:
        """Make tasks that compute the rows at increasing `indices`; also return how many rows each computes."""
        from dask.delayed import delayed

        pick = delayed(_pick, pure=False)
        ends = np.searchsorted(indices, self.ends)
        starts = np.concatenate([[0], ends[:-1]])
        offsets = self.ends - self.lengths
        some = np.flatnonzero(ends > starts)
        parts = [pick(self.parts[i], np.asarray(indices[starts[i] : ends[i]] - offsets[i])) for i in some]
        return parts, (ends - starts)[some]

    def map(self, function: Callable[[Block], Block], dtype: DTypeLike) -> DaskRows:
        """Apply a function to every block, where the block is stored."""
        return self._like(_apply(function, self.parts), self.lengths, repr(function), dtype)

    def aligned(self, block: int) -> DaskRows:
        """Return the same rows in partitions that begin at multiples of `block`; few rows move to a neighbour."""
        from dask.delayed import delayed

        n = self.shape[0]
        wanted = np.unique(np.append(np.minimum((self.ends + block // 2) // block * block, n), n))
        wanted = wanted[wanted > 0]
        if np.array_equal(wanted, self.ends):
            return self
        cut, join = delayed(_cut, pure=False), delayed(stack, pure=False)
        edges = np.union1d(wanted, self.ends)
        pieces: list[list[Any]] = [[] for _ in wanted]
        for start, stop in zip(np.append(0, edges), edges, strict=False):
            i = int(np.searchsorted(self.ends, start, "right"))
            at = slice(int(start - self.ends[i] + self.lengths[i]), int(stop - self.ends[i] + self.lengths[i]))
            whole = at == slice(0, int(self.lengths[i]))
            pieces[int(np.searchsorted(wanted, start, "right"))].append(
                self.parts[i] if whole else cut(self.parts[i], at)
            )
        parts = [piece[0] if len(piece) == 1 else join(piece) for piece in pieces]
        return self._like(parts, np.diff(wanted, prepend=0), f"aligned {block}")

    def moments(self, weight: Array | None = None) -> Moments:
        """Compute mean and variance of every feature, with one task for each partition; no rows are sent."""
        weights = [None] * len(self.parts) if weight is None else [weight[at] for at in self.slices]
        return reduce(operator.add, self.scheduler.run(_apply(Moments.of, self.parts, weights)))

    def fingerprint(self) -> str:
        """Return Dask's token of the collection."""
        return self._token


class Partitions(NamedTuple):
    """The partitions of a Dask collection."""

    tasks: list[Any]  # the partitions, as `dask.delayed` objects
    lengths: list[Any]  # numbers of rows, or tasks that count them
    n_features: int
    dtype: np.dtype[Any]  # the type of an array; the float type that holds all columns of a dataframe
    kind: Kind

    @property
    def lengths_known(self) -> bool:
        """Whether `lengths` are numbers."""
        return all(isinstance(count, int | np.integer) for count in self.lengths)


def find_partitions(X: Any, *, optimize: bool = True, numeric: bool = True) -> Partitions:
    """Find the partitions of a Dask array or dataframe.

    With `optimize` Dask may first optimize a dataframe, which can merge partitions. With `numeric` it is an error if a
    dataframe has columns that are not numbers.
    """
    check_dask_installed()
    import dask.array as da

    if isinstance(X, da.Array):
        return _partitions_of_array(X)
    frames = sys.modules.get("dask.dataframe")
    if frames is not None and isinstance(X, frames.DataFrame):
        return _partitions_of_frame(X, optimize, numeric)
    raise TypeError(f"X is {a(type(X).__name__)}: give a Dask array or a Dask dataframe")


def _partitions_of_array(X: Any) -> Partitions:
    if X.ndim != 2:
        raise ValueError(f"X must have rows and columns, and has shape {X.shape}: use X.reshape(-1, 1) for one feature")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X is of type {X.dtype}, which is not numbers: convert it with X.astype")
    if np.isnan(X.shape[1]):
        raise ValueError("X has an unknown number of columns: use X.compute_chunk_sizes() first")
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    tasks = list(X.to_delayed().ravel())
    unknown = any(np.isnan(count) for count in X.chunks[0])
    lengths = _count_tasks(tasks) if unknown else [int(count) for count in X.chunks[0]]
    kind: Kind = "sparse" if scipy.sparse.issparse(X._meta) else "array"
    return Partitions(tasks, lengths, int(X.shape[1]), X.dtype, kind)


def _partitions_of_frame(X: Any, optimize: bool, numeric: bool) -> Partitions:
    types = list(X.dtypes.items())
    wrong = [(name, dtype) for name, dtype in types if not _is_number(dtype)] if numeric else []
    for name, dtype in wrong:
        raise ValueError(
            f"column {name!r} of X is of type {dtype}: convert it to numbers, or remove it with "
            f"X.drop(columns=...); if X.compute() fits memory, {REMEDY}"
        )
    if not types:
        raise ValueError("X has no columns: at least one feature is needed")
    narrow = all(dtype.kind == "f" and dtype.itemsize <= 4 for _, dtype in types)
    # rows are counted in these very partitions: where fewer columns are read, Dask may merge several files
    tasks = list(X.to_delayed(optimize_graph=optimize))
    dtype = np.dtype(np.float32 if narrow else np.float64)
    return Partitions(tasks, _count_tasks(tasks), len(types), dtype, "frame")


def _is_number(dtype: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return (is_numeric_dtype(dtype) or is_bool_dtype(dtype)) and dtype.kind != "c"


def has_text(X: Any) -> bool:
    """Whether a Dask collection is a dataframe with columns that are not numbers."""
    frames = sys.modules.get("dask.dataframe")
    return frames is not None and isinstance(X, frames.DataFrame) and not all(map(_is_number, X.dtypes))


def read_frame(X: Any, client: Any = None) -> Any:
    """Compute a Dask collection into memory: a pandas DataFrame, or an array.

    Raises MemoryError as soon as the partitions seen so far show that all of them exceed the available memory.
    """
    frames = sys.modules.get("dask.dataframe")
    if frames is None or not isinstance(X, frames.DataFrame):
        return DaskRows(X, client=client).table()
    from dask.dataframe.dispatch import concat

    tasks, available = list(X.to_delayed()), available_memory()
    parts: list[Any] = []
    size = 0
    for part in find_scheduler(client).stream(tasks):
        parts.append(part)
        size += int(part.memory_usage(index=False, deep=True).sum())
        require_memory("the Dask dataframe", size * len(tasks) // len(parts), available)
    return concat(parts)


def _count_tasks(partitions: Sequence[Any]) -> list[Any]:
    from dask.delayed import delayed

    return [delayed(_count_rows, pure=False)(partition) for partition in partitions]


def _count_rows(partition: Any) -> int:
    return int(partition.shape[0])


class PartitionToBlock:
    """Conversion of a partition to a block, with checks of its shape."""

    def __init__(self, dtype: DTypeLike, n_features: int, kind: Kind) -> None:
        self.dtype, self.n_features, self.kind = np.dtype(dtype), n_features, kind

    def __call__(self, partition: Any, number: int, count: int) -> Block:
        """Convert partition `number`, which must have `count` rows."""
        if self.kind == "sparse":
            block = scipy.sparse.csr_array(partition, dtype=self.dtype)
        elif self.kind == "frame":  # columns may hold pandas.NA
            block = np.ascontiguousarray(partition.to_numpy(dtype=self.dtype, na_value=np.nan))
        else:
            block = np.ascontiguousarray(partition, dtype=self.dtype)
        if block.ndim != 2 or block.shape[1] != self.n_features:
            raise ValueError(f"partition {number} of X has shape {block.shape}: it must have {self.n_features} columns")
        check_count(number, block.shape[0], count)
        return block


def check_count(number: int, found: int, count: int) -> None:
    """Raise ValueError if a partition does not have the declared number of rows."""
    if found != count:
        raise ValueError(
            f"partition {number} of X has {found} rows, and {count} were declared or counted: if X was made with a "
            "wrong shape, correct it with X.compute_chunk_sizes(); if its rows differ each time that it is computed, "
            "use X.persist()"
        )


def first_not_finite(block: Block) -> int | None:
    """Locate the first row with a non-finite value."""
    if scipy.sparse.issparse(block):
        bad = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))[~np.isfinite(block.data)]
    else:
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
    return int(bad[0]) if bad.size else None


def _apply(function: Callable[..., Any], parts: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
    """Make a task ``function(part, other, ...)`` for every part."""
    from dask.delayed import delayed

    # a task of its own, so that the function's data is sent once and not with each partition
    shared = delayed(function, pure=False, traverse=False) if len(parts) > 1 else function
    call = delayed(_call, pure=False)
    return [call(shared, *arguments) for arguments in zip(parts, *others, strict=True)]


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _bytes_of(block: Block) -> int:
    return int(block.data.nbytes + block.indices.nbytes + block.indptr.nbytes)


def _pick(block: Block, indices: Indices) -> Block:
    return block[indices]


def _cut(block: Block, at: slice) -> Block:
    return block[at].copy()  # a view would keep the whole partition in memory


def check_dask_installed() -> None:
    """Raise ImportError with the command to install Dask if it is missing."""
    try:
        import dask.array
        import dask.delayed  # noqa: F401
    except ImportError as error:
        raise ImportError('Dask collections need Dask: pip install "dask[array,dataframe]" distributed') from error


def is_dask(X: Any) -> bool:
    """Whether `X` is a Dask collection; Dask is not imported to find out.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.sources import is_dask
    >>> is_dask(np.zeros((2, 2)))
    False
    """
    return type(X).__module__.startswith(("dask.", "dask_expr."))


def compute(y: Any, *, client: Any = None) -> Any:
    """Compute targets or weights if they are a Dask collection; return anything else as it is."""
    return np.asarray(find_scheduler(client).run([y])[0]) if is_dask(y) else y
