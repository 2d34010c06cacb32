"""Sources of rows: arrays, tensors, sparse matrices, files, Dask collections and objects that users write."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.devices import resolve_devices
from .base import Rows
from .dask import DaskRows, has_text, is_dask, read_frame
from .files import Dataset, is_lazy_table, open
from .foreign import RowsLike, wrap
from .memory import ArrayRows, MetricArray
from .tensor_rows import TensorRows, stays
from .tensors import as_torch, is_tensor, to_host

__all__ = [
    "ArrayRows",
    "DaskRows",
    "Rows",
    "RowsLike",
    "TensorRows",
    "as_rows",
    "as_source",
    "is_dask",
    "is_tensor",
    "near",
    "to_host",
]


def as_rows(X: Any) -> Rows:
    """Convert anything that holds rows to a source.

    Parameters
    ----------
    X : array-like, tensor, sparse matrix, Dask collection, h5py.Dataset, zarr.Array, Rows, or object with its members
        Or a `Dataset`, whose rows are returned, a polars.LazyFrame or a pyarrow.dataset.Dataset. A source is returned
        unchanged.

    Examples
    --------
    >>> from gyrfalcon.sources import as_rows
    >>> rows = as_rows([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> [block.shape for block in rows.blocks(2)]
    [(2, 2), (1, 2)]
    """
    X = to_host(X)
    source = as_source(X)
    return ArrayRows(X) if source is None else source


def as_source(X: Any) -> Rows | None:
    """Convert `X` to a source, or return None if it is an array-like, which scikit-learn's checks can convert.

    Examples
    --------
    >>> import scipy.sparse
    >>> from gyrfalcon.sources import as_source
    >>> as_source(scipy.sparse.eye_array(3)).shape
    (3, 3)
    >>> as_source([[1.0], [2.0]]) is None
    True
    """
    if isinstance(X, Rows):
        return X
    if isinstance(X, np.ndarray):
        return None
    if isinstance(X, Dataset):
        return X.X
    if scipy.sparse.issparse(X):
        from .sparse import SparseRows

        return SparseRows(X)
    if is_dask(X):
        return DaskRows(X)
    if type(X).__module__.startswith(("h5py.", "zarr.")):
        from .arrays import OpenArray, OpenArrayRows

        return OpenArrayRows(X) if isinstance(X, OpenArray) else None
    if is_lazy_table(X):
        return open(X).X
    if isinstance(X, RowsLike) and callable(X.blocks) and callable(X.take):  # not columns of a table with these names
        return wrap(X)
    return None


def near(X: Any, device: Any) -> Any:
    """Return a tensor as rows that stay where they are if `device` computes there, else as an array of the host.

    Anything but a tensor is returned unchanged. Sparse tensors, tensors on devices without float64, and invalid ones
    become arrays of the host, whose checks raise the errors.

    Parameters
    ----------
    X : anything
    device : None, str, torch.device or list of these
        Where products are computed. A tensor also stays on another device of the same kind, from which its rows are
        then copied directly.

    Examples
    --------
    >>> from gyrfalcon.sources import near
    >>> near([[1.0, 2.0]], "cpu")
    [[1.0, 2.0]]
    """
    if device is None or not is_tensor(X):
        return to_host(X)
    tensor = as_torch(X)
    return to_host(X) if tensor is None or not stays(tensor, resolve_devices(device) or ()) else TensorRows(tensor)


def has_metric(X: Any) -> bool:
    """Whether `X` is a `MetricArray`, or a Dask array of them."""
    return isinstance(X._meta if is_dask(X) else X, MetricArray)


def as_table(X: Any, as_text: Collection[str] = ()) -> Any:
    """Read a source with columns of text, categories or dates into memory as a table; return anything else as it is.

    Parameters
    ----------
    X : anything that holds rows
    as_text : collection of str
        Columns that were text in training: those of CSV files stay text, even if all values look like numbers.

    Examples
    --------
    >>> from gyrfalcon.sources import as_table
    >>> as_table([[1.0], [2.0]])
    [[1.0], [2.0]]
    """
    if is_dask(X):
        return read_frame(X) if has_text(X) else X
    data = open(X) if is_lazy_table(X) else X
    rows = data.X if isinstance(data, Dataset) else data
    if not isinstance(rows, Rows) or rows.is_numeric(as_text):
        return X
    return data.table(as_text=as_text)


def read_whole(X: Any) -> Any:
    """Read any source into memory with the types of its columns; return anything else as it is.

    Examples
    --------
    >>> from gyrfalcon.sources import ArrayRows, read_whole
    >>> read_whole(ArrayRows([[1.0], [2.0]]))
    array([[1.],
           [2.]])
    """
    if is_dask(X):
        return read_frame(X)
    data = open(X) if is_lazy_table(X) else X
    return data.table() if isinstance(data, Dataset | Rows) else X
