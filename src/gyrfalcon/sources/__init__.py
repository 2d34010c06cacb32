"""Rows that come from somewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from .base import Rows, buffer_bytes, converted, feature_names, fingerprint, is_sparse, mapped, runs_elsewhere, subset
from .dask import DaskRows
from .memory import ArrayRows

__all__ = [
    "ArrayRows",
    "DaskRows",
    "Rows",
    "adopt",
    "as_rows",
    "buffer_bytes",
    "converted",
    "feature_names",
    "fingerprint",
    "is_dask",
    "is_sparse",
    "mapped",
    "runs_elsewhere",
    "subset",
]


def _sparse(X: Any) -> Rows | None:
    if not scipy.sparse.issparse(X):
        return None
    from .sparse import SparseRows

    return SparseRows(X)


def is_dask(X: Any) -> bool:
    """Whether `X` is a Dask collection, found out without Dask."""
    return type(X).__module__.startswith(("dask.", "dask_expr."))


def _dask(X: Any) -> Rows | None:
    if not is_dask(X):
        return None
    from .dask import adopt

    return adopt(X)


def _stored(X: Any) -> Rows | None:
    if not type(X).__module__.startswith(("h5py.", "zarr.")):
        return None
    from .arrays import adopt

    return adopt(X)


# What else than arrays can be made rows of: each gives None for what is not its own
_KINDS: tuple[Callable[[Any], Rows | None], ...] = (_sparse, _dask, _stored)


def adopt(X: Any) -> Rows | None:
    """`X` as a source if it is one or can be one without becoming an array, else None."""
    if isinstance(X, np.ndarray):
        return None
    for kind in _KINDS:
        rows = kind(X)
        if rows is not None:
            return rows
    return X if isinstance(X, Rows) else None


def as_rows(X: Any) -> Rows:
    """`X` itself if it is a source, or the source made of it; an array's rows if it is of no other kind."""
    return adopt(X) or ArrayRows(X)
