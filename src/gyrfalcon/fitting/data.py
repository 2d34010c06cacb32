"""FitData: everything a fit learns from, checked once and then only read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from .._utils.memory import limit_of
from .._utils.ranges import check_range, check_squares, power_of_two
from .._utils.sampling import Rest, draw
from .._utils.statistics import average, means, total
from ..losses import Loss, Squared
from ..sources import ArrayRows, Rows, columns
from ..sources.columns import Column, Vector
from ..sources.files import Dataset
from ..sources.scratch import Scratch
from .rows import (
    Features,
    Reading,
    Training,
    classify,
    computed,
    follows_rows,
    labelled,
    more_rows,
    scaled,
    tile_dtype,
    training_rows,
)
from .targets import (
    Error,
    check_lengths,
    check_outputs,
    check_y,
    held_out,
    indicators,
    mean_loss,
    mixed_labels,
    number_columns,
    require_both,
    require_classes,
    require_known_classes,
    require_one_label,
    root_mean_square,
    share_wrong,
    signs,
    sortable_labels,
    with_class_weight,
)
from .weights import Counted, count

Array = NDArray[Any]

# Most rows of those that are held out of 2 million or more: enough to tell a root mean squared error to 0.2%
MOST_HELD = 1 << 17
_SHARE_HELD = 8  # held-out rows of a file are kept in memory if they take at most 1/8 of the budget
_BARELY_ROUNDED = 1e-4  # rounding that predictions in float32 may have, in standard deviations of y


@dataclass(frozen=True)
class Validation:
    """Rows as the kernel sees them, on which the validation error is measured."""

    rows: Rows
    targets: Array
    weight: Array | None
    error: Error

    def measure(self, predictions: Array) -> float:
        """Return the error of predictions of these rows, of shape (n_val, k)."""
        return self.error(self.targets, self.weight, predictions)


@dataclass(frozen=True)
class FitData:
    """Everything a fit learns from.

    rows : training rows of positive weight as the kernel sees them: standardised if requested, in the kernel's
        precision
    targets : array of shape (n, k) that the kernel's part of f is fitted to; y minus the offset for the squared loss
    weight : positive sample weights with mean 1, or None
    loss : the loss, with parameters that depend on the targets resolved
    offset : array of shape (k,) that is added to predictions, or None for 0
    mean, scale : moments that features were standardised with; `mean` is None for sparse rows, both if they were not
    metric : whether distances between the original rows are meaningful, see `has_metric`
    flat : whether coefficients and predictions of one column have no second axis
    counted : which of the rows given to `fit` these are, before some were held out; None if unknown
    kept : which of those rows remain after some were held out; None for all
    outputs : the lowest precision of predictions; float64 if float32 would round too much beside a large offset
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
    kept: NDArray[np.intp] | Rest | None = None
    outputs: np.dtype[Any] = field(default_factory=partial(np.dtype, np.float32))
    feature_names: NDArray[np.object_] | None = None
    dtype_given: bool = False

    @property
    def features(self) -> Features:
        """The features of the rows."""
        return Features(self.rows.shape[1], self.feature_names)

    @property
    def is_least_squares(self) -> bool:
        """Whether the solution is that of one linear system."""
        return type(self.loss) is Squared

    @property
    def positions(self) -> NDArray[np.intp] | None:
        """Indices of the rows among those given to `fit`; None for all of them."""
        counted = None if self.counted is None else self.counted.positions
        if self.kept is None:
            return counted
        kept = np.asarray(self.kept)
        return kept if counted is None else counted[kept]

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


# ---- the three kinds of fits -----------------------------------------------------------------------------------------


