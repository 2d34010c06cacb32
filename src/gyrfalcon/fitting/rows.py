"""Make rows of what `fit` and `predict` are given: arrays, tensors, tables, sparse matrices, files, Dask.

`classify` finds out once what X is: a source of rows, or something in memory that scikit-learn's checks convert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import _get_feature_names, check_array

from .._utils.devices import require_precision
from .._utils.memory import format_bytes, require
from .._utils.ranges import check_range
from .._utils.warnings import warn
from .._utils.words import a, shown
from ..kernels import Kernel, KernelFunction, as_kernel
from ..sources import ArrayRows, Rows, TensorRows, as_rows, as_source, has_metric, is_dask, near, to_host
from ..sources.blocks import stack
from ..sources.columns import Column, Vector
from ..sources.dask import compute
from ..sources.files import Dataset, is_lazy_table
from ..sources.memory import REMEDY, check_columns
from ..sources.rereading import checked_rows
from ..sources.scaling import Standardize
from ..sources.scratch import Scratch
from ..sources.sparse import warn_of_conversion
from .weights import Counted, count

Array = NDArray[Any]

_READ_ROWS = 65_536  # rows of a block, when a stream is read into memory
# Numbers of X up to which looking for NaN costs little beside scikit-learn's checks, which are then left out
_FEW_NUMBERS = 65_536
_LISTED_NAMES = 5  # names of features that a message lists, as scikit-learn's do


class Reading(NamedTuple):
    """How an estimator reads rows.

    owner : name of the estimator's class, for messages
    kernel : the parameter `kernel`, on which ``scale="auto"`` depends
    dtype : precision of the kernel, or "auto"
    scale : whether features are standardised, or "auto"; see `is_scaled`
    sparse : whether sparse rows are accepted
    device : where products are computed; tensors that are already there stay there
    """

    owner: str
    kernel: Kernel | str | KernelFunction = "gaussian"
    dtype: Any = "auto"
    scale: bool | str = False
    sparse: bool = False
    memory_budget: int | float | str = "auto"
    device: Any = None

    @property
    def narrows(self) -> bool:
        """Whether rows of any precision are converted to float32."""
        return not follows_rows(self.dtype) and np.dtype(self.dtype) == np.float32


class Features(NamedTuple):
    """The number of features of the rows that an estimator is fitted to, and their names or None."""

    n: int
    names: NDArray[np.object_] | None = None

    def check(self, rows: Rows, owner: str) -> None:
        """Raise ValueError unless the rows of a source have these features, in this order."""
        d, names = rows.shape[1], rows.feature_names
        if d != self.n:
            raise ValueError(f"X has {d} features, but {owner} is expecting {self.n} features as input")
        if names is not None and self.names is not None and list(self.names) != list(names):
            at = next(i for i, (a, b) in enumerate(zip(self.names, names, strict=True)) if a != b)
            raise ValueError(
                f"feature {at} of X is {shown(names[at])}, but {owner} was fitted with {shown(self.names[at])} there: "
                "give the same features in the same order, such as open(..., features=list(model.feature_names_in_))"
            )

    def check_names(self, names: NDArray[np.object_] | None, owner: str) -> None:
        """Compare the names of a table's columns with these, with the messages of scikit-learn."""
        if self.names is None or names is None:
            if names is not None:
                warn(f"X has feature names, but {owner} was fitted without feature names", UserWarning)
            elif self.names is not None:
                warn(f"X does not have valid feature names, but {owner} was fitted with feature names", UserWarning)
            return
        if np.array_equal(self.names, names):
            return
        unexpected, missing = set(names) - set(self.names), set(self.names) - set(names)
        message = "The feature names should match those that were passed during fit.\n"
        for title, found in (
            ("Feature names unseen at fit time:\n", unexpected),
            ("Feature names seen at fit time, yet now missing:\n", missing),
        ):
            if found:
                message += title + "".join(f"- {name}\n" for name in sorted(found)[:_LISTED_NAMES])
                message += "- ...\n" if len(found) > _LISTED_NAMES else ""
        if not (unexpected or missing):
            message += "Feature names must be in the same order as they were in fit.\n"
        raise ValueError(message)


# ---- what fit is given -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FitInput:
    """The arguments of `fit`, after `classify` has looked at them.

    X : Rows, or an array-like or sparse matrix that scikit-learn's checks convert
    y, weight : in host memory, or None
    metric : whether distances between the rows are already meaningful, see `has_metric`
    """

    X: Any
    y: Any = None
    weight: Any = None
    metric: bool = False


def classify(X: Any, y: Any = None, weight: Any = None, *, device: Any = None) -> FitInput:
    """Find out what X is; Dask collections in `y` and `weight` are computed by the client of X.

    A tensor that is already on `device`, where products are computed, stays there.
    """
    X = near(X, device)
    if scipy.sparse.issparse(X):
        warn_of_conversion(X)
        return FitInput(X, computed(y), computed(weight))
    source = as_source(X)
    y = y if isinstance(y, Column) else computed(y, source)
    weight = weight if isinstance(weight, Vector) else computed(weight, source)
    return FitInput(X if source is None else source, y, weight, has_metric(X))


