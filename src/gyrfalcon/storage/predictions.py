"""Predictions for more rows than memory holds: predicted and written block by block."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.atomic import replacing
from ..sources import Rows, adopt
from ..sources import feature_names as names_of
from ..sources.files import Dataset

__all__ = ["write_predictions"]

Array = NDArray[Any]

_BLOCK_BYTES = 32 << 20
_LEAST_ROWS = 1024


def write_predictions(model: Any, X: Any, path: str | os.PathLike[str], *, method: str = "predict") -> int:
    """Predict block by block and write what comes out to a file, so that neither rows nor predictions fill memory.

    The file is written under another name and moved to its own when it is whole: whatever happens meanwhile, a file
    that was there stays as it was.

    Parameters
    ----------
    model : fitted estimator
        Any with the method.
    X : array, table, sparse matrix or source
        What the method takes; or what `gyrfalcon.open` gives, whose ``X`` is meant.
    path : str or path-like
        Where to write; ``.parquet``, ``.csv`` and ``.npy`` are the formats. A table has one column, "prediction"; or
        one for each class or output, such as "prediction_0", or "probability_yes" of ``predict_proba``.
    method : str
        "predict", "predict_proba", "decision_function" or any other that takes rows and gives one or more numbers or
        labels for each.

    Returns
    -------
    int
        How many rows were written.

    Raises
    ------
    ValueError
        If the suffix is none of those, or predictions cannot be written in that format.
    OSError
        If the file cannot be written, for example because the disk is full.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import gyrfalcon
    >>> X = np.random.default_rng(0).standard_normal((500, 3))
    >>> model = gyrfalcon.FalkonRegressor(n_centers=50).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     name = os.path.join(folder, "predictions.npy")
    ...     print(gyrfalcon.write_predictions(model, X, name), np.load(name).shape)
    500 (500,)
    """
    name = os.fspath(path)
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in WRITERS:
        raise ValueError(f"path={name!r} must end in {', '.join(WRITERS)}: the formats of predictions")
    predict = getattr(model, method, None)
    if not callable(predict):
        raise ValueError(f"{type(model).__name__} has no method {method!r}")
    if isinstance(X, Dataset):
        X = X.X
    folder = os.path.dirname(os.path.realpath(name))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot write {name}: the folder {folder} does not exist")
    rows = adopt(X)
    n = _count(X if rows is None else rows)
    if n == 0:
        raise ValueError("X has no rows to predict for")
    if rows is not None:
        _check_names(rows, model)

    def predicted() -> Generator[Array, None, None]:
        for block in _parts(X) if rows is None else rows.blocks(_size(rows, X)):
            with warnings.catch_warnings():
                if rows is not None:  # names have been checked; a block is an array and has none
                    warnings.filterwarnings("ignore", message="X does not have valid feature names")
                values = np.asarray(predict(block))
            if values.ndim not in (1, 2) or len(values) != _count(block):
                raise ValueError(f"{method} gave an array of shape {values.shape} for {_count(block)} rows")
            yield values

    with closing(predicted()) as blocks, replacing(name) as partial:
        try:
            stream = Stream(blocks, n, method, getattr(model, "classes_", None))
            WRITERS[suffix](partial, stream)
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = name  # what a full disk says does not say where
            raise
    return stream.written


# ---- blocks of rows --------------------------------------------------------------------------------------------------


def _count(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _size(rows: Any, X: Any) -> int:
    """Rows of a block: enough that what a model does for each block at first does not count."""
    n, d = rows.shape
    width = X.nnz // max(1, n) if hasattr(X, "nnz") else d
    return max(_LEAST_ROWS, _BLOCK_BYTES // (8 * max(1, width)))


def _parts(X: Any) -> Iterator[Any]:
    """Arrays, tables and lists cut into blocks that are the same kind of thing."""
    from sklearn.utils import _safe_indexing

    n = _count(X)
    size = _size(X, X) if getattr(X, "ndim", 2) == 2 and hasattr(X, "shape") else _LEAST_ROWS
    for start in range(0, n, size):
        yield _safe_indexing(X, slice(start, min(start + size, n)))


def _check_names(rows: Rows, model: Any) -> None:
    names, known = names_of(rows), getattr(model, "feature_names_in_", None)
    if names is not None and known is not None and list(names) != list(known):
        raise ValueError(
            f"X has the features {list(names)}, but {type(model).__name__} was fitted with {list(known)}: give the "
            "same in the same order, such as open(..., features=list(model.feature_names_in_))"
        )


# ---- formats ---------------------------------------------------------------------------------------------------------


class Stream:
    """Predictions as they are made, and what a format has to know of them before the last one."""

    def __init__(self, blocks: Iterator[Array], n: int, method: str, classes: Any) -> None:
        self.first = next(blocks)
        self.rest = blocks
        self.n = n
        self.method = method
        self.classes = classes if isinstance(classes, np.ndarray) else None  # several outputs have lists of classes
        self.written = 0
        if self.first.dtype.kind not in "fiubUSO":
            raise ValueError(f"{method} gave values of type {self.first.dtype}, which cannot be written")

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        if self.first.ndim == 1:
            return ["prediction"]
        k = self.first.shape[1]
        classes = self.classes if self.classes is not None and len(self.classes) == k else range(k)
        stem = "probability" if self.method == "predict_proba" else "prediction"
        return [f"{stem}_{which}" for which in classes]

    @property
    def dtype(self) -> np.dtype[Any]:
        """A type of fixed size that holds all of them."""
        if self.first.dtype.kind not in "USO":
            return self.first.dtype
        if self.classes is None:  # later ones may be longer than the first
            raise ValueError(f"{self.method} gave text of unknown length: use .parquet or .csv, not .npy")
        return self.classes.astype(str).dtype

    def __iter__(self) -> Iterator[Array]:
        for values in chain([self.first], self.rest):
            if values.shape[1:] != self.first.shape[1:]:
                raise ValueError(
                    f"{self.method} gave values of shape {values.shape[1:]} after {self.first.shape[1:]} before"
                )
            yield values
            self.written += len(values)
        if self.written != self.n:
            raise ValueError(f"X gave {self.written} rows where its shape says {self.n}: did it change meanwhile?")


def _write_parquet(path: str, stream: Stream) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError('Parquet is written by pyarrow: pip install "gyrfalcon[files]"') from error

    def table(values: Array) -> Any:
        return pyarrow.table(dict(zip(stream.names, values.reshape(len(values), -1).T, strict=True)))

    with parquet.ParquetWriter(path, table(stream.first).schema) as writer:
        for values in stream:
            writer.write_table(table(values))


def _write_csv(path: str, stream: Stream) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(stream.names)
        for values in stream:
            # NumPy's text of a number is the shortest that gives it back in its own precision
            lines.writerows(values.reshape(len(values), -1).astype(str).tolist())


def _write_npy(path: str, stream: Stream) -> None:
    dtype = stream.dtype
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (stream.n, *stream.first.shape[1:])})
        for values in stream:
            file.write(np.ascontiguousarray(values, dtype=dtype).data)


WRITERS: dict[str, Callable[[str, Stream], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".npy": _write_npy,
}