def regression_data(
    reading: Reading,
    X: Any,
    y: Any,
    sample_weight: ArrayLike | None,
    X_val: Any,
    y_val: Any,
    *,
    random_state: np.random.RandomState,
    fit_intercept: bool,
    hold_out: float | None = None,
    random_access: bool = False,
    loss: Loss | None = None,
    copies: int | None = None,
    scratch: Scratch | None = None,
    in_file: bool = False,
) -> FitData:
    """Check the arguments of `fit` of a regressor.

    random_state : draws the rows that are held out
    fit_intercept : whether f is measured from the best constant
    hold_out : share of the rows to hold out for validation if `fit` is given no validation rows
    random_access : whether the solver takes rows in any order
    loss : the squared loss by default
    copies : number of columns to learn from the one column of y
    scratch : keeps rows that are slow to read for later passes
    in_file : whether a long target of a file may stay there, as a `Column`
    """
    given = classify(*labelled(X, y, sample_weight, in_file=in_file), device=reading.device)
    train = training_rows(reading, given, random_access=random_access, scratch=scratch)
    y, weight = given.y, train.counted.weight
    targets: Any = y
    if isinstance(y, Column):  # whose numbers were checked
        check_lengths(train.counted.n_given, targets)
        targets, flat = y if copies is None else y.repeated(copies), not X.has_several_targets and copies is None
    else:
        y = check_y(y, train.counted.n_given, reading.owner, multi_output=True, y_numeric=True)
        y = train.counted.among(y)
        targets, flat = number_columns(y, copies), y.ndim == 1 and copies is None
    error: Error = root_mean_square
    loss = Squared() if loss is None else loss
    loss.check(targets)
    if type(loss) is not Squared:
        of_all = loss.resolve(targets, weight)
        error = partial(mean_loss, of_all)
        if of_all.unit(targets, weight) == 1:
            check_squares(targets, tile_dtype(reading.dtype, train.rows), "y")
    held = None
    judges = _validation_rows(reading, train, X_val, y_val, scratch)
    if judges is not None:
        rows, y_val = judges
        y_val = check_array(y_val, ensure_2d=False, dtype=None, input_name="y_val")
        check_lengths(rows.shape[0], y_val, "y_val")
        columns = number_columns(y_val, copies, "y_val")
        loss.check(columns, "y_val")
        check_outputs(y_val, y)
        held = Validation(rows, columns, None, error)
    data = _begun(train, targets, held, flat=flat)
    data = _split_and_scaled(reading, data, train.standardised, error, hold_out, None, random_state)
    # held-out rows must not influence the loss
    data = replace(data, loss=loss.resolve(data.targets, data.weight))
    return _from_offset(data) if fit_intercept else data


def classification_data(
    reading: Reading,
    X: Any,
    y: Any,
    sample_weight: ArrayLike | None,
    X_val: Any,
    y_val: Any,
    *,
    random_state: np.random.RandomState,
    fit_intercept: bool,
    class_weight: Any,
    hold_out: float | None = None,
    random_access: bool = False,
    make_loss: Callable[[int], Loss] | None = None,
    scratch: Scratch | None = None,
    in_file: bool = False,
) -> tuple[FitData, Array]:
    """Check the arguments of `fit` of a classifier, as `regression_data` does; return the data and the sorted classes.

    Labels become columns of +1 and -1, or of 1 and 0 for a loss with coupled columns. `make_loss` returns the loss for
    a number of classes; the default is the squared loss.
    """
    long = X.long_labels() if in_file and isinstance(X, Dataset) and y is None and sample_weight is None else None
    X, y, sample_weight = labelled(X, y if long is None else long.column, sample_weight)
    require_one_label(y, reading.owner)
    given = classify(X, mixed_labels(y), sample_weight, device=reading.device)
    train = training_rows(reading, given, random_access=random_access, scratch=scratch)
    if long is not None:
        check_lengths(train.counted.n_given, given.y)
        classes, codes = long.classes, None
    else:
        y = check_y(given.y, train.counted.n_given, reading.owner)
        y = sortable_labels(train.counted.among(y), "y")
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
    require_classes(classes)
    if codes is not None:
        train, codes = _with_class_weight(class_weight, train, classes, codes)
    loss = Squared() if make_loss is None else make_loss(len(classes))
    as_columns = indicators if loss.coupled else signs
    error: Error = share_wrong if type(loss) is Squared else partial(mean_loss, loss)
    held = None
    judges = _validation_rows(reading, train, X_val, y_val, scratch)
    if judges is not None:
        rows, y_val = judges
        y_val = sortable_labels(column_or_1d(mixed_labels(y_val), warn=True), "y_val")
        check_lengths(rows.shape[0], y_val, "y_val")
        require_known_classes(y_val, classes)
        held = Validation(rows, as_columns(np.searchsorted(classes, y_val), len(classes)), None, error)
    dtype = tile_dtype(reading.dtype, train.rows)
    targets: Any
    if long is None:
        assert codes is not None
        targets = as_columns(codes, len(classes)).astype(dtype)
    else:
        targets = long.columns(as_columns, (0.0 if loss.coupled else -1.0, 1.0), dtype)
    data = replace(_begun(train, targets, held, flat=len(classes) == 2), loss=loss)
    data = _split_and_scaled(reading, data, train.standardised, error, hold_out, codes, random_state)
    return (_from_offset(data) if fit_intercept else data), classes