def labelled(X: Any, y: Any, sample_weight: Any = None, *, in_file: bool = False) -> tuple[Any, Any, Any]:
    """Return rows, y and weights; those of a `Dataset` are used if they are not given.

    With `in_file`, a long target of a `Dataset` is a `Column`, which stays in a file, and so are its weights.
    """
    if is_lazy_table(y):
        raise TypeError(
            f"y is {a(type(y).__name__)}, whose values have not been computed yet: use open(frame, target=...)"
        )
    if is_lazy_table(X):
        X = as_rows(X)
    if not isinstance(X, Dataset):
        return X, y, sample_weight
    if y is None and in_file and sample_weight is None:
        y = X.long_target()
    if isinstance(y, Column) and sample_weight is None:
        return X.X, y, X.long_weight()
    if y is None:
        y = X.y
        if y is None:
            raise ValueError("y is not given, and X was opened without a target: use open(path, target=...)")
    return X.X, y, X.weight if sample_weight is None else sample_weight


@dataclass(frozen=True)
class Training:
    """The rows of a fit that have a weight, as they were given.

    `standardised` says whether features are to be standardised, and `metric` whether distances are already meaningful.
    """

    rows: Rows
    counted: Counted
    features: Features
    standardised: bool
    metric: bool


def training_rows(
    reading: Reading, given: FitInput, *, random_access: bool = False, scratch: Scratch | None = None
) -> Training:
    """Check the rows of a fit, and leave out those of weight 0.

    Input in memory is checked by scikit-learn, including rows of weight 0; a source is checked by the same rules, block
    by block. With `random_access` rows are taken repeatedly in any order, so a stream is read into memory. Rows that
    are slow to read are kept in `scratch` for later passes.
    """
    X = given.X
    if not isinstance(X, Rows):
        X, names = _checked(reading, X)
        counted = count(given.weight, X.shape[0])
        rows = as_rows(X)
        require_precision(reading.device, tile_dtype(reading.dtype, rows))
        standardised = _standardises(reading, rows, given.metric)
        if not standardised:
            _check_range(reading, counted.among(X), "X", training=True)
        return Training(counted.rows(rows), counted, Features(X.shape[1], names), standardised, given.metric)
    names = None if X.feature_names is None else np.asarray(X.feature_names, dtype=object)
    counted = count(given.weight, X.shape[0])
    standardised = _standardises(reading, X, given.metric)
    if isinstance(X, TensorRows) and not standardised:
        _check_range(reading, counted.rows(X), "X", training=True)
    if X.shape[0] == 0:
        raise ValueError("X has no rows: at least one is needed")
    _check_kind(reading, X)
    require_precision(reading.device, tile_dtype(reading.dtype, X))
    rows = counted.rows(_in_memory(reading, X) if random_access else X)
    rows = rows if scratch is None else scratch.rows(rows)
    return Training(rows, counted, Features(X.shape[1], names), standardised, given.metric)


def more_rows(reading: Reading, features: Features, X: Any, name: str = "X", *, standardised: bool) -> Rows:
    """Return rows with the features that an estimator was fitted to; ranges are checked unless `standardised` next."""
    if not _needs_no_checks(features, X):
        X = classify(X, device=reading.device).X
        if isinstance(X, Rows):
            features.check(X, reading.owner)
            _check_kind(reading, X)
            if isinstance(X, TensorRows) and not standardised:
                _check_range(reading, X, name, training=False)
            return X
        X, _ = _checked(reading, X, features)
    if not standardised:
        _check_range(reading, X, name, training=False)
    return as_rows(X)


# ---- as the kernel sees them -----------------------------------------------------------------------------------------


def tile_dtype(dtype: Any, rows: Rows) -> np.dtype[Any]:
    """Return the precision of the kernel that the parameter `dtype` asks for."""
    return np.dtype(rows.dtype if follows_rows(dtype) else dtype)


def follows_rows(dtype: Any) -> bool:
    """Whether the parameter `dtype` leaves the precision to the rows."""
    return isinstance(dtype, str) and dtype == "auto"


def is_scaled(scale: bool | str, kernel: Kernel | str | KernelFunction, *, sparse: bool, metric: bool) -> bool:
    """Whether the parameter `scale` asks for features to be standardised.

    "auto" leaves rows as they are if a parameter of the kernel is in their units, if their distances are meaningful
    (`metric`, see `has_metric`), or if they are sparse.
    """
    if not isinstance(scale, str):
        return bool(scale)
    return not (sparse or metric or as_kernel(kernel).has_given_scale)


def scaled(rows: Rows, mean: Array | None, scale: Array | None, dtype: np.dtype[Any]) -> Rows:
    """Return the rows as the kernel sees them: standardised if there is a `scale`, and in its precision."""
    if scale is None:
        return rows.astype(dtype)
    return rows.map(Standardize(mean, scale, dtype), dtype)


