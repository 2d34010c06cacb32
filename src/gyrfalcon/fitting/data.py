"""FitData: everything a fit learns from, checked once and then only read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Number
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from .._utils.memory import limit_of
from .._utils.ranges import check_range, check_squares, power_of_two
from .._utils.statistics import average, means
from .._utils.words import shown
from ..losses import Loss, Squared
from ..sources import ArrayRows, Rows
from ..sources.metric import has_metric
from ..sources.scratch import Scratch
from .rows import (
    Reader,
    computed,
    follows_rows,
    labelled,
    require_one_label,
    scaled,
    standardises,
    tile_dtype,
    training_rows,
    validation_rows,
)
from .weights import Counted, count

Array = NDArray[Any]
Error = Callable[[Array, Array | None, Array], float]

_SHARE_HELD = 8  # of the memory, for rows of a file that are held out
_BARELY_ROUNDED = 1e-4  # of the standard deviation of y, which predictions in float32 may be rounded by


class Learner(Reader, Protocol):
    """An estimator, as far as it decides what is learnt."""

    @property
    def fit_intercept(self) -> bool:
        """Whether f is measured from the best constant."""
        ...


@dataclass(frozen=True)
class Validation:
    """Rows on which the validation error is measured.

    Attributes
    ----------
    rows : rows, as the kernel sees them
    targets : array of shape (n_val, k)
    weight : array of shape (n_val,), or None
    error : function of targets, weight and predictions that gives a number
    """

    rows: Rows
    targets: Array
    weight: Array | None
    error: Error

    def measure(self, predictions: Array) -> float:
        """Return the error of predictions of these rows, of shape (n_val, k)."""
        return self.error(self.targets, self.weight, predictions)


@dataclass(frozen=True)
class FitData:
    """What a fit learns from.

    Attributes
    ----------
    rows : the training rows as the kernel sees them: standardised if asked for, in the kernel's precision; those of
        weight 0 have been left out
    targets : array of shape (n, k); what the kernel's part of f is fitted to, for the squared loss y less the offset
    weight : positive sample weights with mean 1, or None
    validation : rows for the validation error, or None
    loss : what is minimised, with what depends on the targets worked out
    offset : array of shape (k,) that predictions are measured from, or None for 0
    mean, scale : what features were standardised with; `mean` is None for sparse rows, both if they were not
    metric : whether distances between the rows had a meaning before, see `has_metric`
    flat : whether coefficients and predictions of one column have no second axis
    counted : which of the rows that `fit` was given these are, before some were held out; None if that is not known
    outputs : the least precision of predictions, which float32 would round too far where the offset is large
    feature_names : names of the features, or None
    dtype_given : whether the user chose the precision of the rows, which is then kept
    """

    rows: Rows
    targets: Array
    weight: Array | None = None
    validation: Validation | None = None
    loss: Loss = field(default_factory=Squared)
    offset: Array | None = None
    mean: Array | None = None
    scale: Array | None = None
    metric: bool = False
    flat: bool = False
    counted: Counted | None = None
    outputs: np.dtype[Any] = field(default_factory=partial(np.dtype, np.float32))
    feature_names: Array | None = None
    dtype_given: bool = False

    @property
    def is_least_squares(self) -> bool:
        """Whether the solution is that of one linear system."""
        return type(self.loss) is Squared

    def shaped(self, coef: Array) -> Array:
        """Return coefficients of shape (M, k) in the shape that an estimator shows: (M,) if y has no second axis."""
        return coef[:, 0] if self.flat else coef

    def shown(self, values: Array) -> Any:
        """Return one number for each of the k columns as an estimator shows it: a float if y has no second axis."""
        return float(values[0]) if self.flat else values

    def of_all(self, predictions: Array) -> Array:
        """Return predictions of the rows in the shape of y, with NaN for rows of weight 0."""
        shaped = self.shaped(predictions)
        return shaped if self.counted is None else self.counted.spread(shaped, np.nan)

    def in_precision(self, dtype: Any) -> FitData:
        """Return the same data with rows of another precision."""
        validation = self.validation
        if validation is not None:
            validation = replace(validation, rows=validation.rows.astype(dtype))
        return replace(self, rows=self.rows.astype(dtype), validation=validation)

    def validation_error(self, f: Array) -> float:
        """Return the validation error of the function values `f` of the validation rows, without the offset."""
        assert self.validation is not None
        return self.validation.measure(f if self.offset is None else f + self.offset)


# ---- regression ------------------------------------------------------------------------------------------------------


def regression_data(
    estimator: Learner,
    X: Any,
    y: Any,
    sample_weight: ArrayLike | None,
    X_val: Any,
    y_val: Any,
    *,
    random_state: np.random.RandomState,
    hold_out: float | None = None,
    random_access: bool = False,
    loss: Loss | None = None,
    copies: int | None = None,
    scratch: Scratch | None = None,
) -> FitData:
    """Check what `fit` of a regressor is given.

    Parameters
    ----------
    estimator : estimator
        Its `n_features_in_` and `feature_names_in_` are set.
    X, y, sample_weight, X_val, y_val : as given to `fit`
    random_state : RandomState
        By which rows are held out.
    hold_out : float, optional
        Share of the rows that is held out for validation if `fit` is given no validation rows.
    random_access : bool
        Whether the solver takes rows in any order.
    loss : Loss, optional
        The squared loss by default.
    copies : int, optional
        So many columns are to be learnt of one column of y.
    scratch : Scratch, optional
        Where rows that are slow to read are kept for later passes.
    """
    X, y, sample_weight = labelled(X, y, sample_weight)
    X_val, y_val, _ = labelled(X_val, y_val)
    checks = {"multi_output": True, "y_numeric": True}
    rows, y, counted = training_rows(
        estimator, X, y, sample_weight, random_access=random_access, scratch=scratch, **checks
    )
    weight = counted.weight
    targets = _copied(_as_columns(y, "y"), copies, "y")
    error: Error = root_mean_square
    loss = Squared() if loss is None else loss
    loss.check(targets)
    if type(loss) is not Squared:
        of_all = loss.resolve(targets, weight)
        error = partial(mean_loss, of_all)
        if of_all.unit(targets, weight) == 1:
            check_squares(targets, tile_dtype(estimator.dtype, rows), "y")
    standardised = standardises(estimator, X, rows)
    given = validation_rows(estimator, X_val, y_val, standardised=standardised, scratch=scratch)
    held = None
    if given is not None:
        y_val = check_array(computed(y_val, given), ensure_2d=False, dtype=None, input_name="y_val")
        _check_lengths(given, y_val)
        held_targets = _copied(_as_columns(y_val, "y_val"), copies, "y_val")
        loss.check(held_targets, "y_val")
        if held_targets.shape[1] != targets.shape[1]:
            raise ValueError(f"y_val has shape {y_val.shape} and y has shape {y.shape}: outputs must agree")
        held = Validation(given, held_targets, None, error)
    data = _split_and_scaled(
        estimator,
        FitData(
            rows,
            targets,
            weight,
            held,
            metric=has_metric(X),
            flat=y.ndim == 1 and copies is None,
            counted=counted,
        ),
        standardised,
        error,
        hold_out,
        None,
        random_state,
    )
    # rows that were held out have no say in it
    data = replace(data, loss=loss.resolve(data.targets, data.weight))
    return _from_offset(data) if estimator.fit_intercept else data


def _copied(y: Array, copies: int | None, name: str) -> Array:
    if copies is None:
        return y
    if y.shape[1] != 1:
        raise ValueError(f"{name} has {y.shape[1]} columns: several quantiles can be learnt of one column only")
    return np.repeat(y, copies, axis=1)


def _as_columns(y: Array, name: str) -> Array:
    if y.dtype.kind not in "fiub":
        raise ValueError(f"{name} of type {y.dtype} is not numbers: FalkonClassifier learns labels")
    dtype = y.dtype if y.dtype == np.float32 else np.float64
    return y.astype(dtype, copy=False).reshape(len(y), -1)


def root_mean_square(targets: Array, weight: Array | None, predictions: Array) -> float:
    """Return the root of the mean squared error over rows and columns."""
    errors = predictions - targets.astype(np.float64)
    largest = float(np.abs(errors).max())
    if not 0 < largest < np.inf:
        return largest
    return largest * float(np.sqrt(np.average(np.square(errors / largest).mean(axis=1), weights=weight)))


def mean_loss(loss: Loss, targets: Array, weight: Array | None, f: Array) -> float:
    """Return the mean of a loss over rows and columns."""
    with np.errstate(over="ignore"):
        values = loss.value(targets.astype(np.float64), f.astype(np.float64)).mean(axis=1)
    return float(np.average(values, weights=weight))


# ---- classification --------------------------------------------------------------------------------------------------


def classification_data(
    estimator: Learner,
    X: Any,
    y: Any,
    sample_weight: ArrayLike | None,
    X_val: Any,
    y_val: Any,
    *,
    random_state: np.random.RandomState,
    class_weight: Any,
    hold_out: float | None = None,
    random_access: bool = False,
    make_loss: Callable[[int], Loss] | None = None,
    scratch: Scratch | None = None,
) -> tuple[FitData, Array]:
    """Check what `fit` of a classifier is given.

    Labels become columns of +1 and -1, or of 1 and 0 where a loss couples the columns.

    Parameters
    ----------
    estimator : estimator
        Its `n_features_in_` and `feature_names_in_` are set.
    X, y, sample_weight, X_val, y_val : as given to `fit`
    random_state, hold_out, random_access, scratch : as for `regression_data`
    class_weight : dict, "balanced" or None
    make_loss : callable, optional
        Gives the loss for a number of classes; the squared loss by default.

    Returns
    -------
    data : FitData
    classes : array of shape (n_classes,)
    """
    X, y, sample_weight = labelled(X, y, sample_weight)
    X_val, y_val, _ = labelled(X_val, y_val)
    require_one_label(estimator, y)
    rows, y, counted = training_rows(
        estimator, X, mixed_labels(y), sample_weight, random_access=random_access, scratch=scratch
    )
    y = sortable_labels(y, "y")
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    require_classes(classes)
    weight = with_class_weight(class_weight, counted.weight, classes, codes)
    if weight is not None:  # rows of a class of weight 0 are left out, and it remains a class
        more = count(weight, len(codes))
        rows, codes, counted = more.rows(rows), more.among(codes), counted.then(more)
    loss = Squared() if make_loss is None else make_loss(len(classes))
    as_columns = indicators if loss.coupled else signs
    error: Error = share_wrong if type(loss) is Squared else partial(mean_loss, loss)
    standardised = standardises(estimator, X, rows)
    given = validation_rows(estimator, X_val, y_val, standardised=standardised, scratch=scratch)
    held = None
    if given is not None:
        y_val = sortable_labels(column_or_1d(mixed_labels(computed(y_val, given)), warn=True), "y_val")
        _check_lengths(given, y_val)
        unseen = sorted(set(y_val.tolist()) - set(classes.tolist()), key=str)
        if unseen:
            raise ValueError(f"y_val has classes that y has not: {unseen}")
        held = Validation(given, as_columns(np.searchsorted(classes, y_val), len(classes)), None, error)
    targets = as_columns(codes, len(classes)).astype(tile_dtype(estimator.dtype, rows))
    data = FitData(
        rows, targets, counted.weight, held, loss, metric=has_metric(X), flat=len(classes) == 2, counted=counted
    )
    data = _split_and_scaled(estimator, data, standardised, error, hold_out, codes, random_state)
    return (_from_offset(data) if estimator.fit_intercept else data), classes


def signs(codes: Array, n_classes: int) -> Array:
    """Return targets +1 and -1: one column for two classes, else one for each."""
    if n_classes == 2:
        return 2.0 * codes[:, None] - 1.0
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)


def indicators(codes: Array, n_classes: int) -> Array:
    """Return targets 1 and 0: one column for each class."""
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, 0.0)


def class_codes(values: Array) -> Array:
    """Return the number of the class that each row of decision values, an array or a tensor, stands for."""
    values = values.reshape(len(values), -1)
    return (values[:, 0] > 0) * 1 if values.shape[1] == 1 else values.argmax(1)


def share_wrong(targets: Array, weight: Array | None, values: Array) -> float:
    """Return the share of rows whose class is not the one of the largest value."""
    return float(np.average(class_codes(values) != class_codes(targets), weights=weight))


def mixed_labels(y: Any) -> Any:
    """Return a list of strings and other labels as an array of objects: NumPy would make all of them strings."""
    if not isinstance(y, list | tuple):
        return y
    strings = [isinstance(label, str) for label in y]
    if all(strings) or not any(strings):
        return y
    labels = np.empty(len(y), dtype=object)
    labels[:] = y
    return labels


def sortable_labels(y: Array, name: str) -> Array:
    """Return labels that can be sorted: those that are Python objects must be all strings or all numbers."""
    if y.dtype != object or all(isinstance(label, str) for label in y):
        return y
    if all(isinstance(label, Number | np.bool_) for label in y):
        return np.asarray(y.tolist())
    kinds = sorted({type(label).__name__ for label in y})
    raise ValueError(f"{name} has labels of types {', '.join(kinds)}: they must be all strings or all numbers")


def require_classes(classes: Array) -> None:
    """Raise ValueError unless there are at least two classes."""
    if len(classes) < 2:
        raise ValueError(f"y has one class, {shown(classes[0])}, among the rows that count: at least two are needed")


def with_class_weight(class_weight: Any, weight: Array | None, classes: Array, codes: Array) -> Array | None:
    """Return the weights of rows times those of their classes."""
    if class_weight is None:
        return weight
    rows = np.ones(len(codes)) if weight is None else weight
    if isinstance(class_weight, str) and class_weight == "balanced":
        # a row of weight 2 is two rows, here too
        totals = np.bincount(codes, weights=rows)
        each = totals.sum() / np.where(totals > 0, totals, np.inf) / len(classes)
    else:
        each = compute_class_weight(class_weight, classes=classes, y=classes[codes])
    if not (np.isfinite(each).all() and (each >= 0).all() and (rows * each[codes]).any()):
        raise ValueError(f"class_weight={shown(class_weight)} must be finite, not negative, and not zero for every row")
    return np.asarray(rows * each[codes])


# ---- both ------------------------------------------------------------------------------------------------------------


def _check_lengths(X: Rows, y: Array) -> None:
    if X.shape[0] != len(y):
        raise ValueError(f"X_val has {X.shape[0]} rows and y_val {len(y)}: inconsistent numbers of samples")


def _split_and_scaled(
    estimator: Learner,
    data: FitData,
    standardised: bool,
    error: Error,
    hold_out: float | None,
    stratify: Array | None,
    random_state: np.random.RandomState,
) -> FitData:
    """Hold out rows for validation if there are none, standardise features or not, and convert rows to `dtype`."""
    dtype = tile_dtype(estimator.dtype, data.rows)
    check_range(data.targets, dtype, "y")  # which predictions could not be
    if data.validation is None and hold_out is not None:
        data = _split(data, error, hold_out, stratify, random_state)
        data = replace(data, validation=_taken_out(data.validation, estimator.memory_budget))
    mean, scale = None, None
    if standardised:
        mean, scale = data.rows.moments(data.weight).mean_and_scale(data.rows.feature_names)
    held, weight = data.validation, data.weight
    if held is not None:
        held = replace(held, rows=scaled(held.rows, mean, scale, dtype))
    if weight is not None:
        weight = weight / weight.mean()
    return replace(
        data,
        rows=scaled(data.rows, mean, scale, dtype),
        weight=weight,
        validation=held,
        mean=mean,
        scale=scale,
        feature_names=vars(estimator).get("feature_names_in_"),
        dtype_given=not follows_rows(estimator.dtype),
    )


class _TakenOut(ArrayRows):
    """Rows of a file, read into memory; the fingerprint is the file's, so that a fit is resumed with either."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows.take(np.arange(rows.shape[0])))
        self.feature_names = rows.feature_names
        self._origin = rows

    def fingerprint(self) -> str:
        return self._origin.fingerprint()


