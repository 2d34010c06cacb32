"""Checks of rows, vectors, weights and products that all operators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.portable import library
from ..backends import BlockWeight, weighted
from ..kernels import Kernel
from .base import Rowwise, Weight

Array = NDArray[Any]


def locate_non_finite(start: int, rows: Any, names: Sequence[str] | None) -> str:
    """Locate the first non-finite value of a block whose first row is number `start`."""
    if scipy.sparse.issparse(rows):
        at = int(np.flatnonzero(~np.isfinite(rows.data))[0])
        row, column = int(np.searchsorted(rows.indptr, at, side="right")) - 1, int(rows.indices[at])
        value = rows.data[at]
    else:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        value = rows[row, column]
    return f"row {start + row} has {value} in feature {column if names is None else repr(names[column])}"


def as_columns(V: ArrayLike, length: int, dtype: DTypeLike, name: str) -> tuple[Array, Callable[[Array], Array]]:
    """Convert a vector or a matrix to contiguous columns.

    Returns
    -------
    columns : array of shape (length, k)
    like_given : callable
        Gives a result with k columns the number of dimensions of `V`.
    """
    columns = np.asarray(V)
    if columns.dtype.kind not in "fiub":
        raise ValueError(f"{name} is of type {columns.dtype}: it must hold real numbers")
    with np.errstate(over="ignore"):  # a product with infinity is refused
        columns = columns.astype(dtype, copy=False)
    if columns.ndim not in (1, 2) or len(columns) != length:
        raise ValueError(f"{name} has shape {columns.shape}: it must be ({length},) or ({length}, k)")
    if columns.ndim == 1:
        return np.ascontiguousarray(columns[:, None]), lambda out: out[:, 0]
    return np.ascontiguousarray(columns), lambda out: out


def check_weight(weight: Weight, n: int) -> Array | Callable[[slice, Array], Array] | None:
    """Return the weight of `sandwich`, as an array unless it is None or a function, if it fits n rows."""
    if weight is None:
        return None
    if callable(weight):
        for array in weight.arrays if isinstance(weight, Rowwise) else ():
            if len(array) != n:
                raise ValueError(f"an array of the weight has shape {np.shape(array)}: it must have {n} rows")
        return weight
    numbers = np.asarray(weight)
    if numbers.shape != (n,):
        raise ValueError(f"weight has shape {numbers.shape}: it must have one number for each row, {n}")
    return numbers


def check_image(KV: Array, n: int, k: int, dtype: DTypeLike) -> Array:
    """Return the array that K V is written into, with k columns, if it fits n rows."""
    if KV.dtype != dtype or KV.shape not in ([(n,), (n, 1)] if k == 1 else [(n, k)]):
        raise ValueError(f"KV has shape {KV.shape} and type {KV.dtype}: it must be ({n}, {k}) of {dtype}")
    return KV if KV.ndim == 2 else KV[:, None]


def recording(weight: BlockWeight, KV: Array) -> Callable[[slice, Array], Array]:
    """Make a weight of one that also writes K V into `KV`."""

    def record(at: slice, T: Array) -> Array:
        KV[at] = T
        return weighted(T, weight, at)

    return record


def check_product(product: Any, kernel: Kernel, dtype: DTypeLike) -> Any:
    """Return the product, an array or a tensor, if it is finite."""
    if not library(product).isfinite(product).all():
        raise ValueError(
            f"a product with {kernel!r} is not finite in {dtype}: check the vectors it is multiplied with, the "
            "kernel's parameters and the scale of the rows"
        )
    return product
