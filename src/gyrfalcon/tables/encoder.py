"""A transformer that makes columns a kernel understands of a table as it is."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, _num_samples, check_is_fitted

from .._utils.checks import array, float_dtype, integer, one_of
from .._utils.registry import register
from .._utils.warnings import warn
from .._utils.words import listed, shown
from ..estimators._parameters import NamedParameters
from ..estimators._sklearn import DOC_LINK
from ..fitting.attributes import check_attributes
from ..fitting.parameters import check_parameters
from ..fitting.session import unchanged_on_failure
from ..sources.metric import MetricArray
from ..storage.models import save
from .categories import CategoryColumn, random_folds
from .columns import Column, Form, as_booleans, as_dates, as_numbers, as_text
from .dates import DateParts
from .forms import DateForm, NumberForm
from .notes import warn_of_columns
from .numbers import NumberColumns
from .reading import Table, read_table, recognised_table
from .targets import target_columns
from .zones import zone as zone_of

Array = NDArray[Any]

_REPEATED = 10  # how often a number is there on average, to be taken for a category too
_MOST_TARGETS = 3  # for each of which there is a column


@register
class TableEncoder(TransformerMixin, NamedParameters):  # type: ignore[misc]
    """Columns that a kernel understands, from a table as it is.

    It takes tables of pandas, polars and pyarrow, arrays, lists of rows, and sparse matrices that are small. What a
    column is taken for is decided by its type and its training values:

    - numbers are scaled (see `numbers`). A missing one becomes the median, and a 0/1 column tells where values are
      missing if training rows missed some. Infinity stands for the largest number of training, minus infinity for the
      least. Durations are seconds.
    - categories, strings and booleans have a column for each level, divided by sqrt(2), so that different levels have
      distance 1; two levels share a column. Above `max_onehot` levels there is one with the mean of the target in the
      level [1]_ and one with the logarithm of its frequency, both standardised and smoothly clipped; without y one for
      each of the most frequent levels and the frequency. Missing is a level of its own. A level that training had not
      is all zeros, or has the mean of the target and the least frequency.
    - dates are elapsed time, scaled like a number, and time of day, day of week and day of year, each as sine and
      cosine, unless that part is the same in all training rows. Dates of a time zone count by the clock on the wall
      in the zone of training, to which later ones are converted; dates with and without a zone are not mixed.
    - text is numbers or dates if 95% of it is written in one form, which later text is read by, and what cannot be read
      is missing. Numbers may have a currency or a percent sign (left out: "12.3%" is 12.3), thousands separators, a
      decimal comma, and a minus or parentheses; "1,234" is 1234 unless other values of the column show that the comma
      is a decimal one. Dates are of ISO 8601 or numbers like "31/12/2020", with the day first unless a value over
      12 shows that the month is. Whole numbers with leading zeros, with more than 15 digits, or with 9 and more that
      are all as long (postcodes, ids, phone numbers) are categories.
    - columns in which all values are the same, or missing, are dropped with a warning, and may hold anything later.

    Columns with names are found by their names, in any order. Distances between the rows of the array that it returns
    have a meaning, and estimators with ``scale="auto"``, the default, leave them as they are.

    Parameters
    ----------
    numbers : {"robust", "standard", "quantile"}, default="robust"
        How numbers are scaled: by median and range between quartiles, followed by the smooth clip
        x / sqrt(1 + (x / 3)^2); by mean and standard deviation; or to normal quantiles, clipped at 3.
    integers : {"numbers", "both"}, default="numbers"
        Whether whole numbers with three to `max_onehot` values are numbers, or numbers and categories; with "both",
        numbers with more values that are each there ten times on average are encoded by the target as well.
    max_onehot : int, default=30
        Most levels of a category with a column each.
    min_frequency : int, default=5
        Levels of fewer rows share a column; in a table of n rows never those of n / 50 or more.
    target_type : {"auto", "continuous", "binary", "multiclass"}, default="auto"
        What y is. With "auto" strings, booleans and two values are classes, and so are integers of at most 100 values
        that are each there ten times on average; the rest is numbers. Classes have a column each, two share one.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the columns.
    random_state : int, RandomState or None, default=None
        Seed of the folds in which `fit_transform` encodes categories by the target, and of the 100,000 rows that
        quantiles of numbers are computed from where there are more.

    Attributes
    ----------
    kinds_ : array of str of shape (n_features_in_,)
        What each column was taken for: "number", "category", "date", "boolean" or "dropped".
    forms_ : list of length n_features_in_
        How text is read that was taken for numbers or dates, such as ``NumberForm(decimal=',')`` or
        ``DateForm(order='day first')``; None for all other columns.
    zones_ : list of str of length n_features_in_
        Name of the time zone of dates, to which later ones are converted; empty for all other columns.
    feature_origin_ : array of int of shape (n_features_out,)
        For each output the index of the column that it comes from.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns, if X has names that are all strings.

    See Also
    --------
    FalkonRegressor : Kernel ridge regression, to be put after this in a pipeline.

    Notes
    -----
    ``fit_transform(X, y)`` differs from ``fit(X, y).transform(X)`` for categories of many levels: there the target of
    a row has no part in its own encoding, by folds, as in scikit-learn's `TargetEncoder`. Pipelines call it in
    training.

    References
    ----------
    .. [1] Micci-Barreca, "A Preprocessing Scheme for High-Cardinality Categorical Attributes in Classification and
       Prediction Problems", SIGKDD Explorations 2001.

    Examples
    --------
    >>> from gyrfalcon import TableEncoder
    >>> rows = [[31, "Genova", True], [45, "Roma", False], [None, "Torino", True], [58, "Roma", True]]
    >>> encoder = TableEncoder().fit(rows)
    >>> list(encoder.get_feature_names_out(["age", "city", "member"]))
    ['age', 'age missing', 'city=Genova', 'city=Roma', 'city=Torino', 'member=True']
    >>> encoder.transform([[45, "Milano", None]]).round(2).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """

    _doc_link_module = "gyrfalcon"
    _doc_link_template = DOC_LINK

    kinds_: Array
    forms_: list[Form | None]
    zones_: list[str]
    feature_origin_: Array
    n_features_in_: int
    feature_names_in_: Array
    # the columns of each part, and the part
    number_columns_: list[int]
    numbers_: NumberColumns
    date_columns_: list[int]
    dates_: DateParts
    category_columns_: list[int]
    categories_: list[CategoryColumn]
    endings_: list[str]
    places_: Array

    def __init__(
        self,
        numbers: str = "robust",
        *,
        integers: str = "numbers",
        max_onehot: int = 30,
        min_frequency: int = 5,
        target_type: str = "auto",
        dtype: Any = "float64",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.numbers = numbers
        self.integers = integers
        self.max_onehot = max_onehot
        self.min_frequency = min_frequency
        self.target_type = target_type
        self.dtype = dtype
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn kinds, scales and levels of the columns.

        Parameters
        ----------
        X : table, array or sparse matrix of shape (n, n_features)
        y : array-like of shape (n,) or (n, n_targets), optional
            Target, by which categories of many levels are encoded.

        Returns
        -------
        self
        """
        with unchanged_on_failure(self):
            self._fit(X, y, cross_fit=False)
        return self

    def fit_transform(self, X: Any, y: Any = None, fold: Any = None) -> Array:
        """Learn from the table, and return its columns; a row's own target has no part in them.

        Parameters
        ----------
        X : table, array or sparse matrix of shape (n, n_features)
        y : array-like of shape (n,) or (n, n_targets), optional
            Target, by which categories of many levels are encoded.
        fold : array of int of shape (n,), optional
            A row is encoded by the targets of rows with other numbers, and one with a negative number by those with
            other negative numbers alone. Random ones by default; rows of one group should have the same.

        Returns
        -------
        array of shape (n, n_features_out)
        """
        with unchanged_on_failure(self):
            return self._fit(X, y, cross_fit=True, fold=fold)

    def transform(self, X: Any) -> Array:
        """Return the columns of a table.

        Parameters
        ----------
        X : table, array or sparse matrix of shape (n, n_features)
            Named columns in any order.

        Returns
        -------
        array of shape (n, n_features_out)
        """
        numbers, dates, texts = self._read(X)
        parts = [self.numbers_.transform(np.hstack([numbers, dates])), self.dates_.transform(dates)]
        parts += [category.transform(text) for category, text in zip(self.categories_, texts, strict=True)]
        return self._joined(parts)

    def beyond(self, X: Any) -> Array:
        """Return how far each value is outside those that its column had in training.

        Parameters
        ----------
        X : table, array or sparse matrix of shape (n, n_features)
            Named columns in any order.

        Returns
        -------
        array of shape (n, n_features)
            Of numbers and dates the distance from the range of training, in units of the range between quartiles; 1
            for a category that has no outputs of its own, and for a missing number or date if training had none; else
            0.
        """
        numbers, dates, texts = self._read(X)
        out = np.zeros((len(numbers), self.n_features_in_))
        out[:, [*self.number_columns_, *self.date_columns_]] = self.numbers_.beyond(np.hstack([numbers, dates]))
        for at, category, text in zip(self.category_columns_, self.categories_, texts, strict=True):
            if at not in self.number_columns_ and category.names_:
                out[:, at] = category.unknown(text)
        return out

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Name the output columns.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns, if they had none in training.

        Returns
        -------
        array of str
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        pairs = zip(self.feature_origin_, self.endings_, strict=True)
        return np.array([f"{names[at]}{ending}" for at, ending in pairs], dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted transformer to a file that `gyrfalcon.load` reads back; see `gyrfalcon.save`.

        Parameters
        ----------
        path : str or path-like
            Where to write.
        """
        save(self, path)

    # ---- learning ----------------------------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, cross_fit: bool, fold: Any = None) -> Array:
        """Learn from a table, and return its columns."""
        check_parameters(
            self,
            numbers=one_of("robust", "standard", "quantile"),
            integers=one_of("numbers", "both"),
            max_onehot=integer(2),
            min_frequency=integer(1),
            target_type=one_of("auto", "continuous", "binary", "multiclass"),
            dtype=_precision,
        )
        table = recognised_table(X, type(self).__name__)
        if y is not None and _num_samples(y) != table.n_rows:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: {[table.n_rows, _num_samples(y)]}"
            )
        self._set_names(table)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        kinds, columns = [column.kind for column in table.columns], table.columns
        names, n = self._input_names(), table.n_rows

        self.forms_, self.zones_ = [column.form for column in columns], [column.zone for column in columns]
        self.number_columns_ = [at for at, kind in enumerate(kinds) if kind == "number"]
        numbers = _stacked(self._numbers_of(columns, names), n)
        self.date_columns_ = [at for at, kind in enumerate(kinds) if kind == "date"]
        dates = self._dates_of(columns, names, n)
        together = np.hstack([numbers, dates])
        self.numbers_ = NumberColumns(self.numbers, seed).fit(together)
        self.dates_ = DateParts().fit(dates)
        parts = [self.numbers_.transform(together), self.dates_.transform(dates)]

        texts = {at: as_text(columns[at]) for at, kind in enumerate(kinds) if kind in ("category", "boolean")}
        crowded = any(len(text.levels) + text.missing.any() > self.max_onehot for text in texts.values())
        known = [values[~np.isnan(values)] for values in numbers.T] if self.integers == "both" else []
        repeated = [_has_repeated_values(values, self.max_onehot) for values in known]
        targets, labels = (
            target_columns(y, self.target_type) if (crowded or any(repeated)) and y is not None else (None, [])
        )
        self.category_columns_, self.categories_ = [], []
        own_fold = random_folds(n, seed) if fold is None else np.asarray(fold)

        def add(at: int, text: Column, training: Column | None = None) -> None:
            """Encode a column of text, by the target where it has many levels; of `training` alone, without."""
            category = CategoryColumn(self.max_onehot, self.min_frequency)
            if training is not None:
                parts.append(category.fit(training).transform(text))
            elif cross_fit:
                parts.append(category.fit_transform(text, targets, labels, own_fold))
            else:
                parts.append(category.fit(text, targets, labels).transform(text))
            self.category_columns_.append(at)
            self.categories_.append(category)

        for at, text in texts.items():
            add(at, text)
        for number, values in enumerate(known):
            at, column = self.number_columns_[number], Column("number", numbers[:, number])
            if repeated[number] and targets is not None and len(labels) <= _MOST_TARGETS:
                add(at, as_text(column))
            elif _has_few_integers(values, self.max_onehot):
                add(at, as_text(column), as_text(Column("number", values)))  # the numbers tell already what is missing
        self._set_outputs(kinds)
        if table is not X:  # who gives a table that was read already looks after it
            warn_of_columns(table, self.kinds_)
        return self._joined(parts)

    def _set_names(self, table: Table) -> None:
        self.n_features_in_ = len(table.columns)
        if table.names is None:
            if "feature_names_in_" in vars(self):  # of an earlier fit
                del self.feature_names_in_
            return
        twice = [name for name, count in Counter(table.names).items() if count > 1]
        if twice:
            raise ValueError(f"X has {table.names.count(twice[0])} columns named {twice[0]!r}: rename all but one")
        self.feature_names_in_ = np.array(table.names, dtype=object)

    def _set_outputs(self, kinds: Sequence[str]) -> None:
        """Sort the outputs of all parts by the columns that they come from, and name them."""
        sources = np.array([*self.number_columns_, *self.date_columns_], dtype=np.int64)
        numbers, indicators = sources[self.numbers_.varies_], sources[self.numbers_.indicates_]
        origin, endings = [*numbers, *indicators], [""] * len(numbers) + [" missing"] * len(indicators)
        for column, at in enumerate(self.date_columns_):
            parts = self.dates_.names(column)
            origin += [at] * len(parts)
            endings += [f" {part}" for part in parts]
        for at, category in zip(self.category_columns_, self.categories_, strict=True):
            origin += [at] * len(category.names_)
            endings += category.names_
        order = np.argsort(np.array(origin, dtype=np.int64), kind="stable")
        self.feature_origin_ = np.array(origin, dtype=np.int64)[order]
        self.endings_ = [endings[at] for at in order]
        self.places_ = np.argsort(order)
        used = set(origin)
        self.kinds_ = np.array([kind if at in used else "dropped" for at, kind in enumerate(kinds)], dtype=object)

    # ---- what fit and transform share --------------------------------------------------------------------------------

    def _read(self, X: Any) -> tuple[Array, Array, list[Column]]:
        """Return the numbers and the dates of a table as arrays, and its categories as text."""
        check_is_fitted(self)
        table = read_table(X, type(self).__name__)
        n, names = table.n_rows, self._input_names()
        nothing = Column("number", np.full(n, np.nan))  # in place of what has no output, whatever it holds
        ordered = zip(self._in_order(table), self.kinds_, strict=True)
        columns = [nothing if kind == "dropped" else column for column, kind in ordered]
        numbers = self._numbers_of(columns, names)
        values = dict(zip(self.number_columns_, numbers, strict=True))
        texts = []
        for at in self.category_columns_:
            column = Column("number", values[at]) if at in values else columns[at]
            texts.append(as_booleans(column, names[at]) if self.kinds_[at] == "boolean" else as_text(column))
        return _stacked(numbers, n), self._dates_of(columns, names, n), texts

    def _joined(self, parts: list[Array]) -> Array:
        """Put the outputs of the parts where they belong."""
        out = np.empty((len(parts[0]), len(self.places_)), dtype=self.dtype)
        start = 0
        for part in parts:
            out[:, self.places_[start : start + part.shape[1]]] = part
            start += part.shape[1]
        return out.view(MetricArray)

    def _numbers_of(self, columns: list[Column], names: list[str]) -> list[Array]:
        forms = [self.forms_[at] for at in self.number_columns_]
        return [
            as_numbers(columns[at], names[at], form if isinstance(form, NumberForm) else None)
            for at, form in zip(self.number_columns_, forms, strict=True)
        ]

    def _dates_of(self, columns: list[Column], names: list[str], n: int) -> Array:
        forms = [self.forms_[at] for at in self.date_columns_]
        dates = [
            as_dates(columns[at], names[at], self.zones_[at], form if isinstance(form, DateForm) else None)
            for at, form in zip(self.date_columns_, forms, strict=True)
        ]
        return _stacked(dates, n)

    def _input_names(self) -> list[str]:
        return [str(name) for name in _check_feature_names_in(self, None)]

    def _in_order(self, table: Table) -> list[Column]:
        """Return the columns in the order of training, by their names if there are names."""
        owner = type(self).__name__
        fitted = list(self.feature_names_in_) if "feature_names_in_" in vars(self) else None
        if fitted is not None and table.names is not None:
            known, place = set(fitted), {name: at for at, name in enumerate(table.names)}
            new = [name for name in table.names if name not in known]
            absent = [name for name in fitted if name not in place]
            if new or absent:
                unseen = f"\nFeature names unseen at fit time: {listed(new)}" * bool(new)
                gone = f"\nFeature names seen at fit time, yet now missing: {listed(absent)}" * bool(absent)
                raise ValueError(f"The feature names should match those that were passed during fit.{unseen}{gone}")
            if len(table.names) > len(fitted):
                raise ValueError(f"X has columns of the same name: {listed(table.names)}")
            return [table.columns[place[name]] for name in fitted]
        if len(table.columns) != self.n_features_in_:
            raise ValueError(
                f"X has {len(table.columns)} features, but {owner} is expecting {self.n_features_in_} features as input"
            )
        if fitted is not None:
            warn(f"X does not have valid feature names, but {owner} was fitted with feature names", UserWarning)
        elif table.names is not None:
            warn(f"X has feature names, but {owner} was fitted without feature names", UserWarning)
        return table.columns

    def __sklearn_is_fitted__(self) -> bool:
        return "feature_origin_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        tags.target_tags.required = False
        return tags

    def _check_loaded(self) -> None:
        check_attributes(self)
        d = self.n_features_in_
        for name in ("feature_origin_", "places_"):
            array((None,), np.int64)(name, vars(self)[name])
        columns = [*self.number_columns_, *self.date_columns_, *self.category_columns_]
        outputs = [*self.numbers_.varies_, *self.numbers_.indicates_, *self.dates_.parts_.repeat(2)]
        n_outputs = sum(outputs) + sum(len(category.names_) for category in self.categories_)
        fits = [
            len(self.numbers_.low_) == len(self.number_columns_) + len(self.date_columns_),
            len(self.forms_) == len(self.zones_) == d,
            all(isinstance(self.forms_[at], NumberForm | None) for at in self.number_columns_),
            all(isinstance(self.forms_[at], DateForm | None) for at in self.date_columns_),
            all(isinstance(zone, str) for zone in self.zones_),
            len(self.dates_.parts_) == len(self.date_columns_),
            len(self.categories_) == len(self.category_columns_),
            all(isinstance(category, CategoryColumn) for category in self.categories_),
            all(type(at) is int and 0 <= at < d for at in columns),
            len(self.kinds_) == d == len(self._input_names()),
            len(self.endings_) == len(self.feature_origin_) == len(self.places_) == n_outputs,
            np.array_equal(np.sort(self.places_), np.arange(n_outputs)),
            n_outputs == 0 or 0 <= self.feature_origin_.min() <= self.feature_origin_.max() < d,
        ]
        if not all(fits):
            raise ValueError("its columns do not fit each other")
        for zone in filter(None, self.zones_):
            zone_of(zone)


def _precision(name: str, value: Any) -> None:
    """Require float32 or float64, and no "auto": a table has no precision to follow."""
    try:
        float_dtype(name, value)
    except ValueError:
        raise ValueError(f'{name}={shown(value)} must be "float64" or "float32"') from None


def _has_repeated_values(values: Array, few: int) -> bool:
    """Whether values are more than a few, but each is there many times on average."""
    return len(values) > _REPEATED * few and few < len(np.unique(values)) <= len(values) / _REPEATED


def _has_few_integers(values: Array, most: int) -> bool:
    if not len(values) or not np.isfinite(values).all() or (values != np.round(values)).any():
        return False
    return 2 < len(np.unique(values)) <= most


def _stacked(columns: list[Array], n: int) -> Array:
    return np.stack(columns, axis=1) if columns else np.empty((n, 0))