def _with_class_weight(class_weight: Any, train: Training, classes: Array, codes: Array) -> tuple[Training, Array]:
    """Multiply weights by those of classes; rows of a class of weight 0 are left out, and it remains a class."""
    weight = with_class_weight(class_weight, train.counted.weight, classes, codes)
    if weight is None:
        return train, codes
    more = count(weight, len(codes))
    train = replace(train, rows=more.rows(train.rows), counted=train.counted.then(more))
    return train, more.among(codes)


def unlabelled_data(
    reading: Reading, X: Any, sample_weight: ArrayLike | None = None, *, scratch: Scratch | None = None
) -> FitData:
    """Check the arguments of a `fit` without y; the targets have no columns."""
    train = training_rows(reading, classify(X, weight=sample_weight), scratch=scratch)
    data = _begun(train, np.empty((train.rows.shape[0], 0)), None, flat=False)
    return _scaled(reading, data, train.standardised)


# ---- their steps -----------------------------------------------------------------------------------------------------


def _begun(train: Training, targets: Array, held: Validation | None, *, flat: bool) -> FitData:
    """Return the data of a fit before rows are held out and scaled."""
    return FitData(
        train.rows,
        targets,
        train.counted.weight,
        held,
        metric=train.metric,
        flat=flat,
        counted=train.counted,
        feature_names=train.features.names,
    )


def _validation_rows(
    reading: Reading, train: Training, X_val: Any, y_val: Any, scratch: Scratch | None
) -> tuple[Rows, Any] | None:
    """Return the rows and targets for validation that `fit` was given, or None."""
    X_val, y_val, _ = labelled(X_val, y_val)
    require_both(X_val, y_val)
    if X_val is None:
        return None
    rows = more_rows(reading, train.features, X_val, "X_val", standardised=train.standardised)
    return rows if scratch is None else scratch.rows(rows), computed(y_val, rows)


def _split_and_scaled(
    reading: Reading,
    data: FitData,
    standardised: bool,
    error: Error,
    hold_out: float | None,
    stratify: Array | None,
    random_state: np.random.RandomState,
) -> FitData:
    """Hold out rows for validation if there are none, standardise features or not, and convert rows to `dtype`."""
    check_range(data.targets, tile_dtype(reading.dtype, data.rows), "y")  # else predictions could not be represented
    if data.validation is None and hold_out is not None:
        data = _split(data, error, hold_out, stratify, random_state)
        data = replace(data, validation=_taken_out(data.validation, reading.memory_budget))
    return _scaled(reading, data, standardised)


def _scaled(reading: Reading, data: FitData, standardised: bool) -> FitData:
    """Standardise features if asked for, convert rows to the kernel's precision, and give the weights the mean 1."""
    dtype = tile_dtype(reading.dtype, data.rows)
    mean, scale = None, None
    if standardised:
        mean, scale = data.rows.moments(data.weight).mean_and_scale(data.rows.feature_names)
    held, weight = data.validation, data.weight
    if held is not None:
        held = replace(held, rows=scaled(held.rows, mean, scale, dtype))
    if weight is not None:
        weight = weight / (total(weight) / len(weight))
    rows, given = scaled(data.rows, mean, scale, dtype), not follows_rows(reading.dtype)
    return replace(data, rows=rows, weight=weight, validation=held, mean=mean, scale=scale, dtype_given=given)


