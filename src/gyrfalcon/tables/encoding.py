"""Fit an encoding to a table, and apply it to other tables: plain values, which `TableEncoder` shows to users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples

from .._utils.checks import array
from ..sources.memory import MetricArray
from .categories import CategoryColumn, random_folds
from .columns import Column, as_booleans, as_dates, as_numbers, as_text
from .dates import DateParts, zone_of
from .forms import DateForm, NumberForm
from .numbers import NumberColumns
from .pairs import PairColumn, choose_pairs
from .reading import Table
from .targets import target_columns
from .texts import TextColumn, is_free_text

Array = NDArray[Any]

_REPEATED = 10  # average number of rows per value from which a number is encoded by the target too
_MOST_TARGETS = 3  # target columns up to which numbers are encoded by the target: each adds an output
_BLOCK = 65_536  # rows whose numbers are scaled at once: temporary arrays are several times as large as the output


@dataclass(frozen=True)
class EncoderSettings:
    """The parameters of `TableEncoder`."""

    numbers: str = "robust"
    integers: str = "numbers"
    pairs: int = 0
    text: int = 30
    max_onehot: int = 30
    min_frequency: int = 5
    target_type: str = "auto"
    dtype: Any = "float64"
    random_state: Any = None

    def draw_seed(self) -> int:
        """Draw the seed of folds and of samples of rows."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))