def _taken_out(held: Validation | None, memory_budget: int | float | str) -> Validation | None:
    """Return held-out rows of a file in memory, for which it would be read whenever the error is measured.

    They stay in the file if they would take more than an eighth of the memory.
    """
    if held is None or held.rows.in_memory or held.rows.runs_elsewhere:
        return held
    (n, d), size = held.rows.shape, held.rows.dtype.itemsize
    if held.rows.is_sparse or n * d * size > limit_of(memory_budget) // _SHARE_HELD:
        return held
    return replace(held, rows=_TakenOut(held.rows))


def drowns(level: Array, targets: Array, weight: Array | None) -> bool:
    """Whether numbers near `level`, of shape (k,), lose what differs between rows when they are rounded to float32."""
    unit = power_of_two(targets, axis=0)  # so that no square overflows
    mean = means(targets, weight) / unit
    deviation = np.sqrt(average(targets, weight, lambda part: np.square(part / unit - mean)))
    rounding = float(np.finfo(np.float32).eps) * np.abs(level) / unit
    varies = deviation > 1e-14 * np.abs(mean)  # and not by rounding alone
    return bool((varies & (rounding > _BARELY_ROUNDED * deviation)).any())


def _from_offset(data: FitData) -> FitData:
    """Measure f from the best constants; what least squares are to explain is the rest, computed in float64."""
    offset = data.loss.offset(data.targets, data.weight)
    data = replace(data, outputs=np.dtype(np.float64 if drowns(offset, data.targets, data.weight) else np.float32))
    if not data.is_least_squares:
        return replace(data, offset=offset)
    rest = np.empty_like(data.targets)
    with np.errstate(over="ignore"):  # in parts: all of it in float64 would be the most that a fit from files takes
        np.subtract(data.targets, offset, out=rest, casting="same_kind")
    check_range(rest, rest.dtype, "y less its mean", too_small=False)
    return replace(data, targets=rest, offset=offset)


def _split(
    data: FitData, error: Error, share: float, stratify: Array | None, random_state: np.random.RandomState
) -> FitData:
    """Hold out a random share of the rows, with the same proportions of the classes if there are enough of each."""
    from sklearn.model_selection import train_test_split

    weight, n = data.weight, data.rows.shape[0]
    count = max(1, round(share * n))
    if count >= n:
        raise ValueError(
            f"there are no rows to hold out for validation, with n_samples={n}: give X_val and y_val, or do without "
            "validation (such as early_stopping=False)"
        )
    if stratify is not None:
        counts = np.unique(stratify, return_counts=True)[1]
        if counts.min() < 2 or len(counts) > min(count, n - count):
            stratify = None  # too few of a class to share out
    train, held = train_test_split(np.arange(n), test_size=count, random_state=random_state, stratify=stratify)
    train, held = np.sort(train), np.sort(held)
    validation = Validation(data.rows.subset(held), data.targets[held], None if weight is None else weight[held], error)
    return replace(
        data,
        rows=data.rows.subset(train),
        targets=data.targets[train],
        weight=None if weight is None else weight[train],
        validation=validation,
    )
