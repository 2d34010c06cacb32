"""What `fit` and `predict` are given, made into rows: arrays, tables, sparse matrices, files, Dask collections."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight, _check_y, check_is_fitted, validate_data

from .._utils.memory import format_bytes, require
from .._utils.ranges import check_range
from ..sources import ArrayRows, Rows, adopt, as_rows, converted, feature_names, is_dask, is_sparse, mapped
from ..sources.base import stack
from ..sources.scaling import Standardize, moments
from ..sources.sparse import warn_of_conversion
from ._sklearn import BaseEstimator

Array = NDArray[Any]

_READ_ROWS = 65_536


class TakesRows(BaseEstimator):
    """Checks input by scikit-learn's rules where it is in memory, and by the same rules block by block where not."""

    dtype: Any
    memory_budget: int | float | str
    scale: bool

    takes_sparse: ClassVar[bool] = False
    n_features_in_: int
    feature_names_in_: Array
    mean_: Array | None
    scale_: Array

    @property
    def _random_access(self) -> bool:
        """Whether rows are taken here and there, again and again, so that a stream will not do."""
        return False

    @property
    def _accepts(self) -> str | bool:
        """What scikit-learn's checks let pass beside dense arrays."""
        return "csr" if self.takes_sparse else False

    def _training_rows(self, X: Any, y: Any, **checks: bool) -> tuple[Rows, Array]:
        """Rows and y of `fit`; the attributes that describe features are set."""
        source = self._source(X)
        if source is None:
            X, y = validate_data(self, X, y, accept_sparse=self._accepts, dtype=[np.float64, np.float32], **checks)
            return self._in_memory(X, training=True), y
        self._check_features(source, reset=True)
        rows = self._readable(source)
        if y is None:
            raise ValueError(f"{type(self).__name__} needs y, what is to be learnt, such as open(path, target=...).y")
        y = _check_y(gathered(y, source), estimator=self, **checks)
        if len(y) != source.shape[0]:
            raise ValueError(f"X has {source.shape[0]} rows and y has {len(y)}: they must be of the same length")
        return rows, y

    def _more_rows(self, X: Any, name: str = "X") -> Rows:
        """Rows of the kind that the estimator was fitted to."""
        source = self._source(X)
        if source is None:
            X = validate_data(self, X, reset=False, accept_sparse=self._accepts, dtype=[np.float64, np.float32])
            return self._in_memory(X, name)
        self._check_features(source, reset=False)
        return source

    def _new_rows(self, X: Any, dtype: np.dtype[Any]) -> Rows:
        """Rows to predict for."""
        return self._prepared(self._more_rows(X), dtype)

    def _tile_dtype(self, rows: Rows) -> np.dtype[Any]:
        if isinstance(self.dtype, str) and self.dtype == "auto":
            return np.dtype(rows.dtype)
        return np.dtype(self.dtype)

    def _prepared(self, rows: Rows, dtype: np.dtype[Any]) -> Rows:
        """The rows as the kernel sees them: scaled where that was asked for, and in its precision."""
        if hasattr(self, "scale_"):
            return mapped(rows, Standardize(self.mean_, self.scale_, dtype), dtype)
        return converted(rows, dtype)

    def _learn_scale(self, rows: Rows, weight: Array | None) -> None:
        """Find what `scale=True` needs to know, in one pass; forget what an earlier fit knew."""
        for name in ("mean_", "scale_"):
            self.__dict__.pop(name, None)
        if self.scale:
            self.mean_, self.scale_ = moments(rows, weight)

    def _check_weight(self, sample_weight: ArrayLike | None, rows: Rows) -> Array | None:
        if sample_weight is None:
            return None
        of_each = np.broadcast_to(0.0, (rows.shape[0], 1))
        given = gathered(sample_weight, rows)
        weight: Array = _check_sample_weight(given, of_each, dtype=np.float64, ensure_non_negative=True)
        if not weight.max() > 0:
            raise ValueError("sample_weight is zero for every row: at least one row must count")
        weight = weight / weight.max()  # so that no sum of them overflows
        return weight

    def _check_validation(self, X_val: Any, y_val: Any) -> Rows | None:
        if (X_val is None) != (y_val is None):
            missing = "y_val" if y_val is None else "X_val"
            raise ValueError(f"X_val and y_val go together: {missing} is missing")
        return None if X_val is None else self._more_rows(X_val, "X_val")

    # ---- the kinds of input ------------------------------------------------------------------------------------------

    def _source(self, X: Any) -> Rows | None:
        """`X` as a source, None for what scikit-learn's checks are made for."""
        if scipy.sparse.issparse(X):
            warn_of_conversion(X, stacklevel=5)
            return None
        return adopt(X)

    def _in_memory(self, X: Array, name: str = "X", *, training: bool = False) -> Rows:
        """Checked arrays and CSR matrices; beside rows that were learnt from, others may be as good as 0."""
        float32 = not (isinstance(self.dtype, str) and self.dtype == "auto") and np.dtype(self.dtype) == np.float32
        if float32 and not self.scale and X.dtype != np.float32:
            stored: Any = X.data if scipy.sparse.issparse(X) else X
            check_range(stored, np.float32, name, too_small=training)
        return as_rows(X)

    def _readable(self, source: Rows) -> Rows:
        """The source, or its rows in memory where the method cannot do with a stream."""
        n, d = source.shape
        if n == 0:
            raise ValueError("X has no rows: at least one is needed")
        if source.dtype not in (np.float32, np.float64):
            raise ValueError(f"rows of type {source.dtype} cannot be used: a source must give float32 or float64")
        if is_sparse(source) and not self.takes_sparse:
            raise TypeError(f"X is sparse, and {type(self).__name__} needs dense rows: use a FALKON estimator")
        if not self._random_access:
            return source
        size = n * d * source.dtype.itemsize
        require(
            self.memory_budget,
            size,
            f"{type(self).__name__} takes rows at random and needs X in memory, {format_bytes(size)}",
            "use FalkonRegressor or FalkonClassifier, which read it as a stream",
        )
        X = stack(list(source.blocks(_READ_ROWS)))
        if X.shape != (n, d):
            raise ValueError(f"the source gave rows of shape {X.shape} where its shape says {(n, d)}")
        return ArrayRows(X)

    def _check_features(self, rows: Rows, *, reset: bool) -> None:
        """scikit-learn's checks of the number and the names of features, for rows that are not in memory."""
        d, names = rows.shape[1], feature_names(rows)
        if reset:
            self.n_features_in_ = d
            self.__dict__.pop("feature_names_in_", None)
            if names is not None:
                self.feature_names_in_ = np.asarray(names, dtype=object)
            return
        if d != self.n_features_in_:
            raise ValueError(
                f"X has {d} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input"
            )
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and list(known) != list(names):
            at = next(i for i, (a, b) in enumerate(zip(known, names, strict=True)) if a != b)
            raise ValueError(
                f"feature {at} of X is {names[at]!r}, but {type(self).__name__} was fitted with {known[at]!r} there: "
                "give the same features in the same order, such as open(..., features=list(model.feature_names_in_))"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.takes_sparse
        return tags


def lazily(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Around a method that predicts: for a Dask collection it gives a Dask array, which is computed when asked for."""

    @wraps(method)
    def predict(self: Any, X: Any) -> Any:
        if not is_dask(X):
            return method(self, X)
        from ..sources.dask import predict_lazily

        check_is_fitted(self)
        return predict_lazily(self, X, method.__name__)

    return predict


def gathered(y: Any, rows: Any = None) -> Any:
    """`y` in memory: what Dask has promised is computed, by the client of the rows if they have one."""
    if not is_dask(y):
        return y
    from ..sources.dask import gather

    return gather(y, client=getattr(rows, "client", None))


def in_memory(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """What `score` is given, so that predictions are made at once and can be compared."""
    rows = adopt(X) if is_dask(X) else X
    return rows, gathered(y, rows), gathered(sample_weight, rows)


def check_lengths(X: Rows, y: Array) -> None:
    """Whether validation rows and their targets are equally many."""
    if X.shape[0] != len(y):
        raise ValueError(f"X_val has {X.shape[0]} rows and y_val {len(y)}: inconsistent numbers of samples")