@dataclass(frozen=True)
class FittedEncoding:
    """How tables with the columns of a training table are encoded; see `TableEncoder` for the fields not listed here.

    number_columns, date_columns, category_columns, text_columns : columns of each part; a number may be a category too
    numbers : scales of the numbers, followed by those of the dates as elapsed time
    pair_columns : the two columns of each pair of categories, of shape (n_pairs, 2)
    endings : for each output the text that follows the name of its column
    places : position of each output, in the order of the parts: numbers, dates, categories, pairs, texts
    """

    names: list[str] | None
    kinds: Array
    forms: list[Any]
    zones: list[str]
    number_columns: list[int]
    numbers: NumberColumns
    date_columns: list[int]
    dates: DateParts
    category_columns: list[int]
    categories: list[CategoryColumn]
    pair_columns: Array
    pairs: list[PairColumn]
    text_columns: list[int]
    texts: list[TextColumn]
    feature_origin: Array
    endings: list[str]
    places: Array

    def transform(self, table: Table, dtype: Any, held_out: Sequence[Array | None] = ()) -> Array:
        """Encode a table with the columns of training, in the same order, as a MetricArray of shape (n, n_outputs).

        `held_out` has for each category, then for each pair and each text, None or the first k outputs of the rows, of
        shape (n, k), which replace those of their levels (see `CategoryColumn.fit`).
        """
        values, texts = self._read(table)
        out = np.empty((table.n_rows, len(self.places)), dtype=dtype)
        end = len(self.places) - self._n_categorical
        for start in range(0, len(out), _BLOCK):
            block = _stacked([column[start : start + _BLOCK] for column in values], min(_BLOCK, len(out) - start))
            parts = [self.numbers.transform(block), self.dates.transform(block[:, len(self.number_columns) :])]
            out[start : start + _BLOCK, self.places[:end]] = np.hstack(parts)
        parts = [category.transform(text) for category, text in zip(self.categories, texts, strict=True)]
        text_of = dict(zip(self.category_columns, texts, strict=True))
        for pair, (first, second) in zip(self.pairs, self.pair_columns.tolist(), strict=True):
            parts.append(pair.transform(text_of[first], text_of[second]))
        parts += [
            text.transform(as_text(table.columns[at])) for text, at in zip(self.texts, self.text_columns, strict=True)
        ]
        for made, own in zip(parts, held_out or [None] * len(parts), strict=True):
            if own is not None:
                made[:, : own.shape[1]] = own
            out[:, self.places[end : end + made.shape[1]]] = made
            end += made.shape[1]
        return out.view(MetricArray)

    @property
    def _n_categorical(self) -> int:
        """Number of outputs of categories, pairs and texts."""
        widths = [len(category.names_) for category in self.categories] + [pair.values_.shape[2] for pair in self.pairs]
        return sum(widths) + self._n_text

    @property
    def _n_text(self) -> int:
        return sum(len(text.endings) for text in self.texts)

    @property
    def origins(self) -> Array:
        """The two columns that each output is made of, of shape (2, n_outputs): one twice, unless it is a pair."""
        second = self.feature_origin.copy()
        end = len(self.places) - self._n_text
        for pair, (_, at) in zip(reversed(self.pairs), self.pair_columns[::-1].tolist(), strict=True):
            start = end - pair.values_.shape[2]
            second[self.places[start:end]] = at
            end = start
        return np.stack([self.feature_origin, second])

    def column_totals(self, values: Array) -> Array:
        """Add numbers for each output up by columns of the table; see `TableEncoder.column_totals`."""
        d = len(self.kinds)
        return np.asarray(sum(np.bincount(at, weights=values, minlength=d) for at in self.origins) / 2)

    def beyond(self, table: Table) -> Array:
        """Return how far each value is outside those of training, see `TableEncoder.beyond`."""
        values, texts = self._read(table)
        out = np.zeros((table.n_rows, len(table.columns)))
        out[:, [*self.number_columns, *self.date_columns]] = self.numbers.beyond(_stacked(values, table.n_rows))
        for at, category, text in zip(self.category_columns, self.categories, texts, strict=True):
            if at not in self.number_columns and category.names_:
                out[:, at] = category.unknown(text)
        return out

    def _read(self, table: Table) -> tuple[list[Array], list[Column]]:
        """Return the numbers and then the dates as arrays, and the categories as text."""
        labels = table.labels
        nothing = Column("number", np.full(table.n_rows, np.nan))  # replaces a dropped column, which may hold anything
        pairs = zip(table.columns, self.kinds, strict=True)
        columns = [nothing if kind == "dropped" else column for column, kind in pairs]
        numbers = {at: as_numbers(columns[at], labels[at], self.forms[at]) for at in self.number_columns}
        dates = [as_dates(columns[at], labels[at], self.zones[at], self.forms[at]) for at in self.date_columns]
        texts = []
        for at in self.category_columns:
            column = columns[at]
            if self.kinds[at] == "number":
                known = numbers[at] if at in numbers else as_numbers(column, labels[at], self.forms[at])
                column = Column("number", known)
            texts.append(as_booleans(column, labels[at]) if self.kinds[at] == "boolean" else as_text(column))
        return [*numbers.values(), *dates], texts

    def check(self) -> None:
        """Raise ValueError if the parts, which may come from a model file, do not fit each other."""
        d = len(self.kinds)
        for name in ("feature_origin", "places"):
            array((None,), np.int64)(f"{name}_", vars(self)[name])
        columns = [*self.number_columns, *self.date_columns, *self.category_columns, *self.text_columns]
        outputs = [*self.numbers.varies_, *self.numbers.indicates_, *self.dates.parts_.repeat(2)]
        array((None, 2), np.int64)("pair_columns_", self.pair_columns)
        fits = [
            all(isinstance(category, CategoryColumn) for category in self.categories),
            all(isinstance(pair, PairColumn) for pair in self.pairs),
            all(isinstance(text, TextColumn) for text in self.texts),
        ]
        if not all(fits):
            raise ValueError("categories, pairs or texts of the encoding are of another class")
        n_outputs = sum(outputs) + self._n_categorical
        fits = [
            len(self.numbers.low_) == len(self.number_columns) + len(self.date_columns),
            len(self.forms) == len(self.zones) == d,
            all(isinstance(self.forms[at], NumberForm | None) for at in (*self.number_columns, *self.category_columns)),
            all(isinstance(self.forms[at], DateForm | None) for at in self.date_columns),
            all(isinstance(zone, str) for zone in self.zones),
            len(self.dates.parts_) == len(self.date_columns),
            len(self.categories) == len(self.category_columns),
            len(self.pairs) == len(self.pair_columns),
            len(self.texts) == len(self.text_columns),
            bool(np.isin(self.pair_columns, self.category_columns).all()),
            all(type(at) is int and 0 <= at < d for at in columns),
            self.names is None or len(self.names) == d,
            len(self.endings) == len(self.feature_origin) == len(self.places) == n_outputs,
            np.array_equal(np.sort(self.places), np.arange(n_outputs)),
            n_outputs == 0 or 0 <= self.feature_origin.min() <= self.feature_origin.max() < d,
        ]
        if not all(fits):
            raise ValueError("the fitted columns, names and places of the encoding have inconsistent lengths or values")
        for zone in filter(None, self.zones):
            zone_of(zone)


