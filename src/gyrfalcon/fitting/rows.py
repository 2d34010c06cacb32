"""Make rows of what `fit` and `predict` are given: arrays, tensors, tables, sparse matrices, files, Dask."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import _check_y, validate_data

from .._utils.memory import format_bytes, require
from .._utils.ranges import check_range
from .._utils.words import a, shown
from ..kernels import Kernel, KernelFunction, as_kernel
from ..sources import ArrayRows, Rows, TensorRows, as_rows, as_source, is_dask, near, to_host
from ..sources.blocks import stack
from ..sources.columns import REMEDY, check_columns
from ..sources.dask import compute
from ..sources.files import Dataset, is_lazy_table
from ..sources.metric import has_metric
from ..sources.rereading import checked_rows
from ..sources.scaling import Standardize
from ..sources.scratch import Scratch
from ..sources.sparse import warn_of_conversion
from .weights import Counted, count

Array = NDArray[Any]

_READ_ROWS = 65_536
_FEW_NUMBERS = 65_536  # in which looking for NaN costs little beside scikit-learn's checks


class Reader(Protocol):
    """An estimator, as far as it decides how rows are read."""

    takes_sparse: ClassVar[bool]
    n_features_in_: int

    @property
    def kernel(self) -> Kernel | str | KernelFunction:
        """The kernel."""
        ...

    @property
    def device(self) -> Any:
        """Where products are computed: tensors that are there already stay there."""
        ...

    @property
    def dtype(self) -> Any:
        """Precision of the kernel, or "auto"."""
        ...

    @property
    def scale(self) -> bool | str:
        """Whether features are standardised, or "auto"; see `is_scaled`."""
        ...

    @property
    def memory_budget(self) -> int | float | str:
        """Bytes that the fit may take."""
        ...


def training_rows(
    estimator: Reader,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    random_access: bool,
    scratch: Scratch | None = None,
    **checks: bool,
) -> tuple[Rows, Array, Counted]:
    """Return the rows and y of `fit` that have a weight, and set the attributes that describe features.

    Input in memory is checked by scikit-learn, and a source by the same rules block by block. Rows of weight 0 are
    checked too, if they are in memory, and then left out.

    Parameters
    ----------
    estimator : estimator
    X, y, sample_weight : as given to `fit`
    random_access : bool
        Whether rows are taken in any order again and again, so that a stream must be read into memory.
    scratch : Scratch, optional
        Where rows that are slow to read are kept for later passes.
    **checks : what scikit-learn's checks of y are told
    """
    X, y = near(X, estimator.device), to_host(y)
    source = _as_source(X)
    if source is None:
        check_columns(X)
        standardised = standardises(estimator, X)
        X, y = _checked(estimator, X, y, **checks)
        counted = count(computed(sample_weight), len(y))
        rows = _rows_in_memory(estimator, X, "X", standardised=standardised, training=True, counted=counted)
        return rows, counted.among(y), counted
    _check_features(estimator, source, reset=True)
    counted = count(computed(sample_weight, source), source.shape[0])
    standardised = standardises(estimator, X, source)
    _check_range(estimator, counted.rows(source), "X", standardised=standardised, training=True)
    rows = counted.rows(_readable(estimator, source, random_access))
    if y is None:
        raise ValueError(f"{type(estimator).__name__} needs y, what is to be learnt, such as open(path, target=...).y")
    y = _check_y(computed(y, source), estimator=estimator, **checks)
    if len(y) != source.shape[0]:
        raise ValueError(f"X has {source.shape[0]} rows and y has {len(y)}: they must be of the same length")
    return (rows if scratch is None else scratch.rows(rows)), counted.among(y), counted


def labelled(X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Any, Any]:
    """Return rows, y and weights: of a `Dataset` its own, where they are not given."""
    if is_lazy_table(y):
        raise TypeError(f"y is {a(type(y).__name__)}, whose values are not there yet: use open(frame, target=...)")
    if is_lazy_table(X):
        X = as_rows(X)
    if not isinstance(X, Dataset):
        return X, y, sample_weight
    if y is None:
        y = X.y
        if y is None:
            raise ValueError("y is not given, and X was opened without a target: use open(path, target=...)")
    return X.X, y, X.weight if sample_weight is None else sample_weight


def require_one_label(estimator: Any, y: Any) -> None:
    """Raise ValueError if y has several columns, which scikit-learn learns with one classifier each."""
    try:
        shape = tuple(y.shape)  # of an array that is computed later, too
    except AttributeError:
        shape = np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        name = type(estimator).__name__
        raise ValueError(
            f"y should be a 1d array, got an array of shape {shape} instead: {name} learns one label a row. For "
            f"several labels a row use sklearn.multioutput.MultiOutputClassifier({name}(...)), or for a matrix of 0 "
            f"and 1 sklearn.multiclass.OneVsRestClassifier({name}(...)); if the columns are one-hot classes, give "
            "y.argmax(axis=1)"
        )


def unlabelled_rows(
    estimator: Reader, X: Any, scratch: Scratch | None = None, sample_weight: Any = None
) -> tuple[Rows, Counted]:
    """Return the rows of a `fit` without y, and set the attributes that describe features; see `training_rows`."""
    X = to_host(X)
    source = _as_source(X)
    if source is None:
        check_columns(X)
        standardised = standardises(estimator, X)
        X = _checked(estimator, X)
        counted = count(computed(sample_weight), X.shape[0])
        rows = _rows_in_memory(estimator, X, "X", standardised=standardised, training=True, counted=counted)
        return rows, counted
    _check_features(estimator, source, reset=True)
    counted = count(computed(sample_weight, source), source.shape[0])
    rows = counted.rows(_readable(estimator, source, random_access=False))
    return (rows if scratch is None else scratch.rows(rows)), counted


def plain_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Return the rows for an estimator that neither scales them nor has a memory budget."""
    X = to_host(X)
    source = _as_source(X)
    if source is None:
        return as_rows(_checked(estimator, X, reset=reset))
    _check_features(estimator, source, reset=reset)
    return _readable(estimator, source, random_access=False)


