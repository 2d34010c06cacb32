"""Predictions in the kind of the rows: for Dask collections, computed when they are needed; for tensors, tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from operator import methodcaller
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import get_tags
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from ..sources import is_dask, is_tensor, near
from ..sources.dask import PartitionToBlock, check_count, find_partitions, first_not_finite
from ..sources.tensors import as_given

Array = NDArray[Any]
Method = TypeVar("Method", bound=Callable[..., Any])


def lazily(method: Method) -> Method:
    """Decorate a method that predicts: it returns a tensor for a tensor, and for a Dask collection an array to come.

    To type checkers the method keeps its own type: the array that it returns for rows in memory.
    """
    now = in_kind(method)

    @wraps(method)
    def predict(self: Any, X: Any) -> Any:
        if not is_dask(X):
            return now(self, X)
        check_is_fitted(self)
        return predict_lazily(self, X, method.__name__)

    return cast(Method, predict)


def in_kind(method: Method) -> Method:
    """Decorate a method that predicts: given a tensor, it returns a tensor of that kind, on the same device."""

    @wraps(method)
    def predict(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
        if not is_tensor(X):
            return method(self, X, *arguments, **options)
        values = method(self, near(X, self.device), *arguments, **options)
        # a table that set_output asks for is made of the array
        asked = method.__name__ == "transform" and _get_output_config("transform", self)["dense"] != "default"
        return values if asked else as_given(values, X)

    return cast(Method, predict)


def predict_lazily(model: Any, X: Any, method: str = "predict") -> Any:
    """Predict with a method of a fitted estimator, as a Dask array with one chunk for each partition of X.

    Where Dask does not know the lengths of partitions, those of the result are unknown as well.
    """
    numeric = not get_tags(model).input_tags.string
    partitions = find_partitions(X, optimize=False, numeric=numeric)  # with as many chunks as X has partitions
    import dask.array as da
    from dask.delayed import delayed

    worker = copy.copy(model)
    # partitions run in parallel, and callbacks are for fits
    worker.__dict__.update(
        {name: value for name, value in {"n_jobs": 1, "callbacks": None}.items() if name in vars(model)}
    )
    if partitions.kind == "frame":
        row = X._meta_nonempty.iloc[:1]
    else:
        row = np.zeros((1, partitions.n_features), dtype=partitions.dtype)
        row = scipy.sparse.csr_array(row) if partitions.kind == "sparse" else row
    # counting the rows of a dataframe would compute it
    known = partitions.lengths_known
    like = np.asanyarray(methodcaller(method, row)(worker))[:0]
    to_block = PartitionToBlock(np.float64, partitions.n_features, partitions.kind) if numeric else None
    predict = delayed(_predict, pure=False)
    shared = delayed(worker, pure=False, traverse=False)
    chunks = [
        da.from_delayed(
            predict(shared, task, method, like, to_block, number, count if known else None),
            shape=(count if known else np.nan, *like.shape[1:]),
            dtype=like.dtype,
            meta=like,
        )
        for number, (task, count) in enumerate(zip(partitions.tasks, partitions.lengths, strict=True))
    ]
    found = da.concatenate(chunks, allow_unknown_chunksizes=not known)
    return da.Array(found.dask, found.name, found.chunks, meta=like)  # concatenation forgets the class of arrays


def _predict(
    model: Any,
    partition: Any,
    method: str,
    like: Array,
    to_block: PartitionToBlock | None,
    number: int,
    count: int | None,
) -> Array:
    """Predict for a partition, which has `count` rows if that is known; `to_block` is None for models of tables."""
    n = partition.shape[0]
    if count is not None:
        check_count(number, n, count)
    if not n:
        return like
    try:
        return np.asanyarray(methodcaller(method, partition)(model), dtype=like.dtype)
    except ValueError:
        row = None if to_block is None else first_not_finite(to_block(partition, number, n))
        if row is None:
            raise
        raise ValueError(
            f"row {row} of partition {number} of X has NaN or infinity: remove or impute those values"
        ) from None