@dataclass(frozen=True)
class EncodingResult:
    """An encoding and the rows that it was fitted to, encoded."""

    encoding: FittedEncoding
    X: Array


def encode_table(table: Table, settings: EncoderSettings, y: Any = None, fold: Array | None = None) -> EncodingResult:
    """Fit an encoding and encode the same table; the target of a row does not contribute to its own outputs.

    The table is one of `recognised_table`, which several encodings share; `y` and `fold` are those of
    `TableEncoder.fit_transform`.
    """
    seed = settings.draw_seed()
    fold = random_folds(table.n_rows, seed) if fold is None else np.asarray(fold)
    encoding, held_out = fit_encoding(table, settings, y, seed, fold)
    return EncodingResult(encoding, encoding.transform(table, settings.dtype, held_out))


def fit_encoding(
    table: Table, settings: EncoderSettings, y: Any, seed: int, fold: Array | None = None
) -> tuple[FittedEncoding, list[Array | None]]:
    """Fit an encoding; return it, and for each category what `CategoryColumn.fit` returns for these folds."""
    _check(table, y)
    labels = table.labels
    free = [
        at
        for at, one in enumerate(table.columns)
        if settings.text and one.kind == "category" and is_free_text(one, settings.max_onehot)
    ]
    columns = [replace(one, kind="text") if at in free else one for at, one in enumerate(table.columns)]
    texts, targets, target_names = _categories(columns, settings, y)
    only = set(texts) if settings.integers == "categories" else set()
    number_columns = [at for at, column in enumerate(columns) if column.kind == "number" and at not in only]
    date_columns = [at for at, column in enumerate(columns) if column.kind == "date"]
    seconds = [as_dates(columns[at], labels[at], columns[at].zone) for at in date_columns]
    values = _stacked([*(columns[at].values for at in number_columns), *seconds], table.n_rows)
    numbers = NumberColumns(settings.numbers, seed).fit(values)
    dates = DateParts().fit(values[:, len(number_columns) :])
    categories = {at: CategoryColumn(settings.max_onehot, settings.min_frequency) for at in texts}
    held_out = [category.fit(texts[at], targets, target_names, fold) for at, category in categories.items()]
    pairs, own = _pairs(columns, categories, settings, y, seed, fold)
    outputs = _outputs(number_columns, numbers, date_columns, dates, categories)
    sketches, said = _texts(columns, free, settings, y, seed, fold)
    outputs += [
        (first, f" x {labels[second]} (target{f', {number + 1}' * (pair.values_.shape[2] > 1)})")
        for (first, second), pair in pairs.items()
        for number in range(pair.values_.shape[2])
    ]
    outputs += [(at, ending) for at, text in zip(free, sketches, strict=True) for ending in text.endings]
    origin = np.array([at for at, _ in outputs], dtype=np.int64)
    order = np.argsort(origin, kind="stable")  # the outputs of a column stand together
    kept = set(origin.tolist())
    encoding = FittedEncoding(
        names=table.names,
        kinds=np.array([one.kind if at in kept else "dropped" for at, one in enumerate(columns)], dtype=object),
        forms=[column.form for column in columns],
        zones=[column.zone for column in columns],
        number_columns=number_columns,
        numbers=numbers,
        date_columns=date_columns,
        dates=dates,
        category_columns=list(categories),
        categories=list(categories.values()),
        pair_columns=np.array(list(pairs), dtype=np.int64).reshape(-1, 2),
        pairs=list(pairs.values()),
        text_columns=free,
        texts=sketches,
        feature_origin=origin[order],
        endings=[outputs[at][1] for at in order],
        places=np.argsort(order),
    )
    return encoding, [*held_out, *own, *said]


def _texts(
    columns: Sequence[Column], free: list[int], settings: EncoderSettings, y: Any, seed: int, fold: Array | None
) -> tuple[list[TextColumn], list[Array | None]]:
    """Fit the columns of free text; return them, and what their rows say about the targets from other folds."""
    if not free:
        return [], []
    targets = None if y is None else target_columns(y, settings.target_type)[0]
    texts = [TextColumn(settings.text) for _ in free]
    centered = None if targets is None else targets - targets.mean(axis=0)
    return texts, [text.fit(columns[at], centered, fold, seed) for text, at in zip(texts, free, strict=True)]