def more_rows(estimator: Reader, X: Any, name: str = "X", *, standardised: bool) -> Rows:
    """Return rows with the features that the estimator was fitted to, which are standardised next or not."""
    if _needs_no_checks(estimator, X):
        return _rows_in_memory(estimator, X, name, standardised=standardised, training=False)
    X = near(X, estimator.device)
    source = _as_source(X)
    if source is None:
        check_columns(X)
        X = _checked(estimator, X, reset=False)
        return _rows_in_memory(estimator, X, name, standardised=standardised, training=False)
    _check_features(estimator, source, reset=False)
    _check_range(estimator, source, name, standardised=standardised, training=False)
    return source


def validation_rows(
    estimator: Reader, X_val: Any, y_val: Any, *, standardised: bool, scratch: Scratch | None = None
) -> Rows | None:
    """Return the rows of the validation set that `fit` was given, if it was given one; see `training_rows`."""
    if (X_val is None) != (y_val is None):
        missing = "y_val" if y_val is None else "X_val"
        raise ValueError(f"X_val and y_val go together: {missing} is missing")
    if X_val is None:
        return None
    rows = more_rows(estimator, X_val, "X_val", standardised=standardised)
    return rows if scratch is None else scratch.rows(rows)


def tile_dtype(dtype: Any, rows: Rows) -> np.dtype[Any]:
    """Return the precision of the kernel that the parameter `dtype` asks for."""
    return np.dtype(rows.dtype if follows_rows(dtype) else dtype)


def follows_rows(dtype: Any) -> bool:
    """Whether the parameter `dtype` leaves the precision to the rows."""
    return isinstance(dtype, str) and dtype == "auto"


def is_scaled(scale: bool | str, kernel: Kernel | str | KernelFunction, *, sparse: bool, metric: bool) -> bool:
    """Whether the parameter `scale` asks for features to be standardised.

    "auto" leaves rows as they are where a number of the kernel is in their units, where their distances have a meaning
    (`metric`, see `has_metric`), and where they are sparse.
    """
    if not isinstance(scale, str):
        return bool(scale)
    return not (sparse or metric or as_kernel(kernel).has_given_scale)


def standardises(estimator: Reader, X: Any, rows: Rows | None = None) -> bool:
    """Whether the features of `X`, as it was given to `fit`, are standardised; `rows` are those made of it, if any."""
    sparse = scipy.sparse.issparse(X) if rows is None else rows.is_sparse
    return is_scaled(estimator.scale, estimator.kernel, sparse=sparse, metric=has_metric(X))


def scaled(rows: Rows, mean: Array | None, scale: Array | None, dtype: np.dtype[Any]) -> Rows:
    """Return the rows as the kernel sees them: standardised if there is a `scale`, and in its precision."""
    if scale is None:
        return rows.astype(dtype)
    return rows.map(Standardize(mean, scale, dtype), dtype)


def computed(y: Any, rows: Any = None) -> Any:
    """Return `y` in host memory: a Dask collection is computed, by the client of the rows if they have one."""
    return compute(to_host(y), client=rows.client if isinstance(rows, Rows) else None)


def at_once(X: Any) -> Any:
    """Return rows for which predictions are made at once, and are arrays of NumPy."""
    if isinstance(X, TensorRows):
        return to_host(X.X)
    return as_rows(X) if is_dask(X) else read_again(to_host(X))


def read_again(X: Any) -> Any:
    """Return rows that are read more than once: those of a stream raise an error where two readings differ."""
    source = None if scipy.sparse.issparse(X) or is_dask(X) else as_source(X)
    return X if source is None else checked_rows(source)


def for_score(X: Any, y: Any, sample_weight: Any, device: Any = None) -> tuple[Any, Any, Any]:
    """Return what `score` is given in a form for which predictions are made at once.

    They are arrays of NumPy, but for tensors that stay on a device.
    """
    X, y, sample_weight = labelled(X, y, sample_weight)
    if y is None:
        raise ValueError("score needs y, the true values of these rows")
    rows = as_rows(X) if is_dask(X) else near(X, device)
    return rows, computed(y, rows), computed(sample_weight, rows)


