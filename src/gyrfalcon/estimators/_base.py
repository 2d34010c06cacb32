"""The common part of the estimators: predictions, scores, model files and scikit-learn's tags."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import number
from .._utils.compute import Compute
from .._utils.portable import beside, in_float64
from .._utils.words import a
from ..fitting.arguments import described
from ..fitting.attributes import check_attributes
from ..fitting.data import FitData, classification_data, regression_data
from ..fitting.explained import ExpansionPart, Explained, stack_numbers
from ..fitting.rows import Reading, for_score, more_rows, scaled
from ..fitting.scores import long_labelled, long_scored
from ..fitting.session import Session, finite
from ..fitting.targets import class_codes
from ..kernels import Kernel
from ..operators import Operator
from ..operators.choose import PreparedCenters
from ..operators.shapley import Expansion
from ..sources import Rows, as_rows, is_tensor, to_host
from ..sources.tensors import as_given
from ._estimator import Estimator
from ._lazy import lazily
from ._sklearn import CallbackSupportMixin, ClassifierMixin, RegressorMixin

Array = NDArray[Any]


@described
class KernelEstimator(Estimator):
    """A function offset + sum_j coef_j k(x, center_j) of the rows, once it is fitted."""

    fit_intercept: bool
    scale: bool | str
    dtype: Any
    memory_budget: int | float | str
    precision: str | None = None
    n_jobs: int | None

    dual_coef_: Array
    centers_: Any
    kernel_: Kernel
    offset_: Any
    output_dtype_: str = "float32"
    mean_: Array | None
    scale_: Array | None
    n_iter_: int
    history_: list[dict[str, Any]]

    # ---- what is handed down -----------------------------------------------------------------------------------------

    @property
    def _compute(self) -> Compute:
        """Threads, memory, devices and precision, as the parameters set them."""
        return Compute(self.n_jobs, self.memory_budget, self.device, self.precision)

    @property
    def _reading(self) -> Reading:
        """How the parameters ask to read rows."""
        return Reading(
            type(self).__name__, self.kernel, self.dtype, self.scale, self.takes_sparse, self.memory_budget, self.device
        )

    # ---- the end of a fit --------------------------------------------------------------------------------------------

    def _set_solution(self, data: FitData, session: Session) -> None:
        """Set the attributes that every fitted estimator has, whatever its function is made of."""
        self.n_iter_ = session.history[-1]["iteration"]
        self.history_ = session.history
        self._set_scaling(data)
        self.offset_ = data.shown(np.zeros(data.targets.shape[1]) if data.offset is None else data.offset)
        self.output_dtype_ = np.promote_types(data.outputs, data.rows.dtype).name

    def _set_scaling(self, data: FitData) -> None:
        """Set the features, and what they are standardised with."""
        self._set_features(data.features)
        self.mean_, self.scale_ = data.mean, data.scale

    def _set_centers(self, kernel: Kernel, centers: Any) -> None:
        """Set the kernel and the centers, which the first predictions prepare."""
        self.kernel_, self.centers_ = kernel, centers
        self._prepared = PreparedCenters()

    def _set_expansion(self, operator: Operator, coef: Array, data: FitData) -> None:
        """Set the kernel, the centers and their coefficients, given as columns."""
        self._set_centers(operator.kernel, operator.centers)
        self.dual_coef_ = data.shaped(coef)

    # ---- predictions -------------------------------------------------------------------------------------------------

    @property
    def _is_fitted(self) -> bool:
        return "kernel_" in vars(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_fitted

    def _scaled_rows(self, X: Any, dtype: np.dtype[Any]) -> Rows:
        """Return rows to predict for, as the kernel sees them."""
        rows = more_rows(self._reading, self._features, X, standardised=self.scale_ is not None)
        return scaled(rows, self.mean_, self.scale_, dtype)

    def _operator(self, X: Any) -> Operator:
        """Return k(rows, centers) for new rows, which keeps nothing."""
        if not self._is_fitted:  # before centers_ is asked for
            check_is_fitted(self)
        rows = self._scaled_rows(X, self.centers_.dtype)
        if scipy.sparse.issparse(self.centers_) and not rows.is_sparse:
            rows = rows.map(scipy.sparse.csr_array, rows.dtype)
        prepared: PreparedCenters = vars(self).setdefault("_prepared", PreparedCenters())  # a model file has none
        return prepared.operator(self.kernel_, rows, self.centers_, n_jobs=self.n_jobs, device=self.device)

    def _values(self, X: Any) -> Array:
        """Return what is predicted for new rows, of shape (n,) or (n, k); a tensor if they are one."""
        return self._functions(X)

    def _functions(self, X: Any) -> Array:
        """Return the values of the learnt functions, before the inverse link of a loss; shaped as `_values`."""
        return self._from_offset(self._operator(X).image(self.dual_coef_))

    def _expansion(self) -> Expansion | None:
        """Return the learnt functions without the offset as an expansion; None if they are no expansion."""
        centers = self.centers_.toarray() if scipy.sparse.issparse(self.centers_) else self.centers_
        return Expansion(self.kernel_, centers, self.dual_coef_.reshape(len(centers), -1))

    def _numbers(self, X: Any) -> Array:
        """Return rows as the kernel sees them, in memory, dense and in float64."""
        return dense(self._scaled_rows(X, np.dtype(np.float64)))

    def _given_numbers(self, X: Any) -> Array:
        """Return rows as they are given, in memory and dense."""
        return dense(more_rows(self._reading, self._features, X, standardised=self.scale_ is not None))

    def _explained_functions(self) -> Explained:
        """Return what `shapley_values` needs to know of the learnt functions."""
        check_is_fitted(self)
        d = self.n_features_in_
        expansion = self._expansion()
        part = None if expansion is None else ExpansionPart(expansion, self._numbers, np.arange(d))
        return Explained(
            function=lambda X: to_host(self._functions(as_rows(X))),  # a source is not asked for names
            n_features=d,
            names=None if self._features.names is None else [str(name) for name in self._features.names],
            offset=np.atleast_1d(np.asarray(self.offset_, dtype=np.float64)),
            one_column=np.ndim(self.offset_) == 0,
            parts=None if part is None else (part,),
            stack=lambda X, background: stack_numbers(self._given_numbers(X), self._given_numbers(background)),
        )

    def _from_offset(self, f: Array) -> Array:
        """Return function values with the offset."""
        return with_offset(f, self.offset_, self.output_dtype_)

    def _check_loaded(self) -> None:
        """Raise ValueError if attributes that come from a model file do not fit together."""
        self._check_scaling()
        if not isinstance(self.kernel_, Kernel):
            raise ValueError("kernel_ is not a kernel")
        if not (isinstance(self.centers_, np.ndarray) or scipy.sparse.issparse(self.centers_)):
            raise ValueError(f"centers_ is {a(type(self.centers_).__name__)}")
        if self.centers_.ndim != 2 or self.centers_.dtype not in (np.float32, np.float64) or 0 in self.centers_.shape:
            raise ValueError("centers_ is not a matrix of floats")
        M = self.centers_.shape[0]
        if self.dual_coef_.ndim not in (1, 2) or len(self.dual_coef_) != M or self.dual_coef_.dtype.kind != "f":
            raise ValueError(f"dual_coef_ has shape {self.dual_coef_.shape}, and centers_ {self.centers_.shape}")
        if self.n_features_in_ != self.centers_.shape[1]:
            raise ValueError(f"n_features_in_={self.n_features_in_}, but centers_ has shape {self.centers_.shape}")
        numbers = self.centers_.data if scipy.sparse.issparse(self.centers_) else self.centers_
        if not (np.isfinite(numbers).all() and np.isfinite(self.dual_coef_).all()):
            raise ValueError("centers_ or dual_coef_ holds NaN or infinity")
        finite(self.dual_coef_, self.centers_.dtype)
        self._check_offset(self.dual_coef_)
        self.kernel_.resolve(self.centers_)

    def _check_scaling(self) -> None:
        """Raise ValueError if attributes of all estimators come from a model file and do not fit together."""
        check_attributes(vars(self))
        if not isinstance(self.dtype, str | type | np.dtype):
            raise ValueError(f"dtype={self.dtype!r} is no type of numbers")
        for name, value in (("mean_", self.mean_), ("scale_", self.scale_)):
            if value is not None and np.shape(value) != (self.n_features_in_,):
                raise ValueError(f"{name} has shape {np.shape(value)}, and there are {self.n_features_in_} features")
            if value is not None and not (np.asarray(value).dtype.kind == "f" and np.isfinite(value).all()):
                raise ValueError(f"{name} does not hold finite numbers")

    def _check_offset(self, coef: Array) -> None:
        if coef.ndim == 1:
            number(math.isfinite, "a finite number")("offset_", self.offset_)
        elif np.shape(self.offset_) != coef.shape[1:] or not np.isfinite(self.offset_).all():
            raise ValueError(f"offset_={self.offset_!r} does not fit coefficients of shape {coef.shape}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.takes_sparse
        return tags


@described
class KernelRegressor(CallbackSupportMixin, RegressorMixin, KernelEstimator):
    """An estimator that predicts one or several columns of numbers."""

    def _explained(self) -> Explained:
        return self._explained_functions()

    def _data(self, session: Session, *given: Any, **options: Any) -> FitData:
        """Check X, y, sample_weight, X_val and y_val, as given to `fit`; see `regression_data` for the options."""
        return regression_data(
            self._reading,
            *given,
            random_state=session.random_state,
            fit_intercept=self.fit_intercept,
            scratch=session.scratch,
            **options,
        )

    @lazily
    def predict(self, X: Any) -> Array:
        """Predict y.

        Parameters
        ----------
        {predict.X}

        Returns
        -------
        array of shape (n,) or (n, n_outputs); a tensor for a tensor, and a Dask array for a Dask collection
            In the precision of the fit, or in float64 where float32 would round away the variation of y beside a large
            mean (`output_dtype_`).
        """
        return self._values(X)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination R^2 of the predictions; 1 is perfect, 0 is as good as the mean of y.

        Parameters
        ----------
        {score.X, score.y, score.sample_weight}

        Returns
        -------
        float
        """
        from sklearn.metrics import r2_score

        if (long := long_scored(X, y, sample_weight)) is not None:
            return long.determination(self.predict)
        rows, y, sample_weight = for_score(X, y, sample_weight, self.device)
        return float(r2_score(y, to_host(self.predict(rows)), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@described
class KernelClassifier(CallbackSupportMixin, ClassifierMixin, KernelEstimator):
    """An estimator that predicts classes."""

    class_weight: Any
    classes_: Array

    def _explained(self) -> Explained:
        return self._explained_functions()

    def _data(self, session: Session, *given: Any, **options: Any) -> tuple[FitData, Array]:
        """Check X, y, sample_weight, X_val and y_val, as given to `fit`; see `classification_data` for the options."""
        return classification_data(
            self._reading,
            *given,
            random_state=session.random_state,
            fit_intercept=self.fit_intercept,
            class_weight=self.class_weight,
            scratch=session.scratch,
            **options,
        )

    @lazily
    def decision_function(self, X: Any) -> Array:
        """Return the values of the learnt functions: positive for ``classes_[1]``, or largest for the predicted class.

        Parameters
        ----------
        {predict.X}

        Returns
        -------
        array of shape (n,) for two classes, else (n, n_classes)
        """
        return self._values(X)

    @lazily
    def predict(self, X: Any) -> Array:
        """Predict classes.

        Parameters
        ----------
        {predict.X}

        Returns
        -------
        array of shape (n,); a tensor for a tensor, and a Dask array for a Dask collection
        """
        codes = class_codes(self.decision_function(X))
        classes = as_given(self.classes_, codes) if is_tensor(codes) else self.classes_
        predictions: Array = classes[codes if is_tensor(classes) else to_host(codes)]
        return predictions

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy: the share of rows whose class is predicted correctly.

        Parameters
        ----------
        {score.X, classes.y, score.sample_weight}

        Returns
        -------
        float
        """
        from sklearn.metrics import accuracy_score

        if (labels := long_labelled(X, y, sample_weight)) is not None:
            return labels.accuracy(self.predict)
        rows, y, sample_weight = for_score(X, y, sample_weight, self.device)
        return float(accuracy_score(y, to_host(self.predict(rows)), sample_weight=sample_weight))

    def _check_loaded(self) -> None:
        super()._check_loaded()
        self._check_classes(self.dual_coef_)

    def _check_classes(self, coef: Array) -> None:
        columns, n_classes = 1 if coef.ndim == 1 else coef.shape[1], self.classes_.size
        if self.classes_.ndim != 1 or n_classes < 2 or columns != (1 if n_classes == 2 else n_classes):
            raise ValueError(f"coefficients of shape {coef.shape} do not fit classes_ of shape {self.classes_.shape}")


def dense(rows: Rows) -> Array:
    """Return all rows of a source as a dense array in memory."""
    blocks = [np.empty((0, rows.shape[1]), dtype=rows.dtype), *rows.blocks(max(1, rows.shape[0]))]
    return np.concatenate([one.toarray() if scipy.sparse.issparse(one) else to_host(one) for one in blocks])


def with_offset(f: Array, offset: Any, output_dtype: str = "float32") -> Array:
    """Return function values with the offset: added in float64, and rounded to float32 where that is enough."""
    offset = np.atleast_1d(offset)
    if not offset.any():
        return f
    columns = f.reshape(len(f), -1)
    wide = in_float64(columns)
    total = wide + beside(offset, wide)
    if output_dtype == "float64":
        return total.reshape(f.shape)
    columns[:] = total
    return f
