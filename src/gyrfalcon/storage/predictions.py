"""Predictions for more rows than memory holds, computed and written block by block."""

from __future__ import annotations

import csv
import hashlib
import os
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import IO, Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from .._utils.atomic import replacing
from .._utils.version import package_version
from ..sources import Rows, as_source, as_table
from ..sources.files import Dataset
from .parts import PART_ROWS, Parts

Array = NDArray[Any]

_BLOCK_BYTES = 32 << 20
_LEAST_ROWS = 1024


def write_predictions(
    model: Any,
    X: Any,
    path: str | os.PathLike[str],
    *,
    method: str = "predict",
    coverage: float | None = None,
    resume: bool = False,
) -> int:
    """Predict block by block and write the predictions to a file, so that neither rows nor predictions fill memory.

    The file is written under a temporary name and moved when it is complete, so that a failure leaves an existing file
    as it was.

    Parameters
    ----------
    model : fitted estimator
        Any estimator with the method.
    X : array, table, sparse matrix, source or Dataset
        The rows; of what `gyrfalcon.open` returns its ``X`` is taken.
    path : str or path-like
        Where to write: a name that ends in ``.parquet``, ``.csv`` or ``.npy``. A table has one column, "prediction"; or
        one for each class or output, such as "prediction_0", or "probability_yes" for ``predict_proba``.
    method : str
        "predict", "predict_proba", "decision_function" or any other method that takes rows and returns one or more
        numbers or labels for each.
    coverage : float, optional
        Between 0 and 1: write "lower" and "upper" as well, the ends of the intervals that ``model.predict_interval(X,
        coverage)`` returns.
    resume : bool, default=False
        Whether to continue after a run that was killed. Finished predictions are kept in a hidden folder beside `path`,
        in parts of about a million rows, until the file is complete; it then has the same bits as without a break. X
        must be a source such as ``gyrfalcon.open`` returns, and the model must be the same: one with other predictions
        for the first rows is refused.

    Returns
    -------
    int
        The number of rows written.

    Raises
    ------
    ValueError
        If the suffix is another one, predictions cannot be written in that format, or there are parts of other
        predictions.
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
    _check_path(name)
    if coverage is not None:
        model, method = WithInterval(model, coverage, method), "predict"
    if resume:
        return write_in_parts(model, X, name, method, partial(_identity, model, X, method))
    with Predictions(model, X, method) as predictions:
        return write(predictions, name)


def _identity(model: Any, X: Any, method: str) -> str:
    """Tell a model from others, which may be of any library, by its predictions for the first rows."""
    with Predictions(model, X, method, block_rows=_LEAST_ROWS) as predictions:
        values = predictions.first
        text = values.tobytes() if values.dtype.kind != "O" else repr(values.tolist()).encode()
    return f"one with the predictions {hashlib.sha256(text).hexdigest()[:16]} for the first rows"


def write_in_parts(
    model: Any,
    X: Any,
    name: str,
    method: str,
    identify: Callable[[], str],
    *,
    tables: bool = False,
    as_text: Collection[str] = (),
) -> int:
    """Write predictions to a file, and continue with the parts that an earlier run has left; return the rows.

    `identify` returns a text that tells the model from others. See `Predictions` for `tables` and `as_text`.
    """
    _check_path(name)
    rows = as_source(X.X if isinstance(X, Dataset) else X)
    if rows is None:
        raise ValueError("resume=True is for rows of a source, such as gyrfalcon.open(...): an array needs no parts")
    n, size = rows.shape[0], _block_rows(rows.shape, rows)
    step = size * -(-PART_ROWS // size)
    parts = Parts(
        name,
        {
            "the rows": rows.fingerprint(),
            "the model": identify(),
            "what is predicted": method,
            "the number of rows of a part": str(step),
            "gyrfalcon's version": package_version(),
        },
    )
    with parts.opened():
        first = min(parts.count(), max(0, -(-n // step) - 1))  # at least the last one, for names and types
        options: dict[str, Any] = {"block_rows": size, "start": first * step, "tables": tables, "as_text": as_text}
        with Predictions(model, rows, method, **options) as predictions:
            for number, values in enumerate(_joined(predictions, step), first):
                parts.add(number, predictions.names, values)
        write(StoredPredictions(predictions, parts, -(-n // step)), name)
        parts.remove()
    return n


def _joined(blocks: Iterable[Array], step: int) -> Iterator[Array]:
    """Join blocks to arrays of `step` rows, a multiple of theirs."""
    waiting: list[Array] = []
    for values in blocks:
        waiting.append(values)
        if sum(map(len, waiting)) >= step:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _check_path(name: str) -> None:
    if os.path.splitext(name)[1].lower() not in WRITERS:
        raise ValueError(f"path={name!r} must end in {', '.join(WRITERS)}: the formats of predictions")
    folder = os.path.dirname(os.path.realpath(name))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot write {name}: the folder {folder} does not exist")


def write(predictions: Written, name: str) -> int:
    """Write predictions to a file, under a temporary name until it is complete, and return the number of rows."""
    _check_path(name)
    suffix = os.path.splitext(name)[1].lower()
    with replacing(name) as partial:
        try:
            WRITERS[suffix](partial, predictions)
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = name  # the error of a full disk names no file
            raise
    return predictions.written


class Predictions:
    """The predictions for rows, made block by block as they are iterated over, once.

    Blocks of a source have `block_rows` rows, by default enough that the fixed cost of a block does not matter. `n` is
    the number of rows of X, `first` holds the predictions for the first block, and `written` counts the rows that were
    iterated over. Predictions begin at row `start`, a multiple of `block_rows`. With `tables`, and where columns are
    not numbers, the model is given tables with the types of the columns, in which those in `as_text` are text.
    """

    def __init__(
        self,
        model: Any,
        X: Any,
        method: str = "predict",
        *,
        block_rows: int | None = None,
        start: int = 0,
        tables: bool = False,
        as_text: Collection[str] = (),
    ) -> None:
        predict = getattr(model, method, None)  # the user names the method of an estimator that may be of any library
        if not callable(predict):
            raise ValueError(f"{type(model).__name__} has no method {method!r}")
        X = as_table(X)
        if isinstance(X, Dataset):
            X = X.X
        rows = as_source(X)
        self.n = _num_samples(X if rows is None else rows)
        if self.n == 0:
            raise ValueError("X has no rows to predict for")
        tables = rows is not None and (tables or not rows.is_numeric())
        if rows is None:
            read: Callable[[], Iterator[Any]] = partial(_blocks_like, X)
        else:
            _check_names(rows, model)
            size = block_rows or _block_rows(rows.shape, X)
            read = partial(rows.tables_from, size, start, as_text) if tables else partial(rows.blocks_from, size, start)
        self.start = start
        classes = getattr(model, "classes_", None)  # scikit-learn's, of classifiers only
        self.classes = classes if isinstance(classes, np.ndarray) else None  # several outputs have lists of classes
        self.method, self._model = method, model
        self.written = 0
        # names were checked above, and the blocks of a source are arrays, which have none
        self._rest = _predict_blocks(predict, read, method, ignore_names=rows is not None and not tables)
        self.first = next(self._rest)
        if self.first.dtype.kind not in "fiubUSO":
            self._rest.close()
            raise ValueError(f"{method} gave values of type {self.first.dtype}, which cannot be written")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._rest.close()

    @property
    def names(self) -> list[str]:
        """Names of the columns, after the prediction or the classes."""
        if isinstance(self._model, WithInterval):
            return self._model.names(self.first)
        if self.first.ndim == 1:
            return ["prediction"]
        k = self.first.shape[1]
        classes = self.classes if self.classes is not None and len(self.classes) == k else range(k)
        stem = "probability" if self.method == "predict_proba" else "prediction"
        return [f"{stem}_{which}" for which in classes]

    @property
    def dtype(self) -> np.dtype[Any]:
        """A type of fixed size that holds every prediction."""
        if self.first.dtype.kind not in "USO":
            return self.first.dtype
        if self.classes is None:  # later ones may be longer than the first
            raise ValueError(f"{self.method} gave text of unknown length: use .parquet or .csv, not .npy")
        return self.classes.astype(str).dtype

    def __iter__(self) -> Iterator[Array]:
        for values in chain([self.first], self._rest):
            if values.shape[1:] != self.first.shape[1:]:
                raise ValueError(
                    f"{self.method} gave values of shape {values.shape[1:]} after {self.first.shape[1:]} before"
                )
            yield values
            self.written += len(values)
        if self.start + self.written != self.n:
            given = self.start + self.written
            raise ValueError(f"X gave {given} rows where its shape says {self.n}: did it change meanwhile?")


class StoredPredictions:
    """Predictions that are all in parts, for the writers of files; names and types are those of `predictions`."""

    def __init__(self, predictions: Predictions, parts: Parts, count: int) -> None:
        self.names, self.dtype_of, self.n = predictions.names, predictions, predictions.n
        self.parts, self.count = parts, count
        self.written = 0
        self.shape = predictions.first.shape[1:]
        self.first = self._read(0)

    @property
    def dtype(self) -> np.dtype[Any]:
        """A type of fixed size that holds every prediction."""
        return self.dtype_of.dtype

    def _read(self, number: int) -> Array:
        values = self.parts.read(number)
        return values.reshape(len(values), *self.shape)

    def __iter__(self) -> Iterator[Array]:
        for number in range(self.count):
            yield (values := self._read(number))
            self.written += len(values)
        if self.written != self.n:
            raise ValueError(
                f"{self.parts.folder} has {self.written} predictions for {self.n} rows: remove it, and begin again"
            )


class WithInterval:
    """A model whose predictions have the ends of their intervals beside them."""

    def __init__(self, model: Any, coverage: float, method: str = "predict") -> None:
        if method != "predict":
            raise ValueError(f"coverage={coverage} is for the intervals of predict, not of {method}")
        if not callable(getattr(model, "predict_interval", None)):  # of a model of any library
            raise ValueError(f"coverage={coverage}: {type(model).__name__} has no predict_interval")
        self.model, self.coverage = model, coverage

    def predict(self, X: Any) -> Array:
        """Return prediction, lower and upper end for each row; of several targets one after another."""
        ends = np.asarray(self.model.predict_interval(X, self.coverage))
        lower, upper = ends[:, 0].reshape(len(ends), -1), ends[:, 1].reshape(len(ends), -1)
        predictions = np.asarray(self.model.predict(X)).reshape(len(ends), -1)
        if predictions.shape != lower.shape:
            raise ValueError(
                f"the model has {predictions.shape[1]} predictions for an interval: write them without coverage"
            )
        return np.stack([predictions, lower, upper], axis=2).reshape(len(ends), -1)

    @staticmethod
    def names(values: Array) -> list[str]:
        """Return the names of the columns of predictions."""
        parts, outputs = ("prediction", "lower", "upper"), values.shape[1] // 3
        return [part if outputs == 1 else f"{part}_{k}" for k in range(outputs) for part in parts]


Written = Predictions | StoredPredictions


# ---- blocks of rows --------------------------------------------------------------------------------------------------


def _predict_blocks(
    predict: Callable[[Any], Any], read: Callable[[], Iterator[Any]], method: str, *, ignore_names: bool
) -> Generator[Array, None, None]:
    for block in read():  # an iterator that no frame of a traceback keeps alive, so that files are closed at once
        with warnings.catch_warnings():
            if ignore_names:
                warnings.filterwarnings("ignore", message="X does not have valid feature names")
            values = np.asarray(predict(block))
        n = _num_samples(block)
        if values.ndim not in (1, 2) or len(values) != n:
            raise ValueError(f"{method} gave an array of shape {values.shape} for {n} rows")
        yield values


def _block_rows(shape: tuple[int, int], X: Any) -> int:
    """Return the number of rows of a block: enough that a model's fixed cost for each block does not matter."""
    n, d = shape
    width = X.nnz // max(1, n) if scipy.sparse.issparse(X) else d
    return max(_LEAST_ROWS, _BLOCK_BYTES // (8 * max(1, width)))


def _blocks_like(X: Any) -> Iterator[Any]:
    """Cut an array, a table or a list into blocks of the same type."""
    n = _num_samples(X)
    shape: Any = (n,) if isinstance(X, Sequence) else np.shape(X)
    size = _block_rows(shape, X) if len(shape) == 2 else _LEAST_ROWS
    for start in range(0, n, size):
        yield _safe_indexing(X, slice(start, min(start + size, n)))


def _check_names(rows: Rows, model: Any) -> None:
    model = model.model if isinstance(model, WithInterval) else model
    names, known = rows.feature_names, getattr(model, "feature_names_in_", None)  # scikit-learn's, of tables only
    if names is not None and known is not None and list(names) != list(known):
        raise ValueError(
            f"X has the features {list(names)}, but {type(model).__name__} was fitted with {list(known)}: give the "
            "same in the same order, such as open(..., features=list(model.feature_names_in_))"
        )


# ---- formats ---------------------------------------------------------------------------------------------------------


def write_csv(file: IO[str], predictions: Written) -> None:
    """Write predictions as CSV to a text stream, after a line with the names of the columns."""
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(predictions.names)
    for values in predictions:
        # NumPy's text of a number is the shortest that gives it back in its own precision
        lines.writerows(values.reshape(len(values), -1).astype(str).tolist())


def _write_parquet(path: str, predictions: Written) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("writing Parquet needs pyarrow: pip install pyarrow") from error

    def table(values: Array) -> Any:
        return pyarrow.table(dict(zip(predictions.names, values.reshape(len(values), -1).T, strict=True)))

    with parquet.ParquetWriter(path, table(predictions.first).schema) as writer:
        for values in predictions:
            writer.write_table(table(values))


def _write_csv_file(path: str, predictions: Written) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        write_csv(file, predictions)


def _write_npy(path: str, predictions: Written) -> None:
    dtype = predictions.dtype
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (predictions.n, *predictions.first.shape[1:])})
        for values in predictions:
            file.write(np.ascontiguousarray(values, dtype=dtype).data)


WRITERS: dict[str, Callable[[str, Written], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv_file,
    ".npy": _write_npy,
}