# ---- the kinds of input ----------------------------------------------------------------------------------------------


def _checked(estimator: Reader, X: Any, y: Any = "no_validation", **checks: bool) -> Any:
    """Return what scikit-learn's checks make of `X`, and of `y` if it is given."""
    accepted = "csr" if estimator.takes_sparse else False
    try:
        return validate_data(estimator, X, y, accept_sparse=accepted, dtype=[np.float64, np.float32], **checks)
    except ValueError as error:
        if "could not convert string to float" in str(error):
            raise ValueError(f"X holds text: {error}. Encode it: {REMEDY}") from None
        if "does not accept missing values" not in str(error):
            raise
        raise ValueError(
            f"Input X contains NaN, and {type(estimator).__name__} does not accept missing values: begin a pipeline "
            "with gyrfalcon.TableEncoder or scikit-learn's SimpleImputer, or use AutoRegressor or AutoClassifier, "
            "which take tables with gaps"
        ) from None


def _as_source(X: Any) -> Rows | None:
    """Return `X` as a source, or None if scikit-learn's checks are made for it."""
    if scipy.sparse.issparse(X):
        warn_of_conversion(X)
        return None
    return as_source(X)


def _needs_no_checks(estimator: Reader, X: Any) -> bool:
    """Whether scikit-learn's checks would return `X` itself: they take longer than the prediction of a few rows.

    What they might refuse, warn of or convert is left to them.
    """
    return (
        type(X) is np.ndarray
        and X.dtype in (np.float64, np.float32)
        and X.ndim == 2
        and 0 < X.size <= _FEW_NUMBERS
        and X.shape[1] == estimator.n_features_in_
        and "feature_names_in_" not in vars(estimator)
        and bool(np.isfinite(X).all())
    )


def _rows_in_memory(
    estimator: Reader, X: Array, name: str, *, standardised: bool, training: bool, counted: Counted | None = None
) -> Rows:
    """Return checked arrays and CSR matrices as rows, without those of weight 0."""
    rows = as_rows(X)
    if not standardised and _may_leave_range(estimator, rows):
        some: Any = X if counted is None else counted.among(X)
        check_range(some.data if scipy.sparse.issparse(X) else some, np.float32, name, too_small=training)
    return rows if counted is None else counted.rows(rows)


def _check_range(estimator: Reader, source: Rows, name: str, *, standardised: bool, training: bool) -> None:
    """Check that numbers of a tensor are numbers in float32; those of streams are looked at when they are read."""
    if isinstance(source, TensorRows) and not standardised and _may_leave_range(estimator, source):
        check_range(source.extremes(), np.float32, name, too_small=training)


def _may_leave_range(estimator: Reader, rows: Rows) -> bool:
    """Whether rows are converted to float32; only training rows must not vanish there."""
    float32 = not follows_rows(estimator.dtype) and np.dtype(estimator.dtype) == np.float32
    return float32 and rows.dtype != np.float32


def _readable(estimator: Reader, source: Rows, random_access: bool) -> Rows:
    """Return the source, or its rows in memory where a stream does not do."""
    n, d = source.shape
    if n == 0:
        raise ValueError("X has no rows: at least one is needed")
    if source.dtype not in (np.float32, np.float64):
        raise ValueError(f"rows of type {source.dtype} cannot be used: a source must give float32 or float64")
    if source.is_sparse and not estimator.takes_sparse:
        raise TypeError(f"X is sparse, and {type(estimator).__name__} needs dense rows: use a FALKON estimator")
    if not random_access:
        return source
    size = n * d * source.dtype.itemsize
    require(
        estimator.memory_budget,
        size,
        f"{type(estimator).__name__} takes rows at random and needs X in memory, {format_bytes(size)}",
        "use FalkonRegressor or FalkonClassifier, which read it as a stream",
    )
    X = stack(list(source.blocks(_READ_ROWS)))
    if X.shape != (n, d):
        raise ValueError(f"the source gave rows of shape {X.shape} where its shape says {(n, d)}")
    return ArrayRows(X)


def _check_features(estimator: Any, rows: Rows, *, reset: bool) -> None:
    """Check the number and the names of features by scikit-learn's rules, for rows that are not in memory."""
    d, names = rows.shape[1], rows.feature_names
    if reset:
        estimator.n_features_in_ = d
        vars(estimator).pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = np.asarray(names, dtype=object)
        return
    name = type(estimator).__name__
    if d != estimator.n_features_in_:
        raise ValueError(f"X has {d} features, but {name} is expecting {estimator.n_features_in_} features as input")
    known = vars(estimator).get("feature_names_in_")
    if names is not None and known is not None and list(known) != list(names):
        at = next(i for i, (a, b) in enumerate(zip(known, names, strict=True)) if a != b)
        raise ValueError(
            f"feature {at} of X is {shown(names[at])}, but {name} was fitted with {shown(known[at])} there: "
            "give the same features in the same order, such as open(..., features=list(model.feature_names_in_))"
        )
