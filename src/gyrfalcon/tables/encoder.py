"""A transformer that makes columns a kernel understands of a table as it is."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from .._utils.checks import float_dtype, integer, one_of
from .._utils.registry import register
from .._utils.warnings import warn
from .._utils.words import listed, shown
from ..estimators._parameters import NamedParameters
from ..estimators._sklearn import DOC_LINK
from ..fitting.attributes import check_attributes
from ..fitting.parameters import check_parameters
from ..storage.models import save
from .categories import CategoryColumn
from .columns import Column, Form
from .dates import DateParts
from .encoding import EncoderSettings, FittedEncoding, encode_table, fit_encoding
from .notes import warn_of_columns
from .numbers import NumberColumns
from .reading import Table, read_table, recognised_table

Array = NDArray[Any]

# What a fitted encoding holds beside the names of the columns; an encoder has each as an attribute
_LEARNT = [field.name for field in fields(FittedEncoding) if field.name != "names"]


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
        table, settings = self._training(X)
        encoding, _ = fit_encoding(table, settings, y, settings.draw_seed())
        return self._set(table, encoding)

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
        table, settings = self._training(X)
        encoded = encode_table(table, settings, y, fold)
        self._set(table, encoded.encoding)
        return encoded.X

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
        return self._encoding().transform(self._columns(X), self.dtype)

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
        return self._encoding().beyond(self._columns(X))

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

    @classmethod
    def of(cls, settings: EncoderSettings, encoding: FittedEncoding) -> TableEncoder:
        """Return an encoder with an encoding that was fitted with these settings."""
        encoder = cls(**vars(settings))
        encoder._set_encoding(encoding)
        return encoder

    def _training(self, X: Any) -> tuple[Table, EncoderSettings]:
        """Check the parameters and read a training table."""
        check_parameters(
            self,
            numbers=one_of("robust", "standard", "quantile"),
            integers=one_of("numbers", "both"),
            max_onehot=integer(2),
            min_frequency=integer(1),
            target_type=one_of("auto", "continuous", "binary", "multiclass"),
            dtype=_precision,
        )
        return recognised_table(X, type(self).__name__), EncoderSettings(**self.get_params(deep=False))

    def _set(self, table: Table, encoding: FittedEncoding) -> TableEncoder:
        warn_of_columns(table, encoding.kinds)
        self._set_encoding(encoding)
        return self

    def _set_encoding(self, encoding: FittedEncoding) -> None:
        for name in _LEARNT:
            setattr(self, f"{name}_", getattr(encoding, name))
        self.n_features_in_ = len(encoding.kinds)
        if encoding.names is not None:
            self.feature_names_in_ = np.array(encoding.names, dtype=object)
        elif "feature_names_in_" in vars(self):  # of an earlier fit
            del self.feature_names_in_

    # ---- what was learnt ---------------------------------------------------------------------------------------------

    def _encoding(self) -> FittedEncoding:
        check_is_fitted(self)
        return FittedEncoding(self._names(), **{name: vars(self)[f"{name}_"] for name in _LEARNT})

    def _names(self) -> list[str] | None:
        return list(self.feature_names_in_) if "feature_names_in_" in vars(self) else None

    def _columns(self, X: Any) -> list[Column]:
        """Read a table; return its columns in the order of training, by their names if there are names."""
        owner = type(self).__name__
        table, fitted = read_table(X, owner), self._names()
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
        if len(self.kinds_) != self.n_features_in_:
            raise ValueError(f"there are {len(self.kinds_)} kinds_, and not one for each feature")
        self._encoding().check()


def _precision(name: str, value: Any) -> None:
    """Require float32 or float64, and no "auto": a table has no precision to follow."""
    try:
        float_dtype(name, value)
    except ValueError:
        raise ValueError(f'{name}={shown(value)} must be "float64" or "float32"') from None