# ---- predictions and scores ------------------------------------------------------------------------------------------


def computed(y: Any, rows: Any = None) -> Any:
    """Return `y` in host memory: a Dask collection is computed, by the client of the rows if they have one."""
    return compute(to_host(y), client=rows.client if isinstance(rows, Rows) else None)


def at_once(X: Any) -> Any:
    """Return rows whose predictions are computed immediately as arrays of NumPy."""
    if isinstance(X, TensorRows):
        return to_host(X.X)
    return as_rows(X) if is_dask(X) else read_again(to_host(X))


def read_again(X: Any) -> Any:
    """Return rows that are read more than once: a stream raises an error if two readings differ."""
    source = None if scipy.sparse.issparse(X) or is_dask(X) else as_source(X)
    return X if source is None else checked_rows(source)


def for_score(X: Any, y: Any, sample_weight: Any, device: Any = None) -> tuple[Any, Any, Any]:
    """Return the arguments of `score` in a form whose predictions are computed immediately.

    They are arrays of NumPy, except for tensors that stay on a device.
    """
    X, y, sample_weight = labelled(X, y, sample_weight)
    if y is None:
        raise ValueError("score needs y, the true values of these rows")
    rows = as_rows(X) if is_dask(X) else near(X, device)
    return rows, computed(y, rows), computed(sample_weight, rows)


# ---- checks ----------------------------------------------------------------------------------------------------------


def _checked(reading: Reading, X: Any, features: Features | None = None) -> tuple[Any, NDArray[np.object_] | None]:
    """Return `X` after scikit-learn's checks, and the names of its columns; `features` are those expected."""
    check_columns(X)
    names = _get_feature_names(X)
    if features is not None:
        features.check_names(names, reading.owner)
    try:
        checked = check_array(
            X,
            accept_sparse="csr" if reading.sparse else False,
            dtype=[np.float64, np.float32],
            estimator=reading.owner,
            input_name="X",
        )
    except ValueError as error:
        if "could not convert string to float" in str(error):
            raise ValueError(f"X holds text: {error}. Encode it: {REMEDY}") from None
        if "does not accept missing values" not in str(error):
            raise
        raise ValueError(
            f"Input X contains NaN, and {reading.owner} does not accept missing values: begin a pipeline "
            "with gyrfalcon.TableEncoder or scikit-learn's SimpleImputer, or use AutoRegressor or AutoClassifier, "
            "which take tables with gaps"
        ) from None
    if features is not None and checked.shape[1] != features.n:
        raise ValueError(
            f"X has {checked.shape[1]} features, but {reading.owner} is expecting {features.n} features as input."
        )
    return checked, names


def _needs_no_checks(features: Features, X: Any) -> bool:
    """Whether scikit-learn's checks, which take longer than predicting a few rows, would return `X` itself.

    Anything that they might refuse, warn of or convert is left to them.
    """
    return (
        type(X) is np.ndarray
        and X.dtype in (np.float64, np.float32)
        and X.ndim == 2
        and 0 < X.size <= _FEW_NUMBERS
        and X.shape[1] == features.n
        and features.names is None
        and bool(np.isfinite(X).all())
    )


def _standardises(reading: Reading, rows: Rows, metric: bool) -> bool:
    return is_scaled(reading.scale, reading.kernel, sparse=rows.is_sparse, metric=metric)


def _check_range(reading: Reading, X: Any, name: str, *, training: bool) -> None:
    """Check that arrays and tensors are in the range of float32; only training data must not vanish there.

    Streams are checked when they are read.
    """
    if not reading.narrows or X.dtype == np.float32:
        return
    if isinstance(X, TensorRows):
        X = X.extremes()
    check_range(X.data if scipy.sparse.issparse(X) else X, np.float32, name, too_small=training)


def _check_kind(reading: Reading, source: Rows) -> None:
    """Raise an error for a source whose rows the estimator cannot use."""
    if source.dtype not in (np.float32, np.float64):
        raise ValueError(f"rows of type {source.dtype} cannot be used: a source must give float32 or float64")
    if source.is_sparse and not reading.sparse:
        raise TypeError(f"X is sparse, and {reading.owner} needs dense rows: use a FALKON estimator")


def _in_memory(reading: Reading, source: Rows) -> Rows:
    """Read a source into memory, for a solver that takes rows in any order."""
    size = source.shape[0] * source.shape[1] * source.dtype.itemsize
    require(
        reading.memory_budget,
        size,
        f"{reading.owner} takes rows at random and needs X in memory, {format_bytes(size)}",
        "use FalkonRegressor or FalkonClassifier, which read it as a stream",
    )
    X = stack(list(source.blocks(_READ_ROWS)))
    if X.shape != source.shape:
        raise ValueError(f"the source gave rows of shape {X.shape} where its shape says {source.shape}")
    return ArrayRows(X)