def _pairs(
    columns: Sequence[Column],
    categories: dict[int, CategoryColumn],
    settings: EncoderSettings,
    y: Any,
    seed: int,
    fold: Array | None,
) -> tuple[dict[tuple[int, int], PairColumn], list[Array | None]]:
    """Fit the pairs of categories with few levels that pay; return them by their columns, and outputs of the rows."""
    texts = {at: as_text(columns[at]) for at in categories} if settings.pairs and y is not None else {}
    few = [at for at, text in sorted(texts.items()) if 1 < len(text.levels) + text.missing.any() <= settings.max_onehot]
    if len(few) < 2:
        return {}, []
    targets, _ = target_columns(y, settings.target_type)
    targets = targets - targets.mean(axis=0)
    folds = random_folds(len(targets), seed) if fold is None else fold
    chosen = choose_pairs([texts[at] for at in few], targets, settings.pairs, folds, seed)
    pairs = {(few[i], few[j]): PairColumn() for i, j in chosen}
    own = [pair.fit(texts[i], texts[j], targets, fold) for (i, j), pair in pairs.items()]
    return pairs, own


def _outputs(
    number_columns: list[int],
    numbers: NumberColumns,
    date_columns: list[int],
    dates: DateParts,
    categories: dict[int, CategoryColumn],
) -> list[tuple[int, str]]:
    """Return the column of each output, and the text after the column's name, in the order of the parts."""
    scaled = np.array([*number_columns, *date_columns], dtype=np.int64)
    outputs = [(at, "") for at in scaled[numbers.varies_]] + [(at, " missing") for at in scaled[numbers.indicates_]]
    outputs += [(at, f" {part}") for number, at in enumerate(date_columns) for part in dates.names(number)]
    return outputs + [(at, ending) for at, category in categories.items() for ending in category.names_]


def _check(table: Table, y: Any) -> None:
    """Require as many targets as rows, and distinct names of columns."""
    if y is not None and _num_samples(y) != table.n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[table.n_rows, _num_samples(y)]}"
        )
    for name, count in Counter(table.names).items():
        if count > 1:
            raise ValueError(f"X has {count} columns named {name!r}: rename all but one")


def _categories(
    columns: Sequence[Column], settings: EncoderSettings, y: Any
) -> tuple[dict[int, Column], Array | None, list[str]]:
    """Return training values of columns that are encoded as categories, and the targets by which levels are encoded.

    The targets are None if no column has enough levels to need them.
    """
    texts = {at: as_text(column) for at, column in enumerate(columns) if column.kind in ("category", "boolean")}
    few, repeated = ({}, {}) if settings.integers == "numbers" else _categorical_numbers(columns, settings.max_onehot)
    if settings.integers == "categories":  # of which missing is a level, and only those with few values
        few, repeated = {at: columns[at] for at in few}, {}
    crowded = any(len(text.levels) + text.missing.any() > settings.max_onehot for text in texts.values())
    targets: Array | None = None
    names: list[str] = []
    if y is not None and (crowded or repeated):
        targets, names = target_columns(y, settings.target_type)
    numbers = few if targets is None or len(names) > _MOST_TARGETS else few | repeated
    return texts | {at: as_text(numbers[at]) for at in sorted(numbers)}, targets, names


def few_whole_numbers(columns: Sequence[Column], most: int) -> list[int]:
    """Return the columns of whole numbers with three to `most` values, which may be categories."""
    return list(_categorical_numbers(columns, most)[0])


def _categorical_numbers(columns: Sequence[Column], most: int) -> tuple[dict[int, Column], dict[int, Column]]:
    """Return columns that hold at most `most` integers, and columns with more values, each in many rows on average."""
    few, repeated = {}, {}
    for at, column in enumerate(columns):
        if column.kind != "number":
            continue
        known = column.values[~column.missing]
        n_values = len(np.unique(known))
        if len(known) > _REPEATED * most and most < n_values <= len(known) / _REPEATED:
            repeated[at] = column
        elif 2 < n_values <= most and np.isfinite(known).all() and (known == np.round(known)).all():
            few[at] = Column("number", known)  # without the missing ones, for which the numbers have an output
    return few, repeated


def _stacked(columns: list[Array], n: int) -> Array:
    return np.stack(columns, axis=1, dtype=np.float64) if columns else np.empty((n, 0))
