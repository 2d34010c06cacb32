"""A transformer that encodes a table of mixed columns as columns for a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from .._utils.checks import float_dtype, integer, one_of
from .._utils.docstrings import Entry, describing
from .._utils.registry import register
from .._utils.warnings import warn
from .._utils.words import listed, shown
from ..estimators._estimator import Estimator
from ..fitting.attributes import check_attributes
from ..fitting.parameters import check_parameters
from .categories import CategoryColumn
from .columns import Form
from .dates import DateParts
from .encoding import EncoderSettings, FittedEncoding, encode_table, fit_encoding
from .notes import warn_of_columns
from .numbers import NumberColumns
from .pairs import PairColumn
from .reading import Table, read_table, recognised_table, with_target
from .texts import TextColumn

Array = NDArray[Any]

ENCODER: Mapping[str, Entry] = {
    "encoder.X": Entry("table, opened file, Dask dataframe, array or sparse matrix of shape (n, n_features)"),
    "encoder.y": Entry(
        "array-like of shape (n,) or (n, n_targets), optional",
        "Targets, by which categories of many levels are encoded; those of a `Dataset` by default.",
    ),
    "later.X": Entry(
        "table, opened file, Dask dataframe, array or sparse matrix of shape (n, n_features)",
        "Named columns in any order.",
    ),
}

described = describing(ENCODER)

# What a fitted encoding holds beside the names of the columns; an encoder has each as an attribute
_LEARNT = [field.name for field in fields(FittedEncoding) if field.name != "names"]


@register
@described
class TableEncoder(TransformerMixin, Estimator):  # type: ignore[misc]
    """Encode a table as columns for a kernel.

    It takes tables of pandas, polars and pyarrow, opened files (`gyrfalcon.open`), Dask dataframes, arrays, lists of
    rows, and small sparse matrices. The type of a column and its training values decide how it is encoded:

    - Numbers are scaled (see `numbers`). A missing number becomes the median, and a 0/1 column tells where values are
      missing if some training rows missed one. Infinity is replaced by the largest number of training, minus infinity
      by the smallest. Durations are seconds.
    - Categories, strings and booleans get a column for each level, divided by sqrt(2), so that different levels have
      distance 1; two levels share a column. More than `max_onehot` levels get one column with the mean of the target in
      the level [1]_ and one with the logarithm of its frequency, both standardised and smoothly clipped; without y, the
      most frequent levels get a column each, beside the frequency. Missing is a level of its own. A level that training
      did not have is all zeros, or has the mean of the target and the lowest frequency.
    - Free text is text of several words, with more than `max_onehot` levels, that is different in at least half of the
      rows. It is described by its character n-grams, in 4,096 hashed buckets with weights for rare ones: `text`
      principal coordinates, and for each target (at most four) the prediction of a linear model.
    - Dates are elapsed time, scaled like a number, and time of day, day of week and day of year, each as sine and
      cosine, unless that part is the same in all training rows. Dates with a time zone are taken as local time in the
      zone of training, to which later dates are converted; dates with and without a zone are not mixed.
    - Text is read as numbers or dates if 95% of it is written in one form. Later text is read in the same form, and
      text that cannot be read is missing. Numbers may have a currency or a percent sign (left out: "12.3%" is 12.3),
      thousands separators, a decimal comma, and a minus or parentheses; "1,234" is 1234 unless other values of the
      column show that the comma is a decimal one. Dates follow ISO 8601 or look like "31/12/2020", with the day first
      unless a value over 12 shows that the month is. Whole numbers with leading zeros, with more than 15 digits, or
      with 9 digits or more that are all equally long (postcodes, ids, phone numbers) are categories.
    - Columns in which all values are the same, or missing, are dropped with a warning, and may hold anything later.

    Named columns are found by their names, in any order. Distances between rows of the returned array are meaningful,
    so estimators with ``scale="auto"``, the default, leave it as it is.

    Parameters
    ----------
    numbers : {"robust", "standard", "quantile"}, default="robust"
        How numbers are scaled. "robust" uses the median and the range between quartiles, followed by the smooth clip
        x / sqrt(1 + (x / 3)^2), so that outliers do no harm. "standard" uses the mean and the standard deviation.
        "quantile" maps numbers to normal quantiles, clipped at 3, which suits skewed columns.
    integers : {"numbers", "categories", "both"}, default="numbers"
        Whether whole numbers with three to `max_onehot` different values are encoded as numbers, as categories, or as
        both. Use "categories" or "both" if such numbers are codes. With "both", numbers with more values, each in ten
        rows on average, are also encoded by the target.
    pairs : int, default=0
        Maximum number of pairs of categories whose combinations of levels are encoded by the mean of the target. Use
        pairs if a category says little about y without another one. Each of the two may have at most `max_onehot`
        levels. Pairs are chosen by how much these means explain in addition to both columns, in rows of other folds.
        With several targets or classes, a pair is encoded by the two principal components of the means.
    text : int, default=30
        Maximum number of principal coordinates of a column of free text. With 0, free text is a category.
    max_onehot : int, default=30
        Maximum number of levels for which a category gets a column for each level. Categories with more levels are
        encoded by the target.
    min_frequency : int, default=5
        Minimum number of rows of a level that gets a column of its own. Levels with fewer rows share a column, unless
        they have at least n / 50 of the n rows.
    target_type : {"auto", "continuous", "binary", "multiclass"}, default="auto"
        Type of y. With "auto", strings and booleans are classes, and so are at most 20 different integers, unless each
        occurs once; all else is numbers. Each class has a column; two classes share one.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the columns.
    random_state : int, RandomState or None, default=None
        Seed of the folds in which `fit_transform` encodes categories by the target, and of the sample of 100,000 rows
        from which quantiles of numbers are computed in larger tables.

    Attributes
    ----------
    kinds_ : array of str of shape (n_features_in_,)
        Kind of each column: "number", "category", "text", "date", "boolean" or "dropped".
    forms_ : list of length n_features_in_
        Form in which text is read as numbers or dates, such as ``NumberForm(decimal=',')`` or
        ``DateForm(order='day first')``; None for all other columns.
    zones_ : list of str of length n_features_in_
        Name of the time zone of dates, to which later dates are converted; empty for all other columns.
    feature_origin_ : array of int of shape (n_features_out,)
        Index of the column that each output comes from; of pairs, the first of both columns.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns, if X has names that are all strings.

    See Also
    --------
    FalkonRegressor : Kernel ridge regression, to follow this in a pipeline.

    Notes
    -----
    ``fit_transform(X, y)`` differs from ``fit(X, y).transform(X)`` for categories of many levels: it encodes a row by
    the targets of other folds, so that the row's own target is not used, as in scikit-learn's `TargetEncoder`.
    Pipelines call it in training.

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
    pair_columns_: Array
    pairs_: list[PairColumn]
    text_columns_: list[int]
    texts_: list[TextColumn]
    endings_: list[str]
    places_: Array

    def __init__(
        self,
        numbers: str = "robust",
        *,
        integers: str = "numbers",
        pairs: int = 0,
        text: int = 30,
        max_onehot: int = 30,
        min_frequency: int = 5,
        target_type: str = "auto",
        dtype: Any = "float64",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.numbers = numbers
        self.integers = integers
        self.pairs = pairs
        self.text = text
        self.max_onehot = max_onehot
        self.min_frequency = min_frequency
        self.target_type = target_type
        self.dtype = dtype
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn kinds, scales and levels of the columns.

        Parameters
        ----------
        {encoder.X, encoder.y}

        Returns
        -------
        self
        """
        X, y = with_target(X, y)
        table, settings = self._training(X)
        encoding, _ = fit_encoding(table, settings, y, settings.draw_seed())
        return self._set(table, encoding)

    def fit_transform(self, X: Any, y: Any = None, fold: Any = None) -> Array:
        """Learn from a table and encode it; a row's own target is not used for its encoding.

        Parameters
        ----------
        {encoder.X, encoder.y}
        fold : array of int of shape (n,), optional
            Fold of each row, which is encoded by the targets of other folds; a row of a negative fold by those of other
            negative folds only. Random by default. Rows of one group should be in the same fold.

        Returns
        -------
        array of shape (n, n_features_out)
        """
        X, y = with_target(X, y)
        table, settings = self._training(X)
        encoded = encode_table(table, settings, y, fold)
        self._set(table, encoded.encoding)
        return encoded.X

    def transform(self, X: Any) -> Array:
        """Encode a table.

        Parameters
        ----------
        {later.X}

        Returns
        -------
        array of shape (n, n_features_out)
        """
        encoding = self._encoding()
        return encoding.transform(self._ordered(X, encoding.names), self.dtype)

    def beyond(self, X: Any) -> Array:
        """Return how far each value is outside the values of its column in training.

        Parameters
        ----------
        {later.X}

        Returns
        -------
        array of shape (n, n_features)
            For numbers and dates the distance from the range of training, in units of the interquartile range; 1 for a
            level that has no outputs of its own, and for a missing number or date if training had none; 0 otherwise.
        """
        encoding = self._encoding()
        return encoding.beyond(self._ordered(X, encoding.names))

    @property
    def origins(self) -> Array:
        """The two columns that each output is made of, of shape (2, n_features_out): one twice, unless it is a pair."""
        return self._encoding().origins

    def column_totals(self, values: ArrayLike) -> Array:
        """Add up numbers that belong to the outputs, such as importances, by columns of the table.

        Parameters
        ----------
        values : array-like of shape (n_features_out,)
            One number for each output; those of pairs count half for each of both columns.

        Returns
        -------
        array of shape (n_features,)
        """
        encoding = self._encoding()
        totals = np.asarray(values, dtype=np.float64)
        if totals.shape != encoding.places.shape:
            raise ValueError(
                f"values has shape {totals.shape}: it must have {len(encoding.places)} numbers, one for each output"
            )
        return encoding.column_totals(totals)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Name the output columns.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns if training had none.

        Returns
        -------
        array of str
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        pairs = zip(self.feature_origin_, self.endings_, strict=True)
        return np.array([f"{names[at]}{ending}" for at, ending in pairs], dtype=object)

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
            self.get_params(deep=False),
            numbers=one_of("robust", "standard", "quantile"),
            integers=one_of("numbers", "categories", "both"),
            pairs=integer(0),
            text=integer(0),
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
        names = list(self.feature_names_in_) if "feature_names_in_" in vars(self) else None
        return FittedEncoding(names, **{name: vars(self)[f"{name}_"] for name in _LEARNT})

    def _ordered(self, X: Any, fitted: list[str] | None) -> Table:
        """Read a table; return it with the names of training, and its columns in that order."""
        owner = type(self).__name__
        table = read_table(X, owner)
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
            return Table([table.columns[place[name]] for name in fitted], fitted, table.n_rows)
        if len(table.columns) != self.n_features_in_:
            raise ValueError(
                f"X has {len(table.columns)} features, but {owner} is expecting {self.n_features_in_} features as input"
            )
        if fitted is not None:
            warn(f"X does not have valid feature names, but {owner} was fitted with feature names", UserWarning)
        elif table.names is not None:
            warn(f"X has feature names, but {owner} was fitted without feature names", UserWarning)
        return Table(table.columns, fitted, table.n_rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        tags.target_tags.required = False
        return tags

    def _check_loaded(self) -> None:
        check_attributes(vars(self))
        if len(self.kinds_) != self.n_features_in_:
            raise ValueError(f"there are {len(self.kinds_)} kinds_, and not one for each feature")
        self._encoding().check()


def _precision(name: str, value: Any) -> None:
    """Require float32 or float64, and no "auto": a table has no precision to follow."""
    try:
        float_dtype(name, value)
    except ValueError:
        raise ValueError(f'{name}={shown(value)} must be "float64" or "float32"') from None
