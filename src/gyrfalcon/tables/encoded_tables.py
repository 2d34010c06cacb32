"""The table as arrays, encoded in several ways."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .budget import ENCODED_ROWS
from .encoder import TableEncoder
from .encoding import EncoderSettings, encode_table, few_whole_numbers
from .inputs import apply_mixing
from .mixing import Mixing
from .notes import columns_in_words, warn_of_columns
from .reading import Table, recognised_table
from .suspicions import id_columns, warn_of_copies, warn_of_target, warn_of_two_values, without_columns
from .training import Run, TrainingData

Array = NDArray[Any]

# How a table can be encoded, by name: the parameters `numbers`, `integers` and `pairs` of TableEncoder. "quantile" has
# the same columns as "robust", in the same order.
QUANTILE, _BOTH, _ONLY, _PAIRS = "quantile", "integers as categories", "integers only as categories", "pairs"
_ENCODINGS = {
    "robust": ("robust", "numbers", 0),
    QUANTILE: ("quantile", "numbers", 0),
    _BOTH: ("robust", "both", 0),
    _ONLY: ("robust", "categories", 0),
    _PAIRS: ("robust", "categories", 20),
}
_MOSTLY = 0.5  # share of columns with few whole numbers or levels from which categories are tried before quantiles
_TIMED_ROWS = 10_000  # rows whose encoding is timed
_ENCODE_SHARE = 0.1  # share of the budget: if the first encoding takes longer, the others are left out


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """A fitted encoder and the rows that it returned; `held` are the encoded validation rows that `fit` was given.

    `seconds` is the estimated time to read and encode all rows, if they are not in memory.
    """

    name: str
    encoder: TableEncoder
    X: Any
    held: Array
    seconds: float = 0.0

    def take(self, indices: Array) -> Array:
        """Return rows in memory; validation rows follow the others."""
        n = self.X.shape[0]
        inside, beyond = indices[indices < n], indices[indices >= n] - n
        rows = self.X[inside] if isinstance(self.X, np.ndarray) else self.X.take(inside)
        return np.ascontiguousarray(np.concatenate([rows, self.held[beyond]]) if len(beyond) else rows)

    def under(self, matrix: Array | None) -> EncodedTable:
        """Return the encoding with rows multiplied by a matrix, if there is one."""
        if matrix is None:
            return self
        mixing = Mixing(matrix)
        held = mixing.transform(self.held) if len(self.held) else self.held
        return replace(self, X=apply_mixing(self.X, mixing), held=held)

    def rows(self, indices: Array) -> Any:
        """Return rows for a fit."""
        if len(indices) == self.X.shape[0]:
            return self.X
        return self.X[indices] if isinstance(self.X, np.ndarray) else self.X.subset(indices)


def encode_tables(data: TrainingData, run: Run, *, resumed: bool) -> tuple[EncodedTable, ...]:
    """Encode the table in as many ways as time allows, and in at least one.

    If `resumed`, no encoding is left out for lack of time, since candidates of the earlier run may need it.
    """
    n, random_state = data.inputs.n_rows, run.random_state
    seed = int(random_state.randint(2**31 - 1))
    every = n <= ENCODED_ROWS
    rows = np.arange(n) if every else np.sort(random_state.choice(n, ENCODED_ROWS, replace=False))
    began = time.perf_counter()
    given = recognised_table(data.inputs.take(rows), TableEncoder.__name__)  # parsed once for all encodings
    reading = time.perf_counter() - began  # of all rows, if they are in files: some of them are in all parts
    ids = id_columns(given)
    table = without_columns(given, ids)
    y, target_type = data.problem.encoder_targets(rows)
    fold = _encoder_folds(data, rows, random_state) if data.folds.from_user else None
    encodings: list[EncodedTable] = []
    for name in _order(table):
        numbers, integers, pairs = _ENCODINGS[name]
        if encodings and not resumed and run.budget.used > _ENCODE_SHARE * run.budget.seconds:
            break
        settings = EncoderSettings(
            numbers, integers, pairs, target_type=target_type, dtype="float32", random_state=seed
        )
        encoded = encode_table(table, settings, y, fold)
        encoder, X = TableEncoder.of(settings, encoded.encoding), encoded.X
        if X.shape[1] == 0:
            raise ValueError(f"every column of X is constant or missing in its {n} rows: there is nothing to learn")
        if name == _BOTH and X.shape[1] == encodings[0].X.shape[1]:
            continue  # no column of integers can be taken for categories
        if name == _PAIRS and not encoder.pairs_:
            continue
        held = np.empty((0, X.shape[1]), np.float32) if data.X_val is None else encoder.transform(data.X_val)
        whole = X if every else data.inputs.encoded(encoder)
        seconds = 0.0 if isinstance(whole, np.ndarray) else reading + _encoding_seconds(encoder, table, n)
        encodings.append(EncodedTable(name, encoder, whole, held, seconds))
    kinds = encodings[0].encoder.kinds_
    warn_of_columns(table, kinds, ids)
    warn_of_target(table, data.problem.codes[rows])
    if data.problem.target_type == "continuous":
        warn_of_two_values(data.problem.y)
    if every and not data.folds.from_user:
        warn_of_copies(table, encodings[0].X, data.problem.codes[:n], data.folds.fold[:n])
    run.say(columns_in_words(table, kinds, ids))
    if encodings[0].seconds:
        took = f"about {encodings[0].seconds:,.1f} s for each encoding that the final fits use"
        run.say(f"the {n:,} rows stay in their files: reading and encoding all of them takes {took}")
    if data.problem.form is not None:
        run.say(f"y is text read as numbers like {str(data.problem.form)!r}")
    return tuple(encodings)


def _encoding_seconds(encoder: TableEncoder, table: Table, n: int) -> float:
    """Estimate the seconds to encode n rows from those of some rows."""
    some = table.take(np.arange(min(table.n_rows, _TIMED_ROWS)))
    began = time.perf_counter()
    encoder.transform(some)
    return (time.perf_counter() - began) * n / some.n_rows


def _order(table: Table) -> list[str]:
    """Return the names of the encodings, the most promising first; those that would equal others are left out."""
    few = len(few_whole_numbers(table.columns, TableEncoder().max_onehot))
    named = sum(column.kind in ("category", "boolean") for column in table.columns)
    names = ["robust", QUANTILE, _BOTH, *[_ONLY] * (few > 0)]
    if few > _MOSTLY * len(table.columns):
        names.append(names.pop(names.index(QUANTILE)))
    if few + named > 1:
        names.insert(1 if few + named > _MOSTLY * len(table.columns) else len(names), _PAIRS)
    return names


def _encoder_folds(data: TrainingData, rows: Array, random_state: np.random.RandomState) -> Array:
    """Return fold numbers with which rows that are judged together do not contribute to each other's encodings."""
    fold = data.folds.fold[rows].copy()
    always = np.flatnonzero(fold < 0)
    fold[always] = -1 - random_state.randint(5, size=len(always))
    return np.asarray(fold)
