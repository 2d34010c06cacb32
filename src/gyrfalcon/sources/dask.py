"""Rows of a Dask array or dataframe, which stay where they are: on the workers of a cluster, in files, in memory."""

from __future__ import annotations

import copy
import hashlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ._schedulers import STREAMED_AT_ONCE, Scheduler, find_scheduler
from .base import Block, Indices, reblocked, stack
from .scaling import Moments

if TYPE_CHECKING:
    from ..kernels import Kernel
    from ..operators.dask import DaskOperator

Array = NDArray[Any]


class DaskRows:
    """The rows of a Dask array or dataframe.

    Products with a kernel run on the partitions, one task each, wherever Dask runs tasks: give this, or the collection
    itself, to `fit`. Two to four partitions for each thread of the cluster keep all of them busy.

    Parameters
    ----------
    X : dask.array.Array of shape (n, d), or dask.dataframe.DataFrame
        An array may be chunked in any way; chunks over columns are joined. Chunks may also be scipy.sparse CSR
        matrices. A dataframe must have numeric columns. Lengths of partitions that Dask does not know are counted now.
    client : distributed.Client, optional
        Who runs the tasks. By default what Dask would use: the client made last, or the scheduler of `dask.config`.

    Attributes
    ----------
    lengths, ends : arrays of int
        Rows of each partition, and up to its end. Partitions without rows are left out.

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

    elsewhere = True

    def __init__(self, X: Any, *, client: Any = None) -> None:
        check_installed()
        import dask.array as da
        from dask.base import tokenize

        self.client = client
        self._of = X  # what is persisted is let go of with the collection
        self.feature_names: list[str] | None = None
        if isinstance(X, da.Array):
            parts, lengths, columns, dtype = _of_array(X)
            self.sparse = scipy.sparse.issparse(X._meta)
        elif _is_frame(X):
            parts, lengths, columns, dtype = _of_frame(X)
            names = list(X.columns)
            self.feature_names = names if all(isinstance(name, str) for name in names) else None
            self.sparse = False
        else:
            raise TypeError(f"X is a {type(X).__name__}: give a Dask array or a Dask dataframe")
        self.dtype = np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)
        self._token = tokenize(X)
        counted: Sequence[int] = lengths if _are_known(lengths) else find_scheduler(client).run(lengths)
        self._set(_apply(Matrix(self.dtype, columns, self.sparse), parts, range(len(parts)), counted), counted, columns)

    def _set(self, parts: Sequence[Any], lengths: Sequence[int] | Array, columns: int) -> None:
        counts = np.asarray(lengths, dtype=np.intp)
        self._parts = [part for part, count in zip(parts, counts, strict=True) if count]
        self.lengths = counts[counts > 0]
        self.ends = np.cumsum(self.lengths)
        self.shape: tuple[int, int] = (int(counts.sum()), columns)
        self._nbytes: int | None = None

    def _like(self, parts: Sequence[Any], lengths: Array, token: str, dtype: DTypeLike | None = None) -> DaskRows:
        other: DaskRows = object.__new__(DaskRows)
        other._of = self._of
        other.client, other.feature_names, other.sparse = self.client, self.feature_names, self.sparse
        other.dtype = self.dtype if dtype is None else np.dtype(dtype)
        other._token = hashlib.blake2b(f"{self._token} {token}".encode(), digest_size=16).hexdigest()
        other._set(parts, lengths, self.shape[1])
        return other

    @property
    def scheduler(self) -> Scheduler:
        """Who runs the tasks now."""
        return find_scheduler(self.client)

    @property
    def parts(self) -> list[Any]:
        """The partitions that have rows, as `dask.delayed` objects that give blocks."""
        return self._parts

    @property
    def slices(self) -> list[slice]:
        """Which rows each partition has."""
        return [slice(int(end - count), int(end)) for end, count in zip(self.ends, self.lengths, strict=True)]

    @property
    def nbytes(self) -> int:
        """What all rows take."""
        if not self.sparse:
            return self.shape[0] * self.shape[1] * self.dtype.itemsize
        if self._nbytes is None:
            self._nbytes = sum(self.scheduler.run(_apply(_bytes_of, self.parts)))
        return self._nbytes

    @property
    def buffer_bytes(self) -> int:
        """A few partitions are on their way at once."""
        return STREAMED_AT_ONCE * (self.nbytes // max(1, self.shape[0])) * int(self.lengths.max(initial=0))

    def blocks(self, size: int) -> Iterator[Block]:
        """The rows, fetched a few partitions at a time."""
        return reblocked(self.scheduler.stream(self.parts), size)

    def take(self, indices: ArrayLike) -> Block:
        """The rows at `indices`: one task for each partition that has some of them."""
        wanted = np.asarray(indices, dtype=np.intp)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < self.shape[0]):
            raise IndexError(f"rows {wanted.min()} to {wanted.max()} are asked for, and there are {self.shape[0]}")
        if not wanted.size:
            empty = (0, self.shape[1])
            return scipy.sparse.csr_array(empty, dtype=self.dtype) if self.sparse else np.empty(empty, self.dtype)
        unique, back = np.unique(wanted, return_inverse=True)
        found = self.scheduler.run(self._picked(unique)[0])
        if self.sparse:
            return scipy.sparse.vstack(found, format="csr")[back]
        return np.concatenate(found)[back]

    def subset(self, indices: Indices) -> DaskRows:
        """The rows at increasing `indices`, which stay in their partitions."""
        parts, counts = self._picked(indices)
        token = hashlib.blake2b(np.ascontiguousarray(indices, dtype=np.int64).tobytes(), digest_size=16).hexdigest()
        return self._like(parts, counts, token)

    def _picked(self, indices: Indices) -> tuple[list[Any], Array]:
        """Tasks that give the rows at increasing `indices`, and how many each gives."""
        from dask.delayed import delayed

        pick = delayed(_pick, pure=False)
        ends = np.searchsorted(indices, self.ends)
        starts = np.concatenate([[0], ends[:-1]])
        offsets = self.ends - self.lengths
        some = np.flatnonzero(ends > starts)
        parts = [pick(self.parts[i], np.asarray(indices[starts[i] : ends[i]] - offsets[i])) for i in some]
        return parts, (ends - starts)[some]

    def map(self, function: Callable[[Block], Block], dtype: DTypeLike) -> DaskRows:
        """`function` of every block, applied where the block is."""
        return self._like(_apply(function, self.parts), self.lengths, repr(function), dtype)

    def aligned(self, block: int) -> DaskRows:
        """The same rows, with partitions that begin at multiples of `block`: a few rows of each go to a neighbour."""
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
        """Means and squares of the features: one task for each partition, which sends no rows."""
        weights = [None] * len(self.parts) if weight is None else [weight[at] for at in self.slices]
        return reduce(operator.add, self.scheduler.run(_apply(Moments.of, self.parts, weights)))

    def fingerprint(self) -> str:
        """Dask's own token of the collection."""
        return self._token

    def make_operator(
        self,
        kernel: Kernel,
        centers: ArrayLike,
        *,
        n_jobs: int | None = None,
        memory_budget: int | float | str = "auto",
    ) -> DaskOperator:
        """k(rows, centers), whose products run on the partitions."""
        from ..operators.dask import DaskOperator

        return DaskOperator(kernel, self, centers, n_jobs=n_jobs, memory_budget=memory_budget)