class _TakenOut(ArrayRows):
    """Rows of a file, read into memory; the fingerprint is the file's, so that a fit can be resumed with either."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows.take(np.arange(rows.shape[0])))
        self.feature_names = rows.feature_names
        self._origin = rows

    def fingerprint(self) -> str:
        return self._origin.fingerprint()


def _taken_out(held: Validation | None, memory_budget: int | float | str) -> Validation | None:
    """Return held-out rows of a file in memory, so that the file is not read whenever the error is measured.

    They stay in the file if they would take more than an eighth of the memory.
    """
    if held is None or held.rows.in_memory or held.rows.runs_elsewhere:
        return held
    (n, d), size = held.rows.shape, held.rows.dtype.itemsize
    if held.rows.is_sparse or n * d * size > limit_of(memory_budget) // _SHARE_HELD:
        return held
    return replace(held, rows=_TakenOut(held.rows))


def drowns(level: Array, targets: Array, weight: Array | None) -> bool:
    """Whether rounding numbers near `level`, of shape (k,), to float32 loses the differences between rows."""
    unit = power_of_two(targets, axis=0)  # so that no square overflows
    mean = means(targets, weight) / unit
    deviation = np.sqrt(average(targets, weight, lambda part: np.square(part / unit - mean)))
    rounding = float(np.finfo(np.float32).eps) * np.abs(level) / unit
    varies = deviation > 1e-14 * np.abs(mean)  # and not by rounding alone
    return bool((varies & (rounding > _BARELY_ROUNDED * deviation)).any())


def _from_offset(data: FitData) -> FitData:
    """Measure f from the best constants; least squares are fitted to the difference, computed in float64."""
    offset = data.loss.offset(data.targets, data.weight)
    data = replace(data, outputs=np.dtype(np.float64 if drowns(offset, data.targets, data.weight) else np.float32))
    if not data.is_least_squares:
        return replace(data, offset=offset)
    if isinstance(data.targets, Column):
        return replace(data, targets=data.targets.minus(offset), offset=offset)
    rest = np.empty_like(data.targets)
    with np.errstate(over="ignore"):  # in parts: a float64 copy would be the largest array of a fit from files
        np.subtract(data.targets, offset, out=rest, casting="same_kind")
    check_range(rest, rest.dtype, "y less its mean", too_small=False)
    return replace(data, targets=rest, offset=offset)


def _split(
    data: FitData, error: Error, share: float, stratify: Array | None, random_state: np.random.RandomState
) -> FitData:
    """Hold out a random share of the rows, with the same proportions of the classes if there are enough of each.

    Of very many rows at most `MOST_HELD` are held out, and nothing is held in memory for each of the others.
    """
    from sklearn.model_selection import train_test_split

    n = data.rows.shape[0]
    size = held_out(n, share, "do without validation (such as early_stopping=False)")
    if n >= columns.LONG:
        held = draw(n, min(size, MOST_HELD), random_state)
        return _without(data, error, held, Rest(n, held))
    if stratify is not None:
        counts = np.unique(stratify, return_counts=True)[1]
        if counts.min() < 2 or len(counts) > min(size, n - size):
            stratify = None  # too few of a class to share out
    train, held = train_test_split(np.arange(n), test_size=size, random_state=random_state, stratify=stratify)
    return _without(data, error, np.sort(held), np.sort(train))


def _without(data: FitData, error: Error, held: NDArray[np.intp], train: NDArray[np.intp] | Rest) -> FitData:
    """Hold out some rows, and learn from the others."""
    rows, targets, weight = data.rows, data.targets, data.weight

    def of_train(values: Any) -> Any:
        return values.among(train) if isinstance(values, Column | Vector) else values[np.asarray(train)]

    validation = Validation(rows.subset(held), targets[held], None if weight is None else weight[held], error)
    return replace(
        data,
        rows=rows.without(held) if isinstance(train, Rest) else rows.subset(train),
        targets=of_train(targets),
        weight=None if weight is None else of_train(weight),
        validation=validation,
        kept=train,
    )