class Matrix:
    """A partition as a block: a C-contiguous array or CSR, of the right type and width."""

    def __init__(self, dtype: DTypeLike, columns: int, sparse: bool) -> None:
        self.dtype, self.columns, self.sparse = np.dtype(dtype), columns, sparse

    def __call__(self, part: Any, number: int, count: int) -> Block:
        """The block of a partition, which must have `count` rows."""
        if self.sparse:
            block = scipy.sparse.csr_array(part, dtype=self.dtype)
        elif hasattr(part, "dtypes"):  # columns that may hold pandas.NA need to be told what it becomes
            block = np.ascontiguousarray(part.to_numpy(dtype=self.dtype, na_value=np.nan))
        else:
            block = np.ascontiguousarray(part, dtype=self.dtype)
        if block.ndim != 2 or block.shape[1] != self.columns:
            raise ValueError(f"partition {number} of X has shape {block.shape}: it must have {self.columns} columns")
        check_count(number, block.shape[0], count)
        return block


def check_count(number: int, found: int, count: int) -> None:
    """Whether a partition has as many rows as it was said to have."""
    if found != count:
        raise ValueError(
            f"partition {number} of X has {found} rows, and {count} were declared or counted: if X was made with a "
            "wrong shape, correct it with X.compute_chunk_sizes(); if it has other rows each time that it is read, use "
            "X.persist()"
        )


def first_not_finite(block: Block) -> int | None:
    """The first row that has NaN or infinity."""
    if scipy.sparse.issparse(block):
        bad = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))[~np.isfinite(block.data)]
    else:
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
    return int(bad[0]) if bad.size else None


def _apply(function: Callable[..., Any], parts: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
    """``function(part, other, ...)`` for every part, as tasks."""
    from dask.delayed import delayed

    # a task of its own, so that what the function holds is sent once and not with each partition
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
    return block[at].copy()  # or the rest of the partition would stay with it


def _are_known(lengths: Sequence[Any]) -> bool:
    return all(isinstance(count, int | np.integer) for count in lengths)


def _of_array(X: Any) -> tuple[list[Any], list[Any], int, Any]:
    """Partitions, their lengths (or tasks that count them), columns and type."""
    from dask.delayed import delayed

    if X.ndim != 2:
        raise ValueError(f"X must have rows and columns, and has shape {X.shape}: use X.reshape(-1, 1) for one feature")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X is of type {X.dtype}, which is not numbers: convert it with X.astype")
    if np.isnan(X.shape[1]):
        raise ValueError("X has an unknown number of columns: use X.compute_chunk_sizes() first")
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    parts = list(X.to_delayed().ravel())
    lengths: list[Any] = list(X.chunks[0])
    if any(np.isnan(count) for count in lengths):
        lengths = [delayed(_rows_of, pure=False)(part) for part in parts]
    else:
        lengths = [int(count) for count in lengths]
    return parts, lengths, int(X.shape[1]), X.dtype


def _rows_of(part: Any) -> int:
    return int(part.shape[0])


def _of_frame(X: Any, *, optimize: bool = True) -> tuple[list[Any], list[Any], int, Any]:
    from dask.delayed import delayed
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    types = list(X.dtypes.items())
    for name, dtype in types:
        if not (is_numeric_dtype(dtype) or is_bool_dtype(dtype)) or getattr(dtype, "kind", "f") == "c":
            raise ValueError(
                f"column {name!r} of X is of type {dtype}: make numbers of it, or leave it out with X.drop(columns=...)"
            )
    if not types:
        raise ValueError("X has no columns: at least one feature is needed")
    narrow = all(getattr(dtype, "kind", "") == "f" and dtype.itemsize <= 4 for _, dtype in types)
    # of these very partitions: where fewer columns are read, Dask may put several files into one
    parts = list(X.to_delayed(optimize_graph=optimize))
    lengths = [delayed(_rows_of, pure=False)(part) for part in parts]
    return parts, lengths, len(types), np.dtype(np.float32 if narrow else np.float64)


def _is_frame(X: Any) -> bool:
    frames = sys.modules.get("dask.dataframe")
    return frames is not None and isinstance(X, frames.DataFrame)


def check_installed() -> None:
    """Say what to install where Dask is missing."""
    try:
        import dask.array
        import dask.delayed  # noqa: F401
    except ImportError as error:
        raise ImportError('Dask collections need Dask: pip install "gyrfalcon[dask]"') from error


def is_collection(X: Any) -> bool:
    """Whether `X` is an array, a dataframe or a series of Dask's; Dask is not imported to find out."""
    arrays, frames = sys.modules.get("dask.array"), sys.modules.get("dask.dataframe")
    return (arrays is not None and isinstance(X, arrays.Array)) or (
        frames is not None and isinstance(X, frames.DataFrame | frames.Series)
    )


def adopt(X: Any) -> DaskRows | None:
    """`X` as rows if it is a collection of Dask's, else None."""
    return DaskRows(X) if is_collection(X) else None


def gather(y: Any, *, client: Any = None) -> Any:
    """Targets or weights in memory: an array if `y` is a collection of Dask's, else `y` as it is."""
    return np.asarray(find_scheduler(client).run([y])[0]) if is_collection(y) else y


def predict_lazily(model: Any, X: Any, method: str = "predict") -> Any:
    """What ``model.predict`` (or another method) gives for every row, as a Dask array that nobody has computed yet.

    Parameters
    ----------
    model : a fitted estimator
    X : dask.array.Array or dask.dataframe.DataFrame
        Rows of partitions whose lengths Dask does not know stay unknown in the result.
    method : str

    Returns
    -------
    dask.array.Array of shape (n,) or (n, k), one chunk for each partition of X
    """
    check_installed()
    import dask.array as da
    from dask.delayed import delayed

    worker = copy.copy(model)
    # partitions are the parallelism, and callbacks are for fits
    worker.__dict__.update(
        {name: value for name, value in {"n_jobs": 1, "callbacks": None}.items() if name in vars(model)}
    )
    if isinstance(X, da.Array):
        parts, lengths, columns, dtype = _of_array(X)
        sparse = scipy.sparse.issparse(X._meta)
        known, one = _are_known(lengths), np.zeros((1, columns), dtype=dtype)
        row = scipy.sparse.csr_array(one) if sparse else one
    elif _is_frame(X):
        # not optimized, which could make fewer partitions of them
        parts, lengths, columns, dtype = _of_frame(X, optimize=False)
        known, row = False, X._meta_nonempty.iloc[:1]
    else:
        raise TypeError(f"X is a {type(X).__name__}: give a Dask array or a Dask dataframe")
    like = np.asarray(getattr(worker, method)(row))[:0]
    predict = delayed(_predict, pure=False)
    shared = delayed(worker, pure=False, traverse=False)
    chunks = [
        da.from_delayed(
            predict(shared, part, method, like, number, count if known else None),
            shape=(count if known else np.nan, *like.shape[1:]),
            dtype=like.dtype,
            meta=like,
        )
        for number, (part, count) in enumerate(zip(parts, lengths, strict=True))
    ]
    return da.concatenate(chunks, allow_unknown_chunksizes=not known)


def _predict(model: Any, part: Any, method: str, like: Array, number: int, count: int | None) -> Array:
    """Predictions for a partition, of `count` rows where that is known."""
    n, columns = part.shape
    if count is not None:
        check_count(number, n, count)
    if not n:
        return like
    try:
        return np.asarray(getattr(model, method)(part), dtype=like.dtype)
    except ValueError:
        row = first_not_finite(Matrix(np.float64, columns, scipy.sparse.issparse(part))(part, number, n))
        if row is None:
            raise
        raise ValueError(
            f"row {row} of partition {number} of X has NaN or infinity: remove or impute those values"
        ) from None
